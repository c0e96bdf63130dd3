"""The integration surface: account isolation, keys, quotas, records, idempotency and errors."""

import asyncio
import json
import re
import secrets
import time
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

import asyncpg
import pytest

from service.app import create_app
from service.commands.integrations import insert_organization
from service.config import read_config
from service.db.compatibility import SchemaError
from service.db.pool import SERVICE_ROLE, connected_pool
from service.db.statements import sql
from service.db.transactions import Database
from service.http.api_keys import COMPANY, INTEGRATION, parse_key
from tests.api_requests import Account, make_account
from tests.conftest import (
    Client,
    ClientFactory,
    Company,
    HasKey,
    choose_fixture,
    make_company,
    shares_service,
    until,
)
from tests.fixtures_service import RunCommand
from tests.fixtures_shared import SharedService

UNAUTHORIZED = {"error": "Unauthorized: Valid API key required"}
USERS, ORGANIZATIONS = "/api/integrations/users", "/api/integrations/organizations"
NO_USER, NO_ORGANIZATION = f"usr_{'0' * 22}", f"org_{'0' * 22}"
QUOTA_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
#: Tables with rows of accounts, and the column with the id of the account.
ACCOUNT_TABLES = {
    "api_keys": "owner_id",
    "key_quotas": "owner_id",
    "idempotency_keys": "owner_id",
    "audit_log": "account_id",
    "integration_users": "account_id",
    "organizations": "account_id",
    "organization_members": "account_id",
    "organization_companies": "account_id",
}


class OpenPortal(Protocol):
    """The type of the fixture open_portal."""

    def __call__(self, account: HasKey, **settings: str) -> Awaitable[Client]:
        """Start a service and return a client of it with an account's key."""
        ...


class Organize(Protocol):
    """The type of the fixture organize."""

    def __call__(
        self, account: Account, name: str = "Branch", companies: Sequence[int] = ()
    ) -> Awaitable[str]:
        """Create an organization of an account and return its id."""
        ...


@pytest.fixture
def variables(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the variables of the service, which may be a shared one."""
    return choose_fixture(request, "variables")


@pytest.fixture
def own_variables(environment: dict[str, str]) -> dict[str, str]:
    return environment


@pytest.fixture
def shared_variables(shared_service: SharedService) -> dict[str, str]:
    return shared_service.environment


@pytest.fixture
def suffix(request: pytest.FixtureRequest) -> str:
    """Return the end of a name that must be unique in the service."""
    return f" {secrets.token_hex(4)}" if shares_service(request) else ""


@pytest.fixture
async def account(variables: dict[str, str], suffix: str) -> Account:
    return await make_account(variables, f"Penang Trading Group{suffix}")


@pytest.fixture
async def rival(variables: dict[str, str], suffix: str) -> Account:
    return await make_account(variables, f"Ipoh Holdings{suffix}")


@pytest.fixture
async def open_portal(environment: dict[str, str], aiohttp_client: ClientFactory) -> OpenPortal:
    """Return a function that starts a service and returns a client with an account's key."""

    async def make(account: HasKey, **settings: str) -> Client:
        defaults = {**environment, "INTEGRATION_REQUESTS_PER_MINUTE": "10000"}
        app = create_app(read_config({**defaults, **settings}), background=False)
        return await aiohttp_client(app, headers={"X-Portal-Key": account.key})

    return make


@pytest.fixture
def portal(request: pytest.FixtureRequest) -> Client:
    """Return a client with the key of `account` and a large quota."""
    return choose_fixture(request, "portal")


@pytest.fixture
async def own_portal(open_portal: OpenPortal, account: Account) -> Client:
    return await open_portal(account)


@pytest.fixture
async def shared_portal(
    shared_service: SharedService, account: Account, aiohttp_client: ClientFactory
) -> Client:
    return await shared_service.connect(aiohttp_client, {"X-Portal-Key": account.key})


@pytest.fixture
def organize(variables: dict[str, str]) -> Organize:
    """Return a function that creates an organization of an account and returns its id."""

    async def make(account: Account, name: str = "Branch", companies: Sequence[int] = ()) -> str:
        async with connected_pool(variables["DATABASE_URL"], 1) as pool:
            return (await insert_organization(Database(pool), account.id, name, companies))["id"]

    return make


def user(**changes: Any) -> dict[str, Any]:
    return {"name": "Nurul Huda", "email": "nurul@example.com", "role": "member", **changes}


async def ask(client: Client, method: str, path: str, **options: Any) -> tuple[int, Any]:
    """Return (status, body) of a response."""
    async with client.request(method, path, **options) as response:
        return response.status, await response.json()


#: The statuses and codes of frequent errors.
INVALID = (400, "validation_failed")
EMAIL_TAKEN = (409, "email_taken")
NO_ENDPOINT = (404, "endpoint_not_found")


async def request_refused(
    client: Client, method: str, path: str, expected: tuple[int, str], **options: Any
) -> dict[str, Any]:
    """Return the details of an error of the expected (status, code) in the specified format."""
    found, body = await ask(client, method, path, **options)
    assert list(body) == ["error", "message", "code", "details"], body
    assert (found, body["code"]) == expected, body
    assert body["error"] and body["message"] and isinstance(body["details"], dict)
    return body["details"]


async def post(
    client: Client, key: str, path: str = USERS, **body: Any
) -> tuple[int, Any, str | None]:
    """Return (status, body, Idempotent-Replayed) of a request with an Idempotency-Key."""
    async with client.post(path, json=body, headers={"Idempotency-Key": key}) as response:
        return response.status, await response.json(), response.headers.get("Idempotent-Replayed")


async def create_user(client: Client, **changes: Any) -> str:
    """Create a user and return its id."""
    status, body = await ask(client, "POST", USERS, json=user(**changes))
    assert status == 201, body
    return body["id"]


async def test_creating_a_user_returns_the_record(portal: Client) -> None:
    status, body = await ask(portal, "POST", USERS, json=user())
    assert status == 201 and list(body) == [
        "id",
        "name",
        "email",
        "role",
        "created_at",
        "updated_at",
    ]
    assert isinstance(body["id"], str) and body["created_at"].endswith("+00:00")
    assert {name: body[name] for name in user()} == user()
    assert await ask(portal, "GET", f"{USERS}/{body['id']}") == (200, body)


async def test_update_changes_only_sent_members_and_returns_the_record(portal: Client) -> None:
    user_id = await create_user(portal)
    status, body = await ask(portal, "PUT", f"{USERS}/{user_id}", json={"name": "Nurul Aini"})
    assert status == 200 and (body["name"], body["email"]) == ("Nurul Aini", "nurul@example.com")
    status, body = await ask(
        portal, "PUT", f"{USERS}/{user_id}", json={"email": "NURUL@example.com"}
    )
    assert status == 200 and (body["name"], body["email"]) == ("Nurul Aini", "NURUL@example.com")
    assert await ask(portal, "GET", f"{USERS}/{user_id}") == (200, body)
    assert (await ask(portal, "PUT", f"{USERS}/{user_id}"))[0] == 200


@pytest.mark.parametrize(
    "changes, path",
    [
        ({"name": ""}, "/name"),
        ({"name": "x" * 301}, "/name"),
        ({"name": None}, "/name"),
        ({"name": "a\0b"}, "/name"),
        ({"email": "nurul"}, "/email"),
        ({"email": "a@b@c"}, "/email"),
        ({"email": "nurul@example.com\n"}, "/email"),
        ({"email": f"{'x' * 320}@example.com"}, "/email"),
        ({"role": "king"}, "/role"),
        ({"rle": "owner"}, "/rle"),
    ],
)
async def test_invalid_user_is_a_400_with_the_member(
    portal: Client, changes: dict[str, Any], path: str
) -> None:
    details = await request_refused(portal, "POST", USERS, INVALID, json=user(**changes))
    assert path in [violation["path"] for violation in details["errors"]]


@pytest.mark.parametrize("path", [USERS, ORGANIZATIONS])
async def test_invalid_query_parameter_is_a_400_with_its_name(portal: Client, path: Any) -> None:
    for query in (
        "page=0",
        "page=x",
        "per_page=0",
        "per_page=101",
        f"query={'x' * 301}",
        "query=%00",
    ):
        details = await request_refused(portal, "GET", f"{path}?{query}", INVALID)
        paths = [violation["path"] for violation in details["errors"]]
        assert paths == [query.split("=")[0]]


async def test_used_email_is_a_409_regardless_of_case(portal: Client) -> None:
    await create_user(portal)
    other = await create_user(portal, email="siti@example.com")
    details = await request_refused(
        portal, "POST", USERS, EMAIL_TAKEN, json=user(email="Nurul@Example.com")
    )
    assert details["errors"][0]["path"] == "/email"
    await request_refused(
        portal, "PUT", f"{USERS}/{other}", EMAIL_TAKEN, json={"email": "NURUL@example.com"}
    )


async def test_concurrent_creations_with_one_email_create_one_user(
    portal: Client, owner: asyncpg.Connection
) -> None:
    answers = await asyncio.gather(*[ask(portal, "POST", USERS, json=user()) for _ in range(50)])
    assert sorted(status for status, _ in answers) == [201] + [409] * 49
    assert await owner.fetchval("select count(*) from integration_users") == 1


async def test_email_is_unique_per_account_only(
    portal: Client, open_portal: OpenPortal, rival: Account
) -> None:
    await create_user(portal)
    await create_user(await open_portal(rival))


def make_meta(*numbers: int) -> dict[str, int]:
    """Return the description of a page with these numbers."""
    names = ("total", "per_page", "current_page", "last_page", "from", "to")
    return dict(zip(names, numbers, strict=True))


async def test_users_are_listed_newest_first_with_meta(portal: Client) -> None:
    ids = [await create_user(portal, email=f"{number}@example.com") for number in range(5)]
    status, body = await ask(portal, "GET", f"{USERS}?per_page=2")
    assert status == 200 and [found["id"] for found in body["data"]] == [ids[4], ids[3]]
    assert body["meta"] == make_meta(5, 2, 1, 3, 1, 2)
    _, body = await ask(portal, "GET", f"{USERS}?per_page=2&page=3")
    assert [found["id"] for found in body["data"]] == [ids[0]]
    assert body["meta"] == make_meta(5, 2, 3, 3, 5, 5)


@pytest.mark.parametrize("path", [USERS, ORGANIZATIONS])
async def test_empty_list_has_one_page_and_no_range(portal: Client, path: Any) -> None:
    meta = {"total": 0, "per_page": 10, "current_page": 1, "last_page": 1, "from": None, "to": None}
    assert await ask(portal, "GET", path) == (200, {"data": [], "meta": meta})


async def test_page_past_the_end_is_empty_with_the_total(portal: Client) -> None:
    await create_user(portal)
    _, body = await ask(portal, "GET", f"{USERS}?page=7")
    meta = {"total": 1, "per_page": 10, "current_page": 7, "last_page": 1, "from": None, "to": None}
    assert body == {"data": [], "meta": meta}


@pytest.mark.parametrize(
    "words, found",
    [
        ("huda", 1),
        ("HUDA", 1),
        ("siti@", 1),
        ("example.com", 2),
        ("100%", 1),
        ("%", 1),
        ("_", 0),
        ("unknown", 0),
        ("", 2),
    ],
)
async def test_users_are_searched_literally_by_name_and_email(
    portal: Client, words: str, found: int
) -> None:
    await create_user(portal)
    await create_user(portal, name="Siti 100%", email="siti@example.com")
    async with portal.get(USERS, params={"query": words}) as response:
        body = await response.json()
    assert body["meta"]["total"] == len(body["data"]) == found


async def test_organization_has_members_and_companies(
    portal: Client,
    organize: Organize,
    account: Account,
    company: Company,
    environment: dict[str, str],
) -> None:
    other = await make_company(environment, name="Teh Satu Sdn. Bhd.", tin_code="C1234567890")
    organization_id = await organize(account, "Penang Branch", [other.id, company.id])
    nurul, siti = (
        await create_user(portal),
        await create_user(portal, name="Siti", email="siti@example.com"),
    )
    members = [{"userId": siti, "role": "owner"}, {"userId": nurul}]
    body = {
        "name": "Penang HQ",
        "email": "hq@example.com",
        "phone": "+6041234567",
        "members": members,
    }
    status, found = await ask(portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json=body)
    assert status == 200
    assert list(found) == [
        "id",
        "name",
        "email",
        "phone",
        "companies",
        "members",
        "created_at",
        "updated_at",
    ]
    assert (found["name"], found["email"], found["phone"]) == (
        "Penang HQ",
        "hq@example.com",
        "+6041234567",
    )
    assert found["companies"] == [
        {"id": company.id, "name": "Kopi Tiga Sdn. Bhd.", "tin_code": "C20880050010"},
        {"id": other.id, "name": "Teh Satu Sdn. Bhd.", "tin_code": "C1234567890"},
    ]
    assert found["members"] == [
        {"userId": nurul, "name": "Nurul Huda", "email": "nurul@example.com", "role": "member"},
        {"userId": siti, "name": "Siti", "email": "siti@example.com", "role": "owner"},
    ]
    assert await ask(portal, "GET", f"{ORGANIZATIONS}/{organization_id}") == (200, found)
    assert (await ask(portal, "GET", ORGANIZATIONS))[1]["data"] == [found]


async def test_replacing_members_keeps_roles_that_are_not_sent(
    portal: Client, organize: Organize, account: Account
) -> None:
    organization_id = await organize(account)
    users = [await create_user(portal, email=f"{number}@example.com") for number in range(3)]

    async def put(*members: dict[str, str]) -> dict[str, str]:
        status, body = await ask(
            portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json={"members": list(members)}
        )
        assert status == 200, body
        return {member["userId"]: member["role"] for member in body["members"]}

    assert await put({"userId": users[0], "role": "owner"}, {"userId": users[1]}) == {
        users[0]: "owner",
        users[1]: "member",
    }
    assert await put({"userId": users[0]}, {"userId": users[2], "role": "admin"}) == {
        users[0]: "owner",
        users[2]: "admin",
    }
    assert await put({"userId": users[0], "role": "member"}) == {users[0]: "member"}
    status, body = await ask(
        portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json={"name": "Renamed"}
    )
    assert status == 200 and [member["userId"] for member in body["members"]] == [users[0]]
    assert await put() == {}


async def test_unchanged_record_can_be_sent_back(
    portal: Client, organize: Organize, account: Account
) -> None:
    organization_id = await organize(account)
    member = {"userId": await create_user(portal), "role": "admin"}
    _, found = await ask(
        portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json={"members": [member]}
    )
    body = {name: found[name] for name in ("name", "email", "phone", "members")}
    _, again = await ask(portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json=body)
    assert {**again, "updated_at": None} == {**found, "updated_at": None}


async def test_null_removes_email_and_phone(
    portal: Client, organize: Organize, account: Account
) -> None:
    organization_id = await organize(account)
    await ask(
        portal,
        "PUT",
        f"{ORGANIZATIONS}/{organization_id}",
        json={"email": "a@example.com", "phone": "1"},
    )
    _, body = await ask(portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json={"email": None})
    assert (body["email"], body["phone"]) == (None, "1")


async def test_unknown_or_duplicate_member_is_a_400_without_changes(
    portal: Client, open_portal: OpenPortal, organize: Organize, account: Account, rival: Account
) -> None:
    organization_id, nurul = await organize(account), await create_user(portal)
    stranger = await create_user(await open_portal(rival))
    members = [{"userId": nurul}, {"userId": stranger}, {"userId": NO_USER}, {"userId": nurul}]
    body = {"name": "Changed", "members": members}
    details = await request_refused(
        portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", INVALID, json=body
    )
    assert [(violation["path"], violation["rule"]) for violation in details["errors"]] == [
        ("/members/1/userId", "exists"),
        ("/members/2/userId", "exists"),
        ("/members/3/userId", "unique"),
    ]
    _, found = await ask(portal, "GET", f"{ORGANIZATIONS}/{organization_id}")
    assert (found["name"], found["members"]) == ("Branch", [])


@pytest.mark.parametrize(
    "body, path",
    [
        ({"name": " "}, "/name"),
        ({"name": None}, "/name"),
        ({"email": "hq"}, "/email"),
        ({"phone": 5}, "/phone"),
        ({"members": {}}, "/members"),
        ({"members": [{}]}, "/members/0/userId"),
        ({"members": [{"userId": NO_USER, "role": "x"}]}, "/members/0/role"),
        ({"companies": []}, "/companies"),
    ],
)
async def test_invalid_organization_is_a_400_with_the_member(
    portal: Client, organize: Organize, account: Account, body: dict[str, Any], path: str
) -> None:
    details = await request_refused(
        portal, "PUT", f"{ORGANIZATIONS}/{await organize(account)}", INVALID, json=body
    )
    assert [violation["path"] for violation in details["errors"]] == [path]


async def test_concurrent_member_replacements_leave_one_complete_set(
    portal: Client, organize: Organize, account: Account
) -> None:
    organization_id = await organize(account)
    users = [await create_user(portal, email=f"{number}@example.com") for number in range(8)]
    bodies = [
        {"members": [{"userId": users[at]}, {"userId": users[at + 1]}]} for at in range(0, 8, 2)
    ] * 5
    answers = await asyncio.gather(
        *[ask(portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json=body) for body in bodies]
    )
    assert {status for status, _ in answers} == {200}
    _, found = await ask(portal, "GET", f"{ORGANIZATIONS}/{organization_id}")
    assert {"members": [{"userId": member["userId"]} for member in found["members"]]} in bodies


async def test_organizations_are_searched_and_listed_newest_first(
    portal: Client, organize: Organize, account: Account
) -> None:
    ids = [await organize(account, name) for name in ("Penang North", "Ipoh", "Penang South")]
    _, body = await ask(portal, "GET", f"{ORGANIZATIONS}?query=penang&per_page=1")
    assert [found["id"] for found in body["data"]] == [ids[2]]
    assert body["meta"] == make_meta(2, 1, 1, 2, 1, 1)


async def test_organizations_of_a_user_are_listed(
    portal: Client, organize: Organize, account: Account
) -> None:
    user_id, lonely = (
        await create_user(portal),
        await create_user(portal, email="lonely@example.com"),
    )
    ids = [await organize(account, name) for name in ("One", "Two", "Not theirs")]
    for organization in ids[:2]:
        await ask(
            portal,
            "PUT",
            f"{ORGANIZATIONS}/{organization}",
            json={"members": [{"userId": user_id}]},
        )
    status, body = await ask(portal, "GET", f"{USERS}/{user_id}/organizations")
    assert status == 200 and body["meta"] == {"total": 2, "count": 2}
    assert body["data"] == [
        (await ask(portal, "GET", f"{ORGANIZATIONS}/{one}"))[1] for one in (ids[1], ids[0])
    ]
    nothing = {"data": [], "meta": {"total": 0, "count": 0}}
    assert await ask(portal, "GET", f"{USERS}/{lonely}/organizations") == (200, nothing)


async def test_repeated_creation_replays_the_first_response(portal: Client) -> None:
    first = await post(portal, "a", **user())
    assert first[0] == 201 and first[2] is None
    await ask(portal, "PUT", f"{USERS}/{first[1]['id']}", json={"name": "Nurul Aini"})
    assert await post(portal, "a", **user()) == (*first[:2], "true")
    assert (await ask(portal, "GET", USERS))[1]["meta"]["total"] == 1


async def test_replayed_response_counts_against_the_quota(
    open_portal: OpenPortal, account: Account
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="2")
    for left in "10":
        async with portal.post(USERS, json=user(), headers={"Idempotency-Key": "a"}) as response:
            assert (response.status, response.headers["X-RateLimit-Remaining"]) == (201, left)
    assert (await post(portal, "a", **user()))[0] == 429


async def test_idempotency_key_with_another_body_is_a_422(portal: Client) -> None:
    await post(portal, "a", **user())
    headers = {"Idempotency-Key": "a"}
    details = await request_refused(
        portal,
        "POST",
        USERS,
        (422, "idempotency_key_reused"),
        json=user(email="siti@example.com"),
        headers=headers,
    )
    assert [(violation["path"], violation["rule"]) for violation in details["errors"]] == [
        ("Idempotency-Key", "reused")
    ]
    assert (await ask(portal, "GET", USERS))[1]["meta"]["total"] == 1


@pytest.mark.parametrize("key", ["x" * 256, "tab\tin"])
async def test_malformed_idempotency_key_is_a_400(portal: Client, key: str) -> None:
    await request_refused(
        portal,
        "POST",
        USERS,
        (400, "idempotency_key_invalid"),
        json=user(),
        headers={"Idempotency-Key": key},
    )


async def test_concurrent_repetitions_create_one_user(
    portal: Client, owner: asyncpg.Connection
) -> None:
    """The unique index on the e-mail address is dropped first."""
    await owner.execute("drop index integration_users_email_once")
    answers = await asyncio.gather(*[post(portal, "a", **user()) for _ in range(50)])
    assert {status for status, *_ in answers} <= {201, 409} and 201 in {
        status for status, *_ in answers
    }
    assert len({body["id"] for status, body, _ in answers if status == 201}) == 1
    assert await owner.fetchval("select count(*) from integration_users") == 1


async def test_repetition_during_the_first_request_gets_its_response(
    portal: Client, owner: asyncpg.Connection
) -> None:
    async with owner.transaction():
        await owner.execute("lock table integration_users")
        both = [asyncio.create_task(post(portal, "a", **user())) for _ in range(2)]
        await until(
            lambda: owner.fetchval(
                "select count(*) = 2 from pg_locks where not granted"
                " and relation = 'integration_users'::regclass"
            )
        )
    answers = [await task for task in both]
    assert {status for status, *_ in answers} == {201} and answers[0][1] == answers[1][1]
    assert [replayed for *_, replayed in answers].count("true") == 1


async def test_idempotency_keys_are_separate_per_account(
    portal: Client, open_portal: OpenPortal, rival: Account
) -> None:
    stranger = await open_portal(rival)
    first = await post(portal, "a", **user())
    other = await post(stranger, "a", **user())
    assert (other[0], other[2]) == (201, None) and other[1]["id"] != first[1]["id"]
    assert (await post(stranger, "b", **user(email="siti@example.com")))[0] == 201
    assert (await post(portal, "b", **user(name="Siti", email="siti@example.com")))[::2] == (
        201,
        None,
    )
    assert await post(portal, "a", **user()) == (*first[:2], "true")
    assert await post(stranger, "a", **user()) == (*other[:2], "true")


async def test_validation_error_is_replayed_and_conflict_is_not(
    portal: Client, owner: asyncpg.Connection
) -> None:
    status, first, _ = await post(portal, "a", **user(role="king"))
    assert status == 400
    assert await post(portal, "a", **user(role="king")) == (400, first, "true")
    user_id = await create_user(portal)
    assert (await post(portal, "b", **user()))[0] == 409
    await ask(portal, "PUT", f"{USERS}/{user_id}", json={"email": "siti@example.com"})
    assert (await post(portal, "b", **user()))[::2] == (201, None)


async def test_unknown_route_stores_no_idempotency_key(
    portal: Client, owner: asyncpg.Connection
) -> None:
    for path, status in (("/api/integrations/nothing", 404), (f"{USERS}/{NO_USER}", 405)):
        assert [(await post(portal, "a", path))[::2] for _ in range(2)] == [(status, None)] * 2
    assert await owner.fetchval("select count(*) from idempotency_keys") == 0


async def test_idempotency_key_expires_after_72_hours(
    portal: Client, owner: asyncpg.Connection
) -> None:
    await post(portal, "a", **user())
    age = "update idempotency_keys set created_at = clock_timestamp() - interval '72 hours'"
    await owner.execute(f"{age} + interval '1 minute'")
    assert (await post(portal, "a", **user(email="siti@example.com")))[0] == 422
    await owner.execute(age)
    assert (await post(portal, "a", **user(email="siti@example.com")))[::2] == (201, None)


#: A trigger that fails one of the two writes of a response: with its effect, and when it is final.
FAILING_KEEP = """
    create function fail() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
    create trigger failing before {} on idempotency_keys
       for each row execute function fail();
"""


async def test_effect_is_rolled_back_if_its_response_cannot_be_stored(
    portal: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute(FAILING_KEEP.format("insert"))
    assert (await post(portal, "a", **user()))[0] == 500
    assert await owner.fetchval("select count(*) from integration_users") == 0


async def test_response_is_stored_in_the_transaction_of_its_effect(
    portal: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute(FAILING_KEEP.format("update"))
    assert (await post(portal, "a", **user()))[0] == 201
    status, body, replayed = await post(portal, "a", **user())
    assert (status, replayed) == (201, "true")
    assert await ask(portal, "GET", f"{USERS}/{body['id']}") == (200, body)


@pytest.fixture
async def records(portal: Client, organize: Organize, account: Account) -> Any:
    """Return (path, change, another change) of each kind of record."""
    users, organizations = (
        f"{USERS}/{await create_user(portal)}",
        f"{ORGANIZATIONS}/{await organize(account)}",
    )
    members = {"members": [{"userId": users.rpartition("/")[2]}]}
    return (users, {"name": "Siti"}, {"email": "siti@example.com"}), (
        organizations,
        {"phone": "1"},
        members,
    )


async def etag_of(client: Client, path: str) -> str:
    async with client.get(path) as response:
        assert response.status == 200
        return response.headers["ETag"]


async def test_unchanged_record_is_a_304(portal: Client, records: Any) -> None:
    for path, *changes in records:
        for change in changes:
            etag = await etag_of(portal, path)
            async with portal.get(path, headers={"If-None-Match": etag}) as response:
                assert (
                    response.status == 304
                    and response.headers["ETag"] == etag
                    and not await response.read()
                )
                assert set(QUOTA_HEADERS) <= set(response.headers)
            assert (await ask(portal, "PUT", path, json=change))[0] == 200
            async with portal.get(path, headers={"If-None-Match": etag}) as response:
                assert response.status == 200 and response.headers["ETag"] != etag


async def test_update_with_a_stale_etag_is_a_412_without_changes(
    portal: Client, records: Any
) -> None:
    for path, change, another in records:
        etag = await etag_of(portal, path)
        assert (await ask(portal, "PUT", path, json=change, headers={"If-Match": etag}))[0] == 200
        before = await ask(portal, "GET", path)
        assert (
            await request_refused(
                portal,
                "PUT",
                path,
                (412, "precondition_failed"),
                json=another,
                headers={"If-Match": etag},
            )
            == {}
        )
        assert await ask(portal, "GET", path) == before
        headers = {"If-Match": f'"other", {await etag_of(portal, path)}'}
        assert (await ask(portal, "PUT", path, json=another, headers=headers))[0] == 200
        assert (await ask(portal, "PUT", path, json=another, headers={"If-Match": "*"}))[0] == 200


async def test_concurrent_updates_with_one_etag_apply_once(portal: Client, records: Any) -> None:
    for path, change, _ in records:
        headers = {"If-Match": await etag_of(portal, path)}
        answers = await asyncio.gather(
            *[ask(portal, "PUT", path, json=change, headers=headers) for _ in range(10)]
        )
        assert sorted(status for status, _ in answers) == [200] + [412] * 9


async def test_conditional_update_of_an_unknown_record_is_a_404(portal: Client) -> None:
    for path in (f"{USERS}/{NO_USER}", f"{ORGANIZATIONS}/{NO_ORGANIZATION}"):
        await request_refused(
            portal,
            "PUT",
            path,
            (404, "not_found"),
            json={"name": "Siti"},
            headers={"If-Match": "*"},
        )


async def test_unknown_paths_and_methods_have_the_surface_format(portal: Client) -> None:
    await request_refused(portal, "GET", "/api/integrations/nothing", NO_ENDPOINT)
    await request_refused(portal, "GET", "/api/integrations", NO_ENDPOINT)
    async with portal.delete(USERS) as response:
        assert response.status == 405 and response.headers["Allow"] == "GET,HEAD,POST"
    assert await ask(portal, "GET", "/api/integrations/nothing", headers={"X-Portal-Key": "x"}) == (
        401,
        UNAUTHORIZED,
    )


async def test_internal_error_is_a_500_without_details(
    portal: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute("alter table integration_users rename to elsewhere")
    assert await request_refused(portal, "POST", USERS, (500, "internal_error"), json=user()) == {}


@pytest.mark.parametrize(
    "method, path",
    [("GET", USERS), ("POST", USERS), ("GET", f"{USERS}/{NO_USER}"), ("GET", ORGANIZATIONS)],
)
async def test_missing_wrong_or_company_key_is_a_401(
    portal: Client, company: Company, account: Account, method: str, path: Any
) -> None:
    changed = account.key[:-1] + ("0" if account.key[-1] != "0" else "1")
    for key in ("", " ", "x", changed, company.key, account.key.replace("einp", "einv")):
        assert await ask(
            portal, method, path, headers={"X-Portal-Key": key, "X-API-Key": company.key}
        ) == (401, UNAUTHORIZED)


async def test_integration_key_is_rejected_by_the_company_surface(
    idle: Client, account: Account
) -> None:
    assert await ask(idle, "GET", "/api/invoices", headers={"X-API-Key": account.key}) == (
        401,
        {"message": "Invalid API key"},
    )
    missing = {"X-API-Key": "", "X-Portal-Key": account.key}
    assert await ask(idle, "GET", "/api/invoices", headers=missing) == (
        401,
        {"message": "API key is required"},
    )


async def test_last_use_of_a_key_is_stored(
    open_portal: OpenPortal, account: Account, owner: asyncpg.Connection
) -> None:
    portal = await open_portal(account)
    await ask(portal, "GET", USERS)
    await portal.close()
    assert await owner.fetchval(
        "select last_used_at from api_keys where key_id = $1", account.key_id
    )


async def test_key_has_the_format_of_its_kind(account: Account, company: Company) -> None:
    assert account.key.startswith(f"einp_test_{account.key_id}_")
    parsed = parse_key(account.key, INTEGRATION)
    assert parsed and parsed[0] == account.key_id
    assert parse_key(account.key, COMPANY) is None and parse_key(company.key, INTEGRATION) is None


async def test_quota_is_shared_by_processes_and_shown_on_every_response(
    open_portal: OpenPortal, account: Account
) -> None:
    clients = [await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="6") for _ in range(2)]
    asked = [
        ("GET", USERS, 200),
        ("GET", f"{USERS}/x", 404),
        ("POST", USERS, 400),
        ("DELETE", USERS, 405),
        ("GET", "/api/integrations", 404),
    ]
    ends = set()
    for place, (method, path, status) in enumerate([*asked, ("GET", ORGANIZATIONS, 200)]):
        async with clients[place % 2].request(method, path) as response:
            assert response.status == status
            assert [response.headers[name] for name in QUOTA_HEADERS[:2]] == ["6", str(5 - place)]
            ends.add(int(response.headers["X-RateLimit-Reset"]))
    assert len(ends) == 1 and 0 <= ends.pop() - time.time() <= 61
    for client in clients:
        async with client.get(USERS) as response:
            body = await response.json()
            assert response.status == 429 and response.headers["X-RateLimit-Remaining"] == "0"
            assert response.headers["Retry-After"] == str(body["details"]["retry_after"])
        assert 1 <= body["details"]["retry_after"] <= 60
        assert list(body) == ["error", "message", "code", "details"]
        assert (body["error"], body["code"]) == ("Too Many Requests", "rate_limited")


async def test_concurrent_requests_do_not_exceed_the_quota(
    open_portal: OpenPortal, account: Account
) -> None:
    clients = [await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="10") for _ in range(2)]
    answers = await asyncio.gather(
        *[ask(clients[number % 2], "GET", USERS) for number in range(40)]
    )
    assert sorted(status for status, _ in answers) == [200] * 10 + [429] * 30


async def test_quota_is_restored_in_the_next_minute(
    open_portal: OpenPortal, account: Account, owner: asyncpg.Connection
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="1")
    assert [(await ask(portal, "GET", USERS))[0] for _ in range(3)] == [200, 429, 429]
    await owner.execute("update key_quotas set ends_at = clock_timestamp()")
    assert [(await ask(portal, "GET", USERS))[0] for _ in range(2)] == [200, 429]


async def test_quota_is_per_key(
    open_portal: OpenPortal, account: Account, rival: Account, environment: dict[str, str]
) -> None:
    second = await make_account(environment, "Penang Trading Group")
    assert second.id == account.id
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="1")
    for key in (account.key, second.key, rival.key):
        statuses = [
            (await ask(portal, "GET", USERS, headers={"X-Portal-Key": key}))[0] for _ in range(2)
        ]
        assert statuses == [200, 429]


async def test_unauthenticated_response_shows_an_empty_quota(
    open_portal: OpenPortal, account: Account
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="7")
    async with portal.get(USERS, headers={"X-Portal-Key": "x"}) as response:
        assert response.status == 401
        assert [response.headers[name] for name in QUOTA_HEADERS[:2]] == ["7", "0"]
        assert abs(int(response.headers["X-RateLimit-Reset"]) - time.time()) < 5


async def test_quota_of_zero_disables_it_and_120_is_the_default(
    open_portal: OpenPortal, account: Account
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="0")
    async with portal.get(USERS) as response:
        assert not set(QUOTA_HEADERS) & set(response.headers)
    assert read_config({}).integration_requests_per_minute == 120


@pytest.fixture
async def filled(
    portal: Client,
    open_portal: OpenPortal,
    organize: Organize,
    account: Account,
    rival: Account,
    company: Company,
) -> Any:
    """Give both accounts a user, an organization with that member, and a company.

    Return {account id: (user id, organization id)}.
    """
    made = {}
    for owned, client in ((account, portal), (rival, await open_portal(rival))):
        _, body, _ = await post(client, "first", **user())
        user_id, organization_id = body["id"], await organize(owned, companies=[company.id])
        assert (
            await ask(
                client,
                "PUT",
                f"{ORGANIZATIONS}/{organization_id}",
                json={"members": [{"userId": user_id}]},
            )
        )[0] == 200
        made[owned.id] = user_id, organization_id
    return made


async def test_row_level_security_hides_other_accounts(
    filled: Any, owner: asyncpg.Connection, account: Account
) -> None:
    await owner.execute(f"set role {SERVICE_ROLE}")
    async with owner.transaction():
        await owner.execute(f"set local app.account_id = '{account.id}'")
        for table, column in ACCOUNT_TABLES.items():
            query = f"select array_agg(distinct {column}) from {table}"
            assert await owner.fetchval(query) == [account.id], table
        for view, place in (("integration_user_records", 0), ("organization_records", 1)):
            assert [row["id"] for row in await owner.fetch(f"select id from {view}")] == [
                filled[account.id][place]
            ]
        assert await owner.fetch("select id from accounts") == [(account.id,)]
    for table, column in ACCOUNT_TABLES.items():
        assert await owner.fetchval(f"select count({column}) from {table}") == 0, table


@pytest.mark.parametrize(
    "statement",
    [sql.integration_user_page, sql.organization_page],
    ids=lambda statement: statement.name,
)
async def test_list_without_its_predicate_shows_no_other_account(
    filled: Any, owner: asyncpg.Connection, account: Account, statement: Any
) -> None:
    query, predicates = re.subn(
        r"(r\.)?account_id = \$1", "$1::bigint is not null", statement.query
    )
    assert predicates == 2
    values = {"account_id": account.id, "query": None, "per_page": 10, "offset": 0}
    arguments = [values[name] for name in statement.variables]
    # The owner bypasses row-level security.
    everything: Any = await owner.fetchrow(query, *arguments)
    assert everything["total"] == 2
    async with owner.transaction():
        await owner.execute(f"set local role {SERVICE_ROLE}")
        await owner.execute(f"set local app.account_id = '{account.id}'")
        found: Any = await owner.fetchrow(query, *arguments)
    assert found["total"] == 1 and len(json.loads(found["data"])) == 1


async def test_row_level_security_rejects_writes_for_other_accounts(
    filled: Any, owner: asyncpg.Connection, account: Account, rival: Account
) -> None:
    await owner.execute(f"set role {SERVICE_ROLE}")
    statement = "insert into organizations (account_id, id, name) values ($1, 'org_x', 'x')"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with owner.transaction():
            await owner.execute(f"set local app.account_id = '{account.id}'")
            await owner.execute(statement, rival.id)
    async with owner.transaction():
        await owner.execute(f"set local app.account_id = '{account.id}'")
        assert await owner.execute("update integration_users set name = 'taken'") == "UPDATE 1"
        assert await owner.execute("delete from organization_members") == "DELETE 1"


async def test_statements_hide_other_accounts_without_row_level_security(
    filled: Any, owner: asyncpg.Connection, account: Account, rival: Account
) -> None:
    """`owner` is a superuser, to whom no policy applies."""
    user_id, organization_id = filled[rival.id]
    mine = {"account_id": account.id}
    assert await sql.integration_user_get(owner, **mine, id=user_id) is None
    assert (
        await sql.integration_user_update(owner, **mine, id=user_id, name="taken", email=None)
        is None
    )
    assert await sql.integration_user_organizations(owner, **mine, id=user_id) is None
    assert await sql.organization_get(owner, **mine, id=organization_id) is None
    assert await sql.organization_update(owner, **mine, id=organization_id, body="{}") is None
    assert [
        row["place"]
        for row in await sql.organization_members_unknown(owner, **mine, users=[user_id])
    ] == [0]
    for page in (sql.integration_user_page, sql.organization_page):
        assert (await page(owner, **mine, query=None, per_page=10, offset=0))["total"] == 1
    await sql.organization_members_put(owner, **mine, id=filled[account.id][1], users=[], roles=[])
    assert (
        await owner.fetchval(
            "select count(*) from organization_members where account_id = $1", rival.id
        )
        == 1
    )


async def test_account_sees_only_linked_companies(
    filled: Any, owner: asyncpg.Connection, account: Account, environment: dict[str, str]
) -> None:
    await make_company(environment, name="Not linked", tin_code="C999")
    async with owner.transaction():
        await owner.execute(f"set local role {SERVICE_ROLE}")
        linked = "select name from linked_companies($1)"
        assert await owner.fetch(linked, filled[account.id][1]) == []
        await owner.execute(f"set local app.account_id = '{account.id}'")
        assert await owner.fetch("select from companies") == []
        assert await owner.fetch(linked, filled[account.id][1]) == [("Kopi Tiga Sdn. Bhd.",)]
        (other,) = [made[1] for account_id, made in filled.items() if account_id != account.id]
        assert await owner.fetch(linked, other) == []


async def test_service_role_cannot_read_key_digests(
    owner: asyncpg.Connection, account: Account
) -> None:
    await owner.execute(f"set role {SERVICE_ROLE}")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await owner.fetch("select secret_sha256 from api_keys")


async def test_start_fails_without_row_level_security(
    open_portal: OpenPortal, account: Account, owner: asyncpg.Connection
) -> None:
    await owner.execute("alter table organization_members no force row level security")
    with pytest.raises(SchemaError, match="organization_members"):
        await open_portal(account)


async def test_commands_create_a_working_account_and_revoke_its_key(
    command: RunCommand, open_portal: OpenPortal, company: Company
) -> None:
    async def run(*arguments: str) -> tuple[int | None, Any]:
        done = await command(*arguments)
        return done.code, json.loads(done.out) if done.code == 0 else done.err

    status, made = await run("add-integration-key", "--account", "Melaka Group")
    assert status == 0 and set(made) == {"key", "key_id", "account_id"}
    status, organization = await run(
        "add-organization",
        "--account",
        "Melaka Group",
        "--name",
        "HQ",
        "--company",
        str(company.id),
    )
    assert status == 0
    portal = await open_portal(Account(made["account_id"], made["key"], made["key_id"]))
    _, found = await ask(portal, "GET", f"{ORGANIZATIONS}/{organization['id']}")
    assert [linked["id"] for linked in found["companies"]] == [company.id]
    assert await run("revoke-key", made["key_id"]) == (
        0,
        {"key_id": made["key_id"], "revoked": True},
    )
    await until(lambda: ask(portal, "GET", USERS), lambda answer: answer == (401, UNAUTHORIZED))
    assert await run("revoke-key", made["key_id"]) == (
        0,
        {"key_id": made["key_id"], "revoked": False},
    )


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["add-organization", "--account", "None", "--name", "A"], "There is no account None"),
        (
            [
                "add-organization",
                "--account",
                "Penang Trading Group",
                "--name",
                "A",
                "--company",
                "77",
            ],
            "There is no company 77",
        ),
        (
            ["add-organization", "--account", "Penang Trading Group", "--name", " "],
            "name must not be blank",
        ),
        (["add-integration-key", "--account", " "], "An account needs a name"),
        (
            ["add-integration-key", "--account", "A", "--expires", "tomorrow"],
            "is not a date and a time",
        ),
        (["revoke-key", "x"], "There is no key x"),
    ],
)
async def test_failing_command_reports_the_reason(
    command: RunCommand, portal: Client, arguments: list[Any], complaint: str
) -> None:
    await create_user(portal, email="Nurul@example.com")
    done = await command(*arguments)
    assert done.code == 1 and complaint in done.err and "Traceback" not in done.err

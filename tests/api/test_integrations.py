"""The integration surface: account isolation, keys, quotas, records, idempotency and errors."""

import asyncio
import secrets
import time
from collections.abc import Awaitable
from typing import Any, Protocol

import asyncpg
import pytest

from service.config import read_config
from service.db.pool import SERVICE_ROLE
from service.http.api_keys import COMPANY, INTEGRATION, parse_key
from tests.api_reads import get_json
from tests.api_requests import (
    Account,
    create_organization,
    expect,
    list_paths,
    list_rules,
    make_account,
    post_once,
    request_json,
)
from tests.conftest import Client, Company, HasKey, StartService, make_company, until
from tests.fixtures_service import RunCommand
from tests.fixtures_specification import Context
from tests.operations.test_commands import read_error, read_result

UNAUTHORIZED = (401, {"error": "Unauthorized: Valid API key required"})
USERS, ORGANIZATIONS = "/api/integrations/users", "/api/integrations/organizations"
NO_USER, NO_ORGANIZATION = f"usr_{'0' * 22}", f"org_{'0' * 22}"
QUOTA_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")


class OpenPortal(Protocol):
    """The type of the fixture open_portal."""

    def __call__(self, account: HasKey, **settings: str) -> Awaitable[Client]: ...


@pytest.fixture
def portal(context: Context) -> Client:
    """Return a client with the key of `account` and a large quota."""
    return context.api


@pytest.fixture
def account(context: Context) -> Account:
    return context.account


@pytest.fixture
async def open_portal(start: StartService) -> OpenPortal:
    """Return a function that starts a service and returns a client with an account's key."""

    async def make(account: HasKey, **settings: str) -> Client:
        api = await start(background=False, **settings)
        api.session.headers["X-Portal-Key"] = account.key
        return api

    return make


@pytest.fixture
async def organization(context: Context) -> str:
    made = await create_organization(context.environment, context.account.id)
    return f"{ORGANIZATIONS}/{made}"


def user(**changes: Any) -> dict[str, Any]:
    return {"name": "Nurul Huda", "email": "nurul@example.com", "role": "member", **changes}


async def create_user(client: Client, **changes: Any) -> str:
    """Create a user and return its id."""
    return (await expect(client, 201, "POST", USERS, json=user(**changes)))["id"]


#: The statuses and codes of frequent errors.
INVALID = (400, "validation_failed")
NO_ENDPOINT = (404, "endpoint_not_found")


async def request_refused(
    client: Client, method: str, path: str, expected: tuple[int, str], **options: Any
) -> dict[str, Any]:
    """Return the details of an error of the expected (status, code) in the specified format."""
    body = await expect(client, expected[0], method, path, **options)
    assert list(body) == ["error", "message", "code", "details"]
    assert body["code"] == expected[1]
    assert body["error"] and body["message"] and isinstance(body["details"], dict)
    return body["details"]


async def test_creating_a_user_returns_the_record(portal: Client) -> None:
    body = await expect(portal, 201, "POST", USERS, json=user())
    assert list(body) == ["id", "name", "email", "role", "created_at", "updated_at"]
    assert isinstance(body["id"], str) and body["created_at"].endswith("+00:00")
    assert body.items() >= user().items()
    assert await get_json(portal, f"{USERS}/{body['id']}") == body


async def test_update_changes_only_sent_members_and_returns_the_record(portal: Client) -> None:
    path = f"{USERS}/{await create_user(portal)}"
    for change in ({"name": "Nurul Aini"}, {"email": "NURUL@example.com"}, {}):
        before = await get_json(portal, path)
        after = await expect(portal, 200, "PUT", path, json=change)
        assert await get_json(portal, path) == after
        assert {**after, "updated_at": ""} == {**before, **change, "updated_at": ""}


async def test_used_email_is_a_409_regardless_of_case(portal: Client) -> None:
    await create_user(portal)
    other = f"{USERS}/{await create_user(portal, email='siti@example.com')}"
    for method, path in (("POST", USERS), ("PUT", other)):
        body = user(email="Nurul@Example.com")
        if method == "PUT":
            del body["role"]
        details = await request_refused(portal, method, path, (409, "email_taken"), json=body)
        assert list_paths(details) == ["/email"]


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
        paths = list_paths(details)
        assert paths == [query.split("=")[0]]


async def test_concurrent_creations_with_one_email_create_one_user(
    portal: Client, owner: asyncpg.Connection
) -> None:
    answers = await asyncio.gather(
        *[request_json(portal, "POST", USERS, json=user()) for _ in range(50)]
    )
    assert sorted(status for status, _ in answers) == [201] + [409] * 49
    assert await owner.fetchval("select count(*) from integration_users") == 1


def make_meta(*numbers: int) -> dict[str, int]:
    """Return the description of a page with these numbers."""
    names = ("total", "per_page", "current_page", "last_page", "from", "to")
    return dict(zip(names, numbers, strict=True))


async def test_users_are_listed_newest_first_with_meta(portal: Client) -> None:
    ids = [await create_user(portal, email=f"{number}@example.com") for number in range(5)]
    body = await get_json(portal, f"{USERS}?per_page=2")
    assert [found["id"] for found in body["data"]] == [ids[4], ids[3]]
    assert body["meta"] == make_meta(5, 2, 1, 3, 1, 2)
    body = await get_json(portal, f"{USERS}?per_page=2&page=3")
    assert [found["id"] for found in body["data"]] == [ids[0]]
    assert body["meta"] == make_meta(5, 2, 3, 3, 5, 5)


@pytest.mark.parametrize("path", [USERS, ORGANIZATIONS])
async def test_empty_list_has_one_page_and_no_range(portal: Client, path: Any) -> None:
    meta = {"total": 0, "per_page": 10, "current_page": 1, "last_page": 1, "from": None, "to": None}
    assert await get_json(portal, path) == {"data": [], "meta": meta}


async def test_page_past_the_end_is_empty_with_the_total(portal: Client) -> None:
    await create_user(portal)
    body = await get_json(portal, f"{USERS}?page=7")
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
    body = await expect(portal, 200, "GET", USERS, params={"query": words})
    assert body["meta"]["total"] == len(body["data"]) == found


async def test_organization_has_members_and_companies(
    portal: Client, account: Account, company: Company, environment: dict[str, str]
) -> None:
    other = await make_company(environment, name="Teh Satu Sdn. Bhd.", tin_code="C1234567890")
    made = await create_organization(environment, account.id, other.id, company.id)
    path = f"{ORGANIZATIONS}/{made}"
    nurul = await create_user(portal)
    siti = await create_user(portal, name="Siti", email="siti@example.com")
    members = [{"userId": siti, "role": "owner"}, {"userId": nurul}]
    facts = {"name": "Penang HQ", "email": "hq@example.com", "phone": "+6041234567"}
    found = await expect(portal, 200, "PUT", path, json={**facts, "members": members})
    names = "id name email phone companies members created_at updated_at"
    assert list(found) == names.split() and found.items() >= facts.items()
    assert found["companies"] == [
        {"id": company.id, "name": "Kopi Tiga Sdn. Bhd.", "tin_code": "C20880050010"},
        {"id": other.id, "name": "Teh Satu Sdn. Bhd.", "tin_code": "C1234567890"},
    ]
    assert found["members"] == [
        {"userId": nurul, "name": "Nurul Huda", "email": "nurul@example.com", "role": "member"},
        {"userId": siti, "name": "Siti", "email": "siti@example.com", "role": "owner"},
    ]
    assert await get_json(portal, path) == found
    assert (await get_json(portal, ORGANIZATIONS))["data"] == [found]


async def test_replacing_members_keeps_roles_that_are_not_sent(
    portal: Client, organization: str
) -> None:
    one, two, three = [await create_user(portal, email=f"{n}@example.com") for n in range(3)]
    for members, roles in (
        ([{"userId": one, "role": "owner"}, {"userId": two}], {one: "owner", two: "member"}),
        ([{"userId": one}, {"userId": three, "role": "admin"}], {one: "owner", three: "admin"}),
        ([{"userId": one, "role": "member"}], {one: "member"}),
        (None, {one: "member"}),
        ([], {}),
    ):
        change = {"name": "Renamed"} if members is None else {"members": members}
        found = await expect(portal, 200, "PUT", organization, json=change)
        assert {member["userId"]: member["role"] for member in found["members"]} == roles


async def test_unchanged_record_can_be_sent_back(portal: Client, organization: str) -> None:
    members = [{"userId": await create_user(portal), "role": "admin"}]
    found = await expect(portal, 200, "PUT", organization, json={"members": members})
    body = {name: found[name] for name in ("name", "email", "phone", "members")}
    again = await expect(portal, 200, "PUT", organization, json=body)
    assert {**again, "updated_at": None} == {**found, "updated_at": None}


async def test_null_removes_email_and_phone(portal: Client, organization: str) -> None:
    facts = {"email": "a@example.com", "phone": "1"}
    await expect(portal, 200, "PUT", organization, json=facts)
    body = await expect(portal, 200, "PUT", organization, json={"email": None})
    assert (body["email"], body["phone"]) == (None, "1")


async def test_unknown_or_duplicate_member_is_a_400_without_changes(
    portal: Client, organization: str, context: Context
) -> None:
    rival = await make_account(context.environment, f"Ipoh Holdings {secrets.token_hex(4)}")
    headers = {"X-Portal-Key": rival.key}
    stranger = (await expect(portal, 201, "POST", USERS, json=user(), headers=headers))["id"]
    nurul = await create_user(portal)
    members = [{"userId": each} for each in (nurul, stranger, NO_USER, nurul)]
    body = {"name": "Changed", "members": members}
    details = await request_refused(portal, "PUT", organization, INVALID, json=body)
    assert list_rules(details) == [
        ("/members/1/userId", "exists"),
        ("/members/2/userId", "exists"),
        ("/members/3/userId", "unique"),
    ]
    found = await get_json(portal, organization)
    assert (found["name"], found["members"]) == ("Penang Branch", [])


async def test_concurrent_member_replacements_leave_one_complete_set(
    portal: Client, organization: str
) -> None:
    users = [await create_user(portal, email=f"{number}@example.com") for number in range(8)]
    pairs = [[{"userId": each} for each in users[at : at + 2]] for at in range(0, 8, 2)]
    await asyncio.gather(
        *[expect(portal, 200, "PUT", organization, json={"members": pair}) for pair in pairs * 5]
    )
    found = await get_json(portal, organization)
    assert [{"userId": member["userId"]} for member in found["members"]] in pairs


async def test_organizations_are_searched_and_listed_newest_first(
    portal: Client, context: Context
) -> None:
    ids = [
        await create_organization(context.environment, context.account.id, name=name)
        for name in ("Penang North", "Ipoh", "Penang South")
    ]
    body = await get_json(portal, f"{ORGANIZATIONS}?query=penang&per_page=1")
    assert [found["id"] for found in body["data"]] == [ids[2]]
    assert body["meta"] == make_meta(2, 1, 1, 2, 1, 1)


async def test_organizations_of_a_user_are_listed(portal: Client, context: Context) -> None:
    user_id = await create_user(portal)
    one, two, _ = [
        f"{ORGANIZATIONS}/{await create_organization(context.environment, context.account.id)}"
        for _ in range(3)
    ]
    for path in (one, two):
        await expect(portal, 200, "PUT", path, json={"members": [{"userId": user_id}]})
    body = await get_json(portal, f"{USERS}/{user_id}/organizations")
    assert body["meta"] == {"total": 2, "count": 2}
    assert body["data"] == [await get_json(portal, path) for path in (two, one)]
    lonely = await create_user(portal, email="lonely@example.com")
    nothing = {"data": [], "meta": {"total": 0, "count": 0}}
    assert await get_json(portal, f"{USERS}/{lonely}/organizations") == nothing


async def test_replayed_response_counts_against_the_quota(
    open_portal: OpenPortal, account: Account
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="2")
    for left in "10":
        async with portal.post(USERS, json=user(), headers={"Idempotency-Key": "a"}) as response:
            assert (response.status, response.headers["X-RateLimit-Remaining"]) == (201, left)
    assert (await post_once(portal, "a", USERS, **user()))[0] == 429


async def test_validation_error_is_replayed_and_conflict_is_not(
    portal: Client, owner: asyncpg.Connection
) -> None:
    status, first, _ = await post_once(portal, "a", USERS, **user(role="king"))
    assert status == 400
    assert await post_once(portal, "a", USERS, **user(role="king")) == (400, first, True)
    user_id = await create_user(portal)
    assert (await post_once(portal, "b", USERS, **user()))[0] == 409
    await expect(portal, 200, "PUT", f"{USERS}/{user_id}", json={"email": "siti@example.com"})
    assert (await post_once(portal, "b", USERS, **user()))[::2] == (201, False)


async def test_unknown_route_stores_no_idempotency_key(
    portal: Client, owner: asyncpg.Connection
) -> None:
    for path, status in (("/api/integrations/nothing", 404), (f"{USERS}/{NO_USER}", 405)):
        assert [(await post_once(portal, "a", path))[::2] for _ in range(2)] == [
            (status, False)
        ] * 2
    assert await owner.fetchval("select count(*) from idempotency_keys") == 0


@pytest.mark.parametrize("kind", [USERS, ORGANIZATIONS])
async def test_an_update_with_a_stale_etag_changes_nothing(
    portal: Client, organization: str, kind: str
) -> None:
    path = organization if kind == ORGANIZATIONS else f"{USERS}/{await create_user(portal)}"
    async with portal.get(path) as response:
        etag = response.headers["ETag"]
    async with portal.get(path, headers={"If-None-Match": etag}) as response:
        assert (response.status, await response.read()) == (304, b"")
        assert response.headers["ETag"] == etag
        assert set(QUOTA_HEADERS) <= set(response.headers)
    update = {"json": {"name": "Siti"}, "headers": {"If-Match": etag}}
    answers = await asyncio.gather(
        *[request_json(portal, "PUT", path, **update) for _ in range(10)]
    )
    assert sorted(status for status, _ in answers) == [200] + [412] * 9
    before = await get_json(portal, path)
    update["json"] = {"name": "Another"}
    assert await request_refused(portal, "PUT", path, (412, "precondition_failed"), **update) == {}
    async with portal.get(path, headers={"If-None-Match": etag}) as response:
        assert (response.status, await response.json()) == (200, before)
        new = response.headers["ETag"]
    for value in (f'"other", {new}', "*"):
        await expect(portal, 200, "PUT", path, json={"name": "A"}, headers={"If-Match": value})
    unknown = NO_ORGANIZATION if kind == ORGANIZATIONS else NO_USER
    update = {"json": {"name": "Siti"}, "headers": {"If-Match": "*"}}
    await request_refused(portal, "PUT", f"{kind}/{unknown}", (404, "not_found"), **update)


async def test_unknown_paths_and_methods_have_the_surface_format(portal: Client) -> None:
    await request_refused(portal, "GET", "/api/integrations/nothing", NO_ENDPOINT)
    await request_refused(portal, "GET", "/api/integrations", NO_ENDPOINT)
    async with portal.delete(USERS) as response:
        assert response.status == 405 and response.headers["Allow"] == "GET,HEAD,POST"
    wrong = {"X-Portal-Key": "x"}
    path = "/api/integrations/nothing"
    assert await request_json(portal, "GET", path, headers=wrong) == UNAUTHORIZED


async def test_internal_error_is_a_500_without_details(
    portal: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute("alter table integration_users rename to elsewhere")
    assert await request_refused(portal, "POST", USERS, (500, "internal_error"), json=user()) == {}


async def test_last_use_of_a_key_is_stored(
    open_portal: OpenPortal, account: Account, owner: asyncpg.Connection
) -> None:
    portal = await open_portal(account)
    await get_json(portal, USERS)
    await portal.close()
    used = "select last_used_at from api_keys where key_id = $1"
    assert await owner.fetchval(used, account.key_id)


async def test_key_has_the_format_of_its_kind(account: Account, company: Company) -> None:
    assert account.key.startswith(f"einp_test_{account.key_id}_")
    parsed = parse_key(account.key, INTEGRATION)
    assert parsed and parsed[0] == account.key_id
    assert parse_key(account.key, COMPANY) is None and parse_key(company.key, INTEGRATION) is None


async def test_quota_is_per_key(
    open_portal: OpenPortal, account: Account, environment: dict[str, str]
) -> None:
    second = await make_account(environment)
    assert second.id == account.id
    rival = await make_account(environment, "Ipoh Holdings")
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="1")
    for key in (account.key, second.key, rival.key):
        for status in (200, 429):
            await expect(portal, status, "GET", USERS, headers={"X-Portal-Key": key})


async def test_account_sees_only_linked_companies(
    owner: asyncpg.Connection, account: Account, company: Company, environment: dict[str, str]
) -> None:
    rival = await make_account(environment, "Ipoh Holdings")
    own, other = [
        await create_organization(environment, each.id, company.id) for each in (account, rival)
    ]
    await make_company(environment, name="Not linked", tin_code="C999")
    async with owner.transaction():
        await owner.execute(f"set local role {SERVICE_ROLE}")
        linked = "select name from linked_companies($1)"
        assert await owner.fetch(linked, own) == []
        await owner.execute(f"set local app.account_id = '{account.id}'")
        assert await owner.fetch("select from companies") == []
        assert await owner.fetch(linked, own) == [("Kopi Tiga Sdn. Bhd.",)]
        assert await owner.fetch(linked, other) == []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await owner.fetch("select secret_sha256 from api_keys")


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
        *[request_json(clients[number % 2], "GET", USERS) for number in range(40)]
    )
    assert sorted(status for status, _ in answers) == [200] * 10 + [429] * 30


async def test_quota_is_restored_in_the_next_minute(
    open_portal: OpenPortal, account: Account, owner: asyncpg.Connection
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="1")
    for status in (200, 429, 429):
        await expect(portal, status, "GET", USERS)
    await owner.execute("update key_quotas set ends_at = clock_timestamp()")
    for status in (200, 429):
        await expect(portal, status, "GET", USERS)


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


async def test_commands_create_a_working_account_and_revoke_its_key(
    command: RunCommand, open_portal: OpenPortal, company: Company
) -> None:
    made = await read_result(command("add-integration-key", "--account", "Melaka Group"))
    assert set(made) == {"key", "key_id", "account_id"}
    named = ("--account", "Melaka Group", "--name", "HQ", "--company", company.id)
    organization = await read_result(command("add-organization", *named))
    portal = await open_portal(Account(made["account_id"], made["key"], made["key_id"]))
    found = await get_json(portal, f"{ORGANIZATIONS}/{organization['id']}")
    assert [linked["id"] for linked in found["companies"]] == [company.id]
    for is_revoked in (True, False):
        revoked = await read_result(command("revoke-key", made["key_id"]))
        assert revoked == {"key_id": made["key_id"], "revoked": is_revoked}
        await until(
            lambda: request_json(portal, "GET", USERS), lambda answer: answer == UNAUTHORIZED
        )


#: The arguments of a command that adds an organization, but for its name.
ADD = ["add-organization", "--account", "Penang Trading Group", "--name"]


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["add-organization", "--account", "None", "--name", "A"], "There is no account None"),
        ([*ADD, "A", "--company", "77"], "There is no company 77"),
        ([*ADD, " "], "name must not be blank"),
        (["add-integration-key", "--account", " "], "An account needs a name"),
        (
            ["add-integration-key", "--account", "A", "--expires", "x"],
            "x is not a date and a time, ",
        ),
    ],
)
async def test_failing_command_reports_the_reason(
    command: RunCommand, account: Account, arguments: list[str], complaint: str
) -> None:
    assert complaint in await read_error(command(*arguments))

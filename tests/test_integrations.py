"""The integration surface: accounts apart, its keys, its quota, its records, what is repeated, every refusal's shape."""

import asyncio
import json
import re
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
from aiohttp.test_utils import TestClient
from conftest import make_company, until
from processes import ROOT

from service.app import create_app
from service.commands.integrations import insert_integration_key, insert_organization
from service.config import read_config
from service.db.statements import QUERIES, sql
from service.db.statements import parse as statements_in
from service.db.transactions import SERVICE_ROLE, Database, connected_pool
from service.http.api_keys import COMPANY, INTEGRATION, parse_key

UNAUTHORIZED = {"error": "Unauthorized: Valid API key required"}
USERS, ORGANIZATIONS = "/api/integrations/users", "/api/integrations/organizations"
NO_USER, NO_ORGANIZATION = f"usr_{'0' * 22}", f"org_{'0' * 22}"
QUOTA_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
ACCOUNT_TABLES = (
    "integration_keys",
    "integration_quotas",
    "integration_users",
    "organizations",
    "organization_members",
    "organization_companies",
    "integration_idempotency_keys",
)


async def make_account(environment: dict[str, str], name: str) -> Any:
    """An account with a key: id, key, key_id."""
    config = read_config(environment)
    async with connected_pool(config.database_url, 2) as pool:
        made = await insert_integration_key(config, Database(pool), name)
    return SimpleNamespace(id=made["account_id"], key=made["key"], key_id=made["key_id"])


@pytest.fixture
async def account(environment: dict[str, str]) -> Any:
    return await make_account(environment, "Penang Trading Group")


@pytest.fixture
async def rival(environment: dict[str, str]) -> Any:
    return await make_account(environment, "Ipoh Holdings")


@pytest.fixture
async def open_portal(environment: dict[str, str], aiohttp_client: Any) -> Any:
    """Makes a client of a service in this process with an account's key; variables may be changed by keyword."""

    async def make(account: Any, **variables: str) -> Any:
        variables = {**environment, "INTEGRATION_REQUESTS_PER_MINUTE": "10000", **variables}
        app = create_app(read_config(variables), background=False)
        return await aiohttp_client(app, headers={"X-Portal-Key": account.key})

    return make


@pytest.fixture
async def portal(database: str, open_portal: Any, account: Any) -> Any:
    """A client with the key of `account`, and a quota that no test uses up."""
    return await open_portal(account)


@pytest.fixture
def organize(environment: dict[str, str]) -> Any:
    """Makes an organization of an account, which no request can: `await organize(account, name, companies)` gives its id."""

    async def make(account: Any, name: str = "Branch", companies: Any = ()) -> Any:
        async with connected_pool(environment["DATABASE_URL"], 2) as pool:
            return (await insert_organization(Database(pool), account.id, name, companies))["id"]

    return make


def user(**changes: Any) -> dict[str, Any]:
    return {"name": "Nurul Huda", "email": "nurul@example.com", "role": "member", **changes}


async def ask(client: TestClient, method: str, path: str, **options: Any) -> tuple[int, Any]:
    """(status, body) of an answer."""
    async with client.request(method, path, **options) as response:
        return response.status, await response.json()


async def refused(client: TestClient, method: str, path: str, status: int, **options: Any) -> Any:
    """The details of a refusal, once its shape is the specified one."""
    found, body = await ask(client, method, path, **options)
    assert found == status, body
    assert list(body) == ["error", "message", "details"], body
    assert body["error"] and body["message"] and isinstance(body["details"], dict)
    return body["details"]


async def post(client: TestClient, key: str, path: str = USERS, **body: Any) -> tuple[int, Any]:
    """(status, body, Idempotent-Replayed) of an answer to a request with a key."""
    async with client.post(path, json=body, headers={"Idempotency-Key": key}) as response:
        return response.status, await response.json(), response.headers.get("Idempotent-Replayed")


async def made_user(client: TestClient, **changes: Any) -> Any:
    status, body = await ask(client, "POST", USERS, json=user(**changes))
    assert status == 201, body
    return body["id"]


async def test_a_created_user_is_answered_whole_and_can_be_read(portal: TestClient) -> None:
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


async def test_an_update_changes_what_is_sent_and_answers_with_the_record(
    portal: TestClient,
) -> None:
    user_id = await made_user(portal)
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
async def test_a_bad_user_is_a_400_that_names_the_member(
    portal: TestClient, changes: dict[str, Any], path: str
) -> None:
    details = await refused(portal, "POST", USERS, 400, json=user(**changes))
    assert path in [fault["path"] for fault in details["errors"]]


async def test_a_user_needs_name_email_and_role(portal: TestClient) -> None:
    details = await refused(portal, "POST", USERS, 400, json={})
    assert sorted(fault["path"] for fault in details["errors"]) == ["/email", "/name", "/role"]
    assert {fault["rule"] for fault in details["errors"]} == {"required"}


@pytest.mark.parametrize(
    "sent", [b"{", b'{"name":"a","name":"b"}', b'{"name":NaN}', b"\xff", b"[" * 40]
)
async def test_a_body_that_is_no_json_is_a_400(portal: TestClient, sent: bytes) -> None:
    await refused(
        portal, "POST", USERS, 400, data=sent, headers={"Content-Type": "application/json"}
    )


async def test_a_body_that_is_no_object_is_a_400(portal: TestClient) -> None:
    details = await refused(portal, "POST", USERS, 400, json=[])
    assert details["errors"][0]["rule"] == "type"


async def test_another_content_type_is_a_415(portal: TestClient) -> None:
    await refused(portal, "POST", USERS, 415, data=b"{}", headers={"Content-Type": "text/plain"})


async def test_a_body_over_the_limit_is_a_413(open_portal: Any, account: Any) -> None:
    portal = await open_portal(account, MAX_BODY_BYTES="1024")
    await refused(portal, "POST", USERS, 413, json=user(name="x" * 2000))


@pytest.mark.parametrize("path", [USERS, ORGANIZATIONS])
async def test_a_bad_query_is_a_400_that_names_the_parameter(portal: TestClient, path: Any) -> None:
    for query in (
        "page=0",
        "page=x",
        "per_page=0",
        "per_page=101",
        f"query={'x' * 301}",
        "query=%00",
    ):
        details = await refused(portal, "GET", f"{path}?{query}", 400)
        assert [fault["path"] for fault in details["errors"]] == [query.split("=")[0]]


async def test_an_email_in_use_is_a_409_in_whatever_case(portal: TestClient) -> None:
    await made_user(portal)
    other = await made_user(portal, email="siti@example.com")
    details = await refused(portal, "POST", USERS, 409, json=user(email="Nurul@Example.com"))
    assert details["errors"][0]["path"] == "/email"
    await refused(portal, "PUT", f"{USERS}/{other}", 409, json={"email": "NURUL@example.com"})


async def test_fifty_at_once_with_one_email_have_one_winner(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    answers = await asyncio.gather(*[ask(portal, "POST", USERS, json=user()) for _ in range(50)])
    assert sorted(status for status, _ in answers) == [201] + [409] * 49
    assert await owner.fetchval("select count(*) from integration_users") == 1


async def test_two_accounts_can_use_one_email(
    portal: TestClient, open_portal: Any, rival: Any
) -> None:
    await made_user(portal)
    await made_user(await open_portal(rival))


async def test_users_are_listed_newest_first_with_their_place(portal: TestClient) -> None:
    ids = [await made_user(portal, email=f"{number}@example.com") for number in range(5)]
    status, body = await ask(portal, "GET", f"{USERS}?per_page=2")
    assert status == 200 and [found["id"] for found in body["data"]] == [ids[4], ids[3]]
    assert body["meta"] == {
        "total": 5,
        "per_page": 2,
        "current_page": 1,
        "last_page": 3,
        "from": 1,
        "to": 2,
    }
    _, body = await ask(portal, "GET", f"{USERS}?per_page=2&page=3")
    assert [found["id"] for found in body["data"]] == [ids[0]]
    assert body["meta"] == {
        "total": 5,
        "per_page": 2,
        "current_page": 3,
        "last_page": 3,
        "from": 5,
        "to": 5,
    }


@pytest.mark.parametrize("path", [USERS, ORGANIZATIONS])
async def test_an_empty_list_has_one_page_and_no_place(portal: TestClient, path: Any) -> None:
    meta = {"total": 0, "per_page": 10, "current_page": 1, "last_page": 1, "from": None, "to": None}
    assert await ask(portal, "GET", path) == (200, {"data": [], "meta": meta})


async def test_a_page_past_the_end_is_empty_and_knows_the_total(portal: TestClient) -> None:
    await made_user(portal)
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
        ("nobody", 0),
        ("", 2),
    ],
)
async def test_users_are_searched_by_name_and_email_to_the_letter(
    portal: TestClient, words: str, found: int
) -> None:
    await made_user(portal)
    await made_user(portal, name="Siti 100%", email="siti@example.com")
    async with portal.get(USERS, params={"query": words}) as response:
        body = await response.json()
    assert body["meta"]["total"] == len(body["data"]) == found


async def test_an_organization_has_its_members_and_its_companies(
    portal: TestClient, organize: Any, account: Any, company: Any, environment: dict[str, str]
) -> None:
    other = await make_company(environment, name="Teh Satu Sdn. Bhd.", tin_code="C1234567890")
    organization_id = await organize(account, "Penang Branch", [other.id, company.id])
    nurul, siti = (
        await made_user(portal),
        await made_user(portal, name="Siti", email="siti@example.com"),
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


async def test_members_are_replaced_and_a_role_that_is_not_sent_stays(
    portal: TestClient, organize: Any, account: Any
) -> None:
    organization_id = await organize(account)
    users = [await made_user(portal, email=f"{number}@example.com") for number in range(3)]

    async def put(*members: Any) -> dict[str, Any]:
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


async def test_a_record_that_was_read_can_be_sent_back(
    portal: TestClient, organize: Any, account: Any
) -> None:
    organization_id = await organize(account)
    member = {"userId": await made_user(portal), "role": "admin"}
    _, found = await ask(
        portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json={"members": [member]}
    )
    body = {name: found[name] for name in ("name", "email", "phone", "members")}
    _, again = await ask(portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json=body)
    assert {**again, "updated_at": None} == {**found, "updated_at": None}


async def test_null_empties_email_and_phone(
    portal: TestClient, organize: Any, account: Any
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


async def test_a_member_who_is_no_user_or_comes_twice_is_a_400_and_nothing_changes(
    portal: TestClient, open_portal: Any, organize: Any, account: Any, rival: Any
) -> None:
    organization_id, nurul = await organize(account), await made_user(portal)
    stranger = await made_user(await open_portal(rival))
    members = [{"userId": nurul}, {"userId": stranger}, {"userId": NO_USER}, {"userId": nurul}]
    body = {"name": "Changed", "members": members}
    details = await refused(portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", 400, json=body)
    assert [(fault["path"], fault["rule"]) for fault in details["errors"]] == [
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
async def test_a_bad_organization_is_a_400_that_names_the_member(
    portal: TestClient, organize: Any, account: Any, body: dict[str, Any], path: str
) -> None:
    details = await refused(
        portal, "PUT", f"{ORGANIZATIONS}/{await organize(account)}", 400, json=body
    )
    assert [fault["path"] for fault in details["errors"]] == [path]


async def test_replacing_the_members_at_once_leaves_one_of_the_memberships(
    portal: TestClient, organize: Any, account: Any
) -> None:
    organization_id = await organize(account)
    users = [await made_user(portal, email=f"{number}@example.com") for number in range(8)]
    bodies = [
        {"members": [{"userId": users[at]}, {"userId": users[at + 1]}]} for at in range(0, 8, 2)
    ] * 5
    answers = await asyncio.gather(
        *[ask(portal, "PUT", f"{ORGANIZATIONS}/{organization_id}", json=body) for body in bodies]
    )
    assert {status for status, _ in answers} == {200}
    _, found = await ask(portal, "GET", f"{ORGANIZATIONS}/{organization_id}")
    assert {"members": [{"userId": member["userId"]} for member in found["members"]]} in bodies


async def test_organizations_are_searched_by_name_and_listed_newest_first(
    portal: TestClient, organize: Any, account: Any
) -> None:
    ids = [await organize(account, name) for name in ("Penang North", "Ipoh", "Penang South")]
    _, body = await ask(portal, "GET", f"{ORGANIZATIONS}?query=penang&per_page=1")
    assert [found["id"] for found in body["data"]] == [ids[2]]
    assert body["meta"] == {
        "total": 2,
        "per_page": 1,
        "current_page": 1,
        "last_page": 2,
        "from": 1,
        "to": 1,
    }


async def test_the_organizations_of_a_user(portal: TestClient, organize: Any, account: Any) -> None:
    user_id, lonely = await made_user(portal), await made_user(portal, email="lonely@example.com")
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


async def test_a_repeated_creation_gets_the_first_answer_and_makes_one_user(
    portal: TestClient,
) -> None:
    first = await post(portal, "a", **user())
    assert first[0] == 201 and first[2] is None
    await ask(portal, "PUT", f"{USERS}/{first[1]['id']}", json={"name": "Nurul Aini"})
    assert await post(portal, "a", **user()) == (*first[:2], "true")
    assert (await ask(portal, "GET", USERS))[1]["meta"]["total"] == 1


async def test_a_repetition_counts_against_the_quota_and_shows_it(
    open_portal: Any, account: Any
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="2")
    for left in "10":
        async with portal.post(USERS, json=user(), headers={"Idempotency-Key": "a"}) as response:
            assert (response.status, response.headers["X-RateLimit-Remaining"]) == (201, left)
    assert (await post(portal, "a", **user()))[0] == 429


async def test_the_key_with_another_body_is_a_422_of_the_surfaces_shape(portal: TestClient) -> None:
    await post(portal, "a", **user())
    headers = {"Idempotency-Key": "a"}
    details = await refused(
        portal, "POST", USERS, 422, json=user(email="siti@example.com"), headers=headers
    )
    assert [(fault["path"], fault["rule"]) for fault in details["errors"]] == [
        ("Idempotency-Key", "reused")
    ]
    assert (await ask(portal, "GET", USERS))[1]["meta"]["total"] == 1


@pytest.mark.parametrize("key", ["x" * 256, "tab\tin"])
async def test_a_key_that_is_none_is_a_400_of_the_surfaces_shape(
    portal: TestClient, key: str
) -> None:
    await refused(portal, "POST", USERS, 400, json=user(), headers={"Idempotency-Key": key})


async def test_fifty_repetitions_at_once_make_one_user(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    """Without the index that would keep a second one out."""
    await owner.execute("drop index integration_users_email_once")
    answers = await asyncio.gather(*[post(portal, "a", **user()) for _ in range(50)])
    assert {status for status, *_ in answers} <= {201, 409} and 201 in {
        status for status, *_ in answers
    }
    assert len({body["id"] for status, body, _ in answers if status == 201}) == 1
    assert await owner.fetchval("select count(*) from integration_users") == 1


async def test_a_repetition_while_the_first_is_running_is_a_409_of_the_surfaces_shape(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    async with owner.transaction():
        await owner.execute("lock table integration_users")
        first = asyncio.create_task(post(portal, "a", **user()))
        await until(lambda: owner.fetchval("select true from integration_idempotency_keys"))
        assert (
            await refused(portal, "POST", USERS, 409, json=user(), headers={"Idempotency-Key": "a"})
            == {}
        )
    status, body, replayed = await first
    assert (status, replayed) == (201, None)
    assert await post(portal, "a", **user()) == (201, body, "true")


async def test_two_accounts_with_one_key_do_not_see_each_others_answers(
    portal: TestClient, open_portal: Any, rival: Any
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


async def test_a_bad_body_is_repeated_and_what_passes_is_not(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    status, first, _ = await post(portal, "a", **user(role="king"))
    assert status == 400
    assert await post(portal, "a", **user(role="king")) == (400, first, "true")
    user_id = await made_user(portal)
    assert (await post(portal, "b", **user()))[0] == 409
    await ask(portal, "PUT", f"{USERS}/{user_id}", json={"email": "siti@example.com"})
    assert (await post(portal, "b", **user()))[::2] == (201, None)


async def test_where_there_is_no_route_nothing_is_kept(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    for path, status in (("/api/integrations/nothing", 404), (f"{USERS}/{NO_USER}", 405)):
        assert [(await post(portal, "a", path))[::2] for _ in range(2)] == [(status, None)] * 2
    assert await owner.fetchval("select count(*) from integration_idempotency_keys") == 0


async def test_after_72_hours_the_key_is_free(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    await post(portal, "a", **user())
    age = "update integration_idempotency_keys set created_at = clock_timestamp() - interval '72 hours'"
    await owner.execute(f"{age} + interval '1 minute'")
    assert (await post(portal, "a", **user(email="siti@example.com")))[0] == 422
    await owner.execute(age)
    assert (await post(portal, "a", **user(email="siti@example.com")))[::2] == (201, None)


#: An answer is written with its effect, then once more when it is final. This fails the one or the
#: other.
FAILING_KEEP = """
    create function fail() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
    create trigger failing before update on integration_idempotency_keys
       for each row when ({}) execute function fail();
"""


async def test_an_effect_whose_answer_cannot_be_kept_does_not_happen(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    await owner.execute(FAILING_KEEP.format("old.status is null"))
    assert (await post(portal, "a", **user()))[0] == 500
    assert await owner.fetchval("select count(*) from integration_users") == 0


async def test_an_answer_is_kept_with_its_effect_whatever_becomes_of_the_request(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    await owner.execute(FAILING_KEEP.format("old.status is not null"))
    assert (await post(portal, "a", **user()))[0] == 201
    status, body, replayed = await post(portal, "a", **user())
    assert (status, replayed) == (201, "true")
    assert await ask(portal, "GET", f"{USERS}/{body['id']}") == (200, body)


@pytest.fixture
async def records(portal: TestClient, organize: Any, account: Any) -> Any:
    """Each kind of record that can be changed, and two changes to it: (path, change, another)."""
    users, organizations = (
        f"{USERS}/{await made_user(portal)}",
        f"{ORGANIZATIONS}/{await organize(account)}",
    )
    members = {"members": [{"userId": users.rpartition("/")[2]}]}
    return (users, {"name": "Siti"}, {"email": "siti@example.com"}), (
        organizations,
        {"phone": "1"},
        members,
    )


async def etag_of(client: TestClient, path: str) -> Any:
    async with client.get(path) as response:
        assert response.status == 200
        return response.headers["ETag"]


async def test_a_record_that_is_known_is_not_sent_again(portal: TestClient, records: Any) -> None:
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


async def test_a_change_to_what_has_changed_is_a_412_and_changes_nothing(
    portal: TestClient, records: Any
) -> None:
    for path, change, another in records:
        etag = await etag_of(portal, path)
        assert (await ask(portal, "PUT", path, json=change, headers={"If-Match": etag}))[0] == 200
        before = await ask(portal, "GET", path)
        assert (
            await refused(portal, "PUT", path, 412, json=another, headers={"If-Match": etag}) == {}
        )
        assert await ask(portal, "GET", path) == before
        headers = {"If-Match": f'"other", {await etag_of(portal, path)}'}
        assert (await ask(portal, "PUT", path, json=another, headers=headers))[0] == 200
        assert (await ask(portal, "PUT", path, json=another, headers={"If-Match": "*"}))[0] == 200


async def test_of_ten_changes_at_once_to_what_was_read_one_happens(
    portal: TestClient, records: Any
) -> None:
    for path, change, _ in records:
        headers = {"If-Match": await etag_of(portal, path)}
        answers = await asyncio.gather(
            *[ask(portal, "PUT", path, json=change, headers=headers) for _ in range(10)]
        )
        assert sorted(status for status, _ in answers) == [200] + [412] * 9


async def test_a_change_to_what_is_not_there_is_a_404_whatever_was_read(portal: TestClient) -> None:
    for path in (f"{USERS}/{NO_USER}", f"{ORGANIZATIONS}/{NO_ORGANIZATION}"):
        await refused(portal, "PUT", path, 404, json={"name": "Siti"}, headers={"If-Match": "*"})


async def test_unknown_malformed_and_foreign_ids_are_one_404(
    portal: TestClient, open_portal: Any, organize: Any, rival: Any
) -> None:
    stranger = await open_portal(rival)
    ids = {
        USERS: [await made_user(stranger), NO_USER, "1", "usr_", "usr_%00", "%E2%9C%93", "x" * 500],
        ORGANIZATIONS: [
            await organize(rival),
            NO_ORGANIZATION,
            "1",
            "usr_",
            "org_%00",
            "%E2%9C%93",
            "x" * 500,
        ],
    }
    nouns = {USERS: "User", ORGANIZATIONS: "Organization"}
    for path, texts in ids.items():
        expected = {"error": "Not Found", "message": f"{nouns[path]} not found", "details": {}}
        bodies = set()
        for text in texts:
            for method, rest in [("GET", ""), ("PUT", "")] + (
                [("GET", "/organizations")] if path == USERS else []
            ):
                async with portal.request(method, f"{path}/{text}{rest}") as response:
                    assert response.status == 404, (method, text)
                    bodies.add(await response.read())
        assert len(bodies) == 1 and json.loads(bodies.pop()) == expected


async def test_unknown_paths_and_methods_have_the_surfaces_shape_and_ask_for_a_key_first(
    portal: TestClient,
) -> None:
    await refused(portal, "GET", "/api/integrations/nothing", 404)
    await refused(portal, "GET", "/api/integrations", 404)
    async with portal.delete(USERS) as response:
        assert response.status == 405 and response.headers["Allow"] == "GET,HEAD,POST"
    assert await ask(portal, "GET", "/api/integrations/nothing", headers={"X-Portal-Key": "x"}) == (
        401,
        UNAUTHORIZED,
    )


async def test_what_breaks_inside_is_a_500_of_the_surfaces_shape_that_says_no_more(
    portal: TestClient, owner: asyncpg.Connection
) -> None:
    await owner.execute("alter table integration_users rename to elsewhere")
    assert await refused(portal, "POST", USERS, 500, json=user()) == {}


@pytest.mark.parametrize(
    "method, path",
    [("GET", USERS), ("POST", USERS), ("GET", f"{USERS}/{NO_USER}"), ("GET", ORGANIZATIONS)],
)
async def test_neither_no_key_nor_a_wrong_one_nor_a_companys_opens_the_surface(
    portal: TestClient, company: Any, account: Any, method: str, path: Any
) -> None:
    changed = account.key[:-1] + ("0" if account.key[-1] != "0" else "1")
    for key in ("", " ", "x", changed, company.key, account.key.replace("einp", "einv")):
        assert await ask(
            portal, method, path, headers={"X-Portal-Key": key, "X-API-Key": company.key}
        ) == (401, UNAUTHORIZED)


async def test_an_integration_key_does_not_open_the_company_surface(
    start: Any, account: Any, company: Any
) -> None:
    api = await start(company, background=False)
    assert await ask(api, "GET", "/api/invoices", headers={"X-API-Key": account.key}) == (
        401,
        {"message": "Invalid API key"},
    )
    missing = {"X-API-Key": "", "X-Portal-Key": account.key}
    assert await ask(api, "GET", "/api/invoices", headers=missing) == (
        401,
        {"message": "API key is required"},
    )


async def test_an_expired_key_is_refused(
    portal: TestClient, owner: asyncpg.Connection, account: Any
) -> None:
    await owner.execute(
        "update integration_keys set expires_at = clock_timestamp() - interval '1 second'"
    )
    assert await ask(portal, "GET", USERS) == (401, UNAUTHORIZED)


async def test_last_use_of_a_key_is_kept(
    open_portal: Any, account: Any, owner: asyncpg.Connection
) -> None:
    portal = await open_portal(account)
    await ask(portal, "GET", USERS)
    await portal.close()
    assert await owner.fetchval(
        "select last_used_at from integration_keys where key_id = $1", account.key_id
    )


async def test_a_key_has_the_form_of_its_kind(account: Any, company: Any) -> None:
    assert account.key.startswith(f"einp_live_{account.key_id}_")
    assert parse_key(account.key, INTEGRATION)[0] == account.key_id
    assert parse_key(account.key, COMPANY) is None and parse_key(company.key, INTEGRATION) is None


async def test_the_quota_is_one_for_two_processes_and_shown_on_every_answer(
    open_portal: Any, account: Any
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
    assert list(body) == ["error", "message", "details"] and body["error"] == "Too Many Requests"


async def test_no_more_than_the_quota_passes_when_all_come_at_once(
    open_portal: Any, account: Any
) -> None:
    clients = [await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="10") for _ in range(2)]
    answers = await asyncio.gather(
        *[ask(clients[number % 2], "GET", USERS) for number in range(40)]
    )
    assert sorted(status for status, _ in answers) == [200] * 10 + [429] * 30


async def test_the_next_minute_begins_anew(
    open_portal: Any, account: Any, owner: asyncpg.Connection
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="1")
    assert [(await ask(portal, "GET", USERS))[0] for _ in range(3)] == [200, 429, 429]
    await owner.execute("update integration_quotas set ends_at = clock_timestamp()")
    assert [(await ask(portal, "GET", USERS))[0] for _ in range(2)] == [200, 429]


async def test_keys_have_a_quota_each(
    open_portal: Any, account: Any, rival: Any, environment: dict[str, str]
) -> None:
    second = await make_account(environment, "Penang Trading Group")
    assert second.id == account.id
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="1")
    for key in (account.key, second.key, rival.key):
        statuses = [
            (await ask(portal, "GET", USERS, headers={"X-Portal-Key": key}))[0] for _ in range(2)
        ]
        assert statuses == [200, 429]


async def test_an_answer_to_nobody_shows_a_quota_with_nothing_left(
    open_portal: Any, account: Any
) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="7")
    async with portal.get(USERS, headers={"X-Portal-Key": "x"}) as response:
        assert response.status == 401
        assert [response.headers[name] for name in QUOTA_HEADERS[:2]] == ["7", "0"]
        assert abs(int(response.headers["X-RateLimit-Reset"]) - time.time()) < 5


async def test_a_quota_of_0_is_off_and_120_is_the_default(open_portal: Any, account: Any) -> None:
    portal = await open_portal(account, INTEGRATION_REQUESTS_PER_MINUTE="0")
    async with portal.get(USERS) as response:
        assert not set(QUOTA_HEADERS) & set(response.headers)
    assert read_config({}).integration_requests_per_minute == 120


@pytest.fixture
async def filled(
    portal: TestClient, open_portal: Any, organize: Any, account: Any, rival: Any, company: Any
) -> Any:
    """Both accounts with a user, an organization, its member and its company: {account id: (user, organization)}."""
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


async def test_the_wall_hides_the_other_account_where_no_statement_does(
    filled: Any, owner: asyncpg.Connection, account: Any
) -> None:
    await owner.execute(f"set role {SERVICE_ROLE}")
    async with owner.transaction():
        await owner.execute(f"set local app.account_id = '{account.id}'")
        for table in ACCOUNT_TABLES:
            assert await owner.fetchval(f"select array_agg(distinct account_id) from {table}") == [
                account.id
            ], table
        for view, place in (("integration_user_records", 0), ("organization_records", 1)):
            assert [row["id"] for row in await owner.fetch(f"select id from {view}")] == [
                filled[account.id][place]
            ]
        assert await owner.fetch("select id from accounts") == [(account.id,)]
    for table in ACCOUNT_TABLES:
        assert await owner.fetchval(f"select count(account_id) from {table}") == 0, table


@pytest.mark.parametrize(
    "statement",
    [sql.integration_user_page, sql.organization_page],
    ids=lambda statement: statement.name,
)
async def test_a_list_without_its_predicate_shows_no_other_account(
    filled: Any, owner: asyncpg.Connection, account: Any, statement: Any
) -> None:
    query, predicates = re.subn(
        r"(r\.)?account_id = \$1", "$1::bigint is not null", statement.query
    )
    assert predicates == 2
    values = {"account_id": account.id, "query": None, "per_page": 10, "offset": 0}
    arguments = [values[name] for name in statement.variables]
    # The owner stands above the wall
    assert (await owner.fetchrow(query, *arguments))["total"] == 2
    async with owner.transaction():
        await owner.execute(f"set local role {SERVICE_ROLE}")
        await owner.execute(f"set local app.account_id = '{account.id}'")
        found = await owner.fetchrow(query, *arguments)
    assert found["total"] == 1 and len(json.loads(found["data"])) == 1


async def test_the_wall_refuses_to_write_for_the_other_account(
    filled: Any, owner: asyncpg.Connection, account: Any, rival: Any
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


async def test_the_statements_hide_the_other_account_where_no_wall_does(
    filled: Any, owner: asyncpg.Connection, account: Any, rival: Any
) -> None:
    """`owner` is a superuser, whom no policy binds."""
    user_id, invoice_id = filled[rival.id]
    mine = {"account_id": account.id}
    assert await sql.integration_user_get(owner, **mine, id=user_id) is None
    assert await sql.integration_user_exists(owner, **mine, id=user_id) is None
    assert (
        await sql.integration_user_update(owner, **mine, id=user_id, name="taken", email=None)
        is None
    )
    assert (await sql.integration_user_organizations(owner, **mine, id=user_id))["total"] == 0
    assert await sql.organization_get(owner, **mine, id=invoice_id) is None
    assert await sql.organization_update(owner, **mine, id=invoice_id, body="{}") is None
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


async def test_of_companies_an_account_sees_name_and_tin_of_the_linked_ones_alone(
    filled: Any, owner: asyncpg.Connection, account: Any, environment: dict[str, str]
) -> None:
    await make_company(environment, name="Not linked", tin_code="C999")
    async with owner.transaction():
        await owner.execute(f"set local role {SERVICE_ROLE}")
        linked = "select name from linked_companies($1)"
        assert await owner.fetch(linked, filled[account.id][1]) == []
        await owner.execute(f"set local app.account_id = '{account.id}'")
        assert await owner.fetch("select from companies") == []
        assert await owner.fetch(linked, filled[account.id][1]) == [("Kopi Tiga Sdn. Bhd.",)]
        others = [invoice_id for other, (_, invoice_id) in filled.items() if other != account.id]
        assert await owner.fetch(linked, others[0]) == []


async def test_the_service_reads_no_digest_of_a_key(
    owner: asyncpg.Connection, account: Any
) -> None:
    await owner.execute(f"set role {SERVICE_ROLE}")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await owner.fetch("select secret_sha256 from integration_keys")


async def test_a_table_of_an_account_without_a_wall_stops_the_start(
    open_portal: Any, account: Any, owner: asyncpg.Connection
) -> None:
    await owner.execute("alter table organization_members no force row level security")
    with pytest.raises(RuntimeError, match="organization_members"):
        await open_portal(account)


async def test_every_statement_of_the_surface_is_understood_by_postgresql(
    owner: asyncpg.Connection,
) -> None:
    for statement in statements_in((QUERIES / "integrations.sql").read_text()):
        await owner.prepare(statement.query)


def command(environment: dict[str, str], *arguments: str) -> Any:
    """(exit code, printed JSON or complaint) of `python run.py …` as a process of its own."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


async def test_the_commands_make_an_account_that_works_and_end_its_key(
    environment: dict[str, str], open_portal: Any, company: Any
) -> None:
    async def run(*arguments: str) -> Any:
        return await asyncio.to_thread(command, environment, *arguments)

    status, made = await run("add-integration-key", "--account", "Melaka Group")
    assert status == 0 and set(made) == {"key", "key_id", "account_id"}
    status, user_made = await run(
        "add-user",
        "--account",
        "Melaka Group",
        "--name",
        "Siti",
        "--email",
        "s@example.com",
        "--role",
        "owner",
    )
    assert status == 0 and user_made["account_id"] == made["account_id"]
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
    portal = await open_portal(SimpleNamespace(key=made["key"]))
    assert (await ask(portal, "GET", f"{USERS}/{user_made['id']}"))[1]["role"] == "owner"
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
        (
            ["add-user", "--account", "None", "--name", "A", "--email", "a@b.c", "--role", "owner"],
            "There is no account None",
        ),
        (
            [
                "add-user",
                "--account",
                "Penang Trading Group",
                "--name",
                "A",
                "--email",
                "a",
                "--role",
                "king",
            ],
            "e-mail",
        ),
        (
            [
                "add-user",
                "--account",
                "Penang Trading Group",
                "--name",
                "A",
                "--email",
                "nurul@example.com",
                "--role",
                "owner",
            ],
            "has the e-mail address",
        ),
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
async def test_a_command_that_cannot_be_done_says_why(
    environment: dict[str, str], portal: TestClient, arguments: list[Any], complaint: str
) -> None:
    await made_user(portal, email="Nurul@example.com")
    status, said = await asyncio.to_thread(command, environment, *arguments)
    assert status == 1 and complaint in said and "Traceback" not in said

"""Authentication: keys and their expiry, order of checks, rate limits, request log.

Spec: Authentication.
"""

import asyncio
import logging
import re
import time
from contextlib import AsyncExitStack
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import aiohttp
import asyncpg
import pytest
from yarl import URL

from service.commands.bootstrap import run_command
from service.commands.companies import add_key, revoke_key
from service.config import Config
from service.db.pool import connected_pool
from service.db.transactions import Database
from service.errors import Conflict
from service.http import app_keys
from service.http.api_keys import insert_key, new_key
from service.http.middleware import KEY_IN_URL
from tests.api_invoices import create_invoice
from tests.api_reads import wait_for_lock
from tests.api_requests import (
    INTEGRATIONS,
    KEYLESS,
    expect,
    fill_path,
    list_routes,
    make_account,
    open_integrations,
    request_json,
)
from tests.conftest import Client, Company, StartService, make_company, until
from tests.harness.bodies import now

REQUIRED = (401, {"message": "API key is required"})
WRONG = (401, {"message": "Invalid API key"})
# The integration surface has one answer for every authentication error.
ELSEWHERE = (401, {"error": "Unauthorized: Valid API key required"})
IN_URL = (400, {"message": KEY_IN_URL, "code": "key_in_url"})
SLOW_DOWN = {"message": "Too many requests, please slow down.", "code": "rate_limited"}


async def with_key(api: Client | aiohttp.ClientSession, key: str) -> tuple[int, Any]:
    """Return (status, body) of a listing with a key."""
    return await request_json(api, "GET", "/api/invoices", headers={"X-API-Key": key})


@pytest.fixture
async def keyless(start: StartService) -> Client:
    """Return a client that sends no key."""
    api = await start()
    del api.session.headers["X-API-Key"]
    return api


async def add_another_key(config: Config, company: Company, **facts: Any) -> Any:
    return SimpleNamespace(**await run_command(config, add_key, company.id, **facts))


async def test_request_without_a_key_is_a_401(keyless: Client) -> None:
    for headers in ({}, {"X-API-Key": ""}, {"X-API-Key": "  "}, {"X-Portal-Key": "einv_test_x"}):
        path = "/api/invoices"
        assert await request_json(keyless, "GET", path, headers=headers) == REQUIRED, headers


@pytest.mark.parametrize(
    "path, name", [("/api/invoices", "X-API-Key"), ("/api/integrations/users", "X-Portal-Key")]
)
async def test_a_401_names_the_header_of_the_key(keyless: Client, path: str, name: str) -> None:
    for headers in ({}, {name: "wrong"}):
        async with keyless.get(path, headers=headers) as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == f'ApiKey header="{name}"'


#: Functions that turn a valid key into an invalid one.
MALFORMED = (
    lambda key: "secret",
    lambda key: key[:-1],
    lambda key: key + "0",
    lambda key: key[:-1] + ("0" if key[-1] != "0" else "1"),
    lambda key: key[:30] + ("0" if key[30] != "0" else "1") + key[31:],
    lambda key: key.replace("einv_", "einp_"),
    lambda key: key.upper(),
    lambda key: f"Bearer {key}",
    lambda key: "é" * 75,
    lambda key: "١" * 75,
    lambda key: "x" * 4000,
)
SPOILT = (
    *MALFORMED,
    lambda key: new_key(live=False).text,
    lambda key: new_key(live=True).text,
)


async def test_malformed_or_unknown_key_is_invalid(api: Client, company: Company) -> None:
    for spoil in SPOILT:
        assert await with_key(api, spoil(company.key)) == WRONG, spoil(company.key)


async def test_known_key_id_with_a_wrong_secret_is_invalid(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    await owner.execute("update api_keys set secret_sha256 = sha256('another')")
    assert await with_key(api, company.key) == WRONG


async def test_cached_key_becomes_invalid_at_its_expiry(
    api: Client, config: Config, company: Company
) -> None:
    for seconds in (2, 8, 32):  # a busy machine may need some seconds for the first request
        key = await add_another_key(config, company, expires=now(seconds=-5 - seconds))
        if (await with_key(api, key.key))[0] == 200:
            break
    assert await until(lambda: with_key(api, key.key), lambda answer: answer[0] != 200) == WRONG


async def test_key_expiry_uses_the_database_clock(
    api: Client, config: Config, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await add_another_key(config, company, expires=now(hours=-1))
    tomorrow = time.time() + 86400
    monkeypatch.setattr("time.time", lambda: tomorrow)
    assert (await with_key(api, key.key))[0] == 200


async def test_key_that_expires_soon_is_logged_once_a_day(
    start: StartService, config: Config, company: Company, caplog: pytest.LogCaptureFixture
) -> None:
    api = await start()
    soon, later = [
        await add_another_key(config, company, expires=now(days=-days)) for days in (13, 15)
    ]
    for key in (soon, soon, later, company):
        assert (await with_key(api, key.key))[0] == 200
    await api.close()  # else it is logged within a minute
    logged = [line for line in caplog.messages if "expires in" in line]
    assert logged == [f"keys: company_id={company.id} key_id={soon.key_id} expires in 13.0 days"]


async def test_last_use_of_a_key_is_written_once_a_minute(
    start: StartService, owner: asyncpg.Connection, company: Company
) -> None:
    """Repeated use in several processes causes one write per minute."""
    for api in [await start(), await start()]:
        for _ in range(3):
            await with_key(api, company.key)
        await api.close()  # else it is written within minutes
    used: Any = await owner.fetchval("select last_used_at from api_keys")
    assert used.second == 0 and used.microsecond == 0
    writes = "select n_tup_upd from pg_stat_user_tables where relname = 'api_keys'"
    written = await until(lambda: owner.fetchval(writes))
    # A new minute may have begun in the meantime.
    assert written == 1 or used.minute != datetime.now().minute


async def test_key_with_a_locked_row_is_accepted(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    async with owner.transaction():
        await owner.execute("select 1 from api_keys for update")
        assert (await with_key(api, company.key))[0] == 200


async def test_malformed_key_is_rejected_without_the_database(
    start: StartService, company: Company
) -> None:
    """Every pooled connection is in use, so a key that needs a lookup gets a 503."""
    api = await start(background=False, POOL_SIZE="2", DATABASE_ACQUIRE_SECONDS="1")
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(api.app[app_keys.DATABASE].across())
        for spoil in MALFORMED:
            assert await with_key(api, spoil(company.key)) == WRONG, spoil(company.key)
            headers = {"X-Portal-Key": spoil(company.key)}
            answer = await request_json(api, "GET", f"{INTEGRATIONS}users", headers=headers)
            assert answer == ELSEWHERE
        assert (await with_key(api, new_key(live=True).text))[0] == 503


async def test_secret_of_a_key_is_not_stored(owner: asyncpg.Connection, company: Company) -> None:
    row: Any = await owner.fetchval("select to_json(k)::text from api_keys k")
    assert company.key.split("_")[3][:43] not in row


# Order of checks


async def test_every_route_checks_the_key_first(keyless: Client) -> None:
    """The body, the content type and the id are invalid too, but are not checked."""
    guarded = [(method, path) for method, path in list_routes(keyless) if path not in KEYLESS]
    assert len(guarded) > 60
    for method, path in guarded:
        expected = ELSEWHERE if path.startswith(INTEGRATIONS) else REQUIRED
        headers = {"Content-Type": "text/plain", "Idempotency-Key": "x"}
        async with keyless.request(
            method, fill_path(path, 999), data=b"{", headers=headers
        ) as response:
            body = None if method == "HEAD" else await response.json()
            assert (response.status, body) == (401, expected[1] if body else None), (method, path)


async def test_invalid_key_is_rejected_before_the_body_is_read(api: Client) -> None:
    wrong = {"X-API-Key": "no", "Content-Type": "text/plain"}
    assert await request_json(api, "POST", "/api/invoices", data=b"{", headers=wrong) == WRONG


async def test_unknown_path_is_a_404(api: Client, keyless: Client) -> None:
    for path in ("/api", "/api/nothing", "/api/invoices/1/nothing", "/favicon.ico"):
        for client in (api, keyless):
            assert await request_json(client, "GET", path) == (
                404,
                {"message": "No such endpoint.", "code": "endpoint_not_found"},
            ), path


async def test_unsupported_method_is_a_405_with_an_allow_header(api: Client) -> None:
    for method, path, allowed in (
        ("DELETE", "/api/invoices", {"GET", "HEAD", "POST"}),
        ("PATCH", "/api/invoices/1", {"GET", "HEAD", "PUT", "DELETE"}),
        ("GET", "/api/invoices/1/submit-to-portal", {"POST"}),
        ("TRACE", "/api/invoices/1/submitted-documents", {"GET", "HEAD"}),
    ):
        async with api.request(method, path) as response:
            assert response.status == 405, (method, path)
            assert await response.json() == {
                "message": "The method is not allowed on this path.",
                "code": "method_not_allowed",
            }
            assert set(response.headers["Allow"].split(",")) == allowed


@pytest.mark.own_service
async def test_fixed_path_segment_does_not_match_the_id_route(api: Client) -> None:
    """export-all and plan are not ids, so they cannot be updated or read as records."""
    methods: dict[str, set[str]] = {}
    for route in api.app.router.routes():
        if route.resource:
            methods.setdefault(route.resource.canonical, set()).add(route.method)
    variable = [re.compile(re.sub(r"{\w+}", "[^/]+", path)) for path in methods if "{" in path]
    words = [
        path
        for path in methods
        if "{" not in path and any(other.fullmatch(path) for other in variable)
    ]
    assert {f"{place}/export-all" for place in ("/api/invoices", "/api/adjustment-notes")} < set(
        words
    )
    every_method = "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE"
    for path in words:
        for method in set(every_method.split()) - methods[path]:
            async with api.request(method, path) as response:
                assert response.status == 405, (method, path)
                assert set(response.headers["Allow"].split(",")) == methods[path]


async def test_health_endpoints_need_no_key(keyless: Client) -> None:
    for path in ("/healthz", "/readyz"):
        status, body = await request_json(keyless, "GET", path)
        assert (status, body["status"]) == (200, "ok")
    async with keyless.get("/metrics") as response:
        assert response.status == 200 and "einvoice_requests_total" in await response.text()


async def test_api_documentation_needs_no_key(keyless: Client) -> None:
    assert {path for _, path in list_routes(keyless)} >= KEYLESS
    for path in KEYLESS:
        async with keyless.get(path) as response:
            assert response.status == 200, path


# Request ids


async def test_valid_request_id_is_returned_on_every_response(api: Client) -> None:
    paths = "/api/invoices /api/invoices/export-all /api/invoices/0 /api/nothing /healthz"
    for path in paths.split():
        async with api.get(path, headers={"X-Request-Id": "Order-7.b_2"}) as response:
            assert response.headers["X-Request-Id"] == "Order-7.b_2", path


async def test_request_id_is_returned_when_the_key_is_invalid(api: Client) -> None:
    async with api.get(
        "/api/invoices", headers={"X-Request-Id": "mine", "X-API-Key": "no"}
    ) as response:
        assert response.headers["X-Request-Id"] == "mine"


async def test_invalid_request_id_is_replaced(api: Client) -> None:
    for sent in ("", "a b", "x" * 65, "é", 'a"', "a=b", "%0a"):
        async with api.get("/api/invoices", headers={"X-Request-Id": sent}) as response:
            assert re.fullmatch(r"[0-9a-f]{24}", response.headers["X-Request-Id"]), sent


# Limits


async def test_company_over_its_rate_limit_gets_a_429_with_retry_after(
    start: StartService, company: Company
) -> None:
    api = await start(REQUESTS_PER_MINUTE="2")
    for _ in range(2):
        assert (await with_key(api, company.key))[0] == 200
    async with api.get("/api/invoices") as response:
        assert response.status == 429
        assert await response.json() == SLOW_DOWN
        assert int(response.headers["Retry-After"]) == 30


async def test_rate_limit_is_shared_by_the_keys_of_a_company(
    start: StartService, environment: dict[str, str], config: Config, company: Company
) -> None:
    api = await start(REQUESTS_PER_MINUTE="2")
    second = await add_another_key(config, company)
    stranger = await make_company(environment)
    keys = [company.key, second.key, company.key, second.key, stranger.key]
    assert [(await with_key(api, key))[0] for key in keys] == [200, 200, 429, 429, 200]


async def test_rate_limited_company_is_served_again_after_a_while(
    start: StartService, company: Company
) -> None:
    api = await start(REQUESTS_PER_MINUTE="120")
    answers = await asyncio.gather(*[with_key(api, company.key) for _ in range(140)])
    assert {status for status, _ in answers} == {200, 429}
    await until(lambda: with_key(api, company.key), lambda answer: answer[0] == 200)


async def test_rate_limit_of_zero_disables_the_limit(start: StartService, company: Company) -> None:
    api = await start(REQUESTS_PER_MINUTE="0")
    assert {(await with_key(api, company.key))[0] for _ in range(20)} == {200}


async def test_invalid_keys_are_rate_limited_per_address(
    start: StartService, environment: dict[str, str], company: Company
) -> None:
    api = await start(WRONG_KEYS_PER_MINUTE="20")
    await open_integrations(api, environment)
    wrong = new_key(live=True).text
    assert [(await with_key(api, key))[0] for key in [wrong, "no"] * 10] == [401] * 20
    async with api.get("/api/invoices", headers={"X-API-Key": wrong}) as response:
        assert (response.status, await response.json()) == (429, SLOW_DOWN)
        assert 1 <= int(response.headers["Retry-After"]) <= 3
    headers = {"X-Portal-Key": wrong}
    status, body = await request_json(api, "GET", f"{INTEGRATIONS}users", headers=headers)
    assert status == 429 and body["details"]["retry_after"] <= 3
    for path in ("/api/invoices", f"{INTEGRATIONS}users"):
        await expect(api, 200, "GET", path)
    assert await with_key(api, "") == REQUIRED
    found = await request_json(api, "GET", f"{INTEGRATIONS}users", headers={"X-Portal-Key": ""})
    assert found == ELSEWHERE
    assert (await with_key(api, company.key[:-1]))[0] == 429


@pytest.fixture
async def full(owner: asyncpg.Connection, company: Company) -> Company:
    """The company with 50 valid keys, and one that is revoked and one that has expired."""
    insert = """
        insert into api_keys
               (owner_kind, owner_id, key_id, name, secret_sha256, revoked_at, expires_at)
        select 'company', $1, format('%s', 100000000000 + n), '', sha256('a'),
               case n when 50 then now() end, case n when 51 then now() end
          from generate_series(1, 51) n
    """
    await owner.execute(insert, company.id)
    return company


async def test_a_company_has_at_most_50_valid_keys(
    full: Company, environment: dict[str, str], config: Config, owner: asyncpg.Connection
) -> None:
    with pytest.raises(Conflict, match="at most 50 valid API keys"):
        await add_another_key(config, full)
    await run_command(config, revoke_key, "100000000001")
    await add_another_key(config, full)
    with pytest.raises(Conflict):
        await add_another_key(config, full)
    assert await owner.fetchval("select count(*) from api_keys") == 53
    await add_another_key(config, await make_company(environment))


async def test_two_keys_at_the_limit_are_not_both_created(
    full: Company, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    await owner.execute("delete from api_keys where key_id = '100000000001'")
    async with connected_pool(environment["DATABASE_URL"], 2) as pool:
        database = Database(pool)

        async def insert() -> None:
            async with database.company(full.id) as conn:
                await insert_key(conn, new_key(live=False), "", None)

        async with database.company(full.id) as conn:
            await insert_key(conn, new_key(live=False), "", None)
            second = asyncio.create_task(insert())
            await wait_for_lock(owner)
        with pytest.raises(Conflict):
            await second


async def test_key_in_the_url_is_rejected_on_every_path(
    api: Client, environment: dict[str, str], company: Company
) -> None:
    await open_integrations(api, environment)
    integration = api.session.headers["X-Portal-Key"]
    for path in (
        f"/api/invoices?api_key={company.key}",
        f"/api/invoices?query={integration}",
        f"/api/invoices?{company.key}",
        f"/api/openapi.json?key={quote(company.key.replace('_', '%5F'), safe='%')}",
        f"/api/nothing/{company.key}",
    ):
        assert await request_json(api, "GET", URL(path, encoded=True)) == IN_URL, path
    status, body = await request_json(api, "GET", f"{INTEGRATIONS}users?key={integration}")
    assert (status, body["message"]) == (400, KEY_IN_URL)


async def test_key_in_the_url_does_not_replace_the_header(
    keyless: Client, environment: dict[str, str], company: Company
) -> None:
    integration = (await make_account(environment)).key
    for key in (company.key, integration):
        for method, path in (
            ("GET", "/api/invoices"),
            ("POST", "/api/invoices"),
            ("GET", "/api/invoices/export-all"),
        ):
            assert await request_json(keyless, method, f"{path}?api_key={key}") == REQUIRED, path
        assert await request_json(keyless, "GET", f"{INTEGRATIONS}users?key={key}") == ELSEWHERE
    path = f"/api/invoices?api_key={company.key}"
    assert await request_json(keyless, "GET", path, headers={"X-API-Key": "wrong"}) == WRONG
    for path in ("/api/openapi.json", "/api/nothing"):  # public paths
        assert await request_json(keyless, "GET", f"{path}?key={company.key}") == IN_URL


# The log


@pytest.mark.own_service
async def test_request_log_line_holds_the_request_id_and_no_body(
    api: Client,
    company: Company,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO, "service.requests")
    invoice_id = await create_invoice(api)
    async with api.get(
        f"/api/invoices/{invoice_id}?query=Aminah", headers={"X-Request-Id": "mine"}
    ):
        pass
    line = await _last_log_line(capsys)
    expected = (
        r"[0-9]{4}(-[0-9]{2}){2} [0-9]{2}(:[0-9]{2}){2},[0-9]{3}"
        r" level=INFO logger=service.requests request_id=mine method=GET"
        r" route=/api/invoices/{id} status=422 ms=[0-9.]+"
        rf" company={company.id} account=- key={company.key_id} client=127\.0\.0\.1"
    )
    assert re.fullmatch(expected, line)


async def test_request_log_line_of_an_integration_holds_its_account(
    api: Client,
    environment: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO, "service.requests")
    account = await open_integrations(api, environment)
    async with api.get("/api/integrations/users/usr_x", headers={"X-Request-Id": "mine"}):
        pass
    route = "/api/integrations/users/{id}"
    start, end = (
        f" request_id=mine method=GET route={route} status=404 ms=",
        f" company=- account={account} key=",
    )
    line = await _last_log_line(capsys)
    assert start in line and end in line


async def _last_log_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the last line of the access log, which is written after the response is sent."""
    printed = ""

    async def read() -> str:
        nonlocal printed
        printed += capsys.readouterr().err
        return printed

    return (await until(read, lambda text: "mine" in text)).splitlines()[-1]

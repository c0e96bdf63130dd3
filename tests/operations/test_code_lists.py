"""Import of code lists: running processes and the sandbox use them without a restart."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.codes import import_codes
from service.config import Config
from service.documents import codes
from service.documents.codes import CodeTable
from service.errors import OperatorError
from service.http import app_keys, code_lists
from service.http.limits import UNCOUNTED_BYTES
from tests.api_requests import expect, request_json
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.fixtures_sandbox import Portal
from tests.fixtures_service import RunCommand
from tests.harness.bodies import invoice, line
from tests.harness.databases import end_sessions
from tests.harness.processes import Service, free_port
from tests.harness.waiting import wait_until
from tests.operations.test_commands import read_result
from tests.sandbox.test_sandbox_rules import step_codes

#: A unit of the built-in list, and one that is not in it.
UNITS = [{"Code": "KGM", "Name": "kilogram"}, {"Code": "KGX", "Name": "crate of tests"}]


def write_list(path: Path, entries: object) -> Path:
    path.write_text(json.dumps(entries))
    return path


@asynccontextmanager
async def running(
    environment: Mapping[str, str], company: Company, log: Path, count: int = 1
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """Run processes of the service on one database, and yield a client of each."""
    async with AsyncExitStack() as stack:
        clients: list[aiohttp.ClientSession] = []
        for number in range(count):
            service = Service(environment, log.with_suffix(f".{number}"))
            await stack.enter_async_context(service)
            headers = {"X-API-Key": company.key}
            client = aiohttp.ClientSession(service.base, headers=headers)
            clients.append(await stack.enter_async_context(client))
        yield clients


def with_unit(code: str) -> dict[str, Any]:
    return invoice(lineItems=[line(unit={"code": code, "price": 1, "count": 1})])


async def unit_violation(client: aiohttp.ClientSession | Client, code: str) -> Any:
    """Return the violation of a unit code, None if an invoice may have it."""
    status, body = await request_json(client, "POST", "/api/invoices", json=with_unit(code))
    assert status in (201, 422), (status, body)
    return None if status == 201 else body["errors"][0]


async def is_known(client: aiohttp.ClientSession | Client, code: str) -> bool:
    return await unit_violation(client, code) is None


async def test_an_unknown_unit_is_rejected_without_an_import(api: Client) -> None:
    violation = await unit_violation(api, "PCS")
    assert (violation["path"], violation["rule"]) == ("/lineItems/0/unit/code", "code")
    assert all(word in violation["message"] for word in ("units", '"H87"', "piece"))
    assert await is_known(api, "KGM") and await is_known(api, "GT")


async def test_imported_units_join_the_built_in_ones_in_running_processes(
    command: RunCommand, environment: dict[str, str], company: Company, tmp_path: Path
) -> None:
    """The command runs in a time zone in which it is already tomorrow."""
    path = write_list(tmp_path / "UnitTypes.json", UNITS)
    async with running(environment, company, tmp_path / "log", 2) as clients:
        for client in clients:
            assert not await is_known(client, "KGX")
        assert await read_result(command("import-codes", path, TZ="AHEAD-24")) == {"units": 2}
        for client in clients:
            assert await until(lambda client=client: is_known(client, "KGX"))
            assert await is_known(client, "KGM") and await is_known(client, "GT")


async def get_units(client: aiohttp.ClientSession) -> tuple[str, Any]:
    """Return the crates and boxes of the table of units with its entity tag."""
    async with client.get("/api/code-tables/units?query=of%20tests") as response:
        return response.headers["ETag"], await response.json()


async def test_an_imported_table_has_its_codes_and_a_new_tag(
    command: RunCommand, environment: dict[str, str], company: Company, tmp_path: Path
) -> None:
    box = {"Code": "BXQ", "Name": "box of tests", "valid_from": "2026-07-01"}
    path = write_list(tmp_path / "UnitTypes.json", [{**box, "valid_to": "2026-12-31"}, UNITS[1]])
    async with running(environment, company, tmp_path / "log") as (client,):
        before, _ = await get_units(client)
        assert await read_result(command("import-codes", path)) == {"units": 2}
        tag, answer = await until(
            lambda: get_units(client), lambda got: got[1]["table"]["source"] == "imported"
        )
    assert answer["data"] == [
        {
            "code": "BXQ",
            "description": "box of tests",
            "valid_from": "2026-07-01",
            "valid_to": "2026-12-31",
        },
        {"code": "KGX", "description": "crate of tests", "valid_from": None, "valid_to": None},
    ]
    table = answer["table"]
    assert table["code_count"] == len(codes.BUILT_IN["units"].codes) + 2
    assert table["imported_at"].startswith(table["version"])
    assert tag != before


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let processes look for imports only when they are woken."""
    monkeypatch.setattr(code_lists, "CHECK_SECONDS", 3600)
    yield
    codes.replace_tables([])


async def test_an_expired_code_of_a_newer_list_is_imported(
    config: Config, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """A new code without its first day was valid before its last day."""
    path = tmp_path / "UnitTypes.json"
    await run_command(config, import_codes, [write_list(path, UNITS)])
    entries = [{"code": "KGY", "name": "box", "valid_to": "2025-12-31"}]
    await run_command(config, import_codes, [write_list(path, entries)])
    again = [{"code": "KGY", "name": None, "valid_from": "2026-02-01"}]
    days = "select valid_from::text, valid_to::text, description from code_lists where code = 'KGY'"
    assert tuple(await owner.fetchrow(days) or ()) == ("2025-12-31", "2025-12-31", "box")
    await run_command(config, import_codes, [write_list(path, again)])
    assert tuple(await owner.fetchrow(days) or ()) == ("2026-02-01", "infinity", "")


async def test_a_list_that_this_version_does_not_know_is_ignored(
    owner: asyncpg.Connection, start: StartService
) -> None:
    await owner.execute("insert into code_lists values ('planets', 'M', 'Mars', now())")
    assert not await is_known(await start(), "KGX")


async def test_two_files_of_one_list_are_refused(config: Config, tmp_path: Path) -> None:
    paths = [write_list(tmp_path / f"Units_{name}.json", UNITS) for name in "ab"]
    with pytest.raises(OperatorError, match="Two files are named after the code list units"):
        await run_command(config, import_codes, paths)


async def test_lists_are_imported_in_any_order_at_once(config: Config, tmp_path: Path) -> None:
    codes = [{"code": f"{n:05}", "name": "x"} for n in range(2000)]
    paths = [write_list(tmp_path / f"{name}.json", codes) for name in ("Units", "MSIC")]
    imports = [run_command(config, import_codes, paths[:: 1 - 2 * (n % 2)]) for n in range(4)]
    await asyncio.gather(*imports)


async def test_an_import_notifies_a_running_process(
    only_woken: None, command: RunCommand, start: StartService, tmp_path: Path
) -> None:
    api, path = await start(), write_list(tmp_path / "UnitTypes.json", UNITS)
    assert not await is_known(api, "KGX")
    assert await read_result(command("import-codes", path)) == {"units": 2}
    assert await until(lambda: is_known(api, "KGX"))


async def test_an_import_without_notification_is_noticed_after_a_lost_session(
    only_woken: None, start: StartService, owner: asyncpg.Connection
) -> None:
    api = await start()
    assert not await is_known(api, "KGX")
    await owner.execute("insert into code_lists values ('units', 'KGX', 'crate', now())")
    await end_sessions(owner, 1)
    assert await until(lambda: is_known(api, "KGX"))


async def test_a_request_keeps_the_tables_with_which_it_began(
    only_woken: None, start: StartService
) -> None:
    """The tables change after the head of a request has arrived, and before its body."""
    api = await start()
    budget = api.app[app_keys.LIMITS].uploads if api.app else None
    body = json.dumps(with_unit("KGX")).encode()

    async def send_late() -> AsyncIterator[bytes]:
        yield b" " * (2 * UNCOUNTED_BYTES) + body[:10]
        await wait_until(lambda: budget and budget.known.taken)
        codes.replace_tables([CodeTable("units", {"KGX": "crate"}, date(2026, 3, 2))])
        yield body[10:]

    headers = {"Content-Type": "application/json"}
    await expect(api, 422, "POST", "/api/invoices", data=send_late(), headers=headers)
    assert await is_known(api, "KGX")


async def test_the_sandbox_uses_an_imported_list_without_a_restart(
    command: RunCommand, sandbox: Sandbox, tmp_path: Path
) -> None:
    portal = await Portal(sandbox.client).login()
    assert await step_codes(portal, await portal.fresh()) == {}
    ended = {"Code": "H87", "Name": "piece", "Valid_To": "2020-01-01"}
    path = write_list(tmp_path / "UnitTypes.json", [*UNITS, ended])
    assert await read_result(command("import-codes", path)) == {"units": 3}
    assert await step_codes(portal, await portal.fresh("INV-2")) == {"04": ["CF320"]}
    again = {**ended, "Valid_To": "2099-01-01"}
    await read_result(command("import-codes", write_list(path, [*UNITS, again])))
    assert await step_codes(portal, await portal.fresh("INV-3")) == {}


async def test_a_sandbox_that_does_not_run_is_named_by_the_import(
    command: RunCommand, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    path = write_list(tmp_path / "UnitTypes.json", UNITS)
    base = f"http://127.0.0.1:{free_port()}"
    done = await command("import-codes", path, PORTAL_API_BASE=base)
    assert (done.code, json.loads(done.out)) == (0, {"units": 2})
    (message,) = done.err.splitlines()
    assert message.startswith(f"The portal sandbox did not accept the code lists at {base}/")
    assert await owner.fetchval("select count(*) from code_lists") == 2


async def test_a_new_code_of_a_list_is_valid_from_the_import_or_its_own_day(
    command: RunCommand, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    path = write_list(tmp_path / "UnitTypes.json", UNITS)
    await read_result(command("import-codes", path))
    dated = {"Code": "KGM", "Name": "kilogram", "valid_to": "2026-12-31"}
    new = [{"Code": "QQA", "Name": "x"}, {"Code": "X4B", "Name": "x", "valid_from": "2026-07-01"}]
    await read_result(command("import-codes", write_list(path, [dated, *new])))
    await read_result(command("import-codes", write_list(path, UNITS)))
    today = await owner.fetchval("select current_date")
    rows = await owner.fetch("select code, valid_from, valid_to from code_lists order by code")
    assert [tuple(row) for row in rows] == [
        ("KGM", date.min, date(2026, 12, 31)),
        ("KGX", date.min, date.max),
        ("QQA", today, date.max),
        ("X4B", date(2026, 7, 1), date.max),
    ]


async def test_a_built_in_code_keeps_its_days_when_a_later_import_has_it(
    command: RunCommand, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    for units in (UNITS[1:], UNITS):
        path = write_list(tmp_path / "UnitTypes.json", units)
        await read_result(command("import-codes", path))
    first = "select valid_from from code_lists where code = 'KGM'"
    assert await owner.fetchval(first) == date.min


async def test_reimported_list_updates_descriptions_and_keeps_codes(
    command: RunCommand, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "MSICSubCategoryCodes.json"
    maize = {"Code": "01111", "Description": "Maize"}
    for entries in (
        [{"Code": "56101", "Description": "Restaurants"}, maize],
        [{"Code": "56101", "Description": "Restaurants and cafes"}],
    ):
        path.write_text(json.dumps(entries))
        assert await read_result(command("import-codes", path)) == {"msic": len(entries)}
    rows = await owner.fetch("select code_list, code, description from code_lists order by code")
    assert [tuple(row) for row in rows] == [
        ("msic", "01111", "Maize"),
        ("msic", "56101", "Restaurants and cafes"),
    ]


async def test_malformed_code_list_is_rejected_and_imports_nothing(
    owner: asyncpg.Connection, tmp_path: Path, config: Config
) -> None:
    good, bad = tmp_path / "MSIC.json", tmp_path / "UnitTypes.json"
    good.write_text('[{"Code": "56101", "Description": "Restaurants"}]')
    for content in (
        "",
        "{}",
        "[1]",
        "7",
        '[{"name": "kilogram"}]',
        '{"Code": "KGM"}',
        "[{",
        '[{"Code": null}]',
        '[{"Code": ""}]',
        '[{"Code": "KGM", "valid_from": "soon"}]',
        '[{"Code": "KGM", "Name": "\\ud800"}]',
        '[{"Code": "KGM", "valid_to": 7}]',
        '[{"Code": "KGM", "valid_from": "2026-02-01", "valid_to": "2026-01-31"}]',
    ):
        bad.write_text(content)
        with pytest.raises(OperatorError, match="is not a JSON array of codes"):
            await run_command(config, import_codes, [good, bad])
    assert await owner.fetchval("select count(*) from code_lists") == 0

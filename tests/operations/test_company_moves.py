"""The move of a company between two cells, which are two databases of the test's server."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from conftest import AnyClient, Client, ClientFactory, Sandbox, Templates, make_company, until
from fixtures_webhooks import Receiver, create_endpoint, get_json
from harness.companies import Company, make_tin
from harness.databases import administer, create_database, name_of, replace_login
from harness.environments import variables
from harness.processes import ChildProcess, Finished, run_command
from kit import (
    GENEROUS,
    PLACES,
    create_invoice,
    create_one_of_each,
    create_valid_invoice,
    insert_rows_of_sweeps,
    invoice,
    request_json,
    wait_for_status,
)

from service import failpoints
from service.app import create_app
from service.commands.cell_registry import claim_tin
from service.config import read_config
from service.db.cells import check_cell, id_base
from service.db.company_moves import HELD, Move, open_place
from service.db.migrations import migrate
from service.db.statements import sql
from service.db.transactions import Database, connected_pool
from service.http import app_keys
from service.submission.database_identity import record_database_identity

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
STEPS = list(failpoints.MOVES)
#: Tables that a company has no rows of in these tests, and why.
ELSEWHERE = {
    "signing_certificates": "needs a certificate",
    "portal_credentials": "the sandbox has one client",
    "tin_checks": "are a cache",
    "company_members": "are people",
    "document_links": "have a test of their own",
    "webhook_deliveries": "depend on time",
}


@dataclass
class Cell:
    """A cell: its database and the variables of its processes."""

    name: str
    url: str
    environment: dict[str, str]

    async def company(self, **facts: Any) -> Company:
        """Create a company and a key."""
        return await make_company(self.environment, **facts)

    async def is_active(self, company_id: int) -> bool:
        """Return whether the company is active in this cell."""
        async with open_place(self.url, company_id) as place:
            return (await place.standing()).is_active


@dataclass
class Cells:
    """Two cells, and clients of their services."""

    a: Cell
    b: Cell
    folder: Path
    make_client: ClientFactory
    clients: list[Client] = field(default_factory=list)

    @property
    def routes(self) -> Path:
        """Return the file of moved keys."""
        return self.folder / "moved-keys.conf"

    async def client(self, cell: Cell, company: Company) -> Client:
        """Start a service of a cell, and return a client with the company's key."""
        app = create_app(read_config(cell.environment))
        client = await self.make_client(app, headers={"X-API-Key": company.key})
        self.clients.append(client)
        return client

    def arguments(self, company: Company, *options: object, to: Cell | None = None) -> list[str]:
        """Return the arguments of the command that moves a company."""
        routes = ["--routes", self.routes, "--company", company.id]
        target = (to or self.b).url
        return [str(part) for part in ("move-company", "--to", target, *routes, *options)]

    async def move(self, company: Company, *options: object) -> Finished:
        """Move a company from a to b."""
        return await run_command(self.arguments(company, *options), self.a.environment)

    async def pause_move(self, company: Company, step: str) -> ChildProcess:
        """Move a company from a to b, and return the process, which is paused at a step."""
        process = ChildProcess(
            self.arguments(company), self.a.environment, self.folder / "move.log"
        )
        await process.start(stops_at=step)
        await process.paused()
        return process

    async def moved(self, company: Company, *options: object) -> dict[str, Any]:
        """Move a company from a to b, and return the result."""
        done = await self.move(company, *options)
        assert done.code == 0, done.err
        return json.loads(done.out)


@asynccontextmanager
async def create_cell(
    cluster: str, templates: Templates, portal: str, name: str
) -> AsyncIterator[Cell]:
    """Yield an empty cell."""
    async with create_database(cluster, templates.empty) as url:
        await check_cell(url, name)
        yield Cell(name, url, {**variables(url, portal), **GENEROUS, "CELL": name})


@pytest.fixture
async def cells(
    cluster: str,
    templates: Templates,
    sandbox: Sandbox,
    tmp_path: Path,
    aiohttp_client: ClientFactory,
) -> AsyncIterator[Cells]:
    async with (
        create_cell(cluster, templates, sandbox.base, "a") as a,
        create_cell(cluster, templates, sandbox.base, "b") as b,
    ):
        cells = Cells(a, b, tmp_path, aiohttp_client)
        yield cells
        for client in cells.clients:
            await client.close()


async def read_all(api: AnyClient) -> dict[str, Any]:
    """Return everything that a company can read, without the counts of deliveries."""
    paths = [*PLACES, "/api/submitted-documents", "/api/companies"]
    found = {path: (await get_json(api, path))["data"] for path in paths}
    for webhook in found["/api/webhooks"]:
        del webhook["pending"], webhook["delivered_last_minute"]
    return found


async def read_events(api: AnyClient, after: int = 0) -> list[int]:
    """Return the ids of the events after one, read in small pages."""
    found: list[int] = []
    while True:
        page = await get_json(api, f"/api/events?limit=3&after={after}")
        found += [event["id"] for event in page["data"]]
        after = page["meta"]["next_after"]
        if not page["meta"]["has_more"]:
            return found


# Names, ids and keys


async def test_ids_and_keys_of_a_cell_contain_it(cells: Cells) -> None:
    company = await cells.b.company()
    assert company.id == id_base("b") + 1 == 11_000_000_001
    assert company.key_id.startswith("b") and len(company.key_id) == 13
    assert company.key.startswith(f"einv_test_{company.key_id}_")
    api = await cells.client(cells.b, company)
    assert (await get_json(api, "/api/companies"))["data"]["id"] == company.id


async def test_process_of_another_cell_is_refused(cells: Cells) -> None:
    for name, shown in (("c", "c"), ("", "not set")):
        done = await run_command(["migrate"], {**cells.a.environment, "CELL": name})
        assert done.code == 1
        assert done.err.startswith(f"The database is the cell a, and CELL is {shown}. ")


async def test_tin_belongs_to_the_cell_of_the_registry(cells: Cells) -> None:
    registry = {"CELL_REGISTRY": str(cells.folder / "tins")}
    add = ["add-company", "--name", "A", "--tin", make_tin(7)]
    assert (await run_command(add, {**cells.a.environment, **registry})).code == 0
    refused = await run_command(add, {**cells.b.environment, **registry})
    assert f"The TIN {make_tin(7)} belongs to the cell a" in refused.err
    assert (cells.folder / "tins").read_text() == f"{make_tin(7)} a\n"


async def test_unverified_tin_of_a_moved_company_is_not_in_the_registry(cells: Cells) -> None:
    """It stays free for a company of the first cell."""
    tin = make_tin(7)
    registry = {"CELL_REGISTRY": str(cells.folder / "tins")}
    company = await cells.a.company(tin_code=make_tin(8))
    async with open_place(cells.a.url, company.id) as place:
        await place.conn.execute("update companies set tin_code = $1, tin_verified_at = null", tin)
    await cells.a.company(tin_code=tin)
    done = await run_command(cells.arguments(company), {**cells.a.environment, **registry})
    assert done.code == 0, done.err
    assert await cells.b.is_active(company.id)
    assert not (cells.folder / "tins").exists()


def test_incomplete_last_line_of_the_registry_is_removed(tmp_path: Path) -> None:
    """The line names the cell ab."""
    registry = tmp_path / "tins"
    registry.write_text("C1 a\nC2 a")
    claim_tin(registry, "C3", "b")
    claim_tin(registry, "C2", "ab")
    assert registry.read_text() == "C1 a\nC3 b\nC2 ab\n"


# The move


async def test_moved_company_is_served_by_the_other_cell_as_before(
    cells: Cells, receiver: Receiver
) -> None:
    company = await cells.a.company()
    there, here = await cells.client(cells.a, company), await cells.client(cells.b, company)
    made = await create_one_of_each(there)
    await create_endpoint(there, receiver.url)
    await create_valid_invoice(there)
    events = await until(lambda: read_events(there), lambda found: len(found) > 8)
    before = await read_all(there)
    result = await cells.moved(company)
    assert result["cell"] == "b" and result["tables"]["invoices"] == 3
    status, body = await request_json(there, "GET", "/api/companies")
    assert (status, body["code"]) == (503, "company_moving")
    assert await read_all(here) == before
    assert (await read_events(here, events[4]))[: len(events) - 5] == events[5:]
    assert f"{company.key_id} b;\n" in cells.routes.read_text()

    new = await create_invoice(here, submitImmediately=True)
    assert new > made["/api/invoices"]
    await wait_for_status(here, new, "Valid")
    later = await until(lambda: read_events(here, events[-1]), lambda found: len(found) >= 4)
    assert not set(later) & set(events)
    await until(
        lambda: request_json(here, "GET", "/api/events?types=invoice.valid"),
        lambda answer: answer[1]["data"][-1]["data"]["invoice_id"] == new,
    )


async def test_every_row_of_every_table_is_copied(cells: Cells, owner_of_a: Any) -> None:
    company = await cells.a.company()
    api = await cells.client(cells.a, company)
    await create_one_of_each(api)
    await request_json(
        api, "POST", "/api/invoices", json=invoice(), headers={"Idempotency-Key": "k"}
    )
    await insert_rows_of_sweeps(owner_of_a)
    tables = (await cells.moved(company))["tables"]
    assert {name for name, rows in tables.items() if not rows} <= ELSEWHERE.keys()


@pytest.fixture
async def owner_of_a(cells: Cells) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection to the first cell that sees all rows."""
    conn = await asyncpg.connect(cells.a.url)
    yield conn
    await conn.close()


async def test_every_table_with_rows_of_companies_is_copied_or_named(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    rows = await owner_of_a.fetch(
        "select relname as table_name from pg_class join pg_attribute on attrelid = pg_class.oid"
        " where relnamespace = 'public'::regnamespace and relkind = 'r' and attname = 'company_id'"
    )
    copied = {row["name"] for row in await sql.move_tables(owner_of_a, company_id=1)}
    others = {"company_moves", "organization_companies"}
    assert copied == {row["table_name"] for row in rows} - others | {"companies"}


async def test_a_new_table_is_copied_and_held(cells: Cells, owner_of_a: Any) -> None:
    company = await cells.a.company()
    for cell in (cells.a, cells.b):
        await administer(
            cell.url,
            "create table remarks (company_id bigint, id bigint generated always as identity,"
            " primary key (company_id, id)); call keep_companies_apart('remarks')",
        )
    add = "insert into remarks (company_id) values ($1)"
    await owner_of_a.execute(add, company.id)
    assert (await cells.moved(company))["tables"]["remarks"] == 1
    with pytest.raises(asyncpg.PostgresError, match="held for a move"):
        await owner_of_a.execute(add, company.id)
    await owner_of_a.execute(add, company.id + 1)


@pytest.mark.parametrize("step", STEPS)
async def test_killed_move_goes_on_and_the_company_is_never_active_twice(
    cells: Cells, step: str
) -> None:
    company = await cells.a.company()
    api, there = await cells.client(cells.a, company), await cells.client(cells.b, company)
    ids = [await create_invoice(api) for _ in range(3)]
    log = cells.folder / "move.log"
    process = ChildProcess(cells.arguments(company), cells.a.environment, log)
    await process.start(dies_at=step)
    await process.died()
    active = [cell.name for cell in (cells.a, cells.b) if await cell.is_active(company.id)]
    assert active == (["b"] if step in ("move_ended", "move_released") else [])
    await cells.moved(company)
    assert not await cells.a.is_active(company.id) and await cells.b.is_active(company.id)
    listed = (await get_json(there, "/api/invoices"))["data"]
    assert [one["id"] for one in reversed(listed)] == ids
    assert await create_invoice(there) > ids[-1]
    assert f"{company.key_id} b;" in cells.routes.read_text()


async def test_killed_cancellation_can_be_repeated(cells: Cells) -> None:
    company = await cells.a.company()
    api = await cells.client(cells.a, company)
    log = cells.folder / "move.log"
    for options, step in (((), "move_held"), (("--cancel",), "move_ended")):
        process = ChildProcess(cells.arguments(company, *options), cells.a.environment, log)
        await process.start(dies_at=step)
        await process.died()
    done = await cells.move(company, "--cancel")
    assert done.code == 0, done.err
    await create_invoice(api)


async def test_error_of_the_copy_is_printed_and_the_company_is_active_again(cells: Cells) -> None:
    company = await cells.a.company()
    for cell, kind in ((cells.a, "integer"), (cells.b, "bigint")):
        await administer(
            cell.url,
            f"create table remarks (company_id bigint, number {kind},"
            " primary key (company_id, number)); call keep_companies_apart('remarks')",
        )
    await administer(cells.a.url, f"insert into remarks values ({company.id}, 1)")
    done = await cells.move(company)
    assert done.code == 1 and "Traceback" not in done.err
    assert "insufficient data left in message" in done.err
    await create_invoice(await cells.client(cells.a, company))


async def test_company_is_active_again_after_an_interrupt(cells: Cells) -> None:
    company = await cells.a.company()
    process = await cells.pause_move(company, "move_arriving")
    for number in (signal.SIGINT, signal.SIGCONT):
        process.send_signal(number)
    assert await process.wait() != 0
    await create_invoice(await cells.client(cells.a, company))


async def test_hint_is_printed_if_an_interrupted_move_cannot_be_cancelled(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    company = await cells.a.company()
    process = await cells.pause_move(company, "move_arriving")
    await owner_of_a.execute(
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity"
        " where datname = current_database() and application_name = 'einvoice move'"
    )
    for number in (signal.SIGINT, signal.SIGCONT):
        process.send_signal(number)
    assert await process.wait() != 0
    assert "The company is still held." in process.output()


async def test_hold_on_sending_that_is_being_added_is_not_lost(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    """The hold is inserted before the company leaves, and committed afterwards."""
    company = await cells.a.company()
    process = await cells.pause_move(company, "move_copied")
    insert = owner_of_a.transaction()
    await insert.start()
    await owner_of_a.execute(
        "insert into sending_holds (company_id, reason) values ($1, 'A restore.')", company.id
    )
    process.send_signal(signal.SIGCONT)
    await until(lambda: waits_or_is_gone(process, cells.a))
    await insert.commit()
    assert await process.wait() == 1
    assert "Sending was held while the rows were copied." in process.output()
    result = await cells.moved(company)
    assert result["tables"]["sending_holds"] == 1


async def waits_or_is_gone(process: ChildProcess, cell: Cell) -> bool:
    """Return whether the command that moves a company waits for a lock, or has ended."""
    conn = await asyncpg.connect(cell.url)
    try:
        return process.is_gone or await conn.fetchval(
            "select exists (select from pg_stat_activity where datname = current_database()"
            " and application_name = 'einvoice move' and wait_event_type = 'Lock')"
        )
    finally:
        await conn.close()


async def test_other_commands_for_a_company_that_is_being_moved_are_refused(cells: Cells) -> None:
    company = await cells.a.company()
    process = await cells.pause_move(company, "move_moved")
    back = cells.arguments(company, to=cells.a)
    try:
        refused = [
            await cells.move(company, "--remove"),
            await cells.move(company, "--cancel"),
            await run_command(back, cells.b.environment),
        ]
    finally:
        await process.kill()
    message = f"Another command moves the company {company.id} already.\n"
    assert [done.err for done in refused] == [message] * 3


async def test_held_company_is_read_and_others_are_changed(cells: Cells) -> None:
    company, other = await cells.a.company(), await cells.a.company()
    api, busy = await cells.client(cells.a, company), await cells.client(cells.a, other)
    await create_invoice(api)
    process = await cells.pause_move(company, "move_held")
    try:
        async with api.post("/api/invoices", json=invoice()) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "2")
            assert (await response.json())["code"] == "company_moving"
        assert (await request_json(api, "GET", "/api/invoices"))[1]["meta"]["total"] == 1
        await create_invoice(busy)
        refused = await cells.move(company)
        assert refused.err == f"Another command moves the company {company.id} already.\n"
    finally:
        await process.kill()
    assert (await cells.move(company, "--cancel")).code == 0
    await create_invoice(api)


async def test_workers_of_the_former_cell_ignore_the_company(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    company, other = await cells.a.company(), await cells.a.company()
    for owner in (company, other):
        await owner_of_a.execute(
            "insert into submissions (company_id, attempt_key, tin, body, on_absence, state,"
            " last_sent_at)"
            " values ($1, gen_random_uuid(), 'C1', '', 'release', 'Uncertain', now())",
            owner.id,
        )
    await cells.moved(company)
    assert await claim_submissions(cells.a) == [other.id]
    assert await owner_of_a.fetchval("select hold_sending('A restore.')") == 1
    assert await claim_submissions(cells.b) == [company.id]


async def claim_submissions(cell: Cell) -> list[int]:
    """Return the companies whose submissions a worker of a cell claims."""
    async with connected_pool(cell.url, 1) as pool:
        await record_database_identity(Database(pool))
        async with Database(pool).across() as conn:
            rows = await sql.submission_claim(
                conn, lease=timedelta(seconds=9), most=9, states=None, suspects=1
            )
    return [row["company_id"] for row in rows]


async def test_hold_of_a_moved_company_does_not_delay_other_companies(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    """The company was held first, so that its sweep would be the first one."""
    company, other = await cells.a.company(), await cells.a.company()
    for owner, hours in ((company, 2), (other, 1)):
        await owner_of_a.execute(
            "insert into sending_holds (company_id, reason, since)"
            " values ($1, 'A restore.', now() - make_interval(hours => $2))",
            owner.id,
            hours,
        )
    await cells.moved(company)
    spans = {"grace": HOUR, "settle": MINUTE, "proof_gap": MINUTE, "every": HOUR}
    async with connected_pool(cells.a.url, 1) as pool, Database(pool).across() as conn:
        swept = [
            await sql.sweep_claim(
                conn,
                lease=HOUR,
                every=HOUR,
                settle=MINUTE,
                changing=HOUR,
                furthest=HOUR,
                of_held=True,
            )
            for _ in range(2)
        ]
        sending = [row["company_id"] for row in await sql.sweep_companies(conn)]
        held = [row["company_id"] for row in await sql.attention_list(conn)]
        watched = {row["kind"]: row["n"] for row in await sql.watch(conn, **spans)}
    assert swept[0]["company_id"] == other.id and swept[1] is None
    assert sending == held == [other.id] and watched["Hold"] == 1


async def test_use_of_other_keys_is_recorded_while_a_company_is_held(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    company, other = await cells.a.company(), await cells.a.company()
    api = await cells.client(cells.a, company)
    for key in (company.key, other.key):
        async with api.get("/api/companies", headers={"X-API-Key": key}) as response:
            assert response.status == 200
    await cells.moved(company)
    assert api.app
    await api.app[app_keys.KEY_RING].work()
    rows = await owner_of_a.fetch("select company_id from api_keys where last_used_at is not null")
    assert [row["company_id"] for row in rows] == [other.id]


async def test_company_moves_back_after_its_old_rows_were_removed(cells: Cells) -> None:
    company = await cells.a.company()
    first = await create_invoice(await cells.client(cells.a, company))
    early = await cells.move(company, "--remove")
    assert early.err == f"The company {company.id} has not left this cell.\n"
    await cells.moved(company)
    second = await create_invoice(await cells.client(cells.b, company))
    assert (await cells.moved(company, "--remove"))["deleted"]["invoices"] == 1
    back = cells.arguments(company, to=cells.a)
    done = await run_command(back, cells.b.environment)
    assert done.code == 0, done.err
    api = await cells.client(cells.a, company)
    listed = (await get_json(api, "/api/invoices"))["data"]
    assert [one["id"] for one in listed] == [second, first]
    assert company.key_id not in cells.routes.read_text()


async def test_events_keep_their_order_and_webhooks_their_position(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    """The transaction of the later event began first, so ids and order differ."""
    company = await cells.a.company()
    insert = "insert into events (company_id, type, data) values ($1, 'x', '{}') returning id"
    second = await asyncpg.connect(cells.a.url)
    ids: list[Any] = [await owner_of_a.fetchval(insert, company.id)]
    async with owner_of_a.transaction():
        await owner_of_a.fetchval("select pg_current_xact_id()")
        later = await second.fetchval(insert, company.id)
        ids.append(await owner_of_a.fetchval(insert, company.id))
    await second.close()
    ids += [later, await owner_of_a.fetchval(insert, company.id)]
    assert ids[1] > ids[2]
    await owner_of_a.execute(
        "insert into webhook_endpoints (company_id, url, enabled, cursor_transaction, cursor_event)"
        " select company_id, 'http://x', false, transaction_id, id from events where id = $1",
        ids[2],
    )
    await cells.moved(company)
    conn = await asyncpg.connect(cells.b.url)
    order = await conn.fetch("select id from events order by transaction_id, id")
    [place] = await conn.fetch(
        "select v.id from webhook_endpoints e join events v"
        " on (v.transaction_id, v.id) = (e.cursor_transaction, e.cursor_event)"
    )
    await conn.close()
    assert [row["id"] for row in order] == ids and place["id"] == ids[2]


async def test_company_with_people_is_not_moved(cells: Cells) -> None:
    """A person of the other cell with the same address may be someone else's account."""
    company = await cells.a.company()
    person = ["--company", company.id, "--email", "siti@example.com", "--name", "Siti"]
    assert (await run_command(["invite-user", *person], cells.a.environment)).code == 0
    done = await cells.move(company)
    assert done.code == 1 and "The company has 1 people, who cannot be moved" in done.err
    assert await cells.a.is_active(company.id) and not await cells.b.is_active(company.id)
    await administer(cells.a.url, f"delete from company_members where company_id = {company.id}")
    await cells.moved(company)


async def test_person_invited_while_the_company_drains_stops_the_move(cells: Cells) -> None:
    company = await cells.a.company()
    process = await cells.pause_move(company, "move_draining")
    person = ["--company", company.id, "--email", "siti@example.com", "--name", "Siti"]
    assert (await run_command(["invite-user", *person], cells.a.environment)).code == 0
    process.send_signal(signal.SIGCONT)
    assert await process.wait() == 1
    assert "The company has 1 people, who cannot be moved" in process.output()
    assert await cells.a.is_active(company.id)


async def test_move_waits_for_claims_and_gives_up(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    company = await cells.a.company()
    api = await cells.client(cells.a, company)
    await owner_of_a.execute(
        "insert into idempotency_keys (company_id, route, key, body_sha256, lease_until)"
        " values ($1, 'r', 'k', '', clock_timestamp() + interval '1 hour')",
        company.id,
    )
    done = await cells.move(company, "--patience", 1)
    assert done.code == 1 and "processes still work on the company: 1 requests" in done.err
    await create_invoice(api)


async def test_move_goes_on_if_no_work_is_left_at_the_end_of_its_patience(cells: Cells) -> None:
    company = await cells.a.company()
    async with (
        open_place(cells.a.url, company.id) as here,
        open_place(cells.b.url, company.id) as there,
    ):
        await Move(here, there, timedelta(0)).drain()
        assert (await here.standing()).state == HELD


async def test_move_waits_for_the_lock_of_a_paused_sender(
    cells: Cells, owner_of_a: asyncpg.Connection
) -> None:
    company = await cells.a.company()
    api = await cells.client(cells.a, company)
    await owner_of_a.execute(
        "insert into submissions (company_id, attempt_key, tin, body, on_absence, state,"
        " last_sent_at, not_before) values ($1, gen_random_uuid(), 'C1', '', 'release',"
        " 'Uncertain', now(), 'infinity')",
        company.id,
    )
    [row] = await owner_of_a.fetch("select id from submissions")
    await sql.submission_lock_try(owner_of_a, company_id=company.id, id=row["id"])
    done = await cells.move(company, "--patience", 1)
    assert "still work on the company: 1 locked submissions" in done.err
    await create_invoice(api)


# Refusals


async def test_move_that_is_not_possible_is_refused_with_the_reason(cells: Cells) -> None:
    company = await cells.a.company(tin_code=make_tin(8))
    taken = await cells.a.company(tin_code=make_tin(9))
    await cells.b.company(tin_code=make_tin(9))
    for wanted, to, reason in (
        (company.id, cells.a, "Both databases are the cell a."),
        (999, cells.b, "There is no company 999 in this cell."),
        (taken.id, cells.b, f"Another company of the other cell has the TIN {make_tin(9)}."),
    ):
        arguments = ["move-company", "--company", wanted, "--to", to.url]
        done = await run_command(arguments, cells.a.environment)
        assert (done.code, done.err) == (1, f"{reason}\n")
    assert await cells.a.is_active(taken.id)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--to", "x"], "--to must have the form postgresql://"),
        (["--to", "postgresql://127.0.0.1:1/x"], "--to: No PostgreSQL answers at 127.0.0.1:1"),
        (["--to", "postgresql://x/", "--reload", "true"], "--reload needs --routes."),
        (
            ["--to", "postgresql://x/", "--patience", "nan"],
            "--patience: must be a number of seconds",
        ),
    ],
)
async def test_invalid_option_is_named(cells: Cells, options: list[str], message: str) -> None:
    done = await run_command(["move-company", "--company", 1, *options], cells.a.environment)
    assert done.code and message in done.err


@pytest.mark.parametrize(
    "options, message",
    [
        (["--routes", "/nowhere/routes"], "The routes cannot be written to /nowhere/routes: No "),
        (["--routes", "README.md"], "README.md is not a file of routes"),
        (["--routes", "routes", "--reload", "no-program -s"], "--reload: there is no program 'no-"),
        (["--routes", "routes", "--reload", "nginx 'x"], "--reload: the command cannot be read: "),
    ],
)
async def test_routes_are_checked_before_the_company_is_held(
    cells: Cells, options: list[str], message: str
) -> None:
    company = await cells.a.company()
    arguments = ["move-company", "--company", company.id, "--to", cells.b.url, *options]
    done = await run_command(arguments, cells.a.environment)
    assert done.code == 1 and done.err.startswith(message)
    assert await cells.a.is_active(company.id)


async def test_company_whose_tin_is_shared_is_refused(cells: Cells) -> None:
    tin = make_tin(10)
    await run_command(["share-tin", "--tin", tin, "--note", "x"], cells.a.environment)
    company = await cells.a.company(tin_code=tin)
    await cells.a.company(tin_code=tin)
    done = await cells.move(company)
    assert done.err.startswith(f"Other companies of this cell have the TIN {tin} too")


async def test_owners_without_further_rights_can_move_a_company(
    cells: Cells, cluster: str, sandbox: Sandbox
) -> None:
    async with (
        owned_cell(cluster, sandbox.base, "c") as c,
        owned_cell(cluster, sandbox.base, "d") as d,
    ):
        company, other = (
            await c.company(tin_code=make_tin(1)),
            await c.company(tin_code=make_tin(2)),
        )
        await create_invoice(await cells.client(c, company))
        arguments = cells.arguments(company, to=d)
        done = await run_command(arguments, c.environment)
        await cells.clients.pop().close()
        assert done.code == 0, done.err
        assert json.loads(done.out)["tables"]["invoices"] == 1
        assert await c.is_active(other.id) and not await c.is_active(company.id)
        assert await d.is_active(company.id)


@asynccontextmanager
async def owned_cell(cluster: str, portal: str, name: str) -> AsyncIterator[Cell]:
    """Yield a cell whose owner is a login as `roles.sql` makes it."""
    async with create_database(cluster) as url:
        owner = f"owner_{name_of(url)}"
        await administer(cluster, f"create role {owner} login createrole password '{owner}'")
        await administer(
            cluster, f"grant einvoice_service, einvoice_across to {owner} with admin option"
        )
        await administer(cluster, f"alter database {name_of(url)} owner to {owner}")
        own = replace_login(url, f"{owner}:{owner}")
        await migrate(own)
        await check_cell(own, name)
        environment = {**variables(url, portal), **GENEROUS, "CELL": name}
        yield Cell(name, own, {**environment, "DATABASE_OWNER_URL": own})
        await administer(cluster, f"alter database {name_of(url)} owner to current_user")
        await administer(url, f"reassign owned by {owner} to current_user")
        await administer(url, f"drop owned by {owner}")
    await administer(cluster, f"drop role {owner}")


async def test_work_on_companies_that_are_moved_is_hidden_in_every_table(
    owner: asyncpg.Connection,
) -> None:
    """A table whose rows of all companies are visible to functions also has a policy for moves.

    Keys of a moved company are still found, holds are put on all companies, which are selected for
    that, and the moves themselves are visible.
    """
    rows = await owner.fetch(
        "select polrelid::regclass::text as name, array_agg(polname::text) as policies"
        " from pg_policy where 'einvoice_across'::regrole = any (polroles) group by polrelid"
    )
    policies = {row["name"]: set(row["policies"]) for row in rows}
    without = {
        name
        for name, found in policies.items()
        if "across_companies" in found and not found & {"not_moving", "not_moved"}
    }
    assert "submissions" in policies
    assert without == {"api_keys", "companies", "company_moves", "sending_holds"}

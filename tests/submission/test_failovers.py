"""Failovers between real servers: sending is held unless the new primary has every send.

`a` is the first primary, and `b` its standby. The service reaches them by one address.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import asyncpg
import pytest

from service.db.migrations import migrate
from service.db.pool import connected_pool
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import Unavailable
from service.submission import database_monitor
from tests.api_invoices import create_invoice
from tests.api_reads import get_invoice, wait_for_status
from tests.api_requests import submit
from tests.conftest import Client, Company, Sandbox, StartService, make_company, run_context, until
from tests.harness.companies import AUTOMATIC
from tests.harness.environments import variables
from tests.harness.network import Network
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import Service
from tests.harness.standby import StandbyServer

HOLDS = "select count(*) from sending_holds"
NOTED = "select identity = database_identity() from database_state"
EVIDENCE = "select evidence from database_state"
#: The time passes until which intents need a confirmation, in the database and in the process.
PASSED_SECONDS = 75
PAUSE = {"client_id": "client", "operation": "submit", "pause": timedelta(0)}
CLIENTS = 5
#: Longer than evidence is valid.
PAUSE_SECONDS = 61


@dataclass(frozen=True, slots=True)
class Site:
    """A primary, its standby, and the address that leads to one of them."""

    primary: PostgresServer
    standby: StandbyServer
    address: Network

    async def synchronize(self, names: str = "b") -> None:
        """Let commits wait for standbys."""
        await self.primary.configure("synchronous_standby_names", names)

    async def wait_for_evidence(self) -> None:
        """Wait until a process has proven the database again."""
        former = await self.primary.execute(EVIDENCE)
        await until(lambda: self.primary.execute(EVIDENCE), lambda evidence: evidence > former)

    async def fail_over(self, mode: str = "immediate") -> None:
        """Stop the primary and promote the standby."""
        await self.primary.stop(mode)
        await self.take_over(self.standby)

    async def take_over(self, server: StandbyServer) -> None:
        """Promote a standby, and wait until a process has noted it."""
        await server.promote()
        await server.configure("synchronous_standby_names", "")
        await self.address.lead_to(server.url)
        await until(lambda: server.execute(NOTED))


@pytest.fixture
async def site(scratch: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(dir=scratch)))
        primary = PostgresServer(home / "a", name="a")
        await stack.enter_async_context(primary)
        await migrate(primary.url)
        standby = StandbyServer(home / "b", primary.url, "b")
        await stack.enter_async_context(standby)
        address = Network(primary.url)
        await address.heal()
        stack.push_async_callback(address.refuse)
        yield Site(primary, standby, address)


@pytest.fixture
def environment(site: Site, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(database_monitor, "CHECK_SECONDS", 0.1)
    return {**variables(site.address.url, sandbox.base), "COMPARISON_SECONDS": "0.2"}


@pytest.fixture
async def company(environment: dict[str, str]) -> Company:
    return await make_company(environment)


@pytest.fixture
async def api(start: StartService) -> Client:
    return await start()


async def count_repetitions(sandbox: Sandbox) -> int:
    """Return how many documents the portal has twice."""
    numbers = Counter(entry["number"] for entry in await sandbox.ledger())
    return sum(times - 1 for times in numbers.values())


@pytest.mark.parametrize("mode", ["immediate", "fast"])
async def test_a_synchronous_failover_does_not_hold_and_sends_nothing_twice(
    site: Site, api: Client, sandbox: Sandbox, mode: str
) -> None:
    """The primary crashes, or is shut down for a switchover, while clients submit."""
    await sandbox.settings(duplicate_detection=False, duplicate_window_seconds=0)
    await sandbox.fault("submit", "slow", seconds=0.1, times=1_000_000)
    await site.synchronize()
    await site.wait_for_evidence()
    created: list[int] = []

    async def work() -> None:
        while True:
            try:
                created.append(await create_invoice(api))
                await submit(api, created[-1])
            except (AssertionError, aiohttp.ClientError):
                await asyncio.sleep(0.1)

    clients = [asyncio.create_task(work()) for _ in range(CLIENTS)]
    await until(sandbox.ledger, lambda found: len(found) > 2 * CLIENTS)
    await site.fail_over(mode)
    sent = len(await sandbox.ledger())
    await until(sandbox.ledger, lambda found: len(found) > sent + CLIENTS)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    assert await site.standby.execute(HOLDS) == 0
    for invoice_id in created:  # A Draft was not submitted, or the portal did not receive it.
        await until(
            partial(get_invoice, api, invoice_id),
            lambda record: record["status"] in ("Draft", "Valid"),
        )
    assert await count_repetitions(sandbox) == 0


async def test_a_failover_to_an_asynchronous_standby_that_lacks_sends_holds(
    site: Site, api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    await until(lambda: site.standby.execute("select count(*) from documents"))
    await site.standby.stop()
    assert (await submit(api, invoice_id))[0] == 200
    await site.primary.stop()
    await site.standby.start()
    await site.take_over(site.standby)
    assert await site.standby.execute(HOLDS) == 1
    assert (await submit(api, invoice_id))[1]["code"] in ("sending_held", "number_at_portal")
    assert len(await sandbox.ledger()) == 1


async def test_a_standby_that_was_synchronous_before_holds_when_it_is_promoted(
    site: Site, api: Client, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails, and the primary goes on alone: first it sends nothing, then without a standby."""
    await site.synchronize()
    await site.wait_for_evidence()
    invoice_id = await create_invoice(api)
    await site.standby.stop()
    await site.synchronize("")
    status, body = await submit(api, invoice_id)
    assert (status, body["code"]) == (400, "sending_held") and not await sandbox.ledger()
    await site.primary.execute("update database_state set guarded_until = clock_timestamp()")
    read_clock = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: read_clock(clock) + PASSED_SECONDS)
    assert (await submit(api, invoice_id))[0] == 200
    await site.primary.stop()
    await site.standby.start()
    await site.take_over(site.standby)
    assert await site.standby.execute(HOLDS) == 1
    assert len(await sandbox.ledger()) == 1


async def test_work_that_waits_for_a_confirmation_is_sent_later(
    site: Site, api: Client, sandbox: Sandbox
) -> None:
    await site.primary.execute(AUTOMATIC)
    await site.synchronize()
    await site.wait_for_evidence()
    await site.synchronize("")
    invoice_id = await create_invoice(api, isReady=True)
    held = "select last_error ->> 'code' from submissions"
    await until(lambda: site.primary.execute(held), lambda code: code == "SendingHeld")
    assert not await sandbox.ledger()
    await site.synchronize()
    await wait_for_status(api, invoice_id, "Valid")


@pytest.mark.parametrize("name", ["a", "c", ""])
async def test_a_server_that_did_not_have_to_confirm_holds(
    site: Site, api: Client, name: str, tmp_path: Path
) -> None:
    """A copy of the primary's machine, another standby, and one without a name."""
    await site.synchronize()
    await site.wait_for_evidence()
    async with StandbyServer(tmp_path / "copy", site.primary.url, name) as copy:
        await site.wait_for_evidence()
        position = await site.primary.execute("select pg_current_wal_lsn()::text")
        await site.primary.stop("immediate")
        await until(lambda: copy.execute(f"select pg_last_wal_receive_lsn() >= '{position}'"))
        await site.take_over(copy)
        assert await copy.execute(HOLDS) == 1


async def test_a_process_that_starts_after_a_synchronous_failover_holds(
    site: Site, api: Client, start: StartService
) -> None:
    await site.synchronize()
    await site.wait_for_evidence()
    await api.close()
    await site.primary.stop("immediate")
    await site.standby.promote()
    await site.standby.configure("synchronous_standby_names", "")
    await site.address.lead_to(site.standby.url)
    await start()
    assert await site.standby.execute(HOLDS) == 1


@pytest.mark.long
async def test_a_process_that_was_paused_for_longer_than_its_evidence_holds(
    site: Site, environment: dict[str, str], company: Company, tmp_path: Path
) -> None:
    """The time until which intents need a confirmation is not over."""
    await site.synchronize()
    async with Service(environment, tmp_path / "service.log", ["serve"]) as service:
        await site.wait_for_evidence()
        await site.primary.execute(
            "update database_state set guarded_until = now() + interval '1 hour'"
        )
        service.send_signal(signal.SIGSTOP)
        await service.paused()
        await site.primary.stop("immediate")
        await site.standby.promote()
        await site.standby.configure("synchronous_standby_names", "")
        await site.address.lead_to(site.standby.url)
        await asyncio.sleep(PAUSE_SECONDS)
        service.send_signal(signal.SIGCONT)
        await until(lambda: site.standby.execute(NOTED))
        assert await site.standby.execute(HOLDS) == 1


@pytest.fixture(scope="module")
def server(scratch: Path) -> Iterator[PostgresServer]:
    """Yield a primary with the name `a`, without standbys."""
    with TemporaryDirectory(dir=scratch) as home, asyncio.Runner() as runner:
        with run_context(runner.run, PostgresServer(Path(home), name="a")) as server:
            runner.run(migrate(server.url))
            yield server


async def test_a_commit_that_no_standby_has_confirmed_is_no_success(server: PostgresServer) -> None:
    """The wait for the standby is cancelled, after which PostgreSQL reports only a warning."""
    cancel = "select count(pg_cancel_backend(pid)) from pg_stat_activity where wait_event='SyncRep'"
    await server.configure("synchronous_standby_names", "nobody")
    async with connected_pool(server.url, 1) as pool:
        database = Database(pool)

        async def commit() -> None:
            async with database.company(1) as conn:
                await sql.pause_set(conn, **PAUSE)

        for work in (commit(), database.write(sql.pause_set, **PAUSE)):
            task = asyncio.create_task(work)
            await until(lambda: server.execute(cancel))
            with pytest.raises(Unavailable):
                await task


#: Facts of a lossless failover from the timeline 0 to 1. `stored` is what the new primary has.
LOSSLESS = {
    "seen": "{cluster}/00000001/{rest}",
    "former": "{cluster}/00000000/{rest}",
    "stored": "{cluster}/00000000/{rest}",
    "evidence": 7,
    "stored_evidence": 7,
    "age": timedelta(seconds=59),
    "left": timedelta(seconds=17),
    "standbys": ["a", "b"],
    "name": "B",
}
OTHER_CLUSTER = "1/00000000/{rest}"
OTHER_DATABASE = "{cluster}/00000000/1/1"
LATER_TIMELINE = "{cluster}/00000002/{rest}"
STORE = """
update database_state
   set identity = $1, evidence = $2,
       guarded_until = clock_timestamp() + $3::interval, standbys = $4
"""


async def record(owner: asyncpg.Connection, **changes: Any) -> str | None:
    """Return the outcome on a promoted server, with other facts than those of LOSSLESS."""
    here = await owner.fetchval("select database_identity()")
    cluster, _, rest = str(here).split("/", 2)
    facts = {
        name: value.format(cluster=cluster, rest=rest) if isinstance(value, str) else value
        for name, value in {**LOSSLESS, **changes}.items()
    }
    await owner.execute("select set_config('einvoice.server_name', $1, false)", facts["name"])
    stored = [facts[name] for name in ("stored", "stored_evidence", "left", "standbys")]
    await owner.execute(STORE, *stored)
    evidence = [facts[name] for name in ("seen", "former", "evidence", "age")]
    return await owner.fetchval("select record_database_identity($1, $2, $3, $4)", *evidence)


async def test_a_lost_state_of_the_database_is_stored_again(owner: asyncpg.Connection) -> None:
    await owner.execute("insert into portal_buckets values ('a', 'submit', '', '{now}', '{b}')")
    before = await owner.fetch("select * from portal_buckets")
    await owner.execute("delete from database_state")
    assert await owner.fetchval("select note_clock()") is None
    assert await owner.fetch("select * from portal_buckets") == before
    assert await owner.fetchval("select record_database_identity()") is None
    assert await owner.fetchval(NOTED)


async def test_a_proven_failover_is_lossless(owner: asyncpg.Connection) -> None:
    assert await record(owner) == "lossless"
    assert await owner.fetchval(HOLDS) == 0
    assert await owner.fetchval(NOTED)
    # Processes may still have evidence of the former primary.
    assert await owner.fetchval(
        "select guarded_until > clock_timestamp() + interval '60 seconds' from database_state"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"seen": "another server behind the address"},
        {"stored": OTHER_CLUSTER},
        {"evidence": 8},
        {"evidence": None},
        {"age": timedelta(seconds=60)},
        {"age": None},
        {"left": timedelta(seconds=15)},
        {"left": None},
        {"name": "c"},
        {"name": ""},
        {"standbys": []},
        {"former": OTHER_CLUSTER, "stored": OTHER_CLUSTER},
        {"former": OTHER_DATABASE, "stored": OTHER_DATABASE},
        {"former": LATER_TIMELINE, "stored": LATER_TIMELINE},
    ],
    ids=str,
)
async def test_incomplete_evidence_holds(
    owner: asyncpg.Connection, changes: dict[str, Any]
) -> None:
    assert await record(owner, **changes) == "held"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("", []),
        ("b", ["b"]),
        ("1 (b)", ["b"]),
        ('FIRST 2 (b, "C-1")', ["b", "c-1"]),
        ("ANY 2 (b,c)", ["b", "c"]),
        ("b, c", []),
        ("ANY 1 (b, c)", []),
        ("2 (b, b)", []),
        ("*", []),
        ("1 (*)", []),
        ('"b c"', []),
    ],
)
async def test_standbys_are_synchronous_if_all_have_to_confirm(
    server: PostgresServer, names: str, expected: list[str]
) -> None:
    await server.configure("synchronous_standby_names", names)
    assert await server.execute("select synchronous_standbys()") == expected


@pytest.mark.parametrize(
    ("level", "expected"),
    [("on", ["b"]), ("remote_apply", ["b"]), ("remote_write", []), ("local", []), ("off", [])],
)
async def test_a_commit_that_waits_for_no_disk_of_a_standby_proves_nothing(
    server: PostgresServer, level: str, expected: list[str]
) -> None:
    await server.configure("synchronous_standby_names", "b")
    conn = await asyncpg.connect(server.url, server_settings={"synchronous_commit": level})
    assert await conn.fetchval("select synchronous_standbys()") == expected
    await conn.close()


@pytest.mark.parametrize(
    ("names", "name", "standbys", "seconds", "is_proven"),
    [
        ("b", "a", [], None, True),
        ("2 (b, c)", "a", ["b"], 9, True),
        ("c", "b", ["b", "c"], 9, True),  # b was promoted
        ("c", "a", ["b"], 9, False),
        ("b", "a", ["b", "c"], 9, False),
        ("c", "a", ["b"], -9, True),
        ("", "a", ["b"], -9, False),
        ("b", "", [], None, False),
        ("b", "b", [], None, False),
    ],
)
async def test_other_standbys_are_proven_when_the_former_evidence_is_over(
    server: PostgresServer,
    names: str,
    name: str,
    standbys: list[str],
    seconds: int | None,
    is_proven: bool,
) -> None:
    """Nothing is committed, since there is no standby."""
    await server.configure("synchronous_standby_names", names)
    conn = await asyncpg.connect(server.url, server_settings={"einvoice.server_name": name})
    await conn.execute("begin")
    left = None if seconds is None else timedelta(seconds=seconds)
    here = await conn.fetchval("select database_identity()")
    await conn.execute(STORE, here, 1, left, standbys)
    can_send = "select send_confirmation() is not null"
    assert await conn.fetchval(can_send) == (is_proven or left is None or left < timedelta(0))
    found = await conn.fetchrow("select identity, evidence from record_evidence()")
    assert found == ((here, 2) if is_proven else None)
    await conn.close()


async def test_another_database_than_the_noted_one_is_not_proven(server: PostgresServer) -> None:
    await server.configure("synchronous_standby_names", "b")
    conn = await asyncpg.connect(server.url)
    await conn.execute("begin")
    await conn.execute(STORE, "another", 1, None, [])
    assert await conn.fetchrow("select identity, evidence from record_evidence()") is None
    await conn.close()

"""Reads on a streaming standby: they show all earlier writes, and no failure of it is theirs."""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import asyncpg
import pytest

from service.config import read_config
from service.db import standby as standby_module
from service.db.connections import Connection
from service.db.migrations import migrate
from service.db.pool import connected_pool
from service.db.standby import FOREIGN, LAGGING, NO_POSITION, StandbyReads
from service.db.statements import sql
from service.db.transactions import Database
from service.http import app_keys
from service.submission.database_monitor import record_database_identity
from tests.api_invoices import create_invoice
from tests.api_requests import expect, request_json
from tests.conftest import (
    AnyClient,
    Client,
    Company,
    StartService,
    make_company,
    run_context,
    some_long,
    until,
)
from tests.harness.bodies import invoice
from tests.harness.databases import create_database, replace_database
from tests.harness.environments import variables
from tests.harness.network import Network
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import Service
from tests.harness.standby import StandbyServer
from tests.harness.waiting import wait_until
from tests.operations.test_round_trips import OCCASIONAL, READS

CLIENTS = 6
ROUNDS = 30
#: A commit reaches readers of the standby this much later than those of the primary.
BEHIND = "20ms"
FURTHER_BEHIND = "300ms"
FAR_BEHIND = "1h"
#: Settings of the standby that tests change.
DEFAULTS = {"recovery_min_apply_delay": "0", "max_standby_streaming_delay": "30s"}
QUICK = {"DATABASE_ANSWER_SECONDS": "3"}
PORTAL = "http://127.0.0.1:1"

#: Runs a new standby of the server with an address.
Follow = Callable[[str], AbstractAsyncContextManager[StandbyServer]]

_references = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A primary with a migrated database, and its standby."""

    primary: PostgresServer
    standby: StandbyServer


@pytest.fixture(scope="module")
def servers(scratch: Path) -> Iterator[Pair]:
    """Yield a pair of servers for tests of the module.

    A worker can run tests of other modules in between, and then make another pair.
    """
    home = scratch / f"servers-{next(_references)}"
    home.mkdir()
    with (
        asyncio.Runner() as runner,
        run_context(runner.run, PostgresServer(home / "primary")) as primary,
    ):
        runner.run(migrate(primary.url))
        runner.run(note_identity(primary.url))
        server = StandbyServer(home / "standby", primary.url)
        with run_context(runner.run, server) as standby:
            yield Pair(primary, standby)


@pytest.fixture
async def pair(servers: Pair) -> AsyncIterator[Pair]:
    """Yield a pair whose standby runs and replays without delay, before and after the test."""
    yield servers
    await servers.standby.start()
    for name, value in DEFAULTS.items():
        await servers.standby.configure(name, value)
    await servers.standby.resume_replay()
    await servers.primary.execute("alter database postgres reset all")


@pytest.fixture
def standby(pair: Pair) -> StandbyServer:
    return pair.standby


@pytest.fixture
def environment(pair: Pair) -> dict[str, str]:
    """Return the variables of a service that reads from the standby."""
    return {**variables(pair.primary.url, PORTAL), "DATABASE_READ_URL": pair.standby.url}


@pytest.fixture
async def company(environment: dict[str, str]) -> Company:
    return await make_company(environment)


@pytest.fixture
async def api(start: StartService, company: Company) -> Client:
    """Return a client of a service that uses the standby."""
    return await start_reading(start, company)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reads of services in this process wait long for the standby of a busy machine."""
    monkeypatch.setattr(standby_module, "PAUSES", (*standby_module.PAUSES, *[0.02] * 1000))


async def start_reading(start: StartService, company: Company, **more: str) -> Client:
    """Start a service and wait until it uses the standby."""
    api = await start(company, background=False, **more)
    await wait_until(lambda: get_reads(api).cause is None)
    return api


@pytest.fixture
async def processes(
    environment: dict[str, str], company: Company, tmp_path: Path
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """Yield clients of two processes of the service that use the standby."""
    arguments = ["serve", "--no-background"]
    settings = {**environment, **QUICK, "LOG_LEVEL": "INFO"}
    async with (
        Service(settings, tmp_path / "one.log", arguments) as one,
        Service(settings, tmp_path / "two.log", arguments) as two,
        one.client(company.key) as first,
        two.client(company.key) as second,
    ):
        for client in (first, second):
            await wait_until_used(client)
        yield [first, second]


def get_reads(api: Client) -> StandbyReads:
    """Return the reads of a service in this process."""
    assert api.app is not None
    reads = api.app[app_keys.READS]
    assert isinstance(reads, StandbyReads)
    return reads


async def count_reads(api: AnyClient) -> Counter[str]:
    """Return {target: number} of the metrics."""
    async with api.get("/metrics") as response:
        text = await response.text()
    found = re.findall(r'einvoice_reads_total\{target="(\w+)"\} (\S+)', text)
    return Counter({target: int(float(number)) for target, number in found})


async def wait_until_used(api: AnyClient) -> None:
    """Wait until reads run on the standby."""

    async def is_used() -> bool:
        before = await count_reads(api)
        await request_json(api, "GET", "/api/invoices?page=1&per_page=1")
        return (await count_reads(api))["standby"] > before["standby"]

    await until(is_used)


# What runs on the standby


@pytest.mark.usefixtures("patient")
async def test_requests_that_read_run_on_the_standby(api: Client) -> None:
    invoice_id = await create_invoice(api)
    for path in [*READS, "/api/invoices?reference=none&sort=code", "/api/invoices/{id}/print"]:
        async with api.get(path.format(id=invoice_id)) as response:
            await response.read()
            assert response.status in (200, 404), await response.text()
    assert get_reads(api).counts.keys() == {"standby"}


async def test_a_service_without_a_standby_reads_from_the_primary(start: StartService) -> None:
    api = await start(background=False, DATABASE_READ_URL="")
    assert api.app is not None
    assert api.app[app_keys.READS] is api.app[app_keys.DATABASE]
    assert await count_reads(api) == {}


@pytest.mark.usefixtures("patient")
async def test_concurrent_reads_ask_the_primary_for_one_position(
    commands: list[str], start: StartService, company: Company
) -> None:
    """The first asks alone. The others arrive meanwhile and share the next question."""
    api = await start_reading(start, company)
    ids = [await create_invoice(api) for _ in range(20)]
    commands.clear()
    statuses = await asyncio.gather(
        *(request_json(api, "GET", f"/api/invoices/{number}/submitted-documents") for number in ids)
    )
    assert {status for status, _ in statuses} == {200}
    assert {*commands} - OCCASIONAL == {sql.primary_position.query}
    assert commands.count(sql.primary_position.query) < len(ids)


@pytest.mark.usefixtures("patient")
async def test_a_company_sees_its_own_rows_only_on_the_standby(
    api: Client, environment: dict[str, str], start: StartService
) -> None:
    invoice_id = await create_invoice(api)
    other = await start_reading(start, await make_company(environment))
    await expect(other, 404, "GET", f"/api/invoices/{invoice_id}")
    company_id = (await request_json(other, "GET", "/api/companies"))[1]["data"]["id"]

    async def count_all(conn: Connection) -> tuple[bool, int]:
        row = await conn.fetchrow("select pg_is_in_recovery(), count(*) from documents")
        assert row is not None
        return row[0], row[1]

    assert await get_reads(other).read_with(company_id, count_all) == (True, 0)
    assert get_reads(other).counts.keys() == {"standby"}


# Reads show all earlier writes


async def check_round(writer: AnyClient, reader: AnyClient) -> None:
    """Create, change and delete an invoice, and read it after each change."""
    before, after = f"R{next(_references)}", f"R{next(_references)}"
    number = await create_invoice(writer, reference=before)
    path = f"/api/invoices/{number}"
    status, record = await request_json(reader, "GET", path)
    assert status == 200 and record["reference"] == before
    await expect_listed(reader, before, [number])
    await expect(writer, 200, "PUT", path, json=invoice(reference=after))
    await expect_listed(reader, after, [number])
    status, record = await request_json(reader, "GET", path)
    assert status == 200 and record["reference"] == after
    await expect(writer, 200, "DELETE", path)
    await expect(reader, 404, "GET", path)
    await expect_listed(reader, after, [])


async def expect_listed(api: AnyClient, reference: str, numbers: list[int]) -> None:
    """Check which invoices a search finds."""
    status, found = await request_json(api, "GET", f"/api/invoices?reference={reference}")
    assert status == 200 and [record["id"] for record in found["data"]] == numbers


class Load:
    """Clients that repeat `check_round` between two processes, in both directions."""

    def __init__(self, one: AnyClient, other: AnyClient) -> None:
        self.rounds = 0
        self._clients = itertools.cycle([(one, other), (other, one)])
        self._is_over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        """Run the clients during the block, which is cancelled if a check fails."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._repeat(*next(self._clients)))
            try:
                yield self
            finally:
                self._is_over = True

    async def _repeat(self, writer: AnyClient, reader: AnyClient) -> None:
        while not self._is_over:
            await check_round(writer, reader)
            self.rounds += 1

    async def more(self, rounds: int) -> None:
        end = self.rounds + rounds
        await wait_until(lambda: self.rounds >= end)


async def test_a_read_shows_the_writes_of_another_process(
    processes: list[aiohttp.ClientSession], standby: StandbyServer
) -> None:
    """Each commit is visible on the standby later than on the primary."""
    await standby.configure("recovery_min_apply_delay", BEHIND)
    async with Load(*processes).running():
        for client in processes:
            await until(partial(count_reads, client), lambda counts: counts["standby"] > 5 * ROUNDS)


@pytest.mark.usefixtures("patient")
async def test_a_read_that_joins_a_running_wait_shows_earlier_writes(
    pair: Pair, start: StartService, company: Company
) -> None:
    """A wait that began before the write can end after it, with a position before the write."""
    network = Network(pair.standby.url, delay=0.03)  # which prolongs the waits
    await network.heal()
    api = await start_reading(start, company, DATABASE_READ_URL=network.url)
    await pair.standby.configure("recovery_min_apply_delay", FURTHER_BEHIND)
    for _ in range(2):
        others = [
            asyncio.create_task(request_json(api, "GET", "/api/webhooks")) for _ in range(CLIENTS)
        ]
        number = await create_invoice(api)
        await expect(api, 200, "GET", f"/api/invoices/{number}")
        await asyncio.gather(*others)
    assert get_reads(api).counts.keys() == {"standby"}
    await api.close()
    await network.refuse()


async def test_a_read_behind_a_paused_replay_runs_on_the_primary(
    api: Client, standby: StandbyServer
) -> None:
    await standby.pause_replay()
    number = await create_invoice(api)
    await expect(api, 200, "GET", f"/api/invoices/{number}")
    assert get_reads(api).counts == {"primary": 1}
    assert get_reads(api).cause == LAGGING
    await standby.resume_replay()

    async def reads_from_standby() -> bool:
        await expect(api, 200, "GET", f"/api/invoices/{number}")
        return "standby" in get_reads(api).counts

    await until(reads_from_standby)


@pytest.mark.usefixtures("patient")
async def test_a_read_without_synchronous_commits_shows_earlier_writes(
    pair: Pair, start: StartService, company: Company
) -> None:
    """A commit is then acknowledged before its log is on disk and can be sent to the standby."""
    await pair.primary.execute("alter database postgres set synchronous_commit = off")
    api = await start_reading(start, company)
    for _ in range(2):
        await check_round(api, api)


# Failures of the standby


@asynccontextmanager
async def stopped(standby: StandbyServer) -> AsyncIterator[None]:
    await standby.stop("immediate")
    yield
    await standby.start()


@asynccontextmanager
async def restarted(standby: StandbyServer) -> AsyncIterator[None]:
    await standby.restart("fast")
    yield


@asynccontextmanager
async def paused_replay(standby: StandbyServer) -> AsyncIterator[None]:
    await standby.pause_replay()
    yield
    await standby.resume_replay()


@asynccontextmanager
async def far_behind(standby: StandbyServer) -> AsyncIterator[None]:
    await standby.configure("recovery_min_apply_delay", FAR_BEHIND)
    yield
    await standby.configure("recovery_min_apply_delay", "0")


Fault = Callable[[StandbyServer], AbstractAsyncContextManager[None]]
FAULTS: dict[str, Fault] = {
    "stopped": stopped,
    "frozen": StandbyServer.frozen,
    "paused_replay": paused_replay,
    "restarted": restarted,
    "far_behind": far_behind,
}


@pytest.mark.parametrize("name", some_long(list(FAULTS), 3))
async def test_requests_under_load_do_not_notice_a_failure_of_the_standby(
    processes: list[aiohttp.ClientSession], standby: StandbyServer, name: str
) -> None:
    """No request fails, each read shows the writes before it, and the standby is used again."""
    async with Load(*processes).running() as load:
        await load.more(ROUNDS)
        before = (await count_reads(processes[1]))["primary"]
        async with FAULTS[name](standby):
            await until(
                partial(count_reads, processes[1]), lambda counts: counts["primary"] > before
            )
            await load.more(ROUNDS)
        for client in processes:
            await wait_until_used(client)
        used = (await count_reads(processes[1]))["standby"]
        await until(
            partial(count_reads, processes[1]),
            lambda counts: counts["standby"] > used + ROUNDS,
        )


@pytest.mark.usefixtures("patient")
async def test_a_running_read_survives_a_standby_that_freezes(
    pair: Pair, start: StartService, company: Company
) -> None:
    """A probe ends the statement that is under way, which has no time limit of its own."""
    api = await start_reading(start, company, DATABASE_ANSWER_SECONDS="1")
    is_running = asyncio.Event()
    ended_by_probe: list[bool] = []

    async def read(conn: Connection) -> bool:
        is_running.set()
        try:
            await conn.execute("select pg_sleep(case when pg_is_in_recovery() then 4 else 0 end)")
        except Exception as error:
            ended_by_probe.append(not isinstance(error, TimeoutError))
            raise
        return bool(await conn.fetchval("select pg_is_in_recovery()"))

    running = asyncio.create_task(get_reads(api).read_with(company.id, read))
    await is_running.wait()
    async with pair.standby.frozen():
        assert await running is False
    assert get_reads(api).counts["primary"] == 1 and ended_by_probe == [True]


@pytest.mark.usefixtures("patient")
async def test_a_read_that_conflicts_with_recovery_is_repeated_on_the_primary(
    pair: Pair, api: Client, company: Company
) -> None:
    await pair.standby.configure("max_standby_streaming_delay", "0")
    number = await create_invoice(api)
    is_running = asyncio.Event()

    async def read(conn: Connection) -> bool:
        is_running.set()
        # A snapshot that still sees the rows which are removed meanwhile.
        is_standby = await conn.fetchval(
            "select pg_is_in_recovery() from (select count(*) from documents) counted, "
            "pg_sleep(case when pg_is_in_recovery() then 4 else 0 end)"
        )
        return bool(is_standby)

    running = asyncio.create_task(get_reads(api).read_with(company.id, read))
    await is_running.wait()
    for _ in range(2):
        await request_json(api, "PUT", f"/api/invoices/{number}", json=invoice(code=number))
    await pair.primary.execute("vacuum documents")
    assert await running is False
    assert get_reads(api).counts["primary"] == 1
    await wait_until(lambda: get_reads(api).cause is None)


@pytest.mark.usefixtures("patient")
async def test_a_service_starts_without_its_standby_and_uses_it_later(
    pair: Pair, start: StartService
) -> None:
    await pair.standby.stop()
    api = await start(background=False, WATCHDOG_SECONDS="0.1")
    number = await create_invoice(api)
    await expect(api, 200, "GET", f"/api/invoices/{number}")

    async def get_conditions() -> set[str]:
        body = await expect(api, 200, "GET", "/readyz")
        return {condition["kind"] for condition in body["conditions"]}

    await until(get_conditions, lambda found: "StandbyUnused" in found)
    await pair.standby.start()
    await until(get_conditions, lambda found: "StandbyUnused" not in found)
    await expect(api, 200, "GET", f"/api/invoices/{number}")
    assert get_reads(api).counts["standby"] == 1


# Servers that are no standby of the database


@pytest.fixture
def follow(scratch: Path) -> Follow:
    """Return a context manager that runs a new standby of the server with an address."""

    @asynccontextmanager
    async def run(url: str) -> AsyncIterator[StandbyServer]:
        with TemporaryDirectory(dir=scratch) as home:
            async with StandbyServer(Path(home, "standby"), url) as standby:
                yield standby

    return run


@pytest.mark.usefixtures("patient")
async def test_a_promoted_standby_is_not_read(
    pair: Pair, start: StartService, company: Company, follow: Follow
) -> None:
    async with follow(pair.primary.url) as promoted:
        api = await start_reading(start, company, DATABASE_READ_URL=promoted.url)
        number = await create_invoice(api)
        await expect(api, 200, "GET", f"/api/invoices/{number}")
        assert get_reads(api).counts["standby"] == 1
        await promoted.promote()
        await promoted.execute(f"update documents set reference = 'x' where id = {number}")
        assert (await request_json(api, "GET", f"/api/invoices/{number}"))[1]["reference"] is None
        await wait_until(lambda: get_reads(api).cause == FOREIGN)
        assert get_reads(api).counts["standby"] == 1
        await api.close()


async def test_a_standby_of_a_promoted_server_is_not_read(
    pair: Pair, start: StartService, follow: Follow
) -> None:
    """It replays the log of another history, whose positions are ahead of the primary's."""
    async with (
        follow(pair.primary.url) as promoted,
        follow(promoted.url) as follower,
    ):
        await promoted.promote()
        await promoted.execute("select pg_switch_wal()")
        await promoted.execute("create table elsewhere as select generate_series(1, 10000)")
        await until(lambda: follower.execute("select to_regclass('elsewhere') is not null"))
        api = await start(background=False, DATABASE_READ_URL=follower.url)
        await wait_until(lambda: get_reads(api).cause == FOREIGN)
        await expect(api, 200, "GET", "/api/invoices")
        assert get_reads(api).counts == {"primary": 1}
        await api.close()


async def test_the_primary_itself_is_no_standby(pair: Pair, start: StartService) -> None:
    api = await start(background=False, DATABASE_READ_URL=pair.primary.url)
    await wait_until(lambda: get_reads(api).cause == FOREIGN)
    await expect(api, 200, "GET", "/api/invoices")


async def test_another_database_of_the_standby_is_not_read(pair: Pair, start: StartService) -> None:
    async with create_database(pair.primary.url, "postgres") as url:
        await note_identity(url)
        name = url.rpartition("/")[2].partition("?")[0]
        other = replace_database(pair.standby.url, name)
        await until(lambda: is_there(other))
        api = await start(background=False, DATABASE_READ_URL=other)
        await wait_until(lambda: get_reads(api).cause == FOREIGN)
        await api.close()


async def test_a_standby_is_read_after_a_failover_once_the_timeline_is_noted(
    pair: Pair, start: StartService, company: Company, follow: Follow
) -> None:
    """Until then, the rows of the standby do not show which history it has replayed."""
    async with follow(pair.primary.url) as new, follow(new.url) as follower:
        settings = {"DATABASE_URL": new.url, "DATABASE_READ_URL": follower.url}
        await new.promote()
        config = read_config({**variables(new.url, PORTAL), **settings})
        async with connected_pool(new.url, 2) as pool, connected_pool(new.url, 1) as positions:
            reads = StandbyReads(config, Database(pool), Database(positions))
            async with reads.running():
                await wait_until(lambda: reads.cause == NO_POSITION)
                await note_identity(new.url)
                await wait_until(lambda: reads.cause is None)
        api = await start_reading(start, company, **settings)
        await check_round(api, api)
        await api.close()


async def note_identity(url: str) -> None:
    """Note the identity of a database, as each start does."""
    async with connected_pool(url, 1) as pool:
        await record_database_identity(Database(pool))


async def is_there(url: str) -> bool:
    """Return whether a standby has the noted identity of a database."""
    try:
        conn = await asyncpg.connect(url)
    except asyncpg.InvalidCatalogNameError:
        return False
    try:
        return bool(await conn.fetchval("select identity is not null from database_state"))
    except asyncpg.UndefinedTableError:
        return False
    finally:
        await conn.close()

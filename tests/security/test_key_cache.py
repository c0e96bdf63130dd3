"""Keys in memory: how long a process uses a key without reading it again."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.companies import add_key, revoke_key
from service.config import Config, read_config
from service.db import session
from service.db.session import DedicatedSession
from service.db.transactions import Database, connected_database
from service.errors import Unauthorized
from service.http import app_keys
from service.http.api_keys import CACHE_SECONDS, COMPANY, KeyRing
from tests.api_reads import wait_for_lock
from tests.conftest import Company, CreateCopy, StartService, Templates, until
from tests.harness.bodies import now
from tests.harness.databases import end_sessions, open_connection
from tests.harness.processes import Service
from tests.security.test_auth import WRONG, with_key


async def wait_until_old(began: float) -> None:
    """Wait until what was known at a monotonic time is too old to be used."""
    await until(lambda: asyncio.sleep(0, time.monotonic() > began + CACHE_SECONDS))


@pytest.fixture
async def processes(
    environment: dict[str, str], tmp_path: Path
) -> AsyncIterator[dict[Service, aiohttp.ClientSession]]:
    """Yield two processes of the service with their clients."""
    running = [Service(environment, tmp_path / f"service-{number}.log") for number in (1, 2)]
    await asyncio.gather(*[process.start() for process in running])
    async with AsyncExitStack() as stack:
        yield {
            process: await stack.enter_async_context(aiohttp.ClientSession(process.base))
            for process in running
        }
    for process in running:
        await process.stop()


async def expect_refusal(processes: dict[Service, aiohttp.ClientSession], key: str) -> None:
    """Expect that all processes reject a key that was just revoked.

    No request that begins more than a second later may be served. The start of a request counts,
    since a busy machine may take long to serve it.
    """
    revoked = time.monotonic()
    for api in processes.values():
        began = time.monotonic()
        while (answer := await with_key(api, key))[0] == 200:
            assert began < revoked + 1
            began = time.monotonic()
        assert answer == WRONG


async def test_a_revoked_key_is_rejected_within_a_second_in_every_process(
    processes: dict[Service, aiohttp.ClientSession], config: Config, company: Company
) -> None:
    for api in processes.values():
        assert (await with_key(api, company.key))[0] == 200
    assert (await run_command(config, revoke_key, company.key_id))["revoked"] is True
    await expect_refusal(processes, company.key)


async def test_a_revoked_key_is_rejected_without_sessions_for_notifications(
    processes: dict[Service, aiohttp.ClientSession],
    owner: asyncpg.Connection,
    company: Company,
    cluster: str,
) -> None:
    """The listening sessions are terminated and cannot reconnect."""
    for api in processes.values():
        assert (await with_key(api, company.key))[0] == 200
    name = await owner.fetchval("select current_database()")
    elsewhere = await asyncpg.connect(cluster)
    await elsewhere.execute(f"alter database {name} allow_connections false")
    await elsewhere.close()
    await end_sessions(owner, len(processes))
    for api in processes.values():
        assert (await with_key(api, company.key))[0] == 200
    await owner.execute("update api_keys set revoked_at = clock_timestamp()")
    await expect_refusal(processes, company.key)


async def test_a_key_that_was_revoked_during_a_pause_is_rejected_at_once(
    processes: dict[Service, aiohttp.ClientSession], owner: asyncpg.Connection, company: Company
) -> None:
    for process, api in processes.items():
        assert (await with_key(api, company.key))[0] == 200
        process.send_signal(signal.SIGSTOP)
        await until(lambda process=process: asyncio.sleep(0, process.is_paused))
    waiting = [asyncio.create_task(with_key(api, company.key)) for api in processes.values()]
    await owner.execute("update api_keys set revoked_at = clock_timestamp()")
    await wait_until_old(time.monotonic())
    for process in processes:
        process.send_signal(signal.SIGCONT)
    assert await asyncio.gather(*waiting) == [WRONG, WRONG]


async def test_a_key_is_read_once_for_as_long_as_its_session_answers(
    start: StartService, owner: asyncpg.Connection, company: Company
) -> None:
    """A busy process reads it again while a heartbeat is late."""
    api = await start(background=False)
    dedicated = api.app[app_keys.SESSION]
    assert (await with_key(api, company.key))[0] == 200
    await owner.execute("alter function api_key_get rename to api_key_get_nothing")
    await wait_until_old(time.monotonic())
    await until(lambda: with_key(api, company.key), lambda answer: answer[0] == 200)
    await end_sessions(owner, 1)
    ended = time.monotonic()
    await until(lambda: asyncio.sleep(0, dedicated.heartbeat and dedicated.heartbeat.began > ended))
    assert (await with_key(api, company.key))[0] == 500


@pytest.fixture
def other_database(create_copy: CreateCopy, templates: Templates) -> Iterator[str]:
    """Yield the URL of another database of the service."""
    with create_copy(templates.with_company) as url:
        yield url


async def test_the_session_of_another_database_proves_nothing_about_a_key(
    other_database: str, config: Config, owner: asyncpg.Connection, company: Company
) -> None:
    """After a failover, for example, while a former primary still answers."""
    other = replace(config, database_url=other_database)
    await expect_no_use(DedicatedSession(other, {}), config, owner, company.key)


async def test_a_late_session_proves_nothing_about_a_key(
    config: Config, owner: asyncpg.Connection, company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "HEARTBEAT_SECONDS", 3600)
    late = DedicatedSession(config, {})
    await expect_no_use(late, config, owner, company.key)


async def expect_no_use(
    proving: DedicatedSession, config: Config, owner: asyncpg.Connection, key: str
) -> None:
    """Expect that a key is read again after half a second. The session hears no notification."""
    async with open_ring(proving, config) as (ring, _):
        await ring.find(key, COMPANY)
        await owner.execute("update api_keys set revoked_at = clock_timestamp()")
        await wait_until_old(time.monotonic())
        with pytest.raises(Unauthorized):
            await ring.find(key, COMPANY)


@asynccontextmanager
async def open_ring(
    proving: DedicatedSession, config: Config
) -> AsyncIterator[tuple[KeyRing, Database]]:
    """Yield a key ring whose session has a heartbeat, and its database."""
    async with proving.running(), connected_database(config, 1) as database:
        await until(lambda: asyncio.sleep(0, proving.heartbeat))
        yield KeyRing(database, proving), database


async def test_a_former_primary_proves_nothing_after_a_key_was_read_from_the_new_one(
    other_database: str, config: Config, environment: dict[str, str], company: Company
) -> None:
    """The session remains at the former primary, and the pool does not."""
    moved = read_config({**environment, "DATABASE_URL": other_database})
    another = await run_command(moved, add_key, company.id)
    await run_command(moved, revoke_key, company.key_id)
    async with (
        open_ring(DedicatedSession(config, {}), config) as (ring, database),
        connected_database(moved, 1) as primary,
    ):
        await ring.find(company.key, COMPANY)
        database.pool = primary.pool
        await ring.find(another["key"], COMPANY)
        await wait_until_old(time.monotonic())
        with pytest.raises(Unauthorized):
            await ring.find(company.key, COMPANY)


async def test_a_kept_key_expires_by_the_clock_of_the_database(
    config: Config, company: Company
) -> None:
    soon = await run_command(config, add_key, company.id, expires=now(hours=-1))
    proving = DedicatedSession(config, {})
    async with open_ring(proving, config) as (ring, _):
        await ring.find(soon["key"], COMPANY)
        heartbeat = proving.heartbeat
        assert heartbeat
        later = heartbeat.at + timedelta(hours=2)
        proving.heartbeat = heartbeat._replace(at=later, began=time.monotonic())
        with pytest.raises(Unauthorized):
            await ring.find(soon["key"], COMPANY)


async def test_a_heartbeat_begins_before_its_statements(
    config: Config, owner: asyncpg.Connection
) -> None:
    proving = DedicatedSession(config, {})
    async with AsyncExitStack() as stack:
        async with open_connection(config.database_url) as other, other.transaction():
            await other.execute("lock table schema_migrations")
            await stack.enter_async_context(proving.running())
            await wait_for_lock(owner)
            late = time.monotonic()
        await until(lambda: asyncio.sleep(0, proving.heartbeat))
        assert proving.heartbeat and proving.heartbeat.began < late


async def test_a_session_that_does_not_listen_has_no_heartbeat(config: Config) -> None:
    """Such as one of a pooler of transactions."""
    listeners: dict[str, Callable[[str], None]] = {}
    proving = DedicatedSession(config, listeners)
    async with proving.running():
        await until(lambda: asyncio.sleep(0, proving.heartbeat))
        listeners["api_key_changed"] = print
        await until(lambda: asyncio.sleep(0, proving.heartbeat is None))

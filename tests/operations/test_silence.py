"""A vanished host loses its locks in PostgreSQL soon; a paused process keeps them."""

import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from service.app import create_app
from service.config import SILENCE_SECONDS, read_config
from service.db.connections import SOCKET_OPTIONS, connect, get_socket, keepalive
from service.db.migrations import migrate
from service.db.pool import connected_pool
from service.db.transactions import Database
from service.embedded_postgres.lifecycle import SETTINGS as SERVER_SETTINGS
from service.embedded_postgres.lifecycle import postgres
from service.http import app_keys
from tests.api_invoices import create_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_status, wait_until_status
from tests.api_requests import Answer, submit
from tests.conftest import ClientFactory, Company, Sandbox, until
from tests.fixtures_service import StartProcess
from tests.harness.databases import add_migration
from tests.harness.processes import Service
from tests.project.test_architecture import MODULES

SILENCE = 3  # seconds, the minimum that can be configured
QUIET = {"DATABASE_SILENCE_SECONDS": str(SILENCE)}
SETTINGS = tuple(SOCKET_OPTIONS)
OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
    *((socket.IPPROTO_TCP, getattr(socket, SOCKET_OPTIONS[name])) for name in SETTINGS),
)
#: The session that holds the lock of a submission, and the duration of its silence.
HOLDER = """
    select a.pid, extract(epoch from clock_timestamp() - a.state_change) as silent_seconds
      from pg_locks l
      join pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'advisory' and l.granted and a.datname = current_database()
"""


@pytest.fixture
async def service(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[Service]:
    process = Service({**environment, **QUIET}, tmp_path / "service.log")
    yield process
    await process.kill()


@pytest.fixture
async def second(services: StartProcess, company: Company) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of another process."""
    async with (await services(**QUIET)).client(company.key) as session:
        yield session


# Vanished and paused processes

#: Where the process is held up -> the invoice that it submits, and the request.
HeldUp = Callable[..., Awaitable[tuple[int, asyncio.Task[Answer]]]]


@pytest.fixture
def held_up(service: Service, client: aiohttp.ClientSession) -> HeldUp:
    """Return a function that starts a process and a submit, which is held up at a failpoint."""

    async def start(**failpoint: str) -> tuple[int, asyncio.Task[Answer]]:
        await service.start(**failpoint)
        invoice_id = await create_invoice(client)
        answer = asyncio.create_task(submit(client, invoice_id))
        await service.paused()
        return invoice_id, answer

    return start


@pytest.mark.long
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can drop what arrives on a connection"
)
async def test_the_lock_of_a_vanished_host_is_released(
    held_up: HeldUp, second: aiohttp.ClientSession, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id, answer = await held_up(vanishes_at="after_intent_commit")
    assert (await get_invoice(second, invoice_id))["status"] == "Submitting"
    assert await owner.fetchrow(HOLDER)
    await until(lambda: owner.fetchrow(HOLDER), lambda holder: holder is None, seconds=60)
    await wait_until_status(second, invoice_id, "Draft")
    answer.cancel()
    assert (await submit(second, invoice_id))[0] == 200
    await wait_for_status(second, invoice_id, "Valid")
    (entry,) = await sandbox.ledger()
    assert (await get_documents(second, invoice_id))[0]["uuid"] == entry["uuid"]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
async def test_the_lock_of_a_paused_process_is_kept(
    service: Service,
    held_up: HeldUp,
    second: aiohttp.ClientSession,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
) -> None:
    invoice_id, answer = await held_up(stops_at="after_intent_commit")
    (before,) = await owner.fetch(HOLDER)
    held = await until(
        lambda: owner.fetchrow(HOLDER),
        lambda holder: not holder or holder["silent_seconds"] > 4 * SILENCE,
        seconds=60,
    )
    assert held and held["pid"] == before["pid"]
    assert (await get_invoice(second, invoice_id))["status"] == "Submitting"
    service.send_signal(signal.SIGCONT)
    await answer
    await wait_until_status(second, invoice_id, "Draft", "Valid")
    found = await get_invoice(second, invoice_id)
    assert len(await sandbox.ledger()) == found["is_submitted_to_portal"]


# Connections


async def limits_of(connection: Any) -> tuple[list[str | None], list[int]]:
    """Return the settings of the session in PostgreSQL, and the options of its socket."""
    settings = [
        await connection.fetchval("select setting from pg_settings where name = $1", name)
        for name in SETTINGS
    ]
    ours = get_socket(connection)
    options = OPTIONS if ours.family != socket.AF_UNIX else ()
    return settings, [ours.getsockopt(*option) for option in options]


def expected(silence: int) -> tuple[list[str | None], list[int]]:
    limits = keepalive(silence)
    return [str(limits[name]) for name in SETTINGS], [1, *(limits[name] for name in SETTINGS)]


async def test_default_limits_end_a_silent_session_within_a_minute() -> None:
    assert list(keepalive(SILENCE_SECONDS).values()) == [15, 5, 6, 45_000]


@pytest.mark.parametrize("silence", [3, 4, 10, 45, 60, 300])
def test_keepalive_limits_are_positive_and_within_the_silence(silence: int) -> None:
    idle, interval, count, user_timeout = keepalive(silence).values()
    assert min(idle, interval, count) >= 1
    assert idle + interval * count <= silence and user_timeout == silence * 1000


async def test_sessions_of_the_service_have_keepalive_on_both_ends(
    environment: dict[str, str], aiohttp_client: ClientFactory
) -> None:
    app = create_app(read_config({**environment, **QUIET}))
    await aiohttp_client(app)
    watchdog: Any = app[app_keys.WATCHDOG]
    session: Any = app[app_keys.SESSION]
    database: Any = app[app_keys.DATABASE]
    async with database.across() as pooled, watchdog._database.across() as watched:
        sessions = {"pool": pooled, "session": session._conn, "watchdog": watched}
        found = {name: await limits_of(session) for name, session in sessions.items()}
    assert found == dict.fromkeys(sessions, expected(SILENCE))


async def test_the_pool_of_a_command_has_keepalive_on_both_ends(database: str) -> None:
    async with connected_pool(database, 1) as pool, Database(pool).across() as pooled:
        assert await limits_of(pooled) == expected(SILENCE_SECONDS)


async def test_the_session_of_a_migration_has_keepalive(
    database: str, tmp_path: Path, owner: asyncpg.Connection
) -> None:
    names = ", ".join(f"current_setting('{name}') as {name}" for name in SETTINGS)
    folder = add_migration(tmp_path, "9999_note.sql", f"create table noted as select {names}")
    assert await migrate(database, folder, SILENCE) == ["9999_note.sql"]
    (noted,) = await owner.fetch("select * from noted")
    assert list(noted) == ["1", "1", "2", "3000"]


def test_every_module_connects_through_the_shared_functions() -> None:
    direct = ("asyncpg.connect(", "asyncpg.create_pool(")
    found = {
        module
        for module, path in MODULES.items()
        if any(call in path.read_text() for call in direct)
    }
    assert found == {"service.db.connections"}


async def test_the_transport_of_a_connection_is_its_socket(database: str) -> None:
    """The adapter uses a private name of asyncpg."""
    connection = await connect(database, {})
    try:
        port = await connection.fetchval("select inet_client_port()")
        assert get_socket(connection).getsockname()[1] == port
    finally:
        await connection.close()


# Unix sockets


async def test_a_connection_over_a_unix_socket_ignores_keepalive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as directory:  # the path of a Unix socket must be short
        Path(directory).chmod(0o777)
        monkeypatch.setitem(SERVER_SETTINGS, "unix_socket_directories", directory)
        async with postgres(tmp_path / "postgres") as url:
            parts = urlsplit(url)
            user = f"{parts.username}:{parts.password}"
            local = f"postgresql://{user}@{parts.path}?host={directory}&port={parts.port}"
            await migrate(local)
            async with connected_pool(local, 1) as pool, Database(pool).across() as pooled:
                assert get_socket(pooled).family == socket.AF_UNIX
                assert (await limits_of(pooled))[0] == ["0", "0", "0", "0"]

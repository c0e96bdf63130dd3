"""A host that vanishes loses its locks in PostgreSQL soon, and a process that is only paused keeps them."""

import asyncio
import signal
import socket
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest
from conftest import until
from kit import created, documents, reaches, record, submitted
from processes import Service
from test_architecture import MODULES

from service.app import create_app
from service.config import SILENCE_SECONDS, read_config
from service.db.connections import connect, keepalive, socket_of
from service.db.migrations import migrate
from service.db.transactions import connected_pool
from service.embedded_postgres.lifecycle import postgres
from service.embedded_postgres.server import SETTINGS as SERVER_SETTINGS
from service.http import app_keys

SILENCE = 3  # seconds: the least that can be configured
QUIET = {"DATABASE_SILENCE_SECONDS": str(SILENCE)}
SETTINGS = (
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_keepalives_count",
    "tcp_user_timeout",
)
#: Whose session holds the lock of a submission, and for how long that session has said nothing.
HOLDER = """
    select a.pid, extract(epoch from clock_timestamp() - a.state_change) as silent_seconds
      from pg_locks l
      join pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'advisory' and l.granted and a.datname = current_database()
"""


@pytest.fixture
async def service(environment, tmp_path):
    process = Service({**environment, **QUIET}, tmp_path / "service.log")
    yield process
    await process.kill()


@pytest.fixture
async def other(environment, tmp_path):
    process = Service({**environment, **QUIET}, tmp_path / "other.log")
    await process.start()
    yield process
    await process.stop()


@pytest.fixture
async def client(service, company):
    async with aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as session:
        yield session


@pytest.fixture
async def second(other, company):
    async with aiohttp.ClientSession(other.base, headers={"X-API-Key": company.key}) as session:
        yield session


# Schedules


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can drop what arrives on a connection"
)
async def test_lock_of_a_vanished_host_is_freed_and_others_resolve(
    service, client, other, second, owner, sandbox
):
    await service.start(vanishes_at="after_intent_commit")
    id = await created(client)
    answer = asyncio.create_task(submitted(client, id))
    await service.paused()
    assert (await record(second, id))["status"] == "Submitting" and await owner.fetchrow(HOLDER)
    await until(lambda: owner.fetchrow(HOLDER), lambda holder: holder is None, seconds=60)
    await until(lambda: record(second, id), lambda found: found["status"] == "Draft", seconds=60)
    answer.cancel()
    assert (await submitted(second, id))[0] == 200
    await reaches(second, id, "Valid")
    (entry,) = await sandbox.ledger()
    assert (await documents(second, id))[0]["uuid"] == entry["uuid"]


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
async def test_lock_of_a_paused_process_outlasts_the_silence_bound(
    service, client, other, second, owner, sandbox
):
    await service.start(stops_at="after_intent_commit")
    id = await created(client)
    answer = asyncio.create_task(submitted(client, id))
    await service.paused()
    before = await owner.fetchrow(HOLDER)
    held = await until(
        lambda: owner.fetchrow(HOLDER),
        lambda holder: not holder or holder["silent_seconds"] > 4 * SILENCE,
        seconds=60,
    )
    assert held and held["pid"] == before["pid"]
    assert (await record(second, id))["status"] == "Submitting"
    service.process.send_signal(signal.SIGCONT)
    await answer
    await until(
        lambda: record(second, id), lambda found: found["status"] in ("Draft", "Valid"), seconds=60
    )
    assert len(await sandbox.ledger()) == (await record(second, id))["is_submitted_to_portal"]


# Every connection


async def limits_of(connection: asyncpg.Connection) -> tuple[list[str], list[int]]:
    """Return what PostgreSQL has set for the session, and the options of our socket."""
    settings = [
        await connection.fetchval("select setting from pg_settings where name = $1", name)
        for name in SETTINGS
    ]
    ours = socket_of(connection)
    options = keepalive(SILENCE).socket_options if ours.family != socket.AF_UNIX else ()
    return settings, [ours.getsockopt(*option) for option in options]


def expected(silence: int) -> tuple[list[str], list[int]]:
    limits = keepalive(silence)
    return [limits.server_settings[name] for name in SETTINGS], list(limits.socket_options.values())


async def test_default_bounds_end_a_silent_session_within_a_minute():
    limits = keepalive(SILENCE_SECONDS)
    assert (limits.idle, limits.interval, limits.count, limits.user_timeout) == (15, 5, 6, 45_000)


@pytest.mark.parametrize("silence", [3, 4, 10, 45, 60, 300])
def test_bounds_of_any_silence_are_positive_and_within_it(silence):
    limits = keepalive(silence)
    assert min(limits.idle, limits.interval, limits.count) >= 1
    assert (
        limits.idle + limits.interval * limits.count <= silence
        and limits.user_timeout == silence * 1000
    )


async def test_sessions_of_the_service_are_bound_on_both_ends(environment, aiohttp_client):
    app = create_app(read_config({**environment, **QUIET}))
    await aiohttp_client(app)
    watchdog = app[app_keys.WATCHDOG]
    await until(lambda: asyncio.sleep(0, watchdog._conn))
    async with app[app_keys.DATABASE].pool.acquire() as pooled:
        sessions = {
            "pool": pooled._con,
            "keeper": app[app_keys.SESSION]._conn,
            "watchdog": watchdog._conn,
        }
        found = {name: await limits_of(session) for name, session in sessions.items()}
    assert found == dict.fromkeys(sessions, expected(SILENCE))


async def test_pool_of_a_command_is_bound_on_both_ends(database):
    async with connected_pool(database, 1) as pool, pool.acquire() as pooled:
        assert await limits_of(pooled._con) == expected(SILENCE_SECONDS)


async def test_session_of_a_migration_is_bound(database, tmp_path, owner):
    names = ", ".join(f"current_setting('{name}') as {name}" for name in SETTINGS)
    (tmp_path / "9999_note.sql").write_text(f"create table noted as select {names}")
    assert await migrate(database, tmp_path, SILENCE) == ["9999_note.sql"]
    noted = await owner.fetchrow("select * from noted")
    assert list(noted) == ["1", "1", "2", "3000"]


def test_no_module_connects_in_a_way_of_its_own():
    """Only the embedded server asks its own child on loopback directly, and holds nothing."""
    direct = ("asyncpg.connect(", "asyncpg.create_pool(")
    found = {
        module
        for module, path in MODULES.items()
        if any(call in path.read_text() for call in direct)
    }
    assert found == {"service.db.connections", "service.embedded_postgres.server"}


async def test_transport_of_a_connection_is_its_socket(database):
    """The adapter relies on a private name of asyncpg."""
    connection = await connect(database, {})
    try:
        port = await connection.fetchval("select inet_client_port()")
        assert socket_of(connection).getsockname()[1] == port
    finally:
        await connection.close()


# Unix sockets


async def test_connection_over_a_unix_socket_ignores_the_bounds(tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory() as directory:  # its path has to be short
        Path(directory).chmod(0o777)
        monkeypatch.setitem(SERVER_SETTINGS, "unix_socket_directories", directory)
        async with postgres(tmp_path / "postgres") as url:
            parts = urlsplit(url)
            local = f"postgresql://{parts.username}:{parts.password}@{parts.path}?host={directory}&port={parts.port}"
            await migrate(local)
            async with connected_pool(local, 1) as pool, pool.acquire() as pooled:
                assert socket_of(pooled._con).family == socket.AF_UNIX
                assert (await limits_of(pooled._con))[0] == ["0", "0", "0", "0"]

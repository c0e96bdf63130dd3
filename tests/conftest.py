"""A real PostgreSQL, a database per test; the sandbox and the service over HTTP on loopback."""

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from service.app import create_app
from service.commands.companies import insert_company, insert_key
from service.commands.serve import DEMO_COMPANY
from service.config import read_config
from service.db.migrations import migrate
from service.db.statements import sql
from service.db.transactions import Database, connected_pool
from service.embedded_postgres.lifecycle import postgres
from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings

#: Modules whose fixtures every test module can use.
pytest_plugins = ["fixtures_sandbox", "fixtures_specification", "fixtures_webhooks"]

#: TINs of companies that are made without one. The sandbox registers a taxpayer at its first login.
TINS = [DEMO_COMPANY["tin_code"], *(f"C2088005{number}0" for number in range(101, 131))]

#: The times of a submission, scaled down: what takes minutes takes a fraction of a second.
SCALED = {
    "PORTAL_CONNECT_TIMEOUT_SECONDS": "3",
    "PORTAL_TIMEOUT_SECONDS": "5",
    "PORTAL_LEASE_SECONDS": "8",
    "PORTAL_SETTLE_SECONDS": "0.4",
    "PORTAL_PROOF_GAP_SECONDS": "0.1",
    "PORTAL_POLL_SECONDS": "0.05",
    "PORTAL_POLL_MAX_SECONDS": "0.2",
    "PORTAL_RETRY_SECONDS": "0.05",
    "PORTAL_LOGIN_RETRY_SECONDS": "0.2",
    "PORTAL_BATCH_SECONDS": "0.05",
    "PORTAL_RATE_SCALE": "0",
    "SUBMIT_WAIT_SECONDS": "5",
    # A busy machine may answer late. Tests about pressure set what they need.
    "DATABASE_ACQUIRE_SECONDS": "30",
    "DATABASE_ANSWER_SECONDS": "20",
    "WRONG_KEYS_PER_MINUTE": "0",
    "TIN_CHECKS_PER_MINUTE": "0",
    "LOG_LEVEL": "WARNING",
}


#: Where the embedded cluster is kept if there is room: a test's database is some hundred files,
#: written and deleted again.
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 3 * 2**30  # bytes, for the clusters of all workers


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for the embedded cluster, in memory where that is possible."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_NEEDED:
        yield tmp_path_factory.mktemp("postgres")
        return
    for left in MEMORY.glob("einvoice-tests-*"):  # by runs that were killed
        if not Path(f"/proc/{left.name.rpartition('-')[2]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    home = MEMORY / f"einvoice-tests-{os.getpid()}"
    home.mkdir()
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(scratch: Path) -> Iterator[str]:
    """The address of a PostgreSQL on which databases can be made: DATABASE_URL's, or an embedded one."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    with asyncio.Runner() as runner:
        server = postgres(scratch)
        url = runner.run(server.__aenter__())
        # No test of this cluster cuts its power, and most of the time would go into waiting for the
        # disk.
        for setting in ("fsync = off", "full_page_writes = off", "max_wal_size = '256MB'"):
            runner.run(administer(url, f"alter system set {setting}"))
        runner.run(administer(url, "select pg_reload_conf()"))
        yield url
        runner.run(server.__aexit__(None, None, None))


@dataclass(frozen=True, slots=True)
class Templates:
    """The names of the databases that each test's own is copied from, and the company that the second one has."""

    empty: str
    with_company: str
    company: Any


@pytest.fixture(scope="session")
def templates(cluster: str) -> Iterator[Templates]:
    """A migrated database, and one with a complete company and a key of it."""
    empty = f"template_{secrets.token_hex(6)}"
    with_company = f"{empty}_company"
    with asyncio.Runner() as runner:
        runner.run(administer(cluster, f"create database {empty}"))
        runner.run(migrate(renamed(cluster, empty)))
        runner.run(
            administer(
                cluster, f"create database {with_company} template {empty} strategy file_copy"
            )
        )
        company = runner.run(
            make_company(variables(renamed(cluster, with_company), "http://127.0.0.1:1"))
        )
        yield Templates(empty, with_company, company)
        for name in (empty, with_company):
            runner.run(administer(cluster, f"drop database {name} with (force)"))


@pytest.fixture
async def database(
    cluster: str, templates: Templates, request: pytest.FixtureRequest
) -> AsyncIterator[str]:
    """The address of a migrated database of the test's own, with nothing in it but its `company`, if it asks for that."""
    name = f"test_{secrets.token_hex(6)}"
    template = templates.with_company if "company" in request.fixturenames else templates.empty
    await administer(cluster, f"create database {name} template {template} strategy file_copy")
    yield renamed(cluster, name)
    await administer(cluster, f"drop database {name} with (force)")


@pytest.fixture
async def owner(database):
    """A connection that sees everything, for what no request can show or produce."""
    conn = await asyncpg.connect(database)
    yield conn
    await conn.close()


@pytest.fixture
async def sandbox(tmp_path, aiohttp_client):
    """The portal's stand-in, quick and without quotas, and its administration."""
    settings = Settings(state=str(tmp_path / "sandbox.sqlite3"), processing_seconds=0, rate_scale=0)
    yield Sandbox(await aiohttp_client(create_sandbox(settings)))


class Sandbox:
    """What a test tells the sandbox and asks it."""

    def __init__(self, client):
        self.client = client
        self.base = str(client.make_url("")).rstrip("/")

    async def fault(self, operation, kind, **members):
        await self._post("faults", {"operation": operation, "kind": kind, **members})

    async def settings(self, **members):
        await self._post("settings", members)

    async def move_clock(self, seconds):
        await self._post("clock", {"seconds": seconds})

    async def reject(self, uuid, reason):
        """As the buyer would."""
        await self._post(f"documents/{uuid}/reject", {"reason": reason})

    async def cancel(self, uuid, reason):
        """As the issuer would, on the portal's own pages."""
        await self._post(f"documents/{uuid}/cancel", {"reason": reason})

    async def show_oddly(self, number, **members):
        """Show the documents of a number with other members; without any, as they are."""
        body = {"number": number, "members": members or None}
        async with self.client.put("/_sandbox/odd-rows", json=body) as response:
            assert response.status == 200, await response.text()

    async def ledger(self, **filters):
        """Every document that it ever accepted, in order."""
        async with self.client.get("/_sandbox/ledger", params=filters) as response:
            return (await response.json())["documents"]

    async def calls(self):
        async with self.client.get("/_sandbox/calls") as response:
            return await response.json()

    async def _post(self, path, body):
        async with self.client.post(f"/_sandbox/{path}", json=body) as response:
            assert response.status < 300, await response.text()


@pytest.fixture
def environment(database, sandbox):
    return variables(database, sandbox.base)


def variables(database, portal):
    """The variables of a service on a database and a sandbox of its own."""
    return {
        "DATABASE_URL": database,
        "PORTAL_API_BASE": portal,
        "PORTAL_IDENTITY_BASE": portal,
        "PORTAL_WEB_BASE": portal,
        "PORTAL_CLIENT_ID": "sandbox-client",
        "PORTAL_CLIENT_SECRET": "sandbox-secret",
        "PORTAL_INTERMEDIARY": "true",
        **SCALED,
    }


@pytest.fixture
def company(database: str, templates: Templates) -> Any:
    """A complete company and a key of it: id, key, key_id."""
    return templates.company


#: Columns of a company that no request and no command sets.
UNSETTABLE = {"bank_account", "exporter_certified_number"}


async def make_company(environment, **facts):
    """Make a company and a key of it. Without a `tin_code` it gets the first of TINS that no company has."""
    config = read_config(environment)
    async with connected_pool(config.database_url, 2) as pool:
        tin = facts["tin_code"] if "tin_code" in facts else await _free_tin(Database(pool))
        settable = {name: value for name, value in facts.items() if name not in UNSETTABLE}
        id = await insert_company(Database(pool), {**DEMO_COMPANY, **settable, "tin_code": tin})
        key = await insert_key(config, Database(pool), id, "test")
    return SimpleNamespace(id=id, key=key["key"], key_id=key["key_id"])


async def _free_tin(database):
    async with database.across() as conn:
        for tin in TINS:
            if not await sql.tin_companies(conn, tin=tin):
                return tin
    raise LookupError("All TINS are taken.")


@pytest.fixture
async def start(environment, aiohttp_client):
    """Makes a client of a service in this process: `await start(company)`; variables may be changed by keyword."""

    async def make(company, background=True, **variables):
        app = create_app(read_config({**environment, **variables}), background=background)
        return await aiohttp_client(app, headers={"X-API-Key": company.key})

    return make


@pytest.fixture
async def api(database, start, company):
    """A client of the service with the key of `company`."""
    return await start(company)


#: How long a test waits for what has to happen. A busy machine takes long; a test that passes does
#: not wait for it.
PATIENCE_SECONDS = float(os.environ.get("TEST_PATIENCE_SECONDS", "60"))


@asynccontextmanager
async def patience(seconds: float = PATIENCE_SECONDS) -> AsyncIterator[None]:
    """Bound a wait for something that has to happen."""
    async with asyncio.timeout(seconds):
        yield


async def until(
    ask: Callable[[], Awaitable[Any]],
    holds: Callable[[Any], object] = bool,
    seconds: float = PATIENCE_SECONDS,
) -> Any:
    """Return what `ask` gives as soon as it holds. Raise TimeoutError when that takes too long."""
    async with patience(seconds):
        while not holds(value := await ask()):
            await asyncio.sleep(0.01)
        return value


async def administer(url, statement):
    conn = await asyncpg.connect(url)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


def renamed(url, name):
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))

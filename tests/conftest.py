"""A real PostgreSQL, a database per test; the sandbox and the service over HTTP on loopback."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from service.app import create_app
from service.commands.companies import insert_company, insert_key
from service.commands.serve import DEMO_COMPANY
from service.config import read_config
from service.db import Database, connected_pool, migrate
from service.embedded import postgres
from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings
from service.statements import sql

#: TINs of companies that are made without one. The sandbox registers a taxpayer at its first login.
TINS = [DEMO_COMPANY["tin_code"], *(f"C2088005{number}0" for number in range(101, 131))]

#: The times of a submission, scaled down: what takes minutes takes a fraction of a second.
SCALED = {
    "PORTAL_CONNECT_TIMEOUT_SECONDS": "1",
    "PORTAL_TIMEOUT_SECONDS": "2",
    "PORTAL_LEASE_SECONDS": "3",
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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """The address of a PostgreSQL on which databases can be made: DATABASE_URL's, or an embedded one."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    with asyncio.Runner() as runner:
        server = postgres(tmp_path_factory.mktemp("postgres"))
        url = runner.run(server.__aenter__())
        # No test of this cluster cuts its power, and most of the time would go into waiting for the disk.
        runner.run(administer(url, "alter system set fsync = off"))
        runner.run(administer(url, "select pg_reload_conf()"))
        yield url
        runner.run(server.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def template(cluster):
    """The name of a migrated database, from which each test's own is copied."""
    name = f"template_{secrets.token_hex(6)}"
    with asyncio.Runner() as runner:
        runner.run(administer(cluster, f"create database {name}"))
        runner.run(migrate(renamed(cluster, name)))
        yield name
        runner.run(administer(cluster, f"drop database {name} with (force)"))


@pytest.fixture
async def database(cluster, template):
    """The address of a migrated database with nothing in it."""
    name = f"test_{secrets.token_hex(6)}"
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
async def company(environment):
    """A complete company and a key of it: id, key, key_id."""
    return await make_company(environment)


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


#: How long a test waits for what has to happen. A busy machine takes long; a test that passes does not wait for it.
PATIENCE_SECONDS = float(os.environ.get("TEST_PATIENCE_SECONDS", "60"))


@asynccontextmanager
async def patience(seconds: float = PATIENCE_SECONDS) -> AsyncIterator[None]:
    """Bound a wait for something that has to happen."""
    async with asyncio.timeout(seconds):
        yield


async def until(
    ask: Callable[[], Awaitable[Any]], holds: Callable[[Any], object] = bool, seconds: float = PATIENCE_SECONDS
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



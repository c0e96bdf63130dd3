"""Fixtures: PostgreSQL with a database per test, and the sandbox and the service over HTTP."""

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload
from urllib.parse import urlsplit

import asyncpg
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient

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
pytest_plugins = [
    "fixtures_sandbox",
    "fixtures_service",
    "fixtures_specification",
    "fixtures_webhooks",
]

#: TINs of companies created without one. The sandbox registers a taxpayer at its first login.
TINS = [DEMO_COMPANY["tin_code"], *(f"C2088005{number}0" for number in range(101, 131))]

#: The times of a submission, scaled down from minutes to fractions of a second.
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
    # A busy machine is slow. Tests about pressure set their own values.
    "DATABASE_ACQUIRE_SECONDS": "30",
    "DATABASE_ANSWER_SECONDS": "20",
    "WRONG_KEYS_PER_MINUTE": "0",
    "TIN_CHECKS_PER_MINUTE": "0",
    "LOG_LEVEL": "WARNING",
}

#: The directory of the embedded cluster if there is room: a test's database is some hundred files.
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 3 * 2**30  # Bytes for the clusters of all workers.

#: A client of an application in this process.
Client = TestClient[web.Request, web.Application]
#: A client of an application in this process, or of a service in a process of its own.
AnyClient = Client | ClientSession
_Value = TypeVar("_Value")


class ClientFactory(Protocol):
    """The type of the fixture aiohttp_client."""

    def __call__(self, app: web.Application, **options: Any) -> Awaitable[Client]:
        """Start an application and return a client of it."""
        ...


@dataclass(frozen=True, slots=True)
class Company:
    """A company and its API key."""

    id: int
    key: str
    key_id: str


class HasKey(Protocol):
    """An owner of an API key."""

    @property
    def key(self) -> str:
        """Return the text of the key."""
        ...


class StartService:
    """Starts services in this process: `await start(company, NAME="value")` sets variables."""

    def __init__(self, environment: Mapping[str, str], make_client: ClientFactory) -> None:
        self._environment = environment
        self._make_client = make_client

    # Two overloads, because a dictionary of variables would otherwise match `background`.
    @overload
    async def __call__(self, company: HasKey, **variables: str) -> Client:
        """Start a service and return a client of it with a company's key."""
        ...

    @overload
    async def __call__(self, company: HasKey, *, background: bool, **variables: str) -> Client:
        """Start a service with or without background work."""
        ...

    async def __call__(
        self, company: HasKey, *, background: Any = True, **variables: str
    ) -> Client:
        """Start a service and return a client of it with a company's key."""
        app = create_app(read_config({**self._environment, **variables}), background=background)
        return await self._make_client(app, headers={"X-API-Key": company.key})


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a directory for the embedded cluster, in memory if possible."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_NEEDED:
        yield tmp_path_factory.mktemp("postgres")
        return
    for left in MEMORY.glob("einvoice-tests-*"):  # Leftovers of killed runs.
        if not Path(f"/proc/{left.name.rpartition('-')[2]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    home = MEMORY / f"einvoice-tests-{os.getpid()}"
    home.mkdir()
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster(scratch: Path) -> Iterator[str]:
    """Yield the URL of a PostgreSQL for databases of tests: DATABASE_URL or an embedded one."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    with asyncio.Runner() as runner:
        server = postgres(scratch)
        url = runner.run(server.__aenter__())
        # No test cuts the power of this cluster, and waiting for the disk would take most of the
        # time.
        for setting in ("fsync = off", "full_page_writes = off", "max_wal_size = '256MB'"):
            runner.run(administer(url, f"alter system set {setting}"))
        runner.run(administer(url, "select pg_reload_conf()"))
        yield url
        runner.run(server.__aexit__(None, None, None))


@dataclass(frozen=True, slots=True)
class Templates:
    """The template databases of tests, and the company in the second one."""

    empty: str
    with_company: str
    company: Company


@pytest.fixture(scope="session")
def templates(cluster: str) -> Iterator[Templates]:
    """Yield a migrated database, and one with a complete company and its key."""
    empty = f"template_{secrets.token_hex(6)}"
    with_company = f"{empty}_company"
    with asyncio.Runner() as runner:
        runner.run(administer(cluster, f"create database {empty}"))
        runner.run(migrate(replace_database(cluster, empty)))
        runner.run(
            administer(
                cluster, f"create database {with_company} template {empty} strategy file_copy"
            )
        )
        company = runner.run(
            make_company(variables(replace_database(cluster, with_company), "http://127.0.0.1:1"))
        )
        yield Templates(empty, with_company, company)
        for name in (empty, with_company):
            runner.run(administer(cluster, f"drop database {name} with (force)"))


@pytest.fixture
async def database(
    cluster: str, templates: Templates, request: pytest.FixtureRequest
) -> AsyncIterator[str]:
    """Yield the URL of a migrated database, with a company if the test uses `company`."""
    name = f"test_{secrets.token_hex(6)}"
    template = templates.with_company if "company" in request.fixturenames else templates.empty
    await administer(cluster, f"create database {name} template {template} strategy file_copy")
    yield replace_database(cluster, name)
    await administer(cluster, f"drop database {name} with (force)")


@pytest.fixture
async def owner(database: str) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection that sees all rows, for states that requests cannot show or produce."""
    conn = await asyncpg.connect(database)
    yield conn
    await conn.close()


@pytest.fixture
async def sandbox(tmp_path: Path, aiohttp_client: ClientFactory) -> AsyncIterator["Sandbox"]:
    """Yield a fast sandbox of the portal without rate limits."""
    settings = Settings(state=str(tmp_path / "sandbox.sqlite3"), processing_seconds=0, rate_scale=0)
    yield Sandbox(await aiohttp_client(create_sandbox(settings)))


class Sandbox:
    """The administration of the sandbox."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.base = str(client.make_url("")).rstrip("/")

    async def fault(self, operation: str, kind: str, **members: Any) -> None:
        """Inject an error into requests of an operation."""
        await self._post("faults", {"operation": operation, "kind": kind, **members})

    async def settings(self, **members: Any) -> None:
        """Change settings."""
        await self._post("settings", members)

    async def move_clock(self, seconds: float) -> None:
        """Move the portal's clock."""
        await self._post("clock", {"seconds": seconds})

    async def reject(self, uuid: str, reason: str) -> None:
        """Reject a document as its buyer."""
        await self._post(f"documents/{uuid}/reject", {"reason": reason})

    async def cancel(self, uuid: str, reason: str) -> None:
        """Cancel a document as its issuer, on the portal's own pages."""
        await self._post(f"documents/{uuid}/cancel", {"reason": reason})

    async def show_oddly(self, number: str, **members: Any) -> None:
        """Show the documents of a number with other members; without members, unchanged."""
        body = {"number": number, "members": members or None}
        async with self.client.put("/_sandbox/odd-rows", json=body) as response:
            assert response.status == 200, await response.text()

    async def ledger(self, **filters: str) -> list[dict[str, Any]]:
        """Return every document that was ever accepted, in order."""
        async with self.client.get("/_sandbox/ledger", params=filters) as response:
            return (await response.json())["documents"]

    async def calls(self) -> dict[str, Any]:
        """Return the counts of requests."""
        async with self.client.get("/_sandbox/calls") as response:
            return await response.json()

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        async with self.client.post(f"/_sandbox/{path}", json=body) as response:
            assert response.status < 300, await response.text()


@pytest.fixture
def environment(database: str, sandbox: Sandbox) -> dict[str, str]:
    """Return the variables of a service on the test's database and sandbox."""
    return variables(database, sandbox.base)


def variables(database: str, portal: str) -> dict[str, str]:
    """Return the variables of a service on a database and a sandbox."""
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
def company(database: str, templates: Templates) -> Company:
    """Return a complete company and its key."""
    return templates.company


#: Columns of a company that neither requests nor commands set.
UNSETTABLE = {"bank_account", "exporter_certified_number"}


async def make_company(environment: Mapping[str, str], **facts: Any) -> Company:
    """Create a company and a key. Without `tin_code` it gets the first unused one of TINS."""
    config = read_config(environment)
    async with connected_pool(config.database_url, 2) as pool:
        tin = facts["tin_code"] if "tin_code" in facts else await _free_tin(Database(pool))
        settable = {name: value for name, value in facts.items() if name not in UNSETTABLE}
        facts = {**DEMO_COMPANY, **settable, "tin_code": tin}
        company_id = await insert_company(Database(pool), facts)
        key = await insert_key(config, Database(pool), company_id, "test")
    return Company(company_id, key["key"], key["key_id"])


async def _free_tin(database: Database) -> str:
    async with database.across() as conn:
        for tin in TINS:
            if not await sql.tin_companies(conn, tin=tin):
                return tin
    raise LookupError("All TINS are taken.")


@pytest.fixture
async def start(environment: dict[str, str], aiohttp_client: ClientFactory) -> StartService:
    """Return a function that starts a service in this process and returns a client of it."""
    return StartService(environment, aiohttp_client)


@pytest.fixture
async def api(database: str, start: StartService, company: Company) -> Client:
    """Return a client of the service with the key of `company`."""
    return await start(company)


#: The limit of waits. It is generous for busy machines; a test that passes does not wait for it.
PATIENCE_SECONDS = float(os.environ.get("TEST_PATIENCE_SECONDS", "60"))


@asynccontextmanager
async def patience(seconds: float = PATIENCE_SECONDS) -> AsyncIterator[None]:
    """Limit the duration of the block. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        yield


async def until(
    ask: Callable[[], Awaitable[_Value]],
    holds: Callable[[_Value], object] = bool,
    seconds: float = PATIENCE_SECONDS,
) -> _Value:
    """Return the value of `ask` as soon as `holds` accepts it. Raises TimeoutError."""
    async with patience(seconds):
        while not holds(value := await ask()):
            await asyncio.sleep(0.01)
        return value


async def administer(url: str, statement: str) -> None:
    """Run a statement on a connection of its own."""
    conn = await asyncpg.connect(url)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


def replace_database(url: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()

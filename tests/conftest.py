"""Fixtures: PostgreSQL with a database per test, and the sandbox and the service over HTTP."""

import asyncio
import gc
import os
import shutil
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

import asyncpg
import pytest
import uvloop
from aiohttp import ClientSession, web
from aiohttp.test_utils import BaseTestServer, TestClient

from service.app import create_app
from service.commands.serve import DEMO_COMPANY
from service.config import Config, read_config
from service.db.migrations import migrate
from service.db.pool import connected_pool
from service.db.statements import sql
from service.db.transactions import Database
from service.sandbox.app import create_sandbox
from service.sandbox.settings import Settings
from tests.core import mark_core
from tests.harness.companies import Company, add_company, make_tin
from tests.harness.databases import create_database, name_of, provide_server
from tests.harness.environments import variables
from tests.harness.sandbox import Administration, fetch_token
from tests.harness.waiting import patience as patience  # for the test modules
from tests.harness.waiting import until as until

#: Modules whose fixtures every test module can use.
pytest_plugins = [
    "tests.fixtures_dashboard",
    "tests.fixtures_sandbox",
    "tests.fixtures_service",
    "tests.fixtures_shared",
    "tests.fixtures_specification",
    "tests.fixtures_webhooks",
]

#: TINs of companies created without one. The sandbox registers a taxpayer at its first login.
TINS = [DEMO_COMPANY["tin_code"], *map(make_tin, range(101, 131))]

#: The directory of the embedded cluster if there is room: a test's database is some hundred files.
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 3 * 2**30  # Bytes for the clusters of all workers.

#: A client of an application in this process.
Client = TestClient[web.Request, web.Application]
#: A client of an application in this process, or of a service in a process of its own.
AnyClient = Client | ClientSession

Value = TypeVar("Value")


class ClientFactory(Protocol):
    """The type of the fixture aiohttp_client."""

    def __call__(self, app: web.Application | BaseTestServer, **options: Any) -> Awaitable[Client]:
        """Start an application, unless it runs, and return a client of it."""
        ...


class HasKey(Protocol):
    """An owner of an API key."""

    @property
    def key(self) -> str: ...


class StartService:
    """Starts services in this process: `await start(NAME="value")` sets variables."""

    def __init__(
        self, environment: Mapping[str, str], make_client: ClientFactory, company: HasKey
    ) -> None:
        self._environment = environment
        self._make_client = make_client
        self._company = company

    # Two overloads, because a dictionary of variables would otherwise match `background`.
    @overload
    async def __call__(self, company: HasKey | None = None, /, **variables: str) -> Client: ...

    @overload
    async def __call__(
        self, company: HasKey | None = None, /, *, background: bool, **variables: str
    ) -> Client: ...

    async def __call__(
        self, company: HasKey | None = None, /, *, background: Any = True, **variables: str
    ) -> Client:
        """Start a service and return a client of it with a company's key, or the test's own."""
        app = create_app(read_config({**self._environment, **variables}), background=background)
        key = (company or self._company).key
        return await self._make_client(app, headers={"X-API-Key": key})


def some_long(rows: Sequence[Any], number: int = 2) -> list[Any]:
    """Return test parameters of which all but the first ones are long."""
    long = [row if isinstance(row, tuple) else (row,) for row in rows[number:]]
    return [*rows[:number], *(pytest.param(*row, marks=pytest.mark.long) for row in long)]


@contextmanager
def run_context(
    run: Callable[[Coroutine[Any, Any, Any]], Any], context: AbstractAsyncContextManager[Value]
) -> Iterator[Value]:
    """Enter and exit an asynchronous context manager by a function that runs coroutines."""
    value = run(context.__aenter__())
    try:
        yield value
    finally:
        run(context.__aexit__(None, None, None))


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
    server = provide_server(scratch, durable=False)
    with asyncio.Runner() as runner, run_context(runner.run, server) as url:
        yield url


@dataclass(frozen=True, slots=True)
class Templates:
    """The template databases of tests, and the company in the second one."""

    empty: str
    with_company: str
    company: Company


@pytest.fixture(scope="session")
def templates(cluster: str) -> Iterator[Templates]:
    """Yield a migrated database, and one with a complete company and its key."""
    with asyncio.Runner() as runner, run_context(runner.run, make_templates(cluster)) as made:
        yield made


@asynccontextmanager
async def make_templates(cluster: str) -> AsyncIterator[Templates]:
    """Create the template databases, and drop them at the end."""
    async with create_database(cluster) as url:
        await migrate(url)
        empty = name_of(url)
        async with create_database(cluster, empty) as url:
            company = await make_company(variables(url, "http://127.0.0.1:1"))
            yield Templates(empty, name_of(url), company)


#: Fixtures that use the company of the template.
NEED_COMPANY = {"api", "company", "context", "own_company"}


@pytest.fixture
def database(
    create_copy: "CreateCopy", templates: Templates, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Yield the URL of a migrated database, with a company if the test uses `company`."""
    has_company = NEED_COMPANY & set(request.fixturenames)
    with create_copy(templates.with_company if has_company else templates.empty) as url:
        yield url


#: Creates a copy of a template for the time of a context, and returns its URL.
CreateCopy = Callable[[str], AbstractContextManager[str]]


@pytest.fixture(scope="session")
def create_copy(cluster: str) -> Iterator[CreateCopy]:
    """Yield a function that creates databases over one connection, which saves two per test."""
    with asyncio.Runner() as runner:
        conn = runner.run(asyncpg.connect(cluster))

        def create(template: str) -> AbstractContextManager[str]:
            return run_context(runner.run, create_database(cluster, template, conn=conn))

        yield create
        runner.run(conn.close())


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


class Sandbox(Administration):
    """A sandbox and a client of it."""

    def __init__(self, client: Client) -> None:
        super().__init__(str(client.make_url("")).rstrip("/"))
        self.client = client

    async def request(self, tin: str, method: str, path: str, **request: Any) -> Any:
        """Send a request to the portal as other software of a taxpayer, and return the JSON."""
        headers = {"Authorization": f"Bearer {await fetch_token(self.base, tin)}"}
        path = f"/api/v1.0/{path}"
        async with self.client.request(method, path, headers=headers, **request) as response:
            assert response.ok, await response.text()
            return await response.json()


@pytest.fixture
def environment(database: str, sandbox: Sandbox) -> dict[str, str]:
    """Return the variables of a service on the test's database and sandbox."""
    return variables(database, sandbox.base)


def shares_service(request: pytest.FixtureRequest) -> bool:
    """Return whether a test shares its service with others.

    It does unless it has the marker `own_service`, or uses a fixture that depends on `database` or
    `sandbox`.
    """
    node: pytest.Function = request.node
    needs_own = {"database", "sandbox"} & set(node.fixturenames)
    return not needs_own and not node.get_closest_marker("own_service")


def choose_fixture(request: pytest.FixtureRequest, name: str) -> Any:
    """Return the value of the fixture `shared_<name>` or `own_<name>`."""
    return request.getfixturevalue(f"{'shared' if shares_service(request) else 'own'}_{name}")


@pytest.fixture
def company(request: pytest.FixtureRequest) -> Company:
    """Return a complete company and its key."""
    return choose_fixture(request, "company")


@pytest.fixture
def own_company(database: str, templates: Templates) -> Company:
    """Return the only company of the test's database."""
    return templates.company


#: Columns of a company that neither requests nor commands set.
UNSETTABLE = {"bank_account", "exporter_certified_number"}


async def make_company(environment: Mapping[str, str], **facts: Any) -> Company:
    """Create a company and a key. Without `tin_code` it gets the first unused one of TINS."""
    config = read_config(environment)
    async with connected_pool(config.database_url, 1) as pool:
        database = Database(pool)
        tin = facts["tin_code"] if "tin_code" in facts else await _free_tin(database)
        settable = {name: value for name, value in facts.items() if name not in UNSETTABLE}
        return await add_company(config, database, **{**settable, "tin_code": tin})


async def _free_tin(database: Database) -> str:
    async with database.across() as conn:
        for tin in TINS:
            if not await sql.companies_of_tin(conn, wanted=tin):
                return tin
    raise LookupError("All TINS are taken.")


@pytest.fixture
def config(environment: dict[str, str]) -> Config:
    """Return the configuration of a service on the test's database and sandbox."""
    return read_config(environment)


@pytest.fixture
async def start(
    environment: dict[str, str], company: Company, aiohttp_client: ClientFactory
) -> StartService:
    """Return a function that starts a service in this process and returns a client of it."""
    return StartService(environment, aiohttp_client, company)


@pytest.fixture
def api(request: pytest.FixtureRequest) -> Client:
    """Return a client of a service with the key of `company`."""
    return choose_fixture(request, "api")


@pytest.fixture
async def own_api(start: StartService) -> Client:
    """Return a client of a service in this process, with the key of `own_company`."""
    return await start()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a module whose tests are all long: its imports take a second in each worker."""
    is_left_out = config.option.markexpr in ("core", "not long")
    return True if is_left_out and collection_path.name == "test_schemathesis.py" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return three workers for two processors: tests also wait for servers."""
    return (os.cpu_count() or 1) * 3 // 2


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests on the event loop that the service runs on."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make test` runs."""
    mark_core(items)


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, which would pause every service."""
    gc.collect()
    gc.freeze()

"""A service and a sandbox for many tests, each of which has a company of its own.

Starting them for one test takes longer than most tests.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import BaseTestServer
from aiohttp.typedefs import StrOrURL
from yarl import URL

from service.config import read_config
from service.db.pool import connected_pool
from service.db.transactions import Database
from tests.api_requests import Account, make_accounts
from tests.conftest import Client, ClientFactory, Templates, run_context
from tests.harness.companies import Company, add_company, make_tin
from tests.harness.databases import create_database
from tests.harness.environments import variables
from tests.harness.processes import SandboxProcess, Service

BATCH = 50  # companies that are created at once
SETTINGS = {
    "CONSOLIDATION_DAYS": "40",  # last month can be consolidated on every day of this month
    "INTEGRATION_REQUESTS_PER_MINUTE": "10000",
}


class SharedService:
    """A running service with its environment, and its companies."""

    def __init__(self, runner: asyncio.Runner, environment: dict[str, str], base: str) -> None:
        self.environment, self.base = environment, base
        self._runner = runner
        self._numbers = itertools.count(1000)
        self._companies: list[Company] = []
        self._accounts: list[Account] = []

    def take_company(self) -> Company:
        """Return a complete company that no other test has."""
        if not self._companies:
            self._runner.run(self._add_companies())
        return self._companies.pop()

    async def take_account(self) -> Account:
        """Return an account of the integrations API that no other test has."""
        if not self._accounts:
            names = [f"Group {next(self._numbers)}" for _ in range(BATCH)]
            self._accounts = await make_accounts(self.environment, names)
        return self._accounts.pop()

    async def connect(self, make_client: ClientFactory, headers: dict[str, str]) -> Client:
        """Return a client that sends some headers."""
        return await make_client(RunningServer(self.base), headers=headers)

    async def _add_companies(self) -> None:
        config = read_config(self.environment)
        async with connected_pool(config.database_url, 1) as pool:
            for number in itertools.islice(self._numbers, BATCH):
                company = await add_company(config, Database(pool), tin_code=make_tin(number))
                self._companies.append(company)


class RunningServer(BaseTestServer):
    """A server in another process, for a TestClient."""

    def __init__(self, base: str) -> None:
        self._base = URL(base)
        super().__init__(scheme="http", host=self._base.host or "", port=self._base.port)

    async def start_server(self, *args: Any, **options: Any) -> None:
        """Do nothing: it runs."""

    async def _make_runner(self, **options: Any) -> Any:
        raise NotImplementedError

    def make_url(self, path: StrOrURL) -> URL:
        return self._base.join(URL(path))


@pytest.fixture(scope="session")
def shared_service(
    cluster: str, templates: Templates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedService]:
    """Yield a service and its sandbox, in processes of their own."""
    with asyncio.Runner() as runner:
        running = _run_service(runner, cluster, templates.empty, tmp_path_factory.mktemp("shared"))
        with run_context(runner.run, running) as service:
            yield service


@asynccontextmanager
async def _run_service(
    runner: asyncio.Runner, cluster: str, template: str, home: Path
) -> AsyncIterator[SharedService]:
    settings = {
        "SANDBOX_STATE": str(home / "sandbox.sqlite3"),
        "SANDBOX_PROCESSING_SECONDS": "0",
        "SANDBOX_RATE_SCALE": "0",
    }
    async with (
        create_database(cluster, template) as url,
        SandboxProcess(settings, home / "sandbox.log") as portal,
    ):
        environment = {**variables(url, portal.base), **SETTINGS}
        async with Service(environment, home / "service.log") as service:
            yield SharedService(runner, environment, service.base)


@pytest.fixture
def shared_company(shared_service: SharedService) -> Company:
    """Return a complete company and its key."""
    return shared_service.take_company()


@pytest.fixture
async def shared_api(
    shared_service: SharedService, shared_company: Company, aiohttp_client: ClientFactory
) -> Client:
    """Return a client of the shared service with the key of `shared_company`."""
    return await shared_service.connect(aiohttp_client, {"X-API-Key": shared_company.key})

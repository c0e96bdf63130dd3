"""The service that the tests of the specification use."""

from dataclasses import dataclass

import pytest

from tests.api_requests import Account, make_account
from tests.conftest import Client, ClientFactory, Company, Sandbox, StartService, choose_fixture
from tests.fixtures_shared import SETTINGS, RunningServer, SharedService
from tests.harness.databases import open_connection


@dataclass(frozen=True, slots=True)
class Context:
    """A service, a client with both kinds of API key, and the data behind them."""

    api: Client
    start: StartService
    company: Company
    account: Account
    sandbox: Sandbox
    environment: dict[str, str]

    async def execute(self, statement: str, *arguments: object) -> None:
        """Run a statement that sees all rows."""
        async with open_connection(self.environment["DATABASE_URL"]) as conn:
            await conn.execute(statement, *arguments)


@pytest.fixture
def context(request: pytest.FixtureRequest) -> Context:
    """Return a service with a company and an account."""
    return choose_fixture(request, "context")


@pytest.fixture
async def own_context(
    environment: dict[str, str], start: StartService, own_company: Company, sandbox: Sandbox
) -> Context:
    """Return a service for this test only."""
    account = await make_account(environment)
    api = await start(**SETTINGS)
    api.session.headers["X-Portal-Key"] = account.key
    return Context(api, start, own_company, account, sandbox, environment)


@pytest.fixture
async def shared_context(
    shared_service: SharedService,
    shared_api: Client,
    shared_company: Company,
    aiohttp_client: ClientFactory,
) -> Context:
    """Return the shared service, whose sandbox a test may only read."""
    environment = shared_service.environment
    account = await shared_service.take_account()
    shared_api.session.headers["X-Portal-Key"] = account.key
    sandbox = Sandbox(await aiohttp_client(RunningServer(environment["PORTAL_API_BASE"])))
    start = StartService(environment, aiohttp_client, shared_company)
    return Context(shared_api, start, shared_company, account, sandbox, environment)

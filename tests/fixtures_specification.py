"""The service that the tests of the specification use."""

from dataclasses import dataclass

import asyncpg
import pytest
from conftest import Client, Company, Sandbox, StartService
from kit import Account, make_account


@dataclass(frozen=True, slots=True)
class Context:
    """A service, a client with both kinds of API key, and the data behind them."""

    api: Client
    start: StartService
    company: Company
    account: Account
    owner: asyncpg.Connection
    sandbox: Sandbox
    environment: dict[str, str]


@pytest.fixture
async def context(
    environment: dict[str, str],
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
) -> Context:
    """A service in which last month can be consolidated on every day of this month."""
    account = await make_account(environment)
    api = await start(company, CONSOLIDATION_DAYS="40", INTEGRATION_REQUESTS_PER_MINUTE="10000")
    api.session.headers["X-Portal-Key"] = account.key
    return Context(api, start, company, account, owner, sandbox, environment)

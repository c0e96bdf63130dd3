"""Fixtures that start the service, or run its commands, for several test modules."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import asyncpg
import pytest

from service.app import create_app
from service.commands.bootstrap import run_command as run_in_process
from service.commands.companies import share_tin
from service.commands.serve import DEMO_COMPANY
from service.config import Config, read_config
from service.db import pool
from service.db.connections import Connection
from tests.api_requests import open_integrations
from tests.conftest import (
    Client,
    ClientFactory,
    Company,
    Sandbox,
    StartService,
    Templates,
    make_company,
)
from tests.harness.companies import NEIGHBOUR
from tests.harness.databases import create_database
from tests.harness.environments import GENEROUS, variables
from tests.harness.processes import Finished, Service, run_command


class StartProcess(Protocol):
    """The type of the fixture services."""

    def __call__(self, **variables: str) -> Awaitable[Service]: ...


class RunCommand(Protocol):
    """The type of the fixture command."""

    def __call__(self, *arguments: object, **variables: str) -> Awaitable[Finished]: ...


@pytest.fixture
def command(environment: dict[str, str]) -> RunCommand:
    """Return a function that runs run.py on the test's database: `await command("migrate")`."""

    async def run(*arguments: object, **variables: str) -> Finished:
        return await run_command(arguments, {**environment, **variables})

    return run


@pytest.fixture
async def idle(start: StartService) -> Client:
    """Return a client of a service without background work."""
    return await start(background=False)


@pytest.fixture
async def stranger(start: StartService, environment: dict[str, str]) -> Client:
    """Return a client with the key of another company."""
    return await start(await make_company(environment))


@pytest.fixture
async def everywhere(start: StartService, environment: dict[str, str]) -> Client:
    """Return a client with keys of both surfaces of a GENEROUS service."""
    api = await start(**GENEROUS)
    await open_integrations(api, environment)
    return api


@pytest.fixture
async def neighbour(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection, config: Config
) -> Company:
    """Make another company with the TIN of `company`, which an operator has shared."""
    other = await make_company(environment, **NEIGHBOUR)
    await run_in_process(config, share_tin, DEMO_COMPANY["tin_code"], "Two branches")
    await owner.execute(
        "update companies set tin_code = (select tin_code from companies where id = $1)", company.id
    )
    return other


@pytest.fixture
async def other_installation(
    cluster: str, templates: Templates, sandbox: Sandbox, aiohttp_client: ClientFactory
) -> AsyncIterator[Client]:
    """Yield a client of a service with another database for the same taxpayer."""
    async with create_database(cluster, templates.empty) as url:
        environment = variables(url, sandbox.base)
        app = create_app(read_config(environment))
        key = (await make_company(environment)).key
        client = await aiohttp_client(app, headers={"X-API-Key": key})
        yield client
        await client.close()


@pytest.fixture
async def services(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[StartProcess]:
    """Yield a function that starts a process of the service; all are stopped at the end."""
    async with AsyncExitStack() as stack:

        async def make(**variables: str) -> Service:
            service = Service({**environment, **variables}, tmp_path / "services.log")
            return await stack.enter_async_context(service)

        yield make


@pytest.fixture
async def client(service: Service, company: Company) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of the fixture `service` of a module, with the key of `company`."""
    async with service.client(company.key) as session:
        yield session


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the commands of the connections to the primary that are opened from now on."""
    found: list[str] = []
    connect = pool.connect

    async def connect_and_log(*args: Any, **options: Any) -> Connection:
        conn = await connect(*args, **options)
        conn.add_query_logger(lambda record: found.append(record.query))
        return conn

    monkeypatch.setattr(pool, "connect", connect_and_log)
    return found

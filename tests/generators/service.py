"""A service with its sandbox, and the key of a company."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from service.config import read_config
from service.db.migrations import migrate
from service.db.pool import connected_pool
from service.db.transactions import Database
from tests.harness.companies import add_company
from tests.harness.databases import create_database, provide_server
from tests.harness.environments import variables
from tests.harness.processes import SandboxProcess, Service


@asynccontextmanager
async def start_service(home: Path) -> AsyncIterator[tuple[str, str]]:
    """Run the service on an empty database, and yield (its base address, the key of a company)."""
    home.mkdir()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(provide_server(home / "postgres", durable=False))
        database = await stack.enter_async_context(create_database(server))
        await migrate(database)
        state = {"SANDBOX_STATE": str(home / "sandbox.sqlite3"), "SANDBOX_RATE_SCALE": "0"}
        sandbox = SandboxProcess(state, home / "sandbox.log")
        await stack.enter_async_context(sandbox)
        environment = {**variables(database, sandbox.base), "DATA_DIR": str(home)}
        pool = await stack.enter_async_context(connected_pool(database, 1))
        company = await add_company(read_config(environment), Database(pool))
        service = await stack.enter_async_context(Service(environment, home / "service.log"))
        yield service.base, company.key

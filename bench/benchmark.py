"""The environment of a benchmark: PostgreSQL, an empty database, the service and the sandbox.

PostgreSQL is the server of DATABASE_URL, whose login must be a superuser, else an embedded one in a
temporary directory. Everything is removed at the end.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: The scripts import the service and the harness of the tests.
sys.path[1:1] = [str(ROOT)]

from programs import ProgramError, run_program

from service.commands.bootstrap import run as run_loop
from service.commands.serve import DEMO_COMPANY
from service.config import Config, read_config
from service.db.connections import Connection
from service.db.migrations import migrate
from service.db.pool import connected_pool
from service.db.statements import Statements
from service.db.transactions import Database
from service.http.api_keys import new_key
from tests.harness import processes
from tests.harness.companies import Company, make_tin
from tests.harness.databases import administer, create_database, open_connection, provide_server
from tests.harness.environments import make_environment
from tests.harness.sandbox import Administration

_tin_numbers = itertools.count(1)
COMMAND_SECONDS = 60
#: The descriptions of options that several scripts have.
HELP = {
    "seconds": "of each measurement",
    "companies": "that send requests, or are held",
    "exported": "invoices of the exported company",
    "largest": "invoices of the largest company",
    "scale": "multiplies the portal's rates; at 20 a minute takes three seconds",
    "lease": "PORTAL_LEASE_SECONDS",
    "delay_ms": "of all data to and from the database",
}
SEED_BATCH = 1000  # invoices of one statement
UNLIMITED = {
    "HOST": "127.0.0.1",
    "REQUESTS_PER_MINUTE": "0",
    "TIN_CHECKS_PER_MINUTE": "0",
    "PORTAL_RATE_SCALE": "0",
    "SANDBOX_RATE_SCALE": "0",
}

sql = Statements(Path(__file__).resolve().parent)

Environment = dict[str, str]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a benchmark on the service's event loop. A signal stops it and its processes."""
    try:
        run_loop(_cancel_on_sigterm(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("Interrupted.")
    except ProgramError as error:
        sys.exit(str(error))


async def _cancel_on_sigterm(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await work


class ServiceProgram(processes.Service):
    """The service in an interpreter of its own, as in production."""

    has_own_interpreter = True

    def __init__(
        self, environment: Environment, log: Path, arguments: Sequence[str] = (), root: Path = ROOT
    ) -> None:
        super().__init__(environment, log, arguments)
        self.root = root


@dataclass(frozen=True, slots=True)
class Service:
    """A running service: its process, its database, and the administration of its portal.

    `root` is the folder of its code, which can be another version.
    """

    process: ServiceProgram
    environment: Environment
    url: str
    database: Database
    portal: Administration
    home: Path
    root: Path

    @property
    def base(self) -> str:
        return self.process.base

    @property
    def config(self) -> Config:
        return read_config(self.environment)

    def make_another(self, **variables: str) -> ServiceProgram:
        """Return a further process of the service, which the caller starts and stops."""
        environment = {**self.environment, **variables}
        return ServiceProgram(environment, self.home / "others.log", root=self.root)

    async def add_company(self, invoices: int = 0) -> Company:
        """Create a company with a number of invoices of five lines."""
        return (await self.add_companies(1, invoices))[0]

    async def add_companies(self, count: int, invoices: int) -> list[Company]:
        """Create companies with a number of invoices of five lines each."""
        is_own, seeds = self.root == ROOT, Statements(self.root / "bench")
        mode = "replica" if is_own else "origin"  # Triggers, which only another version needs.
        settings = {"session_replication_role": mode, "synchronous_commit": "off"}
        async with open_connection(self.url, server_settings=settings) as conn:
            companies = await _insert_companies(conn, count)
            for company in companies:
                for first in range(1, invoices + 1, SEED_BATCH):
                    last = min(invoices, first + SEED_BATCH - 1)
                    await seeds.invoices_seed(conn, company_id=company.id, first=first, last=last)
            if is_own:
                await sql.states_seed(conn, company_ids=[company.id for company in companies])
        return companies

    async def vacuum(self) -> None:
        """Run VACUUM ANALYZE, as autovacuum does while a table grows to this size."""
        await administer(self.url, "vacuum analyze")


async def _insert_companies(conn: Connection, count: int) -> list[Company]:
    """Create companies like the demo company, each with a key."""
    keys = [new_key(live=False) for _ in range(count)]
    rows = await sql.companies_seed(
        conn,
        facts=json.dumps(DEMO_COMPANY),
        tins=[make_tin(next(_tin_numbers)) for _ in keys],
        key_ids=[key.key_id for key in keys],
        digests=[key.digest for key in keys],
    )
    ids = {row["key_id"]: row["owner_id"] for row in rows}
    return [Company(ids[key.key_id], key.text, key.key_id) for key in keys]


@asynccontextmanager
async def start_service(
    sandbox: bool = False, background: bool = True, variables: Environment | None = None
) -> AsyncIterator[Service]:
    """Run the service on an empty database, without rate limits unless `variables` set them.

    `sandbox`: run the sandbox as its portal. `background`: run its background work.
    """
    async with prepare_service(sandbox, background, variables) as service, service.process:
        yield service


@asynccontextmanager
async def prepare_service(
    sandbox: bool = False,
    background: bool = True,
    variables: Environment | None = None,
    server: str | None = None,
    root: Path = ROOT,
) -> AsyncIterator[Service]:
    """Prepare what `start_service` does, without starting the process of the service.

    `server`: address of a PostgreSQL that the caller runs. `root`: the folder of another version,
    whose commands and migrations run.
    """
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = server or await stack.enter_async_context(provide_server(home / "postgres"))
        url = await stack.enter_async_context(create_database(server))
        chosen = {
            **UNLIMITED,
            "DATA_DIR": str(home),
            "SANDBOX_STATE": str(home / "sandbox.sqlite3"),
            **(variables or {}),
        }
        portal = processes.SandboxProcess(chosen, home / "sandbox.log")
        if sandbox:
            await stack.enter_async_context(portal)
        environment = {**make_environment(url, portal.base), **chosen}
        if root == ROOT:
            await migrate(url)
        else:
            command = [sys.executable, str(root / "run.py"), "migrate"]
            await run_program(command, COMMAND_SECONDS, environment)
        arguments = [] if background else ["serve", "--no-background"]
        process = ServiceProgram(environment, home / "service.log", arguments, root)
        pool = await stack.enter_async_context(connected_pool(url, 2))
        administration = Administration(portal.base)
        yield Service(process, environment, url, Database(pool), administration, home, root)


@asynccontextmanager
async def provide_large_server() -> AsyncIterator[str]:
    """Yield the URL of a server as `provide_server` does, with a quarter of the memory as buffers.

    That is what the manual of PostgreSQL recommends for a server of its own. The buffers of an
    embedded one hold 128 MB.
    """
    megabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 // 4
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        settings = [f"shared_buffers = '{megabytes}MB'"]
        async with provide_server(Path(folder, "postgres"), settings=settings) as url:
            yield url


def read_memory(pid: int | None) -> tuple[float, float | None]:
    """Return the resident memory of a process in MB: now, and the peak, None if it is unknown."""
    status = processes.read_status(pid)
    if not status:
        return int(os.popen(f"ps -o rss= -p {pid}").read()) / 1000, None
    return int(status["VmRSS"]) / 1000, int(status["VmHWM"]) / 1000


def print_memory(before: float, after: float, peak: float | None) -> None:
    """Print the memory of the service around a measurement."""
    row = ("resident", before, after, peak or "unknown")
    print_table("Memory of the service process, MB", ("", "before", "after", "peak"), [row])


def make_parser(doc: str | None, **defaults: float) -> argparse.ArgumentParser:
    """Return a parser with the first line of a module's docstring, and options of numbers."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(default), default=default, help=HELP.get(name))
    return parser


def parse_options(doc: str | None, **defaults: float) -> argparse.Namespace:
    """Return the options of a script that has only numbers."""
    return make_parser(doc, **defaults).parse_args()


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below a title, with all columns but the first aligned to the right."""
    cells = [list(columns), *[[_format_cell(value) for value in row] for row in rows]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    print(f"\n{title}")
    for row in cells:
        first, *rest = row
        numbers = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=False)]
        print("  ".join([f"  {first.ljust(widths[0])}", *numbers]), flush=True)


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)

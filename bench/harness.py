"""The environment of a benchmark: PostgreSQL, an empty database, the service and the sandbox.

PostgreSQL is the server of DATABASE_URL, whose login must be allowed to create databases, else an
embedded one in a temporary directory. Everything is removed at the end.
"""

import asyncio
import itertools
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from service.commands.bootstrap import run as run_loop
from service.commands.companies import insert_company, insert_key
from service.commands.serve import DEMO_COMPANY
from service.config import Config, read_config
from service.db.migrations import migrate
from service.db.statements import Statements
from service.db.transactions import Database, connected_pool
from service.embedded_postgres.lifecycle import postgres

START_SECONDS = 30
STOP_SECONDS = 15
_tin_numbers = itertools.count(1)
SEED_BATCH = 10_000  # invoices that one statement can insert within the statement_timeout

sql = Statements(Path(__file__).resolve().parent)

Environment = dict[str, str]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a benchmark on the service's event loop. A signal stops it and its processes."""
    try:
        run_loop(_cancel_on_sigterm(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("Interrupted.")


async def _cancel_on_sigterm(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await work


@dataclass(frozen=True, slots=True)
class Company:
    """A company of the service and its API key."""

    id: int
    key: str


@dataclass(frozen=True, slots=True)
class Service:
    """A running service: its port on 127.0.0.1, its process, and its database."""

    port: int
    pid: int
    url: str
    config: Config
    database: Database
    home: Path
    environment: Environment

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_worker(self) -> AbstractAsyncContextManager[int]:
        """Run a second process of the service on any free port. The context value is its pid."""
        port = free_port()
        return _run_server({**self.environment, "PORT": str(port)}, self.home, port)

    @asynccontextmanager
    async def start_second(self) -> AsyncIterator[int]:
        """Run a second process of the service. The context value is its port."""
        port = free_port()
        async with _run_server({**self.environment, "PORT": str(port)}, self.home, port):
            yield port

    async def add_company(self, invoices: int = 0) -> Company:
        """Create a company with a number of invoices of five lines."""
        tin = f"C2088005{next(_tin_numbers):03}0"  # a TIN belongs to one company
        company_id = await insert_company(self.database, {**DEMO_COMPANY, "tin_code": tin})
        key = await insert_key(self.config, self.database, company_id, "benchmark")
        for first in range(1, invoices + 1, SEED_BATCH):
            last = min(invoices, first + SEED_BATCH - 1)
            async with self.database.company(company_id) as conn:
                await sql.invoices_seed(conn, company_id=company_id, first=first, last=last)
        return Company(company_id, key["key"])

    async def vacuum(self) -> None:
        """Run VACUUM ANALYZE, as autovacuum does while a table grows to this size."""
        conn = await asyncpg.connect(self.url)
        await conn.execute("vacuum analyze")
        await conn.close()


@asynccontextmanager
async def start_service(
    sandbox: bool = False,
    background: bool = True,
    server: str | None = None,
    variables: Environment | None = None,
) -> AsyncIterator[Service]:
    """Run the service on an empty database, without rate limits unless `variables` set them.

    `sandbox`: run the sandbox as its portal. `background`: run its background work.
    `server`: address of a PostgreSQL that the caller runs.
    """
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        url = await stack.enter_async_context(_create_database(home, server))
        await migrate(url)
        port, portal = free_port(), free_port()
        environment = {
            **os.environ,
            **_make_environment(home, url, port, portal),
            **(variables or {}),
        }
        if sandbox:
            portal_url = f"http://127.0.0.1:{portal}/_sandbox/settings"
            await stack.enter_async_context(
                _run_process(["sandbox"], environment, home, portal_url)
            )
        arguments = [] if background else ["--no-background"]
        pid = await stack.enter_async_context(_run_server(environment, home, port, arguments))
        pool = await stack.enter_async_context(connected_pool(url, 2))
        yield Service(port, pid, url, read_config(environment), Database(pool), home, environment)


def read_memory(pid: int) -> tuple[float, float | None]:
    """Return the resident memory of a process in MB: now, and the peak, None if it is unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return int(os.popen(f"ps -o rss= -p {pid}").read()) / 1000, None
    sizes = {
        line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))
    }
    return int(sizes["VmRSS"]) / 1000, int(sizes["VmHWM"]) / 1000


def summary_of(doc: str | None) -> str:
    """Return the first line of a module's docstring, as the description of its parser."""
    return (doc or "").partition("\n")[0]


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


def _make_environment(home: Path, url: str, port: int, portal: int) -> Environment:
    portal_url = f"http://127.0.0.1:{portal}"
    return {
        "DATABASE_URL": url,
        "DATABASE_OWNER_URL": "",
        "DATA_DIR": str(home),
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "REQUESTS_PER_MINUTE": "0",
        "TIN_CHECKS_PER_MINUTE": "0",
        "PORTAL_API_BASE": portal_url,
        "PORTAL_IDENTITY_BASE": portal_url,
        "PORTAL_WEB_BASE": portal_url,
        "PORTAL_CLIENT_ID": "sandbox-client",
        "PORTAL_CLIENT_SECRET": "sandbox-secret",
        "PORTAL_INTERMEDIARY": "true",
        "SANDBOX_PORT": str(portal),
        "SANDBOX_STATE": str(home / "sandbox.sqlite3"),
        "SANDBOX_RATE_SCALE": "0",
        "PORTAL_RATE_SCALE": "0",
    }


@asynccontextmanager
async def _create_database(home: Path, server: str | None) -> AsyncIterator[str]:
    """Create a database that is dropped at the end. The context value is its address."""
    async with AsyncExitStack() as stack:
        server = (
            server
            or os.environ.get("DATABASE_URL")
            or await stack.enter_async_context(postgres(home / "postgres"))
        )
        name = f"bench_{secrets.token_hex(6)}"
        await _execute(server, f"create database {name}")
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            await _execute(server, f"drop database {name} with (force)")


async def _execute(url: str, statement: str) -> None:
    conn = await asyncpg.connect(url)
    await conn.execute(statement)
    await conn.close()


def _run_server(
    environment: Environment, home: Path, port: int, arguments: Sequence[str] = ()
) -> AbstractAsyncContextManager[int]:
    command = ["serve", *arguments]
    return _run_process(command, environment, home, f"http://127.0.0.1:{port}/readyz")


@asynccontextmanager
async def _run_process(
    command: Sequence[str], environment: Environment, home: Path, address: str
) -> AsyncIterator[int]:
    """Run a command of run.py and wait until it answers. The context value is its pid."""
    log = home / f"{command[0]}-{environment['PORT']}.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, str(ROOT / "run.py"), *command],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        await _wait_until_ready(address, process, log)
        yield process.pid
    finally:
        await _stop_process(process)


async def _wait_until_ready(address: str, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
        while True:
            if process.returncode is not None:
                sys.exit(f"The process did not start:\n{log.read_text()[-2000:]}")
            try:
                async with session.get(address) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

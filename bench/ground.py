"""What a benchmark stands on: a PostgreSQL, a database of its own in it, the service and the sandbox as processes.

PostgreSQL is the one of DATABASE_URL, whose login must be allowed to make a database, else an embedded one in a
temporary directory. Nothing is left behind.
"""

import asyncio
import itertools
import os
import secrets
import signal
import socket
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import asyncpg

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from service.commands.bootstrap import run as run_loop
from service.commands.companies import insert_company, insert_key
from service.commands.serve import DEMO_COMPANY
from service.config import read_config
from service.db.migrations import migrate
from service.db.statements import Statements
from service.db.transactions import Database, connected_pool
from service.embedded_postgres.lifecycle import postgres

START_SECONDS = 30
STOP_SECONDS = 15
_tin_numbers = itertools.count(1)
SEED_BATCH = 10_000  # what one statement makes within the service's statement_timeout

sql = Statements(Path(__file__).resolve().parent)


def run(work):
    """Runs a benchmark on the event loop of the service; a signal ends it, and what it started, in order."""
    try:
        run_loop(_until_told(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("Broken off.")


async def _until_told(work):
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    await work


@dataclass(frozen=True, slots=True)
class Company:
    id: int
    key: str


@dataclass(frozen=True, slots=True)
class Ground:
    """A running service: its port on 127.0.0.1, its process, and the database behind it."""

    port: int
    pid: int
    url: str
    config: object
    database: Database
    home: Path
    environment: dict

    def worker(self):
        """Background work in a process of its own while the context is open; it may listen on any port."""
        port = free_port()
        environment = {**self.environment, "PORT": str(port)}
        return _process("serve", environment, self.home, f"http://127.0.0.1:{port}/readyz")

    @asynccontextmanager
    async def twin(self):
        """The port of a second process of the service on the same database, while the context is open."""
        port = free_port()
        environment = {**self.environment, "PORT": str(port)}
        async with _process("serve", environment, self.home, f"http://127.0.0.1:{port}/readyz"):
            yield port

    async def company(self, invoices=0):
        """A new Company with so many invoices of five lines."""
        tin = f"C2088005{next(_tin_numbers):03}0"  # a TIN belongs to one company
        id = await insert_company(self.database, {**DEMO_COMPANY, "tin_code": tin})
        key = await insert_key(self.config, self.database, id, "benchmark")
        for first in range(1, invoices + 1, SEED_BATCH):
            last = min(invoices, first + SEED_BATCH - 1)
            async with self.database.company(id) as conn:
                await sql.invoices_seed(conn, company_id=id, first=first, last=last)
        return Company(id, key["key"])

    async def tidy(self):
        """What autovacuum would have done by the time that a table has grown so large."""
        conn = await asyncpg.connect(self.url)
        await conn.execute("vacuum analyze")
        await conn.close()


@asynccontextmanager
async def ground(sandbox=False, background=True, server=None, **variables):
    """A Ground, with a sandbox behind the service when asked for; variables by keyword, without which it has no quotas.

    `server` is the address of a PostgreSQL that the caller runs.
    """
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        url = await stack.enter_async_context(_database(home, server))
        await migrate(url)
        port, portal = free_port(), free_port()
        environment = {**os.environ, **_environment(home, url, port, portal), **variables}
        if sandbox:
            portal_url = f"http://127.0.0.1:{portal}/_sandbox/settings"
            await stack.enter_async_context(_process("sandbox", environment, home, portal_url))
        ready = f"http://127.0.0.1:{port}/readyz"
        arguments = () if background else ("--no-background",)
        pid = await stack.enter_async_context(
            _process("serve", environment, home, ready, *arguments)
        )
        pool = await stack.enter_async_context(connected_pool(url, 2))
        yield Ground(port, pid, url, read_config(environment), Database(pool), home, environment)


def memory(pid):
    """(resident now, highest so far) of a process in MB; the second is None where the system does not keep it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return int(os.popen(f"ps -o rss= -p {pid}").read()) / 1000, None
    sizes = {
        line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))
    }
    return int(sizes["VmRSS"]) / 1000, int(sizes["VmHWM"]) / 1000


def table(title, columns, rows):
    """Prints rows under a title, numbers to the right."""
    cells = [list(columns), *[[_shown(value) for value in row] for row in rows]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    print(f"\n{title}")
    for row in cells:
        first, *rest = row
        numbers = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=False)]
        print("  ".join([f"  {first.ljust(widths[0])}", *numbers]), flush=True)


def _shown(value):
    return (
        f"{value:,.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _environment(home, url, port, portal):
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
async def _database(home, server):
    """The address of an empty database, which is dropped afterwards."""
    async with AsyncExitStack() as stack:
        server = (
            server
            or os.environ.get("DATABASE_URL")
            or await stack.enter_async_context(postgres(home / "postgres"))
        )
        name = f"bench_{secrets.token_hex(6)}"
        await _administer(server, f"create database {name}")
        try:
            yield urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
        finally:
            await _administer(server, f"drop database {name} with (force)")


async def _administer(url, statement):
    conn = await asyncpg.connect(url)
    await conn.execute(statement)
    await conn.close()


@asynccontextmanager
async def _process(command, environment, home, address, *arguments):
    """The process id of a command of run.py that answers at an address; it is ended afterwards."""
    log = home / f"{command}-{environment['PORT']}.log"
    with open(log, "wb") as output:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, str(ROOT / "run.py"), command, *arguments],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        await _answers(address, process, log)
        yield process.pid
    finally:
        await _ended(process)


async def _answers(address, process, log):
    async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
        while True:
            if process.returncode is not None:
                sys.exit(f"It did not start:\n{log.read_text()[-2000:]}")
            try:
                async with session.get(address) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def _ended(process):
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

"""An installation as docs/deployment.md describes it, on which blocks of the documentation run.

PostgreSQL and the units are processes of the test. Programs that need a machine of their own, such
as systemctl, are functions of the shell that call back.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
from aiohttp import web

from service.config import read_config
from service.db.pool import connected_pool
from service.db.transactions import Database
from tests.harness.companies import Company, add_company
from tests.harness.environments import SANDBOX_CLIENT, SCALED
from tests.harness.paths import ROOT
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import ChildProcess, free_port
from tests.harness.waiting import patience, wait_until

API_UNITS = ("einvoice-api@8081", "einvoice-api@8082")
WORKER_UNIT = "einvoice-worker"
#: What a worker prints when it is ready.
RUNNING = "The worker is running."
SHELL_SECONDS = 120
#: A block of the shell in a page, which may be indented in a list.
BLOCK = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
#: Secrets as variables with files, as the units set them.
SECRET_FILES = {
    "DATABASE_URL_FILE": "database-url",
    "SECRET_KEY_FILE": "secret-key",
    "SECRET_KEY_PREVIOUS_FILE": "secret-key-previous",
    "PORTAL_CLIENT_SECRET_FILE": "portal-client-secret",
}
#: pg_verifybackup of the embedded programs ends with a segmentation fault.
FUNCTIONS = """
set -euo pipefail
home=$(dirname "$PGDATA")
give() { [ "$(id -u)" != 0 ] || command chown -R "$POSTGRES_OWNER" "$BACKUPS" "$home"; }
runuser() { shift 3; "$@"; give; }
chown() { give; }
install() { mkdir -p "${@: -1}"; give; }
systemctl() { curl -sS --fail-with-body --data-binary "$*" "$SUPERVISOR"; }
pg_verifybackup() { test -s "$1/backup_manifest"; }
einvoice() { sh "$CHECKOUT/deploy/systemd/einvoice" "$@"; }
"""


def read_blocks(page: str) -> dict[str, list[str]]:
    """Return the blocks of the shell of a page by the headings of its sections."""
    text = (ROOT / page).read_text()
    return {
        heading.replace("`", ""): [textwrap.dedent(block) for _, block in BLOCK.findall(section)]
        for heading, section in SECTION.findall(text)
    }


class Installation:
    """PostgreSQL, two API processes and a worker, with settings and secrets in files."""

    def __init__(self, home: Path, portal: str, settings: Mapping[str, str] = {}) -> None:
        self.etc, self.backups = home / "etc", home / "backups"
        self.ports = {unit: free_port() for unit in API_UNITS}
        self.postgres = PostgresServer(home / "postgres")
        self._home, self._portal, self._settings = home, portal, settings
        self._stack = AsyncExitStack()
        self._supervisor = ""
        self._units = {unit: self._make_unit(unit) for unit in (*API_UNITS, WORKER_UNIT)}

    def _make_unit(self, unit: str) -> ChildProcess:
        port = self.ports.get(unit, 0)
        arguments = ["serve", "--no-background"] if port else ["worker"]
        ready = "/readyz" if port else None
        variables = {**self.settings, **self.secret_files, "PORT": str(port)}
        log = self._home / f"{unit}.log"
        log.touch()
        return ChildProcess(arguments, variables, log, port, ready)

    @property
    def settings(self) -> dict[str, str]:
        addresses = ("PORTAL_API_BASE", "PORTAL_IDENTITY_BASE", "PORTAL_WEB_BASE")
        client = {name: text for name, text in SANDBOX_CLIENT.items() if "SECRET" not in name}
        portal = dict.fromkeys(addresses, self._portal)
        return {**SCALED, **client, **portal, **self._settings}

    @property
    def secret_files(self) -> dict[str, str]:
        """The variables that name files of secrets."""
        return {
            variable: str(self.etc / "secrets" / name) for variable, name in SECRET_FILES.items()
        }

    def unit(self, name: str) -> ChildProcess:
        return self._units[name]

    def read_secret(self, name: str) -> str:
        return (self.etc / "secrets" / name).read_text().strip()

    async def __aenter__(self) -> "Installation":
        """Install as the documentation says, and start the units."""
        await self._stack.__aenter__()
        await self._stack.enter_async_context(self.postgres)
        await self._stack.enter_async_context(self._supervise())
        self._write_files()
        steps = [
            *read_blocks("docs/deployment.md")["Database"],
            "systemctl restart einvoice-migrate",
        ]
        await self.paste("\n".join(steps).replace("/etc/einvoice", str(self.etc)))
        for name in self._units:
            await self._start(name)
        return self

    async def __aexit__(self, *error: object) -> None:
        for unit in self._units.values():
            if not unit.is_gone:
                await unit.stop()
        await self._stack.aclose()

    def _write_files(self) -> None:
        self.backups.mkdir()
        host = f"127.0.0.1:{self.postgres.port}"
        script = ["sh", str(ROOT / "deploy" / "make-secrets.sh"), str(self.etc / "secrets"), host]
        subprocess.run(script, check=True, capture_output=True)
        client_secret = SANDBOX_CLIENT["PORTAL_CLIENT_SECRET"]
        (self.etc / "secrets" / "portal-client-secret").write_text(client_secret)
        lines = [f"{name}={text}\n" for name, text in self.settings.items()]
        (self.etc / "einvoice.env").write_text("".join(lines))
        for name, target in (("venv", Path(sys.prefix)), ("run.py", ROOT / "run.py")):
            (self._home / name).symlink_to(target)

    @asynccontextmanager
    async def _supervise(self) -> AsyncIterator[None]:
        """Serve the requests of the function systemctl."""
        app = web.Application()
        app.router.add_post("/", self._handle)
        runner = web.AppRunner(app)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self._supervisor = f"http://127.0.0.1:{port}/"
        try:
            yield
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        """Start, stop or restart units, one after the other."""
        verb, *names = (await request.text()).split()
        for name in names:
            if verb in ("stop", "restart"):
                await self._stop(name)
            if verb in ("start", "restart"):
                await self._start(name)
        return web.Response()

    async def _stop(self, name: str) -> None:
        if name == "postgresql":
            await self.postgres.stop()
        elif name in self._units:
            assert await self._units[name].stop() == 0

    async def _start(self, name: str) -> None:
        if name == "postgresql":
            await self.postgres.start()
        elif name == "einvoice-migrate":
            owner = self.etc / "secrets" / "database-owner-url"
            await self.run_shell(f'"{sys.executable}" run.py migrate', DATABASE_URL_FILE=str(owner))
        else:
            await self._start_unit(self._units[name])

    async def _start_unit(self, unit: ChildProcess) -> None:
        """Start a process, and wait until it reports that it is ready."""
        reports = unit.output().count(RUNNING)
        await unit.start()
        if not unit.port:
            await wait_until(lambda: unit.output().count(RUNNING) > reports)

    async def move_to_new_server(self) -> None:
        """Replace PostgreSQL by an empty one at the same address."""
        await self.postgres.stop()
        replacement = PostgresServer(self._home / "replacement", self.postgres.port)
        self.postgres = await self._stack.enter_async_context(replacement)

    async def paste(self, script: str, **variables: str) -> str:
        """Run blocks of the documentation, and return their output. Raises AssertionError."""
        return await self.run_shell(f"{FUNCTIONS}{script}", **self._shell_variables(), **variables)

    def _shell_variables(self) -> Mapping[str, str]:
        server = self.postgres
        return {
            "PATH": f"{server.programs}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGUSER": "postgres",
            "PGPASSWORD": server.password,
            "PGDATA": str(server.data),
            "POSTGRES_OWNER": server.owner,
            "BACKUPS": str(self.backups),
            "UNITS": " ".join(self._units),
            "SUPERVISOR": self._supervisor,
            "CHECKOUT": str(ROOT),
            "EINVOICE_ETC": str(self.etc),
            "EINVOICE_HOME": str(self._home),
        }

    async def run_shell(self, script: str, **variables: str) -> str:
        """Run a script with bash in the checkout, and return its output. Raises AssertionError."""
        process = await asyncio.create_subprocess_exec(
            *["bash", "-c", script],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with patience(SHELL_SECONDS):
                out, err = await process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert process.returncode == 0, f"{script}\n{out.decode()}\n{err.decode()}"
        return out.decode()

    async def connect(self, database: str = "einvoice") -> asyncpg.Connection:
        return await asyncpg.connect(self.postgres.url, database=database)

    async def add_company(self) -> Company:
        config = read_config({**self.settings, **self.secret_files})
        async with connected_pool(config.database_url, 1) as pool:
            return await add_company(config, Database(pool))

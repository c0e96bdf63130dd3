"""A PostgreSQL on a fixed port that is stopped and started again, with fsync on."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import asyncpg

from service.embedded_postgres.binaries import (
    Account,
    as_account,
    choose_account,
    find_programs,
    restrict_account,
)
from service.embedded_postgres.lifecycle import SETTINGS, Cluster, change_owner, make_cluster
from tests.harness.databases import open_connection
from tests.harness.processes import START_SECONDS, free_port
from tests.harness.waiting import POLL_SECONDS, patience, until, wait_until

#: A standby has no replication slot: a checkpoint must not remove the log that it has not received.
KEPT = {"wal_keep_size": "1GB"}
#: After an immediate shutdown the next start recovers.
MODES = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
#: Errors of a server that does not accept connections.
NO_ANSWER = (OSError, asyncpg.PostgresError, asyncpg.InternalClientError)


def launch(
    command: Sequence[str | Path], account: Account | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a process as an account. On Linux it is interrupted when this process ends."""
    if shutil.which("setpriv"):  # After the change of user, which clears the setting.
        command = ["setpriv", "--pdeathsig", "INT", *command]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.Popen(
        as_account(account, command),
        cwd="/",
        env=env | {"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **options,
    )


class PostgresServer:
    """A server in a directory. As a context manager it is created, started, and stopped.

    `name` is that of a standby in synchronous_standby_names of other servers.
    """

    def __init__(self, home: Path, port: int = 0, name: str = "") -> None:
        self.port = port or free_port()
        self.url = self.password = ""  # of the superuser
        self.name = name
        self._home = home.resolve()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def programs(self) -> Path:
        """The folder of the programs of PostgreSQL."""
        return self._cluster.programs.bin

    @property
    def data(self) -> Path:
        return self._cluster.path

    @property
    def owner(self) -> str:
        """The user and the group of its files, as chown takes them."""
        status = self._home.stat()
        return f"{status.st_uid}:{status.st_gid}"

    async def __aenter__(self) -> Self:
        self._home.mkdir(exist_ok=True)
        account, programs = choose_account(self._home), find_programs()
        change_owner(self._home, account)
        account = restrict_account(account, programs, self._home)
        self._cluster = Cluster(self._home / "cluster", programs, account)
        await self._create()
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def _create(self) -> None:
        make_cluster(self._cluster)
        self.password = (self._cluster.path / "superuser_password").read_text()
        self.url = (
            f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres?sslmode=disable"
        )

    async def start(self) -> None:
        """Start the server and wait until it accepts a connection. Raises RuntimeError.

        A start is repeated if it failed, because a client may have the port for a moment.
        """
        try:
            async with patience(START_SECONDS):
                while not await self._is_ready():
                    if self._process is None or self._process.poll() is not None:
                        self._launch()
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            log = (self._home / "server.log").read_text(errors="replace")
            raise RuntimeError(f"PostgreSQL did not start:\n{log[-2000:]}") from None

    def _launch(self) -> None:
        cluster = self._cluster
        names = {"cluster_name": self.name, "einvoice.server_name": self.name}
        named = {**SETTINGS, **KEPT, **names, "port": self.port}
        settings = [f"--{name}={value}" for name, value in named.items()]
        command = [cluster.programs.bin / "postgres", *settings, "-D", cluster.path]
        with (self._home / "server.log").open("ab") as log:
            self._process = launch(command, cluster.account, stdout=log, stderr=log)

    async def _is_ready(self) -> bool:
        try:
            await (await asyncpg.connect(self.url, timeout=5)).close()
        except NO_ANSWER:
            return False
        return True

    async def execute(self, statement: str) -> Any:
        """Run a statement as the superuser and return its first value."""
        async with open_connection(self.url) as conn:
            return await conn.fetchval(statement)

    async def configure(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        await self.execute(f"alter system set {name} = '{value}'")
        await self.execute("select pg_reload_conf()")
        await until(lambda: self.execute(f"select current_setting('{name}') = '{value}'"))

    async def stop(self, mode: str = "fast") -> None:
        """Shut the server down. Raises TimeoutError."""
        if process := self._process:
            process.send_signal(MODES[mode])
            await wait_until(lambda: process.poll() is not None, START_SECONDS)

    async def restart(self, mode: str) -> None:
        """Shut the server down and start it again."""
        await self.stop(mode)
        await self.start()

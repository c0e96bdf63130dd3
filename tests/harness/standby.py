"""A streaming standby of a PostgreSQL server, that is paused, restarted and promoted."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.harness.postgres_server import PostgresServer, launch
from tests.harness.processes import START_SECONDS, read_status
from tests.harness.waiting import until, wait_until


class StandbyServer(PostgresServer):
    """A standby of the server with the address `primary`, made by pg_basebackup."""

    def __init__(self, home: Path, primary: str, name: str = "") -> None:
        super().__init__(home, name=name)
        self._primary = primary

    async def _create(self) -> None:
        """Copy the data directory of the primary, and let the copy follow it."""
        account, programs = self._cluster.account, self._cluster.programs
        options = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        command = [programs.bin / "pg_basebackup", *options, "-d", self._primary]
        with (self._home / "basebackup.log").open("ab") as log:
            copying = launch([*command, "-D", self._cluster.path], account, stdout=log, stderr=log)
            await wait_until(lambda: copying.poll() is not None, START_SECONDS)
        if copying.returncode:
            raise RuntimeError((self._home / "basebackup.log").read_text(errors="replace"))
        login, _, _ = urlsplit(self._primary).netloc.rpartition("@")
        self.url = f"postgresql://{login}@127.0.0.1:{self.port}/postgres?sslmode=disable"

    async def pause_replay(self) -> None:
        """Let the standby receive the log and not replay it."""
        await self.execute("select pg_wal_replay_pause()")
        await until(lambda: self.execute("select pg_get_wal_replay_pause_state() = 'paused'"))

    async def resume_replay(self) -> None:
        """Let the standby replay the log again."""
        await self.execute("select pg_wal_replay_resume()")

    async def promote(self) -> None:
        """Make the standby a primary."""
        await self.execute("select pg_promote()")

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Stop all processes during the block: connections stay open and nothing responds."""
        pids = list(self._find_processes())
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def _find_processes(self) -> Iterator[int]:
        """Yield the postmaster and then its children."""
        assert self._process is not None
        yield self._process.pid
        for path in Path("/proc").glob("[0-9]*"):
            if read_status(int(path.name)).get("PPid") == str(self._process.pid):
                yield int(path.name)

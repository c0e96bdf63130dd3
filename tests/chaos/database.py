"""A PostgreSQL of the run, with fsync on, that is restarted in fast and in immediate mode."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

from service.embedded_postgres.lifecycle import postgres

# After an immediate shutdown the next start recovers.
MODES = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Postgres:
    """The embedded server in a directory. Its port changes at each start."""

    def __init__(self, home: Path) -> None:
        self._home = home / "postgres"
        self._running = AsyncExitStack()
        self.url = ""

    @property
    def port(self) -> int | None:
        return urlsplit(self.url).port

    async def start(self) -> None:
        """Start the server and set its address."""
        async with AsyncExitStack() as stack:
            self.url = await stack.enter_async_context(postgres(self._home))
            self._running = stack.pop_all()

    async def stop(self, mode: str = "fast") -> None:
        """Shut the server down."""
        pid = int((self._home / "cluster" / "postmaster.pid").read_text().split("\n")[0])
        with suppress(ProcessLookupError):
            os.kill(pid, MODES[mode])
        await asyncio.shield(self._running.aclose())

    async def restart(self, mode: str) -> None:
        """Shut the server down and start it again."""
        await self.stop(mode)
        await self.start()

"""A PostgreSQL of the run's own, with fsync on, that is restarted the gentle way and the other."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack, suppress
from urllib.parse import urlsplit

from service.embedded_postgres.lifecycle import postgres

# The second recovers when it is started again
MODES = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Postgres:
    """The embedded server in a directory; its port is another one after each start."""

    def __init__(self, home):
        self._home = home / "postgres"
        self._running = None
        self.url = None

    @property
    def port(self):
        return urlsplit(self.url).port

    async def start(self):
        async with AsyncExitStack() as stack:
            self.url = await stack.enter_async_context(postgres(self._home))
            self._running = stack.pop_all()

    async def stop(self, mode="fast"):
        pid = int((self._home / "cluster" / "postmaster.pid").read_text().split("\n")[0])
        with suppress(ProcessLookupError):
            os.kill(pid, MODES[mode])
        await asyncio.shield(self._running.aclose())

    async def restart(self, mode):
        await self.stop(mode)
        await self.start()

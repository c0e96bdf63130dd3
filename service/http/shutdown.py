"""The state of a graceful shutdown."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

#: Time for running work after the drain. Supervisors often kill after 30 seconds.
STOP_SECONDS = 23


class GracefulShutdown:
    """Tells the parts of the process to stop: claim no work, keep no connection alive."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._deadline = 0.0  # monotonic, set when the shutdown begins
        #: True once each response closes its connection.
        self.closes_connections = False

    def begin(self, drain: float = 0) -> None:
        """Begin the shutdown, with seconds in which requests are accepted. Has effect once."""
        if not self._begun.is_set():
            self._deadline = time.monotonic() + drain + STOP_SECONDS
            self._begun.set()

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    def left(self) -> float:
        """Return the seconds that running work may still take."""
        return max(0.0, self._deadline - time.monotonic())

    @asynccontextmanager
    async def stopping(self, stop: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
        """Call `stop` once when the shutdown begins or the block ends, and wait for it."""

        async def stop_at_shutdown() -> None:
            await self._begun.wait()
            await stop()

        task = asyncio.create_task(stop_at_shutdown())
        try:
            yield
        finally:
            self.begin()
            await task

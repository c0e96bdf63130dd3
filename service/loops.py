"""Background work: loops with one way to start, wake and stop, which continue after errors."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress

from service.errors import describe_error, format_traceback


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait until an event is set, at most for some seconds. Return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


@asynccontextmanager
async def running(work: Coroutine[object, None, None]) -> AsyncIterator[None]:
    """Run a task during the block, then cancel it until it ends.

    One cancellation may be lost: a connection that fails at the same time can hide it.
    """
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)


class Loop:
    """Background work in rounds, with a pause of `pause` seconds after each.

    `name` begins its log messages. An error ends a round and is logged, in one line if it is one of
    `transient`. Setting `woken` ends the pause.
    """

    def __init__(
        self,
        name: str,
        pause: float,
        transient: tuple[type[Exception], ...] = (),
        woken: asyncio.Event | None = None,
    ) -> None:
        self.woken = woken or asyncio.Event()
        self.beat = time.monotonic()  # end of the latest round without an unexpected error
        self._name = name
        self._pause = pause
        self._transient = transient
        self._is_stopping = False
        self._stopped = asyncio.Event()
        self._log = logging.getLogger(type(self).__module__)

    async def work(self) -> float | None:
        """Do one round. Return the seconds until the next one, or None for the usual pause."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release what the rounds have used. Does nothing by default."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Repeat rounds during the block. At its end, cancel the current round and close."""
        try:
            async with running(self._run()):
                yield
        finally:
            await self.close()

    async def stop(self) -> None:
        """Begin no further round, and wait for the current one."""
        self._is_stopping = True
        self.woken.set()
        await self._stopped.wait()

    async def _run(self) -> None:
        try:
            while not self._is_stopping:
                self.woken.clear()
                pause = await self._do_round()
                await wait_for_event(self.woken, self._pause if pause is None else pause)
        finally:
            self._stopped.set()

    async def _do_round(self) -> float | None:
        try:
            pause = await self.work()
        except self._transient as error:
            self._log.warning("%s: %s", self._name, describe_error(error))
            pause = None
        except Exception as error:
            self._log.error("%s: failed\n%s", self._name, format_traceback(error))
            return None
        self.beat = time.monotonic()
        return pause

"""Limits of the connections of a process to the portal, in all and for each taxpayer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary


class NoConnectionFree(TimeoutError):
    """No connection became free in time."""


class FairConnections:
    """Limits a process to `size` connections, of which each taxpayer has at most a third.

    Slow responses of one taxpayer therefore leave connections to the others.
    """

    def __init__(self, size: int) -> None:
        self._share = max(1, size // 3)
        self._all = asyncio.Semaphore(size)
        #: Semaphores of the taxpayers that hold a connection or wait for one.
        self._taxpayers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def connection(self, taxpayer: str, seconds: float) -> AsyncIterator[None]:
        """Hold a connection during the block. Raises NoConnectionFree after `seconds`."""
        own = self._taxpayers.setdefault(taxpayer, asyncio.Semaphore(self._share))
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(seconds):
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._all)
            except TimeoutError:
                raise NoConnectionFree from None
            yield

"""Semaphore that shares a process's connections to the portal fairly between taxpayers."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NoConnectionFree(TimeoutError):
    """No connection became free in time."""


class FairConnections:
    """Limits a process to `size` connections, granted to taxpayers in turn and FIFO within each.

    Requests for no taxpayer, whose name is empty, have a turn like a taxpayer.
    While another taxpayer waits, each has at most a third of the connections. Otherwise one has at
    most two thirds, so that another one gets a connection at once.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._used: dict[str, int] = {}  # connections by taxpayer; never 0
        #: Queues by taxpayer, in the order of turns; never empty.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def connection(self, taxpayer: str, seconds: float) -> AsyncIterator[None]:
        """Hold a connection during the block. Raises NoConnectionFree after `seconds`."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(taxpayer, deque()).append(turn)
        try:
            self._serve()
            await self._wait(turn, seconds)
            yield
        finally:
            self._end(taxpayer, turn)

    async def _wait(self, turn: asyncio.Future[None], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await turn
        except TimeoutError:
            raise NoConnectionFree from None

    def _end(self, taxpayer: str, turn: asyncio.Future[None]) -> None:
        """End a wait or a use. A connection that was granted at the same moment is passed on."""
        turns = self._waiting.get(taxpayer, deque())
        if turn.done() and not turn.cancelled():
            self._used[taxpayer] -= 1
            if not self._used[taxpayer]:
                del self._used[taxpayer]
        elif turn in turns:  # else `_serve` has skipped it because it was cancelled
            turns.remove(turn)
            if not turns:
                del self._waiting[taxpayer]
        self._serve()

    def _is_free(self, taxpayer: str) -> bool:
        """Return whether the taxpayer may have one more connection."""
        is_crowded = any(other != taxpayer for other in self._waiting)
        most = max(1, self._size // 3 if is_crowded else self._size * 2 // 3)
        return sum(self._used.values()) < self._size and self._used.get(taxpayer, 0) < most

    def _serve(self) -> None:
        """Grant the free connections to the waiting taxpayers in turn."""
        while free := [taxpayer for taxpayer in self._waiting if self._is_free(taxpayer)]:
            taxpayer = free[0]
            turns = self._waiting.pop(taxpayer)
            turn = turns.popleft()
            if turns:
                self._waiting[taxpayer] = turns  # behind the others
            if not turn.done():
                self._used[taxpayer] = self._used.get(taxpayer, 0) + 1
                turn.set_result(None)

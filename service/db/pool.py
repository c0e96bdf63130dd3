"""A pool of connections to PostgreSQL that serves its callers in the order of their arrival.

The pool of asyncpg gives a returned connection to the caller that asks first, so that under load
some callers are overtaken many times. This one gives it to the caller that has waited longest.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from service.db.connections import Connection


class Pool:
    """Lends up to `size` connections, which `connect` opens when they are needed.

    A place is the right to have one connection open.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self.size = size
        self._connect = connect
        self._free_places = size
        self._open: set[Connection] = set()
        #: Connections with the monotonic time of their return, the most recently used last.
        self._idle: list[tuple[Connection, float]] = []
        #: A waiter gets a connection, or None for a place.
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._is_closed = False

    @property
    def in_use(self) -> int:
        """The number of connections that are lent."""
        return len(self._open) - len(self._idle)

    @property
    def waiting(self) -> int:
        """The number of callers that wait for a connection."""
        return sum(not waiter.done() for waiter in self._waiters)

    async def fill(self, count: int) -> None:
        """Open connections. Raises the error of `connect`."""
        for conn in [(await self.acquire(None))[0] for _ in range(count)]:
            self.release(conn)

    async def acquire(self, seconds: float | None) -> tuple[Connection, float]:
        """Lend a connection, and return it with the seconds for which it was idle.

        Raises TimeoutError if there is none within `seconds`.
        """
        while self._idle:
            conn, returned_at = self._idle.pop()
            if not conn.is_closed():
                return conn, time.monotonic() - returned_at
            self._discard(conn)
        if not self._free_places:
            conn = await self._wait(seconds)
            if conn is not None:
                return conn, 0.0
        else:
            self._free_places -= 1
        async with asyncio.timeout(seconds):
            return await self._open_one(), 0.0

    def take_recent(self, seconds: float) -> Connection | None:
        """Lend the connection that was used last, if it was idle for less than `seconds`."""
        if not self._idle or time.monotonic() - self._idle[-1][1] >= seconds:
            return None
        conn, _ = self._idle.pop()
        if not conn.is_closed():
            return conn
        self._discard(conn)
        return None

    def release(self, conn: Connection) -> None:
        """Take a connection back. One that is in a transaction is terminated."""
        if not conn.is_closed() and (self._is_closed or conn.is_in_transaction()):
            conn.terminate()
        if conn.is_closed():
            self._discard(conn)
        elif not self._wake(conn):
            self._idle.append((conn, time.monotonic()))

    def terminate_idle(self) -> None:
        """Terminate the idle connections, after one was found to be dead."""
        for conn, _ in self._idle:
            conn.terminate()

    async def close(self) -> None:
        """Close the idle connections. Lent ones are terminated when they return."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(conn.close() for conn, _ in idle), return_exceptions=True)

    def terminate(self) -> None:
        """Terminate all connections."""
        self._is_closed = True
        for conn in self._open:
            conn.terminate()

    async def _open_one(self) -> Connection:
        try:
            conn = await self._connect()
        except BaseException:
            self._free_place()
            raise
        self._open.add(conn)
        return conn

    async def _wait(self, seconds: float | None) -> Connection | None:
        """Wait for a connection, or for None: a place. A timer costs less than asyncio.timeout."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Connection | None] = loop.create_future()
        self._waiters.append(waiter)
        timer = None if seconds is None else loop.call_later(seconds, _give_up, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            # It may have been woken, or given up, and cancelled at the same time.
            if not waiter.cancelled() and waiter.exception() is None:
                conn = waiter.result()
                self._free_place() if conn is None else self.release(conn)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _discard(self, conn: Connection) -> None:
        self._open.discard(conn)
        self._free_place()

    def _free_place(self) -> None:
        if not self._wake(None):
            self._free_places += 1

    def _wake(self, conn: Connection | None) -> bool:
        """Give a connection or a place to the first waiter. Return whether there was one."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(conn)
                return True
        return False


def _give_up(waiter: asyncio.Future[Connection | None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())

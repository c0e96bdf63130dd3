"""A pool of connections to PostgreSQL that is fair to the clients of the service.

The pool of asyncpg gives a returned connection to the caller that asks first, so that under load
some callers are overtaken many times. This one lends its connections by a FairQueue.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress

from service.config import SILENCE_SECONDS
from service.db.compatibility import APPLICATION_NAME
from service.db.connections import TRANSIENT_DB_ERRORS, Connection, connect
from service.fair_queue import CLIENT, FairQueue

SERVICE_ROLE = "einvoice_service"
BACKGROUND_CONNECTIONS = 4  # Connections of a process for background work.
CLOSE_SECONDS = 2
MOST_WAITING = 1000  # Callers that may wait for a connection; more would wait in vain.
RECONNECT_SECONDS = 0.2  # Between two attempts to connect while no server accepts connections.
STATEMENT_SECONDS = 7  # Longer than the server's statement_timeout.
#: The settings of every connection of the service, which the server enforces.
SESSION = {
    "role": SERVICE_ROLE,
    "application_name": APPLICATION_NAME,
    "statement_timeout": "5s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "client_min_messages": "warning",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",  # Planning takes longer than most statements run.
}


class Pool:
    """Lends up to `size` connections, which `connect` opens when they are needed."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self.size = size
        self._connect = connect
        self._places = FairQueue(size, MOST_WAITING)
        #: The open connections, with the client to which they are lent.
        self._open: dict[Connection, Hashable] = {}
        #: Connections with the monotonic time of their return, the most recently used last.
        self._idle: list[tuple[Connection, float]] = []
        self._is_closed = False

    @property
    def in_use(self) -> int:
        return len(self._open) - len(self._idle)

    @property
    def waiting(self) -> int:
        return self._places.waiting

    async def acquire(self, seconds: float | None) -> tuple[Connection, float]:
        """Lend a connection, and return it with the seconds for which it was idle.

        Raises TimeoutError if there is none within `seconds`, or if too many callers wait.
        """
        await self._places.enter(seconds)
        if found := self._take_idle(0):
            return found
        try:
            async with asyncio.timeout(seconds):
                conn = await self._connect()
        except BaseException:
            self._places.leave(CLIENT.get())
            raise
        self._open[conn] = CLIENT.get()
        return conn, 0.0

    def take_recent(self, seconds: float) -> Connection | None:
        """Lend the connection that was used last, if it was idle for less than `seconds`."""
        earliest = time.monotonic() - seconds
        if not self._idle or self._idle[-1][1] <= earliest or not self._places.enter_at_once():
            return None
        if found := self._take_idle(earliest):
            return found[0]
        self._places.leave(CLIENT.get())
        return None

    def release(self, conn: Connection) -> None:
        """Take a connection back. One that is in a transaction is terminated."""
        client = self._open[conn]
        if not conn.is_closed() and (self._is_closed or conn.is_in_transaction()):
            conn.terminate()
        if conn.is_closed():
            del self._open[conn]
        else:
            self._idle.append((conn, time.monotonic()))
        self._places.leave(client)

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
        self._is_closed = True
        for conn in self._open:
            conn.terminate()

    def _take_idle(self, earliest: float) -> tuple[Connection, float] | None:
        """Return the idle connection that was used last, and for how long it was idle.

        Return None if there is none that was used later than `earliest`. Dead ones are removed.
        """
        while self._idle and self._idle[-1][1] > earliest:
            conn, returned_at = self._idle.pop()
            if not conn.is_closed():
                self._open[conn] = CLIENT.get()
                return conn, time.monotonic() - returned_at
            del self._open[conn]
        return None


@asynccontextmanager
async def connected_pool(
    url: str, size: int, silence: int = SILENCE_SECONDS
) -> AsyncIterator[Pool]:
    """Yield a pool of the service's role with the settings of SESSION, on the primary.

    During a failover the address may lead to a standby, where rows may be outdated. `silence` is in
    seconds, as in `connect`.
    """
    options = {"command_timeout": STATEMENT_SECONDS, "target_session_attrs": "primary"}
    pool = Pool(lambda: connect(url, SESSION, silence=silence, **options), size)
    try:
        for conn in [(await pool.acquire(None))[0] for _ in range(min(2, size))]:
            pool.release(conn)
        yield pool
    finally:
        # A server that is away cannot close its end; what is left is terminated.
        with suppress(*TRANSIENT_DB_ERRORS):
            async with asyncio.timeout(CLOSE_SECONDS):
                await pool.close()
        pool.terminate()

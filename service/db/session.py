"""The process's dedicated PostgreSQL session, for advisory locks and LISTEN/NOTIFY."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import NamedTuple

import asyncpg

from service.config import Config
from service.db.compatibility import SchemaError, check_newer_schema
from service.db.connections import TRANSIENT_DB_ERRORS, UNAVAILABLE, connect
from service.db.pool import (
    CLOSE_SECONDS,
    RECONNECT_SECONDS,
    SESSION,
    STATEMENT_SECONDS,
)
from service.db.statements import sql
from service.errors import Unavailable, describe_error, retry_after
from service.loops import Loop, wait_for_event

HEARTBEAT_SECONDS = 0.25

log = logging.getLogger(__name__)


class Seen(NamedTuple):
    """A moment in which a database has answered a statement.

    `identity` is that of database_identity(). `at` is the time of its clock, and `began` the
    monotonic time before the statement.
    """

    identity: str
    at: datetime
    began: float

    def now(self, monotonic: float) -> datetime:
        """Return the time of the database's clock at a monotonic time."""
        return self.at + timedelta(seconds=monotonic - self.began)


class DedicatedSession(Loop):
    """One connection of a process, for state that belongs to a session: locks and notifications.

    A paused process keeps its locks, a process that dies loses them at once, and one whose host
    vanishes loses them within DATABASE_SILENCE_SECONDS. All locks are lost with the connection.
    `heartbeat` is the latest moment in which the database has answered: notifications of changes
    that were acknowledged before it have arrived. It is None without a connection that receives
    them.

    While it is connected it checks that no newer migration excludes this version of the service. If
    one does, it stops the process, as SIGTERM would.
    """

    def __init__(self, config: Config, listeners: Mapping[str, Callable[[str], None]]) -> None:
        """Prepare a session. `listeners` are {channel: function of the payload}."""
        super().__init__("dedicated session", RECONNECT_SECONDS, TRANSIENT_DB_ERRORS)
        self._config = config
        self._listeners = listeners
        self._conn: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()  # A connection runs one statement at a time.
        self._held: set[tuple[int, int]] = set()
        self._lost = asyncio.Event()
        self._made = asyncio.Event()
        self._is_excluded = False
        self.heartbeat: Seen | None = None
        self.on_reconnect: list[Callable[[], object]] = []

    async def work(self) -> float:
        """Connect, and wait until the connection is lost. The next round reconnects at once."""
        conn = await self._connect()
        await self._check_connection(conn)
        while not await wait_for_event(self._lost, HEARTBEAT_SECONDS):
            await self._check_connection(conn)
        self.heartbeat = None
        self._made.clear()
        log.warning("dedicated session: the connection was lost")
        return 0

    async def _check_connection(self, conn: asyncpg.Connection) -> None:
        """Note the heartbeat, and check the schema.

        Terminates a connection that does not answer, such as a lost one.
        """
        try:
            async with self._turn, asyncio.timeout(self._config.database_acquire):
                began = time.monotonic()
                row = await sql.session_heartbeat(conn)
                await check_newer_schema(conn)
            hears = self._listeners.keys() <= set(row["channels"])
            self.heartbeat = Seen(row["identity"], row["at"], began) if hears else None
        except SchemaError as error:
            self._stop_process(error)
        except Exception:
            conn.terminate()
            self._lost.set()

    def _stop_process(self, error: SchemaError) -> None:
        if not self._is_excluded:  # A second signal would end it at once.
            self._is_excluded = True
            log.error("dedicated session: this process stops. %s", error)
            signal.raise_signal(signal.SIGTERM)

    async def _connect(self) -> asyncpg.Connection:
        lost = asyncio.Event()
        timeouts = {"timeout": self._config.database_acquire, "command_timeout": STATEMENT_SECONDS}
        url, silence = self._config.database_url, self._config.database_silence
        conn = await connect(url, SESSION, silence=silence, **timeouts)
        conn.add_termination_listener(lambda _: lost.set())
        for channel, heard in self._listeners.items():
            await conn.add_listener(channel, lambda *args, heard=heard: heard(args[3]))
        self._lost, self._held, self._conn = lost, set(), conn
        self._made.set()
        for wake in self.on_reconnect:
            wake()
        return conn

    async def answers(self) -> bool:
        """Return whether PostgreSQL answers a statement of this session now."""
        conn = self._conn
        if conn is None or conn.is_closed():
            return False
        try:
            async with asyncio.timeout(self._config.database_answer), self._turn:
                await sql.database_now(conn)
            return True
        except TRANSIENT_DB_ERRORS:
            return False

    async def connected(self) -> None:
        await self._made.wait()

    async def ready(self) -> None:
        """Wait a limited time for a connection. Raises Unavailable: no lock can be taken."""
        if not await wait_for_event(self._made, self._config.database_acquire):
            raise Unavailable(UNAVAILABLE, retry_after(2))

    @asynccontextmanager
    async def lock_submissions(
        self, company_id: int, submission_ids: list[int]
    ) -> AsyncIterator[set[int]]:
        """Lock submissions for this process during the block, and yield those that were free."""
        wanted = [number for number in submission_ids if (company_id, number) not in self._held]
        conn = self._conn
        if conn is None or conn.is_closed() or not wanted:
            yield set()
            return
        keys, got = {(company_id, number) for number in wanted}, set()
        self._held |= keys
        try:
            async with self._turn:
                rows = await sql.submission_locks_try(conn, company_id=company_id, ids=wanted)
            got = {row["id"] for row in rows}
            try:
                yield got
            finally:
                if got:
                    await self._release(conn, company_id, list(got))
        finally:
            self._held -= keys

    async def _release(self, conn: asyncpg.Connection, company_id: int, ids: list[int]) -> None:
        """Release locks. If that fails, terminate the connection, with which they end."""
        if conn.is_closed():
            return
        try:
            async with self._turn:
                await sql.submission_locks_release(conn, company_id=company_id, ids=ids)
        except TRANSIENT_DB_ERRORS as error:
            log.warning("dedicated session: locks are not released: %s", describe_error(error))
            conn.terminate()

    async def close(self) -> None:
        """Close the connection, which releases its locks."""
        if self._conn is not None and not self._conn.is_closed():
            with suppress(*TRANSIENT_DB_ERRORS):
                await self._conn.close(timeout=CLOSE_SECONDS)

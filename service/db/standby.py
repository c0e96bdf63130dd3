"""Reads on a streaming standby that show all writes that were acknowledged before they began.

A read asks the primary for the position of its write-ahead log, waits until the standby has
replayed that position, and then runs on the standby. Concurrent reads of a process share the first
two steps. So a read shows the writes of all processes, and no process keeps positions of writes.

A read that the standby cannot serve runs on the primary. After some failures no read tries the
standby until a probe in the background has succeeded.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import asyncpg

from service.config import Config
from service.db.connections import Connection, connect
from service.db.pool import Pool
from service.db.statements import Statement, sql
from service.db.transactions import (
    SESSION,
    STATEMENT_SECONDS,
    TRANSIENT_DB_ERRORS,
    Database,
    database_bounds,
    is_lost,
    run_read_only,
    terminate_interrupted,
)
from service.errors import describe_error
from service.loops import Loop

PROBE_SECONDS = 1
#: The pauses before each question for the replayed position, in seconds; their sum is the longest
#: wait for a standby that is behind.
PAUSES = (0, 0.001, 0.002, 0.004, 0.008, 0.015, 0.02)
READ_SESSION = {**SESSION, "default_transaction_read_only": "on"}

_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


class Reason(StrEnum):
    """The reason why a read runs on the primary, as a label of the metric."""

    STARTING = "starting"  # no probe has succeeded yet
    LOST = "lost"  # no connection, or a lost one
    SILENT = "silent"  # no response in time
    LAGGING = "lagging"  # not replayed in time
    FOREIGN = "foreign"  # promoted, or not a standby of this database
    BUSY = "busy"  # no free connection
    CANCELLED = "cancelled"  # by PostgreSQL, such as a conflict with recovery
    ERROR = "error"  # any other error of the statement
    NO_POSITION = "no_position"  # the position of the primary is not known


#: Reasons that close the connections to the standby.
CLOSING = {Reason.LOST, Reason.SILENT, Reason.FOREIGN}
#: Reasons after which no read tries the standby before the next probe has succeeded.
SUSPENDING = {*CLOSING, Reason.LAGGING}
#: SQLSTATEs of cancelled statements: a conflict with recovery, a time limit, a deadlock.
CANCELLED_SQLSTATES = {"40001", "40P01", "57014"}


class Unusable(Exception):
    """The standby does not serve a read now."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True, eq=False)
class Server:
    """One of the servers behind the address of the standby.

    `position` is the last one that was seen. `started` and `finished` number the waits for replay,
    of which one runs at a time, and `failure` is the reason of the last one if it failed.
    """

    position: int = 0
    started: int = 0
    finished: int = 0
    failure: Reason | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Standby:
    """Connections to the standby, from the first probe until a failure closes all of them."""

    def __init__(self, config: Config, positions: Database) -> None:
        self._config = config
        self._positions = positions
        self._bounds = database_bounds(config)
        self._pool = Pool(self._connect, config.pool_size)
        self._monitor: Connection | None = None  # for probes, while the pool may be busy
        self._servers: dict[str, Server] = {}
        self._server_of: WeakKeyDictionary[Connection, Server] = WeakKeyDictionary()
        self._is_closed = False

    async def probe(self) -> None:
        """Check that the standby can serve reads. Raises Unusable."""
        if self._monitor is None:
            self._monitor = await self._connect()
        with _unusable_after_errors(self._monitor):
            await self._catch_up(self._monitor)

    async def run(self, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Return the result of `work`, which sees all earlier writes. Raises Unusable."""
        conn = await self._acquire()
        try:
            with _unusable_after_errors(conn):
                await self._catch_up(conn)
                return await work(conn)
        finally:
            self._pool.release(conn)

    def close(self) -> None:
        """Terminate all connections, so that running statements end too."""
        self._is_closed = True
        self._pool.terminate()
        if self._monitor is not None:
            self._monitor.terminate()

    async def _acquire(self) -> Connection:
        try:
            return (await self._pool.acquire(self._bounds.answer))[0]
        except TimeoutError as error:
            raise Unusable(Reason.BUSY) from error

    async def _connect(self) -> Connection:
        if self._is_closed:
            raise Unusable(Reason.LOST)
        config = self._config
        with _unusable_after_errors():
            conn = await connect(
                config.database_read_url,
                READ_SESSION,
                silence=config.database_silence,
                timeout=self._bounds.acquire,
                command_timeout=STATEMENT_SECONDS,
            )
        try:
            with _unusable_after_errors(conn):
                row = await sql.standby_server(conn)
        except BaseException:
            conn.terminate()
            raise
        server = self._server_of[conn] = self._servers.setdefault(row["name"], Server())
        server.position = row["position"]
        return conn

    async def _catch_up(self, conn: Connection) -> None:
        """Wait until the server of a connection has replayed all that is committed now.

        Takes the result of another call's wait if that one starts later than this call. The
        connection was open at that time, so that the server was not restarted in between. Raises
        Unusable.
        """
        server = self._server_of[conn]
        needed = server.started + 1
        async with server.turn:
            if server.finished < needed:
                if self._is_closed:
                    raise Unusable(Reason.LOST)
                server.started += 1
                server.failure = await self._wait_for_replay(conn, server)
                server.finished = server.started
            if server.failure is not None:
                raise Unusable(server.failure)

    async def _wait_for_replay(self, conn: Connection, server: Server) -> Reason | None:
        """Return None once the server has replayed the position of the primary, else a reason."""
        seen, target = server.position, await self._read_target()
        if target is None or not target["is_current"]:
            return Reason.NO_POSITION
        if seen > target["position"]:
            return Reason.FOREIGN  # A standby is never ahead of its primary.
        for pause in PAUSES:
            await asyncio.sleep(pause)
            async with asyncio.timeout(self._bounds.answer):
                row = await sql.standby_position(conn)
            if row is None or not row["is_standby"]:
                return Reason.FOREIGN
            server.position = row["position"]
            if row["position"] >= target["position"]:
                return None if row["identity"] == target["identity"] else Reason.FOREIGN
        return Reason.LAGGING

    async def _read_target(self) -> asyncpg.Record | None:
        """Return the position of the primary, or None if it is not known."""
        try:
            async with asyncio.timeout(self._bounds.answer), self._positions.across() as conn:
                return await sql.primary_position(conn)
        except TRANSIENT_DB_ERRORS:
            return None


@contextmanager
def _unusable_after_errors(conn: Connection | None = None) -> Iterator[None]:
    """Raise Unusable for an error of the standby in the block."""
    try:
        yield
    except BaseException as error:
        if conn is not None:
            terminate_interrupted(conn, error)
        if isinstance(error, TRANSIENT_DB_ERRORS):
            raise Unusable(_find_reason(conn, error)) from error
        raise


def _find_reason(conn: Connection | None, error: BaseException) -> Reason:
    if isinstance(error, TimeoutError):
        return Reason.SILENT
    if conn is None or is_lost(conn, error):
        return Reason.LOST
    is_cancelled = getattr(error, "sqlstate", None) in CANCELLED_SQLSTATES
    return Reason.CANCELLED if is_cancelled else Reason.ERROR


class StandbyReads(Loop):
    """Reads on the standby of DATABASE_READ_URL, or on the primary if that is not possible.

    `counts` are {(target, reason): reads}. `reason` is why no read tries the standby, or None.
    `positions` is the primary, by a connection that the requests cannot use up.
    """

    def __init__(self, config: Config, primary: Database, positions: Database) -> None:
        super().__init__("standby", PROBE_SECONDS)
        self._config = config
        self._primary = primary
        self._positions = positions
        self._standby: Standby | None = None
        self.counts: Counter[tuple[str, str]] = Counter()
        self.reason: Reason | None = Reason.STARTING
        self.unused_since: datetime | None = None

    async def read(self, statement: Statement, **values: Any) -> Any:
        """Run a statement that reads rows of its company or account. Raises Unavailable."""
        found = await self._try(lambda conn: statement.run_isolated(conn, values))
        return found[0] if found else await self._primary.read(statement, **values)

    async def read_with(
        self, company_id: int, work: Callable[[Connection], Awaitable[_Result]]
    ) -> _Result:
        """Run `work` in a read-only transaction of one company, perhaps twice.

        Raises Unavailable.
        """
        seconds = database_bounds(self._config).answer
        found = await self._try(lambda conn: run_read_only(conn, company_id, work, seconds))
        return found[0] if found else await self._primary.read_with(company_id, work)

    async def work(self) -> None:
        """Open the standby, or check it."""
        if self._standby is None:
            self._standby = Standby(self._config, self._positions)
        standby = self._standby
        try:
            await standby.probe()
        except Unusable as error:
            self._suspend(standby, error)
        else:
            self._note(None)

    async def close(self) -> None:
        """Close the connections to the standby."""
        if self._standby is not None:
            self._standby.close()

    async def _try(self, work: Callable[[Connection], Awaitable[_Result]]) -> tuple[_Result] | None:
        """Return the result of a read on the standby, or None if it must run on the primary."""
        standby, reason = self._standby, self.reason
        if standby is not None and reason is None:
            try:
                result = await standby.run(work)
            except Unusable as error:
                reason = error.reason
                if reason in SUSPENDING:
                    self._suspend(standby, error)
                    self.woken.set()
            else:
                self.counts["standby", ""] += 1
                return (result,)
        self.counts["primary", reason or Reason.LOST] += 1
        return None

    def _suspend(self, standby: Standby, error: Unusable) -> None:
        """Let no read try the standby until a probe succeeds, and close it if necessary."""
        if standby is not self._standby:
            return  # Another read has closed it.
        if error.reason in CLOSING:
            standby.close()
            self._standby = None
        self._note(error)

    def _note(self, error: Unusable | None) -> None:
        """Note why no read tries the standby, and log a change."""
        reason = error.reason if error else None
        if reason == self.reason:
            return
        self.reason = reason
        if error is None:
            self.unused_since = None
            log.info("standby: reads run on it")
            return
        self.unused_since = self.unused_since or datetime.now(UTC)
        cause = f": {describe_error(error.__cause__)}" if error.__cause__ else ""
        log.warning("standby: reads run on the primary, reason=%s%s", reason, cause)

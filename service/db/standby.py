"""Reads on a streaming standby that show all writes that were acknowledged before they began.

A read asks the primary for the position of its write-ahead log, waits until the standby has
replayed that position, and then runs on the standby. Concurrent reads of a process share the first
two steps. So a read shows the writes of all processes, and no process keeps positions of writes.

A read that the standby cannot serve runs on the primary. The standby is usable or not: after a
failure of it, all connections are closed, and no read tries it until a probe has succeeded.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar
from weakref import WeakKeyDictionary

import asyncpg

from service.config import Config
from service.db.connections import TRANSIENT_DB_ERRORS, Connection, connect
from service.db.pool import SESSION, STATEMENT_SECONDS, Pool
from service.db.statements import Result, Statement, sql
from service.db.transactions import Database, is_lost, run_read_only, terminate_interrupted
from service.errors import describe_error
from service.loops import Loop

PROBE_SECONDS = 1
#: The pauses before each question for the replayed position, in seconds; their sum is the longest
#: wait for a standby that is behind.
PAUSES = (0, 0.001, 0.002, 0.004, 0.008, 0.015, 0.02)
READ_SESSION = {**SESSION, "default_transaction_read_only": "on"}
STARTING = "No probe has succeeded yet."
LAGGING = f"It is more than {round(sum(PAUSES) * 1000)} ms behind the primary."
FOREIGN = "It does not follow the primary."
NO_POSITION = "The position of the primary is not known, or its timeline is not noted yet."

_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


class Unusable(Exception):
    """The standby is not used until a probe succeeds; the text is for the log."""


class Skipped(Exception):
    """One read cannot run on the standby, which is used on."""


@dataclass(slots=True, eq=False)
class StandbyServer:
    """One of the servers behind the address of the standby.

    `position` is the last one that was seen. `started` and `finished` number the waits for replay,
    of which one runs at a time, and `failure` says why the last one failed.
    """

    position: int = 0
    started: int = 0
    finished: int = 0
    failure: str | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Standby:
    """Connections to the standby, from the first probe until a failure closes all of them."""

    def __init__(self, config: Config, positions: Database) -> None:
        self._config = config
        self._positions = positions
        self._pool = Pool(self._connect, config.pool_size)
        self._monitor: Connection | None = None  # for probes, while the pool may be busy
        self._servers: dict[str, StandbyServer] = {}
        self._server_of: WeakKeyDictionary[Connection, StandbyServer] = WeakKeyDictionary()
        self._is_closed = False

    async def probe(self) -> None:
        """Check that the standby can serve reads. Raises Unusable and Skipped."""
        if self._monitor is None:
            self._monitor = await self._connect()
        with _converting_errors(self._monitor):
            await self._catch_up(self._monitor)

    async def run(self, work: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        """Return the result of `work`, which sees all earlier writes. Raises as `probe`."""
        try:
            conn = (await self._pool.acquire(self._config.database_answer))[0]
        except TimeoutError as error:
            raise Skipped from error
        try:
            with _converting_errors(conn):
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

    async def _connect(self) -> Connection:
        self._check_open()
        config = self._config
        with _converting_errors():
            conn = await connect(
                config.database_read_url,
                READ_SESSION,
                silence=config.database_silence,
                timeout=config.database_acquire,
                command_timeout=STATEMENT_SECONDS,
            )
        try:
            with _converting_errors(conn):
                row = await sql.standby_position(conn)
        except BaseException:
            conn.terminate()
            raise
        server = self._server_of[conn] = self._servers.setdefault(row["name"], StandbyServer())
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
                self._check_open()
                server.started += 1
                server.failure = await self._wait_for_replay(conn, server)
                server.finished = server.started
            if server.failure is not None:
                raise Unusable(server.failure)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unusable("Its connections were closed.")

    async def _wait_for_replay(self, conn: Connection, server: StandbyServer) -> str | None:
        """Return None once the server has replayed the position of the primary, else why not."""
        seen, target = server.position, await self._read_target()
        if target is None or not target["is_current"]:
            return NO_POSITION
        if seen > target["position"]:
            return FOREIGN  # A standby is never ahead of its primary.
        for pause in PAUSES:
            await asyncio.sleep(pause)
            async with asyncio.timeout(self._config.database_answer):
                row = await sql.standby_position(conn)
            if not row["is_standby"]:
                return FOREIGN
            server.position = row["position"]
            if row["position"] >= target["position"]:
                return None if row["identity"] == target["identity"] else FOREIGN
        return LAGGING

    async def _read_target(self) -> asyncpg.Record | None:
        try:
            async with asyncio.timeout(self._config.database_answer):
                return await self._positions.call(sql.primary_position)
        except TRANSIENT_DB_ERRORS:
            return None


@contextmanager
def _converting_errors(conn: Connection | None = None) -> Iterator[None]:
    """Raise Skipped for an error of a statement in the block, else Unusable.

    Statements fail by a conflict with recovery or a time limit, for example.
    """
    try:
        yield
    except BaseException as error:
        if conn is not None:
            terminate_interrupted(conn, error)
        if not isinstance(error, TRANSIENT_DB_ERRORS):
            raise
        is_usable = isinstance(error, asyncpg.PostgresError) and conn and not is_lost(conn, error)
        raise (Skipped if is_usable else Unusable)(describe_error(error)) from error


class StandbyReads(Loop):
    """Reads on the standby of DATABASE_READ_URL while it is usable, else on the primary.

    `counts` are {target: reads}. `cause` says why the standby is not used, or is None. `positions`
    is the primary, by a connection that the requests cannot use up.
    """

    def __init__(self, config: Config, primary: Database, positions: Database) -> None:
        super().__init__("standby", PROBE_SECONDS)
        self._config = config
        self._primary = primary
        self._positions = positions
        self._standby: Standby | None = None
        self.counts: Counter[str] = Counter()
        self.cause: str | None = STARTING
        self.unused_since: datetime | None = None

    async def read(self, statement: Statement, **values: object) -> Result:
        """Run a statement that reads rows of its company or account. Raises Unavailable."""
        return await self._read(
            lambda conn: statement.run_isolated(conn, values),
            lambda: self._primary.read(statement, **values),
        )

    async def read_with(
        self, company_id: int, work: Callable[[Connection], Awaitable[_Result]]
    ) -> _Result:
        """Run `work` in a read-only transaction of one company, perhaps twice."""
        seconds = self._config.database_answer
        return await self._read(
            lambda conn: run_read_only(conn, company_id, work, seconds),
            lambda: self._primary.read_with(company_id, work),
        )

    async def work(self) -> None:
        standby = self._standby or Standby(self._config, self._positions)
        try:
            await standby.probe()
        except (Unusable, Skipped) as error:
            self._stop(standby, str(error))
        else:
            self._standby = standby
            self._note(None)

    async def close(self) -> None:
        if self._standby is not None:
            self._standby.close()

    async def _read(
        self,
        on_standby: Callable[[Connection], Awaitable[_Result]],
        on_primary: Callable[[], Awaitable[_Result]],
    ) -> _Result:
        """Return the result of a read, which runs on the primary if the standby cannot serve it."""
        if standby := self._standby:
            try:
                result = await standby.run(on_standby)
                self.counts["standby"] += 1
                return result
            except Skipped:
                pass
            except Unusable as error:
                if standby is self._standby:  # else another read has closed it
                    self._stop(standby, str(error))
                    self.woken.set()
        self.counts["primary"] += 1
        return await on_primary()

    def _stop(self, standby: Standby, cause: str) -> None:
        """Close the standby, which no read tries until a probe succeeds."""
        standby.close()
        self._standby = None
        self._note(cause)

    def _note(self, cause: str | None) -> None:
        """Note why no read tries the standby, and log a change."""
        if cause == self.cause:
            return
        self.cause = cause
        if cause is None:
            self.unused_since = None
            log.info("standby: reads run on it")
        else:
            self.unused_since = self.unused_since or datetime.now(UTC)
            log.warning("standby: reads run on the primary: %s", cause)


#: Reads that show all writes acknowledged before they began, on the primary or a standby.
Reads = Database | StandbyReads

"""PostgreSQL: the connection pool, and transactions isolated to one company or account."""

import asyncio
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

import asyncpg

from service.config import SILENCE_SECONDS, Config
from service.db.compatibility import APPLICATION_NAME
from service.db.connections import Connection, connect, count_warnings
from service.db.pool import Pool
from service.db.statements import Statement, sql
from service.errors import Busy, Unavailable, describe_error, retry_after

SERVICE_ROLE = "einvoice_service"
CLOSE_SECONDS = 2
STATEMENT_SECONDS = 7  # Longer than the server's statement_timeout.
UNAVAILABLE = "The service is not available for a moment, please try again."
BACKGROUND_CONNECTIONS = 4  # Connections of a process for background work.
CHECK_SECONDS = 1  # A connection that was idle for longer is checked before a lone statement.
RECONNECT_SECONDS = 0.2  # Between two attempts to connect while no server accepts connections.
TRIES = 3  # Attempts at work that PostgreSQL aborts.
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

#: The actor, the request and the client of a writing transaction, for the audit log.
_ACTOR = (
    "; set local app.actor = '{}'; set local app.request_id = '{}'"
    "; set local app.client_address = '{}'"
)
#: Begins a transaction and sets its company in one round trip. Only the protocol's simple query
#: takes two statements, and it takes no parameters; the id is formatted as an integer.
_BEGIN = "begin; set local app.company_id = '{:d}'" + _ACTOR
_BEGIN_READ = "begin read only; set local app.company_id = '{:d}'"
#: The same for an account of the integration surface.
_BEGIN_ACCOUNT = "begin; set local app.account_id = '{:d}'" + _ACTOR
_BEGIN_ACCOUNT_READ = "begin read only; set local app.account_id = '{:d}'"
#: The same for rows of people, who belong to no company.
_BEGIN_PERSON = "begin" + _ACTOR

#: Errors while PostgreSQL is away, restarting, or has no free connection. asyncpg raises an
#: InternalClientError for a connection that is cut in the middle of a response.
TRANSIENT_DB_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    Unavailable,
)
#: SQLSTATE classes and codes of transient errors: lost connection, insufficient resources,
#: shutdown, rollback, system error, lock not available, read-only transaction.
TRANSIENT_SQLSTATES = ("08", "53", "57", "40", "58", "55P03", "25006")

#: Transactions that PostgreSQL aborted because of another one, or of a plan that a migration made
#: invalid.
ABORTED_TRANSACTION_ERRORS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,
)

#: The writing transactions of retryable work that were, or may have been, committed.
_COMMITTED: ContextVar[list[bool] | None] = ContextVar("committed", default=None)
_PLAIN = re.compile(r"[A-Za-z0-9 .:_-]*", re.ASCII)
#: The actor, the id of the request, and the address of the client.
_acting: ContextVar[tuple[str, str, str]] = ContextVar("acting", default=("background", "", ""))

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the wait for PostgreSQL before a 503, in seconds."""

    acquire: float = 2.0  # For a connection.
    answer: float = 1.0  # For the result of a trivial statement; then the connection is dead.
    failover: float = 0.0  # For a server that accepts connections.


class IsolationError(RuntimeError):
    """Row-level security has a gap, so the service does not start. The text names the gaps."""


def database_bounds(config: Config) -> Bounds:
    """Return the configured limits."""
    waits = (config.database_acquire, config.database_answer, config.database_failover)
    return Bounds(*(wait.total_seconds() for wait in waits))


async def retry(
    work: Callable[_Params, Awaitable[_Result]], *args: _Params.args, **more: _Params.kwargs
) -> _Result:
    """Await `work`, and retry it if PostgreSQL aborts it, up to TRIES attempts in total.

    It is not retried once one of its writing transactions was, or may have been, committed.
    """
    outer = _COMMITTED.get()
    for left in reversed(range(TRIES)):
        committed: list[bool] = []
        token = _COMMITTED.set(committed)
        try:
            return await work(*args, **more)
        except asyncpg.PostgresError as error:
            if committed or not left or not is_aborted(error):
                raise
            log.warning("retry: %s", describe_error(error))
        finally:
            _COMMITTED.reset(token)
            if outer is not None:
                outer += committed
        await asyncio.sleep(random.uniform(0.01, 0.1))
    raise AssertionError


def set_actor(actor: str, request_id: str, client: str = "") -> Token[tuple[str, str, str]]:
    """Set the actor in the audit log for the present task and those that it starts.

    `client` is the text of an address, or empty.
    """
    if not _PLAIN.fullmatch(actor + request_id + client):
        raise ValueError("the actor, the request id or the address has a forbidden character")
    return _acting.set((actor, request_id, client))


def get_actor() -> dict[str, str]:
    """Return the actor of the present task, for a statement that sets it by itself."""
    actor, request_id, client = _acting.get()
    return {"actor": actor, "request_id": request_id, "client_address": client}


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Set the actor for the block and the tasks that it starts."""
    token = set_actor(actor, "")
    try:
        yield
    finally:
        _acting.reset(token)


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
        await pool.fill(min(2, size))
        yield pool
    finally:
        # A server that is away cannot close its end; what is left is terminated.
        with suppress(*TRANSIENT_DB_ERRORS):
            async with asyncio.timeout(CLOSE_SECONDS):
                await pool.close()
        pool.terminate()


def is_transient(error: BaseException) -> bool:
    """Return whether an error comes from the state of the database and not from a value."""
    if isinstance(error, asyncpg.PostgresError):
        return (getattr(error, "sqlstate", None) or "").startswith(TRANSIENT_SQLSTATES)
    return isinstance(error, TRANSIENT_DB_ERRORS)


def is_aborted(error: BaseException) -> bool:
    """Return whether PostgreSQL has certainly aborted the transaction, so that it can be repeated.

    A session that a shutdown ends reports that only before its commit. asyncpg raises an error of
    the connection then, whose cause is the report.
    """
    reports = (error, error.__cause__)
    if any(isinstance(report, asyncpg.AdminShutdownError) for report in reports):
        return True
    return isinstance(error, ABORTED_TRANSACTION_ERRORS)


def is_interruption(error: BaseException) -> bool:
    """Return whether the database interrupted work that did not cause the interruption.

    A statement that was cancelled because it ran too long may have caused it.
    """
    return is_transient(error) and not isinstance(error, asyncpg.QueryCanceledError)


class Reads(Protocol):
    """Reads that show all writes acknowledged before they began, on the primary or a standby."""

    async def read(self, statement: Statement, **values: Any) -> Any:
        """Run a statement that reads rows of its company or account. Raises Unavailable."""
        ...

    async def read_with(
        self, company_id: int, work: Callable[[Connection], Awaitable[_Result]]
    ) -> _Result:
        """Run `work` in a read-only transaction of one company, perhaps twice.

        Raises Unavailable.
        """
        ...


class Database:
    """Access to PostgreSQL for handlers and flows, by a pool with a bounded queue."""

    def __init__(self, pool: Pool, bounds: Bounds = Bounds()) -> None:
        self.pool = pool
        self._bounds = bounds

    async def read(self, statement: Statement, **values: Any) -> Any:
        """Run a statement that reads rows of its company or account, in one round trip.

        Raises Unavailable.
        """
        for left in (1, 0):
            conn = self.pool.take_recent(CHECK_SECONDS) or await self._acquire_checked()
            try:
                return await statement.run_isolated(conn, values)
            except BaseException as error:
                terminate_interrupted(conn, error)
                if not left or not is_lost(conn, error):
                    raise
                conn.terminate()
                self.pool.terminate_idle()
            finally:
                self.pool.release(conn)
        raise AssertionError

    async def write(self, statement: Statement, **values: Any) -> Any:
        """Run a statement that sets its company itself, in one round trip.

        Raises Unavailable. After an error other than an abort it may have been committed.
        """
        conn = self.pool.take_recent(CHECK_SECONDS) or await self._acquire_checked()
        try:
            with noting_commit(conn):
                return await statement(conn, **values)
        except BaseException as error:
            terminate_interrupted(conn, error)
            raise
        finally:
            self.pool.release(conn)

    @asynccontextmanager
    async def company(self, company_id: int) -> AsyncIterator[Connection]:
        """Yield a transaction that sees and writes the rows of one company. Raises Unavailable."""
        async with self._transaction(_BEGIN, company_id) as conn:
            yield conn

    @asynccontextmanager
    async def reading(self, company_id: int) -> AsyncIterator[Connection]:
        """Yield a read-only transaction of one company."""
        async with self._transaction(_BEGIN_READ, company_id) as conn:
            yield conn

    async def read_with(
        self, company_id: int, work: Callable[[Connection], Awaitable[_Result]]
    ) -> _Result:
        """Return the result of `work` in a read-only transaction of one company."""
        async with self.reading(company_id) as conn:
            return await work(conn)

    @asynccontextmanager
    async def account(self, account_id: int) -> AsyncIterator[Connection]:
        """Yield a transaction that sees and writes the rows of one account. Raises Unavailable."""
        async with self._transaction(_BEGIN_ACCOUNT, account_id) as conn:
            yield conn

    @asynccontextmanager
    async def reading_account(self, account_id: int) -> AsyncIterator[Connection]:
        """Yield a read-only transaction of one account."""
        async with self._transaction(_BEGIN_ACCOUNT_READ, account_id) as conn:
            yield conn

    @asynccontextmanager
    async def person(self) -> AsyncIterator[Connection]:
        """Yield a transaction that writes rows of people, with the actor for their log."""
        async with self._transaction(_BEGIN_PERSON) as conn:
            yield conn

    @asynccontextmanager
    async def across(self) -> AsyncIterator[Connection]:
        """Yield a connection without company and account: for shared tables and functions."""
        conn, _ = await self._acquire()
        try:
            yield conn
        except BaseException as error:
            terminate_interrupted(conn, error)
            raise
        finally:
            self.pool.release(conn)

    async def _acquire(self) -> tuple[Connection, float]:
        """Return a connection, and for how long it was idle. Raises Unavailable if none is free."""
        try:
            return await self._acquire_until(time.monotonic() + self._bounds.failover)
        except TimeoutError:
            raise _busy() from None

    async def _acquire_until(self, end: float) -> tuple[Connection, float]:
        """Lend a connection, and try again until `end` while no server accepts connections."""
        while True:
            try:
                return await self.pool.acquire(self._bounds.acquire)
            except TimeoutError:
                raise
            except TRANSIENT_DB_ERRORS as error:
                if time.monotonic() + RECONNECT_SECONDS >= end or not is_transient(error):
                    raise
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _acquire_checked(
        self, command: str = sql.ping.query, idle_seconds: float = CHECK_SECONDS
    ) -> Connection:
        """Return a connection that was idle for less than `idle_seconds` or has run a command.

        Raises Unavailable.
        """
        for left in (1, 0):
            conn, idle = await self._acquire()
            if idle < idle_seconds or await self._execute_first(conn, command, left):
                return conn
        raise AssertionError

    async def _execute_first(self, conn: Connection, command: str, left: int) -> bool:
        """Execute the first command on a lent connection, and return whether it is usable.

        A connection that is dead is replaced, with all idle ones, if there is a try left.
        """
        try:
            await conn.execute(command, timeout=self._bounds.answer)
            return True
        except BaseException as error:
            conn.terminate()
            self.pool.release(conn)
            if not left or not isinstance(error, TRANSIENT_DB_ERRORS):
                raise
            self.pool.terminate_idle()
            return False

    @asynccontextmanager
    async def _transaction(self, begin: str, *owner_id: int) -> AsyncIterator[Connection]:
        conn = await self._acquire_checked(begin.format(*owner_id, *_acting.get()), 0)
        try:
            try:
                yield conn
            except BaseException as error:
                await _roll_back(conn, error, self._bounds.answer)
                raise
            await _commit(conn, begin)
        finally:
            self.pool.release(conn)


async def run_read_only(
    conn: Connection,
    company_id: int,
    work: Callable[[Connection], Awaitable[_Result]],
    seconds: float,
) -> _Result:
    """Return the result of `work` in a read-only transaction of one company on a connection.

    `seconds` limits the rollback after an error.
    """
    await conn.execute(_BEGIN_READ.format(company_id))
    try:
        result = await work(conn)
    except BaseException as error:
        await _roll_back(conn, error, seconds)
        raise
    await conn.execute("commit")
    return result


def is_lost(conn: Connection, error: BaseException) -> bool:
    """Return whether a statement failed because its connection is lost.

    PostgreSQL cancels a slow statement before STATEMENT_SECONDS: after a TimeoutError, the
    connection is silently dead.
    """
    if isinstance(error, (asyncpg.AdminShutdownError, asyncpg.CrashShutdownError)):
        return True
    return conn.is_closed() and isinstance(error, TRANSIENT_DB_ERRORS)


def _busy() -> Busy:
    return Busy("The service is busy, please try again.", retry_after(2))


async def _roll_back(conn: Connection, error: BaseException, seconds: float) -> None:
    """Roll back, or terminate a connection that does not answer in time, to the same effect."""
    terminate_interrupted(conn, error)
    if conn.is_closed():
        return
    try:
        async with asyncio.timeout(seconds):
            await conn.execute("rollback")
    except TRANSIENT_DB_ERRORS:
        conn.terminate()


def terminate_interrupted(conn: Connection, error: BaseException) -> None:
    """Terminate a connection whose statement may still be running."""
    if isinstance(error, (TimeoutError, asyncio.CancelledError)):
        conn.terminate()


async def _commit(conn: Connection, begin: str) -> None:
    if "read only" in begin:
        await conn.execute("commit")
        return
    with noting_commit(conn):
        await conn.execute("commit")


@contextmanager
def noting_commit(conn: Connection) -> Iterator[None]:
    """Note that the block committed a transaction, so that it is not retried.

    After an error other than an abort, the commit may have happened. Raises Unavailable after a
    warning: the transaction is committed, but no synchronous standby has confirmed it.
    """
    error: asyncpg.PostgresError | None = None
    warnings = count_warnings(conn)
    try:
        yield
    except asyncpg.PostgresError as raised:
        error = raised
        raise
    finally:
        committed = _COMMITTED.get()
        if committed is not None and not (error and is_aborted(error)):
            committed.append(True)
    if count_warnings(conn) > warnings:
        raise Unavailable(UNAVAILABLE, retry_after(2))


async def check_tenant_isolation(conn: Connection) -> None:
    """Raise IsolationError with the gaps in the isolation of companies and accounts, if any."""
    gaps = [row["gap"] for row in await sql.tenant_isolation_gaps(conn)]
    if gaps:
        raise IsolationError("Tenant isolation has gaps: " + "; ".join(gaps))

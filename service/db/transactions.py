"""PostgreSQL: the connection pool, and transactions isolated to one company or account."""

import asyncio
import functools
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from service.config import SILENCE_SECONDS, Config
from service.db.connections import Connection, create_pool
from service.db.statements import sql
from service.errors import Unavailable, describe_error, retry_after

SERVICE_ROLE = "einvoice_service"
MAX_WAITING = 1000  # Requests that may wait for a connection; more would wait in vain.
CLOSE_SECONDS = 2
STATEMENT_SECONDS = 7  # Longer than the server's statement_timeout.
UNAVAILABLE = "The service is not available for a moment, please try again."
BACKGROUND_CONNECTIONS = 4  # Connections of a process for background work.
TRIES = 3  # Attempts at work that PostgreSQL aborts.
#: The settings of every connection of the service, which the server enforces.
SESSION = {
    "role": SERVICE_ROLE,
    "application_name": "einvoice",
    "statement_timeout": "5s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "jit": "off",
}

#: The actor and the request of a writing transaction, for the audit log.
_ACTOR = "; set local app.actor = '{}'; set local app.request_id = '{}'"
#: Begins a transaction and sets its company in one round trip. Only the protocol's simple query
#: takes two statements, and it takes no parameters; the id is formatted as an integer.
_BEGIN = "begin; set local app.company_id = '{:d}'" + _ACTOR
_BEGIN_READ = "begin read only; set local app.company_id = '{:d}'"
#: The same for an account of the integration surface.
_BEGIN_ACCOUNT = "begin; set local app.account_id = '{:d}'" + _ACTOR
_BEGIN_ACCOUNT_READ = "begin read only; set local app.account_id = '{:d}'"
#: A generic plan for statements with a limit, which would otherwise be planned at every call.
_BEGIN_PAGE = _BEGIN_READ + "; set local plan_cache_mode = force_generic_plan"
#: A custom plan for statements with optional filters, so that it uses their indexes.
_BEGIN_SEARCH = _BEGIN_READ + "; set local plan_cache_mode = force_custom_plan"

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
_COMMITTED: ContextVar[list[str] | None] = ContextVar("committed", default=None)
_PLAIN = re.compile(r"[A-Za-z0-9 ._-]*", re.ASCII)
_acting: ContextVar[tuple[str, str]] = ContextVar("acting", default=("background", ""))

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the wait for PostgreSQL before a 503, in seconds."""

    acquire: float = 2.0  # For a connection.
    answer: float = 1.0  # For the result of a trivial statement; then the connection is dead.


def database_bounds(config: Config) -> Bounds:
    """Return the configured limits."""
    return Bounds(config.database_acquire.total_seconds(), config.database_answer.total_seconds())


def retry_transient(
    work: Callable[_Params, Awaitable[_Result]],
) -> Callable[_Params, Awaitable[_Result]]:
    """Decorate a coroutine function so that it is retried as by `retry`."""

    @functools.wraps(work)
    async def run(*args: _Params.args, **more: _Params.kwargs) -> _Result:
        return await retry(work, *args, **more)

    return run


async def retry(
    work: Callable[_Params, Awaitable[_Result]], *args: _Params.args, **more: _Params.kwargs
) -> _Result:
    """Await `work`, and retry it if PostgreSQL aborts it, up to TRIES attempts in total.

    It is not retried once one of its writing transactions was, or may have been, committed.
    """
    outer = _COMMITTED.get()
    for left in reversed(range(TRIES)):
        committed: list[str] = []
        token = _COMMITTED.set(committed)
        try:
            return await work(*args, **more)
        except ABORTED_TRANSACTION_ERRORS as error:
            if committed or not left:
                raise
            log.warning("retry: %s", describe_error(error))
        finally:
            _COMMITTED.reset(token)
            if outer is not None:
                outer += committed
        await asyncio.sleep(random.uniform(0.01, 0.1))
    raise AssertionError


@contextmanager
def acting_as(actor: str, request_id: str = "") -> Iterator[None]:
    """Set the actor in the audit log for the block and the tasks that it starts."""
    if not _PLAIN.fullmatch(actor + request_id):
        raise ValueError("the actor or the request id has a character that is not allowed")
    token = _acting.set((actor, request_id))
    try:
        yield
    finally:
        _acting.reset(token)


@asynccontextmanager
async def connected_pool(
    url: str, size: int, silence: int = SILENCE_SECONDS
) -> AsyncIterator[asyncpg.Pool]:
    """Yield a pool of the service's role with the settings of SESSION.

    `silence` is in seconds, as in `create_pool`.
    """
    sizes = {"min_size": min(2, size), "max_size": size, "command_timeout": STATEMENT_SECONDS}
    pool = await create_pool(url, SESSION, silence=silence, reset=_reset, **sizes)
    try:
        yield pool
    finally:
        # A server that is away cannot close its end; the pool terminates what is left.
        with suppress(*TRANSIENT_DB_ERRORS):
            async with asyncio.timeout(CLOSE_SECONDS):
                await pool.close()


async def _reset(conn: Connection) -> None:
    """Reset a connection that goes back to the pool. All settings are local to a transaction.

    The reset of asyncpg would be one more round trip for every request.
    """
    if conn.is_in_transaction():
        await conn.execute("rollback")


def is_transient(error: BaseException) -> bool:
    """Return whether an error comes from the state of the database and not from a value."""
    if isinstance(error, asyncpg.PostgresError):
        return (getattr(error, "sqlstate", None) or "").startswith(TRANSIENT_SQLSTATES)
    return isinstance(error, TRANSIENT_DB_ERRORS)


def is_interruption(error: BaseException) -> bool:
    """Return whether the database interrupted work that did not cause the interruption.

    A statement that was cancelled because it ran too long may have caused it.
    """
    return is_transient(error) and not isinstance(error, asyncpg.QueryCanceledError)


class Database:
    """Access to PostgreSQL for handlers and flows, by a pool with a bounded queue."""

    def __init__(self, pool: asyncpg.Pool, bounds: Bounds = Bounds()) -> None:
        self.pool = pool
        self._bounds = bounds
        self._waiting = 0

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

    @asynccontextmanager
    async def paging(self, company_id: int) -> AsyncIterator[Connection]:
        """Yield a read-only transaction of one company with generic plans."""
        async with self._transaction(_BEGIN_PAGE, company_id) as conn:
            yield conn

    @asynccontextmanager
    async def searching(self, company_id: int) -> AsyncIterator[Connection]:
        """Yield a read-only transaction of one company with custom plans."""
        async with self._transaction(_BEGIN_SEARCH, company_id) as conn:
            yield conn

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
    async def across(self) -> AsyncIterator[Connection]:
        """Yield a connection without company and account: for shared tables and functions."""
        conn = await self._acquire()
        try:
            yield conn
        finally:
            await self._release(conn)

    async def _release(self, conn: PoolConnectionProxy) -> None:
        """Return a connection to the pool, or terminate it if it does not answer."""
        try:
            await self.pool.release(conn)
        except TRANSIENT_DB_ERRORS:
            _terminate(conn)

    async def _acquire(self) -> PoolConnectionProxy:
        """Return a connection. Raises Unavailable if none is free in time."""
        if self._waiting >= MAX_WAITING:
            raise _busy()
        self._waiting += 1
        try:
            return await self.pool.acquire(timeout=self._bounds.acquire)
        except TimeoutError:
            raise _busy() from None
        finally:
            self._waiting -= 1

    @asynccontextmanager
    async def _transaction(self, begin: str, owner_id: int) -> AsyncIterator[PoolConnectionProxy]:
        conn = await self._begin(begin.format(owner_id, *_acting.get()))
        try:
            try:
                yield conn
            except BaseException as error:
                await _roll_back(conn, error, self._bounds.answer)
                raise
            await _commit(conn, begin)
        finally:
            await self._release(conn)

    async def _begin(self, begin: str) -> PoolConnectionProxy:
        """Return a connection in a transaction. If it is dead, replace it and all idle ones."""
        for left in (1, 0):
            conn = await self._acquire()
            try:
                await conn.execute(begin, timeout=self._bounds.answer)
                return conn
            except BaseException as error:
                _terminate(conn)
                await self._release(conn)
                if not left or not isinstance(error, TRANSIENT_DB_ERRORS):
                    raise
                await self.pool.expire_connections()
        raise AssertionError


def _busy() -> Unavailable:
    return Unavailable("The service is busy, please try again.", retry_after(2))


async def _roll_back(conn: PoolConnectionProxy, error: BaseException, seconds: float) -> None:
    """Roll back, or terminate a connection that does not answer in time, to the same effect."""
    if isinstance(error, TimeoutError):
        return _terminate(conn)
    try:
        async with asyncio.timeout(seconds):
            await conn.execute("rollback")
    except TRANSIENT_DB_ERRORS:
        _terminate(conn)
    return None


def _terminate(conn: PoolConnectionProxy) -> None:
    with suppress(asyncpg.InterfaceError):  # It was released already.
        conn.terminate()


async def _commit(conn: PoolConnectionProxy, begin: str) -> None:
    """Commit. After an error other than an abort, the commit may have happened."""
    try:
        await conn.execute("commit")
    except ABORTED_TRANSACTION_ERRORS:
        raise
    except BaseException:
        _note_commit(begin)
        raise
    _note_commit(begin)


def _note_commit(begin: str) -> None:
    if (committed := _COMMITTED.get()) is not None and "read only" not in begin:
        committed.append(begin)


async def check_tenant_isolation(conn: Connection | asyncpg.Pool) -> None:
    """Raise RuntimeError with the gaps in the isolation of companies and accounts, if any."""
    gaps = [row["gap"] for row in await sql.tenant_isolation_gaps(conn)]
    if gaps:
        raise RuntimeError("Tenant isolation has gaps: " + "; ".join(gaps))

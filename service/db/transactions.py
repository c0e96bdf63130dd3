"""PostgreSQL: the pool, a connection behind a company's wall, and migrations."""

import asyncio
import functools
import logging
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

import asyncpg

from service.config import SILENCE_SECONDS, Config
from service.db.connections import create_pool
from service.db.statements import sql
from service.errors import Unavailable, describe_error, retry_after

SERVICE_ROLE = "einvoice_service"
MOST_WAITING = 1000  # requests that wait for a connection; no more could have one in that time
CLOSE_SECONDS = 2
STATEMENT_SECONDS = 7  # to any statement: the server ends one after five
UNAVAILABLE = "The service is not available for a moment, please try again."
BACKGROUND_CONNECTIONS = 4  # of a process that has background work, beside those of its requests
TRIES = 3  # of what PostgreSQL breaks off
#: What every connection of the service is bound by; the server enforces it.
SESSION = {
    "role": SERVICE_ROLE,
    "application_name": "einvoice",
    "statement_timeout": "5s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "jit": "off",
}

#: Who acts, where something may be written: for the audit log.
_ACTS = "; set local app.actor = '{}'; set local app.request_id = '{}'"
#: One message opens the transaction and the wall. The value is an int of ours: the protocol's
#: simple query,
#: which alone carries two statements, takes no parameters.
_BEGIN = "begin; set local app.company_id = '{:d}'" + _ACTS
_BEGIN_READ = "begin read only; set local app.company_id = '{:d}'"
#: The same for the wall between accounts, of the integration surface.
_BEGIN_ACCOUNT = "begin; set local app.account_id = '{:d}'" + _ACTS
_BEGIN_ACCOUNT_READ = "begin read only; set local app.account_id = '{:d}'"
#: For statements with a limit that are planned well without knowing it, and would be planned anew
#: at every call.
#: And for those whose filters may be absent: planned for the filters at hand, so that their index
#: is used.
_BEGIN_PAGE = _BEGIN_READ + "; set local plan_cache_mode = force_generic_plan"
_BEGIN_SEARCH = _BEGIN_READ + "; set local plan_cache_mode = force_custom_plan"

#: What passes: PostgreSQL is away, restarting, or has no connection free. Work goes on when it is
#: back.
#: The library calls a connection that is cut in the middle of an answer an internal error of its
#: own.
TRANSIENT_DB_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    Unavailable,
)
#: SQLSTATE classes and codes of what passes: lost connections, no room, shutting down, cut off,
#: deadlocked, a failing disk.
TRANSIENT_SQLSTATES = ("08", "53", "57", "40", "58", "55P03", "25006")

#: What PostgreSQL broke off for the sake of another transaction, or for a plan that a migration has
#: made void.
ABORTED_TRANSACTION_ERRORS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InvalidCachedStatementError,
)

#: The writing transactions that were, or may have been, committed in a piece of work that can be
#: repeated.
_COMMITTED = ContextVar("committed", default=None)
_PLAIN = re.compile(r"[A-Za-z0-9 ._-]*", re.ASCII)
_acting = ContextVar("acting", default=("background", ""))

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long the service waits for PostgreSQL before it answers 503, in seconds."""

    acquire: float = 2.0  # for a connection
    # For the answer to a trivial statement: a connection that is silent for longer is dead
    answer: float = 1.0


def bounds_of(config: Config) -> Bounds:
    return Bounds(config.database_acquire.total_seconds(), config.database_answer.total_seconds())


def retry_transient(work):
    """Makes a coroutine function repeat itself as `repeat` does."""

    @functools.wraps(work)
    async def run(*args, **more):
        return await retry(work, *args, **more)

    return run


async def retry(work, *args, **more):
    """Awaits `work`, again when PostgreSQL breaks it off, at most TRIES times in all.

    Only while none of its writing transactions was committed: then nothing of it has happened yet.
    """
    outer = _COMMITTED.get()
    for left in reversed(range(TRIES)):
        committed = []
        token = _COMMITTED.set(committed)
        try:
            return await work(*args, **more)
        except ABORTED_TRANSACTION_ERRORS as fault:
            if committed or not left:
                raise
            log.warning("tried again: %s", describe_error(fault))
        finally:
            _COMMITTED.reset(token)
            if outer is not None:
                outer += committed
        await asyncio.sleep(random.uniform(0.01, 0.1))
    return None


@contextmanager
def acting_as(actor, request_id=""):
    """Names, for the audit log, who does what is written in the block, and in tasks that it starts."""
    if not _PLAIN.fullmatch(actor + request_id):
        raise ValueError("no text to be set")
    before = _acting.set((actor, request_id))
    try:
        yield
    finally:
        _acting.reset(before)


@asynccontextmanager
async def connected_pool(
    url: str, size: int, silence: int = SILENCE_SECONDS
) -> AsyncIterator[asyncpg.Pool]:
    """Yield a pool of the service's role; every connection is bound by SESSION and by `silence`, in seconds."""
    bounds = {"min_size": min(2, size), "max_size": size, "command_timeout": STATEMENT_SECONDS}
    pool = await create_pool(url, SESSION, silence=silence, reset=_reset, **bounds)
    try:
        yield pool
    finally:
        # A server that is away has nothing to be told; what is left open is cut
        with suppress(*TRANSIENT_DB_ERRORS):
            async with asyncio.timeout(CLOSE_SECONDS):
                await pool.close()


async def _reset(conn):
    """Before a connection goes back: everything is set for a transaction only, so ending that undoes it all.

    The library's own reset would be one more round trip for every request.
    """
    if conn.is_in_transaction():
        await conn.execute("rollback")


def is_transient(error: BaseException) -> bool:
    """Return whether an error is the database's own and passes. A value that it refuses is not: it is refused again."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(TRANSIENT_SQLSTATES)
    return isinstance(error, TRANSIENT_DB_ERRORS)


def is_interruption(error: BaseException) -> bool:
    """Return whether the database interrupted work that is not the cause of that.

    A statement that was cancelled because it ran too long may be the work's own fault.
    """
    return is_transient(error) and not isinstance(error, asyncpg.QueryCanceledError)


class Database:
    """How handlers and flows reach PostgreSQL."""

    def __init__(self, pool: asyncpg.Pool, bounds: Bounds = Bounds()) -> None:
        self.pool = pool
        self._bounds = bounds
        self._waiting = 0

    @asynccontextmanager
    async def company(self, company_id):
        """A transaction that sees and writes the rows of one company. Raises Unavailable when none is free."""
        async with self._transaction(_BEGIN, company_id) as conn:
            yield conn

    @asynccontextmanager
    async def reading(self, company_id):
        """A read-only transaction behind the wall of a company."""
        async with self._transaction(_BEGIN_READ, company_id) as conn:
            yield conn

    @asynccontextmanager
    async def paging(self, company_id):
        """As reading, with statements planned once for all values of their variables."""
        async with self._transaction(_BEGIN_PAGE, company_id) as conn:
            yield conn

    @asynccontextmanager
    async def searching(self, company_id):
        """As reading, with statements planned for the values of their variables."""
        async with self._transaction(_BEGIN_SEARCH, company_id) as conn:
            yield conn

    @asynccontextmanager
    async def account(self, account_id):
        """A transaction that sees and writes the rows of one account."""
        async with self._transaction(_BEGIN_ACCOUNT, account_id) as conn:
            yield conn

    @asynccontextmanager
    async def reading_account(self, account_id):
        """A read-only transaction behind the wall of an account."""
        async with self._transaction(_BEGIN_ACCOUNT_READ, account_id) as conn:
            yield conn

    @asynccontextmanager
    async def across(self):
        """A connection that has neither company nor account: it sees shared tables and the functions that look across."""
        conn = await self._acquired()
        try:
            yield conn
        finally:
            await self._released(conn)

    async def _released(self, conn):
        """Gives a connection back; one that does not answer to that is given up. What was committed stays so."""
        try:
            await self.pool.release(conn)
        except TRANSIENT_DB_ERRORS:
            _give_up(conn)

    async def _acquired(self):
        """A connection. Raises Unavailable when none comes free, or PostgreSQL does not answer, in time."""
        if self._waiting >= MOST_WAITING:
            raise _busy()
        self._waiting += 1
        try:
            return await self.pool.acquire(timeout=self._bounds.acquire)
        except TimeoutError:
            raise _busy() from None
        finally:
            self._waiting -= 1

    @asynccontextmanager
    async def _transaction(self, begin, owner_id):
        conn = await self._begun(begin.format(owner_id, *_acting.get()))
        try:
            try:
                yield conn
            except BaseException as fault:
                await _undo(conn, fault, self._bounds.answer)
                raise
            await _commit(conn, begin)
        finally:
            await self._released(conn)

    async def _begun(self, begin):
        """A connection in a transaction. One that turns out to be dead is replaced, and so are all that may be dead too."""
        for left in (1, 0):
            conn = await self._acquired()
            try:
                await conn.execute(begin, timeout=self._bounds.answer)
                return conn
            except BaseException as fault:
                _give_up(conn)
                await self._released(conn)
                if not left or not isinstance(fault, TRANSIENT_DB_ERRORS):
                    raise
                await self.pool.expire_connections()
        return None


def _busy():
    return Unavailable("The service is busy, please try again.", retry_after(2))


async def _undo(conn: asyncpg.Connection, fault: BaseException, seconds: float) -> None:
    """Roll back, or terminate a connection that does not answer within some seconds, which has the same effect."""
    if isinstance(fault, TimeoutError):
        return _give_up(conn)
    try:
        async with asyncio.timeout(seconds):
            await conn.execute("rollback")
    except TRANSIENT_DB_ERRORS:
        _give_up(conn)


def _give_up(conn):
    with suppress(asyncpg.InterfaceError):  # it has given itself up
        conn.terminate()


async def _commit(conn, begin):
    """Commits. A failure leaves open whether it was done, but for that of a transaction that was broken off."""
    try:
        await conn.execute("commit")
    except ABORTED_TRANSACTION_ERRORS:
        raise
    except BaseException:
        _note_commit(begin)
        raise
    _note_commit(begin)


def _note_commit(begin):
    if (committed := _COMMITTED.get()) is not None and "read only" not in begin:
        committed.append(begin)


async def check_tenant_isolation(pool):
    """Raises RuntimeError, naming what is open, unless the wall between companies stands in full."""
    gaps = [row["gap"] for row in await sql.wall_gaps(pool)]
    if gaps:
        raise RuntimeError("The wall between companies has gaps: " + "; ".join(gaps))

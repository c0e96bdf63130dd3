"""Statements and transactions of the service, isolated to one company or account."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar, Token
from typing import Literal, NamedTuple, TypeVar

import asyncpg

from service.config import Config, read_config
from service.db.connections import (
    TRANSIENT_DB_ERRORS,
    UNAVAILABLE,
    Connection,
    count_warnings,
    is_aborted,
    is_transient,
    owned_by,
)
from service.db.pool import RECONNECT_SECONDS, Pool, connected_pool
from service.db.statements import Result, Statement, sql
from service.errors import Busy, Unavailable, retry_after

CHECK_SECONDS = 1  # A connection that was idle for longer is checked before a lone statement.

#: Reports of a server that closes the connection.
_SHUTDOWNS = (asyncpg.AdminShutdownError, asyncpg.CrashShutdownError)
#: Has an item for each writing transaction of the present work that was, or may have been,
#: committed.
COMMITTED: ContextVar[list[bool] | None] = ContextVar("committed", default=None)

#: The texts of an actor.
_PLAIN = re.compile(r"[A-Za-z0-9 .:_-]*", re.ASCII)
#: The actor of writing transactions, the id of the request, and the address of the client, for the
#: audit log.
_acting: ContextVar[tuple[str, str, str]] = ContextVar("acting", default=("background", "", ""))

#: Begins a transaction of rows of people, who belong to no company, with the actor.
_BEGIN = (
    "begin; set local app.actor = '{actor}'; set local app.request_id = '{request_id}'"
    "; set local app.client_address = '{client_address}'"
)
#: The same for a company or an account, in one round trip. Only the protocol's simple query takes
#: several statements, and it takes no parameters; the id is formatted as an integer.
_BEGIN_OWNED = _BEGIN + "; set local app.{owner.kind}_id = '{owner.id:d}'"
_BEGIN_READING = "begin read only; set local app.{owner.kind}_id = '{owner.id:d}'"

_Result = TypeVar("_Result")


OwnerKind = Literal["company", "account"]


class Owner(NamedTuple):
    """The owner of rows: a company or an account, which can have equal ids."""

    kind: OwnerKind
    id: int

    @property
    def variables(self) -> dict[str, object]:
        """The variables of statements about rows of companies and of accounts."""
        return {"owner_kind": self.kind, "owner_id": self.id}


def set_actor(actor: str, request_id: str, client: str = "") -> Token[tuple[str, str, str]]:
    """Set the actor in the audit log for the present task and those that it starts."""
    if not _PLAIN.fullmatch(actor + request_id + client):
        raise ValueError("the actor, the request id or the address has a forbidden character")
    return _acting.set((actor, request_id, client))


def get_actor() -> dict[str, str]:
    """Return the actor of the present task, as variables of a statement or a template."""
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


class _Releasing:
    """Returns a lent connection to its pool after a block. Each read needs one: it is lean."""

    __slots__ = ("_conn", "_pool")

    def __init__(self, pool: Pool, conn: Connection) -> None:
        self._pool, self._conn = pool, conn

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            terminate_interrupted(self._conn, error)
        self._pool.release(self._conn)


class Database:
    """Access to PostgreSQL for handlers and flows, by a pool with a bounded queue.

    Each method raises Unavailable.
    """

    def __init__(self, pool: Pool, config: Config | None = None) -> None:
        """`config` has the limits of the wait for PostgreSQL before a 503."""
        self.pool = pool
        self._config = config or read_config({})

    async def read(self, statement: Statement, **values: object) -> Result:
        """Run a statement that reads rows of its company or account, in one round trip."""
        conn = self.pool.take_recent(CHECK_SECONDS) or await self._acquire_answering()
        try:
            with _Releasing(self.pool, conn):
                return await statement.run_isolated(conn, values)
        except TRANSIENT_DB_ERRORS as error:
            if not is_lost(conn, error):
                raise
            self.pool.terminate_idle()
        with _Releasing(self.pool, conn := await self._acquire_answering()):
            return await statement.run_isolated(conn, values)

    async def write(self, statement: Statement, **values: object) -> Result:
        """Run a statement that sets its company itself, in one round trip.

        After an error other than an abort it may have been committed.
        """
        conn = self.pool.take_recent(CHECK_SECONDS) or await self._acquire_answering()
        with _Releasing(self.pool, conn), _note_commit(conn):
            return await statement(conn, **values)

    def company(self, company_id: int) -> AbstractAsyncContextManager[Connection]:
        return self.owned(Owner("company", company_id))

    def account(self, account_id: int) -> AbstractAsyncContextManager[Connection]:
        return self.owned(Owner("account", account_id))

    def owned(self, owner: Owner) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that sees and writes the rows of one company or account."""
        return self._transaction(_BEGIN_OWNED.format(owner=owner, **get_actor()), owner)

    def person(self) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction that writes rows of people, with the actor for their log."""
        return self._transaction(_BEGIN.format(**get_actor()))

    def reading(self, company_id: int) -> AbstractAsyncContextManager[Connection]:
        owner = Owner("company", company_id)
        return self._transaction(_BEGIN_READING.format(owner=owner), owner, is_writing=False)

    async def read_with(
        self, company_id: int, work: Callable[[Connection], Awaitable[_Result]]
    ) -> _Result:
        """Return the result of `work` in a read-only transaction, as `StandbyReads.read_with`."""
        async with self.reading(company_id) as conn:
            return await work(conn)

    @asynccontextmanager
    async def across(self) -> AsyncIterator[Connection]:
        """Lend a connection without company and account: for shared tables and functions."""
        conn, _ = await self._acquire()
        with _Releasing(self.pool, conn):
            yield conn

    async def call(self, work: Callable[..., Awaitable[_Result]], **values: object) -> _Result:
        """Return the result of a statement, or of `work`, on a connection that `across` lends."""
        async with self.across() as conn:
            return await work(conn, **values)

    @asynccontextmanager
    async def _transaction(
        self, begin: str, owner: Owner | None = None, *, is_writing: bool = True
    ) -> AsyncIterator[Connection]:
        conn = await self._acquire_checked(begin)
        with _Releasing(self.pool, conn):
            async with _ending_transaction(
                conn, owner, self._config.database_answer, is_writing=is_writing
            ):
                yield conn

    def _acquire_answering(self) -> Awaitable[Connection]:
        """Return a connection that was used recently or answers."""
        return self._acquire_checked(sql.database_now.query, CHECK_SECONDS)

    async def _acquire_checked(self, command: str, idle_seconds: float = 0) -> Connection:
        """Return a connection that was idle for less than `idle_seconds` or has run a command.

        A dead connection is replaced once, after all idle ones were terminated.
        """
        conn, idle = await self._acquire()
        if idle < idle_seconds:
            return conn
        try:
            return await self._execute_first(conn, command)
        except TRANSIENT_DB_ERRORS:
            self.pool.terminate_idle()
        conn, _ = await self._acquire()
        return await self._execute_first(conn, command)

    async def _execute_first(self, conn: Connection, command: str) -> Connection:
        """Execute the first command on a lent connection, and return the connection."""
        try:
            await conn.execute(command, timeout=self._config.database_answer)
        except BaseException:
            conn.terminate()
            self.pool.release(conn)
            raise
        return conn

    async def _acquire(self) -> tuple[Connection, float]:
        """Return a connection, and for how long it was idle.

        It tries again for the time of a failover while no server accepts connections.
        """
        end = time.monotonic() + self._config.database_failover
        while True:
            try:
                return await self.pool.acquire(self._config.database_acquire)
            except TimeoutError:
                raise Busy("The service is busy, please try again.", retry_after(2)) from None
            except TRANSIENT_DB_ERRORS as error:
                if time.monotonic() + RECONNECT_SECONDS >= end or not is_transient(error):
                    raise
            await asyncio.sleep(RECONNECT_SECONDS)


@asynccontextmanager
async def connected_database(config: Config, size: int) -> AsyncIterator[Database]:
    async with connected_pool(config.database_url, size, config.database_silence) as pool:
        yield Database(pool, config)


async def run_read_only(
    conn: Connection,
    company_id: int,
    work: Callable[[Connection], Awaitable[_Result]],
    seconds: float,
) -> _Result:
    """Return the result of `work` in a read-only transaction of one company on a connection.

    `seconds` limits the rollback after an error.
    """
    owner = Owner("company", company_id)
    await conn.execute(_BEGIN_READING.format(owner=owner))
    async with _ending_transaction(conn, owner, seconds, is_writing=False):
        return await work(conn)


@asynccontextmanager
async def _ending_transaction(
    conn: Connection, owner: Owner | None, seconds: float, *, is_writing: bool
) -> AsyncIterator[None]:
    """Commit after the block, whose statements are about rows of `owner`, or roll back on an error.

    A connection that does not roll back within `seconds` is terminated, to the same effect.
    """
    variables = {**owner.variables, f"{owner.kind}_id": owner.id} if owner else {}
    try:
        with owned_by(conn, variables):
            yield
    except BaseException as error:
        terminate_interrupted(conn, error)
        if not conn.is_closed():
            await _roll_back(conn, seconds)
        raise
    with _note_commit(conn) if is_writing else nullcontext():
        await conn.execute("commit")


async def _roll_back(conn: Connection, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await conn.execute("rollback")
    except TRANSIENT_DB_ERRORS:
        conn.terminate()


@contextmanager
def _note_commit(conn: Connection) -> Iterator[None]:
    """Note in COMMITTED that the block committed a transaction.

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
        committed = COMMITTED.get()
        if committed is not None and not (error and is_aborted(error)):
            committed.append(True)
    if count_warnings(conn) > warnings:
        raise Unavailable(UNAVAILABLE, retry_after(2))


def is_lost(conn: Connection, error: BaseException) -> bool:
    """Return whether a statement failed because its connection is lost.

    PostgreSQL cancels a slow statement before STATEMENT_SECONDS: after a TimeoutError, the
    connection is silently dead.
    """
    if isinstance(error, _SHUTDOWNS):
        return True
    return conn.is_closed() and isinstance(error, TRANSIENT_DB_ERRORS)


def terminate_interrupted(conn: Connection, error: BaseException) -> None:
    """Terminate a connection whose statement may still be running, or that the server closes."""
    if isinstance(error, (TimeoutError, asyncio.CancelledError, *_SHUTDOWNS)):
        conn.terminate()

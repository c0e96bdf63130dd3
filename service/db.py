"""PostgreSQL: the pool, a connection behind a company's wall, migrations, and the keeper connection."""

import asyncio
import logging
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from service.errors import Unavailable, retry_after
from service.statements import sql

MIGRATIONS = Path(__file__).resolve().parent.parent / "sql" / "migrations"
SERVICE_ROLE = "einvoice_service"
ACQUIRE_SECONDS = 2
HEARTBEAT_SECONDS = 5  # of the keeper's connection
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

#: One message opens the transaction and the wall. The value is an int of ours: the protocol's simple query,
#: which alone carries two statements, takes no parameters.
_BEGIN = "begin; set local app.company_id = '{:d}'"
_BEGIN_READ = "begin read only; set local app.company_id = '{:d}'"
#: The same for the wall between accounts, of the integration surface.
_BEGIN_ACCOUNT = "begin; set local app.account_id = '{:d}'"
_BEGIN_ACCOUNT_READ = "begin read only; set local app.account_id = '{:d}'"
#: For statements with a limit that are planned well without knowing it, and would be planned anew at every call.
#: And for those whose filters may be absent: planned for the filters at hand, so that their index is used.
_BEGIN_PAGE = _BEGIN_READ + "; set local plan_cache_mode = force_generic_plan"
_BEGIN_SEARCH = _BEGIN_READ + "; set local plan_cache_mode = force_custom_plan"

#: What passes: PostgreSQL is away, restarting, or has no connection free. Work goes on when it is back.
#: The library calls a connection that is cut in the middle of an answer an internal error of its own.
PASSING = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, Unavailable)

log = logging.getLogger(__name__)


@asynccontextmanager
async def connected_pool(url, size):
    """A pool of the service's role; every connection is bound by SESSION."""
    async with asyncpg.create_pool(
        url, min_size=min(2, size), max_size=size, server_settings=SESSION, command_timeout=65, reset=_reset
    ) as pool:
        yield pool


async def _reset(conn):
    """Before a connection goes back: everything is set for a transaction only, so ending that undoes it all.

    The library's own reset would be one more round trip for every request.
    """
    if conn.is_in_transaction():
        await conn.execute("rollback")


class Database:
    """How handlers and flows reach PostgreSQL."""

    def __init__(self, pool):
        self.pool = pool

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
        try:
            conn = await self.pool.acquire(timeout=ACQUIRE_SECONDS)
        except TimeoutError:
            raise Unavailable("The service is busy, please try again.", retry_after(2)) from None
        try:
            yield conn
        finally:
            await self.pool.release(conn)

    @asynccontextmanager
    async def _transaction(self, begin, owner_id):
        async with self.across() as conn:
            await conn.execute(begin.format(owner_id))
            try:
                yield conn
            except BaseException:
                if not conn.is_closed():
                    await conn.execute("rollback")
                raise
            await conn.execute("commit")


async def migrate(url):
    """Applies what is not yet applied of sql/migrations, each in a transaction; returns the names.

    Holds an advisory lock, so that two starts at once do it once.
    """
    conn = await asyncpg.connect(url, server_settings={"client_min_messages": "warning"})
    try:
        await sql.migrations_lock(conn)
        await sql.migrations_prepare(conn)
        done = {row["name"] for row in await sql.migrations_done(conn)}
        applied = []
        for path in sorted(MIGRATIONS.glob("*.sql")):
            if path.name not in done:
                async with conn.transaction():
                    await conn.execute(path.read_text())
                    await sql.migration_note(conn, name=path.name)
                applied.append(path.name)
        return applied
    finally:
        await conn.close()


async def refuse_without_wall(pool):
    """Raises RuntimeError, naming what is open, unless the wall between companies stands in full."""
    gaps = [row["gap"] for row in await sql.wall_gaps(pool)]
    if gaps:
        raise RuntimeError("The wall between companies has gaps: " + "; ".join(gaps))


class Keeper:
    """One connection of its own, for what belongs to a session: advisory locks and notifications.

    A process that is paused keeps its locks, and one that dies loses them at once. When the connection is
    lost, every lock is gone and `alive` is false until it is made anew.
    """

    def __init__(self, url, listeners):
        self._url = url
        self._listeners = listeners  # channel -> callable(payload)
        self._conn = None
        self._turn = asyncio.Lock()  # one statement at a time on the one connection
        self._held = set()
        self._lost = asyncio.Event()
        self._made = asyncio.Event()
        self.on_reconnect = []

    @property
    def alive(self):
        return self._conn is not None and not self._conn.is_closed()

    async def run(self):
        """Keeps the connection: makes it, and makes it anew when it is lost. Ends when cancelled."""
        while True:
            try:
                await self._connect()
            except PASSING as fault:
                log.warning("keeper: no connection: %s", fault)
                await asyncio.sleep(0.5)
                continue
            await self._while_it_lives()
            log.warning("keeper: the connection was lost")

    async def _while_it_lives(self):
        """Until the connection is lost, also to a network that no longer carries anything and says nothing."""
        while not self._lost.is_set():
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._lost.wait()
            except TimeoutError:
                await self._beat()

    async def _beat(self):
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS), self._turn:
                await sql.ping(self._conn)
        except PASSING:
            self._conn.terminate()
            self._lost.set()

    async def _connect(self):
        lost = asyncio.Event()
        conn = await asyncpg.connect(self._url, server_settings=SESSION, timeout=5, command_timeout=10)
        conn.add_termination_listener(lambda _: lost.set())
        for channel, heard in self._listeners.items():
            await conn.add_listener(channel, lambda *args, heard=heard: heard(args[3]))
        self._lost, self._held, self._conn = lost, set(), conn
        self._made.set()
        for wake in self.on_reconnect:
            wake()

    async def connected(self):
        """Waits until the connection was made for the first time."""
        await self._made.wait()

    @asynccontextmanager
    async def alone(self, company_id, submission_id):
        """Yields whether this process alone works on a submission, and keeps it so meanwhile."""
        key = (company_id, submission_id)
        if not self.alive or key in self._held:
            yield False
            return
        conn = self._conn
        self._held.add(key)
        try:
            async with self._turn:
                got = await sql.submission_lock_try(conn, company_id=company_id, id=submission_id)
            try:
                yield got
            finally:
                if got and not conn.is_closed():
                    async with self._turn:
                        await sql.submission_lock_release(conn, company_id=company_id, id=submission_id)
        finally:
            self._held.discard(key)

    async def close(self):
        if self.alive:
            await self._conn.close()

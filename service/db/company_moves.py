"""The move of a company from this database to that of another cell, step by step.

Each database has a row about the company while it is not active there:

    here      Draining -> Held -> Moved
    there     Arriving -> no row

The company is active in a database that has its rows and no row about its move. The row there
exists before any other row of the company, and is deleted only after the one here is Moved: the
company is never active in both. Every step can be repeated after a crash of the process. Until
Moved is committed, the copy begins again with the rows as they are.

Draining: no process claims work of the company any more, and the API rejects changes with a 503.
Held: triggers reject changes to rows of the company. A trigger is made after all transactions that
changed the table have ended, so that nothing changes after the last one is made.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from service import failpoints
from service.config import SILENCE_SECONDS
from service.db.connections import Connection, connect
from service.db.locks import retry_locked
from service.db.statements import sql

#: Settings of the sessions that copy: texts of values are the same in both databases.
SESSION = {
    "application_name": "einvoice move",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "jit": "off",
}
POLL_SECONDS = 0.2
#: Parts of a table that are read ahead.
PARTS_AHEAD = 64
#: Events arrive with numbers below the transactions of the other cluster.
SPARE_TRANSACTIONS = 100
CLOCKS_APART = timedelta(seconds=5)

DRAINING, HELD, MOVED, ARRIVING = "Draining", "Held", "Moved", "Arriving"


class MoveError(Exception):
    """The move cannot go on; the text is for the operator."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The company in one of the databases.

    `tin` is None if the company has no row, `verified_tin` is empty unless the TIN is verified.
    `state` and `cell` are those of its move.
    """

    tin: str | None
    verified_tin: str
    is_shared: bool
    state: str | None
    cell: str | None

    @property
    def is_active(self) -> bool:
        """Return whether the company is active in the database."""
        return self.tin is not None and self.state is None


@dataclass(frozen=True, slots=True)
class Copied:
    """A table that was copied: its number of rows and their hash."""

    rows: int
    hash: str


class Place:
    """One of the two databases, by a connection of its owner."""

    def __init__(self, conn: Connection, company_id: int, cell: str) -> None:
        self.conn = conn
        self.company_id = company_id
        self.cell = cell

    async def standing(self) -> Standing:
        """Return what the database knows about the company."""
        row = await sql.move_get(self.conn, company_id=self.company_id)
        return Standing(**row)

    async def set_state(self, state: str, other: str) -> None:
        """Record a state of the move to or from another cell."""
        await sql.move_set(self.conn, company_id=self.company_id, state=state, cell=other)

    async def hold(self) -> None:
        """Make the triggers that reject changes, according to the recorded states.

        Each waits a second at most for transactions that change its table, so that others that
        want to do not wait longer.
        """
        for row in await sql.move_hold_commands(self.conn):
            await self.retry_locked(partial(self.conn.execute, row["command"]))

    async def retry_locked(self, work: Callable[[], Awaitable[object]]) -> None:
        """Run work that locks a table in a transaction, and retry it while it gets no lock."""
        await retry_locked(self.conn, "move: waits for the lock of a table", work, POLL_SECONDS)

    async def activate(self) -> None:
        """Make the company active in this database. It can be repeated after a crash."""
        await sql.move_end(self.conn, company_id=self.company_id)
        failpoints.reach("move_ended")
        await self.hold()


@asynccontextmanager
async def open_place(url: str, company_id: int) -> AsyncIterator[Place]:
    """Yield a database for the company. Raises MoveError."""
    conn = await connect(url, SESSION, silence=SILENCE_SECONDS)
    try:
        if not await sql.migrations_permitted(conn):
            raise MoveError(
                "A login does not own its database. A move needs the owner's login of both: "
                "DATABASE_OWNER_URL, and the URL of --to."
            )
        await sql.move_session(conn, company_id=company_id)
        yield Place(conn, company_id, await sql.cell_get(conn) or "")
    finally:
        await conn.close()


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a company between two databases."""

    source: Place
    target: Place
    patience: timedelta

    @property
    def company_id(self) -> int:
        """Return the company's id."""
        return self.source.company_id

    async def begin(self) -> Standing:
        """Lock the move against other commands, and return the company's standing at the source.

        Raises MoveError if the move is not possible.
        """
        await self._lock()
        standing, there = await self.source.standing(), await self.target.standing()
        self._check_standings(standing, there)
        return standing

    async def _lock(self) -> None:
        """Lock moves of the company in both databases until they are closed. Raises MoveError."""
        if not self.target.cell:
            raise MoveError("The database of --to is no cell: run its migrate with CELL.")
        if self.source.cell == self.target.cell:
            raise MoveError(f"Both databases are the cell {self.target.cell}.")
        for place in self._places:
            if not await sql.move_lock_try(place.conn, company_id=self.company_id):
                raise MoveError(f"Another command moves the company {self.company_id} already.")

    def _check_standings(self, standing: Standing, there: Standing) -> None:
        target, company = self.target.cell, self.company_id
        if standing.tin is None:
            raise MoveError(f"There is no company {company} in this cell.")
        if standing.state == ARRIVING:
            raise MoveError(
                f"The company {company} is arriving here from the cell {standing.cell}."
            )
        if standing.state is not None and standing.cell != target:
            raise MoveError(
                f"The company {company} is being moved, or was, to the cell {standing.cell}."
            )
        if there.state in (DRAINING, HELD) or (there.is_active and standing.state != MOVED):
            raise MoveError(f"The company {company} is in the cell {target} already.")

    async def drain(self) -> None:
        """Stop new work, wait for what is under way, and hold the company.

        A process that has not yet learned of the move may begin something until the triggers
        exist. Then they are taken back until it has ended.
        """
        await self._check_target()
        await self.source.set_state(DRAINING, self.target.cell)
        await self.source.hold()
        failpoints.reach("move_draining")
        while True:
            await self._wait_for_work()
            await self.source.set_state(HELD, self.target.cell)
            await self.source.hold()
            if not await sql.move_under_way(self.source.conn, company_id=self.company_id):
                break
            await self.source.set_state(DRAINING, self.target.cell)
            await self.source.hold()
        await self._check_members()
        failpoints.reach("move_held")

    async def _check_target(self) -> None:
        """Raise MoveError for what would make the copy fail, before anything is held."""
        here, there = [await sql.migrations_done(place.conn) for place in self._places]
        if {row["name"] for row in here} != {row["name"] for row in there}:
            raise MoveError(
                "The two databases have different migrations: bring both to one version."
            )
        clocks = [await sql.database_now(place.conn) for place in self._places]
        if abs(clocks[0] - clocks[1]) > CLOCKS_APART:
            raise MoveError(
                f"The clocks of the databases differ by {abs(clocks[0] - clocks[1])}: "
                f"correct them (at most {CLOCKS_APART.seconds} seconds)."
            )
        standing = await self.source.standing()
        if standing.is_shared:
            raise MoveError(
                f"Other companies of this cell have the TIN {standing.tin} too, and companies of "
                "one TIN are in one cell."
            )
        holders = await sql.tin_companies(self.target.conn, tin=standing.tin)
        if set(holders) - {self.company_id}:
            raise MoveError(f"Another company of the other cell has the TIN {standing.tin}.")
        await self._check_secret_keys()
        await self._check_members()

    async def _check_members(self) -> None:
        """Raise MoveError if people have roles in the company.

        A person of the other cell with the same address may have a password of someone else.
        """
        if members := await sql.move_members(self.source.conn, company_id=self.company_id):
            raise MoveError(
                f"The company has {members} people, who cannot be moved: remove them, and invite "
                "them again in the other cell."
            )

    @property
    def _places(self) -> Sequence[Place]:
        return self.source, self.target

    async def _check_secret_keys(self) -> None:
        """Raise MoveError if the other cell has secrets, and none with a key of the company's."""
        own = await sql.move_secret_keys(self.source.conn, company_id=self.company_id)
        there = {row["secret_key"] for row in await sql.secret_key_ids(self.target.conn)}
        if there and (missing := {row["secret_key"] for row in own} - there):
            raise MoveError(
                "The company's secrets are encrypted with the SECRET_KEY "
                f"{', '.join(sorted(key.hex() for key in missing))}, and no secret of the other "
                "cell is. Cells share one SECRET_KEY."
            )

    async def _wait_for_work(self) -> None:
        """Wait until no process works on the company. Raises MoveError after `patience`."""
        end = time.monotonic() + self.patience.total_seconds()
        while rows := await sql.move_under_way(self.source.conn, company_id=self.company_id):
            if time.monotonic() >= end:
                found = ", ".join(f"{row['n']} {row['kind']}" for row in rows)
                raise MoveError(
                    f"After {self.patience.total_seconds():.0f} seconds processes still work on "
                    f"the company: {found}. A process may be paused, or have vanished."
                )
            await asyncio.sleep(POLL_SECONDS)

    async def copy(self) -> dict[str, Copied]:
        """Copy all rows as they are, check them, and make the company inactive here for good.

        Return the tables. Raises MoveError.
        """
        await self.target.set_state(ARRIVING, self.source.cell)
        await self.target.hold()
        failpoints.reach("move_arriving")
        await self._pass_transactions()
        async with self.source.conn.transaction(isolation="repeatable_read", readonly=True):
            holds = await sql.move_holds(self.source.conn, company_id=self.company_id)
            copied = await self._copy_tables(await self._tables())
        failpoints.reach("move_copied")
        await self.source.retry_locked(partial(self._leave, holds))
        failpoints.reach("move_moved")
        return copied

    async def _leave(self, holds: str) -> None:
        """Make the company inactive here, in a transaction. Raises MoveError for another hold."""
        await sql.move_holds_lock(self.source.conn)
        if holds != await sql.move_holds(self.source.conn, company_id=self.company_id):
            raise MoveError("Sending was held while the rows were copied. Run the command again.")
        await self.source.set_state(MOVED, self.target.cell)

    async def _pass_transactions(self) -> None:
        """Let transactions of the other cluster begin above the numbers of the company's events."""
        needed = await sql.move_last_place(self.source.conn, company_id=self.company_id)
        await sql.move_pass_transactions(self.target.conn, target=needed + SPARE_TRANSACTIONS)

    async def _tables(self) -> Sequence[Mapping[str, Any]]:
        """Return the commands for each table. Raises MoveError for different tables."""
        here, there = [
            await sql.move_tables(place.conn, company_id=self.company_id) for place in self._places
        ]
        if [row["read_out"] for row in here] != [row["read_out"] for row in there]:
            raise MoveError("The two databases have different tables: bring both to one version.")
        return here

    async def _copy_tables(self, tables: Sequence[Mapping[str, Any]]) -> dict[str, Copied]:
        target = self.target.conn
        for table in reversed(tables):
            await _execute(target, table["clear"])
        for table in tables:
            await self._copy_table(table)
        failpoints.reach("move_filled")
        return {table["name"]: await self._compare(table) for table in tables}

    async def _copy_table(self, table: Mapping[str, Any]) -> None:
        """Copy a table. Rows that triggers made for rows of earlier tables are replaced.

        Each table has a transaction of its own, since a transaction delays the events of all
        companies of the other cell. The rows there are hidden until the company is active.
        """
        target = self.target.conn
        async with target.transaction():
            await _execute(target, table["stage"])
            await _stream(self.source.conn, target, table["read_out"], f"moved_{table['name']}")
            await _execute(target, table["clear"])
            await _execute(target, table["fill"])
            await _execute(target, table["advance"])

    async def _compare(self, table: Mapping[str, Any]) -> Copied:
        """Count and hash a table in both databases. Raises MoveError if they differ."""
        here = await _measure(self.source.conn, table["measure_out"])
        there = await _measure(self.target.conn, table["measure"])
        if here != there:
            raise MoveError(
                f"The table {table['name']} differs after the copy: {here.rows} rows here, "
                f"{there.rows} in the other cell."
            )
        return here

    async def check_arrival(self) -> Standing:
        """Return the company's standing in the other cell. Raises MoveError if it is not there."""
        there, name = await self.target.standing(), self.target.cell
        if there.tin is None:
            raise MoveError(
                f"The company has left to the cell {name}, which does not have it. Restore that "
                "database; the rows here are as they were when the company left."
            )
        if not there.is_active and (there.state, there.cell) != (ARRIVING, self.source.cell):
            raise MoveError(f"The company has left the cell {name} again, or is being moved.")
        return there

    async def cancel(self) -> None:
        """Make the company active here again. Raises MoveError if it has left."""
        standing = await self.source.standing()
        if standing.state == MOVED:
            raise MoveError(
                f"The company {self.company_id} has left to the cell {standing.cell}. "
                "Run the command again to finish, or move it back."
            )
        await self.source.activate()

    async def remove(self) -> dict[str, int]:
        """Delete the old rows here, except that of the company, and return the deleted counts.

        Raises MoveError unless the company is active in the other cell.
        """
        await self._lock()
        deleted: dict[str, int] = {}
        async with self.source.conn.transaction():
            await self._check_departure()
            for table in reversed(await self._tables()):
                status = await _execute(self.source.conn, table["clear"])
                deleted[table["name"]] = int(status.rpartition(" ")[2] or 0)
        return deleted

    async def _check_departure(self) -> None:
        """Raise MoveError unless the company is active in the other cell only."""
        if (await self.source.standing()).state != MOVED:
            raise MoveError(f"The company {self.company_id} has not left this cell.")
        if not (await self.target.standing()).is_active:
            raise MoveError(f"The company {self.company_id} is not active in the other cell yet.")


async def _measure(conn: Connection, query: str) -> Copied:
    """Return the number of rows of a table and their hash."""
    [row] = await conn.fetch(query)
    return Copied(row["n"], row["hash"])


async def _execute(conn: Connection, command: str) -> str:
    """Run a command that PostgreSQL has made, and return its status. Do nothing if it is empty."""
    return await conn.execute(command) if command else ""


async def _stream(source: Connection, target: Connection, query: str, table: str) -> None:
    """Copy the rows of a query into a temporary table of the other database.

    Raises the first error of either side.
    """
    parts: asyncio.Queue[bytes | None] = asyncio.Queue(PARTS_AHEAD)

    async def read() -> None:
        await source.copy_from_query(query, output=parts.put, format="binary")
        await parts.put(None)

    async def follow() -> AsyncIterator[bytes]:
        while (part := await parts.get()) is not None:
            yield part

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            tasks.create_task(
                target.copy_to_table(table, source=follow(), format="binary", schema_name="pg_temp")
            )
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None

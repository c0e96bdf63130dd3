"""Cells: databases that each hold whole companies. A database knows which cell it is."""

import asyncpg

from service.config import SILENCE_SECONDS
from service.db.connections import connect
from service.db.statements import sql
from service.errors import OperatorError

#: Ids of one cell, of companies, of accounts and of people.
IDS_OF_CELL = 10**9
#: A name is read as a number of this base. It begins with a letter, so that each has another one.
NAME_BASE = 36


def id_base(cell: str) -> int:
    """Return the number that is added to the ids of a cell, so that cells have different ids."""
    return int(cell, NAME_BASE) * IDS_OF_CELL


async def check_cell(url: str, cell: str, silence: int = SILENCE_SECONDS) -> None:
    """Record the cell of a database if it is the first one.

    Raises OperatorError if it is another.
    """
    conn = await connect(url, {}, silence=silence)
    try:
        recorded = await sql.cell_get(conn)
        if recorded is None and cell:
            recorded = await _record(conn, cell)
    finally:
        await conn.close()
    if (recorded or "") != cell:
        raise OperatorError(
            f"The database is the cell {recorded}, and CELL is {cell or 'not set'}. "
            "Set CELL to the cell of the database; it never changes."
        )


async def _record(conn: asyncpg.Connection, cell: str) -> str:
    """Record the cell, and return the one that is recorded now. Raises OperatorError."""
    try:
        await sql.migration_cell_note(conn, name=cell, id_base=id_base(cell))
    except asyncpg.InsufficientPrivilegeError:
        raise OperatorError(
            f"CELL is {cell}, and the database is no cell yet. "
            "Run the command migrate with CELL and DATABASE_OWNER_URL."
        ) from None
    return await sql.cell_get(conn)

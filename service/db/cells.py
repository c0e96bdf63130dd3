"""Cells: databases that each hold whole companies. A database knows which cell it is.

All cells share a file, CELL_REGISTRY, with the cell of each TIN. A line has a TIN and the name of a
cell; the last line of a TIN counts. Commands append lines under a lock of the file, which NFS and
local file systems have.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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


def claim_tin(path: Path | None, tin: str, cell: str) -> None:
    """Record that a TIN belongs to a cell. Raises OperatorError if it belongs to another one."""
    if path is None or not tin:
        return
    with _locked(path) as file:
        owner = _read(file).get(tin)
        if owner not in (None, cell):
            raise OperatorError(
                f"The TIN {tin} belongs to the cell {owner}, according to {path}. "
                "Companies of one TIN are in one cell."
            )
        if owner is None:
            _append(file, tin, cell)


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    """Open the file, which is created if it is missing, and lock it. Raises OperatorError."""
    try:
        file = path.open("a+", encoding="utf-8", newline="\n")
    except OSError as error:
        raise OperatorError(f"CELL_REGISTRY: {path} cannot be written: {error.strerror}.") from None
    with file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield file


def _read(file: IO[str]) -> dict[str, str]:
    """Return the cell of each TIN. A line that was not written completely is ignored."""
    file.seek(0)
    words = (line.split() for line in file if line.endswith("\n"))
    return {line[0]: line[1] for line in words if len(line) == 2}


def _append(file: IO[str], tin: str, cell: str) -> None:
    """Append a line. A last line that was not written completely is removed."""
    file.seek(0)
    complete, newline, _ = file.read().rpartition("\n")
    file.truncate(len(f"{complete}{newline}".encode()))
    file.write(f"{tin} {cell}\n")
    file.flush()
    os.fsync(file.fileno())

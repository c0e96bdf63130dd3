"""The imported code lists: keep the code tables of a process equal to those in the database."""

from itertools import groupby

import asyncpg

from service.db.connections import TRANSIENT_DB_ERRORS, Connection
from service.db.statements import sql
from service.db.transactions import Database
from service.documents import codes
from service.documents.codes import CodeTable, Validity
from service.loops import Loop

#: Time after which a process looks for an import whose notification it has missed.
CHECK_SECONDS = 10


class CodeLists(Loop):
    """Loads the imported code lists, and again after each import.

    A notification wakes it, and so does a new dedicated session, whose predecessor may have missed
    one.
    """

    def __init__(self, database: Database) -> None:
        super().__init__("code lists", CHECK_SECONDS, TRANSIENT_DB_ERRORS)
        self._database = database
        self._versions: list[tuple[object, ...]] | None = None  # of the tables in use

    async def work(self) -> None:
        """Use the lists in the database if there was an import since the last round."""
        async with self._database.across() as conn:
            versions = [tuple(row) for row in await sql.code_list_versions(conn)]
            if versions == self._versions:
                return
            tables = await read_tables(conn)
        codes.replace_tables(tables)
        # An import between the two statements has another version, so it is loaded again.
        self._versions = versions


async def read_tables(conn: Connection) -> list[CodeTable]:
    """Return the tables of imported codes with the built-in codes."""
    rows = await sql.code_list_codes(conn)  # ordered by list
    return [
        codes.add_built_in(_make_table(name, list(listed)))
        for name, listed in groupby(rows, key=lambda row: row["code_list"])
        if name in codes.BUILT_IN  # A newer version of the service may know others.
    ]


def _make_table(name: str, rows: list[asyncpg.Record]) -> CodeTable:
    """Return the table of one list. Infinite dates of PostgreSQL are date.min and date.max."""
    all_days = {row["code"]: Validity(row["valid_from"], row["valid_to"]) for row in rows}
    imported_at = rows[0]["imported_at"]
    return CodeTable(
        name,
        {row["code"]: row["description"] for row in rows},
        day=imported_at.date(),
        imported_at=imported_at,
        validity={code: days for code, days in all_days.items() if days != Validity()},
    )

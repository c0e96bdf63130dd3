"""Views and functions of the database: one file each in sql/, applied when its text changes.

Files are applied in an order in which each one follows the files that it needs. A file needs every
view and function whose name occurs in it outside of comments and string literals. Paths decide
where this leaves a choice, so the order is always the same.

A changed object is replaced where PostgreSQL can replace it. Otherwise, for example when a view
loses a column or a function gets other parameters, it is dropped and created again in the same
transaction, and so are the views and functions that depend on it. A file therefore contains the
grants and comments of its object too. Files name functions without parameters, so that a file fails
instead of leaving an earlier variant of its function behind.
"""

import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import asyncpg

from service.db.statements import sql

SQL = Path(__file__).resolve().parents[2] / "sql"
FOLDERS = ("functions", "views")

_NOT_CODE = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
#: Errors of a file whose object cannot be replaced: other columns, other results, other parameters.
_NOT_REPLACEABLE = (
    asyncpg.InvalidTableDefinitionError,
    asyncpg.InvalidFunctionDefinitionError,
    asyncpg.AmbiguousFunctionError,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchemaObject:
    """A view or a function: its name in the database, its file below sql/, and the file's text."""

    name: str
    file: str
    text: str

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(self.text.encode()).digest()


def load_objects(root: Path = SQL) -> list[SchemaObject]:
    """Return the views and functions below `root` in the order in which they are applied.

    Raises graphlib.CycleError when two of them need each other.
    """
    found = {
        path.stem: SchemaObject(path.stem, str(path.relative_to(root)), path.read_text("utf-8"))
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.sql"))
    }
    needed = {
        name: sorted(_words(item.text) & found.keys() - {name}) for name, item in found.items()
    }
    return [found[name] for name in TopologicalSorter(needed).static_order()]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", _NOT_CODE.sub(" ", text)))


async def apply_objects(
    conn: asyncpg.Connection, objects: Sequence[SchemaObject], migrations: Iterable[str]
) -> list[str]:
    """Apply the objects that have changed or are missing, and return the names of their files.

    The caller has a transaction. An object whose text is unchanged is not touched and takes no
    locks. A version of the service that is older than the one that was applied last changes
    nothing: while two versions run side by side, the objects are those of the newer one. A version
    is identified by the texts of all objects and the names of its migrations.
    """
    version = version_of(objects, migrations)
    former = [row["sha256"] for row in await sql.migration_versions(conn)]
    done = {row["file"]: row["sha256"] for row in await sql.migration_objects(conn)}
    pending = {item.name for item in objects if done.get(item.file) != item.sha256}
    if pending and version in former[1:]:
        log.warning("the views and functions are those of a newer version and stay as they are")
        return []
    applied = []
    for item in objects:
        if item.name in pending:
            pending |= await _apply(conn, item)
            await sql.migration_object_note(conn, file=item.file, sha256=item.sha256)
            applied.append(item.file)
    if version not in former:
        await sql.migration_version_note(conn, sha256=version)
    return applied


def version_of(objects: Sequence[SchemaObject], migrations: Iterable[str]) -> bytes:
    """Return a digest of the texts of all objects and the names of all migrations."""
    parts = [*sorted(migrations), *(f"{item.file} {item.sha256.hex()}" for item in objects)]
    return hashlib.sha256("\n".join(parts).encode()).digest()


async def _apply(conn: asyncpg.Connection, item: SchemaObject) -> set[str]:
    """Replace an object, or create it again. Return the names of those dropped with it."""
    try:
        async with conn.transaction():
            await conn.execute(item.text)
        return set()
    except _NOT_REPLACEABLE:
        dropped = await sql.migration_object_dependents(conn, name=item.name)
        for row in dropped:
            await conn.execute(row["command"])
        await conn.execute(item.text)
        return {row["name"] for row in dropped} - {item.name}

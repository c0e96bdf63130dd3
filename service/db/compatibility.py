"""Versions of the service that can use one schema, so that an upgrade needs no downtime.

A version is identified by the number of its newest migration. A migration declares the oldest
version that still runs after it, in a line such as `-- compatible: 0024`. Without this line, only
versions that have the migration run. PostgreSQL stores the declarations, so that an older version
learns about migrations that it does not have.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from asyncpg import Record

from service.db.connections import Connection
from service.db.schema_objects import SQL
from service.db.statements import sql
from service.errors import OperatorError

MIGRATIONS = SQL / "migrations"
#: Begins the application_name of every session of the service. The version follows.
APPLICATION = "einvoice"

_NAME = re.compile(r"(?P<number>\d{4})_\w+\.sql")
_DECLARATION = re.compile(r"^-- compatible:(?P<version>.*)$", re.MULTILINE)


class SchemaError(OperatorError):
    """The database has a schema that cannot be used or upgraded."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A file of migrations. `compatible_with` is the oldest version that runs after it, if any."""

    path: Path
    number: str
    compatible_with: str | None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(self.path.read_bytes()).digest()

    @property
    def oldest_version(self) -> str:
        """The oldest version of the service that runs after this migration."""
        return self.compatible_with or self.number


def read_migrations(folder: Path = MIGRATIONS) -> list[Migration]:
    """Return the migrations of a folder in their order. Raises SchemaError."""
    return [_read_migration(path) for path in sorted(folder.glob("*.sql"))]


def _read_migration(path: Path) -> Migration:
    name = _NAME.fullmatch(path.name)
    if name is None:
        raise SchemaError(f"{path.name}: the name of a migration must have the form 0024_name.sql.")
    found = _DECLARATION.search(path.read_text("utf-8"))
    version = found["version"].strip() if found else None
    if version is not None and not (re.fullmatch(r"\d{4}", version) and version < name["number"]):
        raise SchemaError(
            f"{path.name}: `-- compatible:` must name an earlier migration by its four digits."
        )
    return Migration(path, name["number"], version)


def newest_number(migrations: Sequence[Migration]) -> str:
    """Return the number of the newest migration, which is the version of the service."""
    return migrations[-1].number


#: The migrations and the version of this process.
KNOWN = [migration.name for migration in read_migrations()]
APPLICATION_NAME = f"{APPLICATION} {newest_number(read_migrations())}"


def check_encoding(conn: Connection) -> None:
    """Raise SchemaError if the database cannot store every text."""
    if (encoding := conn.get_settings().server_encoding) != "UTF8":
        raise SchemaError(
            f"The encoding of the database is {encoding}. Create the database again, with "
            "createdb --template=template0 --encoding=UTF8."
        )


async def check_newer_schema(conn: Connection, known: Iterable[str] = KNOWN) -> None:
    """Raise SchemaError if a migration that is not `known` excludes this version."""
    if excluding := await sql.schema_excluding(conn, known=list(known)):
        raise SchemaError(
            f"The database has migrations of a newer version of the service ({excluding}). "
            "Start that version, because this one cannot run with them, or restore a backup from "
            "before it."
        )


async def check_tenant_isolation(conn: Connection) -> None:
    """Raise SchemaError with the gaps in the isolation of companies and accounts, if any."""
    gaps = [row["gap"] for row in await sql.tenant_isolation_gaps(conn)]
    if gaps:
        raise SchemaError("Tenant isolation has gaps: " + "; ".join(gaps))


async def check_running_versions(conn: Connection, pending: Sequence[Migration]) -> None:
    """Raise SchemaError if a running version of the service cannot run after these migrations."""
    oldest = max(migration.oldest_version for migration in pending)
    if rows := await sql.sessions_before(conn, application=APPLICATION, version=oldest):
        names = ", ".join(
            migration.name for migration in pending if migration.oldest_version == oldest
        )
        found = "; ".join(map(_describe_sessions, rows))
        raise SchemaError(
            f"An older version of the service is running that cannot run after {names} "
            f"(sessions: {found}). Nothing was changed. Stop its processes, and migrate again."
        )


def _describe_sessions(row: Record) -> str:
    hosts = f" from {row['hosts']}" if row["hosts"] else ""
    return f'{row["sessions"]} of "{row["name"]}"{hosts}'

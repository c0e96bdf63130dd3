"""Migrations: tables by numbered files, views and functions by their current text."""

import functools
import logging
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from service.config import SILENCE_SECONDS
from service.db.compatibility import (
    MIGRATIONS,
    Migration,
    SchemaError,
    check_encoding,
    check_newer_schema,
    check_running_versions,
    read_migrations,
)
from service.db.connections import connect
from service.db.retry import retry_locked
from service.db.schema_objects import SQL, apply_objects, load_objects, version_of
from service.db.statements import sql

NOT_MIGRATED = (
    "The schema of the database is not that of this version of the service, and this login may "
    "not change it. Run the command migrate with DATABASE_OWNER_URL, the login that owns the "
    "database."
)
CHANGED = (
    "{} has changed since it was applied to this database, whose tables may not be those of this "
    "version of the service. Restore the file as it was applied, and put the change into a new "
    "migration. Before version 1.0.0 files may change: set DATABASE_URL to a new, empty database "
    "then. Without DATABASE_URL, stop the service and delete its data directory (DATA_DIR, .data/ "
    "by default): its contents are lost."
)
NOT_A_MEMBER = (
    "The login of DATABASE_URL is not a member of the role einvoice_service: "
    "grant einvoice_service to this login."
)

log = logging.getLogger(__name__)


async def migrate(
    url: str, folder: Path = MIGRATIONS, silence: int = SILENCE_SECONDS, objects: Path = SQL
) -> list[str]:
    """Bring a database up to date, and return the names of the files that were applied.

    Applies the pending migrations of a folder, each in a transaction, and then the changed views
    and functions, all in one transaction. Holds an advisory lock, so that one of several concurrent
    starts does the work. A transaction waits one second for its locks, during which later requests
    queue behind it. Then it lets them pass and is retried, for minutes.

    A version that is older than the schema changes nothing and runs with it if the newer migrations
    allow that. A login that does not own the schema applies nothing and checks that everything was
    applied.

    Raises SchemaError for a database that a newer version has made unusable for this one, that an
    older version still uses, or that such a login cannot use.
    """
    migrations = read_migrations(folder)
    settings = {"client_min_messages": "warning"}
    conn = await connect(url, settings, silence=silence)
    try:
        if not await sql.migrations_permitted(conn):
            await _check_version(conn, migrations, objects)
            return []
        check_encoding(conn)
        await sql.migrations_lock(conn)
        await sql.migrations_prepare(conn)
        pending = await _find_pending(conn, migrations)
        if pending is None:
            log.warning("the schema is of a newer version and stays as it is")
            return []
        if pending:
            await check_running_versions(conn, pending)
        for migration in pending:
            work = functools.partial(_apply_migration, conn, migration)
            await retry_locked(conn, migration.name, work)
        names = [migration.name for migration in migrations]
        work = functools.partial(apply_objects, conn, load_objects(objects), names)
        changed = await retry_locked(conn, "views and functions", work)
        return [migration.name for migration in pending] + changed
    finally:
        await conn.close()


async def _find_pending(
    conn: asyncpg.Connection, migrations: Sequence[Migration]
) -> list[Migration] | None:
    """Return the migrations to apply, or None for a newer schema that this version can use."""
    known = {migration.name for migration in migrations}
    digests = {row["name"]: row["sha256"] for row in await sql.migrations_done(conn)}
    done = digests.keys()
    for migration in migrations:
        if digests.get(migration.name, migration.sha256) != migration.sha256:
            raise SchemaError(CHANGED.format(f"sql/migrations/{migration.name}"))
    if done <= known:
        return [migration for migration in migrations if migration.name not in done]
    await check_newer_schema(conn, known)
    if missing := sorted(known - done):
        raise SchemaError(
            f"The database has migrations of another version of the service "
            f"({', '.join(sorted(done - known))}) and lacks those of this one "
            f"({', '.join(missing)}). Start a version that has both."
        )
    return None


async def _check_version(
    conn: asyncpg.Connection, migrations: Sequence[Migration], objects: Path
) -> None:
    """Raise SchemaError if this version of the schema was not applied, or cannot be used."""
    names = [migration.name for migration in migrations]
    version = version_of(load_objects(objects), names)
    try:
        is_applied = version in [row["sha256"] for row in await sql.migration_versions(conn)]
    except asyncpg.UndefinedTableError:
        is_applied = False  # by an empty database, or an earlier version
    except asyncpg.InsufficientPrivilegeError:
        raise SchemaError(NOT_A_MEMBER) from None
    if not is_applied:
        raise SchemaError(NOT_MIGRATED)
    await check_newer_schema(conn, names)


async def _apply_migration(conn: asyncpg.Connection, migration: Migration) -> None:
    await conn.execute(migration.path.read_text("utf-8"))
    await sql.migration_note(
        conn,
        name=migration.name,
        compatible_with=migration.compatible_with,
        sha256=migration.sha256,
    )

"""Versions of the service on one database: which run after a migration, and which are refused."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from service.db.compatibility import SchemaError, newest_number, read_migrations
from service.db.migrations import migrate
from service.db.statements import sql
from tests.conftest import Templates
from tests.harness.databases import add_migration, create_database, open_connection
from tests.harness.processes import Service
from tests.operations.test_migration_logins import create_login

CURRENT = newest_number(read_migrations())
NEXT, AFTER_NEXT = "9000_next.sql", "9001_after_next.sql"
COLUMN = "alter table companies add column more int;"


def compatible(version: str, text: str = COLUMN) -> str:
    """Return a migration after which a version runs."""
    return f"-- compatible: {version}\n{text}"


# An older version


async def test_older_version_runs_after_a_migration_that_allows_it(
    cluster: str, database: str, tmp_path: Path
) -> None:
    folder = add_migration(tmp_path, NEXT, compatible(CURRENT))
    assert await migrate(database, folder) == [NEXT]
    assert await migrate(database) == []
    async with create_login(cluster, database, "einvoice_service") as url:
        assert await migrate(url) == []


@pytest.mark.parametrize("text", [COLUMN, compatible("8999")], ids=["undeclared", "later"])
async def test_older_version_is_refused_after_any_other_migration(
    cluster: str, database: str, tmp_path: Path, text: str
) -> None:
    folder = add_migration(tmp_path, "8999_between.sql", compatible(CURRENT, "select 1"))
    (folder / NEXT).write_text(text)
    await migrate(database, folder)
    async with create_login(cluster, database, "einvoice_service") as login:
        for url in (database, login):
            with pytest.raises(SchemaError, match=rf"newer version of the service \({NEXT}\)"):
                await migrate(url)


async def test_version_between_runs_where_an_earlier_one_does_not(
    database: str, tmp_path: Path
) -> None:
    """A migration that removes what the one before it has replaced."""
    folder = add_migration(tmp_path, NEXT, compatible(CURRENT))
    await migrate(database, folder)
    removal = folder / AFTER_NEXT
    removal.write_text(compatible("9000", "alter table companies drop column more;"))
    await migrate(database, folder)
    removal.unlink()
    assert await migrate(database, folder) == []
    with pytest.raises(SchemaError, match=AFTER_NEXT):
        await migrate(database)


async def test_version_with_other_migrations_is_refused(database: str, tmp_path: Path) -> None:
    await migrate(database, add_migration(tmp_path / "a", NEXT, compatible(CURRENT)))
    other = add_migration(tmp_path / "b", "9000_other.sql", compatible(CURRENT, "select 1"))
    with pytest.raises(SchemaError, match=rf"\({NEXT}\) and lacks those of this one \(9000_other"):
        await migrate(database, other)


async def test_running_process_stops_after_a_migration_that_excludes_it(
    environment: Mapping[str, str], owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """It was not connected when the migration looked for it."""
    async with Service(environment, tmp_path / "service.log") as service:
        await owner.execute(
            "insert into schema_migrations (name, sha256) values ('9999_future.sql', '')"
        )
        await owner.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name like 'einvoice %' and datname = current_database()"
        )
        assert await service.wait() == 0
        assert "this process stops. The database has migrations of a newer" in service.output()


async def test_an_applied_migration_that_changed_is_refused_before_anything_is_applied(
    database: str, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    folder = add_migration(tmp_path, NEXT, compatible(CURRENT, "select 1"))
    await migrate(database, folder)
    applied = (folder / NEXT).read_bytes()
    (folder / NEXT).write_bytes(applied + b" -- edited")
    (folder / AFTER_NEXT).write_text(compatible("9000", "select 1"))
    with pytest.raises(SchemaError, match=rf"^sql/migrations/{NEXT} has changed since") as raised:
        await migrate(database, folder)
    assert "Restore the file" in str(raised.value) and "new, empty database" in str(raised.value)
    done = await owner.fetch("select name from schema_migrations where name like '9%'")
    assert [row["name"] for row in done] == [NEXT]
    (folder / NEXT).write_bytes(applied)
    assert await migrate(database, folder) == [AFTER_NEXT]


# Running processes of an older version


@asynccontextmanager
async def open_session(url: str, name: str) -> AsyncIterator[None]:
    """Open a session like that of a process of the service."""
    async with open_connection(url, server_settings={"application_name": name}):
        yield


@pytest.mark.parametrize("name", ["einvoice", "einvoice 0020", f"einvoice {CURRENT}"])
async def test_migration_that_excludes_a_running_version_is_refused(
    database: str, owner: asyncpg.Connection, tmp_path: Path, name: str
) -> None:
    folder = add_migration(tmp_path, NEXT, compatible(CURRENT, "select 1"))
    (folder / AFTER_NEXT).write_text(COLUMN)
    async with open_session(database, name):
        with pytest.raises(SchemaError) as raised:
            await migrate(database, folder)
    assert str(raised.value).startswith(
        "An older version of the service is running that cannot run after 9001_after_next.sql "
        f'(sessions: 1 of "{name}" from '
    )
    done = await owner.fetch("select from schema_migrations where name like '9%'")
    assert done == []
    assert await migrate(database, folder) == [NEXT, AFTER_NEXT]


async def test_migration_that_allows_a_running_version_is_applied(
    database: str, tmp_path: Path
) -> None:
    folder = add_migration(tmp_path, NEXT, compatible(CURRENT))
    async with (
        open_session(database, f"einvoice {CURRENT}"),
        open_session(database, "einvoice 9000"),
        open_session(database, "psql"),
    ):
        assert await migrate(database, folder) == [NEXT]


async def test_sessions_of_another_database_do_not_stop_a_migration(
    cluster: str, templates: Templates, database: str, tmp_path: Path
) -> None:
    async with create_database(cluster, templates.empty) as other, open_session(other, "einvoice"):
        assert await migrate(database, add_migration(tmp_path, NEXT, COLUMN)) == [NEXT]


async def test_login_without_rights_sees_sessions_of_other_logins(
    cluster: str, database: str
) -> None:
    async with (
        create_login(cluster, database, "") as url,
        open_session(database, "einvoice 0020"),
    ):
        conn = await asyncpg.connect(url)
        rows = await sql.sessions_before(conn, application="einvoice", version="0021")
        await conn.close()
    assert [tuple(row) for row in rows] == [("einvoice 0020", 1, None)]


# Declarations


@pytest.mark.parametrize("text", ["", "yes", "9000", "9001", "20"])
def test_declaration_that_names_no_earlier_migration_is_refused(tmp_path: Path, text: str) -> None:
    folder = add_migration(tmp_path, NEXT, f"-- compatible: {text}\n")
    with pytest.raises(SchemaError, match=r"9000_next\.sql: `-- compatible:` must name"):
        read_migrations(folder)

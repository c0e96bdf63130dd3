"""Views and functions: applied once and after each change, with few locks, and never downgraded."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from graphlib import CycleError
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg
import pytest

from service.db.compatibility import MIGRATIONS, read_migrations
from service.db.migrations import migrate
from service.db.schema_objects import SQL, load_objects
from tests.conftest import Templates, until
from tests.harness.databases import administer, create_database
from tests.schema_file import SCHEMA, describe_schema

RECORDS = "views/einvoice_request_records.sql"


@pytest.fixture
def sql_files(tmp_path: Path) -> Path:
    """A copy of sql/ that a test may change."""
    return Path(shutil.copytree(SQL, tmp_path / "sql"))


def change(root: Path, file: str, old: str, new: str) -> None:
    path = root / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def add_parameter(root: Path) -> str:
    file, name = "functions/submissions/hold_sending.sql", "hold_sending(why text, "
    change(root, file, name, f"{name}loud boolean default false, ")
    return file


async def upgrade(database: str, root: Path) -> list[str]:
    return await migrate(database, root / "migrations", objects=root)


# Order


def test_every_object_follows_those_that_it_names() -> None:
    names = [item.name for item in load_objects()]
    assert names.index("instant") < names.index("invoice_records")
    assert names.index("as_buyer") < names.index("as_supplier") < names.index("company_records")
    assert names.index("unsent_heads") < names.index("claim_submissions")
    assert names == [item.name for item in load_objects()]


def test_objects_that_need_each_other_are_rejected(sql_files: Path) -> None:
    change(sql_files, "functions/values/number_or_na.sql", "'NA')", "as_buyer(null) ->> 'tin')")
    with pytest.raises(CycleError):
        load_objects(sql_files)


async def test_every_view_and_function_has_one_definition(owner: asyncpg.Connection) -> None:
    """A migration defines the functions that its tables need; all others have their own files."""
    present = await owner.fetch(
        """
        select proname as name from pg_proc where pronamespace = 'public'::regnamespace
        union all
        select viewname from pg_views where schemaname = 'public'
        """
    )
    migrations = "".join(path.read_text() for path in MIGRATIONS.glob("*.sql"))
    in_migrations = re.findall(
        r"^create (?:function|procedure|view) (?!pg_temp)(\w+)", migrations, re.MULTILINE
    )
    defined = [item.name for item in load_objects()]
    assert sorted(row["name"] for row in present) == sorted(defined + in_migrations)


# Changes


async def test_the_file_of_the_schema_is_what_the_migrations_make(
    owner: asyncpg.Connection,
) -> None:
    assert SCHEMA.read_text("utf-8") == await describe_schema(owner), "Run make schema."


async def test_an_unchanged_object_is_not_touched(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    rows = "select oid, xmin from pg_proc union all select oid, xmin from pg_class order by oid"
    before = await owner.fetch(rows)
    async with owner.transaction():
        await owner.execute("lock table documents, companies")
        await owner.fetch("select * from invoice_records")
        assert await upgrade(database, sql_files) == []
    assert await owner.fetch(rows) == before


async def test_a_changed_function_is_replaced(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    change(sql_files, "functions/values/number_or_na.sql", "'NA')", "'none')")
    assert await upgrade(database, sql_files) == ["functions/values/number_or_na.sql"]
    assert await owner.fetchval("select number_or_na(' ')") == "none"
    assert await upgrade(database, sql_files) == []


async def test_a_view_that_loses_a_column_is_created_again_with_its_grants(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    change(sql_files, RECORDS, "       r.status,\n", "")
    dependent = sql_files / "views" / "a_dependent.sql"
    dependent.write_text(
        "create or replace view a_dependent with (security_invoker = true) as\n"
        "select invoice_code from einvoice_request_records;\n"
        "grant select on a_dependent to einvoice_service;\n"
    )
    await owner.execute(dependent.read_text())
    acl = "select relacl::text from pg_class where relname = 'einvoice_request_records'"
    before = await owner.fetchval(acl)
    assert await upgrade(database, sql_files) == [RECORDS, "views/a_dependent.sql"]
    assert await owner.fetchval(acl) == before
    assert await owner.fetchval(
        "select has_table_privilege('einvoice_service', 'a_dependent', 'select')"
    )
    statement = await owner.prepare("select * from einvoice_request_records")
    assert "status" not in [column.name for column in statement.get_attributes()]


async def test_a_function_with_other_results_is_created_again_with_its_callers(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    file = "functions/submissions/uncertain_heads.sql"
    change(sql_files, file, "due_at timestamptz)", "due_at timestamptz, more int)")
    change(
        sql_files,
        file,
        "greatest(h.due_at, w.lease_until)\n",
        "greatest(h.due_at, w.lease_until), 1\n",
    )
    assert await upgrade(database, sql_files) == [
        file,
        "functions/comparisons/claim_comparisons.sql",
        "functions/submissions/next_due.sql",
    ]
    rows = await owner.fetch(
        """
        select has_function_privilege('einvoice_service', oid, 'execute')
          from pg_proc
         where proname = 'claim_comparisons'
        """
    )
    assert [row[0] for row in rows] == [True]


async def test_a_function_with_other_parameters_leaves_no_earlier_variant(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    file = add_parameter(sql_files)
    applied = await upgrade(database, sql_files)
    assert applied == [file]
    variants = await owner.fetch(
        """
        select pronargs, (select count(*) from aclexplode(proacl) where grantee = 0)
          from pg_proc
         where proname = 'hold_sending'
        """
    )
    assert [tuple(row) for row in variants] == [(3, 0)]


async def test_an_object_that_a_migration_dropped_is_created_again(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    drop = sql_files / "migrations" / "9999_drop.sql"
    drop.write_text(
        "drop view einvoice_request_records; alter table einvoice_requests add column more int;"
    )
    assert await upgrade(database, sql_files) == [drop.name, RECORDS]
    assert await owner.fetchval("select count(*) from einvoice_request_records") == 0


async def test_a_failing_object_undoes_all_changes_of_objects(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    change(sql_files, "functions/values/number_or_na.sql", "'NA')", "'none')")
    change(sql_files, RECORDS, "r.status", "r.nothing")
    with pytest.raises(asyncpg.UndefinedColumnError):
        await upgrade(database, sql_files)
    assert await owner.fetchval("select number_or_na(' ')") == "NA"


async def test_an_older_version_does_not_replace_objects_of_a_newer_one(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    change(sql_files, "functions/values/number_or_na.sql", "'NA')", "'none')")
    await upgrade(database, sql_files)
    assert await migrate(database) == []
    assert await owner.fetchval("select number_or_na(' ')") == "none"
    change(sql_files, "functions/values/number_or_na.sql", "'none')", "'NA')")
    (sql_files / "migrations" / "9999_next.sql").write_text("select 1")
    assert await upgrade(database, sql_files) == [
        "9999_next.sql",
        "functions/values/number_or_na.sql",
    ]
    assert await owner.fetchval("select number_or_na(' ')") == "NA"


async def test_older_version_keeps_the_objects_of_a_newer_schema(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    """Also if the older version was never applied to this database."""
    change(sql_files, "functions/values/number_or_na.sql", "'NA')", "'none')")
    current = read_migrations()[-1].number
    (sql_files / "migrations" / "9000_next.sql").write_text(f"-- compatible: {current}\nselect 1;")
    await upgrade(database, sql_files)
    await owner.execute("delete from schema_versions")
    assert await migrate(database) == []
    assert await owner.fetchval("select number_or_na(' ')") == "none"


async def test_concurrent_upgrades_apply_an_object_once(database: str, sql_files: Path) -> None:
    change(sql_files, "functions/values/number_or_na.sql", "'NA')", "'none')")
    done = await asyncio.gather(*[upgrade(database, sql_files) for _ in range(5)])
    assert sorted(done) == [[]] * 4 + [["functions/values/number_or_na.sql"]]


async def test_a_replaced_view_waits_without_blocking_its_readers(
    database: str, owner: asyncpg.Connection, sql_files: Path
) -> None:
    change(sql_files, RECORDS, "r.status,", "upper(r.status) as status,")
    reader = await asyncpg.connect(database)
    async with owner.transaction():
        await owner.fetch("select * from einvoice_request_records")
        running = asyncio.create_task(upgrade(database, sql_files))
        await until(lambda: reader.fetchval("select count(*) from pg_locks where not granted"))
        await reader.fetch("select * from einvoice_request_records", timeout=10)
        assert not running.done()
    assert await running == [RECORDS]
    await reader.close()


# An owner who is no superuser


@pytest.fixture
async def plain(cluster: str, templates: Templates) -> AsyncIterator[str]:
    """The address of an empty database as its owner, a role that is not a superuser."""
    role = "einvoice_plain_owner"
    # Another test process may have created it.
    with suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
        await administer(cluster, f"create role {role} createrole")
    await administer(cluster, f"grant einvoice_service, einvoice_across to {role}")
    async with create_database(cluster, owner=role) as database:
        url = urlsplit(database)
        query = urlencode([*parse_qsl(url.query), ("role", role)])
        yield str(url._replace(query=query).geturl())


async def test_an_owner_that_is_no_superuser_migrates_and_upgrades(
    plain: str, sql_files: Path
) -> None:
    assert len(await migrate(plain)) > 60
    file = add_parameter(sql_files)
    assert await upgrade(plain, sql_files) == [file]

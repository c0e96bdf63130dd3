"""The comments that explain the schema in psql."""

import re
import sqlite3

import asyncpg

from service.sandbox.database import FOLDER as SANDBOX_SQL


async def test_every_table_view_column_and_function_has_a_comment(
    owner: asyncpg.Connection,
) -> None:
    missing = await owner.fetch(
        """
        select c.relname as name
          from pg_class c
         where c.relnamespace = 'public'::regnamespace
           and c.relkind in ('r', 'p', 'v', 'm', 'f')
           and obj_description(c.oid, 'pg_class') is null
        union all
        select format('%s.%s', c.relname, a.attname)
          from pg_class c
          join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where c.relnamespace = 'public'::regnamespace
           and c.relkind in ('r', 'p', 'v', 'm', 'f')
           and col_description(c.oid, a.attnum) is null
        union all
        select p.oid::regprocedure::text
          from pg_proc p
         where p.pronamespace = 'public'::regnamespace
           and obj_description(p.oid, 'pg_proc') is null
        """
    )
    assert [row["name"] for row in missing] == []


def test_every_table_and_column_of_the_sandbox_has_a_comment() -> None:
    """SQLite has no COMMENT ON, but `.schema` shows the comments inside of a table's definition."""
    db = sqlite3.connect(":memory:")
    db.executescript((SANDBOX_SQL / "schema.sql").read_text("utf-8"))
    tables = db.execute(
        "select name, sql from sqlite_master where type = 'table' and name not like 'sqlite_%'"
    ).fetchall()
    missing = []
    for name, text in tables:
        if not re.match(r"create table \w+ \(  -- \S", text, re.IGNORECASE):
            missing.append(name)
        for column in db.execute("select name from pragma_table_info(?)", (name,)):
            if not re.search(rf"^  {column[0]} .*-- \S", text, re.MULTILINE):
                missing.append(f"{name}.{column[0]}")
    assert tables and missing == []

"""An acknowledged effect is on disk: no session of the service commits asynchronously."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from service.db.transactions import Database
from service.http import app_keys

#: Ways to open a transaction, and the connection without one.
WAYS = [name for name in vars(Database) if not name.startswith("_")]


@pytest.fixture
async def app(api: Any) -> AsyncIterator[Any]:
    yield api.app


@pytest.mark.parametrize("way", WAYS)
async def test_every_transaction_of_the_service_commits_synchronously(
    app: Any, company: Any, way: str
) -> None:
    database = app[app_keys.DATABASE]
    async with getattr(database, way)(*([] if way == "across" else [company.id])) as conn:
        assert await conn.fetchval("show synchronous_commit") == "on"


async def test_every_session_of_the_service_commits_synchronously(app: Any) -> None:
    for conn in (app[app_keys.SESSION]._conn, app[app_keys.WATCHDOG]._conn):
        assert await conn.fetchval("show synchronous_commit") == "on"
    async with app[app_keys.DATABASE].pool.acquire() as conn:
        assert await conn.fetchval("show synchronous_commit") == "on"


async def test_the_database_loses_no_commit_by_a_setting(owner: asyncpg.Connection) -> None:
    """No migration turns durability off for a role or a database. (The tests' own cluster runs without fsync.)"""
    query = "select unnest(setconfig) from pg_db_role_setting"
    settings = [row[0].split("=")[0] for row in await owner.fetch(query)]
    assert not {"synchronous_commit", "fsync", "full_page_writes"} & set(settings)

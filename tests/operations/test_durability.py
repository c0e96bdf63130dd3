"""Durability: no session commits asynchronously, and the server loses no commit."""

from functools import partial
from typing import Any

import asyncpg
import pytest

from service.http import app_keys
from tests.api_requests import request_json
from tests.conftest import Client, Company, until
from tests.harness.processes import run_command

#: Methods of Database that open a transaction, and the ids that they take. No row is read, so that
#: any number is the id of an account.
WAYS = {"company": 1, "reading": 1, "account": 1, "person": 0, "across": 0}


@pytest.fixture
def app(own_api: Client) -> Any:
    return own_api.app


@pytest.mark.parametrize("way", WAYS)
async def test_every_transaction_of_the_service_commits_synchronously(
    app: Any, company: Company, way: str
) -> None:
    database = app[app_keys.DATABASE]
    async with getattr(database, way)(*[company.id] * WAYS[way]) as conn:
        assert await conn.fetchval("show synchronous_commit") == "on"


async def test_every_session_of_the_service_commits_synchronously(app: Any) -> None:
    session = app[app_keys.SESSION]
    value = await until(partial(_read_setting, session), lambda value: value is not None)
    assert value == "on"
    for database in (app[app_keys.DATABASE], app[app_keys.WATCHDOG]._database):
        async with database.across() as conn:
            assert await conn.fetchval("show synchronous_commit") == "on"


async def _read_setting(owner: Any) -> str | None:
    """Return the setting of a connection of the service, or None while the service uses it."""
    try:
        return owner._conn and await owner._conn.fetchval("show synchronous_commit")
    except asyncpg.InterfaceError:
        return None


async def test_no_role_or_database_setting_disables_durability(owner: asyncpg.Connection) -> None:
    """No migration disables durability for a role or a database."""
    query = "select unnest(setconfig) from pg_db_role_setting"
    settings = [row[0].split("=")[0] for row in await owner.fetch(query)]
    assert not {"synchronous_commit", "fsync", "full_page_writes"} & set(settings)


@pytest.mark.parametrize("command", ["serve", "worker"])
async def test_a_server_that_can_lose_commits_stops_the_start(
    environment: dict[str, str], owner: asyncpg.Connection, command: str
) -> None:
    name = await owner.fetchval("select current_database()")
    await owner.execute(f'alter database "{name}" set synchronous_commit = off')
    done = await run_command([command], {**environment, "DATABASE_DURABILITY": "on"})
    assert done.code == 1 and "synchronous_commit off" in done.err


async def test_readiness_has_the_durability(api: Client) -> None:
    assert (await request_json(api, "GET", "/readyz"))[1]["durability"] == "off"

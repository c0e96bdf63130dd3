"""The schema and the login: the owner migrates, the service's login checks what was applied."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from service.db.migrations import NOT_A_MEMBER, NOT_MIGRATED, SchemaError, migrate
from tests.conftest import Templates
from tests.harness.databases import administer, create_database, replace_login


@asynccontextmanager
async def create_login(server: str, database: str, role: str) -> AsyncIterator[str]:
    """Yield the URL of a database for a new login, a member of `role` if it is not empty."""
    name = f"login_{secrets.token_hex(6)}"
    membership = f"in role {role}" if role else ""
    await administer(server, f"create role {name} login password '{name}' {membership}")
    try:
        yield replace_login(database, f"{name}:{name}")
    finally:
        await administer(server, f"drop role {name}")


async def test_service_login_accepts_a_migrated_database(
    cluster: str, owner: asyncpg.Connection, database: str
) -> None:
    async with create_login(cluster, database, "einvoice_service") as url:
        assert await migrate(url) == []
        # The tables have what a later version may have added, and the earlier one is still known.
        await owner.execute("insert into schema_versions (sha256) values ('later')")
        assert await migrate(url) == []


async def test_service_login_rejects_a_database_of_another_version(
    cluster: str, owner: asyncpg.Connection, database: str
) -> None:
    await owner.execute("delete from schema_versions")
    async with create_login(cluster, database, "einvoice_service") as url:
        with pytest.raises(SchemaError) as raised:
            await migrate(url)
    assert str(raised.value) == NOT_MIGRATED


async def test_service_login_rejects_an_empty_database(cluster: str, templates: Templates) -> None:
    async with (
        create_database(cluster) as empty,
        create_login(cluster, empty, "einvoice_service") as url,
    ):
        with pytest.raises(SchemaError) as raised:
            await migrate(url)
    assert str(raised.value) == NOT_MIGRATED


async def test_a_database_that_cannot_store_every_text_is_rejected(cluster: str) -> None:
    async with create_database(cluster, "template0 encoding 'LATIN1' locale 'C'") as url:
        with pytest.raises(SchemaError, match="encoding of the database is LATIN1"):
            await migrate(url)


async def test_login_outside_the_role_of_the_service_is_named(cluster: str, database: str) -> None:
    async with create_login(cluster, database, "") as url:
        with pytest.raises(SchemaError) as raised:
            await migrate(url)
    assert str(raised.value) == NOT_A_MEMBER

"""The login for support staff that `make run` prints."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from harness.paths import ROOT
from harness.processes import Service, free_port


@pytest.fixture
async def support(tmp_path: Path) -> AsyncIterator[asyncpg.Connection]:
    """A connection with the login that a start with the embedded PostgreSQL prints."""
    environment = {
        "DATABASE_URL": "",
        "DATA_DIR": str(tmp_path / "data"),
        "SANDBOX_PORT": str(free_port()),
    }
    async with Service(environment, tmp_path / "service.log") as service:
        text = await service.printed("psql:  ")
        conn = await asyncpg.connect(re.findall(r'psql "(\S+)"', text)[0])
        yield conn
        await conn.close()


async def test_the_printed_login_runs_all_inspections_and_reads_no_secret(
    support: asyncpg.Connection,
) -> None:
    for path in sorted((ROOT / "sql" / "inspect").glob("*.sql")):
        await support.fetch(re.sub(r"(?<!:):(company_id|id)\b", "1", path.read_text()))
    assert await support.fetchval("select count(*) from companies") == 1
    rights = "select rolsuper or rolbypassrls from pg_roles where rolname = current_user"
    assert await support.fetchval(rights) is False
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await support.fetch("select secret_sha256 from api_keys")
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await support.execute("update companies set name = 'x'")
    await support.execute("set default_transaction_read_only = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await support.execute("update companies set name = 'x'")

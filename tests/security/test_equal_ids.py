"""A company and an account with the same id share nothing: each has its own keys and their limits,
stored responses and audit log. Row-level security alone and the conditions alone separate them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from service.db.pool import connected_pool
from service.db.statements import sql
from service.db.transactions import Database, Owner
from service.http import api_keys
from service.http.api_keys import COMPANY, INTEGRATION, KINDS, KeyKind, insert_key, new_key
from service.http.idempotency import LEASE
from tests.api_requests import INTEGRATIONS, Account, make_account
from tests.conftest import Company, StartService, make_company
from tests.security.test_tenant_isolation import without_policies, without_predicates

ID = 7
KEY_ID = "000000000007"
OWNERS = tuple(Owner(kind.owner, ID) for kind in KINDS)
ROUTE = {"route": "POST /api/things", "key": "4711"}
TABLES = ("api_keys", "key_quotas", "idempotency_keys")

both_defences = pytest.mark.parametrize("remaining", ["policies", "predicates"])


@asynccontextmanager
async def one_defence(owner: asyncpg.Connection, remaining: str) -> AsyncIterator[None]:
    """Switch the conditions of statements off, or row-level security."""
    with without_predicates() if remaining == "policies" else nullcontext():
        if remaining == "predicates":
            await without_policies(owner)
        yield


@pytest.fixture
async def equals(environment: dict[str, str], owner: asyncpg.Connection) -> tuple[Company, Account]:
    """Return a company and an account with the same id."""
    for table in ("companies", "accounts"):
        sequence = f"pg_get_serial_sequence('{table}', 'id')"
        await owner.execute(f"select setval({sequence}, {ID}, false)")
    company, account = await make_company(environment), await make_account(environment)
    assert (company.id, account.id) == (ID, ID)
    return company, account


@pytest.fixture
async def database_of_both(
    environment: dict[str, str], equals: tuple[Company, Account]
) -> AsyncIterator[Database]:
    """Yield the database, in which both have a key with the same id, named like the kind."""
    async with connected_pool(environment["DATABASE_URL"], 1) as pool:
        database = Database(pool)
        for kind in KINDS:
            async with database.owned(Owner(kind.owner, ID)) as conn:
                key = replace(new_key(False, kind), key_id=KEY_ID)
                await insert_key(conn, key, kind.owner, None)
        yield database


async def run(database: Database, owner: Owner, statement: Any, **values: Any) -> Any:
    """Run a statement about the key of an owner, in a transaction of the owner."""
    async with database.owned(owner) as conn:
        return await statement(conn, **owner.variables, **values)


async def rows_of(owner: asyncpg.Connection, kind: str) -> dict[str, list[str]]:
    """Return the rows of a company or an account, by table."""
    rows = {}
    for table in TABLES:
        query = f"select to_jsonb(t)::text from {table} t where owner_kind = $1 order by 1"
        rows[table] = [row[0] for row in await owner.fetch(query, kind)]
    return rows


@both_defences
async def test_owners_with_equal_ids_share_nothing(
    database_of_both: Database, owner: asyncpg.Connection, remaining: str
) -> None:
    database = database_of_both
    async with one_defence(owner, remaining):
        for mine in OWNERS:
            keys = await run(database, mine, sql.api_key_list)
            assert len(keys) == 2 and mine.kind in {key["name"] for key in keys}
            at_limit = {"most": 2, "secret_sha256": b"", "expires_at": None}
            key = {"key_id": "third", "name": mine.kind}
            assert await run(database, mine, sql.api_key_insert, **key, **at_limit) is None
            taken = await run(database, mine, sql.key_quota_take, key_id=KEY_ID, quota=1)
            assert taken["wait"] is None
            assert await _find_response(database, mine) is None
            assert await _keep_response(database, mine)
        for mine in OWNERS:
            assert await _find_response(database, mine) == mine.kind
            taken = await run(database, mine, sql.key_quota_take, key_id=KEY_ID, quota=1)
            assert taken["wait"]
        async with database.company(ID) as conn:
            entries = await sql.audit_page(conn, company_id=ID, most=9)
    in_log = await owner.fetchval("select count(*) from audit_log where company_id = $1", ID)
    assert 0 < len(entries) == in_log
    assert await owner.fetchval("select count(*) from audit_log where account_id = $1", ID) == 2


@both_defences
@pytest.mark.parametrize("mine, other", [OWNERS, OWNERS[::-1]], ids=["company", "account"])
async def test_an_owner_changes_nothing_of_another_with_its_id(
    database_of_both: Database, owner: asyncpg.Connection, remaining: str, mine: Owner, other: Owner
) -> None:
    database = database_of_both
    for each in OWNERS:
        await _keep_response(database, each)
    await owner.execute("update idempotency_keys set created_at = now() - interval '73 hours'")
    rows = [await rows_of(owner, each.kind) for each in (mine, other)]
    async with one_defence(owner, remaining):
        await run(database, mine, sql.api_key_used, key_id=KEY_ID)
        assert await run(database, mine, sql.api_key_revoke, key_id=KEY_ID)
        await run(database, mine, sql.idempotency_sweep)
    assert await rows_of(owner, other.kind) == rows[1]
    changed = await rows_of(owner, mine.kind)
    assert changed["api_keys"] != rows[0]["api_keys"] and changed["idempotency_keys"] == []


async def _keep_response(database: Database, owner: Owner) -> Any:
    """Store a response that names the kind of its owner."""
    values = {"body_sha256": b"", "status": 200, "answer": owner.kind}
    values |= {"claim_token": None, "sealed_secrets": None, "is_interim": False}
    return await run(database, owner, sql.idempotency_keep, **ROUTE, **values, lease=LEASE)


async def _find_response(database: Database, owner: Owner) -> str | None:
    values = {**owner.variables, **ROUTE, "body_sha256": b"", "lease": LEASE}
    row = await database.read(sql.idempotency_get, **values)
    return row and row["answer"]


@both_defences
async def test_a_key_is_unknown_on_the_other_surface(
    equals: tuple[Company, Account], start: StartService, owner: asyncpg.Connection, remaining: str
) -> None:
    """Also with the prefix of the other surface. Both keys are cached."""
    company, account = equals
    api = await start(company, background=False)
    surfaces = (
        ("/api/invoices", COMPANY, company.key, account.key),
        (f"{INTEGRATIONS}users", INTEGRATION, account.key, company.key),
    )
    async with one_defence(owner, remaining):
        for path, kind, own, _ in surfaces:
            assert (await api.get(path, headers={kind.header: own})).status == 200
        for path, kind, _, other in surfaces:
            for key in (other, _as_key_of(kind, other)):
                assert (await api.get(path, headers={kind.header: key})).status == 401


def _as_key_of(kind: KeyKind, text: str) -> str:
    """Return a key with the prefix of a surface and a correct checksum."""
    body = kind.prefix + text[len(kind.prefix) : -6]
    return body + api_keys._checksum(body)

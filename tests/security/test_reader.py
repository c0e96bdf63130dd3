"""The role of support staff: reads the rows of all companies, no secret, and changes nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests.api_invoices import create_invoice
from tests.conftest import Company, StartService, make_company
from tests.harness.inspections import INSPECTIONS, fill_inspection

SECRETS = {
    ("api_keys", "secret_sha256"),
    ("webhook_secrets", "sealed_secret"),
    ("signing_certificates", "sealed_key"),
    ("portal_credentials", "fingerprint"),
    ("portal_credentials", "sealed_secret"),
    ("idempotency_keys", "body_sha256"),
    ("idempotency_keys", "answer"),
    ("idempotency_keys", "sealed_secrets"),
    ("idempotency_keys", "claim_token"),
    ("refused_logins", "fingerprint"),
    ("users", "password_hash"),
    ("users", "form_secret"),
    ("user_sessions", "token_sha256"),
    ("user_links", "token_sha256"),
    ("document_links", "token_sha256"),
    ("einvoice_requests", "secret_sha256"),
}
#: Look like secrets by their names, and are none.
NO_SECRETS = {
    ("audit_log", "after_sha256"),
    ("audit_log", "before_sha256"),
    ("audit_records", "after_sha256"),
    ("audit_records", "before_sha256"),
    ("schema_migrations", "sha256"),
    ("schema_objects", "sha256"),
    ("schema_versions", "sha256"),
    ("signing_certificates", "secret_key_id"),
    ("submissions", "request_sha256"),
    ("submitted_document_records", "document_hash"),
    ("submitted_documents", "document_hash"),
}
#: Has the companies of the session's account, which a reader has not.
UNREADABLE_VIEWS = {"organization_records"}


@pytest.fixture
async def reader(database: str) -> AsyncIterator[asyncpg.Connection]:
    """A session of a role that was created for a person. The role is gone at the end."""
    conn = await asyncpg.connect(database)
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(
        "create role support_test login in role einvoice_reader; set local role support_test"
    )
    yield conn
    await transaction.rollback()
    await conn.close()


async def list_columns(conn: asyncpg.Connection, condition: str) -> set[tuple[str, str]]:
    """Return (relation, column) of all tables and views for which an SQL condition holds."""
    rows = await conn.fetch(
        f"""
        select c.relname, a.attname
          from pg_class c
          join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where c.relnamespace = 'public'::regnamespace
           and c.relkind in ('r', 'v')
           and {condition}
        """
    )
    return {(row["relname"], row["attname"]) for row in rows}


async def test_reader_sees_invoices_of_all_companies(
    start: StartService, company: Company, environment: dict[str, str], reader: asyncpg.Connection
) -> None:
    other = await make_company(environment)
    for one in (company, other):
        await create_invoice(await start(one, background=False))
    for relation in ("documents", "invoice_records", "invoice_exports"):
        rows = await reader.fetch(f"select company_id from {relation} order by company_id")
        assert [row["company_id"] for row in rows] == [company.id, other.id]
    assert len(await reader.fetch("select id, name, is_company_ready from company_records")) == 2
    assert len(await reader.fetch("select key_id, last_used_at from api_keys")) == 2


async def test_reader_reads_all_columns_except_secrets(reader: asyncpg.Connection) -> None:
    hidden = await list_columns(reader, "not has_column_privilege(c.oid, a.attnum, 'select')")
    assert {column for column in hidden if column[0] not in UNREADABLE_VIEWS} == SECRETS


async def test_every_column_that_may_have_a_secret_is_hidden(owner: asyncpg.Connection) -> None:
    names = "a.attname ~ '(secret|sealed|password|token|fingerprint|sha256|hash)'"
    assert await list_columns(owner, names) - SECRETS == NO_SECRETS


async def test_reader_has_no_privilege_but_select(reader: asyncpg.Connection) -> None:
    rows = await reader.fetch(
        """
        select relname
          from pg_class
         where relnamespace = 'public'::regnamespace
           and relkind in ('r', 'v')
           and (has_table_privilege(oid, 'delete, truncate, trigger')
                or has_any_column_privilege(oid, 'insert, update'))
        """
    )
    assert rows == []
    assert await reader.fetchval("select has_schema_privilege('public', 'create')") is False


async def test_reader_executes_no_function_with_the_rights_of_another(
    reader: asyncpg.Connection,
) -> None:
    rows = await reader.fetch(
        """
        select proname from pg_proc
         where pronamespace = 'public'::regnamespace
           and prosecdef
           and has_function_privilege(oid, 'execute')
        """
    )
    assert rows == []


async def test_every_tenant_table_lets_the_reader_see_its_rows(owner: asyncpg.Connection) -> None:
    rows = await owner.fetch(
        """
        select relname from pg_class c
         where relnamespace = 'public'::regnamespace
           and relrowsecurity
           and not exists (select
                             from pg_policy
                            where polrelid = c.oid and polname = 'read_across' and polcmd = 'r')
        """
    )
    assert rows == []


@pytest.mark.parametrize("path", INSPECTIONS, ids=lambda path: path.stem)
async def test_reader_runs_the_inspections(reader: asyncpg.Connection, path: Path) -> None:
    await reader.fetch(fill_inspection(path))

"""Lists and searches read what they return by an index, and not all rows of the company."""

import json

import asyncpg
import pytest

from service.db.pool import connected_pool
from service.db.statements import sql
from service.db.transactions import Database
from tests.api.test_exports import insert_copies
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.conftest import Company, StartService
from tests.harness.bodies import AS_BUYER, buyer

INVOICES = 5000
#: Renames the buyers, so that each name has a word of its own.
RENAME = """
    update documents
       set buyer = jsonb_set(buyer::jsonb, '{name}', to_jsonb('Buyer ' || code)),
           buyer_text = 'buyer ' || code
"""
SEQUENTIAL = """
    select coalesce(sum(seq_scan), 0)
      from pg_stat_xact_user_tables
     where relname in ('documents', 'buyer_words')
"""


@pytest.mark.parametrize(
    "query, total",
    [("4777", 1), ("INV-04777", 1), ("buyer 4777", 1), ("buyer 477", 11), ("absent", 0)],
)
async def test_a_search_scans_no_table(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    database: str,
    query: str,
    total: int,
) -> None:
    await insert_copies(owner, await create_invoice(await start(), code=1), INVOICES)
    await owner.execute(RENAME)
    await owner.execute("vacuum analyze")
    window = {"per_page": 10, "offset": 0, "budget": 1_000_000, "sort": "-id"}
    filters = json.dumps({"query": query})
    async with connected_pool(database, 1) as pool, Database(pool).company(company.id) as conn:
        rows = await sql.invoice_search(conn, company_id=company.id, filters=filters, **window)
        assert rows[0]["total"] == total
        assert await conn.fetchval(SEQUENTIAL) == 0


#: Rows that indexes have led to in this transaction.
FETCHED = """
    select coalesce(sum(idx_tup_fetch), 0)
      from pg_stat_xact_user_tables
     where relname = 'documents'
"""


async def test_a_filter_by_date_reads_the_rows_of_the_page_only(
    start: StartService, company: Company, owner: asyncpg.Connection, database: str
) -> None:
    """Matches are counted and sorted by the index alone."""
    await insert_copies(owner, await create_invoice(await start(), code=1), INVOICES)
    await owner.execute(
        "update documents set issue_date = timestamptz '2026-01-01Z' + code % 50 * interval '1 day'"
    )
    await owner.execute("vacuum analyze documents")
    window = {"per_page": 10, "offset": 0, "budget": 1_000_000, "sort": "-id"}
    filters = json.dumps({"issued_from": "2026-01-04T00:00Z", "issued_to": "2026-01-04T23:59Z"})
    async with connected_pool(database, 1) as pool, Database(pool).company(company.id) as conn:
        rows = await sql.invoice_search(conn, company_id=company.id, filters=filters, **window)
        assert (rows[0]["total"], len(rows)) == (INVOICES // 50, 10)
        fetched = await conn.fetchval(FETCHED)
        assert fetched is not None and fetched < 50


#: Scans of the table of companies in this transaction.
COMPANY_SCANS = """
    select coalesce(sum(seq_scan + idx_scan), 0)
      from pg_stat_xact_user_tables
     where relname = 'companies'
"""


@pytest.mark.parametrize("invoice_type, reads", [("INVOICE", False), ("SELF_BILLED_INVOICE", True)])
async def test_a_page_reads_the_company_only_for_self_billed_invoices(
    start: StartService, company: Company, database: str, invoice_type: str, reads: bool
) -> None:
    api = await start()
    for _ in range(3):
        await create_invoice(api, type=invoice_type, supplier=buyer())
    window = {"per_page": 10, "offset": 0, "budget": 1_000_000}
    async with connected_pool(database, 1) as pool, Database(pool).company(company.id) as conn:
        rows = await sql.invoice_page(conn, company_id=company.id, **window)
        found = [json.loads(row["record"])["buyer"]["name"] for row in rows]
        assert found == [AS_BUYER["name"] if reads else buyer()["name"]] * 3
        assert bool(await conn.fetchval(COMPANY_SCANS)) is reads


#: Adds rejected submitted documents like the only one.
REJECTED = """
    insert into submitted_documents (company_id, submission_id, kind, document_id, number,
           document_type, document_version, issued_at, document_hash, status)
    select company_id, submission_id, kind, document_id, number || '-' || n, document_type,
           document_version, issued_at, document_hash, 'Rejected'
      from submitted_documents
     cross join generate_series(1, $1::int) n
"""
ROWS_READ = """
    select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)
      from pg_stat_xact_user_tables
     where relname = 'submitted_documents'
"""


@pytest.mark.parametrize(
    "statuses, total",
    [
        (None, INVOICES + 1),
        ("Rejected", INVOICES),
        ("Valid", 1),
        ("Invalid,Valid,Valid", 1),
        ("Valid,Rejected,Rejected", INVOICES + 1),
        ("Invalid", 0),
    ],
)
async def test_a_page_of_submitted_documents_reads_no_others(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    database: str,
    statuses: str | None,
    total: int,
) -> None:
    await create_valid_invoice(await start())
    await owner.execute(REJECTED, INVOICES)
    await owner.execute("analyze submitted_documents, submissions, record_counts")
    window = {"per_page": 10, "offset": 0}
    async with connected_pool(database, 1) as pool, Database(pool).company(company.id) as conn:
        row = await sql.submitted_document_list(
            conn, company_id=company.id, statuses=statuses, **window
        )
        assert (row["total"], len(json.loads(row["data"]))) == (total, min(total, 10))
        rows = await conn.fetchval(ROWS_READ)
        assert rows is not None and rows <= 100

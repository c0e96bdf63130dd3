"""Migrations that change data, applied by the owner to a database of an earlier version.

The owner is no superuser, as in a deployment: row-level security applies to it.
"""

import json
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from service import json_codec
from service.db.migrations import MIGRATIONS, migrate
from service.documents.body_checks import check_draft
from tests.api_requests import invoice, line
from tests.conftest import Templates
from tests.harness.databases import administer, create_database, replace_login

TOTALS = "0021_submitted_document_totals.sql"
EIGHT = {"taxType": "02", "taxRate": {"percentage": 8}}
NIGHTS = {"taxType": "03", "taxRate": {"perUnitAmount": 10}}
#: Lines that an earlier version counted several times in the taxes of a document.
LINES = [
    line(
        taxDetails=[EIGHT, {"taxType": "02", "taxRate": {"percentage": 8.0}}],
        discount={"rate": 7.5},
    ),
    line(
        id="2",
        unit={"code": "KGM", "price": 0.335, "count": 3},
        taxDetails=[EIGHT, {"taxType": "02", "taxRate": {"percentage": 6}}, EIGHT, EIGHT],
        charge={"amount": 1.005},
    ),
    line(
        id="3",
        taxDetails=[{"taxType": "E"}, {"taxType": "E", "taxRate": {"percentage": 5}}],
        taxExemptionReason="Order 7",
    ),
    line(id="4", taxDetails=[NIGHTS, {"taxType": "03", "taxRate": {"perUnitAmount": 4}}]),
    line(id="5", taxDetails=[]),
]
DOCUMENTS = {
    "invoices": {"code": 1, "code_year": 2026, "type": "INVOICE"},
    "adjustment_notes": {"code": 1, "type": "CREDIT_NOTE", "invoice_id": 1},
    "consolidated_invoices": {
        "code": 1,
        "code_year": 2026,
        "type": "CONSOLIDATED_INVOICE",
        "month": "2026-01-01",
    },
}
AMOUNTS = dict.fromkeys(("net_amount", "excluding_tax", "including_tax", "payable_amount"), 1)


@dataclass(frozen=True, slots=True)
class OldDatabase:
    """A database before a migration: the owner's URL, and a superuser's connection."""

    url: str
    conn: asyncpg.Connection

    async def insert(self, table: str, **values: Any) -> None:
        """Insert a row as an earlier version would have, without keys and triggers."""
        names = ", ".join(values)
        await self.conn.execute(
            f"insert into {table} ({names})"
            f" select {names} from json_populate_record(null::{table}, $1)",
            json_codec.dumps(values),
        )


@pytest.fixture
async def before(cluster: str, templates: Templates, tmp_path: Path) -> AsyncIterator[OldDatabase]:
    """A database before the migration of TOTALS."""
    owner = f"owner_{secrets.token_hex(6)}"
    folder = tmp_path / "migrations"
    folder.mkdir()
    for path in MIGRATIONS.glob("*.sql"):
        if path.name < TOTALS:
            shutil.copy(path, folder)
    await administer(
        cluster,
        f"create role {owner} login createrole password '{owner}';"
        f" grant einvoice_service, einvoice_across to {owner} with admin option",
    )
    async with create_database(cluster, owner=owner) as database:
        url = replace_login(database, f"{owner}:{owner}")
        await migrate(url, folder, objects=tmp_path)
        conn = await asyncpg.connect(database)
        await conn.execute("set session_replication_role = replica")
        yield OldDatabase(url, conn)
        await conn.close()
    await administer(cluster, f"drop role {owner}")


async def test_doubled_taxable_amounts_are_corrected(before: OldDatabase) -> None:
    body = json_codec.loads(json.dumps(invoice(lineItems=LINES)).encode())
    right = json_codec.loads(json_codec.encode(check_draft(body, datetime.now(UTC)).taxes))
    doubled = [{**tax, "taxable": 2 * tax["taxable"]} for tax in right]
    for table, values in DOCUMENTS.items():
        document = {
            **AMOUNTS,
            **values,
            "company_id": 7,
            "issue_date": "2026-02-01T00:00:00Z",
            "line_items": body["lineItems"],
        }
        for code, taxes in enumerate((doubled, right, None), start=1):
            await before.insert(table, **{**document, "code": code, "taxes": taxes})
    assert await migrate(before.url) != []
    for table in DOCUMENTS:
        rows = await before.conn.fetch(f"select taxes::text as taxes from {table} order by code")
        found = [row["taxes"] and json_codec.loads(row["taxes"].encode()) for row in rows]
        assert found == [right, right, None], table


async def test_submitted_documents_of_an_earlier_version_are_counted(before: OldDatabase) -> None:
    document = {**AMOUNTS, **DOCUMENTS["invoices"], "company_id": 7, "line_items": []}
    issued = {"issue_date": "2026-02-01T00:00:00Z"}
    await before.insert("invoices", **document, **issued)
    await before.insert(
        "invoices", **{**document, **issued, "code": 2, "deleted_at": "2026-02-02T00:00:00Z"}
    )
    ids = await before.conn.fetch("select id from invoices order by id")
    for (invoice_id,) in ids:
        await before.insert(
            "submitted_documents",
            company_id=7,
            submission_id=1,
            invoice_id=invoice_id,
            number=f"INV-{invoice_id}",
            document_type="01",
            document_version="1.0",
            issued_at="2026-02-01T00:00:00Z",
            document_hash="",
            status="Rejected",
        )
    await migrate(before.url)
    counted = await before.conn.fetch(
        "select company_id, status, live from record_counts where list = 'submitted_documents'"
    )
    assert [tuple(row) for row in counted] == [(7, "Rejected", 1)]
    deleted = "select invoice_id from submitted_documents where deleted_at is not null"
    assert await before.conn.fetchval(deleted) == ids[1]["id"]


async def test_documents_that_were_not_received_are_no_longer_rejected(before: OldDatabase) -> None:
    """Invoice 1 was not received, 2 rejected by the portal, and 3 submitted again."""
    issued = {"issue_date": "2026-02-01T00:00:00Z"}
    for code in (1, 2, 3):
        values = {**AMOUNTS, **DOCUMENTS["invoices"], "line_items": [], "code": code}
        await before.insert("invoices", **values, company_id=7, **issued)
    made = await before.conn.fetch("select id from invoices order by code")
    unreceived, rejected, again = (row["id"] for row in made)
    error = {"code": "NotReceived", "path": "", "message": "It is not there."}
    for invoice_id, state, status in (
        (unreceived, "NotReceived", "Rejected"),
        (rejected, "Refused", "Rejected"),
        (again, "NotReceived", "Rejected"),
        (again, "Accepted", "Valid"),
    ):
        submission_id = await before.conn.fetchval(
            "insert into submissions (company_id, attempt_key, tin, body, state, on_absence,"
            "                         last_sent_at)"
            " values (7, gen_random_uuid(), 'C1', '', $1, 'release', now()) returning id",
            state,
        )
        await before.insert(
            "submitted_documents",
            company_id=7,
            submission_id=submission_id,
            invoice_id=invoice_id,
            number=f"INV-{invoice_id}",
            document_type="01",
            document_version="1.0",
            issued_at="2026-02-01T00:00:00Z",
            document_hash="",
            status=status,
            uuid="U1" if status == "Valid" else None,
            errors=[error],
            updated_at="2026-02-01T08:00:00.5Z",
        )
    await migrate(before.url)
    rows = await before.conn.fetch("select status from submitted_documents order by id")
    assert [row["status"] for row in rows] == ["NotSent", "Rejected", "NotSent", "Valid"]
    counted = await before.conn.fetch(
        "select status, sum(live)::int as live from record_counts"
        " where list = 'submitted_documents' group by status having sum(live) > 0 order by status"
    )
    assert [tuple(row) for row in counted] == [("NotSent", 2), ("Rejected", 1), ("Valid", 1)]
    shown = await before.conn.fetch("select not_sent::text as text from invoices order by code")
    assert [row["text"] and json.loads(row["text"]) for row in shown] == [
        {
            "status": "NotSent",
            "code": "not_received",
            "message": error["message"],
            "at": "2026-02-01T08:00:00.500+00:00",
            "retryable": True,
            "errors": [error],
        },
        None,
        None,
    ]


#: Person -> the companies with a role, those that invited the person in their order, those that
#: have removed the person, and those whose role stays accepted. All but one have a password.
PEOPLE = {
    "one company": ((7,), (7,), (), {7}),
    "without a password": ((7, 8), (7, 8), (), set()),
    "first of two": ((7, 8), (8, 7), (), {8}),
    "removed by the first": ((7, 8), (9, 8, 7), (9,), set()),
    "invited again by the first": ((7, 8), (8, 7, 8), (8,), set()),
    "never recorded": ((7, 8), (), (), set()),
}


async def test_roles_of_a_company_that_did_not_set_the_password_become_pending(
    before: OldDatabase,
) -> None:
    for company in (7, 8, 9):
        await before.insert("companies", id=company, name="C", tin_code=f"C{company}")
    for user, (name, (roles, invited, removed, _)) in enumerate(PEOPLE.items(), start=1):
        digest = None if name == "without a password" else "hash"
        await before.insert("users", id=user, email=name, name=name, password_hash=digest)
        for company in roles:
            await before.insert("company_members", company_id=company, user_id=user, role="owner")
        for company in invited:
            await before.insert(
                "audit_log", company_id=company, action="invite", subject=f"user {user} as owner"
            )
        for company in removed:
            await before.insert(
                "audit_log", company_id=company, action="remove", subject=f"user {user}"
            )
    await before.insert(
        "user_links",
        token_sha256="\\x01",
        user_id=1,
        purpose="password",
        expires_at="2100-01-01T00:00:00Z",
    )
    await migrate(before.url)
    rows = await before.conn.fetch(
        "select u.name, array_agg(m.company_id) filter (where m.accepted_at is not null)"
        " as accepted from company_members m join users u on u.id = m.user_id group by u.name"
    )
    assert {row["name"]: set(row["accepted"] or ()) for row in rows} == {
        name: accepted for name, (_, _, _, accepted) in PEOPLE.items()
    }
    assert await before.conn.fetchval("select count(*) from user_links where used_at is null") == 0
    forced = "select count(*) from pg_class where relforcerowsecurity and relname = any ($1)"
    names = ["company_members", "audit_log", "companies"]
    assert await before.conn.fetchval(forced, names) == 3

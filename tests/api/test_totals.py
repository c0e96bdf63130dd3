"""The maintained totals of lists agree with the records, also after concurrent changes."""

import asyncio
from typing import Any

import asyncpg

from tests.api_invoices import create_invoice, create_one_of_each, create_valid_invoice
from tests.api_reads import wait_for_status
from tests.api_requests import cancel_latest, expect, request_json, submit
from tests.conftest import Client, StartService
from tests.harness.bodies import buyer, invoice
from tests.harness.environments import GENEROUS

#: Table -> its list and type in the counts.
LISTS = {
    "document_states": ("kind", "type"),
    "einvoice_requests": ("'einvoice_request'", "''"),
    "submitted_documents": ("'submitted_document'", "''"),
}
KEPT = """
    select list, status, type, sum(live) as live
      from record_counts
     where company_id = $1
     group by list, status, type
    having sum(live) <> 0
"""


async def find_wrong_totals(owner: asyncpg.Connection, company_id: int) -> Any:
    """Return (maintained totals, counted totals) without those that are equal."""
    counted: dict[tuple[str, ...], int] = {}
    for table, (name, kind) in LISTS.items():
        query = (
            f"select {name} as list, status, {kind} as type, count(*) as live from {table}"
            " where company_id = $1 and deleted_at is null group by 1, 2, 3"
        )
        counted |= {tuple(row[:3]): row["live"] for row in await owner.fetch(query, company_id)}
    kept = {tuple(row[:3]): row["live"] for row in await owner.fetch(KEPT, company_id)}
    return kept.items() ^ counted.items()


async def find_company(owner: asyncpg.Connection, invoice_id: int) -> Any:
    return await owner.fetchval("select company_id from documents where id = $1", invoice_id)


async def test_totals_follow_every_change(api: Client, owner: asyncpg.Connection) -> None:
    draft = await create_invoice(api)
    deleted = await create_invoice(api)
    retyped = await create_invoice(api, type="PENDING_FINALIZE_INVOICE", buyer=None)
    company_id = await find_company(owner, draft)
    for method, path, body in (
        ("DELETE", f"/api/invoices/{deleted}", None),
        ("PUT", f"/api/invoices/{retyped}", {"type": "INVOICE", "buyer": buyer()}),
        ("PUT", f"/api/invoices/{draft}", {"isReady": False}),
    ):
        await expect(api, 200, method, path, json=body)
    cancelled = await create_valid_invoice(api)
    assert (await cancel_latest(api, cancelled))[0] == 200
    assert not await find_wrong_totals(owner, company_id)


async def test_totals_of_every_list_are_kept(
    start: StartService, owner: asyncpg.Connection
) -> None:
    made = await create_one_of_each(await start(background=True, **GENEROUS))
    company_id = await find_company(owner, made["/api/invoices"])
    assert await owner.fetchval("select count(distinct list) from record_counts") == 5
    assert not await find_wrong_totals(owner, company_id)


async def test_totals_are_right_after_concurrent_changes(
    api: Client, owner: asyncpg.Connection
) -> None:
    """Creations with and without keys, deletions and submissions at the same time."""
    first = [await create_invoice(api) for _ in range(6)]
    company_id = await find_company(owner, first[0])

    async def create_alone(number: int) -> None:
        headers = {"Idempotency-Key": f"key-{number}"}
        body = invoice()
        await expect(api, 201, "POST", "/api/invoices", json=body, headers=headers)

    async def send(invoice_id: int) -> None:
        assert (await submit(api, invoice_id))[0] == 200
        await wait_for_status(api, invoice_id, "Valid")

    await asyncio.gather(
        *[create_invoice(api) for _ in range(20)],
        *[create_alone(number) for number in range(5)],
        *[request_json(api, "DELETE", f"/api/invoices/{number}") for number in first[:3]],
        *[send(number) for number in first[3:]],
    )
    assert not await find_wrong_totals(owner, company_id)
    for status, expected in (("Draft", 25), ("Valid", 3), ("Cancelled", 0)):
        _, page = await request_json(api, "GET", f"/api/invoices?status={status}")
        assert page["meta"]["total"] == expected

"""The audit log of documents: every change with its actor and client, in the same transaction."""

import asyncio
from typing import Any

import asyncpg
import pytest
from yarl import URL

from tests.api.test_einvoice_requests import approve, create_pending_invoice, create_request, put
from tests.api_invoices import create_invoice, create_sale, create_valid_invoice
from tests.api_requests import create_record, expect, request_json
from tests.conftest import Client, Company, StartService, make_company
from tests.harness.bodies import BUYER_FORM, invoice, note, now
from tests.harness.environments import GENEROUS
from tests.harness.visitors import Visitor

REQUESTS = "/api/einvoice-requests"


async def read_log(owner: asyncpg.Connection) -> list[tuple[str, str]]:
    """Return (action, subject) of all entries about documents and requests, the oldest first."""
    rows = await owner.fetch(
        "select action, subject from audit_log"
        " where subject ~ '^(invoice|adjustment note|consolidated invoice|e-invoice request) '"
        " order by company_id, id"
    )
    return [tuple(row) for row in rows]


async def send(api: Client, method: str, path: str, **body: Any) -> Any:
    """Send a request that succeeds and return its JSON."""
    status, answer = await request_json(api, method, path, json=body)
    assert status in (200, 201), answer
    return answer


async def test_every_change_of_a_document_has_an_entry(
    start: StartService, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    api = await start(await make_company(environment), background=False, **GENEROUS)
    first = await create_invoice(api)
    await send(api, "PUT", f"/api/invoices/{first}", reference="A-1")
    await send(api, "DELETE", f"/api/invoices/{first}")
    sale = await create_sale(api)
    taken = {"type": "CONSOLIDATED_INVOICE", "code": 1, "issueDateTime": now()}
    path = "/api/consolidated-invoices"
    whole = (await create_record(api, path, **taken, invoiceIds=[sale]))["id"]
    await send(api, "DELETE", f"{path}/{whole}")
    assert await read_log(owner) == [
        *((action, f"invoice {first}") for action in ("create", "change", "delete")),
        ("create", f"invoice {sale}"),
        ("create", f"consolidated invoice {whole}"),
        ("delete", f"consolidated invoice {whole}"),
    ]


@pytest.mark.own_service
async def test_every_change_of_a_note_has_an_entry(api: Client, owner: asyncpg.Connection) -> None:
    invoice_id = await create_valid_invoice(api)
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    note_id = (await create_record(api, path, **note()))["id"]
    await send(api, "PUT", f"/api/adjustment-notes/{note_id}", reference="A-1")
    await send(api, "DELETE", f"/api/adjustment-notes/{note_id}")
    assert await read_log(owner) == [
        ("create", f"invoice {invoice_id}"),
        ("submit", f"invoice {invoice_id}"),
        *((action, f"adjustment note {note_id}") for action in ("create", "change", "delete")),
    ]


async def test_decisions_about_requests_have_entries(
    own_api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_pending_invoice(own_api)
    first, second = [await create_request(own_api) for _ in range(2)]
    await put(own_api, first, status="Reject")
    await put(own_api, first, status="Pending")
    await put(own_api, first, contactNumber="+60111111111")
    await approve(own_api, first)
    await send(own_api, "DELETE", f"{REQUESTS}/{second}")
    assert await read_log(owner) == [
        ("create", f"invoice {invoice_id}"),
        ("create", f"e-invoice request {first}"),
        ("create", f"e-invoice request {second}"),
        ("reject", f"e-invoice request {first}"),
        ("reopen", f"e-invoice request {first}"),
        ("change", f"e-invoice request {first}"),
        ("approve", f"e-invoice request {first}"),
        ("change", f"invoice {invoice_id}"),
        ("reject", f"e-invoice request {second}"),
        ("delete", f"e-invoice request {second}"),
    ]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "once"}], ids=["plain", "with a key"])
async def test_a_create_has_the_key_the_request_and_the_client(
    own_api: Client, own_company: Company, owner: asyncpg.Connection, headers: dict[str, str]
) -> None:
    sent, body = {"X-Request-Id": "till-7", **headers}, invoice(code=1)
    for _ in range(2 if headers else 1):
        await expect(own_api, 201, "POST", "/api/invoices", json=body, headers=sent)
    rows = await owner.fetch(
        "select actor, request_id, host(client_address) from audit_log"
        " where subject like 'invoice %'"
    )
    assert [tuple(row) for row in rows] == [(f"key {own_company.key_id}", "till-7", "127.0.0.1")]


async def test_concurrent_creates_have_their_own_actor(
    start: StartService, environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    """Connections of the pool keep no actor of an earlier request, nor of another company."""
    companies = [await make_company(environment) for _ in range(2)]
    clients = [await start(company, background=False, **GENEROUS) for company in companies]
    await asyncio.gather(*(create_invoice(clients[number % 2]) for number in range(40)))
    rows = await owner.fetch(
        "select company_id, actor, count(*), count(distinct request_id) as requests"
        " from audit_log where subject like 'invoice %' group by company_id, actor"
    )
    assert {tuple(row) for row in rows} == {
        (company.id, f"key {company.key_id}", 20, 20) for company in companies
    }


async def test_a_request_by_a_link_has_the_link_as_actor(
    own_api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_pending_invoice(own_api)
    place = f"/api/invoices/{invoice_id}/links"
    link = (await send(own_api, "POST", place, purpose="request"))["data"]
    async with Visitor(own_api.make_url("/")) as visitor:
        await visitor.fill_in(URL(link["url"]).path, BUYER_FORM)
        assert "Your request was sent" in visitor.text
    row = await owner.fetchrow(
        "select actor, host(client_address) from audit_log where subject like 'e-invoice request %'"
    )
    assert row is not None and tuple(row) == (f"link {link['id']}", "127.0.0.1")

"""The overview: what needs attention, and the figures of the month."""

import pytest
from conftest import Client, Company, StartService, patience
from fixtures_dashboard import SignIn
from harness.visitors import Visitor
from kit import create_invoice, create_sale, create_valid_invoice, note, request_json, submit


@pytest.fixture
async def site(start: StartService, company: Company) -> Client:
    """A service with background work, whose sales can be consolidated on every day."""
    return await start(company, CONSOLIDATION_DAYS="366")


@pytest.fixture
async def visitor(site: Client, sign_in: SignIn) -> Visitor:
    """A reader who has signed in."""
    return await sign_in(site, "reader")


async def read_overview(visitor: Visitor) -> str:
    """Return the words of the overview."""
    await visitor.get("/")
    return visitor.words


async def wait_for_text(visitor: Visitor, text: str) -> str:
    """Return the words of the overview once a text is among them."""
    async with patience():
        while text not in (words := await read_overview(visitor)):
            pass
    return words


async def test_a_company_without_documents_needs_no_attention(visitor: Visitor) -> None:
    text = await read_overview(visitor)
    assert "Nothing needs your attention." in text
    assert "No valid documents in this month yet." in text


async def test_a_rejected_document_comes_first_with_its_reason(
    visitor: Visitor, site: Client
) -> None:
    party = {
        "type": "LOCAL_COMPANY",
        "name": "Siti",
        "tin": "C5510387420",
        "registration": {"type": "BRN", "number": "202001234568"},
        "contactNumber": "+60123456789",
        "address": {
            "line1": "5 Jalan Dahlia",
            "city": "Shah Alam",
            "state": "10",
            "country": "MYS",
        },
    }
    invoice_id = await create_invoice(site, buyer=party)
    assert (await submit(site, invoice_id))[0] == 200
    text = await wait_for_text(visitor, "is invalid")
    assert "does not belong to the TIN" in text
    assert f'href="/invoices/{invoice_id}"' in visitor.text


async def test_taxes_of_valid_documents_are_summed_less_credit_notes(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_valid_invoice(site)
    await create_invoice(site)  # a draft
    assert "Service Tax 8% MYR 97.00 MYR 7.76" in (await read_overview(visitor))
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    _, answer = await request_json(site, "POST", path, json=note())
    note_id = answer["data"]["id"]
    assert (await submit(site, note_id, "/api/adjustment-notes"))[0] == 200
    text = await wait_for_text(visitor, "48.50")
    assert "Service Tax 8% MYR 48.50" in text


async def test_open_sales_and_pending_requests_are_named(visitor: Visitor, site: Client) -> None:
    await create_sale(site)
    request = {"invoiceCode": "4711", "type": "LOCAL_INDIVIDUAL", "name": "Siti"}
    assert (await request_json(site, "POST", "/api/einvoice-requests", json=request))[0] == 201
    text = await read_overview(visitor)
    assert "Sales of last month are not consolidated yet" in text
    assert "Buyers who ask for an e-invoice: 1" in text

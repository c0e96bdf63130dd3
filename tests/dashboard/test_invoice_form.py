"""The form of an invoice without a browser: saving it keeps members that it does not have."""

from collections.abc import AsyncIterator
from html.parser import HTMLParser

import asyncpg
import pytest
from conftest import Client, Company, StartService
from harness.visitors import Visitor, make_person
from kit import buyer, create_invoice, get_invoice

from service.config import read_config

SETTLEMENT = {
    "prepayment": {"amount": 100, "date": "2026-09-02", "time": "04:00:00Z", "reference": "DEP-7"},
    "payableRoundingAmount": -0.01,
}


class FormReader(HTMLParser):
    """Collects the fields of a page with their values, as a browser would send them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a field, or the chosen option of the present one."""
        found = dict(attrs)
        if tag == "select":
            self._select = found.get("name") or ""
            self.fields[self._select] = ""
        elif tag == "option" and "selected" in found:
            self.fields[self._select] = found.get("value") or ""
        elif tag == "input" and (found.get("name") or "").startswith("/"):
            self.fields[found["name"] or ""] = found.get("value") or ""


@pytest.fixture
async def site(start: StartService, company: Company) -> Client:
    """A service without background work."""
    return await start(company, background=False)


@pytest.fixture
async def visitor(
    site: Client, environment: dict[str, str], company: Company
) -> AsyncIterator[Visitor]:
    """An owner who has signed in."""
    link = await make_person(read_config(environment), company.id, "w@example.com", "owner")
    async with Visitor(site.make_url("/")) as visitor:
        await visitor.use_link(link)
        yield visitor


async def test_an_edited_invoice_keeps_prepayment_and_rounding(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site, **SETTLEMENT)
    await visitor.get(f"/invoices/{invoice_id}/edit")
    fields = FormReader(visitor.text).fields
    assert not any("prepayment" in name or "ounding" in name for name in fields)
    fields["/lineItems/0/description"] = "Dates"
    await visitor.post(f"/invoices/{invoice_id}/edit", {**fields, "do": "save"})
    assert (visitor.status, visitor.path) == (200, f"/invoices/{invoice_id}")
    found = await get_invoice(site, invoice_id)
    assert found["line_items"][0]["description"] == "Dates"
    assert found["prepayment"] == SETTLEMENT["prepayment"]
    assert found["payable_rounding_amount"] == -0.01


async def test_an_edited_self_billed_invoice_gets_no_buyer(
    visitor: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    body = {"type": "SELF_BILLED_INVOICE", "buyer": None, "supplier": buyer()}
    invoice_id = await create_invoice(site, **body)
    fields = FormReader(await visitor.get(f"/invoices/{invoice_id}/edit")).fields
    fields["/supplier/name"] = "Foshan Timber Export Co. Ltd."
    await visitor.post(f"/invoices/{invoice_id}/edit", {**fields, "do": "save"})
    assert (visitor.status, visitor.path) == (200, f"/invoices/{invoice_id}")
    assert (await get_invoice(site, invoice_id))["supplier"]["name"] == fields["/supplier/name"]
    assert await owner.fetchval("select buyer from invoices where id = $1", invoice_id) is None


async def test_totals_of_the_form_include_prepayment_and_rounding(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site, **SETTLEMENT)
    text = await visitor.get(f"/invoices/{invoice_id}/edit")
    assert "4.75" in visitor.words
    fields = {**FormReader(text).fields, "/lineItems/0/unit/count": "3", "do": "check"}
    await visitor.post(f"/invoices/{invoice_id}/edit", fields)
    assert visitor.status == 200 and "57.13" in visitor.words


async def test_the_page_of_an_invoice_shows_prepayment_and_rounding(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site, **SETTLEMENT)
    await visitor.get(f"/invoices/{invoice_id}")
    words = " ".join(visitor.words.split())
    for part in ("With tax", "104.76", "Rounding", "0.01", "DEP-7", "100.00", "To pay", "4.75"):
        assert part in words
    assert "2026-09-02 04:00:00Z DEP-7" in words
    assert "After notes" not in words

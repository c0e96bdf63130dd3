"""The overview: what needs attention, and the figures of the month."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from service.config import read_config
from service.dashboard.overview import _find_overdue
from tests.api_invoices import (
    create_invoice,
    create_sale,
    create_submitted_invoice,
    create_valid_invoice,
)
from tests.api_requests import expect, request_json, submit
from tests.conftest import Client, StartService, until
from tests.fixtures_dashboard import SignIn
from tests.harness.bodies import STRANGER, buyer, note
from tests.harness.visitors import Visitor

KL = ZoneInfo("Asia/Kuala_Lumpur")
#: A time of a month that can no longer be consolidated on any day of this one.
LATE = datetime.now(KL).replace(day=1, hour=9) - timedelta(days=40)


@pytest.fixture
async def site(start: StartService) -> Client:
    """A service with background work, whose sales can be consolidated on every day."""
    return await start(CONSOLIDATION_DAYS="366")


@pytest.fixture
async def visitor(site: Client, sign_in: SignIn) -> Visitor:
    """A reader who has signed in."""
    return await sign_in(site, "reader")


async def wait_for_text(visitor: Visitor, text: str) -> str:
    """Return the words of the overview once a text is among them."""
    return await until(lambda: visitor.read_words("/"), lambda words: text in words)


async def test_a_company_without_documents_needs_no_attention(visitor: Visitor) -> None:
    text = await visitor.read_words("/")
    assert "Nothing needs your attention." in text
    assert "No valid documents in this month yet." in text


async def test_a_rejected_document_comes_first_with_its_reason(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_submitted_invoice(site, buyer=STRANGER)
    text = await wait_for_text(visitor, "is invalid")
    assert "does not belong to the TIN" in text
    assert f'href="/invoices/{invoice_id}"' in visitor.text


async def test_taxes_of_valid_documents_are_summed_less_credit_notes(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_valid_invoice(site)
    await create_invoice(site)  # a draft
    assert "Service Tax 8% MYR 97.00 MYR 7.76" in await visitor.read_words("/")
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    _, answer = await request_json(site, "POST", path, json=note())
    note_id = answer["data"]["id"]
    assert (await submit(site, note_id, "/api/adjustment-notes"))[0] == 200
    text = await wait_for_text(visitor, "48.50")
    assert "Service Tax 8% MYR 48.50" in text


async def test_open_sales_and_pending_requests_are_named(visitor: Visitor, site: Client) -> None:
    await create_sale(site)
    request = {"invoiceCode": "4711", "type": "LOCAL_INDIVIDUAL", "name": "Siti"}
    await expect(site, 201, "POST", "/api/einvoice-requests", json=request)
    text = await visitor.read_words("/")
    assert "Sales of last month are not consolidated yet" in text
    assert "Buyers who ask for an e-invoice: 1" in text


@pytest.fixture
async def late(start: StartService) -> Client:
    """A service whose sales can be consolidated for a week."""
    return await start(CONSOLIDATION_DAYS="7")


async def test_sales_that_are_overdue_stay_and_say_what_is_possible(
    late: Client, sign_in: SignIn
) -> None:
    reader = await sign_in(late, "reader")
    public = {"type": "GENERAL_PUBLIC"}
    own = [
        await create_invoice(late, issueDateTime=LATE.isoformat(), buyer=public) for _ in range(2)
    ]
    await create_invoice(late, issueDateTime=LATE.isoformat(), buyer=buyer())
    text = await reader.read_words("/")
    assert f"Overdue: sales of {LATE:%B %Y} are not consolidated" in text
    assert "The last day was 7 " in text and "submit it individually" in text
    assert '<li class="notice bad">' in reader.text
    await reader.get(f"/invoices?status=Draft,Invalid&issued_from={LATE:%Y-%m}-01")
    assert reader.status == 200 and all(f"/invoices/{each}" in reader.text for each in own)
    for invoice_id in own:
        await expect(late, 200, "DELETE", f"/api/invoices/{invoice_id}")
    assert "Overdue" not in await reader.read_words("/")


async def test_a_consolidated_invoice_that_is_not_submitted_is_named(
    site: Client, visitor: Visitor, start: StartService, sign_in: SignIn
) -> None:
    await create_invoice(site, issueDateTime=LATE.isoformat(), buyer={"type": "GENERAL_PUBLIC"})
    body = {
        "type": "CONSOLIDATED_INVOICE",
        "month": f"{LATE:%Y-%m}",
        "code": 1,
        "issueDateTime": datetime.now(KL).isoformat(),
    }
    await expect(site, 201, "POST", "/api/consolidated-invoices", json=body)
    words = f"The consolidated invoice of {LATE:%B %Y} is not submitted yet"
    assert words in await visitor.read_words("/")
    late = await start(CONSOLIDATION_DAYS="7")
    reader = await sign_in(late, "reader")
    text = await reader.read_words("/")
    assert f"Overdue: the consolidated invoice of {LATE:%B %Y} was not submitted" in text
    assert "delete it, which frees its sales" in text and '<li class="notice bad">' in reader.text


@pytest.mark.parametrize(
    "now, days, overdue",
    [
        ("2026-11-07T23:59:59", 7, "2026-10-01"),
        ("2026-11-08T00:00:00", 7, "2026-11-01"),
        ("2026-11-24T12:00:00", 30, "2026-10-01"),
        ("2026-11-24T12:00:00", 366, "2025-11-01"),
        ("2026-01-08T00:00:00", 7, "2026-01-01"),
    ],
)
def test_a_month_is_overdue_after_its_last_day(now: str, days: int, overdue: str) -> None:
    at = datetime.fromisoformat(now).replace(tzinfo=KL)
    found = _find_overdue(at, read_config({"CONSOLIDATION_DAYS": str(days)}))
    assert f"{found:%Y-%m-%dT%H:%M}" == f"{overdue}T00:00"

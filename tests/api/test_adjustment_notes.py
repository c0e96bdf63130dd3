"""Creating notes for invoices: prerequisites, codes and amounts.

Spec: Invoices, create adjustment note.
"""

from typing import Any

import asyncpg
import pytest

from tests.api_invoices import create_valid_invoice
from tests.api_reads import get_invoice
from tests.api_requests import list_rules, request_json
from tests.conftest import Client, Company
from tests.harness.bodies import line, note

NOT_VALID = (
    403,
    {
        "message": "The invoice has been submitted but not yet being validated by the tax "
        "authority or latest submission result status is not valid.",
        "code": "not_valid",
    },
)
TAKEN = {
    "path": "/adjustmentNoteCode",
    "rule": "unique",
    "message": "The code has already been used by a note of this type.",
}


async def request_note(api: Client, invoice_id: int | str, **changes: Any) -> tuple[int, Any]:
    """Return (status, body) of the creation of a note for an invoice."""
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    return await request_json(api, "POST", path, json=note(**changes))


@pytest.fixture
async def valid(api: Client) -> int:
    """Return the id of a Valid invoice of 104.76."""
    return await create_valid_invoice(api)


async def test_a_new_note_is_a_draft_with_its_own_amounts(
    api: Client, valid: int, owner: asyncpg.Connection, company: Company
) -> None:
    issued = "2026-01-31T09:30:00+08:00"
    _, body = await request_note(
        api, valid, type="DEBIT_NOTE", adjustmentNoteCode=7, adjustmentNoteIssueDate=issued
    )
    row: Any = await owner.fetchrow(
        "select * from documents join document_states using (company_id, id, kind, type)"
        " where kind = 'adjustment_note'"
    )
    assert row["company_id"] == company.id
    assert (row["id"], row["invoice_id"]) == (body["data"]["id"], valid)
    assert (row["code"], row["type"], row["status"]) == (7, "DEBIT_NOTE", "Draft")
    assert row["issue_date"].isoformat() == "2026-01-31T01:30:00+00:00"
    assert (str(row["excluding_tax"]), str(row["payable_amount"])) == ("48.50", "52.38")


async def test_creating_a_note_records_an_event(
    api: Client, valid: int, owner: asyncpg.Connection
) -> None:
    _, body = await request_note(api, valid)
    data: Any = await owner.fetchval(
        "select data from events where type = 'adjustment_note.created'"
    )
    assert str(body["data"]["id"]) in data and str(valid) in data


async def test_note_with_a_wrong_target_type_is_rejected(api: Client, valid: int) -> None:
    status, body = await request_note(api, valid, targetInvoiceType="SELF_BILLED_INVOICE")
    assert (status, list_rules(body)) == (422, [("/targetInvoiceType", "target")])


async def test_note_above_the_remaining_amount_is_rejected(api: Client, valid: int) -> None:
    for note_type, price, status in (
        ("CREDIT_NOTE", 104.76, 201),
        ("CREDIT_NOTE", 104.77, 422),
        ("REFUND_NOTE", 104.76, 201),
        ("REFUND_NOTE", 104.77, 422),
        ("DEBIT_NOTE", 1000, 201),
    ):
        lines = [line(unit={"code": "KGM", "price": price, "count": 1}, taxDetails=[])]
        given, body = await request_note(api, valid, type=note_type, lineItems=lines)
        assert given == status, (note_type, price)
        if status == 422:
            assert list_rules(body) == [("/lineItems", "amount")]


async def test_draft_note_does_not_adjust_the_invoice(api: Client, valid: int) -> None:
    assert (await request_note(api, valid))[0] == 201
    assert (await get_invoice(api, valid))["final_adjusted_amount"] == 104.76


async def test_note_code_is_unique_across_invoices_and_years(api: Client, valid: int) -> None:
    assert (await request_note(api, valid, adjustmentNoteCode=5))[0] == 201
    other = await create_valid_invoice(api)
    refused = {"message": TAKEN["message"], "code": "code_taken", "errors": [TAKEN]}
    issued = "2020-01-31T09:30:00Z"
    assert await request_note(api, other, adjustmentNoteCode=5, adjustmentNoteIssueDate=issued) == (
        422,
        refused,
    )


async def test_note_that_violates_a_document_rule_is_rejected(api: Client, valid: int) -> None:
    for changes, path, rule in (
        ({"adjustmentNoteIssueDate": "2026-02-30T00:00:00Z"}, "/adjustmentNoteIssueDate", "format"),
        ({"lineItems": [line(discount={"amount": 1000})]}, "/lineItems/0/discount", "amount"),
        ({"lineItems": [line(originCountry="MY")]}, "/lineItems/0/originCountry", "code"),
    ):
        status, body = await request_note(api, valid, **changes)
        assert status == 422
        assert list_rules(body) == [(path, rule)]

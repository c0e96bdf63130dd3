"""Adjustment notes: draft, submission, cancellation, and their effect on the invoice."""

import asyncio
from typing import Any

import pytest

from tests.api_invoices import create_submitted_invoice, create_valid_invoice
from tests.api_reads import get_invoice, get_json, wait_for_status
from tests.api_requests import Answer, cancel_latest, expect, not_found, request_json, submit
from tests.conftest import Client, Sandbox, StartService, until
from tests.documents.sources import MILL
from tests.harness.bodies import line, note

NOTES = "/api/adjustment-notes"
NO_TAX = [{"taxType": "06", "taxRate": {"percentage": 0}}]
ONE, FOUR = [
    [line(unit={"code": "KGM", "price": 50, "count": count}, taxDetails=NO_TAX)] for count in (1, 4)
]

DEBIT_NOTE_USED = {
    "message": "Credit or refund notes have used the amount of this debit note. Cancel them first.",
    "code": "validation_failed",
}


async def create_note(api: Client, invoice: int, **changes: Any) -> int:
    """Create a note against an invoice, and return the id of the note."""
    path = f"/api/invoices/{invoice}/adjustment-note"
    body = note(**{"lineItems": ONE, **changes})
    return (await expect(api, 201, "POST", path, json=body))["data"]["id"]


async def get_note(api: Client, note_id: int) -> dict[str, Any]:
    return await get_json(api, f"{NOTES}/{note_id}")


async def send(api: Client, note_id: int) -> Answer:
    return await submit(api, note_id, NOTES)


async def cancel(api: Client, note_id: int) -> Answer:
    return await cancel_latest(api, note_id, NOTES)


async def create_valid_note(api: Client, invoice: int, **changes: Any) -> int:
    """Create a note against an invoice, submit it, and return its id once it is Valid."""
    note_id = await create_note(api, invoice, **changes)
    assert (await send(api, note_id))[0] == 200
    found = await until(
        lambda: get_note(api, note_id), lambda found: found["status"] in ("Valid", "Invalid")
    )
    assert found["status"] == "Valid"
    return note_id


@pytest.mark.parametrize(
    "note_type, adjusted", [("CREDIT_NOTE", 150), ("DEBIT_NOTE", 250), ("REFUND_NOTE", 150)]
)
async def test_a_valid_note_adjusts_its_invoice_until_it_is_cancelled(
    api: Client, note_type: str, adjusted: int
) -> None:
    invoice = await create_valid_invoice(api, lineItems=FOUR)
    note_id = await create_valid_note(api, invoice, type=note_type)
    assert (await get_invoice(api, invoice))["final_adjusted_amount"] == adjusted
    cancelled = {"success": True, "message": "The submitted document has been cancelled."}
    assert await cancel(api, note_id) == (200, cancelled)
    assert (await get_invoice(api, invoice))["final_adjusted_amount"] == 200


async def test_a_prepaid_invoice_can_be_credited_up_to_its_value(api: Client) -> None:
    """The invoice of 200 is paid but for its rounding, and the notes of 50 have prepayments."""
    paid = {"prepayment": {"amount": 200}, "payableRoundingAmount": 0.05}
    invoice = await create_valid_invoice(api, lineItems=FOUR, **paid)
    found = await get_invoice(api, invoice)
    assert found["legal_monetary_total"]["payableAmount"] == 0.05
    assert found["final_adjusted_amount"] == 200.05
    refused = note(lineItems=FOUR, payableRoundingAmount=0.06)
    path = f"/api/invoices/{invoice}/adjustment-note"
    status, answer = await request_json(api, "POST", path, json=refused)
    assert (status, answer["errors"][0]["path"]) == (422, "/lineItems")
    note_id = await create_valid_note(api, invoice, prepayment={"amount": 50})
    found = await get_note(api, note_id)
    assert found["legal_monetary_total"]["payableAmount"] == 0
    assert (await get_invoice(api, invoice))["final_adjusted_amount"] == 150.05
    assert (await cancel(api, note_id))[0] == 200
    assert (await get_invoice(api, invoice))["final_adjusted_amount"] == 200.05


async def test_a_note_being_submitted_counts_with_its_prepayment(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.settings(processing_seconds=3600)
    invoice = await create_submitted_invoice(api, lineItems=FOUR)
    await sandbox.settings(processing_seconds=0)
    await wait_for_status(api, invoice, "Valid")
    await sandbox.settings(processing_seconds=3600)
    sent = await create_note(api, invoice, lineItems=FOUR, prepayment={"amount": 200})
    other = await create_note(api, invoice)
    assert (await send(api, sent))[0] == 200
    status, answer = await send(api, other)
    assert (status, answer["errors"][0]["code"]) == (400, "Amount")


async def test_notes_against_a_self_billed_invoice_are_self_billed(
    api: Client, sandbox: Sandbox
) -> None:
    invoice = await create_valid_invoice(
        api, type="SELF_BILLED_INVOICE", buyer=None, supplier=MILL, lineItems=FOUR
    )
    for kind in ("CREDIT_NOTE", "DEBIT_NOTE", "REFUND_NOTE"):
        await create_valid_note(api, invoice, type=kind, targetInvoiceType="SELF_BILLED_INVOICE")
    assert [entry["type"] for entry in await sandbox.ledger()] == ["11", "12", "13", "14"]


async def test_an_invoice_is_cancelled_only_after_its_valid_note(api: Client) -> None:
    invoice = await create_valid_invoice(api, lineItems=FOUR)
    note_id = await create_valid_note(api, invoice)
    status, body = await cancel_latest(api, invoice)
    assert (status, body["code"]) == (400, "ActiveReferencingDocuments")
    assert (await cancel(api, note_id))[0] == 200
    assert (await cancel_latest(api, invoice))[0] == 200


async def test_submitting_a_note_and_cancelling_its_invoice_are_exclusive(api: Client) -> None:
    for _ in range(5):
        invoice = await create_valid_invoice(api, lineItems=FOUR)
        note_id = await create_note(api, invoice)
        (sent, _), (cancelled, _) = await asyncio.gather(
            send(api, note_id), cancel_latest(api, invoice)
        )
        assert (sent, cancelled) in {(200, 400), (400, 200)}


async def test_concurrent_credit_notes_cannot_exceed_the_invoice_amount(
    api: Client, sandbox: Sandbox
) -> None:
    invoice = await create_valid_invoice(api, lineItems=ONE)
    first, second = await create_note(api, invoice), await create_note(api, invoice)
    answers = await asyncio.gather(send(api, first), send(api, second))
    assert sorted(status for status, _ in answers) == [200, 400]


async def test_a_debit_note_whose_amount_was_credited_is_not_cancelled(api: Client) -> None:
    invoice = await create_valid_invoice(api, lineItems=ONE)
    debit = await create_valid_note(api, invoice, type="DEBIT_NOTE", lineItems=FOUR)
    credit = await create_valid_note(api, invoice, lineItems=FOUR)
    status, answer = await cancel(api, debit)
    (error,) = answer.pop("errors")
    assert (status, answer, error["rule"]) == (422, DEBIT_NOTE_USED, "amount")
    assert (await get_note(api, debit))["status"] == "Valid"
    assert (await get_invoice(api, invoice))["final_adjusted_amount"] == 50
    assert (await cancel(api, credit))[0] == (await cancel(api, debit))[0] == 200
    assert (await get_invoice(api, invoice))["final_adjusted_amount"] == 50


async def test_a_debit_note_is_not_cancelled_while_its_amount_is_being_credited(
    api: Client, sandbox: Sandbox
) -> None:
    invoice = await create_valid_invoice(api, lineItems=ONE)
    debit = await create_valid_note(api, invoice, type="DEBIT_NOTE", lineItems=FOUR)
    credit = await create_note(api, invoice, lineItems=FOUR)
    await sandbox.settings(processing_seconds=3600)
    assert (await send(api, credit))[0] == 200
    assert (await cancel(api, debit))[0] == 422


async def test_the_amount_of_a_debit_note_being_cancelled_cannot_be_credited(
    start: StartService, sandbox: Sandbox
) -> None:
    """Nor can it cover the cancellation of another debit note."""
    api = await start(PORTAL_SETTLE_SECONDS="600", PORTAL_RECHECK_SECONDS="3600")
    invoice = await create_valid_invoice(api, lineItems=ONE)
    first = await create_valid_note(api, invoice, type="DEBIT_NOTE", lineItems=FOUR)
    second = await create_valid_note(api, invoice, type="DEBIT_NOTE", lineItems=FOUR)
    await create_valid_note(api, invoice, lineItems=FOUR)
    credit = await create_note(api, invoice, lineItems=FOUR)
    await sandbox.fault("state", "drop", times=2)  # aiohttp repeats a PUT once by itself
    assert (await cancel(api, first))[1]["code"] == "outcome_unknown"
    status, answer = await send(api, credit)
    assert (status, answer["errors"][0]["code"]) == (400, "Amount")
    assert (await cancel(api, second))[0] == 422
    assert (await cancel(api, first))[0] == 200


async def test_a_credit_and_the_cancellation_of_its_debit_note_are_exclusive(api: Client) -> None:
    for _ in range(5):
        invoice = await create_valid_invoice(api, lineItems=ONE)
        debit = await create_valid_note(api, invoice, type="DEBIT_NOTE", lineItems=FOUR)
        credit = await create_note(api, invoice, lineItems=FOUR)
        (sent, _), (cancelled, _) = await asyncio.gather(send(api, credit), cancel(api, debit))
        assert (sent, cancelled) in {(200, 422), (400, 200)}


async def test_a_draft_note_is_updated_and_deleted(api: Client) -> None:
    path = f"{NOTES}/{await create_note(api, await create_valid_invoice(api, lineItems=FOUR))}"
    await expect(api, 200, "PUT", path, json={"type": "DEBIT_NOTE", "lineItems": FOUR})
    found = await get_json(api, path)
    assert found["type"] == "DEBIT_NOTE" and found["legal_monetary_total"]["payableAmount"] == 200
    await expect(api, 422, "PUT", path, json={"type": "CREDIT_NOTE", "adjustmentNoteCode": 0})
    assert await expect(api, 200, "DELETE", path) == {"message": "Adjustment note deleted."}
    assert await request_json(api, "GET", path) == not_found("Adjustment note")


async def test_the_record_and_the_export_name_the_invoice(api: Client) -> None:
    invoice = await create_valid_invoice(api, lineItems=FOUR)
    note_id = await create_note(api, invoice, adjustmentNoteCode=7)
    found = await get_note(api, note_id)
    assert (found["code"], found["invoice_id"]) == (7, invoice)
    assert found["consolidated_invoice_id"] is None
    export = await get_json(api, f"{NOTES}/{note_id}/export")
    assert export["invoiceCodeWithPrefixAndDigits"] == "CN-00007" and export["code"] == 7
    assert export["targetInvoiceCode"] == (await get_invoice(api, invoice))["invoice_code"]
    assert export["targetConsolidatedInvoiceCode"] is None
    assert await get_json(api, f"{NOTES}/export-all") == [export]

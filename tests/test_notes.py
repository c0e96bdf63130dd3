"""Adjustment notes from a draft to Valid and back, and what they do to their invoice."""

import asyncio

import pytest
from conftest import until
from kit import line, note, record, valid_invoice

ONE = [
    line(
        unit={"code": "KGM", "price": 50, "count": 1},
        taxDetails=[{"taxType": "06", "taxRate": {"percentage": 0}}],
    )
]
FOUR = [
    line(
        unit={"code": "KGM", "price": 50, "count": 4},
        taxDetails=[{"taxType": "06", "taxRate": {"percentage": 0}}],
    )
]
SELLER = {
    "type": "FOREIGN_COMPANY",
    "name": "Foshan Timber Export Co. Ltd.",
    "contactNumber": "+8675712345678",
    "address": {"line1": "88 Huanshi Road", "city": "Foshan", "state": "17", "country": "CHN"},
}


async def noted(api, invoice, **changes):
    async with api.post(
        f"/api/invoices/{invoice}/adjustment-note", json=note(lineItems=ONE, **changes)
    ) as response:
        body = await response.json()
        assert response.status == 201, body
        return body["data"]["id"]


async def note_record(api, id):
    async with api.get(f"/api/adjustment-notes/{id}") as response:
        return await response.json()


async def send(api, id):
    async with api.post(f"/api/adjustment-notes/{id}/submit-to-portal", json={}) as response:
        return response.status, await response.json()


async def cancel(api, id):
    async with api.post(
        f"/api/adjustment-notes/{id}/cancel-latest-adjustment-note-submitted"
    ) as response:
        return response.status, await response.json()


async def valid_note(api, invoice, **changes):
    id = await noted(api, invoice, **changes)
    assert (await send(api, id))[0] == 200
    found = await until(
        lambda: note_record(api, id), lambda found: found["status"] in ("Valid", "Invalid")
    )
    assert found["status"] == "Valid"
    return id


@pytest.mark.parametrize(
    "type, adjusted", [("CREDIT_NOTE", 150), ("DEBIT_NOTE", 250), ("REFUND_NOTE", 150)]
)
async def test_a_valid_note_adjusts_its_invoice_and_a_cancelled_one_no_longer(api, type, adjusted):
    invoice = await valid_invoice(api, lineItems=FOUR)
    id = await valid_note(api, invoice, type=type)
    assert (await record(api, invoice))["final_adjusted_amount"] == adjusted
    assert await cancel(api, id) == (
        200,
        {"success": True, "message": "The submitted document has been cancelled."},
    )
    assert (await record(api, invoice))["final_adjusted_amount"] == 200


@pytest.mark.parametrize(
    "type, code", [("CREDIT_NOTE", "12"), ("DEBIT_NOTE", "13"), ("REFUND_NOTE", "14")]
)
async def test_a_note_against_a_self_billed_invoice_is_self_billed(api, sandbox, type, code):
    invoice = await valid_invoice(
        api, type="SELF_BILLED_INVOICE", buyer=None, supplier=SELLER, lineItems=FOUR
    )
    await valid_note(api, invoice, type=type, targetInvoiceType="SELF_BILLED_INVOICE")
    assert [entry["type"] for entry in await sandbox.ledger()] == ["11", code]


async def test_a_note_is_submitted_only_while_its_invoice_is_valid(api, sandbox):
    invoice = await valid_invoice(api, lineItems=FOUR)
    id = await noted(api, invoice)
    async with api.post(f"/api/invoices/{invoice}/cancel-latest-invoice-submitted") as response:
        assert response.status == 200
    expected = {
        "message": "Only invoice with status Valid can have adjustment note submitted to the portal"
    }
    assert await send(api, id) == (400, expected)


async def test_an_invoice_with_a_valid_note_is_cancelled_only_after_the_note(api):
    invoice = await valid_invoice(api, lineItems=FOUR)
    id = await valid_note(api, invoice)
    async with api.post(f"/api/invoices/{invoice}/cancel-latest-invoice-submitted") as response:
        assert (
            response.status == 400
            and (await response.json())["code"] == "ActiveReferencingDocuments"
        )
    assert (await cancel(api, id))[0] == 200
    async with api.post(f"/api/invoices/{invoice}/cancel-latest-invoice-submitted") as response:
        assert response.status == 200


async def test_a_submit_of_a_note_and_a_cancel_of_its_invoice_exclude_each_other(api, sandbox):
    for _ in range(5):
        invoice = await valid_invoice(api, lineItems=FOUR)
        id = await noted(api, invoice)

        async def cancel_invoice(invoice=invoice):
            async with api.post(
                f"/api/invoices/{invoice}/cancel-latest-invoice-submitted"
            ) as response:
                return response.status, await response.json()

        (sent, _), (cancelled, _) = await asyncio.gather(send(api, id), cancel_invoice())
        assert (sent, cancelled) in {(200, 400), (400, 200)}


async def test_credits_that_are_on_their_way_cannot_together_take_an_invoice_under_zero(
    api, sandbox
):
    invoice = await valid_invoice(api, lineItems=ONE)
    first, second = await noted(api, invoice), await noted(api, invoice)
    answers = await asyncio.gather(send(api, first), send(api, second))
    assert sorted(status for status, _ in answers) == [200, 400]


async def test_the_refusals_of_cancelling_a_note(api, owner):
    invoice = await valid_invoice(api, lineItems=FOUR)
    id = await noted(api, invoice)
    none = "The latest submitted document of the adjustment note not found."
    assert await cancel(api, id) == (403, {"message": none})
    await send(api, id)
    await until(lambda: note_record(api, id), lambda found: found["status"] == "Valid")
    await owner.execute(
        "update submitted_documents set submitted_at = submitted_at - interval '73 hours'"
    )
    late = (
        "The latest submitted document of the adjustment note has been submitted more than 72 hours ago. "
        "Submitted documents can only be cancelled within 72 hours."
    )
    assert await cancel(api, id) == (403, {"message": late})
    await owner.execute("update submitted_documents set submitted_at = clock_timestamp()")
    assert (await cancel(api, id))[0] == 200
    closed = (
        "The latest submitted document of the adjustment note has already been cancelled/invalid."
    )
    assert await cancel(api, id) == (403, {"message": closed})


async def test_a_submitted_note_is_neither_updated_nor_deleted(api):
    id = await valid_note(api, await valid_invoice(api, lineItems=FOUR))
    tail = "please cancel first and try again. A submitted document can only be cancelled within 72 hours after submission"
    async with api.delete(f"/api/adjustment-notes/{id}") as response:
        assert response.status == 403
        assert await response.json() == {
            "message": f"A submitted adjustment note cannot be deleted, {tail}"
        }
    async with api.put(f"/api/adjustment-notes/{id}", json={}) as response:
        assert response.status == 403
        assert await response.json() == {
            "message": f"A submitted adjustment note cannot be updated, {tail}"
        }


async def test_a_draft_note_is_updated_and_deleted(api):
    invoice = await valid_invoice(api, lineItems=FOUR)
    id = await noted(api, invoice)
    async with api.put(
        f"/api/adjustment-notes/{id}", json={"type": "DEBIT_NOTE", "lineItems": FOUR}
    ) as response:
        assert response.status == 200, await response.text()
    found = await note_record(api, id)
    assert found["type"] == "DEBIT_NOTE" and found["legal_monetary_total"]["payableAmount"] == 200
    async with api.put(
        f"/api/adjustment-notes/{id}", json={"type": "CREDIT_NOTE", "adjustmentNoteCode": 0}
    ) as response:
        assert response.status == 422
    async with api.delete(f"/api/adjustment-notes/{id}") as response:
        assert response.status == 200 and await response.json() == {
            "message": "Adjustment note deleted."
        }
    async with api.get(f"/api/adjustment-notes/{id}") as response:
        assert response.status == 404 and await response.json() == {
            "message": "Adjustment note not found"
        }


async def test_the_record_and_the_export_have_the_specified_members(api):
    invoice = await valid_invoice(api, lineItems=FOUR)
    id = await noted(api, invoice, adjustmentNoteCode=7)
    found = await note_record(api, id)
    specified = "id company_id invoice_id consolidated_invoice_id code type line_items issue_date status legal_monetary_total created_at updated_at"
    assert set(specified.split()) <= set(found)
    assert (
        found["code"] == 7
        and found["invoice_id"] == invoice
        and found["consolidated_invoice_id"] is None
    )
    async with api.get(f"/api/adjustment-notes/{id}/export") as response:
        export = await response.json()
        assert response.headers["Content-Disposition"].startswith("attachment")
    assert export["invoiceCodeWithPrefixAndDigits"] == "CN-00007" and export["code"] == 7
    assert export["targetInvoiceCode"] == (await record(api, invoice))["invoice_code"]
    assert export["targetConsolidatedInvoiceCode"] is None
    async with api.get("/api/adjustment-notes/export-all") as response:
        assert await response.json() == [export]


async def test_notes_are_listed_newest_first_with_their_count(api):
    invoice = await valid_invoice(api, lineItems=FOUR)
    ids = [await noted(api, invoice) for _ in range(3)]
    async with api.get("/api/adjustment-notes?per_page=2") as response:
        body = await response.json()
    assert [found["id"] for found in body["data"]] == ids[:0:-1] and body["meta"]["total"] == 3
    async with api.get("/api/adjustment-notes?type=DEBIT_NOTE") as response:
        assert (await response.json())["meta"]["total"] == 0
    async with api.get("/api/adjustment-notes?query=aminah&sort=code") as response:
        assert [found["id"] for found in (await response.json())["data"]] == ids

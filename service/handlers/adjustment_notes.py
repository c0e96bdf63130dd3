"""Adjustment notes against an invoice. Spec: Invoices, create adjustment note."""

from aiohttp import web

from service import states, wire
from service.drafts import checked
from service.errors import Forbidden, Invalid, fault
from service.intake import document_instant, found, path_id, read_body
from service.statements import sql

routes = web.RouteTableDef()


@routes.post("/api/invoices/{id}/adjustment-note")
async def create_adjustment_note(request):
    """Store a draft note against an invoice whose latest submitted document is Valid.

    The invoice stays locked against its cancellation meanwhile. Raises Forbidden by states.NOTE_REFUSALS,
    Invalid for a note that does not fit its invoice.
    """
    body, text = await read_body(request, "adjustment_note_create")
    draft = checked(body, document_instant(body, "adjustmentNoteIssueDate"))
    company, id = request[wire.COMPANY], path_id(request, "Invoice")
    async with request.app[wire.DATABASE].company(company) as conn:
        invoice = found(await sql.invoice_share(conn, company_id=company, id=id), "Invoice")
        latest = await sql.submitted_document_latest(conn, company_id=company, invoice_id=id)
        if message := states.refusal(states.NOTE_REFUSALS, latest):
            raise Forbidden(message)
        _refuse_misfit(invoice, draft)
        note = await sql.adjustment_note_insert(
            conn, company_id=company, invoice_id=id, body=text, issue_date=draft.issue_date, **draft.amounts
        )
    return wire.answer({"success": True, "message": "Adjustment note created.", "data": {"id": note}}, 201)


def _refuse_misfit(invoice, draft):
    if draft.body["targetInvoiceType"] != invoice["type"]:
        wording = f"targetInvoiceType is not the type of the invoice, which is {invoice['type']}."
        raise Invalid([fault("/targetInvoiceType", "target", wording)])
    takes = draft.body["type"] != "DEBIT_NOTE"
    if takes and draft.amounts["payable_amount"] > invoice["final_adjusted_amount"]:
        wording = f"The note would take the invoice, adjusted to {invoice['final_adjusted_amount']}, under zero."
        raise Invalid([fault("/lineItems", "amount", wording)])

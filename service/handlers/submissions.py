"""Submitting and cancelling an invoice, and what was submitted. Spec: Invoices."""

from aiohttp import web

from service import wire
from service.intake import found, path_id, read_body
from service.statements import sql
from service.submission import attempt, cancel

routes = web.RouteTableDef()

NOUN = "Invoice"


@routes.post("/api/invoices/{id}/submit-to-portal")
async def submit_invoice(request):
    """Send an invoice to the portal and answer what came of it; a submitted one is not sent again."""
    await read_body(request, "submit")
    message = await attempt.submit(request.app[wire.DESK], request[wire.COMPANY], path_id(request, NOUN))
    return wire.answer({"success": True, "message": message})


@routes.post("/api/invoices/{id}/cancel-latest-invoice-submitted")
async def cancel_invoice(request):
    """Cancel the latest submitted document, within 72 hours of its submission. Spec: Errors"""
    body, _ = await read_body(request, "cancel")
    reason = body.get("reason", "Cancelled by the issuer")
    await cancel.cancel(request.app[wire.DESK], request[wire.COMPANY], path_id(request, NOUN), reason)
    return wire.answer({"success": True, "message": "The submitted document has been cancelled."})


@routes.get("/api/invoices/{id}/submitted-documents")
async def list_submitted_documents(request):
    """All submitted documents of an invoice, newest first."""
    company, id = request[wire.COMPANY], path_id(request, NOUN)
    async with request.app[wire.DATABASE].reading(company) as conn:
        found(await sql.invoice_exists(conn, company_id=company, id=id), NOUN)
        return wire.passed(await sql.submitted_document_page(conn, company_id=company, invoice_id=id))


@routes.get("/api/invoices/{id}/submitted-documents/{submitted_document_id}")
async def get_submitted_document(request):
    company, invoice_id = request[wire.COMPANY], path_id(request, NOUN)
    id = path_id(request, "Submitted document", "submitted_document_id")
    async with request.app[wire.DATABASE].reading(company) as conn:
        found(await sql.invoice_exists(conn, company_id=company, id=invoice_id), NOUN)
        record = await sql.submitted_document_get(conn, company_id=company, invoice_id=invoice_id, id=id)
    return wire.passed(found(record, "Submitted document"))

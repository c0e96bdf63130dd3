"""Judging, submitting and cancelling, and what was submitted: the same for invoices, adjustment notes and consolidated invoices."""

from functools import partial

from aiohttp import web

from service import idempotency, wire
from service.intake import document_instant, found, path_id, read_body
from service.statements import sql
from service.submission import attempt, cancel
from service.submission.preflight import preview
from service.submission.subjects import CONSOLIDATED, INVOICE, NOTE

routes = web.RouteTableDef()


async def submit(subject, request):
    """Send a document to the portal and answer what came of it; a submitted one is not sent again."""
    await read_body(request, "submit")
    id = path_id(request, subject.title)
    await request.app[wire.KEEPER].ready()  # or nothing could be sent: better not to begin
    guard = partial(idempotency.hold, request)
    message = await attempt.submit(
        request.app[wire.DESK], request[wire.COMPANY], subject, id, guard
    )
    return wire.answer({"success": True, "message": message})


async def preflight(subject, request):
    """What the portal would say of a document, without sending it; as of `at`, or now."""
    body, _ = await read_body(request, "preflight")
    id = path_id(request, subject.title)
    at = document_instant(body, "at") if "at" in body else None
    return wire.passed(
        await preview(request.app[wire.DESK], request[wire.COMPANY], subject, id, at)
    )


async def cancel_latest(subject, request):
    """Cancel the latest submitted document, within 72 hours of its submission. Spec: Errors"""
    body, _ = await read_body(request, "cancel")
    reason = body.get("reason", "Cancelled by the issuer")
    guard = partial(idempotency.hold, request)
    order = cancel.CancelOrder(subject, path_id(request, subject.title), reason, guard)
    await cancel.cancel(request.app[wire.DESK], request[wire.COMPANY], order)
    return wire.answer({"success": True, "message": "The submitted document has been cancelled."})


async def list_submitted_documents(subject, request):
    """All submitted documents of one subject, newest first."""
    company, id = request[wire.COMPANY], path_id(request, subject.title)
    async with request.app[wire.DATABASE].reading(company) as conn:
        found(await subject.exists(conn, company_id=company, id=id), subject.title)
        return wire.passed(
            await sql.submitted_document_page(conn, company_id=company, **subject.ids(id))
        )


async def get_submitted_document(subject, request):
    company, subject_id = request[wire.COMPANY], path_id(request, subject.title)
    id = path_id(request, "Submitted document", "submitted_document_id")
    async with request.app[wire.DATABASE].reading(company) as conn:
        found(await subject.exists(conn, company_id=company, id=subject_id), subject.title)
        record = await sql.submitted_document_get(
            conn, company_id=company, id=id, **subject.ids(subject_id)
        )
    return wire.record(request, found(record, "Submitted document"))


#: where the documents of a subject are, and the last part of the path that cancels one. Spec:
#: Endpoints
PLACES = (
    ("/api/invoices/{id}", INVOICE, "cancel-latest-invoice-submitted"),
    ("/api/adjustment-notes/{id}", NOTE, "cancel-latest-adjustment-note-submitted"),
    ("/api/consolidated-invoices/{id}", CONSOLIDATED, "cancel-latest-invoice-submitted"),
)

for place, subject, cancelling in PLACES:
    routes.post(f"{place}/preflight")(partial(preflight, subject))
    routes.post(f"{place}/submit-to-portal")(partial(submit, subject))
    routes.post(f"{place}/{cancelling}")(partial(cancel_latest, subject))
    routes.get(f"{place}/submitted-documents")(partial(list_submitted_documents, subject))
    routes.get(f"{place}/submitted-documents/{{submitted_document_id}}")(
        partial(get_submitted_document, subject)
    )

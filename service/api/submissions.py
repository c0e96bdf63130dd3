"""Judging, submitting and cancelling, and what was submitted: the same for invoices, adjustment notes and consolidated invoices."""

from functools import partial

from aiohttp import web

from service.db.statements import sql
from service.http import app_keys, idempotency, responses
from service.http.requests import document_instant, or_not_found, path_id, read_body
from service.submission import cancel
from service.submission.document_kinds import CONSOLIDATED, INVOICE, NOTE
from service.submission.preflight import preflight_document
from service.submission.submit import submit as submit_to_portal

routes = web.RouteTableDef()


async def submit(subject, request):
    """Send a document to the portal and answer what came of it; a submitted one is not sent again."""
    await read_body(request, "submit")
    id = path_id(request, subject.title)
    await request.app[app_keys.SESSION].ready()  # or nothing could be sent: better not to begin
    guard = partial(idempotency.hold_claim, request)
    message = await submit_to_portal(
        request.app[app_keys.SUBMISSION_CONTEXT], request[app_keys.COMPANY], subject, id, guard
    )
    return responses.json_response({"success": True, "message": message})


async def preflight(subject, request):
    """What the portal would say of a document, without sending it; as of `at`, or now."""
    body, _ = await read_body(request, "preflight")
    id = path_id(request, subject.title)
    at = document_instant(body, "at") if "at" in body else None
    return responses.json_text_response(
        await preflight_document(
            request.app[app_keys.SUBMISSION_CONTEXT], request[app_keys.COMPANY], subject, id, at
        )
    )


async def cancel_latest(subject, request):
    """Cancel the latest submitted document, within 72 hours of its submission. Spec: Errors"""
    body, _ = await read_body(request, "cancel")
    reason = body.get("reason", "Cancelled by the issuer")
    guard = partial(idempotency.hold_claim, request)
    order = cancel.CancelOrder(subject, path_id(request, subject.title), reason, guard)
    await cancel.cancel(request.app[app_keys.SUBMISSION_CONTEXT], request[app_keys.COMPANY], order)
    return responses.json_response(
        {"success": True, "message": "The submitted document has been cancelled."}
    )


async def list_submitted_documents(subject, request):
    """All submitted documents of one subject, newest first."""
    company, id = request[app_keys.COMPANY], path_id(request, subject.title)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        or_not_found(await subject.exists(conn, company_id=company, id=id), subject.title)
        return responses.json_text_response(
            await sql.submitted_document_page(conn, company_id=company, **subject.ids(id))
        )


async def get_submitted_document(subject, request):
    company, subject_id = request[app_keys.COMPANY], path_id(request, subject.title)
    id = path_id(request, "Submitted document", "submitted_document_id")
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        or_not_found(await subject.exists(conn, company_id=company, id=subject_id), subject.title)
        record = await sql.submitted_document_get(
            conn, company_id=company, id=id, **subject.ids(subject_id)
        )
    return responses.record_response(request, or_not_found(record, "Submitted document"))


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

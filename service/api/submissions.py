"""Preflight, submit, cancel and submitted documents of every kind of document."""

from functools import partial

from aiohttp import web

from service.db.statements import sql
from service.http import app_keys, idempotency, responses
from service.http.requests import or_not_found, parse_document_instant, read_body, read_path_id
from service.submission import cancel
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.document_kinds import CONSOLIDATED, INVOICE, NOTE, DocumentKind
from service.submission.preflight import preflight_document
from service.submission.submit import submit as submit_to_portal

routes = web.RouteTableDef()


async def submit(kind: DocumentKind, request: web.Request) -> web.Response:
    """Submit a document to the portal, and return its outcome.

    A submitted document is not sent again. Raises Unavailable if the dedicated session is lost:
    without it nothing can be sent.
    """
    await read_body(request, "submit")
    document_id = read_path_id(request, kind.title)
    await request.app[app_keys.SESSION].ready()
    guard = partial(idempotency.hold_claim, request)
    message = await submit_to_portal(
        request.app[SUBMISSION_CONTEXT], request[app_keys.COMPANY], kind, document_id, guard
    )
    return responses.success_response(message)


async def preflight(kind: DocumentKind, request: web.Request) -> web.Response:
    """Run the portal's checks on a document without sending it, as of `at` or now."""
    body, _ = await read_body(request, "preflight")
    document_id = read_path_id(request, kind.title)
    at = parse_document_instant(body, "at") if "at" in body else None
    return responses.json_text_response(
        await preflight_document(
            request.app[SUBMISSION_CONTEXT], request[app_keys.COMPANY], kind, document_id, at
        )
    )


async def cancel_latest(kind: DocumentKind, request: web.Request) -> web.Response:
    """Cancel the latest submitted document within 72 hours after its submission. Spec: Errors"""
    body, _ = await read_body(request, "cancel")
    reason = body.get("reason", "Cancelled by the issuer")
    guard = partial(idempotency.hold_claim, request)
    order = cancel.CancelOrder(kind, read_path_id(request, kind.title), reason, guard)
    await cancel.cancel(request.app[SUBMISSION_CONTEXT], request[app_keys.COMPANY], order)
    return responses.success_response("The submitted document has been cancelled.")


async def list_submitted_documents(kind: DocumentKind, request: web.Request) -> web.Response:
    """Return all submitted documents of a document, newest first."""
    company, document_id = request[app_keys.COMPANY], read_path_id(request, kind.title)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        or_not_found(await kind.exists(conn, company_id=company, id=document_id), kind.title)
        return responses.json_text_response(
            await sql.submitted_document_page(conn, company_id=company, **kind.ids(document_id))
        )


async def get_submitted_document(kind: DocumentKind, request: web.Request) -> web.Response:
    """Return a submitted document."""
    company, document_id = request[app_keys.COMPANY], read_path_id(request, kind.title)
    submitted_id = read_path_id(request, "Submitted document", "submitted_document_id")
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        or_not_found(await kind.exists(conn, company_id=company, id=document_id), kind.title)
        record = await sql.submitted_document_get(
            conn, company_id=company, id=submitted_id, **kind.ids(document_id)
        )
    return responses.record_response(request, or_not_found(record, "Submitted document"))


#: (path of a document, its kind, last segment of the path that cancels it). Spec: Endpoints
PLACES = (
    ("/api/invoices/{id}", INVOICE, "cancel-latest-invoice-submitted"),
    ("/api/adjustment-notes/{id}", NOTE, "cancel-latest-adjustment-note-submitted"),
    ("/api/consolidated-invoices/{id}", CONSOLIDATED, "cancel-latest-invoice-submitted"),
)

for place, kind, cancelling in PLACES:
    routes.post(f"{place}/preflight")(partial(preflight, kind))
    routes.post(f"{place}/submit-to-portal")(partial(submit, kind))
    routes.post(f"{place}/{cancelling}")(partial(cancel_latest, kind))
    routes.get(f"{place}/submitted-documents")(partial(list_submitted_documents, kind))
    routes.get(f"{place}/submitted-documents/{{submitted_document_id}}")(
        partial(get_submitted_document, kind)
    )

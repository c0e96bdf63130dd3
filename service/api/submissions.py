"""Preflight, submit, cancel and submitted documents of every kind of document.

The operations of a document belong to the group of its kind.
"""

from functools import partial

from aiohttp import web

from service.api.documents import Documents, list_of_document
from service.api.filters import several_of
from service.api.operation import Group
from service.api.pagination import PAGE, read_page
from service.api.records import page_response
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import states
from service.documents.body_checks import parse_document_instant
from service.documents.checks.document import TOO_OLD
from service.documents.kind import CONSOLIDATED, DocumentKind
from service.errors import BadRequest, Conflict, Forbidden, make_reason
from service.http import app_keys, idempotency, responses
from service.http.access import read_own
from service.http.requests import check_if_match, not_found, or_not_found, read_path_id
from service.json_types import JsonObject, Row
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.following import cancel
from service.submission.machine.failures import refuse_cancellation, refuse_submission
from service.submission.sending.checks import preflight_document
from service.submission.sending.submit import already_cancelled, is_reissue
from service.submission.sending.submit import submit as submit_to_portal

operation = GROUP = Group("Submitted documents")
FILTERS = (several_of("status", tuple(states.SUBMITTED_TRANSITIONS), "SubmittedDocumentStatus"),)

SUBMITTED_DOCUMENT = "Submitted document"

_TIN_CODE = states.TIN_NOT_VERIFIED["code"]
SUBMIT_ERRORS = (
    refuse_submission("check_failed", [make_reason("CF321", TOO_OLD, "/issueDateTime")]),
    refuse_submission(_TIN_CODE, [states.TIN_NOT_VERIFIED]),
)


def declare(documents: Documents) -> None:
    """Declare the operations that submit and cancel a kind of document. Spec: Endpoints"""
    kind, path, name = documents.kind, documents.record_path, documents.kind.name
    # A cancelled consolidated invoice is never sent again.
    reissue_errors = () if kind is CONSOLIDATED else (already_cancelled(kind),)
    documents.operation(
        f"POST {path}/preflight",
        f"Run the portal's checks on {kind.with_article}",
        "PreflightAnswer",
        body="preflight",
        description="Sends nothing and changes nothing. `at` checks the document as of another "
        "time.",
        name=f"preflight_{name}",
    )(partial(preflight, kind))
    documents.operation(
        f"POST {path}/submit-to-portal",
        f"Submit {kind.with_article} to the portal",
        "Success",
        message=states.SUBMITTED.format(noun=kind.noun),
        body="submit",
        errors=(*SUBMIT_ERRORS, *reissue_errors, *documents.submit_errors),
        description="Waits for the portal to accept it. A submitted document is not sent again. "
        "While the outcome of a submission is unknown, the response is a 400 and the document "
        "stays locked; a repeated request joins the running submission.",
        name=f"submit_{name}",
    )(partial(submit, documents))
    documents.operation(
        f"POST {path}/{documents.cancelling}",
        "Cancel the latest submitted document",
        "Success",
        message="The submitted document has been cancelled.",
        body="cancel",
        errors=(
            *(BadRequest(message, code=code) for code, message in states.CANCEL_CODES.items()),
            refuse_cancellation("portal_unavailable"),
            refuse_cancellation(_TIN_CODE),
            *(
                Forbidden(message, code=code)
                for code, message in states.CANCEL_MESSAGES[kind.noun].items()
            ),
            Conflict(cancel.STILL_SUBMITTING.format(noun=kind.noun), code="still_submitting"),
        ),
        description="Allowed for 72 hours after the submission. The code `outcome_unknown` means "
        "that the portal gave no clear response: the service looks it up until it is certain, "
        "`cancellation_requested_at` is set meanwhile, and a repeated request sends the "
        "cancellation again.",
        name=f"cancel_{name}",
    )(partial(cancel_latest, documents))
    documents.operation(
        f"GET {path}/submitted-documents",
        f"List the submitted documents of {kind.with_article}",
        "SubmittedDocument[]",
        description="All of them, newest first. Each submission creates a new one.",
        name=f"list_submitted_documents_of_{name}",
    )(partial(list_of_document, kind, sql.submitted_document_page))
    documents.operation(
        f"GET {path}/submitted-documents/{{submitted_document_id}}",
        "Get a submitted document",
        "SubmittedDocument",
        errors=(not_found(SUBMITTED_DOCUMENT),),
        description="Its status at the portal, the portal's ids and links, and its errors.",
        is_record=True,
        name=f"get_submitted_document_of_{name}",
    )(partial(get_submitted_document, kind))


async def submit(documents: Documents, request: web.Request, body: JsonObject) -> web.Response:
    """Submit a document to the portal, and return its outcome.

    A submitted document is not sent again. Raises Unavailable if the dedicated session is lost:
    without it nothing can be sent.
    """
    kind = documents.kind
    document_id = read_path_id(request, kind.title)
    await request.app[app_keys.SESSION].ready()
    guard = partial(_check_submit, request, documents, body.get("resubmit", False))
    message = await submit_to_portal(
        request.app[SUBMISSION_CONTEXT], request[app_keys.COMPANY], kind, document_id, guard
    )
    return responses.success_response(request, message)


async def _check_submit(
    request: web.Request, documents: Documents, resubmits: bool, conn: Connection, row: Row
) -> None:
    """Raise Conflict for a cancelled document that has not changed since, unless it is resubmitted.

    Otherwise see _check_and_store_key.
    """
    if is_reissue(row) and documents.kind is not CONSOLIDATED and not resubmits:
        raise already_cancelled(documents.kind)
    await _check_and_store_key(request, documents, row["id"], conn)


async def _check_and_store_key(
    request: web.Request, documents: Documents, document_id: int, conn: Connection
) -> None:
    """Store the request's Idempotency-Key with what is to be done with a locked document.

    Raises PreconditionFailed if If-Match does not match the document.
    """
    await check_if_match(request, conn, documents.get, id=document_id)
    await idempotency.store_response(request, conn, None)


async def preflight(kind: DocumentKind, request: web.Request, body: JsonObject) -> web.Response:
    document_id = read_path_id(request, kind.title)
    at = parse_document_instant(body, "at") if "at" in body else None
    return responses.json_text_response(
        await preflight_document(
            request.app[SUBMISSION_CONTEXT], request[app_keys.COMPANY], kind, document_id, at
        )
    )


async def cancel_latest(documents: Documents, request: web.Request, body: JsonObject) -> None:
    document_id = read_path_id(request, documents.kind.title)
    reason = body.get("reason", "Cancelled by the issuer")
    guard = partial(_check_and_store_key, request, documents, document_id)
    order = cancel.CancelOrder(documents.kind, document_id, reason, guard)
    await cancel.cancel(request.app[SUBMISSION_CONTEXT], request[app_keys.COMPANY], order)


async def get_submitted_document(kind: DocumentKind, request: web.Request) -> web.Response:
    document_id = read_path_id(request, kind.title)
    submitted_id = read_path_id(request, SUBMITTED_DOCUMENT, "submitted_document_id")
    row = await read_own(
        request,
        sql.submitted_document_get,
        id=submitted_id,
        kind=kind.name,
        document_id=document_id,
    )
    record = or_not_found(row, kind.title)["record"]
    return responses.record_response(request, or_not_found(record, SUBMITTED_DOCUMENT))


@operation(
    "GET /api/submitted-documents",
    "List the submitted documents of the company",
    "SubmittedDocumentList",
    query=(*PAGE, *FILTERS),
    description="Of all invoices, notes and consolidated invoices, newest first. "
    "`status=NotSent,Rejected,Invalid` lists the documents that did not become Valid.",
)
async def list_company_documents(request: web.Request) -> web.Response:
    page = read_page(request, FILTERS)
    row = await read_own(
        request,
        sql.submitted_document_list,
        statuses=page.filters["status"],
        per_page=page.per_page,
        offset=page.offset,
    )
    return page_response(page, row)

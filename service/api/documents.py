"""Documents of every kind as resources: create, list, get, update, delete and export.

table.py declares the operations of all kinds with these functions. Spec: Invoices
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from aiohttp import web

from service import schema
from service.api.exports import read_batches, stream_export
from service.api.operation import REPLACES, Group, QueryParameter
from service.api.pagination import PAGE
from service.api.records import get_record, list_records
from service.db.connections import Connection
from service.db.statements import Statement, sql
from service.documents import states
from service.documents.body_checks import ISSUED, Draft, check_draft
from service.documents.consolidation import find_misclassified_lines
from service.documents.kind import CONSOLIDATED, INVOICE, NOTE, DocumentKind
from service.documents.optional_members import join_exports, read_stored_body
from service.errors import ApiError, Conflict, Forbidden, ValidationError, reject, violation
from service.http import app_keys, responses
from service.http.access import company_transaction, read_own, zone_of
from service.http.idempotency import store_response
from service.http.requests import (
    check_if_match,
    or_not_found,
    read_path_id,
    warn_of_doubts,
    warn_of_removed,
)
from service.json_types import JsonObject, Row
from service.offload import offload
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.locked_documents import lock_document
from service.submission.sending import submit

SUBMITS = (
    "`submitImmediately` submits the document within the request. `isReady` submits it in the "
    "background if the company's setting AUTO_SUBMIT_INVOICE is on. A failed submission does not "
    "fail the request: `message` and `data` describe its outcome."
)
in_consolidated_error = partial(
    Conflict,
    "The invoice is part of a consolidated invoice; delete or cancel that first.",
    code="in_consolidated_invoice",
)


@dataclass(frozen=True, slots=True)
class Documents:
    """A kind of document as a resource.

    `schema` is that of a record, and the start of the names of the other schemas. `get` is the
    statement of a single record, which can have more members than a record of a list. `cancelling`
    is the last segment of the path that cancels. `update_errors` and `submit_errors` are those that
    other kinds do not have.
    """

    operation: Group
    kind: DocumentKind
    path: str
    schema: str
    filters: tuple[QueryParameter, ...]
    get: Statement
    cancelling: str = "cancel-latest-invoice-submitted"
    update_errors: tuple[ApiError, ...] = ()
    submit_errors: tuple[ApiError, ...] = ()

    @property
    def record_path(self) -> str:
        return f"{self.path}/{{id}}"

    def statement(self, verb: str) -> Statement:
        """Return the statement of the kind with a verb."""
        return sql.by_name[f"{self.kind.name}_{verb}"]


def locked_error(kind: DocumentKind, action: str) -> Forbidden:
    """Return the error for a submitted document. `action` is a participle, such as updated."""
    return Forbidden(states.describe_locked(kind.noun, action), code="already_submitted")


# Reading


def declare_reading(documents: Documents) -> None:
    path, kind, plural = documents.path, documents.kind, f"{documents.kind.noun}s"
    documents.operation(
        f"GET {path}",
        f"List {plural}",
        f"{documents.schema}List",
        query=(*PAGE, *documents.filters),
        description="Newest first, unless `sort` says otherwise. Filters can be combined.",
        name=f"list_{kind.name}s",
    )(partial(list_records, name=kind.name, filters=documents.filters))
    documents.operation(
        f"GET {path}/export-all",
        f"Export all {plural}",
        f"{documents.schema}Export[]",
        description=f"Every {kind.noun} of the company, newest first, without pages.",
        is_file=True,
        name=f"export_all_{kind.name}s",
    )(partial(_export_documents, documents))
    documents.operation(
        f"GET {documents.record_path}",
        f"Get {kind.with_article}",
        documents.schema,
        description="The ETag of the response can be sent as `If-Match` with a change.",
        is_record=True,
        name=f"get_{kind.name}",
    )(partial(get_record, statement=documents.get, noun=kind.title))
    documents.operation(
        f"GET {documents.record_path}/export",
        f"Export {kind.with_article}",
        f"{documents.schema}Export",
        description="A JSON file for other systems, named after the full code.",
        is_file=True,
        name=f"export_{kind.name}",
    )(partial(_export_document, documents))


async def _export_documents(documents: Documents, request: web.Request) -> web.StreamResponse:
    name = documents.path.rpartition("/")[2]
    response = web.StreamResponse(headers=responses.attachment_headers(f"{name}.json"))
    response.content_type = "application/json"
    batches = read_batches(request, documents.statement("export_batch"))
    return await stream_export(request, response, batches)


async def _export_document(documents: Documents, request: web.Request) -> web.Response:
    title = documents.kind.title
    document_id = read_path_id(request, title)
    row = or_not_found(
        await read_own(request, documents.statement("export"), id=document_id), title
    )
    name = f"{title.lower().replace(' ', '-')}-{row['full_code']}.json"
    headers = responses.attachment_headers(name)
    return responses.json_text_response(join_exports([row])[1:], headers=headers)


async def list_of_document(
    kind: DocumentKind, statement: Statement, request: web.Request
) -> web.Response:
    """Return what a statement lists of one document. Raises NotFound without the document."""
    document_id = read_path_id(request, kind.title)
    text = await read_own(request, statement, kind=kind.name, document_id=document_id)
    return responses.json_text_response(or_not_found(text, kind.title))


# Changes


def declare_update(documents: Documents) -> None:
    kind = documents.kind
    documents.operation(
        f"PUT {documents.record_path}",
        f"Update {kind.with_article}",
        "Stored" if kind is INVOICE else "Updated",
        message=f"{kind.title} updated.",
        body=f"{kind.name}_update",
        errors=(locked_error(kind, "updated"), *documents.update_errors),
        description=f"{REPLACES} {SUBMITS}" if kind is INVOICE else REPLACES,
        name=f"update_{kind.name}",
    )(partial(update_document, documents))


def declare_deletion(documents: Documents) -> None:
    kind = documents.kind
    further = (in_consolidated_error(),) if kind is INVOICE else ()
    documents.operation(
        f"DELETE {documents.record_path}",
        f"Delete {kind.with_article}",
        "Message" if kind is NOTE else "Success",
        message=f"{kind.title} deleted.",
        errors=(locked_error(kind, "deleted"), *further),
        description="Frees its code and its invoices."
        if kind is CONSOLIDATED
        else "Frees its code.",
        name=f"delete_{kind.name}",
    )(partial(delete_document, documents))


async def update_document(
    documents: Documents, request: web.Request, body: JsonObject
) -> web.Response:
    """Merge the sent members into a draft. An invoice is submitted if the body or the company asks.

    Raises Forbidden for a submitted document. Spec: Invoices
    """
    kind = documents.kind
    async with company_transaction(request) as conn:
        row = await _lock_draft(documents, request, conn, "updated")
        await warn_of_removed(request, row["body"], body)
        started, draft = await update_draft(request, conn, kind, row, body)
        warn_of_doubts(request, draft.doubts, row)
        updated = f"{kind.title} updated."
        response = responses.success_response(request, updated)
        await store_response(request, conn, response, is_interim=started is not None)
    if kind is NOTE:
        return response
    sentence, outcome = await submit.describe_outcome(
        request.app[SUBMISSION_CONTEXT], row["id"], started
    )
    data = {"id": row["id"], **outcome}
    return responses.success_response(request, f"{updated}{sentence}", data=data)


async def update_draft(
    request: web.Request, conn: Connection, kind: DocumentKind, row: Row, changes: JsonObject
) -> tuple[submit.Started | None, Draft]:
    """Merge changes into a locked draft, and prepare the submission that it then asks for.

    Return the submission and the merged draft. Raises Conflict for an invoice in a consolidated
    invoice, ValidationError if the merged document is invalid, or a note exceeds the remaining
    amount.
    """
    _reject_consolidated(kind, row)
    company = request[app_keys.COMPANY]
    if kind is NOTE and row["consolidated_invoice_id"] and "lineItems" in changes:
        reject(find_misclassified_lines(changes["lineItems"]))
    draft = await offload(len(row["body"]), _merge, kind, row, changes)
    if kind is NOTE:
        reject_excess(row["adjustable"], draft)
    columns = draft.columns(zone_of(request))
    await sql.document_update(conn, id=row["id"], **columns)
    if kind is NOTE:
        return None, draft
    started = await submit.start_if_requested(
        request.app[SUBMISSION_CONTEXT], conn, company, row["id"], draft.submission
    )
    return started, draft


def _merge(kind: DocumentKind, row: Row, changes: JsonObject) -> Draft:
    """Return the Draft of a stored document with changes.

    Raises ValidationError if the merged document breaks a rule of creation.
    """
    members = schema.ALL[f"{kind.name}_update"]["properties"].keys()
    stored = read_stored_body(row["body"])
    body = {**{name: stored[name] for name in members & stored.keys()}, **changes}
    if kind is INVOICE:
        reject(schema.find_violations("invoice_create", body))
    return check_draft(kind, body, None if ISSUED[kind] in changes else row["issue_date"])


def reject_excess(adjustable: Decimal, draft: Draft) -> None:
    """Raise ValidationError for a credit or refund that exceeds the remaining amount."""
    if draft.stored["type"] != "DEBIT_NOTE" and draft.total_amount > adjustable:
        message = states.NOTE_TOO_HIGH.format(amount=adjustable)
        raise ValidationError([violation("/lineItems", "amount", message)])


async def delete_document(documents: Documents, request: web.Request) -> None:
    """Hide a document that is not submitted, and free its code. Spec: Errors"""
    async with company_transaction(request) as conn:
        row = await _lock_draft(documents, request, conn, "deleted")
        _reject_consolidated(documents.kind, row)
        if documents.kind is CONSOLIDATED:
            await sql.documents_lock(conn, ids=row["invoice_ids"])
        await sql.document_delete(conn, id=row["id"])


async def _lock_draft(
    documents: Documents, request: web.Request, conn: Connection, action: str
) -> Row:
    """Lock the document of the path for a change.

    Raises NotFound, PreconditionFailed if If-Match does not match, and Forbidden if it is
    submitted.
    """
    kind = documents.kind
    document_id = read_path_id(request, kind.title)
    row = await lock_document(conn, kind, document_id)
    await check_if_match(request, conn, documents.get, id=document_id)
    if row["status"] in states.LOCKED:
        raise locked_error(kind, action)
    return row


def _reject_consolidated(kind: DocumentKind, row: Row) -> None:
    if kind is INVOICE and row["consolidated_invoice_id"]:
        raise in_consolidated_error()

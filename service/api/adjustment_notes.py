"""Adjustment notes: list, get, update, delete, export; creation for invoices of both kinds.

Spec: Adjustment notes
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import asyncpg
from aiohttp import web

from service import json_codec, schema
from service.api import links, printing, submissions
from service.api.filters import OWN_FILTERS, document_filters
from service.api.operation import REPLACES, Operation
from service.api.records import Documents, Source, declare_export, declare_reading
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import consolidation, states
from service.documents.body_checks import Draft, check_draft
from service.errors import CONSTRAINTS, BadRequest, Forbidden, ValidationError, violation
from service.http import app_keys, responses
from service.http.idempotency import store_response
from service.http.requests import (
    check_if_match,
    or_not_found,
    parse_document_instant,
    read_body,
    read_path_id,
    warn_of_doubts,
    warn_of_removed,
)
from service.offload import offload
from service.submission.document_kinds import COLUMNS, CONSOLIDATED, INVOICE, NOTE, DocumentKind

NOUN = NOTE.title
operations: list[Operation] = []
operation = partial(Operation, operations, "Adjustment notes", noun=NOUN)

DOCUMENTS = Documents(
    NOTE,
    "/api/adjustment-notes",
    "AdjustmentNote",
    (*document_filters(schema.get_values("note_type"), "NoteType"), *OWN_FILTERS),
    Source(
        sql.adjustment_note_page,
        sql.adjustment_note_search,
        sql.adjustment_note_get,
    ),
    get=sql.adjustment_note_get,
    export=sql.adjustment_note_export,
    export_batch=sql.adjustment_note_export_batch,
    cancelling="cancel-latest-adjustment-note-submitted",
)
CREATED = "Adjustment note created."
UPDATED, DELETED = "Adjustment note updated.", "Adjustment note deleted."
NOT_UPDATED = states.describe_locked(NOTE.noun, "updated")
NOT_DELETED = states.describe_locked(NOTE.noun, "deleted")
CODE_USED = CONSTRAINTS["adjustment_notes_code_once_a_type"]()
REFERENCE_USED = CONSTRAINTS["adjustment_notes_reference_once"]()


@dataclass(frozen=True, slots=True)
class NewNote:
    """A note as its creation request describes it: the checked body and its JSON text."""

    draft: Draft
    text: str


def _refuse_note(code: str) -> Forbidden:
    return Forbidden(states.NOTE_MESSAGES[code], code=code)


def declare_note_creation(
    operation: partial[Operation], invoices: Documents, description: str
) -> None:
    """Declare the operation that creates a note for a kind of invoice."""
    operation(
        "POST",
        f"{invoices.record_path}/adjustment-note",
        f"Create an adjustment note for {invoices.kind.with_article}",
        "Created",
        status=201,
        message=CREATED,
        body="adjustment_note_create",
        errors=(*map(_refuse_note, states.NOTE_MESSAGES), CODE_USED, REFERENCE_USED),
        description=description,
        name=f"create_adjustment_note_of_{invoices.kind.identifier}",
    )(partial(create_adjustment_note, invoices.kind))


async def create_adjustment_note(kind: DocumentKind, request: web.Request) -> web.Response:
    """Store a draft note for an invoice whose latest submitted document is Valid.

    Locks the invoice, so that it cannot be cancelled meanwhile. Raises Forbidden by
    states.NOTE_REFUSALS, ValidationError for a note that does not match its invoice. The lines of
    a note for a consolidated invoice must have its classification.
    """
    note = await _read_note(request)
    company, invoice_id = request[app_keys.COMPANY], read_path_id(request, kind.title)
    share = sql.invoice_share if kind is INVOICE else sql.consolidated_invoice_share
    async with request.app[app_keys.DATABASE].company(company) as conn:
        target = or_not_found(await share(conn, company_id=company, id=invoice_id), kind.title)
        if kind is CONSOLIDATED:
            _reject_misclassified(note.draft)
        row = await _insert_note(conn, company, {kind.column: invoice_id}, target, note)
        warn_of_doubts(request, note.draft.doubts, row)
        note_id = row["id"]
        response = responses.created_response(
            CREATED, note_id, warnings=request.get(app_keys.WARNINGS)
        )
        await store_response(request, conn, response)
    return response


async def _read_note(request: web.Request) -> NewNote:
    """Return the note of a creation request. Raises ValidationError."""
    body, text = await read_body(request, "adjustment_note_create")
    issued = parse_document_instant(body, "adjustmentNoteIssueDate")
    draft = await offload(len(text), check_draft, body, issued, len(text))
    return NewNote(draft, json_codec.compact(text, body))


async def _insert_note(
    conn: Connection, company: int, target_id: dict[str, int], target: asyncpg.Record, note: NewNote
) -> asyncpg.Record:
    """Insert a note for a locked document, and return its id and its company's registrations.

    `target_id` is {invoice_id} or {consolidated_invoice_id}. Raises Forbidden and ValidationError.
    """
    latest = await sql.submitted_document_latest(
        conn, company_id=company, **{**dict.fromkeys(COLUMNS), **target_id}
    )
    if code := states.find_refusal(states.NOTE_REFUSALS, latest):
        raise _refuse_note(code)
    draft = note.draft
    if draft.body["targetInvoiceType"] != target["type"]:
        message = f"targetInvoiceType must be the type of the invoice, {target['type']}."
        raise ValidationError([violation("/targetInvoiceType", "target", message)])
    _reject_excess(target["final_adjusted_amount"], draft)
    ids = {"invoice_id": None, "consolidated_invoice_id": None, **target_id}
    return await sql.adjustment_note_insert(
        conn,
        company_id=company,
        **ids,
        body=note.text,
        issue_date=draft.issue_date,
        **draft.columns,
    )


declare_reading(
    operation, DOCUMENTS, everything="Every note of the company, newest first, without pages."
)


@operation(
    "PUT",
    "/api/adjustment-notes/{id}",
    "Update an adjustment note",
    "Updated",
    message=UPDATED,
    body="adjustment_note_update",
    errors=(Forbidden(NOT_UPDATED, code="already_submitted"), CODE_USED, REFERENCE_USED),
    description=REPLACES,
)
async def update_adjustment_note(request: web.Request) -> web.Response:
    """Merge the sent members into a draft. Raises Forbidden for a submitted note."""
    body, _ = await read_body(request, "adjustment_note_update")
    company, note_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, note_id)
        if row["status"] in states.LOCKED:
            raise Forbidden(NOT_UPDATED, code="already_submitted")
        draft, text = await offload(len(row["body"]), _merge, row, body)
        _reject_excess(row["adjustable"], draft)
        await warn_of_removed(request, row["body"], body)
        warn_of_doubts(request, draft.doubts, row)
        await sql.adjustment_note_update(
            conn,
            company_id=company,
            id=note_id,
            body=text,
            issue_date=draft.issue_date,
            **draft.columns,
        )
    return responses.success_response(UPDATED, warnings=request.get(app_keys.WARNINGS))


@operation(
    "DELETE",
    "/api/adjustment-notes/{id}",
    "Delete an adjustment note",
    "Message",
    message=DELETED,
    errors=(Forbidden(NOT_DELETED, code="already_submitted"),),
    description="Frees its code.",
)
async def delete_adjustment_note(request: web.Request) -> web.Response:
    """Hide a note that is not submitted, and free its code. Spec: Errors"""
    company, note_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, note_id)
        if row["status"] in states.LOCKED:
            raise Forbidden(NOT_DELETED, code="already_submitted")
        await sql.adjustment_note_delete(conn, company_id=company, id=note_id)
    return responses.json_response({"message": DELETED})


submissions.declare(
    operation,
    DOCUMENTS,
    submit_errors=(BadRequest(states.NOTE_WITHOUT_VALID_INVOICE, code="invoice_not_valid"),),
)
printing.declare(operation, DOCUMENTS)
links.declare(operation, DOCUMENTS)
declare_export(operation, DOCUMENTS)


async def _lock(request: web.Request, conn: Connection, note_id: int) -> asyncpg.Record:
    """Lock a note. Raises NotFound, and PreconditionFailed if If-Match does not match."""
    company = request[app_keys.COMPANY]
    row = or_not_found(await NOTE.locked(conn, company, note_id), NOUN)
    await check_if_match(request, conn, sql.adjustment_note_get, company_id=company, id=note_id)
    return row


def _merge(row: asyncpg.Record, changes: dict[str, Any]) -> tuple[Draft, str]:
    """Return the Draft of a stored note with changes, and its JSON text.

    Raises ValidationError if an amount or code of the merged note is invalid.
    """
    stored = json_codec.loads(row["body"].encode())
    kept = {name: stored[name] for name in schema.ALL["adjustment_note_update"]["properties"]}
    body = {**kept, **changes}
    issued = row["issue_date"]
    if "adjustmentNoteIssueDate" in changes:
        issued = parse_document_instant(body, "adjustmentNoteIssueDate")
    text = json_codec.dumps(body)
    return check_draft(body, issued, len(text)), text


def _reject_misclassified(draft: Draft) -> None:
    if violations := consolidation.find_misclassified_lines(draft.body["lineItems"]):
        raise ValidationError(violations[: schema.MAX_VIOLATIONS])


def _reject_excess(adjustable: Decimal, draft: Draft) -> None:
    """Raise ValidationError for a credit or refund that exceeds the remaining amount."""
    if draft.body["type"] != "DEBIT_NOTE" and draft.total_amount > adjustable:
        message = states.NOTE_TOO_HIGH.format(amount=adjustable)
        raise ValidationError([violation("/lineItems", "amount", message)])

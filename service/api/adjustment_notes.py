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
from service.api import pagination, printing, submissions
from service.api.exports import export_batches, stream_array
from service.api.operation import Operation
from service.api.records import Source, export_record, get_record, list_page
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import states
from service.documents.body_checks import Draft, check_draft
from service.errors import CONSTRAINTS, BadRequest, Forbidden, ValidationError, violation
from service.http import app_keys, responses
from service.http.requests import (
    check_if_match,
    or_not_found,
    parse_document_instant,
    read_body,
    read_path_id,
)
from service.offload import offload
from service.submission.document_kinds import COLUMNS, NOTE

NOUN = NOTE.title
operations: list[Operation] = []
operation = partial(Operation, operations, "Adjustment notes", noun=NOUN)

LIST = Source(sql.adjustment_note_page, sql.adjustment_note_search, sql.adjustment_note_get)
SORTS = pagination.DOCUMENT_SORTS
FILTERS = pagination.document_filters(
    tuple(schema.ALL["adjustment_note_update"]["properties"]["type"]["enum"]), "NoteType"
)
UPDATED, DELETED = "Adjustment note updated.", "Adjustment note deleted."
NOT_UPDATED = states.describe_locked(NOTE.noun, "updated")
NOT_DELETED = states.describe_locked(NOTE.noun, "deleted")
CODE_USED = CONSTRAINTS["adjustment_notes_code_once_a_type"]()
#: Of the creation of a note, which the modules of both kinds of invoices declare.
NOTE_CREATED = "Adjustment note created."
NOTE_ERRORS = (*(Forbidden(message) for _, message in states.NOTE_REFUSALS), CODE_USED)


@dataclass(frozen=True, slots=True)
class NewNote:
    """A note as its creation request describes it: the checked body and its JSON text."""

    draft: Draft
    text: str


async def read_note(request: web.Request) -> NewNote:
    """Return the note of a creation request. Raises ValidationError."""
    body, text = await read_body(request, "adjustment_note_create")
    issued = parse_document_instant(body, "adjustmentNoteIssueDate")
    return NewNote(await offload(len(text), check_draft, body, issued, len(text)), text)


async def insert_note(
    conn: Connection, company: int, target_id: dict[str, int], target: asyncpg.Record, note: NewNote
) -> int:
    """Insert a note for a locked document, and return its id.

    `target_id` is {invoice_id} or {consolidated_invoice_id}. Raises Forbidden and ValidationError.
    """
    latest = await sql.submitted_document_latest(
        conn, company_id=company, **{**dict.fromkeys(COLUMNS), **target_id}
    )
    if message := states.find_refusal(states.NOTE_REFUSALS, latest):
        raise Forbidden(message)
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
        **draft.amounts,
    )


@operation(
    "GET",
    "/api/adjustment-notes",
    "List adjustment notes",
    "AdjustmentNoteList",
    query=(*pagination.PAGE, *FILTERS, pagination.sort_by(SORTS)),
    description="Newest first.",
)
async def list_adjustment_notes(request: web.Request) -> web.StreamResponse:
    """Return a page of notes."""
    page = pagination.read_page(request, FILTERS, SORTS)
    return await list_page(request, page, LIST)


@operation(
    "GET",
    "/api/adjustment-notes/export-all",
    "Export all adjustment notes",
    "AdjustmentNoteExports",
    description="Every note of the company, newest first, without pages.",
    is_file=True,
)
async def export_adjustment_notes(request: web.Request) -> web.StreamResponse:
    """Stream all notes of the company, newest first, as one JSON array."""
    return await stream_array(
        request, "adjustment-notes.json", export_batches(request, sql.adjustment_note_export_batch)
    )


@operation(
    "GET", "/api/adjustment-notes/{id}", "Get an adjustment note", "AdjustmentNote", is_record=True
)
async def get_adjustment_note(request: web.Request) -> web.Response:
    """Return a note."""
    return await get_record(request, sql.adjustment_note_get, NOUN)


@operation(
    "PUT",
    "/api/adjustment-notes/{id}",
    "Update an adjustment note",
    "Success",
    message=UPDATED,
    body="adjustment_note_update",
    errors=(Forbidden(NOT_UPDATED), CODE_USED),
    description="Sent members replace stored ones.",
)
async def update_adjustment_note(request: web.Request) -> web.Response:
    """Merge the sent members into a draft. Raises Forbidden for a submitted note."""
    body, _ = await read_body(request, "adjustment_note_update")
    company, note_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, note_id)
        if row["status"] in states.LOCKED:
            raise Forbidden(NOT_UPDATED)
        draft, text = await offload(len(row["body"]), _merge, row, body)
        _reject_excess(row["adjustable"], draft)
        await sql.adjustment_note_update(
            conn,
            company_id=company,
            id=note_id,
            body=text,
            issue_date=draft.issue_date,
            **draft.amounts,
        )
    return responses.success_response(UPDATED)


@operation(
    "DELETE",
    "/api/adjustment-notes/{id}",
    "Delete an adjustment note",
    "Message",
    message=DELETED,
    errors=(Forbidden(NOT_DELETED),),
    description="Frees its code.",
)
async def delete_adjustment_note(request: web.Request) -> web.Response:
    """Hide a note that is not submitted, and free its code. Spec: Errors"""
    company, note_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, note_id)
        if row["status"] in states.LOCKED:
            raise Forbidden(NOT_DELETED)
        await sql.adjustment_note_delete(conn, company_id=company, id=note_id)
    return responses.json_response({"message": DELETED})


submissions.declare(
    operation,
    NOTE,
    "/api/adjustment-notes/{id}",
    cancelling="cancel-latest-adjustment-note-submitted",
    submit_errors=(BadRequest(states.NOTE_WITHOUT_VALID_INVOICE),),
)
printing.declare(operation, NOTE, "/api/adjustment-notes/{id}")


@operation(
    "GET",
    "/api/adjustment-notes/{id}/export",
    "Export an adjustment note",
    "AdjustmentNoteExport",
    is_file=True,
)
async def export_adjustment_note(request: web.Request) -> web.Response:
    """Return a note as a file."""
    return await export_record(request, sql.adjustment_note_export, NOUN)


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


def _reject_excess(adjustable: Decimal, draft: Draft) -> None:
    """Raise ValidationError for a credit or refund that exceeds the remaining amount."""
    if draft.body["type"] != "DEBIT_NOTE" and draft.amounts["payable_amount"] > adjustable:
        message = states.NOTE_TOO_HIGH.format(amount=adjustable)
        raise ValidationError([violation("/lineItems", "amount", message)])

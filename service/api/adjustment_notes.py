"""Adjustment notes: create for an invoice, list, get, update, delete, export.

Spec: Adjustment notes
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import asyncpg
from aiohttp import web

from service import json_codec, schema
from service.api import pagination
from service.api.exports import export_batches, stream_array
from service.api.records import Source, export_record, get_record, list_page
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import states
from service.documents.body_checks import Draft, check_draft
from service.errors import Forbidden, ValidationError, violation
from service.http import app_keys, responses
from service.http.idempotency import store_response
from service.http.requests import (
    check_if_match,
    or_not_found,
    parse_document_instant,
    read_body,
    read_path_id,
)
from service.offload import offload
from service.submission.document_kinds import COLUMNS, NOTE

routes = web.RouteTableDef()

NOUN = "Adjustment note"
LIST = Source(sql.adjustment_note_page, sql.adjustment_note_search, sql.adjustment_note_get)
SORTS = ("id", "-id", "issue_date", "-issue_date", "code", "-code")
FILTERS = {
    "status": pagination.one_of("status", tuple(states.RECORD_TRANSITIONS)),
    "type": pagination.one_of(
        "type", tuple(schema.ALL["adjustment_note_update"]["properties"]["type"]["enum"])
    ),
    "issued_from": pagination.instant("issued_from"),
    "issued_to": pagination.instant("issued_to"),
    "query": pagination.words,
}


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


@routes.post("/api/invoices/{id}/adjustment-note")
async def create_adjustment_note(request: web.Request) -> web.Response:
    """Store a draft note for an invoice whose latest submitted document is Valid.

    Locks the invoice, so that it cannot be cancelled meanwhile. Raises Forbidden by
    states.NOTE_REFUSALS, ValidationError for a note that does not match its invoice.
    """
    note = await read_note(request)
    company, invoice_id = request[app_keys.COMPANY], read_path_id(request, "Invoice")
    async with request.app[app_keys.DATABASE].company(company) as conn:
        target = or_not_found(
            await sql.invoice_share(conn, company_id=company, id=invoice_id), "Invoice"
        )
        note_id = await insert_note(conn, company, {"invoice_id": invoice_id}, target, note)
        response = responses.created_response(NOUN, note_id)
        await store_response(request, conn, response)
    return response


async def insert_note(
    conn: Connection,
    company: int,
    target_id: dict[str, int],
    target: asyncpg.Record,
    note: NewNote,
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


@routes.get("/api/adjustment-notes")
async def list_adjustment_notes(request: web.Request) -> web.StreamResponse:
    """Return a page of notes."""
    page = pagination.read_page(request, FILTERS, SORTS)
    return await list_page(request, page, LIST)


# Registered before {id}, which would match "export-all".
@routes.get("/api/adjustment-notes/export-all")
async def export_adjustment_notes(request: web.Request) -> web.StreamResponse:
    """Stream all notes of the company, newest first, as one JSON array."""
    return await stream_array(
        request, "adjustment-notes.json", export_batches(request, sql.adjustment_note_export_batch)
    )


@routes.get("/api/adjustment-notes/{id}")
async def get_adjustment_note(request: web.Request) -> web.Response:
    """Return a note."""
    return await get_record(request, sql.adjustment_note_get, NOUN)


@routes.put("/api/adjustment-notes/{id}")
async def update_adjustment_note(request: web.Request) -> web.Response:
    """Merge the sent members into a draft. Raises Forbidden for a submitted note."""
    body, _ = await read_body(request, "adjustment_note_update")
    company, note_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, note_id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.describe_locked("adjustment note", "updated"))
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
    return responses.success_response("Adjustment note updated.")


@routes.delete("/api/adjustment-notes/{id}")
async def delete_adjustment_note(request: web.Request) -> web.Response:
    """Hide a note that is not submitted, and free its code. Spec: Errors"""
    company, note_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, note_id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.describe_locked("adjustment note", "deleted"))
        await sql.adjustment_note_delete(conn, company_id=company, id=note_id)
    return responses.json_response({"message": "Adjustment note deleted."})


@routes.get("/api/adjustment-notes/{id}/export")
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
        message = f"The note exceeds the invoice's remaining amount of {adjustable}."
        raise ValidationError([violation("/lineItems", "amount", message)])

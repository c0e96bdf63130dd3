"""Adjustment notes: create against an invoice, list, get, update, delete, export. Spec: Adjustment notes."""

import asyncpg
from aiohttp import web

from service import json_codec, schema
from service.api import pagination
from service.api.exports import export_batches, stream_array
from service.api.records import Source, list_page
from service.db.statements import sql
from service.documents import states
from service.documents.body_checks import Draft, check_draft
from service.errors import Forbidden, ValidationError, violation
from service.http import app_keys, responses
from service.http.idempotency import store_response
from service.http.requests import check_if_match, document_instant, or_not_found, path_id, read_body
from service.offload import offload
from service.submission.document_kinds import COLUMNS, NOTE

routes = web.RouteTableDef()

NOUN = "Adjustment note"
LIST = Source(sql.adjustment_note_page, sql.adjustment_note_search, sql.adjustment_note_get)
SORTS = ("id", "-id", "issue_date", "-issue_date", "code", "-code")
FILTERS = {
    "status": pagination.one_of("status", tuple(states.SUBJECT_MOVES)),
    "type": pagination.one_of(
        "type", tuple(schema.ALL["adjustment_note_update"]["properties"]["type"]["enum"])
    ),
    "issued_from": pagination.instant("issued_from"),
    "issued_to": pagination.instant("issued_to"),
    "query": pagination.words,
}


@routes.post("/api/invoices/{id}/adjustment-note")
async def create_adjustment_note(request):
    """Store a draft note against an invoice whose latest submitted document is Valid.

    The invoice stays locked against its cancellation meanwhile. Raises Forbidden by states.NOTE_REFUSALS,
    Invalid for a note that does not fit its invoice.
    """
    body, text = await read_body(request, "adjustment_note_create")
    draft = await offload(
        len(text), check_draft, body, document_instant(body, "adjustmentNoteIssueDate"), len(text)
    )
    id = path_id(request, "Invoice")
    async with request.app[app_keys.DATABASE].company(request[app_keys.COMPANY]) as conn:
        target = or_not_found(
            await sql.invoice_share(conn, company_id=request[app_keys.COMPANY], id=id), "Invoice"
        )
        note = await insert_note(
            conn, request[app_keys.COMPANY], {"invoice_id": id}, target, draft, text
        )
        answer = responses.json_response(
            {"success": True, "message": "Adjustment note created.", "data": {"id": note}}, 201
        )
        await store_response(request, conn, answer)
    return answer


async def insert_note(conn, company, target_id, target, draft, text):
    """The id of a new note against a locked target, {invoice_id} or {consolidated_invoice_id}."""
    latest = await sql.submitted_document_latest(
        conn, company_id=company, **{**dict.fromkeys(COLUMNS), **target_id}
    )
    if message := states.refusal(states.NOTE_REFUSALS, latest):
        raise Forbidden(message)
    _refuse_misfit(target, draft)
    ids = {"invoice_id": None, "consolidated_invoice_id": None, **target_id}
    return await sql.adjustment_note_insert(
        conn, company_id=company, **ids, body=text, issue_date=draft.issue_date, **draft.amounts
    )


@routes.get("/api/adjustment-notes")
async def list_adjustment_notes(request):
    page = pagination.read_page(request, FILTERS, SORTS)
    return await list_page(request, page, LIST)


# Above {id}, which would take it for an id.
@routes.get("/api/adjustment-notes/export-all")
async def export_adjustment_notes(request):
    """Every note of the company, newest first, as one JSON array, streamed in batches."""
    return await stream_array(
        request, "adjustment-notes.json", export_batches(request, sql.adjustment_note_export_batch)
    )


@routes.get("/api/adjustment-notes/{id}")
async def get_adjustment_note(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        return responses.record_response(
            request,
            or_not_found(await sql.adjustment_note_get(conn, company_id=company, id=id), NOUN),
        )


@routes.put("/api/adjustment-notes/{id}")
async def update_adjustment_note(request):
    """Merge the sent members into a draft. Raises Forbidden for a submitted note."""
    body, _ = await read_body(request, "adjustment_note_update")
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = or_not_found(await NOTE.locked(conn, company, id), NOUN)
        await check_if_match(request, conn, sql.adjustment_note_get, company_id=company, id=id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.locked_refusal("adjustment note", "updated"))
        draft, text = await offload(len(row["body"]), _merged, row, body)
        _refuse_excess(row["adjustable"], draft)
        await sql.adjustment_note_update(
            conn, company_id=company, id=id, body=text, issue_date=draft.issue_date, **draft.amounts
        )
    return responses.json_response({"success": True, "message": "Adjustment note updated."})


@routes.delete("/api/adjustment-notes/{id}")
async def delete_adjustment_note(request):
    """Hide a note that is not submitted; its code is free again. Spec: Errors"""
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = or_not_found(await NOTE.locked(conn, company, id), NOUN)
        await check_if_match(request, conn, sql.adjustment_note_get, company_id=company, id=id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.locked_refusal("adjustment note", "deleted"))
        await sql.adjustment_note_delete(conn, company_id=company, id=id)
    return responses.json_response({"message": "Adjustment note deleted."})


@routes.get("/api/adjustment-notes/{id}/export")
async def export_adjustment_note(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        row = or_not_found(await sql.adjustment_note_export(conn, company_id=company, id=id), NOUN)
    return responses.json_text_response(
        row["export"],
        headers=responses.attachment_headers(f"adjustment-note-{row['full_code']}.json"),
    )


def _merged(row: asyncpg.Record, changes: dict) -> tuple[Draft, str]:
    """Return the Draft of a stored note with changes, and its JSON text.

    Raises Invalid when an amount or code of the whole is wrong.
    """
    stored = json_codec.loads(row["body"].encode())
    kept = {name: stored[name] for name in schema.ALL["adjustment_note_update"]["properties"]}
    body = {**kept, **changes}
    issued = row["issue_date"]
    if "adjustmentNoteIssueDate" in changes:
        issued = document_instant(body, "adjustmentNoteIssueDate")
    text = json_codec.dumps(body)
    return check_draft(body, issued, len(text)), text


def _refuse_misfit(target, draft):
    if draft.body["targetInvoiceType"] != target["type"]:
        wording = f"targetInvoiceType is not the type of the invoice, which is {target['type']}."
        raise ValidationError([violation("/targetInvoiceType", "target", wording)])
    _refuse_excess(target["final_adjusted_amount"], draft)


def _refuse_excess(adjustable, draft):
    if draft.body["type"] != "DEBIT_NOTE" and draft.amounts["payable_amount"] > adjustable:
        wording = f"The note would take the invoice, adjusted to {adjustable}, under zero."
        raise ValidationError([violation("/lineItems", "amount", wording)])

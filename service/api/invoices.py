"""Invoices: create, list, get, update, delete, export. Spec: Invoices."""

import asyncpg
from aiohttp import web

from service import json_codec, schema
from service.api import pagination
from service.api.exports import export_batches, stream_array
from service.api.records import Source, list_page
from service.db.statements import sql
from service.documents import states
from service.documents.body_checks import Draft, check_draft, code_year
from service.errors import Conflict, Forbidden, ValidationError
from service.http import app_keys, responses
from service.http.idempotency import store_response
from service.http.requests import check_if_match, document_instant, or_not_found, path_id, read_body
from service.offload import offload
from service.submission import submit

routes = web.RouteTableDef()

NOUN = "Invoice"
LIST = Source(sql.invoice_page, sql.invoice_search, sql.invoice_get)
SORTS = ("id", "-id", "issue_date", "-issue_date", "code", "-code")
FILTERS = {
    "status": pagination.one_of("status", tuple(states.SUBJECT_MOVES)),
    "type": pagination.one_of(
        "type", tuple(schema.ALL["invoice_update"]["properties"]["type"]["enum"])
    ),
    "issued_from": pagination.instant("issued_from"),
    "issued_to": pagination.instant("issued_to"),
    "query": pagination.words,
}


@routes.post("/api/invoices")
async def create_invoice(request):
    """Store a draft, and submit it where the body or the company asks for that.

    Raises Invalid, also for a code that the company used that year. A submission that fails does not fail
    the creation: `message` and `data` say how it went. Spec: Invoices
    """
    body, text = await read_body(request, "invoice_create")
    draft = await offload(
        len(text), check_draft, body, document_instant(body, "issueDateTime"), len(text)
    )
    company, context = request[app_keys.COMPANY], request.app[app_keys.SUBMISSION_CONTEXT]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        id = await sql.invoice_insert(conn, company_id=company, **_columns(request, draft, text))
        started = await submit.start_if_asked(context, conn, company, id, body)
        await store_response(request, conn, _created(id))
    return _created(id, *await submit.describe_outcome(context, company, id, started))


def _created(id, sentence="", submitted=None):
    """The answer to a creation, also as it is kept before the submission that was asked for has been tried."""
    data = {"id": id, **(submitted or {})}
    return responses.json_response(
        {"success": True, "message": f"Invoice created.{sentence}", "data": data}, 201
    )


@routes.get("/api/invoices")
async def list_invoices(request):
    page = pagination.read_page(request, FILTERS, SORTS)
    return await list_page(request, page, LIST)


# Above {id}, which would take it for an id.
@routes.get("/api/invoices/export-all")
async def export_invoices(request):
    """Every invoice of the company, newest first, as one JSON array, streamed in batches."""
    return await stream_array(
        request, "invoices.json", export_batches(request, sql.invoice_export_batch)
    )


@routes.get("/api/invoices/{id}")
async def get_invoice(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        return responses.record_response(
            request, or_not_found(await sql.invoice_get(conn, company_id=company, id=id), NOUN)
        )


@routes.put("/api/invoices/{id}")
async def update_invoice(request):
    """Merge the sent members into a draft. Raises Forbidden for a submitted invoice. Spec: Invoices"""
    body, _ = await read_body(request, "invoice_update")
    company, id, context = (
        request[app_keys.COMPANY],
        path_id(request, NOUN),
        request.app[app_keys.SUBMISSION_CONTEXT],
    )
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = or_not_found(await sql.invoice_lock(conn, company_id=company, id=id), NOUN)
        await check_if_match(request, conn, sql.invoice_get, company_id=company, id=id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.locked_refusal("invoice", "updated"))
        started = await rewrite(request, conn, row, body)
    sentence, submitted = await submit.describe_outcome(context, company, id, started)
    return responses.json_response(
        {"success": True, "message": f"Invoice updated.{sentence}", "data": {"id": id, **submitted}}
    )


async def rewrite(request, conn, row, changes):
    """Merges changes into a locked draft, and writes the submission that it then asks for: the Started, or None.

    Raises Conflict for an invoice in a consolidated one, Invalid for changes that do not fit the rest.
    """
    _refuse_consolidated(row)
    company, id = request[app_keys.COMPANY], row["id"]
    draft, text = await offload(len(row["body"]), _merged, row, changes)
    await sql.invoice_update(conn, company_id=company, id=id, **_columns(request, draft, text))
    return await submit.start_if_asked(
        request.app[app_keys.SUBMISSION_CONTEXT], conn, company, id, draft.body
    )


@routes.delete("/api/invoices/{id}")
async def delete_invoice(request):
    """Hide an invoice that is not submitted; its code is free again. Spec: Errors"""
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = or_not_found(await sql.invoice_lock(conn, company_id=company, id=id), NOUN)
        await check_if_match(request, conn, sql.invoice_get, company_id=company, id=id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.locked_refusal("invoice", "deleted"))
        _refuse_consolidated(row)
        await sql.invoice_delete(conn, company_id=company, id=id)
    return responses.json_response({"success": True, "message": "Invoice deleted."})


@routes.get("/api/invoices/{id}/export")
async def export_invoice(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        row = or_not_found(await sql.invoice_export(conn, company_id=company, id=id), NOUN)
    return responses.json_text_response(
        row["export"], headers=responses.attachment_headers(f"invoice-{row['full_code']}.json")
    )


def _refuse_consolidated(row):
    if row["consolidated_invoice_id"]:
        raise Conflict(
            "The invoice is part of a consolidated invoice; delete or cancel that first."
        )


def _columns(request, draft, text):
    """The variables that invoice_insert and invoice_update share."""
    year = code_year(draft.issue_date, request.app[app_keys.CONFIG].time_zone)
    return {"body": text, "code_year": year, "issue_date": draft.issue_date, **draft.amounts}


def _merged(row: asyncpg.Record, changes: dict) -> tuple[Draft, str]:
    """Return the Draft of a stored invoice with changes, and its JSON text.

    Raises Invalid when the whole breaks a rule of creation.
    """
    stored = json_codec.stored_body(row)
    body = {**stored, **changes}
    if faults := schema.violations("invoice_create", body):
        raise ValidationError(faults)
    issued = (
        document_instant(body, "issueDateTime") if "issueDateTime" in changes else row["issue_date"]
    )
    text = json_codec.dumps(body)
    return check_draft(body, issued, len(text)), text

"""Invoices: create, list, get, update, delete, export. Spec: Invoices"""

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
from service.documents.body_checks import Draft, check_draft, get_code_year
from service.errors import Conflict, Forbidden, ValidationError
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
from service.submission import submit
from service.submission.context import SUBMISSION_CONTEXT

routes = web.RouteTableDef()

NOUN = "Invoice"
LIST = Source(sql.invoice_page, sql.invoice_search, sql.invoice_get)
SORTS = ("id", "-id", "issue_date", "-issue_date", "code", "-code")
FILTERS = {
    "status": pagination.one_of("status", tuple(states.RECORD_TRANSITIONS)),
    "type": pagination.one_of(
        "type", tuple(schema.ALL["invoice_update"]["properties"]["type"]["enum"])
    ),
    "issued_from": pagination.instant("issued_from"),
    "issued_to": pagination.instant("issued_to"),
    "query": pagination.words,
}
IN_CONSOLIDATED = "The invoice is part of a consolidated invoice; delete or cancel that first."


@routes.post("/api/invoices")
async def create_invoice(request: web.Request) -> web.Response:
    """Store a draft invoice and, if the body or the company asks for it, submit it.

    Raises ValidationError, also if the code is already used in that year. A failed submission does
    not fail the creation: `message` and `data` describe its outcome. Spec: Invoices
    """
    body, text = await read_body(request, "invoice_create")
    draft = await offload(
        len(text), check_draft, body, parse_document_instant(body, "issueDateTime"), len(text)
    )
    company, context = request[app_keys.COMPANY], request.app[SUBMISSION_CONTEXT]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        invoice_id = await sql.invoice_insert(
            conn, company_id=company, **_columns(request, draft, text)
        )
        started = await submit.start_if_requested(context, conn, company, invoice_id, body)
        await store_response(request, conn, responses.created_response(NOUN, invoice_id))
    sentence, outcome = await submit.describe_outcome(context, company, invoice_id, started)
    return responses.success_response(
        f"Invoice created.{sentence}", 201, data={"id": invoice_id, **outcome}
    )


@routes.get("/api/invoices")
async def list_invoices(request: web.Request) -> web.StreamResponse:
    """Return a page of invoices."""
    page = pagination.read_page(request, FILTERS, SORTS)
    return await list_page(request, page, LIST)


# Registered before {id}, which would match "export-all".
@routes.get("/api/invoices/export-all")
async def export_invoices(request: web.Request) -> web.StreamResponse:
    """Stream all invoices of the company, newest first, as one JSON array."""
    return await stream_array(
        request, "invoices.json", export_batches(request, sql.invoice_export_batch)
    )


@routes.get("/api/invoices/{id}")
async def get_invoice(request: web.Request) -> web.Response:
    """Return an invoice."""
    return await get_record(request, sql.invoice_get, NOUN)


@routes.put("/api/invoices/{id}")
async def update_invoice(request: web.Request) -> web.Response:
    """Merge the sent members into a draft, and submit it if the body or the company asks for it.

    Raises Forbidden for a submitted invoice. Spec: Invoices
    """
    body, _ = await read_body(request, "invoice_update")
    company, invoice_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, invoice_id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.describe_locked("invoice", "updated"))
        started = await update_draft(request, conn, row, body)
    sentence, outcome = await submit.describe_outcome(
        request.app[SUBMISSION_CONTEXT], company, invoice_id, started
    )
    return responses.success_response(
        f"Invoice updated.{sentence}", data={"id": invoice_id, **outcome}
    )


async def update_draft(
    request: web.Request, conn: Connection, row: asyncpg.Record, changes: dict[str, Any]
) -> submit.Started | None:
    """Merge changes into a locked draft, and prepare the submission that it then asks for.

    Raises Conflict for an invoice in a consolidated invoice, ValidationError if the merged invoice
    is invalid.
    """
    _reject_consolidated(row)
    company, invoice_id = request[app_keys.COMPANY], row["id"]
    draft, text = await offload(len(row["body"]), _merge, row, changes)
    await sql.invoice_update(
        conn, company_id=company, id=invoice_id, **_columns(request, draft, text)
    )
    return await submit.start_if_requested(
        request.app[SUBMISSION_CONTEXT], conn, company, invoice_id, draft.body
    )


@routes.delete("/api/invoices/{id}")
async def delete_invoice(request: web.Request) -> web.Response:
    """Hide an invoice that is not submitted, and free its code. Spec: Errors"""
    company, invoice_id = request[app_keys.COMPANY], read_path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = await _lock(request, conn, invoice_id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.describe_locked("invoice", "deleted"))
        _reject_consolidated(row)
        await sql.invoice_delete(conn, company_id=company, id=invoice_id)
    return responses.success_response("Invoice deleted.")


@routes.get("/api/invoices/{id}/export")
async def export_invoice(request: web.Request) -> web.Response:
    """Return an invoice as a file."""
    return await export_record(request, sql.invoice_export, NOUN)


async def _lock(request: web.Request, conn: Connection, invoice_id: int) -> asyncpg.Record:
    """Lock an invoice. Raises NotFound, and PreconditionFailed if If-Match does not match."""
    company = request[app_keys.COMPANY]
    row = or_not_found(await sql.invoice_lock(conn, company_id=company, id=invoice_id), NOUN)
    await check_if_match(request, conn, sql.invoice_get, company_id=company, id=invoice_id)
    return row


def _reject_consolidated(row: asyncpg.Record) -> None:
    if row["consolidated_invoice_id"]:
        raise Conflict(IN_CONSOLIDATED)


def _columns(request: web.Request, draft: Draft, text: str) -> dict[str, Any]:
    """Return the variables that invoice_insert and invoice_update share."""
    year = get_code_year(draft.issue_date, request.app[app_keys.CONFIG].time_zone)
    return {"body": text, "code_year": year, "issue_date": draft.issue_date, **draft.amounts}


def _merge(row: asyncpg.Record, changes: dict[str, Any]) -> tuple[Draft, str]:
    """Return the Draft of a stored invoice with changes, and its JSON text.

    Raises ValidationError if the merged invoice breaks a rule of creation.
    """
    body = {**json_codec.stored_body(row), **changes}
    if violations := schema.find_violations("invoice_create", body):
        raise ValidationError(violations)
    issued = (
        parse_document_instant(body, "issueDateTime")
        if "issueDateTime" in changes
        else row["issue_date"]
    )
    text = json_codec.dumps(body)
    return check_draft(body, issued, len(text)), text

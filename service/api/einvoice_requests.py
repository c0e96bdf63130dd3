"""E-invoice requests: a buyer asks for an e-invoice, the company approves or rejects. Spec: E-invoice requests."""

import asyncpg
from aiohttp import web

from service import json_codec, schema
from service.api import invoices, pagination
from service.api.records import Source, list_page
from service.db.statements import sql
from service.documents import codes, states
from service.documents.body_checks import size_violations
from service.errors import Conflict, ValidationError
from service.http import app_keys, responses
from service.http.idempotency import store_response
from service.http.requests import check_if_match, or_not_found, path_id, read_body
from service.offload import offload
from service.submission import submit

routes = web.RouteTableDef()

NOUN = "E-invoice request"
LIST = Source(sql.einvoice_request_page, sql.einvoice_request_search, sql.einvoice_request_get)
SORTS = ("id", "-id")
FILTERS = {
    "status": pagination.one_of(
        "status", tuple(schema.ALL["einvoice_request_update"]["properties"]["status"]["enum"])
    ),
    "query": pagination.words,
}
BYTES_OF_A_CHARACTER = 4  # in UTF-8, at most
SEVERAL = "The invoice code names several invoices that wait to be finalised, please update the one that is meant."


@routes.post("/api/einvoice-requests")
async def create_einvoice_request(request):
    """Store a pending request. Raises Invalid for an unknown code of its buyer."""
    body, text = await read_body(request, "einvoice_request_create")
    _refuse_unknown_codes(body)
    await offload(len(text), _refuse_too_large, body, len(text))
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        id = await sql.einvoice_request_insert(conn, company_id=company, body=text)
        answer = responses.json_response(
            {"success": True, "message": f"{NOUN} created.", "data": {"id": id}}, 201
        )
        await store_response(request, conn, answer)
    return answer


@routes.get("/api/einvoice-requests")
async def list_einvoice_requests(request):
    page = pagination.read_page(request, FILTERS, SORTS)
    return await list_page(request, page, LIST)


@routes.get("/api/einvoice-requests/{id}")
async def get_einvoice_request(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        return responses.record_response(
            request,
            or_not_found(await sql.einvoice_request_get(conn, company_id=company, id=id), NOUN),
        )


@routes.put("/api/einvoice-requests/{id}")
async def update_einvoice_request(request):
    """Change the sent fields; any state may follow any other. An approval finalises the invoice that is named.

    Raises Conflict when that invoice is part of a consolidated one, or the code names several.
    """
    body, text = await read_body(request, "einvoice_request_update")
    _refuse_unknown_codes(body)
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    invoice = started = None
    async with request.app[app_keys.DATABASE].company(company) as conn:
        or_not_found(await sql.einvoice_request_lock(conn, company_id=company, id=id), NOUN)
        await check_if_match(request, conn, sql.einvoice_request_get, company_id=company, id=id)
        row = await sql.einvoice_request_update(conn, company_id=company, id=id, body=text)
        await offload(len(row["buyer"]), _refuse_too_large_merged, row)
        if body.get("status") == "Approve":
            invoice, started = await _finalise(request, conn, row)
    return await _updated(request, id, invoice, started)


@routes.delete("/api/einvoice-requests/{id}")
async def delete_einvoice_request(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        or_not_found(await sql.einvoice_request_lock(conn, company_id=company, id=id), NOUN)
        await check_if_match(request, conn, sql.einvoice_request_get, company_id=company, id=id)
        await sql.einvoice_request_delete(conn, company_id=company, id=id)
    return responses.json_response({"success": True, "message": f"{NOUN} deleted."})


async def _finalise(request, conn, row):
    """(invoice id, Started) of the invoice that a locked, approved request makes final, both None when there is none.

    Its other party becomes who asked: the buyer, or where the company bills itself the supplier.
    """
    company = request[app_keys.COMPANY]
    named = await sql.pending_invoice_lock_named(
        conn, company_id=company, invoice_code=row["invoice_code"]
    )
    if len(named) > 1:
        raise Conflict(SEVERAL)
    if not named or row["invoice_id"] not in (None, named[0]["id"]):
        return None, None
    invoice = await sql.invoice_lock(conn, company_id=company, id=named[0]["id"])
    final, member = states.PENDING_FINALIZE[invoice["type"]]
    party = json_codec.loads(row["buyer"].encode())
    started = await invoices.rewrite(request, conn, invoice, {"type": final, member: party})
    await sql.einvoice_request_finalised(
        conn, company_id=company, id=row["id"], invoice_id=invoice["id"]
    )
    return invoice["id"], started


async def _updated(request, id, invoice, started):
    """The answer to an update, once it is committed: it says what became of the invoice and of its submission."""
    if invoice is None:
        return responses.json_response(
            {"success": True, "message": f"{NOUN} updated.", "data": {"id": id}}
        )
    context = request.app[app_keys.SUBMISSION_CONTEXT]
    sentence, submitted = await submit.describe_outcome(
        context, request[app_keys.COMPANY], invoice, started
    )
    message = f"{NOUN} updated. The invoice is final now.{sentence}"
    data = {"id": id, "invoice": {"id": invoice, **submitted}}
    return responses.json_response({"success": True, "message": message, "data": data})


def _refuse_unknown_codes(body):
    if faults := codes.violations(body, codes.PARTY):
        raise ValidationError(faults)


def _refuse_too_large(record: dict, length: int | None = None) -> None:
    """Raise Invalid for a request that is too large to be stored; `length` as drafts.size_faults takes it."""
    if faults := list(size_violations(record, length)):
        raise ValidationError(faults)


def _refuse_too_large_merged(row: asyncpg.Record) -> None:
    """Raise Invalid for a request that is too large once it is updated, which undoes the update."""
    if len(row["buyer"]) * BYTES_OF_A_CHARACTER > json_codec.MOST_STORED_BYTES:
        _refuse_too_large(
            {"invoiceCode": row["invoice_code"], **json_codec.loads(row["buyer"].encode())}
        )

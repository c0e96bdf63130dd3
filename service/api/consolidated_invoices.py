"""Consolidated invoices: plan, create, list, get, delete, export, and notes against them. Portal: 13"""

import asyncio
from dataclasses import dataclass
from datetime import date, datetime

from aiohttp import web

from service import json_codec, schema
from service.api import pagination
from service.api.adjustment_notes import insert_note
from service.api.exports import export_batches, stream_array
from service.api.records import Source, list_page
from service.db.statements import sql
from service.documents import consolidation, states
from service.documents.body_checks import check_draft, code_year
from service.errors import Forbidden, ValidationError, violation
from service.http import app_keys, responses
from service.http.idempotency import store_response
from service.http.requests import check_if_match, document_instant, or_not_found, path_id, read_body
from service.offload import offload

routes = web.RouteTableDef()

NOUN = "Consolidated invoice"
BATCH = 500  # invoices whose lines are held in memory at once
LIST = Source(
    sql.consolidated_invoice_page, sql.consolidated_invoice_search, sql.consolidated_invoice_listed
)
SORTS = ("id", "-id", "issue_date", "-issue_date", "code", "-code")
FILTERS = {
    "status": pagination.one_of("status", tuple(states.SUBJECT_MOVES)),
    "type": pagination.one_of("type", tuple(consolidation.FAMILIES)),
    "issued_from": pagination.instant("issued_from"),
    "issued_to": pagination.instant("issued_to"),
    "query": pagination.words,
}


@dataclass(frozen=True, slots=True)
class ConsolidationRequest:
    """What a body asks for: the candidates, and what they are held against; `terms` is None when there is none
    of the invoices it names. `place` is the member that names them, `ids` its invoices, None for a month."""

    candidates: list
    terms: consolidation.Terms | None
    now: datetime
    place: str
    ids: list | None

    def faults(self, issue_date):
        """Why no such document can be made now, whatever the invoices are."""
        refusals = self.terms and consolidation.period_refusals(
            self.terms.period, issue_date, self.now
        )
        return [
            violation("/issueDateTime" if code == "period" else self.place, code, message)
            for code, message in refusals or ()
        ]


@routes.post("/api/consolidated-invoices/plan")
async def plan_consolidated_invoice(request):
    """What a creation would take, what it would leave out, and what stands against it; nothing is changed."""
    body, _ = await read_body(request, "consolidated_invoice_plan")
    issue_date = document_instant(body, "issueDateTime") if "issueDateTime" in body else None
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        wish = await _wish(request, conn, body)
        drawing = await _drawn(conn, company, wish)
    at = issue_date or wish.now
    draft = check_draft(drawing.body(), at)
    data = {
        "month": wish.terms and f"{wish.terms.period.month:%Y-%m}",
        "lines": draft.body["lineItems"],
        "invoiceLevelAllowanceCharge": draft.body["invoiceLevelAllowanceCharge"],
        "totals": _totals(draft.amounts),
        "invoices": drawing.ids,
        "left_out": drawing.left_out,
        "refusals": wish.faults(at),
    }
    return responses.json_response({"data": data})


@routes.post("/api/consolidated-invoices")
async def create_consolidated_invoice(request):
    """Store a draft and put its invoices into it.

    Raises Invalid for a month that is not over or too long over, for named invoices that may not be consolidated,
    when nothing is left to take, and for a code that was used that year.
    """
    body, _ = await read_body(request, "consolidated_invoice_create")
    issue_date = document_instant(body, "issueDateTime")
    company = request[app_keys.COMPANY]
    async with request.app[app_keys.DATABASE].company(company) as conn:
        wish = await _wish(request, conn, body)
        if faults := wish.faults(issue_date):
            raise ValidationError(faults)
        drawing = await _drawn(conn, company, wish, lock=True)
        _refuse_unmet(wish, drawing)
        columns = _columns(request, body, wish, drawing, check_draft(drawing.body(), issue_date))
        id = await sql.consolidated_invoice_insert(conn, company_id=company, **columns)
        answer = responses.json_response(
            {"success": True, "message": "Consolidated invoice created.", "data": {"id": id}}, 201
        )
        await store_response(request, conn, answer)
    return answer


@routes.get("/api/consolidated-invoices")
async def list_consolidated_invoices(request):
    page = pagination.read_page(request, FILTERS, SORTS)
    return await list_page(request, page, LIST)


# Above {id}, which would take it for an id.
@routes.get("/api/consolidated-invoices/export-all")
async def export_consolidated_invoices(request):
    """Every consolidated invoice of the company, newest first, as one JSON array, streamed in batches."""
    pieces = export_batches(request, sql.consolidated_invoice_export_batch)
    return await stream_array(request, "consolidated-invoices.json", pieces)


@routes.get("/api/consolidated-invoices/{id}")
async def get_consolidated_invoice(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        return responses.record_response(
            request,
            or_not_found(await sql.consolidated_invoice_get(conn, company_id=company, id=id), NOUN),
        )


@routes.delete("/api/consolidated-invoices/{id}")
async def delete_consolidated_invoice(request):
    """Hide one that is not submitted; its code and its invoices are free again."""
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        row = or_not_found(
            await sql.consolidated_invoice_lock(conn, company_id=company, id=id), NOUN
        )
        await check_if_match(request, conn, sql.consolidated_invoice_get, company_id=company, id=id)
        if row["status"] in states.LOCKED:
            raise Forbidden(states.locked_refusal("consolidated invoice", "deleted"))
        await sql.consolidated_invoice_members_lock(conn, company_id=company, id=id)
        await sql.consolidated_invoice_delete(conn, company_id=company, id=id)
    return responses.json_response({"success": True, "message": "Consolidated invoice deleted."})


@routes.post("/api/consolidated-invoices/{id}/adjustment-note")
async def create_adjustment_note(request):
    """As against an invoice; its lines are classified as the consolidated invoice's own."""
    body, text = await read_body(request, "adjustment_note_create")
    draft = await offload(
        len(text), check_draft, body, document_instant(body, "adjustmentNoteIssueDate"), len(text)
    )
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].company(company) as conn:
        target = or_not_found(
            await sql.consolidated_invoice_share(conn, company_id=company, id=id), NOUN
        )
        if faults := consolidation.misclassified(body["lineItems"]):
            raise ValidationError(faults[: schema.MAX_FAULTS])
        note = await insert_note(
            conn, company, {"consolidated_invoice_id": id}, target, draft, text
        )
        answer = responses.json_response(
            {"success": True, "message": "Adjustment note created.", "data": {"id": note}}, 201
        )
        await store_response(request, conn, answer)
    return answer


@routes.get("/api/consolidated-invoices/{id}/export")
async def export_consolidated_invoice(request):
    company, id = request[app_keys.COMPANY], path_id(request, NOUN)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        row = or_not_found(
            await sql.consolidated_invoice_export(conn, company_id=company, id=id), NOUN
        )
    return responses.json_text_response(
        row["export"],
        headers=responses.attachment_headers(f"consolidated-invoice-{row['full_code']}.json"),
    )


async def _wish(request, conn, body):
    company, config = request[app_keys.COMPANY], request.app[app_keys.CONFIG]
    facts = await sql.consolidation_terms(conn, company_id=company)
    if "month" in body:
        ids, place = None, "/month"
        span = _period(date.fromisoformat(f"{body['month'].strip()}-01"), config)
        rows = await sql.consolidation_of_month(
            conn, company_id=company, since=span.since, until=span.until
        )
    else:
        ids, place = [int(id) for id in body["invoiceIds"]], "/invoiceIds"
        rows = await sql.consolidation_of_ids(conn, company_id=company, ids=ids)
        span = _common_period(rows, ids, config)
    terms = span and consolidation.Terms(
        body["type"], span, config.time_zone, facts["relaxed_until"]
    )
    return ConsolidationRequest(rows, terms, facts["now"], place, ids)


def _common_period(rows, ids, config):
    """The period that named invoices are held against: that of the first one which is there, None if none is."""
    dates = {row["id"]: row["issue_date"] for row in rows}
    first = next((dates[id] for id in ids if id in dates), None)
    return first and _period(consolidation.month_of(first, config.time_zone), config)


def _period(month, config):
    return consolidation.period(month, config.time_zone, config.consolidation_days)


async def _drawn(conn, company, wish, lock=False):
    """The Drawing of a wish. With `lock`, of what its invoices are once nobody else can change them."""
    taken, left_out = consolidation.sift(wish.candidates, wish.terms)
    if lock:
        taken, changed = consolidation.sift(await _locked(conn, company, taken), wish.terms)
        left_out += changed
    drawing = consolidation.ConsolidationPlan(left_out=left_out)
    for start in range(0, len(taken), BATCH):
        batch = taken[start : start + BATCH]
        rows = (
            []
            if drawing.is_full
            else await sql.consolidation_lines(conn, company_id=company, ids=_ids(batch))
        )
        # Seconds of work in all: beside the event loop
        await asyncio.to_thread(drawing.take, batch, rows)
    seen = {*drawing.ids, *(entry["invoice_id"] for entry in drawing.left_out)}
    unknown = [id for id in wish.ids or () if id not in seen]
    drawing.left_out += (consolidation.left_out(id, *consolidation.UNKNOWN) for id in unknown)
    return drawing


async def _locked(conn, company, candidates):
    """The candidates as they are once they are locked; one that was deleted meanwhile is not there."""
    await sql.consolidation_lock(conn, company_id=company, ids=_ids(candidates))
    return await sql.consolidation_of_ids(conn, company_id=company, ids=_ids(candidates))


def _ids(invoices):
    return [invoice["id"] for invoice in invoices]


def _refuse_unmet(wish, drawing):
    """Raises Invalid when a named invoice is left out, or nothing is left of a month."""
    if wish.ids is not None and drawing.left_out:
        places = {id: index for index, id in enumerate(wish.ids)}
        refused = sorted(
            (places[entry["invoice_id"]], entry["reason"], entry["message"])
            for entry in drawing.left_out
        )
        raise ValidationError(
            [
                violation(f"/invoiceIds/{index}", *why)
                for index, *why in refused[: schema.MAX_FAULTS]
            ]
        )
    if not drawing.ids:
        wording = f"No invoice of {wish.terms.period.month:%Y-%m} is left to consolidate."
        raise ValidationError([violation(wish.place, "empty", wording)])


def _columns(request, body, wish, drawing, draft):
    adjustments = draft.body["invoiceLevelAllowanceCharge"]
    return {
        "code": int(body["code"]),
        "code_year": code_year(draft.issue_date, request.app[app_keys.CONFIG].time_zone),
        "type": body["type"],
        "issue_date": draft.issue_date,
        "month": wish.terms.period.month,
        "line_items": json_codec.dumps(draft.body["lineItems"]),
        "adjustments": adjustments and json_codec.dumps(adjustments),
        "ids": drawing.ids,
        **draft.amounts,
    }


def _totals(amounts):
    return {
        "excludingTax": amounts["excluding_tax"],
        "includingTax": amounts["including_tax"],
        "payableAmount": amounts["payable_amount"],
        "netAmount": amounts["net_amount"],
    }

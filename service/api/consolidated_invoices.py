"""Consolidated invoices: plan, summarize and create. Portal: 13"""

from dataclasses import dataclass
from datetime import date, datetime

from aiohttp import web

from service.api.documents import Documents
from service.api.filters import document_filters
from service.api.operation import Group
from service.api.records import store_created
from service.config import Config
from service.db.connections import Connection
from service.db.statements import sql
from service.db.transactions import get_actor
from service.documents import consolidation
from service.documents.body_checks import check_draft, parse_document_instant
from service.documents.kind import CONSOLIDATED
from service.errors import CONSTRAINTS, ValidationError, Violation, reject, violation
from service.http import app_keys, responses
from service.http.access import company_transaction, read_own_with, zone_of
from service.json_types import JsonObject, Row
from service.offload import run_in_thread

operation = GROUP = Group("Consolidated invoices", CONSOLIDATED.title)

BATCH = 500  # invoices whose lines are in memory at once
DOCUMENTS = Documents(
    GROUP,
    CONSOLIDATED,
    "/api/consolidated-invoices",
    "ConsolidatedInvoice",
    document_filters(tuple(consolidation.FAMILIES), "ConsolidatedInvoiceType"),
    get=sql.consolidated_invoice_whole,
)
CREATED = f"{CONSOLIDATED.title} created."
NONE_LEFT = "No invoice of {month} is left to consolidate."


@dataclass(frozen=True, slots=True)
class ConsolidationRequest:
    """The candidates that a request selects, and the rules that apply to them.

    `ids` are the invoices that it names, None if it names a month; `place` is the JSON Pointer of
    either. `terms` is None if none of the named invoices exists. Invoices of `omitted_types` that
    were submitted individually are no candidates.
    """

    candidates: list[Row]
    omitted_types: list[str]
    terms: consolidation.ConsolidationTerms | None
    now: datetime
    place: str
    ids: list[int] | None

    @property
    def month(self) -> date | None:
        """The first day of the month."""
        return self.terms.period.month if self.terms else None

    def violations(self, issue_date: datetime) -> list[Violation]:
        """Return why no such document can be created now, regardless of its invoices."""
        refusals = self.terms and consolidation.find_period_refusals(
            self.terms.period, issue_date, self.now
        )
        return [_describe_refusal(self.place, *refusal) for refusal in refusals or ()]


def _describe_refusal(place: str, code: str, message: str) -> Violation:
    """Return the violation of a refused period; `place` is the JSON Pointer of the selection."""
    return violation("/issueDateTime" if code == "period" else place, code, message)


@operation(
    "POST /api/consolidated-invoices",
    "Create a consolidated invoice",
    "Created",
    message=CREATED,
    body="consolidated_invoice_create",
    errors=(
        ValidationError([violation("/month", "empty", NONE_LEFT.format(month="2026-01"))]),
        CONSTRAINTS["consolidated_invoices_code_once_a_year"](),
    ),
    description="From all eligible invoices of a month, or from named ones.",
)
async def create_consolidated_invoice(request: web.Request, body: JsonObject) -> web.Response:
    issue_date = parse_document_instant(body, "issueDateTime")
    async with company_transaction(request) as conn:
        wanted = await _read_request(request, conn, body, omits_submitted=True)
        reject(wanted.violations(issue_date))
        plan = await _make_plan(conn, wanted, lock=True)
        _reject_incomplete(wanted, plan)
        whole = {**plan.body(), "type": body["type"], "code": int(body["code"])}
        draft = check_draft(CONSOLIDATED, whole, issue_date)
        columns = draft.new_columns(zone_of(request), month=wanted.month, invoice_ids=plan.ids)
        row = await sql.document_insert(conn, **columns, **get_actor())
        await sql.consolidated_invoice_assign(conn, id=row["id"], ids=plan.ids)
        return await store_created(request, conn, CREATED, {"id": row["id"]})


@operation(
    "POST /api/consolidated-invoices/plan",
    "Plan a consolidated invoice",
    "ConsolidationPlan",
    body="consolidated_invoice_plan",
    description="Returns its contents, and the invoices left out with the reasons. "
    "Changes nothing.",
)
async def plan_consolidated_invoice(request: web.Request, body: JsonObject) -> web.Response:
    issue_date = parse_document_instant(body, "issueDateTime") if "issueDateTime" in body else None

    async def read(
        conn: Connection,
    ) -> tuple[ConsolidationRequest, consolidation.ConsolidationPlan, int]:
        wanted = await _read_request(request, conn, body, body.get("omitSubmitted", False))
        plan = await _make_plan(conn, wanted)
        omitted = 0
        if wanted.omitted_types and wanted.terms:
            period, types = wanted.terms.period, wanted.omitted_types
            omitted = await _count_submitted(conn, period, types)
        return wanted, plan, omitted

    wanted, plan, omitted = await read_own_with(request, read)
    at = issue_date or wanted.now
    contents = plan.body()
    draft = check_draft(CONSOLIDATED, contents, at)
    data = {
        "month": wanted.month and f"{wanted.month:%Y-%m}",
        "lines": contents.pop("lineItems"),
        **contents,
        "totals": {
            "excludingTax": draft.stored["excluding_tax"],
            "includingTax": draft.stored["including_tax"],
            "payableAmount": draft.stored["payable_amount"],
            "netAmount": draft.stored["net_amount"],
        },
        "invoices": plan.ids,
        "left_out": plan.left_out,
        "submitted_count": omitted
        + sum(entry["reason"] == consolidation.SUBMITTED for entry in plan.left_out),
        "refusals": wanted.violations(at),
    }
    return responses.json_response({"data": data})


@operation(
    "POST /api/consolidated-invoices/summary",
    "Summarize the sales of a month that can be consolidated",
    "ConsolidationSummary",
    body="consolidated_invoice_summary",
    description="Counts the invoices and sums their amounts, also for a month of many thousands. A "
    "plan reads their lines as well: it can leave out more of them, because of their taxes, of an "
    "activity that must not be consolidated, or because one document has no room for all. Changes "
    "nothing.",
)
async def summarize_consolidation(request: web.Request, body: JsonObject) -> web.Response:
    config = request.app[app_keys.CONFIG]
    period, types = _read_month(body, config), list(consolidation.FAMILIES[body["type"]])

    async def read(conn: Connection) -> tuple[Row, list[Row], int]:
        issuer = await sql.issuer_get(conn)
        classes = await sql.consolidation_classes(
            conn,
            since=period.since,
            until=period.until,
            omitted_types=types,
            zone=config.time_zone.key,
            amount=consolidation.LARGEST_SALE.amount,
        )
        return issuer, classes, await _count_submitted(conn, period, types)

    issuer, classes, submitted = await read_own_with(request, read)
    terms = _make_terms(body["type"], period, config, issuer)
    refusals = consolidation.find_period_refusals(period, issuer["now"], issuer["now"])
    data = {
        "month": f"{period.month:%Y-%m}",
        **consolidation.summarize(classes, terms),
        "submitted_count": submitted,
        "refusals": [_describe_refusal("/month", *refusal) for refusal in refusals],
    }
    return responses.json_response({"data": data})


async def _read_request(
    request: web.Request, conn: Connection, body: JsonObject, omits_submitted: bool
) -> ConsolidationRequest:
    """Return the request of a body. With `omits_submitted`, submitted invoices of a month are no
    candidates."""
    config = request.app[app_keys.CONFIG]
    issuer = await sql.issuer_get(conn)
    omitted: list[str] = []
    if "month" in body:
        ids, place = None, "/month"
        period = _read_month(body, config)
        omitted = list(consolidation.FAMILIES[body["type"]]) if omits_submitted else []
        rows = await sql.consolidation_of_month(
            conn, since=period.since, until=period.until, omitted_types=omitted
        )
    else:
        ids, place = [int(number) for number in body["invoiceIds"]], "/invoiceIds"
        rows = await sql.consolidation_of_ids(conn, ids=ids)
        period = _common_period(rows, ids, config)
    terms = period and _make_terms(body["type"], period, config, issuer)
    return ConsolidationRequest(rows, omitted, terms, issuer["now"], place, ids)


async def _count_submitted(conn: Connection, period: consolidation.Period, types: list[str]) -> int:
    return await sql.consolidation_submitted_count(
        conn, since=period.since, until=period.until, types=types
    )


def _make_terms(
    document_type: str, period: consolidation.Period, config: Config, issuer: Row
) -> consolidation.ConsolidationTerms:
    relaxed_until, msic = issuer["consolidation_relaxed_until"], issuer["msic_code"] or ""
    return consolidation.ConsolidationTerms(
        document_type, period, config.time_zone, relaxed_until, msic
    )


def _read_month(body: JsonObject, config: Config) -> consolidation.Period:
    return period_of(date.fromisoformat(f"{body['month'].strip()}-01"), config)


def _common_period(rows: list[Row], ids: list[int], config: Config) -> consolidation.Period | None:
    """Return the period of the first named invoice that exists, or None."""
    dates = {row["id"]: row["issue_date"] for row in rows}
    first = next((dates[invoice_id] for invoice_id in ids if invoice_id in dates), None)
    return first and period_of(first.astimezone(config.time_zone).date(), config)


def period_of(day: date, config: Config) -> consolidation.Period:
    """Return the month of a day, with the time in which it can be consolidated."""
    month = day.replace(day=1)
    return consolidation.make_period(month, config.time_zone, config.consolidation_days)


async def _make_plan(
    conn: Connection, wanted: ConsolidationRequest, *, lock: bool = False
) -> consolidation.ConsolidationPlan:
    """Return the plan for a request. With `lock`, lock its invoices and use their locked state."""
    plan, taken = consolidation.ConsolidationPlan(wanted.terms), []
    if wanted.terms:
        taken, plan.left_out = consolidation.split_candidates(wanted.candidates, wanted.terms)
        if lock:
            ids = [invoice["id"] for invoice in taken]
            await sql.documents_lock(conn, ids=ids)
            # without those deleted meanwhile
            locked = await sql.consolidation_of_ids(conn, ids=ids)
            taken, changed = consolidation.split_candidates(locked, wanted.terms)
            plan.left_out += changed
    for start in range(0, len(taken), BATCH):
        batch = taken[start : start + BATCH]
        rows: list[Row] = []
        if not plan.is_full:
            ids = [invoice["id"] for invoice in batch]
            rows = await sql.consolidation_lines(conn, ids=ids)
        # All batches together take seconds, so they run in a thread.
        await run_in_thread(plan.take, batch, rows)
    known = {*plan.ids, *(entry["invoice_id"] for entry in plan.left_out)}
    unknown = [invoice_id for invoice_id in wanted.ids or () if invoice_id not in known]
    plan.left_out += (
        consolidation.describe_left_out({"id": invoice_id, "number": None}, consolidation.UNKNOWN)
        for invoice_id in unknown
    )
    return plan


def _reject_incomplete(wanted: ConsolidationRequest, plan: consolidation.ConsolidationPlan) -> None:
    """Raise ValidationError if a named invoice is left out, or no invoice of a month is left."""
    if wanted.ids is not None and plan.left_out:
        places = {invoice_id: index for index, invoice_id in enumerate(wanted.ids)}
        refused = sorted(
            (places[entry["invoice_id"]], entry["reason"], entry["message"])
            for entry in plan.left_out
        )
        raise ValidationError(
            [
                violation(f"/invoiceIds/{index}", reason, message)
                for index, reason, message in refused
            ]
        )
    if not plan.ids:
        message = NONE_LEFT.format(month=f"{wanted.month:%Y-%m}")
        raise ValidationError([violation(wanted.place, "empty", message)])

"""The overview: what needs attention first, then the figures of the month."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from aiohttp import web
from asyncpg import Record

from service import json_codec
from service.api.consolidated_invoices import period_of
from service.config import Config
from service.dashboard import outcomes, pages
from service.dashboard.documents import find_document
from service.dashboard.operations import read_company
from service.dashboard.pages import page, render
from service.dashboard.sessions import ADMINISTER, READ, SESSION, WRITE
from service.db.connections import Connection
from service.db.statements import sql
from service.documents.consolidation import Period
from service.documents.states import CANCEL_WINDOW
from service.http import app_keys
from service.http.access import read_own_with
from service.json_types import JsonMapping, JsonObject
from service.submission.context import SUBMISSION_CONTEXT

TEXTS = pages.TEXTS["overview"]
MOST_ROWS = 20  # of failed and of unclear documents
#: Codes of failures that a change of the document corrects. None: the portal rejected it.
CORRECTABLE = (None, "check_failed")
CLOSING = timedelta(hours=24)
NOTICE = timedelta(days=30)  # before a certificate or a key expires
CHART_DAYS = 30
#: Items that only people who can correct them see.
HINTS = ("certificate", "certificate_expired", "api_keys")


@dataclass(frozen=True, slots=True)
class Item:
    """Something that needs attention. `kind` is bad, warn or info; `reasons` are sentences.

    Only people with the `right` have the link to what corrects it. A hint is shown to them alone.
    """

    kind: str
    title: str
    reasons: Sequence[str]
    path: str
    action: str
    right: str
    is_hint: bool
    at: datetime | None


def _make_item(
    name: str, kind: str, path: str, right: str = READ, at: datetime | None = None, **values: object
) -> Item:
    title, *reasons = (text.format(**values) for text in TEXTS["items"][name])
    action = TEXTS["actions"].get(name, TEXTS["open"])
    return Item(kind, title, reasons, path, action, right, name in HINTS, at)


@page("GET", "/")
async def show_overview(request: web.Request) -> web.Response:
    company, config = request[app_keys.COMPANY], request.app[app_keys.CONFIG]
    found = await read_own_with(request, partial(_read_figures, company, config))
    may = request[SESSION].may
    by_list = {(row["list"], row["status"]): row["records"] for row in found["counts"]}
    items = [
        *_describe_failed(found["failed"], may(WRITE)),
        *_describe_unclear(found["unclear"]),
        *_describe_consolidation(found["facts"], config),
        *_describe_facts(found["facts"], by_list.get(("einvoice_request", "Pending"))),
        *_describe_readiness(await read_company(request)),
    ]
    return await render(
        request,
        "overview.html",
        items=[each for each in items if may(each.right) or not each.is_hint],
        counts=by_list,
        amounts=found["amounts"],
        taxes=found["taxes"],
        bars=found["days"],
        most=max(row["records"] for row in found["days"]),
        month=found["month"],
        unreachable_since=request.app[SUBMISSION_CONTEXT].shared_portal.unreachable_since,
    )


async def _read_figures(company: int, config: Config, conn: Connection) -> JsonObject:
    """Return the rows of the statements of the overview, and the start of its month."""
    now = datetime.now(config.time_zone)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = today.replace(day=1)
    next_month = (month + timedelta(days=32)).replace(day=1)
    of_month = {"company_id": company, "month_start": month, "month_end": next_month}
    rows: JsonObject = {"company_id": company, "most": MOST_ROWS}
    return {
        "month": month,
        "failed": await sql.overview_failed(conn, **rows),
        "unclear": await sql.overview_unclear(conn, **rows),
        "facts": await sql.overview_facts(
            conn,
            window=CANCEL_WINDOW,
            closing=CLOSING,
            notice=NOTICE,
            overdue_before=_find_overdue(now, config),
            month_start=month,
        ),
        "counts": await sql.overview_counts(conn),
        "amounts": await sql.overview_amounts(conn, **of_month),
        "taxes": await sql.overview_taxes(conn, **of_month),
        "days": await sql.overview_days(
            conn,
            zone=config.time_zone.key,
            first=today - timedelta(days=CHART_DAYS - 1),
            last=today + timedelta(days=1),
        ),
    }


def _find_overdue(now: datetime, config: Config) -> datetime:
    """Return the end of the last month that can no longer be consolidated."""
    period = period_of(now.date().replace(day=1) - timedelta(days=1), config)
    while now < period.deadline:
        period = period_of(period.month - timedelta(days=1), config)
    return period.until


def _path_of(row: Record) -> str:
    kind, document_id = find_document(row)
    return f"{kind.path}/{document_id}"


def _describe_failed(rows: Sequence[Record], may_write: bool) -> Iterator[Item]:
    """Yield documents that are not at the portal. Those with a form are corrected there."""
    for row in rows:
        place, at = _path_of(row), row["updated_at"]
        item = _make_item(row["status"], "bad", place, at=at, number=row["number"])
        errors = outcomes.explain(row["code"], json_codec.loads_own(row["errors"]))
        reasons = [error["message"] for error in errors[:3]]
        if row["kind"] != "consolidated_invoice" and row["code"] in CORRECTABLE and may_write:
            item = replace(item, path=f"{place}/edit", action=TEXTS["actions"]["edit"])
        yield replace(item, reasons=reasons)


def _describe_unclear(rows: Sequence[Record]) -> Iterator[Item]:
    for row in rows:
        state, at = row["state"], row["last_sent_at"]
        kind = "bad" if state == "NeedsPerson" else "warn"
        item = _make_item(state, kind, _path_of(row), at=at, number=row["number"])
        yield replace(item, reasons=[outcomes.describe_submitting(state, is_held=False)])


def _describe_consolidation(row: Record, config: Config) -> Iterator[Item]:
    """Yield the sales and the consolidated invoices that must be submitted, or should have been."""
    if row["overdue_since"]:
        period = period_of(row["overdue_since"].astimezone(config.time_zone).date(), config)
        last = period.until.date() - timedelta(days=1)
        path = f"/invoices?status=Draft,Invalid&issued_from={period.month}&issued_to={last}"
        yield _make_item("overdue", "bad", path, at=period.deadline, **_describe_period(period))
    if row["unsent_month"]:
        period = period_of(row["unsent_month"], config)
        is_late = row["now"] >= period.deadline
        name, kind = ("unsent_late", "bad") if is_late else ("unsent", "warn")
        path = "/consolidated?status=Draft,Invalid"
        yield _make_item(name, kind, path, **_describe_period(period))
    if row["has_unconsolidated"]:
        day = config.consolidation_days
        yield _make_item("consolidate", "warn", "/consolidated/plan", WRITE, day=day)


def _describe_period(period: Period) -> JsonObject:
    """Return a month, and the last day on which it could be consolidated."""
    day = f"{period.last_day.day} {period.last_day:%B %Y}"
    return {"month": f"{period.month:%B %Y}", "day": day}


def _describe_facts(row: Record, pending_requests: int | None) -> Iterator[Item]:
    if row["hold"]:
        yield _make_item("hold", "bad", "/invoices?status=Submitting")
    if row["lost_tin"]:
        yield _make_item("lost_tin", "bad", "/settings/profile", ADMINISTER, tin=row["lost_tin"])
    if row["closing"]:
        yield _make_item("closing", "info", "/invoices?status=Valid", count=row["closing"])
    ends_at = row["certificate_ends_at"]
    if ends_at and ends_at < row["now"] + NOTICE:
        is_over = ends_at < row["now"]
        name, kind = ("certificate_expired", "bad") if is_over else ("certificate", "warn")
        yield _make_item(name, kind, "/settings/certificate", ADMINISTER, ends_at)
    if row["keys_expiring"]:
        count = row["keys_expiring"]
        yield _make_item("api_keys", "warn", "/settings/keys", ADMINISTER, count=count)
    if pending_requests:
        yield _make_item("requests", "warn", "/requests?status=Pending", count=pending_requests)


def _describe_readiness(company: JsonMapping) -> Iterator[Item]:
    if missing := company.get("readiness"):
        item = _make_item("profile", "warn", "/settings/profile", ADMINISTER)
        yield replace(item, reasons=[each["message"] for each in missing][:5])

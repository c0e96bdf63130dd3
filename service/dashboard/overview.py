"""The overview: what needs attention first, then the figures of the month."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from aiohttp import web
from asyncpg import Record

from service import json_codec
from service.config import Config
from service.dashboard import outcomes, pages
from service.dashboard.documents import find_document
from service.dashboard.operations import read_company
from service.dashboard.pages import Pages, render
from service.dashboard.sessions import ADMINISTER, READ, SESSION, WRITE
from service.db.connections import Connection
from service.db.statements import sql
from service.documents.consolidation import Period, make_period
from service.documents.printing import tax_name
from service.documents.states import CANCEL_WINDOW
from service.http import app_keys
from service.http.access import read_own_with
from service.json_types import JsonMapping, JsonObject
from service.submission.context import SUBMISSION_CONTEXT

PAGES = Pages()
page = PAGES.add

TEXTS = pages.TEXTS["overview"]
MOST_ROWS = 20  # of failed and of unclear documents
#: Codes of failures that a change of the document corrects. None: the portal rejected it.
CORRECTABLE = (None, "check_failed")
CLOSING = timedelta(hours=24)
NOTICE = timedelta(days=30)  # before a certificate or a key expires
CHART_DAYS = 30


@dataclass(frozen=True, slots=True)
class Item:
    """Something that needs attention. `kind` is bad, warn or info; `reasons` are sentences.

    Only people with the `right` have the link to what corrects it. A hint is shown to them alone.
    """

    kind: str
    title: str
    reasons: Sequence[str]
    path: str
    action: str = TEXTS["open"]
    at: datetime | None = None
    right: str = READ
    is_hint: bool = False


@page("GET", "/")
async def show_overview(request: web.Request) -> web.Response:
    """Return the overview."""
    company, config = request[app_keys.COMPANY], request.app[app_keys.CONFIG]
    zone = config.time_zone
    found = await read_own_with(request, partial(_read_figures, company, config))
    facts, days = found["facts"], found["days"]
    most = max((row["records"] for row in days), default=0)
    may = request[SESSION].may
    by_list = {(row["list"], row["status"]): row["records"] for row in found["counts"]}
    items = [
        *_describe_failed(found["failed"], may(WRITE)),
        *_describe_unclear(found["unclear"]),
        *_describe_consolidation(facts, config),
        *_describe_facts(facts),
        *_describe_requests(by_list.get(("einvoice_request", "Pending"), 0)),
        *_describe_readiness(await read_company(request)),
    ]
    return render(
        request,
        "overview.html",
        items=[each for each in items if may(each.right) or not each.is_hint],
        counts=by_list,
        amounts=found["amounts"],
        taxes=found["taxes"],
        tax_name=tax_name,
        bars=list(_make_bars(days, most or 1, facts["now"].astimezone(zone).date())),
        most=most,
        month=found["month_start"].astimezone(zone),
        unreachable_since=request.app[SUBMISSION_CONTEXT].shared_portal.unreachable_since,
    )


async def _read_figures(company: int, config: Config, conn: Connection) -> JsonObject:
    """Return the rows of the statements of the overview, and the start of its month."""
    facts = await _read_facts(conn, company, config)
    start, end = _month_of(facts["now"], config.time_zone)
    of_month = {"company_id": company, "month_start": start, "month_end": end}
    rows: JsonObject = {"company_id": company, "most": MOST_ROWS}
    return {
        "failed": await sql.overview_failed(conn, **rows),
        "unclear": await sql.overview_unclear(conn, **rows),
        "facts": facts,
        "counts": await sql.overview_counts(conn, company_id=company),
        "amounts": await sql.overview_amounts(conn, **of_month),
        "taxes": await sql.overview_taxes(conn, **of_month),
        "days": await _read_days(conn, company, facts["now"], config.time_zone),
        "month_start": start,
    }


async def _read_facts(conn: Connection, company: int, config: Config) -> Record:
    """Return the row of overview_facts."""
    now = datetime.now(config.time_zone)
    return await sql.overview_facts(
        conn,
        company_id=company,
        window=CANCEL_WINDOW,
        closing=CLOSING,
        notice=NOTICE,
        overdue_before=_find_overdue(now, config),
        month_start=_begin_day(now, config.time_zone).replace(day=1),
    )


def _period_of(month: date, config: Config) -> Period:
    return make_period(month.replace(day=1), config.time_zone, config.consolidation_days)


def _find_overdue(now: datetime, config: Config) -> datetime:
    """Return the end of the last month that can no longer be consolidated."""
    period = _period_of(now.date().replace(day=1) - timedelta(days=1), config)
    while now < period.deadline:
        period = _period_of(period.month - timedelta(days=1), config)
    return period.until


async def _read_days(conn: Connection, company: int, now: datetime, zone: ZoneInfo) -> list[Record]:
    today = _begin_day(now, zone)
    return await sql.overview_days(
        conn,
        company_id=company,
        zone=zone.key,
        first=today - timedelta(days=CHART_DAYS - 1),
        last=today + timedelta(days=1),
    )


def _begin_day(at: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant of the day."""
    return at.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)


def _month_of(now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the first instants of the month and of the next one."""
    start = _begin_day(now, zone).replace(day=1)
    return start, (start + timedelta(days=32)).replace(day=1)


def _path_of(row: Record) -> str:
    """Return the path of the document of a row of submitted_documents."""
    kind, document_id = find_document(row)
    return f"{kind.path}/{document_id}"


def _describe_failed(rows: Sequence[Record], may_write: bool) -> Iterator[Item]:
    """Yield documents that are not at the portal. Those with a form are corrected there."""
    for row in rows:
        errors = json_codec.loads_own(row["errors"])
        title = TEXTS["failed"][row["status"]].format(number=row["number"])
        reasons = [error["message"] for error in errors][:3]
        if row["code"] in outcomes.FOR_OPERATOR:
            reasons = [f"{pages.TEXTS['outcomes']['not_sent'][row['code']]}."]
        place, action = _path_of(row), TEXTS["open"]
        if row["kind"] != "consolidated_invoice" and row["code"] in CORRECTABLE and may_write:
            place, action = f"{place}/edit", TEXTS["correct"]
        yield Item("bad", title, reasons, place, action, row["updated_at"])


def _describe_unclear(rows: Sequence[Record]) -> Iterator[Item]:
    for row in rows:
        kind = "bad" if row["state"] == "NeedsPerson" else "warn"
        title = TEXTS["unclear"][row["state"]].format(number=row["number"])
        reason = outcomes.describe_submitting(row["state"], is_held=False)
        yield Item(kind, title, [reason], _path_of(row), at=row["last_sent_at"])


def _describe_consolidation(row: Record, config: Config) -> Iterator[Item]:
    """Yield the sales and the consolidated invoices that must be submitted, or should have been."""
    if row["overdue_since"]:
        period = _period_of(row["overdue_since"].astimezone(config.time_zone).date(), config)
        last = period.until.date() - timedelta(days=1)
        path = f"/invoices?status=Draft,Invalid&issued_from={period.month}&issued_to={last}"
        title = TEXTS["overdue"].format(month=f"{period.month:%B %Y}")
        reasons = _fill(TEXTS["overdue_reasons"], period)
        yield Item("bad", title, reasons, path, at=period.deadline)
    if row["unsent_month"]:
        period = _period_of(row["unsent_month"], config)
        is_late = row["now"] >= period.deadline
        texts = TEXTS["unsent_late" if is_late else "unsent"]
        title = texts["title"].format(month=f"{period.month:%B %Y}")
        reasons = _fill(texts["reasons"], period)
        path = "/consolidated?status=Draft,Invalid"
        yield Item("bad" if is_late else "warn", title, reasons, path)
    if row["has_unconsolidated"]:
        reason = TEXTS["consolidate_reason"].format(day=config.consolidation_days)
        yield Item(
            "warn", TEXTS["consolidate"], [reason], "/consolidated/plan", TEXTS["plan"], right=WRITE
        )


def _fill(sentences: Sequence[str], period: Period) -> list[str]:
    """Return sentences with the last day on which a month could be consolidated."""
    day = f"{period.last_day.day} {period.last_day:%B %Y}"
    return [sentence.format(day=day) for sentence in sentences]


def _describe_facts(row: Record) -> Iterator[Item]:
    if row["hold"]:
        yield Item("bad", TEXTS["hold"], [TEXTS["hold_reason"]], "/invoices?status=Submitting")
    if row["lost_tin"]:
        title = TEXTS["lost_tin"].format(tin=row["lost_tin"])
        reasons = [TEXTS["lost_tin_reason"]]
        yield Item("bad", title, reasons, "/settings/profile", TEXTS["correct"], right=ADMINISTER)
    if row["closing"]:
        title = TEXTS["closing"].format(count=row["closing"])
        path = "/invoices?status=Valid"
        yield Item("info", title, [TEXTS["closing_reason"]], path)
    ends_at = row["certificate_ends_at"]
    if ends_at and ends_at < row["now"] + NOTICE:
        kind = "bad" if ends_at < row["now"] else "warn"
        title = TEXTS["certificate_expired" if kind == "bad" else "certificate"]
        yield Item(
            kind,
            title,
            [],
            "/settings/certificate",
            at=ends_at,
            right=ADMINISTER,
            is_hint=True,
        )
    if row["keys_expiring"]:
        title = TEXTS["api_keys"].format(count=row["keys_expiring"])
        yield Item("warn", title, [], "/settings/keys", right=ADMINISTER, is_hint=True)


def _describe_requests(pending: int) -> Iterator[Item]:
    if pending:
        yield Item(
            "warn",
            TEXTS["requests"].format(count=pending),
            [TEXTS["requests_reason"]],
            "/requests?status=Pending",
            TEXTS["answer"],
        )


def _describe_readiness(company: JsonMapping) -> Iterator[Item]:
    if missing := company.get("readiness"):
        reasons = [each["message"] for each in missing][:5]
        yield Item(
            "warn",
            TEXTS["profile"],
            reasons,
            "/settings/profile",
            TEXTS["complete"],
            right=ADMINISTER,
        )


def _make_bars(rows: Sequence[Record], most: int, today: date) -> Iterator[JsonObject]:
    """Yield a bar for each of the last days, in a viewBox of 100 by 100 units for each bar area.

    A bar has the counts of the day, its position `x` and two heights. `most` are 100 units high.
    """
    by_day = {row["day"]: row for row in rows}
    for number in range(CHART_DAYS):
        day = today - timedelta(days=CHART_DAYS - 1 - number)
        row = by_day.get(day, {"records": 0, "valid": 0, "invalid": 0})
        yield {
            **row,
            "day": day,
            "x": number * 20 + 2,
            "height": round(row["records"] / most * 100, 2),
            "invalid_height": round(row["invalid"] / most * 100, 2),
        }

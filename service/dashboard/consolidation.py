"""The planner of consolidated invoices: what is included, what is not, and why."""

from datetime import datetime, timedelta

from aiohttp import web

from service.dashboard.documents import CONSOLIDATED, read_next_code
from service.dashboard.operations import Answer, Failed, call
from service.dashboard.pages import page, redirect, render
from service.dashboard.repetition import call_once
from service.dashboard.sessions import WRITE
from service.http import app_keys
from service.http.access import zone_of
from service.http.forms import FORM, read_decimal
from service.json_types import JsonObject

USUAL = "CONSOLIDATED_INVOICE"  # type
MOST_SHOWN = 200  # invoices that are left out
MOST_PLANNED = 300  # invoices of a month whose lines are computed without being asked for


@page("GET", "/consolidated/plan", right=WRITE)
async def show_plan(request: web.Request) -> web.Response:
    """Return the plan of a month, by default the one before."""
    before = datetime.now(zone_of(request)).replace(day=1) - timedelta(days=1)
    month = request.query.get("month") or f"{before:%Y-%m}"
    return await _render_plan(request, month, request.query.get("type") or USUAL)


@page("POST", "/consolidated/plan", right=WRITE)
async def create_draft(request: web.Request) -> web.Response:
    form = request[FORM]
    month, kind = form.get("month", ""), form.get("type", "")
    code = form.get("code", "").strip()
    body = {
        "type": kind,
        "month": month,
        "code": read_decimal(code),
        "issueDateTime": datetime.now(zone_of(request)).isoformat(timespec="seconds"),
    }
    answer = await call_once(request, "POST", CONSOLIDATED.api, body)
    if answer.is_success:
        return redirect(f"/consolidated/{answer.value['data']['id']}?notice=created")
    if answer.status not in (409, 422):
        raise Failed(answer)
    return await _render_plan(request, month, kind, refused=answer, code=code)


async def _render_plan(
    request: web.Request, month: str, kind: str, refused: Answer | None = None, code: str = ""
) -> web.Response:
    """Return the page of a month. A month or a type that is not valid has no summary."""
    wanted = {"type": kind, "month": month}
    answer = await call(request, "POST", f"{CONSOLIDATED.api}/summary", wanted)
    is_valid = answer.status != 422
    summary: JsonObject | None = answer.require_success().value["data"] if is_valid else None
    failed = refused or (None if is_valid else answer)
    reasons = list(failed.violations.values()) or [failed.message] if failed else []
    reasons += [each["message"] for each in (summary or {}).get("refusals", [])]
    plan = await _read_plan(request, wanted, summary) if summary else None
    return await render(
        request,
        "plan.html",
        failed.status if failed else 200,
        summary=summary,
        plan=plan,
        month=month,
        type=kind,
        types=CONSOLIDATED.t["types"],
        reasons=list(dict.fromkeys(reasons)),
        code=code or str(await read_next_code(request, CONSOLIDATED)),
        days=request.app[app_keys.CONFIG].consolidation_days,
        left_out=(plan or {}).get("left_out", [])[:MOST_SHOWN],
    )


async def _read_plan(
    request: web.Request, wanted: JsonObject, summary: JsonObject
) -> JsonObject | None:
    """Return the plan of a month, or None for many invoices whose lines were not asked for."""
    n = summary["count"] + sum(each["count"] for each in summary["left_out"])
    if n > MOST_PLANNED and "details" not in request.query:
        return None
    answer = await call(
        request, "POST", f"{CONSOLIDATED.api}/plan", {**wanted, "omitSubmitted": True}
    )
    return answer.require_success().value["data"]

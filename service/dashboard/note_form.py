"""The form to create a note for a valid invoice or consolidated invoice."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from aiohttp import web

from service.dashboard import pages
from service.dashboard.documents import CONSOLIDATED, INVOICES, Kind
from service.dashboard.invoice_form import (
    LINE,
    MOST_LINES,
    Fields,
    build_body,
    change_lines,
    compute_sums,
    count_lines,
    flatten,
    read_fields,
)
from service.dashboard.operations import Failed, call, read
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import WRITE
from service.documents import codes
from service.http import app_keys

PAGES: list[Page] = []
page = partial(pages.page, PAGES)

NOTES = "/api/adjustment-notes"


async def show_new(kind: Kind, request: web.Request) -> web.Response:
    """Return the form, filled with the lines of the invoice."""
    target = await read(request, f"{kind.api}/{request.match_info['id']}")
    latest = await read(request, NOTES, {"per_page": 1})
    zone = request.app[app_keys.CONFIG].time_zone
    fields = {
        "/type": "CREDIT_NOTE",
        "/adjustmentNoteCode": str(max(0, *(row["code"] for row in latest["data"]), 0) + 1),
        "/adjustmentNoteIssueDate": f"{datetime.now(zone):%Y-%m-%dT%H:%M}",
        **dict(flatten(target["line_items"][:MOST_LINES], "/lineItems")),
    }
    for number in range(min(MOST_LINES, len(target["line_items"]))):
        fields[f"/lineItems/{number}/origin"] = str(number)
    return _render(request, kind, target, fields, {})


async def create(kind: Kind, request: web.Request) -> web.Response:
    """Create the note, or show the form again with totals, another line or violations."""
    place = f"{kind.api}/{request.match_info['id']}"
    target = await read(request, place)
    fields, choice = await read_fields(request)
    if changed := change_lines(fields, choice):
        return _render(request, kind, target, changed, {})
    stored = {"lineItems": target["line_items"]}
    body = build_body(fields, stored, request.app[app_keys.CONFIG].time_zone)
    body["targetInvoiceType"] = target["type"]
    if choice == "check":
        return _render(request, kind, target, fields, {}, body)
    answer = await call(request, "POST", f"{place}/adjustment-note", body)
    if answer.is_success:
        return await _after_save(request, answer.value["data"]["id"], choice)
    if answer.status not in (403, 409, 422):
        raise Failed(answer)
    wrong = answer.violations or {"": answer.message}
    return _render(request, kind, target, fields, wrong, body, answer.status)


async def _after_save(request: web.Request, note_id: int, choice: str) -> web.Response:
    notice = "note_created"
    if choice == "submit":
        answer = await call(request, "POST", f"{NOTES}/{note_id}/submit-to-portal", {})
        notice = "submit" if answer.is_success else "not_submitted"
    return redirect(f"/notes/{note_id}?notice={notice}")


def _render(
    request: web.Request,
    kind: Kind,
    target: Mapping[str, Any],
    fields: Fields,
    wrong: Mapping[str, str],
    body: Any = None,
    status: int = 200,
) -> web.Response:
    count = count_lines(fields)
    shown = {"/type", "/adjustmentNoteCode", "/adjustmentNoteIssueDate"}
    shown |= {f"/lineItems/{number}{name}" for number in range(count) for name in LINE}
    return render(
        request,
        "note_form.html",
        status,
        kind=kind,
        target=target,
        fields=fields,
        wrong=wrong,
        unplaced={path: text for path, text in wrong.items() if path not in shown},
        lines=count,
        sums=compute_sums(body),
        tables=codes.TABLES,
        currency=target.get("currency_code") or "MYR",
    )


for _kind in (INVOICES, CONSOLIDATED):
    _path = f"{_kind.path}/{{id:[0-9]+}}/note"
    page("GET", _path, right=WRITE)(partial(show_new, _kind))
    page("POST", _path, right=WRITE)(partial(create, _kind))

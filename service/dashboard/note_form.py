"""The form to create a note for a valid invoice or consolidated invoice."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from aiohttp import web

from service.dashboard import pages
from service.dashboard.document_form import (
    MOST_LINES,
    TOTALS,
    Form,
    build_body,
    change_lines,
    create_document,
    describe_lines,
    find_focus,
    leave_form,
    read_fields,
    render_form,
    render_totals,
    show_created,
)
from service.dashboard.documents import (
    CONSOLIDATED,
    HOME_CURRENCY,
    INVOICES,
    NOTES,
    Kind,
    read_next_code,
)
from service.dashboard.operations import read
from service.dashboard.pages import Page
from service.dashboard.sessions import WRITE
from service.http import app_keys

PAGES: list[Page] = []
page = partial(pages.page, PAGES)

#: Fields of the note.
DOCUMENT = ("/type", "/adjustmentNoteCode", "/adjustmentNoteIssueDate")


async def show_new(kind: Kind, request: web.Request) -> web.Response:
    """Return the form, filled with the lines of the invoice."""
    place = f"{kind.api}/{request.match_info['id']}"
    if elsewhere := await show_created(request, NOTES, f"{place}/adjustment-note"):
        return elsewhere
    target = await read(request, place)
    zone = request.app[app_keys.CONFIG].time_zone
    fields = {
        "/type": "CREDIT_NOTE",
        "/adjustmentNoteCode": str(await read_next_code(request, NOTES, "CREDIT_NOTE")),
        "/adjustmentNoteIssueDate": f"{datetime.now(zone):%Y-%m-%dT%H:%M}",
        **describe_lines(target["line_items"][:MOST_LINES]),
    }
    return _render(request, kind, target, Form(fields))


async def create(kind: Kind, request: web.Request) -> web.Response:
    """Create the note, or show the form again with totals, another line or violations."""
    place = f"{kind.api}/{request.match_info['id']}"
    target = await read(request, place)
    fields, choice = read_fields(request)
    if changed := change_lines(fields, choice):
        return _render(request, kind, target, Form(changed, focus=find_focus(changed, choice)))
    stored = {"lineItems": target["line_items"]}
    body = build_body(fields, stored, request.app[app_keys.CONFIG].time_zone)
    body["targetInvoiceType"] = target["type"]
    if choice == "totals":
        return render_totals(request, body, target.get("currency_code") or HOME_CURRENCY)
    if choice == "check":
        return _render(request, kind, target, Form(fields, body=body, focus=TOTALS))
    made = await create_document(request, NOTES, f"{place}/adjustment-note", fields, body)
    if isinstance(made, Form):
        return _render(request, kind, target, made)
    return await leave_form(request, NOTES, made, choice, "note_created")


def _render(
    request: web.Request, kind: Kind, target: Mapping[str, Any], form: Form
) -> web.Response:
    """Return the form. `target` is the record of the invoice."""
    return render_form(
        request,
        "note_form.html",
        form,
        DOCUMENT,
        kind=kind,
        target=target,
        leave=f"{kind.path}/{target['id']}",
        currency=target.get("currency_code") or HOME_CURRENCY,
    )


for _kind in (INVOICES, CONSOLIDATED):
    _path = f"{_kind.path}/{{id:[0-9]+}}/note"
    page("GET", _path, right=WRITE)(partial(show_new, _kind))
    page("POST", _path, right=WRITE)(partial(create, _kind))

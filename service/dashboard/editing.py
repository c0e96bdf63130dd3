"""The pages that create and edit invoices and notes, with one form."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from aiohttp import web

from service import json_codec
from service.dashboard import pages
from service.dashboard.document_form import (
    LINE,
    MOST_LINES,
    TOTALS,
    Form,
    build_body,
    change_lines,
    count_lines,
    describe_body,
    describe_instant,
    find_focus,
    place_messages,
    read_fields,
    refuse,
)
from service.dashboard.documents import (
    CONSOLIDATED,
    INVOICES,
    NOTES,
    Kind,
    Target,
    choose_currency,
    find_latest_errors,
    read_amounts,
    read_next_code,
    read_target,
)
from service.dashboard.operations import Answer, call, check, read, read_company, read_tagged
from service.dashboard.pages import page, redirect, render
from service.dashboard.repetition import call_once, find_created, form_key, give_key
from service.dashboard.sessions import WRITE
from service.documents import codes, money
from service.errors import Conflict, KeyReused
from service.http.access import zone_of
from service.json_types import JsonMapping, JsonObject
from service.schema import name_in_record

TEXTS = pages.TEXTS["form"]
_DATA: JsonObject = json_codec.load_data(__file__)
#: Fields of the document, and those of the other party of an invoice below /buyer or /supplier.
DOCUMENT = {
    INVOICES: ("/type", "/code", "/issueDateTime", "/currencyCode", "/exchangeRate"),
    NOTES: ("/type", "/adjustmentNoteCode", "/adjustmentNoteIssueDate"),
}
#: Members that records have by another name than that in snake case.
RECORDED: dict[str, str] = _DATA["recorded"]
PARTY: list[str] = _DATA["party"]
#: The values of a new invoice.
NEW: dict[str, str] = _DATA["new"]


@dataclass(frozen=True, slots=True)
class EditedDocument:
    """A document that the form creates, or the record that it edits.

    `path` is that of the operation that creates it, or of the record. `body` is what the fields
    change; of a new note, it has the lines of the `target`. `leave` is the page before. `etag` is
    that of the record when the form was made.
    """

    kind: Kind
    path: str
    leave: str
    body: JsonMapping
    record: JsonMapping | None = None
    target: Target | None = None
    etag: str = ""

    def compute_totals(self, body: JsonMapping | None) -> money.Totals | None:
        """Return the totals of a body, or None if its amounts are not valid.

        Amounts that the form does not have are those of the record.
        """
        if not body:
            return None
        amounts = read_amounts(self.record) if self.record else {}
        try:
            return money.compute_document({**amounts, **body})
        except (money.AmountError, TypeError, AttributeError):
            return None


FindEdited = Callable[[web.Request], Awaitable[EditedDocument]]


async def _find_new_invoice(request: web.Request) -> EditedDocument:
    return EditedDocument(INVOICES, INVOICES.api, INVOICES.path, {})


async def _find_new_note(kind: Kind, request: web.Request) -> EditedDocument:
    """Return the note for the document of the path. Raises Conflict as _find_record."""
    document_id = request.match_info["id"]
    record = await read(request, f"{kind.api}/{document_id}")
    _reject_too_long(record)
    return EditedDocument(
        NOTES,
        f"{kind.api}/{document_id}/adjustment-note",
        f"{kind.path}/{document_id}",
        {"targetInvoiceType": record["type"], "lineItems": record["line_items"]},
        target=await read_target(request, record["id"]),
    )


async def _find_record(kind: Kind, request: web.Request) -> EditedDocument:
    """Return the record of the path. Raises Conflict if it has more lines than the form."""
    document_id = request.match_info["id"]
    record, etag = await read_tagged(request, f"{kind.api}/{document_id}")
    _reject_too_long(record)
    return EditedDocument(
        kind,
        f"{kind.api}/{document_id}",
        f"{kind.path}/{document_id}",
        _make_body(kind, record),
        record,
        await read_target(request, record["id"]) if kind is NOTES else None,
        etag,
    )


def _reject_too_long(record: JsonMapping) -> None:
    if len(record["line_items"]) > MOST_LINES:
        raise Conflict(TEXTS["too_long"])


def _make_body(kind: Kind, record: JsonMapping) -> JsonObject:
    """Return the members of a record in the shape of a body, without null ones.

    The buyer of a self-billed invoice is the company, which no body contains.
    """
    role = "supplier" if "SELF_BILLED" in record["type"] else "buyer"
    names = (*(field.removeprefix("/") for field in DOCUMENT[kind]), role, "lineItems")
    members = {name: record.get(RECORDED.get(name) or name_in_record(name)) for name in names}
    return {name: member for name, member in members.items() if member}


async def show(find: FindEdited, request: web.Request) -> web.Response:
    """Return the form of a new document, or of a stored one with what the portal rejects."""
    edited = await find(request)
    if edited.record is None:
        if keyed := give_key(request):
            return keyed
        if document_id := await find_created(request, edited.path):
            return redirect(f"{edited.kind.path}/{document_id}?notice=created_before")
        fill = _fill_note if edited.target else _fill_invoice
        return await _render(request, edited, Form(await fill(request, edited)))
    wrong = await _find_errors(request, edited)
    return await _render(
        request, edited, Form(describe_body(edited.body, zone_of(request)), wrong, edited.body)
    )


async def _fill_invoice(request: web.Request, _: EditedDocument) -> dict[str, str]:
    """Return the fields of a new invoice, with the next code and the default tax."""
    company = await read_company(request)
    fields = dict(NEW)
    for tax in company["default_tax_types_and_rates"][:1]:
        fields["/lineItems/0/taxDetails/0/taxType"] = tax["tax_type"]
        fields["/lineItems/0/taxDetails/0/taxRate/percentage"] = str(tax["tax_rate"])
    fields["/code"] = str(await read_next_code(request, INVOICES))
    zone = zone_of(request)
    return {**fields, "/issueDateTime": describe_instant(datetime.now(zone), zone)}


async def _fill_note(request: web.Request, edited: EditedDocument) -> dict[str, str]:
    """Return the fields of a new note, with the lines of the document that it adjusts."""
    zone = zone_of(request)
    body = {
        "type": "CREDIT_NOTE",
        "adjustmentNoteCode": await read_next_code(request, NOTES, "CREDIT_NOTE"),
        "adjustmentNoteIssueDate": datetime.now(zone).isoformat(),
        "lineItems": edited.body["lineItems"],
    }
    return describe_body(body, zone)


async def _find_errors(request: web.Request, edited: EditedDocument) -> dict[str, str]:
    """Return what the portal would reject, and has rejected, by the member that it concerns.

    An error of the portal that concerns no member has its path in the portal's document.
    """
    assert edited.record
    checks = await check(request, edited.path)
    submitted = await read(request, f"{edited.path}/submitted-documents")
    wrong: dict[str, str] = {}
    for each in (*checks.errors, *find_latest_errors(edited.record, submitted)):
        wrong.setdefault(each.get("pointer") or each.get("path") or "", each["message"])
    return wrong


async def save(find: FindEdited, request: web.Request) -> web.Response:
    """Store the document, or show the form again with totals, another line or violations.

    A form that was sent before with other fields shows the document that it has created.
    """
    edited = await find(request)
    fields, choice = read_fields(request)
    if changed := change_lines(fields, choice):
        return await _render(request, edited, Form(changed, focus=find_focus(changed, choice)))
    body = build_body(fields, edited.body, zone_of(request))
    if choice == "totals":
        currency = choose_currency(fields.get("/currencyCode"), edited.target)
        sums = edited.compute_totals(body)
        return await render(request, "form_totals.html", sums=sums, currency=currency, focus="")
    if choice == "check":
        return await _render(request, edited, Form(fields, body=body, focus=TOTALS))
    if edited.record and choice == "save" and edited.record.get("is_ready"):
        body["isReady"] = False  # Otherwise saving a draft could submit it.
    method = "PUT" if edited.record else "POST"
    answer = await call_once(request, method, edited.path, body)
    if answer.is_success:
        return await _leave(request, edited, answer, choice)
    form = refuse(answer, fields, body)
    if method == "POST" and answer.value.get("code") == KeyReused.code:
        document_id = await find_created(request, edited.path)
        form = replace(form, made=document_id and f"{edited.kind.path}/{document_id}")
    return await _render(request, edited, form)


async def _leave(
    request: web.Request, edited: EditedDocument, answer: Answer, choice: str
) -> web.Response:
    """Submit a saved document if that button was pressed, and go to its page.

    The page says what has become of it. A repetition submits nothing, because somebody may have
    changed the document since it was saved.
    """
    document_id = edited.record["id"] if edited.record else answer.value["data"]["id"]
    stored = "saved" if edited.record else "created"
    notice = "sent_before" if answer.is_replayed else stored
    if choice == "submit":
        notice = "save_submit"
        if not answer.is_replayed:
            await call(request, "POST", f"{edited.kind.api}/{document_id}/submit-to-portal", {})
    return redirect(f"{edited.kind.path}/{document_id}?notice={notice}")


async def _render(request: web.Request, edited: EditedDocument, form: Form) -> web.Response:
    """Return the form. Violations of members without a field are listed above it."""
    fields, count = form.fields, count_lines(form.fields)
    role = "supplier" if "SELF_BILLED" in fields.get("/type", "") else "buyer"
    party = () if edited.target else (f"/{role}{name}" for name in PARTY)
    lines = (f"/lineItems/{number}{name}" for number in range(count) for name in LINE)
    shown = [*DOCUMENT[edited.kind], *party, *lines]
    wrong = place_messages(form.wrong, shown)
    return await render(
        request,
        "document_form.html",
        form.status,
        edited=edited,
        fields=fields,
        wrong=wrong,
        unplaced=wrong.keys() - set(shown),
        lines=count,
        focus=form.focus or next((name for name in shown if name in wrong), ""),
        sums=edited.compute_totals(form.body),
        tables=codes.get_all_names(),
        made=form.made,
        form_key=form_key(request),
        role=role,
        currency=choose_currency(fields.get("/currencyCode"), edited.target),
    )


def _declare(path: str, find: FindEdited) -> None:
    page("GET", path, right=WRITE)(partial(show, find))
    page("POST", path, right=WRITE)(partial(save, find))


_declare("/invoices/new", _find_new_invoice)
for _kind in (INVOICES, CONSOLIDATED):
    _declare(f"{_kind.path}/{{id:[0-9]+}}/note", partial(_find_new_note, _kind))
for _kind in DOCUMENT:
    _declare(f"{_kind.path}/{{id:[0-9]+}}/edit", partial(_find_record, _kind))

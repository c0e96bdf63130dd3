"""The form to create and to edit an invoice."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from aiohttp import web

from service.dashboard import pages
from service.dashboard.document_form import (
    MOST_LINES,
    TOTALS,
    Fields,
    Form,
    build_body,
    change_lines,
    create_document,
    describe_lines,
    find_focus,
    flatten,
    leave_form,
    read_fields,
    refuse,
    render_form,
    render_totals,
    show_created,
)
from service.dashboard.documents import (
    HOME_CURRENCY,
    INVOICES,
    find_latest_errors,
    read_amounts,
    read_next_code,
)
from service.dashboard.operations import call, read
from service.dashboard.pages import Page
from service.dashboard.sessions import WRITE
from service.errors import Conflict
from service.http import app_keys

PAGES: list[Page] = []
page = partial(pages.page, PAGES)

TEXTS = pages.TEXTS["form"]
#: Members of a body -> members of a record.
MEMBERS = {
    "type": "type",
    "issueDateTime": "issue_date",
    "buyer": "buyer",
    "supplier": "supplier",
    "lineItems": "line_items",
    "currencyCode": "currency_code",
    "exchangeRate": "exchange_rate",
}
#: Fields of the document, and those of its other party below /buyer or /supplier.
DOCUMENT = ("/type", "/code", "/issueDateTime", "/currencyCode", "/exchangeRate")
PARTY = (
    "/type",
    "/name",
    "/tin",
    "/registration/type",
    "/registration/number",
    "/contactNumber",
    "/email",
    "/address/line1",
    "/address/line2",
    "/address/line3",
    "/address/zipCode",
    "/address/city",
    "/address/state",
    "/address/country",
)
#: The values of a new invoice.
NEW = {
    "/type": "INVOICE",
    "/currencyCode": "MYR",
    "/buyer/type": "LOCAL_COMPANY",
    "/buyer/registration/type": "BRN",
    "/buyer/address/country": "MYS",
    "/lineItems/0/unit/count": "1",
    "/lineItems/0/unit/code": "C62",
    "/lineItems/0/classifications/0": "022",
}


@page("GET", "/invoices/new", right=WRITE)
async def show_new(request: web.Request) -> web.Response:
    """Return the form for a new invoice, with the next code."""
    if elsewhere := await show_created(request, INVOICES, INVOICES.api):
        return elsewhere
    company = (await read(request, "/api/companies"))["data"]
    fields = dict(NEW)
    for tax in company["default_tax_types_and_rates"][:1]:
        fields["/lineItems/0/taxDetails/0/taxType"] = tax["tax_type"]
        fields["/lineItems/0/taxDetails/0/taxRate/percentage"] = str(tax["tax_rate"])
    fields["/code"] = str(await read_next_code(request, INVOICES))
    zone = request.app[app_keys.CONFIG].time_zone
    fields["/issueDateTime"] = f"{datetime.now(zone):%Y-%m-%dT%H:%M}"
    return _render(request, Form(fields))


@page("POST", "/invoices/new", right=WRITE)
async def create(request: web.Request) -> web.Response:
    """Create the invoice, or show the form again with totals, another line or violations."""
    fields, choice = read_fields(request)
    if changed := change_lines(fields, choice):
        return _render(request, Form(changed, focus=find_focus(changed, choice)))
    body = build_body(fields, {}, request.app[app_keys.CONFIG].time_zone)
    if choice == "totals":
        return render_totals(request, body, _currency_of(fields))
    if choice == "check":
        return _render(request, Form(fields, body=body, focus=TOTALS))
    made = await create_document(request, INVOICES, INVOICES.api, fields, body)
    if isinstance(made, Form):
        return _render(request, made)
    return await leave_form(request, INVOICES, made, choice, "created")


@page("GET", "/invoices/{id:[0-9]+}/edit", right=WRITE)
async def show_edit(request: web.Request) -> web.Response:
    """Return the form of a stored invoice, with what the portal rejects at its fields."""
    place = f"{INVOICES.api}/{request.match_info['id']}"
    record = await _read_editable(request, place)
    wrong = await _find_errors(request, place, record)
    zone = request.app[app_keys.CONFIG].time_zone
    return _render(request, Form(_make_fields(record, zone), wrong, _body_of(record)), record)


async def _find_errors(
    request: web.Request, place: str, record: Mapping[str, Any]
) -> dict[str, str]:
    """Return what the portal would reject, and has rejected, by the member that it concerns.

    An error of the portal that concerns no member has its path in the portal's document.
    """
    checks = (await call(request, "POST", f"{place}/preflight")).value
    submitted = await read(request, f"{place}/submitted-documents")
    wrong: dict[str, str] = {}
    for each in (*checks.get("errors", []), *find_latest_errors(record, submitted)):
        wrong.setdefault(each.get("pointer") or each.get("path") or "", each["message"])
    return wrong


@page("POST", "/invoices/{id:[0-9]+}/edit", right=WRITE)
async def update(request: web.Request) -> web.Response:
    """Update the invoice, or show the form again."""
    place = f"{INVOICES.api}/{request.match_info['id']}"
    record = await _read_editable(request, place)
    fields, choice = read_fields(request)
    if changed := change_lines(fields, choice):
        return _render(request, Form(changed, focus=find_focus(changed, choice)), record)
    body = build_body(fields, _body_of(record), request.app[app_keys.CONFIG].time_zone)
    if choice == "totals":
        return render_totals(request, {**read_amounts(record), **body}, _currency_of(fields))
    if choice == "check":
        return _render(request, Form(fields, body=body, focus=TOTALS), record)
    answer = await call(request, "PUT", place, body)
    if not answer.is_success:
        return _render(request, refuse(answer, fields, body), record)
    return await leave_form(request, INVOICES, record["id"], choice, "saved")


async def _read_editable(request: web.Request, place: str) -> Any:
    """Return the record of an invoice. Raises Conflict if it has more lines than the form."""
    record = await read(request, place)
    if len(record["line_items"]) > MOST_LINES:
        raise Conflict(TEXTS["too_long"])
    return record


def _body_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a record in the shape of a body, without null ones.

    The buyer of a self-billed invoice is the company, which no body contains.
    """
    body = {name: record[member] for name, member in MEMBERS.items() if record.get(member)}
    if "SELF_BILLED" in record["type"]:
        body.pop("buyer", None)
    body["code"] = int(record["invoice_code"])
    return body


def _make_fields(record: Mapping[str, Any], zone: ZoneInfo) -> Fields:
    """Return the fields of a stored invoice."""
    body = _body_of(record)
    issued = datetime.fromisoformat(body["issueDateTime"]).astimezone(zone)
    body["issueDateTime"] = f"{issued:%Y-%m-%dT%H:%M}"
    lines = body.pop("lineItems")
    return {**dict(flatten(body, "")), **describe_lines(lines)}


def _render(
    request: web.Request, form: Form, record: Mapping[str, Any] | None = None
) -> web.Response:
    """Return the form, of a stored invoice if there is a record."""
    if record and form.body:  # The totals depend on members that the form does not have.
        form = replace(form, body={**read_amounts(record), **form.body})
    role = "supplier" if "SELF_BILLED" in form.fields.get("/type", "") else "buyer"
    return render_form(
        request,
        "invoice_form.html",
        form,
        (*DOCUMENT, *(f"/{role}{name}" for name in PARTY)),
        role=role,
        record=record,
        leave=f"{INVOICES.path}/{record['id']}" if record else INVOICES.path,
        currency=_currency_of(form.fields),
    )


def _currency_of(fields: Mapping[str, str]) -> str:
    return fields.get("/currencyCode") or HOME_CURRENCY

"""The form to create and to edit an invoice.

The name of a field is the JSON Pointer of its member in the body of the API, so that violations are
shown at their fields. Members of a stored invoice that the form does not show are kept.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from aiohttp import web

from service.dashboard import pages
from service.dashboard.operations import Answer, Failed, call, read
from service.dashboard.pages import Page, redirect, render
from service.dashboard.sessions import WRITE
from service.documents import codes, money
from service.errors import Conflict
from service.http import app_keys

PAGES: list[Page] = []
page = partial(pages.page, PAGES)

API = "/api/invoices"
TEXTS = pages.TEXTS["form"]
MOST_LINES = 100  # that the form shows; the API accepts more
#: Members that are numbers in the body.
NUMBERS = {
    "code",
    "adjustmentNoteCode",
    "price",
    "count",
    "percentage",
    "amount",
    "exchangeRate",
    "perUnitAmount",
}
#: Members that are instants. A form has them without an offset, in the business time zone.
INSTANTS = {"issueDateTime", "adjustmentNoteIssueDate"}
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
#: The members of a line that the form shows, below the line.
LINE = (
    "/description",
    "/classifications/0",
    "/unit/count",
    "/unit/code",
    "/unit/price",
    "/discount/amount",
    "/taxDetails/0/taxType",
    "/taxDetails/0/taxRate/percentage",
    "/taxExemptionReason",
)
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
Fields = dict[str, str]
#: Names of fields: members, or members of one of the first hundred lines. Lists have few entries.
_NAME = re.compile(
    r"/(?!lineItems)[A-Za-z]{1,40}(/[A-Za-z][A-Za-z0-9]{0,40}|/[0-9]{1,2}){0,4}"
    r"|/lineItems/[0-9]{1,2}(/[A-Za-z][A-Za-z0-9]{0,40}|/[0-9]){1,5}",
    re.ASCII,
)


@page("GET", "/invoices/new", right=WRITE)
async def show_new(request: web.Request) -> web.Response:
    """Return the form for a new invoice, with the next code."""
    company = (await read(request, "/api/companies"))["data"]
    fields = dict(NEW)
    for index, tax in enumerate((company.get("default_tax_types_and_rates") or [])[:1]):
        fields[f"/lineItems/0/taxDetails/{index}/taxType"] = str(tax.get("taxType", ""))
        percentage = (tax.get("taxRate") or {}).get("percentage", "")
        fields[f"/lineItems/0/taxDetails/{index}/taxRate/percentage"] = str(percentage)
    latest = await read(request, API, {"per_page": 1})
    newest = latest["data"][0]["invoice_code"] if latest["data"] else "0"
    fields["/code"] = str(int(newest) + 1)
    zone = request.app[app_keys.CONFIG].time_zone
    fields["/issueDateTime"] = f"{datetime.now(zone):%Y-%m-%dT%H:%M}"
    return _render(request, fields, {})


@page("POST", "/invoices/new", right=WRITE)
async def create(request: web.Request) -> web.Response:
    """Create the invoice, or show the form again with totals, another line or violations."""
    fields, choice = await read_fields(request)
    if changed := change_lines(fields, choice):
        return _render(request, changed, {})
    body = build_body(fields, {}, request.app[app_keys.CONFIG].time_zone)
    if choice == "check":
        return _render(request, fields, {}, body)
    answer = await call(request, "POST", API, body)
    if not answer.is_success:
        return _render_violations(request, fields, answer, body)
    invoice_id = answer.value["data"]["id"]
    return await _after_save(request, invoice_id, choice, "created")


@page("GET", "/invoices/{id:[0-9]+}/edit", right=WRITE)
async def show_edit(request: web.Request) -> web.Response:
    """Return the form of a stored invoice, with what the portal would reject at its fields."""
    place = f"{API}/{request.match_info['id']}"
    record = await _read_editable(request, place)
    checks = (await call(request, "POST", f"{place}/preflight")).value
    wrong = {each["path"]: each["message"] for each in checks.get("errors", []) if each.get("path")}
    zone = request.app[app_keys.CONFIG].time_zone
    return _render(request, make_fields(record, zone), wrong, _body_of(record), record)


@page("POST", "/invoices/{id:[0-9]+}/edit", right=WRITE)
async def update(request: web.Request) -> web.Response:
    """Update the invoice, or show the form again."""
    place = f"{API}/{request.match_info['id']}"
    record = await _read_editable(request, place)
    fields, choice = await read_fields(request)
    if changed := change_lines(fields, choice):
        return _render(request, changed, {}, record=record)
    body = build_body(fields, _body_of(record), request.app[app_keys.CONFIG].time_zone)
    if choice == "check":
        return _render(request, fields, {}, body, record)
    answer = await call(request, "PUT", place, body)
    if not answer.is_success:
        return _render_violations(request, fields, answer, body, record)
    return await _after_save(request, record["id"], choice, "saved")


async def _read_editable(request: web.Request, place: str) -> Any:
    """Return the record of an invoice. Raises Conflict if it has more lines than the form."""
    record = await read(request, place)
    if len(record["line_items"]) > MOST_LINES:
        raise Conflict(TEXTS["too_long"])
    return record


async def _after_save(
    request: web.Request, invoice_id: int, choice: str, notice: str
) -> web.Response:
    """Submit a saved invoice if that was asked for, and go to its page."""
    if choice == "submit":
        answer = await call(request, "POST", f"{API}/{invoice_id}/submit-to-portal", {})
        notice = "submit" if answer.is_success else "not_submitted"
    return redirect(f"/invoices/{invoice_id}?notice={notice}")


async def read_fields(request: web.Request) -> tuple[Fields, str]:
    """Return the fields of the form, and the button that was pressed."""
    form = await request.post()
    fields = {
        name: text.strip()
        for name, text in form.items()
        if isinstance(text, str) and _NAME.fullmatch(name)
    }
    return fields, str(form.get("do", "save"))


def count_lines(fields: Mapping[str, str]) -> int:
    """Return the number of lines of the form, at least one."""
    numbers = [
        int(name.split("/")[2])
        for name in fields
        if name.startswith("/lineItems/") and name.split("/")[2].isdigit()
    ]
    return min(MOST_LINES, max(numbers, default=0) + 1)


def change_lines(fields: Fields, choice: str) -> Fields | None:
    """Return the fields with a line added or removed, or None for another button."""
    count = count_lines(fields)
    if choice == "add":
        return {**fields, f"/lineItems/{count}/unit/count": "1"}
    verb, _, text = choice.partition(":")
    if verb != "remove" or not text.isdigit():
        return None
    gone = int(text)
    changed: Fields = {}
    for name, value in fields.items():
        parts = name.split("/")
        if parts[1] == "lineItems" and parts[2].isdigit():
            number = int(parts[2])
            if number == gone and count > 1:
                continue
            parts[2] = str(number - (number > gone))
        changed["/".join(parts)] = value
    return changed


def build_body(fields: Mapping[str, str], stored: Mapping[str, Any], zone: ZoneInfo) -> Any:
    """Return the body that fields describe. Members of `stored` without a field are kept."""
    body: dict[str, Any] = copy.deepcopy(dict(stored))
    lines = body.get("lineItems") or []
    body["lineItems"] = [
        copy.deepcopy(lines[origin]) if (origin := _origin(fields, number)) < len(lines) else {}
        for number in range(count_lines(fields))
    ]
    for pointer, text in fields.items():
        if not pointer.endswith("/origin"):
            _set(body, pointer.split("/")[1:], _convert(pointer, text, zone))
    for number, line in enumerate(body["lineItems"]):
        line.setdefault("id", str(number + 1))
    return _without_empty(body)


def _origin(fields: Mapping[str, str], number: int) -> int:
    """Return the place in the stored invoice of a line of the form; a large one for a new line."""
    text = fields.get(f"/lineItems/{number}/origin", "")
    return int(text) if text.isdigit() and len(text) < 6 else MOST_LINES * 1000


def _convert(pointer: str, text: str, zone: ZoneInfo) -> Any:
    """Return the value of a member: a number, an instant with an offset, or the text."""
    name = pointer.rsplit("/", 1)[1]
    if text and name in NUMBERS:
        try:
            number = Decimal(text.replace(",", ""))
        except InvalidOperation:
            return text
        if not number.is_finite():
            return text
        return int(number) if number == number.to_integral_value() else number
    if text and name in INSTANTS:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return text
        return (at if at.tzinfo else at.replace(tzinfo=zone)).isoformat()
    return text


def _set(parent: Any, steps: list[str], value: Any) -> None:
    """Set a member of a body by the steps of its pointer. Missing objects and arrays are made."""
    for step, following in pairwise(steps):
        empty: Any = [] if following.isdigit() else {}
        if isinstance(parent, list):
            index = int(step)
            while len(parent) <= index:
                parent.append(copy.deepcopy(empty))
            parent = parent[index]
        elif isinstance(parent, dict):
            if not isinstance(parent.get(step), dict | list):
                parent[step] = empty
            parent = parent[step]
    last = steps[-1]
    if isinstance(parent, list):
        while len(parent) <= int(last):
            parent.append("")
        parent[int(last)] = value
    elif isinstance(parent, dict):
        parent[last] = value


def _without_empty(value: Any) -> Any:
    """Return a value without empty texts, and without the objects that are empty without them."""
    if isinstance(value, dict):
        members = {name: _without_empty(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member not in ("", {}, [])}
    if isinstance(value, list):
        entries = [_without_empty(entry) for entry in value]
        return [entry for entry in entries if entry not in ("", {})]
    return value


def _body_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a record in the shape of a body, without null ones."""
    body = {name: record[member] for name, member in MEMBERS.items() if record.get(member)}
    body["code"] = int(record["invoice_code"])
    return body


def make_fields(record: Mapping[str, Any], zone: ZoneInfo) -> Fields:
    """Return the fields of a stored invoice."""
    body = _body_of(record)
    issued = datetime.fromisoformat(body["issueDateTime"]).astimezone(zone)
    body["issueDateTime"] = f"{issued:%Y-%m-%dT%H:%M}"
    fields = dict(flatten(body, ""))
    for number in range(len(body["lineItems"])):
        fields[f"/lineItems/{number}/origin"] = str(number)
    return fields


def flatten(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from flatten(member, f"{pointer}/{name}")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from flatten(entry, f"{pointer}/{index}")
    elif value is not None:
        yield pointer, str(value)


def compute_sums(body: Any) -> money.Totals | None:
    """Return the totals of a body, or None if its amounts are not valid."""
    if not body:
        return None
    try:
        return money.compute_totals(
            body.get("lineItems", []), body.get("invoiceLevelAllowanceCharge")
        )
    except (money.AmountError, TypeError, AttributeError):
        return None


def _render_violations(
    request: web.Request,
    fields: Fields,
    answer: Answer,
    body: Any,
    record: Mapping[str, Any] | None = None,
) -> web.Response:
    """Return the form with the violations of an answer. Raises Failed for another error."""
    if answer.status not in (403, 409, 422):
        raise Failed(answer)
    wrong = answer.violations or {"": answer.message}
    return _render(request, fields, wrong, body, record, answer.status)


def _render(
    request: web.Request,
    fields: Fields,
    wrong: Mapping[str, str],
    body: Any = None,
    record: Mapping[str, Any] | None = None,
    status: int = 200,
) -> web.Response:
    """Return the form. Violations of members without a field are listed above it."""
    role = "supplier" if "SELF_BILLED" in fields.get("/type", "") else "buyer"
    count = count_lines(fields)
    shown = {"/type", "/code", "/issueDateTime", "/currencyCode", "/exchangeRate"}
    shown |= {f"/{role}{name}" for name in PARTY}
    shown |= {f"/lineItems/{number}{name}" for number in range(count) for name in LINE}
    return render(
        request,
        "invoice_form.html",
        status,
        fields=fields,
        wrong=wrong,
        unplaced={path: text for path, text in wrong.items() if path not in shown},
        role=role,
        lines=count,
        sums=compute_sums(body),
        record=record,
        tables=codes.TABLES,
        currency=fields.get("/currencyCode") or "MYR",
        now=datetime.now(UTC),
    )

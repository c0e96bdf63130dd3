"""Plausible mistakes of integrators: each answer names the member and what to do.

A mistake is refused, is an error of preflight, or has a warning when the document is created,
updated and in preflight. None becomes Valid in silence.
"""

import json
from copy import deepcopy
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from service.documents import money
from service.documents.doubts import find_doubts
from tests.api_invoices import create_valid_invoice
from tests.api_requests import create_record, expect, request_json
from tests.conftest import Client, StartService, make_company
from tests.harness.bodies import buyer, invoice, line, note

INVOICES = "/api/invoices"
REMOVED = object()


class Mistake(NamedTuple):
    """A member of an invoice with another value, and the path and a part of the message."""

    pointer: str
    value: Any
    path: str
    text: str


LINE, UNIT = "/lineItems/0", "/lineItems/0/unit"
TAXES, RATE = f"{LINE}/taxDetails", f"{LINE}/taxDetails/0/taxRate/percentage"
STATE, ISSUED = "/buyer/address/state", "/issueDateTime"

REFUSED = (
    # Spellings of other systems
    Mistake(f"{UNIT}/quantity", 2, f"{UNIT}/quantity", "Did you mean count?"),
    Mistake(f"{UNIT}/qty", 2, f"{UNIT}/qty", "Did you mean count?"),
    Mistake(f"{LINE}/quantity", 2, f"{LINE}/quantity", "Did you mean unit?"),
    Mistake("/line_items", [], "/line_items", "Did you mean lineItems?"),
    Mistake("/buyer/address/zip_code", "1", "/buyer/address/zip_code", "Did you mean zipCode?"),
    # Empty arrays of languages that have one type for both
    Mistake("/metadata", [], "/metadata", "must be an object"),
    Mistake("/buyer", [], "/buyer", "must be an object"),
    Mistake("/buyer/address", [], "/buyer/address", "must be an object"),
    Mistake("/delivery", [], "/delivery", "must be an object"),
    # Units that the portal refuses
    Mistake(f"{UNIT}/code", "PCS", f"{UNIT}/code", '"PCS"'),
    Mistake(f"{UNIT}/code", "pcs", f"{UNIT}/code", "must"),
    Mistake(f"{UNIT}/count", REMOVED, f"{UNIT}/count", "is required"),
    Mistake(f"{UNIT}/code", "KG", f"{UNIT}/code", 'nearest code is "KGM"'),
    Mistake(f"{UNIT}/code", "EACH", f"{UNIT}/code", "one to three of A-Z"),
    # Types
    Mistake(f"{UNIT}/price", "48.50", f"{UNIT}/price", "must be a number"),
    Mistake(f"{UNIT}/price", -5, f"{UNIT}/price", "at least 0"),
    Mistake(f"{UNIT}/count", -2, f"{UNIT}/count", "at least 0"),
    Mistake(f"{LINE}/id", 1, f"{LINE}/id", "must be a string"),
    Mistake(f"{LINE}/classifications", "022", f"{LINE}/classifications", "an array"),
    Mistake(f"{LINE}/classifications", [], f"{LINE}/classifications", "at least 1"),
    Mistake(f"{LINE}/discount", 5, f"{LINE}/discount", "must be an object"),
    Mistake("/lineItems", {}, "/lineItems", "must be an array"),
    Mistake("/buyer/tin", 20880050010, "/buyer/tin", "must be a string"),
    Mistake("/buyer/registration", "900101105566", "/buyer/registration", "must be an object"),
    Mistake(STATE, 10, STATE, "must be a string"),
    Mistake("/buyer/address/zipCode", 40150, "/buyer/address/zipCode", "must be a string"),
    Mistake("/code", "INV-1", "/code", "must be an integer"),
    Mistake("/submitImmediately", "true", "/submitImmediately", "must be true or false"),
    Mistake("/references", "PO1", "/references", "must be an array"),
    # Codes
    Mistake(
        f"{LINE}/classifications",
        ["22"],
        f"{LINE}/classifications/0",
        'nearest code is "022"',
    ),
    Mistake(f"{LINE}/originCountry", "MY", f"{LINE}/originCountry", '"MYS"'),
    Mistake("/buyer/type", "INDIVIDUAL", "/buyer/type", "not in the table of party types"),
    Mistake("/buyer/registration/type", "IC", "/buyer/registration/type", '"NRIC"'),
    Mistake(STATE, "Selangor", STATE, 'nearest code is "10"'),
    Mistake("/buyer/address/country", "MY", "/buyer/address/country", '"MYS"'),
    Mistake("/currencyCode", "RM", "/currencyCode", '"MYR"'),
    Mistake("/payment", {"mode": "cash"}, "/payment/mode", 'nearest code is "01"'),
    Mistake("/type", "CREDIT_NOTE", "/type", "must be one of INVOICE"),
    # Taxes
    Mistake(
        f"{LINE}/taxDetails/0/taxType",
        "2",
        f"{LINE}/taxDetails/0/taxType",
        'nearest code is "02"',
    ),
    Mistake(RATE, "8%", RATE, "must be a number"),
    Mistake(
        f"{LINE}/taxDetails/0/taxRate",
        8,
        f"{LINE}/taxDetails/0/taxRate",
        "must be an object",
    ),
    # Times
    Mistake(ISSUED, "2026-01-05", ISSUED, "like 2026-01-31T09:30:00Z"),
    Mistake(ISSUED, "05/01/2026 10:00", ISSUED, "must be a date and time"),
    Mistake(ISSUED, 1767571200, ISSUED, "must be a string"),
    Mistake(ISSUED, "2026-13-01T00:00:00Z", ISSUED, "must be a valid date"),
    Mistake("/billingPeriod", {"startDate": "2026-01-01"}, "/billingPeriod/startDate", "start?"),
    # Members
    Mistake("/currency", "MYR", "/currency", "Did you mean currencyCode?"),
    Mistake("/submitImmediatly", True, "/submitImmediatly", "Did you mean submitImmediately?"),
    Mistake("/total", 97, "/total", "is not a known member"),
    Mistake("/currencyCode", "USD", "/exchangeRate", "is required"),
)
FOUND_BY_PREFLIGHT = (
    Mistake("/buyer/tin", "C123", "/buyer/tin", "that end in 0"),
    Mistake("/buyer/tin", "123456789", "/buyer/tin", "must be a prefix and digits"),
    Mistake("/buyer/registration/number", "12", "/buyer/registration/number", "12 digits"),
    Mistake("/buyer/contactNumber", "12", "/buyer/contactNumber", "8 to 20 characters"),
    Mistake("/buyer/email", "siti", "/buyer/email", "is not a valid address"),
    Mistake(ISSUED, "2999-12-01T00:00:00Z", ISSUED, "not be in the future"),
    Mistake(ISSUED, "2026-01-05T00:00:00Z", ISSUED, "more than 72 hours ago"),
    Mistake(TAXES, [], TAXES, "tax type of line 1"),
    Mistake("/buyer/type", REMOVED, "/buyer/type", "The type of the buyer is missing."),
    Mistake("/buyer/address/zipCode", "401500", "/buyer/address/zipCode", "at most 5 digits"),
)


def percent(kind: str, rate: object) -> list[dict[str, Any]]:
    """Return the taxes of a line with one tax by percentage."""
    return [{"taxType": kind, "taxRate": {"percentage": rate}}]


WARNED = (
    Mistake(TAXES, percent("02", 0.08), RATE, "of 6 % or 8 %, not 0.08 %. Did you mean 8?"),
    Mistake(TAXES, percent("02", 800), RATE, "6 % or 8 %, not 800 %."),
    Mistake(TAXES, percent("02", 0), RATE, "not 0 %"),
    Mistake(TAXES, percent("02", 10), RATE, "Service tax has a rate of"),
    Mistake(TAXES, percent("01", 8), RATE, "Sales tax has a rate of 5 % or 10 %, not 8 %."),
    Mistake(TAXES, percent("01", 0.1), RATE, "Did you mean 10?"),
    Mistake(TAXES, percent("03", 10), RATE, "an amount per night"),
    Mistake(TAXES, percent("05", 8), RATE, "low value goods has a rate of 10 %"),
    Mistake(TAXES, percent("06", 6), RATE, "has a rate of 0 %, not 6 %."),
    Mistake("/issueDateTime", "2026-01-05T02:09:00", "/issueDateTime", "end it with +08:00"),
    Mistake("/exchangeRate", 4.5, "/exchangeRate", "Set currencyCode if the amounts"),
    Mistake(f"{LINE}/amount", 97, f"{LINE}/amount", "it is stored, and not sent to the portal"),
    Mistake("/lineItems", [line(), line()], "/lineItems/1/id", "Another line has the id"),
    Mistake(f"{LINE}/unit/count", 0, f"{LINE}/unit/count", "is 0, and so is its amount"),
    Mistake(f"{LINE}/unit/count", 1.000001, f"{LINE}/unit/count", "at most 5 decimals"),
)


def change(body: dict[str, Any], mistake: Mistake) -> dict[str, Any]:
    changed = deepcopy(body)
    *parents, name = mistake.pointer.split("/")[1:]
    holder: Any = changed
    for parent in parents:
        holder = holder[int(parent) if isinstance(holder, list) else parent]
    if mistake.value is REMOVED:
        del holder[name]
    else:
        holder[name] = mistake.value
    return changed


def describe(mistake: Mistake) -> str:
    return f"{mistake.pointer}={mistake.value if mistake.value is not REMOVED else 'removed'}"


@pytest.mark.parametrize("mistake", REFUSED, ids=describe)
async def test_a_mistake_is_refused_by_name(api: Client, mistake: Mistake) -> None:
    answer = await expect(api, 422, "POST", INVOICES, json=change(invoice(), mistake))
    messages = {each["path"]: each["message"] for each in answer["errors"]}
    assert mistake.text in messages[mistake.path]


@pytest.mark.parametrize("mistake", FOUND_BY_PREFLIGHT, ids=describe)
async def test_preflight_names_a_mistake(api: Client, mistake: Mistake) -> None:
    created = await create_record(api, INVOICES, **change(invoice(), mistake))
    path = f"{INVOICES}/{created['id']}/preflight"
    _, found = await request_json(api, "POST", path, json={})
    assert not found["ready"]
    messages = {each["path"]: each["message"] for each in found["errors"]}
    assert mistake.text in messages[mistake.path]


def list_warnings(answer: dict[str, Any]) -> dict[str, str]:
    """Return {path: message} of the warnings of an answer."""
    return {each["path"]: each["message"] for each in answer.get("warnings", ())}


@pytest.mark.parametrize("mistake", WARNED, ids=describe)
async def test_a_mistake_has_a_warning(api: Client, mistake: Mistake) -> None:
    body = change(invoice(), mistake)
    status, created = await request_json(api, "POST", INVOICES, json=body)
    assert status == 201 and mistake.text in list_warnings(created)[mistake.path]
    path = f"{INVOICES}/{created['data']['id']}"
    sent = ("issueDateTime", "lineItems", "exchangeRate")
    changes = {name: body[name] for name in sent if name in body}
    _, updated = await request_json(api, "PUT", path, json=changes)
    assert list_warnings(updated) == list_warnings(created)
    _, found = await request_json(api, "POST", f"{path}/preflight", json={})
    stored = {} if mistake.path == "/issueDateTime" else list_warnings(created)
    assert list_warnings(found).items() >= stored.items()


async def test_a_correct_invoice_has_no_warnings(api: Client) -> None:
    _, created = await request_json(api, "POST", INVOICES, json=invoice())
    assert "warnings" not in created
    path = f"{INVOICES}/{created['data']['id']}/preflight"
    assert list_warnings((await request_json(api, "POST", path, json={}))[1]) == {}


@pytest.mark.parametrize(
    ("taxes", "text"),
    [
        (percent("01", 10), "sales tax, but the company has no sst_registration_number"),
        (percent("02", 8), "service tax, but the company has no sst_registration_number"),
        (
            [{"taxType": "03", "taxRate": {"perUnitAmount": 10}}],
            "tourism tax, but the company has no tourism_tax_registration_number",
        ),
    ],
)
@pytest.mark.parametrize("answers_with_effects", [False, True])
async def test_a_tax_of_a_company_without_its_number_has_a_warning(
    start: StartService,
    environment: dict[str, str],
    taxes: list[dict[str, Any]],
    text: str,
    answers_with_effects: bool,
) -> None:
    """Also on the way of creates with an Idempotency-Key, which have a transaction."""
    none = dict.fromkeys(("sst_registration_number", "tourism_tax_registration_number"))
    api = await start(await make_company(environment, **none))
    body = invoice(lineItems=[line(taxDetails=taxes)])
    headers = {"Idempotency-Key": "one"} if answers_with_effects else {}
    _, created = await request_json(api, "POST", INVOICES, json=body, headers=headers)
    path = f"{INVOICES}/{created['data']['id']}"
    _, updated = await request_json(api, "PUT", path, json={"lineItems": body["lineItems"]})
    _, found = await request_json(api, "POST", f"{path}/preflight", json={})
    for answer in (created, updated, found):
        assert text in list_warnings(answer)[f"{TAXES}/0/taxType"]


async def test_a_self_billed_tax_of_a_supplier_without_its_number_has_a_warning(
    api: Client,
) -> None:
    seller = {**buyer(type="LOCAL_COMPANY"), "sstRegistrationNumber": "NA"}
    body = invoice(type="SELF_BILLED_INVOICE", supplier=seller, buyer=None)
    _, created = await request_json(api, "POST", INVOICES, json=body)
    assert "the supplier has no sstReg" in list_warnings(created)[f"{TAXES}/0/taxType"]
    seller["sstRegistrationNumber"] = "W10-1808-32000060"
    _, created = await request_json(api, "POST", INVOICES, json={**body, "code": body["code"] + 1})
    assert "warnings" not in created


async def test_a_note_has_warnings_too(api: Client) -> None:
    target = await create_valid_invoice(api)
    item = line(taxDetails=percent("02", 0.08), unit={"code": "KGM", "price": 1, "count": 1})
    body = note(lineItems=[item])
    _, created = await request_json(api, "POST", f"{INVOICES}/{target}/adjustment-note", json=body)
    assert "Did you mean 8?" in list_warnings(created)[RATE]
    path = f"/api/adjustment-notes/{created['data']['id']}"
    _, updated = await request_json(api, "PUT", path, json={"lineItems": [item]})
    assert list_warnings(updated) == list_warnings(created)


@pytest.mark.parametrize(("day", "is_legal"), [("2024-02-29", False), ("2024-03-01", True)])
def test_a_rate_is_legal_from_its_day(day: str, is_legal: bool) -> None:
    body = {"type": "INVOICE", "lineItems": [line(taxDetails=percent("02", Decimal(8)))]}
    body["lineItems"][0]["unit"] = {"price": Decimal(1), "count": Decimal(1)}
    lines = money.compute_document(body).lines
    found = [each.code for each in find_doubts(body, lines, date.fromisoformat(day))]
    assert found == (["TaxRegistration"] if is_legal else ["TaxRate"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", f"{INVOICES}?limit=5", None, 422, "Did you mean per_page?"),
        ("GET", f"{INVOICES}?pageSize=5", None, 422, "Did you mean per_page?"),
        ("GET", f"{INVOICES}?status=valid", None, 422, "Valid"),
        ("GET", f"{INVOICES}?page=0", None, 422, "page"),
        ("GET", f"{INVOICES}?per_page=1000", None, 422, "100"),
        ("GET", f"{INVOICES}?issued_from=05/01/2026", None, 422, "issued_from"),
        ("GET", f"{INVOICES}?pages=2", None, 422, "Did you mean page?"),
        ("POST", f"{INVOICES}", b"{'code': 1}", 400, "JSON"),
        ("POST", f"{INVOICES}", b'{"code": 1, "code": 2}', 400, "code"),
        ("GET", f"{INVOICES}/", None, 404, "Paths do not end with a slash."),
        ("POST", f"{INVOICES}/", b"{}", 404, "Paths do not end with a slash."),
        ("POST", f"{INVOICES}/1/submit-to-portal", b"[]", 422, "must be an object"),
        ("POST", INVOICES, b"[]", 422, "must be an object"),
    ],
)
async def test_a_request_is_refused_by_name(
    api: Client, method: str, path: str, body: bytes | None, status: int, text: str
) -> None:
    headers = {"Content-Type": "application/json"}
    found, answer = await request_json(api, method, path, data=body, headers=headers)
    assert found == status and text in answer["message"]


async def test_a_byte_order_mark_is_ignored(api: Client) -> None:
    body = b"\xef\xbb\xbf" + json.dumps(invoice()).encode()
    headers = {"Content-Type": "application/json"}
    await expect(api, 201, "POST", INVOICES, data=body, headers=headers)

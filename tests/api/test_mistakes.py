"""Plausible mistakes of integrators: each answer names the member and what to do.

A mistake is refused, or is an error of preflight. None becomes Valid in silence.
"""

import json
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
from conftest import Client
from kit import create_record, invoice, request_json

INVOICES = "/api/invoices"
REMOVED = object()


class Mistake(NamedTuple):
    """A member of an invoice with another value, and the path and a part of the message."""

    pointer: str
    value: Any
    path: str
    text: str


REFUSED = (
    # Spellings of other systems
    Mistake("/lineItems/0/unit/quantity", 2, "/lineItems/0/unit/quantity", "Did you mean count?"),
    Mistake("/lineItems/0/unit/qty", 2, "/lineItems/0/unit/qty", "Did you mean count?"),
    Mistake("/lineItems/0/quantity", 2, "/lineItems/0/quantity", "Did you mean unit?"),
    Mistake("/line_items", [], "/line_items", "Did you mean lineItems?"),
    Mistake("/buyer/address/zip_code", "1", "/buyer/address/zip_code", "Did you mean zipCode?"),
    # Empty arrays of languages that have one type for both
    Mistake("/metadata", [], "/metadata", "must be an object"),
    Mistake("/buyer", [], "/buyer", "must be an object"),
    Mistake("/buyer/address", [], "/buyer/address", "must be an object"),
    Mistake("/delivery", [], "/delivery", "must be an object"),
    # Units that the portal refuses
    Mistake("/lineItems/0/unit/code", "PCS", "/lineItems/0/unit/code", '"PCS"'),
    Mistake("/lineItems/0/unit/code", "pcs", "/lineItems/0/unit/code", "must"),
    Mistake("/lineItems/0/unit/count", REMOVED, "/lineItems/0/unit/count", "is required"),
)
FOUND_BY_PREFLIGHT = (
    Mistake("/buyer/type", REMOVED, "/buyer/type", "The type of the buyer is missing."),
    Mistake("/buyer/address/zipCode", "401500", "/buyer/address/zipCode", "at most 5 digits"),
)


def change(body: dict[str, Any], mistake: Mistake) -> dict[str, Any]:
    """Return a body with the mistake."""
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
    status, answer = await request_json(api, "POST", INVOICES, json=change(invoice(), mistake))
    assert status == 422
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


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", f"{INVOICES}?limit=5", None, 422, "Did you mean per_page?"),
        ("GET", f"{INVOICES}?pageSize=5", None, 422, "Did you mean per_page?"),
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
    status, _ = await request_json(api, "POST", INVOICES, data=body, headers=headers)
    assert status == 201

"""Forms that no page could have sent: type, charset, size, number and length of fields."""

import random
import re
from urllib.parse import parse_qsl, urlencode

import pytest

from service.http import forms
from service.http.forms import CARRIER_FORM, PUBLIC_FORM, SESSION_FORM, FormLimits
from tests.conftest import Client
from tests.harness.visitors import Visitor

FORM = "application/x-www-form-urlencoded"


async def post(visitor: Visitor, path: str, body: bytes, kind: str = FORM) -> int:
    """Send a body with the token of the open page in front of it, and return the status."""
    found = re.search(r'name="form_token" value="([^"]*)"', visitor.text)
    token = urlencode({"form_token": found[1] if found else ""}).encode()
    url = visitor._base.join(visitor._base.with_path(path))
    headers = {"Content-Type": kind}
    async with visitor._session.post(url, data=token + b"&" + body, headers=headers) as response:
        return response.status


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "application/json",
        "multipart/form-data; boundary=x",
        f"{FORM}; charset=punycode",
        f"{FORM}; charset=utf-16",
        f"{FORM}; charset*=utf-8''punycode",
        f"{FORM}; charset=utf-8; charset=punycode",
        f"{FORM}, {FORM}; charset=punycode",
    ],
)
async def test_a_form_of_another_type_or_charset_is_a_415(site: Client, kind: str) -> None:
    async with Visitor(site.make_url("/")) as visitor:
        await visitor.get("/sign-in")
        assert await post(visitor, "/sign-in", b"email=a@b.example", kind) == 415


@pytest.mark.parametrize("kind", [FORM, FORM.upper(), f"{FORM}; charset=UTF-8"])
async def test_a_form_in_utf_8_is_read(site: Client, kind: str) -> None:
    async with Visitor(site.make_url("/")) as visitor:
        await visitor.get("/sign-in")
        assert await post(visitor, "/sign-in", "email=ä@b.example".encode(), kind) == 401


@pytest.mark.parametrize("body", [b"a=%ff", b"a=\xff", b"a=%ED%A0%80", b"a=%00", b"a=%zz", b"a=%"])
async def test_a_form_with_invalid_text_is_a_400(site: Client, body: bytes) -> None:
    async with Visitor(site.make_url("/")) as visitor:
        await visitor.get("/sign-in")
        assert await post(visitor, "/sign-in", body) == 400


PARTS = (
    "a",
    "é",
    "%41",
    "%C3%A9",
    "%c3%a9",
    "=",
    "%3D",
    "+",
    "%2B",
    "_",
    ".",
    " ",
    "%0D%0A",
    "%26",
)


def test_fields_are_decoded_as_the_standard_library_does() -> None:
    choose = random.Random(1)
    for _ in range(5_000):
        fields = ["".join(choose.choices(PARTS, k=choose.randrange(8))) for _ in range(3)]
        raw = "&".join(fields)
        expected = parse_qsl(raw, keep_blank_values=True, errors="strict")
        assert list(forms.parse_form(raw.encode(), SESSION_FORM).items()) == expected, raw


def fill_limits(limits: FormLimits) -> dict[str, bytes]:
    """Return forms that exceed one limit each."""
    text = b"x" * limits.characters
    return {
        "size": b"&".join(b"n=" + text for _ in range(limits.size // limits.characters + 1)),
        "fields": b"&".join([b"a=1"] * limits.fields),
        "characters": b"a=x" + text,
        "name": b"n" * 201 + b"=1",
    }


@pytest.mark.parametrize("limit", ["size", "fields", "characters", "name"])
async def test_a_public_form_over_a_limit_is_a_413(site: Client, limit: str) -> None:
    async with Visitor(site.make_url("/")) as visitor:
        await visitor.get("/sign-in")
        assert await post(visitor, "/link/unknown", fill_limits(PUBLIC_FORM)[limit]) == 413
        assert await post(visitor, "/sign-in", fill_limits(CARRIER_FORM)[limit]) == 413
        assert await post(visitor, "/invoices/new", fill_limits(SESSION_FORM)[limit]) == 413


@pytest.mark.parametrize("limit", ["size", "fields", "characters", "name"])
async def test_a_form_of_a_session_over_a_limit_is_a_413(admin: Visitor, limit: str) -> None:
    await admin.get("/settings/profile")
    assert await post(admin, "/settings/profile", fill_limits(SESSION_FORM)[limit]) == 413


def make_largest_lines() -> dict[str, str]:
    """Return the fields of as many lines as a form has, with the longest texts."""
    names = ("/description", "/taxExemptionReason", *(f"/x{number}" for number in range(8)))
    return {
        f"/lineItems/{line}{name}": "\U0001f600" * 300 if name in names[:2] else "1"
        for line in range(100)
        for name in names
    }


async def test_the_largest_document_form_is_read(admin: Visitor) -> None:
    await admin.get("/invoices/new")
    body = urlencode(make_largest_lines()).encode()
    assert await post(admin, "/invoices/new", body) == 422

"""Broken forms: no page answers a 500, hangs, or writes a control character to a header.

The pages are those of the table of routes, so that a new form is tested without a change here.
"""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from html import unescape
from urllib.parse import urlencode

import aiohttp
import pytest
from yarl import URL

from service.config import Config
from service.dashboard.pages import local_path
from tests.api_invoices import create_invoice
from tests.api_requests import create_record
from tests.conftest import Client, Company, StartService
from tests.dashboard.test_protection import create_ids, fill, ids_of, is_public, list_paths
from tests.fixtures_dashboard import SignIn
from tests.harness.environments import GENEROUS
from tests.harness.visitors import PASSWORD, Visitor, make_person

FORM = "application/x-www-form-urlencoded"
PATIENCE_SECONDS = 30
DIGITS = "9" * 300
#: Values of fields that no person enters.
VALUES = (
    "",
    " ",
    "²",
    "٣",
    "1e99999999",
    "-1e-99999999",
    "NaN",
    "Infinity",
    DIGITS,
    f"-{DIGITS}.{DIGITS}",
    "9" * 20,
    "-1",
    "1_000",
    "\x01\x1f\x7f",
    "a\r\nSet-Cookie: x=1\tb",
    "\u2028\u202e\ufffe\U0010ffff",
    "😀" * 1_000,
    "İß" * 2_000,
    "0000-01-01",
    "0000-01-01T00:00",
    "0001-01-01T00:00",
    "9999-12-31T23:59",
    "99999-12-31T00:00",
    "2026-02-30T25:61",
    "0000-00",
    "99999-13",
    "../../x",
    "http://[",
    "[]",
    '{"a":',
    "null",
    "<script>",
    "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----",
)
#: Bodies with their content types. A body that has fields begins after the token.
BODIES: tuple[tuple[str | None, bytes], ...] = (
    (FORM, b""),
    (FORM, b"&&&&=&=x&x"),
    (FORM, b"a=%00"),
    (FORM, b"a=%ED%A0%80&%ED%B0%80=a"),
    (FORM, b"a=%zz%"),
    (FORM, b"a=\xff\xfe"),
    (FORM, b"\x00\x01\x02"),
    (FORM, b"form_token=x&form_token=y"),
    (FORM, b"&".join(b"/lineItems/%d/unit/price=1" % (number % 100) for number in range(1_400))),
    (FORM, b"/a/9/9/9/9=1&/lineItems/99/a/9/9/9/9=1&/lineItems/0=1&/lineItems/0/unit=1"),
    (FORM, b"/buyer=1&/buyer/address=2&/buyer/address/0=3&/type/0=4&/code/x=5&/0=1"),
    (FORM, b"do=add&do=remove:99999&do=remove:%C2%B2"),
    (f"{FORM}; charset=utf-16", b"a=1"),
    (f"{FORM}; charset=punycode", b"a=1"),
    (f"{FORM}; charset=\x80", b"a=1"),
    (None, b"a=1"),
    ("", b"a=1"),
    ("text/plain", b"a=1"),
    ("application/json", b'{"a": 1}'),
    ("multipart/form-data", b"a=1"),
    ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n"),
    (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.txt"\r\n\r\nb\r\n--x--\r\n',
    ),
)
#: Headers that are sent with a complete form.
HEADERS: tuple[dict[str, str], ...] = (
    {"Origin": "http://["},
    {"Origin": "null"},
    {"Origin": "http://\u00e9\u00b2"},
    {"Sec-Fetch-Site": "²"},
    {"Cookie": "einvoice_visitor=\u00ff\u00fe; einvoice_session=\u00ff"},
    {"Cookie": 'einvoice_visitor="\\000\\012"; einvoice_session="\\015\\012"'},
    {"Referer": "http://[\u00ff"},
    {"Content-Encoding": "gzip"},
    {"Content-Encoding": "x"},
    {"X-Request-Id": "²"},
    {"X-Forwarded-For": "²"},
    {"Accept-Language": "²"},
)
_NAMES = re.compile(r'<(?:input|select|textarea|button)\b[^>]*\bname="([^"]+)"')
_TOKEN = re.compile(r'name="form_token" value="([^"]*)"')
_addresses = itertools.count(1)
#: Places to go to after the sign-in that are not on this site, or in no header.
ELSEWHERE = (
    "//evil.example",
    "/\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "\t//evil.example",
    "/x\r\nSet-Cookie: a=b",
    "/x\x00",
    "/x\x7f\x85",
    "/x\\y",
    "https://evil.example",
    "javascript:alert(1)",
    "evil.example",
    " /x",
    "",
)


class Sender:
    """Sends forms of one visitor. Each has an address of its own and is therefore not limited."""

    def __init__(self, visitor: Visitor, site: Client) -> None:
        self.base, self.visitor = site.make_url("/"), visitor
        connector = aiohttp.TCPConnector(force_close=True)
        jar = visitor._session.cookie_jar
        self.session = aiohttp.ClientSession(connector=connector, cookie_jar=jar)
        self.token = ""

    async def open(self, path: str) -> bool:
        """Take the form token of a page. Return False if there is none: the session has ended."""
        await self.visitor.get(path)
        found = _TOKEN.search(self.visitor.text)
        self.token = found[1] if found else ""
        return found is not None and (is_public(path) or self.visitor.path != "/sign-in")

    async def post(
        self, path: str, body: bytes, kind: str | None = FORM, headers: Mapping[str, str] = {}
    ) -> str:
        """Send a form, and return what is wrong with the response, or an empty text."""
        number = next(_addresses)
        sent = {"X-Forwarded-For": f"10.1.{number // 250}.{number % 250 + 1}", **headers}
        if kind is not None:
            sent["Content-Type"] = kind
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            self.session.post(
                self.base.join(URL(path, encoded=True)),
                data=body,
                headers=sent,
                skip_auto_headers=("Content-Type",),
                allow_redirects=False,
            ) as response,
        ):
            return find_fault(response, await response.text(errors="replace"))

    async def post_form(self, path: str, form: "BrokenForm") -> str:
        """Send a broken form after its token."""
        token = urlencode({"form_token": self.token}).encode()
        body = token + b"&" + form.body if form.has_token else form.body
        return await self.post(path, body, form.kind, form.headers or {})


@dataclass(frozen=True, slots=True)
class BrokenForm:
    """A form that no page could have sent, or that no person would fill in like that."""

    body: bytes
    kind: str | None = FORM
    headers: Mapping[str, str] | None = None
    has_token: bool = True


def find_fault(response: aiohttp.ClientResponse, text: str) -> str:
    """Return what no response may have: a status of 500, no message, or a control character."""
    for name, value in response.headers.items():
        if re.search(r"[\x00-\x1f\x7f]", value):
            return f"header {name}: {value!r}"
    if response.status >= 500:
        return f"status {response.status}"
    if response.status >= 400 and len(re.sub(r"<[^>]+>|\s", "", text)) < 20:
        return f"status {response.status} without a message"
    location = response.headers.get("Location", "/")
    return "" if re.match(r"/(?![/\\])", location) else f"redirect to {location!r}"


def break_forms(names: list[str]) -> Iterator[BrokenForm]:
    """Yield broken forms. Those of values have each value in each field in the course of them."""
    for kind, body in BODIES:
        for has_token in (True, False):
            yield BrokenForm(body, kind, has_token=has_token)
    for headers in HEADERS:
        yield BrokenForm(b"", headers=headers)
    for shift in range(len(VALUES)):
        mixed = {name: VALUES[(place + shift) % len(VALUES)] for place, name in enumerate(names)}
        for fields in (
            mixed,
            {**mixed, "do": "save"},
            {name: text for name, text in mixed.items() if not name.startswith("/lineItems")},
            dict.fromkeys(names, VALUES[shift]),
        ):
            yield BrokenForm(urlencode([*fields.items(), *list(fields.items())[:3]]).encode())


#: Opens a sender: True for a person with a session, False for a stranger.
OpenSender = Callable[[bool], Awaitable[Sender]]


@pytest.fixture
async def service(start: StartService) -> Client:
    """A client of a service that learns the address of a client from its proxy."""
    return await start(**{**GENEROUS, "TRUSTED_PROXIES": "127.0.0.1"})


@pytest.fixture
async def open_sender(service: Client, sign_in: SignIn) -> AsyncIterator[OpenSender]:
    async with AsyncExitStack() as stack:

        async def open_as(is_owner: bool) -> Sender:
            if is_owner:
                visitor = await sign_in(service, "owner")
            else:
                visitor = await stack.enter_async_context(Visitor(service.make_url("/")))
            sender = Sender(visitor, service)
            stack.push_async_callback(sender.session.close)
            return sender

        yield open_as


@pytest.fixture
async def ids(service: Client, company: Company, config: Config) -> dict[str, dict[str, object]]:
    """Return {route: values of its parts}, of records and links that exist."""
    ids = await create_ids(service)
    asked = await create_invoice(service, type="PENDING_FINALIZE_INVOICE", buyer=None)
    link = await create_record(service, f"/api/invoices/{asked}/links", purpose="request")
    receipt = link["url"].rpartition("/")[2]
    invitation = await make_person(config, company.id, "a@example.com", "reader")
    tokens = {"/receipt/{token}": receipt, "/link/{token}": invitation.rpartition("/")[2]}
    return {
        route: {**ids_of(route, ids), **({"token": tokens[route]} if route in tokens else {})}
        for route in (*list_paths("GET"), *list_paths("POST"))
    }


Ids = dict[str, dict[str, object]]


async def read_names(visitor: Visitor, ids: Ids) -> list[str]:
    names: set[str] = set()
    for route in list_paths("GET"):
        for path in fill(route, ids[route]):
            await visitor.get(path)
            names |= {unescape(name) for name in _NAMES.findall(visitor.text)}
    assert len(names) > 50
    return sorted(names - {"form_token"})


@pytest.mark.parametrize("is_owner", [True, False], ids=["owner", "stranger"])
@pytest.mark.parametrize("some", [20, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
async def test_no_broken_form_is_a_500(
    open_sender: OpenSender, ids: Ids, is_owner: bool, some: int
) -> None:
    """Every twentieth form is sent to each page, but each form to some pages; or all of them."""
    sender = await open_sender(is_owner)
    names = await read_names((await open_sender(True)).visitor, ids)
    forms, faults, number = list(break_forms(names)), [], 0
    for route in list_paths("POST"):
        for path in fill(route, ids[route]):
            number += 1
            page = path if is_public(path) else "/companies"
            if not await sender.open(page) and is_owner:  # A form has ended the session.
                sender = await open_sender(True)
                await sender.open(page)
            for form in forms[number % some :: some]:
                if fault := await sender.post_form(path, form):
                    faults.append((path, form, fault))
    assert faults == []


async def test_long_ids_are_unknown(open_sender: OpenSender, ids: Ids) -> None:
    sender = await open_sender(True)
    for digits in ("0", "9" * 18, "9" * 20, DIGITS, "²"):
        for method in ("GET", "POST"):
            for route in list_paths(method):
                if ":[0-9]" not in route:
                    continue
                for path in fill(route, dict.fromkeys(("id", "link_id", "delivery_id"), digits)):
                    await sender.open("/companies")
                    url = sender.base.join(URL(path))
                    data = {"form_token": sender.token}
                    async with sender.session.request(method, url, data=data) as response:
                        assert (path, response.status) == (path, 404)


@pytest.mark.parametrize("target", ELSEWHERE)
def test_another_site_or_no_path_is_the_start_page(target: str) -> None:
    assert local_path(target) == "/"


@pytest.mark.parametrize("target", ["/", "/invoices?page=2&query=a%0D%0Ab", "/x//y", "/ä²"])
def test_a_path_of_this_site_is_kept(target: str) -> None:
    assert local_path(target) == target


async def test_a_sign_in_goes_to_no_other_site(open_sender: OpenSender, service: Client) -> None:
    await open_sender(True)
    for target in ELSEWHERE[:6]:
        sender = await open_sender(False)
        await sender.open("/sign-in")
        fields = {"email": "owner@example.com", "password": PASSWORD, "next": target}
        data = {"form_token": sender.token, **fields}
        url = sender.base.join(URL("/sign-in"))
        async with sender.session.post(url, data=data, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/")

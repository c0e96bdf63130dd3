"""The form of an invoice without a browser: saving it keeps members that it does not have."""

import html
import re
from html.parser import HTMLParser
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest
from multidict import MultiDict

from service import json_codec
from service.dashboard.document_form import LINE, build_body, place_messages, read_fields
from service.dashboard.editing import PARTY
from service.dashboard.settings_company import PROFILE
from service.http.forms import FORM
from tests.api.test_exports import set_setting
from tests.api_invoices import create_invoice
from tests.api_reads import get_invoice
from tests.api_requests import expect, request_json
from tests.conftest import Client, StartService
from tests.fixtures_dashboard import SignIn
from tests.harness.bodies import buyer, line, now
from tests.harness.visitors import Visitor

SETTLEMENT = {
    "prepayment": {"amount": 100, "date": "2026-09-02", "time": "04:00:00Z", "reference": "DEP-7"},
    "payableRoundingAmount": -0.01,
}


class FormReader(HTMLParser):
    """Collects the fields of a page with their values, as a browser would send them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a field, or the chosen option of the present one."""
        found = dict(attrs)
        if tag == "select":
            self._select = found.get("name") or ""
            self.fields[self._select] = ""
        elif tag == "option" and "selected" in found:
            self.fields[self._select] = found.get("value") or ""
        elif tag == "input" and (name := found.get("name")) and found.get("type") != "checkbox":
            self.fields[name] = found.get("value") or ""


@pytest.fixture
async def site(start: StartService) -> Client:
    """A service without background work."""
    return await start(background=False)


@pytest.fixture
async def visitor(site: Client, sign_in: SignIn) -> Visitor:
    return await sign_in(site, "owner")


async def test_an_edited_invoice_keeps_prepayment_and_rounding(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site, **SETTLEMENT)
    await visitor.get(f"/invoices/{invoice_id}/edit")
    fields = FormReader(visitor.text).fields
    assert not any("prepayment" in name or "ounding" in name for name in fields)
    fields["/lineItems/0/description"] = "Dates"
    await visitor.post(f"/invoices/{invoice_id}/edit", {**fields, "do": "save"})
    assert (visitor.status, visitor.path) == (200, f"/invoices/{invoice_id}")
    found = await get_invoice(site, invoice_id)
    assert found["line_items"][0]["description"] == "Dates"
    assert found["prepayment"] == SETTLEMENT["prepayment"]
    assert found["payable_rounding_amount"] == -0.01


async def test_fields_that_were_not_changed_keep_their_members(
    visitor: Visitor, site: Client
) -> None:
    """The form shows minutes, and a browser sends no line breaks."""
    lines = [line(description="Beans,\nroasted")]
    invoice_id = await create_invoice(site, lineItems=lines, issueDateTime=now(minutes=1))
    before = await get_invoice(site, invoice_id)
    await visitor.get(f"/invoices/{invoice_id}/edit")
    fields = FormReader(visitor.text).fields
    fields = {name: text.replace("\n", "") for name, text in fields.items()}
    changed = {**fields, "/buyer/email": "a@example.com", "do": "save"}
    await visitor.post(f"/invoices/{invoice_id}/edit", changed)
    found = await get_invoice(site, invoice_id)
    assert found["buyer"]["email"] == "a@example.com"
    assert [found[name] == before[name] for name in ("line_items", "issue_date")] == [True, True]


@pytest.mark.parametrize("price", ["48,50", "1.234,50", "1,234,5", "1,,234", ",5"])
async def test_a_comma_is_no_decimal_point(visitor: Visitor, site: Client, price: str) -> None:
    invoice_id = await create_invoice(site)
    await visitor.get(f"/invoices/{invoice_id}/edit")
    field, fields = "/lineItems/0/unit/price", FormReader(visitor.text).fields
    await visitor.post(f"/invoices/{invoice_id}/edit", {**fields, field: price, "do": "save"})
    assert visitor.status == 422 and f'id="{field}-wrong"' in visitor.text
    await visitor.post(f"/invoices/{invoice_id}/edit", {**fields, field: "1,234.50", "do": "save"})
    assert (await get_invoice(site, invoice_id))["line_items"][0]["unit"]["price"] == 1234.5


async def test_a_ready_invoice_that_is_saved_as_a_draft_is_not_submitted(
    visitor: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    wrong = buyer(contactNumber="12")
    invoice_id = await create_invoice(site, isReady=True, buyer=wrong)
    await set_setting(owner, AUTO_SUBMIT_INVOICE=True)
    await visitor.get(f"/invoices/{invoice_id}/edit")
    fields = {**FormReader(visitor.text).fields, "/buyer/contactNumber": "+60123456789"}
    await visitor.post(f"/invoices/{invoice_id}/edit", {**fields, "do": "save"})
    found = await get_invoice(site, invoice_id)
    assert (found["status"], found["is_ready"]) == ("Draft", False)


async def test_a_note_for_more_lines_than_the_form_shows_is_refused(
    visitor: Visitor, site: Client
) -> None:
    lines = [line(id=str(number)) for number in range(101)]
    invoice_id = await create_invoice(site, lineItems=lines)
    for page in ("note", "edit"):
        await visitor.get(f"/invoices/{invoice_id}/{page}")
        assert visitor.status == 409 and "more lines than this form can show" in visitor.words


def read_etag(page: str) -> str:
    """Return the hidden field with the ETag of the record that a form was made from."""
    found = re.search(r'name="etag" value="([^"]+)"', page)
    assert found
    return html.unescape(found[1])


async def test_a_form_does_not_overwrite_a_change_that_it_has_not_shown(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site)
    path = f"/invoices/{invoice_id}/edit"
    await visitor.get(path)
    fields = {**FormReader(visitor.text).fields, "etag": read_etag(visitor.text)}
    changed = {"buyer": buyer(name="Tan Ah Kow")}
    await expect(site, 200, "PUT", f"/api/invoices/{invoice_id}", json=changed)
    await visitor.post(path, {**fields, "do": "check"})
    assert read_etag(visitor.text) == fields["etag"]
    await visitor.post(path, {**fields, "/lineItems/0/description": "Dates", "do": "save"})
    assert visitor.status == 412 and "Somebody has changed this" in visitor.words
    assert 'value="Dates"' in visitor.text and read_etag(visitor.text) == fields["etag"]
    found = await get_invoice(site, invoice_id)
    assert found["buyer"]["name"] == "Tan Ah Kow"
    assert found["line_items"][0]["description"] != "Dates"
    await visitor.get(path)
    fields["etag"] = read_etag(visitor.text)
    await visitor.post(path, {**fields, "do": "save"})
    assert visitor.path == f"/invoices/{invoice_id}"


@pytest.mark.parametrize("name", ["profile", "numbers"])
async def test_settings_do_not_overwrite_a_change_that_their_page_has_not_shown(
    visitor: Visitor, site: Client, name: str
) -> None:
    path = f"/settings/{name}"
    await visitor.get(path)
    etag = read_etag(visitor.text)
    shown = (await request_json(site, "GET", "/api/companies"))[1]["data"]
    await expect(site, 200, "PUT", "/api/companies", json={"city": "Ipoh"})
    _, before = await request_json(site, "GET", "/api/companies")
    entered = {each: shown[each] or "" for each in PROFILE}
    if name == "numbers":
        entered = {each: str(value) for each, value in shown["setting"].items()}
    await visitor.post(path, {**entered, "etag": etag, "do": "save"})
    assert visitor.status == 412 and "Somebody has changed this" in visitor.words
    assert (await request_json(site, "GET", "/api/companies"))[1] == before


async def test_an_edited_self_billed_invoice_gets_no_buyer(
    visitor: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    body = {"type": "SELF_BILLED_INVOICE", "buyer": None, "supplier": buyer()}
    invoice_id = await create_invoice(site, **body)
    fields = FormReader(await visitor.get(f"/invoices/{invoice_id}/edit")).fields
    fields["/supplier/name"] = "Foshan Timber Export Co. Ltd."
    await visitor.post(f"/invoices/{invoice_id}/edit", {**fields, "do": "save"})
    assert (visitor.status, visitor.path) == (200, f"/invoices/{invoice_id}")
    assert (await get_invoice(site, invoice_id))["supplier"]["name"] == fields["/supplier/name"]
    assert await owner.fetchval("select buyer from documents where id = $1", invoice_id) is None


async def test_totals_of_the_form_include_prepayment_and_rounding(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site, **SETTLEMENT)
    text = await visitor.get(f"/invoices/{invoice_id}/edit")
    assert "4.75" in visitor.words
    fields = {**FormReader(text).fields, "/lineItems/0/unit/count": "3", "do": "check"}
    await visitor.post(f"/invoices/{invoice_id}/edit", fields)
    assert visitor.status == 200 and "57.13" in visitor.words


async def test_the_page_of_an_invoice_shows_prepayment_and_rounding(
    visitor: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site, **SETTLEMENT)
    words = " ".join((await visitor.read_words(f"/invoices/{invoice_id}")).split())
    for part in ("With tax", "104.76", "Rounding", "0.01", "DEP-7", "100.00", "To pay", "4.75"):
        assert part in words
    assert "2026-09-02 04:00:00Z DEP-7" in words
    assert "After notes" not in words


async def test_new_lines_start_with_the_default_tax(visitor: Visitor, site: Client) -> None:
    await visitor.get("/settings/numbers")
    _, answer = await request_json(site, "GET", "/api/companies")
    setting = {name: str(value) for name, value in answer["data"]["setting"].items()}
    setting.pop("AUTO_SUBMIT_INVOICE")
    await visitor.post("/settings/numbers", {**setting, "tax_type": "02", "tax_rate": "8"})
    assert visitor.status == 200 and 'name="tax_rate" type="text" value="8"' in visitor.text
    await visitor.get("/invoices/new")
    fields = FormReader(visitor.text).fields
    names = ("/taxDetails/0/taxType", "/taxDetails/0/taxRate/percentage", "/unit/code")
    assert [fields[f"/lineItems/0{name}"] for name in names] == ["02", "8", "C62"]
    await visitor.post("/invoices/new", {**fields, "do": "add"})
    fields = FormReader(visitor.text).fields
    assert [fields[f"/lineItems/1{name}"] for name in names] == ["02", "8", "C62"]


@pytest.mark.parametrize(
    ("kind", "rate", "field"),
    [
        ("02", "", "tax_rate"),
        ("02", "much", "tax_rate"),
        ("02", "8,5", "tax_rate"),
        ("", "8", "tax_type"),
        ("99", "8", "tax_type"),
    ],
)
async def test_a_wrong_default_tax_is_shown_at_its_field(
    visitor: Visitor, kind: str, rate: str, field: str
) -> None:
    await visitor.get("/settings/numbers")
    fields = {"PREFIX_DIGIT_COUNT": "5", "tax_type": kind, "tax_rate": rate}
    await visitor.post("/settings/numbers", fields)
    assert visitor.status == 422 and f'id="{field}-wrong"' in visitor.text


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/buyer/name", "/buyer/name"),
        ("/buyer", "/buyer/tin"),
        ("/lineItems/0/taxDetails", "/lineItems/0/taxDetails/0/taxType"),
        ("/lineItems/0/classifications", "/lineItems/0/classifications/0"),
        ("/company/phone", "/company/phone"),
        ("$.Invoice[*].Signature", "$.Invoice[*].Signature"),
        ("", ""),
    ],
)
def test_a_message_is_at_the_field_of_its_member(path: str, field: str) -> None:
    shown = [*(f"/buyer{name}" for name in PARTY), *(f"/lineItems/0{name}" for name in LINE)]
    assert place_messages({path: "Wrong."}, shown) == {field: "Wrong."}
    both = {path: "Wrong.", field: "Very wrong."} if path != field else {path: "Wrong."}
    assert list(place_messages(both, shown)) == [field]


@pytest.mark.parametrize("end", ["/classifications/abc", "/taxDetails/abc/taxType"])
def test_a_member_of_a_stored_array_is_left_out(end: str) -> None:
    line = {"id": "1", "classifications": ["022"], "taxDetails": [{"taxType": "02"}]}
    fields = {"/lineItems/0/origin": "0", f"/lineItems/0{end}": "1"}
    assert build_body(fields, {"lineItems": [line]}, ZoneInfo("UTC")) == {"lineItems": [line]}


def test_a_stored_line_is_the_origin_of_one_line_of_the_form() -> None:
    stored = {"lineItems": [{"id": "1", "own": "x" * 100_000}, {"id": "2", "own": "y"}]}
    fields = {f"/lineItems/{number}/origin": "0" for number in range(100)}
    body = build_body({**fields, "/lineItems/7/origin": "1"}, stored, ZoneInfo("UTC"))
    assert [line.get("own", "")[:1] for line in body["lineItems"][:8]] == ["x", *[""] * 6, "y"]
    assert stored["lineItems"][0]["id"] == "1"
    assert len(json_codec.dumps(body)) < 110_000


def test_a_new_line_gets_an_id_that_no_other_line_has() -> None:
    """The first of three stored lines was removed, and two were added."""
    stored = {"lineItems": [{"id": str(number)} for number in (1, 2, 3)]}
    fields = {f"/lineItems/{number}/origin": str(number + 1) for number in range(2)}
    fields |= {f"/lineItems/{number}/description": "Tea" for number in (2, 3)}
    body = build_body(fields, stored, ZoneInfo("UTC"))
    assert [line["id"] for line in body["lineItems"]] == ["2", "3", "4", "5"]


def test_lists_of_a_form_have_few_entries() -> None:
    fields = MultiDict({f"/a{number}/9/9/9/9": "x" for number in range(90)})
    fields.extend({f"/b{number}/99": "x" for number in range(90)})
    request: Any = {FORM: fields}
    body = build_body(read_fields(request)[0], {}, ZoneInfo("UTC"))
    assert len(json_codec.dumps(body)) < 20_000 and "b1" not in body

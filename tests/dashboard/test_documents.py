"""Lists and pages of documents without a browser: what they name, in which currency, and files."""

import csv
import io
import re
from decimal import Decimal

import asyncpg
import pytest

from service.dashboard import pages
from service.dashboard.consolidation import MOST_PLANNED
from service.dashboard.formats import portal_field
from service.dashboard.spreadsheet import _make_cell
from service.documents.ubl import parties
from tests.api.test_exports import insert_copies
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_invoice, wait_for_status
from tests.api_requests import create_record, expect, request_json, submit
from tests.conftest import Client, Sandbox
from tests.dashboard.test_invoice_form import FormReader
from tests.fixtures_dashboard import SignIn
from tests.harness.bodies import STRANGER, buyer, last_month, line, note, now
from tests.harness.visitors import Visitor

DOLLARS = {"currencyCode": "USD", "exchangeRate": 4.5}


async def read_rows(visitor: Visitor, path: str) -> list[list[str]]:
    await visitor.get(path)
    assert visitor.status == 200 and visitor.text.startswith('\ufeff"')
    return list(csv.reader(io.StringIO(visitor.text.removeprefix("\ufeff"))))


async def test_a_member_named_by_a_superscript_is_named_on_the_page(
    admin: Visitor, site: Client
) -> None:
    invoice_id = await create_invoice(site, buyer={**buyer(), "²": "x"})
    await admin.get(f"/invoices/{invoice_id}")
    assert admin.status == 200 and "Buyer, ²" in admin.words


async def test_a_note_names_its_invoice_and_has_its_currency(member: Visitor, site: Client) -> None:
    invoice_id = await create_valid_invoice(site, code=4711, **DOLLARS)
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    note_id = (await create_record(site, path, **note()))["id"]
    await member.get("/notes")
    assert "Credit note" in member.words and "USD" in member.words
    assert "Invoice 4711 Aminah binti Salleh" in member.words and "MYR" not in member.words
    assert "Invoice 4711 , Aminah binti Salleh" in await member.read_words(f"/notes/{note_id}")
    assert f'href="/invoices/{invoice_id}"' in member.text
    assert "USD" in member.words and "MYR" not in member.words
    head, row = await read_rows(member, "/notes.csv")
    found = dict(zip(head, row, strict=True))
    assert (found["party"], found["currency"]) == ("Aminah binti Salleh", "USD")
    head, row = await read_rows(member, f"/notes/{note_id}.csv")
    assert row[head.index("currency")] == "USD"


async def test_a_plan_shows_the_tax_of_prepaid_and_rounded_sales(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    """A summary without lines shows the value of the sales, prepaid or to pay."""
    taxes = [{"taxType": "02", "taxRate": {"percentage": 8}}]
    sale = {
        "issueDateTime": last_month(),
        "buyer": {"type": "GENERAL_PUBLIC"},
        "lineItems": [line(unit={"price": 100, "count": 1}, taxDetails=taxes)],
    }
    await create_invoice(site, **sale, prepayment={"amount": 50}, payableRoundingAmount=-0.02)
    page = f"/consolidated/plan?month={last_month()[:7]}"
    words = await member.read_words(page)
    assert "Without tax MYR 100.00 Tax MYR 8.00 Rounding MYR −0.02" in words
    assert "Prepaid MYR −50.00 To pay MYR 57.98" in words
    await insert_copies(owner, await create_invoice(site, **sale), MOST_PLANNED)
    words = await member.read_words(page)
    assert "Without tax MYR 30,100.00 Amount MYR 32,507.98" in words


async def test_a_note_of_a_deleted_invoice_has_its_currency(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_valid_invoice(site, code=4711, **DOLLARS)
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    note_id = (await create_record(site, path, **note()))["id"]
    await owner.execute(
        "update document_states set status = 'Cancelled' where kind = 'invoice';"
        "update documents set deleted_at = now() where kind = 'invoice'"
    )
    for path in ("/notes", f"/notes/{note_id}"):
        await member.get(path)
        assert "Invoice 4711" in member.words
        assert "USD" in member.words and "MYR" not in member.words
    head, row = await read_rows(member, f"/notes/{note_id}.csv")
    assert row[head.index("currency")] == "USD"


async def test_a_document_in_another_currency_has_its_value_in_ringgit(
    member: Visitor, site: Client
) -> None:
    await member.get(f"/invoices/{await create_invoice(site, **DOLLARS)}")
    assert "To pay, in MYR MYR 471.42" in member.words
    assert "in MYR" not in await member.read_words(f"/invoices/{await create_invoice(site)}")


async def test_the_lines_of_a_document_are_a_csv_file(member: Visitor, site: Client) -> None:
    lines = [
        {"description": "=1+1", "unit": {"price": 1.5, "count": 2}},
        {"description": "Tea, black", "classifications": ["022"], "unit": {"price": 3, "count": 1}},
    ]
    invoice_id = await create_invoice(site, lineItems=lines)
    head, *rows = await read_rows(member, f"/invoices/{invoice_id}.csv")
    names = ("line", "description", "classifications", "unit_price", "amount", "currency")
    assert [[row[head.index(name)] for name in names] for row in rows] == [
        ["1", "'=1+1", "", "1.5", "3.00", "MYR"],
        ["2", "Tea, black", "022", "3", "3.00", "MYR"],
    ]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        *((f"{first}1", f"'{first}1") for first in "=+-@＝＋－＠"),
        ("\tx", "'\tx"),
        ("x\r=1", "x\r'=1"),
        ("\n=1", "'\n'=1"),
        (" =1", "' =1"),
        ("\u00a0@1", "'\u00a0@1"),
        ("tea;=1", "tea;'=1"),
        ("tea; =1", "tea;' =1"),
        ("tea,+1", "tea,'+1"),
        ("tea|@1", "tea|'@1"),
        ("tea\n-1", "tea\n'-1"),
        ("tea\n\nb", "tea\n\nb"),
        ("tea\t＝1", "tea\t'＝1"),
        ('tea";=1', "tea\";'=1"),
        (';"=1', ";'\"=1"),
        ("tea\u2028=1", "tea\u2028'=1"),
        ("10-20 + 5 = a@b", "10-20 + 5 = a@b"),
        ("", ""),
    ],
)
def test_a_text_with_a_formula_is_a_cell_without_one(text: str, cell: str) -> None:
    assert _make_cell(text) == cell


@pytest.mark.parametrize("number", [-5, Decimal("-12.50"), 0, Decimal("1E+3")])
def test_a_negative_number_is_a_number_of_a_spreadsheet(number: int | Decimal) -> None:
    assert Decimal(_make_cell(number)) == number


async def test_every_cell_of_a_file_is_quoted_and_holds_no_formula(
    member: Visitor, site: Client
) -> None:
    lines = [
        {"description": 'Tea;=1+1\n"=2', "unit": {"price": 3, "count": 2}},
        {"description": "＝1", "unit": {"price": 1, "count": 2}},
    ]
    invoice_id = await create_invoice(site, lineItems=lines, buyer=buyer(name="-Aminah"))
    head, *rows = await read_rows(member, f"/invoices/{invoice_id}.csv")
    cells = [(row[head.index("description")], row[head.index("amount")]) for row in rows]
    assert cells == [("Tea;'=1+1\n'\"=2", "6.00"), ("'＝1", "2.00")]
    quoted = r'("([^"]|"")*"(,|\r\n))+'
    assert re.fullmatch(quoted, member.text.removeprefix("\ufeff"))
    head, *rows = await read_rows(member, "/invoices.csv")
    assert [row[head.index("party")] for row in rows] == ["'-Aminah"]


async def test_a_sale_without_a_name_is_to_the_general_public(
    member: Visitor, site: Client
) -> None:
    await create_invoice(site, buyer={"type": "GENERAL_PUBLIC"})
    assert "General public" in await member.read_words("/invoices")


async def test_a_document_that_was_not_sent_is_not_called_rejected(
    member: Visitor, site: Client, sandbox: Sandbox
) -> None:
    await sandbox.fault("login", "refuse", status=400, code="invalid_client")
    invoice_id = await create_invoice(site, code=4711)
    assert (await submit(site, invoice_id))[0] == 400
    await member.get("/")
    assert "INV-04711 was not sent, or was not received by the portal" in member.words
    await member.get(f"/invoices/{invoice_id}")
    assert "the portal does not accept the sign-in of the service" in member.words
    assert "Not sent, or not received by the portal" in member.words
    assert member.words.count("invalid_client") <= 1 and "Rejected" not in member.words


async def test_failed_checks_of_all_kinds_need_attention_until_submitted(
    member: Visitor, site: Client
) -> None:
    late = await create_invoice(site, code=4711, issueDateTime=now(days=4))
    target = await create_valid_invoice(site)
    path = f"/api/invoices/{target}/adjustment-note"
    late_note = {"adjustmentNoteCode": 4712, "adjustmentNoteIssueDate": now(days=4)}
    note_id = (await create_record(site, path, **note(**late_note)))["id"]
    await submit(site, late)
    await submit(site, note_id, "/api/adjustment-notes")
    await member.get("/")
    forms = (("INV-04711", f"/invoices/{late}/edit"), ("CN-04712", f"/notes/{note_id}/edit"))
    for name, link in forms:
        assert f"{name} was not sent" in member.words and f'href="{link}"' in member.text
    assert (await member.read_words(f"/invoices/{late}")).count("(CF321)") == 1
    await request_json(site, "PUT", f"/api/invoices/{late}", json={"issueDateTime": now()})
    await submit(site, late)
    assert "INV-04711 was not sent" not in await member.read_words("/")


async def test_an_invalid_invoice_is_corrected_at_the_fields_of_its_form(
    member: Visitor, site: Client, sign_in: SignIn, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_invoice(site, code=4711, buyer=STRANGER)
    await submit(site, invoice_id)
    await wait_for_status(site, invoice_id, "Invalid")
    place = f"/invoices/{invoice_id}"
    reader = await sign_in(site, "reader")
    await reader.get("/")
    assert f'href="{place}">Open' in reader.text and "Correct it" not in reader.words
    await reader.get(place)
    assert not re.search(f'action="{place}/(submit|cancel|delete)"', reader.text)
    await member.get("/")
    assert f'href="{place}/edit">Correct it' in member.text
    fields = FormReader(await member.get(f"{place}/edit")).fields
    found = re.search(r'id="/buyer/tin-wrong">([^<]*)<', member.text)
    assert found and "ERR206" not in found[1] and "TIN" in found[1]
    await owner.execute(
        "update document_states set failed_outcome = jsonb_set(failed_outcome::jsonb, '{at}', $1)",
        '"2026-01-01T00:00:00.000+00:00"',
    )
    await member.post(f"{place}/edit", {**fields, "/buyer/tin": "C25845632020", "do": "save"})
    await member.get(f"{place}/edit")
    assert "/buyer/tin-wrong" not in member.text


async def test_only_people_with_the_right_have_a_link_to_the_settings(
    member: Visitor, site: Client, sign_in: SignIn, owner: asyncpg.Connection
) -> None:
    await owner.execute("update companies set phone = ''")
    admin = await sign_in(site, "admin")
    for visitor, has_link in ((member, False), (admin, True)):
        assert "The company profile is not complete" in await visitor.read_words("/")
        assert ("Complete it" in visitor.words) == has_link


async def test_a_link_shows_the_printed_page_until_it_is_revoked(
    member: Visitor, site: Client
) -> None:
    place = f"/invoices/{await create_invoice(site)}"
    await member.fill_in(place, {"purpose": "view"}, path=f"{place}/links")
    link = re.search(r'id="new-url">[^<]*(/shared/[^<]+)<', member.text)
    assert link
    async with Visitor(site.make_url("/")) as stranger:
        await stranger.get(link[1])
        assert stranger.status == 200 and "Aminah binti Salleh" in stranger.words
        await stranger.get(link[1].replace("/shared/", "/receipt/"))
        assert stranger.status == 404
        await member.get(place)
        revoke = re.search(rf'action="({place}/links/\d+/revoke)"', member.text)
        await member.post(revoke[1] if revoke else "")
        assert "The link is revoked." in member.words
        await stranger.get(link[1])
        assert stranger.status == 404


async def test_an_invoice_lists_its_notes(member: Visitor, site: Client) -> None:
    target, other = [await create_valid_invoice(site) for _ in range(2)]
    path = f"/api/invoices/{target}/adjustment-note"
    kinds = {"CREDIT_NOTE": "Credit note", "DEBIT_NOTE": "Debit note", "REFUND_NOTE": "Refund note"}
    note_id = 0
    for kind in kinds:
        note_id = (await create_record(site, path, **note(type=kind)))["id"]
        await member.get(f"/invoices/{target}")
        assert f'href="/notes/{note_id}"' in member.text and kinds[kind] in member.words
    await member.get(f"/invoices/{other}")
    assert "/notes/" not in member.text
    await request_json(site, "DELETE", f"/api/adjustment-notes/{note_id}")
    await member.get(f"/invoices/{target}")
    assert f'href="/notes/{note_id}"' not in member.text


async def test_a_page_of_large_requests_is_complete(member: Visitor, site: Client) -> None:
    """The operation that the page calls streams such a list."""
    for code in range(6):
        asked = {"invoiceCode": str(code), "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}
        remark = {"remark": "x" * 200_000}
        await create_record(site, "/api/einvoice-requests", **asked, address=remark)
    await member.get("/requests")
    assert member.status == 200 and member.is_page and "1 to 6 of 6" in member.words


async def test_an_answer_to_a_request_keeps_the_place_in_the_queue(
    member: Visitor, site: Client
) -> None:
    await create_invoice(site, type="PENDING_FINALIZE_INVOICE", code=4711, buyer=None)
    asked = {"invoiceCode": "4711", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}
    request_id = (await create_record(site, "/api/einvoice-requests", **asked))["id"]
    await member.get("/requests?status=Pending")
    assert f'action="/requests/{request_id}/reject?status=Pending&amp;page=1"' in member.text
    await member.post(f"/requests/{request_id}/reject?status=Pending&page=1")
    assert "The request is rejected." in member.words and "No request matches." in member.words
    _, record = await request_json(site, "GET", f"/api/einvoice-requests/{request_id}")
    assert record["status"] == "Reject"


async def test_an_approval_concerns_only_the_request_that_was_shown(
    site: Client, member: Visitor
) -> None:
    invoice_id = await create_invoice(site, type="PENDING_FINALIZE_INVOICE", code=4711, buyer=None)
    asked = {"invoiceCode": "4711", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}
    request_id = (await create_record(site, "/api/einvoice-requests", **asked))["id"]
    await member.get("/requests")
    shown = re.search(r'name="shown" value="([^"]+)"', member.text)
    assert shown
    place = f"/api/einvoice-requests/{request_id}"
    await expect(site, 200, "PUT", place, json={"name": "Siti"})
    await member.post(f"/requests/{request_id}/approve", {"shown": shown[1]})
    assert "Somebody has changed this" in member.words and "Siti" in member.words
    assert (await get_invoice(site, invoice_id))["buyer"] is None


async def test_the_page_says_why_a_second_request_is_not_approved(
    site: Client, member: Visitor
) -> None:
    await create_invoice(site, type="PENDING_FINALIZE_INVOICE", code=4711, buyer=None)
    asked = {"invoiceCode": "4711", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}
    first = (await create_record(site, "/api/einvoice-requests", **asked))["id"]
    await member.fill_in("/requests", path=f"/requests/{first}/approve")
    second = (await create_record(site, "/api/einvoice-requests", **asked))["id"]
    await member.post(f"/requests/{second}/approve")
    assert "The invoice already has the buyer of another request." in member.words


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("$.Invoice[*].AccountingCustomerParty[*].Party[*]", "Buyer"),
        ("$.Invoice[0].InvoiceLine[2].Item[0].Description", "Lines 3, item, description"),
        ("$.Invoice[0].IssueDate", "Issue date"),
        ("", ""),
        ("?", "?"),
    ],
)
def test_a_path_in_the_document_of_the_portal_is_shown_in_words(path: str, words: str) -> None:
    assert portal_field(path) == words


@pytest.mark.parametrize(
    ("path", "is_compressed"),
    [
        ("asset", True),
        ("/invoices.csv", False),
        ("/invoices/{}.csv", True),
        ("/api/openapi.json", True),
        ("/api/docs/docs.js", True),
        ("/invoices", False),
        ("/invoices/new", False),
        ("/sign-in", False),
    ],
)
async def test_only_responses_without_secrets_are_compressed(
    path: str, is_compressed: bool, member: Visitor, site: Client
) -> None:
    """The length of a compressed page would reveal parts of its form token."""
    invoice_id = await create_invoice(site)
    await member.get("/sign-in")
    found = re.search(r'href="(/assets/[^"]*\.css)"', member.text)
    target = found[1] if found and path == "asset" else path.format(invoice_id)
    texts: list[str] = []
    for accepted in ("gzip, deflate", "gzip;q=0", "identity", ""):
        headers = {"Accept-Encoding": accepted}
        async with member._session.get(f"{member._base}{target[1:]}", headers=headers) as response:
            texts.append(await response.text())
            sent = response.headers.get("Content-Encoding")
            assert sent == ("gzip" if is_compressed and accepted.startswith("gzip,") else None)
    assert not is_compressed or len(set(texts)) == 1


async def test_the_tin_is_optional_only_where_it_is(member: Visitor, site: Client) -> None:
    """It depends on the kind of the party, which the person chooses later."""
    await member.get("/invoices/new")
    label = member.text[member.text.index('<label for="/buyer/tin"') :].partition("</label>")[0]
    assert "optional" not in label and "A company in Malaysia needs it" in member.words
    kinds = set(pages.TEXTS["form"]["party_types"])
    assert kinds - set(parties.BUYER_TINS) == {"LOCAL_COMPANY"}
    assert kinds - set(parties.SUPPLIER_TINS) == {"LOCAL_COMPANY", "GOVERNMENT"}


async def test_hints_for_others_are_not_shown_to_an_accountant(
    member: Visitor, admin: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute("update api_keys set expires_at = now() + interval '3 days'")
    await owner.execute("select hold_sending('Run reconcile on pg-2.')")
    invoice_id = await create_invoice(site, buyer=buyer(favouriteColour="red"))
    await submit(site, invoice_id)
    for visitor, sees_hints in ((member, False), (admin, True)):
        assert ("API keys that expire" in await visitor.read_words("/")) == sees_hints
        assert "Sending is on hold" in visitor.words and "pg-2" not in visitor.words
        await visitor.get(f"/invoices/{invoice_id}")
        assert ("favouriteColour" in visitor.words) == sees_hints, visitor.words
        assert "because sending is on hold" in visitor.words and "pg-2" not in visitor.words


async def create_note(site: Client) -> int:
    """Create a note for a valid invoice, with members that the form does not have."""
    invoice_id = await create_valid_invoice(site, code=4711)
    body = note(payment={"mode": "03"}, payableRoundingAmount=-0.01)
    return (await create_record(site, f"/api/invoices/{invoice_id}/adjustment-note", **body))["id"]


async def test_an_edited_note_keeps_what_the_form_does_not_have(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    note_id = await create_note(site)
    fields = FormReader(await member.get(f"/notes/{note_id}/edit")).fields
    assert "Invoice 4711" in member.words and "52.37" in member.words
    assert fields["/type"] == "CREDIT_NOTE" and fields["/lineItems/0/origin"] == "0"
    fields |= {"/adjustmentNoteCode": "78", "/lineItems/0/unit/count": "0.5"}
    await member.post(f"/notes/{note_id}/edit", {**fields, "do": "save"})
    assert (member.status, member.path) == (200, f"/notes/{note_id}")
    assert "The changes are saved." in member.words
    _, found = await request_json(site, "GET", f"/api/adjustment-notes/{note_id}")
    assert (found["code"], found["line_items"][0]["unit"]["count"]) == (78, 0.5)
    assert (found["payment"], found["payable_rounding_amount"]) == ({"mode": "03"}, -0.01)
    actor = "select actor from audit_log where subject = $1 order by id desc limit 1"
    user_id = await owner.fetchval("select id from users where email like 'member%'")
    assert await owner.fetchval(actor, f"adjustment note {note_id}") == f"user {user_id}"


async def test_a_refused_change_of_a_note_is_shown_in_the_form(
    member: Visitor, site: Client
) -> None:
    note_id = await create_note(site)
    fields = FormReader(await member.get(f"/notes/{note_id}/edit")).fields
    await member.post(f"/notes/{note_id}/edit", {**fields, "/lineItems/0/unit/count": "900"})
    assert member.status == 422 and "exceeds" in member.words
    assert FormReader(member.text).fields["/lineItems/0/unit/count"] == "900"
    await member.post(f"/notes/{note_id}/edit", {**fields, "do": "add"})
    assert FormReader(member.text).fields["/lineItems/1/unit/count"] == "1"

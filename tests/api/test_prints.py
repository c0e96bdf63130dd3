"""The printed page and the QR code over HTTP: drafts, sent documents and hostile text."""

import base64
import hashlib
import re
import struct
import zlib
from html.parser import HTMLParser

import pytest
import segno

from tests.api.test_consolidated_invoices import create_consolidated, sale
from tests.api.test_consolidated_invoices import submit_until_valid as send_consolidated
from tests.api.test_notes import create_note, create_valid_note
from tests.api_invoices import create_invoice, create_submitted_invoice, create_valid_invoice
from tests.api_reads import get_documents, wait_for_status
from tests.api_requests import cancel_latest, expect, request_json, submit
from tests.conftest import Client, Sandbox, StartService
from tests.documents.sources import MILL
from tests.harness.bodies import STRANGER, buyer, line

#: Elements that have no end tag.
VOID = {"meta"}
HOSTILE = (
    "</style><script>alert(1)</script>\"'><img src=x onerror=alert(2)> "
    "\u202egnp &amp; 咖啡 ☕ فاتورة"
)
RICH = [
    line(
        discount={"rate": 5, "reason": "Volume"}, unit={"code": "KGM", "price": 1234.5, "count": 12}
    ),
    line(
        id="2",
        description="Delivery",
        charge={"amount": 12.5, "reason": "Lift"},
        classifications=["022", "010"],
    ),
    line(
        id="3",
        unit={"price": 0.00125, "count": 100000},
        taxDetails=[{"taxType": "06"}],
        originCountry="CHN",
    ),
    line(id="4", taxDetails=[{"taxType": "E"}], taxExemptionReason="Order 12 of 2025"),
]
ADJUSTED = {
    "allowances": [{"amount": 100, "reason": "Loyalty"}],
    "charges": [{"amount": 25.5, "reason": "Handling"}],
}


class Page(HTMLParser):
    """A parsed page: tags with attributes, texts, facts of definition lists, rows of tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.facts: list[list[str]] = []
        self.rows: list[list[str]] = []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in VOID or tag == "path" else [tag]
        if tag == "dt":
            self.facts.append(["", ""])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open or "title" in self.open:
            return
        self.texts.append(data)
        if {"dt", "dd"} & set(self.open):
            self.facts[-1]["dd" in self.open] += data.strip()
        if {"td", "th"} & set(self.open) and data.strip():
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data.strip()}".strip()

    def fact(self, name: str) -> str | None:
        """Return the first fact with a name, or None."""
        return next((text for label, text in self.facts if label == name), None)

    @property
    def content(self) -> tuple[list[list[str]], list[list[str]]]:
        """The facts and rows that do not depend on the status of the document."""
        return [fact for fact in self.facts if fact[0] not in {"TIN", *PORTALS}], self.rows


PORTALS = ("Unique identifier", "Validated", "Validation link")


async def get_page(api: Client, path: str) -> Page:
    async with api.get(f"{path}/print") as response:
        html = await response.text()
        assert response.status == 200, html
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        return Page(html)


async def get_invoice_page(api: Client, invoice_id: int) -> Page:
    return await get_page(api, f"/api/invoices/{invoice_id}")


# The status of the document


async def test_a_draft_is_marked_on_every_page_and_has_no_qr_code(api: Client) -> None:
    page = await get_invoice_page(api, await create_invoice(api, code=7))
    assert page.text.startswith("DRAFT DRAFT It has not been submitted")
    assert ("div", {"class": "across", "aria-hidden": "true"}) in page.tags
    assert page.fact("Number") == "INV-00007"
    assert "svg" not in dict(page.tags) and page.fact("Unique identifier") is None
    assert page.text.endswith("This document is not a validated e-Invoice.")


async def test_a_valid_invoice_shows_portal_identifiers_and_a_qr_code(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    (sent,) = await get_documents(api, invoice_id)
    page = await get_invoice_page(api, invoice_id)
    assert sent["validation_link"] == f"{sandbox.base}/{sent['uuid']}/share/{sent['long_id']}"
    assert page.fact("Unique identifier") == sent["uuid"]
    assert page.fact("Validation link") == sent["validation_link"]
    assert [attrs["href"] for tag, attrs in page.tags if tag == "a"] == [
        sent["validation_link"]
    ] * 2
    assert read_modules(re.findall("<svg.*</svg>", page.html, re.DOTALL)[0]) == code(
        sent["validation_link"]
    )
    assert page.text.startswith("Invoice Invois Number")
    assert page.text.endswith("This document is a visual presentation of the e-Invoice.")


async def test_a_document_before_validation_is_marked(api: Client, sandbox: Sandbox) -> None:
    await sandbox.settings(processing_seconds=60)
    invoice_id = await create_submitted_invoice(api)
    page = await get_invoice_page(api, invoice_id)
    assert page.text.startswith(
        "NOT VALIDATED NOT VALIDATED The tax authority's portal has received it, but"
    )
    assert page.text.endswith("This document is not a validated e-Invoice.")


async def test_an_invalid_document_is_printed_as_stored(api: Client) -> None:
    invoice_id = await create_submitted_invoice(api, buyer=STRANGER)
    await wait_for_status(api, invoice_id, "Invalid")
    changed = [line(description="Tea leaves")]
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json={"lineItems": changed})
    page = await get_invoice_page(api, invoice_id)
    assert page.text.startswith("NOT VALIDATED") and "Tea leaves" in page.text


async def test_a_cancelled_document_is_printed_as_sent_with_the_reason(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    before = await get_invoice_page(api, invoice_id)
    assert (await cancel_latest(api, invoice_id, reason="Wrong buyer"))[0] == 200
    changes = {"lineItems": [line(description="Tea leaves")], "code": 4711}
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json=changes)
    page = await get_invoice_page(api, invoice_id)
    assert page.text.startswith(
        "CANCELLED CANCELLED The e-Invoice has been cancelled and is void. Cancelled on"
    )
    assert ": Wrong buyer ." in page.text
    assert page.content == before.content
    assert page.fact("Unique identifier") == before.fact("Unique identifier")
    assert "svg" not in dict(page.tags) and page.fact("Validation link") is None


async def test_a_sent_document_keeps_the_companys_former_address(api: Client) -> None:
    sent, draft = await create_valid_invoice(api), await create_invoice(api)
    before = await get_invoice_page(api, sent)
    moves = {
        "address": "1 Lebuh Baru",
        "name": "Kopi Empat Sdn. Bhd.",
        "setting": {"INVOICE_PREFIX": "K-"},
    }
    _status, answer = await request_json(api, "GET", "/api/companies")
    moves["setting"] = {**answer["data"]["setting"], **moves["setting"]}
    await expect(api, 200, "PUT", "/api/companies", json=moves)
    assert (await get_invoice_page(api, sent)).html == before.html
    moved = await get_invoice_page(api, draft)
    assert "Kopi Empat Sdn. Bhd. 1 Lebuh Baru" in moved.text
    assert (moved.fact("Number") or "").startswith("K-")


# Contents


async def test_a_draft_prints_like_the_sent_document(api: Client) -> None:
    invoice_id = await create_invoice(
        api,
        lineItems=RICH,
        invoiceLevelAllowanceCharge=ADJUSTED,
        currencyCode="USD",
        exchangeRate=4.4512,
    )
    draft = await get_invoice_page(api, invoice_id)
    assert (await submit(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")
    assert (await get_invoice_page(api, invoice_id)).content == draft.content


async def test_lines_and_totals_are_printed_exactly(api: Client) -> None:
    page = await get_invoice_page(
        api, await create_invoice(api, lineItems=RICH, invoiceLevelAllowanceCharge=ADJUSTED, code=8)
    )
    assert page.rows == [
        ["Invoice INV-00008"],
        [
            "No.",
            "Description",
            "Class",
            "Quantity",
            "Unit price",
            "Discount / charge",
            "Amount (MYR)",
            "Tax (MYR)",
        ],
        [
            "1",
            "Coffee beans, 1 kg",
            "022",
            "12 kg",
            "1,234.50",
            "−740.70 Discount 5%: Volume",
            "14,073.30",
            "1,125.86 Service Tax 8%",
        ],
        [
            "2",
            "Delivery",
            "022, 010",
            "2 kg",
            "48.50",
            "+12.50 Charge: Lift",
            "109.50",
            "8.76 Service Tax 8%",
        ],
        [
            "3",
            "Coffee beans, 1 kg Origin: CHN",
            "022",
            "100,000",
            "0.00125",
            "",
            "125.00",
            "0.00 No tax",
        ],
        [
            "4",
            "Coffee beans, 1 kg Tax exemption: Order 12 of 2025",
            "022",
            "2 kg",
            "48.50",
            "",
            "97.00",
            "0.00 Tax exempt",
        ],
        ["Tax", "Taxable amount", "Tax"],
        ["Service Tax 8%", "14,182.80", "1,134.62"],
        ["No tax", "125.00", "0.00"],
        ["Tax exempt", "97.00", "0.00"],
        ["Sum of the lines", "14,404.80"],
        ["Discount: Loyalty", "−100.00"],
        ["Charge: Handling", "+25.50"],
        ["Total excluding tax", "14,330.30"],
        ["Total tax", "1,134.62"],
        ["Total including tax", "15,464.92"],
        ["Total payable (MYR)", "15,464.92"],
    ]


async def test_the_largest_amounts_are_printed_in_full(api: Client) -> None:
    items = [line(unit={"price": 999999999998.99, "count": 900}, taxDetails=[{"taxType": "06"}])]
    page = await get_invoice_page(api, await create_invoice(api, lineItems=items))
    assert page.rows[-1] == ["Total payable (MYR)", "899,999,999,999,091.00"]


async def test_times_are_printed_in_the_business_time_zone(api: Client) -> None:
    page = await get_invoice_page(
        api, await create_invoice(api, issueDateTime="2026-03-31T16:30:05Z")
    )
    assert page.fact("Date of issue") == "1 April 2026"
    assert page.fact("Time of issue") == "00:30:05 (UTC+08:00)"


async def test_the_company_is_the_buyer_of_a_self_billed_invoice(api: Client) -> None:
    changes = {
        "type": "SELF_BILLED_INVOICE",
        "buyer": None,
        "supplier": MILL,
        "currencyCode": "USD",
        "exchangeRate": 4.45,
    }
    page = await get_invoice_page(api, await create_valid_invoice(api, **changes))
    assert page.text.startswith("Self-billed Invoice Invois Bil Sendiri")
    assert re.search(
        "Seller Foshan Timber Export Co. Ltd. 88 Huanshi Road .* Buyer Kopi Tiga Sdn. Bhd.",
        page.text,
    )
    assert page.fact("Exchange rate") == "1 USD = 4.45 MYR"


async def test_totals_of_a_foreign_invoice_are_printed_in_myr(api: Client) -> None:
    lines = [line(), line(taxDetails=[{"taxType": "02", "taxRate": {"percentage": 6}}])]
    invoice_id = await create_invoice(api, lineItems=lines, currencyCode="USD", exchangeRate=4.4512)
    for _ in ("stored", "sent"):
        page = await get_invoice_page(api, invoice_id)
        assert page.rows[4:] == [
            ["Tax", "Taxable amount", "Tax"],
            ["Service Tax 8%", "97.00", "7.76"],
            ["Service Tax 6%", "97.00", "5.82"],
            ["Total excluding tax", "194.00"],
            ["Total tax", "13.58"],
            ["Total including tax", "207.58"],
            ["Total payable (USD)", "207.58"],
            ["Total tax in MYR", "60.45"],
            ["Total payable in MYR", "923.98"],
        ]
        await submit(api, invoice_id)
        await wait_for_status(api, invoice_id, "Valid")


async def test_prepayment_and_rounding_are_printed_before_and_after_sending(api: Client) -> None:
    prepayment = {"amount": 100, "date": "2026-09-02", "time": "04:00:00Z", "reference": "<b>"}
    invoice_id = await create_invoice(api, prepayment=prepayment, payableRoundingAmount=-0.01)
    for _ in ("stored", "sent"):
        page = await get_invoice_page(api, invoice_id)
        assert page.rows[-4:] == [
            ["Total including tax", "104.76"],
            ["Rounding", "−0.01"],
            ["Prepaid", "−100.00"],
            ["Total payable (MYR)", "4.75"],
        ]
        assert page.fact("Prepayment") == "2026-09-02 04:00:00Z, <b>"
        await submit(api, invoice_id)
        await wait_for_status(api, invoice_id, "Valid")


async def test_payment_and_delivery_are_printed_before_and_after_sending(api: Client) -> None:
    agreed = {
        "payment": {"mode": "03", "bankAccount": "512345678901", "terms": "30 days <b>net</b>"},
        "billingPeriod": {"start": "2026-09-01", "end": "2026-09-30", "frequency": "Monthly"},
        "delivery": {"name": "Gudang Shah Alam"},
        "references": [{"type": "BILL", "id": "DO-88123"}, {"type": "INCOTERMS", "id": "CIF"}],
    }
    invoice_id = await create_invoice(api, **agreed)
    for _ in ("stored", "sent"):
        page = await get_invoice_page(api, invoice_id)
        assert page.fact("Payment by") == "Bank Transfer"
        assert page.fact("Bank account") == "512345678901"
        assert page.fact("Terms of payment") == "30 days <b>net</b>"
        assert page.fact("Bill reference") == "DO-88123"
        assert page.fact("Billing period") == "2026-09-01 – 2026-09-30, Monthly"
        assert page.fact("Delivery to") == "Gudang Shah Alam"
        await submit(api, invoice_id)
        await wait_for_status(api, invoice_id, "Valid")


async def test_a_note_names_its_original(api: Client) -> None:
    invoice = await create_valid_invoice(api)
    (original,) = await get_documents(api, invoice)
    for invoice_id in (
        await create_note(api, invoice, type="DEBIT_NOTE"),
        await create_valid_note(api, invoice, type="DEBIT_NOTE"),
    ):
        page = await get_page(api, f"/api/adjustment-notes/{invoice_id}")
        assert "Debit Note Nota Debit" in page.text
        assert re.search(rf"Original document INV-\d+ {original['uuid']}", page.text)
        assert "Buyer Aminah binti Salleh" in page.text


async def test_a_consolidated_invoice_has_the_general_public_as_buyer(start: StartService) -> None:
    api = await start(CONSOLIDATION_DAYS="40")
    await sale(api)
    invoice_id = await create_consolidated(api)
    draft = await get_page(api, f"/api/consolidated-invoices/{invoice_id}")
    await send_consolidated(api, invoice_id)
    page = await get_page(api, f"/api/consolidated-invoices/{invoice_id}")
    assert "Buyer General Public" in page.text and page.rows[2][2] == "004"
    assert page.content == draft.content and draft.text.startswith("DRAFT")
    assert page.text.startswith("Consolidated e-Invoice e-Invois Disatukan Number")
    assert page.rows[0] == [f"Consolidated e-Invoice {page.fact('Number')}"]


async def test_a_consolidated_self_billed_invoice_has_its_own_title(start: StartService) -> None:
    api = await start(CONSOLIDATION_DAYS="40")
    await sale(api, self_billed=True)
    invoice_id = await create_consolidated(api, type="CONSOLIDATED_SELF_BILLED_INVOICE")
    page = await get_page(api, f"/api/consolidated-invoices/{invoice_id}")
    assert "Consolidated Self-billed e-Invoice e-Invois Bil Sendiri Disatukan" in page.text


async def test_an_invoice_without_a_buyer_can_be_printed(api: Client) -> None:
    page = await get_invoice_page(
        api, await create_invoice(api, type="PENDING_FINALIZE_INVOICE", buyer=None)
    )
    assert "Buyer Not named yet" in page.text and page.text.startswith("DRAFT")


async def test_a_minimal_invoice_can_be_printed(api: Client) -> None:
    items = [{"description": "Tea", "unit": {"price": 1, "count": 1}}]
    page = await get_invoice_page(api, await create_invoice(api, lineItems=items, buyer={}))
    assert page.rows[2] == ["1", "Tea", "–", "1", "1.00", "1.00", "–"]


# Content security


async def test_hostile_texts_are_escaped_and_isolated(api: Client) -> None:
    place = {"line1": HOSTILE, "city": HOSTILE[:50], "state": "10", "country": "MYS"}
    party = buyer(
        name=HOSTILE, contactNumber=HOSTILE[:40], email=HOSTILE, tin=HOSTILE[:40], address=place
    )
    items = [
        line(id=HOSTILE[:50], description=HOSTILE, discount={"amount": 1, "reason": HOSTILE}),
        line(taxDetails=[{"taxType": "E"}], taxExemptionReason=HOSTILE),
    ]
    adjusted = {"allowances": [{"amount": 1, "reason": HOSTILE}]}
    page = await get_invoice_page(
        api,
        await create_invoice(
            api, buyer=party, lineItems=items, invoiceLevelAllowanceCharge=adjusted
        ),
    )
    assert {"script", "img", "link", "iframe"} & {tag for tag, _ in page.tags} == set()
    assert {
        name
        for _, attrs in page.tags
        for name in attrs
        if name.startswith("on") or name in ("style", "src")
    } == set()
    assert page.html.count("<style") == 1
    assert page.texts.count(HOSTILE) == 7
    assert (
        len(re.findall(r"<bdi>[^<]*\u202e[^<]*</bdi>", page.html)) == page.html.count("\u202e") >= 7
    )


async def test_the_content_security_policy_allows_only_the_own_style(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    async with api.get(f"/api/invoices/{invoice_id}/print") as response:
        html, policy = await response.text(), response.headers["Content-Security-Policy"]
        assert response.headers["Cache-Control"] == "private, no-store"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    (style,) = re.findall("<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    (saved,) = [
        attrs["content"]
        for _, attrs in Page(html).tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert saved and policy.startswith(saved + "; ")
    assert "url(" not in style and "@import" not in style


# The QR code


async def fetch(api: Client, path: str) -> tuple[int, str, bytes]:
    async with api.get(path) as response:
        return response.status, response.headers["Content-Type"], await response.read()


async def test_the_qr_code_of_a_valid_document_contains_its_link(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    (sent,) = await get_documents(api, invoice_id)
    status, kind, svg = await fetch(api, f"/api/invoices/{invoice_id}/qr.svg")
    assert (status, kind) == (200, "image/svg+xml")
    assert read_modules(svg.decode()) == code(sent["validation_link"])
    status, kind, png = await fetch(api, f"/api/invoices/{invoice_id}/qr.png")
    assert (status, kind) == (200, "image/png")
    assert pixels(png) == code(sent["validation_link"])


async def test_notes_and_consolidated_invoices_have_qr_codes(start: StartService) -> None:
    api = await start(CONSOLIDATION_DAYS="40")
    await sale(api)
    invoice_id = await create_consolidated(api)
    await send_consolidated(api, invoice_id)
    for path in (
        f"/api/consolidated-invoices/{invoice_id}",
        f"/api/adjustment-notes/{await create_valid_note(api, await create_valid_invoice(api))}",
    ):
        _, (sent,) = await request_json(api, "GET", f"{path}/submitted-documents")
        found = await fetch(api, f"{path}/qr.svg")
        assert read_modules(found[2].decode()) == code(sent["validation_link"])


async def test_a_document_that_is_not_valid_has_no_qr_code(api: Client, sandbox: Sandbox) -> None:
    draft, valid = await create_invoice(api), await create_valid_invoice(api)
    note = await create_note(api, valid)
    wrong = await create_submitted_invoice(api, buyer=STRANGER)
    await wait_for_status(api, wrong, "Invalid")
    gone = await create_valid_invoice(api)
    assert (await cancel_latest(api, gone))[0] == 200
    paths = [f"/api/invoices/{invoice_id}" for invoice_id in (draft, wrong, gone)]
    for path, noun in (
        *((path, "invoice") for path in paths),
        (f"/api/adjustment-notes/{note}", "adjustment note"),
    ):
        for kind in ("svg", "png"):
            message = f"The {noun} is not Valid, so it has no validation link."
            body = {"message": message, "code": "not_found"}
            assert await request_json(api, "GET", f"{path}/qr.{kind}") == (404, body), path


@pytest.mark.parametrize("part", ["print", "qr.svg", "qr.png"])
async def test_a_head_request_has_the_headers_of_a_get_request(api: Client, part: str) -> None:
    path = f"/api/invoices/{await create_valid_invoice(api)}/{part}"
    async with api.get(path) as got, api.head(path) as head:
        assert head.status == 200 and await head.read() == b""
        for name in ("Content-Type", "Cache-Control"):
            assert head.headers[name] == got.headers[name]


# Parsing pictures


def code(link: str) -> list[list[bool]]:
    """Return the modules of a link's QR code with its quiet zone; dark ones are true."""
    return [
        [bool(module) for module in row]
        for row in segno.make_qr(link, error="m").matrix_iter(border=4)
    ]


def read_modules(svg: str) -> list[list[bool]]:
    """Return the modules that the paths of a picture draw: runs of dark modules, row by row."""
    if "viewBox" in svg:
        (size,) = map(int, re.findall(r'viewBox="0 0 (\d+) \1"', svg)[:1])
    else:
        size = int(re.findall(r'width="(\d+)"', svg)[0]) // 8
    modules = [[False] * size for _ in range(size)]
    ((_, runs),) = re.findall(r'<path (?=[^>]*stroke="(#000)")[^>]*\bd="([^"]+)"', svg)
    x, y = 0, 0
    for step, numbers in re.findall(r"([Mmh])([^Mmh]+)", runs):
        by = [float(number) for number in re.findall(r"-?[\d.]+", numbers)]
        if step == "h":
            modules[int(y)][int(x) : int(x + by[0])] = [True] * int(by[0])
            x += by[0]
        else:
            x, y = by if step == "M" else (x + by[0], y + by[1])
    return modules


def pixels(png: bytes, scale: int = 8) -> list[list[bool]]:
    """Return the modules of a picture with one bit per pixel, sampled in their middle."""
    width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", png[16:29])
    assert (depth, colours, interlaced) == (1, 0, 0) and width == height
    start, data = 8, b""
    while start < len(png):
        length, kind = struct.unpack(">I4s", png[start : start + 8])
        data += png[start + 8 : start + 8 + length] if kind == b"IDAT" else b""
        start += 12 + length
    data, stride = zlib.decompress(data), 1 + -(-width // 8)
    rows, above = [], bytes(stride - 1)
    for at in range(0, len(data), stride):
        assert data[at] in (0, 2)  # filter type: none, or difference to the row above
        row = data[at + 1 : at + stride]
        above = (
            row
            if data[at] == 0
            else bytes((one + up) % 256 for one, up in zip(row, above, strict=True))
        )
        rows.append(above)
    middles = range(scale // 2, width, scale)
    return [[not rows[y][x // 8] >> 7 - x % 8 & 1 for x in middles] for y in middles]

"""Every document type from request to Valid, and the document that the portal then has."""

import hashlib
import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from service import json_codec
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_json
from tests.api_requests import CERTIFICATE, create_record, expect
from tests.conftest import Client, Sandbox, StartService, make_company, some_long, until
from tests.documents.sources import EXAMPLE, GOLDEN, ISSUER, ISSUERS, PUBLIC, SELF_BILLED, line, tax
from tests.harness.bodies import last_month, now
from tests.harness.certificates import issued
from tests.harness.environments import GENEROUS
from tests.harness.paths import DOCUMENTS

#: Columns of a company that no request can set.
UNSET = ("bank_account", "exporter_certified_number")

VERSIONS = ("1.0", "1.1")  # without and with a signature, which the sandbox verifies
KINDS = {
    "invoice": "01",
    "credit_note": "02",
    "debit_note": "03",
    "refund_note": "04",
    "self_billed_invoice": "11",
    "self_billed_credit_note": "12",
    "self_billed_debit_note": "13",
    "self_billed_refund_note": "14",
    "consolidated_invoice": "01",
    "consolidated_self_billed_invoice": "11",
    "everything": "01",
}
#: Every type in the first version, and three of them in the second in every run.
CASES = some_long([(name, version) for version in VERSIONS for name in KINDS], len(KINDS) + 3)


@pytest.fixture
async def service(
    environment: dict[str, str], start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> Any:
    """Return a function that starts a service for the company of a golden document."""

    async def make(name: str, version: str) -> Client:
        facts = ISSUERS.get(name, ISSUER)
        company = await make_company(environment, **facts)
        statement = (
            "update companies set bank_account = $2, exporter_certified_number = $3 where id = $1"
        )
        await owner.execute(statement, company.id, *[facts[column] for column in UNSET])
        await sandbox.settings(strict_totals=True)
        api = await start(company, **GENEROUS, PORTAL_DOCUMENT_VERSION=version)
        pair = issued(facts["tin_code"], facts["registration_number"]).pair
        await expect(api, 200, "PUT", CERTIFICATE, json=pair)
        return api

    return make


@pytest.mark.parametrize("name, version", CASES)
async def test_document_of_every_type_becomes_valid(
    service: Any, sandbox: Sandbox, name: str, version: str
) -> None:
    api = await service(name, version)
    path, originals = await store(api, name)
    found = await valid(api, path)
    sent = await at_portal(sandbox, found)
    assert sent["InvoiceTypeCode"] == [{"_": KINDS[name], "listVersionID": version}]
    assert references(sent) == originals
    assert ("UBLExtensions" in sent) is (version == "1.1")
    golden: dict[str, Any] = json.loads(
        (DOCUMENTS / f"{name}.json").read_bytes(), parse_float=Decimal
    )["Invoice"][0]
    assert remove_variable_elements(sent) == remove_variable_elements(golden)


async def store(api: Client, name: str) -> tuple[str, list[tuple[str, str]]]:
    """Create a record of a type. Return (path, [(uuid, number)] of the originals it refers to)."""
    source = GOLDEN[name]
    if name.startswith("consolidated"):
        return await consolidate(api, source["type"]), []
    if name.endswith("note"):
        return await create_note(api, source)
    return f"/api/invoices/{await create_invoice(api, **request(source))}", []


def request(source: dict[str, Any]) -> dict[str, Any]:
    """Return the request body of a source, with JSON numbers."""
    return json.loads(json_codec.dumps({**dict.fromkeys(("buyer", "supplier")), **source}))


async def create_note(api: Client, source: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """Create a note and its original. Return (path, [(uuid, number)] of the original)."""
    original = SELF_BILLED if source["selfBilled"] else EXAMPLE
    invoice_id = await create_valid_invoice(api, **request(original))
    number = ("SB-" if source["selfBilled"] else "INV-") + (
        await get_json(api, f"/api/invoices/{invoice_id}")
    )["invoice_code"].zfill(5)
    note = await create_record(
        api,
        f"/api/invoices/{invoice_id}/adjustment-note",
        targetInvoiceType=original["type"],
        type=source["type"],
        adjustmentNoteCode=1,
        adjustmentNoteIssueDate=now(),
        lineItems=request(source)["lineItems"],
    )
    return f"/api/adjustment-notes/{note['id']}", [
        ((await get_documents(api, invoice_id))[0]["uuid"], number)
    ]


async def consolidate(api: Client, kind: str) -> str:
    """Consolidate three consecutive sales of last month. Return the path of the result."""
    self_billed = kind == "CONSOLIDATED_SELF_BILLED_INVOICE"
    invoice_type, member = (
        ("SELF_BILLED_INVOICE", "supplier") if self_billed else ("INVOICE", "buyer")
    )
    item = request(line(unit={"code": "H87", "price": 50, "count": 1}, taxDetails=[tax("02", 8)]))
    for code in (500, 501, 502):
        parties = {"buyer": None, "supplier": None, member: PUBLIC}
        sale = {"type": invoice_type, "code": code, "issueDateTime": last_month()}
        await create_invoice(api, **sale, lineItems=[item], **parties)
    body = {"type": kind, "code": 1, "issueDateTime": now(), "month": last_month()[:7]}
    made = await create_record(api, "/api/consolidated-invoices", **body)
    return f"/api/consolidated-invoices/{made['id']}"


async def valid(api: Client, path: str) -> dict[str, Any]:
    """Submit a record and return its submitted document once that is Valid."""
    await expect(api, 200, "POST", f"{path}/submit-to-portal", json={})
    await until(lambda: get_json(api, path), lambda found: found["status"] in ("Valid", "Invalid"))
    (found,) = await get_json(api, f"{path}/submitted-documents")
    assert found["status"] == "Valid", found["errors"]
    return found


async def at_portal(sandbox: Sandbox, found: dict[str, Any]) -> dict[str, Any]:
    """Return the document at the portal, after a check of its hash."""
    path = f"documents/{found['uuid']}/raw"
    text = (await sandbox.request(ISSUER["tin_code"], "GET", path))["document"]
    assert hashlib.sha256(text.encode()).hexdigest() == found["document_hash"]
    return json.loads(text, parse_float=Decimal)["Invoice"][0]


def references(invoice: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (uuid, number) of each original that an invoice refers to."""
    found = [
        each
        for entry in invoice.get("BillingReference", ())
        for each in entry.get("InvoiceDocumentReference", ())
    ]
    return [(each["UUID"][0]["_"], each["ID"][0]["_"]) for each in found]


#: Elements that depend on the day, the number or the signature.
VARYING = {"ID", "IssueDate", "IssueTime", "InvoiceTypeCode", "UBLExtensions", "Signature"}


def remove_variable_elements(invoice: dict[str, Any]) -> dict[str, Any]:
    """Return the elements of an invoice that are the same on every day."""
    kept = {name: member for name, member in invoice.items() if name not in VARYING}
    kept["BillingReference"] = [
        each for each in kept.get("BillingReference", ()) if "InvoiceDocumentReference" not in each
    ]
    for delivery in kept.get("Delivery", ()):
        del delivery["Shipment"][0]["ID"]
    if "General Public" in str(kept):
        (period,) = kept.pop("InvoicePeriod")
        assert period["Description"] == [{"_": "Monthly"}]
    return kept


async def test_consolidated_document_names_the_month_of_its_sales(
    service: Any, sandbox: Sandbox
) -> None:
    api = await service("consolidated_invoice", VERSIONS[0])
    sent = await at_portal(
        sandbox, await valid(api, await consolidate(api, "CONSOLIDATED_INVOICE"))
    )
    last = datetime.now(ZoneInfo("Asia/Kuala_Lumpur")).replace(day=1) - timedelta(days=1)
    (period,) = sent["InvoicePeriod"]
    assert period["StartDate"] == [{"_": f"{last:%Y-%m}-01"}]
    assert period["EndDate"] == [{"_": f"{last:%Y-%m-%d}"}]

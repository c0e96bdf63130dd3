"""One row per rule of the portal: preflight names what the sandbox refuses, with the same code.

A row violates one rule by its request. Where no request can, it changes a row of the database or
the document. The document is sent to the sandbox directly, without the service.
"""

import copy
import json
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from service import json_codec
from service.db.pool import connected_pool
from service.db.statements import sql
from service.db.transactions import Database
from service.documents.kind import INVOICE
from service.documents.ubl import document
from service.submission.locked_documents import lock_document
from tests.api_invoices import create_invoice, create_one_of_each, create_valid_invoice
from tests.api_reads import get_documents, wait_for_status
from tests.api_requests import (
    cancel_latest,
    create_record,
    expect,
    list_paths,
    request_json,
    submit,
)
from tests.conftest import Client, Company, Sandbox, StartService, make_company, some_long
from tests.documents.sources import GOLDEN, ISSUER, ISSUERS
from tests.fixtures_sandbox import Portal, element, put
from tests.fixtures_specification import Context
from tests.harness.bodies import VALID, buyer, invoice, line, load_bodies, note, now
from tests.harness.environments import GENEROUS

SELLER = "AccountingSupplierParty.0.Party.0"
CUSTOMER = "AccountingCustomerParty.0.Party.0"
ITEM = "InvoiceLine.0.Item.0"
NUMBER = "registration/number"
RESTAURANT = {
    "type": "LOCAL_COMPANY",
    "tin": "C5510387420",
    "registration": {"type": "BRN", "number": "202101033579"},
}
ABROAD = {"line1": "88 Huanshi Road", "city": "Foshan", "country": "CHN"}
MILL = buyer(type="FOREIGN_COMPANY", registration={}, address=ABROAD)
DOLLARS = {"currencyCode": "USD", "exchangeRate": 4.2155}


def without(member: str, **changes: Any) -> dict[str, Any]:
    """Return a buyer without a member, which may be one of its address: `address.city`."""
    party = copy.deepcopy(buyer(**changes))
    name, _, inner = member.partition(".")
    if inner:
        del party[name][inner]
    else:
        del party[name]
    return party


def buyer_at(**changes: Any) -> dict[str, Any]:
    return buyer(address={**buyer()["address"], **changes})


UNCLASSIFIED = {name: member for name, member in line().items() if name != "classifications"}


def exempt(reason: str) -> list[dict[str, Any]]:
    return [line(taxDetails=[{"taxType": "E"}], taxExemptionReason=reason)]


def self_billed(**changes: Any) -> dict[str, Any]:
    return {"type": "SELF_BILLED_INVOICE", "buyer": None, "supplier": {**MILL, **changes}}


@dataclass
class Row:
    """A violation of one rule.

    `body` violates it in the request, the statement `store` in the database, `put` in the document.
    The statement has no condition: it is for the one company or invoice of the test.
    `refused` are the sandbox's codes if they differ from ours; None for a rule without a code.
    """

    code: str
    path: str
    body: dict[str, Any] = field(default_factory=dict)
    store: str = ""
    put: tuple[Any, ...] = ()
    refused: set[str | None] | None = None

    @property
    def name(self) -> str:
        return f"{self.code} {self.path or self.put[0]}"


UNCODED: set[str | None] = {None}


def of_company(code: str, column: str, value: str = " ", **more: Any) -> Row:
    """Return a violation by a stored column of the company."""
    store = f"update companies set {column} = '{value}'"
    return Row(code, f"/company/{column}", store=store, **more)


def of_buyer(code: str, member: str, refused: set[str | None] | None = None, **changes: Any) -> Row:
    return Row(code, f"/buyer/{member}", {"buyer": buyer(**changes)}, refused=refused)


def without_member(code: str, member: str) -> Row:
    """Return a violation by the absence of a member of the buyer."""
    return Row(code, f"/buyer/{member.replace('.', '/')}", {"buyer": without(member)})


def stored(code: str, column: str, path: str, value: str, body: Any = None, **more: Any) -> Row:
    """Return a violation by a string at a path in a JSON column of the invoice."""
    place, member = (
        path.replace(",", "/"),
        f"jsonb_set({column}::jsonb, '{{{path}}}', '\"{value}\"')",
    )
    names = {"buyer": "buyer", "line_items": "lineItems"}
    store = f"update documents set {column} = {member}"
    return Row(code, f"/{names[column]}/{place}", body or {}, store, **more)


ROWS = (
    Row("CF321", "/issueDateTime", {"issueDateTime": now(hours=-1)}),
    Row("CF321", "/issueDateTime", {"issueDateTime": now(hours=73)}),
    without_member("CF333", "name"),
    of_company("CF334", "name"),
    of_company("CF336", "country", put=(f"{SELLER}.PostalAddress.0.Country", None)),
    without_member("CF337", "address.country"),
    of_company("CF339", "city"),
    without_member("CF340", "address.city"),
    of_company("CF342", "state"),
    without_member("CF343", "address.state"),
    of_company("CF345", "address"),
    without_member("CF346", "address.line1"),
    of_company("CF348", "phone"),
    without_member("CF349", "contactNumber"),
    of_buyer("CF358", "tin", **{**RESTAURANT, "tin": ""}),
    of_buyer("CF324", NUMBER, registration={"type": "NRIC", "number": "90010110556"}),
    of_buyer("CF324", NUMBER, registration={"type": "NRIC", "number": "900101.10.5566"}),
    Row(
        "CF364",
        "/lineItems/0/classifications",
        {"lineItems": [UNCLASSIFIED]},
        put=(f"{ITEM}.CommodityClassification", None),
    ),
    of_buyer("CF403", "email", email="aminah@example.com; home@example.com"),
    of_buyer("CF404", "email", email="none"),
    of_buyer("CF404", "email", email="NA"),
    of_buyer("CF404", "email", email="aminah..salleh@example.com"),
    of_buyer("CF404", "email", email=".aminah@example.com"),
    of_buyer("CF404", "email", email="aminah.@example.com"),
    of_buyer("CF404", "email", email="aminah@example..com"),
    of_company("CF404", "email", "NA"),
    of_company("CF404", "email", "a@b@c.example"),
    of_company("CF407", "tourism_tax_registration_number", "1234/56"),
    of_buyer("CF410", "contactNumber", contactNumber="+60/12/345/6789"),
    of_buyer("CF410", "contactNumber", contactNumber="+60123456789 ext 12"),
    of_buyer("CF410", "contactNumber", contactNumber="NA"),
    of_buyer("CF366", "contactNumber", contactNumber="99123"),
    Row(
        "Format",
        "/references/0/id",
        {"references": [{"type": "INCOTERMS", "id": "F.B"}]},
        refused=UNCODED,
    ),
    of_company("CF410", "phone", "+60 3/1234 5678"),
    stored("CV302", "buyer", "address,state", "88"),
    stored("CV302", "buyer", "address,country", "MYA"),
    of_company("CV302", "state", "88"),
    of_company("CV302", "msic_code", "5610"),
    Row("CV302", "/currencyCode", DOLLARS, store="update documents set currency_code = 'RUR'"),
    stored(
        "CV302",
        "line_items",
        "0,classifications,1",
        "999",
        {"lineItems": [line(classifications=["022", "021"])]},
    ),
    stored("CV302", "line_items", "0,unit,code", "kgm"),
    stored("CV302", "line_items", "0,originCountry", "MY"),
    stored("CV302", "line_items", "0,taxDetails,0,taxType", "09"),
    Row("CV317", "/buyer/address/state", {"buyer": buyer_at(state="17")}),
    of_company("CV317", "state", "17"),
    of_buyer("ERR206", NUMBER, **{**RESTAURANT, "registration": {"type": "BRN", "number": "NA"}}),
    Row("ERR208", "/supplier/tin", self_billed(tin="EI00000000020")),
    Row(
        "ERR236",
        "/lineItems/0/classifications",
        {"buyer": {"type": "GENERAL_PUBLIC"}},
        refused={"ERR236", "CV317"},
    ),
    of_buyer("ERR236", NUMBER, **{**RESTAURANT, "tin": "EI00000000010", "registration": {}}),
    of_buyer("ERR406", "tin", **{**RESTAURANT, "tin": "C551038742"}),
    of_buyer("ERR406", "tin", tin="OG40125678090", registration={}),
    of_buyer("ERR406", "tin", **{**RESTAURANT, "tin": "none"}),
    Row(
        "Format",
        "/supplier/tin",
        self_billed(type="LOCAL_INDIVIDUAL", tin="SG40125678090"),
        refused={"Error05"},
    ),
    of_buyer(
        "Format",
        NUMBER,
        UNCODED,
        **{**RESTAURANT, "registration": {"type": "BRN", "number": "2" * 21}},
    ),
    of_buyer("Format", NUMBER, UNCODED, registration={"type": "ARMY", "number": "T" * 13}),
    of_buyer("Format", "sstRegistrationNumber", UNCODED, sstRegistrationNumber="W10/1901/32000458"),
    Row(
        "Format", "/buyer/address/zipCode", {"buyer": buyer_at(zipCode="MY-40150")}, refused=UNCODED
    ),
    Row("Format", "/buyer/address/zipCode", {"buyer": buyer_at(zipCode="401500")}, refused=UNCODED),
    of_company("Format", "zip_code", "KL 50480", refused=UNCODED),
    Row(
        "Format",
        "/lineItems/0/taxExemptionReason",
        {"lineItems": exempt("Certificate #14")},
        refused=UNCODED,
    ),
    Row("Required", "/lineItems/0/taxExemptionReason", {"lineItems": exempt("")}, refused=UNCODED),
    stored("Required", "line_items", "0,description", " ", refused=UNCODED),
    of_company(
        "Required",
        "msic_code",
        "",
        refused=UNCODED,
        put=(f"{SELLER}.IndustryClassificationCode", None),
    ),
    of_company("Required", "business_activity_description", refused=UNCODED),
    Row(
        "Required",
        "/exchangeRate",
        DOLLARS,
        store="update documents set exchange_rate = null",
        put=("TaxExchangeRate", None),
        refused={"Error07"},
    ),
)

#: Rules that no request can violate: the portal's code, and the change to the document.
NEVER = (
    Row("CF378", "", put=("DocumentCurrencyCode", None)),
    Row("CF345", "", put=(f"{SELLER}.PostalAddress.0.AddressLine.0.Line.0._", "x" * 151)),
    Row("CV316", "", put=(f"{CUSTOMER}.PostalAddress.0.Country.0.IdentificationCode.0._", "SGP")),
    Row("DC501", "", DOLLARS, put=("TaxTotal.0.TaxAmount.0.currencyID", "MYR")),
    Row("DC502", "", DOLLARS, put=("LegalMonetaryTotal.0.PayableAmount.0.currencyID", "MYR")),
    Row("DC511", "", DOLLARS, put=("TaxExchangeRate.0.TargetCurrencyCode.0._", "USD")),
    Row("Format", "", put=("ID.0._", "x" * 51), refused=UNCODED),
    Row("Format", "", put=(f"{ITEM}.Description.0._", "x" * 301), refused=UNCODED),
    Row(
        "Format",
        "",
        put=("AdditionalDocumentReference", [{"ID": element("CIFF")}]),
        refused=UNCODED,
    ),
)


def row_name(row: Row) -> str:
    return row.name


async def check(
    api: Client, record_id: int, place: str = "/api/invoices", **body: Any
) -> dict[str, Any]:
    """Return the preflight report of a record."""
    report = await expect(api, 200, "POST", f"{place}/{record_id}/preflight", json=body)
    assert report["ready"] is (report["errors"] == [])
    return report


def places(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (code, path) of each error of a report."""
    return [(each["code"], each["path"]) for each in report["errors"]]


@pytest.fixture
async def portal(sandbox: Sandbox, company: Company) -> Portal:
    """A client of the sandbox that is logged in as the company."""
    return await Portal(sandbox.client).login(taxpayer="C20880050010")


async def refusals(portal: Portal, root: dict[str, Any]) -> set[str | None]:
    """Send a document to the portal and return the codes of its findings."""
    answer = await (await portal.submit(root)).json()
    if answer["rejectedDocuments"]:
        return {each["code"] for each in answer["rejectedDocuments"][0]["error"]["details"]}
    results = (await portal.details(answer["acceptedDocuments"][0]["uuid"]))["validationResults"]
    errors = [step["error"] for step in results["validationSteps"] if step["status"] == "Invalid"]
    return {inner["errorCode"] for error in errors for inner in error["innerError"]}


async def build(
    environment: dict[str, str], company: Company, invoice_id: int, row: Row
) -> dict[str, Any]:
    """Build the document of a record without checks, and apply the change of the row."""
    async with (
        connected_pool(environment["DATABASE_URL"], 1) as pool,
        Database(pool).company(company.id) as conn,
    ):
        record = await lock_document(conn, INVOICE, invoice_id)
        issuer = dict(await sql.issuer_get(conn, company_id=company.id) or {})
    source = {
        name: member
        for name, member in json_codec.loads(record["body"].encode()).items()
        if member is not None
    }
    source = {
        "exchangeRate": 1,
        **source,
        "lineItems": [
            {**UNCLASSIFIED, "classifications": ["022"], **each} for each in source["lineItems"]
        ],
    }
    root = document.build(
        source,
        issuer,
        number=record["number"],
        issued_at=record["issue_date"].replace(microsecond=0),
    )
    root = json.loads(document.encode(root).decode().replace('"_":null', '"_":""'))
    return put(root, *row.put) if row.put else root


@pytest.mark.parametrize("row", ROWS, ids=row_name)
async def test_preflight_names_every_violation_that_the_portal_refuses(
    context: Context, row: Row
) -> None:
    api, company = context.api, context.company
    body = json.loads(json.dumps(invoice(**row.body)))
    invoice_id = await create_invoice(api, **body)
    if row.store:
        record_id = company.id if row.store.startswith("update companies") else invoice_id
        await context.execute(f"{row.store} where id = {record_id}")
    report = await check(api, invoice_id)
    assert places(report) == [(row.code, row.path)]
    tin = (await company_of(api))["tin_code"]
    portal = await Portal(context.sandbox.client).login(taxpayer=tin)
    root = await build(context.environment, company, invoice_id, row)
    assert await refusals(portal, root) == (row.refused or {row.code})
    status, answer = await submit(api, invoice_id)
    assert status == 400 and places(answer) == places(report)
    if patch := report["errors"][0].get("patch"):
        await apply_patch(api, invoice_id, body, patch)
        assert places(await check(api, invoice_id)) == []


async def apply_patch(
    api: Client, invoice_id: int, body: dict[str, Any], patch: list[dict[str, Any]]
) -> None:
    """Apply a patch to the invoice or the company, and send the result."""
    whole = apply_json_patch(
        {
            **body,
            "company": {
                "phone": "",
                "email": "",
                "state": "",
                "zip_code": "",
                **await company_of(api),
            },
        },
        patch,
    )
    changes = {
        name: value
        for name, value in whole.pop("company").items()
        if any(f"/{name}" in each["path"] for each in patch)
    }
    if patch[0]["path"].startswith("/company/"):
        status, answer = await request_json(api, "PUT", "/api/companies", json=changes)
    else:
        status, answer = await request_json(api, "PUT", f"/api/invoices/{invoice_id}", json=whole)
    assert status == 200, answer


async def company_of(api: Client) -> dict[str, Any]:
    return (await request_json(api, "GET", "/api/companies"))[1]["data"]


def apply_json_patch(whole: Any, patch: list[dict[str, Any]]) -> Any:
    """Return a copy of a value with a JSON Patch applied (RFC 6902: add, replace and remove)."""
    whole = copy.deepcopy(whole)
    for step in patch:
        *parents, last = [
            int(part) if part.isdigit() else part for part in step["path"].split("/")[1:]
        ]
        holder = whole
        for part in parents:
            holder = holder[part]
        assert (
            step["op"] == "add" or last in holder or (isinstance(last, int) and last < len(holder))
        ), step
        if step["op"] == "remove":
            del holder[last]
        else:
            holder[last] = step["value"]
    return whole


@pytest.mark.parametrize("row", NEVER, ids=row_name)
async def test_the_portal_refuses_violations_that_no_request_can_cause(
    api: Client, environment: dict[str, str], company: Company, portal: Portal, row: Row
) -> None:
    invoice_id = await create_invoice(api, **row.body)
    assert places(await check(api, invoice_id)) == []
    assert await refusals(portal, await build(environment, company, invoice_id, row)) == (
        row.refused or {row.code}
    )


@pytest.mark.parametrize("code", ["022", "004"])
async def test_a_sale_to_the_general_public_needs_classification_004(
    api: Client, code: str
) -> None:
    invoice_id = await create_invoice(
        api, buyer={"type": "GENERAL_PUBLIC"}, lineItems=[line(classifications=[code])]
    )
    report = await check(api, invoice_id)
    assert report["ready"] is (code == "004")
    assert (await submit(api, invoice_id))[0] == (200 if report["ready"] else 400)


# Rules that depend on other records


async def test_a_document_with_the_same_identity_is_a_duplicate(
    api: Client, portal: Portal
) -> None:
    at = now(minutes=5)
    invoice_id = await create_valid_invoice(api, code=77, issueDateTime=at)
    sent = (await request_json(api, "GET", f"/api/invoices/{invoice_id}"))[1]
    assert (await cancel_latest(api, invoice_id))[0] == 200
    await expect(api, 200, "DELETE", f"/api/invoices/{invoice_id}")
    again = await create_invoice(
        api, code=77, issueDateTime=at, lineItems=[line(description="Coffee beans, 2 kg")]
    )
    report = await check(api, again)
    assert places(report) == [("DV302", "/issueDateTime")] and sent["status"] == "Valid"
    root = json.loads(json.dumps(report["document"]))
    assert await refusals(portal, root) == {"DV302"}
    await expect(
        api,
        200,
        "PUT",
        f"/api/invoices/{again}",
        json=apply_json_patch({"issueDateTime": at}, report["errors"][0]["patch"]),
    )
    assert places(await check(api, again)) == []
    assert (await submit(api, again))[0] == 200
    await wait_for_status(api, again, "Valid")


async def test_duplicates_are_refused_for_two_hours(api: Client, owner: asyncpg.Connection) -> None:
    at = now(minutes=5)
    invoice_id = await create_valid_invoice(api, code=78, issueDateTime=at)
    await cancel_latest(api, invoice_id)
    await request_json(api, "DELETE", f"/api/invoices/{invoice_id}")
    again = await create_invoice(api, code=78, issueDateTime=at)
    ago = "update submitted_documents set validated_at = clock_timestamp() - interval '{}'"
    await owner.execute(ago.format("1 hour 59 minutes"))
    assert places(await check(api, again)) == [("DV302", "/issueDateTime")]
    await owner.execute(ago.format("2 hours"))
    assert places(await check(api, again)) == []


async def create_note(api: Client, **changes: Any) -> tuple[int, int]:
    """Create a Valid invoice and a note against it, and return both ids."""
    invoice_id = await create_valid_invoice(api)
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    return invoice_id, (await create_record(api, path, **note(**changes)))["id"]


NOTES = "/api/adjustment-notes"


async def test_a_note_needs_a_valid_target(
    api: Client, environment: dict[str, str], company: Company, portal: Portal
) -> None:
    invoice_id, noted = await create_note(api)
    ready = await check(api, noted, NOTES)
    assert ready["ready"] and ready["document"]["Invoice"][0]["InvoiceTypeCode"][0]["_"] == "02"
    assert (await cancel_latest(api, invoice_id))[0] == 200
    report = await check(api, noted, NOTES)
    assert places(report) == [("DR303", "/targetInvoiceType")] and report["document"] is None
    assert await refusals(portal, json.loads(json.dumps(ready["document"]))) == {"DR303"}


async def test_the_portal_refuses_a_note_with_another_buyer(api: Client, portal: Portal) -> None:
    _, noted = await create_note(api)
    report = await check(api, noted, NOTES)
    assert report["ready"]
    other = put(
        report["document"],
        f"{CUSTOMER}.PartyIdentification.0.ID",
        element("IG99999999990", schemeID="TIN"),
    )
    put(other, f"{CUSTOMER}.PartyIdentification.1.ID", element("000000000000", schemeID="NRIC"))
    assert await refusals(portal, other) == {"DR308"}


async def test_a_note_needs_the_issuer_of_its_target(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    _, noted = await create_note(api)
    await expect(api, 200, "PUT", "/api/companies", json={"tin_code": "C9999999990"})
    await owner.execute("update companies set tin_verified_at = now()")
    report = await check(api, noted, NOTES)
    assert places(report) == [("OriginalIssuer", "/targetInvoiceType")]
    portal = await Portal(sandbox.client).login(taxpayer="C9999999990")
    assert await refusals(portal, report["document"]) == {"Error06"}


async def test_the_issue_time_of_a_note_has_its_own_path(api: Client) -> None:
    _, noted = await create_note(api, adjustmentNoteIssueDate=now(hours=73))
    (error,) = (await check(api, noted, NOTES))["errors"]
    assert (error["code"], error["path"]) == ("CF321", "/adjustmentNoteIssueDate")
    expected = [("replace", "/adjustmentNoteIssueDate")]
    assert [(each["op"], each["path"]) for each in error["patch"]] == expected


async def test_a_note_above_the_remaining_amount_is_an_error(api: Client) -> None:
    invoice_id, former = await create_note(api, lineItems=[line()])
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    noted = (await create_record(api, path, **note()))["id"]
    assert places(await check(api, noted, NOTES)) == []
    await expect(api, 200, "POST", f"{NOTES}/{former}/submit-to-portal", json={})
    assert places(await check(api, noted, NOTES)) == [("Amount", "/lineItems")]


# A ready document becomes Valid


GOOD = load_bodies(VALID, float)["invoice_create"]
#: Good bodies that are no documents yet, and the codes of what is missing.
WAITING = {
    "a_pending_invoice_without_a_buyer": {"PendingFinalize"},
    "a_pending_self_billed_invoice_without_a_supplier": {"PendingFinalize"},
}


@pytest.mark.parametrize("name", sorted(GOOD))
async def test_a_good_body_is_ready_and_becomes_valid(api: Client, name: str) -> None:
    """Members that a creation may omit are filled in."""
    body = {**GOOD[name]}
    for who in {"buyer", "supplier"} & body.keys():
        body[who] = {**buyer(), **body[who]}
    body["lineItems"] = [{**line(), **each} for each in body["lineItems"]]
    fresh = {"issueDateTime": now(), "submitImmediately": False, "isReady": False}
    agreed = await create_record(api, "/api/invoices", **{**body, **fresh})
    await assert_preflight_agrees(api, agreed["id"], WAITING.get(name, set()))


async def assert_preflight_agrees(
    api: Client, invoice_id: int, codes: Set[str] = frozenset()
) -> None:
    """Assert the codes of preflight and, without any, that the portal finds the document Valid."""
    report = await check(api, invoice_id)
    assert {each["code"] for each in report["errors"]} == codes, report["errors"]
    if not codes:
        assert (await submit(api, invoice_id))[0] == 200
        await wait_for_status(api, invoice_id, "Valid")


TWICE = [
    {"taxType": "02", "taxRate": {"percentage": 6}},
    {"taxType": "02", "taxRate": {"percentage": 8}},
]
#: Members of an invoice that the portal accepts.
ACCEPTED: dict[str, dict[str, Any]] = {
    "unknown address": {"buyer": buyer(address={"line1": "NA", "state": "10"})},
    "reason of the authority": {
        "lineItems": exempt("Goods under the Sales Tax Act 2018. Reference No:(C01-2345/6789).")
    },
    "incoterms": {"references": [{"type": "INCOTERMS", "id": "CIF"}]},
    "one tax type twice": {"lineItems": [line(taxDetails=TWICE)]},
}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_an_accepted_member_is_ready_and_becomes_valid(
    api: Client, sandbox: Sandbox, name: str
) -> None:
    """The totals are checked, and the sent document can be printed."""
    await sandbox.settings(strict_totals=True)
    invoice_id = await create_invoice(api, **ACCEPTED[name])
    await assert_preflight_agrees(api, invoice_id)
    async with api.get(f"/api/invoices/{invoice_id}/print") as response:
        assert response.status == 200


INVOICES = [
    name for name, source in GOLDEN.items() if source["type"] in ("INVOICE", "SELF_BILLED_INVOICE")
]


@pytest.mark.parametrize("name", some_long(INVOICES))
async def test_a_golden_document_is_ready_and_becomes_valid(
    environment: dict[str, str], start: StartService, name: str
) -> None:
    api = await start(await make_company(environment, **ISSUERS.get(name, ISSUER)))
    body = json.loads(json_codec.dumps(GOLDEN[name]))
    path = "/api/invoices"
    invoice_id = (await create_record(api, path, code=1, issueDateTime=now(), **body))["id"]
    await assert_preflight_agrees(api, invoice_id)


async def test_the_document_of_a_preflight_is_the_one_that_is_sent(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    report = await check(api, invoice_id)
    await submit(api, invoice_id)
    (listed,) = await sandbox.ledger()
    body = json.loads(await sandbox_source(sandbox, listed["uuid"]))
    assert body == report["document"]


async def sandbox_source(sandbox: Sandbox, uuid: str) -> str:
    portal = await Portal(sandbox.client).login(taxpayer="C20880050010")
    answer = await portal.json(f"/documents/{uuid}/raw")
    return answer["document"]


# The route


async def test_preflight_changes_and_sends_nothing(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api, buyer=without("contactNumber"))
    before = (await request_json(api, "GET", f"/api/invoices/{invoice_id}"))[1]
    counts = await owner.fetch("select count(*) from events")
    await check(api, invoice_id)
    assert (await request_json(api, "GET", f"/api/invoices/{invoice_id}"))[1] == before
    assert await owner.fetch("select count(*) from events") == counts
    assert await get_documents(api, invoice_id) == [] and await sandbox.ledger() == []


async def test_a_document_is_checked_as_of_a_date(api: Client) -> None:
    invoice_id = await create_invoice(
        api, issueDateTime="2026-04-29T12:00:00Z", buyer=buyer_at(state="17")
    )
    assert places(await check(api, invoice_id, at="2026-04-29T12:30:00Z")) == []
    found = await check(api, invoice_id, at="2026-04-30T12:30:00+08:00")
    assert places(found) == [("CV317", "/buyer/address/state")]
    late = await check(api, invoice_id, at="2026-05-03T12:00:00Z")
    assert set(places(late)) == {("CV317", "/buyer/address/state"), ("CF321", "/issueDateTime")}


async def test_an_invalid_calendar_date_is_refused(api: Client) -> None:
    invoice_id = await create_invoice(api)
    path = f"/api/invoices/{invoice_id}/preflight"
    status, body = await request_json(api, "POST", path, json={"at": "2026-02-30T00:00:00Z"})
    assert status == 422 and list_paths(body) == ["/at"]


async def test_a_submitted_record_is_an_error_of_its_own(api: Client, sandbox: Sandbox) -> None:
    await sandbox.settings(stuck=True)
    invoice_id = await create_invoice(api)
    await submit(api, invoice_id)
    report = await check(api, invoice_id)
    assert places(report) == [("AlreadySubmitted", "")] and report["document"]


async def test_a_member_of_a_consolidated_invoice_cannot_be_submitted(start: StartService) -> None:
    api = await start(**GENEROUS)
    family = await create_one_of_each(api)
    consolidated = family["/api/consolidated-invoices"]
    record = (await request_json(api, "GET", f"/api/consolidated-invoices/{consolidated}"))[1]
    (member,) = record["invoice_ids"]
    assert ("Consolidated", "") in places(await check(api, member))
    report = await check(api, consolidated, "/api/consolidated-invoices")
    assert report["ready"], report["errors"]
    path = f"/api/consolidated-invoices/{consolidated}/submit-to-portal"
    await expect(api, 200, "POST", path, json={})


@pytest.mark.parametrize("place", ["/api/invoices", NOTES, "/api/consolidated-invoices"])
async def test_an_unknown_record_is_not_found(api: Client, place: str) -> None:
    await expect(api, 404, "POST", f"{place}/99/preflight", json={})


async def test_a_warning_does_not_prevent_submission(api: Client) -> None:
    invoice_id = await create_invoice(
        api, issueDateTime=now(hours=61), lineItems=[line(classifications=["004"]), line(id="2")]
    )
    report = await check(api, invoice_id)
    assert report["ready"]
    assert {each["code"] for each in report["warnings"]} == {
        "IssueWindow",
        "Classification",
    }
    assert (await submit(api, invoice_id))[0] == 200

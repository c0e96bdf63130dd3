"""One row per rule of the portal: preflight names what the sandbox refuses, with the same code.

A row breaks one rule from the side of our requests. Where no request can, a row of the database is changed, or the
document that we would send. The sandbox is asked directly, so that nothing of ours stands between.
"""

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import make_company
from kit import (
    GENEROUS,
    answered,
    buyer,
    cancelled,
    created,
    documents,
    invoice,
    line,
    note,
    now,
    one_of_each,
    posted,
    reaches,
    submitted,
    valid_invoice,
)
from sources import GOLDEN, ISSUER, ISSUERS
from test_sandbox_kit import Portal, element, put

from service import json_codec
from service.db.statements import sql
from service.db.transactions import Database, connected_pool
from service.documents.ubl import document

SELLER = "AccountingSupplierParty.0.Party.0"
CUSTOMER = "AccountingCustomerParty.0.Party.0"
ITEM = "InvoiceLine.0.Item.0"
RESTAURANT = {
    "type": "LOCAL_COMPANY",
    "tin": "C5510387420",
    "registration": {"type": "BRN", "number": "202101033579"},
}
ABROAD = {"line1": "88 Huanshi Road", "city": "Foshan", "country": "CHN"}
MILL = buyer(type="FOREIGN_COMPANY", registration={}, address=ABROAD)
DOLLARS = {"currencyCode": "USD", "exchangeRate": 4.2155}
IDENTITY = f"{CUSTOMER}.PartyIdentification.1.ID"


def without(member, **changes):
    """A buyer that lacks a member; `address.city` is one of its address."""
    party = copy.deepcopy(buyer(**changes))
    name, _, inner = member.partition(".")
    if inner:
        del party[name][inner]
    else:
        del party[name]
    return party


def located(**changes):
    return buyer(address={**buyer()["address"], **changes})


UNCLASSIFIED = {name: member for name, member in line().items() if name != "classifications"}


def exempt(reason):
    return [line(taxDetails=[{"taxType": "E"}], taxExemptionReason=reason)]


def self_billed(**changes):
    return {"type": "SELF_BILLED_INVOICE", "buyer": None, "supplier": {**MILL, **changes}}


@dataclass
class Row:
    """`body` breaks the rule, or `store` does, in the stored row; `put` in the document, which else is the record's.

    `refused` are the sandbox's codes, where they are more or others than ours: it has none for a rule without one.
    """

    code: str
    path: str
    body: dict = field(default_factory=dict)
    store: str = ""
    put: tuple = ()
    refused: set = None

    @property
    def name(self):
        return f"{self.code} {self.path or self.put[0]}"


COMPANY = "update companies set {} = ' '"
UNCODED = {None}
ROWS = (
    Row("CF321", "/issueDateTime", {"issueDateTime": now(hours=-1)}),
    Row("CF321", "/issueDateTime", {"issueDateTime": now(hours=73)}),
    Row("CF333", "/buyer/name", {"buyer": without("name")}),
    Row("CF334", "/company/name", store=COMPANY.format("name")),
    Row("CF336", "/company/country", store=COMPANY.format("country"), put=(f"{SELLER}.PostalAddress.0.Country", None)),
    Row("CF337", "/buyer/address/country", {"buyer": without("address.country")}),
    Row("CF339", "/company/city", store=COMPANY.format("city")),
    Row("CF340", "/buyer/address/city", {"buyer": without("address.city")}),
    Row("CF342", "/company/state", store=COMPANY.format("state")),
    Row("CF343", "/buyer/address/state", {"buyer": without("address.state")}),
    Row("CF345", "/company/address", store=COMPANY.format("address")),
    Row("CF346", "/buyer/address/line1", {"buyer": without("address.line1")}),
    Row("CF348", "/company/phone", store=COMPANY.format("phone")),
    Row("CF349", "/buyer/contactNumber", {"buyer": without("contactNumber")}),
    Row("CF358", "/buyer/tin", {"buyer": buyer(**{**RESTAURANT, "tin": ""})}),
    Row("CF324", "/buyer/registration/number", {"buyer": buyer(registration={"type": "NRIC", "number": "90010110556"})}),
    Row("CF324", "/buyer/registration/number", {"buyer": buyer(registration={"type": "NRIC", "number": "900101.10.5566"})}),
    Row("CF364", "/lineItems/0/classifications", {"lineItems": [UNCLASSIFIED]}, put=(f"{ITEM}.CommodityClassification", None)),
    Row("CF403", "/buyer/email", {"buyer": buyer(email="aminah@example.com; home@example.com")}),
    Row("CF404", "/buyer/email", {"buyer": buyer(email="none")}),
    Row("CF404", "/company/email", store="update companies set email = 'a@b@c.example'"),
    Row("CF407", "/company/tourism_tax_registration_number", store="update companies set tourism_tax_registration_number = '1234/56'"),
    Row("CF410", "/buyer/contactNumber", {"buyer": buyer(contactNumber="+60/12/345/6789")}),
    Row("CF410", "/buyer/contactNumber", {"buyer": buyer(contactNumber="+60123456789 ext 12")}),
    Row("CF366", "/buyer/contactNumber", {"buyer": buyer(contactNumber="99123")}),
    Row("CF410", "/company/phone", store="update companies set phone = '+60 3/1234 5678'"),
    Row("CV302", "/buyer/address/state", store="update invoices set buyer = jsonb_set(buyer, '{address,state}', '\"88\"')"),
    Row("CV302", "/buyer/address/country", store="update invoices set buyer = jsonb_set(buyer, '{address,country}', '\"MYA\"')"),
    Row("CV302", "/company/state", store="update companies set state = '88'"),
    Row("CV302", "/company/msic_code", store="update companies set msic_code = '5610'"),
    Row("CV302", "/currencyCode", DOLLARS, store="update invoices set currency_code = 'RUR'"),
    Row("CV302", "/lineItems/0/classifications/1", {"lineItems": [line(classifications=["022", "021"])]},
        store="update invoices set line_items = jsonb_set(line_items, '{0,classifications,1}', '\"999\"')"),
    Row("CV302", "/lineItems/0/unit/code", store="update invoices set line_items = jsonb_set(line_items, '{0,unit,code}', '\"kgm\"')"),
    Row("CV302", "/lineItems/0/originCountry", store="update invoices set line_items = jsonb_set(line_items, '{0,originCountry}', '\"MY\"')"),
    Row("CV302", "/lineItems/0/taxDetails/0/taxType",
        store="update invoices set line_items = jsonb_set(line_items, '{0,taxDetails,0,taxType}', '\"09\"')"),
    Row("CV317", "/buyer/address/state", {"buyer": located(state="17")}),
    Row("CV317", "/company/state", store="update companies set state = '17'"),
    Row("ERR206", "/buyer/registration/number", {"buyer": buyer(**{**RESTAURANT, "registration": {"type": "BRN", "number": "NA"}})}),
    Row("ERR208", "/supplier/tin", self_billed(tin="EI00000000020")),
    Row("ERR236", "/lineItems/0/classifications", {"buyer": {"type": "GENERAL_PUBLIC"}}, refused={"ERR236", "CV317"}),
    Row("ERR236", "/buyer/registration/number", {"buyer": buyer(**{**RESTAURANT, "tin": "EI00000000010", "registration": {}})}),
    Row("ERR406", "/buyer/tin", {"buyer": buyer(**{**RESTAURANT, "tin": "C551038742"})}),
    Row("ERR406", "/buyer/tin", {"buyer": buyer(tin="OG40125678090", registration={})}),
    Row("ERR406", "/buyer/tin", {"buyer": buyer(**{**RESTAURANT, "tin": "none"})}),
    Row("Format", "/supplier/tin", self_billed(type="LOCAL_INDIVIDUAL", tin="SG40125678090"), refused={"Error05"}),
    Row("Format", "/buyer/registration/number", {"buyer": buyer(**{**RESTAURANT, "registration": {"type": "BRN", "number": "2" * 21}})},
        refused=UNCODED),
    Row("Format", "/buyer/registration/number", {"buyer": buyer(registration={"type": "ARMY", "number": "T" * 13})}, refused=UNCODED),
    Row("Format", "/buyer/sstRegistrationNumber", {"buyer": buyer(sstRegistrationNumber="W10/1901/32000458")}, refused=UNCODED),
    Row("Format", "/buyer/address/zipCode", {"buyer": located(zipCode="MY-40150")}, refused=UNCODED),
    Row("Format", "/buyer/address/zipCode", {"buyer": located(zipCode="401500")}, refused=UNCODED),
    Row("Format", "/company/zip_code", store="update companies set zip_code = 'KL 50480'", refused=UNCODED),
    Row("Format", "/lineItems/0/taxExemptionReason", {"lineItems": exempt("Certificate 014/2026")}, refused=UNCODED),
    Row("Required", "/lineItems/0/taxExemptionReason", {"lineItems": exempt("")}, refused=UNCODED),
    Row("Required", "/lineItems/0/description", store="update invoices set line_items = jsonb_set(line_items, '{0,description}', '\" \"')",
        refused=UNCODED),
    Row("Required", "/company/msic_code", store="update companies set msic_code = ''", refused=UNCODED, put=(f"{SELLER}.IndustryClassificationCode", None)),
    Row("Required", "/company/business_activity_description", store=COMPANY.format("business_activity_description"), refused=UNCODED),
    Row("Required", "/exchangeRate", DOLLARS, store="update invoices set exchange_rate = null", put=("TaxExchangeRate", None), refused={"Error07"}),
)  # fmt: skip

#: What our documents never are: the portal's code, and what would have to be put into one.
NEVER = (
    Row("CF378", "", put=("DocumentCurrencyCode", None)),
    Row("CF345", "", put=(f"{SELLER}.PostalAddress.0.AddressLine.0.Line.0._", "x" * 151)),
    Row("CV316", "", put=(f"{CUSTOMER}.PostalAddress.0.Country.0.IdentificationCode.0._", "SGP")),
    Row("DC501", "", DOLLARS, put=("TaxTotal.0.TaxAmount.0.currencyID", "MYR")),
    Row("DC502", "", DOLLARS, put=("LegalMonetaryTotal.0.PayableAmount.0.currencyID", "MYR")),
    Row("DC511", "", DOLLARS, put=("TaxExchangeRate.0.TargetCurrencyCode.0._", "USD")),
    Row("Format", "", put=("ID.0._", "x" * 51), refused=UNCODED),
    Row("Format", "", put=(f"{ITEM}.Description.0._", "x" * 301), refused=UNCODED),
)


def named(row):
    return row.name


async def judged(api, id, place="/api/invoices", **body):
    status, told = await answered(api, "POST", f"{place}/{id}/preflight", json=body)
    assert status == 200, told
    assert told["ready"] is (told["errors"] == [])
    return told


def places(told):
    return [(each["code"], each["path"]) for each in told["errors"]]


@pytest.fixture
async def portal(sandbox, company):
    """The sandbox as the company's own software would speak to it."""
    return await Portal(sandbox.client).login(taxpayer="C20880050010")


async def refusals(portal, root):
    """The codes of all that the portal finds in a document that is sent to it as it is."""
    answer = await (await portal.submit(root)).json()
    if answer["rejectedDocuments"]:
        return {each["code"] for each in answer["rejectedDocuments"][0]["error"]["details"]}
    results = (await portal.details(answer["acceptedDocuments"][0]["uuid"]))["validationResults"]
    errors = [step["error"] for step in results["validationSteps"] if step["status"] == "Invalid"]
    return {inner["errorCode"] for error in errors for inner in error["innerError"]}


async def made(environment, company, id, row):
    """The document of a record as the service builds it, whatever the rules say; then what the row puts into it."""
    async with (
        connected_pool(environment["DATABASE_URL"], 1) as pool,
        Database(pool).company(company.id) as conn,
    ):
        record = await sql.invoice_lock(conn, company_id=company.id, id=id)
        issuer = dict(await sql.issuer_get(conn, company_id=company.id))
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


@pytest.mark.parametrize("row", ROWS, ids=named)
async def test_preflight_names_what_the_portal_refuses(
    api, owner, environment, company, portal, row
):
    body = json.loads(json.dumps(invoice(**row.body)))
    id = await created(api, **body)
    if row.store:
        await owner.execute(row.store)
    told = await judged(api, id)
    assert places(told) == [(row.code, row.path)]
    assert await refusals(portal, await made(environment, company, id, row)) == (
        row.refused or {row.code}
    )
    status, answer = await submitted(api, id)
    assert status == 400 and places(answer) == places(told)
    if patch := told["errors"][0].get("patch"):
        await mended(api, id, body, patch)
        assert places(await judged(api, id)) == []


async def mended(api, id, body, patch):
    """Sends what a patch makes of the invoice, or of the company."""
    whole = patched(
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
        status, answer = await answered(api, "PUT", "/api/companies", json=changes)
    else:
        status, answer = await answered(api, "PUT", f"/api/invoices/{id}", json=whole)
    assert status == 200, answer


async def company_of(api):
    return (await answered(api, "GET", "/api/companies"))[1]["data"]


def patched(whole, patch):
    """What a JSON Patch makes of a value (RFC 6902): add, replace and remove, as far as they are used."""
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


@pytest.mark.parametrize("row", NEVER, ids=named)
async def test_what_no_request_can_break_is_refused_only_where_it_is_put_in(
    api, environment, company, portal, row
):
    id = await created(api, **row.body)
    assert places(await judged(api, id)) == []
    assert await refusals(portal, await made(environment, company, id, row)) == (
        row.refused or {row.code}
    )


@pytest.mark.parametrize("code", ["022", "004"])
async def test_what_a_sale_to_the_general_public_is_depends_on_its_classification(api, code):
    id = await created(
        api, buyer={"type": "GENERAL_PUBLIC"}, lineItems=[line(classifications=[code])]
    )
    told = await judged(api, id)
    assert told["ready"] is (code == "004")
    assert (await submitted(api, id))[0] == (200 if told["ready"] else 400)


# What depends on other records


async def test_a_document_of_the_same_identity_is_a_duplicate(api, portal):
    at = now(minutes=5)
    id = await valid_invoice(api, code=77, issueDateTime=at)
    sent = (await answered(api, "GET", f"/api/invoices/{id}"))[1]
    assert (await cancelled(api, id))[0] == 200
    assert (await answered(api, "DELETE", f"/api/invoices/{id}"))[0] == 200
    again = await created(
        api, code=77, issueDateTime=at, lineItems=[line(description="Coffee beans, 2 kg")]
    )
    told = await judged(api, again)
    assert places(told) == [("DV302", "/issueDateTime")] and sent["status"] == "Valid"
    root = json.loads(json.dumps(told["document"]))
    assert await refusals(portal, root) == {"DV302"}
    status, answer = await answered(
        api,
        "PUT",
        f"/api/invoices/{again}",
        json=patched({"issueDateTime": at}, told["errors"][0]["patch"]),
    )
    assert status == 200, answer
    assert places(await judged(api, again)) == []
    assert (await submitted(api, again))[0] == 200
    await reaches(api, again, "Valid")


async def test_a_duplicate_is_one_for_two_hours(api, owner):
    at = now(minutes=5)
    id = await valid_invoice(api, code=78, issueDateTime=at)
    await cancelled(api, id)
    await answered(api, "DELETE", f"/api/invoices/{id}")
    again = await created(api, code=78, issueDateTime=at)
    ago = "update submitted_documents set validated_at = clock_timestamp() - interval '{}'"
    await owner.execute(ago.format("1 hour 59 minutes"))
    assert places(await judged(api, again)) == [("DV302", "/issueDateTime")]
    await owner.execute(ago.format("2 hours"))
    assert places(await judged(api, again)) == []


async def a_note(api, **changes):
    """(id of a Valid invoice, id of a note against it)."""
    id = await valid_invoice(api)
    return id, (await posted(api, f"/api/invoices/{id}/adjustment-note", **note(**changes)))["id"]


NOTES = "/api/adjustment-notes"


async def test_a_note_needs_its_target_to_be_valid(api, environment, company, portal):
    id, noted = await a_note(api)
    ready = await judged(api, noted, NOTES)
    assert ready["ready"] and ready["document"]["Invoice"][0]["InvoiceTypeCode"][0]["_"] == "02"
    assert (await cancelled(api, id))[0] == 200
    told = await judged(api, noted, NOTES)
    assert places(told) == [("DR303", "/targetInvoiceType")] and told["document"] is None
    assert await refusals(portal, json.loads(json.dumps(ready["document"]))) == {"DR303"}


async def test_a_note_of_another_buyer_is_refused_only_where_one_is_put_in(api, portal):
    _, noted = await a_note(api)
    told = await judged(api, noted, NOTES)
    assert told["ready"]
    other = put(
        told["document"],
        f"{CUSTOMER}.PartyIdentification.0.ID",
        element("IG99999999990", schemeID="TIN"),
    )
    put(other, IDENTITY, element("000000000000", schemeID="NRIC"))
    assert await refusals(portal, other) == {"DR308"}


async def test_a_note_is_issued_by_who_issued_its_target(api, sandbox, owner):
    _, noted = await a_note(api)
    assert (await answered(api, "PUT", "/api/companies", json={"tin_code": "C9999999990"}))[
        0
    ] == 200
    await owner.execute("update companies set tin_verified_at = now()")
    told = await judged(api, noted, NOTES)
    assert places(told) == [("OriginalIssuer", "/targetInvoiceType")]
    portal = await Portal(sandbox.client).login(taxpayer="C9999999990")
    assert await refusals(portal, told["document"]) == {"Error06"}


async def test_a_notes_issue_time_has_its_own_name(api):
    _, noted = await a_note(api, adjustmentNoteIssueDate=now(hours=73))
    (error,) = (await judged(api, noted, NOTES))["errors"]
    assert (error["code"], error["path"]) == ("CF321", "/adjustmentNoteIssueDate")
    assert [(each["op"], each["path"]) for each in error["patch"]] == [
        ("replace", "/adjustmentNoteIssueDate")
    ]


async def test_a_note_larger_than_what_is_left_of_its_invoice_is_named(api):
    id, former = await a_note(api, lineItems=[line()])
    noted = (await posted(api, f"/api/invoices/{id}/adjustment-note", **note()))["id"]
    assert places(await judged(api, noted, NOTES)) == []
    assert (await answered(api, "POST", f"{NOTES}/{former}/submit-to-portal", json={}))[0] == 200
    assert places(await judged(api, noted, NOTES)) == [("Amount", "/lineItems")]


# What the verdict is worth


GOOD = {
    path.stem: path
    for path in Path(__file__).with_name("bodies").glob("invoice_create/good/*.json")
}
#: Good bodies that are no documents yet, and what they wait for.
WAITING = {
    "a_pending_invoice_without_a_buyer": {"PendingFinalize"},
    "a_pending_self_billed_invoice_without_a_supplier": {"PendingFinalize"},
}


@pytest.mark.parametrize("name", sorted(GOOD))
async def test_a_good_body_is_ready_and_the_portal_finds_it_valid(api, name):
    """What a creation may leave out is put in as the other tests have it."""
    body = json.loads(GOOD[name].read_text())
    for who in {"buyer", "supplier"} & body.keys():
        body[who] = {**buyer(), **body[who]}
    body["lineItems"] = [{**line(), **each} for each in body["lineItems"]]
    fresh = {"issueDateTime": now(), "submitImmediately": False, "isReady": False}
    agreed = await posted(api, "/api/invoices", **{**body, **fresh})
    await agrees(api, agreed["id"], WAITING.get(name, set()))


async def agrees(api, id, codes=frozenset()):
    """Preflight has these errors; without any the portal finds the document Valid."""
    told = await judged(api, id)
    assert {each["code"] for each in told["errors"]} == codes, told["errors"]
    if not codes:
        assert (await submitted(api, id))[0] == 200
        await reaches(api, id, "Valid")


INVOICES = [
    name for name, source in GOLDEN.items() if source["type"] in ("INVOICE", "SELF_BILLED_INVOICE")
]


@pytest.mark.parametrize("name", INVOICES)
async def test_a_golden_document_is_ready_and_the_portal_finds_it_valid(environment, start, name):
    api = await start(await make_company(environment, **ISSUERS.get(name, ISSUER)))
    body = json.loads(json_codec.dumps(GOLDEN[name]))
    id = (await posted(api, "/api/invoices", code=1, issueDateTime=now(), **body))["id"]
    await agrees(api, id)


async def test_the_document_of_a_verdict_is_the_one_that_is_sent(api, sandbox):
    id = await created(api)
    told = await judged(api, id)
    await submitted(api, id)
    (listed,) = await sandbox.ledger()
    body = json.loads(await sandbox_source(sandbox, listed["uuid"]))
    assert body == told["document"]


async def sandbox_source(sandbox, uuid):
    portal = await Portal(sandbox.client).login(taxpayer="C20880050010")
    answer = await portal.json(f"/documents/{uuid}/raw")
    return answer["document"]


# The route


async def test_a_verdict_changes_and_sends_nothing(api, owner, sandbox):
    id = await created(api, buyer=without("contactNumber"))
    before = (await answered(api, "GET", f"/api/invoices/{id}"))[1]
    counts = await owner.fetch("select count(*) from events")
    await judged(api, id)
    assert (await answered(api, "GET", f"/api/invoices/{id}"))[1] == before
    assert await owner.fetch("select count(*) from events") == counts
    assert await documents(api, id) == [] and await sandbox.ledger() == []


async def test_a_document_is_judged_as_of_a_date(api):
    id = await created(api, issueDateTime="2026-04-29T12:00:00Z", buyer=located(state="17"))
    assert places(await judged(api, id, at="2026-04-29T12:30:00Z")) == []
    assert places(await judged(api, id, at="2026-04-30T12:30:00+08:00")) == [
        ("CV317", "/buyer/address/state")
    ]
    late = await judged(api, id, at="2026-05-03T12:00:00Z")
    assert set(places(late)) == {("CV317", "/buyer/address/state"), ("CF321", "/issueDateTime")}


async def test_a_date_that_the_calendar_does_not_have_is_refused(api):
    id = await created(api)
    status, body = await answered(
        api, "POST", f"/api/invoices/{id}/preflight", json={"at": "2026-02-30T00:00:00Z"}
    )
    assert status == 422 and [each["path"] for each in body["errors"]] == ["/at"]


async def test_the_state_of_a_record_is_an_error_of_its_own(api, sandbox):
    await sandbox.settings(stuck=True)
    id = await created(api)
    await submitted(api, id)
    told = await judged(api, id)
    assert places(told) == [("AlreadySubmitted", "")] and told["document"]


async def test_a_part_of_a_consolidated_invoice_is_not_sent_by_itself(start, company):
    api = await start(company, **GENEROUS)
    family = await one_of_each(api)
    consolidated = family["/api/consolidated-invoices"]
    record = (await answered(api, "GET", f"/api/consolidated-invoices/{consolidated}"))[1]
    (member,) = record["invoice_ids"]
    assert ("Consolidated", "") in places(await judged(api, member))
    told = await judged(api, consolidated, "/api/consolidated-invoices")
    assert told["ready"], told["errors"]
    async with api.post(
        f"/api/consolidated-invoices/{consolidated}/submit-to-portal", json={}
    ) as response:
        assert response.status == 200


@pytest.mark.parametrize("place", ["/api/invoices", NOTES, "/api/consolidated-invoices"])
async def test_an_unknown_record_is_not_found(api, place):
    assert (await answered(api, "POST", f"{place}/99/preflight", json={}))[0] == 404


async def test_a_warning_keeps_nothing_back(api):
    id = await created(
        api, issueDateTime=now(hours=61), lineItems=[line(classifications=["004"]), line(id="2")]
    )
    told = await judged(api, id)
    assert told["ready"]
    assert {each["code"] for each in told["warnings"]} == {
        "IssueWindow",
        "Classification",
        "ListNotLoaded",
    }
    assert (await submitted(api, id))[0] == 200

"""The specification's tables of endpoints, fields and bodies: a row here for each row there, asked over HTTP.

An arrangement (`draft`, `valid`, ...) makes what a row needs and gives the parts of its path. What the specification
says of errors, states and limits is in test_specification_rules.py; where it says "not shown", contract.md decides.
"""

import re
from datetime import datetime
from types import NoneType, SimpleNamespace
from typing import NamedTuple

import pytest
from conftest import make_company
from kit import answered, created, documents, invoice, note, record, valid_invoice
from test_companies import SETTING
from test_consolidated_invoices import PLACE as CONSOLIDATED
from test_consolidated_invoices import consolidated, sale
from test_consolidated_invoices import valid as send_consolidated
from test_einvoice_requests import asking, requested, shown
from test_integrations import insert_organization, made_user, make_account, user
from test_notes import ONE, noted, valid_note
from test_validations import TIN

from service.config import read_config
from service.db.transactions import Database, connected_pool


@pytest.fixture
async def office(environment, start, company, owner, sandbox):
    """A service that a client with both kinds of key uses; last month can be consolidated on every day of this one."""
    account = await make_account(environment, "Penang Trading Group")
    api = await start(company, CONSOLIDATION_DAYS="40", INTEGRATION_REQUESTS_PER_MINUTE="10000")
    api.session.headers["X-Portal-Key"] = account.key
    return SimpleNamespace(
        api=api,
        start=start,
        company=company,
        account=account,
        owner=owner,
        sandbox=sandbox,
        environment=environment,
    )


# Arrangements


async def nothing(office):
    return {}


async def draft(office):
    return {"id": await created(office.api)}


async def valid(office):
    id = await valid_invoice(office.api)
    return {"id": id, "submitted_document_id": (await documents(office.api, id))[0]["id"]}


async def draft_note(office):
    return {"id": await noted(office.api, await valid_invoice(office.api))}


async def sent_note(office):
    id = await valid_note(office.api, await valid_invoice(office.api))
    _, found = await answered(office.api, "GET", f"/api/adjustment-notes/{id}/submitted-documents")
    return {"id": id, "submitted_document_id": found[0]["id"]}


async def request(office):
    return {"id": await requested(office.api)}


async def an_user(office):
    return {"id": await made_user(office.api)}


async def organization(office):
    async with connected_pool(read_config(office.environment).database_url, 2) as pool:
        made = await insert_organization(
            Database(pool), office.account.id, "Penang Branch", [office.company.id]
        )
    return {"id": made["id"]}


async def member(office):
    """A user, who is a member of an organization."""
    found, place = await an_user(office), await organization(office)
    body = {"members": [{"userId": found["id"], "role": "owner"}]}
    status, _ = await answered(
        office.api, "PUT", f"/api/integrations/organizations/{place['id']}", json=body
    )
    assert status == 200
    return {**found, "organization": place["id"]}


async def organization_with_member(office):
    return {"id": (await member(office))["organization"]}


async def ask(office, row, ids, **options):
    """(status, body) of the answer to a row such as `GET /api/invoices/:id`."""
    method, path = row.split()[:2]
    return await answered(office.api, method, filled(path, ids), **options)


def filled(path, ids):
    return re.sub(r":(\w+)", lambda part: str(ids[part[1]]), path)


# Types


TYPES = {
    "integer": {int},
    "number": {int, float},
    "string": {str},
    "boolean": {bool},
    "object": {dict},
    "array": {list},
    "null": {NoneType},
}
MISSING = object()


def fields(text):
    """{member, with dots where it lies deeper: type} of lines as the specification's."""
    return dict(line.strip().split(None, 1) for line in text.strip().splitlines())


def under(place, members):
    return {f"{place}.{name}": kind for name, kind in members.items()}


def is_a(value, kind):
    if kind.startswith("one of "):
        return value in kind.split()[2:]
    if kind == "true":
        return value is True
    if kind == "timestamp":
        return type(value) is str and datetime.fromisoformat(value).tzinfo is not None
    return any(type(value) in TYPES[word] for word in kind.split(" or "))


def at(body, place):
    for name in place.split("."):
        if isinstance(body, list):
            body = body[int(name)] if int(name) < len(body) else MISSING
        else:
            body = body.get(name, MISSING) if isinstance(body, dict) else MISSING
    return body


def misfits(body, members):
    """The rows that do not hold."""
    return [f"{name} is {kind}" for name, kind in members.items() if not is_a(at(body, name), kind)]


# Fields of the records


INVOICE = fields("""
    id                                   integer
    company_id                           integer
    is_submitted_to_portal               boolean
    is_ready                             boolean
    invoice_code                         string
    type                                 one of INVOICE SELF_BILLED_INVOICE PENDING_FINALIZE_INVOICE PENDING_FINALIZE_SELF_BILLED_INVOICE
    buyer                                object
    line_items                           array
    final_adjusted_amount                number
    status                               string
    legal_monetary_total                 object
    legal_monetary_total.excludingTax    number
    legal_monetary_total.includingTax    number
    legal_monetary_total.payableAmount   number
    legal_monetary_total.netAmount       number
    created_at                           timestamp
    updated_at                           timestamp
""")
LINE_ITEM = fields("""
    id                                string
    description                       string
    classifications                   array
    classifications.0                 string
    unit                              object
    unit.code                         string
    unit.price                        number
    unit.count                        number
    taxDetails                        array
    taxDetails.0.taxType              string
    taxDetails.0.taxRate              object
    taxDetails.0.taxRate.percentage   number
    originCountry                     string
""")
BUYER = fields("""
    type                  string
    name                  string
    registration          object
    registration.type     one of NRIC BRN PASSPORT ARMY
    registration.number   string
    contactNumber         string
    address               object
    address.line1         string
    address.city          string
    address.state         string
    address.zipCode       string
    address.country       string
""")
NOTE = fields("""
    id                                   integer
    company_id                           integer
    invoice_id                           integer or null
    consolidated_invoice_id              integer or null
    code                                 number
    type                                 one of CREDIT_NOTE DEBIT_NOTE REFUND_NOTE
    line_items                           array
    issue_date                           timestamp
    status                               string
    legal_monetary_total                 object
    legal_monetary_total.excludingTax    number
    legal_monetary_total.includingTax    number
    legal_monetary_total.payableAmount   number
    created_at                           timestamp
    updated_at                           timestamp
""")
INVOICE_EXPORT = fields("""
    invoiceCodeWithPrefixAndDigits   string
    invoiceCode                      string
    buyer                            object
    supplier                         object
    lineItems                        array
    invoiceDateTime                  timestamp
    invoiceLevelAllowanceCharge      object or null
    consolidatedInvoiceCode          string or null
    createdAt                        timestamp
""")
NOTE_EXPORT = fields("""
    invoiceCodeWithPrefixAndDigits   string
    code                             number
    type                             one of CREDIT_NOTE DEBIT_NOTE REFUND_NOTE
    lineItems                        array
    issueDate                        timestamp
    targetInvoiceCode                string or null
    targetConsolidatedInvoiceCode    string or null
    createdAt                        timestamp
""")
REQUEST = fields("""
    id                              integer
    company_id                      integer
    invoice_code                    string
    document_details                object
    document_details.buyer          object
    document_details.supplier       object
    document_details.invoice_code   string
    status                          one of Pending Approve Reject
    created_at                      timestamp
    updated_at                      timestamp
""")
AS_BUYER = fields("""
    contactNumber           string
    name                    string
    partyType               string
    registrationType        string
    registrationNumber      string
    sstRegistrationNumber   string
    tin                     string
    address.addressLine0    string
    address.cityName        string
    address.country         string
    address.state           string
    address.postalZone      string
    email                   string
""")
AS_SUPPLIER = AS_BUYER | fields("""
    businessActivityDescription    string
    msic                           string
    tourismTaxRegistrationNumber   string
""")
COMPANY = (
    fields("""
    id                                integer
    name                              string
    tin_code                          string
    registration_number               string
    registration_type                 one of BRN NRIC PASSPORT ARMY
    sst_registration_number           string or null
    tourism_tax_registration_number   string or null
    business_activity_description     string
    msic_code                         string
    country                           string
    state                             string
    zip_code                          string
    city                              string
    address                           string
    phone                             string
    email                             string
    bank_account                      string or null
    exporter_certified_number         string or null
    setting                           object
    created_at                        timestamp
    updated_at                        timestamp
    default_tax_types_and_rates       array
    is_company_ready                  boolean
    as_buyer                          object
    as_supplier                       object
""")
    | under("as_buyer", AS_BUYER)
    | under("as_supplier", AS_SUPPLIER)
)
TAXES = fields("""
    default_tax_types_and_rates.0.tax_rate      number
    default_tax_types_and_rates.0.tax_type      string
    default_tax_types_and_rates.0.factor_type   string
""")
#: "When a registration number is absent the value is the text NA."
ABSENT = fields("""
    as_buyer.registrationNumber                one of NA
    as_buyer.sstRegistrationNumber             one of NA
    as_supplier.registrationNumber             one of NA
    as_supplier.sstRegistrationNumber          one of NA
    as_supplier.tourismTaxRegistrationNumber   one of NA
""")
SETTING_OBJECT = fields("""
    INVOICE_PREFIX                           string
    SELF_BILLED_INVOICE_PREFIX               string
    CONSOLIDATE_INVOICE_PREFIX               string
    CONSOLIDATE_SELF_BILLED_INVOICE_PREFIX   string
    CREDIT_NOTE_PREFIX                       string
    DEBIT_NOTE_PREFIX                        string
    REFUND_NOTE_PREFIX                       string
    PREFIX_DIGIT_COUNT                       number
    AUTO_SUBMIT_INVOICE                      boolean
""")
META = fields("""
    total               number
    per_page            number
    current_page        number
    last_page           number
    first_page          number
    first_page_url      string
    last_page_url       string
    next_page_url       string or null
    previous_page_url   string or null
""")
#: Not shown in the specification; contract.md, 5. What an outcome leaves open is not among them.
DOCUMENT = fields("""
    id                integer
    company_id        integer
    status            one of Submitting Submitted Valid Invalid Cancelled Rejected
    submission_uid    string
    uuid              string
    document_hash     string
    errors            array
    submitted_at      timestamp
    validated_at      timestamp
    cancellable_until   timestamp
    created_at        timestamp
    updated_at        timestamp
""")
INTEGRATION_META = fields("""
    total          number
    per_page       number
    current_page   number
    last_page      number
    from           number or null
    to             number or null
""")
#: Not shown in the specification; contract.md, 9.
USER = fields("""
    id           string
    name         string
    email        string
    role         one of owner admin member
    created_at   timestamp
    updated_at   timestamp
""")
ORGANIZATION = fields("""
    id                   string
    name                 string
    email                string or null
    phone                string or null
    companies.0.id       integer
    companies.0.name     string
    companies.0.tin_code string
    members              array
    created_at           timestamp
    updated_at           timestamp
""")
MEMBERS = fields("""
    members.0.userId   string
    members.0.name     string
    members.0.email    string
    members.0.role     one of owner admin member
""")


async def read(office, path):
    status, body = await answered(office.api, "GET", path)
    assert status == 200, body
    return body


async def an_invoice(office):
    return [await record(office.api, await created(office.api))]


async def a_line_item(office):
    return [found["line_items"][0] for found in await an_invoice(office)]


async def a_buyer(office):
    return [found["buyer"] for found in await an_invoice(office)]


async def two_notes(office, rest=""):
    """A note against an invoice, and one against a consolidated invoice."""
    first = await draft_note(office)
    target = await consolidated(office.api, invoiceIds=[await sale(office.api)])
    await send_consolidated(office.api, target)
    lines = [{**ONE[0], "classifications": ["004"]}]
    body = note(targetInvoiceType="CONSOLIDATED_INVOICE", lineItems=lines)
    status, answer = await answered(
        office.api, "POST", f"{CONSOLIDATED}/{target}/adjustment-note", json=body
    )
    assert status == 201, answer
    return [
        await read(office, f"/api/adjustment-notes/{id}{rest}")
        for id in (first["id"], answer["data"]["id"])
    ]


async def two_note_exports(office):
    return await two_notes(office, "/export")


async def two_exports(office):
    """An invoice in a consolidated one, and one with a charge of its own."""
    inside = await sale(office.api)
    await consolidated(office.api, invoiceIds=[inside])
    charged = await created(
        office.api, invoiceLevelAllowanceCharge={"charges": [{"amount": 1.5, "reason": "wrapping"}]}
    )
    return [await read(office, f"/api/invoices/{id}/export") for id in (inside, charged)]


async def a_request(office):
    return [await shown(office.api, (await request(office))["id"])]


async def two_companies(office):
    """The same, with as little and with as much as it can have."""
    little = await read(office, "/api/companies")
    body = {
        "sst_registration_number": "W10-1808-32000059",
        "tourism_tax_registration_number": "123-4567-89012345",
    }
    assert (await answered(office.api, "PUT", "/api/companies", json=body))[0] == 200
    await office.owner.execute(
        "update companies set bank_account = '5140', exporter_certified_number = 'MY-1'"
    )
    return [little["data"], (await read(office, "/api/companies"))["data"]]


async def a_company_with_taxes(office):
    taxes = '[{"tax_rate": 8, "tax_type": "02", "factor_type": "percentage"}]'
    await office.owner.execute("update companies set default_tax_types_and_rates = $1", taxes)
    return [(await read(office, "/api/companies"))["data"]]


async def a_company_without_numbers(office):
    bare = await office.start(await make_company(office.environment, registration_number=None))
    return [(await answered(bare, "GET", "/api/companies"))[1]["data"]]


async def a_setting(office):
    return [(await read(office, "/api/companies"))["data"]["setting"]]


async def two_pages(office):
    for _ in range(2):
        await created(office.api)
    return [
        (await read(office, f"/api/invoices?per_page=1&page={page}"))["meta"] for page in (1, 2)
    ]


async def pages_of_users(office):
    """The meta of an empty list, and of one with a user."""
    empty = await read(office, "/api/integrations/users")
    await an_user(office)
    return [empty["meta"], (await read(office, "/api/integrations/users"))["meta"]]


async def a_document(office):
    return await documents(office.api, (await valid(office))["id"])


async def some_user(office):
    return [await read(office, f"/api/integrations/users/{(await an_user(office))['id']}")]


async def two_organizations(office):
    """An organization as it is made, and with all its facts."""
    ids = await organization(office)
    path = f"/api/integrations/organizations/{ids['id']}"
    little = await read(office, path)
    status, much = await answered(
        office.api, "PUT", path, json={"email": "hq@example.com", "phone": "+6041234567"}
    )
    assert status == 200
    return [little, much]


async def an_organization_with_member(office):
    return [
        await read(
            office, f"/api/integrations/organizations/{(await member(office))['organization']}"
        )
    ]


#: (the record as the specification calls it, how examples of it come to be, its fields)
FIELDS = (
    ("Invoice (record returned by list and get)", an_invoice, INVOICE),
    ("Line item (request shape)", a_line_item, LINE_ITEM),
    ("Buyer (request shape)", a_buyer, BUYER),
    ("Adjustment note (record returned by list and get)", two_notes, NOTE),
    ("Invoice export object", two_exports, INVOICE_EXPORT),
    ("Adjustment note export object", two_note_exports, NOTE_EXPORT),
    ("E-invoice request (record)", a_request, REQUEST),
    ("Company (record)", two_companies, COMPANY),
    ("Company: default_tax_types_and_rates", a_company_with_taxes, TAXES),
    ("Company: a registration number that is absent", a_company_without_numbers, ABSENT),
    ("Setting object", a_setting, SETTING_OBJECT),
    ("Pagination meta (list responses)", two_pages, META),
    ("Submitted document (contract.md)", a_document, DOCUMENT),
    ("Integration surface: meta", pages_of_users, INTEGRATION_META),
    ("User (contract.md)", some_user, USER),
    ("Organization (contract.md)", two_organizations, ORGANIZATION),
    ("Organization: members, each with userId", an_organization_with_member, MEMBERS),
)


@pytest.mark.parametrize("name, examples, members", FIELDS, ids=[row[0] for row in FIELDS])
async def test_a_record_has_its_fields_with_their_types(office, name, examples, members):
    found = await examples(office)
    assert [misfits(each, members) for each in found] == [[]] * len(found)
    either = [
        (member, kind)
        for member, kinds in members.items()
        if " or " in kinds
        for kind in kinds.split(" or ")
    ]
    assert [
        f"{row} is {kind}"
        for row, kind in either
        if not any(is_a(at(each, row), kind) for each in found)
    ] == []


# Endpoints


class Endpoint(NamedTuple):
    row: str
    given: object  # the arrangement under which it succeeds
    answers: dict
    sends: dict | None = None
    status: int = 200
    file: bool = False  # "downloadable JSON file (Content-Disposition: attachment)"


SAID = {"success": "true", "message": "string"}
MADE = {**SAID, "data.id": "integer"}
INTEGRATION_LIST = under("meta", INTEGRATION_META)


def listed(members):
    return {**under("meta", META), **under("data.0", members)}


ENDPOINTS = (
    Endpoint("POST /api/invoices", nothing, MADE, invoice(), 201),
    Endpoint("GET /api/invoices", draft, listed(INVOICE)),
    Endpoint("GET /api/invoices/:id", draft, INVOICE),
    Endpoint("PUT /api/invoices/:id", draft, SAID, invoice()),
    Endpoint("DELETE /api/invoices/:id", draft, SAID),
    Endpoint("POST /api/invoices/:id/submit-to-portal", draft, SAID, {}),
    Endpoint("POST /api/invoices/:id/cancel-latest-invoice-submitted", valid, SAID),
    Endpoint("POST /api/invoices/:id/adjustment-note", valid, MADE, note(), 201),
    Endpoint("GET /api/invoices/:id/submitted-documents", valid, under("0", DOCUMENT)),
    Endpoint("GET /api/invoices/:id/submitted-documents/:submitted_document_id", valid, DOCUMENT),
    Endpoint("GET /api/invoices/:id/export", draft, INVOICE_EXPORT, file=True),
    Endpoint("GET /api/invoices/export-all", draft, under("0", INVOICE_EXPORT), file=True),
    Endpoint("GET /api/adjustment-notes", draft_note, listed(NOTE)),
    Endpoint("GET /api/adjustment-notes/:id", draft_note, NOTE),
    Endpoint("PUT /api/adjustment-notes/:id", draft_note, SAID, {"type": "DEBIT_NOTE"}),
    Endpoint("DELETE /api/adjustment-notes/:id", draft_note, {"message": "string"}),
    Endpoint("GET /api/adjustment-notes/:id/export", draft_note, NOTE_EXPORT, file=True),
    Endpoint(
        "GET /api/adjustment-notes/export-all", draft_note, under("0", NOTE_EXPORT), file=True
    ),
    Endpoint("POST /api/adjustment-notes/:id/submit-to-portal", draft_note, SAID, {}),
    Endpoint(
        "POST /api/adjustment-notes/:id/cancel-latest-adjustment-note-submitted", sent_note, SAID
    ),
    Endpoint("GET /api/adjustment-notes/:id/submitted-documents", sent_note, under("0", DOCUMENT)),
    Endpoint(
        "GET /api/adjustment-notes/:id/submitted-documents/:submitted_document_id",
        sent_note,
        DOCUMENT,
    ),
    Endpoint("POST /api/validation/tin", nothing, {"data.valid": "true", "message": "string"}, TIN),
    Endpoint(
        "POST /api/validation/invoice-code", nothing, {"data.success": "true"}, {"invoice_code": 7}
    ),
    Endpoint(
        "POST /api/validation/adjustment-note-code",
        nothing,
        {"data.success": "true"},
        {"adjustment_note_code": 7, "adjustment_note_type": "CREDIT_NOTE"},
    ),
    Endpoint("GET /api/companies", nothing, under("data", COMPANY)),
    Endpoint(
        "PUT /api/companies",
        nothing,
        under("data", COMPANY),
        {"name": "Kopi Empat Sdn. Bhd.", "setting": SETTING},
    ),
    Endpoint("GET /api/einvoice-requests", request, listed(REQUEST)),
    Endpoint("GET /api/einvoice-requests/:id", request, REQUEST),
    Endpoint("POST /api/einvoice-requests", nothing, MADE, asking(), 201),
    Endpoint("PUT /api/einvoice-requests/:id", request, SAID, asking(status="Reject")),
    Endpoint("DELETE /api/einvoice-requests/:id", request, SAID),
    Endpoint("GET /api/integrations/users", an_user, {**INTEGRATION_LIST, **under("data.0", USER)}),
    Endpoint("GET /api/integrations/users/:id", an_user, USER),
    Endpoint("POST /api/integrations/users", nothing, USER, user(), 201),
    Endpoint(
        "PUT /api/integrations/users/:id",
        an_user,
        USER,
        {"name": "Siti", "email": "siti@example.com"},
    ),
    Endpoint(
        "GET /api/integrations/users/:id/organizations",
        member,
        {"meta.total": "number", "meta.count": "number", **under("data.0", ORGANIZATION | MEMBERS)},
    ),
    Endpoint(
        "GET /api/integrations/organizations",
        organization,
        {**INTEGRATION_LIST, **under("data.0", ORGANIZATION)},
    ),
    Endpoint(
        "GET /api/integrations/organizations/:id", organization_with_member, ORGANIZATION | MEMBERS
    ),
    Endpoint(
        "PUT /api/integrations/organizations/:id", organization, ORGANIZATION, {"name": "Penang HQ"}
    ),
)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.row)
async def test_an_endpoint_answers_as_specified(office, endpoint):
    method, path = endpoint.row.split()
    path = filled(path, await endpoint.given(office))
    async with office.api.request(method, path, json=endpoint.sends) as response:
        body = await response.json()
        disposition = response.headers.get("Content-Disposition", "")
    assert (response.status, response.content_type) == (endpoint.status, "application/json"), body
    assert misfits(body, endpoint.answers) == []
    assert disposition.startswith("attachment") == endpoint.file

"""The endpoints, fields and bodies of the specification, one row per row of its tables.

An arrangement (`draft`, `valid`, ...) creates what a row needs and returns the ids in its path.
Errors, states and limits are in test_specification_rules.py. Where the specification says "not
shown", contract.md decides.
"""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from types import NoneType
from typing import Any, NamedTuple

import pytest

from tests.api.test_companies import SETTING
from tests.api.test_consolidated_invoices import PLACE as CONSOLIDATED
from tests.api.test_consolidated_invoices import create_consolidated, sale
from tests.api.test_consolidated_invoices import submit_until_valid as send_consolidated
from tests.api.test_einvoice_requests import create_request, get_request, request_body
from tests.api.test_integrations import create_user, user
from tests.api.test_notes import ONE, create_note, create_valid_note
from tests.api.test_validations import TIN
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice
from tests.api_requests import create_organization, expect, request_json
from tests.conftest import make_company
from tests.fixtures_specification import Context
from tests.harness.bodies import invoice, note

# Arrangements


async def nothing(context: Context) -> dict[str, Any]:
    return {}


async def draft(context: Context) -> dict[str, Any]:
    return {"id": await create_invoice(context.api)}


async def valid(context: Context) -> dict[str, Any]:
    invoice_id = await create_valid_invoice(context.api)
    return {
        "id": invoice_id,
        "submitted_document_id": (await get_documents(context.api, invoice_id))[0]["id"],
    }


async def draft_note(context: Context) -> dict[str, Any]:
    return {"id": await create_note(context.api, await create_valid_invoice(context.api))}


async def sent_note(context: Context) -> dict[str, Any]:
    invoice_id = await create_valid_note(context.api, await create_valid_invoice(context.api))
    path = f"/api/adjustment-notes/{invoice_id}/submitted-documents"
    _, found = await request_json(context.api, "GET", path)
    return {"id": invoice_id, "submitted_document_id": found[0]["id"]}


async def request(context: Context) -> dict[str, Any]:
    return {"id": await create_request(context.api)}


async def a_user(context: Context) -> dict[str, Any]:
    return {"id": await create_user(context.api)}


async def organization(context: Context) -> dict[str, Any]:
    company = context.company.id
    return {"id": await create_organization(context.environment, context.account.id, company)}


async def member(context: Context) -> dict[str, Any]:
    """Create a user who is a member of an organization."""
    found, place = await a_user(context), await organization(context)
    body = {"members": [{"userId": found["id"], "role": "owner"}]}
    path = f"/api/integrations/organizations/{place['id']}"
    await expect(context.api, 200, "PUT", path, json=body)
    return {**found, "organization": place["id"]}


async def organization_with_member(context: Context) -> dict[str, Any]:
    return {"id": (await member(context))["organization"]}


async def ask(context: Context, row: str, ids: dict[str, Any], **options: Any) -> tuple[int, Any]:
    """Send the request of a row, `GET /api/invoices/:id`, and return (status, body)."""
    method, path = row.split()[:2]
    return await request_json(context.api, method, fill_path(path, ids), **options)


def fill_path(path: str, ids: dict[str, Any]) -> str:
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


#: Types of the members of a body; a dot separates a member from the member of its value.
Fields = dict[str, str]


def fields(text: str) -> Fields:
    """Parse lines of the specification's form: a member and its type."""
    return dict(line.strip().split(None, 1) for line in text.strip().splitlines())


def under(place: str, members: Fields) -> Fields:
    return {f"{place}.{name}": kind for name, kind in members.items()}


def is_a(value: Any, kind: str) -> bool:
    """Return whether a value has a type of the specification."""
    if kind.startswith("one of "):
        return value in kind.split()[2:]
    if kind == "true":
        return value is True
    if kind == "timestamp":
        return type(value) is str and datetime.fromisoformat(value).tzinfo is not None
    return any(type(value) in TYPES[word] for word in kind.split(" or "))


def at(body: Any, place: str) -> Any:
    """Return the value at a place of a body, or MISSING."""
    for name in place.split("."):
        if isinstance(body, list):
            body = body[int(name)] if int(name) < len(body) else MISSING
        else:
            body = body.get(name, MISSING) if isinstance(body, dict) else MISSING
    return body


def violations(body: Any, members: Fields) -> list[str]:
    """Return the fields whose values do not have their type."""
    return [f"{name} is {kind}" for name, kind in members.items() if not is_a(at(body, name), kind)]


# Fields of the records


INVOICE_TYPES = (
    "one of INVOICE SELF_BILLED_INVOICE PENDING_FINALIZE_INVOICE "
    "PENDING_FINALIZE_SELF_BILLED_INVOICE"
)
INVOICE = fields(f"""
    id                                   integer
    company_id                           integer
    is_submitted_to_portal               boolean
    is_ready                             boolean
    invoice_code                         string
    type                                 {INVOICE_TYPES}
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
#: A registration number that is absent has the value NA.
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
#: Not shown in the specification, but in contract.md (5). Optional members are omitted.
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
#: Not shown in the specification, but in contract.md (9).
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


async def read(context: Context, path: str) -> Any:
    return await expect(context.api, 200, "GET", path)


async def an_invoice(context: Context) -> list[dict[str, Any]]:
    return [await get_invoice(context.api, await create_invoice(context.api))]


async def a_line_item(context: Context) -> list[Any]:
    return [found["line_items"][0] for found in await an_invoice(context)]


async def a_buyer(context: Context) -> list[Any]:
    return [found["buyer"] for found in await an_invoice(context)]


async def two_notes(context: Context, rest: str = "") -> list[Any]:
    """Return a note against an invoice, and one against a consolidated invoice."""
    first = await draft_note(context)
    target = await create_consolidated(context.api, invoiceIds=[await sale(context.api)])
    await send_consolidated(context.api, target)
    lines = [{**ONE[0], "classifications": ["004"]}]
    body = note(targetInvoiceType="CONSOLIDATED_INVOICE", lineItems=lines)
    path = f"{CONSOLIDATED}/{target}/adjustment-note"
    answer = await expect(context.api, 201, "POST", path, json=body)
    return [
        await read(context, f"/api/adjustment-notes/{invoice_id}{rest}")
        for invoice_id in (first["id"], answer["data"]["id"])
    ]


async def two_note_exports(context: Context) -> list[Any]:
    return await two_notes(context, "/export")


async def two_exports(context: Context) -> list[Any]:
    """Return the exports of a consolidated invoice's member and of an invoice with a charge."""
    inside = await sale(context.api)
    await create_consolidated(context.api, invoiceIds=[inside])
    charged = await create_invoice(
        context.api,
        invoiceLevelAllowanceCharge={"charges": [{"amount": 1.5, "reason": "wrapping"}]},
    )
    return [
        await read(context, f"/api/invoices/{invoice_id}/export")
        for invoice_id in (inside, charged)
    ]


async def a_request(context: Context) -> list[Any]:
    return [await get_request(context.api, (await request(context))["id"])]


async def two_companies(context: Context) -> list[Any]:
    """Return the company with its minimal and with all its members."""
    none = {"sst_registration_number": None}
    await expect(context.api, 200, "PUT", "/api/companies", json=none)
    little = await read(context, "/api/companies")
    body = {
        "sst_registration_number": "W10-1808-32000059",
        "tourism_tax_registration_number": "123-4567-89012345",
    }
    await expect(context.api, 200, "PUT", "/api/companies", json=body)
    await context.execute(
        "update companies set bank_account = '5140', exporter_certified_number = 'MY-1'"
        " where id = $1",
        context.company.id,
    )
    return [little["data"], (await read(context, "/api/companies"))["data"]]


async def a_company_with_taxes(context: Context) -> list[Any]:
    taxes = '[{"tax_rate": 8, "tax_type": "02", "factor_type": "percentage"}]'
    await context.execute(
        "update companies set default_tax_types_and_rates = $2 where id = $1",
        context.company.id,
        taxes,
    )
    return [(await read(context, "/api/companies"))["data"]]


async def a_company_without_numbers(context: Context) -> list[Any]:
    none = dict.fromkeys(("registration_number", "sst_registration_number"))
    bare = await context.start(await make_company(context.environment, **none))
    return [(await request_json(bare, "GET", "/api/companies"))[1]["data"]]


async def a_setting(context: Context) -> list[Any]:
    return [(await read(context, "/api/companies"))["data"]["setting"]]


async def two_pages(context: Context) -> list[Any]:
    for _ in range(2):
        await create_invoice(context.api)
    return [
        (await read(context, f"/api/invoices?per_page=1&page={page}"))["meta"] for page in (1, 2)
    ]


async def pages_of_users(context: Context) -> list[Any]:
    """Return the meta of an empty list, and of a list with one user."""
    empty = await read(context, "/api/integrations/users")
    await a_user(context)
    return [empty["meta"], (await read(context, "/api/integrations/users"))["meta"]]


async def a_document(context: Context) -> list[dict[str, Any]]:
    return await get_documents(context.api, (await valid(context))["id"])


async def some_user(context: Context) -> list[Any]:
    return [await read(context, f"/api/integrations/users/{(await a_user(context))['id']}")]


async def two_organizations(context: Context) -> list[Any]:
    """Return a new organization, and the same one with all its members."""
    ids = await organization(context)
    path = f"/api/integrations/organizations/{ids['id']}"
    little = await read(context, path)
    body = {"email": "hq@example.com", "phone": "+6041234567"}
    much = await expect(context.api, 200, "PUT", path, json=body)
    return [little, much]


async def an_organization_with_member(context: Context) -> list[Any]:
    return [
        await read(
            context, f"/api/integrations/organizations/{(await member(context))['organization']}"
        )
    ]


#: The record as the specification names it, the function that creates examples, and its fields.
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
async def test_a_record_has_the_specified_fields_and_types(
    context: Context,
    name: str,
    examples: Callable[[Context], Awaitable[list[Any]]],
    members: Fields,
) -> None:
    found = await examples(context)
    assert [violations(each, members) for each in found] == [[]] * len(found)
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
    given: Callable[[Context], Awaitable[dict[str, Any]]]  # the arrangement that it needs
    answers: Fields
    sends: dict[str, Any] | None = None
    status: int = 200
    file: bool = False  # the response is an attachment


SAID = {"success": "true", "message": "string"}
MADE = {**SAID, "data.id": "integer"}
INTEGRATION_LIST = under("meta", INTEGRATION_META)


def list_fields(members: Fields) -> Fields:
    return {**under("meta", META), **under("data.0", members)}


FREE, NAME = {"data.success": "true"}, {"name": "Kopi Empat"}
NOTE_CODE = {"adjustment_note_code": 7, "adjustment_note_type": "CREDIT_NOTE"}
ENDPOINTS = (
    Endpoint("POST /api/invoices", nothing, MADE, invoice(), 201),
    Endpoint("GET /api/invoices", draft, list_fields(INVOICE)),
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
    Endpoint("GET /api/adjustment-notes", draft_note, list_fields(NOTE)),
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
    Endpoint("POST /api/validation/invoice-code", nothing, FREE, {"invoice_code": 7}),
    Endpoint("POST /api/validation/adjustment-note-code", nothing, FREE, NOTE_CODE),
    Endpoint("GET /api/companies", nothing, under("data", COMPANY)),
    Endpoint("PUT /api/companies", nothing, under("data", COMPANY), {**NAME, "setting": SETTING}),
    Endpoint("GET /api/einvoice-requests", request, list_fields(REQUEST)),
    Endpoint("GET /api/einvoice-requests/:id", request, REQUEST),
    Endpoint("POST /api/einvoice-requests", nothing, MADE, request_body(), 201),
    Endpoint("PUT /api/einvoice-requests/:id", request, SAID, request_body(status="Reject")),
    Endpoint("DELETE /api/einvoice-requests/:id", request, SAID),
    Endpoint("GET /api/integrations/users", a_user, {**INTEGRATION_LIST, **under("data.0", USER)}),
    Endpoint("GET /api/integrations/users/:id", a_user, USER),
    Endpoint("POST /api/integrations/users", nothing, USER, user(), 201),
    Endpoint("PUT /api/integrations/users/:id", a_user, USER, NAME),
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
    Endpoint("PUT /api/integrations/organizations/:id", organization, ORGANIZATION, NAME),
)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.row)
async def test_an_endpoint_responds_as_specified(context: Context, endpoint: Endpoint) -> None:
    method, path = endpoint.row.split()
    path = fill_path(path, await endpoint.given(context))
    async with context.api.request(method, path, json=endpoint.sends) as response:
        body = await response.json()
        disposition = response.headers.get("Content-Disposition", "")
    assert (response.status, response.content_type) == (endpoint.status, "application/json"), body
    assert violations(body, endpoint.answers) == []
    assert disposition.startswith("attachment") == endpoint.file

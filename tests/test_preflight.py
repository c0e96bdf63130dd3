"""The rule pack on its own: what is missing, which day a rule holds from, what is a warning, what a cure looks like."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from sources import ADDRESS, EXAMPLE, GOLDEN, ISSUER, RESTAURANT, line
from test_document import ISSUED_AT

from service.documents import codes
from service.documents.checks import preflight
from service.documents.checks.rule import Circumstances

NOW = ISSUED_AT + timedelta(hours=1)


def found(source, issuer=ISSUER, at=NOW, **facts):
    facts = {"issued_at": at - timedelta(hours=1), "number": "INV-1", **facts}
    return preflight.findings(source, issuer, Circumstances(at=at, **facts))


def lacking(source, issuer=ISSUER):
    return [(each.code, each.path) for each in found(source, issuer) if each.stops]


@pytest.mark.parametrize("name", GOLDEN)
def test_what_builds_breaks_no_rule(name):
    assert preflight.errors(found(GOLDEN[name])) == []


def test_a_bare_issuer_lacks_every_column_that_the_portal_needs():
    assert lacking(EXAMPLE, {}) == [
        ("CF334", "/company/name"),
        ("Required", "/company/tin_code"),
        ("Required", "/company/registration_number"),
        ("CF348", "/company/phone"),
        ("CF345", "/company/address"),
        ("CF339", "/company/city"),
        ("CF342", "/company/state"),
        ("CF336", "/company/country"),
        ("Required", "/company/msic_code"),
        ("Required", "/company/business_activity_description"),
    ]


def test_an_absent_buyer_lacks_what_the_portal_needs_of_a_buyer():
    assert lacking({**EXAMPLE, "buyer": None}) == [
        ("CF333", "/buyer/name"),
        ("CF358", "/buyer/tin"),
        ("CF349", "/buyer/contactNumber"),
        ("CF346", "/buyer/address/line1"),
        ("CF340", "/buyer/address/city"),
        ("CF343", "/buyer/address/state"),
        ("CF337", "/buyer/address/country"),
    ]


def test_a_buying_issuer_needs_no_trade():
    issuer = {**ISSUER, "msic_code": "", "business_activity_description": None}
    assert lacking(GOLDEN["self_billed_invoice"], issuer) == []


def test_a_blank_fact_is_missing_and_said_so():
    source = {**EXAMPLE, "buyer": {**RESTAURANT, "address": {**ADDRESS, "city": " "}}}
    (lack,) = preflight.errors(found(source))
    assert lack == {
        "code": "CF340",
        "path": "/buyer/address/city",
        "message": "The city of the buyer is missing.",
    }


PASSPORT = {"type": "PASSPORT", "number": "A1"}


@pytest.mark.parametrize(
    "party, paths",
    [
        ({"type": "LOCAL_COMPANY", "tin": None}, ["/buyer/tin"]),
        (
            {"type": "LOCAL_INDIVIDUAL", "tin": None, "registration": None},
            ["/buyer/registration/number"],
        ),
        ({"type": "LOCAL_INDIVIDUAL", "tin": None, "registration": PASSPORT}, ["/buyer/tin"]),
        ({"type": "LOCAL_INDIVIDUAL", "registration": None}, []),
        ({"type": "GOVERNMENT", "tin": None, "registration": None}, []),
        ({"type": "GENERAL_PUBLIC", "name": None, "address": None}, []),
        (
            {
                "type": "FOREIGN_COMPANY",
                "tin": None,
                "address": {**ADDRESS, "state": None, "country": "CHN"},
            },
            [],
        ),
    ],
)
def test_what_a_buyer_needs_depends_on_its_kind(party, paths):
    source = {**EXAMPLE, "buyer": {**RESTAURANT, **party}}
    assert [path for _, path in lacking(source)] == paths


def test_a_local_seller_needs_its_trade():
    source = {**GOLDEN["self_billed_invoice"], "supplier": RESTAURANT}
    assert [path for _, path in lacking(source)] == [
        "/supplier/msic",
        "/supplier/businessActivityDescription",
    ]


def test_a_bare_line_lacks_what_the_portal_needs_of_a_line():
    assert lacking({**EXAMPLE, "lineItems": [line(), {}]}) == [
        ("Required", "/lineItems/1/description"),
        ("CF364", "/lineItems/1/classifications"),
        ("Required", "/lineItems/1/unit/price"),
        ("Required", "/lineItems/1/unit/count"),
        ("Required", "/lineItems/1/taxDetails"),
    ]


def test_a_tax_needs_its_type_its_rate_and_an_exempt_line_its_reason():
    items = [line(taxDetails=[{}, {"taxType": "01"}, {"taxType": "06"}, {"taxType": "E"}])]
    assert [path for _, path in lacking({**EXAMPLE, "lineItems": items})] == [
        "/lineItems/0/taxExemptionReason",
        "/lineItems/0/taxDetails/0/taxType",
        "/lineItems/0/taxDetails/1/taxRate",
    ]


def test_a_document_needs_lines_a_rate_abroad_and_a_note_its_original():
    source = {"type": "CREDIT_NOTE", "buyer": RESTAURANT, "currencyCode": "USD", "lineItems": []}
    assert [path for _, path in lacking(source)] == [
        "/lineItems",
        "/targetInvoiceType",
        "/exchangeRate",
    ]


# Days


def day(text):
    return datetime.fromisoformat(f"{text}T12:00:00+08:00").astimezone(UTC)


def buying(**changes):
    return {**EXAMPLE, "buyer": {**RESTAURANT, **changes}}


#: a source, the path and the code of what it breaks, the first day on which that is a breach
DATED = (
    ({**EXAMPLE, "currencyCode": "USD"}, "Required", "/exchangeRate", "2025-09-01"),
    (buying(address={**ADDRESS, "state": "17"}), "CV317", "/buyer/address/state", "2026-04-30"),
    (buying(contactNumber="12/345678"), "CF410", "/buyer/contactNumber", "2026-08-15"),
    (buying(email="none"), "CF404", "/buyer/email", "2026-08-15"),
    (buying(sstRegistrationNumber="W10/1"), "Format", "/buyer/sstRegistrationNumber", "2026-08-15"),
    (
        {**EXAMPLE, "lineItems": [line(unit={"code": "pcs", "price": 1, "count": 1})]},
        "CV302",
        "/lineItems/0/unit/code",
        "2026-08-15",
    ),
    (
        buying(registration={"type": "BRN", "number": "123456-X"}),
        "Identity",
        "/buyer/registration/number",
        "2026-08-01",
    ),
    (
        {
            **EXAMPLE,
            "buyer": {"type": "GENERAL_PUBLIC"},
            "lineItems": [
                line(classifications=["004"], unit={"price": Decimal("10000.01"), "count": 1})
            ],
        },
        "LargeSale",
        "/lineItems/0",
        "2026-01-01",
    ),
)


@pytest.mark.parametrize(
    "source, code, path, since", DATED, ids=[each[1] + each[2] for each in DATED]
)
def test_a_rule_holds_from_its_day_on(source, code, path, since):
    def breaks(at):
        return (code, path) in {(each.code, each.path) for each in found(source, at=at)}

    assert breaks(day(since)) and not breaks(day(since) - timedelta(days=1))


@pytest.mark.parametrize(
    "at, refused",
    [("2026-07-06", True), ("2026-07-07", False), ("2027-12-31", False), ("2028-01-01", True)],
)
def test_the_versions_of_the_disclosure_programme_hold_for_its_time(at, refused):
    errors = preflight.errors(found(EXAMPLE, at=day(at), version="1.2"))
    assert [each["code"] for each in errors] == ["Version"] * refused


# The issue time


def said(**facts):
    return {each.code for each in found(EXAMPLE, **facts)} - {"ListNotLoaded"}


@pytest.mark.parametrize(
    "age, codes",
    [
        (timedelta(seconds=-1), {"CF321"}),
        (timedelta(0), set()),
        (timedelta(hours=60), set()),
        (timedelta(hours=60, seconds=1), {"IssueWindow"}),
        (timedelta(hours=72), {"IssueWindow"}),
        (timedelta(hours=72, seconds=1), {"CF321"}),
    ],
)
def test_a_document_is_taken_for_72_hours(age, codes):
    assert said(issued_at=NOW - age) == codes


def test_a_number_has_fifty_characters_at_most():
    assert said(number="x" * 50) == set()
    assert [
        (each.code, each.path)
        for each in found(EXAMPLE, number="x" * 51)
        if each.severity == "error"
    ] == [("Format", "/code")]


# What other members break


@pytest.mark.parametrize(
    "changes, code, path",
    [
        ({"payment": {"mode": "3"}}, "CV302", "/payment/mode"),
        ({"payment": {"mode": "03", "bankAccount": "1" * 151}}, "Format", "/payment/bankAccount"),
        ({"billingPeriod": {"frequency": "x" * 51}}, "Format", "/billingPeriod/frequency"),
        ({"billingPeriod": {"start": "2026-09-30", "end": "2026-09-01"}}, "BillingPeriod", "/billingPeriod/end"),
        ({"references": [{"type": "BILL", "id": "x" * 151}]}, "Format", "/references/0/id"),
        ({"references": [{"type": "K2", "id": "x"}, {"type": "INCOTERMS", "id": "CIFF"}]}, "Format", "/references/1/id"),
        ({"references": [{"type": "CUSTOMS_FORM", "id": "x" * 1001}]}, "Format", "/references/0/id"),
        ({"references": [{"type": "FTA", "description": "ASEAN & China"}]}, "Format", "/references/0/description"),
        ({"delivery": {"name": "Ali", "address": {**ADDRESS, "state": "99"}}}, "CV302", "/delivery/address/state"),
        ({"delivery": {"name": "Ali", "address": {**ADDRESS, "state": "17"}}}, "CV317", "/delivery/address/state"),
        ({"delivery": {"name": "Ali", "address": {**ADDRESS, "country": "MY"}}}, "CV302", "/delivery/address/country"),
        ({"delivery": {"address": {**ADDRESS, "zipCode": "A"}}}, "Format", "/delivery/address/zipCode"),
        ({"delivery": {"tin": "C" * 15}}, "Format", "/delivery/tin"),
        ({"delivery": {"registration": {"type": "NRIC", "number": "1"}}}, "CF324", "/delivery/registration/number"),
        ({"buyer": {**RESTAURANT, "tin": "IG40125678090"}}, "Identity", "/buyer/registration/type"),
        ({"buyer": {**RESTAURANT, "registration": {"type": "MYPR", "number": "1"}}}, "Format", "/buyer/registration/type"),
        ({"buyer": {**RESTAURANT, "address": {**ADDRESS, "country": "CHN", "zipCode": "5" * 51}}}, "Format", "/buyer/address/zipCode"),
        ({"lineItems": [line(tariffCode="9401/61")]}, "Format", "/lineItems/0/tariffCode"),
        ({"lineItems": [line(tariffCode="9401.61.00001")]}, "Format", "/lineItems/0/tariffCode"),
        ({"currencyCode": "USD", "exchangeRate": Decimal("4.21551234567891")}, "Format", "/exchangeRate"),
        ({"lineItems": [line(classifications=["034"])]}, "Classification", "/lineItems/0/classifications/0"),
        ({"lineItems": [line(unit={"price": 1, "count": Decimal("1.000001")})]}, "Count", "/lineItems/0/unit/count"),
        ({"lineItems": [line(taxDetails=[{"taxType": "03", "taxRate": {"perUnitAmount": None}}])]}, "Amount",
         "/lineItems/0/taxDetails/0/taxRate/perUnitAmount"),
    ],
)  # fmt: skip
def test_a_member_has_its_length_and_its_characters(changes, code, path):
    others = {"ListNotLoaded"}
    assert [
        (each.code, each.path) for each in found({**EXAMPLE, **changes}) if each.code not in others
    ] == [(code, path)]


def test_the_companys_own_particulars_have_their_length_and_characters():
    issuer = {**ISSUER, "exporter_certified_number": "MY/1", "bank_account": "1" * 151}
    paths = [
        each.path
        for each in found({**EXAMPLE, "payment": {"mode": "03"}}, issuer)
        if each.severity == "error"
    ]
    assert paths == ["/company/exporter_certified_number", "/company/bank_account"]
    assert preflight.errors(found(GOLDEN["self_billed_invoice"], issuer)) == []


def test_an_import_of_goods_refers_to_its_customs_form():
    source = GOLDEN["self_billed_invoice"]
    form = [{"type": "CUSTOMS_FORM", "id": "K1-2209"}]
    assert "CustomsForm" in {each.code for each in found(source)}
    assert "CustomsForm" not in {each.code for each in found({**source, "references": form})}


@pytest.fixture
def listed():
    """Loads a list for one test."""
    before = dict(codes.TABLES), dict(codes.SINCE)
    yield codes.load
    for table, kept in zip((codes.TABLES, codes.SINCE), before, strict=False):
        table.clear()
        table.update(kept)


def test_a_code_that_came_into_force_after_the_issue_day_is_refused(listed):
    known, new = datetime(2026, 1, 1).date(), ISSUED_AT.date()
    listed("units", {"H87": "piece", "XYZ": "box of new"}, {"H87": known, "XYZ": new})
    source = {**EXAMPLE, "lineItems": [line(unit={"code": "XYZ", "price": 1, "count": 1})]}
    (error,) = preflight.errors(found(source, issued_at=ISSUED_AT - timedelta(days=1)))
    assert (error["code"], error["path"]) == ("CF320", "/lineItems/0/unit/code")
    assert preflight.errors(found(source, issued_at=ISSUED_AT)) == []
    assert preflight.errors(found(EXAMPLE, issued_at=ISSUED_AT - timedelta(days=1))) == []


def test_a_list_that_is_loaded_needs_no_warning(listed):
    listed("units", {"H87": "piece"})
    assert [each.path for each in found(EXAMPLE) if each.code == "ListNotLoaded"] == [""]


# Cures


@pytest.mark.parametrize(
    "changes, cured",
    [
        ({"contactNumber": "03/2161/0000"}, "0321610000"),
        ({"contactNumber": "03 2161 0000 ext 9"}, None),
        ({"email": "a@b.example; c@d.example"}, "a@b.example"),
        ({"tin": "OG12345678"}, "IG12345678"),
        ({"tin": "C0551038742"}, "C5510387420"),
        ({"tin": "nobody"}, None),
        ({"registration": {"type": "NRIC", "number": "880214.14.5566"}}, "880214145566"),
        ({"registration": {"type": "NRIC", "number": "88021414556"}}, None),
        ({"sstRegistrationNumber": "W10/1901/32000458"}, "W10190132000458"),
        ({"address": {**ADDRESS, "zipCode": "MY-40150"}}, "40150"),
        ({"address": {**ADDRESS, "zipCode": "401500"}}, None),
    ],
)
def test_a_cure_is_told_where_there_is_but_one(changes, cured):
    (error,) = preflight.errors(found(buying(**changes)))
    assert error.get("patch") == (
        cured and [{"op": "replace", "path": error["path"], "value": cured}]
    )


def test_what_is_no_address_of_a_mailbox_goes():
    (error,) = preflight.errors(found(buying(email="none")))
    assert error["patch"] == [{"op": "remove", "path": "/buyer/email"}]
    (error,) = preflight.errors(found(EXAMPLE, {**ISSUER, "email": "none"}))
    assert error["patch"] == [{"op": "replace", "path": "/company/email", "value": ""}]


def test_a_note_cannot_cure_the_party_of_its_invoice():
    source = {**GOLDEN["credit_note"], "buyer": {**RESTAURANT, "contactNumber": "12/345678"}}
    (error,) = preflight.errors(found(source))
    assert error["path"] == "/buyer/contactNumber" and "patch" not in error


def test_an_answer_tells_of_a_hundred_errors_at_most_whatever_warnings_there_are():
    items = [line(classifications=["034"], description="") for _ in range(300)]
    told = found({**EXAMPLE, "lineItems": items})
    assert (len(preflight.errors(told)), len(preflight.warnings(told))) == (100, 100)
    assert not preflight.can_be_built(told)

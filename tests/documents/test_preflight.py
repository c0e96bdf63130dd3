"""The checks of documents: missing members, effective dates, formats, warnings and patches."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from service.documents import codes
from service.documents.checks import preflight
from service.documents.checks.rule import CheckFinding, Circumstances
from service.documents.codes import CodeTable, Validity
from tests.documents.sources import ADDRESS, EXAMPLE, GOLDEN, ISSUER, RESTAURANT, line
from tests.documents.test_document import ISSUED_AT

NOW = ISSUED_AT + timedelta(hours=1)
CONSOLIDATED = "CONSOLIDATED_INVOICE"


def find_violations(
    source: dict[str, Any], issuer: dict[str, Any] = ISSUER, at: datetime = NOW, **facts: Any
) -> list[CheckFinding]:
    facts = {"issued_at": at - timedelta(hours=1), **facts}
    return preflight.check_document(source, issuer, Circumstances(at=at, **facts))


def list_missing(source: dict[str, Any], issuer: dict[str, Any] = ISSUER) -> list[tuple[str, str]]:
    return [(each.code, each.path) for each in find_violations(source, issuer) if each.stops]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_document_violates_no_rule(name: str) -> None:
    assert preflight.list_errors(find_violations(GOLDEN[name])) == []


def test_an_empty_issuer_lacks_all_required_columns() -> None:
    assert list_missing(EXAMPLE, {}) == [
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


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, [("Required", "/buyer/type")]),
        ({"type": "LOCAL_COMPANY"}, [("CF358", "/buyer/tin")]),
        ({"type": "FOREIGN_COMPANY"}, []),
        ({"tin": RESTAURANT["tin"]}, []),
    ],
)
def test_a_buyer_needs_a_type_or_a_tin(
    given: dict[str, str], missing: list[tuple[str, str]]
) -> None:
    buyer = {name: RESTAURANT[name] for name in RESTAURANT if name not in ("type", "tin")}
    assert list_missing({**EXAMPLE, "buyer": {**buyer, **given}}) == missing


def test_a_buying_issuer_needs_no_business_activity() -> None:
    issuer = {**ISSUER, "msic_code": "", "business_activity_description": None}
    assert list_missing(GOLDEN["self_billed_invoice"], issuer) == []


def test_a_blank_member_is_reported_as_missing() -> None:
    source = {**EXAMPLE, "buyer": {**RESTAURANT, "address": {**ADDRESS, "city": " "}}}
    (lack,) = preflight.list_errors(find_violations(source))
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
def test_required_members_of_a_buyer_depend_on_its_type(
    party: dict[str, Any], paths: list[Any]
) -> None:
    source = {**EXAMPLE, "buyer": {**RESTAURANT, **party}}
    assert [path for _, path in list_missing(source)] == paths


@pytest.mark.parametrize(
    "address, paths",
    [
        ({"line1": "NA", "state": "10"}, []),
        ({"line1": " NA ", "state": "10", "city": " ", "country": ""}, []),
        ({"line1": "NA"}, ["city", "state", "country"]),
        ({"line1": "NA", "state": " "}, ["city", "state", "country"]),
        ({"line1": "N/A", "state": "10"}, ["city", "country"]),
        ({"line2": "NA", "state": "10"}, ["line1", "city", "country"]),
    ],
)
def test_an_unknown_address_needs_only_its_state(address: dict[str, str], paths: list[str]) -> None:
    assert [path for _, path in list_missing(buying(address=address))] == [
        f"/buyer/address/{path}" for path in paths
    ]


def test_an_unknown_address_of_the_company_needs_only_its_state() -> None:
    issuer = {**ISSUER, "address": "NA", "city": None, "country": ""}
    assert preflight.list_errors(find_violations(EXAMPLE, issuer)) == []


def test_an_unknown_address_has_a_valid_state() -> None:
    source = buying(address={"line1": "NA", "state": "88"})
    assert [each["code"] for each in preflight.list_errors(find_violations(source))] == ["CV302"]


def test_a_local_seller_needs_a_business_activity() -> None:
    source = {**GOLDEN["self_billed_invoice"], "supplier": RESTAURANT}
    assert [path for _, path in list_missing(source)] == [
        "/supplier/msic",
        "/supplier/businessActivityDescription",
    ]


def test_an_empty_line_lacks_all_required_members() -> None:
    assert list_missing({**EXAMPLE, "lineItems": [line(), {}]}) == [
        ("Required", "/lineItems/1/description"),
        ("CF364", "/lineItems/1/classifications"),
        ("Required", "/lineItems/1/unit/price"),
        ("Required", "/lineItems/1/unit/count"),
        ("Required", "/lineItems/1/taxDetails"),
    ]


def test_a_tax_needs_type_and_rate_or_exemption_reason() -> None:
    items = [line(taxDetails=[{}, {"taxType": "01"}, {"taxType": "06"}, {"taxType": "E"}])]
    assert [path for _, path in list_missing({**EXAMPLE, "lineItems": items})] == [
        "/lineItems/0/taxExemptionReason",
        "/lineItems/0/taxDetails/0/taxType",
        "/lineItems/0/taxDetails/1/taxRate",
    ]


def test_a_document_needs_lines_exchange_rate_and_original() -> None:
    source = {"type": "CREDIT_NOTE", "buyer": RESTAURANT, "currencyCode": "USD", "lineItems": []}
    assert [path for _, path in list_missing(source)] == [
        "/lineItems",
        "/targetInvoiceType",
        "/exchangeRate",
    ]


# Effective dates


def day(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}T12:00:00+08:00").astimezone(UTC)


def buying(**changes: Any) -> dict[str, Any]:
    return {**EXAMPLE, "buyer": {**RESTAURANT, **changes}}


def exempt(reason: str) -> dict[str, Any]:
    return line(taxDetails=[{"taxType": "E"}], taxExemptionReason=reason)


#: A source, the code and the path of its violation, and the first day of the rule.
DATED = (
    ({**EXAMPLE, "currencyCode": "USD"}, "Required", "/exchangeRate", "2025-09-01"),
    (buying(address={**ADDRESS, "state": "17"}), "CV317", "/buyer/address/state", "2026-04-30"),
    (buying(contactNumber="12/345678"), "CF410", "/buyer/contactNumber", "2026-08-15"),
    (buying(email="none"), "CF404", "/buyer/email", "2026-08-15"),
    (buying(email="NA"), "CF404", "/buyer/email", "2026-08-15"),
    (buying(email="a..b@c.example"), "CF404", "/buyer/email", "2026-08-15"),
    (buying(contactNumber="NA"), "CF410", "/buyer/contactNumber", "2026-08-15"),
    (
        {**EXAMPLE, "references": [{"type": "INCOTERMS", "id": "F-B"}]},
        "Format",
        "/references/0/id",
        "2026-08-15",
    ),
    (
        {**EXAMPLE, "lineItems": [exempt("Order P.U.(A) 219/2018")]},
        "ExemptionReason",
        "/lineItems/0/taxExemptionReason",
        "2026-08-15",
    ),
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
def test_a_rule_applies_from_its_effective_date(
    source: dict[str, Any], code: str, path: str, since: str
) -> None:
    def violates(at: datetime) -> bool:
        return (code, path) in {(each.code, each.path) for each in find_violations(source, at=at)}

    assert violates(day(since)) and not violates(day(since) - timedelta(days=1))


@pytest.mark.parametrize(
    "address, found",
    [
        ({"zipCode": "4015"}, ["Postcode"]),
        ({"zipCode": "40150"}, []),
        ({"zipCode": "NA"}, []),
        ({"zipCode": None}, []),
        ({"zipCode": "4015", "country": "NZL"}, []),
    ],
)
def test_a_short_postcode_in_malaysia_is_a_warning(
    address: dict[str, Any], found: list[str]
) -> None:
    findings = find_violations(buying(address={**ADDRESS, **address}))
    assert [each["code"] for each in preflight.list_warnings(findings)] == found


@pytest.mark.parametrize(
    "kind, msic, found",
    [("INVOICE", "61101", 1), ("INVOICE", "31001", 0), (CONSOLIDATED, "61101", 0)],
)
def test_sales_of_an_excluded_activity_to_the_public_are_a_warning(
    kind: str, msic: str, found: int
) -> None:
    lines = [line(classifications=["004"])]
    source = {**EXAMPLE, "type": kind, "buyer": {"type": "GENERAL_PUBLIC"}, "lineItems": lines}
    findings = find_violations(source, {**ISSUER, "msic_code": msic})
    warnings = [each for each in findings if each.is_warning]
    assert [(each.code, each.path) for each in warnings] == [
        ("Activity", "/lineItems/0/classifications")
    ] * found
    assert all("Name the buyer and submit the invoice" in each.message for each in warnings)


# E-mail addresses and phone numbers

GOOD_MAILS = ["a@b.example", "a.b@c.d.example", "a_b-c+d@e-f.example", "", " a@b.example "]
BAD_MAILS = (
    "a..b@c.example .a@c.example a.@c.example a@c..example a@.c.example a@c.example. a@c "
    "a@b@c.example @c.example NA"
)


@pytest.mark.parametrize("mail", GOOD_MAILS + BAD_MAILS.split())
def test_dots_in_an_e_mail_address_separate_parts(mail: str) -> None:
    errors = preflight.list_errors(find_violations(buying(email=mail)))
    assert [each["code"] for each in errors] == ["CF404"] * (mail in BAD_MAILS.split())
    assert all(each["patch"] == [{"op": "remove", "path": "/buyer/email"}] for each in errors)


PUBLIC = {"tin": "EI00000000010", "registration": {"type": "BRN", "number": "NA"}}


def test_a_party_of_a_consolidated_document_may_have_neither_phone_nor_e_mail() -> None:
    items = [line(classifications=["004"])]
    source = {**buying(**PUBLIC, contactNumber="NA", email="NA"), "lineItems": items}
    assert preflight.list_errors(find_violations(source)) == []


def test_classification_004_for_a_named_buyer_is_a_warning() -> None:
    source = {**buying(tin="C5510387420"), "lineItems": [line(classifications=["004"])]}
    warnings = preflight.list_warnings(find_violations(source))
    assert [each["code"] for each in warnings] == ["Classification"]


def test_a_supplier_may_have_no_phone_number() -> None:
    source = GOLDEN["self_billed_invoice"]
    source = {**source, "supplier": {**source["supplier"], "contactNumber": "NA"}}
    assert preflight.list_errors(find_violations(source)) == []


# The reason of an exemption


@pytest.mark.parametrize(
    "reason, errors, warnings",
    [
        ("Certificate 014-2026 (A), B.", [], []),
        ("Reference No:(C01-2345-67890123).", [], ["ExemptionReason"]),
        ("Order P.U.(A) 219/2018", [], ["ExemptionReason"]),
        ("Certificate #14", ["Format"], []),
        ("Certificate 14/#26", ["Format"], []),
    ],
)
def test_an_exemption_reason_like_the_authoritys_example_is_a_warning(
    reason: str, errors: list[str], warnings: list[str]
) -> None:
    found = find_violations({**EXAMPLE, "lineItems": [exempt(reason)]})
    assert [each["code"] for each in preflight.list_errors(found)] == errors
    assert [each["code"] for each in preflight.list_warnings(found)] == warnings


# The issue time


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
def test_a_document_older_than_72_hours_is_refused(age: timedelta, codes: set[str]) -> None:
    assert {each.code for each in find_violations(EXAMPLE, issued_at=NOW - age)} == codes


# Other members


UNPRICED = {"taxType": "03", "taxRate": {"perUnitAmount": None}}


def delivered(**changes: str) -> dict[str, Any]:
    """Return the member of a source with the recipient's address, of which members are changed."""
    return {"delivery": {"name": "Ali", "address": {**ADDRESS, **changes}}}


@pytest.mark.parametrize(
    "changes, code, path",
    [
        ({"payment": {"mode": "3"}}, "CV302", "/payment/mode"),
        (
            {"references": [{"type": "FTA", "description": "ASEAN & China"}]},
            "Format",
            "/references/0/description",
        ),
        (delivered(state="99"), "CV302", "/delivery/address/state"),
        (delivered(state="17"), "CV317", "/delivery/address/state"),
        (delivered(country="MY"), "CV302", "/delivery/address/country"),
        (delivered(zipCode="A"), "Format", "/delivery/address/zipCode"),
        ({"delivery": {"tin": "C" * 15}}, "Format", "/delivery/tin"),
        (
            {"delivery": {"registration": {"type": "NRIC", "number": "1"}}},
            "CF324",
            "/delivery/registration/number",
        ),
        ({"buyer": {**RESTAURANT, "tin": "IG40125678090"}}, "Identity", "/buyer/registration/type"),
        (
            {"currencyCode": "USD", "exchangeRate": Decimal("4.21551234567891")},
            "Format",
            "/exchangeRate",
        ),
        (
            {"lineItems": [line(classifications=["034"])]},
            "Classification",
            "/lineItems/0/classifications/0",
        ),
        (
            {"lineItems": [line(unit={"price": 1, "count": Decimal("1.000001")})]},
            "Count",
            "/lineItems/0/unit/count",
        ),
        (
            {"lineItems": [line(taxDetails=[UNPRICED])]},
            "Amount",
            "/lineItems/0/taxDetails/0/taxRate/perUnitAmount",
        ),
    ],
)
def test_a_member_with_invalid_length_or_format_is_an_error(
    changes: dict[str, Any], code: str, path: str
) -> None:
    found = find_violations({**EXAMPLE, **changes})
    assert [(each.code, each.path) for each in found] == [(code, path)]


def test_an_invalid_company_column_is_an_error() -> None:
    issuer = {**ISSUER, "exporter_certified_number": "MY/1", "bank_account": "1" * 151}
    paths = [
        each.path
        for each in find_violations({**EXAMPLE, "payment": {"mode": "03"}}, issuer)
        if not each.is_warning
    ]
    assert paths == ["/company/exporter_certified_number", "/company/bank_account"]
    assert preflight.list_errors(find_violations(GOLDEN["self_billed_invoice"], issuer)) == []


def test_an_import_of_goods_needs_a_customs_form() -> None:
    source = GOLDEN["self_billed_invoice"]
    form = [{"type": "CUSTOMS_FORM", "id": "K1-2209"}]
    assert "CustomsForm" in {each.code for each in find_violations(source)}
    assert "CustomsForm" not in {
        each.code for each in find_violations({**source, "references": form})
    }


def import_units(names: dict[str, str], **validity: Validity) -> None:
    table = CodeTable("units", names, datetime(2026, 1, 1).date(), validity=validity)
    codes.replace_tables([table])


@pytest.fixture
def load_list() -> Iterator[Callable[..., None]]:
    """Yield a function that imports units for one test."""
    yield import_units
    codes.replace_tables([])


def test_a_code_effective_after_the_issue_day_is_refused(load_list: Callable[..., None]) -> None:
    load_list({"H87": "piece", "XYZ": "box of new"}, XYZ=Validity(ISSUED_AT.date()))
    source = {**EXAMPLE, "lineItems": [line(unit={"code": "XYZ", "price": 1, "count": 1})]}
    (error,) = preflight.list_errors(
        find_violations(source, issued_at=ISSUED_AT - timedelta(days=1))
    )
    assert (error["code"], error["path"]) == ("CF320", "/lineItems/0/unit/code")
    assert preflight.list_errors(find_violations(source, issued_at=ISSUED_AT)) == []
    assert (
        preflight.list_errors(find_violations(EXAMPLE, issued_at=ISSUED_AT - timedelta(days=1)))
        == []
    )


@pytest.mark.parametrize("age, refused", [(0, ["CF320"]), (1, []), (2, [])])
def test_a_code_that_ended_before_the_issue_day_is_refused(
    load_list: Callable[..., None], age: int, refused: list[str]
) -> None:
    load_list({"H87": "piece"}, H87=Validity(last=(ISSUED_AT - timedelta(days=1)).date()))
    found = find_violations(EXAMPLE, issued_at=ISSUED_AT - timedelta(days=age))
    assert [error["code"] for error in preflight.list_errors(found)] == refused


# Patches


@pytest.mark.parametrize(
    "changes, patched",
    [
        ({"contactNumber": "03/2161/0000"}, "0321610000"),
        ({"contactNumber": "03 2161 0000 ext 9"}, None),
        ({"email": "a@b.example; c@d.example"}, "a@b.example"),
        ({"tin": "OG12345678"}, "IG12345678"),
        ({"tin": "C0551038742"}, "C5510387420"),
        ({"tin": "unknown"}, None),
        ({"registration": {"type": "NRIC", "number": "880214.14.5566"}}, "880214145566"),
        ({"registration": {"type": "NRIC", "number": "88021414556"}}, None),
        ({"sstRegistrationNumber": "W10/1901/32000458"}, "W10190132000458"),
        ({"address": {**ADDRESS, "zipCode": "MY-40150"}}, "40150"),
        ({"address": {**ADDRESS, "zipCode": "401500"}}, None),
    ],
)
def test_an_error_with_an_unambiguous_correction_has_a_patch(
    changes: dict[str, Any], patched: str | None
) -> None:
    (error,) = preflight.list_errors(find_violations(buying(**changes)))
    assert error.get("patch") == (
        patched and [{"op": "replace", "path": error["path"], "value": patched}]
    )


def test_an_invalid_email_address_is_removed_by_a_patch() -> None:
    (error,) = preflight.list_errors(find_violations(buying(email="none")))
    assert error["patch"] == [{"op": "remove", "path": "/buyer/email"}]
    (error,) = preflight.list_errors(find_violations(EXAMPLE, {**ISSUER, "email": "none"}))
    assert error["patch"] == [{"op": "replace", "path": "/company/email", "value": ""}]


def test_an_error_in_the_party_of_a_notes_invoice_has_no_patch() -> None:
    source = {**GOLDEN["credit_note"], "buyer": {**RESTAURANT, "contactNumber": "12/345678"}}
    (error,) = preflight.list_errors(find_violations(source))
    assert error["path"] == "/buyer/contactNumber" and "patch" not in error


def test_errors_and_warnings_are_limited_to_100_each() -> None:
    items = [line(classifications=["034"], description="") for _ in range(300)]
    findings = find_violations({**EXAMPLE, "lineItems": items})
    assert len(preflight.list_errors(findings)) == 100
    assert len(preflight.list_warnings(findings)) == 100
    assert not preflight.can_be_built(findings)

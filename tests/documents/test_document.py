"""Documents: the portal's example, golden files, every kind of party.

A golden file has the document on one line, as it is sent.
`python -m tests.documents.test_document` prints how the golden files would
change, one element per line, and rewrites them. Review the changes before committing them.
"""

import base64
import difflib
import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
import simplejson

from service.documents.codes import get_names
from service.documents.ubl import document
from service.documents.ubl.parties import build_postal_address
from tests.documents.sources import ADDRESS, EXAMPLE, GOLDEN, ISSUER, ISSUERS, RESTAURANT, line, tax
from tests.harness.paths import DOCUMENTS

ISSUED_AT = datetime(2026, 9, 14, 3, 25, 10, tzinfo=UTC)


def build_document(
    source: dict[str, Any], issuer: dict[str, Any] = ISSUER, **changes: Any
) -> dict[str, Any]:
    return document.build(
        source, issuer, **{"number": "INV-2026-000123", "issued_at": ISSUED_AT, **changes}
    )


def build_as_parsed(source: dict[str, Any], **changes: Any) -> Any:
    return parse_exactly(document.encode(build_document(source, **changes)))


def parse_exactly(raw: bytes) -> Any:
    return json.loads(raw, parse_float=Decimal)


def at(whole: Any, path: str) -> Any:
    """Return the value at a path in the portal's notation: the first entry of each array."""
    for name in path.split("."):
        whole = whole[name][0]
    return whole.get("_", whole)


def invoice(source: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return build_as_parsed(source, **changes)["Invoice"][0]


def buyer(**changes: Any) -> Any:
    party = {**RESTAURANT, **changes}
    return at(invoice({**EXAMPLE, "buyer": party}), "AccountingCustomerParty.Party")


def supplier(**changes: Any) -> Any:
    source = {
        "type": "SELF_BILLED_INVOICE",
        "supplier": {**RESTAURANT, **changes},
        "lineItems": [line()],
    }
    return at(invoice(source), "AccountingSupplierParty.Party")


def identities(party: dict[str, Any]) -> dict[str, str]:
    return {
        entry["ID"][0]["schemeID"]: entry["ID"][0]["_"] for entry in party["PartyIdentification"]
    }


def encode_golden(name: str) -> bytes:
    return document.encode(build_document(GOLDEN[name], ISSUERS.get(name, ISSUER))) + b"\n"


def pretty(raw: bytes) -> list[str]:
    """Return the lines of an encoded document: one element per line, numbers as they are sent."""
    whole = simplejson.loads(raw, use_decimal=True)
    return simplejson.dumps(whole, use_decimal=True, ensure_ascii=False, indent=1).splitlines()


def compare(golden: bytes, built: bytes) -> str:
    """Return the elements that differ, with their surroundings."""
    return "\n".join(difflib.unified_diff(pretty(golden), pretty(built), lineterm=""))


def test_portal_example_is_rebuilt() -> None:
    assert build_as_parsed(EXAMPLE) == parse_exactly(
        (DOCUMENTS / "portal_example.json").read_bytes()
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_document_equals_its_golden_file(name: str) -> None:
    built, golden = encode_golden(name), (DOCUMENTS / f"{name}.json").read_bytes()
    assert built == golden, compare(golden, built)


# Encoding


@pytest.mark.parametrize(
    "number, written",
    [("1E+3", "1000"), ("1E-7", "0.0000001"), ("0E-8", "0.00000000"), ("580.00", "580.00")],
)
def test_number_is_encoded_without_exponent(number: str, written: str) -> None:
    assert document.encode([Decimal(number)]) == f"[{written}]".encode()


def test_tiny_and_huge_numbers_are_encoded_without_exponent() -> None:
    unit = {"code": "H87", "price": Decimal("1E+14"), "count": Decimal("1E-10")}
    raw = document.encode(build_document({**EXAMPLE, "lineItems": [line(unit=unit)]}))
    assert b'"PriceAmount":[{"_":100000000000000,' in raw
    assert b'"InvoicedQuantity":[{"_":0.0000000001,' in raw


def test_envelope_holds_document_hash_and_number() -> None:
    raw = document.encode(build_document(EXAMPLE))
    entries = [document.build_entry("INV-1", raw), document.build_entry("INV-2", b"{}")]
    entry, other = json.loads(document.build_envelope(entries))["documents"]
    assert base64.b64decode(entry["document"]) == raw
    assert entry["documentHash"] == hashlib.sha256(raw).hexdigest()
    assert (entry["format"], entry["codeNumber"], other["codeNumber"]) == ("JSON", "INV-1", "INV-2")


# Header


def test_issue_time_is_converted_to_utc() -> None:
    whole = invoice(
        EXAMPLE, issued_at=datetime(2026, 9, 15, 1, 0, 5, tzinfo=timezone(timedelta(hours=8)))
    )
    assert (at(whole, "IssueDate"), at(whole, "IssueTime")) == ("2026-09-14", "17:00:05Z")


@pytest.mark.parametrize(
    "kind, self_billed, code",
    [
        ("INVOICE", False, "01"),
        ("CREDIT_NOTE", False, "02"),
        ("DEBIT_NOTE", False, "03"),
        ("REFUND_NOTE", False, "04"),
        ("SELF_BILLED_INVOICE", True, "11"),
        ("CREDIT_NOTE", True, "12"),
        ("DEBIT_NOTE", True, "13"),
        ("REFUND_NOTE", True, "14"),
    ],
)
def test_every_type_has_its_code_and_issuer(kind: str, self_billed: bool, code: str) -> None:
    source = {
        **GOLDEN["credit_note"],
        "type": kind,
        "selfBilled": self_billed,
        "supplier": RESTAURANT,
    }
    whole = invoice(source, version="1.1")
    issuer = "AccountingCustomerParty" if self_billed else "AccountingSupplierParty"
    assert whole["InvoiceTypeCode"] == [{"_": code, "listVersionID": "1.1"}]
    assert identities(at(whole, f"{issuer}.Party"))["TIN"] == ISSUER["tin_code"]


def test_invoice_has_no_reference_to_an_original() -> None:
    assert "BillingReference" not in invoice({**EXAMPLE, "originals": [{"number": "X"}]})


def test_document_in_ringgit_has_no_exchange_rate() -> None:
    assert "TaxExchangeRate" not in invoice({**EXAMPLE, "currencyCode": "MYR", "exchangeRate": 1})


def test_exchange_rate_of_many_digits_is_encoded_exactly() -> None:
    raw = document.encode(
        build_document({**EXAMPLE, "currencyCode": "IDR", "exchangeRate": Decimal("2.85E-25")})
    )
    assert b'"CalculationRate":[{"_":0.000000000000000000000000285}]' in raw


# Parties

BRN = {"type": "BRN", "number": "202101033579"}
NRIC = {"type": "NRIC", "number": "800101-14-5678"}
ARMY = {"type": "ARMY", "number": "T 123"}


@pytest.mark.parametrize(
    "kind, given_tin, registration, tin, scheme, number",
    [
        ("LOCAL_INDIVIDUAL", "IG 1234-5678", BRN, "IG12345678", "BRN", "202101033579"),
        ("LOCAL_INDIVIDUAL", "IG12345678", None, "IG12345678", "NRIC", "000000000000"),
        ("LOCAL_INDIVIDUAL", None, NRIC, "EI00000000010", "NRIC", "800101145678"),
        ("LOCAL_INDIVIDUAL", "", ARMY, "EI00000000010", "ARMY", "T123"),
        ("FOREIGN_COMPANY", None, None, "EI00000000020", "BRN", "NA"),
        ("FOREIGN_INDIVIDUAL", None, {"number": "A1"}, "EI00000000020", "PASSPORT", "A1"),
        ("GOVERNMENT", None, None, "EI00000000040", "BRN", "NA"),
        ("GENERAL_PUBLIC", "C5510387420", BRN, "EI00000000010", "BRN", "NA"),
        ("LOCAL_COMPANY", "EI00000000010", None, "EI00000000010", "BRN", "NA"),
    ],
)
def test_buyer_identification_uses_the_known_numbers(
    kind: str,
    given_tin: str | None,
    registration: dict[str, str] | None,
    tin: str,
    scheme: str,
    number: str,
) -> None:
    party = buyer(type=kind, tin=given_tin, registration=registration)
    assert identities(party) == {"TIN": tin, scheme: number, "SST": "NA", "TTX": "NA"}


def test_foreign_seller_has_the_general_tin_and_no_msic() -> None:
    seller = supplier(type="FOREIGN_COMPANY", tin=None, registration=None)
    assert identities(seller)["TIN"] == "EI00000000030"
    assert seller["IndustryClassificationCode"] == [{"_": "00000", "name": "NOT APPLICABLE"}]


def test_seller_keeps_its_msic_and_tourism_tax_number() -> None:
    seller = supplier(
        msic="55101", businessActivityDescription="Hotel", tourismTaxRegistrationNumber="123-4567"
    )
    assert seller["IndustryClassificationCode"] == [{"_": "55101", "name": "Hotel"}]
    assert identities(seller)["TTX"] == "123-4567"


def test_general_public_has_no_details() -> None:
    party = buyer(type="GENERAL_PUBLIC", name="Somebody", email="some@body.example")
    assert at(party, "PartyLegalEntity.RegistrationName") == "General Public"
    assert at(party, "Contact.Telephone") == at(party, "PostalAddress.CityName") == "NA"
    assert at(party, "PostalAddress.CountrySubentityCode") == "17"
    assert "ElectronicMail" not in party["Contact"][0]
    assert "PostalZone" not in party["PostalAddress"][0]


@pytest.mark.parametrize("text", ["NA", " NA "])
def test_a_postcode_that_is_not_given_is_left_out(text: str) -> None:
    address = {"line1": "5 Jalan Dahlia", "city": "Ipoh", "state": "08", "country": "MYS"}
    party = buyer(name="Somebody", address={**address, "zipCode": text})
    assert "PostalZone" not in party["PostalAddress"][0]


@pytest.mark.parametrize("kind", get_names("party_types"))
@pytest.mark.parametrize("role", [buyer, supplier])
def test_every_party_type_has_the_mandatory_elements(role: Any, kind: Any) -> None:
    party = role(type=kind, msic="31001", businessActivityDescription="Furniture")
    paths = ["PartyLegalEntity.RegistrationName", "Contact.Telephone", "PostalAddress.CityName"]
    paths += ["PostalAddress.CountrySubentityCode", "PostalAddress.AddressLine.Line"]
    paths += ["PostalAddress.Country.IdentificationCode", "PartyIdentification.ID"]
    paths += ["IndustryClassificationCode"] if role is supplier else []
    assert all(at(party, path) for path in paths)
    assert len(party["PartyIdentification"]) == 4


@pytest.mark.parametrize("email", [{}, {"email": None}, {"email": "  "}])
def test_missing_email_is_omitted(email: dict[str, Any]) -> None:
    assert "ElectronicMail" not in buyer(**email)["Contact"][0]


@pytest.mark.parametrize(
    "given, sent_phone",
    [
        ("+60 [12] (345)-67 89", "+60123456789"),
        ("03-1234 5678", "+60312345678"),
        ("012-345 6789", "+60123456789"),
        ("(011) 2345.6789", "+601123456789"),
        ("082\N{EN DASH}123 456", "+6082123456"),
        ("60312345678", "+60312345678"),
        ("+60 (0)3-1234 5678", "+60312345678"),
        ("0060 3 1234 5678", "+60312345678"),
        ("0086 757 1234 5678", "+8675712345678"),
        ("+86 757 1234 5678", "+8675712345678"),
        ("1 300 88 2525", "1300882525"),
        ("12345678", "12345678"),
        ("03-123 456", "03123456"),
        ("03-1234 5678 ext 9", "0312345678ext9"),
    ],
)
def test_unambiguous_phone_number_becomes_international(given: str, sent_phone: str) -> None:
    assert at(buyer(contactNumber=given), "Contact.Telephone") == sent_phone


@pytest.mark.parametrize("given", ["03-1234 5678", "60312345678"])
def test_foreign_phone_number_gets_no_malaysian_prefix(given: str) -> None:
    party = buyer(contactNumber=given, address={**ADDRESS, "country": "SGP"})
    assert at(party, "Contact.Telephone") == given.replace("-", "").replace(" ", "")


def test_tax_registration_numbers_are_separated_by_semicolons() -> None:
    party = buyer(sstRegistrationNumber=" W10-1901-32000458, A01-2345-67890123 ")
    assert identities(party)["SST"] == "W10-1901-32000458;A01-2345-67890123"


# References, delivery, payment


def test_note_may_reference_bills_and_originals() -> None:
    source = {**GOLDEN["credit_note"], "references": [{"type": "BILL", "id": "DO-1"}]}
    first, second = invoice(source)["BillingReference"]
    assert [at(each, "UUID") for each in first["InvoiceDocumentReference"]] == [
        "7G3KX2M9QPWZ41VTB8RHNYDC10",
        "NA",
    ]
    assert at(second, "AdditionalDocumentReference.ID") == "DO-1"


def delivered(**given: Any) -> dict[str, Any]:
    return at(invoice({**EXAMPLE, "delivery": given}), "Delivery")


@pytest.mark.parametrize(
    "recipient, numbers",
    [
        ({"tin": "C 5510387420"}, {"TIN": "C5510387420", "BRN": "000000000000"}),
        (
            {"tin": "C5510387420", "registration": {"number": "2021-01"}},
            {"TIN": "C5510387420", "BRN": "202101"},
        ),
        (
            {"registration": {"type": "NRIC", "number": "900101105566"}},
            {"TIN": "EI00000000010", "NRIC": "900101105566"},
        ),
        ({"registration": {"type": "BRN", "number": "202101033579"}}, {"BRN": "202101033579"}),
        ({"address": {"country": "CHN"}}, {"TIN": "EI00000000020", "BRN": "NA"}),
    ],
)
def test_recipient_identification_uses_the_known_numbers(
    recipient: dict[str, Any], numbers: dict[str, Any]
) -> None:
    assert identities(at(delivered(**recipient), "DeliveryParty")) == numbers


def test_unknown_elements_of_a_recipient_are_omitted() -> None:
    party = at(
        delivered(name="Stores", address={"line1": "Gate 4", "country": "MYS"}), "DeliveryParty"
    )
    assert set(party) == {"PostalAddress", "PartyLegalEntity"}
    assert set(party["PostalAddress"][0]) == {"AddressLine", "Country"}
    assert set(delivered(charge={"amount": 5})) == {"Shipment"}
    assert "Delivery" not in invoice({**EXAMPLE, "delivery": {}})


@pytest.mark.parametrize(
    "payment, account",
    [
        ({"mode": "03"}, ISSUER["bank_account"]),
        ({"mode": "03", "bankAccount": " "}, ISSUER["bank_account"]),
        ({"mode": "03", "bankAccount": "8001"}, "8001"),
    ],
)
def test_payee_account_defaults_to_the_company_account(
    payment: dict[str, Any], account: str
) -> None:
    means = at(invoice({**EXAMPLE, "payment": payment}), "PaymentMeans")
    assert at(means, "PaymentMeansCode") == "03"
    assert at(means, "PayeeFinancialAccount.ID") == account


def test_own_bank_account_is_left_out_of_a_self_billed_invoice() -> None:
    issuer = {**ISSUER, "exporter_certified_number": "MY-CE 00123"}
    source = {**GOLDEN["self_billed_invoice"], "payment": {"mode": "01"}}
    whole = parse_exactly(document.encode(build_document(source, issuer)))["Invoice"][0]
    assert whole["PaymentMeans"] == [{"PaymentMeansCode": [{"_": "01"}]}]
    assert set(whole["AccountingSupplierParty"][0]) == {"Party"}


@pytest.mark.parametrize("payment", [{"terms": "30 days"}, {"terms": "30 days", "mode": " "}])
def test_payment_without_a_mode_has_only_terms(payment: dict[str, Any]) -> None:
    whole = invoice({**EXAMPLE, "payment": payment})
    assert at(whole, "PaymentTerms.Note") == "30 days" and "PaymentMeans" not in whole


def test_null_and_empty_members_are_omitted() -> None:
    names = ["payment", "delivery", "billingPeriod", "references", "prepayment"]
    empty: dict[str, Any] = {name: [] if name == "references" else {} for name in names}
    for nothing in (dict.fromkeys(names), empty):
        assert build_as_parsed({**EXAMPLE, **nothing}) == build_as_parsed(EXAMPLE)


# Addresses


def lines_of(**address: Any) -> list[str]:
    lines = buyer(address={**ADDRESS, **address})["PostalAddress"][0]["AddressLine"]
    return [entry["Line"][0]["_"] for entry in lines]


def test_address_lines_that_fit_are_kept() -> None:
    assert lines_of(line1=" Lot 5, ", line2="", line3="Muar") == ["Lot 5,", "Muar"]


def test_long_address_line_is_wrapped_between_words() -> None:
    first, second = lines_of(line1="Jalan " * 30, line2="Muar")
    assert len(first) <= 150 and first.endswith("Jalan")
    assert second.endswith("Muar")


def test_address_has_at_most_three_lines() -> None:
    wrapped = lines_of(line1="a\nb\nc\nd")
    assert wrapped == ["a, b, c, d"]
    assert [len(each) for each in lines_of(line1="x" * 1000)] == [150, 150, 150]


@pytest.mark.parametrize(
    "country, state, sent_state",
    [
        ("MYS", "10", "10"),
        ("CHN", "Guangdong", "Guangdong"),
        ("CHN", None, "17"),
        ("CHN", "10", "17"),
        ("CHN", "17", "17"),
    ],
)
def test_foreign_state_is_text_or_17(country: str, state: str | None, sent_state: str) -> None:
    party = buyer(address={**ADDRESS, "country": country, "state": state})
    assert at(party, "PostalAddress.CountrySubentityCode") == sent_state


def test_texts_are_trimmed_shortened_and_without_line_feeds() -> None:
    assert (
        at(buyer(name=" A\r\nB" + "x" * 400), "PartyLegalEntity.RegistrationName")
        == "A B" + "x" * 297
    )


# Lines


def test_line_without_an_id_is_numbered() -> None:
    items = [line(id="a"), {name: member for name, member in line().items() if name != "id"}]
    assert [
        each["ID"][0]["_"] for each in invoice({**EXAMPLE, "lineItems": items})["InvoiceLine"]
    ] == ["a", "2"]


def test_exempt_lines_share_a_subtotal_with_distinct_reasons() -> None:
    items = [
        line(taxDetails=[tax("E", 0)], taxExemptionReason=reason) for reason in ("A", "B", "A")
    ]
    category = at(invoice({**EXAMPLE, "lineItems": items}), "TaxTotal.TaxSubtotal.TaxCategory")
    assert at(category, "TaxExemptionReason") == "A, B"


def test_an_unknown_address_has_only_its_line_and_state() -> None:
    (sent,) = build_postal_address({"line1": "NA", "state": "10", "city": "", "country": None})
    assert sent == {
        "CountrySubentityCode": [{"_": "10"}],
        "AddressLine": [{"Line": [{"_": "NA"}]}],
    }


def write_golden_files() -> None:
    """Rewrite the golden files, and print what changes."""
    for name in GOLDEN:
        path, built = DOCUMENTS / f"{name}.json", encode_golden(name)
        golden = path.read_bytes() if path.exists() else b"{}"
        print(f"{name}: {compare(golden, built) or 'unchanged'}")
        path.write_bytes(built)


if __name__ == "__main__":
    write_golden_files()

"""The content of printed pages: documents read back, and the format of numbers and parties."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from service.documents import codes, printing
from service.documents.codes import CodeTable, get_names, is_known
from service.documents.printing import COMMON_UNITS, Printout
from service.documents.ubl import document, parties, reader
from tests.documents.sources import EXAMPLE, GOLDEN, ISSUER, ISSUERS, MILL, RESTAURANT
from tests.documents.test_document import build_document
from tests.harness.paths import DOCUMENTS


@pytest.mark.parametrize("name", GOLDEN)
def test_a_sent_document_prints_like_its_draft(name: str) -> None:
    read = reader.read((DOCUMENTS / f"{name}.json").read_bytes())
    drafted = printing.make_draft_printout(GOLDEN[name], ISSUERS.get(name, ISSUER))
    assert read.sums == drafted.sums
    assert read[:3] == drafted[:3]
    assert (read.allowances, read.charges) == (drafted.allowances, drafted.charges)
    assert read.terms == drafted.terms
    assert [original["number"] for original in read.originals] == [
        each["number"] for each in drafted.originals
    ]
    for item, source in zip(read.items, drafted.items, strict=True):
        assert item == {name: member for name, member in source.items() if name in item}
        assert source.keys() - item.keys() <= {"discount", "charge", "taxDetails"}


@pytest.mark.parametrize("name", GOLDEN)
def test_parties_of_a_sent_document_print_like_its_draft(name: str) -> None:
    read = reader.read((DOCUMENTS / f"{name}.json").read_bytes())
    drafted = printing.make_draft_printout(GOLDEN[name], ISSUERS.get(name, ISSUER))
    for mine, theirs in ((read.supplier, drafted.supplier), (read.buyer, drafted.buyer)):
        assert mine["name"] == theirs["name"]
        assert printing.address(mine) == printing.address(theirs)
        facts = dict(printing.facts(theirs))
        if mine is read.buyer:
            facts.pop("MSIC", None)  # not in the document of a buyer
        if "Telephone" in facts:  # not for the general public
            facts["Telephone"] = facts["Telephone"].translate(dict.fromkeys(map(ord, " ()-")))
        assert dict(printing.facts(mine)).items() >= facts.items()


def test_a_per_unit_tax_prints_like_in_its_draft() -> None:
    tourism = {"taxType": "03", "taxRate": {"perUnitAmount": Decimal("10.00"), "unitCount": 3}}
    source = {**EXAMPLE, "lineItems": [{**EXAMPLE["lineItems"][0], "taxDetails": [tourism]}]}
    read = reader.read(document.encode(build_document(source)))
    assert read.sums == printing.make_draft_printout(source, ISSUER).sums
    assert printing.tax_rate(read.sums.lines[0].taxes[0]) == "10.00\u00a0×\u00a03"


def test_a_consolidated_document_has_titles_of_its_own() -> None:
    assert printing.get_titles("01", consolidated=True) == (
        "Consolidated e-Invoice",
        "e-Invois Disatukan",
    )
    assert printing.get_titles("11", consolidated=True) == (
        "Consolidated Self-billed e-Invoice",
        "e-Invois Bil Sendiri Disatukan",
    )


# The summary of taxes and the amounts in MYR


def item(net: str, *taxes: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a line of one unit with taxes, given as (type, rate)."""
    return {
        **EXAMPLE["lineItems"][0],
        "unit": {"code": "H87", "price": Decimal(net), "count": 1},
        "discount": None,
        "charge": None,
        "taxDetails": [{"taxType": kind, "taxRate": rate} for kind, rate in taxes],
    }


def percent(rate: str) -> dict[str, Any]:
    return {"percentage": Decimal(rate)}


def print_items(*items: dict[str, Any], **changes: Any) -> tuple[Printout, Printout]:
    """Return the printout of a stored document with these lines, and of the sent document."""
    source = {**EXAMPLE, "lineItems": list(items), **changes}
    sent = reader.read(document.encode(build_document(source)))
    return printing.make_draft_printout(source, ISSUER), sent


def test_taxes_are_summed_for_each_type_and_rate() -> None:
    per_unit = {"perUnitAmount": Decimal("10.0"), "unitCount": 3}
    for printout in print_items(
        item("100.00", ("02", percent("8"))),
        item("200.00", ("01", percent("10"))),
        item("50.00", ("02", percent("6.00"))),
        item("30.00", ("02", percent("8.00")), ("03", per_unit)),
        item("20.00", ("03", {"perUnitAmount": Decimal(10)})),
        item("7.00", ("06", {})),
        item("9.00", ("E", {})),
        item("1.00", ("02", percent("0"))),
    ):
        assert printout.tax_rows == [
            ("Service Tax 8%", Decimal("130.00"), Decimal("10.40")),
            ("Service Tax 6%", Decimal("50.00"), Decimal("3.00")),
            ("Service Tax 0%", Decimal("1.00"), Decimal("0.00")),
            ("Sales Tax 10%", Decimal("200.00"), Decimal("20.00")),
            ("Tourism Tax 10.00 per unit", Decimal("50.00"), Decimal("40.00")),
            ("No tax", Decimal("7.00"), Decimal("0.00")),
            ("Tax exempt", Decimal("9.00"), Decimal("0.00")),
        ]
        assert sum(tax for *_, tax in printout.tax_rows) == printout.sums.tax


@pytest.mark.parametrize("name", GOLDEN)
def test_tax_rows_of_a_document_sum_to_its_total_tax(name: str) -> None:
    read = reader.read((DOCUMENTS / f"{name}.json").read_bytes())
    assert sum(tax for *_, tax in read.tax_rows) == read.sums.tax


def test_totals_of_a_foreign_invoice_are_converted_and_rounded_half_up() -> None:
    lines = [item("1.00", ("02", percent("10")))]
    for printout in print_items(*lines, currencyCode="USD", exchangeRate=Decimal("4.45")):
        assert printout.home_sums == (Decimal("0.45"), Decimal("4.90"))


def test_the_largest_totals_are_converted_exactly() -> None:
    rate = Decimal("123456789012345.12345678901234567891")
    lines = [item("999999999999999.99", ("06", {}))]
    for printout in print_items(*lines, currencyCode="USD", exchangeRate=rate):
        assert printout.home_sums
        assert printout.home_sums[1] == Decimal("123456789012345122222221122222.23")


@pytest.mark.parametrize("currency, rate", [("MYR", None), ("MYR", Decimal(1)), ("USD", None)])
def test_totals_without_a_foreign_currency_or_a_rate_are_not_converted(
    currency: str, rate: Decimal | None
) -> None:
    source = {**EXAMPLE, "currencyCode": currency, "exchangeRate": rate}
    assert printing.make_draft_printout(source, ISSUER).home_sums is None


def test_numbers_longer_than_in_a_request_are_read() -> None:
    """The rate of a discount becomes a factor with two more decimal places."""
    rate = Decimal("0." + "1" * 20)
    source = {**EXAMPLE, "lineItems": [{**EXAMPLE["lineItems"][0], "discount": {"rate": rate}}]}
    read = reader.read(document.encode(build_document(source)))
    discount = read.sums.lines[0].discount
    assert discount and discount.factor == rate.scaleb(-2)


# Units


@pytest.mark.parametrize(
    "code, count, written",
    [
        ("KGM", 2, "2 kg"),
        ("LTR", Decimal("0.5"), "0.5 L"),
        ("MTK", 12, "12 m²"),
        ("H87", 1, "1 piece"),
        ("H87", Decimal("1.0"), "1.0 piece"),
        ("H87", 12000, "12,000 pieces"),
        ("XBX", 3, "3 boxes"),
        ("HUR", Decimal("1.5"), "1.5 hours"),
        ("E48", 2, "2 service units"),
        ("XQZ", 2, "2 XQZ"),
        ("", 2, "2"),
        (None, 2, "2"),
    ],
)
def test_a_quantity_is_printed_with_the_name_of_its_unit(
    code: str | None, count: Any, written: str
) -> None:
    assert printing.quantity({"code": code, "count": count}) == written
    assert code is not None or printing.quantity({"count": count}) == written


@pytest.fixture
def imported_units() -> Iterator[None]:
    names = {"KGM": "kilogram", "XQZ": "crate of tests"}
    codes.replace_tables([CodeTable("units", names, datetime(2026, 3, 2).date())])
    yield
    codes.replace_tables([])


def test_a_unit_of_the_imported_table_is_printed_by_its_name(imported_units: None) -> None:
    assert printing.quantity({"code": "XQZ", "count": 2}) == "2 crate of tests"
    assert printing.quantity({"code": "KGM", "count": 2}) == "2 kg"


def test_every_common_unit_is_a_known_unit() -> None:
    assert [code for code in COMMON_UNITS if not is_known("units", code)] == []


# Numbers and times


@pytest.mark.parametrize(
    "number, written",
    [
        (Decimal("48.5"), "48.50"),
        (48, "48.00"),
        (Decimal("0.00125"), "0.00125"),
        (Decimal("1234.500"), "1,234.500"),
        (Decimal("1E+3"), "1,000.00"),
        (
            Decimal("123456789012345.12345678901234567890"),
            "123,456,789,012,345.12345678901234567890",
        ),
    ],
)
def test_a_unit_price_keeps_its_decimal_places(number: Any, written: str) -> None:
    assert printing.price(number) == written


def test_a_quantity_is_printed_as_given() -> None:
    assert [printing.plain(each) for each in (12000, Decimal("1.50"), Decimal("1E-7"))] == [
        "12,000",
        "1.50",
        "0.0000001",
    ]


@pytest.mark.parametrize(
    "factor, written",
    [(None, ""), ("0.05", "5%"), ("0.125", "12.5%"), ("0.1000", "10%"), ("1", "100%")],
)
def test_a_factor_is_printed_as_a_percentage(factor: str | None, written: str) -> None:
    assert printing.share(None if factor is None else Decimal(factor)) == written


def test_times_are_printed_in_the_business_time_zone() -> None:
    at, zone = datetime(2026, 9, 14, 17, 0, 5, tzinfo=UTC), ZoneInfo("Asia/Kuala_Lumpur")
    assert printing.day(at, zone) == "15 September 2026"
    assert printing.clock(at, zone) == "01:00:05 (UTC+08:00)"


def test_every_document_type_has_two_titles() -> None:
    assert printing.TITLES.keys() == get_names("document_types").keys()
    assert printing.get_titles("02") == ("Credit Note", "Nota Kredit")


# Parties


def test_a_party_is_printed_with_its_identifiers() -> None:
    seller = parties.make_issuer_party(ISSUER)
    assert printing.facts(seller) == [
        ("TIN", "C4821093650"),
        ("Registration no. (BRN)", "201801024680"),
        ("SST no.", "W10-1901-32000458"),
        ("MSIC", "31001 Manufacture of wooden and cane furniture"),
        ("Telephone", "+60 (6) 987-1234"),
        ("E-mail", "akaun@serimaju.example"),
    ]


def test_placeholder_values_are_not_printed() -> None:
    numbers = {
        "sstRegistrationNumber": "NA",
        "msic": "00000",
        "businessActivityDescription": "NOT APPLICABLE",
    }
    unnamed = {
        "registration": {"type": "BRN", "number": "000000000000"},
        "contactNumber": "NA",
        "tin": None,
        **numbers,
    }
    assert printing.facts(unnamed) == printing.facts({}) == []
    assert (
        printing.address(
            {"address": {"line1": "NA", "city": "NA", "state": "17", "country": "MYS"}}
        )
        == []
    )


def test_an_address_is_printed_with_state_and_country() -> None:
    assert printing.address(RESTAURANT) == [
        "12 Jalan Kristal 7/68",
        "40150 Shah Alam",
        "Selangor, MALAYSIA",
    ]
    assert printing.address(MILL) == ["88 Huanshi Road", "528000 Foshan", "CHINA"]
    abroad = {"line1": "1 Rd", "city": "Austin", "state": "TX", "country": "USA"}
    assert printing.address({"address": abroad})[-1].startswith("TX, ")


def test_terms_of_a_document_are_printed() -> None:
    read = reader.read((DOCUMENTS / "everything.json").read_bytes())
    labels = [
        "Payment by",
        "Bank account",
        "Terms of payment",
        "Prepayment",
        "Billing period",
        "Delivery to",
        "Bill reference",
    ]
    assert [label for label, _ in read.terms] == labels
    assert (
        dict(read.terms)["Payment by"]
        == get_names("payment_modes")[GOLDEN["everything"]["payment"]["mode"]]
    )
    assert dict(read.terms)["Prepayment"] == "2026-09-02 04:00:00Z, DEP-771"
    assert dict(read.terms)["Delivery to"] == GOLDEN["everything"]["delivery"]["name"]

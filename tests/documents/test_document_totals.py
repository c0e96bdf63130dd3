"""Totals of random documents add up to the cent, recomputed from the document.

Portal: 10.7, 10.8.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from service.documents.money import AmountError
from service.documents.ubl import document
from tests.documents.sources import EXAMPLE, ISSUER, line, tax

CENT = Decimal("0.01")


def numbers(most: int, places: int) -> st.SearchStrategy[Decimal]:
    return st.decimals(0, most, places=places, allow_nan=False, allow_infinity=False)


# Common values and unusual ones.
AMOUNTS = numbers(1000, 2) | numbers(100_000, 3)
PRICES = numbers(100, 1) | numbers(10_000, 6)
COUNTS = st.integers(0, 20).map(Decimal) | numbers(1000, 5)
PERCENTAGES = st.sampled_from([0, 5, 6, 8, 10, Decimal("2.5")]) | numbers(100, 4)
RATES = st.one_of(
    st.builds(lambda percentage: {"percentage": percentage}, PERCENTAGES),
    st.builds(lambda each: {"perUnitAmount": each}, numbers(1000, 4)),
    st.builds(
        lambda each, units: {"perUnitAmount": each, "unitCount": units},
        numbers(1000, 4),
        numbers(100, 5),
    ),
)
TAXES = st.builds(
    lambda kind, rate: {"taxType": kind, "taxRate": rate},
    st.sampled_from(["01", "02", "03", "04", "05", "06", "E"]),
    RATES,
)
ADJUSTMENTS = (
    st.none()
    | st.builds(lambda amount: {"amount": amount}, AMOUNTS)
    | st.builds(lambda rate: {"rate": rate, "reason": "agreed"}, PERCENTAGES)
)


@st.composite
def lines(draw: st.DrawFn) -> dict[str, Any]:
    unit = {"code": "H87", "price": draw(PRICES), "count": draw(COUNTS)}
    found = {name: draw(ADJUSTMENTS) for name in ("discount", "charge")}
    given_ones = {name: each for name, each in found.items() if each}
    taxes = draw(st.lists(TAXES, min_size=1, max_size=3))
    return line(unit=unit, taxDetails=taxes, taxExemptionReason="Order 7", **given_ones)


@st.composite
def sources(draw: st.DrawFn) -> dict[str, Any]:
    entries = st.lists(st.builds(lambda amount: {"amount": amount}, AMOUNTS), max_size=3)
    return {
        **EXAMPLE,
        "lineItems": draw(st.lists(lines(), min_size=1, max_size=5)),
        "invoiceLevelAllowanceCharge": {"allowances": draw(entries), "charges": draw(entries)},
        "delivery": {"charge": {"amount": draw(AMOUNTS)}},
        **draw(st.sampled_from([{}, {"currencyCode": "USD", "exchangeRate": Decimal("4.2155")}])),
    }


#: Amounts that end in half a cent, above an even cent.
HALVES = {
    **EXAMPLE,
    "lineItems": [
        line(
            unit={"code": "H87", "price": Decimal("0.025"), "count": 1},
            charge={"rate": Decimal("83.5")},
            taxDetails=[
                tax("01", 10),
                {"taxType": "03", "taxRate": {"perUnitAmount": Decimal("0.145")}},
            ],
        ),
        line(
            unit={"code": "H87", "price": Decimal("0.5"), "count": 1},
            discount={"rate": 5},
            taxDetails=[tax("02", 5)],
        ),
        line(unit={"code": "H87", "price": Decimal("0.5"), "count": 1}, taxDetails=[tax("02", 5)]),
    ],
}


@example(HALVES)
@settings(max_examples=100, deadline=None, database=None)
@given(sources())
def test_totals_of_a_document_add_up(source: dict[str, Any]) -> None:
    try:
        built = document.build(
            source, ISSUER, number="INV-1", issued_at=datetime(2026, 9, 14, tzinfo=UTC)
        )
    except AmountError:
        assume(False)  # the allowance exceeds the amount it is deducted from
    invoice = json.loads(document.encode(built), parse_float=Decimal, parse_int=Decimal)["Invoice"][
        0
    ]
    with localcontext(prec=60):
        for each in invoice["InvoiceLine"]:
            check_line(each)
        check_document(invoice)
    currencies = {entry["currencyID"] for entry in with_currency(invoice)}
    assert currencies == {invoice["DocumentCurrencyCode"][0]["_"]}
    assert all(
        entry["_"] == round_to_cent(entry["_"])
        for entry in with_currency(invoice, but={"PriceAmount", "PerUnitAmount"})
    )


def check_line(item: dict[str, Any]) -> None:
    subtotal = number(item, "ItemPriceExtension.Amount")
    assert subtotal == round_to_cent(
        number(item, "Price.PriceAmount") * number(item, "InvoicedQuantity")
    )
    for each in item.get("AllowanceCharge", ()):
        if "MultiplierFactorNumeric" in each:
            assert number(each, "Amount") == round_to_cent(
                subtotal * number(each, "MultiplierFactorNumeric")
            )
    discounts, charges = adjustments(item)
    net = number(item, "LineExtensionAmount")
    assert net == subtotal - discounts + charges >= 0
    (taxes,) = item["TaxTotal"]
    assert number(taxes, "TaxAmount") == sum(map(check_tax, taxes["TaxSubtotal"]))
    assert {number(each, "TaxableAmount") for each in taxes["TaxSubtotal"]} == {net}


def check_tax(subtotal: dict[str, Any]) -> Decimal:
    """Return the tax of a subtotal that is part of the totals."""
    tax = number(subtotal, "TaxAmount")
    if "Percent" in subtotal:
        assert tax == round_to_cent(
            number(subtotal, "TaxableAmount") * number(subtotal, "Percent") / 100
        )
    else:
        assert tax == round_to_cent(
            number(subtotal, "PerUnitAmount") * number(subtotal, "BaseUnitMeasure")
        )
    return Decimal(0) if kind(subtotal) == "E" else tax


def check_document(invoice: dict[str, Any]) -> None:
    (totals,), (taxes,) = invoice["LegalMonetaryTotal"], invoice["TaxTotal"]
    discounts, charges = adjustments(invoice)
    net = sum(number(each, "LineExtensionAmount") for each in invoice["InvoiceLine"])
    assert number(totals, "LineExtensionAmount") == net
    assert ("AllowanceTotalAmount" in totals) == (discounts > 0)
    assert ("ChargeTotalAmount" in totals) == (charges > 0)
    assert read_optional_number(totals, "AllowanceTotalAmount") == discounts
    assert read_optional_number(totals, "ChargeTotalAmount") == charges
    assert number(totals, "TaxExclusiveAmount") == net - discounts + charges
    tax = number(taxes, "TaxAmount")
    charged = [each for each in taxes["TaxSubtotal"] if kind(each) != "E"]
    assert tax == sum(number(each, "TaxAmount") for each in charged)
    assert number(totals, "TaxInclusiveAmount") == number(totals, "TaxExclusiveAmount") + tax
    prepaid = sum(number(each, "PaidAmount") for each in invoice.get("PrepaidPayment", ()))
    rounding = read_optional_number(totals, "PayableRoundingAmount")
    total = number(totals, "TaxInclusiveAmount") + rounding
    assert number(totals, "PayableAmount") == total - prepaid >= 0
    of_lines = [
        each for item in invoice["InvoiceLine"] for each in item["TaxTotal"][0]["TaxSubtotal"]
    ]
    assert max(Counter(map(kind, taxes["TaxSubtotal"])).values()) == 1
    assert by_kind(taxes["TaxSubtotal"], "TaxAmount") == by_kind(of_lines, "TaxAmount")
    once = [
        each
        for item in invoice["InvoiceLine"]
        for each in {kind(each): each for each in item["TaxTotal"][0]["TaxSubtotal"]}.values()
    ]
    assert by_kind(taxes["TaxSubtotal"], "TaxableAmount") == by_kind(once, "TaxableAmount")


def by_kind(subtotals: list[dict[str, Any]], member: str) -> dict[str, Decimal]:
    sums = dict.fromkeys(map(kind, subtotals), Decimal(0))
    for each in subtotals:
        sums[kind(each)] += number(each, member)
    return sums


def kind(subtotal: dict[str, Any]) -> str:
    return subtotal["TaxCategory"][0]["ID"][0]["_"]


def adjustments(holder: dict[str, Any]) -> tuple[Decimal, Decimal]:
    """Return (discounts, charges) of a line or a document."""
    sums = {False: Decimal(0), True: Decimal(0)}
    for each in holder.get("AllowanceCharge", ()):
        sums[each["ChargeIndicator"][0]["_"]] += number(each, "Amount")
    return sums[False], sums[True]


def number(holder: dict[str, Any], path: str) -> Decimal:
    """Return the number at a path, whose elements occur once."""
    element: Any = holder
    for name in path.split("."):
        (element,) = element[name]
    return element["_"]


def read_optional_number(holder: dict[str, Any], name: str) -> Decimal:
    return number(holder, name) if name in holder else Decimal(0)


def round_to_cent(exact: Decimal) -> Decimal:
    return exact.quantize(CENT, ROUND_HALF_UP)


def with_currency(value: Any, but: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield every amount within a value except those under the names in `but`."""
    if isinstance(value, list):
        for entry in value:
            yield from ([entry] if "currencyID" in entry else with_currency(entry, but))
    elif isinstance(value, dict):
        for name, member in value.items():
            if name not in but:
                yield from with_currency(member, but)

"""Amounts are exact decimals, rounded half up; invalid numbers are named."""

from decimal import Decimal
from typing import Any

import pytest

from service.documents import money

HUGE = Decimal("999999999999999")
TEN_A_NIGHT = {"taxType": "03", "taxRate": {"perUnitAmount": "ten"}}


#: A number as tests write it.
Number = Decimal | str | int


def item(
    price: Number = "10.00", count: Number = "1", *taxes: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {
        "unit": {"price": Decimal(price), "count": Decimal(count)},
        "taxDetails": list(taxes),
        **more,
    }


def percent(kind: str, percentage: Number) -> dict[str, Any]:
    return {"taxType": kind, "taxRate": {"percentage": Decimal(percentage)}}


def compute(*lines: dict[str, Any], **more: Any) -> money.Totals:
    return money.compute_document({"lineItems": lines, **more})


def find_paths(body: dict[str, Any]) -> list[str]:
    """Return the paths of the invalid amounts of a body."""
    with pytest.raises(money.AmountError) as raised:
        money.compute_document(body)
    return [path for path, _ in raised.value.found]


@pytest.mark.parametrize(
    "exact, rounded",
    [
        ("0.005", "0.01"),
        ("0.004999999999999999999", "0.00"),
        ("1.005", "1.01"),
        ("1.015", "1.02"),
        ("2.675", "2.68"),
        ("2.665", "2.67"),
        ("-1.005", "-1.01"),
        ("1E+3", "1000.00"),
        ("7", "7.00"),
    ],
)
def test_half_a_cent_rounds_away_from_zero(exact: str, rounded: str) -> None:
    assert str(money.round_cents(Decimal(exact))) == rounded


def test_zero_is_a_number_in_every_form() -> None:
    assert compute(item("0E+20"), item("0.000"), item("0E-3")).payable == 0


@pytest.mark.parametrize(
    "rate, forgone",
    [
        ({"percentage": 10}, "10.00"),
        ({"percentage": Decimal("0.125")}, "0.13"),
        ({"perUnitAmount": 10, "unitCount": 3}, "30.00"),
        ({}, "0.00"),
    ],
)
def test_an_exempt_line_keeps_its_rate_and_forgoes_the_tax(
    rate: dict[str, Any], forgone: str
) -> None:
    sums = compute(item("100.00", "1", {"taxType": "E", "taxRate": rate}))
    ((tax,),) = (line.taxes for line in sums.lines)
    assert tax.percentage == (None if "perUnitAmount" in rate else rate.get("percentage", 0))
    assert tax.per_unit == rate.get("perUnitAmount")
    assert (tax.amount, tax.at_rate, tax.taxable) == (0, Decimal(forgone), 100)
    assert sums.by_tax_type == {"E": (100, 0, Decimal(forgone))}
    assert (sums.lines[0].tax, sums.tax, sums.including_tax, sums.payable) == (0, 0, 100, 100)


def test_a_tax_forgone_has_the_limit_of_amounts() -> None:
    body = {"lineItems": [item("10000", "1", percent("E", "99999999999999"))]}
    assert find_paths(body) == ["/lineItems"]


def test_a_discount_as_large_as_the_line_leaves_zero() -> None:
    assert money.compute_line(item("1.00", discount={"amount": 1})).net == 0


@pytest.mark.parametrize(
    "prepaid, rounding, payable",
    [
        (None, None, "10.00"),
        ("4", None, "6.00"),
        (None, "-0.02", "9.98"),
        ("0.005", 1, "10.99"),
        ("10.05", "0.05", "0.00"),
    ],
)
def test_payable_amount_is_rounded_and_without_the_prepayment(
    prepaid: str | None, rounding: str | int | None, payable: str
) -> None:
    sums = money.compute_document(settled(prepaid, rounding))
    assert str(sums.payable) == payable
    assert sums.total == sums.payable + sums.prepaid == sums.including_tax + sums.rounding
    assert sums.including_tax == 10


def settled(prepaid: str | None, rounding: str | int | None) -> dict[str, Any]:
    return {
        "lineItems": [item("10")],
        "prepayment": prepaid and {"amount": Decimal(prepaid)},
        "payableRoundingAmount": None if rounding is None else Decimal(rounding),
    }


@pytest.mark.parametrize(
    "prepaid, rounding, path",
    [
        ("10.01", None, "/prepayment/amount"),
        ("10", "-0.01", "/prepayment/amount"),
        ("-1", None, "/prepayment/amount"),
        (None, "0.005", "/payableRoundingAmount"),
        (None, "-10.01", "/payableRoundingAmount"),
    ],
)
def test_a_settlement_over_the_amount_of_the_document_is_refused(
    prepaid: str | None, rounding: str | None, path: str
) -> None:
    assert find_paths(settled(prepaid, rounding)) == [path]


def test_a_document_may_have_no_adjustments() -> None:
    assert compute(item(), invoiceLevelAllowanceCharge={}).payable == 10
    assert compute(item(), invoiceLevelAllowanceCharge=None).payable == 10


@pytest.mark.parametrize(
    "line, path",
    [
        (item("1.00", discount={"amount": Decimal("1.01")}), "/lineItems/0/discount"),
        (item("1.00", discount={"rate": 101}), "/lineItems/0/discount"),
        (item("1.00", discount={}, charge={"reason": "rush"}), "/lineItems/0/charge/amount"),
        (item("-1.00"), "/lineItems/0/unit/price"),
        (item("1", "NaN"), "/lineItems/0/unit/count"),
        (item("1E+15"), "/lineItems/0/unit/price"),
        (item("1E+999999", "0"), "/lineItems/0/unit/price"),
        (item("1E-21"), "/lineItems/0/unit/price"),
        (item("1", "1", percent("01", "-6")), "/lineItems/0/taxDetails/0/taxRate/percentage"),
        (item("1", "1", TEN_A_NIGHT), "/lineItems/0/taxDetails/0/taxRate/perUnitAmount"),
        ({"unit": {"price": 1}}, "/lineItems/0/unit/count"),
    ],
)
def test_an_invalid_number_is_named(line: dict[str, Any], path: str) -> None:
    assert find_paths({"lineItems": [line]}) == [path]


def test_every_invalid_line_is_named() -> None:
    body = {"lineItems": [item("-1"), item(), item("-1")]}
    assert find_paths(body) == ["/lineItems/0/unit/price", "/lineItems/2/unit/price"]


def test_taxes_of_one_type_on_a_line_share_its_taxable_amount() -> None:
    """The taxes are added; the taxable amount of the line counts once."""
    line = {"unit": {"price": 100, "count": 1}}
    rates = [{"taxType": "02", "taxRate": {"percentage": rate}} for rate in (6, 8)]
    twice, other = {**line, "taxDetails": rates}, {**line, "taxDetails": rates[:1]}
    assert compute(twice).by_tax_type == {"02": (100, 14, 14)}
    assert compute(twice, other).by_tax_type == {"02": (200, 20, 20)}


def test_taxes_of_one_rate_on_a_line_share_its_taxable_amount() -> None:
    rate = {"taxType": "02", "taxRate": {"percentage": 8}}
    sums = compute({"unit": {"price": 100, "count": 1}, "taxDetails": [rate, rate]})
    assert money.sum_taxes(sums.lines, lambda tax: tax.percentage) == {8: (100, 16, 16)}


def test_allowances_larger_than_the_document_are_refused() -> None:
    body = {"lineItems": [item()], "invoiceLevelAllowanceCharge": {"allowances": [{"amount": 11}]}}
    assert find_paths(body) == ["/invoiceLevelAllowanceCharge/allowances"]


def test_the_largest_numbers_are_a_violation_not_an_exception() -> None:
    line = item(HUGE, HUGE, percent("01", HUGE), charge={"rate": HUGE})
    assert find_paths({"lineItems": [line] * 1000}) == ["/lineItems"]


@pytest.mark.parametrize("price", ["999999999999999", "999999999999999.99"])
def test_a_sum_of_fifteen_digits_fits(price: str) -> None:
    assert compute(item(price)).payable == Decimal(price)


def test_a_sum_of_sixteen_digits_is_refused() -> None:
    assert find_paths({"lineItems": [item(HUGE), item("1")]}) == ["/lineItems"]


def test_long_fractions_are_multiplied_exactly() -> None:
    line = item("0.33333333333333333333", "999999999999999")
    assert money.compute_line(line).subtotal == Decimal("333333333333333.00")


def test_a_binary_float_is_refused() -> None:
    with pytest.raises(TypeError):
        compute({"unit": {"price": 0.1, "count": 1}})

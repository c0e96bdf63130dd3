"""Arithmetic of amounts. Portal: 10.7, 10.8

Wrong amounts are warnings, or findings if `strict_totals` is set: the portal is not known to check
them.
"""

from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from ..controls import Controls
from ..document import CENT, EXACT, Document, entries, value, values
from . import Finding

TOTAL = "LegalMonetaryTotal"
TAX = "TaxTotal.TaxSubtotal"
EXEMPT = "E"

#: (path, amount or None, expected amount).
Comparison = tuple[str, Any, Decimal]


def check(document: Document, now: float, controls: Controls) -> Iterator[Finding]:
    """Yield the wrong amounts as findings if `strict_totals` is set."""
    for target, message in wrong_amounts(document.invoice) if controls.strict_totals else ():
        yield Finding(None, message, target, f"Invoice.{target}")


def warnings(document: Document) -> list[dict[str, str]]:
    """Return {target, message} of each wrong amount."""
    return [
        {"target": target, "message": message}
        for target, message in wrong_amounts(document.invoice)
    ]


def wrong_amounts(invoice: Any) -> Iterator[tuple[str, str]]:
    """Yield (path, message) of each amount that is present and wrong."""
    for target, found, expected in (
        *compare_lines(invoice),
        *compare_totals(invoice),
        *compare_tax_types(invoice),
        *compare_taxable_amounts(invoice),
    ):
        if found is not None and found != expected:
            yield target, f"{target} is {Decimal(found):f} and should be {expected:f}."


def compare_lines(invoice: Any) -> Iterator[Comparison]:
    """Yield the amounts of each line. Price times quantity is rounded half up."""
    for index, line in enumerate(entries(invoice, "InvoiceLine")):
        subtotal, where = value(line, "ItemPriceExtension.Amount"), f"InvoiceLine[{index}]"
        price, quantity = value(line, "Price.PriceAmount"), value(line, "InvoicedQuantity")
        if quantity is not None:
            exact = EXACT.multiply(Decimal(price), Decimal(quantity))
            expected = exact.quantize(CENT, ROUND_HALF_UP, EXACT)
            yield f"{where}.ItemPriceExtension.Amount", subtotal, expected
        net = Decimal(subtotal) - allowances(line, False) + allowances(line, True)
        yield f"{where}.LineExtensionAmount", value(line, "LineExtensionAmount"), net
        tax = charged_tax(line)
        yield f"{where}.TaxTotal.TaxAmount", value(line, "TaxTotal.TaxAmount"), tax


def compare_totals(invoice: Any) -> Iterator[Comparison]:
    """Yield the totals. Tax in another currency than the document's is not added."""
    lines = sum_of(invoice, "InvoiceLine.LineExtensionAmount")
    discounts, charges = allowances(invoice, False), allowances(invoice, True)
    yield compare_total(invoice, "LineExtensionAmount", lines)
    yield compare_total(invoice, "AllowanceTotalAmount", discounts)
    yield compare_total(invoice, "ChargeTotalAmount", charges)
    yield compare_total(invoice, "TaxExclusiveAmount", lines - discounts + charges)
    tax = charged_tax(invoice)
    yield "TaxTotal.TaxAmount", value(invoice, "TaxTotal.TaxAmount"), tax
    currency = value(invoice, "DocumentCurrencyCode")
    if set(values(invoice, "TaxTotal.TaxAmount", "currencyID")) <= {currency}:
        excluding = sum_of(invoice, f"{TOTAL}.TaxExclusiveAmount")
        including = excluding + sum_of(invoice, "TaxTotal.TaxAmount")
        yield compare_total(invoice, "TaxInclusiveAmount", including)
        rounding = sum_of(invoice, f"{TOTAL}.PayableRoundingAmount")
        payable = including - sum_of(invoice, "PrepaidPayment.PaidAmount") + rounding
        yield compare_total(invoice, "PayableAmount", payable)


def compare_tax_types(invoice: Any) -> Iterator[Comparison]:
    """Yield the tax of each type, if lines and document give it in one currency."""
    paths = (f"{TAX}.TaxAmount", f"InvoiceLine.{TAX}.TaxAmount")
    if len({currency for path in paths for currency in values(invoice, path, "currencyID")}) == 1:
        lines = sum_by_type(invoice, f"InvoiceLine.{TAX}")
        for kind, found in sum_by_type(invoice, TAX).items():
            yield f"{TAX}.TaxAmount ({kind})", found, lines.get(kind, Decimal(0))


def compare_taxable_amounts(invoice: Any) -> Iterator[Comparison]:
    """Yield the taxable amount of each type, if document and lines give it."""
    expected: dict[Any, Decimal] = {}
    for line in entries(invoice, "InvoiceLine"):
        for kind, taxable in taxable_by_type(line).items():
            expected[kind] = expected.get(kind, Decimal(0)) + taxable
    for subtotal in entries(invoice, TAX):
        kind = value(subtotal, "TaxCategory.ID")
        if kind in expected:
            target = f"{TAX}.TaxableAmount ({kind})"
            yield target, value(subtotal, "TaxableAmount"), expected[kind]


def taxable_by_type(line: Any) -> dict[Any, Decimal]:
    """Return the taxable amounts of a line by tax type.

    Several taxes of one type share the net amount of the line, so that it counts once. Portal: 10.7
    """
    amounts: dict[Any, list[Decimal]] = {}
    for subtotal in entries(line, TAX):
        kind, taxable = value(subtotal, "TaxCategory.ID"), value(subtotal, "TaxableAmount")
        amounts.setdefault(kind, []).extend([] if taxable is None else [Decimal(taxable)])
    net = Decimal(value(line, "LineExtensionAmount"))
    sums = {kind: sum(given, Decimal(0)) for kind, given in amounts.items() if given}
    return {
        kind: min(taxable, net, key=abs) if len(amounts[kind]) > 1 else taxable
        for kind, taxable in sums.items()
    }


def sum_by_type(invoice: Any, path: str) -> dict[Any, Decimal]:
    """Return the sums of the tax subtotals at a path by tax type."""
    sums: dict[Any, Decimal] = {}
    for each in entries(invoice, path):
        kind = value(each, "TaxCategory.ID")
        sums[kind] = sums.get(kind, Decimal(0)) + Decimal(value(each, "TaxAmount"))
    return sums


def charged_tax(node: Any) -> Decimal:
    """Return the sum of a node's own tax subtotals, without the tax forgone. Portal: 10.7"""
    charged = [each for each in entries(node, TAX) if value(each, "TaxCategory.ID") != EXEMPT]
    return sum((Decimal(value(each, "TaxAmount")) for each in charged), Decimal(0))


def compare_total(invoice: Any, name: str, expected: Decimal) -> Comparison:
    """Return the comparison of one monetary total."""
    path = f"{TOTAL}.{name}"
    return path, value(invoice, path), expected


def sum_of(node: Any, path: str) -> Decimal:
    """Return the sum of the amounts at a path."""
    return sum((Decimal(amount) for amount in values(node, path)), Decimal(0))


def allowances(node: Any, is_charge: bool) -> Decimal:
    """Return the sum of the node's own charges, or of its discounts."""
    found = [
        each
        for each in entries(node, "AllowanceCharge")
        if value(each, "ChargeIndicator") is is_charge
    ]
    return sum((Decimal(value(each, "Amount")) for each in found), Decimal(0))

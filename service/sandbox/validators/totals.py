"""Arithmetic of amounts. Portal: 10.7, 10.8

Wrong amounts are warnings, or findings if `strict_totals` is set: the portal is not known to check
them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal

from ..document import entries, multiply, value, values
from . import Finding

TOTAL = "LegalMonetaryTotal"
TAX = "TaxTotal.TaxSubtotal"
EXEMPT = "E"

#: (path, amount or None, expected amount).
Comparison = tuple[str, Decimal | int | None, Decimal]


def check(invoice: object) -> list[Finding]:
    """Return a finding for each amount that is present and wrong."""
    compared = (
        *compare_lines(invoice),
        *compare_totals(invoice),
        *compare_tax_types(invoice),
        *compare_taxable_amounts(invoice),
    )
    return [
        Finding(
            None,
            f"{path} is {Decimal(found):f} and should be {expected:f}.",
            path,
            f"Invoice.{path}",
        )
        for path, found, expected in compared
        if found is not None and found != expected
    ]


def compare_lines(invoice: object) -> Iterator[Comparison]:
    """Yield the amounts of each line. Price times quantity is rounded half up."""
    for index, line in enumerate(entries(invoice, "InvoiceLine")):
        subtotal, where = value(line, "ItemPriceExtension.Amount"), f"InvoiceLine[{index}]"
        price, quantity = value(line, "Price.PriceAmount"), value(line, "InvoicedQuantity")
        if quantity is not None:
            yield f"{where}.ItemPriceExtension.Amount", subtotal, multiply(price, quantity)
        net = Decimal(subtotal) - allowances(line, False) + allowances(line, True)
        yield f"{where}.LineExtensionAmount", value(line, "LineExtensionAmount"), net
        tax = charged_tax(line)
        yield f"{where}.TaxTotal.TaxAmount", value(line, "TaxTotal.TaxAmount"), tax


def compare_totals(invoice: object) -> Iterator[Comparison]:
    """Yield the totals. Tax in another currency than the document's is not added."""
    lines = total(values(invoice, "InvoiceLine.LineExtensionAmount"))
    discounts, charges = allowances(invoice, False), allowances(invoice, True)
    expected = {
        f"{TOTAL}.LineExtensionAmount": lines,
        f"{TOTAL}.AllowanceTotalAmount": discounts,
        f"{TOTAL}.ChargeTotalAmount": charges,
        f"{TOTAL}.TaxExclusiveAmount": lines - discounts + charges,
        "TaxTotal.TaxAmount": charged_tax(invoice),
    }
    currency = value(invoice, "DocumentCurrencyCode")
    if set(values(invoice, "TaxTotal.TaxAmount", "currencyID")) <= {currency}:
        paths = (f"{TOTAL}.TaxExclusiveAmount", "TaxTotal.TaxAmount")
        including = total(amount for path in paths for amount in values(invoice, path))
        prepaid = total(values(invoice, "PrepaidPayment.PaidAmount"))
        rounding = total(values(invoice, f"{TOTAL}.PayableRoundingAmount"))
        expected[f"{TOTAL}.TaxInclusiveAmount"] = including
        expected[f"{TOTAL}.PayableAmount"] = including - prepaid + rounding
    for path, amount in expected.items():
        yield path, value(invoice, path), amount


def compare_tax_types(invoice: object) -> Iterator[Comparison]:
    """Yield the tax of each type, if lines and document give it in one currency."""
    paths = (f"{TAX}.TaxAmount", f"InvoiceLine.{TAX}.TaxAmount")
    if len({currency for path in paths for currency in values(invoice, path, "currencyID")}) == 1:
        lines = tax_by_type(invoice, f"InvoiceLine.{TAX}")
        for kind, found in tax_by_type(invoice, TAX).items():
            yield f"{TAX}.TaxAmount ({kind})", found, lines.get(kind, Decimal(0))


def compare_taxable_amounts(invoice: object) -> Iterator[Comparison]:
    """Yield the taxable amount of each type, if document and lines give it."""
    expected = defaultdict[str, Decimal](Decimal)
    for line in entries(invoice, "InvoiceLine"):
        for kind, taxable in taxable_by_type(line).items():
            expected[kind] += taxable
    for subtotal in entries(invoice, TAX):
        kind = value(subtotal, "TaxCategory.ID")
        if kind in expected:
            target = f"{TAX}.TaxableAmount ({kind})"
            yield target, value(subtotal, "TaxableAmount"), expected[kind]


def taxable_by_type(line: object) -> dict[str, Decimal]:
    """Return the taxable amounts of a line by tax type.

    Several taxes of one type share the net amount of the line, so that it counts once. Portal: 10.7
    """
    amounts = defaultdict[str, list[Decimal]](list)
    for subtotal in entries(line, TAX):
        for amount in values(subtotal, "TaxableAmount")[:1]:
            amounts[value(subtotal, "TaxCategory.ID")].append(amount)
    net = Decimal(value(line, "LineExtensionAmount"))
    return {
        kind: min(total(given), net, key=abs) if len(given) > 1 else total(given)
        for kind, given in amounts.items()
    }


def tax_by_type(node: object, path: str) -> dict[str, Decimal]:
    """Return the sums of the tax subtotals at a path by tax type."""
    sums = defaultdict[str, Decimal](Decimal)
    for subtotal in entries(node, path):
        sums[value(subtotal, "TaxCategory.ID")] += Decimal(value(subtotal, "TaxAmount"))
    return sums


def charged_tax(node: object) -> Decimal:
    """Return the sum of a node's own tax subtotals, without the tax forgone. Portal: 10.7"""
    return total(tax for kind, tax in tax_by_type(node, TAX).items() if kind != EXEMPT)


def allowances(node: object, is_charge: bool) -> Decimal:
    """Return the sum of the node's own charges, or of its discounts."""
    return total(
        value(each, "Amount")
        for each in entries(node, "AllowanceCharge")
        if value(each, "ChargeIndicator") is is_charge
    )


def total(amounts: Iterable[Decimal | int]) -> Decimal:
    return sum(map(Decimal, amounts), Decimal(0))

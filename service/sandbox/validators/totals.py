"""Arithmetic of amounts, and step 7: their currencies and the exchange rate.

Portal: 10.2, 10.7, 10.8, 14.9

Wrong amounts are warnings, or findings if `strict_totals` is set: the portal is not known to check
them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal

from ..answers import Body
from ..controls import Sandbox
from ..database import Row
from ..document import UblDocument, entries, multiply, value, values
from . import Finding, finding_at

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


def check_currencies(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    found = dict(foreign_amounts(document))
    for path, (code, wording) in sorted(found.items()):
        yield finding_at(path, code, f"{path} is not in {wording}.")
    yield from check_exchange(document)


def foreign_amounts(document: UblDocument) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield (path, (code, currency that it should have)) of every amount in a wrong currency.

    If the document has a tax currency, total tax amounts are in it, and those of lines may be.
    """
    tax_currency = document.text("TaxCurrencyCode")
    for path, currency in amounts(document.invoice, ""):
        is_tax = bool(tax_currency) and path.endswith(".TaxAmount")
        if is_tax and not path.startswith("InvoiceLine"):
            if currency != tax_currency:
                yield path, ("DC501", f"the tax currency {tax_currency}")
        elif currency != document.currency and not (is_tax and currency == tax_currency):
            yield path, ("DC502", f"the document currency {document.currency}")


def amounts(node: Body, path: str) -> Iterator[tuple[str, object]]:
    """Yield (path, currency) of every element below the node that has a `currencyID`."""
    for name, found in node.items():
        for entry in found if isinstance(found, list) else ():
            where = f"{path}.{name}".lstrip(".")
            if isinstance(entry, dict) and "currencyID" in entry:
                yield where, entry["currencyID"]
            elif isinstance(entry, dict):
                yield from amounts(entry, where)


def check_exchange(document: UblDocument) -> Iterator[Finding]:
    """Yield findings about the exchange rate, which is optional, or 0, for documents in MYR."""
    rate = value(document.invoice, "TaxExchangeRate.CalculationRate")
    if document.currency != "MYR" and (not rate or rate < 0):
        message = f"An exchange rate is required for the currency {document.currency}."
        yield finding_at("TaxExchangeRate", None, message)
    elif "TaxExchangeRate" in document.invoice:
        for end, expected, code in (
            ("Target", "MYR", "DC511"),
            ("Source", document.currency, None),
        ):
            path = f"TaxExchangeRate.{end}CurrencyCode"
            if document.text(path) != expected:
                message = f"The {end.lower()} currency of the exchange rate is not {expected}."
                yield finding_at(path, code, message)

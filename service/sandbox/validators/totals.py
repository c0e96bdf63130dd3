"""Arithmetic of amounts: a warning, or on request a refusal; the portal is not known to check it. Portal: 10.7, 10.8"""

from decimal import ROUND_HALF_UP, Decimal

from ..document import CENT, EXACT, entries, value, values
from . import Finding

TOTAL = "LegalMonetaryTotal"
TAX = "TaxTotal.TaxSubtotal"


def check(document, now, controls):
    """Findings when the control `strict_totals` is set."""
    for target, message in wrong(document.invoice) if controls.strict_totals else ():
        yield Finding(None, message, target, f"Invoice.{target}")


def warnings(document):
    """[{target, message}] of the amounts that do not add up."""
    return [{"target": target, "message": message} for target, message in wrong(document.invoice)]


def wrong(invoice):
    """(path, message) of each amount that is there and not what it should be."""
    for target, found, wanted in (
        *of_lines(invoice),
        *of_document(invoice),
        *of_tax_types(invoice),
    ):
        if found is not None and found != wanted:
            yield target, f"{target} is {Decimal(found):f} and should be {wanted:f}."


def of_lines(invoice):
    """(path, amount or None, what it should be) of each line. Price times quantity is rounded half up."""
    for index, line in enumerate(entries(invoice, "InvoiceLine")):
        subtotal, where = value(line, "ItemPriceExtension.Amount"), f"InvoiceLine[{index}]"
        price, quantity = value(line, "Price.PriceAmount"), value(line, "InvoicedQuantity")
        if quantity is not None:
            exact = EXACT.multiply(Decimal(price), Decimal(quantity))
            yield (
                f"{where}.ItemPriceExtension.Amount",
                subtotal,
                exact.quantize(CENT, ROUND_HALF_UP, EXACT),
            )
        net = Decimal(subtotal) - allowances(line, False) + allowances(line, True)
        yield f"{where}.LineExtensionAmount", value(line, "LineExtensionAmount"), net
        yield (
            f"{where}.TaxTotal.TaxAmount",
            value(line, "TaxTotal.TaxAmount"),
            total(line, f"{TAX}.TaxAmount"),
        )


def of_document(invoice):
    """The totals; tax in a currency of its own adds to nothing."""
    lines = total(invoice, "InvoiceLine.LineExtensionAmount")
    discounts, charges = allowances(invoice, False), allowances(invoice, True)
    yield total_of(invoice, "LineExtensionAmount", lines)
    yield total_of(invoice, "AllowanceTotalAmount", discounts)
    yield total_of(invoice, "ChargeTotalAmount", charges)
    yield total_of(invoice, "TaxExclusiveAmount", lines - discounts + charges)
    yield (
        "TaxTotal.TaxAmount",
        value(invoice, "TaxTotal.TaxAmount"),
        total(invoice, f"{TAX}.TaxAmount"),
    )
    if set(values(invoice, "TaxTotal.TaxAmount", "currencyID")) <= {
        value(invoice, "DocumentCurrencyCode")
    }:
        including = total(invoice, f"{TOTAL}.TaxExclusiveAmount") + total(
            invoice, "TaxTotal.TaxAmount"
        )
        yield total_of(invoice, "TaxInclusiveAmount", including)
        rounding = total(invoice, f"{TOTAL}.PayableRoundingAmount")
        yield total_of(
            invoice,
            "PayableAmount",
            including - total(invoice, "PrepaidPayment.PaidAmount") + rounding,
        )


def of_tax_types(invoice):
    """The tax of each type, where lines and document give it in one currency."""
    paths = (f"{TAX}.TaxAmount", f"InvoiceLine.{TAX}.TaxAmount")
    if len({currency for path in paths for currency in values(invoice, path, "currencyID")}) == 1:
        lines = by_type(invoice, f"InvoiceLine.{TAX}")
        for kind, found in by_type(invoice, TAX).items():
            yield f"{TAX}.TaxAmount ({kind})", found, lines.get(kind, Decimal(0))


def by_type(invoice, path):
    sums = {}
    for each in entries(invoice, path):
        kind = value(each, "TaxCategory.ID")
        sums[kind] = sums.get(kind, Decimal(0)) + Decimal(value(each, "TaxAmount"))
    return sums


def total_of(invoice, name, wanted):
    path = f"{TOTAL}.{name}"
    return path, value(invoice, path), wanted


def total(node, path):
    return sum((Decimal(amount) for amount in values(node, path)), Decimal(0))


def allowances(node, is_charge):
    """The sum of the node's own charges, or of its discounts."""
    found = [
        each
        for each in entries(node, "AllowanceCharge")
        if value(each, "ChargeIndicator") is is_charge
    ]
    return sum((Decimal(value(each, "Amount")) for each in found), Decimal(0))

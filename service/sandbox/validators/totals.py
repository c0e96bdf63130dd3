"""Arithmetic of the totals, on request only: the portal is not known to check it. Portal: 10.7"""

from decimal import Decimal

from ..document import entries, value, values
from . import Finding

TOTAL = "LegalMonetaryTotal"


def check(document, now, controls):
    """Findings when the control `strict_totals` is set."""
    if not controls.strict_totals:
        return
    for target, wanted in expected(document.invoice):
        found = value(document.invoice, target)
        if found is not None and found != wanted:
            message = f"{target} is {Decimal(found):f} and should be {wanted:f}."
            yield Finding(None, message, target, f"Invoice.{target}")


def expected(invoice):
    """(path, what the amount there should be); tax in a currency of its own adds to nothing."""
    lines = total(invoice, "InvoiceLine.LineExtensionAmount")
    yield f"{TOTAL}.LineExtensionAmount", lines
    yield f"{TOTAL}.TaxExclusiveAmount", lines + allowances(invoice)
    yield "TaxTotal.TaxAmount", total(invoice, "TaxTotal.TaxSubtotal.TaxAmount")
    if set(values(invoice, "TaxTotal.TaxAmount", "currencyID")) <= {value(invoice, "DocumentCurrencyCode")}:
        including = total(invoice, f"{TOTAL}.TaxExclusiveAmount") + total(invoice, "TaxTotal.TaxAmount")
        yield f"{TOTAL}.TaxInclusiveAmount", including
        rounding = total(invoice, f"{TOTAL}.PayableRoundingAmount")
        yield f"{TOTAL}.PayableAmount", including - total(invoice, "PrepaidPayment.PaidAmount") + rounding


def total(invoice, path):
    return sum((Decimal(amount) for amount in values(invoice, path)), Decimal(0))


def allowances(invoice):
    """Charges less discounts of the document."""
    found = [(value(each, "ChargeIndicator"), value(each, "Amount")) for each in entries(invoice, "AllowanceCharge")]
    return sum((Decimal(amount if charge else -amount) for charge, amount in found), Decimal(0))

"""Step 7: the currencies of amounts, and the exchange rate. Portal: 10.2, 14.9"""

from collections.abc import Iterator
from typing import Any

from ..controls import Sandbox
from ..database import Row
from ..document import UblDocument, entries, value
from . import Finding, finding_at

#: Amounts in the tax currency, if the document has one.
TAX_AMOUNTS = ("TaxAmount", "TaxSubtotal.TaxAmount")


def check(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    """Yield the findings about currencies."""
    yield from check_tax_amounts(document)
    for path in sorted(set(foreign_amounts(document))):
        message = f"{path} is not in the document currency {document.currency}."
        yield finding_at(path, "DC502", message)
    yield from check_exchange(document)


def check_tax_amounts(document: UblDocument) -> Iterator[Finding]:
    """Yield total tax amounts that are not in the tax currency. Lines may use either currency."""
    tax_currency = document.text("TaxCurrencyCode")
    for name in TAX_AMOUNTS if tax_currency else ():
        path = f"TaxTotal.{name}"
        found = [entry["currencyID"] for entry in entries(document.invoice, path)]
        if set(found) - {tax_currency}:
            message = f"{path} is not in the tax currency {tax_currency}."
            yield finding_at(path, "DC501", message)


def foreign_amounts(document: UblDocument) -> Iterator[str]:
    """Yield the path of every amount in a wrong currency.

    An amount may be in the document currency, a tax amount also in the tax currency.
    `check_tax_amounts` checks total tax amounts.
    """
    tax_currency = document.text("TaxCurrencyCode")
    for path, currency in amounts(document.invoice, ""):
        is_checked_as_tax = (
            tax_currency and path.endswith(".TaxAmount") and not path.startswith("InvoiceLine")
        )
        also = tax_currency if path.endswith(".TaxAmount") else document.currency
        if currency not in (document.currency, also) and not is_checked_as_tax:
            yield path


def amounts(node: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
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
    source = document.text("TaxExchangeRate.SourceCurrencyCode")
    target = document.text("TaxExchangeRate.TargetCurrencyCode")
    if document.currency != "MYR" and (not rate or rate < 0):
        message = f"An exchange rate is required for the currency {document.currency}."
        yield finding_at("TaxExchangeRate", None, message)
        return
    if "TaxExchangeRate" not in document.invoice:
        return
    if target != "MYR":
        message = "The target currency of the exchange rate is not MYR."
        yield finding_at("TaxExchangeRate.TargetCurrencyCode", "DC511", message)
    if source != document.currency:
        message = f"The source currency of the exchange rate is not {document.currency}."
        yield finding_at("TaxExchangeRate.SourceCurrencyCode", None, message)

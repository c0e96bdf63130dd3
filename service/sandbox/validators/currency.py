"""Step 7: the currencies of amounts, and the exchange rate. Portal: 10.2, 14.9"""

from ..document import entries, value
from . import Finding, wildcard

#: amounts whose currency is the tax currency, where there is one
TAX_AMOUNTS = ("TaxAmount", "TaxSubtotal.TaxAmount")


def check(document, row, sandbox):
    yield from tax_amounts(document)
    for path in sorted(set(foreign_amounts(document))):
        yield finding("DC502", f"{path} is not in the document currency {document.currency}.", path)
    yield from exchange(document)


def tax_amounts(document):
    """Total tax amounts. Those of lines may be in either currency."""
    tax_currency = document.text("TaxCurrencyCode")
    for path in TAX_AMOUNTS if tax_currency else ():
        found = [entry["currencyID"] for entry in entries(document.invoice, f"TaxTotal.{path}")]
        if set(found) - {tax_currency}:
            yield finding(
                "DC501",
                f"TaxTotal.{path} is not in the tax currency {tax_currency}.",
                f"TaxTotal.{path}",
            )


def foreign_amounts(document):
    """The path of every amount that has neither the document currency nor, being tax, the tax currency."""
    tax_currency = document.text("TaxCurrencyCode")
    for path, currency in amounts(document.invoice, ""):
        judged_as_tax = (
            tax_currency and path.endswith(".TaxAmount") and not path.startswith("InvoiceLine")
        )
        also = tax_currency if path.endswith(".TaxAmount") else document.currency
        if currency not in (document.currency, also) and not judged_as_tax:
            yield path


def amounts(node, path):
    """(path, currency) of everything with a `currencyID` below the node."""
    for name, found in node.items():
        for entry in found if isinstance(found, list) else ():
            where = f"{path}.{name}".lstrip(".")
            if isinstance(entry, dict) and "currencyID" in entry:
                yield where, entry["currencyID"]
            elif isinstance(entry, dict):
                yield from amounts(entry, where)


def exchange(document):
    """The rate, which documents in ringgit may leave out or give as 0."""
    rate = value(document.invoice, "TaxExchangeRate.CalculationRate")
    source = document.text("TaxExchangeRate.SourceCurrencyCode")
    target = document.text("TaxExchangeRate.TargetCurrencyCode")
    if document.currency != "MYR" and (not rate or rate < 0):
        yield finding(
            None,
            f"An exchange rate is required for the currency {document.currency}.",
            "TaxExchangeRate",
        )
        return
    if "TaxExchangeRate" not in document.invoice:
        return
    if target != "MYR":
        message = "The target currency of the exchange rate is not MYR."
        yield finding("DC511", message, "TaxExchangeRate.TargetCurrencyCode")
    if source != document.currency:
        message = f"The source currency of the exchange rate is not {document.currency}."
        yield finding(None, message, "TaxExchangeRate.SourceCurrencyCode")


def finding(code, message, path):
    return Finding(code, message, path.rpartition(".")[2], wildcard(path), "Mata wang tidak sah.")

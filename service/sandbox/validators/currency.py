"""Step 7: the currencies of amounts, and the exchange rate. Portal: 10.2, 14.9"""

from collections.abc import Iterator

from ..answers import Body
from ..controls import Sandbox
from ..database import Row
from ..document import UblDocument, value
from . import Finding, finding_at


def check(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
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

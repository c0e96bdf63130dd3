"""Find what is plausible in a document and probably wrong. The portal accepts it.

The rates of taxes are law, which the portal does not compare with the tax type. Portal: 12.5
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec

from service.documents.money import LineAmounts, Tax, count_decimals
from service.documents.ubl.document import is_self_billed
from service.documents.ubl.parties import COLUMNS, NOT_GIVEN
from service.json_types import JsonMapping

TOURISM = "03"


class TaxType(msgspec.Struct, frozen=True):
    """A tax type with its legal rates, in per cent from a day on. Without any it is not judged.

    Of a tax that suppliers register for, `registered` is the name, and `registration` the member
    of a supplier with its number.
    """

    name: str = ""
    rates: tuple[tuple[Decimal, date], ...] = ()
    registered: str = ""
    registration: str = ""


#: Sources of the rates: Sales Tax (Rates of Tax) Order 2018; Service Tax (Rate of Tax) Order 2018
#: and its amendment of 2024; Sales Tax (Rate of Tax for Low Value Goods) Order 2023.
_FILE = Path(__file__).with_name("tables") / "tax_rates.json"
TAX_TYPES = msgspec.json.decode(_FILE.read_bytes(), type=dict[str, TaxType])
OTHER = TaxType()
NO_NUMBER = ("", NOT_GIVEN)
MOST_DECIMALS = 5  # of a count
_OFFSET = re.compile(r"([Zz]|[+-][0-9]{2}:?[0-9]{2})$")
WITHOUT_OFFSET = (
    "{} has no offset, so that it is read as UTC. Malaysian time is 8 hours ahead: end it with "
    "+08:00, or with Z if it is UTC."
)
WITHOUT_CURRENCY = (
    "The currency is MYR, so that the exchange rate has no effect. Set currencyCode if the amounts "
    "are in another currency."
)


class Doubt(NamedTuple):
    """A member that is probably wrong. It is right if the column `unless` of the company is set."""

    code: str
    path: str
    message: str
    unless: str | None = None

    def holds_for(self, company: JsonMapping) -> bool:
        """Return whether the company lacks what would make the member right."""
        return self.unless is None or (company.get(self.unless) or "").strip() in NO_NUMBER


def find_doubts(source: JsonMapping, lines: Sequence[LineAmounts], day: date) -> Iterator[Doubt]:
    """Yield the doubts of a document in the request shape, at most one for each path.

    `lines` are its amounts, `day` is that of its issue.
    """
    for member in ("issueDateTime", "adjustmentNoteIssueDate"):
        text = source.get(member)
        if isinstance(text, str) and not _OFFSET.search(text.strip()):
            yield Doubt("TimeOffset", f"/{member}", WITHOUT_OFFSET.format(member))
    rate, currency = source.get("exchangeRate"), source.get("currencyCode") or "MYR"
    if currency == "MYR" and rate not in (None, 1):
        yield Doubt("ExchangeRate", "/exchangeRate", WITHOUT_CURRENCY)
    seen: set[str] = set()
    unregistered: set[str] = set()
    for index, (item, amounts) in enumerate(zip(source["lineItems"], lines, strict=False)):
        path, name = f"/lineItems/{index}", item.get("id")
        if name in seen:
            yield Doubt("LineId", f"{path}/id", f'Another line has the id "{name}" too.')
        if name is not None:
            seen.add(name)
        if message := _judge_count(item["unit"]["count"]):
            message = f"The count of line {index + 1} {message}"
            yield Doubt("Count", f"{path}/unit/count", message)
        details: Sequence[JsonMapping] = item.get("taxDetails") or ()
        for position, (detail, tax) in enumerate(zip(details, amounts.taxes, strict=True)):
            kind = TAX_TYPES.get(tax.type, OTHER)
            has_percentage = "percentage" in detail.get("taxRate", {})
            if has_percentage and (message := _judge_rate(tax, kind, day)):
                place = f"{path}/taxDetails/{position}/taxRate/percentage"
                yield Doubt("TaxRate", place, message)
            elif kind.registered and tax.type not in unregistered and tax.amount:
                unregistered.add(tax.type)
                yield from _find_unregistered(source, kind, f"{path}/taxDetails/{position}")


def _judge_count(count: int | Decimal) -> str | None:
    """Return the end of the message for a count that is probably wrong, or None."""
    if not count:
        return "is 0, and so is its amount."
    if isinstance(count, Decimal) and count_decimals(count.normalize()) > MOST_DECIMALS:
        return f"should have at most {MOST_DECIMALS} decimals."
    return None


def _judge_rate(tax: Tax, kind: TaxType, day: date) -> str | None:
    """Return the message for a percentage that is not legal on a day, or None."""
    if tax.percentage is None:
        return None
    if tax.type == TOURISM and tax.percentage:
        return "Tourism tax is an amount per night (perUnitAmount), not a percentage."
    legal = [rate for rate, since in kind.rates if since <= day]
    if not legal or tax.percentage in legal:
        return None
    meant = [rate for rate in legal if rate and rate == tax.percentage * 100]
    hint = f" Did you mean {meant[0]}?" if meant else ""
    rates = " or ".join(f"{rate} %" for rate in legal)
    return f"{kind.name} has a rate of {rates}, not {tax.percentage:f} %.{hint}"


def _find_unregistered(source: JsonMapping, kind: TaxType, place: str) -> Iterator[Doubt]:
    """Yield the doubt about a tax whose supplier may not be registered for it."""
    name, member = kind.registered, kind.registration
    column = COLUMNS[f"/{member}"]
    if not is_self_billed(source):
        message = f"The document has {name}, but the company has no {column}."
        yield Doubt("TaxRegistration", f"{place}/taxType", message, column)
        return
    supplier: JsonMapping | None = source.get("supplier")
    if supplier and (supplier.get(member) or "").strip() in NO_NUMBER:
        message = f"The document has {name}, but the supplier has no {member}."
        yield Doubt("TaxRegistration", f"{place}/taxType", message)

"""Check the body of a draft before it is stored: size, codes, days, references and amounts."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, tzinfo
from decimal import Decimal
from typing import NamedTuple

from service import json_codec, schema
from service.documents import codes, money
from service.documents.checks.rule import PORTAL_ZONE
from service.documents.doubts import Doubt, find_doubts
from service.documents.ubl.elements import get_object
from service.errors import ValidationError, violation
from service.json_types import JsonMapping, JsonObject

#: Upper limit of the growth of a JSON text when numbers are stored without exponent.
MAX_GROWTH = 10
#: Limit, in characters, of the customs form numbers of one type, which the portal receives as one
#: text. Portal: 10.2
MAX_FORM_NUMBERS = 1000
#: The members that are days, as (object, member).
DAYS = (("billingPeriod", "start"), ("billingPeriod", "end"), ("prepayment", "date"))


class Draft(NamedTuple):
    """A checked body with its computed amounts, which are the columns of the same names.

    `taxes` are the sums by tax type and rate, as {type, rate, taxable, tax}. `doubts` are the
    members that are probably wrong.
    """

    body: JsonObject
    issue_date: datetime
    amounts: dict[str, Decimal]
    taxes: list[JsonObject]
    doubts: list[Doubt]

    @property
    def total_amount(self) -> Decimal:
        """The value of the document, prepaid or to be paid."""
        return self.amounts["payable_amount"] + self.amounts["prepaid_amount"]


def check_draft(body: JsonObject, issue_date: datetime, length: int | None = None) -> Draft:
    """Return the Draft of a body that is valid by its schema.

    `length` is the length of the body's JSON text, if known. Raises ValidationError with all
    violations of size, codes, days, references and amounts.
    """
    try:
        sums = money.compute_document(body)
    except money.AmountError:
        sums = None
    violations = [
        *find_size_violations(body, length),
        *codes.find_violations(body),
        *_find_day_violations(body),
        *_find_reference_violations(body.get("references") or ()),
        *(money.find_noise(body["lineItems"]) if sums else money.find_violations(body)),
    ]
    if violations or not sums:
        raise ValidationError(violations[: schema.MAX_VIOLATIONS])
    amounts = {
        "net_amount": sums.net_amount,
        "excluding_tax": sums.excluding_tax,
        "including_tax": sums.including_tax,
        "payable_amount": sums.payable,
        "prepaid_amount": sums.prepaid,
    }
    day = issue_date.astimezone(PORTAL_ZONE).date()
    doubts = list(find_doubts(body, sums.lines, day))
    return Draft(body, issue_date, amounts, _sum_taxes(sums), doubts)


def _sum_taxes(sums: money.Totals) -> list[JsonObject]:
    return [
        {"type": kind, "rate": rate, "taxable": total.taxable, "tax": total.tax}
        for (kind, rate), total in money.sum_taxes(sums.lines, _read_rate).items()
    ]


def _read_rate(tax: money.Tax) -> tuple[str, Decimal | None]:
    """Return the type and the percentage, which is None for an amount per unit.

    Exempt lines have one sum, at 0.
    """
    return tax.type, money.NOTHING if tax.type == money.EXEMPT else tax.percentage


def find_size_violations(record: JsonObject, length: int | None = None) -> Iterator[dict[str, str]]:
    """Yield a violation with the path of the largest member if a record is too large to be stored.

    `length` is the length of the JSON text in characters; the size of a short text is not computed.
    """
    limit = json_codec.MOST_STORED_BYTES
    if length is not None and length * MAX_GROWTH <= limit:
        return
    size = json_codec.measure_stored_bytes(record)
    if size > limit:
        largest = max(record, key=lambda name: json_codec.measure_stored_bytes(record[name]))
        wording = f"The document has {size} bytes as compact JSON (at most {limit} allowed)."
        yield violation(f"/{json_codec.escape_pointer(largest)}", "maxBytes", wording)


def _find_day_violations(body: JsonMapping) -> Iterator[dict[str, str]]:
    """Yield the days that are not in the calendar, and the end of a period before its start."""
    for holder, name in DAYS:
        day = get_object(body, holder).get(name)
        if day and not _is_day(day):
            wording = f"{name} must be a day of the calendar."
            yield violation(f"/{holder}/{name}", "format", wording)
    period = get_object(body, "billingPeriod")
    start, end = period.get("start"), period.get("end")
    if start and end and end < start:  # of the form 2026-01-31
        wording = "The end of the billing period must not be before its start."
        yield violation("/billingPeriod/end", "order", wording)


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def _find_reference_violations(references: Iterable[Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """Yield a violation for each type of customs form whose numbers are too long together."""
    for kind in ("CUSTOMS_FORM", "K2"):
        numbers = [each["id"] for each in references if each["type"] == kind]
        if len(",".join(numbers)) > MAX_FORM_NUMBERS:
            wording = (
                f"The numbers of all references of the type {kind} "
                f"must have at most {MAX_FORM_NUMBERS} characters in total."
            )
            yield violation("/references", "maxLength", wording)


def get_code_year(issue_date: datetime, time_zone: tzinfo) -> int:
    """Return the year in which a document's code is unique, by the business time zone."""
    return issue_date.astimezone(time_zone).year

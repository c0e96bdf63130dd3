"""What makes a body a draft that can be stored: known codes, computed amounts, days that the calendar has."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

from service import json_codec, schema
from service.documents import codes, money
from service.errors import ValidationError, violation

#: A number with an exponent is written out when it is stored: JSON text grows by less than this
#: factor.
MOST_GROWTH = 10
#: The numbers of several customs forms go to the portal as one text of at most so many characters.
#: Portal: 10.2
MOST_FORM_NUMBERS = 1000


@dataclass(frozen=True, slots=True)
class Draft:
    """A checked body with what is computed from it. `amounts` are the columns of the same names."""

    body: dict
    issue_date: datetime
    amounts: dict


def check_draft(body: dict, issue_date: datetime, length: int | None = None) -> Draft:
    """Return the Draft of a body that its schema has let through.

    `length` is that of the body's JSON text, where it is known. Raises Invalid with every violation of size, codes, days
    and amounts.
    """
    sums = _sums(body)
    faults = [
        *size_violations(body, length),
        *codes.violations(body),
        *period_violations(body.get("billingPeriod") or {}),
        *reference_violations(body.get("references") or ()),
        *([] if sums else money.violations(body)),
    ]
    if faults:
        raise ValidationError(faults[: schema.MAX_FAULTS])
    amounts = {
        "net_amount": sums.net_amount,
        "excluding_tax": sums.excluding_tax,
        "including_tax": sums.including_tax,
        "payable_amount": sums.payable,
    }
    return Draft(body, issue_date, amounts)


def size_violations(record: dict, length: int | None = None) -> Iterator[dict]:
    """Yield the violation of a record that is too large to be stored, with the path of its largest member.

    A short JSON text, of which `length` is the length in characters, is not measured.
    """
    if length is not None and length * MOST_GROWTH <= json_codec.MOST_STORED_BYTES:
        return
    size = json_codec.stored_bytes(record)
    if size > json_codec.MOST_STORED_BYTES:
        largest = max(record, key=lambda name: json_codec.stored_bytes(record[name]))
        wording = f"The document has {size} bytes as compact JSON (at most {json_codec.MOST_STORED_BYTES} allowed)."
        yield violation(f"/{json_codec.escape_pointer(largest)}", "maxBytes", wording)


def _sums(body):
    """The totals, or None where a line makes no amounts; then money.faults says why."""
    try:
        return money.totals(body["lineItems"], body.get("invoiceLevelAllowanceCharge"))
    except money.AmountError:
        return None


def period_violations(period):
    """The days of a billing period that the calendar does not have, or its end before its start."""
    days = {}
    for name in ("start", "end"):
        try:
            days[name] = date.fromisoformat(period[name]) if name in period else None
        except ValueError:
            yield violation(
                f"/billingPeriod/{name}", "format", f"{name} must be a day of the calendar."
            )
    if days.get("start") and days.get("end") and days["end"] < days["start"]:
        yield violation(
            "/billingPeriod/end",
            "order",
            "The end of the billing period must not be before its start.",
        )


def reference_violations(references):
    for kind in ("CUSTOMS_FORM", "K2"):
        numbers = [each["id"] for each in references if each["type"] == kind]
        if len(",".join(numbers)) > MOST_FORM_NUMBERS:
            wording = f"The numbers of all references of the type {kind} have more than {MOST_FORM_NUMBERS} characters."
            yield violation("/references", "maxLength", wording)


def code_year(issue_date, time_zone):
    """The year in which a document's code is unique: that of its issue in the business time zone."""
    return issue_date.astimezone(time_zone).year

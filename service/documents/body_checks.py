"""Check the body of a draft before it is stored: size, codes, days, references and amounts."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, tzinfo
from decimal import Decimal
from typing import Literal, NamedTuple

from service import json_codec, schema
from service.documents import codes, money
from service.documents.checks.rule import PORTAL_ZONE
from service.documents.doubts import Doubt, find_doubts
from service.documents.kind import NOTE, DocumentKind
from service.documents.optional_members import write_members
from service.documents.ubl.elements import get_object
from service.errors import ValidationError, violation
from service.json_types import JsonMapping, JsonObject

#: Upper limit of the growth of a JSON text when numbers are stored without exponent.
MAX_GROWTH = 10
#: Limit, in characters, of the customs form numbers of one type, which the portal receives as one
#: text. Portal: 10.2
MAX_FORM_NUMBERS = 1000
#: The members that are days, as (object, member).
#: Years of a document's instants. The column code_year is a smallint.
FIRST_YEAR, LAST_YEAR = 1990, 2999
DAYS = (("billingPeriod", "start"), ("billingPeriod", "end"), ("prepayment", "date"))


#: The submission that a body asks for: in the request, or if the setting of the company says so.
SubmissionRequest = Literal["none", "if_set", "at_once"]


class Draft(NamedTuple):
    """A checked document as it is stored: the text of its body, and its computed columns.

    It does not keep the body, whose objects take more memory. `amounts` are the columns of the same
    names. `taxes` are the sums by tax type and rate, as {type, rate, taxable, tax}. `doubts` are
    the members that are probably wrong.
    """

    kind: DocumentKind
    text: str
    type: str
    submission: SubmissionRequest
    optional_members: str
    issue_date: datetime
    amounts: dict[str, Decimal]
    taxes: list[JsonObject]
    doubts: list[Doubt]

    @property
    def total_amount(self) -> Decimal:
        """The value of the document, prepaid or to be paid."""
        return self.amounts["payable_amount"] + self.amounts["prepaid_amount"]

    def columns(self, zone: tzinfo, **more: object) -> str:
        """Return the computed columns as JSON text. `more` are those of a new document."""
        # The code of a note is unique in all years.
        year = None if self.kind is NOTE else get_code_year(self.issue_date, zone)
        computed = {
            "code_year": year,
            "issue_date": self.issue_date,
            "taxes": self.taxes,
            "optional_members": self.optional_members,
        }
        return json_codec.dumps({**computed, **self.amounts, **more})


def parse_document_instant(body: JsonMapping, member: str) -> datetime:
    """Return the UTC instant of a document's member.

    Raises ValidationError for a date that does not exist or is out of range.
    """
    try:
        at = json_codec.parse_instant(body[member])
        if FIRST_YEAR <= at.year <= LAST_YEAR:
            return at
    except ValueError:
        pass
    message = f"{member} must be a valid date between the years {FIRST_YEAR} and {LAST_YEAR}."
    raise ValidationError([violation(f"/{member}", "format", message)])


def check_draft(
    kind: DocumentKind, body: JsonObject, issue_date: datetime, text: str | None = None
) -> Draft:
    """Return the Draft of a body that is valid by its schema. `text` is its JSON text, if known.

    Raises ValidationError with all violations of size, codes, days, references and amounts.
    """
    try:
        sums = money.compute_document(body)
    except money.AmountError:
        sums = None
    violations = [
        *find_size_violations(body, len(text) if text else None),
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
    return Draft(
        kind,
        json_codec.compact(text, body) if text else json_codec.dumps(body),
        body.get("type", ""),
        _read_submission(body),
        write_members(kind, body),
        issue_date,
        amounts,
        _sum_taxes(sums),
        doubts,
    )


def _read_submission(body: JsonMapping) -> SubmissionRequest:
    if body.get("submitImmediately"):
        return "at_once"
    return "if_set" if body.get("isReady") else "none"


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

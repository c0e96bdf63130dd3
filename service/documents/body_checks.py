"""Check the body of a draft before it is stored: size, codes, days, references and amounts."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Literal, NamedTuple

from service import json_codec
from service.documents import codes, money
from service.documents.checks.rule import PORTAL_ZONE
from service.documents.doubts import Doubt, find_doubts
from service.documents.kind import INVOICE, NOTE, DocumentKind
from service.documents.optional_members import write_members
from service.documents.ubl.document import is_self_billed
from service.documents.ubl.elements import get_object
from service.errors import ValidationError, Violation, violation
from service.json_types import JsonMapping, JsonObject

#: Limit, in characters, of the customs form numbers of one type, which the portal receives as one
#: text. Portal: 10.2
MAX_FORM_NUMBERS = 1000
#: Years of a document's instants. The column code_year is a smallint.
FIRST_YEAR, LAST_YEAR = 1990, 2999
#: Kind -> the member of a body with its time of issue.
ISSUED = {INVOICE: "issueDateTime", NOTE: "adjustmentNoteIssueDate"}
#: The submission that a body asks for: in the request, or if the setting of the company says so.
SubmissionRequest = Literal["none", "if_set", "at_once"]


class Draft(NamedTuple):
    """A checked document as it is stored.

    It does not keep the body, whose objects take more memory. `stored` are its columns other than
    code_year, by name. `doubts` are the members that are probably wrong.
    """

    kind: DocumentKind
    submission: SubmissionRequest
    stored: JsonObject
    doubts: list[Doubt]

    @property
    def total_amount(self) -> Decimal:
        """The value of the document, prepaid or to be paid."""
        return self.stored["payable_amount"] + self.stored["prepaid_amount"]

    def new_columns(self, zone: tzinfo, **more: object) -> JsonObject:
        """Return the variables of document_insert, but for the company and the actor.

        `more` are the columns of some kinds.
        """
        none = dict.fromkeys(("invoice_id", "consolidated_invoice_id", "month", "invoice_ids"))
        return {"kind": self.kind.name, **none, **self.columns(zone), **more}

    def columns(self, zone: tzinfo) -> JsonObject:
        """Return the variables of document_update, but for the keys."""
        # The code of a note is unique in all years.
        year = None if self.kind is NOTE else get_code_year(self.stored["issue_date"], zone)
        return {**self.stored, "code_year": year}


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


def check_draft(kind: DocumentKind, body: JsonObject, issue_date: datetime | None = None) -> Draft:
    """Return the Draft of a body that is valid by its schema.

    `issue_date` is passed if the body does not decide it. Raises ValidationError with all
    violations of issue date, size, codes, days, references and amounts.
    """
    violations: list[Violation] = []
    try:
        issue_date = issue_date or parse_document_instant(body, ISSUED[kind])
    except ValidationError as error:
        violations += error.more["errors"]
    sums, amounts = None, list[Violation]()
    try:
        sums = money.compute_document(body)
    except money.AmountError as error:
        amounts = error.violations
    wrong = {each["path"] for each in amounts}
    size = json_codec.measure_stored_bytes(body)
    violations += [
        *find_size_violations(body, size),
        *codes.find_violations(body),
        *_find_period_violations(body),
        *_find_reference_violations(body.get("references") or ()),
        *amounts,
        *(each for each in money.find_noise(body["lineItems"]) if each["path"] not in wrong),
    ]
    if violations or not sums or not issue_date:
        raise ValidationError(violations)
    day = issue_date.astimezone(PORTAL_ZONE).date()
    doubts = list(find_doubts(body, sums.lines, day))
    stored = {
        **_write_body(kind, body),
        **_write_sums(sums),
        "issue_date": issue_date,
        "bytes": size,
    }
    return Draft(kind, _read_submission(body), stored, doubts)


def _write_body(kind: DocumentKind, body: JsonMapping) -> JsonObject:
    """Return the columns that are members of a body, or that follow from them."""
    code = body.get("adjustmentNoteCode" if kind is NOTE else "code")
    # The company is the other party, of which a document keeps nothing.
    role = "supplier" if is_self_billed(body) else "buyer"
    return {
        "type": body.get("type"),
        "code": code and int(code),  # 7.0 is an integer, too.
        "is_ready": bool(body.get("isReady")),
        "buyer": None,
        "supplier": None,
        role: _write_json(body.get(role)),
        "line_items": _write_json(body["lineItems"]),
        "currency_code": body.get("currencyCode") or "MYR",
        "exchange_rate": body.get("exchangeRate"),
        "reference": body.get("reference"),
        "metadata": _write_json(body.get("metadata")),
        "optional_members": write_members(kind, body),
    }


def _write_json(value: object) -> str | None:
    return None if value is None else json_codec.encode_plain(value).decode()


def _write_sums(sums: money.Totals) -> JsonObject:
    """Return the columns of the totals. `taxes` are sums by tax type and rate."""
    taxes = [
        {"type": kind, "rate": rate, "taxable": total.taxable, "tax": total.tax}
        for (kind, rate), total in money.sum_taxes(sums.lines, _read_rate).items()
    ]
    return {
        "net_amount": sums.net_amount,
        "excluding_tax": sums.excluding_tax,
        "including_tax": sums.including_tax,
        "payable_amount": sums.payable,
        "prepaid_amount": sums.prepaid,
        "taxes": json_codec.dumps(taxes),
    }


def _read_submission(body: JsonMapping) -> SubmissionRequest:
    if body.get("submitImmediately"):
        return "at_once"
    return "if_set" if body.get("isReady") else "none"


def _read_rate(tax: money.Tax) -> tuple[str, Decimal | None]:
    """Return the type and the percentage, which is None for an amount per unit.

    Exempt lines have one sum, at 0.
    """
    return tax.type, money.NOTHING if tax.type == money.EXEMPT else tax.percentage


def find_size_violations(record: JsonObject, size: int) -> Iterator[dict[str, str]]:
    """Yield a violation with the path of the largest member if a record is too large to be stored.

    `size` is that of the record, by measure_stored_bytes.
    """
    limit = json_codec.MOST_STORED_BYTES
    if size > limit:
        largest = max(record, key=lambda name: json_codec.measure_stored_bytes(record[name]))
        wording = f"The document has {size} bytes as compact JSON (at most {limit} allowed)."
        yield violation(f"/{json_codec.escape_pointer(largest)}", "maxBytes", wording)


def _find_period_violations(body: JsonMapping) -> Iterator[dict[str, str]]:
    """Yield the end of a period before its start."""
    period = get_object(body, "billingPeriod")
    start, end = period.get("start"), period.get("end")
    if start and end and end < start:  # of the form 2026-01-31
        wording = "The end of the billing period must not be before its start."
        yield violation("/billingPeriod/end", "order", wording)


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

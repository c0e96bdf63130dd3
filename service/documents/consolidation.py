"""Select the invoices of a consolidated invoice and compute its lines. Portal: 13

A consolidated invoice reports the sales of one month whose buyers did not request an invoice. Its
lines are computed so that its sums equal the sums of its invoices to the cent, including their
rounding.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal, localcontext
from typing import NamedTuple

from service import json_codec
from service.documents.checks.line import lacks_tax
from service.documents.exclusions import LARGEST_SALE, Business, find_excluded_line
from service.documents.money import (
    EXACT,
    EXEMPT,
    ZERO,
    AmountError,
    LineAmounts,
    Tax,
    TaxRate,
    compute_document,
    compute_line,
)
from service.documents.optional_members import read_members
from service.documents.ubl.document import HOME_CURRENCY
from service.errors import violation
from service.json_types import JsonObject, Row

#: Type of a consolidated invoice -> the types of the invoices that it can contain.
FAMILIES = {
    "CONSOLIDATED_INVOICE": {"INVOICE", "PENDING_FINALIZE_INVOICE"},
    "CONSOLIDATED_SELF_BILLED_INVOICE": {
        "SELF_BILLED_INVOICE",
        "PENDING_FINALIZE_SELF_BILLED_INVOICE",
    },
}

CLASSIFICATION = "004"

MAX_INVOICES = 10_000
#: Limit of the lines' size. Of the portal's 300,000 bytes the rest is for the header and the
#: signature. It is reached long before the limit of 1,000 lines. Portal: 1.5
MAX_BYTES = 280_000
#: Upper limits of the size of a line without its receipt numbers, and of a tax without its reason.
LINE_BYTES, TAX_BYTES = 500, 400


class Period(NamedTuple):
    """A calendar month in the business time zone.

    Its sales are issued in [since, until) and consolidated before `deadline`.
    """

    month: date
    since: datetime
    until: datetime
    deadline: datetime

    @property
    def last_day(self) -> date:
        """The last day on which its sales can be consolidated."""
        return (self.deadline - timedelta(days=1)).date()


def make_period(month: date, time_zone: tzinfo, days: int) -> Period:
    """Return the Period of a month, given as its first day.

    `days` is the number of days after the end of the month until the deadline.
    """
    following = (month.replace(day=28) + timedelta(days=4)).replace(day=1)
    midnights = (month, following, following + timedelta(days=days))
    return Period(month, *(datetime.combine(day, time(), time_zone) for day in midnights))


class ConsolidationTerms(NamedTuple):
    """The consolidated invoice for which invoices are checked.

    The authority has suspended the relaxable rules for sales up to `relaxed_until`, if set. `msic`
    is the industry of the company.
    """

    type: str
    period: Period
    time_zone: tzinfo
    relaxed_until: date | None = None
    msic: str = ""

    def get_day(self, invoice: Row) -> date:
        return invoice["issue_date"].astimezone(self.time_zone).date()

    def relaxes(self, day: date) -> bool:
        """Return whether the relaxable rules are suspended for sales of a day."""
        return self.relaxed_until is not None and day <= self.relaxed_until


@dataclass(frozen=True, slots=True)
class InvoiceRule:
    """A reason to leave out invoices that were issued on the day `since` or later."""

    code: str
    refuses: Callable[[Row, ConsolidationTerms], bool]
    message: str
    since: date = date.min
    relaxable: bool = False


SUBMITTED = "submitted"

#: Invoices that cannot be consolidated. The first rule that refuses an invoice gives the reason.
INVOICE_RULES: tuple[InvoiceRule, ...] = (
    InvoiceRule(
        "type",
        lambda invoice, terms: invoice["type"] not in FAMILIES[terms.type],
        "A {into} cannot contain invoices of the type {type}.",
    ),
    InvoiceRule(
        "month",
        lambda invoice, terms: not terms.period.since <= invoice["issue_date"] < terms.period.until,
        "The invoice was not issued in {month:%Y-%m}, the month of the consolidated invoice.",
    ),
    InvoiceRule(
        "consolidated",
        lambda invoice, terms: invoice["consolidated_invoice_id"] is not None,
        "The invoice is already part of the consolidated invoice {consolidated_invoice_id}.",
    ),
    InvoiceRule(
        SUBMITTED,
        lambda invoice, terms: invoice["status"] != "Draft" or invoice["was_accepted"],
        "The invoice has already been submitted individually; its status is {status}.",
    ),
    InvoiceRule(
        "named",
        lambda invoice, terms: invoice["is_named"],
        "The invoice names its buyer or supplier and must be submitted individually.",
    ),
    InvoiceRule(
        "currency",
        lambda invoice, terms: invoice["currency_code"] != HOME_CURRENCY,
        f"The invoice is in {{currency_code}}; consolidated invoices must be in {HOME_CURRENCY}.",
    ),
    InvoiceRule(
        "amount",
        lambda invoice, terms: invoice["total_amount"] > LARGEST_SALE.amount,
        f"The invoice exceeds RM {LARGEST_SALE.amount:,} and must be submitted individually.",
        LARGEST_SALE.since,
        relaxable=True,
    ),
)

LACKS_TAX = (
    "tax",
    "A line of the invoice has no tax, a tax without a rate, or an exemption without a reason.",
)
FULL = (
    "full",
    "The consolidated invoice is full; create another one for the remaining invoices of the month.",
)
UNKNOWN = ("unknown", "The invoice does not exist.")


def describe_left_out(invoice: Row, refusal: tuple[str, str]) -> JsonObject:
    """Return the API's entry for an invoice that is left out, by its `id` and `number`."""
    reason, message = refusal
    return {
        "invoice_id": invoice["id"],
        "full_code": invoice["number"],
        "reason": reason,
        "message": message,
    }


def split_candidates(
    invoices: Iterable[Row], terms: ConsolidationTerms
) -> tuple[list[Row], list[JsonObject]]:
    """Return (eligible invoices, entries of those left out) of rows of consolidation_candidates."""
    taken: list[Row] = []
    rest: list[JsonObject] = []
    for invoice in invoices:
        if refusal := _find_refusal(invoice, terms):
            rest.append(describe_left_out(invoice, refusal))
        else:
            taken.append(invoice)
    rest += (describe_left_out(invoice, FULL) for invoice in taken[MAX_INVOICES:])
    return taken[:MAX_INVOICES], rest


def summarize(classes: Iterable[Row], terms: ConsolidationTerms) -> JsonObject:
    """Return the number and the sums of the eligible invoices in the shape of the API.

    `classes` are rows of consolidation_classes. `left_out` has the other invoices: {reason,
    message, count}, the most frequent first. Reads no lines: a plan can leave out more invoices,
    because of their taxes or its size.
    """
    count, excluding_tax, payable = 0, ZERO, ZERO
    counts: Counter[tuple[str, str]] = Counter()
    for each in classes:
        if refusal := _find_refusal(each, terms):
            counts[refusal] += each["n"]
        else:
            count += each["n"]
            excluding_tax += each["excluding_tax"]
            payable += each["payable"]
    left_out = [
        {"reason": reason, "message": message, "count": n}
        for (reason, message), n in counts.most_common()
    ]
    return {
        "count": count,
        "excludingTax": excluding_tax,
        "payableAmount": payable,
        "left_out": left_out,
    }


def _find_refusal(invoice: Row, terms: ConsolidationTerms) -> tuple[str, str] | None:
    """Return (code, message) of the first rule that refuses an invoice, or None.

    `invoice` is a row of consolidation_candidates or of consolidation_classes.
    """
    day = terms.get_day(invoice)
    relaxed = terms.relaxes(day)
    for rule in INVOICE_RULES:
        if day >= rule.since and not (rule.relaxable and relaxed) and rule.refuses(invoice, terms):
            return rule.code, rule.message.format(
                **invoice, into=terms.type, month=terms.period.month
            )
    return None


def _find_line_refusal(
    invoice: Row, line_items: Sequence[JsonObject], terms: ConsolidationTerms
) -> tuple[str, str] | None:
    day = terms.get_day(invoice)
    if not terms.relaxes(day):
        business = Business(terms.msic, "SELF_BILLED" in terms.type)
        if exclusion := find_excluded_line(line_items, business, day):
            parts = (exclusion.reason, business.remedy, exclusion.alternative)
            return "activity", " ".join(filter(None, parts))
    return LACKS_TAX if any(lacks_tax(item) for item in line_items) else None


def find_period_refusals(
    period: Period, issue_date: datetime, now: datetime
) -> Iterator[tuple[str, str]]:
    """Yield why a period cannot be consolidated yet, or no longer, as (code, message)."""
    month = f"{period.month:%Y-%m}"
    if min(issue_date, now) < period.until:
        message = f"The consolidated invoice of {month} must be issued after the end of the month."
        yield "period", message
    if now >= period.deadline:
        yield "deadline", f"The last day to consolidate {month} was {period.last_day}."


# Lines: one for each unbroken range of codes of invoices whose lines have the same taxes.

#: The taxes of a line or of several. Invoices with a line without any are left out.
Taxes = tuple[Tax, ...]


class TaxGroup(NamedTuple):
    """The taxes, and the reason of an exemption, that the invoice lines of one line share."""

    rates: tuple[TaxRate, ...]
    exemption_reason: str | None


@dataclass(slots=True)
class Run:
    """Invoices with consecutive codes up to `code`; `first` and `last` are full codes.

    `taxes` are the sums of the taxes of their lines.
    """

    exemption_reason: str | None
    first: str
    last: str
    code: int
    taxes: Taxes


@dataclass(slots=True)
class ConsolidationPlan:
    """A consolidated invoice to which invoices are added in the order of their codes.

    Without `terms` there are no invoices to add.
    """

    terms: ConsolidationTerms | None
    ids: list[int] = field(default_factory=list[int])
    left_out: list[JsonObject] = field(default_factory=list[JsonObject])
    runs: list[Run] = field(default_factory=list[Run])
    allowances: Decimal = ZERO
    charges: Decimal = ZERO
    prepaid: Decimal = ZERO
    rounding: Decimal = ZERO
    size: int = 0
    is_full: bool = False
    _latest_runs: dict[TaxGroup, Run] = field(default_factory=dict[TaxGroup, Run])

    def take(self, invoices: Iterable[Row], sources: Iterable[Row]) -> None:
        """Add eligible invoices; `sources` are their rows of consolidation_lines.

        Once the plan is full, it leaves out the remaining invoices and does not use their rows.
        """
        rows = {row["id"]: row for row in sources}
        with localcontext(EXACT):
            for invoice in invoices:
                refusal = FULL if self.is_full else self._add(invoice, rows[invoice["id"]])
                if refusal:
                    self.left_out.append(describe_left_out(invoice, refusal))

    def _add(self, invoice: Row, source: Row) -> tuple[str, str] | None:
        """Add an invoice, or return why it is left out.

        The first one that is too large makes the plan full.
        """
        line_items = json_codec.loads(source["line_items"].encode())
        members = read_members(source["optional_members"])
        if refusal := self.terms and _find_line_refusal(invoice, line_items, self.terms):
            return refusal
        adjustments = members.get("invoice_level_allowance_charge")
        amounts = compute_document(
            {"lineItems": line_items, "invoiceLevelAllowanceCharge": adjustments}
        )
        groups = _group_lines(line_items, amounts.lines)
        if not self._reserve(invoice, groups):
            return FULL
        self.ids.append(invoice["id"])
        self.allowances += amounts.allowances
        self.charges += amounts.charges
        self.prepaid += source["prepaid_amount"]
        self.rounding += members.get("payable_rounding_amount") or ZERO
        for group, taxes in groups.items():
            self._extend_run(invoice, group, taxes)
        return None

    def _reserve(self, invoice: Row, groups: Iterable[TaxGroup]) -> bool:
        """Reserve the size of an invoice's new lines. Return whether the plan has room for them."""
        new = [group for group in groups if not self._find_run(group, invoice["code"])]
        size = self.size + sum(_measure_line(group, invoice["number"]) for group in new)
        self.is_full = size > MAX_BYTES
        self.size = self.size if self.is_full else size
        return not self.is_full

    def _find_run(self, group: TaxGroup, code: int) -> Run | None:
        """Return the latest run of these taxes if a code directly follows it, or None."""
        run = self._latest_runs.get(group)
        return run if run and run.code + 1 == code else None

    def _extend_run(self, invoice: Row, group: TaxGroup, taxes: Taxes) -> None:
        code, number = invoice["code"], invoice["number"]
        if run := self._find_run(group, code):
            run.code, run.last = code, number
            run.taxes = _add_taxes(run.taxes, taxes)
        else:
            run = Run(group.exemption_reason, number, number, code, taxes)
            self._latest_runs[group] = run
            self.runs.append(run)

    def body(self) -> JsonObject:
        """Return the lines and the document's other amounts in the request shape."""
        return {
            "lineItems": [_build_line(str(index), run) for index, run in enumerate(self.runs, 1)],
            "invoiceLevelAllowanceCharge": self._build_adjustments(),
            "prepayment": {"amount": self.prepaid} if self.prepaid else None,
            "payableRoundingAmount": self.rounding or None,
        }

    def _build_adjustments(self) -> JsonObject | None:
        sums = (
            ("allowances", self.allowances, "Discounts of the receipts"),
            ("charges", self.charges, "Charges of the receipts"),
        )
        given = {
            name: [{"amount": amount, "reason": reason}] for name, amount, reason in sums if amount
        }
        return given or None


def _group_lines(
    line_items: Sequence[JsonObject], lines: Sequence[LineAmounts]
) -> dict[TaxGroup, Taxes]:
    """Sum the lines of one invoice by their taxes."""
    groups: dict[TaxGroup, Taxes] = {}
    for item, amounts in zip(line_items, lines, strict=False):
        taxes = tuple(
            sorted(
                amounts.taxes,
                key=lambda tax: (tax.type, tax.percentage or ZERO, tax.per_unit or ZERO),
            )
        )
        is_exempt = any(tax.type == EXEMPT for tax in taxes)
        reason = item.get("taxExemptionReason") if is_exempt else None
        group = TaxGroup(tuple(tax.rate for tax in taxes), reason)
        groups[group] = _add_taxes(groups[group], taxes) if group in groups else taxes
    return groups


def _add_taxes(left: Taxes, right: Taxes) -> Taxes:
    """Return the sums of taxes that have the same rates."""
    return tuple(
        Tax(
            type=mine.type,
            taxable=mine.taxable + its.taxable,
            percentage=mine.percentage,
            per_unit=mine.per_unit,
            units=(mine.units or ZERO) + (its.units or ZERO),
            at_rate=mine.at_rate + its.at_rate,
        )
        for mine, its in zip(left, right, strict=True)
    )


def _measure_line(group: TaxGroup, number: str) -> int:
    """Return the largest size in bytes of a line with these taxes in a document."""
    reason = len(json_codec.encode(group.exemption_reason or ""))
    return LINE_BYTES + 2 * len(json_codec.encode(number)) + len(group.rates) * (TAX_BYTES + reason)


def _build_line(line_id: str, run: Run) -> JsonObject:
    receipts = (
        f"Receipt {run.first}" if run.first == run.last else f"Receipts {run.first} - {run.last}"
    )
    reason = run.exemption_reason
    item: JsonObject = {
        "id": line_id,
        "description": receipts,
        "classifications": [CLASSIFICATION],
        "unit": {"code": "C62", "price": run.taxes[0].taxable, "count": 1},
        **({"taxExemptionReason": reason} if reason else {}),
    }
    return {**item, "taxDetails": [_build_tax_detail(item, tax) for tax in run.taxes]}


def _build_tax_detail(item: JsonObject, tax: Tax) -> JsonObject:
    """Return a tax whose amount is the sum of the receipts' taxes.

    It has the rate of the receipts if that gives the sum, or else the sum as a fixed amount of one
    unit, because the tax of each receipt was rounded.
    """
    if tax.percentage is not None:
        by_rate = {"percentage": tax.percentage}
    else:
        by_rate = {"perUnitAmount": tax.per_unit, "unitCount": tax.units}
    detail: JsonObject = {"taxType": tax.type, "taxRate": by_rate}
    if _compute_tax(item, detail) == tax.at_rate:
        return detail
    return {"taxType": tax.type, "taxRate": {"perUnitAmount": tax.at_rate, "unitCount": 1}}


def _compute_tax(item: JsonObject, detail: JsonObject) -> Decimal | None:
    """Return the tax of a line with this detail, or None if it has no valid amount."""
    try:
        return compute_line({**item, "taxDetails": [detail]}).taxes[0].at_rate
    except AmountError:
        return None


def find_misclassified_lines(line_items: Iterable[JsonObject]) -> list[dict[str, str]]:
    """Return the violations of the lines of a note for a consolidated invoice.

    Its other party is unnamed, which requires the classification 004. Portal: 12.9
    """
    wording = (
        "Every line of a note for a consolidated invoice must have "
        f"the classification {CLASSIFICATION} and no other."
    )
    return [
        violation(f"/lineItems/{index}/classifications", "classification", wording)
        for index, item in enumerate(line_items)
        if item.get("classifications") != [CLASSIFICATION]
    ]

"""Which invoices a consolidated invoice may take, until when, and the lines that it makes of them. Portal: 13

A consolidated invoice tells the portal of a month's sales whose buyers asked for no invoice of their own. Its
lines are drawn so that its sums are those of its invoices to the cent, whatever was rounded in each of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import NamedTuple
from zoneinfo import ZoneInfo

from service import json_codec
from service.documents.checks.line import lacks_tax
from service.documents.money import EXACT, EXEMPT, ZERO, AmountError, line_amounts, totals
from service.documents.ubl.document import HOME_CURRENCY
from service.errors import violation

#: consolidated invoice -> the types of the invoices that it takes.
FAMILIES = {
    "CONSOLIDATED_INVOICE": {"INVOICE", "PENDING_FINALIZE_INVOICE"},
    "CONSOLIDATED_SELF_BILLED_INVOICE": {
        "SELF_BILLED_INVOICE",
        "PENDING_FINALIZE_SELF_BILLED_INVOICE",
    },
}

CLASSIFICATION = "004"
UNIT = "C62"
# In MYR, what is payable; above it a sale needs an invoice of its own
LARGEST_SALE = Decimal(10_000)
LONGEST_NUMBER = 50  # Portal: 10.2

MOST_INVOICES = 10_000
#: Of the portal's 300,000 bytes the lines may fill so many; the rest is for the head and the
#: signature. Portal: 1.5
#: That is reached long before the 1,000 lines that a document may have.
MOST_BYTES = 280_000
#: At most so many bytes of a document are one line, its receipts and reasons apart, and one tax of
#: it.
LINE_BYTES, TAX_BYTES = 500, 400


@dataclass(frozen=True, slots=True)
class Period:
    """One calendar month in the business time zone: its sales are issued from `since` to before `until`, and
    consolidated before `deadline`."""

    month: date
    since: datetime
    until: datetime
    deadline: datetime

    @property
    def last_day(self):
        """The last day on which its sales may be consolidated."""
        return (self.deadline - timedelta(days=1)).date()


def period(month, time_zone, days):
    """The Period of the month whose first day is `month`; `days` is how long it may be consolidated after its end."""
    following = (month.replace(day=28) + timedelta(days=4)).replace(day=1)
    midnights = (month, following, following + timedelta(days=days))
    return Period(month, *(datetime.combine(day, time(), time_zone) for day in midnights))


def month_of(instant, time_zone):
    """The first day of the month in which the instant lies."""
    return instant.astimezone(time_zone).date().replace(day=1)


@dataclass(frozen=True, slots=True)
class Terms:
    """What an invoice is held against. Exclusions do not hold for sales up to `relaxed_until`, if it is set."""

    type: str
    period: Period
    time_zone: ZoneInfo
    relaxed_until: date | None = None


class Rule(NamedTuple):
    """A reason to refuse, for what is dated `since` or later; `relaxable` ones the authority may suspend."""

    code: str
    since: date
    refuses: Callable
    message: str
    relaxable: bool = False


ALWAYS = date.min

#: An invoice may not be consolidated: the first row that holds says why.
INVOICE_RULES = (
    Rule(
        "type",
        ALWAYS,
        lambda invoice, terms: invoice["type"] not in FAMILIES[terms.type],
        "An invoice of the type {type} is not taken by a {into}.",
    ),
    Rule(
        "month",
        ALWAYS,
        lambda invoice, terms: not terms.period.since <= invoice["issue_date"] < terms.period.until,
        "The invoice was issued in another month than {month:%Y-%m}; months are not merged.",
    ),
    Rule(
        "consolidated",
        ALWAYS,
        lambda invoice, terms: invoice["consolidated_invoice_id"] is not None,
        "The invoice is already part of the consolidated invoice {consolidated_invoice_id}.",
    ),
    Rule(
        "submitted",
        ALWAYS,
        lambda invoice, terms: invoice["status"] != "Draft" or invoice["was_accepted"],
        "The invoice has been submitted by itself; its status is {status}.",
    ),
    Rule(
        "named",
        ALWAYS,
        lambda invoice, terms: invoice["is_named"],
        "The invoice names its other party, which is due a document of its own.",
    ),
    Rule(
        "currency",
        ALWAYS,
        lambda invoice, terms: invoice["currency_code"] != HOME_CURRENCY,
        f"The invoice is in {{currency_code}}; a consolidated invoice is in {HOME_CURRENCY}.",
    ),
    Rule(
        "amount",
        date(2026, 1, 1),
        lambda invoice, terms: invoice["payable_amount"] > LARGEST_SALE,
        f"The invoice is of more than RM {LARGEST_SALE:,} and has to be submitted by itself.",
        relaxable=True,
    ),
    Rule(
        "number",
        ALWAYS,
        lambda invoice, terms: len(invoice["number"]) > LONGEST_NUMBER,
        f"The full code of the invoice has more than {LONGEST_NUMBER} characters.",
    ),
)

#: A month cannot be consolidated, or not any more, by a document that is issued at some time.
PERIOD_RULES = (
    Rule(
        "period",
        ALWAYS,
        lambda period, issue_date, now: issue_date < period.until,
        "The sales of {month:%Y-%m} are consolidated by a document that is issued after the month.",
    ),
    Rule(
        "deadline",
        ALWAYS,
        lambda period, issue_date, now: now >= period.deadline,
        "The sales of {month:%Y-%m} could be consolidated until {last_day}.",
    ),
)

LACKS_TAX = (
    "tax",
    "A line of the invoice lacks its tax, the rate of it, or the reason of an exemption.",
)
FULL = ("full", "The consolidated invoice is full; the rest of the month goes into another one.")
UNKNOWN = ("unknown", "There is no such invoice.")


def left_out(invoice_id, reason, message):
    return {"invoice_id": invoice_id, "reason": reason, "message": message}


def sift(invoices, terms):
    """(those that may be consolidated, those that may not, as left_out) of rows of consolidation_candidates."""
    taken, rest = [], []
    for invoice in invoices:
        refusal = _invoice_refusal(invoice, terms)
        if refusal:
            rest.append(left_out(invoice["id"], *refusal))
        else:
            taken.append(invoice)
    rest += (left_out(invoice["id"], *FULL) for invoice in taken[MOST_INVOICES:])
    return taken[:MOST_INVOICES], rest


def _invoice_refusal(invoice, terms):
    day = invoice["issue_date"].astimezone(terms.time_zone).date()
    relaxed = terms.relaxed_until is not None and day <= terms.relaxed_until
    for rule in INVOICE_RULES:
        if day >= rule.since and not (rule.relaxable and relaxed) and rule.refuses(invoice, terms):
            return rule.code, rule.message.format(
                **invoice, into=terms.type, month=terms.period.month
            )
    return None


def period_refusals(period, issue_date, now):
    """[(code, message)] of the PERIOD_RULES that hold."""
    return [
        (rule.code, rule.message.format(month=period.month, last_day=period.last_day))
        for rule in PERIOD_RULES
        if period.month >= rule.since and rule.refuses(period, issue_date, now)
    ]


# Lines: one for each unbroken range of codes among the receipts that have lines of the same taxes.


class Rate(NamedTuple):
    """A kind of tax as a line names it: by a percentage, or by an amount for each unit."""

    type: str
    percentage: Decimal | None
    per_unit: Decimal | None


class Taxes(NamedTuple):
    """What the lines that share a line have in common."""

    rates: tuple[Rate, ...]
    reason: str | None  # of an exemption


@dataclass(slots=True)
class Sums:
    """Net, and for each of the Taxes' rates the tax and the units that it was due for."""

    net: Decimal
    taxes: list[Decimal]
    units: list[Decimal]

    def add(self, other):
        self.net += other.net
        self.taxes = [mine + its for mine, its in zip(self.taxes, other.taxes, strict=False)]
        self.units = [mine + its for mine, its in zip(self.units, other.units, strict=False)]


@dataclass(slots=True)
class Run:
    """Receipts with unbroken codes; `first` and `last` are full codes."""

    taxes: Taxes
    first: str
    last: str
    code: int
    sums: Sums


@dataclass(slots=True)
class ConsolidationPlan:
    """A consolidated invoice while invoices are added to it, in the order of their codes."""

    ids: list = field(default_factory=list)
    left_out: list = field(default_factory=list)
    runs: list = field(default_factory=list)
    allowances: Decimal = ZERO
    charges: Decimal = ZERO
    weight: int = 0
    is_full: bool = False
    _open: dict = field(default_factory=dict)  # Taxes -> their latest Run

    def take(self, invoices, sources):
        """Adds what sift has taken; `sources` are their rows of consolidation_lines, not looked at once it is full."""
        rows = {row["id"]: row for row in sources}
        with localcontext(EXACT):
            for invoice in invoices:
                if self.is_full:
                    self.left_out.append(left_out(invoice["id"], *FULL))
                else:
                    self.add(invoice, *_read(rows[invoice["id"]]))

    def add(self, invoice, line_items, adjustments):
        """Takes an invoice in, or leaves it out. One that does not fit in ends the drawing."""
        if any(lacks_tax(item) for item in line_items):
            self.left_out.append(left_out(invoice["id"], *LACKS_TAX))
            return
        amounts = totals(line_items, adjustments)
        parts = _parts(line_items, amounts.lines)
        if not self._fits(invoice, parts):
            self.left_out.append(left_out(invoice["id"], *FULL))
            return
        self.ids.append(invoice["id"])
        self.allowances += amounts.allowances
        self.charges += amounts.charges
        for taxes, sums in parts.items():
            self._draw(invoice, taxes, sums)

    def _fits(self, invoice, parts):
        fresh = [taxes for taxes in parts if not self._continued(taxes, invoice["code"])]
        weight = self.weight + sum(_weight(taxes, invoice["number"]) for taxes in fresh)
        self.is_full = weight > MOST_BYTES
        self.weight = self.weight if self.is_full else weight
        return not self.is_full

    def _continued(self, taxes, code):
        run = self._open.get(taxes)
        return run is not None and run.code + 1 == code

    def _draw(self, invoice, taxes, sums):
        code, number = invoice["code"], invoice["number"]
        if self._continued(taxes, code):
            run = self._open[taxes]
            run.code, run.last = code, number
            run.sums.add(sums)
        else:
            self._open[taxes] = run = Run(taxes, number, number, code, sums)
            self.runs.append(run)

    def body(self):
        """The lines and the document's discounts and charges, in the shape of a request."""
        return {
            "lineItems": [_line(str(index), run) for index, run in enumerate(self.runs, 1)],
            "invoiceLevelAllowanceCharge": self._adjustments(),
        }

    def _adjustments(self):
        given = {
            "allowances": [{"amount": self.allowances, "reason": "Discounts of the receipts"}]
            * bool(self.allowances),
            "charges": [{"amount": self.charges, "reason": "Charges of the receipts"}]
            * bool(self.charges),
        }
        return {name: entries for name, entries in given.items() if entries} or None


def _read(row):
    """(line items, adjustments) of a row of consolidation_lines."""
    adjustments = json_codec.loads(row["adjustments"].encode()) if row["adjustments"] else None
    return json_codec.loads(row["line_items"].encode()), adjustments


def _parts(line_items, lines):
    """{Taxes: Sums} of one invoice."""
    parts = {}
    for item, amounts in zip(line_items, lines, strict=False):
        taxes = sorted(
            amounts.taxes, key=lambda tax: (tax.type, tax.percentage or ZERO, tax.per_unit or ZERO)
        )
        reason = (
            item.get("taxExemptionReason") if any(tax.type == EXEMPT for tax in taxes) else None
        )
        kind = Taxes(tuple(Rate(tax.type, tax.percentage, tax.per_unit) for tax in taxes), reason)
        sums = Sums(
            amounts.net, [tax.amount for tax in taxes], [tax.units or ZERO for tax in taxes]
        )
        if kind in parts:
            parts[kind].add(sums)
        else:
            parts[kind] = sums
    return parts


def _weight(taxes, number):
    """The most bytes that a line of these taxes has in a document."""
    reason = len(json_codec.dumps(taxes.reason or "").encode())
    return (
        LINE_BYTES
        + 2 * len(json_codec.dumps(number).encode())
        + len(taxes.rates) * (TAX_BYTES + reason)
    )


def _line(id, run):
    receipts = (
        f"Receipt {run.first}" if run.first == run.last else f"Receipts {run.first} - {run.last}"
    )
    item = {
        "id": id,
        "description": receipts,
        "classifications": [CLASSIFICATION],
        "unit": {"code": UNIT, "price": run.sums.net, "count": 1},
        **({"taxExemptionReason": run.taxes.reason} if run.taxes.reason else {}),
    }
    taxes = zip(run.taxes.rates, run.sums.taxes, run.sums.units, strict=False)
    return {**item, "taxDetails": [_tax_detail(item, *tax) for tax in taxes]}


def _tax_detail(item, rate, amount, units):
    """The tax by its rate where that makes the sum of the receipts' taxes; else, for what was rounded in each of
    them, by the sum itself as a fixed amount of one unit."""
    if rate.percentage is not None:
        by_rate = {"percentage": rate.percentage}
    else:
        by_rate = {"perUnitAmount": rate.per_unit, "unitCount": units}
    detail = {"taxType": rate.type, "taxRate": by_rate}
    if _tax(item, detail) == amount:
        return detail
    return {"taxType": rate.type, "taxRate": {"perUnitAmount": amount, "unitCount": 1}}


def _tax(item, detail):
    """What the line's tax would come to, None where it makes no amount."""
    try:
        return line_amounts({**item, "taxDetails": [detail]}).tax
    except AmountError:
        return None


def misclassified(line_items):
    """The faults of a note's lines against a consolidated invoice: its unnamed party allows 004 only. Portal: 12.9"""
    wording = f"A note against a consolidated invoice has the classification {CLASSIFICATION}, and no other, on every line."
    return [
        violation(f"/lineItems/{index}/classifications", "classification", wording)
        for index, item in enumerate(line_items)
        if item.get("classifications") != [CLASSIFICATION]
    ]

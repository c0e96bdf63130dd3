"""Compute the amounts of a document from its lines in exact decimals, rounded half up to 0.01.

Only this module computes amounts; sums that a client sends are ignored. Lines have the request
shape, numbers are int or Decimal, amounts are in the document's currency. Spec: Line item
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from functools import partial
from typing import NamedTuple, TypeVar

from service.errors import Violation, violation
from service.json_types import JsonMapping

Key = TypeVar("Key", bound=Hashable)

#: Limits of the digits before and after the decimal point of a number in a body. The product of
#: two such numbers is exact in the context below.
WHOLE_DIGITS = 15
DECIMALS = 20
#: Decimals of a price or a quantity in a body. More are the error of a binary float in the client.
WRITTEN_DECIMALS = 10
EXACT = Context(prec=2 * (WHOLE_DIGITS + DECIMALS) + 10, rounding=ROUND_HALF_UP)

#: Upper limit (exclusive) of the amounts of a document, which are stored as numeric(20,2).
LIMIT = Decimal(10) ** WHOLE_DIGITS

CENT = Decimal("0.01")
ZERO = Decimal("0.00")
NOTHING = Decimal(0)

#: The tax type for exempt supplies. Its tax is 0; at its rate it has a tax forgone. Portal: 12.5
EXEMPT = "E"


class AmountError(ValueError):
    """Invalid numbers in a body: (JSON Pointer, message for clients) of each."""

    def __init__(self, *found: tuple[str, str]) -> None:
        super().__init__(*found)
        self.found = found

    def below(self, path: str) -> "AmountError":
        """Return the error with the path of the object in which it was found."""
        return AmountError(*((path + inner, message) for inner, message in self.found))

    @property
    def violations(self) -> list[Violation]:
        return [violation(path, "amount", message) for path, message in self.found]


class Adjustment(NamedTuple):
    """A discount or a charge.

    `factor` is its share of the line's subtotal, or None if the body gives an amount.
    """

    amount: Decimal
    factor: Decimal | None
    reason: str | None


class TaxRate(NamedTuple):
    """A tax type with its percentage or its amount per unit."""

    type: str
    percentage: Decimal | None = None
    per_unit: Decimal | None = None


class Tax(NamedTuple):
    """One tax of a line: `percentage` of `taxable`, or, if that is None, `per_unit` x `units`.

    `at_rate` is the tax at this rate. An exempt line forgoes it: it is part of no total.
    """

    type: str
    taxable: Decimal
    percentage: Decimal | None
    per_unit: Decimal | None
    units: Decimal | None
    at_rate: Decimal

    @property
    def rate(self) -> TaxRate:
        return TaxRate(self.type, self.percentage, self.per_unit)

    @property
    def amount(self) -> Decimal:
        """The tax that is due."""
        return ZERO if self.type == EXEMPT else self.at_rate


class LineAmounts(NamedTuple):
    """The amounts of one line; `tax` is the sum of its taxes."""

    subtotal: Decimal
    discount: Adjustment | None
    charge: Adjustment | None
    net: Decimal
    taxes: tuple[Tax, ...]
    tax: Decimal


class TaxTotal(NamedTuple):
    """Sums of taxes over all lines. `at_rate` includes the tax that exempt lines forgo."""

    taxable: Decimal = ZERO
    tax: Decimal = ZERO
    at_rate: Decimal = ZERO


class Totals(NamedTuple):
    """The amounts of a document.

    `payable` is what is left to pay: `total` without the prepaid amount.
    """

    lines: Sequence[LineAmounts]
    net_amount: Decimal
    allowances: Decimal
    charges: Decimal
    excluding_tax: Decimal
    tax: Decimal
    including_tax: Decimal
    prepaid: Decimal
    rounding: Decimal
    payable: Decimal

    @property
    def total(self) -> Decimal:
        """The value of the document, which notes adjust: prepaid or to be paid."""
        return self.including_tax + self.rounding

    @property
    def by_tax_type(self) -> dict[str, TaxTotal]:
        """The sums of each tax type, in the order in which the lines name the types."""
        return sum_taxes(self.lines, lambda tax: tax.type)


def read_adjustments(body: JsonMapping, name: str) -> list[Adjustment]:
    """Return the `allowances` or the `charges` of a whole document. Raises AmountError."""
    path = f"/invoiceLevelAllowanceCharge/{name}"
    given: JsonMapping = body.get("invoiceLevelAllowanceCharge") or {}
    entries: Sequence[JsonMapping] = given.get(name) or ()
    return [
        Adjustment(
            round_cents(read_number(each, "amount", f"{path}/{index}")), None, each.get("reason")
        )
        for index, each in enumerate(entries)
    ]


def _sum_adjustments(name: str, body: JsonMapping) -> Decimal:
    return sum([each.amount for each in read_adjustments(body, name)], ZERO)


_sum_allowances = partial(_sum_adjustments, "allowances")
_sum_charges = partial(_sum_adjustments, "charges")


def round_cents(number: Decimal | int | str) -> Decimal:
    """Round a number half up to 0.01; the result has exactly two decimals."""
    return Decimal(number).quantize(CENT, context=EXACT)


def count_decimals(number: Decimal) -> int:
    """Return the number of decimals of a finite number; it is negative for 1E+3."""
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _is_short(number: Decimal, length: int = WHOLE_DIGITS) -> bool:
    """Return whether a number has at most `length` characters, and no sign and no exponent.

    It is then within the limits. A longer number can be within the limits too.
    """
    text = str(number)
    return len(text) <= length and text[0].isdigit() and "E" not in text


def read_number(holder: JsonMapping, name: str, path: str = "") -> Decimal:
    """Return the member `name` of the object at `path` as a Decimal.

    Raises AmountError if it is absent, no number, negative or has too many digits, and TypeError
    for a binary float.
    """
    value = holder.get(name)
    if type(value) is Decimal and _is_short(value):
        return value
    if type(value) is int and 0 <= value < LIMIT:
        return Decimal(value)
    number = _parse_number(value, f"{path}/{name}")
    if (
        not number.is_finite()
        or (number and number.adjusted() >= WHOLE_DIGITS)
        or count_decimals(number) > DECIMALS
    ):
        limits = f"{WHOLE_DIGITS} digits before the decimal point and {DECIMALS} after it"
        raise AmountError((f"{path}/{name}", f"The number must have at most {limits}."))
    if number < 0:
        raise AmountError((f"{path}/{name}", "The number must not be negative."))
    return number


def _parse_number(value: object, path: str) -> Decimal:
    if isinstance(value, float):
        raise TypeError(f"{path} is a binary float, not an exact number")
    if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
        raise AmountError((path, "A number is required."))
    return Decimal(value)


def compute_line(item: JsonMapping) -> LineAmounts:
    """Compute the amounts of a line item.

    net = round2(price x count) - discount + charge, tax = round2(net x percentage / 100) for each
    tax. The `rate` of a discount or charge is a percentage of the subtotal. A tax with a
    `perUnitAmount` applies to `unitCount` units, by default to the line's count. Raises
    AmountError with a path that begins at the line. Portal: 10.8
    """
    with localcontext(EXACT):
        return _compute_line(item)


def compute_document(body: JsonMapping) -> Totals:
    """Compute the amounts of a document in the request shape, and of each of its lines.

    The allowances and charges of the document do not change the taxable amount of any line. Raises
    AmountError for all invalid lines and amounts, or without any for the sums. Portal: 10.7
    """
    computed: list[LineAmounts] = []
    amounts: list[Decimal] = []
    wrong: list[tuple[str, str]] = []
    with localcontext(EXACT):
        for index, item in enumerate(body.get("lineItems") or ()):
            try:
                computed.append(_compute_line(item))
            except AmountError as error:
                wrong += error.below(f"/lineItems/{index}").found
        for read in (_read_prepaid, _read_rounding, _sum_allowances, _sum_charges):
            try:
                amounts.append(read(body))
            except AmountError as error:
                wrong += error.found
        if wrong:
            raise AmountError(*wrong)
        prepaid, rounding, allowances, charges = amounts
        lines = tuple(computed)
        net = sum([line.net for line in lines], ZERO)
        tax = sum([line.tax for line in lines], ZERO)
        excluding = net - allowances + charges
        including = excluding + tax
        at_rate = sum([each.at_rate for line in lines for each in line.taxes], ZERO)
        _check_limits(excluding, max(net, allowances, charges, including, at_rate))
        payable = _compute_payable(including, prepaid, rounding)
    return Totals(
        lines, net, allowances, charges, excluding, tax, including, prepaid, rounding, payable
    )


def sum_taxes(lines: Sequence[LineAmounts], read_key: Callable[[Tax], Key]) -> dict[Key, TaxTotal]:
    """Return the sums of the taxes that have the same key, in the order of the lines.

    Taxes of one line with the same key share its taxable amount, which counts once. Portal: 10.7
    """
    sums: defaultdict[Key, TaxTotal] = defaultdict(TaxTotal)
    for line in lines:
        counted: set[Key] = set()
        for tax in line.taxes:
            key = read_key(tax)
            taxable, amount, at_rate = sums[key]
            if key not in counted:
                taxable += tax.taxable
                counted.add(key)
            sums[key] = TaxTotal(taxable, amount + tax.amount, at_rate + tax.at_rate)
    return sums


def find_noise(items: Sequence[JsonMapping]) -> Iterator[dict[str, str]]:
    """Yield a violation for each price and quantity with more than WRITTEN_DECIMALS decimals.

    Zeros at the end do not count. The message proposes the rounded number.
    """
    for index, item in enumerate(items):
        for name in ("price", "count"):
            number = item["unit"][name]
            if type(number) is not Decimal or _is_short(number, WRITTEN_DECIMALS):
                continue
            if count_decimals(number.normalize(EXACT)) > WRITTEN_DECIMALS:
                step = Decimal(1).scaleb(-WRITTEN_DECIMALS)
                meant = number.quantize(step, context=EXACT).normalize(EXACT)
                limit = f"The number must have at most {WRITTEN_DECIMALS} decimals."
                path = f"/lineItems/{index}/unit/{name}"
                yield violation(path, "decimals", f"{limit} Did you mean {meant:f}?")


def _compute_line(item: JsonMapping) -> LineAmounts:
    """Compute the amounts of a line. The paths of errors begin at the line."""
    unit = item.get("unit", {})
    count = read_number(unit, "count", "/unit")
    subtotal = (read_number(unit, "price", "/unit") * count).quantize(CENT)
    discount = _compute_adjustment(item, "discount", subtotal)
    charge = _compute_adjustment(item, "charge", subtotal)
    net = subtotal
    if discount:
        net -= discount.amount
    if charge:
        net += charge.amount
    if net < 0:
        raise AmountError(("/discount", "The discount exceeds the amount of the line."))
    taxes = _compute_taxes(item.get("taxDetails", ()), net, count)
    tax = sum([tax.at_rate for tax in taxes if tax.type != EXEMPT], ZERO)
    return LineAmounts(subtotal, discount, charge, net, taxes, tax)


def _compute_adjustment(item: JsonMapping, name: str, subtotal: Decimal) -> Adjustment | None:
    given = item.get(name)
    if not given:
        return None
    if "amount" in given or "rate" not in given:
        amount = read_number(given, "amount", f"/{name}").quantize(CENT)
        return Adjustment(amount, None, given.get("reason"))
    factor = read_number(given, "rate", f"/{name}") * CENT
    return Adjustment((subtotal * factor).quantize(CENT), factor, given.get("reason"))


def _compute_taxes(details: Sequence[JsonMapping], net: Decimal, count: Decimal) -> tuple[Tax, ...]:
    taxes: list[Tax] = []
    try:
        for detail in details:
            taxes.append(_compute_tax(detail, net, count))
    except AmountError as error:
        raise error.below(f"/taxDetails/{len(taxes)}/taxRate") from None
    return tuple(taxes)


def _compute_tax(detail: JsonMapping, net: Decimal, count: Decimal) -> Tax:
    tax_type, rate = detail.get("taxType", ""), detail.get("taxRate", {})
    if "perUnitAmount" in rate:
        per_unit = read_number(rate, "perUnitAmount")
        units = read_number(rate, "unitCount") if "unitCount" in rate else count
        return Tax(tax_type, net, None, per_unit, units, (per_unit * units).quantize(CENT))
    percentage = read_number(rate, "percentage") if "percentage" in rate else NOTHING
    return Tax(tax_type, net, percentage, None, None, (net * percentage * CENT).quantize(CENT))


def _check_limits(excluding: Decimal, largest: Decimal) -> None:
    if excluding < 0:
        wording = "The allowances exceed the amount of the document."
        raise AmountError(("/invoiceLevelAllowanceCharge/allowances", wording))
    if largest >= LIMIT:
        wording = (
            f"The document's amounts must have at most {WHOLE_DIGITS} digits before the point."
        )
        raise AmountError(("/lineItems", wording))


def _read_prepaid(body: JsonMapping) -> Decimal:
    prepayment = body.get("prepayment")
    return read_number(prepayment, "amount", "/prepayment").quantize(CENT) if prepayment else ZERO


def _read_rounding(body: JsonMapping) -> Decimal:
    """Return the rounding, which may be negative.

    Raises AmountError for more than two decimals.
    """
    value, path = body.get("payableRoundingAmount"), "/payableRoundingAmount"
    if value is None:
        return ZERO
    rounding = _parse_number(value, path)
    if count_decimals(rounding.normalize()) > 2:
        raise AmountError((path, "The rounding must have at most 2 decimals."))
    return rounding.quantize(CENT)


def _compute_payable(including: Decimal, prepaid: Decimal, rounding: Decimal) -> Decimal:
    """Return what is left to pay.

    Raises AmountError if the rounding or the prepayment exceeds the amount of the document.
    """
    total = including + rounding
    if total < 0:
        wording = "The rounding exceeds the amount of the document."
        raise AmountError(("/payableRoundingAmount", wording))
    if prepaid > total:
        wording = f"The prepayment exceeds the amount of the document, {total}."
        raise AmountError(("/prepayment/amount", wording))
    return total - prepaid

"""Amounts of a document, computed from its lines in exact decimals and rounded half up to 0.01.

What a client sends as a sum is never believed; this module is the only place where amounts are made. Lines have
the request shape, numbers are int or Decimal, amounts are in the document's currency. Spec: Line item
"""

from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import NamedTuple

from service.errors import violation

#: A number of a body has at most so many digits before and after the point, so two of them multiply
#: exactly.
WHOLE_DIGITS = 15
DECIMALS = 20
EXACT = Context(prec=2 * (WHOLE_DIGITS + DECIMALS) + 10, rounding=ROUND_HALF_UP)

#: Every sum of a document stays under this: the columns that hold them are numeric(20,2).
LIMIT = Decimal(10) ** WHOLE_DIGITS

CENT = Decimal("0.01")
ZERO = Decimal("0.00")

#: The tax type whose tax is 0 whatever rate is given. Portal: 12.5
EXEMPT = "E"


class AmountError(ValueError):
    """A number that makes no amount: `path` is its JSON Pointer into the body, the message is for a person."""

    def __init__(self, path, message):
        super().__init__(message)
        self.path = path


class Adjustment(NamedTuple):
    """A discount or a charge; `factor` is its share of the line's subtotal, None where an amount was given."""

    amount: Decimal
    factor: Decimal | None
    reason: str | None


class Tax(NamedTuple):
    """One tax of a line: `percentage` of `taxable`, or where that is None `per_unit` for each of `units`."""

    type: str
    taxable: Decimal
    percentage: Decimal | None
    per_unit: Decimal | None
    units: Decimal | None
    amount: Decimal


class LineAmounts(NamedTuple):
    subtotal: Decimal
    discount: Adjustment | None
    charge: Adjustment | None
    net: Decimal
    taxes: tuple[Tax, ...]
    tax: Decimal


class TypeTotal(NamedTuple):
    taxable: Decimal
    tax: Decimal


class Totals(NamedTuple):
    """`by_tax_type` is {tax type: TypeTotal} in the order in which the lines name the types."""

    lines: tuple[LineAmounts, ...]
    net_amount: Decimal
    allowances: Decimal
    charges: Decimal
    excluding_tax: Decimal
    tax: Decimal
    including_tax: Decimal
    payable: Decimal
    by_tax_type: dict[str, TypeTotal]


def round2(number):
    """`number` rounded half up to 0.01, as a Decimal with exactly two places."""
    return Decimal(number).quantize(CENT, context=EXACT)


def exact_number(holder, name, path=""):
    """The member `name` of the object at `path` as a Decimal; two of them multiply without rounding.

    Raises AmountError when it is absent, no number, negative or has too many digits, TypeError for a binary float.
    """
    value = holder.get(name)
    if isinstance(value, float):
        raise TypeError(f"{path}/{name} is a binary float, not an exact number")
    if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
        raise AmountError(f"{path}/{name}", "A number is required here.")
    number = Decimal(value)
    if (
        not number.is_finite()
        or number.adjusted() >= WHOLE_DIGITS
        or number.as_tuple().exponent < -DECIMALS
    ):
        limits = f"{WHOLE_DIGITS} digits before the point and {DECIMALS} after it"
        raise AmountError(f"{path}/{name}", f"The number has more than {limits}.")
    if number < 0:
        raise AmountError(f"{path}/{name}", "The number must not be negative.")
    return number


def line_amounts(item, path=""):
    """The amounts of one line item. Raises AmountError, its path under `path`.

    net = round2(price x count) - discount + charge, tax = round2(net x percentage / 100) for each of the taxes.
    A `rate` of a discount or a charge is a percentage of the subtotal. A tax with `perUnitAmount` in place of
    a percentage is due for `unitCount` units, or else for the line's count. Portal: 10.8
    """
    with localcontext(EXACT):
        return _line(item, path)


def totals(line_items, allowance_charge=None):
    """The amounts of a document and of each of its lines. Raises AmountError with a path into the request body.

    `allowance_charge` is {allowances: [{amount, reason}], charges: [{amount, reason}]}; it changes the sum that is
    taxed in no line. Portal: 10.7
    """
    with localcontext(EXACT):
        lines = tuple(_line(item, f"/lineItems/{index}") for index, item in enumerate(line_items))
        allowances, charges = (
            _document_sum(allowance_charge, "allowances"),
            _document_sum(allowance_charge, "charges"),
        )
        net = sum((line.net for line in lines), ZERO)
        tax = sum((line.tax for line in lines), ZERO)
        excluding = net - allowances + charges
        including = excluding + tax
        _check_document(excluding, max(net, allowances, charges, including))
        by_type = _by_tax_type(lines)
        return Totals(
            lines, net, allowances, charges, excluding, tax, including, including, by_type
        )


def violations(body):
    """What in a whole create body makes no amounts, as [{path, rule, message}]: one fault for each bad line."""
    items = body.get("lineItems", ())
    try:
        totals(items, body.get("invoiceLevelAllowanceCharge"))
    except AmountError as error:
        return _line_faults(items) or [_fault(error)]
    return []


def _line_faults(items):
    found = []
    for index, item in enumerate(items):
        try:
            line_amounts(item, f"/lineItems/{index}")
        except AmountError as error:
            found.append(_fault(error))
    return found


def _fault(error):
    return violation(error.path, "amount", str(error))


def _line(item, path):
    unit = item.get("unit", {})
    count = exact_number(unit, "count", f"{path}/unit")
    subtotal = round2(exact_number(unit, "price", f"{path}/unit") * count)
    discount = _adjustment(item, "discount", subtotal, path)
    charge = _adjustment(item, "charge", subtotal, path)
    net = subtotal - (discount.amount if discount else ZERO) + (charge.amount if charge else ZERO)
    if net < 0:
        raise AmountError(f"{path}/discount", "The discount is larger than the line.")
    taxes = tuple(
        _tax(detail, net, count, f"{path}/taxDetails/{index}/taxRate")
        for index, detail in enumerate(item.get("taxDetails", ()))
    )
    return LineAmounts(
        subtotal, discount, charge, net, taxes, sum((tax.amount for tax in taxes), ZERO)
    )


def _adjustment(item, name, subtotal, path):
    given = item.get(name)
    if not given:
        return None
    if "amount" in given or "rate" not in given:
        return Adjustment(
            round2(exact_number(given, "amount", f"{path}/{name}")), None, given.get("reason")
        )
    factor = exact_number(given, "rate", f"{path}/{name}") * CENT
    return Adjustment(round2(subtotal * factor), factor, given.get("reason"))


def _tax(detail, net, count, path):
    kind, rate = detail.get("taxType"), detail.get("taxRate", {})
    if kind == EXEMPT:
        return Tax(kind, net, Decimal(0), None, None, ZERO)
    if "perUnitAmount" in rate:
        each = exact_number(rate, "perUnitAmount", path)
        units = exact_number(rate, "unitCount", path) if "unitCount" in rate else count
        return Tax(kind, net, None, each, units, round2(each * units))
    percentage = exact_number(rate, "percentage", path) if "percentage" in rate else Decimal(0)
    return Tax(kind, net, percentage, None, None, round2(net * percentage * CENT))


def _document_sum(allowance_charge, name):
    path = f"/invoiceLevelAllowanceCharge/{name}"
    entries = (allowance_charge or {}).get(name) or ()
    return sum(
        (
            round2(exact_number(entry, "amount", f"{path}/{index}"))
            for index, entry in enumerate(entries)
        ),
        ZERO,
    )


def _check_document(excluding, largest):
    if excluding < 0:
        raise AmountError(
            "/invoiceLevelAllowanceCharge/allowances",
            "The allowances are larger than the document.",
        )
    if largest >= LIMIT:
        raise AmountError(
            "/lineItems", f"The sums of the document need more than {WHOLE_DIGITS} digits."
        )


def _by_tax_type(lines):
    sums = {}
    for line in lines:
        for tax in line.taxes:
            before = sums.get(tax.type, TypeTotal(ZERO, ZERO))
            sums[tax.type] = TypeTotal(before.taxable + tax.taxable, before.tax + tax.amount)
    return sums

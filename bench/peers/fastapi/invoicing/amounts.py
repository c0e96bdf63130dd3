"""The amounts of an invoice, computed from its lines in exact decimals."""

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal

from .schemas import DocumentAdjustment, InvoiceCreate, LineAdjustment, LineItem, TaxDetail

CENT = Decimal("0.01")
ZERO = Decimal("0.00")
EXEMPT = "E"


def compute_amounts(body: InvoiceCreate) -> dict[str, Decimal]:
    """Return the columns of the amounts. Raises ValueError for a negative amount."""
    lines = [(item, _compute_net(item)) for item in body.line_items]
    net = sum((amount for _, amount in lines), ZERO)
    tax = sum((_compute_tax(item, amount) for item, amount in lines), ZERO)
    adjustments = body.invoice_level_allowance_charge
    excluding = net
    if adjustments:
        excluding += _sum(adjustments.charges) - _sum(adjustments.allowances)
    if excluding < 0 or any(amount < 0 for _, amount in lines):
        raise ValueError("The discounts or allowances exceed the amount.")
    return {
        "net_amount": net,
        "excluding_tax": excluding,
        "including_tax": excluding + tax,
        "payable_amount": excluding + tax,
    }


def _round(number: Decimal) -> Decimal:
    return number.quantize(CENT, rounding=ROUND_HALF_UP)


def _compute_net(item: LineItem) -> Decimal:
    subtotal = _round(item.unit.price * item.unit.count)
    return subtotal - _adjust(item.discount, subtotal) + _adjust(item.charge, subtotal)


def _adjust(adjustment: LineAdjustment | None, subtotal: Decimal) -> Decimal:
    if adjustment is None:
        return ZERO
    if adjustment.rate is not None:
        return _round(subtotal * adjustment.rate * CENT)
    return _round(adjustment.amount or ZERO)


def _compute_tax(item: LineItem, net: Decimal) -> Decimal:
    return sum((_compute_one_tax(detail, item, net) for detail in item.tax_details), ZERO)


def _compute_one_tax(detail: TaxDetail, item: LineItem, net: Decimal) -> Decimal:
    if detail.tax_type == EXEMPT:
        return ZERO
    rate = detail.tax_rate
    if rate.per_unit_amount is not None:
        units = item.unit.count if rate.unit_count is None else rate.unit_count
        return _round(rate.per_unit_amount * units)
    return _round(net * (rate.percentage or ZERO) * CENT)


def _sum(entries: Iterable[DocumentAdjustment]) -> Decimal:
    return sum((_round(entry.amount) for entry in entries), ZERO)

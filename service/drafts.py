"""What makes a body a draft that can be stored: known codes, computed amounts, a time that the calendar has."""

from dataclasses import dataclass
from datetime import datetime

from service import codes, money, schema
from service.errors import Invalid


@dataclass(frozen=True, slots=True)
class Draft:
    """A checked body with what is computed from it. `amounts` are the columns of the same names."""

    body: dict
    issue_date: datetime
    amounts: dict


def checked(body, issue_date):
    """The Draft of a body that its schema has let through. Raises Invalid with every fault of codes and amounts."""
    sums = _sums(body)
    faults = codes.faults(body) + ([] if sums else money.faults(body))
    if faults:
        raise Invalid(faults[: schema.MAX_FAULTS])
    amounts = {
        "net_amount": sums.net_amount,
        "excluding_tax": sums.excluding_tax,
        "including_tax": sums.including_tax,
        "payable_amount": sums.payable,
    }
    return Draft(body, issue_date, amounts)


def _sums(body):
    """The totals, or None where a line makes no amounts; then money.faults says why."""
    try:
        return money.totals(body["lineItems"], body.get("invoiceLevelAllowanceCharge"))
    except money.AmountError:
        return None


def code_year(issue_date, time_zone):
    """The year in which a document's code is unique: that of its issue in the business time zone."""
    return issue_date.astimezone(time_zone).year

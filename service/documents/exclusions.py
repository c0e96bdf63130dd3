"""Sales that must not be consolidated: each requires an invoice of its own. Portal: 13

The table `tables/consolidation_exclusions.json` has the activities with their classifications, the
MSIC codes of the companies whose sales they are, and the days from which they are excluded.
"""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec

from service.json_types import JsonMapping

#: Classifications that do not tell one activity of a company from another: consolidated, others.
GENERAL = frozenset({"004", "022"})


class LargestSale(msgspec.Struct, frozen=True):
    """The largest value in MYR of a sale that can be consolidated, of sales from a day on."""

    since: date
    amount: Decimal


class Business(NamedTuple):
    """The company that issues a document: its MSIC code, and whether it is the buyer."""

    msic: str
    self_billed: bool

    @property
    def remedy(self) -> str:
        """The text that says how to report an excluded sale instead."""
        other = "supplier" if self.self_billed else "buyer"
        return f"Name the {other} and submit the invoice individually."


class Exclusion(NamedTuple):
    """The reason to exclude a line, and what to do if only the industry of the company says so."""

    reason: str
    alternative: str = ""


class Activity(msgspec.Struct, frozen=True, rename={"name": "activity"}):
    """An activity whose sales since a day must not be consolidated.

    A line belongs to it by one of `classifications`. It also belongs to it if the MSIC code of the
    company starts with one of `msic`, and its own classifications are general ones or of
    `msic_classifications`.
    """

    name: str
    since: date
    self_billed: bool = False
    classifications: frozenset[str] = frozenset()
    msic: tuple[str, ...] = ()
    msic_classifications: frozenset[str] = frozenset()

    def exclude(self, given: frozenset[str], line: int, business: Business) -> Exclusion | None:
        """Return the exclusion of a line with the given classifications, or None."""
        if found := given & self.classifications:
            return Exclusion(
                f"Line {line} has the classification {min(found)}: {self.name} must not be "
                "consolidated."
            )
        if self.self_billed != business.self_billed or not business.msic.startswith(self.msic):
            return None
        if given - GENERAL and not given & self.msic_classifications:
            return None
        return Exclusion(
            f"Line {line} counts as {self.name}, since the company has the MSIC code "
            f"{business.msic}; that must not be consolidated.",
            "If the line is something else, give it its own classification instead of "
            f"{' or '.join(sorted(GENERAL))}.",
        )


def find_excluded_line(
    items: Iterable[JsonMapping], business: Business, day: date, first: int = 1
) -> Exclusion | None:
    """Return the exclusion of the first excluded line of a sale of a day, or None.

    `first` is the number of the first line.
    """
    activities = [activity for activity in ACTIVITIES if activity.since <= day]
    for line, item in enumerate(items, first):
        given = frozenset(item.get("classifications") or ())
        for activity in activities:
            if exclusion := activity.exclude(given, line, business):
                return exclusion
    return None


class _Table(msgspec.Struct):
    largest_sale: LargestSale
    activities: tuple[Activity, ...]


_FILE = Path(__file__).with_name("tables") / "consolidation_exclusions.json"
_TABLE = msgspec.json.decode(_FILE.read_bytes(), type=_Table)
LARGEST_SALE, ACTIVITIES = _TABLE.largest_sale, _TABLE.activities

"""Listings of documents, which the portal returns in pages, and whether they are complete."""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from service.portal.documents import Document, OddRow
from service.portal.errors import PortalError, Unclear

MOST_ROWS = 10_000  # rows of one listing; the portal shows no more. Portal: 5.5
PAGE_SIZE = 100  # the portal's maximum
MOST_PAGES = 100
SHORTEST = timedelta(seconds=2)  # the portal counts in whole seconds


@dataclass(frozen=True, slots=True)
class ListingPage:
    """One page of a listing, with the listing's totals."""

    rows: list[Document]
    count: int  # rows on all pages
    last: int | None = None  # number of the last page; missing for a submission
    odd: list[OddRow] = field(default_factory=list)  # rows that could not be read

    @property
    def keys(self) -> list[str]:
        return [row.uuid for row in self.rows] + [row.uuid or row.digest for row in self.odd]


class Listing(list[Document]):
    """The documents of a listing, newest first. `odd` has the rows that could not be read."""

    def __init__(self, rows: Iterable[Document] = (), odd: Iterable[OddRow] = ()) -> None:
        super().__init__(rows)
        self.odd = list(odd)


#: Called when a page of a listing could not be read, with the error and the number of failures of
#: this kind for this page. Returns whether to request the page again, perhaps after a wait.
RetryPage = Callable[[PortalError, int], Awaitable[bool]]


def is_last(pages: Sequence[ListingPage]) -> bool:
    """Return whether the latest page is the last, by its own number or else by the rows read."""
    page = pages[-1]
    if page.last is not None:
        return len(pages) >= page.last
    return not page.keys or sum(len(each.keys) for each in pages) >= page.count


def merge(pages: Sequence[ListingPage]) -> Listing:
    """Return the rows of all pages, each once, newest first."""
    rows = {row.uuid: row for page in pages for row in page.rows}
    odd = {row.key: row for page in pages for row in page.odd}
    newest = datetime.max.replace(tzinfo=UTC)
    ordered = sorted(rows.values(), key=lambda row: row.received_at or newest, reverse=True)
    return Listing(ordered, odd.values())


def halve(since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return the halves of the time range of a truncated listing, none if it is too short."""
    middle = since + (until - since) / 2
    return [(since, middle), (middle, until)] if until - since >= SHORTEST else []


def format_second(moment: datetime, up: bool = False) -> str:
    """Format an aware time in UTC, rounded down or up to the second. Portal: 5.5"""
    if moment.tzinfo is None:
        raise ValueError("The time must have a time zone.")
    seconds = math.ceil(moment.timestamp()) if up else math.floor(moment.timestamp())
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_complete(pages: Sequence[ListingPage]) -> None:
    """Raise Unclear unless the pages show all rows listed when the first one was read.

    A listing may grow while it is read. The portal adds rows and deletes none, so a row that is
    listed when the first page is read can only move to later pages: it may be shown twice, and it
    is never skipped. A listing that has grown therefore shows every row that was listed when its
    first page was requested, if all pages but the last have one size and have room for all rows.
    """
    counts, sizes = [page.count for page in pages], [len(page.keys) for page in pages]
    first, last, rows = counts[0], counts[-1], sum(sizes)
    found = len({key for page in pages for key in page.keys})
    is_full = len(set(sizes[:-1])) <= 1 and last <= sizes[0] * len(sizes)
    if any(later < earlier for earlier, later in pairwise(counts)):
        raise Unclear("The listing lost rows while it was read.")
    if first == last and not rows == found == first:
        raise Unclear(f"The listing is incomplete: {rows} of {first} rows.")
    if first < last and not (is_full and first <= found <= last):
        raise Unclear(f"The listing grew from {first} to {last} rows and showed {found}.")

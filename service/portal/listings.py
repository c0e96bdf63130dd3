"""Listings of documents, which the portal returns in pages, and whether they are complete."""

import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from service.portal.documents import Document, OddRow
from service.portal.errors import PortalError, TruncatedListing, Unclear

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


#: Requests the page with this number of a listing.
Fetch = Callable[[int], Awaitable[ListingPage]]
#: Called when a page of a listing could not be read, with the error and the number of failures of
#: this kind for this page. Returns whether to request the page again, perhaps after a wait.
RetryPage = Callable[[PortalError, int], Awaitable[bool]]


async def read_pages(
    fetch: Fetch, retry_page: RetryPage | None
) -> AsyncGenerator[ListingPage, None]:
    """Yield each page of a listing, at least one. Raises Unclear unless they are complete."""
    tally = Tally()
    for number in range(1, MOST_PAGES + 1):
        page = await _read_page(fetch, number, retry_page)
        tally.add(page)
        yield page
        if tally.is_last(page):
            tally.check()
            return
    error = TruncatedListing if tally.has_grown else Unclear
    raise error(f"The listing has more than {MOST_PAGES} pages.")


async def _read_page(fetch: Fetch, number: int, retry_page: RetryPage | None) -> ListingPage:
    failures: Counter[type[PortalError]] = Counter()
    while True:
        try:
            return await fetch(number)
        except PortalError as error:
            failures[type(error)] += 1
            if not (retry_page and await retry_page(error, failures[type(error)])):
                raise


async def merge(
    pages: AsyncGenerator[ListingPage, None], check: Callable[[], None] | None = None
) -> Listing:
    """Return the rows of all pages, each once, newest first. `check` is called after each page."""
    rows: dict[str, Document] = {}
    odd: dict[str, OddRow] = {}
    async with aclosing(pages):
        async for page in pages:
            rows.update((row.uuid, row) for row in page.rows)
            odd.update((row.key, row) for row in page.odd)
            if check:
                check()
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


class Tally:
    """Counts the rows of a listing page by page, to check in the end that it is complete.

    A listing may grow while it is read. The portal adds rows and deletes none, so a row that is
    listed when the first page is read can only move to later pages: it may be shown twice, and it
    is never skipped. A listing that has grown therefore shows every row that was listed when its
    first page was requested.
    """

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._sizes: list[int] = []
        self._keys: set[str] = set()

    @property
    def rows(self) -> int:
        """Return the number of rows read so far, including those shown twice."""
        return sum(self._sizes)

    @property
    def has_grown(self) -> bool:
        return self._counts[-1] > self._counts[0]

    def add(self, page: ListingPage) -> None:
        keys = page.keys
        self._counts.append(page.count)
        self._sizes.append(len(keys))
        self._keys.update(keys)

    def is_last(self, page: ListingPage) -> bool:
        """Return whether a page is the last, by its own number or else by the rows read so far."""
        if page.last is not None:
            return len(self._sizes) >= page.last
        return not page.keys or self.rows >= page.count

    def check(self) -> None:
        """Raise Unclear unless the pages show all rows listed when the first one was read."""
        first, last, found = self._counts[0], self._counts[-1], len(self._keys)
        if any(later < earlier for earlier, later in pairwise(self._counts)):
            raise Unclear("The listing lost rows while it was read.")
        if first == last and not self.rows == found == first:
            raise Unclear(f"The listing is incomplete: {self.rows} of {first} rows.")
        if first < last and not (self._is_full(last) and first <= found <= last):
            raise Unclear(f"The listing grew from {first} to {last} rows and showed {found}.")

    def _is_full(self, count: int) -> bool:
        """Return whether all pages but the last have one size and have room for `count` rows."""
        sizes = self._sizes
        return len(set(sizes[:-1])) <= 1 and count <= sizes[0] * len(sizes)

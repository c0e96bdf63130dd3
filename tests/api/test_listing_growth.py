"""Listings that grow while they are read: a checked listing shows every row of its beginning."""

import math
import random
from dataclasses import dataclass, field

import pytest

from service.portal.documents import OddRow
from service.portal.errors import Unclear
from service.portal.listings import ListingPage, check_complete

SIZE = 4  # rows of a page
SCHEDULES = 3000


@dataclass
class Portal:
    """A listing to which rows are added between two pages, anywhere."""

    rows: list[int] = field(default_factory=list)
    added: int = 0

    def add(self, place: int) -> None:
        self.rows.insert(place, self.added)
        self.added += 1

    def page(self, number: int) -> ListingPage:
        shown = self.rows[(number - 1) * SIZE : number * SIZE]
        odd = [OddRow(f"{row}", (), "", f"{row}", uuid=f"{row}") for row in shown]
        return ListingPage([], len(self.rows), math.ceil(len(self.rows) / SIZE), odd=odd)


def read(portal: Portal, rng: random.Random, *, loses: bool = False) -> tuple[set[int], set[int]]:
    """Return the rows present when the first page was read, and the rows that were shown.

    Raises Unclear.
    """
    pages: list[ListingPage] = []
    before, number = set(portal.rows), 0
    while True:
        number += 1
        page = portal.page(number)
        pages.append(page)
        assert page.last is not None
        if number >= page.last:
            break
        for _ in range(rng.choice((0, 0, 1, SIZE, SIZE + 1, 2 * SIZE)) if number < 8 else 0):
            portal.add(rng.choice((0, len(portal.rows), rng.randint(0, len(portal.rows)))))
        if loses:
            portal.rows.pop(0)
    check_complete(pages)
    return before, {int(key) for each in pages for key in each.keys}


@pytest.mark.parametrize("count", [0, 1, SIZE, SIZE + 1, 3 * SIZE, 17])
def test_growing_listing_shows_every_row_of_its_beginning(count: int) -> None:
    for seed in range(SCHEDULES // 6):
        rng, portal = random.Random(seed), Portal()
        for place in range(count):
            portal.add(place)
        before, shown = read(portal, rng)
        assert before <= shown


def test_listing_that_loses_rows_is_unclear() -> None:
    """No rows are added, so rows move to earlier pages and are not shown."""
    for seed in range(100):
        portal = Portal(list(range(100, 100 + 3 * SIZE)))
        rng = random.Random(seed)
        rng.choice = lambda seq: seq[0]  # adds no row
        with pytest.raises(Unclear):
            read(portal, rng, loses=True)

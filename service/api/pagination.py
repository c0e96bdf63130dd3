"""Pages of a list: the query parameters, and the pagination members of `meta`."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from aiohttp import web

from service import json_codec
from service.api.filters import AFTER, COUNT_TO, NEWEST_FIRST, integer, read_filters
from service.api.operation import QueryParameter
from service.errors import Violation, reject, violation
from service.http import requests
from service.http.access import zone_of
from service.json_types import JsonObject

NUMBER = integer("page", "A page after the last one is empty.", minimum=1, maximum=10**9, default=1)
PER_PAGE = integer("per_page", "Records of a page.", minimum=1, maximum=100, default=10)
PAGE = (NUMBER, PER_PAGE)


@dataclass(frozen=True, slots=True)
class Page:
    """The page that a list request selects.

    `filters` has the values of all filters of the list, None for absent ones. `kept` has the texts
    of the sent filters and of the sort order, for the page URLs.
    """

    path: str
    number: int
    per_page: int
    sort: str
    filters: JsonObject
    kept: dict[str, str]

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.per_page

    @property
    def after(self) -> int | None:
        """The id that the page follows, None for a page with a number."""
        return self.filters.get(AFTER.name)

    @property
    def filters_text(self) -> str:
        """The filters that are present, as JSON text for a search function."""
        present = {name: value for name, value in self.filters.items() if value is not None}
        return json_codec.dumps(present)

    @property
    def is_plain(self) -> bool:
        """True without filter and sort order: the cheapest page, whose total is always exact."""
        return self.kept.keys() <= {COUNT_TO.name} and self.after is None

    def meta(self, total: int, is_exact: bool = True, ids: Sequence[int] = ()) -> JsonObject:
        """Return the nine members of company lists, with relative URLs that keep the filters.

        With `count_to`, also whether the total is exact. `ids` are those of the records, and
        needed if the page is after an id. Spec: Pagination meta
        """
        position = self._position(total)
        last = position["last_page"]
        rest = urlencode({"per_page": self.per_page, **self.kept})

        def url(number: int) -> str:
            return f"{self.path}?page={number}&{rest}"

        following = url(self.number + 1) if self.number < last else None
        if self.after is not None:
            is_full = len(ids) == self.per_page
            following = f"{self.path}?after={ids[-1]}&{rest}" if is_full else None

        return {
            **position,
            "first_page": 1,
            "first_page_url": url(1),
            "last_page_url": url(last),
            "next_page_url": following,
            "previous_page_url": url(min(self.number - 1, last)) if self.number > 1 else None,
            **({"total_is_exact": is_exact} if self.filters.get(COUNT_TO.name) else {}),
        }

    def window(self, total: int) -> JsonObject:
        """Return the six members of integration lists. `from` and `to` of an empty page are null.

        Spec: Pagination meta
        """
        is_empty = self.offset >= total
        return {
            **self._position(total),
            "from": None if is_empty else self.offset + 1,
            "to": None if is_empty else min(self.offset + self.per_page, total),
        }

    def _position(self, total: int) -> dict[str, int]:
        return {
            "total": total,
            "per_page": self.per_page,
            "current_page": self.number,
            "last_page": max(1, -(-total // self.per_page)),
        }


def read_page(request: web.Request, filters: Sequence[QueryParameter] = ()) -> Page:
    """Return the Page that a request selects. Raises ValidationError with all violations."""
    violations: list[Violation] = []
    parameters = (*PAGE, *filters)
    query = requests.read_query(request, [each.name for each in parameters], violations)
    values = read_filters(query, parameters, zone_of(request), violations)
    number, per_page = values.pop(NUMBER.name), values.pop(PER_PAGE.name)
    sort = values.pop("sort", NEWEST_FIRST)
    if values.get(AFTER.name) is not None and (number > 1 or sort.lstrip("-") != "id"):
        message = "after needs the order id or -id, and no page."
        violations.append(violation(AFTER.name, "conflict", message))
    reject(violations)
    places = ("page", "per_page", AFTER.name)
    kept = {name: text for name, text in query.items() if text and name not in places}
    return Page(request.path, number, per_page, sort, values, kept)

"""Pages of a list: the query parameters, and the pagination members of `meta`."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from service import json_codec
from service.errors import ValidationError, Violation, violation
from service.http import requests

MAX_PER_PAGE = 100
MAX_PAGE = 10**9
MAX_SEARCH_TEXT = 300
NEWEST_FIRST = "-id"

#: A function from the text of a filter to its value. Raises ValueError with the message.
Reader = Callable[[str], Any]


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
    filters: dict[str, Any]
    kept: dict[str, str] = field(default_factory=dict)

    @property
    def offset(self) -> int:
        """The number of records before the page."""
        return (self.number - 1) * self.per_page

    @property
    def is_plain(self) -> bool:
        """True without filter and sort order: the cheapest page."""
        return not self.kept

    def meta(self, total: int) -> dict[str, Any]:
        """Return the nine members of company lists, with relative URLs that keep the filters.

        Spec: Pagination meta
        """
        last = max(1, -(-total // self.per_page))
        return {
            "total": total,
            "per_page": self.per_page,
            "current_page": self.number,
            "last_page": last,
            "first_page": 1,
            "first_page_url": self._url(1),
            "last_page_url": self._url(last),
            "next_page_url": self._url(self.number + 1) if self.number < last else None,
            "previous_page_url": self._url(min(self.number - 1, last)) if self.number > 1 else None,
        }

    def window(self, total: int) -> dict[str, Any]:
        """Return the six members of integration lists. `from` and `to` of an empty page are null.

        Spec: Pagination meta
        """
        last = max(1, -(-total // self.per_page))
        is_empty = self.offset >= total
        return {
            "total": total,
            "per_page": self.per_page,
            "current_page": self.number,
            "last_page": last,
            "from": None if is_empty else self.offset + 1,
            "to": None if is_empty else min(self.offset + self.per_page, total),
        }

    def _url(self, number: int) -> str:
        return f"{self.path}?{urlencode({'page': number, 'per_page': self.per_page, **self.kept})}"


def read_page(request: web.Request, readers: Mapping[str, Reader], sorts: Collection[str]) -> Page:
    """Return the Page that a request selects. Raises ValidationError with all violations.

    `readers` maps the filters of the list to their readers; `sorts` are its sort orders.
    """
    query = requests.read_query(request, {"page", "per_page", "sort", *readers})
    violations: list[Violation] = []
    number = requests.read_integer(query, "page", (1, MAX_PAGE), 1, violations)
    per_page = requests.read_integer(query, "per_page", (1, MAX_PER_PAGE), 10, violations)
    sort = query.get("sort", NEWEST_FIRST)
    if sort not in sorts:
        violations.append(violation("sort", "enum", f"sort must be one of {', '.join(sorts)}."))
    filters = {name: _read_filter(query, name, read, violations) for name, read in readers.items()}
    if violations:
        raise ValidationError(violations)
    kept = {name: query[name] for name in (*readers, "sort") if query.get(name)}
    return Page(request.path, number, per_page, sort, filters, kept)


def one_of(name: str, values: Collection[str]) -> Reader:
    """Return a reader that accepts one of some values."""

    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"{name} must be one of {', '.join(values)}.")
        return text

    return read


def instant(name: str) -> Reader:
    """Return a reader that accepts a date and time."""

    def read(text: str) -> datetime:
        try:
            return json_codec.parse_instant(text)
        except ValueError:
            raise ValueError(
                f"{name} must be a date and time, like 2026-01-31T09:30:00Z."
            ) from None

    return read


def words(text: str) -> str:
    """Return a search text unchanged. Raises ValueError for a long one."""
    if len(text) > MAX_SEARCH_TEXT:
        raise ValueError(f"query must have at most {MAX_SEARCH_TEXT} characters.")
    return text


def _read_filter(
    query: Mapping[str, str], name: str, read: Reader, violations: list[Violation]
) -> Any:
    """Return the value of a filter, None if absent or empty. Appends to `violations`."""
    text = query.get(name)
    if not text:
        return None
    try:
        return read(text)
    except ValueError as error:
        violations.append(violation(name, "filter", str(error)))
        return None

"""Pages of a list: reading the query, and the nine members of `meta`."""

from dataclasses import dataclass, field
from urllib.parse import urlencode

from service import json_codec
from service.errors import ValidationError, violation
from service.http import requests

MAX_PER_PAGE = 100
MAX_PAGE = 10**9
NEWEST_FIRST = "-id"


@dataclass(frozen=True, slots=True)
class Page:
    """What a list request asks for.

    `filters` holds the value of every filter that the list knows, None where it is not sent;
    `kept` the texts of those that were, for the page URLs.
    """

    path: str
    number: int
    per_page: int
    sort: str
    filters: dict
    kept: dict = field(default_factory=dict)

    @property
    def offset(self):
        return (self.number - 1) * self.per_page

    @property
    def is_plain(self):
        """Nothing is filtered and the order is newest first: the page that costs least."""
        return not self.kept

    def meta(self, total):
        """The nine members; page URLs are relative and keep the filters. Spec: Pagination meta."""
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

    def window(self, total):
        """As meta, the six members of the integration surface; an empty page has `from` and `to` null."""
        last = max(1, -(-total // self.per_page))
        empty = self.offset >= total
        return {
            "total": total,
            "per_page": self.per_page,
            "current_page": self.number,
            "last_page": last,
            "from": None if empty else self.offset + 1,
            "to": None if empty else min(self.offset + self.per_page, total),
        }

    def _url(self, number):
        return f"{self.path}?{urlencode({'page': number, 'per_page': self.per_page, **self.kept})}"


def read_page(request, readers, sorts):
    """The Page that a request asks for. Raises Invalid naming every parameter that is wrong.

    `readers` maps a filter's name to a function from its text to its value, which raises ValueError
    with the wording; `sorts` are the orders that the list can give.
    """
    query, faults = requests.read_query(request, {"page", "per_page", "sort", *readers}), []
    number = requests.read_integer(query, "page", 1, MAX_PAGE, 1, faults)
    per_page = requests.read_integer(query, "per_page", 1, MAX_PER_PAGE, 10, faults)
    sort = query.get("sort", NEWEST_FIRST)
    if sort not in sorts:
        faults.append(violation("sort", "enum", f"sort must be one of {', '.join(sorts)}."))
    filters = {name: _filter(query, name, read, faults) for name, read in readers.items()}
    if faults:
        raise ValidationError(faults)
    kept = {name: query[name] for name in (*readers, "sort") if query.get(name)}
    return Page(request.path, number, per_page, sort, filters, kept)


def one_of(name, values):
    """A filter that takes one of a few words."""

    def read(text):
        if text not in values:
            raise ValueError(f"{name} must be one of {', '.join(values)}.")
        return text

    return read


def instant(name):
    """A filter that takes a date and a time."""

    def read(text):
        try:
            return json_codec.parse_instant(text)
        except ValueError:
            raise ValueError(
                f"{name} must be a date and a time, like 2026-01-31T09:30:00Z."
            ) from None

    return read


def words(text):
    """A search text, as it is."""
    if len(text) > 300:
        raise ValueError("query must be at most 300 characters of text.")
    return text


def _filter(query, name, read, faults):
    text = query.get(name)
    if not text:
        return None
    try:
        return read(text)
    except ValueError as wording:
        faults.append(violation(name, "filter", str(wording)))

"""Pages of a list: the query parameters, and the pagination members of `meta`."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web

from service import json_codec
from service.api.components import refer_to
from service.api.operation import QueryParameter
from service.documents import states
from service.errors import ValidationError, Violation, violation
from service.http import app_keys, requests
from service.schema import describe_unknown

MAX_SEARCH_TEXT = 300
NEWEST_FIRST = "-id"

NUMBER = QueryParameter(
    "page",
    {"type": "integer", "minimum": 1, "maximum": 10**9, "default": 1},
    "A page after the last one is empty.",
)
PER_PAGE = QueryParameter(
    "per_page",
    {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
    "Records of a page.",
)
PAGE = (NUMBER, PER_PAGE)
PAGE_NAMES = {NUMBER.name, PER_PAGE.name}
#: Name of all parameters `metadata[key]`, and the number of keys that metadata can have.
ENTRIES, MOST_ENTRIES = "metadata[]", 50
METADATA = QueryParameter(
    ENTRIES,
    {"type": "object", "additionalProperties": {"type": "string"}},
    "`metadata[key]=value` finds records whose metadata has the value. Several have to match.",
)


#: A day. Years in which its limits have a UTC time.
_DAY = re.compile(r"[1-8][0-9]{3}-[0-9]{2}-[0-9]{2}", re.ASCII)
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,10})?", re.ASCII)
#: An offset whose plus sign was decoded as a blank.
_BLANK = re.compile(r"T.* [0-9]{2}:?[0-9]{2}$", re.ASCII)


class Day(NamedTuple):
    """A day of the business time zone, as the first or the last instant of a filter."""

    date: date
    is_last: bool

    def to_instant(self, zone: tzinfo) -> datetime:
        """Return the first instant of the day, or its last one."""
        if not self.is_last:
            return datetime.combine(self.date, time(), zone)
        following = datetime.combine(self.date + timedelta(days=1), time(), zone)
        return following - timedelta(microseconds=1)


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
    def filters_text(self) -> str:
        """The filters that are present, as JSON text for a search function."""
        present = {name: value for name, value in self.filters.items() if value is not None}
        return json_codec.dumps(present)

    @property
    def is_plain(self) -> bool:
        """True without filter and sort order: the cheapest page, whose total is always exact."""
        return self.kept.keys() <= {COUNT_TO.name}

    def meta(self, total: int, is_exact: bool = True) -> dict[str, Any]:
        """Return the nine members of company lists, with relative URLs that keep the filters.

        With `count_to`, also whether the total is exact. Spec: Pagination meta
        """
        last = max(1, -(-total // self.per_page))
        rest = urlencode({"per_page": self.per_page, **self.kept})

        def url(number: int) -> str:
            return f"{self.path}?page={number}&{rest}"

        return {
            "total": total,
            "per_page": self.per_page,
            "current_page": self.number,
            "last_page": last,
            "first_page": 1,
            "first_page_url": url(1),
            "last_page_url": url(last),
            "next_page_url": url(self.number + 1) if self.number < last else None,
            "previous_page_url": url(min(self.number - 1, last)) if self.number > 1 else None,
            **({"total_is_exact": is_exact} if self.filters.get(COUNT_TO.name) else {}),
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


def read_page(
    request: web.Request,
    filters: Sequence[QueryParameter] = (),
    sorts: Collection[str] = (NEWEST_FIRST,),
) -> Page:
    """Return the Page that a request selects. Raises ValidationError with all violations."""
    names = [parameter.name for parameter in filters if parameter is not METADATA]
    takes_metadata = METADATA in filters
    query = requests.read_query(
        request, {"page", "per_page", "sort", *names, *([ENTRIES] if takes_metadata else [])}
    )
    violations: list[Violation] = []
    number = read_number(query, NUMBER, violations)
    per_page = read_number(query, PER_PAGE, violations)
    sort = query.get("sort", NEWEST_FIRST)
    if sort not in sorts:
        violations.append(violation("sort", "enum", f"sort must be one of {', '.join(sorts)}."))
    values = {
        parameter.name: read_filter(query, parameter, violations)
        for parameter in filters
        if parameter is not METADATA
    }
    entries = _read_metadata(query, violations) if takes_metadata else {}
    if violations:
        raise ValidationError(violations)
    zone = request.app[app_keys.CONFIG].time_zone
    for name, value in values.items():
        if isinstance(value, Day):
            value = value.to_instant(zone)
        values[name] = value.isoformat() if isinstance(value, datetime) else value
    if entries:
        values["metadata"] = entries
    kept = {name: text for name, text in query.items() if name not in PAGE_NAMES and text}
    return Page(request.path, number, per_page, sort, values, kept)


def _read_metadata(query: Mapping[str, str], violations: list[Violation]) -> dict[str, str]:
    """Return the filters by metadata as {key: text}. Appends to `violations`."""
    entries: dict[str, str] = {}
    for name, text in query.items():
        if requests.name_family(name) == ENTRIES and text:
            entries[name.removeprefix("metadata[").removesuffix("]")] = text
    if len(entries) > MOST_ENTRIES:
        message = f"At most {MOST_ENTRIES} keys of metadata can be searched."
        violations.append(violation("metadata", "maxProperties", message))
    return entries


def sort_by(sorts: Collection[str]) -> QueryParameter:
    """Return the parameter that chooses one of several sort orders."""
    schema = {"enum": list(sorts), "default": NEWEST_FIRST}
    return QueryParameter("sort", schema, "A leading `-` means descending.")


def one_of(name: str, values: Collection[str], component: str = "") -> QueryParameter:
    """Return a filter that accepts one of some values, described by a component if there is one."""

    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"{name} must be one of {', '.join(values)}.")
        return text

    schema = refer_to(component) if component else {"enum": list(values)}
    return QueryParameter(name, schema, f"Only records with this {name}.", read)


def some_of(name: str, values: Collection[str], component: str = "") -> QueryParameter:
    """Return a filter that accepts one or several values, separated by commas."""

    def read(text: str) -> str:
        if unknown := [value for value in text.split(",") if value not in values]:
            raise ValueError(
                f"{name} must be one or several of {', '.join(values)}, separated by commas. "
                f"{describe_unknown('value', unknown[0], values)}"
            )
        return text

    entry = refer_to(component) if component else {"enum": list(values)}
    schema = {"type": "array", "items": entry, "minItems": 1}
    return QueryParameter(name, schema, "One or several values, separated by commas.", read)


def _limit(name: str, description: str, is_last: bool) -> QueryParameter:
    """Return a filter that accepts a day, or a date and time. `is_last` includes the whole day."""

    def read(text: str) -> Day | datetime:
        try:
            if _DAY.fullmatch(text):
                return Day(date.fromisoformat(text), is_last)
            return json_codec.parse_instant(text)
        except ValueError:
            hint = " A plus sign is written %2B in a URL." if _BLANK.search(text) else ""
            raise ValueError(
                f"{name} must be a day, like 2026-01-31, or a date and time, "
                f"like 2026-01-31T09:30:00Z.{hint}"
            ) from None

    schema = {"type": "string", "examples": ["2026-01-31", "2026-01-31T09:30:00Z"]}
    return QueryParameter(name, schema, description, read)


def _amount(name: str, description: str) -> QueryParameter:
    """Return a filter that accepts an amount in the currency of the document."""

    def read(text: str) -> str:
        if not _AMOUNT.fullmatch(text):
            raise ValueError(f"{name} must be an amount, like 1250.50.")
        return text

    return QueryParameter(name, {"type": "number", "minimum": 0}, description, read)


def read_words(text: str) -> str:
    """Return a search text unchanged. Raises ValueError for a long one."""
    if len(text) > MAX_SEARCH_TEXT:
        raise ValueError(f"query must have at most {MAX_SEARCH_TEXT} characters.")
    return text


def read_number(
    query: Mapping[str, str], parameter: QueryParameter, violations: list[Violation]
) -> int:
    """Return an integer of a query within the bounds of its schema. Appends to `violations`."""
    schema = parameter.schema
    bounds = schema["minimum"], schema.get("maximum", requests.MAX_ID)
    return requests.read_integer(query, parameter.name, bounds, schema["default"], violations)


def read_filter(
    query: Mapping[str, str], parameter: QueryParameter, violations: list[Violation]
) -> Any:
    """Return the value of a filter, None if absent or empty. Appends to `violations`."""
    text = query.get(parameter.name)
    if not text or not parameter.read:
        return None
    try:
        return parameter.read(text)
    except ValueError as error:
        violations.append(violation(parameter.name, parameter.rule, str(error)))
        return None


SEARCH = QueryParameter(
    "query",
    {"type": "string", "maxLength": MAX_SEARCH_TEXT},
    "Search text: a code, a full code, a reference, a uuid of the portal, or a part of the buyer's "
    "name that begins with a word.",
    read_words,
)
MOST_COUNTED = 10**6


def _read_count(text: str) -> int:
    """Return a number of records. Raises ValueError."""
    if text.isascii() and text.isdecimal() and len(text) <= 7 and 1 <= int(text) <= MOST_COUNTED:
        return int(text)
    raise ValueError(f"count_to must be an integer from 1 to {MOST_COUNTED}.")


COUNT_TO = QueryParameter(
    "count_to",
    {"type": "integer", "minimum": 1, "maximum": MOST_COUNTED},
    "Count only about so many matches, which is faster if there are very many. "
    "`meta.total_is_exact` is false if there are more than `meta.total`.",
    _read_count,
    "range",
)
DOCUMENT_SORTS = tuple(
    f"{sign}{name}"
    for name in ("id", "issue_date", "code", "updated_at", "amount")
    for sign in ("", "-")
)
#: Filters of lists whose records have a reference and metadata of the client.
OWN_FILTERS = (
    QueryParameter("reference", {"type": "string"}, "The client's own reference.", str),
    METADATA,
)


def document_filters(types: Collection[str], component: str) -> tuple[QueryParameter, ...]:
    """Return the filters of a list of documents of some types."""
    return (
        some_of("status", tuple(states.RECORD_TRANSITIONS), "DocumentStatus"),
        one_of("type", types, component),
        _limit("issued_from", "The earliest date and time of issue, or day.", is_last=False),
        _limit("issued_to", "The latest date and time of issue, or day.", is_last=True),
        _limit("updated_from", "The earliest change of the record, or its day.", is_last=False),
        _amount("amount_from", "The lowest payable amount."),
        _amount("amount_to", "The highest payable amount."),
        SEARCH,
        COUNT_TO,
    )

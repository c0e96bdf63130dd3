"""Filters of lists: in general, and those of documents."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime, time, tzinfo
from typing import Any

from service import json_codec
from service.api.components import refer_to
from service.api.operation import QueryParameter
from service.documents import states
from service.documents.ubl import parties
from service.errors import Violation, violation
from service.http import requests
from service.http.forms import read_number
from service.json_types import JsonObject
from service.schema import describe_unknown

MAX_SEARCH_TEXT = 300
NEWEST_FIRST = "-id"
#: Name of all parameters `metadata[key]`, and the number of keys that metadata can have.
ENTRIES, MOST_ENTRIES = "metadata[]", 50
METADATA = QueryParameter(
    ENTRIES,
    {"type": "object", "additionalProperties": {"type": "string"}},
    "`metadata[key]=value` finds records whose metadata has the value. Several have to match.",
)
#: A day. Years in which its limits have a UTC time.
_DAY = re.compile(r"[1-8][0-9]{3}-[0-9]{2}-[0-9]{2}", re.ASCII)
_AMOUNT = re.compile(r"[0-9]{1,18}(\.[0-9]{1,10})?", re.ASCII)
#: An offset whose plus sign was decoded as a blank.
_BLANK = re.compile(r"T.* [0-9]{2}:?[0-9]{2}$", re.ASCII)


def read_filters(
    query: Mapping[str, str],
    filters: Iterable[QueryParameter],
    zone: tzinfo,
    violations: list[Violation],
) -> JsonObject:
    """Return the values of filters, None for absent ones. Appends to `violations`.

    Times are texts. A day is read without a time zone, and begins and ends in `zone`.
    """
    values = {each.name: _read(query, each, violations) for each in filters}
    for name, value in values.items():
        if isinstance(value, datetime):
            values[name] = (value if value.tzinfo else value.replace(tzinfo=zone)).isoformat()
    if ENTRIES in values:
        values["metadata"] = _read_metadata(query, violations)
    return values


def _read(query: Mapping[str, str], parameter: QueryParameter, violations: list[Violation]) -> Any:
    """Return the value of a parameter, its default if absent, empty or wrong."""
    text = query.get(parameter.name)
    if parameter.read and text is not None and (text or not parameter.can_be_empty):
        try:
            return parameter.read(text)
        except ValueError as error:
            violations.append(violation(parameter.name, parameter.rule, str(error)))
    return parameter.schema.get("default")


def _read_metadata(query: Mapping[str, str], violations: list[Violation]) -> dict[str, str] | None:
    """Return the filters by metadata as {key: text}, if there are any. Appends to `violations`."""
    entries: dict[str, str] = {}
    for name, text in query.items():
        if requests.name_family(name) == ENTRIES and text:
            entries[name.removeprefix("metadata[").removesuffix("]")] = text
    if "" in entries:
        message = "metadata needs a key, as in metadata[order]=42."
        violations.append(violation(ENTRIES, "filter", message))
    if len(entries) > MOST_ENTRIES:
        message = f"At most {MOST_ENTRIES} keys of metadata can be searched."
        violations.append(violation("metadata", "maxProperties", message))
    return entries or None


def integer(name: str, description: str, **limits: int) -> QueryParameter:
    """Return a parameter that accepts an integer. `limits` are keywords of its schema."""
    low, high = limits["minimum"], limits.get("maximum", requests.MAX_ID)

    def read(text: str) -> int:
        number = read_number(text, 19)
        if number is None or not low <= number <= high:
            raise ValueError(f"{name} must be an integer from {low} to {high}.")
        return number

    schema = {"type": "integer", **limits}
    return QueryParameter(name, schema, description, read, "range", "default" not in limits)


def sort_by(sorts: Collection[str]) -> QueryParameter:
    schema = {"enum": list(sorts), "default": NEWEST_FIRST}
    read = one_of("sort", sorts).read
    return QueryParameter("sort", schema, "A leading `-` means descending.", read, "enum")


def one_of(name: str, values: Collection[str], component: str = "") -> QueryParameter:
    """Return a filter that accepts one of some values, described by a component if there is one."""

    def read(text: str) -> str:
        if text not in values:
            raise ValueError(f"{name} must be one of {', '.join(values)}.")
        return text

    schema = refer_to(component) if component else {"enum": list(values)}
    return QueryParameter(name, schema, f"Only records with this {name}.", read)


def several_of(name: str, values: Collection[str], component: str) -> QueryParameter:
    """Return a filter that accepts one or several values, which a component describes."""

    def read(text: str) -> str:
        if unknown := [value for value in text.split(",") if value not in values]:
            raise ValueError(
                f"{name} must be one or several of {', '.join(values)}, separated by commas. "
                f"{describe_unknown('value', unknown[0], values)}"
            )
        return text

    schema = {"type": "array", "items": refer_to(component), "minItems": 1}
    return QueryParameter(name, schema, "One or several values, separated by commas.", read)


def _limit(name: str, description: str, is_last: bool) -> QueryParameter:
    """Return a filter that accepts a day, or a date and time. `is_last` includes the whole day."""

    def read(text: str) -> datetime:
        try:
            if _DAY.fullmatch(text):
                return datetime.combine(date.fromisoformat(text), time.max if is_last else time.min)
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


def search_for(description: str) -> QueryParameter:
    """Return the filter `query`, a search text."""

    def read(text: str) -> str | None:
        if len(text) > MAX_SEARCH_TEXT:
            raise ValueError(f"query must have at most {MAX_SEARCH_TEXT} characters.")
        return text.strip() or None

    schema = {"type": "string", "maxLength": MAX_SEARCH_TEXT}
    return QueryParameter("query", schema, f"Search text: {description}.", read)


SEARCH = search_for(
    "a code, a full code (also without its zeros, or one under which the document was submitted), "
    "a reference, a uuid of the portal, or a part of the buyer's name and TIN that begins with a "
    "word"
)


def _read_tin(text: str) -> str:
    """Return a TIN as it is sent to the portal. Raises ValueError without one."""
    if tin := parties.normalize_tin(text):
        return tin
    raise ValueError("buyer_tin must be a TIN.")


BUYER_TIN = QueryParameter(
    "buyer_tin",
    {"type": "string"},
    "The TIN of the buyer, in any spelling. Self-billed invoices are not found by it.",
    _read_tin,
)
COUNT_TO = integer(
    "count_to",
    "Count only about so many matches, which is faster if there are very many. "
    "`meta.total_is_exact` is false if there are more than `meta.total`.",
    minimum=1,
    maximum=10**6,
)
AFTER = integer(
    "after",
    "An id: the page has the first records after it, instead of those of a number. Needs the order "
    "`id` or `-id`. `next_page_url` continues, and leads to an empty page at the end. `total` "
    "and `last_page` include the records before it, and `current_page` is 1.",
    minimum=0,
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
    return (
        several_of("status", tuple(states.DOCUMENT_TRANSITIONS), "DocumentStatus"),
        one_of("type", types, component),
        _limit("issued_from", "The earliest date and time of issue, or day.", is_last=False),
        _limit("issued_to", "The latest date and time of issue, or day.", is_last=True),
        _limit("updated_from", "The earliest change of the record, or its day.", is_last=False),
        _limit("updated_to", "The latest change of the record, or its day.", is_last=True),
        one_of("is_ready", ("true", "false")),
        BUYER_TIN,
        _amount("amount_from", "The lowest payable amount."),
        _amount("amount_to", "The highest payable amount."),
        SEARCH,
        COUNT_TO,
        AFTER,
        sort_by(DOCUMENT_SORTS),
    )

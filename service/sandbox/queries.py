"""Query parameters: pages, choices, instants and identities. Portal: 3, 5"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from aiohttp import web
from multidict import CIMultiDict

from .answers import bad_argument
from .document import IDENTITY_SCHEMES

MAX_SIZE = 100
MOST_PAGES = 10**6

#: Absent and empty parameters are the same.
Query = Mapping[str, str]


def read_query(request: web.Request) -> Query:
    """Return the parameters with a value. Names are case-insensitive, as in the portal."""
    return CIMultiDict((name, text) for name, text in request.query.items() if text)


def read_page(query: Query) -> tuple[int, int]:
    """Return (page size, rows to skip). Pages 0 and 1 are the first. Raises Refusal. Portal: 5"""
    size = read_number(query, "pageSize", MAX_SIZE)
    if not 1 <= size <= MAX_SIZE:
        raise bad_argument("pageSize", f"Page size must be between 1 and {MAX_SIZE}.")
    page = read_number(query, "pageNo", 1)
    if page > MOST_PAGES:
        raise bad_argument("pageNo", f"Page number must be at most {MOST_PAGES}.")
    return size, max(0, page - 1) * size


def read_number(query: Query, name: str, default: int) -> int:
    """Return a natural number. Raises Refusal."""
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise bad_argument(name, f"{name} is not a number.")
    return int(text)


def read_choice(query: Query, name: str, choices: Collection[str]) -> str | None:
    """Return a parameter that is one of the choices, None if it is absent. Raises Refusal."""
    text = query.get(name)
    if text is not None and text not in choices:
        raise bad_argument(name, f"{name} is one of {', '.join(choices)}.")
    return text


def seconds_of(text: str) -> float:
    """Return the Unix seconds of a date or date-time, in UTC if it has no zone.

    Raises ValueError.
    """
    value = datetime.fromisoformat(text)
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()


def read_instant(query: Query, name: str) -> float | None:
    """Return a date and time in Unix seconds, None if it is absent. Raises Refusal."""
    try:
        return seconds_of(query[name]) if name in query else None
    except (ValueError, OverflowError):
        raise bad_argument(name, f"{name} is not a date and time.") from None


def read_identity(query: Query, type_name: str, name: str) -> tuple[str | None, str | None]:
    """Return (type, value) of an identity, or (None, None) if both are absent.

    Raises Refusal if only one of them is present.
    """
    kind, value = read_choice(query, type_name, IDENTITY_SCHEMES), query.get(name)
    if bool(kind) != bool(value):
        raise bad_argument(name if kind else type_name, f"{type_name} and {name} come together.")
    return kind, value

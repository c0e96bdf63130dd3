"""Reading of the members of the portal's JSON objects. No I/O, no clock.

A reader returns a value, None if it is missing, or raises Unreadable with the end of a sentence.
Text from the portal is untrusted: characters that PostgreSQL cannot store are removed, and lengths
are limited.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from service.json_types import JsonObject
from service.portal.error_parsing import clean_text, fold_members

ID = re.compile(r"[0-9A-Za-z_-]{1,255}")
_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:(\.\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)

T = TypeVar("T")


class Unreadable(ValueError):
    """A member of a response is missing or invalid."""


def read_member(row: JsonObject, name: str, reader: Callable[[object], T]) -> T:
    """Return a member of a folded object. Raises Unreadable with a sentence."""
    try:
        return reader(row.get(name.lower()))
    except Unreadable as error:
        raise Unreadable(f"{name} {error}.") from None


def require(row: JsonObject, name: str, reader: Callable[[object], T | None]) -> T:
    """Return a member that must not be missing. Raises Unreadable with a sentence."""
    value = read_member(row, name, reader)
    if value is None:
        raise Unreadable(f"{name} is missing.")
    return value


def check_same(row: JsonObject, name: str, expected: str) -> None:
    """Raise Unreadable if an identifier is missing or another one."""
    if require(row, name, identifier) != expected.upper():
        raise Unreadable(f"The response is about another {name}.")


def text(value: object) -> str | None:
    """Return a cleaned string; None if it is null, empty or missing."""
    if value is not None and not isinstance(value, str):
        raise Unreadable("is not a string")
    return clean_text(value or "") or None


def number(value: object) -> str | None:
    """Return a document number unchanged: cleaned, it could be another document's number."""
    found = text(value)
    if found is not None and found != value:
        raise Unreadable("is not a document number")
    return found


def identifier(value: object) -> str | None:
    """Return the identifier of a document or submission in upper case, as the portal assigns it."""
    found = opaque(value)
    return found and found.upper()


def opaque(value: object) -> str | None:
    """Return an identifier of the portal unchanged. It is safe in a URL."""
    found = text(value)
    if found is not None and not ID.fullmatch(found):
        raise Unreadable("is not an identifier")
    return found


def instant(value: object) -> datetime | None:
    """Return a date-time as UTC, to the microsecond."""
    found = text(value)
    if found is None:
        return None
    if match := _INSTANT.fullmatch(found):
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(match[1] + (match[2] or "") + (match[3] or "Z"))
            return moment.astimezone(UTC)
    raise Unreadable("is not a date-time")


def count(value: object) -> int:
    """Return a number of rows or pages."""
    if type(value) is not int or value < 0:
        raise Unreadable("is not a count")
    return value


def objects(value: object) -> list[JsonObject]:
    """Return the objects of a list, folded; an empty list for null."""
    values = [] if value is None else value
    if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
        raise Unreadable("is not a list of objects")
    return [fold_members(each) for each in values]

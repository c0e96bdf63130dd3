"""Strict JSON with exact decimals, and the forms of instants and texts in it."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import simplejson

#: Of a stored document, as compact JSON. The portal takes 300 kB of a document, and its form of one
#: is always larger.
MOST_STORED_BYTES = 300_000
MAX_DEPTH = 32
MAX_DIGITS = 40  # of a number written out; a longer one is not money

_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:?[0-5][0-9])?"
)
_EXPONENT = re.compile(r"[0-9]E[-+]?[0-9]", re.ASCII)
_TOO_DEEP = f"The body is nested deeper than {MAX_DEPTH} levels."


class NotJson(ValueError):
    """The bytes are not the strict JSON that we take; the message says why, for a person."""


def loads(raw):
    """Strict JSON: UTF-8, no duplicate member, no NaN, at most 32 levels; decimals, never binary floats.

    Raises NotJson. Integers are int, all other numbers Decimal.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise NotJson("The body is not UTF-8.") from None
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError as fault:
        raise NotJson(
            f"The body is not JSON: {fault.msg} at line {fault.lineno}, column {fault.colno}."
        ) from None
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None
    if _too_deep(value):
        raise NotJson(_TOO_DEEP)
    return value


def stored_body(row):
    """A record's fields in the shape of a request, from the JSON text `body` of its row, without those that are null."""
    return {
        name: member for name, member in loads(row["body"].encode()).items() if member is not None
    }


def dumps(value):
    """JSON text, decimals as plain numbers."""
    return simplejson.dumps(value, use_decimal=True, ensure_ascii=False, separators=(",", ":"))


def stored_bytes(value: object) -> int:
    """Return the size of a value as compact UTF-8 JSON, with numbers written out as PostgreSQL stores them."""
    text = dumps(value)
    return len(text.encode()) + (sum(_written_out(value)) if _EXPONENT.search(text) else 0)


def _written_out(value: object) -> Iterator[int]:
    """Yield by how many bytes each number of a value is longer without its exponent."""
    if isinstance(value, Decimal):
        yield len(f"{value:f}") - len(str(value))
    elif isinstance(value, dict | list):
        for child in _children(value):
            yield from _written_out(child)


def parse_instant(text):
    """The UTC instant of a date and time; without an offset it is UTC. Raises ValueError.

    Only what the schemas' pattern lets through: a date alone is no instant.
    """
    if not _INSTANT.fullmatch(text):
        raise ValueError("not a date and a time")
    at = datetime.fromisoformat(text.upper())
    try:
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError("not within the calendar") from None


def has_invalid_text(raw):
    """Whether JSON bytes may hold a NUL or an unpaired surrogate: only an escape can write one."""
    return b"\\u" in raw


def is_valid_text(text):
    """Whether PostgreSQL can store it: it has neither the character NUL nor half of a surrogate pair."""
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)


def invalid_text(value, path=""):
    """JSON Pointers of the texts, member names among them, that PostgreSQL cannot store."""
    if isinstance(value, str):
        if not is_valid_text(value):
            yield path
    elif isinstance(value, dict):
        for name, member in value.items():
            if not is_valid_text(name):
                yield path or "/"
            else:
                yield from invalid_text(member, f"{path}/{escape_pointer(name)}")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from invalid_text(member, f"{path}/{index}")


def escape_pointer(name):
    """A member name as one part of a JSON Pointer (RFC 6901)."""
    return str(name).replace("~", "~0").replace("/", "~1")


def _too_deep(value):
    """Whether a value is nested deeper than we take, walked level by level."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in _children(parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def _children(parent):
    return parent.values() if isinstance(parent, dict) else parent


def _decimal(text):
    """Held to the length in which PostgreSQL writes it: what it gives back has to pass here too."""
    exponent = text.lower().partition("e")[2]
    if (
        len(text) <= MAX_DIGITS
        and len(exponent) <= 3
        and len(f"{(number := Decimal(text)):f}") <= MAX_DIGITS
    ):
        return number
    raise _too_long(text)


def _integer(text):
    if len(text) > MAX_DIGITS:
        raise _too_long(text)
    return int(text)


def _too_long(text):
    return NotJson(f"The number {text[:24]}… has more digits than we take.")


def _constant(name):
    raise NotJson(f"The body is not JSON: {name} is not a JSON number.")


def _members(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        seen = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise NotJson(f"The body names {json.dumps(twice[:60])} twice in one object.")
    return members


_decoder = json.JSONDecoder(
    object_pairs_hook=_members, parse_float=_decimal, parse_int=_integer, parse_constant=_constant
)

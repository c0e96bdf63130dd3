"""Strict JSON with exact decimals, and validation of the instants and strings in it."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

from service.json_types import Json, JsonObject

#: Limit of a stored document as compact JSON. The portal accepts 300 kB, and its form of a document
#: is always larger than ours.
MOST_STORED_BYTES = 300_000
MAX_DEPTH = 32
LONGEST_STEP = 200  # characters of a name in a path
MAX_DIGITS = 40  # characters of a number without exponent
#: Values of a request body, counted by commas and brackets before it is parsed.
MAX_VALUES = 100_000
LONGEST_FAST = 100_000  # bytes of a text that is parsed twice at a doubt

_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}"
    r"(:[0-9]{2}(\.[0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:?[0-5][0-9])?"
)
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")
INVALID_JSON = "The request body is not valid JSON: {}."
#: A text with zeros for its digits has this if it may have an integer of more than MAX_DIGITS.
_LONG_INTEGER, _TO_ZEROS = b"0" * MAX_DIGITS, bytes.maketrans(b"123456789", b"000000000")
_TOO_MANY = f"The request body has more than {MAX_VALUES:,} values."
_TOO_DEEP = f"The request body is nested deeper than {MAX_DEPTH} levels."


class NotJson(ValueError):
    """The bytes are not strict JSON. The message gives the reason to the client."""


def loads(raw: bytes) -> Any:
    """Parse strict JSON of at most MAX_DEPTH levels, as parse_any_depth does. Raises NotJson."""
    value = parse_any_depth(raw)
    check_depth(value)
    return value


def parse_any_depth(raw: bytes) -> Any:
    """Parse strict JSON: UTF-8, no duplicate members, no NaN.

    Integers become int, all other numbers Decimal. Raises NotJson.
    """
    return _parse_carefully(raw) if (value := _parse_fast(raw)) is None else value


def _parse_fast(raw: bytes) -> Any:
    """Return what _parse_carefully returns, or None at any doubt.

    msgspec takes a fraction of its time. It accepts a member twice, and integers of any length.
    """
    if len(raw) > LONGEST_FAST or has_code_points(raw) or _LONG_INTEGER in raw.translate(_TO_ZEROS):
        return None
    try:
        value = _fast_decoder.decode(raw)
        written = encode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    # Only a member that is replaced by another of its name is missing, with its colon.
    is_whole = written == raw or written.count(b":") == raw.count(b":")
    return value if is_whole else None


def _parse_carefully(raw: bytes) -> Any:
    """Parse strict JSON as parse_any_depth does."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise NotJson("The request body is not valid UTF-8.") from None
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise NotJson(
            INVALID_JSON.format(f"{error.msg} at line {error.lineno}, column {error.colno}")
        ) from None
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None


def has_code_points(raw: bytes) -> bool:
    """Return whether a text names characters by their numbers, which may not be storable."""
    return b"\\u" in raw


def check_count(raw: bytes) -> None:
    """Raise NotJson if a request body has more than MAX_VALUES values."""
    if len(raw) > MAX_VALUES and sum(map(raw.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise NotJson(_TOO_MANY)


def check_depth(value: object, levels: int = MAX_DEPTH) -> None:
    """Raise NotJson if a value is nested deeper than `levels`."""
    if type(value) is dict:
        value = value.values()
    elif type(value) is not list:
        return
    if not levels:
        raise NotJson(_TOO_DEEP)
    for child in value:
        if type(child) is dict or type(child) is list:
            check_depth(child, levels - 1)


def loads_own(text: str | bytes) -> Any:
    """Parse JSON that this service has written, which may exceed the limits of requests."""
    return _own_decoder.decode(text)


def load_data(module: str) -> JsonObject:
    """Return the JSON of the file next to a module that has its name. `module` is its __file__."""
    return loads_own(Path(module).with_suffix(".json").read_bytes())


def dumps(value: object) -> str:
    """Return compact JSON text, with decimals as numbers."""
    return encode(value).decode()


def encode(value: object) -> bytes:
    """Return compact JSON in UTF-8, with decimals as numbers.

    Raises UnicodeEncodeError for unpaired surrogates.
    """
    return _encoder.encode(value)


def measure_stored_bytes(value: object) -> int:
    """Return the size of a value as compact UTF-8 JSON in bytes.

    Numbers count without exponent, as PostgreSQL stores them.
    """
    return len(encode_plain(value))


def encode_plain(value: object) -> bytes:
    """Return compact JSON in UTF-8 whose numbers have no exponent."""
    raw = encode(value)
    # Possibly an exponent, which str() gives very small and very large decimals.
    if b"E+" in raw or b"E-" in raw:
        return encode(_with_plain_numbers(value))
    return raw


def _with_plain_numbers(part: object) -> object:
    """Return a value in which decimals are JSON text without exponent."""
    if isinstance(part, dict):
        members = cast(dict[str, object], part)
        return {name: _with_plain_numbers(member) for name, member in members.items()}
    if isinstance(part, list):
        return [_with_plain_numbers(entry) for entry in cast(list[object], part)]
    return msgspec.Raw(f"{part:f}".encode()) if isinstance(part, Decimal) else part


def parse_instant(text: str) -> datetime:
    """Return the UTC instant of a date and time; without an offset it is read as UTC.

    Raises ValueError, also for a date without a time.
    """
    if not _INSTANT.fullmatch(text):
        raise ValueError("not a date and time")
    at = datetime.fromisoformat(text.upper())
    try:
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError("outside the years 1 to 9999") from None


def is_valid_text(text: str) -> bool:
    """Return whether PostgreSQL can store a text: no NUL and no unpaired surrogate."""
    return _NOT_STORABLE.search(text) is None


def replace_invalid_text(text: str) -> str:
    """Return a text with a replacement character for each one that is_valid_text rejects."""
    return _NOT_STORABLE.sub("\ufffd", text)


def find_invalid_text(value: object, *steps: str | int) -> Iterator[str]:
    """Yield the JSON Pointers of strings and member names that PostgreSQL cannot store.

    `steps` lead to the value.
    """
    if isinstance(value, str):
        if not is_valid_text(value):
            yield make_pointer(steps)
    elif isinstance(value, dict):
        for name, member in value.items():
            if not is_valid_text(name):
                yield make_pointer(steps) or "/"
            else:
                yield from find_invalid_text(member, *steps, name)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from find_invalid_text(member, *steps, index)


def make_pointer(steps: Iterable[str | int]) -> str:
    """Return a JSON Pointer (RFC 6901)."""
    return "".join(f"/{escape_pointer(step)}" for step in steps)


def escape_pointer(name: str | int) -> str:
    """Return a member name or index as a reference token of a JSON Pointer, shortened if long."""
    return str(name)[:LONGEST_STEP].replace("~", "~0").replace("/", "~1")


def _parse_decimal(text: str) -> Decimal:
    """Return a number whose text without exponent fits MAX_DIGITS. Zero has no sign.

    PostgreSQL writes numbers without exponent, and stored text is parsed here again.
    """
    if len(text) <= MAX_DIGITS // 2 and "e" not in text and "E" not in text:
        number = Decimal(text)
    else:
        exponent = text.lower().partition("e")[2]
        if len(text) > MAX_DIGITS or len(exponent) > 3:
            raise _too_long(text)
        number = Decimal(text)
        if len(f"{number:f}") > MAX_DIGITS:
            raise _too_long(text)
    return number or abs(number)


def _parse_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise _too_long(text)
    return int(text)


def _too_long(text: str) -> NotJson:
    return NotJson(f"The number {text[:24]}… is longer than {MAX_DIGITS} characters.")


def _reject_constant(name: str) -> NoReturn:
    raise NotJson(INVALID_JSON.format(f"{name} is not a JSON number"))


def _build_object(pairs: list[tuple[str, Json]]) -> JsonObject:
    """Return the members of an object. Raises NotJson for a duplicate name."""
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        duplicate = next(name for name, count in counts.items() if count > 1)
        raise NotJson(f"The request body has the member {json.dumps(duplicate[:60])} twice.")
    return members


_encoder = msgspec.json.Encoder(decimal_format="number")
_fast_decoder = msgspec.json.Decoder(float_hook=_parse_decimal)
_own_decoder = msgspec.json.Decoder(float_hook=Decimal)
_decoder = json.JSONDecoder(
    object_pairs_hook=_build_object,
    parse_float=_parse_decimal,
    parse_int=_parse_integer,
    parse_constant=_reject_constant,
)

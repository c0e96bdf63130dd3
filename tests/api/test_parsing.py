"""The fast parser of JSON returns what the careful one returns, or leaves the text to it."""

import json
import random
from collections.abc import Iterator

import pytest

from service import json_codec
from tests.api.test_bodies import GOOD, mutate
from tests.harness.no_json import NOT_A_BODY, NOT_JSON

BODIES = 20_000
#: What replaces some bytes of a body: parts of JSON, numbers at the limits, and bytes of no text.
PARTS = (
    *(b"", b" ", b"\n", b"\t", b"\x0c", b"\x00", b"\x1f", b"\x7f", b"{", b"}", b"[", b"]", b'"'),
    *(b",", b":", b"::", b'":"', b'"a":1,', b'"":{},', b'"a":{"a":":"},', b"null", b"true", b"NaN"),
    *(b"-Infinity", b"-0", b"-0.0", b"1E5", b"1e5", b"1E+5", b"1e-5", b"0.10", b"1e400", b"1e-39"),
    *(b"01", b".5", b"1.", b"+1", b"9" * 39, b"9" * 40, b"9" * 41, b"-" + b"9" * 39, b"9" * 400),
    *(b"-" + b"9" * 40, b"0." + b"9" * 38, b"0." + b"9" * 39, b"18446744073709551616", b"0" * 41),
    *(b"\\", b'\\"', b"\\/", b"\\n", b"\\x", b"\\u0061", b"\\u0000", b"\\ud800", b"\\u00e9"),
    *(b"\xff", b"\xc3\xa9", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"),
    *(b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"[" * 40, b"[" * 2000, b'{"a":' * 40, b"//", b"/**/"),
)


def make_bodies(chance: random.Random) -> Iterator[bytes]:
    """Yield good bodies with changed members, most of them with changed bytes too."""
    good = [body for bodies in GOOD.values() for body in bodies.values()]
    for _ in range(BODIES):
        body = mutate(chance.choice(good), chance)
        text = json.dumps(
            body,
            default=float,
            ensure_ascii=chance.random() < 0.1,
            indent=chance.choice((None, None, 2)),
            separators=chance.choice((None, (",", ":"), (" ,", " : "))),
        )
        raw = text.encode("utf-8", "surrogatepass")
        for _ in range(chance.choice((0, 1, 1, 2))):
            raw = corrupt(raw, chance)
        yield raw


def corrupt(raw: bytes, chance: random.Random) -> bytes:
    """Replace some bytes by others, or repeat them."""
    start = chance.randrange(len(raw) + 1)
    end = start + chance.choice((0, 1, 2, 5, 20))
    return raw[:start] + chance.choice((*PARTS, raw[start:end] * 2)) + raw[end:]


def repeat_members(raw: bytes, chance: random.Random) -> bytes:
    """Repeat what is between two commas, which often is a member."""
    parts = raw.split(b",")
    parts.insert(chance.randrange(len(parts)), chance.choice(parts))
    return b",".join(parts)


def parse_carefully(raw: bytes) -> str:
    """Return the value or the error. Equal values of different types have different texts."""
    try:
        return repr(json_codec._parse_carefully(raw))
    except json_codec.NotJson as error:
        return str(error)


def parse(raw: bytes) -> str:
    try:
        return repr(json_codec.parse_any_depth(raw))
    except json_codec.NotJson as error:
        return str(error)


def test_both_parsers_agree() -> None:
    chance = random.Random(7)
    fast = 0
    for raw in make_bodies(chance):
        for sent in (raw, repeat_members(raw, chance)):
            assert parse(sent) == parse_carefully(sent), sent
        fast += json_codec._parse_fast(raw) is not None
    assert BODIES / 5 < fast < BODIES  # Both have work.


def test_both_parsers_agree_on_bodies_that_no_route_accepts() -> None:
    for name, raw in (NOT_JSON | NOT_A_BODY).items():
        assert parse(raw) == parse_carefully(raw), name


@pytest.mark.parametrize(
    "raw", [b'{"a":1,"a":2}', b'{"a" : {"b":{}},\n"a" :":"}', b"9" * 40, b"1e40", b'"\\u0041"']
)
def test_what_msgspec_would_accept_is_left_to_the_careful_parser(raw: bytes) -> None:
    assert json_codec._parse_fast(raw) is None

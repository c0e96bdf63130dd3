"""Extraction of parts of a document's JSON text, for signatures. Portal: 11.2

The signature covers text, so numbers, the order of members and repeated names stay as sent.
"""

import json
import re
from collections.abc import Container, Iterator

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]+')
ESCAPE = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u\w{4}|\\.", re.ASCII)
DECODER = json.JSONDecoder()


def minify(text: str) -> str:
    """Return JSON text without white space outside strings and with non-ASCII unescaped."""
    return "".join(
        ESCAPE.sub(unescape, token) if "\\u" in token else token for token in TOKEN.findall(text)
    )


def unescape(escape: re.Match[str]) -> str:
    """Return the character of an escape if it is not ASCII, else the escape."""
    character = json.loads(f'"{escape[0]}"')
    return escape[0] if character.isascii() else character


def without(text: str, names: Container[str]) -> str:
    """Return the minified text of a document without the named members of its invoice."""
    (start, end), *_ = places(text, "Invoice")
    kept = [text[first:last] for name, first, _, last in members(text, start) if name not in names]
    return f"{text[:start]}{{{','.join(kept)}}}{text[end:]}"


def places(text: str, path: str, at: int = 0) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of every array entry at the path below the object that starts at `at`.

    If a name is repeated, the last member counts, as in JSON parsers.
    """
    name, _, rest = path.partition(".")
    values = {each: value for each, _, value, _ in members(text, at)}
    found = values.get(name)
    if found is None or text[found] != "[":
        return
    for start, end in elements(text, found):
        if not rest:
            yield start, end
        elif text[start] == "{":
            yield from places(text, rest, start)


def members(text: str, at: int) -> Iterator[tuple[str, int, int, int]]:
    """Yield (name, start, start of the value, end) of each member of the object at `at`."""
    at += 1
    while text[at] != "}":
        name, colon = DECODER.raw_decode(text, at)
        end = DECODER.raw_decode(text, colon + 1)[1]
        yield name, at, colon + 1, end
        at = end + (text[end] == ",")


def elements(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each element of the array that starts at `at`."""
    at += 1
    while text[at] != "]":
        end = DECODER.raw_decode(text, at)[1]
        yield at, end
        at = end + (text[end] == ",")

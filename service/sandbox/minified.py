"""Extraction of parts of a document's JSON text, for signatures. Portal: 11.2

The signature covers text, so numbers and the order of members stay as sent. If a name is repeated,
the last member counts, as in JSON parsers.
"""

import json
import re
from collections.abc import Container, Iterator

import msgspec

from .answers import encode

ESCAPE = re.compile(r"\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\u\w{4}|\\.", re.ASCII)
#: An object whose values are text.
Members = dict[str, msgspec.Raw]


def minify(text: str) -> str:
    """Return JSON text without white space outside strings and with non-ASCII unescaped."""
    return ESCAPE.sub(unescape, msgspec.json.format(text, indent=-1))


def unescape(escape: re.Match[str]) -> str:
    """Return the character of an escape if it is not ASCII, else the escape."""
    character = json.loads(f'"{escape[0]}"')
    return escape[0] if character.isascii() else character


def without(text: str, names: Container[str]) -> str:
    """Return the minified text of a document without the named members of its invoice."""
    root = msgspec.json.decode(text, type=Members)
    (invoice,) = msgspec.json.decode(root["Invoice"], type=list[Members])
    kept = {name: value for name, value in invoice.items() if name not in names}
    return encode({**root, "Invoice": [kept]}).decode()


def entry_texts(text: str | msgspec.Raw, path: str) -> Iterator[msgspec.Raw]:
    """Yield the text of every array entry at the path, as `entries` finds them, below an object."""
    name, _, rest = path.partition(".")
    try:
        members = msgspec.json.decode(text, type=Members)
        found = msgspec.json.decode(members.get(name, "[]"), type=list[msgspec.Raw])
    except msgspec.ValidationError:  # an entry of another shape
        return
    for entry in found:
        if rest:
            yield from entry_texts(entry, rest)
        else:
            yield entry

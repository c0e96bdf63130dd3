"""Unknown members of the objects of bodies.

Schemas leave some objects open: parties, addresses, lines. A name that resembles a known one is a
mistake there, and is rejected. Others are stored and returned unchanged, but have no effect and are
not sent to the portal.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from service import json_codec
from service.json_types import JsonMapping

LONGEST_NAME = 60  # characters of a name that are compared and quoted
MOST_LETTERS = 2  # by which a misspelt name differs
LETTERS_PER_MISTAKE = 3  # a name of fewer letters resembles only itself
MOST_UNKNOWN = 100  # unknown members of one object
MOST_COMPARED = 50  # of them with the known names
MOST_NAMES = 1000  # different unknown names of one body
#: Name in other systems, without case, underscores and plural -> the names that it may mean.
SYNONYMS = {
    "quantity": ("count", "unit"),
    "qty": ("count", "unit"),
    "limit": ("per_page",),
    "pagesize": ("per_page",),
}

Schema = JsonMapping
#: Finds what a reference in a file of schemas refers to: a resolver of the package referencing.
Resolver = Any


class Unknown(NamedTuple):
    """The unknown members of an object: its JSON Pointer, their names, and the known names.

    A closed object must not have any.
    """

    path: str
    names: list[str]
    known: frozenset[str]
    is_closed: bool

    def point_to(self, name: str) -> str:
        return f"{self.path}/{json_codec.escape_pointer(name)}"


class Entries(NamedTuple):
    """The entries of an array, of which there may be `most`."""

    shape: "Shape"
    most: int


class Members(NamedTuple):
    """The members of an object, which has no others if it is closed."""

    known: frozenset[str]
    is_closed: bool
    shapes: tuple[tuple[str, "Shape"], ...]


Shape = Members | Entries | None


def find_unknown(value: object, shape: Shape, path: str = "") -> Iterator[Unknown]:
    """Yield the unknown members of each object of a body that has some.

    Leaves out arrays with too many entries.
    """
    if isinstance(shape, Entries) and isinstance(value, list) and len(value) <= shape.most:
        for index, entry in enumerate(value):
            yield from find_unknown(entry, shape.shape, f"{path}/{index}")
    if isinstance(shape, Members) and isinstance(value, dict):
        if names := [name for name in value if name not in shape.known]:
            yield Unknown(path, names, shape.known, shape.is_closed)
        for name, below in shape.shapes:
            if name in value:
                yield from find_unknown(value[name], below, f"{path}/{name}")


def make_shape(resolver: Resolver, schema: Schema) -> Shape:
    """Return the shape of values of a schema, or None without known members."""
    properties: dict[str, Shape] = {}
    is_closed = False
    for scope, part in expand(resolver, schema):
        if "items" in part:
            entry = make_shape(scope, part["items"])
            return Entries(entry, part["maxItems"]) if entry else None
        is_closed |= part.get("additionalProperties") is False
        for name, member in part.get("properties", {}).items():
            properties[name] = make_shape(scope, member)
    shapes = tuple((name, shape) for name, shape in properties.items() if shape)
    if not properties and not is_closed:
        return None
    return Members(frozenset(properties), is_closed, shapes)


def expand(resolver: Resolver, schema: Schema) -> Iterator[tuple[Resolver, Schema]]:
    """Yield a schema and the schemas that it includes, each with the resolver for its file."""
    yield resolver, schema
    for part in schema.get("allOf", ()):
        yield from expand(resolver, part)
    if "$ref" in schema:
        target = resolver.lookup(schema["$ref"])
        yield from expand(target.resolver, target.contents)


def find_similar(name: str, known: frozenset[str]) -> str | None:
    """Return the known name that a name resembles or means, or None.

    They differ in case, underscores or a plural only, or by at most two letters; short names by
    fewer.
    """
    return _find_similar(name, known) if len(name) <= LONGEST_NAME else None


@lru_cache(maxsize=MOST_NAMES)
def _find_similar(name: str, known: frozenset[str]) -> str | None:
    folded = _fold(name)
    if meant := [each for each in SYNONYMS.get(folded, ()) if each in known]:
        return meant[0]
    most = min(MOST_LETTERS, len(folded) // LETTERS_PER_MISTAKE)
    distances = [
        (_count_edits(folded, other), each)
        for other, each in _fold_all(known)
        if abs(len(other) - len(folded)) <= most
    ]
    distance, similar = min(distances, default=(most + 1, None))
    return similar if distance <= most else None


@cache
def _fold_all(known: frozenset[str]) -> list[tuple[str, str]]:
    return [(_fold(name), name) for name in sorted(known)]


def _fold(name: str) -> str:
    return re.sub(r"[_\- ]", "", name).casefold().removesuffix("s")


def _count_edits(one: str, other: str) -> int:
    """Return the number of letters that are inserted, deleted or replaced (Levenshtein)."""
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        left, row[0] = row[0], place
        for index, against in enumerate(other, 1):
            cost = min(row[index] + 1, row[index - 1] + 1, left + (letter != against))
            left, row[index] = row[index], cost
    return row[-1]

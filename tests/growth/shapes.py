"""Shapes of large inputs: texts, forms, and JSON bodies that are derived from a good body.

Each shape is a function from a size in bytes to the input.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any

#: Makes an input of about so many bytes.
Make = Callable[[int], bytes]

#: Name -> a piece that is repeated to a long text. What costs more than it seems to: white space,
#: which patterns skip; marks that NFKC sorts; a character that NFKC expands to 18; separators.
PIECES = {
    "letters": "a",
    "digits": "7",
    "blanks": " ",
    "marks": "\u0300\u0316",
    "expanding": "\ufdfa",
    "commas": "1,",
    "dots": "a.",
    "hyphens": "a-",
    "signs": "@",
    "brackets": "<[{(",
    "quotes": "\"'",
    "equals": "a=b; ",
    "mixed": "Aé1 \u0300",
}
#: Of the HTTP line and of headers, which have no other characters.
ASCII_PIECES = {name: piece for name, piece in PIECES.items() if piece.isascii()} | {
    "addresses": "10.0.0.1, ",
    "tags": '"a", ',
    "escapes": "%41",
    "bad escapes": "%",
    "slashes": "/",
    "parameters": 'a="b";',
    "cookies": "a=b; ",
}


def repeat(piece: str, size: int) -> str:
    """Return a text of a piece, of at least one, whose UTF-8 has about so many bytes."""
    return piece * max(1, size // len(piece.encode()))


@dataclass(frozen=True, slots=True)
class Node:
    """A place in a body: the steps that lead to it, and the value there."""

    steps: tuple[str | int, ...]
    value: Any

    @property
    def name(self) -> str:
        """The JSON Pointer, without the indexes of arrays."""
        return "".join(f"/{step}" for step in self.steps if step != 0) or "/"


def list_nodes(value: Any, steps: tuple[str | int, ...] = ()) -> Iterator[Node]:
    """Yield a body and the objects, arrays and texts in it. Of an array, the first entry."""
    if isinstance(value, dict | list | str):
        yield Node(steps, value)
    if isinstance(value, dict):
        for name, member in value.items():
            yield from list_nodes(member, (*steps, name))
    elif isinstance(value, list) and value:
        yield from list_nodes(value[0], (*steps, 0))


def _replace(value: Any, steps: Sequence[str | int], new: Any) -> Any:
    """Return a body with another value at a place."""
    if not steps:
        return new
    first, *rest = steps
    if isinstance(value, list):
        return [_replace(value[0], rest, new), *value[1:]]
    return {**value, first: _replace(value[first], rest, new)}


MARK = "@@"


def _insert(body: Any, steps: Sequence[str | int], new: Any, raw: str) -> bytes:
    """Return JSON in which `new` is at a place, and the text `raw` in place of MARK in it."""
    text = json.dumps(_replace(body, steps, new), ensure_ascii=False)
    return text.replace(json.dumps(MARK), raw, 1).encode()


#: Shape -> the text of a value, made of a size.
VALUES: dict[str, Callable[[int], str]] = {
    "nested arrays": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "nested objects": lambda size: '{"a":' * (size // 6) + "0" + "}" * (size // 6),
    "empty objects": lambda size: "[" + "{}," * (size // 3) + "0]",
    "zeros": lambda size: "[" + "0," * (size // 2) + "0]",
    "distinct texts": lambda size: json.dumps([f"text {n}" for n in range(size // 14)]),
    "digits": lambda size: "7" * size,
    "decimals": lambda size: "0." + "7" * size,
    "numbers of 30 digits": lambda size: "[" + f"{'7' * 20}.{'7' * 9}," * (size // 31) + "0]",
    "exponents": lambda size: "[" + "1e99," * (size // 5) + "0]",
    "escaped text": lambda size: '"' + "\\u0061" * (size // 6) + '"',
    "NUL characters": lambda size: '"' + "\\u0000" * (size // 6) + '"',
    "texts with NUL": lambda size: "[" + '"\\u0000",' * (size // 9) + "0]",
    "truncated text": lambda size: '"' + "\\\\" * (size // 2),
    "bad escape at the end": lambda size: '"' + "a" * size + '\\x"',
    "blanks": lambda size: " " * size + "0",
    "lines": lambda size: "\n" * size + "?",
}
#: Shape -> the text of members, made of a size and the names that an object has.
MEMBERS: dict[str, Callable[[int, Sequence[str]], str]] = {
    "equal members": lambda size, names: '"a":0,' * (size // 6) + '"a":1',
    "one of many members twice": lambda size, names: _make_members(
        chain((f"m{n}" for n in range(size // 11)), ["m0"])
    ),
    "long name": lambda size, names: _make_members(["a" * size]),
    "name of NUL": lambda size, names: '"' + "\\u0000" * (size // 6) + '":0',
    "members with NUL": lambda size, names: (
        ",".join(f'"m{n}\\u0000":0' for n in range(size // 14)) or '"a":0'
    ),
}
#: The same for every object of a body: its unknown members.
UNKNOWN: dict[str, Callable[[int, Sequence[str]], str]] = {
    "similar members": lambda size, names: _make_similar(size, names),
    "other members": lambda size, names: _make_other(size, names),
    "long members": lambda size, names: _make_members(
        f"{number}".rjust(58, "a") for number in range(size // 63)
    ),
}


def _make_similar(size: int, names: Sequence[str]) -> str:
    """Return members with names like those of an object, which differ in their last letters."""
    length = sum(map(len, names)) // len(names) + 7
    return _make_members(
        f"{names[number % len(names)][:-1]}{_base36(number)}" for number in range(size // length)
    )


def _make_other(size: int, names: Sequence[str]) -> str:
    """Return members whose names have the lengths of those of an object, and other letters."""
    length = sum(map(len, names)) // len(names) + 5
    return _make_members(
        f".{_base36(number)}".rjust(len(names[number % len(names)]), ".")
        for number in range(size // length)
    )


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits += "0123456789abcdefghijklmnopqrstuvwxyz"[digit]
        if not number:
            return digits


def _make_members(names: Iterator[str] | Sequence[str]) -> str:
    return ",".join(f"{json.dumps(name)}:0" for name in names) or '"a":0'


#: The shapes that every body has. The syntax is read in one place, so the first has all others.
EVERY_BODY = {"empty objects", "zeros", "equal members", "marks", "blanks"}


def list_body_shapes(body: dict[str, Any], known: set[str]) -> Iterator[tuple[str, Make]]:
    """Yield (name, Make) of each shape of a good body.

    `known` has the shapes of other bodies. Objects and arrays of equal members, and shapes that
    EVERY_BODY does not name, are left out if they are known.
    """
    nodes = list(list_nodes(body))
    texts = [node for node in nodes if isinstance(node.value, str)]
    whole = [*_list_syntax_shapes(body), *_list_text_shapes(body, texts)]
    for name, make in whole:
        if name in EVERY_BODY or name not in known:
            known.add(name)
            yield name, make
    for node in nodes:
        form = f"{node.name.rpartition('/')[2]}: {_describe(node.value)}"
        if form in known or isinstance(node.value, str):
            continue
        known.add(form)
        if isinstance(node.value, dict):
            yield from _list_member_shapes(body, node, UNKNOWN)
        else:
            yield from _list_array_shapes(body, node)


def _describe(value: Any) -> str:
    """Return the form of a value: the names of its members, or of those of its entries."""
    if isinstance(value, list):
        return f"array of {_describe(value[0]) if value else 'nothing'}"
    return str(sorted(value)) if isinstance(value, dict) else type(value).__name__


def _list_syntax_shapes(body: dict[str, Any]) -> Iterator[tuple[str, Make]]:
    for shape, make in VALUES.items():
        yield (
            f"{shape}",
            lambda size, make=make: _insert(body, (), {**body, "a": MARK}, make(size)),
        )
    for shape, make in _list_member_shapes(body, Node((), body), MEMBERS):
        yield shape.removeprefix("/ "), make
    yield "not UTF-8", lambda size: b'{"a":"' + b"\xff" * size + b'"}'


def _list_member_shapes(
    body: dict[str, Any], node: Node, shapes: dict[str, Callable[[int, Sequence[str]], str]]
) -> Iterator[tuple[str, Make]]:
    names = [name for name in node.value if len(name) > 2] or ["name"]
    # A value in place of MARK becomes a further member.
    for shape, make in shapes.items():

        def fill(size: int, make: Callable[[int, Sequence[str]], str] = make) -> bytes:
            members = f"0,{make(size, names)}"
            return _insert(body, node.steps, {**node.value, "zz": MARK}, members)

        yield f"{node.name} {shape}", fill


def _list_text_shapes(body: dict[str, Any], nodes: Sequence[Node]) -> Iterator[tuple[str, Make]]:
    """Yield the shapes in which all texts of a body are long."""
    for piece_name, piece in PIECES.items():

        def fill(size: int, piece: str = piece) -> bytes:
            text, filled = repeat(piece, size // max(1, len(nodes))), body
            for node in nodes:
                filled = _replace(filled, node.steps, text)
            return json.dumps(filled, ensure_ascii=False).encode()

        yield piece_name, fill


def _list_array_shapes(body: dict[str, Any], node: Node) -> Iterator[tuple[str, Make]]:
    """Yield the shapes in which one array is long."""
    first = node.value[0] if node.value else "text"

    def fill(entries: Callable[[int], list[Any]]) -> Make:
        return lambda size: json.dumps(
            _replace(body, node.steps, entries(size)), ensure_ascii=False
        ).encode()

    yield f"{node.name} many entries", fill(lambda size: make_entries(first, size))
    yield f"{node.name} zeros", fill(lambda size: [0] * (size // 3))
    yield f"{node.name} empty objects", fill(lambda size: [{}] * (size // 4))
    yield f"{node.name} texts", fill(lambda size: [f"text {n}" for n in range(size // 14)])
    if isinstance(first, dict):
        yield (
            f"{node.name} entries with unknown members",
            fill(lambda size: _add_unknown(first, size)),
        )


def make_entries(first: Any, size: int) -> list[Any]:
    """Return copies of an entry with ids or texts of their own, of so many bytes together."""
    length = len(json.dumps(first)) + 2
    if isinstance(first, dict) and "id" in first:
        return [{**first, "id": str(number)} for number in range(size // length)]
    if isinstance(first, str):
        return [f"{first[:-4]}{number:04}" for number in range(size // length)]
    return [first] * (size // length)


def _add_unknown(first: dict[str, Any], size: int) -> list[Any]:
    """Return copies of an object with 40 unknown members each, whose names all differ."""
    names = (f"{_base36(number)}Name" for number in count())
    length = len(json.dumps(first)) + 40 * 13
    return [
        {**first, "id": str(number), **dict.fromkeys(islice(names, 40), 0)}
        for number in range(max(1, size // length))
    ]

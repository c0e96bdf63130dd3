"""Documents in UBL XML, read into the structure of JSON documents, so that all checks apply.

Python's own expat reads them. A document type declaration is refused when its first token is read,
so there are no entities to expand and no external ones to fetch. Portal: 4.1, 10.1
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from xml.parsers import expat

from .document import read_json
from .validators.elements import ELEMENTS, NAMESPACES, Element, Group

#: Levels of elements; a signed document has about 15.
MOST_DEPTH = 32
#: What separates the namespace of a name from the rest in expat's names.
SEPARATOR = " "
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
AGGREGATES, BASICS = NAMESPACES["_A"], NAMESPACES["_B"]
UNKNOWN = Element("any")


@dataclass(slots=True)
class Node:
    """One element, without attributes that have a namespace."""

    namespace: str
    name: str
    attributes: dict[str, str]
    children: "list[Node]" = field(default_factory=list["Node"])
    texts: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The text of the element itself without white space at its ends."""
        return "".join(self.texts).strip()


def read_document(raw: bytes) -> Any:
    """Return a submitted document of either format in the structure of JSON. Raises ValueError."""
    return read_xml(raw) if raw.lstrip().startswith(b"<") else read_json(raw)


def read_xml(raw: bytes) -> dict[str, Any]:
    """Return an XML document in the structure of JSON. Raises ValueError."""
    root = parse(raw)
    if (root.namespace, root.name) != (NAMESPACES["_D"], "Invoice"):
        raise ValueError("The root is not the element Invoice of UBL 2.1.")
    return {**NAMESPACES, "Invoice": [convert_group(root, ELEMENTS)]}


def parse(raw: bytes) -> Node:
    """Return the root element of XML in UTF-8.

    Raises ValueError if it is not well-formed, has a document type declaration, or is nested deeper
    than MOST_DEPTH.
    """
    if raw.startswith(BYTE_ORDER_MARK):
        raise ValueError("The document begins with a byte-order mark.")
    raw.decode("utf-8")
    top = Node("", "", {})
    path = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(path) > MOST_DEPTH:
            raise ValueError(f"The document has more than {MOST_DEPTH} levels.")
        namespace, _, local = name.rpartition(SEPARATOR)
        plain = {each: text for each, text in attributes.items() if SEPARATOR not in each}
        node = Node(namespace, local, plain)
        path[-1].children.append(node)
        path.append(node)

    def refuse(*_: object) -> None:
        raise ValueError("The document has a document type declaration.")

    parser = expat.ParserCreate("utf-8", SEPARATOR)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: path.pop()
    parser.CharacterDataHandler = lambda text: path[-1].texts.append(text)
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        raise ValueError(str(error)) from None
    return top.children[0]


def convert_group(node: Node, elements: Group) -> dict[str, Any]:
    """Return an element with children as an object of arrays.

    An attribute and text of the element itself, which a group cannot have, are members too, so
    that the structure check reports them.
    """
    members: dict[str, Any] = {f"@{name}": text for name, text in node.attributes.items()}
    if node.text:
        members["_"] = node.text
    for child in node.children:
        element = elements.get(child.name, UNKNOWN)
        members.setdefault(qualify(child, element), []).append(convert(child, element))
    return members


def convert(node: Node, element: Element) -> dict[str, Any]:
    """Return an element as an entry of its array: a group, or a value with attributes."""
    if element.kind == "group" or node.children:
        return convert_group(node, element.members)
    return {"_": CONVERSIONS.get(element.kind, str)(node.text), **node.attributes}


def qualify(node: Node, element: Element) -> str:
    """Return the name of a member, with the namespace if that is not the one of UBL."""
    expected = AGGREGATES if element.kind == "group" else BASICS
    if element.kind == "any" or node.namespace == expected:
        return node.name
    return f"{{{node.namespace}}}{node.name}"


def convert_number(text: str) -> Decimal | str:
    """Return a decimal number without exponent, else the text, which the structure check reports.

    Portal: 10.1
    """
    form = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
    return Decimal(text) if re.fullmatch(form, text) else text


def convert_boolean(text: str) -> bool | str:
    """Return a boolean of XML Schema, else the text."""
    return {"true": True, "1": True, "false": False, "0": False}.get(text, text)


#: Kind of a basic element in `elements.py` -> conversion of its text. Others stay text.
CONVERSIONS: dict[str, Callable[[str], Any]] = {
    "number": convert_number,
    "amount": convert_number,
    "boolean": convert_boolean,
}

"""Documents in UBL XML, read into the structure of JSON documents, so that all checks apply.

Python's own expat reads them. A document type declaration is refused when its first token is read,
so there are no entities to expand and no external ones to fetch. Portal: 4.1, 10.1
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import NoReturn
from xml.etree import ElementTree

from .answers import Body
from .document import Node, read_json
from .validators.elements import ELEMENTS, NAMESPACES, Element, Group

#: Levels of elements; a signed document has about 15.
MOST_DEPTH = 32
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UNKNOWN = Element("any")


class Builder(ElementTree.TreeBuilder):
    """Builds the elements, and refuses what makes reading them expensive."""

    depth = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> ElementTree.Element:
        """Begin an element. Raises ValueError below MOST_DEPTH."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ValueError(f"The document has more than {MOST_DEPTH} levels.")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> ElementTree.Element:
        self.depth -= 1
        return super().end(tag)

    def doctype(self, *_: object) -> NoReturn:
        raise ValueError("The document has a document type declaration.")


def read_document(raw: bytes, is_xml: bool) -> Node:
    """Return a document in XML or JSON in the structure of JSON. Raises ValueError."""
    return read_xml(raw) if is_xml else read_json(raw)


def read_xml(raw: bytes) -> Body:
    """Return an XML document in UTF-8 in the structure of JSON. Raises ValueError."""
    if raw.startswith(BYTE_ORDER_MARK):
        raise ValueError("The document begins with a byte-order mark.")
    raw.decode("utf-8")
    parser = ElementTree.XMLParser(target=Builder(), encoding="utf-8")
    try:
        parser.feed(raw)
        root = parser.close()
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None
    if root.tag != f"{{{NAMESPACES['_D']}}}Invoice":
        raise ValueError("The root is not the element Invoice of UBL 2.1.")
    return {**NAMESPACES, "Invoice": [convert_group(root, ELEMENTS)]}


def convert_group(node: ElementTree.Element, elements: Group) -> Body:
    """Return an element with children as an object of arrays.

    An attribute and text of the element itself, which a group cannot have, are members too, so
    that the structure check reports them.
    """
    members: Body = {f"@{name}": text for name, text in list_attributes(node).items()}
    if text := "".join((node.text or "", *(child.tail or "" for child in node))).strip():
        members["_"] = text
    for child in node:
        namespace, _, name = child.tag.lstrip("{").rpartition("}")
        element = elements.get(name, UNKNOWN)
        expected = NAMESPACES["_A" if element.kind == "group" else "_B"]
        # The name of a member has the namespace if that is not the one of UBL.
        is_known = element.kind == "any" or namespace == expected
        shown = name if is_known else f"{{{namespace}}}{name}"
        members.setdefault(shown, []).append(convert(child, element))
    return members


def convert(node: ElementTree.Element, element: Element) -> Body:
    """Return an element as an entry of its array: a group, or a value with attributes."""
    if element.kind == "group" or len(node):
        return convert_group(node, element.members)
    text = (node.text or "").strip()
    return {"_": CONVERSIONS.get(element.kind, str)(text), **list_attributes(node)}


def list_attributes(node: ElementTree.Element) -> dict[str, str]:
    """Return the attributes that have no namespace."""
    return {name: text for name, text in node.attrib.items() if not name.startswith("{")}


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
CONVERSIONS: dict[str, Callable[[str], object]] = {
    "number": convert_number,
    "amount": convert_number,
    "boolean": convert_boolean,
}

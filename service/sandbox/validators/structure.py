"""Step 1: the structure of a document, with rule names of the portal's schema validator.

Portal: 4.2, 14.2
"""

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import groupby, islice

from ..answers import Body
from ..document import SIGNED_VERSIONS, Node, UblDocument
from . import Finding, read_exactly
from .elements import ELEMENTS, EXTENSIONS, NAMESPACES, Element, Group

#: (name of the rule, path).
Violation = tuple[str, str]
#: Violations of one document that are reported.
MOST_VIOLATIONS = 100
#: Characters of an unknown name in a path, which may look like indexes of many arrays.
MOST_NAME = 50
INDEX = re.compile(r"\[\d+\]")


def is_number(found: object) -> bool:
    """Return whether a value is a JSON number."""
    return isinstance(found, (int, Decimal)) and not isinstance(found, bool)


#: Kind of a basic element -> (name of the rule for its value, whether a value fits).
KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "text": ("StringExpected", lambda found: isinstance(found, str)),
    "code": ("StringExpected", lambda found: isinstance(found, str) and found != ""),
    "date": ("DateExpected", lambda found: read_exactly(found, "%Y-%m-%d") is not None),
    "time": ("TimeExpected", lambda found: read_exactly(found, "%H:%M:%SZ") is not None),
    "number": ("NumberExpected", is_number),
    "amount": ("NumberExpected", is_number),
    "boolean": ("BooleanExpected", lambda found: isinstance(found, bool)),
}


def check(root: Node) -> list[Finding]:
    """Return the findings of a document, at most MOST_VIOLATIONS in all.

    Those inside the invoice form one finding, as the portal nests them. Its target is the index in
    the array, that of another finding the name of the member.
    """
    broken = list(check_root(root)) if isinstance(root, dict) else [("ObjectExpected", "#")]
    if not broken:
        inside = list(islice(check_invoice(root["Invoice"][0]), MOST_VIOLATIONS))
        path = "#/Invoice[0]"
        return [Finding(None, nest(path, inside), "[0]", path)] if inside else []
    return [
        Finding(None, f"{rule}: {path}", path.rpartition("/")[2], path)
        for rule, path in islice(broken, MOST_VIOLATIONS)
    ]


def nest(path: str, violations: Iterable[Violation]) -> str:
    """Return the message of an array entry: every entry on the way to a violation is a block."""
    rows: list[str] = []
    for inner, found in groupby(violations, lambda violation: find_entry(violation[1], len(path))):
        if inner:
            rows.append(nest(inner, found))
        else:
            rows.extend(f"{rule}: {where}" for rule, where in found)
    inside = "".join("  " + row.replace("\n", "\n  ") + "\n" for row in rows)
    return f"ArrayItemNotValid: {path}\n{{\n{inside}}}\n"


def find_entry(path: str, start: int) -> str:
    """Return the path of the next array entry after `start`, or an empty string."""
    index = INDEX.search(path, start)
    return path[: index.end()] if index else ""


def check_root(root: Body) -> Iterator[Violation]:
    """Yield the violations outside the invoice."""
    for name, text in NAMESPACES.items():
        if root.get(name) != text:
            yield "StringExpected" if name in root else "PropertyRequired", f"#/{name}"
    for name, found in root.items():
        if name not in (*NAMESPACES, "Invoice") and (name, found) != ("_E", EXTENSIONS):
            yield "NoAdditionalPropertiesAllowed", f"#/{name}"
    invoices = root.get("Invoice")
    if not isinstance(invoices, list):
        yield "ArrayExpected" if "Invoice" in root else "PropertyRequired", "#/Invoice"
    elif len(invoices) != 1:
        yield "TooManyItems" if invoices else "TooFewItems", "#/Invoice"


def check_invoice(invoice: Node) -> Iterator[Violation]:
    yield from check_group(invoice, ELEMENTS, "#/Invoice[0]")
    if UblDocument({"Invoice": [invoice]}).version in SIGNED_VERSIONS:
        for name in ("UBLExtensions", "Signature"):
            if name not in invoice:
                yield "TooFewItems", f"#/Invoice[0].{name}"


def check_group(group: object, elements: Group, path: str) -> Iterator[Violation]:
    if not isinstance(group, dict):
        yield "ObjectExpected", path
        return
    if not group:
        yield "TooFewProperties", path
    for name, element in elements.items():
        if element.is_required and name not in group:
            yield "PropertyRequired", f"{path}.{name}"
    for name, found in group.items():
        if name in elements:
            yield from check_array(found, elements[name], f"{path}.{name}")
        else:
            yield "NoAdditionalPropertiesAllowed", f"{path}.{name[:MOST_NAME]}"


def check_array(found: object, element: Element, path: str) -> Iterator[Violation]:
    if not isinstance(found, list):
        yield "ArrayExpected", path
    elif not found:
        yield "TooFewItems", path
    elif element.kind != "any":
        for index, entry in enumerate(found):
            where = f"{path}[{index}]"
            if element.kind == "group":
                yield from check_group(entry, element.members, where)
            else:
                yield from check_basic(entry, element.kind, where)


def check_basic(basic: object, kind: str, path: str) -> Iterator[Violation]:
    """Yield the violations of a basic element: a value with attributes."""
    if not isinstance(basic, dict):
        yield "ObjectExpected", path
        return
    for name in ("_", "currencyID") if kind == "amount" else ("_",):
        if name not in basic:
            yield "PropertyRequired", f"{path}.{name}"
    for name, found in basic.items():
        rule, fits = KINDS[kind if name == "_" else "text"]
        if not fits(found):
            yield rule, f"{path}.{name[:MOST_NAME]}"

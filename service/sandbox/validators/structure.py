"""Step 1: the structure of a document, with rule names of the portal's schema validator.

Portal: 4.2, 14.2
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from ..document import SIGNED_VERSIONS, Document
from . import Finding
from .shapes import EXTENSIONS, INVOICE, NAMESPACES, Shape

#: (name of the rule, path).
Violation = tuple[str, str]


def parses(pattern: str, layout: str) -> Callable[[Any], bool]:
    """Return a check for text that matches the pattern and that strptime can parse."""

    def check(found: Any) -> bool:
        try:
            return bool(re.fullmatch(pattern, found, re.ASCII)) and bool(
                datetime.strptime(found, layout)
            )
        except (ValueError, TypeError):
            return False

    return check


def is_number(found: Any) -> bool:
    """Return whether a value is a JSON number."""
    return isinstance(found, (int, Decimal)) and not isinstance(found, bool)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of basic element: the rule for its value, and attributes that it must have."""

    rule: str
    accepts: Callable[[Any], bool]
    required: tuple[str, ...] = ()


KINDS = {
    "text": Kind("StringExpected", lambda found: isinstance(found, str)),
    "code": Kind("StringExpected", lambda found: isinstance(found, str) and found != ""),
    "date": Kind("DateExpected", parses(r"\d{4}-\d\d-\d\d", "%Y-%m-%d")),
    "time": Kind("TimeExpected", parses(r"\d\d:\d\d:\d\dZ", "%H:%M:%SZ")),
    "number": Kind("NumberExpected", is_number),
    "amount": Kind("NumberExpected", is_number, ("currencyID",)),
    "boolean": Kind("BooleanExpected", lambda found: isinstance(found, bool)),
}

#: Name -> (group or kind of the element, whether it is required).
Group = dict[str, tuple[Any, bool]]


def compile_group(shape: dict[str, Shape]) -> Group:
    """Return a group whose names have no mark, at every depth."""
    return {
        name.rstrip("!"): (
            inner if isinstance(inner, str) else compile_group(inner),
            name.endswith("!"),
        )
        for name, inner in shape.items()
    }


SHAPE = compile_group(INVOICE)


def check(root: Any) -> list[Finding]:
    """Return the findings of a document.

    Those inside the invoice form one finding, as the portal nests them.
    """
    broken = list(check_root(root)) if isinstance(root, dict) else [("ObjectExpected", "#")]
    if not broken:
        inside = list(check_invoice(root["Invoice"][0]))
        return [nest("#/Invoice[0]", inside)] if inside else []
    return [Finding(None, f"{rule}: {path}", path, path) for rule, path in broken]


def nest(path: str, violations: list[Violation]) -> Finding:
    """Return one finding for the violations inside an array entry."""
    rows = "\n".join(f"  {rule}: {where}" for rule, where in violations)
    return Finding(None, f"ArrayItemNotValid: {path}\n{{\n{rows}\n}}", path, path)


def check_root(root: dict[str, Any]) -> Iterator[Violation]:
    """Yield the violations outside the invoice."""
    for name, text in NAMESPACES.items():
        if root.get(name) != text:
            yield ("StringExpected" if name in root else "PropertyRequired", f"#/{name}")
    for name in root:
        if (
            name not in NAMESPACES
            and name != "Invoice"
            and (name, root[name]) != ("_E", EXTENSIONS)
        ):
            yield ("NoAdditionalPropertiesAllowed", f"#/{name}")
    invoices = root.get("Invoice")
    if not isinstance(invoices, list):
        yield ("ArrayExpected" if "Invoice" in root else "PropertyRequired", "#/Invoice")
    elif len(invoices) != 1:
        yield ("TooManyItems" if invoices else "TooFewItems", "#/Invoice")


def check_invoice(invoice: Any) -> Iterator[Violation]:
    """Yield the violations inside the invoice."""
    yield from check_group(invoice, SHAPE, "#/Invoice[0]")
    if Document({"Invoice": [invoice]}).version in SIGNED_VERSIONS:
        for name in ("UBLExtensions", "Signature"):
            if name not in invoice:
                yield ("TooFewItems", f"#/Invoice[0].{name}")


def check_group(group: Any, shape: Group, path: str) -> Iterator[Violation]:
    """Yield the violations of an object with elements."""
    if not isinstance(group, dict):
        yield ("ObjectExpected", path)
        return
    if not group:
        yield ("TooFewProperties", path)
    for name, (_, required) in shape.items():
        if required and name not in group:
            yield ("PropertyRequired", f"{path}.{name}")
    for name, found in group.items():
        if name in shape:
            yield from check_array(found, shape[name][0], f"{path}.{name}")
        else:
            yield ("NoAdditionalPropertiesAllowed", f"{path}.{name}")


def check_array(found: Any, shape: Group | str, path: str) -> Iterator[Violation]:
    """Yield the violations of an element, which is an array."""
    if not isinstance(found, list):
        yield ("ArrayExpected", path)
    elif not found:
        yield ("TooFewItems", path)
    elif shape != "any":
        for index, entry in enumerate(found):
            where = f"{path}[{index}]"
            if isinstance(shape, str):
                yield from check_basic(entry, KINDS[shape], where)
            else:
                yield from check_group(entry, shape, where)


def check_basic(element: Any, kind: Kind, path: str) -> Iterator[Violation]:
    """Yield the violations of a basic element: a value with attributes."""
    if not isinstance(element, dict):
        yield ("ObjectExpected", path)
        return
    for name in ("_", *kind.required):
        if name not in element:
            yield ("PropertyRequired", f"{path}.{name}")
    for name, found in element.items():
        if name == "_" and not kind.accepts(found):
            yield (kind.rule, f"{path}._")
        elif name != "_" and not isinstance(found, str):
            yield ("StringExpected", f"{path}.{name}")

"""Step 1: the shape of a document. Rules carry the names of the portal's schema validator. Portal: 4.2, 14.2"""

import re
from datetime import datetime
from decimal import Decimal

from ..document import SIGNED_VERSIONS, Document
from . import Finding
from .shapes import EXTENSIONS, INVOICE, NAMESPACES


def parses(pattern, layout):
    """A check for text of the pattern that strptime can read by the layout."""

    def check(found):
        try:
            return bool(re.fullmatch(pattern, found, re.ASCII)) and bool(
                datetime.strptime(found, layout)
            )
        except (ValueError, TypeError):
            return False

    return check


def is_number(found):
    return isinstance(found, (int, Decimal)) and not isinstance(found, bool)


#: kind of a basic element -> (rule, whether a value keeps it, attributes that must be there)
KINDS = {
    "text": ("StringExpected", lambda found: isinstance(found, str), ()),
    "code": ("StringExpected", lambda found: isinstance(found, str) and found != "", ()),
    "date": ("DateExpected", parses(r"\d{4}-\d\d-\d\d", "%Y-%m-%d"), ()),
    "time": ("TimeExpected", parses(r"\d\d:\d\d:\d\dZ", "%H:%M:%SZ"), ()),
    "number": ("NumberExpected", is_number, ()),
    "amount": ("NumberExpected", is_number, ("currencyID",)),
    "boolean": ("BooleanExpected", lambda found: isinstance(found, bool), ()),
}


def compiled(shape):
    """name -> (shape, whether it must be there), all the way down."""
    if isinstance(shape, str):
        return shape
    return {
        name.rstrip("!"): (compiled(inner), name.endswith("!")) for name, inner in shape.items()
    }


SHAPE = compiled(INVOICE)


def check(root):
    """Findings of the whole document; those inside the invoice come together, as the portal nests them."""
    broken = list(root_breaches(root)) if isinstance(root, dict) else [("ObjectExpected", "#")]
    if not broken:
        inside = list(invoice_breaches(root["Invoice"][0]))
        return [nested("#/Invoice[0]", inside)] if inside else []
    return [Finding(None, f"{rule}: {path}", path, path) for rule, path in broken]


def nested(path, breaches):
    rows = "\n".join(f"  {rule}: {where}" for rule, where in breaches)
    return Finding(None, f"ArrayItemNotValid: {path}\n{{\n{rows}\n}}", path, path)


def root_breaches(root):
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


def invoice_breaches(invoice):
    yield from group_breaches(invoice, SHAPE, "#/Invoice[0]")
    if Document({"Invoice": [invoice]}).version in SIGNED_VERSIONS:
        for name in ("UBLExtensions", "Signature"):
            if name not in invoice:
                yield ("TooFewItems", f"#/Invoice[0].{name}")


def group_breaches(group, shape, path):
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
            yield from array_breaches(found, shape[name][0], f"{path}.{name}")
        else:
            yield ("NoAdditionalPropertiesAllowed", f"{path}.{name}")


def array_breaches(found, shape, path):
    if not isinstance(found, list):
        yield ("ArrayExpected", path)
    elif not found:
        yield ("TooFewItems", path)
    elif shape != "any":
        breaches = basic_breaches if isinstance(shape, str) else group_breaches
        for index, entry in enumerate(found):
            yield from breaches(entry, shape, f"{path}[{index}]")


def basic_breaches(element, kind, path):
    if not isinstance(element, dict):
        yield ("ObjectExpected", path)
        return
    rule, keeps, required = KINDS[kind]
    for name in ("_", *required):
        if name not in element:
            yield ("PropertyRequired", f"{path}.{name}")
    for name, found in element.items():
        if name == "_" and not keeps(found):
            yield (rule, f"{path}._")
        elif name != "_" and not isinstance(found, str):
            yield ("StringExpected", f"{path}.{name}")

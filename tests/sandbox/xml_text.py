"""Documents of the tests as UBL XML."""

from typing import Any
from xml.sax.saxutils import escape, quoteattr

NAMESPACE = "urn:oasis:names:specification:ubl:schema:xsd:"
HEAD = (
    f'<Invoice xmlns="{NAMESPACE}Invoice-2" xmlns:cac="{NAMESPACE}CommonAggregateComponents-2" '
    f'xmlns:cbc="{NAMESPACE}CommonBasicComponents-2">'
)


def to_xml(root: dict[str, Any], indent: str = "") -> bytes:
    return f"{HEAD}{indent}{_write_group(root['Invoice'][0], indent)}</Invoice>".encode()


def _write_group(members: dict[str, Any], indent: str) -> str:
    return "".join(
        _write_element(name, entry, indent)
        for name, entries in members.items()
        for entry in entries
    )


def _write_element(name: str, members: dict[str, Any], indent: str) -> str:
    if "_" not in members:
        return f"<cac:{name}>{indent}{_write_group(members, indent)}</cac:{name}>{indent}"
    attributes = "".join(
        f" {each}={quoteattr(text)}" for each, text in members.items() if each != "_"
    )
    value = members["_"]
    text = str(value).lower() if isinstance(value, bool) else escape(str(value))
    return f"<cbc:{name}{attributes}>{text}</cbc:{name}>{indent}"

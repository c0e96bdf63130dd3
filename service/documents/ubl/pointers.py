"""The member of a request that an element of the portal's document comes from.

The portal names the element that an error concerns by its path in the document. Portal: 8.4
"""

import re

from service import json_codec
from service.documents.ubl.parties import COLUMNS
from service.json_types import JsonObject

#: Element -> member, of parties, lines, invoices and notes. The longest element that a path begins
#: with applies. A note has its own members before those of an invoice; empty are those that it has
#: from its invoice.
_TABLES: dict[str, dict[str, str]] = json_codec.load_data(__file__)
NOTE = {**_TABLES["invoice"], **_TABLES["note"]}
PARTIES = {"AccountingSupplierParty": "supplier", "AccountingCustomerParty": "buyer"}
#: Codes of self-billed documents, and of invoices. Portal: 12
SELF_BILLED = {"11", "12", "13", "14"}
INVOICES = {"01", "11"}

_LINE = re.compile(r"InvoiceLine(?:\[(\d+|\*)\])?(?:\.|$)")


def locate_errors(errors: list[JsonObject], document_type: str) -> list[JsonObject]:
    """Return the portal's errors with the `pointer` of each that concerns a member of a request."""
    located = [(error, find_pointer(error.get("path") or "", document_type)) for error in errors]
    return [{**error, "pointer": pointer} if pointer else error for error, pointer in located]


def find_pointer(path: str, document_type: str) -> str:
    """Return the JSON Pointer of the member that an element comes from, or an empty text.

    Members of the company, for `PUT /api/companies`, are below `/company`. A path can name several
    elements, of which the first applies.
    """
    element = path.partition(" AND ")[0].strip().lstrip("$#./")
    element = re.sub(r"^Invoice(\[[^\]]*\])?\.?", "", element)
    if line := _LINE.match(element):
        index = line[1] if line[1] and line[1] != "*" else None
        rest = _plain(element[line.end() :])
        return f"/lineItems/{index}{_find(_TABLES['line'], rest)}" if index else "/lineItems"
    head, _, rest = _plain(element).partition(".")
    if head in PARTIES:
        return _find_party(PARTIES[head], rest, document_type)
    return _find(_TABLES["invoice"] if document_type in INVOICES else NOTE, _plain(element))


def _plain(element: str) -> str:
    """Return an element's path without indexes, and without the value at its end."""
    return re.sub(r"\[[^\]]*\]", "", element).removesuffix("._")


def _find_party(role: str, element: str, document_type: str) -> str:
    """Return the member of a party, one of which is the company itself."""
    own = "buyer" if document_type in SELF_BILLED else "supplier"
    found = _find(_TABLES["party"], element)
    if role == own:
        return f"/company/{COLUMNS.get(found, 'address')}" if found else ""
    if document_type not in INVOICES:
        return ""  # the parties of a note are those of its invoice
    return f"/{role}{found}"


def _find(table: dict[str, str], element: str) -> str:
    """Return the value of the longest key that an element begins with, or an empty text."""
    steps = element.split(".")
    prefixes = (".".join(steps[:count]) for count in range(len(steps), 0, -1))
    return next((table[prefix] for prefix in prefixes if prefix in table), "")

"""Step 4: values of code lists, their periods of validity, and states of countries.

Portal: 10.4, 12, 14.4, 14.5
"""

from collections.abc import Iterator
from math import inf
from typing import Any

from service.documents.codes import BUILT_IN

from ..controls import Sandbox
from ..database import Row, sql
from ..document import UblDocument, UblParty, entries
from . import Finding, finding_at
from .elements import with_rule

COUNTRY, STATE = "PostalAddress.Country.IdentificationCode", "PostalAddress.CountrySubentityCode"
NOT_APPLICABLE = "17"

#: Table -> name of its list in messages.
LIST_NAMES = {
    "currencies": "currency",
    "payment_modes": "payment mode",
    "tax_types": "tax type",
    "countries": "country",
    "units": "unit",
    "msic": "MSIC",
    "classifications": "classification",
    "states": "state",
}
#: (table, code) -> (start, end) of the validity in Unix seconds, the end excluded. Portal: 12.2
DATED: dict[tuple[str, str], tuple[float, float]] = {
    ("states", "00"): (-inf, 1748736000),  # until June 2025
}


def check(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    """Yield the findings about codes and addresses."""
    checker = CodeChecker(document, sandbox)
    for path, element in with_rule("list"):
        table, attribute = element.rules["list"], "unitCode" if element.kind == "number" else "_"
        for entry in entries(document.invoice, path):
            is_tariff = table == "classifications" and entry.get("listID", "CLASS") != "CLASS"
            if attribute in entry and not is_tariff:
                yield from checker.check_code(table, entry[attribute], path, attribute)
    for party in (document.supplier, document.buyer, document.recipient):
        yield from checker.check_place(party)


class CodeChecker:
    """The code lists at the time when a document was issued."""

    def __init__(self, document: UblDocument, sandbox: Sandbox) -> None:
        self.issued_at = document.issued_at
        self.code_lists = sandbox.state.code_lists
        self.may_hide_state = document.consolidated and sandbox.controls.consolidated_state_17
        self.dated = DATED | {
            (row["list"], row["code"]): validity(row) for row in sql.code_all(sandbox.db)
        }

    def check_code(
        self, table: str, text: Any, path: str, attribute: str = "_"
    ) -> Iterator[Finding]:
        """Yield a finding if a code is not in its list, or not valid at the time of issue."""
        name, span = LIST_NAMES[table], self.dated.get((table, text))
        listed = self.code_lists.get(table) or BUILT_IN[table].codes
        if span is None and text not in listed:
            message = f"Value {text} is not in the list of {name} codes."
            malay = f"Nilai {text} tiada dalam senarai kod."
            yield finding_at(path, "CV302", message, malay, attribute)
        elif span and not span[0] <= self.issued_at < span[1]:
            message = f"The {name} code {text} was not active when the document was issued."
            malay = f"Kod {text} tidak aktif semasa dokumen dikeluarkan."
            yield finding_at(path, "CF320", message, malay, attribute)

    def check_place(self, party: UblParty) -> Iterator[Finding]:
        """Yield findings about country and state. The core fields check blank ones."""
        country, state, path = party.country, party.text(STATE), f"{party.root}.{STATE}"
        if country:
            unknown = list(self.check_code("countries", country, f"{party.root}.{COUNTRY}"))
            if unknown:
                yield from unknown
                return
        if country not in ("", "MYS"):
            if state in BUILT_IN["states"].codes and state != NOT_APPLICABLE:
                message = f"State {state} is only for the country MYS."
                yield finding_at(path, "CV316", message, f"Negeri {state} hanya untuk MYS.", "_")
        elif state == NOT_APPLICABLE and not self.may_hide_state:
            message = "State 17 is only for consolidated documents and addresses outside Malaysia."
            malay = "Negeri 17 hanya untuk dokumen disatukan dan alamat luar negara."
            yield finding_at(path, "CV317", message, malay, "_")
        elif state:
            yield from self.check_code("states", state, path)


def validity(row: Row) -> tuple[float, float]:
    """Return the limits of the validity of a code; an absent limit is open."""
    start, end = row["active_from"], row["active_to"]
    return -inf if start is None else start, inf if end is None else end

"""Step 4: values of code lists, their periods of validity, and states of countries.

Portal: 10.4, 12, 14.4, 14.5
"""

from collections.abc import Iterator
from dataclasses import dataclass

from service.documents.codes import BUILT_IN

from ..controls import Sandbox
from ..database import Row
from ..document import UblDocument, UblParty, entries
from . import Finding, finding_at
from .elements import with_rule

COUNTRY, STATE = "PostalAddress.Country.IdentificationCode", "PostalAddress.CountrySubentityCode"
NOT_APPLICABLE = "17"
#: Prefix of the number of a document that asks for a finding. Portal: Appendix B
INVALID = "SIM-INVALID-"

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


def check(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    if row["number"].startswith(INVALID):
        yield finding_at("ID", "CV302", "The number asked for an invalid code.", "_")
    checker = CodeChecker(document, sandbox)
    for path, element in with_rule("list"):
        table, attribute = element.rules["list"], "unitCode" if element.kind == "number" else "_"
        for entry in entries(document.invoice, path):
            is_tariff = table == "classifications" and entry.get("listID", "CLASS") != "CLASS"
            if attribute in entry and not is_tariff:
                yield from checker.check_code(table, entry[attribute], path, attribute)
    for party in (document.supplier, document.buyer, document.recipient):
        yield from checker.check_place(party)


@dataclass
class CodeChecker:
    """Compares codes with the lists at the time when a document was issued."""

    document: UblDocument
    sandbox: Sandbox

    def check_code(
        self, table: str, text: str, path: str, attribute: str = "_"
    ) -> Iterator[Finding]:
        """Yield a finding if a code is not in its list, or not valid at the time of issue."""
        name, state = LIST_NAMES[table], self.sandbox.state
        period = state.code_periods.get(table, {}).get(text)
        listed = state.code_lists.get(table) or BUILT_IN[table].codes
        if period is None and text not in listed:
            message = f"Value {text} is not in the list of {name} codes."
            yield finding_at(path, "CV302", message, attribute)
        elif period and not period[0] <= self.document.issued_at < period[1]:
            message = f"The {name} code {text} was not active when the document was issued."
            yield finding_at(path, "CF320", message, attribute)

    def check_place(self, party: UblParty) -> Iterator[Finding]:
        """Yield findings about country and state. The core fields check blank ones."""
        country, state, path = party.country, party.text(STATE), f"{party.root}.{STATE}"
        found = self.check_code("countries", country, f"{party.root}.{COUNTRY}")
        if unknown := list(found) if country else []:
            yield from unknown
        elif country not in ("", "MYS"):
            if state in BUILT_IN["states"].codes and state != NOT_APPLICABLE:
                message = f"State {state} is only for the country MYS."
                yield finding_at(path, "CV316", message, "_")
        elif state == NOT_APPLICABLE and not (
            self.document.consolidated and self.sandbox.controls.consolidated_state_17
        ):
            message = "State 17 is only for consolidated documents and addresses outside Malaysia."
            yield finding_at(path, "CV317", message, "_")
        elif state:
            yield from self.check_code("states", state, path)

"""Check a document by the portal's rules before it is sent. Portal: 14

The day that selects the rules is part of the circumstances. Rules that require the portal's
register are not checked, see docs/portal-checks.md.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from functools import partial
from itertools import islice

from service.documents import codes, states
from service.documents.checks import document, line, party
from service.documents.checks.rule import (
    Case,
    CheckFinding,
    Circumstances,
    Place,
    Rule,
    apply_rule,
    resolve,
)
from service.documents.doubts import find_doubts
from service.documents.money import AmountError
from service.json_types import JsonMapping, JsonObject

Places = Callable[[Case], Iterator[Place]]

PARTY_RULES = (*party.PARTY_RULES, *party.COMMON_RULES)

#: Places of a document and their rules, in the order of the response.
PACK: tuple[tuple[Places, tuple[Rule, ...]], ...] = (
    (document.find_document_places, document.DOCUMENT_RULES),
    (document.find_company_places, document.COMPANY_RULES),
    (party.find_party_places, PARTY_RULES),
    (party.find_recipient_places, (*party.RECIPIENT_RULES, *party.COMMON_RULES)),
    (line.find_line_places, line.LINE_RULES),
    (partial(line.find_entry_places, "classifications"), line.CLASSIFICATION_RULES),
    (partial(line.find_entry_places, "taxDetails"), line.TAX_RULES),
    (document.find_reference_places, document.REFERENCE_RULES),
    (document.find_issue_places, document.ISSUE_RULES),
)

#: Limit of the errors, and of the warnings, in a response.
MAX_ENTRIES = 100

PENDING = CheckFinding(
    "PendingFinalize",
    "/type",
    "The invoice has no buyer or supplier yet and cannot be submitted before it is finalized.",
    stops=True,
)


def check_document(
    source: JsonObject, issuer: JsonMapping, circumstances: Circumstances
) -> list[CheckFinding]:
    """Check the arguments of `document.build`: errors are reasons for the portal to reject them.

    An invoice that waits for its other party has only that finding.
    """
    if source["type"] in states.PENDING_FINALIZE:
        return [PENDING]
    case = Case(source, issuer, circumstances)
    with codes.one_version():
        found = [
            finding
            for find_places, rules in PACK
            for finding in _apply_rules(rules, find_places(case), case.day)
        ]
    return [*found, *_check_amounts(case)]


def check_buyer(buyer: JsonObject, at: datetime) -> list[CheckFinding]:
    """Check a buyer who is not in a document yet, as of a time. Paths begin at the buyer."""
    case = Case({"type": "INVOICE", "buyer": buyer}, {}, Circumstances(at=at, issued_at=at))
    _, place = party.find_party_places(case)
    with codes.one_version():
        return list(_apply_rules(PARTY_RULES, [Place(case, "", *place[2:])], case.day))


def _apply_rules(
    rules: Iterable[Rule], places: Iterable[Place], day: date
) -> Iterator[CheckFinding]:
    current = [rule for rule in rules if rule.since <= day]
    for place in places:
        for rule in current:
            if finding := apply_rule(rule, place):
                yield finding


def _check_amounts(case: Case) -> Iterator[CheckFinding]:
    """Yield the invalid numbers, or without one what is probably wrong, as warnings.

    Absent numbers are reported by the rules of lines.
    """
    if isinstance(case.sums, AmountError):
        for path, message in case.sums.found:
            if resolve(case.source, path) is not None or "/unit/" not in path:
                yield CheckFinding("Amount", path, message, stops=True)
        return
    for doubt in find_doubts(case.source, case.sums.lines, case.issue_day):
        if doubt.holds_for(case.issuer):
            yield CheckFinding(doubt.code, doubt.path, doubt.message, is_warning=True)


def list_errors(found: Iterable[CheckFinding]) -> list[JsonObject]:
    """Return the errors in the shape of the API, up to the limit."""
    return _to_entries(finding for finding in found if not finding.is_warning)


def list_warnings(found: Iterable[CheckFinding]) -> list[JsonObject]:
    """Return the warnings in the shape of the API, up to the limit."""
    return _to_entries(finding for finding in found if finding.is_warning)


def _to_entries(found: Iterable[CheckFinding]) -> list[JsonObject]:
    return [finding.entry() for finding in islice(found, MAX_ENTRIES)]


def can_be_built(found: Iterable[CheckFinding]) -> bool:
    """Return whether `document.build` can build the checked document."""
    return not any(finding.stops for finding in found)

"""What the portal would say of a document, before it is sent: the rule pack held against a record. Portal: 14

No I/O and no clock: the date on which rules are judged is among the circumstances. What only the portal's
register knows is not judged here, see README.
"""

from functools import lru_cache
from itertools import islice

from service.documents import states
from service.documents.checks import address, document, line, party
from service.documents.checks.rule import ERROR, Case, Finding, judged

#: where to look, and the rules that hold there, in the order of the answer
PACK = (
    (document.document_places, document.DOCUMENT_RULES),
    (document.company_places, document.COMPANY_RULES),
    (
        party.party_places,
        (*party.PARTY_RULES, *party.IDENTITY_RULES, *address.ADDRESS_RULES),
    ),
    (
        party.recipient_places,
        (*party.RECIPIENT_RULES, *party.IDENTITY_RULES, *address.ADDRESS_RULES),
    ),
    (line.line_places, line.LINE_RULES),
    (line.classification_places, line.CLASSIFICATION_RULES),
    (line.tax_places, line.TAX_RULES),
    (document.amount_places, document.AMOUNT_RULES),
    (document.reference_places, document.REFERENCE_RULES),
    (document.issue_places, document.ISSUE_RULES),
)

#: An answer lists at most so many errors and warnings; nobody reads on.
MOST = 100

PENDING = Finding(
    ERROR,
    "PendingFinalize",
    "/type",
    "The invoice waits for its buyer and is not final yet.",
    stops=True,
)


def findings(source, issuer, circumstances):
    """The Findings of what `document.build` takes: errors, for which the portal would refuse it, and warnings.

    A document that waits for its other party has only that to be said of it.
    """
    if source["type"] in states.PENDING_FINALIZE:
        return [PENDING]
    case = Case(source, issuer, circumstances)
    return [
        finding
        for places, rules in _pack(case.day)
        for place in places(case)
        for rule in rules
        if (finding := judged(rule, place))
    ]


@lru_cache(maxsize=64)
def _pack(day):
    """The rules that hold on a day, where they look."""
    return tuple(
        (places, tuple(rule for rule in rules if rule.since <= day <= rule.until))
        for places, rules in PACK
    )


def errors(found):
    """For what it would be refused, as an answer tells it."""
    return _told(finding for finding in found if finding.severity == ERROR)


def warnings(found):
    return _told(finding for finding in found if finding.severity != ERROR)


def _told(found):
    return [finding.entry() for finding in islice(found, MOST)]


def can_be_built(found):
    """Whether `document.build` can make a document of what was judged."""
    return not any(finding.stops for finding in found)

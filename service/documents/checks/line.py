"""The portal's rules for lines, their classifications and their taxes.

Portal: 10.8, 12.4, 12.5, 14.3, 14.4
"""

import re
from collections.abc import Iterator

from service.documents.checks.rule import (
    CONSOLIDATED,
    FORMATS_STRICT,
    REQUIRED,
    Case,
    Place,
    Rule,
    coded,
    formed,
    keep_only,
    malformed,
    require,
    require_facts,
)
from service.documents.exclusions import LARGEST_SALE, Business, find_excluded_line
from service.documents.money import EXEMPT, AmountError
from service.documents.ubl import document, elements, lines, parties
from service.documents.ubl.elements import get_object
from service.json_types import JsonMapping, JsonObject

WITHOUT_RATE = {"06", EXEMPT}  # tax types
#: Characters that the portal allows in an exemption reason, and others that the authority's own
#: examples of a reason have. Portal: 10.7
REASON = re.compile(r"[\w .,()-]*")
EXAMPLE_REASON = re.compile(r"[\w .,()/:-]*")
LONGEST_TEXT = 300

#: Classifications that are reserved for self-billed documents. Portal: 10.14
SELF_BILLED = {"033", "034", "035", "036", "037", "045"}


def find_line_places(case: Case) -> Iterator[Place]:
    """Yield the lines, with their amounts (money.LineAmounts, or None if there is an error)."""
    amounts = () if isinstance(case.sums, AmountError) else case.sums.lines
    for index, item in enumerate(case.items):
        sent = {
            "taxExemptionReason": elements.clean_text(item.get("taxExemptionReason"), LONGEST_TEXT),
            "amounts": amounts[index] if amounts else None,
        }
        yield Place(case, f"/lineItems/{index}", item, sent, {"line": index + 1})


def find_entry_places(name: str, case: Case) -> Iterator[Place]:
    """Yield the entries of an array of all lines: their classifications or their taxes."""
    for index, item in enumerate(case.items):
        for position, entry in enumerate(item.get(name) or ()):
            path = f"/lineItems/{index}/{name}/{position}"
            yield Place(case, path, entry, words={"line": index + 1})


def lacks_tax(item: JsonMapping) -> bool:
    """Return whether a line has no tax, a tax without rate, or no reason for its exemption."""
    details: list[JsonObject] = item.get("taxDetails") or []
    incomplete = any(not detail.get("taxType") or _lacks_rate(detail) for detail in details)
    return not details or incomplete or _lacks_reason(item)


def _lacks_rate(detail: JsonMapping) -> bool:
    kind = detail.get("taxType")
    rate = get_object(detail, "taxRate")
    has_rate = "percentage" in rate or "perUnitAmount" in rate
    return bool(kind) and kind not in WITHOUT_RATE and not has_rate


def _lacks_reason(item: JsonMapping) -> bool:
    return lines.is_exempt(item) and not elements.clean_text(item.get("taxExemptionReason"))


def _get_other(place: Place) -> JsonMapping:
    return get_object(place.case.source, "supplier" if place.case.self_billed else "buyer")


def _is_for_public(place: Place) -> bool:
    """Return whether the other party of the document is unnamed."""
    return _get_other(place).get("type") == "GENERAL_PUBLIC"


def _is_named(place: Place) -> bool:
    """Return whether the other party of the document has a TIN of its own."""
    return parties.get_own_tin(_get_other(place)) not in ("", parties.PUBLIC)


def _has_example_reason(place: Place) -> bool:
    text = place.sent_text("/taxExemptionReason")
    return lines.is_exempt(place.given) and EXAMPLE_REASON.fullmatch(text) is not None


def _reports_sales(place: Place) -> bool:
    """Return whether the lines are sales to the public that the client itself consolidated."""
    own_types = ("INVOICE", "SELF_BILLED_INVOICE")
    return place.case.source["type"] in own_types and _is_for_public(place)


def _is_large_sale(place: Place) -> bool:
    amounts = place.sent["amounts"]
    return (
        amounts is not None
        and place.case.currency == document.HOME_CURRENCY
        and _reports_sales(place)
        and amounts.net + amounts.tax > LARGEST_SALE.amount
    )


def _find_activity(place: Place) -> str | None:
    """Return why a sale to the public must not be consolidated, or None."""
    if not _reports_sales(place):
        return None
    case = place.case
    business = Business(case.issuer.get("msic_code") or "", case.self_billed)
    exclusion = find_excluded_line([place.given], business, case.issue_day, place.words["line"])
    return exclusion and f"{exclusion.reason} {business.remedy}"


LINE_RULES = (
    *require_facts("line", "The {} of line {{line}} is missing."),
    Rule(
        REQUIRED,
        "/taxExemptionReason",
        lambda place: _lacks_reason(place.given),
        "Line {line} is tax exempt and requires the reason of the exemption.",
        stops=True,
    ),
    formed(
        "/taxExemptionReason",
        EXAMPLE_REASON,
        "The exemption reason of line {line} may contain only letters, digits, spaces and .-,().",
        applies=lambda place: lines.is_exempt(place.given),
        repair=keep_only(r"\w .,()/:-", "-"),
    ),
    Rule(
        "ExemptionReason",
        "/taxExemptionReason",
        malformed("/taxExemptionReason", REASON, _has_example_reason),
        "The exemption reason of line {line} has / or :, which the portal's field list does not "
        "allow, although examples of the authority have them.",
        FORMATS_STRICT,
        is_warning=True,
    ),
    Rule(
        "ERR236",
        "/classifications",
        lambda place: (
            _is_for_public(place)
            and not place.lacks("/classifications")
            and place.value("/classifications") != [CONSOLIDATED]
        ),
        "Every line of a document for the general public must have the classification "
        f"{CONSOLIDATED} and no other; line {{line}} has not.",
    ),
    *coded("units", "/unit/code", FORMATS_STRICT),
    *coded("countries", "/originCountry"),
    Rule(
        "LargeSale",
        "",
        _is_large_sale,
        f"Line {{line}} exceeds RM {LARGEST_SALE.amount:,}: a single sale of that size requires "
        "its own invoice.",
        LARGEST_SALE.since,
        is_warning=True,
    ),
    Rule("Activity", "/classifications", _find_activity, is_warning=True),
)

CLASSIFICATION_RULES = (
    *coded("classifications"),
    Rule(
        "Classification",
        "",
        lambda place: (
            place.given == CONSOLIDATED
            and not _is_for_public(place)
            and (_is_named(place) or not place.case.is_consolidated)
        ),
        f"Line {{line}} has the classification {CONSOLIDATED}, which is reserved for consolidated "
        "documents and required on all of their lines.",
        is_warning=True,
    ),
    Rule(
        "Classification",
        "",
        lambda place: place.given in SELF_BILLED and not place.case.self_billed,
        "The classification of line {line} is reserved for self-billed documents.",
        is_warning=True,
    ),
)

TAX_RULES = (
    require("/taxType", "A tax of line {line} has no type."),
    Rule(
        REQUIRED,
        "/taxRate",
        lambda place: _lacks_rate(place.given),
        "A tax of line {line} has no rate.",
        stops=True,
    ),
    *coded("tax_types", "/taxType"),
)

"""The portal's rules of lines, of their classifications and of their taxes. Portal: 10.8, 12.4, 12.5, 14.3, 14.4"""

import re
from decimal import Decimal

from service.documents import codes
from service.documents.checks.rule import (
    CONSOLIDATED,
    FORMAT,
    FORMATS_STRICT,
    LARGE_SALES_APART,
    REQUIRED,
    WARNING,
    Place,
    Rule,
)
from service.documents.money import EXEMPT, AmountError
from service.documents.ubl import document, elements, lines

#: Tax types that have no rate to give.
WITHOUT_RATE = {"06", EXEMPT}
RATES = {"percentage", "perUnitAmount"}

TARIFF = re.compile(r"[0-9A-Za-z.]{1,12}")
REASON = re.compile(r"[\w .,()-]*")
LONGEST_TEXT = 300
LARGEST_SALE = Decimal(10_000)  # of the general public, in MYR. Portal: 13
DECIMALS_OF_COUNT = 5

#: Classifications of self-billed documents only. Portal: 10.14
SELF_BILLED = {"033", "034", "035", "036", "037", "045"}


def line_places(case):
    """Each line, with its amounts as money.LineAmounts where the document has amounts."""
    amounts = () if isinstance(case.sums, AmountError) else case.sums.lines
    for index, item in enumerate(case.items):
        sent = {
            "reason": elements.text(item.get("taxExemptionReason"), LONGEST_TEXT),
            "amounts": amounts[index] if amounts else None,
        }
        yield Place(case, f"/lineItems/{index}", item, sent, {"line": index + 1})


def classification_places(case):
    for index, item in enumerate(case.items):
        for position, code in enumerate(item.get("classifications") or ()):
            yield Place(
                case,
                f"/lineItems/{index}/classifications/{position}",
                code,
                words={"line": index + 1},
            )


def tax_places(case):
    for index, item in enumerate(case.items):
        for position, detail in enumerate(item.get("taxDetails") or ()):
            yield Place(
                case, f"/lineItems/{index}/taxDetails/{position}", detail, words={"line": index + 1}
            )


def lacks_tax(item):
    """Whether the line lacks a tax, the rate of one, or the reason of an exemption: then its tax is not known."""
    details = item.get("taxDetails") or ()
    without = any(not detail.get("taxType") or _lacks_rate(detail) for detail in details)
    return not details or without or _lacks_reason(item)


def _lacks_rate(detail):
    kind = detail.get("taxType")
    return (
        bool(kind) and kind not in WITHOUT_RATE and not (detail.get("taxRate") or {}).keys() & RATES
    )


def _lacks_reason(item):
    return lines.is_exempt(item) and not elements.text(item.get("taxExemptionReason"))


def _unlisted(table, member=""):
    """(whether a code is in none of the table, the words for it)."""

    def refuses(place):
        code = place.value(member)
        return isinstance(code, str) and code != "" and not codes.is_known(table, code)

    return refuses, lambda place: codes.wording(table, place.value(member))


def too_young(table, member=""):
    """(whether a code came into force only after the issue day, the words for it). Portal: 14.5"""

    def refuses(place):
        code = place.value(member)
        begins = codes.begins(table, code) if isinstance(code, str) else None
        return begins is not None and begins > place.case.issue_day

    return (
        refuses,
        lambda place: (
            f'"{place.value(member)}" of the table of {table} is in force since {codes.begins(table, place.value(member))}, '
            "after the document was issued."
        ),
    )


def coded(table, member="", since=None):
    """The two rules of a member that holds a code."""
    refuses, words = _unlisted(table, member)
    young, young_words = too_young(table, member)
    dated = {"since": since} if since else {}
    return Rule("CV302", member, refuses, words, **dated), Rule(
        "CF320", member, young, young_words, **dated
    )


def _is_for_public(place):
    """Whether the document's other party stays unnamed."""
    other = place.case.source.get("supplier" if place.case.self_billed else "buyer") or {}
    return other.get("type") == "GENERAL_PUBLIC"


def _tariff(place):
    kept = re.sub(r"[^0-9A-Za-z.]", "", place.value("/tariffCode"))
    return kept if TARIFF.fullmatch(kept) else None


def _is_bad_tariff(place):
    code = elements.text(place.value("/tariffCode"))
    return code != "" and not TARIFF.fullmatch(code)


def _plain_reason(place):
    """The reason with a hyphen for every other character, a blank for what stands between words."""
    return " ".join(re.sub(r"[^\w .,()-]+", "-", place.sent["reason"]).split())


def _is_large_sale(place):
    amounts = place.sent["amounts"]
    ours = place.case.source["type"].startswith("CONSOLIDATED_") or place.case.is_note
    if (
        ours
        or amounts is None
        or place.case.currency != document.HOME_CURRENCY
        or not _is_for_public(place)
    ):
        return False
    return amounts.net + amounts.tax > LARGEST_SALE


def _has_fine_count(place):
    count = place.value("/unit/count")
    return (
        isinstance(count, Decimal)
        and count.is_finite()
        and count.normalize().as_tuple().exponent < -DECIMALS_OF_COUNT
    )


#: member of a line, what it is, the code when it is absent
FACTS = (
    ("/description", "description", REQUIRED),
    ("/classifications", "classification", "CF364"),
    ("/unit/price", "unit price", REQUIRED),
    ("/unit/count", "count", REQUIRED),
    ("/taxDetails", "tax type", REQUIRED),
)


def _lacking(member):
    return lambda place: place.lacks(member)


LINE_RULES = (
    *(
        Rule(
            code, member, _lacking(member), f"The {words} of line {{line}} is missing.", stops=True
        )
        for member, words, code in FACTS
    ),
    Rule(
        REQUIRED,
        "/taxExemptionReason",
        lambda place: _lacks_reason(place.given),
        "Line {line} is exempt and needs the reason.",
        stops=True,
    ),
    Rule(
        FORMAT,
        "/taxExemptionReason",
        lambda place: lines.is_exempt(place.given) and not REASON.fullmatch(place.sent["reason"]),
        "The reason of the exemption of line {line} may have letters, digits, blanks and . - , ( ) only.",
        FORMATS_STRICT,
        cure=_plain_reason,
    ),
    Rule(
        "ERR236",
        "/classifications",
        lambda place: (
            _is_for_public(place)
            and not place.lacks("/classifications")
            and place.value("/classifications") != [CONSOLIDATED]
        ),
        f"A document for the general public has the classification {CONSOLIDATED}, and no other, on every line; "
        "line {line} has not.",
    ),
    *coded("units", "/unit/code", FORMATS_STRICT),
    *coded("countries", "/originCountry"),
    Rule(
        FORMAT,
        "/tariffCode",
        _is_bad_tariff,
        "The tariff code of line {line} has to be at most 12 letters, digits and dots.",
        FORMATS_STRICT,
        cure=_tariff,
    ),
    Rule(
        "LargeSale",
        "",
        _is_large_sale,
        "Line {line} is of more than RM 10,000: a single sale of that size needs an invoice of its own.",
        LARGE_SALES_APART,
        severity=WARNING,
    ),
    Rule(
        "Count",
        "/unit/count",
        _has_fine_count,
        "The portal asks for counts of at most 5 decimals; line {line} has more.",
        severity=WARNING,
    ),
)

CLASSIFICATION_RULES = (
    *coded("classifications"),
    Rule(
        "Classification",
        "",
        lambda place: (
            place.given == CONSOLIDATED
            and not place.case.is_consolidated
            and not _is_for_public(place)
        ),
        f"The classification {CONSOLIDATED} of line {{line}} is for consolidated documents, and there for every line.",
        severity=WARNING,
    ),
    Rule(
        "Classification",
        "",
        lambda place: place.given in SELF_BILLED and not place.case.self_billed,
        "The classification of line {line} is for self-billed documents.",
        severity=WARNING,
    ),
)

TAX_RULES = (
    Rule(
        REQUIRED,
        "/taxType",
        lambda place: place.lacks("/taxType"),
        "Line {line} has a tax without its type.",
        stops=True,
    ),
    Rule(
        REQUIRED,
        "/taxRate",
        lambda place: _lacks_rate(place.given),
        "Line {line} has a tax without its rate.",
        stops=True,
    ),
    *coded("tax_types", "/taxType"),
)

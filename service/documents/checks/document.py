"""The portal's rules of a document as a whole: its head, references and payment, and when it is sent. Portal: 10.2, 10.6"""

import re
from datetime import date, timedelta
from decimal import Decimal

from service.documents import codes
from service.documents.checks.line import coded
from service.documents.checks.rule import (
    DISCLOSURE,
    FORMAT,
    FORMATS_STRICT,
    RATE_MANDATORY,
    REQUIRED,
    WARNING,
    Place,
    Rule,
    at,
)
from service.documents.money import AmountError
from service.documents.states import ISSUE_WINDOW
from service.documents.ubl import document, elements, parties

LONGEST_NUMBER, LONGEST_RATE, LONGEST_ACCOUNT, LONGEST_FREQUENCY = 50, 15, 150, 50
#: Under so much time of the issue window left, we say so.
WINDOW_CLOSING = timedelta(hours=12)

#: kind of a reference -> the most characters of its id. Portal: 10.2
REFERENCES = {"BILL": 150, "CUSTOMS_FORM": 1000, "FTA": 50, "K2": 1000, "INCOTERMS": 3}
LONGEST_AGREEMENT = 300
AGREEMENT = re.compile(r"[A-Za-z0-9 ()-]*")
EXPORTER = re.compile(r"[\w -]{0,300}")
IMPORT = "034"


def document_places(case):
    yield Place(
        case,
        "",
        case.source,
        words={"currency": case.currency, "number": case.circumstances.number},
    )


def issue_places(case):
    """The issue time, whose member has another name in a note."""
    yield Place(case, case.issue_member, case.source)


def company_places(case):
    """What the company says of itself as a supplier only. Portal: 10.2, 10.6"""
    if not case.self_billed:
        yield Place(
            case, "/company", case.issuer, words={"payment": case.source.get("payment") or {}}
        )


def amount_places(case):
    """The number that makes no amount, if there is one; the absence of one is told by the line."""
    absent = isinstance(case.sums, AmountError) and at(case.source, case.sums.path) is None
    if isinstance(case.sums, AmountError) and not (absent and "/unit/" in case.sums.path):
        yield Place(case, case.sums.path, case.source)


def reference_places(case):
    for index, reference in enumerate(case.source.get("references") or ()):
        kind = reference.get("type")
        words = {"kind": kind, "most": REFERENCES.get(kind, max(REFERENCES.values()))}
        yield Place(case, f"/references/{index}", reference, words=words)


def _instant(at):
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _now(place):
    return _instant(place.case.circumstances.at)


def _beside(place):
    """The issue time moved by a second, back where it would lie in the future."""
    facts = place.case.circumstances
    later = facts.issued_at + timedelta(seconds=1)
    return _instant(later if later <= facts.at else facts.issued_at - timedelta(seconds=1))


def _left(place):
    """What is left of the issue window."""
    facts = place.case.circumstances
    return facts.issued_at + ISSUE_WINDOW - facts.at


def _is_abroad(place):
    return place.case.currency != document.HOME_CURRENCY


def _written(place):
    return format(Decimal(place.value("/exchangeRate") or 0), "f")


def _shorter_rate(place):
    """The rate rounded to as many decimals as fit."""
    whole = _written(place).partition(".")[0]
    decimals = LONGEST_RATE - len(whole) - 1
    shorter = round(Decimal(place.value("/exchangeRate")), decimals) if decimals > 0 else 0
    return shorter if shorter > 0 else None


def _is_of_another(place):
    """Whether another taxpayer, as the portal sees it, issued what the note adjusts. Portal: 10.11"""
    issuer = place.case.circumstances.original_tin
    return issuer is not None and issuer != parties.own_tin(
        {"tin": place.case.issuer.get("tin_code")}
    )


def _kinds(place):
    return {reference.get("type") for reference in place.value("/references") or ()}


def _is_reversed(place):
    """Whether the billing period ends before it starts."""
    try:
        start, end = (
            date.fromisoformat(place.value(f"/billingPeriod/{name}") or "")
            for name in ("start", "end")
        )
    except ValueError:
        return False
    return end < start


def _is_too_long(member, most):
    return lambda place: len(elements.text(place.value(member))) > most


def _is_form_only(table):
    """Whether all that is known of a table is the form of its codes."""
    return table not in codes.TABLES


DOCUMENT_RULES = (
    Rule(
        REQUIRED,
        "/lineItems",
        lambda place: place.lacks("/lineItems"),
        "The document has no line.",
        stops=True,
    ),
    Rule(
        "DR303",
        "/targetInvoiceType",
        lambda place: place.case.is_note and place.lacks("/originals"),
        "The document that the note adjusts is not Valid at the portal.",
        stops=True,
    ),
    Rule(
        "OriginalIssuer",
        "/targetInvoiceType",
        _is_of_another,
        "The document that the note adjusts was issued under another TIN than the company has now.",
    ),
    Rule(
        REQUIRED,
        "/exchangeRate",
        lambda place: _is_abroad(place) and not place.value("/exchangeRate"),
        "A document in {currency} needs its exchange rate to MYR.",
        RATE_MANDATORY,
        stops=True,
    ),
    Rule(
        FORMAT,
        "/exchangeRate",
        lambda place: _is_abroad(place) and len(_written(place)) > LONGEST_RATE,
        "The exchange rate has more than 15 characters.",
        FORMATS_STRICT,
        cure=_shorter_rate,
    ),
    *coded("currencies", "/currencyCode"),
    Rule(
        FORMAT,
        "/code",
        lambda place: len(place.case.circumstances.number) > LONGEST_NUMBER,
        'The number "{number}" has more than 50 characters.',
    ),
    Rule(
        "Version",
        "",
        lambda place: (
            place.case.circumstances.version in ("1.2", "1.3")
            and not DISCLOSURE[0] <= place.case.day <= DISCLOSURE[1]
        ),
        f"Documents of the versions 1.2 and 1.3 are taken from {DISCLOSURE[0]} to {DISCLOSURE[1]} only.",
    ),
    *coded("payment_modes", "/payment/mode"),
    Rule(
        FORMAT,
        "/payment/bankAccount",
        _is_too_long("/payment/bankAccount", LONGEST_ACCOUNT),
        "The bank account has more than 150 characters.",
        FORMATS_STRICT,
    ),
    Rule(
        FORMAT,
        "/billingPeriod/frequency",
        _is_too_long("/billingPeriod/frequency", LONGEST_FREQUENCY),
        "The billing frequency has more than 50 characters.",
        FORMATS_STRICT,
    ),
    Rule(
        "BillingPeriod",
        "/billingPeriod/end",
        _is_reversed,
        "The billing period ends before it starts.",
        severity=WARNING,
    ),
    Rule(
        "CustomsForm",
        "/references",
        lambda place: (
            place.case.self_billed
            and "CUSTOMS_FORM" not in _kinds(place)
            and any(IMPORT in (item.get("classifications") or ()) for item in place.case.items)
        ),
        "An import of goods refers to its customs form.",
        severity=WARNING,
    ),
    Rule(
        "ListNotLoaded",
        "/lineItems",
        lambda place: _is_form_only("units"),
        "The portal's list of units is not loaded: unit codes are held against their form only.",
        severity=WARNING,
    ),
    Rule(
        "ListNotLoaded",
        "",
        lambda place: _is_form_only("msic"),
        "The portal's list of MSIC codes is not loaded: they are held against their form only.",
        severity=WARNING,
    ),
)

ISSUE_RULES = (
    Rule(
        "CF321",
        "",
        lambda place: place.case.circumstances.issued_at > place.case.circumstances.at,
        "The issue time lies in the future.",
        cure=_now,
    ),
    Rule(
        "CF321",
        "",
        lambda place: _left(place) < timedelta(),
        "The issue time is more than 72 hours ago.",
        cure=_now,
    ),
    Rule(
        "DV302",
        "",
        lambda place: place.case.circumstances.twin is not None,
        lambda place: (
            "The portal was sent a document of the same type, number and issue time within the last two hours: "
            f"{place.case.circumstances.twin}."
        ),
        cure=_beside,
    ),
    Rule(
        "IssueWindow",
        "",
        lambda place: timedelta() <= _left(place) < WINDOW_CLOSING,
        "The document is not taken any more when it is 72 hours old, in less than 12 hours.",
        severity=WARNING,
    ),
)

COMPANY_RULES = (
    Rule(
        FORMAT,
        "/exporter_certified_number",
        lambda place: (
            not EXPORTER.fullmatch(elements.text(place.value("/exporter_certified_number")))
        ),
        "The number of the certified exporter has to be at most 300 letters, digits, blanks and hyphens.",
        FORMATS_STRICT,
    ),
    Rule(
        FORMAT,
        "/bank_account",
        lambda place: (
            bool(place.words["payment"])
            and not elements.text(place.words["payment"].get("bankAccount"))
            and len(elements.text(place.value("/bank_account"))) > LONGEST_ACCOUNT
        ),
        "The bank account of the company has more than 150 characters.",
        FORMATS_STRICT,
    ),
)

AMOUNT_RULES = (
    Rule("Amount", "", lambda place: True, lambda place: str(place.case.sums), stops=True),
)

REFERENCE_RULES = (
    Rule(
        FORMAT,
        "/id",
        lambda place: len(elements.text(place.value("/id"))) > place.words["most"],
        "The reference {kind} has more than {most} characters.",
        FORMATS_STRICT,
    ),
    Rule(
        FORMAT,
        "/description",
        lambda place: (
            place.value("/type") == "FTA"
            and not AGREEMENT.fullmatch(
                elements.text(place.value("/description"), LONGEST_AGREEMENT)
            )
        ),
        "The name of a free trade agreement has letters, digits, blanks, hyphens and ( ) only.",
        FORMATS_STRICT,
        cure=lambda place: " ".join(
            re.sub(
                "[^A-Za-z0-9 ()-]+",
                " ",
                elements.text(place.value("/description"), LONGEST_AGREEMENT),
            ).split()
        ),
    ),
)

"""The portal's rules for a document as a whole: header, references, payment and issue time.

Portal: 10.2, 10.6
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

from service.documents.checks.rule import (
    FORMAT,
    FORMATS_STRICT,
    RATE_MANDATORY,
    REQUIRED,
    Case,
    Place,
    Rule,
    coded,
    formed,
    keep_only,
    require,
)
from service.documents.states import ISSUE_WINDOW
from service.documents.ubl import document, elements, parties
from service.documents.ubl.elements import get_object
from service.json_types import JsonObject

LONGEST_RATE, LONGEST_AGREEMENT = 15, 300
#: A document is reported if it has less than this until the end of its issue window.
WINDOW_CLOSING = timedelta(hours=12)
TOO_OLD = "The issue time is more than 72 hours ago."

ACCOUNT = re.compile(r".{0,150}", re.DOTALL)
AGREEMENT = re.compile(r"[A-Za-z0-9 ()-]*")
INCOTERMS = re.compile(r"[A-Za-z0-9]*")
EXPORTER = re.compile(r"[\w -]{0,300}")
IMPORT = "034"  # classification


def find_document_places(case: Case) -> Iterator[Place]:
    yield Place(case, "", case.source, words={"currency": case.currency})


def find_issue_places(case: Case) -> Iterator[Place]:
    """Yield the issue time, whose member has another name in a note."""
    yield Place(case, case.issue_member, case.source)


def find_company_places(case: Case) -> Iterator[Place]:
    """Yield the facts of the company that a document has only of a supplier. Portal: 10.2, 10.6"""
    if not case.self_billed:
        texts = ("exporter_certified_number", "bank_account")
        sent = {name: elements.clean_text(case.issuer.get(name)) for name in texts}
        yield Place(case, "/company", case.issuer, sent)


def find_reference_places(case: Case) -> Iterator[Place]:
    references: list[JsonObject] = case.source.get("references") or []
    for index, reference in enumerate(references):
        sent = {
            "id": elements.clean_text(reference.get("id")),
            "description": elements.clean_text(reference.get("description"), LONGEST_AGREEMENT),
        }
        yield Place(case, f"/references/{index}", reference, sent)


def _format_instant(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _get_now(place: Place) -> str:
    return _format_instant(place.case.circumstances.at)


def _shift_issue_time(place: Place) -> str:
    """Return the issue time moved by a second, backwards if it would be in the future."""
    facts = place.case.circumstances
    later = facts.issued_at + timedelta(seconds=1)
    return _format_instant(later if later <= facts.at else facts.issued_at - timedelta(seconds=1))


def _find_duplicate(place: Place) -> str | None:
    uuid = place.case.circumstances.duplicate
    return uuid and (
        "A document of the same type, number and issue time was submitted to the portal within "
        f"the last two hours: {uuid}."
    )


def _get_time_left(place: Place) -> timedelta:
    """Return the time until the end of the issue window."""
    facts = place.case.circumstances
    return facts.issued_at + ISSUE_WINDOW - facts.at


def _is_foreign(place: Place) -> bool:
    return place.case.currency != document.HOME_CURRENCY


def _format_rate(place: Place) -> str:
    return format(Decimal(place.value("/exchangeRate") or 0), "f")


def _shorten_rate(place: Place) -> Decimal | None:
    """Return the rate rounded to the number of decimals that fit."""
    whole = _format_rate(place).partition(".")[0]
    decimals = LONGEST_RATE - len(whole) - 1
    if decimals <= 0:
        return None
    shorter = round(Decimal(place.value("/exchangeRate")), decimals)
    return shorter if shorter > 0 else None


def _has_other_issuer(place: Place) -> bool:
    """Return whether a note adjusts a document with the TIN of another issuer. Portal: 10.11"""
    own_tin = parties.normalize_tin(place.case.issuer.get("tin_code"))
    return any(each.get("tin", own_tin) != own_tin for each in place.value("/originals") or ())


def _is_import_without_form(place: Place) -> bool:
    """Return whether a document has a line with imported goods and no customs form."""
    references: list[JsonObject] = place.value("/references") or []
    return (
        place.case.self_billed
        and "CUSTOMS_FORM" not in {reference.get("type") for reference in references}
        and any(IMPORT in (item.get("classifications") or ()) for item in place.case.items)
    )


def _uses_own_account(place: Place) -> bool:
    """Return whether the payment has the company's bank account."""
    payment = get_object(place.case.source, "payment")
    return bool(payment) and not elements.clean_text(payment.get("bankAccount"))


DOCUMENT_RULES = (
    require("/lineItems", "The document has no lines."),
    Rule(
        "DR303",
        "/targetInvoiceType",
        lambda place: place.case.is_note and place.lacks("/originals"),
        "The document that the note adjusts is not Valid in the portal.",
        stops=True,
    ),
    Rule(
        "OriginalIssuer",
        "/targetInvoiceType",
        _has_other_issuer,
        "The company's TIN differs from that of the issuer of the document that the note adjusts.",
    ),
    Rule(
        REQUIRED,
        "/exchangeRate",
        lambda place: _is_foreign(place) and not place.value("/exchangeRate"),
        "A document in {currency} requires the exchange rate to MYR.",
        RATE_MANDATORY,
        stops=True,
    ),
    Rule(
        FORMAT,
        "/exchangeRate",
        lambda place: _is_foreign(place) and len(_format_rate(place)) > LONGEST_RATE,
        "The exchange rate must have at most 15 characters.",
        FORMATS_STRICT,
        fix=_shorten_rate,
    ),
    *coded("currencies", "/currencyCode"),
    *coded("payment_modes", "/payment/mode"),
    Rule(
        "CustomsForm",
        "/references",
        _is_import_without_form,
        "An import of goods should have a reference to its customs form.",
        is_warning=True,
    ),
)

ISSUE_RULES = (
    Rule(
        "CF321",
        "",
        lambda place: place.case.circumstances.issued_at > place.case.circumstances.at,
        "The issue time must not be in the future. A time without an offset is read as UTC.",
        fix=_get_now,
    ),
    Rule("CF321", "", lambda place: _get_time_left(place) < timedelta(), TOO_OLD, fix=_get_now),
    Rule("DV302", "", _find_duplicate, fix=_shift_issue_time),
    Rule(
        "IssueWindow",
        "",
        lambda place: timedelta() <= _get_time_left(place) < WINDOW_CLOSING,
        "The document must be submitted within 72 hours of its issue; less than 12 hours are left.",
        is_warning=True,
    ),
)

COMPANY_RULES = (
    formed(
        "/exporter_certified_number",
        EXPORTER,
        "The certified exporter number must have at most 300 letters, digits, spaces and hyphens.",
    ),
    formed(
        "/bank_account",
        ACCOUNT,
        "The bank account of the company must have at most 150 characters.",
        applies=_uses_own_account,
    ),
)

REFERENCE_RULES = (
    formed(
        "/id",
        INCOTERMS,
        "The incoterms may contain only letters and digits.",
        applies=lambda place: place.value("/type") == "INCOTERMS",
    ),
    formed(
        "/description",
        AGREEMENT,
        "The name of a free trade agreement may contain only letters, digits, spaces, - and ( ).",
        applies=lambda place: place.value("/type") == "FTA",
        repair=keep_only("A-Za-z0-9 ()-", " "),
    ),
)

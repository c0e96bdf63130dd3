"""The portal's rules for parties and their addresses, including the recipient of a delivery.

Portal: 10.3, 10.4, 12.2, 12.9, 14.3, 14.4, 14.6
"""

import re
from collections.abc import Iterator

from service.documents.checks.rule import (
    FORMAT,
    FORMATS_STRICT,
    REGISTER_STRICT,
    REMOVED,
    REQUIRED,
    STATES_STRICT,
    Case,
    Place,
    Rule,
    coded,
    formed,
    is_public,
    keep_only,
    malformed,
    require_facts,
)
from service.documents.ubl import document, parties, reader
from service.documents.ubl.elements import get_object
from service.documents.ubl.parties import Party

#: The number of digits of a TIN is not published. Portal: 3.2
TIN = re.compile(
    r"(?!.{15})(IG[0-9]+|(C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)[1-9][0-9]*0|EI0{9}[1-4]0)"
)
_TIN_PARTS = re.compile(r"(OG|SG|IG|C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)(0*)([0-9]+)")
PHONE = re.compile(r"\+?[0-9]+")
SHORTEST_PHONE, LONGEST_PHONE = 8, 20
#: The parts between dots are not empty. Portal: 10.3
MAIL = re.compile(r"[^\s@.]+(\.[^\s@.]+)*@[^\s@.]+(\.[^\s@.]+)+")
ONE_MAIL = re.compile(r"[^\s,;]+")
NRIC = re.compile(r"[0-9]{12}|NA")
POSTCODE = re.compile(r"[0-9]{1,5}")
BUSINESS = re.compile(r"[0-9]{12}")
SST = re.compile(r"[A-Za-z0-9-]+(;[A-Za-z0-9-]+)?")
TOURISM = re.compile(r"[A-Za-z0-9-]+")
#: Code of a postcode that the portal accepts, although no postcode in Malaysia is so short.
SHORT_POSTCODE = "Postcode"


def find_party_places(case: Case) -> Iterator[Place]:
    both = document.get_parties(case.source, case.issuer)
    for side, (role, party) in enumerate(zip(("supplier", "buyer"), both, strict=False)):
        is_issuer = case.self_billed == (side == 1)
        (built,) = parties.build_buyer(party) if side else parties.build_supplier(party)
        yield Place(
            case=case,
            path=f"/{role}",
            given=party,
            sent=reader.read_party(built),
            words={"who": "company" if is_issuer else role},
            columns=parties.COLUMNS if is_issuer else None,
            side=side,
            waived=_get_waived(party, side, is_issuer),
        )


def find_recipient_places(case: Case) -> Iterator[Place]:
    """Yield the recipient of the delivery, if any. Portal: 10.5"""
    recipient = get_object(case.source, "delivery")
    if recipient:
        built = parties.build_recipient(recipient) or [{}]
        sent = reader.read_party(built[0])
        yield Place(case, "/delivery", recipient, sent, {"who": "recipient of the delivery"})


def _get_waived(party: Party, side: int, is_issuer: bool) -> frozenset[str]:
    """Return the members that this party may lack. Portal: 10.4, 10.14, 12.9"""
    kind, tins = party.get("type"), parties.BUYER_TINS if side else parties.SUPPLIER_TINS
    has_line_only = parties.has_state_only(get_object(party, "address"))
    waivers = {
        "/tin": parties.get_general_tin(party, tins) or not (is_issuer or party.get("type")),
        "/registration/number": not is_issuer
        and (parties.get_own_tin(party) or kind != "LOCAL_INDIVIDUAL"),
        "/address/city": has_line_only,
        "/address/state": parties.is_abroad(get_object(party, "address")),
        "/address/country": has_line_only,
        "/msic": side or kind in parties.NO_TRADE,
        "/businessActivityDescription": side or parties.get_industry(party)[1],
    }
    return frozenset(member for member, is_waived in waivers.items() if is_waived)


def _is_home(place: Place) -> bool:
    return not parties.is_abroad(get_object(place.given, "address"))


def _is_nameless(place: Place) -> bool:
    """Return whether a party has the TIN of the general public but no personal number.

    Portal: 12.9
    """
    is_person = (
        place.sent_text("/registration/type") in parties.PERSONAL
        and place.sent_text("/registration/number") != parties.NOT_GIVEN
    )
    return place.sent_text("/tin") == parties.PUBLIC and not is_person


def _is_general_public(place: Place) -> bool:
    """Return whether a party would be sent as the general public. Portal: 10.13"""
    return (
        place.sent_text("/tin") == parties.PUBLIC
        and place.sent_text("/registration/number") == parties.NOT_GIVEN
    )


def _has_bad_phone(place: Place) -> bool:
    """Return whether a phone number is malformed, or NA for a buyer with a name. Portal: 10.3"""
    phone = place.sent_text("/contactNumber")
    if phone == parties.NOT_GIVEN:
        return place.side == 1 and not _is_general_public(place)
    return phone != "" and not PHONE.fullmatch(phone)


def _has_bad_phone_length(place: Place) -> bool:
    phone = place.sent_text("/contactNumber")
    return bool(PHONE.fullmatch(phone)) and not SHORTEST_PHONE <= len(phone) <= LONGEST_PHONE


def _has_bad_mail(place: Place) -> bool:
    mail = place.sent_text("/email")
    may_be_absent = mail == parties.NOT_GIVEN and _is_general_public(place)
    return bool(ONE_MAIL.fullmatch(mail)) and not may_be_absent and not MAIL.fullmatch(mail)


def _fix_phone(place: Place) -> str | None:
    """Keep the plus and the digits of a number without letters, which may be an extension."""
    given = place.value("/contactNumber")
    kept = ("+" if given.strip().startswith("+") else "") + re.sub("[^0-9]", "", given)
    has_letters = re.search("[A-Za-z]", given) is not None
    return kept if not has_letters and SHORTEST_PHONE <= len(kept) <= LONGEST_PHONE else None


def _fix_mail(place: Place) -> object:
    """Return the first valid one of several addresses, or REMOVED if there is none."""
    parts = re.split(r"[\s;,<>]+", place.value("/email"))
    return next(filter(MAIL.fullmatch, parts), REMOVED)


def _fix_tin(place: Place) -> str | None:
    """Replace old prefixes of individuals, drop leading zeros, add the final zero. Portal: 3.2"""
    parts = _TIN_PARTS.fullmatch(place.sent_text("/tin"))
    if not parts:
        return None
    prefix, zeros, digits = parts.groups()
    if prefix in ("OG", "SG", "IG"):
        tin = "IG" + zeros + digits
    else:
        tin = prefix + digits + ("" if digits.endswith("0") else "0")
    return tin if TIN.fullmatch(tin) else None


PARTY_RULES = (
    Rule(
        REQUIRED,
        "/type",
        lambda place: not place.columns and place.lacks("/type") and place.lacks("/tin"),
        "The type of the {who} is missing. It decides whether a TIN is needed.",
        stops=True,
    ),
    *require_facts("party", "The {} of the {{who}} is missing."),
    Rule(
        (FORMAT, "ERR406"),
        "/tin",
        malformed("/tin", TIN),
        "The TIN of the {who} must be a prefix and digits that end in 0, or IG and digits.",
        fix=_fix_tin,
    ),
    Rule(
        "ERR206",
        "/registration/number",
        lambda place: (
            place.sent_text("/registration/number") == parties.NOT_GIVEN
            and not place.sent_text("/tin").startswith("EI")
            and place.sent_text("/tin") != ""
        ),
        "The {who} has its own TIN and requires its own registration number instead of NA.",
        fix=lambda place: None if place.columns else REMOVED,
    ),
    Rule(
        "ERR236",
        "/registration/number",
        lambda place: (
            _is_nameless(place) and not is_public(place) and not place.case.is_consolidated
        ),
        "The TIN of the general public requires the NRIC or army number of a person, "
        "or the classification 004 and no other on every line.",
    ),
    Rule(
        "ERR208",
        "/tin",
        lambda place: (
            not place.side
            and place.case.self_billed
            and place.sent_text("/tin") == parties.FOREIGNER
        ),
        f"{parties.FOREIGNER} is the TIN of buyers abroad; "
        f"a supplier abroad must have {parties.SELLER_ABROAD}.",
        fix=lambda place: parties.SELLER_ABROAD,
    ),
    Rule(
        "CF410",
        "/contactNumber",
        _has_bad_phone,
        "The phone number of the {who} must be digits, optionally after a +.",
        FORMATS_STRICT,
        fix=_fix_phone,
    ),
    Rule(
        "CF366",
        "/contactNumber",
        _has_bad_phone_length,
        "The phone number of the {who} must have 8 to 20 characters.",
        FORMATS_STRICT,
    ),
    Rule(
        "CF403",
        "/email",
        malformed("/email", ONE_MAIL),
        "The e-mail of the {who} must be a single address without spaces.",
        FORMATS_STRICT,
        fix=_fix_mail,
    ),
    Rule(
        "CF404",
        "/email",
        _has_bad_mail,
        "The e-mail of the {who} is not a valid address: it must have a name, an @ and a domain, "
        "without dots in a row, at the start or at the end of either. Leave it out if it is "
        "unknown.",
        FORMATS_STRICT,
        fix=_fix_mail,
    ),
    formed(
        "/sstRegistrationNumber",
        SST,
        "The SST number of the {who} must be letters, digits and hyphens, or two such numbers "
        "separated by a semicolon, with at most 35 characters.",
        repair=keep_only("A-Za-z0-9;-"),
    ),
    formed(
        "/tourismTaxRegistrationNumber",
        TOURISM,
        "The tourism tax number of the {who} must have at most 17 letters, digits and hyphens.",
        "CF407",
        repair=keep_only("A-Za-z0-9-"),
    ),
    *coded("msic", "/msic", applies=lambda place: not place.side),
    Rule(
        "Identity",
        "/registration/type",
        lambda place: (
            place.sent_text("/registration/type") == "BRN"
            and place.sent_text("/tin").startswith("IG")
            and place.sent_text("/registration/number") != parties.IDENTITY_UNKNOWN
        ),
        "The portal treats an IG TIN with a BRN as a business; a private person has an NRIC.",
        is_warning=True,
    ),
    Rule(
        "Identity",
        "/registration/number",
        lambda place: (
            place.sent_text("/registration/type") == "BRN"
            and not place.sent_text("/tin").startswith("EI")
            and not place.lacks("/registration/number")
            and place.sent_text("/registration/number") != parties.NOT_GIVEN
            and not BUSINESS.fullmatch(place.sent_text("/registration/number"))
        ),
        "The BRN of the {who} should have 12 digits, as in the register with which the portal "
        "compares TIN and BRN.",
        REGISTER_STRICT,
        is_warning=True,
    ),
)

#: Rules of all parties: supplier, buyer, recipient.
COMMON_RULES = (
    formed(
        "/registration/number",
        NRIC,
        "The NRIC of the {who} must have 12 digits.",
        "CF324",
        lambda place: place.sent_text("/registration/type") == "NRIC",
        keep_only("0-9"),
    ),
    Rule(
        FORMAT,
        "/registration/number",
        lambda place: (
            place.sent_text("/registration/type") != "NRIC"
            and len(place.sent_text("/registration/number"))
            > (20 if place.sent_text("/registration/type") == "BRN" else 12)
        ),
        "The registration number of the {who} is too long: a BRN must have at most 20 characters, "
        "a passport or army number at most 12.",
        FORMATS_STRICT,
    ),
    *coded("countries", "/address/country"),
    *coded("states", "/address/state", applies=_is_home),
    Rule(
        "CV317",
        "/address/state",
        lambda place: (
            _is_home(place)
            and place.sent_text("/address/state") == parties.STATE_ABROAD
            and not is_public(place)
            and not place.case.is_consolidated
        ),
        "The state of the {who} must not be 17, which is reserved for addresses outside Malaysia "
        "and for consolidated documents.",
        STATES_STRICT,
    ),
    formed(
        "/address/zipCode",
        POSTCODE,
        "The postcode of the {who} must have at most 5 digits.",
        applies=_is_home,
        repair=keep_only("0-9"),
    ),
    Rule(
        SHORT_POSTCODE,
        "/address/zipCode",
        lambda place: (
            _is_home(place) and re.fullmatch("[0-9]{1,4}", place.sent_text("/address/zipCode"))
        ),
        "The postcode of the {who} has fewer than the 5 digits of a postcode in Malaysia.",
        is_warning=True,
    ),
)

RECIPIENT_RULES = (
    Rule(
        FORMAT,
        "/tin",
        lambda place: len(place.sent_text("/tin")) > 14,
        "The TIN of the {who} must have at most 14 characters.",
        FORMATS_STRICT,
    ),
)

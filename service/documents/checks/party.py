"""The portal's rules of parties, the recipient of a delivery among them. Portal: 10.3, 12.9, 14.3, 14.6"""

import re

from service.documents import codes
from service.documents.checks.rule import (
    FORMAT,
    FORMATS_STRICT,
    REGISTER_STRICT,
    REMOVED,
    REQUIRED,
    WARNING,
    Place,
    Rule,
    is_public,
    only,
)
from service.documents.ubl import document, parties

LONGEST_TIN = 14
#: How many digits a TIN has is not published. Portal: 3.2
TIN = re.compile(r"IG[0-9]{1,12}|(C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)[1-9][0-9]*0|EI0{9}[1-4]0")
_TIN_PARTS = re.compile(r"(OG|SG|IG|C|CS|D|F|FA|PT|TA|TC|TN|TR|TP|J|LE)(0*)([0-9]+)")
PHONE = re.compile(r"\+?[0-9]+")
SHORTEST_PHONE, LONGEST_PHONE = 8, 20
MAIL = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")
ONE_MAIL = re.compile(r"[^\s,;]+")
NRIC = re.compile(r"[0-9]{12}|NA")
BUSINESS = re.compile(r"[0-9]{12}")
SST = re.compile(r"[A-Za-z0-9-]+(;[A-Za-z0-9-]+)?")
TOURISM = re.compile(r"[A-Za-z0-9-]+")
#: scheme of an identity -> the most characters of its number. Portal: 10.3
LONGEST_IDENTITY = {"BRN": 20, "NRIC": 12, "PASSPORT": 12, "ARMY": 12}
LONGEST_SST, LONGEST_TOURISM, LONGEST_MAIL = 35, 17, 320

#: member of a party -> the company's column
COLUMNS = {
    "/name": "name",
    "/tin": "tin_code",
    "/registration/type": "registration_type",
    "/registration/number": "registration_number",
    "/contactNumber": "phone",
    "/email": "email",
    "/sstRegistrationNumber": "sst_registration_number",
    "/tourismTaxRegistrationNumber": "tourism_tax_registration_number",
    "/msic": "msic_code",
    "/businessActivityDescription": "business_activity_description",
    "/address/line1": "address",
    "/address/city": "city",
    "/address/state": "state",
    "/address/zipCode": "zip_code",
    "/address/country": "country",
}


def party_places(case):
    """The supplier and the buyer."""
    for side, (who, party) in enumerate(
        zip(("supplier", "buyer"), document.parties(case.source, case.issuer), strict=False)
    ):
        is_us = case.self_billed == (side == 1)
        yield Place(
            case=case,
            path=f"/{who}",
            given=party,
            sent=_sent(party, side),
            words={"who": "company" if is_us else who},
            columns=COLUMNS if is_us else None,
            side=side,
            waived=_waived(party, side, is_us),
        )


def recipient_places(case):
    """The recipient of the delivery, where one is named. Portal: 10.5"""
    recipient = case.source.get("delivery")
    if recipient:
        identity = (recipient.get("registration") or {}).get("number")
        sent = {
            "tin": parties.own_tin(recipient),
            "scheme": parties.scheme_of(recipient),
            "identity": parties.identifier(identity),
            **_sent_address(parties.postal_address(recipient.get("address") or {})),
        }
        yield Place(case, "/delivery", recipient, sent, {"who": "recipient of the delivery"})


def _sent(party, side):
    """What the document would say of the party, by fact."""
    (built,) = parties.buyer_party(party) if side else parties.supplier_party(party)
    numbers = {
        each["ID"][0]["schemeID"]: each["ID"][0]["_"] for each in built["PartyIdentification"]
    }
    scheme = next(scheme for scheme in numbers if scheme not in ("TIN", "SST", "TTX"))
    return {
        "tin": numbers["TIN"] or "",
        "scheme": scheme,
        "identity": numbers[scheme],
        "sst": numbers["SST"],
        "tourism": numbers["TTX"],
        "phone": _said(built, "Contact", "Telephone"),
        "mail": _said(built, "Contact", "ElectronicMail"),
        "msic": _said(built, "IndustryClassificationCode"),
        **_sent_address(built["PostalAddress"]),
    }


def _sent_address(built):
    (address,) = built
    return {
        "country": _said(address, "Country", "IdentificationCode"),
        "state": _said(address, "CountrySubentityCode"),
        "postcode": _said(address, "PostalZone"),
    }


def _said(node, *names):
    """The text of the first element at a path below the node, empty where there is none or it is blank."""
    for name in names:
        (node, *_) = node.get(name) or [{}]
    return (node.get("_") or "").strip()


def _waived(party, side, is_us):
    """The facts that this party may go without. Portal: 10.4, 10.14, 12.9"""
    kind, tins = party.get("type"), parties.BUYER_TINS if side else parties.SUPPLIER_TINS
    waivers = {
        "/tin": parties.general_tin(party, tins),
        "/registration/number": not is_us
        and (parties.own_tin(party) or kind != "LOCAL_INDIVIDUAL"),
        "/address/state": parties.is_abroad(party.get("address") or {}),
        "/msic": side or kind in parties.NO_TRADE,
        "/businessActivityDescription": side or parties.industry(party)[0]["name"],
    }
    return {member for member, holds in waivers.items() if holds}


#: member of a party, what it is, the codes when the supplier or the buyer lacks it. Portal: 14.3
FACTS = (
    ("/name", "name", ("CF334", "CF333")),
    ("/tin", "TIN", (REQUIRED, "CF358")),
    ("/registration/number", "registration number", REQUIRED),
    ("/contactNumber", "phone number", ("CF348", "CF349")),
    ("/address/line1", "first address line", ("CF345", "CF346")),
    ("/address/city", "city", ("CF339", "CF340")),
    ("/address/state", "state", ("CF342", "CF343")),
    ("/address/country", "country", ("CF336", "CF337")),
    ("/msic", "MSIC code", REQUIRED),
    ("/businessActivityDescription", "business activity", REQUIRED),
)


def _lacking(member):
    return lambda place: member not in place.waived and place.lacks(member)


def _is_nameless(place):
    """The TIN of the general public without the number of a person. Portal: 12.9"""
    person = (
        place.sent["scheme"] in parties.PERSONAL and place.sent["identity"] != parties.NOT_GIVEN
    )
    return place.sent["tin"] == parties.PUBLIC and not person


def _differs(fact, form, most, *allowed):
    """Whether what is sent has neither the form nor is allowed as it is; what is not sent is no breach."""

    def differs(place):
        found = place.sent[fact]
        return found not in ("", *allowed) and not (form.fullmatch(found) and len(found) <= most)

    return differs


def _is_no_phone(place):
    return place.sent["phone"] not in ("", parties.NOT_GIVEN) and not PHONE.fullmatch(
        place.sent["phone"]
    )


def _is_odd_phone(place):
    phone = place.sent["phone"]
    return PHONE.fullmatch(phone) and not SHORTEST_PHONE <= len(phone) <= LONGEST_PHONE


def _is_no_mail(place):
    mail = place.sent["mail"]
    return ONE_MAIL.fullmatch(mail) and mail != parties.NOT_GIVEN and not MAIL.fullmatch(mail)


def _dialled(place):
    """The plus and the digits alone, of a number without letters: those might be an extension."""
    given = place.value("/contactNumber")
    kept = ("+" if given.strip().startswith("+") else "") + re.sub("[^0-9]", "", given)
    return (
        kept
        if re.search("[A-Za-z]", given) is None and SHORTEST_PHONE <= len(kept) <= LONGEST_PHONE
        else None
    )


def _one_mail(place):
    """The first of several addresses; what is none goes, as an unknown one does."""
    parts = re.split(r"[\s;,<>]+", place.value("/email"))
    return next(
        (part for part in parts if MAIL.fullmatch(part) and len(part) <= LONGEST_MAIL), REMOVED
    )


def _own_tin_is_odd(place):
    tin = place.sent["tin"]
    return tin != "" and not (TIN.fullmatch(tin) and len(tin) <= LONGEST_TIN)


def _newer_tin(place):
    """Older prefixes of individuals replaced, zeros after the prefix dropped, a zero at the end. Portal: 3.2"""
    parts = _TIN_PARTS.fullmatch(place.sent["tin"])
    if not parts:
        return None
    prefix, zeros, digits = parts.groups()
    if prefix in ("OG", "SG", "IG"):
        tin = "IG" + zeros + digits
    else:
        tin = prefix + digits + ("" if digits.endswith("0") else "0")
    return tin if TIN.fullmatch(tin) and len(tin) <= LONGEST_TIN else None


PARTY_RULES = (
    *(
        Rule(code, member, _lacking(member), f"The {words} of the {{who}} is missing.", stops=True)
        for member, words, code in FACTS
    ),
    Rule(
        (FORMAT, "ERR406"),
        "/tin",
        _own_tin_is_odd,
        "The TIN of the {who} has not the form of a TIN: a prefix and digits, which end in 0 unless it is IG.",
        cure=_newer_tin,
    ),
    Rule(
        "ERR206",
        "/registration/number",
        lambda place: (
            place.sent["identity"] == parties.NOT_GIVEN
            and not place.sent["tin"].startswith("EI")
            and place.sent["tin"] != ""
        ),
        "The {who} has a TIN of its own, and NA is not the registration number that belongs to it.",
        cure=lambda place: None if place.columns else REMOVED,
    ),
    Rule(
        "ERR236",
        "/registration/number",
        lambda place: (
            _is_nameless(place) and not is_public(place) and not place.case.is_consolidated
        ),
        "The TIN of the general public needs the NRIC or army number of a person, "
        "or the classification 004, and no other, on every line.",
    ),
    Rule(
        "ERR208",
        "/tin",
        lambda place: (
            not place.side and place.case.self_billed and place.sent["tin"] == parties.FOREIGNER
        ),
        f"{parties.FOREIGNER} is the TIN of buyers abroad; a supplier abroad has {parties.SELLER_ABROAD}.",
        cure=lambda place: parties.SELLER_ABROAD,
    ),
    Rule(
        "CF410",
        "/contactNumber",
        _is_no_phone,
        "The phone number of the {who} has to be digits, with an optional + in front.",
        FORMATS_STRICT,
        cure=_dialled,
    ),
    Rule(
        "CF366",
        "/contactNumber",
        _is_odd_phone,
        "The phone number of the {who} has to be 8 to 20 characters.",
        FORMATS_STRICT,
    ),
    Rule(
        "CF403",
        "/email",
        _differs("mail", ONE_MAIL, LONGEST_MAIL),
        "The e-mail of the {who} has to be one address, without blanks.",
        FORMATS_STRICT,
        cure=_one_mail,
    ),
    Rule(
        "CF404",
        "/email",
        _is_no_mail,
        "The e-mail of the {who} is not an address.",
        FORMATS_STRICT,
        cure=_one_mail,
    ),
    Rule(
        FORMAT,
        "/sstRegistrationNumber",
        _differs("sst", SST, LONGEST_SST),
        "The SST number of the {who} has to be letters, digits and hyphens, or two of them joined by a semicolon, "
        "at most 35 characters.",
        FORMATS_STRICT,
        cure=only("A-Za-z0-9;-", "sst", SST, LONGEST_SST),
    ),
    Rule(
        "CF407",
        "/tourismTaxRegistrationNumber",
        _differs("tourism", TOURISM, LONGEST_TOURISM),
        "The tourism tax number of the {who} has to be letters, digits and hyphens, at most 17 characters.",
        FORMATS_STRICT,
        cure=only("A-Za-z0-9-", "tourism", TOURISM, LONGEST_TOURISM),
    ),
    Rule(
        "CV302",
        "/msic",
        lambda place: place.sent["msic"] != "" and not codes.is_known("msic", place.sent["msic"]),
        lambda place: codes.wording("msic", place.sent["msic"]),
    ),
    Rule(
        "Identity",
        "/registration/type",
        lambda place: (
            place.sent["scheme"] == "BRN"
            and place.sent["tin"].startswith("IG")
            and place.sent["identity"] != parties.IDENTITY_UNKNOWN
        ),
        "The portal takes an IG TIN with a BRN for a business; a private person has an NRIC.",
        severity=WARNING,
    ),
    Rule(
        "Identity",
        "/registration/number",
        lambda place: (
            place.sent["scheme"] == "BRN"
            and not place.sent["tin"].startswith("EI")
            and not place.lacks("/registration/number")
            and place.sent["identity"] != parties.NOT_GIVEN
            and not BUSINESS.fullmatch(place.sent["identity"])
        ),
        "The portal compares TIN and BRN with its register, where a BRN has 12 digits; that of the {who} has not.",
        REGISTER_STRICT,
        severity=WARNING,
    ),
)

#: Of everybody who has an identity: supplier, buyer, recipient.
IDENTITY_RULES = (
    Rule(
        "CF324",
        "/registration/number",
        lambda place: (
            place.sent["scheme"] == "NRIC"
            and place.sent["identity"] != ""
            and not NRIC.fullmatch(place.sent["identity"])
        ),
        "The NRIC of the {who} has to be 12 digits.",
        FORMATS_STRICT,
        cure=only("0-9", "identity", NRIC, 12),
    ),
    Rule(
        FORMAT,
        "/registration/number",
        lambda place: (
            place.sent["scheme"] != "NRIC"
            and len(place.sent["identity"])
            > LONGEST_IDENTITY.get(place.sent["scheme"], LONGEST_IDENTITY["BRN"])
        ),
        "The registration number of the {who} is too long: a BRN has at most 20 characters, a passport and an army number 12.",
        FORMATS_STRICT,
    ),
    Rule(
        FORMAT,
        "/registration/type",
        lambda place: place.sent["scheme"] not in LONGEST_IDENTITY,
        "The registration type of the {who} has to be BRN, NRIC, PASSPORT or ARMY.",
    ),
)

RECIPIENT_RULES = (
    Rule(
        FORMAT,
        "/tin",
        lambda place: len(place.sent["tin"]) > LONGEST_TIN,
        "The TIN of the {who} has more than 14 characters.",
        FORMATS_STRICT,
    ),
)

"""The parties of a document and their addresses, from the shape of a request. Portal: 10.3, 10.4, 10.12, 12.9"""

import re
from textwrap import wrap

from service.documents.ubl.elements import group, mandatory, optional, text, value

HOME = "MYS"

#: What stands for a text that a party does not have, a state abroad, and an identity when only a
#: TIN is known.
NOT_GIVEN = "NA"
STATE_ABROAD = "17"
IDENTITY_UNKNOWN = "000000000000"

#: The most address lines, and the most characters of one. Portal: 10.4
ADDRESS_LINES = 3
ADDRESS_LINE = 150

PUBLIC, FOREIGNER, SELLER_ABROAD, AUTHORITY = (f"EI000000000{n}0" for n in (1, 2, 3, 4))

#: party type -> the TIN of one that has none, as buyer and as supplier; other parties need their
#: own. Portal: 12.9
BUYER_TINS = {
    "LOCAL_INDIVIDUAL": PUBLIC,
    "FOREIGN_INDIVIDUAL": FOREIGNER,
    "FOREIGN_COMPANY": FOREIGNER,
    "GOVERNMENT": AUTHORITY,
    "GENERAL_PUBLIC": PUBLIC,
}
SUPPLIER_TINS = {
    "LOCAL_INDIVIDUAL": PUBLIC,
    "FOREIGN_INDIVIDUAL": SELLER_ABROAD,
    "FOREIGN_COMPANY": SELLER_ABROAD,
    "GENERAL_PUBLIC": PUBLIC,
}

#: party type -> the scheme of its identity when the party names none.
SCHEMES = {"LOCAL_INDIVIDUAL": "NRIC", "FOREIGN_INDIVIDUAL": "PASSPORT"}
#: Identities of persons in Malaysia, which the general TIN of the public goes with. Portal: 12.9
PERSONAL = {"NRIC", "ARMY"}

#: Parties without a trade of their own need no MSIC code. Portal: 10.14; individuals are our
#: decision.
NO_TRADE = {"LOCAL_INDIVIDUAL", "FOREIGN_INDIVIDUAL", "FOREIGN_COMPANY", "GENERAL_PUBLIC"}
NO_MSIC = ("00000", "NOT APPLICABLE")

#: Buyers, or sellers, who stay unnamed. Portal: 10.13
GENERAL_PUBLIC = {
    "type": "GENERAL_PUBLIC",
    "name": "General Public",
    "contactNumber": NOT_GIVEN,
    "address": {"line1": NOT_GIVEN, "city": NOT_GIVEN, "state": STATE_ABROAD, "country": HOME},
}

_PHONE_MARKS = re.compile(r"[\s()\[\].\u2010-\u2015\u2212-]+")
_NUMBER_MARKS = re.compile(r"[\s\u200b-\u200d\u2060\ufeff-]+")
_BLANKS = re.compile(r"\s+")
_PARTED = re.compile(r"[,;]+")

#: A number within Malaysia behind its 0: Klang Valley, other areas, mobile. With 60 or 0 in front
#: it can be no other.
_HOME_PHONE = re.compile(r"(?:(?:\+|00)?600?|0)(3[0-9]{8}|[4-9][0-9]{7}|1[0-9]{8,9})")
_PHONE_ABROAD = re.compile(r"00([1-9][0-9]{7,14})")


# Who the parties are


def named(party):
    """A party of a request; the general public has no other particulars than its own. Portal: 10.13"""
    party = party or {}
    return GENERAL_PUBLIC if party.get("type") == "GENERAL_PUBLIC" else party


def issuer_party(issuer):
    """The company's record in the shape of a request's party."""
    return {
        "name": issuer.get("name"),
        "tin": issuer.get("tin_code"),
        "registration": {
            "type": issuer.get("registration_type"),
            "number": issuer.get("registration_number"),
        },
        "sstRegistrationNumber": issuer.get("sst_registration_number"),
        "tourismTaxRegistrationNumber": issuer.get("tourism_tax_registration_number"),
        "msic": issuer.get("msic_code"),
        "businessActivityDescription": issuer.get("business_activity_description"),
        "contactNumber": issuer.get("phone"),
        "email": issuer.get("email"),
        "address": {
            "line1": issuer.get("address"),
            "city": issuer.get("city"),
            "state": issuer.get("state"),
            "zipCode": issuer.get("zip_code"),
            "country": issuer.get("country"),
        },
    }


def supplier_party(party):
    return group(
        IndustryClassificationCode=industry(party),
        PartyIdentification=identification(
            party, SUPPLIER_TINS, party.get("tourismTaxRegistrationNumber")
        ),
        **common_party(party),
    )


def buyer_party(party):
    """Tourism tax is the supplier's, so a buyer has no number of it."""
    return group(PartyIdentification=identification(party, BUYER_TINS, None), **common_party(party))


def recipient_party(recipient):
    """Who a delivery goes to; it has no tax registrations, and what is not known of it is left out. Portal: 10.5"""
    address = recipient.get("address")
    return group(
        PartyIdentification=recipient_identification(recipient),
        PostalAddress=address and postal_address(address, optional),
        PartyLegalEntity=group(RegistrationName=optional(recipient.get("name"), 300)),
    )


def common_party(party):
    return {
        "PostalAddress": postal_address(party.get("address") or {}),
        "PartyLegalEntity": group(RegistrationName=mandatory(party.get("name"), 300)),
        "Contact": group(
            Telephone=value(phone(party)), ElectronicMail=optional(party.get("email"))
        ),
    }


def industry(party):
    code, activity = party.get("msic"), text(party.get("businessActivityDescription"), 300)
    if not code and party.get("type") in NO_TRADE:
        code = NO_MSIC[0]
    if not activity and code == NO_MSIC[0]:
        activity = NO_MSIC[1]
    return value(code, name=activity)


def phone(party):
    """As +60312345678 (E.164) where only one number can be meant, else its digits, or what is none. Portal: 10.3"""
    given = _PHONE_MARKS.sub("", party.get("contactNumber") or "")
    if not is_abroad(party.get("address") or {}) and (at_home := _HOME_PHONE.fullmatch(given)):
        return f"+60{at_home[1]}"
    return _PHONE_ABROAD.sub(r"+\1", given) if _PHONE_ABROAD.fullmatch(given) else given


# Their numbers


def identification(party, general_tins, tourism_tax_number):
    numbers = (
        ("TIN", own_tin(party) or general_tin(party, general_tins) or ""),
        registration(party),
        ("SST", tax_numbers(party.get("sstRegistrationNumber")) or NOT_GIVEN),
        ("TTX", tax_numbers(tourism_tax_number) or NOT_GIVEN),
    )
    return [identity(*each) for each in numbers]


def recipient_identification(recipient):
    """The numbers that are known; abroad, and for a person in Malaysia, the general TIN where there is none of its own."""
    scheme, number = registration(recipient)
    tin = own_tin(recipient)
    if not tin and is_abroad(recipient.get("address") or {}):
        tin = FOREIGNER
    if not tin and scheme in PERSONAL:
        tin = PUBLIC
    known = [identity("TIN", tin)] if tin else []
    return [*known, identity(scheme, number)] if tin or number != NOT_GIVEN else []


def identity(scheme, number):
    return {"ID": value(number, schemeID=scheme)}


def own_tin(party):
    """As the portal compares them: upper case, without blanks and hyphens. Portal: 3.2"""
    return identifier(party.get("tin")).upper()


def identifier(number):
    """A number that identifies somebody, without blanks and hyphens. Portal: 3.2"""
    return _NUMBER_MARKS.sub("", number or "")


def tax_numbers(given):
    """Registrations for a tax, several of them parted by a semicolon. Portal: 10.3"""
    return _PARTED.sub(";", _BLANKS.sub("", text(given)))


def general_tin(party, general_tins):
    """The TIN of a party without one, or None when it has to have its own. Portal: 12.9"""
    kind = party.get("type")
    if kind == "LOCAL_INDIVIDUAL" and scheme_of(party) not in PERSONAL:
        return None
    return general_tins.get(kind)


def registration(party):
    """(scheme, number) of the one identity a party has to show. Portal: 10.3, 12.9"""
    number = (party.get("registration") or {}).get("number")
    if kept := identifier(number):
        return scheme_of(party), kept
    if own_tin(party) and not own_tin(party).startswith("EI"):
        return scheme_of(party), IDENTITY_UNKNOWN
    return "BRN", NOT_GIVEN


def scheme_of(party):
    given = (party.get("registration") or {}).get("type")
    return given or SCHEMES.get(party.get("type"), "BRN")


# Where they are. Portal: 10.4


def postal_address(address, element=mandatory):
    """`element` makes one of a text that a party must have, `optional` for who may go without."""
    return group(
        CityName=element(address.get("city"), 50),
        PostalZone=optional(address.get("zipCode")),
        CountrySubentityCode=element(subentity(address)),
        AddressLine=[{"Line": value(line)} for line in address_lines(address)],
        Country=group(
            IdentificationCode=element(address.get("country"), listID="ISO3166-1", listAgencyID="6")
        ),
    )


def subentity(address):
    """A state's code in Malaysia; abroad free text, where one of our codes would name a Malaysian state."""
    state = text(address.get("state"), 50)
    if is_abroad(address) and (not state or state.isdigit()):
        return STATE_ABROAD
    return state


def is_abroad(address):
    return (address.get("country") or HOME) != HOME


def address_lines(address):
    """The lines as given when they fit, else all of them wrapped into as many as there may be."""
    given = [address.get(name) or "" for name in ("line1", "line2", "line3")]
    lines = [kept for each in given for part in each.splitlines() if (kept := text(part))]
    if len(lines) <= ADDRESS_LINES and all(len(line) <= ADDRESS_LINE for line in lines):
        return lines
    return wrap(", ".join(line.rstrip(",") for line in lines), ADDRESS_LINE)[:ADDRESS_LINES]

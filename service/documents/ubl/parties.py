"""Build the parties of a document and their addresses from the request shape.

Portal: 10.3, 10.4, 10.12, 12.9
"""

import re
from collections.abc import Callable, Mapping
from textwrap import wrap

from service.documents.ubl.elements import (
    Element,
    clean_text,
    entry,
    get_object,
    group,
    mandatory,
    optional,
    value,
)
from service.json_types import JsonMapping, JsonObject

#: A party or a recipient in the request shape.
Party = JsonMapping

HOME = "MYS"

#: Placeholders for a missing text, for a state abroad, and for the identity of a party of which
#: only the TIN is known.
NOT_GIVEN = "NA"
STATE_ABROAD = "17"
IDENTITY_UNKNOWN = "000000000000"

#: Limits of the address lines and of the characters of each. Portal: 10.4
ADDRESS_LINES = 3
ADDRESS_LINE = 150

PUBLIC, FOREIGNER, SELLER_ABROAD, AUTHORITY = (f"EI000000000{n}0" for n in (1, 2, 3, 4))

#: Party type -> general TIN of a buyer or supplier without its own. Other types need their own.
#: Portal: 12.9
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

#: Party type -> default scheme of its identity.
SCHEMES = {"LOCAL_INDIVIDUAL": "NRIC", "FOREIGN_INDIVIDUAL": "PASSPORT"}
#: Identities of persons in Malaysia, valid with the TIN of the general public. Portal: 12.9
PERSONAL = {"NRIC", "ARMY"}

#: Party types that need no MSIC code. Portal: 10.14; for individuals a decision of this service.
NO_TRADE = {"LOCAL_INDIVIDUAL", "FOREIGN_INDIVIDUAL", "FOREIGN_COMPANY", "GENERAL_PUBLIC"}
NO_MSIC = ("00000", "NOT APPLICABLE")

#: The party of a document whose buyer or seller is unnamed. Portal: 10.13
GENERAL_PUBLIC = {
    "type": "GENERAL_PUBLIC",
    "name": "General Public",
    "contactNumber": NOT_GIVEN,
    "address": {"line1": NOT_GIVEN, "city": NOT_GIVEN, "state": STATE_ABROAD, "country": HOME},
}

#: Member of a party -> column of the company.
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

_PHONE_MARKS = re.compile(r"[\s()\[\].\u2010-\u2015\u2212-]+")
_NUMBER_MARKS = re.compile(r"[\s\u200b-\u200d\u2060\ufeff-]+")

#: A Malaysian number after 0 or 60: Klang Valley, other areas, or mobile.
_HOME_PHONE = re.compile(r"(?:(?:\+|00)?600?|0)(3[0-9]{8}|[4-9][0-9]{7}|1[0-9]{8,9})")
_PHONE_ABROAD = re.compile(r"00([1-9][0-9]{7,14})")


def or_general_public(party: Party | None) -> Party:
    """Return a party of a request, or the fixed particulars of the general public. Portal: 10.13"""
    party = party or {}
    return GENERAL_PUBLIC if party.get("type") == "GENERAL_PUBLIC" else party


def make_issuer_party(issuer: JsonMapping) -> Party:
    """Return the company's record as a party in the request shape."""
    party: JsonObject = {"registration": {}, "address": {}}
    for member, column in COLUMNS.items():
        *holder, name = member.split("/")[1:]
        (party[holder[0]] if holder else party)[name] = issuer.get(column)
    return party


def build_supplier(party: Party) -> Element:
    industry = get_industry(party)
    return [
        entry(
            IndustryClassificationCode=value(industry[0], name=industry[1]),
            **_build_common(party, SUPPLIER_TINS, party.get("tourismTaxRegistrationNumber")),
        )
    ]


def build_buyer(party: Party) -> Element:
    """Build the buyer, who has no tourism tax number."""
    return [entry(**_build_common(party, BUYER_TINS, None))]


def build_recipient(recipient: Party) -> Element | None:
    """Build the recipient of a delivery without missing facts and tax numbers. Portal: 10.5"""
    address = get_object(recipient, "address")
    return group(
        PartyIdentification=_build_recipient_identification(recipient),
        PostalAddress=address and group(**_build_address(address, optional)),
        PartyLegalEntity=group(RegistrationName=optional(recipient.get("name"), 300)),
    )


def _build_common(
    party: Party, general_tins: Mapping[str, str], tourism_tax_number: str | None
) -> dict[str, Element | None]:
    numbers = (
        ("TIN", get_own_tin(party) or get_general_tin(party, general_tins) or ""),
        _get_registration(party),
        ("SST", _clean_tax_numbers(party.get("sstRegistrationNumber")) or NOT_GIVEN),
        ("TTX", _clean_tax_numbers(tourism_tax_number) or NOT_GIVEN),
    )
    return {
        "PartyIdentification": [_build_identity(*each) for each in numbers],
        "PostalAddress": build_postal_address(get_object(party, "address")),
        "PartyLegalEntity": group(RegistrationName=mandatory(party.get("name"), 300)),
        "Contact": group(
            Telephone=value(_format_phone(party)), ElectronicMail=optional(party.get("email"))
        ),
    }


def get_industry(party: Party) -> tuple[str | None, str]:
    """Return (MSIC code, business activity) with the defaults of parties that need none."""
    code, activity = party.get("msic"), clean_text(party.get("businessActivityDescription"), 300)
    if not code and party.get("type") in NO_TRADE:
        code = NO_MSIC[0]
    if not activity and code == NO_MSIC[0]:
        activity = NO_MSIC[1]
    return code, activity


def _format_phone(party: Party) -> str:
    """Return the phone number in the form +60312345678 (E.164) if it is unambiguous.

    Otherwise return it without punctuation, even if it is no valid number. Portal: 10.3
    """
    given = _PHONE_MARKS.sub("", party.get("contactNumber") or "")
    if not is_abroad(get_object(party, "address")) and (at_home := _HOME_PHONE.fullmatch(given)):
        return f"+60{at_home[1]}"
    return _PHONE_ABROAD.sub(r"+\1", given) if _PHONE_ABROAD.fullmatch(given) else given


# Identification


def _build_recipient_identification(recipient: Party) -> Element:
    """Build the known numbers of a recipient.

    A recipient abroad, or a person in Malaysia, without its own TIN has the general one.
    """
    scheme, number = _get_registration(recipient)
    tin = get_own_tin(recipient)
    if not tin and is_abroad(get_object(recipient, "address")):
        tin = FOREIGNER
    if not tin and scheme in PERSONAL:
        tin = PUBLIC
    known = [_build_identity("TIN", tin)] if tin else []
    return [*known, _build_identity(scheme, number)] if tin or number != NOT_GIVEN else []


def _build_identity(scheme: str, number: str) -> JsonObject:
    return {"ID": value(number, schemeID=scheme)}


def get_own_tin(party: Party) -> str:
    """Return a party's TIN as it is sent to the portal, or "" without one."""
    return normalize_tin(party.get("tin"))


def normalize_tin(text: str | None) -> str:
    """Return a TIN in upper case without blanks and hyphens, or "". Portal: 3.2"""
    return normalize_identifier(text).upper()


def normalize_identifier(number: str | None) -> str:
    """Return an identifying number without blanks and hyphens. Portal: 3.2"""
    return _NUMBER_MARKS.sub("", number or "")


def _clean_tax_numbers(given: str | None) -> str:
    """Return the registrations for a tax, separated by semicolons. Portal: 10.3"""
    return re.sub("[,;]+", ";", "".join(clean_text(given).split()))


def get_general_tin(party: Party, general_tins: Mapping[str, str]) -> str | None:
    """Return the TIN of a party without its own, or None if its own is required. Portal: 12.9"""
    kind = party.get("type", "")
    if kind == "LOCAL_INDIVIDUAL" and get_scheme(party) not in PERSONAL:
        return None
    return general_tins.get(kind)


def _get_registration(party: Party) -> tuple[str, str]:
    """Return (scheme, number) of the one identity that a party must have. Portal: 10.3, 12.9"""
    if kept := normalize_identifier(get_object(party, "registration").get("number")):
        return get_scheme(party), kept
    if get_own_tin(party) and not get_own_tin(party).startswith("EI"):
        return get_scheme(party), IDENTITY_UNKNOWN
    return "BRN", NOT_GIVEN


def get_scheme(party: Party) -> str:
    """Return the scheme of a party's identity, by default that of its type."""
    given = get_object(party, "registration").get("type")
    return given or SCHEMES.get(party.get("type", ""), "BRN")


# Addresses. Portal: 10.4


def build_postal_address(address: JsonMapping) -> Element:
    """Build the address of a supplier or buyer, whose members are mandatory.

    If only the state is known, the other members may be absent.
    """
    element = optional if has_state_only(address) else mandatory
    return [entry(**_build_address(address, element))]


def has_state_only(address: JsonMapping) -> bool:
    """Return whether the first line of an address is NA and its state is given."""
    line, state = (clean_text(address.get(name)) for name in ("line1", "state"))
    return line == NOT_GIVEN and state != ""


def _build_address(
    address: JsonMapping, element: Callable[..., Element | None]
) -> dict[str, Element | None]:
    postcode = clean_text(address.get("zipCode"))  # It is optional, and NA is none.
    return {
        "CityName": element(address.get("city"), 50),
        "PostalZone": optional("" if postcode == NOT_GIVEN else postcode),
        "CountrySubentityCode": element(_get_state(address)),
        "AddressLine": [{"Line": value(line)} for line in _get_address_lines(address)],
        "Country": group(
            IdentificationCode=element(address.get("country"), listID="ISO3166-1", listAgencyID="6")
        ),
    }


def _get_state(address: JsonMapping) -> str:
    """Return the code of a Malaysian state, or the name of a state abroad.

    A number abroad is replaced by the code for states abroad, because it would be the code of a
    Malaysian state.
    """
    state = clean_text(address.get("state"), 50)
    if is_abroad(address) and (not state or state.isdigit()):
        return STATE_ABROAD
    return state


def is_abroad(address: JsonMapping) -> bool:
    """Return whether an address is outside Malaysia, the default country."""
    return (address.get("country") or HOME) != HOME


def _get_address_lines(address: JsonMapping) -> list[str]:
    """Return the address lines; wrap them into as many lines as allowed if they do not fit."""
    given = [address.get(name) or "" for name in ("line1", "line2", "line3")]
    lines = [kept for each in given for part in each.splitlines() if (kept := clean_text(part))]
    if len(lines) <= ADDRESS_LINES and all(len(line) <= ADDRESS_LINE for line in lines):
        return lines
    return wrap(", ".join(line.rstrip(",") for line in lines), ADDRESS_LINE)[:ADDRESS_LINES]

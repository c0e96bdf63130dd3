"""Step 2: required fields, their lengths and characters. Portal: 10, 14.3"""

import re
from collections.abc import Container, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..document import (
    GENERAL_PUBLIC,
    IDENTITY_SCHEMES,
    UblDocument,
    UblParty,
    classifications,
    entries,
    text_at,
    value,
    values,
)
from . import Finding, last
from .elements import FORMS, with_rule

#: Path of a party -> its name in messages.
ROLES = {
    "AccountingSupplierParty.Party.": "SUPPLIER",
    "AccountingCustomerParty.Party.": "BUYER",
    "Delivery.DeliveryParty.": "RECIPIENT",
}
COUNTRY = "PostalAddress.Country.IdentificationCode"
CITY = "PostalAddress.CityName"
STATE = "PostalAddress.CountrySubentityCode"
PHONE = "Contact.Telephone"
EMAIL = "Contact.ElectronicMail"


class Rule(NamedTuple):
    """The form of a text below a node; message and codes (supplier/buyer) if it has another one.

    The codes of formats are published without their meaning; this is one interpretation.
    """

    path: str
    message: str
    codes: str = ""
    form: str = r"(?s).+"  # not blank
    attribute: str = "_"


_FILE = Path(__file__).with_name("core_fields.json")
#: The rules of an invoice, of a party, and of an identification by its scheme.
RULES = msgspec.json.decode(_FILE.read_bytes(), type=dict[str, list[Rule]])
IDENTIFICATIONS = {rule.path: rule for rule in RULES["identification"]}
#: (path, text) that a party may have if its first address line is NA, and as the general public of
#: a consolidated document. Portal: 10.13
OPTIONAL_WITH_NA = {(CITY, ""), (COUNTRY, "")}
OPTIONAL_FOR_PUBLIC = OPTIONAL_WITH_NA | {(STATE, "")}

INCOTERMS = r"[A-Za-z0-9]{0,3}"


def check(document: UblDocument, now: float, oldest: float) -> list[Finding]:
    """Return all findings. A document may be issued from `oldest` to `now`, in Unix seconds."""
    return [
        *check_times(document, now, oldest),
        *check_rules(document.invoice, "", RULES["invoice"]),
        *check_texts(document),
        *check_incoterms(document),
        *check_party(document, document.supplier),
        *check_party(document, document.buyer),
        *check_address(document.recipient),
        *check_lines(document),
        *check_exemptions(document),
    ]


def make_finding(path: str, message: str, codes: str = "") -> Finding:
    """Return a finding at a path of the invoice.

    `codes` are one for all, or `<of the supplier>/<of the buyer>`. A recipient has none.
    """
    role = next((role for root, role in ROLES.items() if path.startswith(root)), None)
    supplier, buyer = (codes.split("/") * 2)[:2]
    code = {"BUYER": buyer, "RECIPIENT": None}.get(role or "", supplier)
    text = f"{message} - {role}" if role else f"{message}."
    return Finding(code or None, text, last(path), f"Invoice.{path}")


def check_times(document: UblDocument, now: float, oldest: float) -> Iterator[Finding]:
    """Yield a finding if the time of issue is in the future or too old."""
    if not oldest <= document.issued_at <= now:
        where = "in the future" if document.issued_at > now else "too far in the past"
        path = "Invoice.IssueDate AND Invoice.IssueTime"
        yield Finding("CF321", f"Issue date and time are {where}.", "DatetimeIssued", path)


def check_texts(document: UblDocument) -> Iterator[Finding]:
    """Yield a finding for each element whose texts are too long, or have other characters."""
    for path, element in with_rule("max"):
        most, form = element.rules["max"], FORMS.get(element.rules.get("form", ""))
        texts = [text for text in values(document.invoice, path) if isinstance(text, str)]
        if any(len(text) > int(most) for text in texts):
            message = f"{last(path)} is longer than {most} characters"
            yield make_finding(path, message, element.rules.get("code", ""))
        if form and not all(re.fullmatch(form, text) for text in texts):
            yield make_finding(path, f"{last(path)} has characters that are not allowed")


def check_party(document: UblDocument, party: UblParty) -> Iterator[Finding]:
    accepted = find_accepted_texts(document, party)
    yield from check_rules(party.node, f"{party.root}.", RULES["party"], accepted)
    yield from check_identifications(party)
    yield from check_address(party)


def find_accepted_texts(document: UblDocument, party: UblParty) -> set[tuple[str, str]]:
    """Return the (path, text) that a party may have although a rule excludes it.

    Contact details may be NA for the general public, the number also for a supplier.
    Portal: 10.3, 10.13
    """
    accepted = set[tuple[str, str]]()
    if party.text("PostalAddress.AddressLine.Line") == "NA":
        accepted |= OPTIONAL_WITH_NA
    if document.consolidated and party.is_public:
        accepted |= OPTIONAL_FOR_PUBLIC
    if party.is_public:
        accepted |= {(EMAIL, "NA")}
    if party.is_public or party.role == "SUPPLIER":
        accepted |= {(PHONE, "NA")}
    return accepted


def check_rules(
    node: object,
    root: str,
    rules: Iterable[Rule],
    accepted: Container[tuple[str, str]] = (),
) -> Iterator[Finding]:
    """Yield a finding for each path below a node whose text breaks a rule, the first one."""
    broken = set[str]()
    for path, message, codes, form, attribute in rules:
        text = text_at(node, path, attribute).strip()
        is_checked = path not in broken and (path, text) not in accepted
        if is_checked and not re.fullmatch(form, text):
            broken.add(path)
            yield make_finding(f"{root}{path}", message, codes)


def check_identifications(party: UblParty) -> Iterator[Finding]:
    path = f"{party.root}.PartyIdentification.ID"
    if not party.tin:
        yield make_finding(path, "TIN is required", "/CF358")
    if sum(scheme in IDENTITY_SCHEMES for scheme, _ in party.identifications) != 1:
        yield make_finding(path, "Exactly one of BRN, NRIC, PASSPORT and ARMY is required")
    for scheme, text in party.identifications:
        rule = IDENTIFICATIONS.get(scheme)
        if rule is None:
            yield make_finding(path, f"Scheme {scheme} is not known")
        elif text and not re.fullmatch(rule.form, text):
            yield make_finding(path, rule.message, rule.codes)


def check_address(party: UblParty) -> Iterator[Finding]:
    path = f"{party.root}.PostalAddress"
    if len(list(entries(party.node, "PostalAddress.AddressLine"))) > 3:
        message = "No more than three address lines are allowed"
        yield make_finding(f"{path}.AddressLine", message)
    postcode = party.text("PostalAddress.PostalZone")
    is_public = party.tin == GENERAL_PUBLIC and postcode == "NA"
    if party.country == "MYS" and not is_public and not re.fullmatch("[0-9]{0,5}", postcode):
        yield make_finding(f"{path}.PostalZone", "Postcode is not valid")


def check_incoterms(document: UblDocument) -> Iterator[Finding]:
    """Yield a finding if a reference without a type, the incoterms, has another form.

    Portal: 10.2
    """
    path = "AdditionalDocumentReference"
    for reference in entries(document.invoice, path):
        found = value(reference, "ID") or ""
        if not value(reference, "DocumentType") and not re.fullmatch(INCOTERMS, found.strip()):
            yield make_finding(f"{path}.ID", "Incoterms are not at most 3 letters and digits")


def check_lines(document: UblDocument) -> Iterator[Finding]:
    for index, line in enumerate(entries(document.invoice, "InvoiceLine")):
        path = f"InvoiceLine[{index}]"
        if not classifications(line):
            where = f"Invoice.{path}.Item.CommodityClassification"
            yield Finding("CF364", "Classification is required.", "ItemClassificationCode", where)
        if not (value(line, "Item.Description") or "").strip():
            yield make_finding(f"{path}.Item.Description", "Description is required")
        if any(Decimal(found) < 0 for found in values(line, "TaxTotal.TaxSubtotal.Percent")):
            where = f"Invoice.{path}.TaxTotal"
            yield Finding(None, "Tax rate cannot be negative.", "Percent", where)


def check_exemptions(document: UblDocument) -> Iterator[Finding]:
    name = "TaxExemptionReason"
    for prefix in ("", "InvoiceLine."):
        path = f"{prefix}TaxTotal.TaxSubtotal.TaxCategory"
        for category in entries(document.invoice, path):
            if value(category, "ID") == "E" and not value(category, name):
                yield Finding(None, "Tax exemption reason is required.", name, f"Invoice.{path}")

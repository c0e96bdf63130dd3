"""Step 2: required fields, their lengths and characters. Portal: 10, 14.3"""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal

from ..document import (
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
#: A required field: path, message, codes (supplier/buyer).
Required = tuple[str, str, str]
FIELDS: tuple[Required, ...] = (
    ("ID", "Invoice number is required", ""),
    ("DocumentCurrencyCode", "Currency code is required", "CF378"),
)
PARTY_FIELDS: tuple[Required, ...] = (
    ("PartyLegalEntity.RegistrationName", "Name is not valid", "CF334/CF333"),
    ("PostalAddress.Country.IdentificationCode", "Country is required", "CF336/CF337"),
    ("PostalAddress.CityName", "City is required", "CF339/CF340"),
    ("PostalAddress.CountrySubentityCode", "State is required", "CF342/CF343"),
    ("PostalAddress.AddressLine.Line", "Address line 1 is required", "CF345/CF346"),
    ("Contact.Telephone", "Contact number is required", "CF348/CF349"),
)
#: Fields that may be blank if the first address line is NA, and for the general public of a
#: consolidated document. Portal: 10.13
OPTIONAL_WITH_NA = {"PostalAddress.CityName", "PostalAddress.Country.IdentificationCode"}
OPTIONAL_FOR_PUBLIC = OPTIONAL_WITH_NA | {"PostalAddress.CountrySubentityCode"}

#: Scheme of an identification -> form of its value, codes of a violation.
IDENTIFICATIONS = {
    "TIN": (r".{1,14}", "/CF358"),
    "BRN": (r".{1,20}", ""),
    "NRIC": (r"[0-9]{12}|NA", "CF324"),
    "PASSPORT": (r".{1,12}", ""),
    "ARMY": (r".{1,12}", ""),
    "SST": (r"[A-Za-z0-9;-]{1,35}", ""),
    "TTX": (r"[A-Za-z0-9-]{1,17}", "CF407"),
}
#: Path below a party -> (form, codes, message). The first form that a text violates is the
#: finding. The codes are published without their meaning; this is one interpretation.
CONTACT = {
    "Contact.Telephone": (
        (r"\+?[0-9]+", "CF410", "Contact number is not valid"),
        (r".{8,20}", "CF366", "Contact number has not 8 to 20 characters"),
    ),
    "Contact.ElectronicMail": (
        (r"[^\s,;]+", "CF403", "E-mail is not one address without blanks"),
        (r"[^@.]+(\.[^@.]+)*@[^@.]+(\.[^@.]+)+", "CF404", "E-mail is not valid"),
    ),
}
INCOTERMS = r"[A-Za-z0-9]{0,3}"


def check(document: UblDocument, now: float, oldest: float) -> list[Finding]:
    """Return all findings. A document may be issued from `oldest` to `now`, in Unix seconds."""
    return [
        *check_times(document, now, oldest),
        *check_required(document.invoice, "", FIELDS),
        *check_texts(document),
        *check_incoterms(document),
        *check_party(document, document.supplier),
        *check_party(document, document.buyer),
        *check_address(document.recipient),
        *check_activity(document.supplier),
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
    """Yield the findings about supplier or buyer."""
    blank = set[str]()
    if party.text("PostalAddress.AddressLine.Line") == "NA":
        blank = OPTIONAL_WITH_NA
    if document.consolidated and party.is_public:
        blank = OPTIONAL_FOR_PUBLIC
    rows = [row for row in PARTY_FIELDS if row[0] not in blank]
    yield from check_required(party.node, f"{party.root}.", rows)
    yield from check_identifications(party)
    yield from check_contact(party)
    yield from check_address(party)


def check_required(node: object, root: str, rows: Iterable[Required]) -> Iterator[Finding]:
    """Yield a finding for each required field below a node that is missing or blank."""
    for path, message, codes in rows:
        if not text_at(node, path).strip():
            yield make_finding(f"{root}{path}", message, codes)


def check_identifications(party: UblParty) -> Iterator[Finding]:
    """Yield the findings about TIN and identity numbers."""
    path = f"{party.root}.PartyIdentification.ID"
    if not party.tin:
        yield make_finding(path, "TIN is required", "/CF358")
    if sum(scheme in IDENTITY_SCHEMES for scheme, _ in party.identifications) != 1:
        yield make_finding(path, "Exactly one of BRN, NRIC, PASSPORT and ARMY is required")
    for scheme, text in party.identifications:
        form, codes = IDENTIFICATIONS.get(scheme, (None, ""))
        if form is None:
            yield make_finding(path, f"Scheme {scheme} is not known")
        elif text and not re.fullmatch(form, text):
            yield make_finding(path, f"{scheme} is not valid", codes)


def check_contact(party: UblParty) -> Iterator[Finding]:
    """Yield the findings about telephone number and e-mail address.

    Both may be NA for the general public, the number also for a supplier. Portal: 10.3, 10.13
    """
    for path, forms in CONTACT.items():
        text = party.text(path)
        may_be_absent = party.is_public or (
            party.role == "SUPPLIER" and path == "Contact.Telephone"
        )
        if not text or (text == "NA" and may_be_absent):
            continue
        for form, code, message in forms:
            if not re.fullmatch(form, text):
                yield make_finding(f"{party.root}.{path}", message, code)
                break


def check_address(party: UblParty) -> Iterator[Finding]:
    """Yield the findings about address lines and postcode."""
    path = f"{party.root}.PostalAddress"
    if len(list(entries(party.node, "PostalAddress.AddressLine"))) > 3:
        message = "No more than three address lines are allowed"
        yield make_finding(f"{path}.AddressLine", message)
    postcode = party.text("PostalAddress.PostalZone")
    if party.country == "MYS" and not re.fullmatch("[0-9]{0,5}|NA", postcode):
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


def check_activity(supplier: UblParty) -> Iterator[Finding]:
    """Yield a finding if the supplier's MSIC code or business activity is missing."""
    name = "IndustryClassificationCode"
    path = f"{supplier.root}.{name}"
    if not supplier.text(name):
        yield make_finding(path, "MSIC code is required")
    elif not 0 < len(str(value(supplier.node, name, "name") or "").strip()) <= 300:
        yield make_finding(path, "Business activity description is required")


def check_lines(document: UblDocument) -> Iterator[Finding]:
    """Yield the findings about the lines."""
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
    """Yield a finding for each tax exemption without a reason."""
    name = "TaxExemptionReason"
    for prefix in ("", "InvoiceLine."):
        path = f"{prefix}TaxTotal.TaxSubtotal.TaxCategory"
        for category in entries(document.invoice, path):
            if value(category, "ID") == "E" and not value(category, name):
                yield Finding(None, "Tax exemption reason is required.", name, f"Invoice.{path}")

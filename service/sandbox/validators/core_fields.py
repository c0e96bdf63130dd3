"""Step 2: required fields, their lengths and characters. Portal: 10, 14.3"""

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from ..controls import Controls
from ..document import (
    IDENTITY_SCHEMES,
    Document,
    Party,
    classifications,
    entries,
    value,
    values,
)
from . import Finding, totals

Rule = Callable[[Document, float, Controls], Iterable[Finding]]

#: Required fields of a party: path, message, code for the supplier, code for the buyer.
PARTY_FIELDS = (
    ("PartyLegalEntity.RegistrationName", "Name is not valid", "CF334", "CF333"),
    ("PostalAddress.Country.IdentificationCode", "Country is required", "CF336", "CF337"),
    ("PostalAddress.CityName", "City is required", "CF339", "CF340"),
    ("PostalAddress.CountrySubentityCode", "State is required", "CF342", "CF343"),
    ("PostalAddress.AddressLine.Line", "Address line 1 is required", "CF345", "CF346"),
    ("Contact.Telephone", "Contact number is required", "CF348", "CF349"),
)
#: Fields that may be blank if the first address line is NA, and for the general public of a
#: consolidated document.
OPTIONAL_WITH_NA = {"PostalAddress.CityName", "PostalAddress.Country.IdentificationCode"}
OPTIONAL_FOR_PUBLIC = OPTIONAL_WITH_NA | {"PostalAddress.CountrySubentityCode"}

#: Path -> maximum length.
LENGTHS = {
    "ID": 50,
    "InvoicePeriod.Description": 50,
    "BillingReference.InvoiceDocumentReference.UUID": 26,
    "BillingReference.InvoiceDocumentReference.ID": 50,
    "BillingReference.AdditionalDocumentReference.ID": 150,
    "AdditionalDocumentReference.ID": 1000,
    "AdditionalDocumentReference.DocumentDescription": 300,
    "AccountingSupplierParty.AdditionalAccountID": 300,
    "Delivery.DeliveryParty.PartyLegalEntity.RegistrationName": 300,
    "Delivery.Shipment.ID": 50,
    "Delivery.Shipment.FreightAllowanceCharge.AllowanceChargeReason": 300,
    "PaymentMeans.PayeeFinancialAccount.ID": 150,
    "PaymentTerms.Note": 300,
    "PrepaidPayment.ID": 150,
    "TaxTotal.TaxSubtotal.TaxCategory.TaxExemptionReason": 300,
    "AllowanceCharge.AllowanceChargeReason": 300,
    "InvoiceLine.ID": 50,
    "InvoiceLine.Item.Description": 300,
    "InvoiceLine.AllowanceCharge.AllowanceChargeReason": 300,
    "InvoiceLine.TaxTotal.TaxSubtotal.TaxCategory.TaxExemptionReason": 300,
}
#: Path below a party -> maximum length, code for the supplier, code for the buyer.
PARTY_LENGTHS: dict[str, tuple[int, str | None, str | None]] = {
    "PartyLegalEntity.RegistrationName": (300, "CF334", "CF333"),
    "PostalAddress.AddressLine.Line": (150, "CF345", "CF346"),
    "PostalAddress.CityName": (50, None, None),
    "PostalAddress.CountrySubentityCode": (50, None, None),
    "PostalAddress.PostalZone": (50, None, None),
    "Contact.ElectronicMail": (320, "CF401", "CF401"),
}
#: Scheme of an identification -> form of its value, code of a violation.
IDENTIFICATIONS: dict[str, tuple[str, str | None]] = {
    "TIN": (r".{1,14}", "CF358"),
    "BRN": (r".{1,20}", None),
    "NRIC": (r"\d{12}|NA", "CF324"),
    "PASSPORT": (r".{1,12}", None),
    "ARMY": (r".{1,12}", None),
    "SST": (r"[A-Za-z0-9;-]{1,35}", None),
    "TTX": (r"[A-Za-z0-9-]{1,17}", "CF407"),
}
# `/` and `:` are not in the published list, but in the authority's own examples of a reason.
REASON = r"[\w .,()/:-]*"
INCOTERMS = r"[A-Za-z0-9]{0,3}"
#: Path -> form of all its values.
FORMS = {
    "AccountingSupplierParty.AdditionalAccountID": r"[\w -]*",
    "AdditionalDocumentReference.DocumentDescription": r"[\w ()-]*",
    "TaxTotal.TaxSubtotal.TaxCategory.TaxExemptionReason": REASON,
    "InvoiceLine.TaxTotal.TaxSubtotal.TaxCategory.TaxExemptionReason": REASON,
}
#: Path below a party -> (form, code, message). The first form that a text violates is the finding.
#: The codes are published without their meaning; this is one interpretation.
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


def check(document: Document, now: float, controls: Controls) -> list[Finding]:
    """Return all findings, in the order of the rules. `now` is in Unix seconds."""
    return [finding for rule in RULES for finding in rule(document, now, controls)]


def check_times(document: Document, now: float, controls: Controls) -> Iterator[Finding]:
    """Yield a finding if the time of issue is in the future or too old."""
    path = "Invoice.IssueDate AND Invoice.IssueTime"
    message = None
    if document.issued_at > now:
        message = "Issue date and time are in the future."
    elif document.issued_at < now - controls.age_window_seconds:
        message = "Issue date and time are too far in the past."
    if message:
        yield Finding("CF321", message, "DatetimeIssued", path)


def check_header(document: Document, now: float, controls: Controls) -> Iterator[Finding]:
    """Yield the findings about number, currency, lengths and characters."""
    if not document.number.strip():
        yield Finding(None, "Invoice number is required.", "ID", "Invoice.ID")
    if not document.currency:
        name = "DocumentCurrencyCode"
        yield Finding("CF378", "Currency code is required.", name, f"Invoice.{name}")
    for path, most in LENGTHS.items():
        if any(len(text) > most for text in texts(document.invoice, path)):
            message = f"{last(path)} is longer than {most} characters."
            yield Finding(None, message, last(path), f"Invoice.{path}")
    for path, form in FORMS.items():
        if not all(re.fullmatch(form, text) for text in texts(document.invoice, path)):
            message = f"{last(path)} has characters that are not allowed."
            yield Finding(None, message, last(path), f"Invoice.{path}")


def check_parties(document: Document, now: float, controls: Controls) -> Iterator[Finding]:
    """Yield the findings about supplier and buyer, and about the address of the recipient."""
    for party in (document.supplier, document.buyer):
        yield from check_required_fields(document, party)
        yield from check_party_lengths(party)
        yield from check_identifications(party)
        yield from check_contact(party)
        yield from check_address(party)
    yield from check_address(document.recipient)


def check_required_fields(document: Document, party: Party) -> Iterator[Finding]:
    """Yield a finding for each missing name, address or contact of a party."""
    blank = set()
    if party.text("PostalAddress.AddressLine.Line") == "NA":
        blank = OPTIONAL_WITH_NA
    if document.nameless(party):
        blank = OPTIONAL_FOR_PUBLIC
    for path, message, *codes in PARTY_FIELDS:
        if path not in blank and not party.text(path):
            yield party_finding(party, select_code(party, *codes), message, path)


def check_party_lengths(party: Party) -> Iterator[Finding]:
    """Yield a finding for each text of a party that is too long."""
    for path, (most, *codes) in PARTY_LENGTHS.items():
        if any(len(text) > most for text in texts(party.node, path)):
            message = f"{last(path)} is longer than {most} characters"
            yield party_finding(party, select_code(party, *codes), message, path)


def check_identifications(party: Party) -> Iterator[Finding]:
    """Yield the findings about TIN and identity numbers."""
    path = "PartyIdentification.ID"
    if not party.tin:
        code = select_code(party, None, "CF358")
        yield party_finding(party, code, "TIN is required", path)
    if sum(scheme in IDENTITY_SCHEMES for scheme, _ in party.identifications) != 1:
        message = "Exactly one of BRN, NRIC, PASSPORT and ARMY is required"
        yield party_finding(party, None, message, path)
    for scheme, text in party.identifications:
        form, code = IDENTIFICATIONS.get(scheme, (None, None))
        if scheme == "TIN" and party.role == "SUPPLIER":
            code = None  # CF358 is a code for buyers
        if form is None:
            yield party_finding(party, None, f"Scheme {scheme} is not known", path)
        elif text and not re.fullmatch(form, text, re.ASCII if scheme == "NRIC" else 0):
            yield party_finding(party, code, f"{scheme} is not valid", path)


def check_contact(party: Party) -> Iterator[Finding]:
    """Yield the findings about telephone number and e-mail address.

    Both may be NA for the general public, the number also for a supplier. Portal: 10.3, 10.13
    """
    for path, forms in CONTACT.items():
        text = party.text(path)
        broken = [rule for rule in forms if not re.fullmatch(rule[0], text)]
        may_be_absent = party.is_public or (
            party.role == "SUPPLIER" and path == "Contact.Telephone"
        )
        if text and not (text == "NA" and may_be_absent) and broken:
            _, code, message = broken[0]
            yield party_finding(party, code, message, path)


def check_address(party: Party) -> Iterator[Finding]:
    """Yield the findings about address lines and postcode."""
    path = "PostalAddress.AddressLine"
    if len(list(entries(party.node, path))) > 3:
        yield party_finding(party, None, "No more than three address lines are allowed", path)
    path = "PostalAddress.PostalZone"
    postcode = party.text(path)
    if (
        party.country == "MYS"
        and postcode not in ("", "NA")
        and not re.fullmatch("[0-9]{1,5}", postcode)
    ):
        yield party_finding(party, None, "Postcode is not valid", path)


def check_incoterms(document: Document, now: float, controls: Controls) -> Iterator[Finding]:
    """Yield a finding if a reference without a type, the incoterms, has another form.

    Portal: 10.2
    """
    path = "AdditionalDocumentReference"
    for reference in entries(document.invoice, path):
        found = value(reference, "ID") or ""
        if not value(reference, "DocumentType") and not re.fullmatch(INCOTERMS, found.strip()):
            message = "Incoterms are not at most 3 letters and digits."
            yield Finding(None, message, "ID", f"Invoice.{path}.ID")


def check_activity(document: Document, now: float, controls: Controls) -> Iterator[Finding]:
    """Yield a finding if the supplier's MSIC code or business activity is missing."""
    path, supplier = "IndustryClassificationCode", document.supplier
    if not supplier.text(path):
        yield party_finding(supplier, None, "MSIC code is required", path)
    elif not 0 < len(str(value(supplier.node, path, "name") or "").strip()) <= 300:
        yield party_finding(supplier, None, "Business activity description is required", path)


def check_lines(document: Document, now: float, controls: Controls) -> Iterator[Finding]:
    """Yield the findings about the lines."""
    for index, line in enumerate(entries(document.invoice, "InvoiceLine")):
        path = f"Invoice.InvoiceLine[{index}].Item"
        if not classifications(line):
            where = f"{path}.CommodityClassification"
            yield Finding("CF364", "Classification is required.", "ItemClassificationCode", where)
        if not (value(line, "Item.Description") or "").strip():
            yield Finding(None, "Description is required.", "Description", f"{path}.Description")
        if any(Decimal(found) < 0 for found in values(line, "TaxTotal.TaxSubtotal.Percent")):
            where = f"Invoice.InvoiceLine[{index}].TaxTotal"
            yield Finding(None, "Tax rate cannot be negative.", "Percent", where)


def check_exemptions(document: Document, now: float, controls: Controls) -> Iterator[Finding]:
    """Yield a finding for each tax exemption without a reason."""
    name = "TaxExemptionReason"
    for prefix in ("", "InvoiceLine."):
        path = f"{prefix}TaxTotal.TaxSubtotal.TaxCategory"
        for category in entries(document.invoice, path):
            if value(category, "ID") == "E" and not value(category, name):
                yield Finding(None, "Tax exemption reason is required.", name, f"Invoice.{path}")


RULES: tuple[Rule, ...] = (
    check_times,
    check_header,
    check_incoterms,
    check_parties,
    check_activity,
    check_lines,
    check_exemptions,
    totals.check,
)


def texts(node: Any, path: str) -> list[str]:
    """Return the values at a path that are text."""
    return [text for text in values(node, path) if isinstance(text, str)]


def last(path: str) -> str:
    """Return the name of the last element of a path."""
    return path.rpartition(".")[2]


def select_code(party: Party, supplier: str | None, buyer: str | None) -> str | None:
    """Return the code for the role of the party."""
    return supplier if party.role == "SUPPLIER" else buyer


def party_finding(party: Party, code: str | None, message: str, path: str) -> Finding:
    """Return a finding at a path below a party."""
    return Finding(code, f"{message} - {party.role}", last(path), f"Invoice.{party.root}.{path}")

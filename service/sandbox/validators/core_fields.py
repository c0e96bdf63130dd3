"""Step 2: what must be there, how long it may be, and of which characters. Portal: 10, 14.3"""

import re
from decimal import Decimal

from ..document import IDENTITY_SCHEMES, classifications, entries, value, values
from . import Finding, totals

#: address or name of a party: path, what it is, code for the supplier, code for the buyer
PARTY_FIELDS = (
    ("PartyLegalEntity.RegistrationName", "Name is not valid", "CF334", "CF333"),
    ("PostalAddress.Country.IdentificationCode", "Country is required", "CF336", "CF337"),
    ("PostalAddress.CityName", "City is required", "CF339", "CF340"),
    ("PostalAddress.CountrySubentityCode", "State is required", "CF342", "CF343"),
    ("PostalAddress.AddressLine.Line", "Address line 1 is required", "CF345", "CF346"),
    ("Contact.Telephone", "Contact number is required", "CF348", "CF349"),
)
#: what may be blank when the first address line is NA, and for the general public of a consolidated
#: document
OPTIONAL_WITH_NA = {"PostalAddress.CityName", "PostalAddress.Country.IdentificationCode"}
OPTIONAL_FOR_PUBLIC = OPTIONAL_WITH_NA | {"PostalAddress.CountrySubentityCode"}

#: path -> most characters
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
#: path below a party -> most characters, code for the supplier, code for the buyer
PARTY_LENGTHS = {
    "PartyLegalEntity.RegistrationName": (300, "CF334", "CF333"),
    "PostalAddress.AddressLine.Line": (150, "CF345", "CF346"),
    "PostalAddress.CityName": (50, None, None),
    "PostalAddress.CountrySubentityCode": (50, None, None),
    "PostalAddress.PostalZone": (50, None, None),
    "Contact.ElectronicMail": (320, "CF401", "CF401"),
}
#: scheme of an identification -> the form of its value, the code of a breach
IDENTIFICATIONS = {
    "TIN": (r".{1,14}", "CF358"),
    "BRN": (r".{1,20}", None),
    "NRIC": (r"\d{12}|NA", "CF324"),
    "PASSPORT": (r".{1,12}", None),
    "ARMY": (r".{1,12}", None),
    "SST": (r"[A-Za-z0-9;-]{1,35}", None),
    "TTX": (r"[A-Za-z0-9-]{1,17}", "CF407"),
}
REASON = r"[\w .,()-]*"
#: path -> the form of every value there
FORMS = {
    "AccountingSupplierParty.AdditionalAccountID": r"[\w -]*",
    "AdditionalDocumentReference.DocumentDescription": r"[\w ()-]*",
    "TaxTotal.TaxSubtotal.TaxCategory.TaxExemptionReason": REASON,
    "InvoiceLine.TaxTotal.TaxSubtotal.TaxCategory.TaxExemptionReason": REASON,
}
#: path below a party -> (form, code, what is wrong): the first that a text breaks is found. The
#: codes are published
#: without saying which is which, and this is one reading.
CONTACT = {
    "Contact.Telephone": (
        (r"\+?[0-9]+", "CF410", "Contact number is not valid"),
        (r".{8,20}", "CF366", "Contact number has not 8 to 20 characters"),
    ),
    "Contact.ElectronicMail": (
        (r"[^\s,;]+", "CF403", "E-mail is not one address without blanks"),
        (r"[^@]+@[^@]+\.[^@]+", "CF404", "E-mail is not valid"),
    ),
}


def check(document, now, controls):
    """Every finding, rule by rule; `now` is in Unix seconds."""
    return [finding for rule in RULES for finding in rule(document, now, controls)]


def times(document, now, controls):
    path = "Invoice.IssueDate AND Invoice.IssueTime"
    if document.issued_at > now:
        yield Finding("CF321", "Issue date and time are in the future.", "DatetimeIssued", path)
    elif document.issued_at < now - controls.age_window_seconds:
        yield Finding(
            "CF321", "Issue date and time are too far in the past.", "DatetimeIssued", path
        )


def header(document, *_):
    if not document.number.strip():
        yield Finding(None, "Invoice number is required.", "ID", "Invoice.ID")
    if not document.currency:
        yield Finding(
            "CF378",
            "Currency code is required.",
            "DocumentCurrencyCode",
            "Invoice.DocumentCurrencyCode",
        )
    for path, most in LENGTHS.items():
        if any(len(text) > most for text in texts(document.invoice, path)):
            yield too_long(path, most)
    for path, form in FORMS.items():
        if not all(re.fullmatch(form, text) for text in texts(document.invoice, path)):
            yield Finding(
                None,
                f"{last(path)} has characters that are not allowed.",
                last(path),
                f"Invoice.{path}",
            )


def parties(document, *_):
    for party in (document.supplier, document.buyer):
        yield from missing_fields(document, party)
        yield from long_fields(party)
        yield from identifications(party)
        yield from contact(party)
        yield from address(party)


def missing_fields(document, party):
    blank = set()
    if party.text("PostalAddress.AddressLine.Line") == "NA":
        blank = OPTIONAL_WITH_NA
    if document.nameless(party):
        blank = OPTIONAL_FOR_PUBLIC
    for path, wording, *codes in PARTY_FIELDS:
        if path not in blank and not party.text(path):
            yield of_party(party, coded(party, *codes), wording, path)


def long_fields(party):
    for path, (most, *codes) in PARTY_LENGTHS.items():
        if any(len(text) > most for text in texts(party.node, path)):
            yield of_party(
                party, coded(party, *codes), f"{last(path)} is longer than {most} characters", path
            )


def identifications(party):
    path = "PartyIdentification.ID"
    if not party.tin:
        yield of_party(party, coded(party, None, "CF358"), "TIN is required", path)
    if sum(scheme in IDENTITY_SCHEMES for scheme, _ in party.identifications) != 1:
        yield of_party(party, None, "Exactly one of BRN, NRIC, PASSPORT and ARMY is required", path)
    for scheme, text in party.identifications:
        form, code = IDENTIFICATIONS.get(scheme, (None, None))
        if scheme == "TIN" and party.role == "SUPPLIER":
            code = None  # CF358 is the buyer's
        if form is None:
            yield of_party(party, None, f"Scheme {scheme} is not known", path)
        elif text and not re.fullmatch(form, text, re.ASCII if scheme == "NRIC" else 0):
            yield of_party(party, code, f"{scheme} is not valid", path)


def contact(party):
    for path, forms in CONTACT.items():
        text = party.text(path)
        broken = [rule for rule in forms if not re.fullmatch(rule[0], text)]
        if text not in ("", "NA") and broken:
            _, code, wording = broken[0]
            yield of_party(party, code, wording, path)


def address(party):
    lines = list(entries(party.node, "PostalAddress.AddressLine"))
    postcode = party.text("PostalAddress.PostalZone")
    if len(lines) > 3:
        yield of_party(
            party, None, "No more than three address lines are allowed", "PostalAddress.AddressLine"
        )
    if (
        party.country == "MYS"
        and postcode not in ("", "NA")
        and not re.fullmatch("[0-9]{1,5}", postcode)
    ):
        yield of_party(party, None, "Postcode is not valid", "PostalAddress.PostalZone")


def supplier_activity(document, *_):
    path = "IndustryClassificationCode"
    if not document.supplier.text(path):
        yield of_party(document.supplier, None, "MSIC code is required", path)
    elif not 0 < len(str(value(document.supplier.node, path, "name") or "").strip()) <= 300:
        yield of_party(document.supplier, None, "Business activity description is required", path)


def lines(document, *_):
    for index, line in enumerate(entries(document.invoice, "InvoiceLine")):
        path = f"Invoice.InvoiceLine[{index}].Item"
        if not classifications(line):
            where = f"{path}.CommodityClassification"
            yield Finding("CF364", "Classification is required.", "ItemClassificationCode", where)
        if not (value(line, "Item.Description") or "").strip():
            yield Finding(None, "Description is required.", "Description", f"{path}.Description")
        if any(Decimal(found) < 0 for found in values(line, "TaxTotal.TaxSubtotal.Percent")):
            yield Finding(
                None,
                "Tax rate cannot be negative.",
                "Percent",
                f"Invoice.InvoiceLine[{index}].TaxTotal",
            )


def exemptions(document, *_):
    for prefix in ("", "InvoiceLine."):
        path = f"{prefix}TaxTotal.TaxSubtotal.TaxCategory"
        for category in entries(document.invoice, path):
            if value(category, "ID") == "E" and not value(category, "TaxExemptionReason"):
                yield Finding(
                    None,
                    "Tax exemption reason is required.",
                    "TaxExemptionReason",
                    f"Invoice.{path}",
                )


RULES = (times, header, parties, supplier_activity, lines, exemptions, totals.check)


def texts(node, path):
    return [text for text in values(node, path) if isinstance(text, str)]


def last(path):
    return path.rpartition(".")[2]


def coded(party, supplier, buyer):
    return supplier if party.role == "SUPPLIER" else buyer


def too_long(path, most):
    return Finding(
        None, f"{last(path)} is longer than {most} characters.", last(path), f"Invoice.{path}"
    )


def of_party(party, code, wording, path):
    return Finding(code, f"{wording} - {party.role}", last(path), f"Invoice.{party.root}.{path}")

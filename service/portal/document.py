"""A stored invoice or note as the portal's UBL 2.1 JSON document, and the bytes that are sent.

Pure functions. Each group of elements is one function that reads like its table in the portal's document
description: header and totals here, the rest in parties, lines, references and delivery. Portal: 10
"""

import base64
import hashlib
from datetime import timezone
from decimal import Decimal

import simplejson

from service.money import EXEMPT, round2, totals
from service.portal.delivery import delivery, payment_means, payment_terms
from service.portal.lines import adjustment, document_tax, exemption_reasons, invoice_line, is_exempt
from service.portal.parties import (
    BUYER_TINS,
    NO_TRADE,
    SUPPLIER_TINS,
    buyer_party,
    general_tin,
    industry,
    is_abroad,
    issuer_party,
    named,
    own_tin,
    supplier_party,
)
from service.portal.references import billing_reference, document_references
from service.portal.ubl import amount, group, optional, text, value

HOME_CURRENCY = "MYR"

NAMESPACE = "urn:oasis:names:specification:ubl:schema:xsd:"
NAMESPACES = {
    "_D": NAMESPACE + "Invoice-2",
    "_A": NAMESPACE + "CommonAggregateComponents-2",
    "_B": NAMESPACE + "CommonBasicComponents-2",
}

#: our type -> the portal's document type. Portal: 9
DOCUMENT_TYPES = {
    "INVOICE": "01",
    "PENDING_FINALIZE_INVOICE": "01",
    "CONSOLIDATED_INVOICE": "01",
    "SELF_BILLED_INVOICE": "11",
    "PENDING_FINALIZE_SELF_BILLED_INVOICE": "11",
    "CONSOLIDATED_SELF_BILLED_INVOICE": "11",
}
NOTE_TYPES = {"CREDIT_NOTE": "02", "DEBIT_NOTE": "03", "REFUND_NOTE": "04"}
SELF_BILLED_NOTE_TYPES = {"CREDIT_NOTE": "12", "DEBIT_NOTE": "13", "REFUND_NOTE": "14"}


def build(source, issuer, *, number, issued_at, version="1.0"):
    """The document of `source`, to be given to `encode`; `missing` must have found nothing.

    `source` has the request shape, and for a note `selfBilled` and `originals`, [{uuid, number}]. `issuer` is the
    company's record. `issued_at` is in UTC. Raises money.AmountError when the lines make no amounts.
    """
    supplier, buyer = parties(source, issuer)
    ours = {} if is_self_billed(source) else issuer  # what the company says of itself as a supplier only
    currency = source.get("currencyCode") or HOME_CURRENCY
    items, references, payment = source["lineItems"], source.get("references") or (), source.get("payment") or {}
    adjustments = source.get("invoiceLevelAllowanceCharge") or {}
    sums = totals(items, adjustments)
    invoice = group(
        **header(source, number, issued_at, version, currency),
        BillingReference=billing_reference(originals(source), references),
        AdditionalDocumentReference=document_references(references),
        AccountingSupplierParty=group(
            AdditionalAccountID=optional(ours.get("exporter_certified_number"), schemeAgencyName="CertEx"),
            Party=supplier_party(supplier),
        ),
        AccountingCustomerParty=group(Party=buyer_party(buyer)),
        Delivery=delivery(source.get("delivery") or {}, number, currency),
        PaymentMeans=payment_means(payment, payment and ours.get("bank_account")),
        PaymentTerms=payment_terms(payment),
        AllowanceCharge=document_adjustments(adjustments, currency),
        TaxTotal=document_tax(sums, exemption_reasons(items), currency),
        LegalMonetaryTotal=document_totals(sums, currency),
        InvoiceLine=[
            invoice_line(index, item, amounts, currency)
            for index, (item, amounts) in enumerate(zip(items, sums.lines), 1)
        ],
    )
    return {**NAMESPACES, "Invoice": invoice}


def encode(document):
    """The minified UTF-8 bytes that are hashed, signed and sent; numbers are plain decimals. Portal: 10.1"""
    text = _quick.encode(document)
    if "E+" in text or "E-" in text:  # perhaps a number with an exponent, as str() writes a tiny or huge Decimal
        text = _careful.encode(document)
    return text.encode("utf-8")


def envelope(documents):
    """The body of a submission of [(number, bytes of the document)]. Portal: 4.1"""
    entries = [
        {
            "format": "JSON",
            "document": base64.b64encode(content).decode("ascii"),
            "documentHash": hashlib.sha256(content).hexdigest(),
            "codeNumber": number,
        }
        for number, content in documents
    ]
    return encode({"documents": entries})


def _plain(number):
    """A Decimal without an exponent; anything else is refused."""
    if not isinstance(number, Decimal):
        raise TypeError(f"{type(number).__name__} has no place in a document")
    return simplejson.RawJSON(format(number, "f"))


def _encoder(**decimals):
    """Without tuples, which documents do not have: looking for them more than doubles the time."""
    shape = {"ensure_ascii": False, "separators": (",", ":"), "namedtuple_as_object": False, "tuple_as_array": False}
    return simplejson.JSONEncoder(**shape, **decimals)


#: Both made once. The careful one takes twice as long.
_quick = _encoder(use_decimal=True)
_careful = _encoder(use_decimal=False, default=_plain)


# What the document is


def document_type(source):
    if source["type"] in DOCUMENT_TYPES:
        return DOCUMENT_TYPES[source["type"]]
    return (SELF_BILLED_NOTE_TYPES if source.get("selfBilled") else NOTE_TYPES)[source["type"]]


def is_self_billed(source):
    return document_type(source).startswith("1")


def originals(source):
    """What a note adjusts; only a note refers to another document. Portal: 10.14"""
    return source["originals"] if source["type"] in NOTE_TYPES else ()


def parties(source, issuer):
    """(supplier, buyer) in the shape of a request's parties; the issuer is the buyer when it bills itself."""
    us = issuer_party(issuer)
    if is_self_billed(source):
        return named(source.get("supplier")), us
    return us, named(source.get("buyer"))


# Header. Portal: 10.2


def header(source, number, issued_at, version, currency):
    moment = issued_at.astimezone(timezone.utc)
    return {
        "ID": value(number),
        "IssueDate": value(moment.strftime("%Y-%m-%d")),
        "IssueTime": value(moment.strftime("%H:%M:%SZ")),
        "InvoiceTypeCode": value(document_type(source), listVersionID=version),
        "DocumentCurrencyCode": value(currency),
        "TaxCurrencyCode": value(currency),
        "TaxExchangeRate": exchange_rate(source, currency),
        "InvoicePeriod": billing_period(source.get("billingPeriod") or {}),
    }


def exchange_rate(source, currency):
    if currency == HOME_CURRENCY:
        return None
    return group(
        SourceCurrencyCode=value(currency),
        TargetCurrencyCode=value(HOME_CURRENCY),
        CalculationRate=value(Decimal(source["exchangeRate"])),
    )


def billing_period(period):
    return group(
        StartDate=optional(period.get("start")),
        EndDate=optional(period.get("end")),
        Description=optional(period.get("frequency"), 50),
    )


# Document totals. Portal: 10.7


def document_adjustments(given, currency):
    return [
        adjustment(is_charge, round2(entry["amount"]), None, entry.get("reason"), currency)
        for name, is_charge in (("allowances", False), ("charges", True))
        for entry in given.get(name) or ()
    ]


def document_totals(sums, currency):
    return group(
        LineExtensionAmount=amount(sums.net_amount, currency),
        TaxExclusiveAmount=amount(sums.excluding_tax, currency),
        TaxInclusiveAmount=amount(sums.including_tax, currency),
        AllowanceTotalAmount=sums.allowances and amount(sums.allowances, currency),
        ChargeTotalAmount=sums.charges and amount(sums.charges, currency),
        PayableAmount=amount(sums.payable, currency),
    )


# What has to be there before a document is built. Portal: 14.3

#: The code of an absent fact for which the portal has none.
REQUIRED = "Required"

#: member of a party, what it is, the code when the supplier or the buyer lacks it, the company's column
PARTY_FACTS = (
    ("/name", "name", "CF334", "CF333", "name"),
    ("/tin", "TIN", REQUIRED, REQUIRED, "tin_code"),
    ("/registration/number", "registration number", REQUIRED, REQUIRED, "registration_number"),
    ("/contactNumber", "phone number", "CF348", "CF349", "phone"),
    ("/address/line1", "first address line", "CF345", "CF346", "address"),
    ("/address/city", "city", "CF339", "CF340", "city"),
    ("/address/state", "state", "CF342", "CF343", "state"),
    ("/address/country", "country", "CF336", "CF337", "country"),
    ("/msic", "MSIC code", REQUIRED, REQUIRED, "msic_code"),
    ("/businessActivityDescription", "business activity", REQUIRED, REQUIRED, "business_activity_description"),
)

#: member of a line, what it is, the code when it is absent
LINE_FACTS = (
    ("/description", "description", REQUIRED),
    ("/classifications", "classification", "CF364"),
    ("/unit/price", "unit price", REQUIRED),
    ("/unit/count", "count", REQUIRED),
    ("/taxDetails", "tax type", REQUIRED),
)

#: Tax types that have no rate to give.
WITHOUT_RATE = {"06", EXEMPT}
RATES = {"percentage", "perUnitAmount"}


def missing(source, issuer):
    """The mandatory facts that are absent, as [{code, path, message}]; nothing is missing when it is empty.

    `path` points into the request body, or for the issuer names the column of the company: `/company/msic_code`.
    """
    supplier, buyer = parties(source, issuer)
    self_billed = is_self_billed(source)
    return [
        *missing_in_header(source),
        *missing_in_party(supplier, is_supplier=True, is_us=not self_billed),
        *missing_in_party(buyer, is_supplier=False, is_us=self_billed),
        *(lack for index, item in enumerate(source.get("lineItems") or ()) for lack in missing_in_line(index, item)),
    ]


def absence(code, path, message):
    return {"code": code, "path": path, "message": message}


def missing_in_header(source):
    currency = source.get("currencyCode") or HOME_CURRENCY
    if not source.get("lineItems"):
        yield absence(REQUIRED, "/lineItems", "The document has no line.")
    if currency != HOME_CURRENCY and not source.get("exchangeRate"):
        yield absence(REQUIRED, "/exchangeRate", f"A document in {currency} needs its exchange rate to MYR.")
    if source["type"] in NOTE_TYPES and not source.get("originals"):
        yield absence(REQUIRED, "/originals", "A note needs the document that it adjusts.")


def missing_in_party(party, is_supplier, is_us):
    who = "supplier" if is_supplier else "buyer"
    waived = waived_facts(party, is_supplier, is_us)
    for member, words, supplier_code, buyer_code, column in PARTY_FACTS:
        if member in waived or is_given(party, member):
            continue
        code = supplier_code if is_supplier else buyer_code
        path = f"/company/{column}" if is_us else f"/{who}{member}"
        yield absence(code, path, f"The {words} of the {'company' if is_us else who} is missing.")


def waived_facts(party, is_supplier, is_us):
    """The facts that this party may go without. Portal: 10.4, 10.14, 12.9"""
    kind, tins = party.get("type"), SUPPLIER_TINS if is_supplier else BUYER_TINS
    waivers = {
        "/tin": general_tin(party, tins),
        "/registration/number": not is_us and (own_tin(party) or kind != "LOCAL_INDIVIDUAL"),
        "/address/state": is_abroad(party.get("address") or {}),
        "/msic": not is_supplier or kind in NO_TRADE,
        "/businessActivityDescription": not is_supplier or industry(party)[0]["name"],
    }
    return {member for member, holds in waivers.items() if holds}


def missing_in_line(index, item):
    path, number = f"/lineItems/{index}", index + 1
    for member, words, code in LINE_FACTS:
        if not is_given(item, member):
            yield absence(code, path + member, f"The {words} of line {number} is missing.")
    for position, detail in enumerate(item.get("taxDetails") or ()):
        yield from missing_in_tax(detail, f"{path}/taxDetails/{position}", number)
    if is_exempt(item) and not is_given(item, "/taxExemptionReason"):
        yield absence(REQUIRED, f"{path}/taxExemptionReason", f"Line {number} is exempt and needs the reason.")


def missing_in_tax(detail, path, number):
    if not is_given(detail, "/taxType"):
        yield absence(REQUIRED, f"{path}/taxType", f"Line {number} has a tax without its type.")
    elif detail["taxType"] not in WITHOUT_RATE and not (detail.get("taxRate") or {}).keys() & RATES:
        yield absence(REQUIRED, f"{path}/taxRate", f"Line {number} has a tax without its rate.")


def is_given(holder, pointer):
    """Whether the member is there and is not blank or empty; 0 is there."""
    member = holder
    for name in pointer.split("/")[1:]:
        member = (member or {}).get(name)
    return bool(text(member) if isinstance(member, str) else member not in (None, [], {}))

"""A stored invoice or note as the portal's UBL 2.1 JSON document, and the bytes that are sent.

Pure functions. Each group of elements is one function that reads like its table in the portal's document
description: header and totals here, the rest in parties, lines, references and delivery. Portal: 10
"""

import base64
import hashlib
from datetime import UTC
from decimal import Decimal

import simplejson

from service import json_codec
from service.documents.money import round2, totals
from service.documents.ubl.elements import amount, group, optional, value
from service.documents.ubl.lines import adjustment, document_tax, exemption_reasons, invoice_line
from service.documents.ubl.parties import buyer_party, issuer_party, named, supplier_party
from service.documents.ubl.references import billing_reference, document_references
from service.documents.ubl.shipping import delivery, payment_means, payment_terms

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
    """The document of `source`, to be given to `encode`; `preflight.can_be_built` says whether there is one.

    `source` has the request shape, and for a note `selfBilled` and `originals`, [{uuid, number}]. `issuer` is the
    company's record. `issued_at` is in UTC. Raises money.AmountError when the lines make no amounts.
    """
    supplier, buyer = parties(source, issuer)
    # What the company says of itself as a supplier only
    ours = {} if is_self_billed(source) else issuer
    currency = source.get("currencyCode") or HOME_CURRENCY
    items, references, payment = (
        source["lineItems"],
        source.get("references") or (),
        source.get("payment") or {},
    )
    adjustments = source.get("invoiceLevelAllowanceCharge") or {}
    sums = totals(items, adjustments)
    invoice = group(
        **header(source, number, issued_at, version, currency),
        BillingReference=billing_reference(originals(source), references),
        AdditionalDocumentReference=document_references(references),
        AccountingSupplierParty=group(
            AdditionalAccountID=optional(
                ours.get("exporter_certified_number"), schemeAgencyName="CertEx"
            ),
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
            for index, (item, amounts) in enumerate(zip(items, sums.lines, strict=False), 1)
        ],
    )
    return {**NAMESPACES, "Invoice": invoice}


def encode(document):
    """The minified UTF-8 bytes that are hashed, signed and sent; numbers are plain decimals. Portal: 10.1"""
    text = _quick.encode(document)
    # Perhaps a number with an exponent, as str() writes a tiny or huge Decimal
    if "E+" in text or "E-" in text:
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
    return enclosed(entries)


def enclosed(entries):
    """The body of a submission of entries of other submissions, as they are there."""
    return encode({"documents": entries})


def entries(body):
    """{number: entry} of the body of a submission. Raises ValueError for what is none."""
    try:
        return {entry["codeNumber"]: entry for entry in json_codec.loads(body)["documents"]}
    except (json_codec.NotJson, LookupError, TypeError) as fault:
        raise ValueError("The bytes are no submission.") from fault


def contents(body: bytes) -> dict[str, bytes]:
    """Return {number: the bytes of the document} of the body of a submission. Raises ValueError for other bytes."""
    return {number: base64.b64decode(entry["document"]) for number, entry in entries(body).items()}


def _plain(number):
    """A Decimal without an exponent; anything else is refused."""
    if not isinstance(number, Decimal):
        raise TypeError(f"{type(number).__name__} has no place in a document")
    return simplejson.RawJSON(format(number, "f"))


def _encoder(**decimals):
    """Without tuples, which documents do not have: looking for them more than doubles the time."""
    shape = {
        "ensure_ascii": False,
        "separators": (",", ":"),
        "namedtuple_as_object": False,
        "tuple_as_array": False,
    }
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
    moment = issued_at.astimezone(UTC)
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

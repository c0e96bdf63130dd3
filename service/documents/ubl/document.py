"""Build the portal's UBL 2.1 JSON document of an invoice or note, and the bytes that are sent.

Each function builds the elements of one table of the portal's document description: parties and
lines in their modules, the rest here. Portal: 10
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from service import json_codec
from service.documents.money import Totals, compute_document, read_adjustments, round_cents
from service.documents.ubl.elements import (
    Element,
    amount,
    clean_text,
    get_object,
    group,
    optional,
    value,
)
from service.documents.ubl.lines import (
    build_adjustment,
    build_document_tax,
    build_line,
    join_exemption_reasons,
)
from service.documents.ubl.parties import (
    Party,
    build_buyer,
    build_recipient,
    build_supplier,
    make_issuer_party,
    or_general_public,
)
from service.json_types import JsonMapping, JsonObject

HOME_CURRENCY = "MYR"

NAMESPACE = "urn:oasis:names:specification:ubl:schema:xsd:"
NAMESPACES = {
    "_D": NAMESPACE + "Invoice-2",
    "_A": NAMESPACE + "CommonAggregateComponents-2",
    "_B": NAMESPACE + "CommonBasicComponents-2",
}

#: Type of a note -> the last digit of the portal's document type. Portal: 9
NOTE_TYPES = {"CREDIT_NOTE": "2", "DEBIT_NOTE": "3", "REFUND_NOTE": "4"}

#: Type of a reference to a free trade agreement.
AGREEMENT = "FTA"
_COMMA = re.compile(r"\s*,\s*")


def build(
    source: JsonObject,
    issuer: JsonMapping,
    *,
    number: str,
    issued_at: datetime,
    version: str = "1.0",
) -> JsonObject:
    """Return the document of `source`, if `preflight.can_be_built` of its findings.

    `source` has the request shape, and for a note also `selfBilled` and `originals`,
    [{uuid, number}]. `issuer` is the company's record, `issued_at` is in UTC. Raises
    money.AmountError if the amounts of the lines are invalid.
    """
    supplier, buyer = get_parties(source, issuer)
    # The company's own facts below are those of a supplier.
    own: JsonMapping = {} if is_self_billed(source) else issuer
    currency = source.get("currencyCode") or HOME_CURRENCY
    originals = source["originals"] if source["type"] in NOTE_TYPES else ()  # Portal: 10.14
    items, references = source["lineItems"], source.get("references") or ()
    payment = get_object(source, "payment")
    sums = compute_document(source)
    invoice = group(
        **_build_header(source, number, issued_at, version),
        BillingReference=_build_billing_references(originals, references),
        AdditionalDocumentReference=_build_document_references(references),
        AccountingSupplierParty=group(
            AdditionalAccountID=optional(
                own.get("exporter_certified_number"), schemeAgencyName="CertEx"
            ),
            Party=build_supplier(supplier),
        ),
        AccountingCustomerParty=group(Party=build_buyer(buyer)),
        Delivery=_build_delivery(get_object(source, "delivery"), number, currency),
        PaymentMeans=_build_payment_means(payment, own.get("bank_account")),
        PaymentTerms=group(Note=optional(payment.get("terms"), 300)),
        PrepaidPayment=_build_prepayment(get_object(source, "prepayment"), sums.prepaid, currency),
        AllowanceCharge=[
            build_adjustment(is_charge, each, currency)
            for name, is_charge in (("allowances", False), ("charges", True))
            for each in read_adjustments(source, name)
        ],
        TaxTotal=build_document_tax(sums, join_exemption_reasons(items), currency),
        LegalMonetaryTotal=_build_totals(sums, currency),
        InvoiceLine=[
            build_line(index, item, amounts, currency)
            for index, (item, amounts) in enumerate(zip(items, sums.lines, strict=False), 1)
        ],
    )
    return {**NAMESPACES, "Invoice": invoice}


def encode(document: object) -> bytes:
    """Return the minified UTF-8 bytes that are hashed, signed and sent. Portal: 10.1"""
    return json_codec.encode_plain(document)


def build_entry(number: str, content: bytes) -> JsonObject:
    """Return the entry of a document in the body of a submission. Portal: 4.1"""
    return {
        "format": "JSON",
        "document": base64.b64encode(content).decode("ascii"),
        "documentHash": hashlib.sha256(content).hexdigest(),
        "codeNumber": number,
    }


def build_envelope(entries: Sequence[JsonObject]) -> bytes:
    """Return the body of a submission with some entries."""
    return encode({"documents": entries})


def get_document_type(source: JsonMapping) -> str:
    """Return the portal's document type of a source: 01 to 04, or 11 to 14 if self-billed."""
    return ("1" if is_self_billed(source) else "0") + NOTE_TYPES.get(source["type"], "1")


def is_self_billed(source: JsonMapping) -> bool:
    """Return whether the buyer issues the document, also if it is a note or waits for a party."""
    kind = source.get("targetInvoiceType") or source.get("type", "")
    return bool(source.get("selfBilled")) or "SELF_BILLED" in kind


def get_parties(source: JsonMapping, issuer: JsonMapping) -> tuple[Party, Party]:
    """Return (supplier, buyer) in the request shape; the buyer issues self-billed documents."""
    own = make_issuer_party(issuer)
    if is_self_billed(source):
        return or_general_public(source.get("supplier")), own
    return own, or_general_public(source.get("buyer"))


# Header. Portal: 10.2


def _build_header(
    source: JsonMapping, number: str, issued_at: datetime, version: str
) -> dict[str, Element | None]:
    moment = issued_at.astimezone(UTC)
    currency = source.get("currencyCode") or HOME_CURRENCY
    period = get_object(source, "billingPeriod")
    return {
        "ID": value(number),
        "IssueDate": value(moment.strftime("%Y-%m-%d")),
        "IssueTime": value(moment.strftime("%H:%M:%SZ")),
        "InvoiceTypeCode": value(get_document_type(source), listVersionID=version),
        "DocumentCurrencyCode": value(currency),
        "TaxCurrencyCode": value(currency),
        "TaxExchangeRate": _build_exchange_rate(source, currency),
        "InvoicePeriod": group(
            StartDate=optional(period.get("start")),
            EndDate=optional(period.get("end")),
            Description=optional(period.get("frequency"), 50),
        ),
    }


def _build_exchange_rate(source: JsonMapping, currency: str) -> Element | None:
    if currency == HOME_CURRENCY:
        return None
    return group(
        SourceCurrencyCode=value(currency),
        TargetCurrencyCode=value(HOME_CURRENCY),
        CalculationRate=value(Decimal(source["exchangeRate"])),
    )


# References: originals of a note, bills, customs forms and others. Portal: 10.2


def _build_billing_references(
    originals: Sequence[Mapping[str, str]], references: Iterable[Mapping[str, str]]
) -> Element:
    """Build one entry for all originals, and one for each bill. Portal: 10.2, 10.11"""
    entries: Element = []
    if originals:
        entries.append({"InvoiceDocumentReference": [_build_original(each) for each in originals]})
    bills = get_reference_numbers(references, "BILL")
    return entries + [{"AdditionalDocumentReference": group(ID=optional(bill))} for bill in bills]


def _build_original(original: Mapping[str, str]) -> JsonObject:
    # An original that was issued outside the portal has none. Portal: 10.11
    return {"ID": value(original["number"]), "UUID": value(original.get("uuid") or "NA")}


def _build_document_references(references: Sequence[Mapping[str, str]]) -> Element:
    """Build the other references. Customs forms share an entry per type."""
    return [
        *_build_form(get_reference_numbers(references, "CUSTOMS_FORM"), "CustomsImportForm"),
        *(_build_agreement(each) for each in references if each.get("type") == AGREEMENT),
        *_build_form(get_reference_numbers(references, "K2"), "K2"),
        *({"ID": value(number)} for number in get_reference_numbers(references, "INCOTERMS")),
    ]


def _build_form(numbers: list[str], document_type: str) -> Element:
    if not numbers:
        return []
    return [{"ID": value(",".join(numbers)), "DocumentType": value(document_type)}]


def _build_agreement(reference: Mapping[str, str]) -> JsonObject:
    return {
        "ID": value(AGREEMENT),
        "DocumentType": value("FreeTradeAgreement"),
        "DocumentDescription": value(clean_text(reference.get("description"), 300)),
    }


def get_reference_numbers(references: Iterable[Mapping[str, str]], kind: str) -> list[str]:
    """Return the numbers of one type of reference, without blanks around commas."""
    given = (
        _COMMA.sub(",", clean_text(each.get("id")))
        for each in references
        if each.get("type") == kind
    )
    return [number for number in given if number]


# Delivery and payment. Portal: 10.5, 10.6


def _build_delivery(given: JsonMapping, number: str, currency: str) -> Element | None:
    """Build the delivery of the document with this number.

    The charge for the delivery is not part of the document's charges and totals.
    """
    charge: JsonMapping | None = given.get("charge")
    return group(
        DeliveryParty=build_recipient(given),
        Shipment=charge
        and group(
            ID=value(number),
            FreightAllowanceCharge=group(
                ChargeIndicator=value(True),
                AllowanceChargeReason=optional(charge.get("reason"), 300),
                Amount=amount(round_cents(charge["amount"]), currency),
            ),
        ),
    )


def _build_payment_means(payment: Mapping[str, str], own_account: str | None) -> Element | None:
    """Build the payment means, or return None without a mode, which is mandatory.

    `own_account` is the default of the bank account.
    """
    account = clean_text(payment.get("bankAccount")) or clean_text(own_account)
    mode = clean_text(payment.get("mode"))
    if not mode:
        return None
    return group(
        PaymentMeansCode=value(mode), PayeeFinancialAccount=account and group(ID=value(account))
    )


def _build_prepayment(prepayment: JsonMapping, prepaid: Decimal, currency: str) -> Element | None:
    """Build the prepayment, or return None without one.

    `prepaid` is its amount, rounded as in the totals.
    """
    if not prepayment:
        return None
    return group(
        ID=optional(prepayment.get("reference"), 150),
        PaidAmount=amount(prepaid, currency),
        PaidDate=optional(prepayment.get("date")),
        PaidTime=optional(prepayment.get("time")),
    )


# Document totals. Portal: 10.7


def _build_totals(sums: Totals, currency: str) -> Element | None:
    return group(
        LineExtensionAmount=amount(sums.net_amount, currency),
        TaxExclusiveAmount=amount(sums.excluding_tax, currency),
        TaxInclusiveAmount=amount(sums.including_tax, currency),
        AllowanceTotalAmount=sums.allowances and amount(sums.allowances, currency),
        ChargeTotalAmount=sums.charges and amount(sums.charges, currency),
        PayableRoundingAmount=sums.rounding and amount(sums.rounding, currency),
        PayableAmount=amount(sums.payable, currency),
    )

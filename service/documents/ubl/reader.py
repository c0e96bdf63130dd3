"""Read a submitted document back from the UBL 2.1 JSON that `document.encode` wrote. Portal: 10

The bytes that were sent are immutable, also when the company or its prefix changes later, so a page
of the document shows the data that the portal has.
"""

import json
from decimal import Decimal
from typing import Any

from service.documents.money import ZERO, Adjustment, LineAmounts, Tax, Totals
from service.documents.printing import Printout, format_terms
from service.json_types import JsonMapping, JsonObject

Node = JsonMapping


def read(content: bytes) -> Printout:
    """Return the Printout of the bytes of a document, with the amounts that were sent."""
    (invoice,) = json.loads(content, parse_float=Decimal, parse_int=Decimal)["Invoice"]
    lines = invoice["InvoiceLine"]
    adjustments = invoice.get("AllowanceCharge", [])
    return Printout(
        kind=_get_value(invoice, "InvoiceTypeCode"),
        currency=_get_value(invoice, "DocumentCurrencyCode"),
        exchange_rate=_get_value(invoice, "TaxExchangeRate", "CalculationRate"),
        originals=[
            {"number": _get_value(each, "ID"), "uuid": _get_value(each, "UUID")}
            for each in _find(invoice, "BillingReference").get("InvoiceDocumentReference", [])
        ],
        supplier=read_party(_find(invoice, "AccountingSupplierParty", "Party")),
        buyer=read_party(_find(invoice, "AccountingCustomerParty", "Party")),
        items=[_read_item(line) for line in lines],
        allowances=[_read_adjustment(each) for each in adjustments if not _is_charge(each)],
        charges=[_read_adjustment(each) for each in adjustments if _is_charge(each)],
        sums=_read_totals(invoice, tuple(_read_amounts(line) for line in lines)),
        terms=format_terms(_read_terms(invoice)),
    )


def _read_terms(invoice: Node) -> JsonObject:
    """Return the members of the request that `format_terms` reads."""
    means, period = _find(invoice, "PaymentMeans"), _find(invoice, "InvoicePeriod")
    prepayment = _find(invoice, "PrepaidPayment")
    recipient = _find(invoice, "Delivery", "DeliveryParty", "PartyLegalEntity")
    return {
        "payment": {
            "mode": _get_value(means, "PaymentMeansCode"),
            "bankAccount": _get_value(means, "PayeeFinancialAccount", "ID"),
            "terms": _get_value(invoice, "PaymentTerms", "Note"),
        },
        "billingPeriod": {
            "start": _get_value(period, "StartDate"),
            "end": _get_value(period, "EndDate"),
            "frequency": _get_value(period, "Description"),
        },
        "delivery": {"name": _get_value(recipient, "RegistrationName")},
        "references": [
            {"type": "BILL", "id": _get_value(each, "AdditionalDocumentReference", "ID")}
            for each in invoice.get("BillingReference", [])
        ],
        "prepayment": {
            "date": _get_value(prepayment, "PaidDate"),
            "time": _get_value(prepayment, "PaidTime"),
            "reference": _get_value(prepayment, "ID"),
        },
    }


def _find(node: Node, *names: str) -> Node:
    """Return the first element at a path of names, or {} if there is none."""
    for name in names:
        elements: list[Node] = node.get(name) or [{}]
        node = elements[0]
    return node


def _get_value(node: Node, *names: str) -> Any:
    """Return the value of the first element at a path of names, or None."""
    return _find(node, *names).get("_")


def _is_charge(adjustment: Node) -> bool:
    return _get_value(adjustment, "ChargeIndicator")


# Parties. Portal: 10.3, 10.4


def read_party(party: Node) -> JsonObject:
    """Return a party in the request shape."""
    ids = {one["ID"][0]["schemeID"]: _get_value(one, "ID") for one in party["PartyIdentification"]}
    scheme = next((name for name in ids if name not in ("TIN", "SST", "TTX")), None)
    return {
        "name": _get_value(party, "PartyLegalEntity", "RegistrationName"),
        "tin": ids.get("TIN"),
        "registration": {"type": scheme, "number": ids.get(scheme)},
        "sstRegistrationNumber": ids.get("SST"),
        "tourismTaxRegistrationNumber": ids.get("TTX"),
        "msic": _get_value(party, "IndustryClassificationCode"),
        "businessActivityDescription": _find(party, "IndustryClassificationCode").get("name"),
        "contactNumber": _get_value(party, "Contact", "Telephone"),
        "email": _get_value(party, "Contact", "ElectronicMail"),
        "address": read_address(_find(party, "PostalAddress")),
    }


def read_address(address: Node) -> JsonObject:
    """Return a postal address in the request shape."""
    lines = {
        f"line{place}": _get_value(line, "Line")
        for place, line in enumerate(address.get("AddressLine", []), 1)
    }
    return {
        **lines,
        "city": _get_value(address, "CityName"),
        "zipCode": _get_value(address, "PostalZone"),
        "state": _get_value(address, "CountrySubentityCode"),
        "country": _get_value(address, "Country", "IdentificationCode"),
    }


# Lines. Portal: 10.8


def _read_item(line: Node) -> JsonObject:
    item, quantity = _find(line, "Item"), _find(line, "InvoicedQuantity")
    unit = {
        "code": quantity.get("unitCode"),
        "count": quantity["_"],
        "price": _get_value(line, "Price", "PriceAmount"),
    }
    members = {
        "id": _get_value(line, "ID"),
        "description": _get_value(item, "Description"),
        "classifications": _read_codes(item, "CLASS"),
        "tariffCode": next(iter(_read_codes(item, "PTC")), None),
        "unit": unit,
        "originCountry": _get_value(item, "OriginCountry", "IdentificationCode"),
        "taxExemptionReason": _read_exemption(_find(line, "TaxTotal")),
    }
    return {name: member for name, member in members.items() if member is not None}


def _read_codes(item: Node, list_id: str) -> list[str]:
    codes = (_find(each, "ItemClassificationCode") for each in item["CommodityClassification"])
    return [code["_"] for code in codes if code["listID"] == list_id]


def _read_exemption(total: Node) -> str | None:
    taxes: list[Node] = total.get("TaxSubtotal", [])
    reasons = (_get_value(tax, "TaxCategory", "TaxExemptionReason") for tax in taxes)
    return next((reason for reason in reasons if reason), None)


def _read_amounts(line: Node) -> LineAmounts:
    adjustments = {
        _is_charge(each): _read_adjustment(each) for each in line.get("AllowanceCharge", [])
    }
    return LineAmounts(
        subtotal=_get_value(line, "ItemPriceExtension", "Amount"),
        discount=adjustments.get(False),
        charge=adjustments.get(True),
        net=_get_value(line, "LineExtensionAmount"),
        taxes=tuple(map(_read_tax, _find(line, "TaxTotal").get("TaxSubtotal", []))),
        tax=_get_value(line, "TaxTotal", "TaxAmount"),
    )


def _read_adjustment(adjustment: Node) -> Adjustment:
    return Adjustment(
        _get_value(adjustment, "Amount"),
        _get_value(adjustment, "MultiplierFactorNumeric"),
        _get_value(adjustment, "AllowanceChargeReason"),
    )


def _read_tax(subtotal: Node) -> Tax:
    return Tax(
        type=_get_value(subtotal, "TaxCategory", "ID"),
        taxable=_get_value(subtotal, "TaxableAmount"),
        percentage=_get_value(subtotal, "Percent"),
        per_unit=_get_value(subtotal, "PerUnitAmount"),
        units=_get_value(subtotal, "BaseUnitMeasure"),
        at_rate=_get_value(subtotal, "TaxAmount"),
    )


# Totals. Portal: 10.7


def _read_totals(invoice: Node, lines: tuple[LineAmounts, ...]) -> Totals:
    sums = _find(invoice, "LegalMonetaryTotal")
    return Totals(
        lines=lines,
        net_amount=_get_value(sums, "LineExtensionAmount"),
        allowances=_get_value(sums, "AllowanceTotalAmount") or ZERO,
        charges=_get_value(sums, "ChargeTotalAmount") or ZERO,
        excluding_tax=_get_value(sums, "TaxExclusiveAmount"),
        tax=_get_value(invoice, "TaxTotal", "TaxAmount"),
        including_tax=_get_value(sums, "TaxInclusiveAmount"),
        prepaid=_get_value(invoice, "PrepaidPayment", "PaidAmount") or ZERO,
        rounding=_get_value(sums, "PayableRoundingAmount") or ZERO,
        payable=_get_value(sums, "PayableAmount"),
    )

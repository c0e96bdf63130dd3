"""A submitted document read back from its UBL 2.1 JSON: the other way round of portal/document.py.

What was sent never changes, also when the company moves or its prefix does; a page of it shows what the portal has.
Reads only bytes that `document.encode` made. Portal: 10
"""

import json
from decimal import Decimal

from service.documents.money import Adjustment, LineAmounts, Tax, Totals, TypeTotal
from service.documents.printing import Printout, terms


def read(content):
    """The Printout of the bytes of a document; amounts are those that were sent."""
    (invoice,) = json.loads(content, parse_float=Decimal, parse_int=Decimal)["Invoice"]
    lines = invoice["InvoiceLine"]
    adjustments = invoice.get("AllowanceCharge", [])
    return Printout(
        kind=value(invoice, "InvoiceTypeCode"),
        currency=value(invoice, "DocumentCurrencyCode"),
        exchange_rate=value(invoice, "TaxExchangeRate", "CalculationRate"),
        originals=[
            _original(each)
            for each in inside(invoice, "BillingReference").get("InvoiceDocumentReference", [])
        ],
        supplier=_party(inside(invoice, "AccountingSupplierParty", "Party")),
        buyer=_party(inside(invoice, "AccountingCustomerParty", "Party")),
        items=[_item(line) for line in lines],
        allowances=[_adjustment(each) for each in adjustments if not is_charge(each)],
        charges=[_adjustment(each) for each in adjustments if is_charge(each)],
        sums=_totals(invoice, tuple(_amounts(line) for line in lines)),
        terms=_terms(invoice),
    )


def _terms(invoice):
    means, period = inside(invoice, "PaymentMeans"), inside(invoice, "InvoicePeriod")
    bills = [
        value(each, "AdditionalDocumentReference", "ID")
        for each in invoice.get("BillingReference", [])
    ]
    return terms(
        mode=value(means, "PaymentMeansCode"),
        account=value(means, "PayeeFinancialAccount", "ID"),
        note=value(invoice, "PaymentTerms", "Note"),
        start=value(period, "StartDate"),
        end=value(period, "EndDate"),
        frequency=value(period, "Description"),
        recipient=value(
            invoice, "Delivery", "DeliveryParty", "PartyLegalEntity", "RegistrationName"
        ),
        bills=[bill for bill in bills if bill],
    )


def inside(element, *names):
    """The first element at the end of a path of names; empty when there is none."""
    for name in names:
        (element, *_) = element.get(name) or [{}]
    return element


def value(element, *names):
    return inside(element, *names).get("_")


def is_charge(adjustment):
    return value(adjustment, "ChargeIndicator")


def _original(reference):
    return {"number": value(reference, "ID"), "uuid": value(reference, "UUID")}


# Parties. Portal: 10.3, 10.4


def _party(party):
    ids = {one["ID"][0]["schemeID"]: value(one, "ID") for one in party["PartyIdentification"]}
    scheme = next((name for name in ids if name not in ("TIN", "SST", "TTX")), None)
    return {
        "name": value(party, "PartyLegalEntity", "RegistrationName"),
        "tin": ids.get("TIN"),
        "registration": {"type": scheme, "number": ids.get(scheme)},
        "sstRegistrationNumber": ids.get("SST"),
        "tourismTaxRegistrationNumber": ids.get("TTX"),
        "msic": value(party, "IndustryClassificationCode"),
        "businessActivityDescription": inside(party, "IndustryClassificationCode").get("name"),
        "contactNumber": value(party, "Contact", "Telephone"),
        "email": value(party, "Contact", "ElectronicMail"),
        "address": _address(inside(party, "PostalAddress")),
    }


def _address(address):
    lines = {
        f"line{place}": value(line, "Line")
        for place, line in enumerate(address.get("AddressLine", []), 1)
    }
    return {
        **lines,
        "city": value(address, "CityName"),
        "zipCode": value(address, "PostalZone"),
        "state": value(address, "CountrySubentityCode"),
        "country": value(address, "Country", "IdentificationCode"),
    }


# Lines. Portal: 10.8


def _item(line):
    item, quantity = inside(line, "Item"), inside(line, "InvoicedQuantity")
    unit = {
        "code": quantity.get("unitCode"),
        "count": quantity["_"],
        "price": value(line, "Price", "PriceAmount"),
    }
    members = {
        "id": value(line, "ID"),
        "description": value(item, "Description"),
        "classifications": _codes(item, "CLASS"),
        "tariffCode": next(iter(_codes(item, "PTC")), None),
        "unit": unit,
        "originCountry": value(item, "OriginCountry", "IdentificationCode"),
        "taxExemptionReason": _exemption(inside(line, "TaxTotal")),
    }
    return {name: member for name, member in members.items() if member is not None}


def _codes(item, list_id):
    codes = (inside(each, "ItemClassificationCode") for each in item["CommodityClassification"])
    return [code["_"] for code in codes if code["listID"] == list_id]


def _exemption(total):
    reasons = (
        value(tax, "TaxCategory", "TaxExemptionReason") for tax in total.get("TaxSubtotal", [])
    )
    return next(filter(None, reasons), None)


def _amounts(line):
    adjustments = {is_charge(each): _adjustment(each) for each in line.get("AllowanceCharge", [])}
    return LineAmounts(
        subtotal=value(line, "ItemPriceExtension", "Amount"),
        discount=adjustments.get(False),
        charge=adjustments.get(True),
        net=value(line, "LineExtensionAmount"),
        taxes=tuple(map(_tax, inside(line, "TaxTotal").get("TaxSubtotal", []))),
        tax=value(line, "TaxTotal", "TaxAmount"),
    )


def _adjustment(each):
    return Adjustment(
        value(each, "Amount"),
        value(each, "MultiplierFactorNumeric"),
        value(each, "AllowanceChargeReason"),
    )


def _tax(subtotal):
    return Tax(
        type=value(subtotal, "TaxCategory", "ID"),
        taxable=value(subtotal, "TaxableAmount"),
        percentage=value(subtotal, "Percent"),
        per_unit=value(subtotal, "PerUnitAmount"),
        units=value(subtotal, "BaseUnitMeasure"),
        amount=value(subtotal, "TaxAmount"),
    )


# Totals. Portal: 10.7


def _totals(invoice, lines):
    sums, taxes = inside(invoice, "LegalMonetaryTotal"), inside(invoice, "TaxTotal")
    by_type = {
        value(tax, "TaxCategory", "ID"): TypeTotal(
            value(tax, "TaxableAmount"), value(tax, "TaxAmount")
        )
        for tax in taxes.get("TaxSubtotal", [])
    }
    return Totals(
        lines=lines,
        net_amount=value(sums, "LineExtensionAmount"),
        allowances=value(sums, "AllowanceTotalAmount") or Decimal("0.00"),
        charges=value(sums, "ChargeTotalAmount") or Decimal("0.00"),
        excluding_tax=value(sums, "TaxExclusiveAmount"),
        tax=value(taxes, "TaxAmount"),
        including_tax=value(sums, "TaxInclusiveAmount"),
        payable=value(sums, "PayableAmount"),
        by_tax_type=by_type,
    )

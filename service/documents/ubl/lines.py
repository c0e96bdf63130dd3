"""The lines of a document, and the discounts, charges and taxes that lines and documents share. Portal: 10.7, 10.8

Amounts come from money.py.
"""

from functools import lru_cache

from service.documents.money import EXEMPT
from service.documents.ubl.elements import amount, entry, group, optional, text, value

TAX_SCHEME = [{"ID": [{"_": "OTH", "schemeID": "UN/ECE 5153", "schemeAgencyID": "6"}]}]


def invoice_line(index, item, amounts, currency):
    unit, origin = item["unit"], text(item.get("originCountry"))
    return entry(
        ID=value(text(item.get("id"), 50) or str(index)),
        InvoicedQuantity=quantity(unit["count"], unit.get("code")),
        LineExtensionAmount=amount(amounts.net, currency),
        AllowanceCharge=line_adjustments(amounts, currency),
        TaxTotal=line_tax(item, amounts, currency),
        Item=group(
            CommodityClassification=[*tariff(item), *classifications(item)],
            Description=optional(item["description"], 300),
            OriginCountry=origin and [{"IdentificationCode": value(origin)}],
        ),
        Price=[{"PriceAmount": amount(unit["price"], currency)}],
        ItemPriceExtension=[{"Amount": amount(amounts.subtotal, currency)}],
    )


def quantity(count, unit_code):
    return value(count, unitCode=unit_code) if unit_code else value(count)


def tariff(item):
    code = text(item.get("tariffCode"))
    return [{"ItemClassificationCode": value(code, listID="PTC")}] if code else []


def classifications(item):
    return [
        {"ItemClassificationCode": value(code, listID="CLASS")}
        for code in item.get("classifications") or ()
    ]


# Discounts and charges


def line_adjustments(amounts, currency):
    given = ((False, amounts.discount), (True, amounts.charge))
    return [
        adjustment(is_charge, each.amount, each.factor, each.reason, currency)
        for is_charge, each in given
        if each
    ]


def adjustment(is_charge, sum_, factor, reason, currency):
    """A discount or a charge; `factor` 0.05 is 5 %, None where an amount was agreed."""
    return entry(
        ChargeIndicator=value(is_charge),
        AllowanceChargeReason=optional(reason, 300),
        MultiplierFactorNumeric=factor is not None and value(factor),
        Amount=amount(sum_, currency),
    )


# Taxes


def line_tax(item, amounts, currency):
    unit_code, reason = item["unit"].get("code"), item.get("taxExemptionReason")
    subtotals = [
        {
            "TaxableAmount": amount(tax.taxable, currency),
            "TaxAmount": amount(tax.amount, currency),
            **tax_rate(tax, unit_code, currency),
            "TaxCategory": tax_category(tax.type, reason if tax.type == EXEMPT else None),
        }
        for tax in amounts.taxes
    ]
    return group(TaxAmount=amount(amounts.tax, currency), TaxSubtotal=subtotals)


def tax_rate(tax, unit_code, currency):
    if tax.percentage is not None:
        return {"Percent": value(tax.percentage)}
    return {
        "BaseUnitMeasure": quantity(tax.units, unit_code),
        "PerUnitAmount": amount(tax.per_unit, currency),
    }


def document_tax(sums, reason, currency):
    """One subtotal for each type of tax; `reason` is that of the exempt lines together."""
    return group(
        TaxAmount=amount(sums.tax, currency),
        TaxSubtotal=[
            {
                "TaxableAmount": amount(of_type.taxable, currency),
                "TaxAmount": amount(of_type.tax, currency),
                "TaxCategory": tax_category(kind, reason if kind == EXEMPT else None),
            }
            for kind, of_type in sums.by_tax_type.items()
        ],
    )


@lru_cache(maxsize=64)
def tax_category(kind, exemption_reason):
    """Shared by the lines of a document, of which most have the same."""
    return group(
        ID=value(kind), TaxExemptionReason=optional(exemption_reason, 300), TaxScheme=TAX_SCHEME
    )


def exemption_reasons(items):
    """The lines' reasons, each once, for the one subtotal that the exempt lines share."""
    given = (text(item.get("taxExemptionReason"), 300) for item in items if is_exempt(item))
    return ", ".join(dict.fromkeys(filter(None, given)))


def is_exempt(item):
    return any(detail.get("taxType") == EXEMPT for detail in item.get("taxDetails") or ())

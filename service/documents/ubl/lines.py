"""Build the lines of a document, and the adjustments and taxes of lines and documents.

Amounts are computed by money.py. Portal: 10.7, 10.8
"""

from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from service.documents.money import EXEMPT, Adjustment, LineAmounts, Tax, TaxTotal, Totals
from service.documents.ubl.elements import (
    Element,
    amount,
    clean_text,
    entry,
    group,
    optional,
    value,
)
from service.json_types import JsonMapping, JsonObject

TAX_SCHEME = [{"ID": [{"_": "OTH", "schemeID": "UN/ECE 5153", "schemeAgencyID": "6"}]}]


def build_line(index: int, item: JsonMapping, amounts: LineAmounts, currency: str) -> JsonObject:
    """Build a line; `index` is its id if the item has none."""
    unit, origin = item["unit"], clean_text(item.get("originCountry"))
    adjustments = ((False, amounts.discount), (True, amounts.charge))
    return entry(
        ID=value(clean_text(item.get("id"), 50) or str(index)),
        InvoicedQuantity=_build_quantity(unit["count"], unit.get("code")),
        LineExtensionAmount=amount(amounts.net, currency),
        AllowanceCharge=[
            build_adjustment(is_charge, each, currency) for is_charge, each in adjustments if each
        ],
        TaxTotal=_build_line_tax(item, amounts, currency),
        Item=group(
            CommodityClassification=_build_classifications(item),
            Description=optional(item["description"], 300),
            OriginCountry=origin and [{"IdentificationCode": value(origin)}],
        ),
        Price=[{"PriceAmount": amount(unit["price"], currency)}],
        ItemPriceExtension=[{"Amount": amount(amounts.subtotal, currency)}],
    )


def _build_quantity(count: Decimal | int | None, unit_code: str | None) -> Element:
    return value(count, unitCode=unit_code) if unit_code else value(count)


def _build_classifications(item: JsonMapping) -> Element:
    tariff = ("PTC", clean_text(item.get("tariffCode")))
    codes = [tariff, *(("CLASS", code) for code in item.get("classifications") or ())]
    return [
        {"ItemClassificationCode": value(code, listID=list_id)} for list_id, code in codes if code
    ]


def build_adjustment(is_charge: bool, given: Adjustment, currency: str) -> JsonObject:
    return entry(
        ChargeIndicator=value(is_charge),
        AllowanceChargeReason=optional(given.reason, 300),
        MultiplierFactorNumeric=given.factor is not None and value(given.factor),
        Amount=amount(given.amount, currency),
    )


def _build_line_tax(item: JsonMapping, amounts: LineAmounts, currency: str) -> Element | None:
    unit_code, reason = item["unit"].get("code"), item.get("taxExemptionReason")
    subtotals = [
        {
            **_build_tax_amounts(tax, currency),
            **_build_tax_rate(tax, unit_code, currency),
            "TaxCategory": _build_tax_category(tax.type, reason),
        }
        for tax in amounts.taxes
    ]
    return group(TaxAmount=amount(amounts.tax, currency), TaxSubtotal=subtotals)


def _build_tax_amounts(sums: Tax | TaxTotal, currency: str) -> dict[str, Element]:
    return {
        "TaxableAmount": amount(sums.taxable, currency),
        "TaxAmount": amount(sums.at_rate, currency),
    }


def _build_tax_rate(tax: Tax, unit_code: str | None, currency: str) -> dict[str, Element]:
    if tax.per_unit is None:
        return {"Percent": value(tax.percentage)}
    return {
        "BaseUnitMeasure": _build_quantity(tax.units, unit_code),
        "PerUnitAmount": amount(tax.per_unit, currency),
    }


def build_document_tax(sums: Totals, reason: str, currency: str) -> Element | None:
    """Build one subtotal per tax type; `reason` is the joined reason of all exempt lines.

    The subtotal of the exempt lines has the tax forgone, which is not in the total.
    """
    return group(
        TaxAmount=amount(sums.tax, currency),
        TaxSubtotal=[
            {
                **_build_tax_amounts(of_type, currency),
                "TaxCategory": _build_tax_category(kind, reason),
            }
            for kind, of_type in sums.by_tax_type.items()
        ],
    )


@lru_cache(maxsize=64)
def _build_tax_category(kind: str, exemption_reason: str | None) -> Element | None:
    """Build a tax category; most lines of a document share the same one."""
    reason = exemption_reason if kind == EXEMPT else None
    return group(ID=value(kind), TaxExemptionReason=optional(reason, 300), TaxScheme=TAX_SCHEME)


def join_exemption_reasons(items: Iterable[JsonMapping]) -> str:
    """Join the distinct exemption reasons of the lines for their common subtotal."""
    given = (clean_text(item.get("taxExemptionReason"), 300) for item in items if is_exempt(item))
    return ", ".join(dict.fromkeys(filter(None, given)))


def is_exempt(item: JsonMapping) -> bool:
    """Return whether a line has a tax of the type for exempt supplies."""
    return any(detail.get("taxType") == EXEMPT for detail in item.get("taxDetails") or ())

"""Read a submitted document back from the UBL 2.1 JSON that `document.encode` wrote. Portal: 10

The bytes that were sent are immutable, also when the company or its prefix changes later, so a page
of the document shows the data that the portal has.
"""

import json
from decimal import Decimal
from typing import Any

from service import json_codec
from service.documents.money import ZERO, Adjustment, LineAmounts, Tax, Totals
from service.documents.printing import Printout, format_terms
from service.json_types import JsonMapping, JsonObject

Node = JsonMapping

#: Part of a document -> its members with the paths of their elements. `@` precedes an attribute.
FORMS: dict[str, JsonObject] = json_codec.load_data(__file__)


def read(content: bytes) -> Printout:
    """Return the Printout of the bytes of a document, with the amounts that were sent."""
    (invoice,) = json.loads(content, parse_float=Decimal, parse_int=Decimal)["Invoice"]
    lines = invoice["InvoiceLine"]
    adjustments = invoice.get("AllowanceCharge", [])
    sums = _read_form(invoice, FORMS["totals"])
    bills = [
        {"type": "BILL", "id": _get_value(each, "AdditionalDocumentReference.ID")}
        for each in invoice.get("BillingReference", [])
    ]
    return Printout(
        **_read_form(invoice, FORMS["header"]),
        originals=[
            _read_form(each, FORMS["original"])
            for each in _find(invoice, "BillingReference").get("InvoiceDocumentReference", [])
        ],
        supplier=read_party(_find(invoice, "AccountingSupplierParty.Party")),
        buyer=read_party(_find(invoice, "AccountingCustomerParty.Party")),
        items=[_read_item(line) for line in lines],
        allowances=[_read_adjustment(each) for each in adjustments if not _is_charge(each)],
        charges=[_read_adjustment(each) for each in adjustments if _is_charge(each)],
        sums=Totals(
            lines=tuple(map(_read_amounts, lines)),
            **{name: amount or ZERO for name, amount in sums.items()},
        ),
        terms=format_terms({**_read_form(invoice, FORMS["terms"]), "references": bills}),
    )


def _read_form(node: Node, form: JsonMapping) -> JsonObject:
    """Return the values of a form's members, None for absent elements."""
    return {
        name: _get_value(node, part) if isinstance(part, str) else _read_form(node, part)
        for name, part in form.items()
    }


def _find(node: Node, path: str) -> Node:
    """Return the first element at a path of names, or {} if there is none."""
    for name in path.split("."):
        elements: list[Node] = node.get(name) or [{}]
        node = elements[0]
    return node


def _get_value(node: Node, path: str) -> Any:
    """Return the value, or an attribute, of the first element at a path of names, or None."""
    names, _, attribute = path.partition("@")
    return _find(node, names).get(attribute or "_")


def _is_charge(adjustment: Node) -> bool:
    return _get_value(adjustment, "ChargeIndicator")


# Parties. Portal: 10.3, 10.4


def read_party(party: Node) -> JsonObject:
    """Return a party in the request shape."""
    given = party.get("PartyIdentification", [])
    ids = {one["ID"][0]["schemeID"]: _get_value(one, "ID") for one in given}
    scheme = next((name for name in ids if name not in ("TIN", "SST", "TTX")), None)
    return {
        **_read_form(party, FORMS["party"]),
        "tin": ids.get("TIN"),
        "registration": {"type": scheme, "number": ids.get(scheme)},
        "sstRegistrationNumber": ids.get("SST"),
        "tourismTaxRegistrationNumber": ids.get("TTX"),
        "address": _read_address(_find(party, "PostalAddress")),
    }


def _read_address(address: Node) -> JsonObject:
    lines = {
        f"line{place}": _get_value(line, "Line")
        for place, line in enumerate(address.get("AddressLine", []), 1)
    }
    return {**lines, **_read_form(address, FORMS["address"])}


# Lines. Portal: 10.8


def _read_item(line: Node) -> JsonObject:
    item = _find(line, "Item")
    members = {
        **_read_form(line, FORMS["line"]),
        "classifications": _read_codes(item, "CLASS"),
        "tariffCode": next(iter(_read_codes(item, "PTC")), None),
        "taxExemptionReason": _read_exemption(_find(line, "TaxTotal")),
    }
    return {name: member for name, member in members.items() if member is not None}


def _read_codes(item: Node, list_id: str) -> list[str]:
    codes = (_find(each, "ItemClassificationCode") for each in item["CommodityClassification"])
    return [code["_"] for code in codes if code["listID"] == list_id]


def _read_exemption(total: Node) -> str | None:
    taxes: list[Node] = total.get("TaxSubtotal", [])
    reasons = (_get_value(tax, "TaxCategory.TaxExemptionReason") for tax in taxes)
    return next((reason for reason in reasons if reason), None)


def _read_amounts(line: Node) -> LineAmounts:
    adjustments = {
        _is_charge(each): _read_adjustment(each) for each in line.get("AllowanceCharge", [])
    }
    taxes: list[Node] = _find(line, "TaxTotal").get("TaxSubtotal", [])
    return LineAmounts(
        **_read_form(line, FORMS["line_amounts"]),
        discount=adjustments.get(False),
        charge=adjustments.get(True),
        taxes=tuple(Tax(**_read_form(tax, FORMS["tax"])) for tax in taxes),
    )


def _read_adjustment(adjustment: Node) -> Adjustment:
    return Adjustment(**_read_form(adjustment, FORMS["adjustment"]))

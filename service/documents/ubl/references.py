"""Build the references of a document: originals of a note, bills, customs forms and others.

Portal: 10.2
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from service.documents.ubl.elements import Element, clean_text, group, optional, value
from service.json_types import JsonObject

AGREEMENT = "FTA"

_COMMA = re.compile(r"\s*,\s*")


def build_billing_references(
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


def build_document_references(references: Sequence[Mapping[str, str]]) -> Element:
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

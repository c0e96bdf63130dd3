"""What a document refers to: the originals of a note, bills, customs forms, a trade agreement, incoterms. Portal: 10.2"""

import re

from service.documents.ubl.elements import group, optional, text, value

#: The UUID of an original that was issued before there was a portal. Portal: 10.11
NO_UUID = "NA"
AGREEMENT = "FTA"

_BETWEEN = re.compile(r"\s*,\s*")


def billing_reference(originals, references):
    """The originals in one entry, each bill in one of its own. Portal: 10.2, 10.11"""
    entries = (
        [{"InvoiceDocumentReference": [original_reference(each) for each in originals]}]
        if originals
        else []
    )
    return entries + [
        {"AdditionalDocumentReference": group(ID=optional(id))} for id in ids(references, "BILL")
    ]


def original_reference(original):
    return {"ID": value(original["number"]), "UUID": value(original.get("uuid") or NO_UUID)}


def document_references(references):
    """Incoterms have no type, the numbers of customs forms share one entry."""
    return [
        *form_reference(ids(references, "CUSTOMS_FORM"), "CustomsImportForm"),
        *(agreement_reference(each) for each in references if each.get("type") == AGREEMENT),
        *form_reference(ids(references, "K2"), "K2"),
        *({"ID": value(id)} for id in ids(references, "INCOTERMS")),
    ]


def form_reference(numbers, document_type):
    return (
        [{"ID": value(",".join(numbers)), "DocumentType": value(document_type)}] if numbers else []
    )


def agreement_reference(reference):
    return {
        "ID": value(AGREEMENT),
        "DocumentType": value("FreeTradeAgreement"),
        "DocumentDescription": value(text(reference.get("description"), 300)),
    }


def ids(references, kind):
    """The numbers of one type of reference; a list of them within one has no blanks."""
    given = (
        _BETWEEN.sub(",", text(each.get("id"))) for each in references if each.get("type") == kind
    )
    return [id for id in given if id]

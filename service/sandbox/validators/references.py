"""Step 6: the originals a note refers to. Portal: 10.11, 14.7"""

from ..database import sql
from ..document import NOTES, SELF_BILLED
from . import Finding, wildcard

#: the first row that holds is the finding: (test of original row, row of the note, number in the
#: note), code, message
BREACHES = (
    (
        lambda original, note, number: original["taxpayer"] != note["taxpayer"],
        None,
        "was issued by another taxpayer",
    ),
    (
        lambda original, note, number: family(original) != family(note),
        None,
        "is of another kind of billing",
    ),
    (lambda original, note, number: original["number"] != number, None, "has another number"),
    (
        lambda original, note, number: original["status"] != "Valid",
        "DR303",
        "has a status that allows no note",
    ),
    (
        lambda original, note, number: (
            not family(note) and original["buyer_tin"] != note["buyer_tin"]
        ),
        "DR308",
        "has another buyer",
    ),
)


def family(row):
    return row["type"] in SELF_BILLED


def check(document, row, sandbox):
    if document.type not in NOTES:
        return
    if not document.references:
        yield finding(None, "A reference to the original document is required.")
    for uuid, number in document.references:
        if uuid != "NA":
            yield from breaches(row, sql.document_get(sandbox.db, uuid=uuid), uuid, number)
        elif not number:
            yield finding(None, "The number of the original document is required.")


def breaches(note, original, uuid, number):
    if original is None:
        yield finding(None, f"The referenced document {uuid} is not known.")
        return
    for holds, code, wording in BREACHES:
        if holds(original, note, number):
            yield finding(code, f"The referenced document {uuid} {wording}.")
            return


def finding(code, message):
    path = wildcard("BillingReference.InvoiceDocumentReference.UUID", "_")
    return Finding(code, message, "UUID", path, "Rujukan dokumen tidak sah.")

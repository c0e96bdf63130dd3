"""Steps 3 and 6: other documents, of the same identity and those that a note refers to.

Portal: 10.11, 14.7, 14.8
"""

from collections.abc import Iterator

from ..controls import Sandbox
from ..database import Row
from ..document import NOTES, SELF_BILLED, UblDocument
from . import Finding, finding_at

PATH = "BillingReference.InvoiceDocumentReference.UUID"


def check_duplicate(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    controls = sandbox.controls
    if not controls.duplicate_detection:
        return
    since = row["due_at"] - controls.duplicate_window_seconds
    original = sandbox.db.document_duplicate(**dict(row), since=since)
    if original:
        yield Finding(
            "DV302",
            f"Duplicate of the document {original}: "
            "same type, version, issue date and time, number and issuer.",
            "document",
        )


def check_references(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    if document.type not in NOTES:
        return
    if not document.references:
        yield make_finding(None, "A reference to the original document is required.")
    for uuid, number in document.references:
        if uuid == "NA":
            if not number:
                yield make_finding(None, "The number of the original document is required.")
        elif original := sandbox.db.document_get(uuid=uuid):
            yield from check_reference(row, original, number)
        else:
            yield make_finding(None, f"The referenced document {uuid} is not known.")


def check_reference(note: Row, original: Row, number: str) -> Iterator[Finding]:
    """Yield the finding about the first reason why the note cannot refer to the original."""
    is_self_billed = note["type"] in SELF_BILLED
    reasons = (
        (original["taxpayer"] != note["taxpayer"], None, "was issued by another taxpayer"),
        (
            (original["type"] in SELF_BILLED) != is_self_billed,
            None,
            "is of another kind of billing",
        ),
        (original["type"] in NOTES, None, "is not an invoice"),
        (original["number"] != number, None, "has another number"),
        (original["status"] != "Valid", "DR303", "has a status that allows no note"),
        (
            not is_self_billed and original["buyer_tin"] != note["buyer_tin"],
            "DR308",
            "has another buyer",
        ),
    )
    for applies, code, wording in reasons:
        if applies:
            yield make_finding(code, f"The referenced document {original['uuid']} {wording}.")
            return


def make_finding(code: str | None, message: str) -> Finding:
    return finding_at(PATH, code, message, "_")

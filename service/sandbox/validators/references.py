"""Step 6: the original documents that a note refers to. Portal: 10.11, 14.7"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..controls import Sandbox
from ..database import Row, sql
from ..document import NOTES, SELF_BILLED, Document
from . import Finding, finding_at


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason why a note cannot refer to a document.

    `applies` takes the rows of the original and of the note, and the number given by the note.
    """

    applies: Callable[[Row, Row, str], bool]
    code: str | None
    wording: str


def is_self_billed(row: Row) -> bool:
    """Return whether a document is self-billed."""
    return row["type"] in SELF_BILLED


def has_other_buyer(original: Row, note: Row, number: str) -> bool:
    """Return whether original and note, if not self-billed, have different buyers."""
    return not is_self_billed(note) and original["buyer_tin"] != note["buyer_tin"]


#: The first rule that applies is the finding.
RULES = (
    Rule(
        lambda original, note, number: original["taxpayer"] != note["taxpayer"],
        None,
        "was issued by another taxpayer",
    ),
    Rule(
        lambda original, note, number: is_self_billed(original) != is_self_billed(note),
        None,
        "is of another kind of billing",
    ),
    Rule(lambda original, note, number: original["type"] in NOTES, None, "is not an invoice"),
    Rule(lambda original, note, number: original["number"] != number, None, "has another number"),
    Rule(
        lambda original, note, number: original["status"] != "Valid",
        "DR303",
        "has a status that allows no note",
    ),
    Rule(has_other_buyer, "DR308", "has another buyer"),
)


def check(document: Document, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    """Yield the findings about the references of a note."""
    if document.type not in NOTES:
        return
    if not document.references:
        yield make_finding(None, "A reference to the original document is required.")
    for uuid, number in document.references:
        if uuid != "NA":
            original = sql.document_get(sandbox.db, uuid=uuid)
            yield from check_reference(row, original, uuid, number)
        elif not number:
            yield make_finding(None, "The number of the original document is required.")


def check_reference(note: Row, original: Row | None, uuid: Any, number: Any) -> Iterator[Finding]:
    """Yield the finding about one reference, if any."""
    if original is None:
        yield make_finding(None, f"The referenced document {uuid} is not known.")
        return
    for rule in RULES:
        if rule.applies(original, note, number):
            yield make_finding(rule.code, f"The referenced document {uuid} {rule.wording}.")
            return


def make_finding(code: str | None, message: str) -> Finding:
    """Return a finding at the reference."""
    path = "BillingReference.InvoiceDocumentReference.UUID"
    return finding_at(path, code, message, "Rujukan dokumen tidak sah.", "_")

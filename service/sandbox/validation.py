"""Validation of Submitted documents when their processing time is over. Portal: 5.2, 7.1, 14

There is no background task. A document whose end of validation has passed is validated before
any request reads documents, and that end is the time of the result. So a killed sandbox catches
up at its next request.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .answers import Body, detail, encode, standard_error
from .controls import Sandbox
from .database import Row
from .document import SIGNED_VERSIONS, UblDocument
from .records import new_long_id
from .validators import Finding, codes, signature
from .validators.comparisons import check_duplicate, check_references, check_taxpayers
from .validators.totals import check_currencies
from .xml_documents import read_document

CHUNK = 50  # documents validated before other tasks of the event loop get a turn


class ValidationStep(NamedTuple):
    """A validation step: number, outer code, subject in English and Malay, validator."""

    number: str
    code: str
    subject: str
    malay: str
    check: Callable[[UblDocument, Row, Sandbox], Iterable[Finding]]


#: The last one is for signed documents only.
STEPS = (
    ValidationStep("03", "Error03", "Duplicated Submission", "penyerahan pendua", check_duplicate),
    ValidationStep("04", "Error04", "Code Field", "medan kod", codes.check),
    ValidationStep("05", "Error05", "Taxpayer Profile", "profil pembayar cukai", check_taxpayers),
    ValidationStep("06", "Error06", "Document References", "rujukan dokumen", check_references),
    ValidationStep("07", "Error07", "Document Currency", "mata wang dokumen", check_currencies),
    ValidationStep("08", "Error21", "Document Signature", "tandatangan dokumen", signature.check),
)


async def validate_due(sandbox: Sandbox) -> None:
    while not sandbox.controls.stuck:
        rows = sandbox.db.document_due(now=sandbox.now(), size=CHUNK)
        if not rows:
            return
        with sandbox.db.transaction():
            for row in rows:
                validate(sandbox, row)
        await asyncio.sleep(0)


def validate(sandbox: Sandbox, row: Row) -> None:
    """Run all validation steps of a document and store the result."""
    raw = sandbox.db.body_get(uuid=row["uuid"])
    document = UblDocument(read_document(raw, raw.lstrip().startswith(b"<")), raw)
    applied = STEPS if document.version in SIGNED_VERSIONS else STEPS[:-1]
    steps = [run_step(step, document, row, sandbox) for step in applied]
    status = "Invalid" if any(step["status"] == "Invalid" for step in steps) else "Valid"
    sandbox.db.document_validated(
        uuid=row["uuid"],
        status=status,
        long_id=new_long_id(row["received_at"]) if status == "Valid" else "",
        validation_results=encode({"status": status, "validationSteps": steps}).decode(),
    )


def run_step(step: ValidationStep, document: UblDocument, row: Row, sandbox: Sandbox) -> Body:
    """Return the result of one step, with a recursive error. Portal: 5.2, 8.2"""
    name = f"Step{step.number}-{step.subject} Validator"
    # A rule without a published code has the code of its step.
    malay = f"Langkah{step.number}: {step.malay} tidak sah"
    inner = [
        standard_error(detail(each.code or step.code, *each[1:]), malay)
        for each in step.check(document, row, sandbox)
    ]
    if not inner:
        return {"status": "Valid", "name": name}
    outer = detail(step.code, f"Step{step.number}-Invalid {step.subject} Validator")
    return {"status": "Invalid", "name": name, "error": standard_error(outer, malay, inner)}

"""Validation of Submitted documents when their processing time is over. Portal: 5.2, 7.1, 14

There is no background task. A document whose end of validation has passed is validated before
any request reads documents, and that end is the time of the result. So a killed sandbox catches
up at its next request.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .answers import encode
from .controls import Sandbox
from .database import Row, sql, transaction
from .document import SIGNED_VERSIONS, UblDocument
from .identifiers import new_long_id
from .magic import forced_findings
from .validators import Finding, codes, currency, duplicates, references, signature, taxpayer
from .xml_documents import read_document

CHUNK = 50  # documents validated before other tasks of the event loop get a turn


@dataclass(frozen=True, slots=True)
class ValidationStep:
    """A validation step: number, outer code, subject in English and Malay, validator."""

    number: str
    code: str
    subject: str
    malay: str
    check: Callable[[UblDocument, Row, Sandbox], Iterable[Finding]]


STEPS = (
    ValidationStep("03", "Error03", "Duplicated Submission", "penyerahan pendua", duplicates.check),
    ValidationStep("04", "Error04", "Code Field", "medan kod", codes.check),
    ValidationStep("05", "Error05", "Taxpayer Profile", "profil pembayar cukai", taxpayer.check),
    ValidationStep("06", "Error06", "Document References", "rujukan dokumen", references.check),
    ValidationStep("07", "Error07", "Document Currency", "mata wang dokumen", currency.check),
)
SIGNATURE = ValidationStep(
    "08", "Error21", "Document Signature", "tandatangan dokumen", signature.check
)


async def validate_due(sandbox: Sandbox) -> None:
    """Validate all documents whose processing time is over."""
    while not sandbox.controls.stuck:
        rows = sql.document_due(sandbox.db, now=sandbox.now(), size=CHUNK)
        if not rows:
            return
        with transaction(sandbox.db):
            for row in rows:
                validate(sandbox, row)
        await asyncio.sleep(0)


def validate(sandbox: Sandbox, row: Row) -> None:
    """Run all validation steps of a document and store the result."""
    raw = sql.body_get(sandbox.db, uuid=row["uuid"])
    document = UblDocument(read_document(raw), raw)
    signed = (SIGNATURE,) if document.version in SIGNED_VERSIONS else ()
    steps = [run_step(step, document, row, sandbox) for step in (*STEPS, *signed)]
    status = "Invalid" if any(step["status"] == "Invalid" for step in steps) else "Valid"
    sql.document_validated(
        sandbox.db,
        uuid=row["uuid"],
        status=status,
        long_id=new_long_id(row["received_at"]) if status == "Valid" else "",
        validation_results=encode({"status": status, "validationSteps": steps}).decode(),
    )


def run_step(
    step: ValidationStep, document: UblDocument, row: Row, sandbox: Sandbox
) -> dict[str, Any]:
    """Return the result of one step."""
    name = f"Step{step.number}-{step.subject} Validator"
    findings = [
        *step.check(document, row, sandbox),
        *forced_findings(step.code, row["number"]),
    ]
    if not findings:
        return {"status": "Valid", "name": name}
    outer = Finding(
        step.code,
        f"Step{step.number}-Invalid {step.subject} Validator",
        malay=f"Langkah{step.number}: {step.malay} tidak sah",
    )
    # A rule without a published code has the code of its step.
    inner = [error_of(finding, finding.code or step.code, None) for finding in findings]
    return {"status": "Invalid", "name": name, "error": error_of(outer, step.code, inner)}


def error_of(
    finding: Finding, code: str | None, inner: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """Return the recursive error of validation steps. Portal: 5.2, 8.2"""
    return {
        "propertyName": finding.target,
        "propertyPath": finding.path,
        "errorCode": code,
        "error": finding.message,
        "errorMs": finding.malay,
        "innerError": inner,
    }

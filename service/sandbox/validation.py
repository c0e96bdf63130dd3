"""Background validation: what happens to a Submitted document when its time is over. Portal: 5.2, 7.1, 14

There is no background: a document whose end of validation has passed is validated before anything looks at documents,
with that end as the time of the result. So a killed sandbox owes nothing.
"""

import asyncio

from .answers import encode, standard
from .database import sql, transaction
from .document import SIGNED_VERSIONS, Document, read_json
from .identifiers import new_long_id
from .magic import forced_findings
from .validators import codes, currency, duplicates, references, signature, taxpayer

#: (number of the step, outer code, subject in English, in Malay, validator)
STEPS = (
    ("03", "Error03", "Duplicated Submission", "penyerahan pendua", duplicates.check),
    ("04", "Error04", "Code Field", "medan kod", codes.check),
    ("05", "Error05", "Taxpayer Profile", "profil pembayar cukai", taxpayer.check),
    ("06", "Error06", "Document References", "rujukan dokumen", references.check),
    ("07", "Error07", "Document Currency", "mata wang dokumen", currency.check),
)
SIGNATURE = ("08", "Error21", "Document Signature", "tandatangan dokumen", signature.check)
CHUNK = 50  # documents between two turns of the event loop


async def validate_due(sandbox):
    """Validates every document that is due, in the order in which their times were over."""
    while not sandbox.controls.stuck:
        rows = sql.document_due(sandbox.db, now=sandbox.now(), size=CHUNK)
        if not rows:
            return
        with transaction(sandbox.db):
            for row in rows:
                validate(sandbox, row)
        await asyncio.sleep(0)


def validate(sandbox, row):
    raw = sql.body_get(sandbox.db, uuid=row["uuid"])
    document = Document(read_json(raw), raw)
    signed = (SIGNATURE,) if document.version in SIGNED_VERSIONS else ()
    steps = [run_step(step, document, row, sandbox) for step in (*STEPS, *signed)]
    status = "Invalid" if any(step["status"] == "Invalid" for step in steps) else "Valid"
    sql.document_validated(
        sandbox.db,
        uuid=row["uuid"],
        status=status,
        long_id=new_long_id(row["received_at"]) if status == "Valid" else "",
        validation_results=encode({"status": status, "validationSteps": steps}),
    )


def run_step(step, document, row, sandbox):
    number, outer, subject, malay, check = step
    name = f"Step{number}-{subject} Validator"
    findings = [*check(document, row, sandbox), *forced_findings(outer, row["number"])]
    if not findings:
        return {"status": "Valid", "name": name}
    inner = [inner_error(finding, outer) for finding in findings]
    message = f"Step{number}-Invalid {subject} Validator"
    error = standard(outer, message, f"Langkah{number}: {malay} tidak sah", inner=inner)
    return {"status": "Invalid", "name": name, "error": error}


def inner_error(finding, outer):
    """A rule without a published code carries the code of its step."""
    return standard(
        finding.code or outer, finding.message, finding.malay, finding.target, finding.path
    )

"""Step 3: a document of the same identity that was processed shortly before. Portal: 14.8"""

from ..database import sql
from . import Finding


def check(document, row, sandbox):
    controls = sandbox.controls
    if not controls.duplicate_detection:
        return
    twin = sql.document_twin(
        sandbox.db,
        taxpayer=row["taxpayer"],
        number=row["number"],
        issued_at=row["issued_at"],
        type=row["type"],
        version=row["version"],
        uuid=row["uuid"],
        since=row["due_at"] - controls.duplicate_window_seconds,
        invalid_counts=controls.invalid_counts,
    )
    if twin:
        yield Finding(
            controls.duplicate_code,
            f"Duplicate of the document {twin}: same type, version, issue date and time, number and issuer.",
            "document",
            malay=f"Dokumen pendua bagi {twin}.",
        )

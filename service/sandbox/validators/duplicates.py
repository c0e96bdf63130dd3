"""Step 3: documents with the same identity that were processed recently. Portal: 14.8"""

from collections.abc import Iterator

from ..controls import Sandbox
from ..database import Row, sql
from ..document import UblDocument
from . import Finding


def check(document: UblDocument, row: Row, sandbox: Sandbox) -> Iterator[Finding]:
    """Yield a finding if the document is a duplicate."""
    controls = sandbox.controls
    if not controls.duplicate_detection:
        return
    original = sql.document_duplicate(
        sandbox.db,
        **dict(row),
        since=row["due_at"] - controls.duplicate_window_seconds,
        invalid_counts=controls.invalid_counts,
    )
    if original:
        yield Finding(
            controls.duplicate_code,
            f"Duplicate of the document {original}: "
            "same type, version, issue date and time, number and issuer.",
            "document",
        )

"""The dated checks, applied to a locked record with the facts that only PostgreSQL has."""

from datetime import datetime, timedelta

from service.db.connections import Connection
from service.db.statements import sql
from service.documents.checks import preflight
from service.documents.checks.rule import CheckFinding, Circumstances
from service.documents.ubl import parties
from service.documents.ubl.document import NOTE_TYPES
from service.errors import make_reason
from service.offload import offload
from service.submission.locked_documents import SendableDocument
from service.submission.machine.types import Error

MOST_DOCUMENT_BYTES = 300_000  # Portal: 1.5
DUPLICATE_WINDOW = timedelta(hours=2)  # Portal: 14.8


async def findings(
    conn: Connection, document: SendableDocument, issued_at: datetime
) -> list[CheckFinding]:
    """Return the findings of a document that would be sent at the issuer's `now`."""
    circumstances = Circumstances(
        at=document.issuer["now"],
        issued_at=issued_at,
        version=document.version,
        duplicate=await _find_duplicate(conn, document, issued_at),
        original_tin=await _find_original_tin(conn, document),
    )
    return await offload(
        document.size, preflight.check_document, document.source, document.issuer, circumstances
    )


async def _find_duplicate(
    conn: Connection, document: SendableDocument, issued_at: datetime
) -> str | None:
    """Return the uuid of a document that the portal would treat as identical."""
    return await sql.submitted_document_duplicate(
        conn,
        company_id=document.company_id,
        number=document.number,
        document_type=document.document_type,
        document_version=document.version,
        issued_at=issued_at,
        tin=parties.normalize_tin(document.issuer["tin_code"]),
        at=document.issuer["now"],
        span=DUPLICATE_WINDOW,
    )


async def _find_original_tin(conn: Connection, document: SendableDocument) -> str | None:
    """Return the TIN under which the target of a note was submitted."""
    if document.source["type"] not in NOTE_TYPES:
        return None
    return await sql.submitted_document_issuer(
        conn, company_id=document.company_id, document_id=document.row["target_id"]
    )


def size_refusals(content: bytes) -> list[Error]:
    """Return the error of a document that exceeds the portal's size limit, as a list."""
    if len(content) <= MOST_DOCUMENT_BYTES:
        return []
    message = (
        f"The document has {len(content)} bytes; the portal accepts at most {MOST_DOCUMENT_BYTES}."
    )
    return [make_reason("MaximumSizeExceeded", message, "/lineItems")]

"""The rule pack held against a locked record, with what only PostgreSQL knows of it."""

from datetime import timedelta

from service.db.statements import sql
from service.documents.checks import preflight
from service.documents.checks.rule import Circumstances
from service.documents.ubl import document, parties
from service.offload import offload

MOST_DOCUMENT_BYTES = 300_000  # Portal: 1.5
DUPLICATE_WINDOW = timedelta(hours=2)  # Portal: 14.8


async def findings(config, conn, company, row, source, issuer, issued_at):
    """The rules.Findings of a document that would be sent at `issuer["now"]`."""
    facts = {
        "number": row["number"],
        "version": config.portal_document_version,
        "issued_at": issued_at,
    }
    circumstances = Circumstances(
        at=issuer["now"],
        twin=await _twin(conn, company, facts, source, issuer),
        original_tin=await _original_tin(conn, company, row, source),
        **facts,
    )
    return await offload(len(row["body"]), preflight.findings, source, issuer, circumstances)


async def _twin(conn, company, facts, source, issuer):
    """The uuid of a document that the portal would take for the same."""
    return await sql.submitted_document_twin(
        conn,
        company_id=company,
        number=facts["number"],
        document_type=document.document_type(source),
        document_version=facts["version"],
        issued_at=facts["issued_at"],
        tin=parties.own_tin({"tin": issuer["tin_code"]}),
        at=issuer["now"],
        span=DUPLICATE_WINDOW,
    )


async def _original_tin(conn, company, row, source):
    """The TIN under which the target of a note was submitted."""
    if source["type"] not in document.NOTE_TYPES:
        return None
    target = {name: row[name] for name in ("invoice_id", "consolidated_invoice_id")}
    return await sql.submitted_document_issuer(conn, company_id=company, **target)


def size_refusals(content):
    """Why the bytes of a document are too many, as a list of errors."""
    if len(content) <= MOST_DOCUMENT_BYTES:
        return []
    wording = f"The document has {len(content)} bytes; the portal takes {MOST_DOCUMENT_BYTES}."
    return [{"code": "MaximumSizeExceeded", "path": "/lineItems", "message": wording}]

"""POST and GET /api/v1.0/documentsubmissions. Portal: 1.5, 1.7, 4, 5.1"""

import base64
import binascii
import hashlib
import math
from typing import Any

from aiohttp import web

from service.documents.codes import BUILT_IN

from . import envelope
from .answers import (
    Refusal,
    answer,
    detail,
    mismatch,
    not_found,
    refusal,
    refusal_with_detail,
)
from .clock import instant
from .controls import CALLER, SANDBOX, Sandbox
from .database import Row, sql, transaction
from .document import SIGNED_VERSIONS, VERSIONS, UblDocument, read_json
from .identifiers import new_uuid
from .magic import raise_forced_refusal
from .queries import read_page, read_query
from .records import CheckedEntry, head, insert_document, submitted_by
from .validators import Finding, core_fields, structure, totals
from .xml_documents import read_xml

MAX_BODY = 5 * 1024 * 1024
MAX_DOCUMENT = 300 * 1024


async def submit(request: web.Request) -> web.Response:
    """Return 202 with the accepted and the rejected documents.

    The checks are in the portal's order. Portal: Appendix B
    """
    sandbox, caller, body = request.app[SANDBOX], request[CALLER], await request.read()
    if len(body) > MAX_BODY:
        raise too_large(f"A submission has at most {MAX_BODY} bytes.")
    sha256 = await refuse_same_payload(request)
    documents = envelope.read_envelope(body, request.content_type)
    raise_forced_refusal(each["codeNumber"] for each in documents)
    checked = [examine(sandbox, each) for each in documents]
    if issuers(checked) - {caller["taxpayer"]}:
        raise mismatch(sandbox.controls.mismatch_status)
    return answer(store(sandbox, caller, sha256, checked), status=202)


def issuers(checked: list[CheckedEntry]) -> set[str]:
    """Return the TINs of the issuers. A document without one is rejected for that reason."""
    return {each.document.issuer.tin for each in checked if each.document} - {""}


def too_large(message: str) -> Refusal:
    """Return the refusal of a submission or document that exceeds a size limit."""
    return refusal_with_detail(400, "MaximumSizeExceeded", message, "documents")


async def refuse_same_payload(request: web.Request) -> str:
    """Return the hash of the body. Raises Refusal if it was received recently. Portal: 1.7"""
    sandbox, sha256 = request.app[SANDBOX], hashlib.sha256(await request.read()).hexdigest()
    now, window = sandbox.now(), sandbox.controls.payload_window_seconds
    taxpayer = request[CALLER]["taxpayer"]
    last = sql.submission_same_payload(
        sandbox.db, taxpayer=taxpayer, sha256=sha256, since=now - window
    )
    if last is not None and sandbox.controls.payload_detection:
        raise duplicate_payload(last + window - now)
    return sha256


def duplicate_payload(seconds: float) -> Refusal:
    """Return the refusal of a repeated body, which may be sent again after some seconds."""
    message = "An identical submission was received less than 10 minutes ago."
    headers = {"Retry-After": str(max(1, math.ceil(seconds)))}
    return refusal(422, "DuplicateSubmission", message, "documents", headers=headers)


def examine(sandbox: Sandbox, entry: envelope.EnvelopeEntry) -> CheckedEntry:
    """Run the immediate checks of one document.

    In this order: base64, hash, JSON or XML, type and version, structure, core fields. Raises
    Refusal if the document is too large, or has a signature in XML.
    """
    code_number, raw, document = entry["codeNumber"], b"", None
    try:
        raw = decode_document(entry)
        root = parse_document(raw, entry["format"])
        if entry["format"] == "XML":
            refuse_signature(UblDocument(root))
        findings = check_kind(UblDocument(root)) or structure.check(root)
        if not findings:
            document = UblDocument(root)
            findings = core_fields.check(document, sandbox.now(), sandbox.controls)
            findings += check_number(document, code_number)
    except Rejected as rejected:
        findings = [rejected.finding]
    wrong = totals.wrong_amounts(document.invoice) if document and not findings else []
    warnings = [{"target": path, "message": message} for path, message in wrong]
    return CheckedEntry(code_number, raw, document, findings, warnings)


class Rejected(Exception):
    """Ends the checks of one document with its only finding."""

    def __init__(self, message: str, target: str) -> None:
        super().__init__(message)
        self.finding = Finding(None, message, target)


def decode_document(entry: envelope.EnvelopeEntry) -> bytes:
    """Return the bytes of the document. Raises Rejected, or Refusal if it is too large."""
    try:
        raw = base64.b64decode(entry["document"], validate=True)
    except (binascii.Error, ValueError):
        raise Rejected("Document is not valid base64.", "document") from None
    if len(raw) > MAX_DOCUMENT:
        raise too_large(f"A document has at most {MAX_DOCUMENT} bytes.")
    if hashlib.sha256(raw).hexdigest() != entry["documentHash"]:
        raise Rejected("Document hash is not valid.", "documentHash")
    return raw


def parse_document(raw: bytes, document_format: str) -> Any:
    """Return the document in the structure of JSON. Raises Rejected."""
    try:
        return read_xml(raw) if document_format == "XML" else read_json(raw)
    except ValueError:
        raise Rejected("Document cannot be parsed.", "document") from None


def refuse_signature(document: UblDocument) -> None:
    """Raise Refusal 501 for an XML document of a signed version."""
    if document.version in SIGNED_VERSIONS:
        raise envelope.not_implemented(
            f"The sandbox cannot validate signatures in XML. Send version {document.version} "
            "as JSON, or an XML document of version 1.0 or 1.2.",
            document.number,
        )


def check_kind(document: UblDocument) -> list[Finding]:
    """Return findings for an unknown type or version. The structure checks find absent ones."""
    if document.type and document.type not in BUILT_IN["document_types"].codes:
        message = f"Document type {document.type} is not known."
        return [Finding(None, message, "InvoiceTypeCode", "Invoice.InvoiceTypeCode")]
    if document.type and document.version not in VERSIONS:
        message = f"Document version {document.version} is not active."
        return [Finding(None, message, "listVersionID", "Invoice.InvoiceTypeCode.listVersionID")]
    return []


def check_number(document: UblDocument, code_number: str) -> list[Finding]:
    """Return a finding if entry and document have different numbers. Portal: 10.2"""
    if document.number == code_number:
        return []
    message = "codeNumber differs from the number of the document."
    return [Finding(None, message, "codeNumber", "Invoice.ID")]


def store(
    sandbox: Sandbox, caller: Row, sha256: str, checked: list[CheckedEntry]
) -> dict[str, Any]:
    """Store the accepted documents and return the response body. Rejected ones leave no trace.

    Portal: 4.2
    """
    accepted = [each for each in checked if not each.findings]
    uid, now, answered = (new_uuid() if accepted else None), sandbox.now(), []
    with transaction(sandbox.db):
        if uid:
            sql.submission_insert(
                sandbox.db,
                uid=uid,
                taxpayer=caller["taxpayer"],
                client_id=caller["client_id"],
                sha256=sha256,
                received_at=now,
            )
        for each in accepted:
            assert uid
            uuid = insert_document(sandbox, caller, each, uid, now)
            answered.append({"uuid": uuid, "invoiceCodeNumber": each.code_number})
    return {
        "submissionUid": uid,
        "submissionUID": uid,  # one spelling was observed, the other is documented
        "acceptedDocuments": answered,
        "rejectedDocuments": [rejection(each) for each in checked if each.findings],
    }


def rejection(entry: CheckedEntry) -> dict[str, Any]:
    """Return one entry of `rejectedDocuments`.

    Its code is null if the document could not be read, when no finding has a code or a path.
    Portal: 4.2
    """
    details = [
        detail(finding.code, finding.message, finding.target, finding.path)
        for finding in entry.findings
    ]
    code = "3" if any(finding.code or finding.path for finding in entry.findings) else None
    error = detail(code, "Validation Error", entry.code_number, details=details)
    return {"invoiceCodeNumber": entry.code_number, "error": error}


async def get_submission(request: web.Request) -> web.Response:
    """Return a page of a submission's documents to its submitter. Portal: 5.1"""
    sandbox, caller, uid = request.app[SANDBOX], request[CALLER], request.match_info["uid"]
    size, skip = read_page(read_query(request))
    row = sql.submission_get(sandbox.db, uid=uid)
    if row is None or not submitted_by(row, caller) or is_too_early(sandbox, row):
        raise not_found("submission", uid)
    statuses = {
        each["status"]: each["count"] for each in sql.submission_statuses(sandbox.db, uid=uid)
    }
    shown = sql.document_of_submission(sandbox.db, uid=uid, size=size, skip=skip)
    return answer(
        {
            "submissionUid": uid,
            "documentCount": sum(statuses.values()),
            "dateTimeReceived": instant(row["received_at"]),
            "overallStatus": overall_status(set(statuses)),
            "documentSummary": [sandbox.row_shown(each["number"], head(each)) for each in shown],
        }
    )


def is_too_early(sandbox: Sandbox, row: Row) -> bool:
    """Return whether the submission cannot be found yet."""
    return sandbox.now() < row["received_at"] + sandbox.controls.not_found_seconds


def overall_status(statuses: set[str]) -> str:
    """Return the status of a submission. A Cancelled document was Valid. Portal: 5.1"""
    if "Submitted" in statuses:
        return "InProgress"
    if "Invalid" in statuses:
        return "Invalid" if statuses == {"Invalid"} else "Partially Valid"
    return "Valid"

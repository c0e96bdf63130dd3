"""POST and GET /api/v1.0/documentsubmissions. Portal: 1.5, 1.7, 4, 5.1"""

import base64
import binascii
import hashlib
import math
from dataclasses import dataclass, field

from service.documents.codes import TABLES

from .answers import Mismatch, Refusal, answer, detail, not_found
from .clock import instant
from .controls import CALLER, SANDBOX
from .database import sql, transaction
from .document import VERSIONS, Document, read_json
from .envelope import read_envelope
from .identifiers import new_uuid
from .magic import forced_delay, forced_refusal
from .paging import page_of, query_of
from .records import head, insert_document, submitted_by
from .validators import Finding, core_fields, structure, totals

MAX_BODY = 5 * 1024 * 1024
MAX_DOCUMENT = 300 * 1024


@dataclass(frozen=True)
class Entry:
    """One document of a submission after the immediate checks; with findings, not with warnings, it is rejected."""

    code_number: str
    raw: bytes
    document: Document | None
    findings: list
    warnings: list = field(default_factory=list)


async def submit(request):
    """202 with what was accepted and what was rejected. The checks are in the portal's order. Portal: Appendix B"""
    sandbox, caller, body = request.app[SANDBOX], request[CALLER], await request.read()
    if len(body) > MAX_BODY:
        raise too_large(f"A submission has at most {MAX_BODY} bytes.")
    sha256 = await refuse_same_payload(request)
    envelope = read_envelope(body, request.content_type)
    forced_refusal(each["codeNumber"] for each in envelope)
    found = [examine(sandbox, each) for each in envelope]
    if issuers(found) - {caller["taxpayer"]}:
        raise Mismatch(sandbox.controls.mismatch_status)
    return answer(store(sandbox, caller, sha256, found), status=202)


def issuers(found):
    """The TINs that issued the documents; one that names none is rejected for that."""
    return {each.document.issuer.tin for each in found if each.document} - {""}


def too_large(message):
    entry = detail("MaximumSizeExceeded", message, "documents")
    return Refusal(400, "MaximumSizeExceeded", message, "documents", [entry])


async def refuse_same_payload(request):
    """The hash of a body that did not come a short while before. Raises Refusal. Portal: 1.7"""
    sandbox, sha256 = request.app[SANDBOX], hashlib.sha256(await request.read()).hexdigest()
    now, window = sandbox.now(), sandbox.controls.payload_window_seconds
    taxpayer = request[CALLER]["taxpayer"]
    last = sql.submission_same_payload(
        sandbox.db, taxpayer=taxpayer, sha256=sha256, since=now - window
    )
    if last is not None and sandbox.controls.payload_detection:
        raise duplicate_payload(last + window - now)
    return sha256


def duplicate_payload(seconds):
    """Also what the fault of that name answers."""
    message = "An identical submission was received less than 10 minutes ago."
    headers = {"Retry-After": str(max(1, math.ceil(seconds)))}
    return Refusal(422, "DuplicateSubmission", message, "documents", headers=headers)


def examine(sandbox, each):
    """The immediate checks of one document: base64, hash, parse, type and version, structure, core fields."""
    code_number, raw, document, findings = each["codeNumber"], b"", None, []
    try:
        raw = decoded(each)
        root = parsed(raw)
        findings = refused_kind(Document(root)) or structure.check(root)
        if not findings:
            document = Document(root)
            findings = core_fields.check(document, sandbox.now(), sandbox.controls)
            findings += other_number(document, code_number)
    except Rejected as rejected:
        findings = [rejected.finding]
    return Entry(
        code_number, raw, document, findings, [] if findings else totals.warnings(document)
    )


class Rejected(Exception):
    """Ends the checks of one document with its only finding."""

    def __init__(self, message, target):
        super().__init__(message)
        self.finding = Finding(None, message, target)


def decoded(each):
    """The document's bytes. Raises Rejected, or Refusal when they are too many."""
    try:
        raw = base64.b64decode(each["document"], validate=True)
    except (binascii.Error, ValueError):
        raise Rejected("Document is not valid base64.", "document") from None
    if len(raw) > MAX_DOCUMENT:
        raise too_large(f"A document has at most {MAX_DOCUMENT} bytes.")
    if hashlib.sha256(raw).hexdigest() != each["documentHash"]:
        raise Rejected("Document hash is not valid.", "documentHash")
    return raw


def parsed(raw):
    try:
        return read_json(raw)
    except ValueError:
        raise Rejected("Document cannot be parsed.", "document") from None


def refused_kind(document):
    """Findings for a type or version nobody knows; one that is absent is a matter of structure."""
    if document.type and document.type not in TABLES["document_types"]:
        message = f"Document type {document.type} is not known."
        return [Finding(None, message, "InvoiceTypeCode", "Invoice.InvoiceTypeCode")]
    if document.type and document.version not in VERSIONS:
        message = f"Document version {document.version} is not active."
        return [Finding(None, message, "listVersionID", "Invoice.InvoiceTypeCode.listVersionID")]
    return []


def other_number(document, code_number):
    """The number of the entry is the number in the document. Portal: 10.2"""
    if document.number == code_number:
        return []
    return [
        Finding(
            None, "codeNumber differs from the number of the document.", "codeNumber", "Invoice.ID"
        )
    ]


def store(sandbox, caller, sha256, found):
    """Keeps what was accepted and says what became of each document; the rejected leave no trace. Portal: 4.2"""
    accepted = [each for each in found if not each.findings]
    uid, now, answered = (new_uuid() if accepted else None), sandbox.now(), []
    with transaction(sandbox.db):
        if accepted:
            sql.submission_insert(
                sandbox.db,
                uid=uid,
                taxpayer=caller["taxpayer"],
                client_id=caller["client_id"],
                sha256=sha256,
                received_at=now,
            )
        for each in accepted:
            due_at = now + sandbox.controls.processing_seconds + forced_delay(each.code_number)
            uuid = insert_document(sandbox, caller, uid, each, now, due_at)
            answered.append({"uuid": uuid, "invoiceCodeNumber": each.code_number})
    return {
        "submissionUid": uid,
        "submissionUID": uid,  # one spelling was seen, the other is documented: clients read either
        "acceptedDocuments": answered,
        "rejectedDocuments": [rejection(each) for each in found if each.findings],
    }


def rejection(each):
    """Portal: 4.2"""
    details = [
        detail(found.code, found.message, found.target, found.path) for found in each.findings
    ]
    code = "3" if any(found.code for found in each.findings) else None
    error = detail(code, "Validation Error", each.code_number, details=details)
    return {"invoiceCodeNumber": each.code_number, "error": error}


async def get_submission(request):
    """Only for the submitter. Portal: 5.1"""
    sandbox, caller, uid = request.app[SANDBOX], request[CALLER], request.match_info["uid"]
    size, skip = page_of(query_of(request))
    row = sql.submission_get(sandbox.db, uid=uid)
    if row is None or not submitted_by(row, caller) or too_early(sandbox, row):
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
            "overallStatus": overall(set(statuses)),
            "documentSummary": [sandbox.row_shown(each["number"], head(each)) for each in shown],
        }
    )


def too_early(sandbox, row):
    return sandbox.now() < row["received_at"] + sandbox.controls.not_found_seconds


def overall(statuses):
    """Portal: 5.1; a cancelled document was valid."""
    if "Submitted" in statuses:
        return "InProgress"
    if "Invalid" in statuses:
        return "Invalid" if statuses == {"Invalid"} else "Partially Valid"
    return "Valid"

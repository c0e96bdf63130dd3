"""POST and GET /api/v1.0/documentsubmissions. Portal: 1.5, 1.7, 4, 5.1"""

import base64
import hashlib
import math
from collections.abc import Iterable
from typing import Annotated

import msgspec

from service.documents.codes import BUILT_IN

from .answers import Body, Refusal, detail, mismatch, not_found, refusal, refusal_with_detail
from .controls import Call, Sandbox, instant
from .database import Row
from .document import SIGNED_VERSIONS, VERSIONS, UblDocument
from .queries import read_page
from .records import CheckedEntry, head, insert_document, new_uuid, submitted_by
from .validators import Finding, core_fields, structure, totals
from .xml_documents import read_document

MAX_BODY = 5 * 1024 * 1024
MAX_DOCUMENT = 300 * 1024
MAX_DOCUMENTS = 100
XML_TYPES = ("application/xml", "text/xml")


class Entry(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One document of a submission: base64 of its bytes, their SHA-256, and its number."""

    format: str
    document: str
    document_hash: str
    code_number: str


class Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a submission."""

    documents: Annotated[list[Entry], msgspec.Meta(min_length=1)]


def submit(call: Call) -> Body:
    """Return 202 with the accepted and the rejected documents.

    The checks are in the portal's order. Portal: Appendix B
    """
    sandbox, caller, body = call.sandbox, call.caller, call.body
    if len(body) > MAX_BODY:
        raise too_large(f"A submission has at most {MAX_BODY} bytes.")
    sha256 = refuse_same_payload(call)
    entries = read_envelope(body, call.request.content_type)
    raise_forced_refusal(entry.code_number for entry in entries)
    checked = [examine(sandbox, entry) for entry in entries]
    # A document without an issuer is rejected for that reason.
    issuers = {each.document.issuer.tin for each in checked if each.document} - {""}
    if issuers - {caller["taxpayer"]}:
        raise mismatch(sandbox.controls.mismatch_status)
    return store(sandbox, caller, sha256, checked)


def read_envelope(body: bytes, content_type: str) -> list[Entry]:
    """Return the documents, with their format in upper case. Raises Refusal."""
    if content_type in XML_TYPES:
        raise refusal_with_detail(
            501,
            "NotImplemented",
            "The sandbox reads submissions in JSON only. XML documents are accepted in a JSON "
            "submission with the format XML.",
            "submission",
        )
    try:
        documents = msgspec.json.decode(body, type=Envelope).documents
    except msgspec.ValidationError as error:
        raise bad_structure(str(error), "documents") from None
    except ValueError:
        entry = detail("submission", "Invalid structured submission.", "submission")
        raise refusal(400, "ValidationError", None, None, [entry]) from None
    if len(documents) > MAX_DOCUMENTS:
        raise too_large(f"A submission has at most {MAX_DOCUMENTS} documents.")
    for index, entry in enumerate(documents):
        entry.format = entry.format.upper()
        if entry.format not in ("JSON", "XML"):
            raise bad_structure("The format is JSON or XML.", f"documents[{index}].format")
    if len({entry.format for entry in documents}) > 1:
        raise bad_structure("All documents of a submission have one format.", "documents")
    return documents


def raise_forced_refusal(numbers: Iterable[str]) -> None:
    """Raise Refusal if the number of a document asks for it. Portal: Appendix B"""
    for number in numbers:
        if number.startswith("SIM-500-"):
            raise refusal(500, "InternalServerError", "The number asked for an internal error.")
        if number.startswith("SIM-429-"):
            message = "The number asked for a throttled call."
            raise refusal(429, "TooManyRequests", message, headers={"Retry-After": "5"})


def refuse_same_payload(call: Call) -> str:
    """Return the hash of the body. Raises Refusal if it was received recently. Portal: 1.7"""
    sandbox, sha256 = call.sandbox, hashlib.sha256(call.body).hexdigest()
    now, window = sandbox.now(), sandbox.controls.payload_window_seconds
    taxpayer = call.caller["taxpayer"]
    last = sandbox.db.submission_same_payload(taxpayer=taxpayer, sha256=sha256, since=now - window)
    if last is not None and sandbox.controls.payload_detection:
        raise duplicate_payload(last + window - now)
    return sha256


def duplicate_payload(seconds: float) -> Refusal:
    """Return the refusal of a repeated body, which may be sent again after some seconds."""
    message = "An identical submission was received less than 10 minutes ago."
    headers = {"Retry-After": str(max(1, math.ceil(seconds)))}
    return refusal(422, "DuplicateSubmission", message, "documents", headers=headers)


def bad_structure(message: str, target: str) -> Refusal:
    return refusal_with_detail(400, "BadStructure", message, target)


def too_large(message: str) -> Refusal:
    return refusal_with_detail(400, "MaximumSizeExceeded", message, "documents")


def examine(sandbox: Sandbox, entry: Entry) -> CheckedEntry:
    """Run the immediate checks of one document.

    In this order: base64, hash, JSON or XML, type and version, structure, core fields. Raises
    Refusal if the document is too large, or has a signature in XML.
    """
    number, document = entry.code_number, decode_document(entry)
    if isinstance(document, Finding):
        return CheckedEntry(number, [document])
    if found := check_kind(document) or structure.check(document.root):
        return CheckedEntry(number, found)
    oldest = sandbox.now() - sandbox.controls.age_window_seconds
    found = core_fields.check(document, sandbox.now(), oldest)
    if document.number != number:  # Portal: 10.2
        message = "codeNumber differs from the number of the document."
        found.append(Finding(None, message, "codeNumber", "Invoice.ID"))
    wrong = totals.check(document.invoice)
    if sandbox.controls.strict_totals:
        return CheckedEntry(number, found + wrong, document)
    return CheckedEntry(number, found, document, wrong)


def decode_document(entry: Entry) -> UblDocument | Finding:
    """Return the document, or why it cannot be read. Raises Refusal as `examine` does."""
    try:
        raw = base64.b64decode(entry.document, validate=True)
    except ValueError:
        return Finding(None, "Document is not valid base64.", "document")
    if len(raw) > MAX_DOCUMENT:
        raise too_large(f"A document has at most {MAX_DOCUMENT} bytes.")
    if hashlib.sha256(raw).hexdigest() != entry.document_hash:
        return Finding(None, "Document hash is not valid.", "documentHash")
    try:
        document = UblDocument(read_document(raw, entry.format == "XML"), raw)
    except ValueError:
        return Finding(None, "Document cannot be parsed.", "document")
    if entry.format == "XML" and document.version in SIGNED_VERSIONS:
        raise refusal_with_detail(
            501,
            "NotImplemented",
            f"The sandbox cannot validate signatures in XML. Send version {document.version} "
            "as JSON, or an XML document of version 1.0 or 1.2.",
            document.number,
        )
    return document


def check_kind(document: UblDocument) -> list[Finding]:
    """Return findings for an unknown type or version. The structure checks find absent ones."""
    if document.type and document.type not in BUILT_IN["document_types"].codes:
        message = f"Document type {document.type} is not known."
        return [Finding(None, message, "InvoiceTypeCode", "Invoice.InvoiceTypeCode")]
    if document.type and document.version not in VERSIONS:
        message = f"Document version {document.version} is not active."
        return [Finding(None, message, "listVersionID", "Invoice.InvoiceTypeCode.listVersionID")]
    return []


def store(sandbox: Sandbox, caller: Row, sha256: str, checked: list[CheckedEntry]) -> Body:
    """Store the accepted documents and return the response body. Rejected ones leave no trace.

    Portal: 4.2
    """
    accepted = [each for each in checked if not each.findings]
    uid, now = (new_uuid() if accepted else None), sandbox.now()
    columns = {"submission_uid": uid, "payload_sha256": sha256}
    with sandbox.db.transaction():
        answered = [
            {
                "uuid": insert_document(sandbox, caller, each, now, **columns),
                "invoiceCodeNumber": each.code_number,
            }
            for each in accepted
        ]
    rejected = [reject(each.code_number, each.findings) for each in checked if each.findings]
    return {
        "submissionUid": uid,
        "submissionUID": uid,  # one spelling was observed, the other is documented
        "acceptedDocuments": answered,
        "rejectedDocuments": rejected,
    }


def reject(number: str, findings: list[Finding]) -> Body:
    """Return one entry of `rejectedDocuments`.

    Its code is null if the document could not be read, when no finding has a code or a path.
    Portal: 4.2
    """
    details = [detail(*each) for each in findings]
    code = "3" if any(each.code or each.path for each in findings) else None
    error = detail(code, "Validation Error", number, details=details)
    return {"invoiceCodeNumber": number, "error": error}


def get_submission(call: Call) -> Body:
    """Return a page of a submission's documents to its submitter. Portal: 5.1"""
    sandbox, caller, uid = call.sandbox, call.caller, call.path["uid"]
    size, skip = read_page(call.query)
    row = sandbox.db.submission_get(uid=uid)
    earliest = sandbox.now() - sandbox.controls.not_found_seconds
    if row is None or not submitted_by(row, caller) or row["received_at"] > earliest:
        raise not_found("submission", uid)
    statuses = dict(sandbox.db.submission_statuses(uid=uid))
    shown = sandbox.db.document_of_submission(uid=uid, size=size, skip=skip)
    return {
        "submissionUid": uid,
        "documentCount": sum(statuses.values()),
        "dateTimeReceived": instant(row["received_at"]),
        "overallStatus": overall_status(set(statuses)),
        "documentSummary": [sandbox.row_shown(each["number"], head(each)) for each in shown],
    }


def overall_status(statuses: set[str]) -> str:
    """Return the status of a submission. A Cancelled document was Valid. Portal: 5.1"""
    if "Submitted" in statuses:
        return "InProgress"
    if "Invalid" in statuses:
        return "Invalid" if statuses == {"Invalid"} else "Partially Valid"
    return "Valid"

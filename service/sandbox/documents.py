"""Requests about one document: details, source, page, cancel, reject. Portal: 5.2, 5.3, 6, 7.3"""

from html import escape

import msgspec
from aiohttp import web

from .answers import Body, bad_argument, not_found, refusal_with_detail
from .controls import SANDBOX, Call, Sandbox, instant
from .database import Row
from .records import head, submitted_by

MAX_REASON = 300
#: Statuses in which the receiver may read the document.
RECEIVED = {"Valid", "Cancelled"}

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
  body {{ font: 16px sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}
  th {{ text-align: left; padding-right: 2em }}
</style>
</head><body><h1>{title}</h1><table>{rows}</table></body></html>
"""
ROWS = """
<tr><th>Number</th><td>{number}</td></tr>
<tr><th>Status</th><td>{status}</td></tr>
<tr><th>Issuer</th><td>{issuer_name} ({taxpayer})</td></tr>
<tr><th>Receiver</th><td>{receiver_name} ({receiver_tin})</td></tr>
<tr><th>Issued</th><td>{issued}</td></tr>
<tr><th>Validated</th><td>{validated}</td></tr>
<tr><th>Total payable</th><td>MYR {total_payable}</td></tr>
<tr><th>Unique identifier</th><td>{uuid}</td></tr>
"""


def get_details(call: Call) -> Body:
    """Return the document as the portal shows it, and `warnings`, which only the sandbox has."""
    row = find_visible(call)
    shown = {**head(row), "validationResults": msgspec.Raw(row["validation_results"] or "null")}
    if row["warnings"] != "[]":
        shown["warnings"] = msgspec.Raw(row["warnings"])
    return call.sandbox.row_shown(row["number"], shown)


def get_raw(call: Call) -> Body:
    """Return the document as it was submitted, 404 if it is Invalid."""
    row = find_visible(call)
    if row["status"] == "Invalid":
        raise not_found("document", row["uuid"])
    raw = call.sandbox.db.body_get(uuid=row["uuid"])
    return {**head(row), "document": raw.decode("utf-8")}


async def show_page(request: web.Request) -> web.Response:
    """Return the public page of a Valid or Cancelled document, 404 for any other link."""
    row = request.app[SANDBOX].db.document_get(uuid=request.match_info["uuid"])
    status, title, rows = 404, "Document not found", ""
    # Only a document that was valid has a long id.
    if row and row["long_id"] == request.match_info["long_id"]:
        members = {name: escape(str(value)) for name, value in dict(row).items()}
        times = {"issued": instant(row["issued_at"]), "validated": instant(row["validated_at"])}
        status, title = 200, f"e-Invoice {members['number']}"
        rows = ROWS.format(**members, **times)
    page = PAGE.format(title=title, rows=rows)
    return web.Response(text=page, status=status, content_type="text/html")


def find_visible(call: Call) -> Row:
    """Return the row for its submitter, or its receiver once it is Valid. Raises Refusal 404."""
    caller = call.caller
    row = find_document(call.sandbox, call.path["uuid"])
    is_receiver = (
        not caller["represented"]
        and row["receiver_tin"] == caller["taxpayer"]
        and row["status"] in RECEIVED
    )
    if not submitted_by(row, caller) and not is_receiver:
        raise not_found("document", row["uuid"])
    return row


def find_document(sandbox: Sandbox, uuid: str) -> Row:
    """Return the row of a document. Raises Refusal 404."""
    row = sandbox.db.document_get(uuid=uuid)
    if row is None:
        raise not_found("document", uuid)
    return row


def change_state(call: Call) -> Body:
    """Cancel the document for its issuer, or request its rejection for its receiver. Portal: 6"""
    sandbox, caller = call.sandbox, call.caller
    wanted, reason = read_change(call.body)
    row = find_document(sandbox, call.path["uuid"])
    is_permitted = (
        submitted_by(row, caller)
        if wanted == "cancelled"
        else row["receiver_tin"] == caller["taxpayer"]
    )
    if not is_permitted:
        message = f"The caller may not set this document to {wanted}."
        raise refusal_with_detail(403, "Forbidden", message, row["uuid"])
    return change_document_state(sandbox, row, wanted, reason)


def read_change(body: bytes) -> tuple[str, str]:
    """Return (status in lower case, reason) of the request body. Raises Refusal. Portal: 6"""
    try:
        change = msgspec.json.decode(body, type=Body)
    except ValueError:
        raise bad_argument("body", "The body is not a JSON object.") from None
    # The authority's field table has `Rejected` as the example of the value `rejected`.
    wanted, reason = str(change.get("status")).lower(), change.get("reason")
    if wanted not in ("cancelled", "rejected"):
        raise bad_argument("status", "Status must be cancelled or rejected.")
    if not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
        raise bad_argument("reason", f"Reason is required and has at most {MAX_REASON} characters.")
    return wanted, reason


def find_obstacle(sandbox: Sandbox, row: Row, wanted: str) -> tuple[str, str] | None:
    """Return (code, message) of the first reason to refuse a change of state. Portal: 6"""
    if row["status"] != "Valid" or (wanted == "rejected" and row["reject_requested_at"]):
        return "IncorrectState", "The state of the document does not allow this."
    if sandbox.now() > row["validated_at"] + sandbox.controls.cancel_window_seconds:
        return "OperationPeriodOver", "The cancellation period of the document is over."
    if sandbox.db.reference_active(uuid=row["uuid"]):
        return "ActiveReferencingDocuments", "Valid notes refer to the document; cancel them first."
    return None


def change_document_state(sandbox: Sandbox, row: Row, wanted: str, reason: str) -> Body:
    """Change the state and return the portal's response body. Raises Refusal."""
    uuid = row["uuid"]
    if obstacle := find_obstacle(sandbox, row, wanted):
        raise refusal_with_detail(400, *obstacle, uuid)
    changes = {
        "cancelled": (sandbox.db.document_cancel, "Cancelled"),
        "rejected": (sandbox.db.document_reject, "Requested for Rejection"),
    }
    change, status = changes[wanted]
    change(uuid=uuid, now=sandbox.now(), reason=reason)
    return {"uuid": uuid, "status": status}

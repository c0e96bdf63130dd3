"""One document: details, source, cancel, reject. Portal: 5.2, 5.3, 6"""

import json
from decimal import Decimal

from .answers import Refusal, answer, bad_argument, detail, not_found
from .controls import CALLER, SANDBOX
from .database import sql, transaction
from .document import read_json
from .records import head, submitted_by

MAX_REASON = 300
#: what a receiver may see
RECEIVED = {"Valid", "Cancelled"}


async def get_details(request):
    """What the portal tells, and beside it `warnings` where there are any, which are the sandbox's own."""
    row = visible(request)
    results, found = (
        row["validation_results"],
        sql.warning_get(request.app[SANDBOX].db, uuid=row["uuid"]),
    )
    warnings = {"warnings": json.loads(found)} if found else {}
    results = results and json.loads(results, parse_float=Decimal)
    shown = {**head(row), "validationResults": results, **warnings}
    return answer(request.app[SANDBOX].row_shown(row["number"], shown))


async def get_raw(request):
    """The document as it was submitted; not that of an Invalid one."""
    row = visible(request)
    if row["status"] == "Invalid":
        raise not_found("document", row["uuid"])
    raw = sql.body_get(request.app[SANDBOX].db, uuid=row["uuid"])
    return answer({**head(row), "document": raw.decode("utf-8")})


def visible(request):
    """The row, for its submitter, or for its receiver once it is Valid. Raises Refusal 404."""
    caller, row = request[CALLER], existing(request)
    received = (
        not caller["represented"]
        and row["receiver_tin"] == caller["taxpayer"]
        and row["status"] in RECEIVED
    )
    if not submitted_by(row, caller) and not received:
        raise not_found("document", row["uuid"])
    return row


def existing(request):
    uuid = request.match_info["uuid"]
    row = sql.document_get(request.app[SANDBOX].db, uuid=uuid)
    if row is None:
        raise not_found("document", uuid)
    return row


async def change_state(request):
    """Cancel by the issuer, or a request to reject by the receiver. Portal: 6"""
    sandbox, caller = request.app[SANDBOX], request[CALLER]
    wanted, reason = read_change(await request.read())
    row = existing(request)
    permitted = (
        submitted_by(row, caller)
        if wanted == "cancelled"
        else row["receiver_tin"] == caller["taxpayer"]
    )
    if not permitted:
        message = f"The caller may not set this document to {wanted}."
        raise Refusal(
            403, "Forbidden", message, row["uuid"], [detail("Forbidden", message, row["uuid"])]
        )
    return answer(change_document_state(sandbox, row, wanted, reason))


def read_change(body):
    """(status, reason) of the request. Raises Refusal."""
    try:
        change = read_json(body)
    except ValueError:
        raise bad_argument("body", "The body is not JSON.") from None
    wanted, reason = (
        change.get(name) if isinstance(change, dict) else None for name in ("status", "reason")
    )
    if wanted not in ("cancelled", "rejected"):
        raise bad_argument("status", "Status must be cancelled or rejected.")
    if not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
        raise bad_argument("reason", f"Reason is required and has at most {MAX_REASON} characters.")
    return wanted, reason


def wrong_state(sandbox, row, wanted):
    return row["status"] != "Valid" or (
        wanted == "rejected" and row["reject_requested_at"] is not None
    )


def window_over(sandbox, row, wanted):
    return sandbox.now() > row["validated_at"] + sandbox.controls.cancel_window_seconds


def referenced(sandbox, row, wanted):
    return sql.reference_active(sandbox.db, uuid=row["uuid"]) > 0


#: the first row that holds refuses: (test, code, message)
REFUSALS = (
    (wrong_state, "IncorrectState", "The state of the document does not allow this."),
    (window_over, "OperationPeriodOver", "The cancellation period of the document is over."),
    (
        referenced,
        "ActiveReferencingDocuments",
        "Valid notes refer to the document; cancel them first.",
    ),
)


def change_document_state(sandbox, row, wanted, reason):
    """Makes the change and returns the portal's answer. Raises Refusal; the code stands in both its places."""
    uuid = row["uuid"]
    for holds, code, message in REFUSALS:
        if holds(sandbox, row, wanted):
            raise Refusal(400, code, message, uuid, [detail(code, message, uuid)])
    change, status = CHANGES[wanted]
    with transaction(sandbox.db):
        change(sandbox.db, uuid=uuid, now=sandbox.now(), reason=reason)
    return {"uuid": uuid, "status": status}


#: wanted status -> (statement, what the answer calls it)
CHANGES = {
    "cancelled": (sql.document_cancel, "Cancelled"),
    "rejected": (sql.document_reject, "Requested for Rejection"),
}

"""Start of a submission: build the document, store it as a Queued submission, then send it.

A request for a document that is already being submitted waits for that outcome. A document is
never sent twice.
"""

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from service import failpoints, json_codec
from service.db.connections import TRANSIENT_DB_ERRORS, Connection
from service.db.statements import sql
from service.documents import states
from service.documents.body_checks import SubmissionRequest
from service.documents.checks import preflight
from service.documents.kind import INVOICE, DocumentKind
from service.documents.signing import signature
from service.documents.ubl import document as ubl
from service.documents.ubl import parties
from service.errors import BadRequest, Conflict, make_reason
from service.json_types import JsonObject, Row
from service.loops import wait_for_event
from service.offload import offload
from service.submission.context import Claim, SubmissionContext
from service.submission.locked_documents import (
    LockedRecord,
    SendableDocument,
    check_ready,
    load_document,
    lock_document,
)
from service.submission.machine.failures import (
    describe_not_sent,
    name_failure,
    refuse_submission,
)
from service.submission.machine.state_machine import OUTCOME_UNKNOWN
from service.submission.machine.types import Error
from service.submission.runner import run_claimed
from service.submission.sending import checks
from service.submission.sending.send import send

log = logging.getLogger(__name__)

RECHECK = timedelta(seconds=1)  # while waiting: a lost connection loses notifications
#: States of a submission in which the caller gets a response.
ANSWERED: set[states.SubmissionState] = {
    "Accepted",
    "Finished",
    "Refused",
    "NotReceived",
    "NeedsPerson",
}
#: Added for a caller whose submission has no known outcome yet.
LOCKED_UNTIL_KNOWN = (
    " The document is locked until the outcome is known. A repeated submit joins this submission."
)

NOT_SUBMITTED = " It could not be submitted, see errors."
REJECTED = " The portal rejected it, see errors."
#: The error of a submission that is sent when the hold ends.
WAITS_FOR_HOLD = make_reason(
    "SendingHeld",
    "Sending is held. The document is submitted when the hold ends. A repeated submit "
    "joins this submission.",
)
#: A sentence and data about a submission, for the response to a create or update.
Answer = tuple[str, JsonObject]
HELD: Answer = (
    " Sending is held. It will be submitted when the hold ends.",
    {"status": "Submitting", "code": "sending_held"},
)
LATER: Answer = " It will be submitted to the portal.", {"status": "Submitting"}
#: The claim on a submission that this process sends now, or the answer about another one.
Started = Claim | Answer

#: Awaited with the connection of a transaction and the record that it has locked. Raises an error
#: to roll back the transaction.
Guard = Callable[[Connection, Row], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SubmissionOrder:
    """The way in which a document is to be submitted.

    With a `lease` the caller holds the claim at once, else a worker takes it up. The `attempt_key`
    finds the submission if the response to the commit is lost.
    """

    on_absence: str  # release or retry
    lease: timedelta | None
    attempt_key: uuid.UUID = field(default_factory=uuid.uuid4)


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a document that is to be sent.

    `former_id` is the submitted document of an earlier attempt that had the same bytes and was
    absent at the portal.
    """

    issued_at: datetime
    data: bytes
    former_id: int | None = None


class Outcome(NamedTuple):
    """The submission with the latest version of a document: a row of submission_of_subject."""

    id: int
    submitted_document_id: int
    state: states.SubmissionState
    status: states.SubmittedStatus
    errors: str
    last_error: str | None
    is_held: bool
    portal_wait: timedelta | None


async def submit(
    context: SubmissionContext, company_id: int, kind: DocumentKind, document_id: int, guard: Guard
) -> str:
    """Submit an invoice, a note or a consolidated invoice, and return the message of success.

    `guard` is awaited in the transaction that stores the submission. Raises its errors, NotFound,
    and BadRequest in the specified words if the submission failed or its outcome is unknown. That
    error is `retryable` if the portal has not refused the document: a repetition tries again, or
    joins the submission that is under way.
    """
    status, claim = await _begin(context, company_id, kind, document_id, guard)
    if status in ("Submitted", "Valid"):
        return states.ALREADY_SUBMITTED.format(noun=kind.noun)
    wait = _send(context, claim, document_id) if claim else _join(context, company_id, document_id)
    outcome = await wait
    failpoints.reach("before_reply")
    if outcome.state in ("Accepted", "Finished") and outcome.status != "Rejected":
        return states.SUBMITTED.format(noun=kind.noun)
    errors = _errors(outcome)
    raise refuse_submission(name_failure(outcome.state, errors), errors, outcome.portal_wait)


async def _begin(
    context: SubmissionContext, company_id: int, kind: DocumentKind, document_id: int, guard: Guard
) -> tuple[states.DocumentStatus, Claim | None]:
    """Store the submission of a record that has none. Return the record's status and the claim.

    Raises BadRequest, after it was recorded, if the submission is refused. If the commit was not
    confirmed, the submission is looked up on another connection and continued if it exists.
    """
    order = SubmissionOrder("release", context.config.portal_lease)
    try:
        async with context.database.company(company_id) as conn:
            row = await lock_document(conn, kind, document_id)
            if row["status"] in states.LOCKED:
                return row["status"], None
            await guard(conn, row)
            record = LockedRecord(company_id, kind, row)
            prepared = await prepare_submission(context, conn, record, order)
            failpoints.reach("before_queued_commit")
    except TRANSIENT_DB_ERRORS:
        stored = await context.database.read(
            sql.submission_of_attempt, company_id=company_id, attempt_key=order.attempt_key
        )
        if stored is None:
            raise
        prepared = Claim(company_id, stored["id"], stored["fence"])
    failpoints.reach("after_queued_commit")
    if isinstance(prepared, BadRequest):
        raise prepared
    return "Submitting", prepared


async def start_if_requested(
    context: SubmissionContext,
    conn: Connection,
    company_id: int,
    invoice_id: int,
    requested: SubmissionRequest,
) -> Started | None:
    """Store the submission that a body or the company's setting requests, in its transaction.

    Return None if none is requested. A document that cannot be submitted raises nothing.
    """
    if requested == "none":
        return None
    if requested == "if_set":
        issuer = await sql.issuer_get(conn)
        if not issuer["auto_submits"]:
            return None
    row = await lock_document(conn, INVOICE, invoice_id)
    if is_reissue(row):
        error = already_cancelled(INVOICE)
        reasons = [make_reason(error.code, error.message)]
        return _answer_failed(row, error.code, reasons)
    is_held = await sql.sending_is_held(conn)
    at_once = requested == "at_once" and not is_held
    order = SubmissionOrder("retry", context.config.portal_lease if at_once else None)
    prepared = await prepare_submission(
        context, conn, LockedRecord(company_id, INVOICE, row), order
    )
    if isinstance(prepared, BadRequest):
        return _answer_failed(row, prepared.code, prepared.more["errors"])
    if at_once:
        return prepared
    if is_held:
        return HELD
    return LATER


def _answer_failed(row: Row, code: str, errors: list[Error]) -> Answer:
    return NOT_SUBMITTED, {"status": row["status"], "code": code, "errors": errors}


def is_reissue(row: Row) -> bool:
    """Return whether a document was cancelled and has not changed since.

    A late repetition of a request must not issue it once more.
    """
    return row["status"] == "Cancelled" and not row["is_changed"]


def already_cancelled(kind: DocumentKind) -> Conflict:
    """Return the error for a document that was cancelled and has not changed since."""
    error = states.ALREADY_CANCELLED
    return Conflict(error["message"].format(noun=kind.noun), code=error["code"])


async def describe_outcome(
    context: SubmissionContext, invoice_id: int, started: Started | None
) -> Answer:
    """Return the answer about a committed submission, which is empty without one.

    A submission that was requested at once is sent now.
    """
    if not isinstance(started, Claim):
        return started or ("", {})
    outcome = await _send(context, started, invoice_id)
    if outcome.is_held:  # since this transaction
        return HELD
    if outcome.status in ("Rejected", "NotSent"):
        errors = _errors(outcome)
        code = name_failure(outcome.state, errors)
        sentence = REJECTED if code == "document_rejected" else NOT_SUBMITTED
        return sentence, {"status": "Draft", "code": code, "errors": errors}
    if outcome.state in ("Accepted", "Finished"):
        return " It has been submitted to the portal.", {"status": outcome.status}
    errors = _last_error(outcome)
    code = name_failure(outcome.state, errors)
    return " Its submission is under way.", {"status": "Submitting", "code": code, "errors": errors}


async def prepare_submission(
    context: SubmissionContext, conn: Connection, record: LockedRecord, order: SubmissionOrder
) -> Claim | BadRequest:
    """Store a Queued submission of a locked record with its final bytes, and return its claim.

    If the document cannot be sent, record that as its last submission, and return the error with
    all reasons.
    """
    try:
        document = await _load(context, conn, record)
        content = await _make_content(context, conn, document, order)
    except BadRequest as refusal:
        await sql.submission_refuse(
            conn,
            document_id=record.row["id"],
            failure=json_codec.dumps(describe_not_sent(refusal.code, refusal.more["errors"])),
        )
        return refusal
    return await _store(conn, document, content, order)


async def _load(
    context: SubmissionContext, conn: Connection, record: LockedRecord
) -> SendableDocument:
    """Load a record that is ready to be sent.

    The company's TIN cannot change until the transaction ends, nor afterwards until the portal has
    validated the document.
    """
    await check_ready(conn, context.config, record)
    await sql.company_tin_keep(conn)
    document = await load_document(conn, context.config, record)
    if document.issuer["tin_verified_at"] is None:
        reason = states.TIN_NOT_VERIFIED
        raise refuse_submission(reason["code"], [reason])
    return document


async def _make_content(
    context: SubmissionContext, conn: Connection, document: SendableDocument, order: SubmissionOrder
) -> Content:
    """Return the bytes to send: those of an unchanged earlier attempt, or new ones.

    Raises BadRequest if sending is blocked or a check fails. Warnings do not block.
    """
    former = await _find_former(conn, document)
    issued_at = former.issued_at if former else document.next_issue_time
    former_id = former.former_id if former else None
    await checks.check_not_blocked(conn, document, order.on_absence, former_id)
    if errors := preflight.list_errors(await checks.findings(conn, document, issued_at)):
        raise refuse_submission("check_failed", errors)
    if former:
        return former
    built = await offload(document.size, document.build, issued_at)
    content = await context.signers.content(conn, document.company_id, document.issuer, built)
    if errors := checks.size_refusals(content):
        raise refuse_submission("check_failed", errors)
    return Content(issued_at, content)


async def _find_former(conn: Connection, document: SendableDocument) -> Content | None:
    """Return the bytes of the previous attempt if it was absent at the portal and is unchanged.

    If the portal received it after all, it recognises the same bytes, and later the same document.
    Any other attempt has a new issue time and new bytes.
    """
    if not document.row["attempts"]:
        return None
    former = await sql.submission_confirmed_absent(conn, document_id=document.row["id"])
    if former is None:
        return None
    built = await offload(document.size, document.build, former["issued_at"])
    if _encode_unsigned(json_codec.loads(former["content"])) != _encode_unsigned(built):
        return None
    return Content(former["issued_at"], former["content"], former["id"])


def _encode_unsigned(built: JsonObject) -> bytes:
    return ubl.encode(signature.remove_signature(built))


async def _store(
    conn: Connection, document: SendableDocument, content: Content, order: SubmissionOrder
) -> Claim:
    """Insert the submission and its document, and return the claim on it."""
    # Without a lease the submission is delayed, so that others can be merged with it.
    delay = None if order.lease else document.config.portal_batch
    submission = await sql.submission_insert(
        conn,
        attempt_key=order.attempt_key,
        tin=parties.normalize_tin(document.issuer["tin_code"]),
        on_absence=order.on_absence,
        possibly_received=content.former_id is not None,
        lease=order.lease,
        delay=delay,
    )
    await sql.submitted_document_insert(
        conn,
        submission_id=submission["id"],
        document_id=document.row["id"],
        number=document.number,
        document_type=document.document_type,
        document_version=document.version,
        issued_at=content.issued_at,
        document_hash=hashlib.sha256(content.data).hexdigest(),
        content=content.data,
    )
    if order.lease is None:
        await sql.notify(conn, channel="submission_due", payload="")
    return Claim(document.company_id, submission["id"], submission["fence"])


async def _send(context: SubmissionContext, claim: Claim, document_id: int) -> Outcome:
    """Send a submission, and return its outcome after the send or at the end of the wait."""
    await asyncio.wait(
        {context.spawn(run_claimed(context, claim, send))},
        timeout=context.config.submit_wait,
    )
    return await _get_outcome(context, claim.company_id, document_id)


async def _join(context: SubmissionContext, company_id: int, document_id: int) -> Outcome:
    """Wait for the submission of another request, and return its outcome. A hold ends the wait.

    The document is followed from submission to submission, because it may be merged into another or
    split off.
    """
    until = time.monotonic() + context.config.submit_wait
    row = await _get_outcome(context, company_id, document_id)
    submitted_document_id = row.submitted_document_id
    while True:
        submission_id = row.id
        with context.waiters.waiting(company_id, submission_id) as moved:
            row = await _get_outcome(context, company_id, document_id)
            left = until - time.monotonic()
            is_answered = row.state in ANSWERED or row.is_held
            if row.submitted_document_id != submitted_document_id or is_answered or left <= 0:
                return row
            if row.id == submission_id:
                await wait_for_event(moved, min(left, RECHECK.total_seconds()))


async def _get_outcome(context: SubmissionContext, company_id: int, document_id: int) -> Outcome:
    row = await context.database.read(
        sql.submission_of_subject, company_id=company_id, document_id=document_id
    )
    return Outcome(**row)


def _errors(outcome: Outcome) -> list[Error]:
    """Return the errors of a submission that has failed or has no outcome yet."""
    if outcome.is_held:
        return [WAITS_FOR_HOLD]
    errors = json_codec.loads(outcome.errors.encode())
    if errors or outcome.state not in ("Queued", "Sending", "Uncertain", "NeedsPerson"):
        return errors
    return [{**OUTCOME_UNKNOWN, "message": OUTCOME_UNKNOWN["message"] + LOCKED_UNTIL_KNOWN}]


def _last_error(outcome: Outcome) -> list[Error]:
    """Return the last transient error of a submission that is retried."""
    if not outcome.last_error:
        return []
    error = json_codec.loads(outcome.last_error.encode())
    return [{name: value for name, value in error.items() if name != "since"}]

"""Cancellation of a submitted document: the intent is committed first, the portal's state decides.

While the outcome of a request is unclear, the cancellation stays under way. Any process reads the
state of the document with backoff until the settling time is over.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypedDict

from service import failpoints
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import states
from service.documents.kind import DocumentKind
from service.errors import ApiError, BadRequest, Conflict, Forbidden, ValidationError, violation
from service.json_types import Row
from service.loops import wait_for_event
from service.portal.errors import NotSent
from service.submission import store
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.locked_documents import lock_document
from service.submission.machine import cancellation as rules
from service.submission.machine.cancellation import CancellationState, Cancelled, End, Wait
from service.submission.machine.failures import FAILURES, refuse_cancellation
from service.submission.machine.types import Change
from service.submission.own_clients import sign_in

log = logging.getLogger(__name__)

STILL_SUBMITTING = "The submission of the {noun} is under way and its outcome not yet known."
OUTCOME_UNKNOWN = "outcome_unknown"  # code of the response while the outcome is unclear
RECHECK = timedelta(seconds=1)
TOO_LATE = "The claim on the cancellation has expired."


class LatestRow(TypedDict):
    """The row of submitted_document_latest."""

    id: int
    submission_id: int
    status: str
    submitted_at: datetime | None
    cancelling_until: datetime | None
    cancel_sent_by: datetime | None
    now: datetime


class CancellationRow(TypedDict):
    """The row of cancellation_get."""

    submission_id: int
    uuid: str
    cancel_reason: str
    cancel_sent_by: datetime | None
    cancel_reads: int
    tin: str
    now: datetime


@dataclass(frozen=True, slots=True)
class CancelOrder:
    """A request to cancel the latest submitted document of a record.

    `guard` is awaited in the transaction that stores the cancellation, and rolls it back by
    raising.
    """

    kind: DocumentKind
    document_id: int
    reason: str
    guard: Callable[[Connection], Awaitable[None]]


async def cancel(context: SubmissionContext, company_id: int, order: CancelOrder) -> None:
    """Cancel the latest submitted document of an invoice, a note or a consolidated invoice.

    Raises Forbidden by states.CANCEL_REFUSALS, Conflict while the outcome of the submission is
    unknown, ValidationError for a debit note whose amount other notes have used, and BadRequest:
    with the authority's `code` if it refuses, with OUTCOME_UNKNOWN while the outcome is unclear,
    with tin_not_verified while the document has the company's TIN and that is not verified, with
    portal_unavailable or portal_credentials_refused if nothing was sent, and else with
    cancellation_failed. All but the authority's refusal are `retryable`.

    A cancellation of another request is joined. One whose outcome is unclear is sent again, which
    does not shorten its settling time.
    """
    until = time.monotonic() + context.config.submit_wait
    while (begun := await _begin(context, company_id, order)) is None:
        await _join(context, company_id, order.document_id, until)
    task = context.spawn(run(context, *begun))
    done, _ = await asyncio.wait({task}, timeout=max(0.0, until - time.monotonic()))
    if not done:
        raise refuse_cancellation(OUTCOME_UNKNOWN)
    if refusal := task.result():
        raise refusal


async def _begin(
    context: SubmissionContext, company_id: int, order: CancelOrder
) -> tuple[Claim, CancellationState, float] | None:
    """Store the intent, and return what `run` needs.

    Return None while another process may still send a request.
    """
    kind, document_id = order.kind, order.document_id
    lease = context.config.portal_lease
    send_until = time.monotonic() + lease.total_seconds()
    async with context.database.company(company_id) as conn:
        row = await lock_document(conn, kind, document_id)
        key = {"company_id": company_id, "document_id": document_id}
        latest = await sql.submitted_document_latest(conn, **key)
        if latest and latest["status"] == "Submitting":
            raise Conflict(STILL_SUBMITTING.format(noun=kind.noun), code="still_submitting")
        if code := states.find_refusal(states.CANCEL_REFUSALS, latest, latest and latest["now"]):
            raise Forbidden(states.CANCEL_MESSAGES[kind.noun][code], code=code)
        notes = await sql.notes_of_document(conn, **key, most=None)
        if any(note["status"] in states.LOCKED for note in notes):
            raise _by_authority("ActiveReferencingDocuments")
        if latest["status"] == "Valid":
            _check_remaining_amount(row)
        if _is_being_sent(latest, lease):
            return None
        await _check_tin_verified(conn, latest["id"])
        await order.guard(conn)
        row = await sql.cancellation_begin(conn, id=latest["id"], reason=order.reason, lease=lease)
        claim = Claim(company_id, latest["id"], row["cancel_fence"])
        return claim, CancellationState(row["now"], row["sent_by"]), send_until


def _check_remaining_amount(note: Row) -> None:
    """Raise ValidationError if credit or refund notes have used the amount of a debit note."""
    if note["type"] == "DEBIT_NOTE" and note["total_amount"] > note["adjustable"]:
        raise ValidationError([violation("", "amount", states.DEBIT_NOTE_USED)])


async def _check_tin_verified(conn: Connection, submitted_document_id: int) -> None:
    """Raise BadRequest if the document has the company's current TIN and that is not verified."""
    await sql.company_tin_keep(conn)
    if await sql.cancellation_lacks_verified_tin(conn, id=submitted_document_id):
        raise refuse_cancellation(states.TIN_NOT_VERIFIED["code"])


def _is_being_sent(latest: LatestRow, lease: timedelta) -> bool:
    """Return whether a process may still send a request to cancel a document.

    A time that is further ahead than a lease was recorded before the database's clock was set back.
    """
    sent_by = latest["cancel_sent_by"]
    return sent_by is not None and latest["now"] < sent_by <= latest["now"] + lease


async def _join(
    context: SubmissionContext, company_id: int, document_id: int, until: float
) -> None:
    """Wait for the result of a request that another process or task sends.

    Raises BadRequest if its outcome is unclear or not known in time.
    """
    while (left := until - time.monotonic()) > 0:
        latest: LatestRow = await context.database.read(
            sql.submitted_document_latest, company_id=company_id, document_id=document_id
        )
        if not _is_being_sent(latest, context.config.portal_lease):
            if latest["cancelling_until"]:
                break
            return
        with context.waiters.waiting(company_id, latest["submission_id"]) as moved:
            await wait_for_event(moved, min(left, RECHECK.total_seconds()))
    raise refuse_cancellation(OUTCOME_UNKNOWN)


async def run(
    context: SubmissionContext,
    claim: Claim,
    new: CancellationState | None = None,
    send_until: float = 0.0,
) -> ApiError | None:
    """Resolve a claimed cancellation, and store the result. Return None, or the caller's error.

    The claim has the id of the submitted document. `new` is the state of a cancellation whose
    request this process sends, at most until the monotonic time `send_until`. Without it, a stored
    one is resumed whose outcome is unclear or whose sender stored no result in time: nothing is
    sent.
    """
    doc: CancellationRow = await context.database.read(sql.cancellation_get, **claim.key)
    own = await sign_in(context, claim.company_id)
    state = new or CancellationState(doc["now"], doc["cancel_sent_by"], doc["cancel_reads"])
    send = partial(_send, own, doc, send_until) if new else None
    read = partial(own.portal.details, doc["tin"], doc["uuid"])
    state, result = await rules.resolve(state, send, read, context.config)
    return await _write(context, claim, state, result)


async def _send(context: CompanyContext, doc: CancellationRow, send_until: float) -> None:
    """Send the request, unless another process may have claimed the cancellation."""

    async def check_claim() -> None:
        if time.monotonic() > send_until:
            raise NotSent(TOO_LATE)

    failpoints.reach("before_cancel_sent")
    try:
        await context.portal.cancel(
            doc["tin"], doc["uuid"], doc["cancel_reason"], before_bytes=check_claim
        )
    finally:
        failpoints.reach("after_cancel_answer")


async def _write(
    context: SubmissionContext,
    claim: Claim,
    state: CancellationState,
    result: Cancelled | Wait | End,
) -> ApiError | None:
    """Store the result of a request or of a read. Return None, or the error for the caller."""
    async with context.database.company(claim.company_id) as conn:
        match result:
            case Cancelled():
                await _record_cancelled(conn, claim, result)
                return None
            case Wait(delay):
                await sql.cancellation_wait(
                    conn,
                    **claim.key,
                    fence=claim.fence,
                    delay=delay,
                    sent_by=state.sent_by,
                    is_unclear=state.is_unclear,
                )
                return refuse_cancellation(OUTCOME_UNKNOWN)
            case End(code, wait):
                ended = await sql.cancellation_end(
                    conn, **claim.key, fence=claim.fence, is_unclear=state.may_have_arrived
                )
                return _by_authority(code, wait) if ended else refuse_cancellation(OUTCOME_UNKNOWN)


async def _record_cancelled(conn: Connection, claim: Claim, result: Cancelled) -> None:
    # Read again: the document may have moved to another submission.
    doc: CancellationRow = await sql.cancellation_get(conn, **claim.key)
    change = Change(claim.id, "Cancelled", cancelled_at=result.at, cancel_reason=result.reason)
    await store.write_facts(conn, claim.company_id, doc["submission_id"], [change])


def _by_authority(code: str | None, wait: timedelta | None = None) -> BadRequest:
    """Return the specified error for an authority's code, or the general, retryable error."""
    if code in states.CANCEL_CODES:
        return BadRequest(states.CANCEL_CODES[code], code=code)
    return refuse_cancellation(code if code in FAILURES else "cancellation_failed", wait)

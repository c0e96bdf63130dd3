"""Cancelling a submitted document: the intent is committed before the portal is asked, and the portal's state decides.

While the outcome of a request is unclear, the cancellation stays under way and the document is looked at with backoff,
by any process, until the settling time is over.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from asyncpg import Connection

from service import failpoints
from service.db.statements import sql
from service.documents import states
from service.errors import ApiError, BadRequest, Conflict, Forbidden
from service.http.requests import or_not_found
from service.portal.errors import NotSent, PortalError, Refused, Throttled, Unclear
from service.portal.responses import UNKNOWN
from service.submission import cancellation as machine
from service.submission import store
from service.submission.cancellation import (
    CancellationState,
    Command,
    End,
    Event,
    Note,
    Put,
    Read,
    Wait,
    step,
)
from service.submission.context import SubmissionContext
from service.submission.document_kinds import DocumentKind
from service.submission.types import Change

log = logging.getLogger(__name__)

STILL_SUBMITTING = "The submission of the {noun} is under way and its outcome not yet known."
OUTCOME_UNKNOWN = "outcome_unknown"  # code of the response while the outcome is unclear
RECHECK = timedelta(seconds=1)
TOO_LATE = "The claim on the cancellation has expired."


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The claim on one cancellation. It is lost when another process has claimed it: then the fence has grown.

    `send_until` is the monotonic time after which this process must not send the request.
    """

    company_id: int
    id: int
    fence: int
    send_until: float = 0.0

    @property
    def key(self) -> dict[str, int]:
        return {"company_id": self.company_id, "id": self.id}


@dataclass(frozen=True, slots=True)
class CancelOrder:
    """A request to cancel the latest submitted document of one record.

    `guard` is awaited in the transaction that writes the cancellation, and undoes it by raising.
    """

    subject: DocumentKind
    id: int
    reason: str
    guard: Callable[[Connection], Awaitable[None]]


async def cancel(context: SubmissionContext, company: int, order: CancelOrder) -> None:
    """Cancel the latest submitted document of an invoice, a note or a consolidated invoice.

    Raises Forbidden by states.CANCEL_REFUSALS, Conflict while the outcome of the submission is unknown, and BadRequest
    with the authority's `code` when it refuses, with OUTCOME_UNKNOWN while the outcome is unclear, with tin_not_verified
    while the TIN of the document is the company's and not verified, or without a code when nothing was sent. All but the
    authority's refusal are `retryable`.

    A cancellation that another request carries out is joined. One whose outcome is unclear is sent again, which does
    not shorten its settling time.
    """
    until = time.monotonic() + context.config.submit_wait.total_seconds()
    while (begun := await _begin(context, company, order)) is None:
        await _join(context, company, order.subject.ids(order.id), until)
    task = context.spawn(_carry_out(context, *begun, machine.Begun()))
    done, _ = await asyncio.wait({task}, timeout=max(0.0, until - time.monotonic()))
    if not done:
        raise _unknown()
    if refusal := task.result():
        raise refusal


async def _begin(
    context: SubmissionContext, company: int, order: CancelOrder
) -> tuple[Cancellation, CancellationState] | None:
    """Write the intent, before the portal is asked. Return None while another request may still be sent."""
    subject, id = order.subject, order.id
    lease = context.config.portal_lease
    send_until = time.monotonic() + lease.total_seconds()
    async with context.database.company(company) as conn:
        or_not_found(await subject.lock(conn, company_id=company, id=id), subject.title)
        latest = await sql.submitted_document_latest(conn, company_id=company, **subject.ids(id))
        if latest and latest["status"] == "Submitting":
            raise Conflict(STILL_SUBMITTING.format(noun=subject.noun))
        if name := states.refusal(states.CANCEL_REFUSALS, latest, latest and latest["now"]):
            raise Forbidden(states.CANCEL_MESSAGES[subject.noun][name])
        if await subject.referred_to(conn, company, id):
            raise _by_authority("ActiveReferencingDocuments")
        if _is_being_sent(latest):
            return None
        await _refuse_unverified_tin(conn, company, latest["id"])
        await order.guard(conn)
        row = await sql.cancellation_begin(
            conn, company_id=company, id=latest["id"], reason=order.reason, lease=lease
        )
        cancellation = Cancellation(company, latest["id"], row["cancel_fence"], send_until)
        return cancellation, CancellationState(row["now"], row["sent_by"])


async def _refuse_unverified_tin(conn: Connection, company_id: int, document_id: int) -> None:
    """Raise BadRequest for a document under the company's present TIN while that is not verified."""
    await sql.company_hold(conn, company_id=company_id)
    if await sql.cancellation_lacks_verified_tin(conn, company_id=company_id, id=document_id):
        raise _failed(code=states.TIN_NOT_VERIFIED["code"])


def _is_being_sent(latest: Any) -> bool:
    """Return whether a process may still send a request to cancel a document."""
    return latest["cancel_sent_by"] is not None and latest["cancel_sent_by"] > latest["now"]


async def _join(
    context: SubmissionContext, company: int, ids: dict[str, int | None], until: float
) -> None:
    """Wait for the result of a request that somebody else sends.

    Raises BadRequest when its outcome is unclear, or when it is not known in time.
    """
    while (left := until - time.monotonic()) > 0:
        async with context.database.reading(company) as conn:
            latest = await sql.submitted_document_latest(conn, company_id=company, **ids)
        if not _is_being_sent(latest):
            if latest["cancelling_until"]:
                break
            return
        with (
            context.waiters.waiting(company, latest["submission_id"]) as moved,
            suppress(TimeoutError),
        ):
            async with asyncio.timeout(min(left, RECHECK.total_seconds())):
                await moved.wait()
    raise _unknown()


async def _carry_out(
    context: SubmissionContext,
    cancellation: Cancellation,
    standing: CancellationState,
    event: Event,
) -> ApiError | None:
    """Go from event to event until the result is written. Return None, or the refusal for the caller."""
    async with context.database.reading(cancellation.company_id) as conn:
        doc = await sql.cancellation_get(conn, **cancellation.key)
    while True:
        standing, command = step(standing, event, context.config)
        match command:
            case Put():
                event = await _put(context, cancellation, doc)
            case Read():
                event = await _read(context, doc, command)
            case _:
                return await _write(context, cancellation, standing, command)


async def resume(context: SubmissionContext, cancellation: Cancellation) -> None:
    """Look at a cancellation whose outcome is unclear, or whose sender gave no result in time."""
    async with context.database.reading(cancellation.company_id) as conn:
        doc = await sql.cancellation_get(conn, **cancellation.key)
    standing = CancellationState(doc["now"], doc["cancel_sent_by"], doc["cancel_looks"])
    await _carry_out(context, cancellation, standing, machine.Resumed())


async def _put(context: SubmissionContext, cancellation: Cancellation, doc: Any) -> Event:
    async def refuse_late() -> None:
        """Raise NotSent once another process may have taken the cancellation over."""
        if time.monotonic() > cancellation.send_until:
            raise NotSent(TOO_LATE)

    failpoints.reach("before_cancel_sent")
    try:
        await context.portal.cancel(
            doc["tin"], doc["uuid"], doc["cancel_reason"], before_bytes=refuse_late
        )
        event = machine.Done()
    except PortalError as why:
        await context.apply_throttle(why, "cancel")
        event = _classify(why)
    failpoints.reach("after_cancel_answer")
    return event


def _classify(why: PortalError) -> Event:
    """Return what a failure says about the request. A refusal without a code may be a gateway's: it says nothing."""
    if isinstance(why, Refused) and why.code:
        return machine.Refused(why.code)
    return machine.Unclear() if isinstance(why, (Refused, Unclear)) else machine.NotSent()


async def _read(context: SubmissionContext, doc: Any, command: Read) -> Event:
    try:
        there = await context.portal.details(doc["tin"], doc["uuid"])
    except PortalError as why:
        await context.apply_throttle(why, "details")
        return (
            machine.NotShown(why.retry_after) if isinstance(why, Throttled) else machine.NotShown()
        )
    if there.status == UNKNOWN:
        # It is looked at again until the portal shows a status that is known
        return machine.NotShown()
    return machine.Shown(there.status, there.cancelled_at, command.code, there.reason)


async def _write(
    context: SubmissionContext,
    cancellation: Cancellation,
    standing: CancellationState,
    command: Command,
) -> ApiError | None:
    """Write the result of a request or of a look. Return None, or the refusal for the caller."""
    async with context.database.company(cancellation.company_id) as conn:
        match command:
            case Note():
                return await _note(conn, cancellation, command)
            case Wait():
                await _wait(conn, cancellation, standing, command.delay)
                return _unknown()
            case End(code):
                held = {**cancellation.key, "fence": cancellation.fence}
                ended = await sql.cancellation_end(
                    conn, **held, is_unclear=standing.may_have_arrived
                )
                return _by_authority(code) if ended else _unknown()


async def _note(conn: Any, cancellation: Cancellation, command: Note) -> None:
    company = cancellation.company_id
    # Its submission may have changed
    doc = await sql.cancellation_get(conn, company_id=company, id=cancellation.id)
    await store.lock_subjects(conn, company, doc["submission_id"])
    change = Change(
        cancellation.id, "Cancelled", cancelled_at=command.at, cancel_reason=command.reason
    )
    await store.apply(conn, company, [change])
    await sql.submission_moved_notify(conn, company_id=company, id=doc["submission_id"])


async def _wait(
    conn: Any, cancellation: Cancellation, standing: CancellationState, delay: timedelta
) -> None:
    await sql.cancellation_wait(
        conn,
        **cancellation.key,
        fence=cancellation.fence,
        delay=delay,
        sent_by=standing.sent_by,
        is_unclear=standing.is_unclear,
    )


def _unknown() -> BadRequest:
    """Return the specified response while it is not known whether the document is cancelled."""
    return _failed(code=OUTCOME_UNKNOWN)


def _by_authority(code: str | None) -> BadRequest:
    """Return the specified response to an authority's code; any other failure is the general error, and retryable."""
    if code in states.CANCEL_CODES:
        return BadRequest(states.CANCEL_CODES[code], code=code)
    return _failed()


def _failed(**more: str) -> BadRequest:
    """Return the general error. A repetition tries again, or waits for the cancellation that is under way."""
    error = BadRequest(states.CANCEL_FAILED, **more)
    error.retryable = True  # no member of the specified body
    return error

"""Cancelling a submitted document: the wish is on disk before the portal is asked, and its state is read when it fails."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from asyncpg import Connection

from service import failpoints, states
from service.calls import Change
from service.cancellation import Begun, Done, End, Failed, Note, NotShown, Put, Read, Resumed, Shown, step
from service.errors import BadRequest, Conflict, Forbidden
from service.intake import found
from service.portal.client import PortalError, Refused
from service.statements import sql
from service.submission import record
from service.submission.desk import Desk
from service.submission.subjects import Subject

log = logging.getLogger(__name__)

STILL_SUBMITTING = "The submission of the {noun} is under way and its outcome not yet known."
RECHECK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The right to cancel one document, until somebody takes it over: then the fence has grown."""

    company_id: int
    id: int
    fence: int


@dataclass(frozen=True, slots=True)
class CancelOrder:
    """A request to cancel the latest submitted document of one record.

    `guard` is awaited in the transaction that writes the cancellation, and undoes it by raising.
    """

    subject: Subject
    id: int
    reason: str
    guard: Callable[[Connection], Awaitable[None]]


async def cancel(desk: Desk, company: int, order: CancelOrder) -> None:
    """Cancel the latest submitted document of an invoice, a note or a consolidated invoice.

    Raises Forbidden by states.CANCEL_REFUSALS, Conflict while the outcome of the submission is unknown, and BadRequest:
    with the authority's `code` when it refuses, with tin_not_verified while the TIN of the document is the company's and not
    verified, or without a `code` when the portal could not be asked. All but the authority's refusal are `retryable`.
    """
    async with asyncio.timeout(desk.config.submit_wait.total_seconds() + 5):
        while (begun := await _begin(desk, company, order)) is None:
            await _other(desk, company, order.subject.ids(order.id))
    task = desk.spawn(_carry_out(desk, begun))
    done, _ = await asyncio.wait({task}, timeout=desk.config.submit_wait.total_seconds())
    if not done:
        raise _failed()
    if refusal := task.result():
        raise refusal


async def _begin(desk: Desk, company: int, order: CancelOrder) -> Cancellation | None:
    """Write the Cancellation before the portal is asked. Return None while another one is under way."""
    subject, id = order.subject, order.id
    async with desk.database.company(company) as conn:
        found(await subject.lock(conn, company_id=company, id=id), subject.title)
        latest = await sql.submitted_document_latest(conn, company_id=company, **subject.ids(id))
        if latest and latest["status"] == "Submitting":
            raise Conflict(STILL_SUBMITTING.format(noun=subject.noun))
        if name := states.refusal(states.CANCEL_REFUSALS, latest, latest and latest["now"]):
            raise Forbidden(states.CANCEL_MESSAGES[subject.noun][name])
        if await subject.referred_to(conn, company, id):
            raise _by_authority("ActiveReferencingDocuments")
        if latest["cancelling_until"] and latest["cancelling_until"] > latest["now"]:
            return None
        await _refuse_unverified_tin(conn, company, latest["id"])
        await order.guard(conn)
        fence = await sql.cancellation_begin(
            conn, company_id=company, id=latest["id"], reason=order.reason, lease=desk.config.portal_lease
        )
        return Cancellation(company, latest["id"], fence)


async def _refuse_unverified_tin(conn: Connection, company_id: int, document_id: int) -> None:
    """Raise BadRequest for a document under the company's present TIN while that is not verified."""
    await sql.company_hold(conn, company_id=company_id)
    if await sql.cancellation_lacks_verified_tin(conn, company_id=company_id, id=document_id):
        raise _failed(code=states.TIN_NOT_VERIFIED["code"])


async def _other(desk, company, ids):
    """Waits for a move of a cancellation that somebody else carries out."""
    async with desk.database.reading(company) as conn:
        latest = await sql.submitted_document_latest(conn, company_id=company, **ids)
    with desk.bell.heard(company, latest["submission_id"]) as moved:
        try:
            async with asyncio.timeout(RECHECK.total_seconds()):
                await moved.wait()
        except TimeoutError:
            pass


async def _carry_out(desk, cancellation, event=Begun()):
    """Goes from event to event until the outcome is written. Returns None, or the refusal for the caller."""
    async with desk.database.reading(cancellation.company_id) as conn:
        doc = await sql.cancellation_get(conn, company_id=cancellation.company_id, id=cancellation.id)
    while event is not None:
        last, event = event, None
        for command in step(last):
            event = await PERFORM[type(command)](desk, cancellation, doc, command)
    if last == Done() or isinstance(last, Shown) and last.status == "Cancelled":
        return None
    return _by_authority(last.code if isinstance(last, Shown) else None)


async def resume(desk, cancellation):
    """A cancellation whose sender gave no result in time: finds out by looking."""
    await _carry_out(desk, cancellation, Resumed())


async def _put(desk, cancellation, doc, command):
    failpoints.passed("before_cancel_sent")
    try:
        await desk.portal.cancel(doc["tin"], doc["uuid"], doc["cancel_reason"])
        event = Done()
    except PortalError as why:
        await desk.heed(why, "cancel")
        event = Failed(why.code if isinstance(why, Refused) else None)
    failpoints.passed("after_cancel_answer")
    return event


async def _read(desk, cancellation, doc, command):
    try:
        there = await desk.portal.details(doc["tin"], doc["uuid"])
    except PortalError:
        desk.due.set()
        return NotShown()
    return Shown(there.status, there.cancelled_at, command.code)


async def _note(desk, cancellation, doc, command):
    key = {"company_id": cancellation.company_id, "id": cancellation.id}
    async with desk.database.company(cancellation.company_id) as conn:
        doc = await sql.cancellation_get(conn, **key)  # it may be in another submission by now
        await record.lock_subjects(conn, cancellation.company_id, doc["submission_id"])
        await record.apply(conn, cancellation.company_id, [Change(cancellation.id, "Cancelled", cancelled_at=command.at)])
        await sql.submission_moved_notify(conn, company_id=cancellation.company_id, id=doc["submission_id"])


async def _end(desk, cancellation, doc, command):
    key = {"company_id": cancellation.company_id, "id": cancellation.id}
    async with desk.database.company(cancellation.company_id) as conn:
        await sql.cancellation_end(conn, **key, fence=cancellation.fence)


PERFORM = {Put: _put, Read: _read, Note: _note, End: _end}


def _by_authority(code: str | None) -> BadRequest:
    """Return the specified error for an authority's code; any other failure is the general error, and retryable."""
    if code in states.CANCEL_CODES:
        return BadRequest(states.CANCEL_CODES[code], code=code)
    return _failed()


def _failed(**more: str) -> BadRequest:
    """Return the general error. A repetition tries again, or waits for the cancellation that is under way."""
    error = BadRequest(states.CANCEL_FAILED, **more)
    error.retryable = True  # no member of the specified body
    return error

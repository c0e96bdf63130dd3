"""Cancelling a submitted document: the wish is on disk before the portal is asked, and its state is read when it fails."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta

from service import failpoints, states
from service.calls import Change
from service.errors import BadRequest, Conflict, Forbidden
from service.intake import found
from service.portal.client import PortalError, Refused
from service.statements import sql
from service.submission import record

log = logging.getLogger(__name__)

STILL_SUBMITTING = "The submission of the {noun} is under way and its outcome not yet known."
RECHECK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The right to cancel one document, until somebody takes it over: then the fence has grown."""

    company_id: int
    id: int
    fence: int


async def cancel(desk, company, subject, id, reason):
    """Cancels the latest submitted document of an invoice, a note or a consolidated invoice.

    Raises Forbidden by states.CANCEL_REFUSALS, Conflict while the outcome of the submission is unknown, and
    BadRequest with the authority's `code` when it refuses, or without one when it could not be asked.
    """
    async with asyncio.timeout(desk.config.submit_wait.total_seconds() + 5):
        while (begun := await _begin(desk, company, subject, id, reason)) is None:
            await _other(desk, company, subject.ids(id))
    task = desk.spawn(_carry_out(desk, begun))
    done, _ = await asyncio.wait({task}, timeout=desk.config.submit_wait.total_seconds())
    if not done:
        raise BadRequest(states.CANCEL_FAILED)
    if refusal := task.result():
        raise refusal


async def _begin(desk, company, subject, id, reason):
    """The Cancellation, written before the portal is asked; None while another one is under way."""
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
        fence = await sql.cancellation_begin(
            conn, company_id=company, id=latest["id"], reason=reason, lease=desk.config.portal_lease
        )
        return Cancellation(company, latest["id"], fence)


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


async def _carry_out(desk, cancellation):
    """Asks the portal and records the outcome. Returns None, or the refusal for the caller."""
    async with desk.database.reading(cancellation.company_id) as conn:
        doc = await sql.cancellation_get(conn, company_id=cancellation.company_id, id=cancellation.id)
    failpoints.passed("before_cancel_sent")
    try:
        await desk.portal.cancel(doc["tin"], doc["uuid"], doc["cancel_reason"])
    except PortalError as why:
        failpoints.passed("after_cancel_answer")
        await desk.heed(why, "cancel")
        return await resolve(desk, cancellation, doc, why)
    failpoints.passed("after_cancel_answer")
    await _cancelled(desk, cancellation, None)
    return None


async def resolve(desk, cancellation, doc, why=None):
    """What a cancellation came to that was refused or got no answer: the document's own state decides.

    A repeated call may be answered with IncorrectState because the first one did its work. When the state
    cannot be read either, the cancellation stays under way and a worker asks again.
    """
    try:
        there = await desk.portal.details(doc["tin"], doc["uuid"])
    except PortalError:
        desk.due.set()
        return BadRequest(states.CANCEL_FAILED)
    if there.status == "Cancelled":
        await _cancelled(desk, cancellation, there.cancelled_at)
        return None
    async with desk.database.company(cancellation.company_id) as conn:
        await sql.cancellation_end(
            conn, company_id=cancellation.company_id, id=cancellation.id, fence=cancellation.fence
        )
    return _by_authority(why.code) if isinstance(why, Refused) else BadRequest(states.CANCEL_FAILED)


async def resume(desk, cancellation):
    """A cancellation whose sender gave no result in time: finds out by looking."""
    async with desk.database.reading(cancellation.company_id) as conn:
        doc = await sql.cancellation_get(conn, company_id=cancellation.company_id, id=cancellation.id)
    await resolve(desk, cancellation, doc)


async def _cancelled(desk, cancellation, at):
    async with desk.database.company(cancellation.company_id) as conn:
        doc = await sql.cancellation_get(conn, company_id=cancellation.company_id, id=cancellation.id)
        await record.lock_subjects(conn, cancellation.company_id, doc["submission_id"])
        await record.apply(conn, cancellation.company_id, [Change(cancellation.id, "Cancelled", cancelled_at=at)])
        await sql.submission_moved_notify(conn, company_id=cancellation.company_id, id=doc["submission_id"])


def _by_authority(code):
    """The specified answer to an authority's code; any other refusal is the general one."""
    if code in states.CANCEL_CODES:
        return BadRequest(states.CANCEL_CODES[code], code=code)
    return BadRequest(states.CANCEL_FAILED)

"""Asking the portal how an accepted submission stands: Valid with its link, Invalid with the reasons, cancelled elsewhere."""

import logging
import random
import time
from datetime import timedelta

from service import states
from service.portal.client import Held, PortalError, Refused, Throttled
from service.statements import sql
from service.submission import record
from service.submission.record import Change

log = logging.getLogger(__name__)

LATE = timedelta(hours=2)  # after the 72 hours, for what happened in their last minutes
GIVE_UP = timedelta(hours=24)  # of being told that an accepted submission is unknown


async def poll(desk, claim):
    """Looks once at an Accepted submission that is claimed, and says when to look again."""
    async with desk.database.reading(claim.company_id) as conn:
        row = await sql.submission_get(conn, **claim.key)
        known = await sql.submission_documents(conn, company_id=claim.company_id, submission_id=claim.id)
    try:
        seen = await desk.portal.submission(row["tin"], row["submission_uid"])
    except PortalError as why:
        return await _not_told(desk, claim, row, why)
    changes, why = await _changes(desk, row["tin"], known, {there.uuid: there for there in seen.documents})
    await _note(desk, claim, known, seen.documents)
    if why:
        return await _again(desk, claim, changes, _pause(desk, row, why), _error(why))
    return await _told(desk, claim, row, known, changes)


async def _told(desk, claim, row, known, changes):
    """Writes what is new. Done when every document is final, or Valid and past the time in which it can change."""
    now_at = {doc["id"]: (doc["status"], doc["validated_at"]) for doc in known}
    now_at |= {change.id: (change.status, change.validated_at) for change in changes}
    if any(status == "Submitted" for status, _ in now_at.values()):
        return await _again(desk, claim, changes, interval(desk.config, row["looks"]))
    changeable = [at for status, at in now_at.values() if status == "Valid" and at]
    if any(row["now"] - at <= states.CANCEL_WINDOW + LATE for at in changeable):
        return await _again(desk, claim, changes, desk.config.portal_recheck)
    return await record.move(desk, claim, ["Accepted"], "Finished", changes)


async def _again(desk, claim, changes, delay, error=None):
    return await record.move(desk, claim, ["Accepted"], "Accepted", changes, delay=delay, error=error)


def interval(config, looks):
    """Each look waits half as long again as the one before, up to the longest."""
    return min(config.portal_poll_max, config.portal_poll * 1.5 ** min(looks, 40))


async def _not_told(desk, claim, row, why):
    """The portal could not be asked, or does not know the submission, which it may not for a while."""
    await desk.heed(why, "submission")
    if isinstance(why, Held):
        return await record.give_back(desk, claim, why, "submission")
    unknown = isinstance(why, Refused) and why.status == 404
    if unknown and row["now"] - row["last_sent_at"] > GIVE_UP:
        return await record.move(desk, claim, ["Accepted"], "NeedsPerson", error={"code": "NotFound", "message": str(why)})
    return await _again(desk, claim, (), _pause(desk, row, why), _error(why))


def _pause(desk, row, why):
    return why.retry_after if isinstance(why, Throttled) else interval(desk.config, row["looks"])


def _error(why):
    return {"code": type(why).__name__, "message": str(why)}


async def _changes(desk, tin, known, there):
    """(the Changes of documents whose state `there`, by uuid, is another than ours; why these are not all, or None)

    Each Invalid one takes a call of its own for its reasons. Those that cannot be had now are left for the next look,
    and keep nothing from the others: they come in another order then, and no look outlasts the claim on the submission.
    """
    changes, missed, until = [], None, time.monotonic() + desk.config.portal_lease.total_seconds() / 3
    for doc in sorted(known, key=lambda doc: (_is_invalid(there.get(doc["uuid"])), random.random())):
        try:
            if change := await _change(desk, tin, doc, there.get(doc["uuid"])):
                changes.append(change)
        except PortalError as why:
            await desk.heed(why, "details")
            missed = why
            if isinstance(why, Throttled):
                break
        if time.monotonic() > until:
            missed = missed or Held("The rest at the next look.", retry_after=record.NOW)
            break
    return changes, missed


def _is_invalid(there):
    return there is not None and there.status == "Invalid"


async def _change(desk, tin, doc, there):
    """The Change of a document whose state at the portal is another than ours, or None."""
    if there is None or there.status == doc["status"] or there.status not in states.DOCUMENT_MOVES[doc["status"]]:
        return None
    errors = None
    if there.status == "Invalid":
        errors = (await desk.portal.details(tin, there.uuid)).errors
    return Change(
        doc["id"],
        there.status,
        long_id=there.long_id,
        validation_link=link(desk.config, there),
        errors=errors,
        submitted_at=there.received_at,
        validated_at=there.validated_at,
        cancelled_at=there.cancelled_at,
        cancel_reason=there.reason if there.status == "Cancelled" else None,
    )


def link(config, there):
    """The public page of a validated document. Portal: 7.3"""
    return f"{config.portal_web_base}/{there.uuid}/share/{there.long_id}" if there.long_id else None


async def _note(desk, claim, known, seen):
    """Keeps a buyer's wish to reject a document that stays Valid."""
    mine = {doc["uuid"]: doc["id"] for doc in known if doc["uuid"]}
    wishes = [there for there in seen if there.uuid in mine and there.rejection_requested_at]
    if not wishes:
        return
    async with desk.database.company(claim.company_id) as conn:
        for there in wishes:
            await sql.submitted_document_note(
                conn,
                company_id=claim.company_id,
                id=mine[there.uuid],
                submitted_at=None,
                rejection_requested_at=there.rejection_requested_at,
                rejection_reason=there.reason,
            )

"""Asking the portal how an accepted submission stands: Valid with its link, Invalid with the reasons, cancelled elsewhere."""

import random
import time
from datetime import timedelta

from service.db.statements import sql
from service.documents import states
from service.portal.responses import Held, PortalError, Refused, Throttled
from service.submission.matching import first_send, hide_foreign
from service.submission.odd_rows import note_oddities
from service.submission.runner import drive, held, wait_of
from service.submission.types import NOW, Ask, Change, Claimed, Find, NotTold, Told

CLOCKS_APART = timedelta(minutes=5)


async def poll(desk, claim):
    """Looks once at an Accepted submission that is claimed, and says when to look again."""
    await drive(desk, claim, Claimed(), {Ask: _ask, Find: _find})


async def _ask(desk, claim, call, command):
    if call.submission_uid is None:  # found in a listing that does not say
        return NotTold(
            {"code": "NotFound", "path": "", "message": "Its submission is not known."},
            unknown=True,
        )
    try:
        seen = await desk.portal.submission(call.tin, call.submission_uid)
    except PortalError as why:
        return await _not_told(desk, why, "submission")
    await note_oddities(desk, claim.company_id, call.tin, "submission", seen.documents, seen.odd)
    told = await _news(desk, claim, call, {there.uuid: there for there in seen.documents})
    await _note(desk, claim, call, seen.documents)
    return told


async def _find(desk, claim, call, command):
    """What the portal's search shows of the documents that it accepted, by their numbers."""
    ours, seen = {doc.uuid for doc in call.docs}, []
    since, until = call.first_sent_at - CLOCKS_APART, call.last_sent_at + CLOCKS_APART
    try:
        for doc in call.docs:
            listing = await desk.portal.search(
                call.tin, since, until, text=doc.number, further=bool(seen)
            )
            await note_oddities(desk, claim.company_id, call.tin, "search", listing, listing.odd)
            seen += [there for there in listing if there.uuid in ours]
    except PortalError as why:
        await desk.heed(why, "search")
    if not seen:
        return NotTold(command.error, unknown=True, searched=True)
    return await _news(desk, claim, call, {there.uuid: there for there in seen})


async def _not_told(desk, why, operation):
    """The portal could not be asked, or does not know the submission, which it may not for a while."""
    await desk.heed(why, operation)
    error = {"code": type(why).__name__, "path": "", "message": str(why)}
    unknown = isinstance(why, Refused) and why.status == 404
    return NotTold(
        error, wait_of(why), held(why, operation) if isinstance(why, Held) else None, unknown
    )


async def _news(desk, claim, call, there):
    """The Told of documents whose state `there`, by uuid, is another than ours.

    Each Invalid one takes a call of its own for its reasons. Those that cannot be had now are left for the next look,
    and keep nothing from the others: they come in another order then, and no look outlasts the claim on the submission.
    """
    changes, first, later, until = (
        [],
        {},
        None,
        time.monotonic() + desk.config.portal_lease.total_seconds() / 3,
    )
    for doc in sorted(
        call.docs, key=lambda doc: (_is_invalid(there.get(doc.uuid)), random.random())
    ):
        try:
            await _ask_about(desk, claim, call, doc, there.get(doc.uuid), changes, first)
        except PortalError as why:
            later = await _not_told(desk, why, "details")
            if isinstance(why, Throttled):
                break
        if time.monotonic() > until:
            later = later or NotTold(
                {"code": "Held", "path": "", "message": "The rest at the next look."}, NOW
            )
            break
    return Told(tuple(changes), first, later)


def _is_invalid(there):
    return there is not None and there.status == "Invalid"


async def _ask_about(desk, claim, call, doc, there, changes, first):
    """Adds the Change of a document whose state at the portal is another than ours; in `first` one whose first send it was."""
    if (
        there is None
        or there.status == doc.status
        or there.status not in states.DOCUMENT_MOVES[doc.status]
    ):
        return
    errors = None
    if there.status == "Invalid":
        errors = (await desk.portal.details(call.tin, there.uuid)).errors
        if earlier := await first_send(desk, claim, call, doc, errors):
            there, first[doc.id] = earlier
            errors = there.errors
        errors = await hide_foreign(desk, claim.company_id, call.tin, errors)
    if there.status in states.DOCUMENT_MOVES[doc.status]:
        changes.append(_change(desk, doc, there, errors))
    else:
        first.pop(doc.id, None)  # not judged yet


def _change(desk, doc, there, errors):
    return Change(
        doc.id,
        there.status,
        uuid=there.uuid,
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


async def _note(desk, claim, call, seen):
    """Keeps a buyer's wish to reject a document that stays Valid."""
    mine = {doc.uuid: doc.id for doc in call.docs if doc.uuid}
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

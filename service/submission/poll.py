"""Asking the portal how an accepted submission stands: Valid with its link, Invalid with the reasons, cancelled elsewhere."""

import random
import time
from datetime import timedelta

from service.db.statements import sql
from service.documents import states
from service.portal.errors import Held, PortalError, Refused, Throttled
from service.submission.matching import first_send, hide_foreign
from service.submission.odd_rows import record_odd_rows
from service.submission.runner import held, retry_delay, run
from service.submission.types import (
    NOW,
    Ask,
    Change,
    Claimed,
    Find,
    StatesReceived,
    StatesUnavailable,
)

CLOCKS_APART = timedelta(minutes=5)


async def poll(context, claim):
    """Looks once at an Accepted submission that is claimed, and says when to look again."""
    await run(context, claim, Claimed(), {Ask: _ask, Find: _find})


async def _ask(context, claim, submission, command):
    if submission.submission_uid is None:  # found in a listing that does not say
        return StatesUnavailable(
            {"code": "NotFound", "path": "", "message": "Its submission is not known."},
            unknown=True,
        )
    try:
        seen = await context.portal.submission(submission.tin, submission.submission_uid)
    except PortalError as why:
        return await _not_told(context, why, "submission")
    await record_odd_rows(
        context, claim.company_id, submission.tin, "submission", seen.documents, seen.odd
    )
    told = await _news(context, claim, submission, {there.uuid: there for there in seen.documents})
    await _note(context, claim, submission, seen.documents)
    return told


async def _find(context, claim, submission, command):
    """What the portal's search shows of the documents that it accepted, by their numbers."""
    ours, seen = {doc.uuid for doc in submission.docs}, []
    since, until = submission.first_sent_at - CLOCKS_APART, submission.last_sent_at + CLOCKS_APART
    try:
        for doc in submission.docs:
            listing = await context.portal.search(
                submission.tin, since, until, text=doc.number, further=bool(seen)
            )
            await record_odd_rows(
                context, claim.company_id, submission.tin, "search", listing, listing.odd
            )
            seen += [there for there in listing if there.uuid in ours]
    except PortalError as why:
        await context.apply_throttle(why, "search")
    if not seen:
        return StatesUnavailable(command.error, unknown=True, searched=True)
    return await _news(context, claim, submission, {there.uuid: there for there in seen})


async def _not_told(context, why, operation):
    """The portal could not be asked, or does not know the submission, which it may not for a while."""
    await context.apply_throttle(why, operation)
    error = {"code": type(why).__name__, "path": "", "message": str(why)}
    unknown = isinstance(why, Refused) and why.status == 404
    return StatesUnavailable(
        error, retry_delay(why), held(why, operation) if isinstance(why, Held) else None, unknown
    )


async def _news(context, claim, submission, there):
    """The Told of documents whose state `there`, by uuid, is another than ours.

    Each Invalid one takes a call of its own for its reasons. Those that cannot be had now are left for the next look,
    and keep nothing from the others: they come in another order then, and no look outlasts the claim on the submission.
    """
    changes, first, later, until = (
        [],
        {},
        None,
        time.monotonic() + context.config.portal_lease.total_seconds() / 3,
    )
    for doc in sorted(
        submission.docs, key=lambda doc: (_is_invalid(there.get(doc.uuid)), random.random())
    ):
        try:
            await _ask_about(context, claim, submission, doc, there.get(doc.uuid), changes, first)
        except PortalError as why:
            later = await _not_told(context, why, "details")
            if isinstance(why, Throttled):
                break
        if time.monotonic() > until:
            later = later or StatesUnavailable(
                {"code": "Held", "path": "", "message": "The rest at the next look."}, NOW
            )
            break
    return StatesReceived(tuple(changes), first, later)


def _is_invalid(there):
    return there is not None and there.status == "Invalid"


async def _ask_about(context, claim, submission, doc, there, changes, first):
    """Adds the Change of a document whose state at the portal is another than ours; in `first` one whose first send it was."""
    if (
        there is None
        or there.status == doc.status
        or there.status not in states.DOCUMENT_MOVES[doc.status]
    ):
        return
    errors = None
    if there.status == "Invalid":
        errors = (await context.portal.details(submission.tin, there.uuid)).errors
        if earlier := await first_send(context, claim, submission, doc, errors):
            there, first[doc.id] = earlier
            errors = there.errors
        errors = await hide_foreign(context, claim.company_id, submission.tin, errors)
    if there.status in states.DOCUMENT_MOVES[doc.status]:
        changes.append(_change(context, doc, there, errors))
    else:
        first.pop(doc.id, None)  # not judged yet


def _change(context, doc, there, errors):
    return Change(
        doc.id,
        there.status,
        uuid=there.uuid,
        long_id=there.long_id,
        validation_link=link(context.config, there),
        errors=errors,
        submitted_at=there.received_at,
        validated_at=there.validated_at,
        cancelled_at=there.cancelled_at,
        cancel_reason=there.reason if there.status == "Cancelled" else None,
    )


def link(config, there):
    """The public page of a validated document. Portal: 7.3"""
    return f"{config.portal_web_base}/{there.uuid}/share/{there.long_id}" if there.long_id else None


async def _note(context, claim, submission, seen):
    """Keeps a buyer's wish to reject a document that stays Valid."""
    mine = {doc.uuid: doc.id for doc in submission.docs if doc.uuid}
    wishes = [there for there in seen if there.uuid in mine and there.rejection_requested_at]
    if not wishes:
        return
    async with context.database.company(claim.company_id) as conn:
        for there in wishes:
            await sql.submitted_document_note(
                conn,
                company_id=claim.company_id,
                id=mine[there.uuid],
                submitted_at=None,
                rejection_requested_at=there.rejection_requested_at,
                rejection_reason=there.reason,
            )

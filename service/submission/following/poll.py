"""Polls accepted submissions: reads the states of documents, and the reasons of Invalid ones."""

import random
import time
from collections.abc import Iterable
from dataclasses import replace

from service.config import Config
from service.documents import states
from service.documents.ubl.pointers import locate_errors
from service.errors import make_reason
from service.portal.documents import Document
from service.portal.errors import PortalError, Refused, Throttled, Unclear
from service.portal.listings import Listing
from service.portal.responses import UNREADABLE_REASONS
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.following.later_states import (
    describe_change,
    record_details,
    record_odd_rows,
)
from service.submission.following.matching import find_first_send
from service.submission.machine.comparison_rules import FURTHEST
from service.submission.machine.state_machine import is_overdue
from service.submission.machine.types import (
    CLOCK_TOLERANCE,
    NO_DELAY,
    Change,
    Sighting,
    StatesReceived,
    StatesUnavailable,
    Submission,
    SubmittedDocument,
)
from service.submission.runner import advance, begin_claimed, make_failure

NO_UID = make_reason("NotFound", "The portal's identifier of the submission is not known.")
NO_REASONS = "The portal shows no reasons of an Invalid document."
LATER = make_reason("Held", "The remaining documents are read at the next poll.")


async def poll(context: CompanyContext, claim: Claim) -> None:
    """Read the states of a claimed Accepted submission once, and schedule the next poll."""
    submission_run = await begin_claimed(context, claim)
    if submission_run is None:
        return
    submission = submission_run.submission
    event = await _read(context, claim, submission)
    if isinstance(event, Listing):
        listing, event = event, await _find_changes(context, claim, submission, event)
        stored = {doc.uuid: doc for doc in submission.docs}
        shown = ((stored[there.uuid], there) for there in listing if there.uuid in stored)
        await record_details(context, claim.company_id, shown)
    await advance(context, submission_run, event)


async def _read(
    context: CompanyContext, claim: Claim, submission: Submission
) -> Listing | StatesUnavailable:
    """Read the documents of a submission. If it is unknown for long, search for them by number."""
    if submission.submission_uid is None:  # it was found in a listing that does not show it
        failure = StatesUnavailable(NO_UID, unknown=True)
    else:
        try:
            shown = await context.portal.submission(submission.tin, submission.submission_uid)
        except PortalError as why:
            failure = _describe_failure(why, "submission")
        else:
            await record_odd_rows(context, claim.company_id, submission.tin, "submission", shown)
            return shown
    if failure.unknown and needs_search(submission, context.config):
        return await _search_numbers(context, claim, submission, failure)
    return failure


def needs_search(submission: Submission, times: Config) -> bool:
    """Return whether an accepted submission that the portal does not know is searched by number.

    Comparisons show the later changes of documents that have an outcome.
    """
    since = submission.searched_at or submission.unknown_since or submission.now
    return not submission.has_outcome and since + times.portal_unknown <= submission.now


async def _search_numbers(
    context: CompanyContext, claim: Claim, submission: Submission, failure: StatesUnavailable
) -> Listing | StatesUnavailable:
    """Search for the documents of an accepted submission that the portal does not know.

    A failed search does not count. After the first one, the rate limit ends the search.
    """
    uuids = {doc.uuid for doc in submission.docs}
    first_sent_at, last_sent_at = submission.send_times
    until = last_sent_at + CLOCK_TOLERANCE
    since = max(first_sent_at - CLOCK_TOLERANCE, until - FURTHEST)
    shown, is_found, is_searched = Listing(), False, False
    try:
        for doc in submission.docs:
            listing = await context.portal.search(
                submission.tin, since, until, text=doc.number, further=is_found
            )
            shown.extend(listing)
            shown.odd.extend(listing.odd)
            is_found = is_found or any(there.uuid in uuids for there in listing)
            is_searched = True
    except PortalError as why:
        is_searched = is_searched and isinstance(why, Throttled)
    await record_odd_rows(context, claim.company_id, submission.tin, "search", shown)
    return shown if is_found else replace(failure, searched=is_searched)


def _describe_failure(why: PortalError, operation: str) -> StatesUnavailable:
    """Return the event for a failed request."""
    is_unknown = isinstance(why, Refused) and why.is_missing
    return replace(
        make_failure(StatesUnavailable, why, operation),
        unknown=is_unknown,
        refused=isinstance(why, Refused) and not is_unknown,
    )


async def _find_changes(
    context: CompanyContext, claim: Claim, submission: Submission, shown: Iterable[Document]
) -> StatesReceived:
    """Return the changes of documents whose state at the portal differs from the stored one.

    Each Invalid document takes a request of its own for its reasons. Reasons that cannot be read
    now are left to the next poll, which takes the documents in another order. A poll ends before
    the claim expires.
    """
    by_uuid: dict[str | None, Document] = {there.uuid: there for there in shown}
    changes: list[Change] = []
    duplicates: dict[int, Sighting] = {}
    unreadable: set[int] = set()
    later: StatesUnavailable | None = None
    until = time.monotonic() + context.config.portal_lease.total_seconds() / 3

    def invalid_last(doc: SubmittedDocument) -> tuple[bool, float]:
        there = by_uuid.get(doc.uuid)
        return there is not None and there.status == "Invalid", random.random()

    for doc in sorted(submission.docs, key=invalid_last):
        there = by_uuid.get(doc.uuid)
        try:
            if there and (found := await _find_change(context, claim, submission, doc, there)):
                change, first = found
                changes.append(change)
                duplicates.update({doc.id: first} if first else {})
        except PortalError as why:
            later = _describe_failure(why, "details")
            if isinstance(why, Throttled):
                break
            if there and submission.possibly_received and _is_overdue(context, submission, there):
                unreadable.add(doc.id)
        if time.monotonic() > until:
            later = later or StatesUnavailable(LATER, NO_DELAY)
            break
    return StatesReceived(tuple(changes), duplicates, later, frozenset(unreadable))


async def _find_change(
    context: CompanyContext,
    claim: Claim,
    submission: Submission,
    doc: SubmittedDocument,
    there: Document,
) -> tuple[Change, Sighting | None] | None:
    """Return the change of a document, and the sighting of its first send if it is a duplicate.

    Return None if there is no change, or the first send is not validated yet. Raises PortalError,
    unless the reasons of an Invalid document are given up.
    """
    moves = states.SUBMITTED_TRANSITIONS[doc.status]
    if there.status == doc.status or there.status not in moves:
        return None
    errors = first = None
    if there.status == "Invalid":
        errors = [UNREADABLE_REASONS]
        try:
            shown = await context.portal.details(submission.tin, there.uuid)
            if shown.status != "Invalid" or shown.errors in ([], errors):
                raise Unclear(NO_REASONS)
            errors = shown.errors
            if earlier := await find_first_send(context, claim, submission, doc, errors):
                there, first = earlier
                errors = there.errors
        except PortalError as why:
            is_open = submission.possibly_received or not _is_overdue(context, submission, there)
            if isinstance(why, Throttled) or is_open:
                raise
        errors = locate_errors(errors, doc.document_type)
    if there.status not in moves:
        return None
    return describe_change(context.config, doc.id, there, there.status, errors), first


def _is_overdue(context: SubmissionContext, submission: Submission, there: Document) -> bool:
    """Return whether the reasons of an Invalid document could not be read for a day.

    It is then recorded without them. One that was sent before may be rejected as a duplicate of
    itself, which only the reasons show: it needs manual review.
    """
    _, last_sent_at = submission.send_times
    since = there.validated_at or last_sent_at
    return is_overdue(submission, since, context.config)

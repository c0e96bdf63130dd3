"""Reconciles Uncertain submissions: from the stored sightings, then from the portal's listing.

Documents that the listing shows are adopted. Absence must be confirmed twice, by listings after the
settling time, because the portal may have had the request in its queue.

One process at a time reconciles a company. For each page of the listing, the submissions with a
number on it are claimed, compared and released; after the last page, those that were not shown. So
a process holds few claims, each for a moment, however many submissions are Uncertain.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from asyncpg import Record

from service.db.statements import Statement, sql
from service.errors import format_traceback
from service.portal.documents import Document, OddRow
from service.portal.errors import PortalError, Throttled
from service.portal.listings import Listing
from service.submission import state_machine
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.matching import find_matches
from service.submission.odd_rows import may_be_document, record_odd_rows
from service.submission.reconciliation_claims import (
    BATCH,
    ReconciliationClaimLost,
    ReconciliationClaims,
    hold_claims,
    is_external_error,
)
from service.submission.runner import (
    SubmissionRun,
    hold_time,
    make_error,
    retry_delay,
    run,
    run_batch,
)
from service.submission.send import compare_clocks
from service.submission.types import (
    CLOCK_TOLERANCE,
    Claimed,
    Error,
    Event,
    ListingEnded,
    ListingUnavailable,
    LockUnavailable,
    Sighting,
    SightingsReceived,
)

log = logging.getLogger(__name__)

MOST_SEARCHES = 5  # for submissions of many documents, by number, in each reconciliation
MOST_RECEIPTS = 60  # that are read in each reconciliation
UNREADABLE: Error = {
    "code": "UnreadableRow",
    "path": "",
    "message": "The portal lists an unreadable document that may be this one, "
    "so that its absence is not confirmed: {}",
}

#: Returns the events, by submission id, that follow from comparing a batch with the portal.
FindEvents = Callable[[list[SubmissionRun]], Awaitable[dict[int, Event]]]


@dataclass(slots=True)
class Reconciliation:
    """One reconciliation of the Uncertain submissions of a company under one TIN."""

    context: CompanyContext
    claims: ReconciliationClaims
    tin: str
    since: datetime  # start of the listing
    over: datetime  # the last receipt of any of them, unless it waited in the portal's queue
    listed_at: datetime  # when the listing was requested, by the database clock
    searched: list[int] = field(default_factory=list)  # submissions searched for by number
    # Submission uids whose receipts may name more documents than the listing did
    uids: set[str] = field(default_factory=set)
    receipts_read: set[str] = field(default_factory=set)
    receipts_left: int = MOST_RECEIPTS
    # Number -> count of listing pages that show it
    listed: Counter[str] = field(default_factory=Counter)
    # (submission, number) -> count of listing pages that it was compared with
    compared: Counter[tuple[int, str]] = field(default_factory=Counter)
    # Submission -> why a copy could not be compared
    undecided: dict[int, PortalError] = field(default_factory=dict)
    # Unreadable rows of the listing, by key
    odd: dict[str, OddRow] = field(default_factory=dict)

    @property
    def company_id(self) -> int:
        """Return the id of the company."""
        return self.claims.company_id

    @property
    def spans(self) -> list[tuple[datetime, datetime]]:
        """Return the time ranges to list, in this order.

        The first one covers the sends. Once it is over, its listing does not grow, however much is
        sent meanwhile. The second one lasts until now, in case the submissions were queued.
        """
        until = self.listed_at + CLOCK_TOLERANCE
        if self.over < self.listed_at:
            return [(self.since, self.over), (self.over, until)]
        return [(self.since, until)]

    async def fetch(self, statement: Statement, **values: Any) -> Any:
        """Run a read-only statement for the company and the TIN."""
        async with self.context.database.reading(self.company_id) as conn:
            return await statement(conn, company_id=self.company_id, tin=self.tin, **values)

    async def count_left(self) -> Record:
        """Return how many submissions are Uncertain (`n`), and for how many a listing helps."""
        settle = self.context.config.portal_settle
        return await self.fetch(
            sql.reconciliation_left, asked=self.searched, settle=settle, listed_at=self.listed_at
        )

    async def record_odd_rows(self, operation: str, listing: Listing) -> None:
        """Record the unreadable rows of a response."""
        await record_odd_rows(self.context, self.company_id, self.tin, operation, listing)

    def was_compared(self, submission_run: SubmissionRun) -> bool:
        """Return whether a submission was compared with every listed row of its numbers."""
        submission_id = submission_run.claim.id
        return all(
            self.compared[submission_id, doc.number] == self.listed[doc.number]
            for doc in submission_run.submission.docs
        )

    def find_obstacle(self, submission_run: SubmissionRun) -> OddRow | None:
        """Return an unreadable row that may be a missing document of a submission."""
        submission = submission_run.submission
        missing = submission.missing_from(submission.proven())
        docs = [doc for doc in submission.docs if doc.id in missing]
        for row in self.odd.values():
            if any(may_be_document(row, submission, doc) for doc in docs):
                return row
        return None


async def mark_uncertain(context: SubmissionContext, claim: Claim) -> None:
    """Set a submission found Sending to Uncertain, unless its sender is alive."""
    async with context.session.lock_submissions(claim.company_id, [claim.id]) as locked:
        signed_in = await context.sign_in(claim.company_id)
        await run(signed_in, claim, Claimed() if locked else LockUnavailable())


async def reconcile(context: SubmissionContext, claim: Claim) -> None:
    """Reconcile the Uncertain submissions of the company of a claimed one, once."""
    async with hold_claims(context, claim) as claims:
        if claims is None:
            return
        try:
            await _reconcile(await context.sign_in(claim.company_id), claims, claim)
        except ReconciliationClaimLost as why:
            log.info("reconciliation %s", why)
        log.info("reconciliation company=%d claims=%d at most", claim.company_id, claims.most)


async def _reconcile(context: CompanyContext, claims: ReconciliationClaims, claim: Claim) -> None:
    async with context.database.reading(claim.company_id) as conn:
        row = await sql.reconciliation_outlook(conn, **claim.key)
    if row is None:
        return
    since, over = row["first_sent_at"] - CLOCK_TOLERANCE, row["last_sent_at"] + CLOCK_TOLERANCE
    current = Reconciliation(context, claims, row["tin"], since, over, row["now"])
    await _resolve_known(current)
    try:
        ending = await _compare_with_portal(current)
    except PortalError as why:
        await context.apply_throttle(why, "search")
        ending = _describe_failure(why)
    if ending is not None and not context.stopping.is_set():
        await _conclude(current, ending)


# Batches


async def _handle(current: Reconciliation, rows: Iterable[Record], find_events: FindEvents) -> None:
    """Process submissions in batches, and those with an earlier claim without a result alone.

    After a crash in a batch each of its submissions is processed alone, so that only the one that
    crashes its process is counted again.
    """
    rows = list(rows)
    fresh = [row["id"] for row in rows if not row["claims"]]
    batches = [fresh[start : start + BATCH] for start in range(0, len(fresh), BATCH)]
    for ids in [*batches, *([row["id"]] for row in rows if row["claims"])]:
        current.claims.check()
        try:
            async with current.claims.batch(ids) as (runs, locked):
                await _handle_batch(current, runs, locked, find_events)
        except Exception as error:
            if is_external_error(error):
                raise
            # The claims stay counted, so that each submission is processed alone the next time.
            log.error(
                "reconciliation company=%d submissions=%s failed\n%s",
                current.company_id,
                ids,
                format_traceback(error),
            )


async def _handle_batch(
    current: Reconciliation,
    runs: list[SubmissionRun],
    locked: set[int],
    find_events: FindEvents,
) -> None:
    times = current.context.config
    steps = [
        step
        for each in runs
        for step in each.step(Claimed() if each.claim.id in locked else LockUnavailable(), times)
    ]
    events = await find_events([each for each in runs if each.is_open])
    for each in runs:
        if each.is_open and each.claim.id in events:
            steps += each.step(events[each.claim.id], times)
    current.claims.check()
    await run_batch(current.context, current.company_id, steps)


async def _resolve_known(current: Reconciliation) -> None:
    """Process submissions that need no listing, because of a receipt or too many claims."""

    async def find_events(runs: list[SubmissionRun]) -> dict[int, Event]:
        return {}

    after = 0
    while rows := await current.fetch(
        sql.reconciliation_known, after=after, most=state_machine.MOST_CLAIMS, batch=BATCH
    ):
        await _handle(current, rows, find_events)
        after = rows[-1]["id"]


# Documents that the portal shows


async def _compare_with_portal(current: Reconciliation) -> ListingEnded | None:
    """Compare the submissions with the documents at the portal.

    Return the event for those that were not found, or None if all were. While the clocks differ,
    the settling time cannot be measured, and no absence is confirmed. Raises PortalError.
    """
    await _search_by_number(current)
    left = await current.count_left()
    if not left["n"]:
        return None
    if not left["open"]:
        return ListingEnded(current.listed_at, complete=False)
    further = bool(current.searched)
    for since, until in current.spans:
        async with aclosing(
            current.context.portal.pages(current.tin, since, until, further=further)
        ) as pages:
            async for page in pages:
                current.odd.update((row.key, row) for row in page.odd)
                await current.record_odd_rows("search", Listing(page.rows, page.odd))
                await _compare(current, page.rows, is_listing=True)
                await _read_receipts(current)
                if not (await current.count_left())["n"]:
                    return None
                if current.context.stopping.is_set():
                    return ListingEnded(current.listed_at, complete=False)
        further = True
    rows = await current.fetch(sql.reconciliation_receipts, most=MOST_RECEIPTS)
    current.uids.update(row["submission_uid"] for row in rows)
    await _read_receipts(current)
    difference = await compare_clocks(current.context, current.context.portal, current.tin)
    return ListingEnded(current.listed_at, complete=not difference)


async def _compare(
    current: Reconciliation, documents: list[Document], is_listing: bool = False
) -> None:
    """Compare documents of the portal with the submissions that have one of their numbers."""
    numbers = {there.number for there in documents}
    if is_listing:
        current.listed.update(numbers)

    async def find_events(runs: list[SubmissionRun]) -> dict[int, Event]:
        submissions = {each.claim.id: each.submission for each in runs}
        found = await find_matches(current.context, current.company_id, submissions, documents)
        current.undecided.update(found.undecided)
        events: dict[int, Event] = {}
        for each in runs:
            if is_listing:
                current.compared.update(
                    (each.claim.id, doc.number)
                    for doc in each.submission.docs
                    if doc.number in numbers
                )
            if sightings := found.shown(each.claim.id):
                events[each.claim.id] = SightingsReceived(sightings)
                current.uids |= _incomplete_uids(each, found.proven.get(each.claim.id, []))
        return events

    rows = await current.fetch(sql.reconciliation_numbered, numbers=list(numbers), batch=BATCH)
    await _handle(current, rows, find_events)


def _incomplete_uids(submission_run: SubmissionRun, proven: list[Sighting]) -> set[str]:
    """Return the portal's uids of a submission some of whose documents are still missing.

    Their receipts may name the missing documents.
    """
    submission = submission_run.submission
    if not submission.missing_from([*submission.proven(), *proven]):
        return set()
    return {one.submission_uid for one in proven if one.submission_uid}


async def _search_by_number(current: Reconciliation) -> None:
    """Search for submissions of many documents by one number, whose receipt names all of them.

    A listing may show thousands of documents, a hundred per page and a page every five seconds.
    Only MOST_SEARCHES submissions are searched for; the listing decides about the others. Raises
    Throttled.
    """
    for row in await current.fetch(sql.reconciliation_many_documents, most=MOST_SEARCHES):
        until = current.listed_at + CLOCK_TOLERANCE
        try:
            found = await current.context.portal.search(
                current.tin,
                current.since,
                until,
                text=row["number"],
                further=bool(current.searched),
            )
        except Throttled:
            raise
        except PortalError as why:  # the search by text may not work; the listing decides
            log.info("submission company=%d id=%d: %s", current.company_id, row["id"], why)
            continue
        await current.record_odd_rows("search", found)
        await _compare(current, found)
        await _read_receipts(current)
        if all(there.submission_uid for there in found):
            current.searched.append(row["id"])


async def _read_receipts(current: Reconciliation) -> None:
    """Read receipts that may name documents that the listing shows later.

    A receipt that cannot be fetched is skipped.
    """
    for uid in sorted(current.uids - current.receipts_read):
        if not current.receipts_left:
            break
        current.receipts_left -= 1
        current.receipts_read.add(uid)
        try:
            listing = await current.context.portal.submission(current.tin, uid)
        except Throttled as why:  # the other receipts are left to the next reconciliation
            await current.context.apply_throttle(why, "submission")
            current.receipts_left = 0
            current.receipts_read.discard(uid)
        except PortalError as why:
            log.info("reconciliation company=%d receipt=%s: %s", current.company_id, uid, why)
        else:
            await current.record_odd_rows("submission", listing)
            await _compare(current, listing)
    current.uids.clear()


# Documents that the portal does not show


async def _conclude(current: Reconciliation, ending: ListingEnded | ListingUnavailable) -> None:
    """Process submissions that were not found: due ones, and those whose absence is confirmed."""
    if isinstance(ending, ListingUnavailable) and ending.held_for is not None:
        # No process reconciles the company before; the submissions do not change.
        current.claims.rest = ending.held_for
        return
    config = current.context.config

    async def find_events(runs: list[SubmissionRun]) -> dict[int, Event]:
        return {each.claim.id: _ending_for(current, each, ending) for each in runs}

    conditions = {
        "is_complete": isinstance(ending, ListingEnded) and ending.complete,
        "listed_at": current.listed_at,
        "settle": config.portal_settle,
        "confirmation_gap": config.portal_confirmation_gap,
    }
    after = 0
    while rows := await current.fetch(
        sql.reconciliation_rest, after=after, batch=BATCH, **conditions
    ):
        await _handle(current, rows, find_events)
        after = rows[-1]["id"]


def _ending_for(
    current: Reconciliation,
    submission_run: SubmissionRun,
    ending: ListingEnded | ListingUnavailable,
) -> ListingEnded | ListingUnavailable:
    """Return the event with which the reconciliation ends for one submission.

    The listing confirms absence only if it starts before the first send, was compared in full, and
    has no unreadable row that may be one of the documents, and if the receipts of the submission's
    other documents were read.
    """
    claim, submission = submission_run.claim, submission_run.submission
    if claim.id in current.undecided:
        return _describe_failure(current.undecided[claim.id])
    if isinstance(ending, ListingUnavailable) or not ending.complete:
        return ending
    if row := current.find_obstacle(submission_run):
        message = UNREADABLE["message"].format(row.key)
        return ListingUnavailable({**UNREADABLE, "message": message})
    first_sent_at, _ = submission.send_times
    reaches_back = current.since <= first_sent_at - CLOCK_TOLERANCE
    receipts = {one.submission_uid for one in submission.proven()} - {None}
    is_complete = (
        reaches_back and current.was_compared(submission_run) and receipts <= current.receipts_read
    )
    return replace(ending, complete=is_complete)


def _describe_failure(why: PortalError) -> ListingUnavailable:
    return ListingUnavailable(make_error(why), retry_delay(why), hold_time(why, "search"))

"""Decides Uncertain submissions: from the stored sightings, then from the portal's listing.

Documents that the listing shows are adopted. Absence must be confirmed twice, by listings after the
settling time, because the portal may have had the request in its queue.

For each page of the listing, the submissions with a number on it are claimed, compared and
released; after the last page, those that were not shown. So a process holds few claims, each for a
moment, however many submissions are Uncertain.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from asyncpg import Record

from service.db.statements import Statement, sql
from service.errors import format_traceback
from service.portal.documents import Document, OddRow
from service.portal.errors import PortalError, Throttled
from service.portal.listings import Listing, ListingPage
from service.submission import state_machine
from service.submission.comparison_claim import BATCH, ComparisonClaim, is_external_error
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.matching import find_matches
from service.submission.odd_rows import may_be_document, record_odd_rows
from service.submission.runner import (
    SubmissionRun,
    hold_time,
    make_error,
    retry_delay,
    run,
    run_batch,
)
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

MOST_SEARCHES = 5  # for submissions of many documents, by number, in each comparison
MOST_RECEIPTS = 60  # that are read in each comparison
UNREADABLE: Error = {
    "code": "UnreadableRow",
    "path": "",
    "message": "The portal lists an unreadable document that may be this one, "
    "so that its absence is not confirmed: {}",
}

#: Returns the events, by submission id, that follow from comparing a batch with the portal.
FindEvents = Callable[[list[SubmissionRun]], Awaitable[dict[int, Event]]]


async def mark_uncertain(context: SubmissionContext, claim: Claim) -> None:
    """Set a submission found Sending to Uncertain, unless its sender is alive."""
    async with context.session.lock_submissions(claim.company_id, [claim.id]) as locked:
        signed_in = await context.sign_in(claim.company_id)
        await run(signed_in, claim, Claimed() if locked else LockUnavailable())


@dataclass(slots=True)
class UnknownOutcomes:
    """The Uncertain submissions of a company under one TIN, in one comparison.

    Methods raise ComparisonClaimLost. Those that make requests raise PortalError.
    """

    context: CompanyContext
    claim: ComparisonClaim
    tin: str
    since: datetime  # start of the listing
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

    async def count_left(self) -> Record:
        """Return how many submissions are Uncertain (`n`), and for how many a listing helps."""
        return await self._fetch(
            sql.unknown_left,
            asked=self.searched,
            settle=self.context.config.portal_settle,
            listed_at=self.listed_at,
        )

    async def decide_before_listing(self) -> Record:
        """Decide what needs no listing, and return what `count_left` returns after that."""
        await self._resolve_known()
        await self._search_by_number()
        return await self.count_left()

    async def compare_page(self, page: ListingPage) -> None:
        """Adopt what a page of the listing shows."""
        self.odd.update((row.key, row) for row in page.odd)
        await self._compare(page.rows, is_listing=True)
        await self._read_receipts()

    async def read_last_receipts(self) -> None:
        """Read the receipts of the submissions that the whole listing did not show."""
        rows = await self._fetch(sql.unknown_receipts, most=MOST_RECEIPTS)
        self.uids.update(row["submission_uid"] for row in rows)
        await self._read_receipts()

    async def conclude(self, ending: ListingEnded | ListingUnavailable) -> None:
        """Process the submissions that were not found.

        These are the due ones, and those whose absence the listing confirms.
        """
        if isinstance(ending, ListingUnavailable) and ending.held_for is not None:
            # No process compares the company before; the submissions do not change.
            self.claim.rest = ending.held_for
            return

        async def find_events(runs: list[SubmissionRun]) -> dict[int, Event]:
            return {each.claim.id: self.ending_for(each, ending) for each in runs}

        config, after = self.context.config, 0
        while rows := await self._fetch(
            sql.unknown_rest,
            after=after,
            batch=BATCH,
            is_complete=isinstance(ending, ListingEnded) and ending.complete,
            listed_at=self.listed_at,
            settle=config.portal_settle,
            confirmation_gap=config.portal_confirmation_gap,
        ):
            await self._handle(rows, find_events)
            after = rows[-1]["id"]

    def ending_for(
        self, submission_run: SubmissionRun, ending: ListingEnded | ListingUnavailable
    ) -> ListingEnded | ListingUnavailable:
        """Return the event with which the comparison ends for one submission.

        The listing confirms absence only if it starts before the first send, was compared in full,
        and has no unreadable row that may be one of the documents, and if the receipts of the
        submission's other documents were read.
        """
        claim, submission = submission_run.claim, submission_run.submission
        if claim.id in self.undecided:
            return describe_failure(self.undecided[claim.id])
        if isinstance(ending, ListingUnavailable) or not ending.complete:
            return ending
        if row := self._find_obstacle(submission_run):
            message = UNREADABLE["message"].format(row.key)
            return ListingUnavailable({**UNREADABLE, "message": message})
        first_sent_at, _ = submission.send_times
        reaches_back = self.since <= first_sent_at - CLOCK_TOLERANCE
        receipts = {one.submission_uid for one in submission.proven()} - {None}
        is_complete = (
            reaches_back and self._was_compared(submission_run) and receipts <= self.receipts_read
        )
        return replace(ending, complete=is_complete)

    def _was_compared(self, submission_run: SubmissionRun) -> bool:
        """Return whether a submission was compared with every listed row of its numbers."""
        submission_id = submission_run.claim.id
        return all(
            self.compared[submission_id, doc.number] == self.listed[doc.number]
            for doc in submission_run.submission.docs
        )

    def _find_obstacle(self, submission_run: SubmissionRun) -> OddRow | None:
        """Return an unreadable row that may be a missing document of a submission."""
        submission = submission_run.submission
        missing = submission.missing_from(submission.proven())
        docs = [doc for doc in submission.docs if doc.id in missing]
        for row in self.odd.values():
            if any(may_be_document(row, submission, doc) for doc in docs):
                return row
        return None

    async def _fetch(self, statement: Statement, **values: Any) -> Any:
        """Run a read-only statement for the company and the TIN."""
        company_id = self.claim.company_id
        async with self.context.database.reading(company_id) as conn:
            return await statement(conn, company_id=company_id, tin=self.tin, **values)

    # Batches

    async def _handle(self, rows: Iterable[Record], find_events: FindEvents) -> None:
        """Process submissions in batches, and those with an earlier claim without a result alone.

        After a crash in a batch each of its submissions is processed alone, so that only the one
        that crashes its process is counted again.
        """
        rows = list(rows)
        fresh = [row["id"] for row in rows if not row["claims"]]
        batches = [fresh[start : start + BATCH] for start in range(0, len(fresh), BATCH)]
        for ids in [*batches, *([row["id"]] for row in rows if row["claims"])]:
            self.claim.check()
            try:
                async with self.claim.batch(ids) as (runs, locked):
                    await self._handle_batch(runs, locked, find_events)
            except Exception as error:
                if is_external_error(error):
                    raise
                # The claims stay counted, so that each submission is processed alone the next time.
                log.error(
                    "comparison company=%d submissions=%s failed\n%s",
                    self.claim.company_id,
                    ids,
                    format_traceback(error),
                )

    async def _handle_batch(
        self, runs: list[SubmissionRun], locked: set[int], find_events: FindEvents
    ) -> None:
        times = self.context.config
        steps = [
            step
            for each in runs
            for step in each.step(
                Claimed() if each.claim.id in locked else LockUnavailable(), times
            )
        ]
        events = await find_events([each for each in runs if each.is_open])
        for each in runs:
            if each.is_open and each.claim.id in events:
                steps += each.step(events[each.claim.id], times)
        self.claim.check()
        await run_batch(self.context, self.claim.company_id, steps)

    # Documents that the portal shows

    async def _resolve_known(self) -> None:
        """Process submissions that need no listing, because of a receipt or too many claims."""

        async def find_events(runs: list[SubmissionRun]) -> dict[int, Event]:
            return {}

        after = 0
        while rows := await self._fetch(
            sql.unknown_known, after=after, most=state_machine.MOST_CLAIMS, batch=BATCH
        ):
            await self._handle(rows, find_events)
            after = rows[-1]["id"]

    async def _compare(self, documents: list[Document], is_listing: bool = False) -> None:
        """Compare documents of the portal with the submissions that have one of their numbers."""
        numbers = {there.number for there in documents}
        if is_listing:
            self.listed.update(numbers)

        async def find_events(runs: list[SubmissionRun]) -> dict[int, Event]:
            submissions = {each.claim.id: each.submission for each in runs}
            found = await find_matches(self.context, self.claim.company_id, submissions, documents)
            self.undecided.update(found.undecided)
            events: dict[int, Event] = {}
            for each in runs:
                if is_listing:
                    self.compared.update(
                        (each.claim.id, doc.number)
                        for doc in each.submission.docs
                        if doc.number in numbers
                    )
                if sightings := found.shown(each.claim.id):
                    events[each.claim.id] = SightingsReceived(sightings)
                    self.uids |= _incomplete_uids(each, found.proven.get(each.claim.id, []))
            return events

        rows = await self._fetch(sql.unknown_numbered, numbers=list(numbers), batch=BATCH)
        await self._handle(rows, find_events)

    async def _search_by_number(self) -> None:
        """Search for submissions of many documents by one number, whose receipt names all of them.

        A listing may show thousands of documents, a hundred per page and a page every five seconds.
        Only MOST_SEARCHES submissions are searched for; the listing decides about the others.
        Raises Throttled.
        """
        for row in await self._fetch(sql.unknown_many_documents, most=MOST_SEARCHES):
            until = self.listed_at + CLOCK_TOLERANCE
            try:
                found = await self.context.portal.search(
                    self.tin, self.since, until, text=row["number"], further=bool(self.searched)
                )
            except Throttled:
                raise
            except PortalError as why:  # the search by text may not work; the listing decides
                log.info("submission company=%d id=%d: %s", self.claim.company_id, row["id"], why)
                continue
            await self._record_odd_rows("search", found)
            await self._compare(found)
            await self._read_receipts()
            if all(there.submission_uid for there in found):
                self.searched.append(row["id"])

    async def _read_receipts(self) -> None:
        """Read receipts that may name documents that the listing shows later.

        A receipt that cannot be fetched is skipped.
        """
        for uid in sorted(self.uids - self.receipts_read):
            if not self.receipts_left:
                break
            self.receipts_left -= 1
            self.receipts_read.add(uid)
            try:
                listing = await self.context.portal.submission(self.tin, uid)
            except Throttled as why:  # the other receipts are left to the next comparison
                await self.context.apply_throttle(why, "submission")
                self.receipts_left = 0
                self.receipts_read.discard(uid)
            except PortalError as why:
                log.info("comparison company=%d receipt=%s: %s", self.claim.company_id, uid, why)
            else:
                await self._record_odd_rows("submission", listing)
                await self._compare(listing)
        self.uids.clear()

    async def _record_odd_rows(self, operation: str, listing: Listing) -> None:
        company_id = self.claim.company_id
        await record_odd_rows(self.context, company_id, self.tin, operation, listing)


def _incomplete_uids(submission_run: SubmissionRun, proven: list[Sighting]) -> set[str]:
    """Return the portal's uids of a submission some of whose documents are still missing.

    Their receipts may name the missing documents.
    """
    submission = submission_run.submission
    if not submission.missing_from([*submission.proven(), *proven]):
        return set()
    return {one.submission_uid for one in proven if one.submission_uid}


def describe_failure(why: PortalError) -> ListingUnavailable:
    """Return the event for a listing that could not be read."""
    return ListingUnavailable(make_error(why), retry_delay(why), hold_time(why, "search"))

"""Decides Uncertain submissions: from the stored sightings, then from the portal's listing.

Documents that the portal shows are adopted. Absence must be confirmed twice, by listings after the
settling time, because the portal may have had the request in its queue.

Submissions are claimed, compared and released in batches. So a process holds few claims, each for a
moment, however many submissions are Uncertain.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypedDict

from service.db.statements import sql
from service.errors import format_traceback, make_reason
from service.portal.documents import Document, OddRow
from service.portal.errors import PortalError, Refused, Throttled
from service.portal.listings import Listing
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.following.comparison_claim import BATCH, ComparisonClaim, is_external_error
from service.submission.following.later_states import record_odd_rows
from service.submission.following.matching import find_matches
from service.submission.machine import state_machine
from service.submission.machine.comparison_rules import FURTHEST, MOST_DAYS, is_candidate
from service.submission.machine.types import (
    CLOCK_TOLERANCE,
    Claimed,
    ListingEnded,
    ListingUnavailable,
    LockUnavailable,
    SightingsReceived,
    Submission,
)
from service.submission.runner import (
    SubmissionRun,
    advance,
    begin,
    make_failure,
    run_batch,
)

log = logging.getLogger(__name__)

MOST_SEARCHES = 5  # for submissions of many documents, by number, in each comparison
MOST_RECEIPTS = 60  # that are read in each comparison
UNREADABLE = make_reason(
    "UnreadableRow",
    "The portal lists an unreadable document that may be this one, "
    "so that its absence is not confirmed: {}",
)
SENT_BY_ANOTHER = make_reason(
    "OtherClient",
    "It was sent by another client of the portal, whose documents the present one need not see, "
    "so that its absence is not confirmed.",
)
RECEIPT_UNREAD = make_reason(
    "ReceiptUnread",
    "The portal's receipt of its other documents could not be read, so that its absence is not "
    "confirmed.",
)
SENT_LONG_AGO = make_reason(
    "SentLongAgo",
    f"It was first sent more than {MOST_DAYS} days ago, before the start of the portal's listing, "
    "so that its absence is not confirmed.",
)


class UnknownRow(TypedDict):
    """A row of unknown_submissions."""

    id: int
    claims: int
    is_free: bool
    needs_no_listing: bool
    number: str | None
    is_due: bool
    is_settled: bool
    confirms_absence: bool


#: How the listing ended.
Ending = ListingEnded | ListingUnavailable


async def mark_uncertain(context: SubmissionContext, claim: Claim) -> None:
    """Set a submission found Sending to Uncertain, unless its sender is alive."""
    async with context.session.lock_submissions(claim.company_id, [claim.id]) as locked:
        if submission_run := await begin(context, claim):
            event = Claimed() if locked else LockUnavailable()
            await advance(context, submission_run, event)


@dataclass(slots=True)
class UnknownOutcomes:
    """The Uncertain submissions of a company under one TIN, in one comparison.

    Methods raise ComparisonStopped. Those that make requests raise PortalError.
    """

    context: CompanyContext
    claim: ComparisonClaim
    tin: str
    since: datetime  # start of the listing
    listed_at: datetime  # when the listing was requested, by the database clock
    searched: list[int] = field(default_factory=list[int])  # submissions searched for by number
    # Receipts that were read, by uid
    receipts: dict[str, Listing] = field(default_factory=dict[str, Listing])
    receipts_left: int = MOST_RECEIPTS

    async def read_left(self) -> list[UnknownRow]:
        """Return the submissions that are still Uncertain."""
        return await self.context.database.read(
            sql.unknown_submissions,
            company_id=self.claim.company_id,
            tin=self.tin,
            most=state_machine.MOST_CLAIMS,
            listed_at=self.listed_at,
            settle=self.context.config.portal_settle,
            confirmation_gap=self.context.config.portal_confirmation_gap,
        )

    async def _read_free(self) -> list[UnknownRow]:
        return [row for row in await self.read_left() if row["is_free"]]

    async def decide_before_listing(self) -> list[UnknownRow]:
        """Decide what needs no listing, and return what is left after that."""
        await self._decide([row for row in await self._read_free() if row["needs_no_listing"]])
        many = [(row, number) for row in await self._read_free() if (number := row["number"])]
        for row, number in many[:MOST_SEARCHES]:
            found = await self._search(number)
            if found is not None:
                await self._decide([row], found)
                self.searched.append(row["id"])
        return await self.read_left()

    def needs_listing(self, row: UnknownRow) -> bool:
        """Return whether a complete listing could bring more than was found before.

        Not if it was searched for by number, and sent too late for evidence of absence.
        """
        return row["id"] not in self.searched or row["is_settled"]

    async def _search(self, number: str) -> Listing | None:
        """Search for a submission of many documents by one number, whose receipt names all of them.

        A listing may show thousands of documents, a hundred per page and a page every five seconds.
        Only MOST_SEARCHES submissions are searched for; the listing decides about the others, and
        about those for which this returns None. Raises Throttled.
        """
        until = self.listed_at + CLOCK_TOLERANCE
        try:
            found = await self.context.portal.search(
                self.tin, self.since, until, text=number, further=bool(self.searched)
            )
        except Throttled:
            raise
        except PortalError as why:  # the search by text may not work
            log.info("comparison company=%d number=%s: %s", self.claim.company_id, number, why)
            return None
        await self._record_odd_rows("search", found)
        return found if all(there.submission_uid for there in found) else None

    async def conclude(self, ending: Ending, listing: Listing | None = None) -> None:
        """Decide about all submissions by the listing, and by how it ended.

        Its end has a meaning for those that are due, and for those whose absence it confirms.
        """
        if isinstance(ending, ListingUnavailable) and ending.held_for is not None:
            # No process compares the company before; the submissions do not change.
            self.claim.rest = ending.held_for
            return
        is_complete = isinstance(ending, ListingEnded) and ending.complete

        def is_due(row: UnknownRow) -> bool:
            return row["is_due"] or (is_complete and row["is_settled"] and row["confirms_absence"])

        rows = await self._read_free()
        await self._decide([row for row in rows if is_due(row)], listing, ending)
        if listing is not None:
            await self._decide([row for row in rows if not is_due(row)], listing)

    def ending_for(self, submission: Submission, ending: Ending, odd: Iterable[OddRow]) -> Ending:
        """Return the event with which the comparison ends for one submission.

        The listing confirms absence only if the client that sent the submission read it, it starts
        before the first send and has no unreadable row that may be one of the documents, and if the
        receipts of the submission's other documents were read.
        """
        if isinstance(ending, ListingUnavailable) or not ending.complete:
            return ending
        sender = submission.client_id
        if sender and sender != self.context.portal.login_for(self.tin).client_id:
            return ListingUnavailable(SENT_BY_ANOTHER)
        if row := _find_obstacle(submission, odd):
            message = UNREADABLE["message"].format(row.key)
            return ListingUnavailable({**UNREADABLE, "message": message})
        first_sent_at, _ = submission.send_times
        if first_sent_at < self.listed_at - FURTHEST:
            return ListingUnavailable(SENT_LONG_AGO)
        if not _receipt_uids(submission) <= self.receipts.keys():
            return ListingUnavailable(RECEIPT_UNREAD)
        return replace(ending, complete=self.since <= first_sent_at - CLOCK_TOLERANCE)

    async def _record_odd_rows(self, operation: str, listing: Listing) -> None:
        company_id = self.claim.company_id
        await record_odd_rows(self.context, company_id, self.tin, operation, listing)

    async def _decide(
        self,
        rows: Sequence[UnknownRow],
        listing: Listing | None = None,
        ending: Ending | None = None,
    ) -> None:
        """Process submissions in batches, and those with an earlier claim without a result alone.

        After a crash in a batch each of its submissions is processed alone, so that only the one
        that crashes its process is counted again.
        """
        fresh = [row["id"] for row in rows if not row["claims"]]
        batches = [fresh[start : start + BATCH] for start in range(0, len(fresh), BATCH)]
        batches += [[row["id"]] for row in rows if row["claims"]]
        shown = _group_by_number(listing or ())
        odd = [] if listing is None else listing.odd
        for ids in batches:
            self.claim.check()
            try:
                async with self.claim.batch(ids) as (runs, locked):
                    self._begin(runs, locked)
                    undecided = await self._compare(runs, shown)
                    if ending:
                        self._end(runs, undecided, ending, odd)
                    self.claim.check()
                    await run_batch(self.context, self.claim.company_id, runs)
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

    def _begin(self, runs: Iterable[SubmissionRun], locked: set[int]) -> None:
        """Decide what needs no listing. The sender of a submission that is not locked may live."""
        for each in runs:
            event = Claimed() if each.claim.id in locked else LockUnavailable()
            each.apply(event, self.context.config)

    async def _compare(
        self, runs: Sequence[SubmissionRun], shown: Mapping[str, list[Document]]
    ) -> dict[int, PortalError]:
        """Adopt the documents that the portal shows, by number, and those on their receipts.

        Return why copies could not be compared, by the id of the submission.
        """
        numbers = {doc.number for each in _open(runs) for doc in each.submission.docs}
        documents = [there for number in numbers for there in shown.get(number, ())]
        undecided = await self._adopt(runs, documents)
        listed = {there.uuid for there in documents}
        uids = {
            uid
            for each in _open(runs)
            if each.submission.missing_from(each.submission.proven())
            for uid in _receipt_uids(each.submission)
        }
        receipts = [await self.read_receipt(uid) for uid in sorted(uids)]
        found = [there for receipt in receipts for there in receipt if there.uuid not in listed]
        return undecided | await self._adopt(runs, found)

    async def _adopt(
        self, runs: Sequence[SubmissionRun], documents: list[Document]
    ) -> dict[int, PortalError]:
        submissions = {each.claim.id: each.submission for each in _open(runs)}
        found = await find_matches(self.context, self.claim.company_id, submissions, documents)
        for each in _open(runs):
            if sightings := found.shown(each.claim.id):
                each.apply(SightingsReceived(sightings), self.context.config)
        return found.undecided

    def _end(
        self,
        runs: Iterable[SubmissionRun],
        undecided: Mapping[int, PortalError],
        ending: Ending,
        odd: Iterable[OddRow],
    ) -> None:
        """Apply the end of the listing, with its unreadable rows, to what was not found."""
        for each in _open(runs):
            if each.claim.id in undecided:
                event = describe_failure(undecided[each.claim.id])
            else:
                event = self.ending_for(each.submission, ending, odd)
            each.apply(event, self.context.config)

    async def read_receipt(self, uid: str) -> Listing:
        """Return the documents on a receipt. Those of one that cannot be read now are missing."""
        if uid in self.receipts or not self.receipts_left:
            return self.receipts.get(uid, Listing())
        self.receipts_left -= 1
        try:
            listing = await self.context.portal.submission(self.tin, uid)
        except Throttled:  # the other receipts are left to the next comparison
            self.receipts_left = 0
            return Listing()
        except PortalError as why:
            log.info("comparison company=%d receipt=%s: %s", self.claim.company_id, uid, why)
            if not (isinstance(why, Refused) and why.is_missing):
                return Listing()
            listing = Listing()
        await self._record_odd_rows("submission", listing)
        self.receipts[uid] = listing
        return listing


def _open(runs: Iterable[SubmissionRun]) -> list[SubmissionRun]:
    """Return the runs that are not decided."""
    return [each for each in runs if each.is_open]


def _group_by_number(listing: Iterable[Document]) -> dict[str, list[Document]]:
    groups: dict[str, list[Document]] = {}
    for there in listing:
        groups.setdefault(there.number, []).append(there)
    return groups


def _receipt_uids(submission: Submission) -> set[str]:
    """Return the portal's uids under which documents of a submission were proven."""
    return {one.submission_uid for one in submission.proven() if one.submission_uid}


def _find_obstacle(submission: Submission, odd: Iterable[OddRow]) -> OddRow | None:
    """Return an unreadable row that may be a missing document of a submission."""
    missing = submission.missing_from(submission.proven())
    docs = [doc for doc in submission.docs if doc.id in missing]
    for row in odd:
        if any(is_candidate(submission.tin, doc, row) for doc in docs):
            return row
    return None


def describe_failure(why: PortalError) -> ListingUnavailable:
    """Return the event for a listing that could not be read."""
    return make_failure(ListingUnavailable, why, "search")

"""Finding out what became of submissions whose answer was lost: from our own records, then from the portal's listing.

What the listing shows is adopted. A listing that does not show a submission proves its absence only twice, and only after
the settling time: the portal may have had the call in its queue all along.

One process at a time does this for a company. The listing leads: for each of its pages the submissions that it may show are
claimed, compared and given back, and after the last page those that it did not show. So however many there are, a process
holds few claims, and each of them for a moment.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from asyncpg import Record

from service.db.statements import sql
from service.errors import format_traceback
from service.portal.errors import Held, PortalError, Throttled
from service.portal.responses import Document, OddRow
from service.submission import state_machine
from service.submission.context import Claim, SubmissionContext
from service.submission.matching import find_matches
from service.submission.odd_rows import may_be_document, record_odd_rows
from service.submission.reconciliation_claims import (
    BATCH,
    ClaimLost,
    ReconciliationClaims,
    hold_claims,
    is_external_error,
)
from service.submission.runner import SubmissionRun, held, retry_delay, run, run_batch
from service.submission.types import Busy, Claimed, Listed, NotListed, Shown, Sighting

log = logging.getLogger(__name__)

# How far the listing reaches back before the first send, and ahead of now
CLOCKS_APART = timedelta(minutes=5)
MOST_TRACES = 5  # submissions of many documents that are searched for by a number, at each look
MOST_RECEIPTS = 60  # receipts that are read at each look
UNREADABLE = {
    "code": "UnreadableRow",
    "path": "",
    "message": "The portal lists a document that cannot be read and may be this one, so that its absence is not proven: {}",
}

#: What a batch of cases is compared with: gives the event that each submission hears, by id.
Hearing = Callable[[list[SubmissionRun]], Awaitable[dict[int, Any]]]


@dataclass(slots=True)
class Reconciliation:
    """One look for the Uncertain submissions of a company under one TIN."""

    context: SubmissionContext
    claims: ReconciliationClaims
    tin: str
    since: datetime  # from when on the listing shows documents
    # Until when what was sent can have been received, unless it waited in the portal's queue
    over: datetime
    listed_at: datetime  # when the listing was asked for, by the database's clock
    asked: list[int] = field(default_factory=list)  # submissions that were searched for by number
    # Of receipts that may name more documents than the listing did
    uids: set[str] = field(default_factory=set)
    receipts_read: set[str] = field(default_factory=set)
    receipts_left: int = MOST_RECEIPTS
    # Number -> pages of the listing that show it
    listed: Counter[str] = field(default_factory=Counter)
    # (submission, number) -> pages it was compared with
    compared: Counter[tuple[int, str]] = field(default_factory=Counter)
    # Submission -> why a copy could not be compared
    undecided: dict[int, PortalError] = field(default_factory=dict)
    # Rows of the listing that could not be read
    odd: dict[str, OddRow] = field(default_factory=dict)

    @property
    def company_id(self) -> int:
        return self.claims.company_id

    @property
    def of_taxpayer(self) -> dict[str, Any]:
        return {"company_id": self.company_id, "tin": self.tin}

    @property
    def spans(self) -> list[tuple[datetime, datetime]]:
        """Return the times that are listed one after the other.

        First the time around the sends, whose listing stands still once it is over, however much is sent meanwhile; then
        the time until now, in case the portal had the submissions in its queue.
        """
        until = self.listed_at + CLOCKS_APART
        return (
            [(self.since, self.over), (self.over, until)]
            if self.over < self.listed_at
            else [(self.since, until)]
        )

    def was_compared(self, case: SubmissionRun) -> bool:
        """Return whether a submission was compared with each listed row that has a number of its documents."""
        return all(
            self.compared[case.claim.id, doc.number] == self.listed[doc.number]
            for doc in case.submission.docs
        )

    def obstacle(self, case: SubmissionRun) -> OddRow | None:
        """Return a row that could not be read and may be a document of a submission which was not seen yet."""
        unseen = case.submission.lacks(case.submission.proven())
        docs = [doc for doc in case.submission.docs if doc.id in unseen]
        return next(
            (
                row
                for row in self.odd.values()
                for doc in docs
                if may_be_document(row, case.submission, doc)
            ),
            None,
        )


async def presume(context, claim):
    """A submission found Sending, which was perhaps received, unless its sender lives and may be about to send."""
    async with context.session.lock_submission(claim.company_id, claim.id) as alone:
        await run(context, claim, Claimed() if alone else Busy())


async def reconcile(context: SubmissionContext, claim: Claim) -> None:
    """Resolve the Uncertain submissions of the company of a claimed one, as far as one look tells."""
    async with hold_claims(context, claim) as held_claims:
        if held_claims is None:
            return
        try:
            await _look(context, held_claims, claim)
        except ClaimLost as why:
            log.info("reconciliation %s", why)
        log.info("reconciliation company=%d claims=%d at most", claim.company_id, held_claims.most)


async def _look(
    context: SubmissionContext, held_claims: ReconciliationClaims, claim: Claim
) -> None:
    async with context.database.reading(claim.company_id) as conn:
        row = await sql.reconciliation_outlook(conn, **claim.key)
    if row is None:
        return
    since, over = row["first_sent_at"] - CLOCKS_APART, row["last_sent_at"] + CLOCKS_APART
    look = Reconciliation(context, held_claims, row["tin"], since, over, row["now"])
    await _settle_known(look)
    try:
        ending = await _show(look)
    except PortalError as why:
        await context.apply_throttle(why, "search")
        ending = _not_listed(why)
    if ending is not None and not context.stopping.is_set():
        await _conclude(look, ending)


# Batches


async def _handle(look: Reconciliation, rows: Iterable[Record], hear: Hearing) -> None:
    """Handle submissions in batches. One whose handling began before and gave no result is handled alone.

    After a crash in the middle of a batch each of its submissions is handled alone the next time, so that only the one
    that ends its process is counted again.
    """
    rows = list(rows)
    fresh = [row["id"] for row in rows if not row["claims"]]
    batches = [fresh[start : start + BATCH] for start in range(0, len(fresh), BATCH)]
    for ids in [*batches, *([row["id"]] for row in rows if row["claims"])]:
        look.claims.check()
        try:
            async with look.claims.batch(ids) as (cases, alone):
                await _handle_batch(look, cases, alone, hear)
        except (
            Exception
        ) as error:  # the claims stay counted, and each submission is handled alone the next time
            if is_external_error(error):
                raise
            log.error(
                "reconciliation company=%d submissions=%s: it broke off\n%s",
                look.company_id,
                ids,
                format_traceback(error),
            )


async def _handle_batch(
    look: Reconciliation, cases: list[SubmissionRun], alone: set[int], hear: Hearing
) -> None:
    times = look.context.config
    steps = [
        step
        for case in cases
        for step in case.step(Claimed() if case.claim.id in alone else Busy(), times)
    ]
    news = await hear([case for case in cases if case.is_open])
    for case in cases:
        if case.is_open and case.claim.id in news:
            steps += case.step(news[case.claim.id], times)
    look.claims.check()
    await run_batch(look.context, look.company_id, steps)


async def _settle_known(look: Reconciliation) -> None:
    """Decide about submissions that need no listing: a receipt named their uuids, or they give no result again and again."""

    async def hear(cases: list[SubmissionRun]) -> dict[int, Any]:
        return {}

    after = 0
    while rows := await _read(
        look, sql.reconciliation_known, after=after, most=state_machine.MOST_CLAIMS, batch=BATCH
    ):
        await _handle(look, rows, hear)
        after = rows[-1]["id"]


async def _read(look: Reconciliation, statement: Any, **values: Any) -> Any:
    async with look.context.database.reading(look.company_id) as conn:
        return await statement(conn, **look.of_taxpayer, **values)


async def _left(look: Reconciliation) -> Record:
    """Return how many submissions are Uncertain, and of how many a complete listing could tell more."""
    settle = look.context.config.portal_settle
    return await _read(
        look, sql.reconciliation_left, asked=look.asked, settle=settle, listed_at=look.listed_at
    )


# What the portal shows


async def _show(look: Reconciliation) -> Listed | None:
    """Compare the submissions with what the portal shows. Return the event with which the look ends, None if all is found."""
    await _trace(look)
    left = await _left(look)
    if not left["n"]:
        return None
    if not left["open"]:
        return Listed(look.listed_at, complete=False)
    further = bool(look.asked)
    for since, until in look.spans:
        async with aclosing(
            look.context.portal.pages(look.tin, since, until, further=further)
        ) as pages:
            async for page in pages:
                look.odd.update((row.key, row) for row in page.odd)
                await record_odd_rows(
                    look.context, look.company_id, look.tin, "search", page.rows, page.odd
                )
                await _compare(look, page.rows, is_listing=True)
                await _read_receipts(look)
                if not (await _left(look))["n"]:
                    return None
                if look.context.stopping.is_set():
                    return Listed(look.listed_at, complete=False)
        further = True
    look.uids.update(
        row["submission_uid"]
        for row in await _read(look, sql.reconciliation_receipts, most=MOST_RECEIPTS)
    )
    await _read_receipts(look)
    return Listed(look.listed_at)


async def _compare(
    look: Reconciliation, documents: list[Document], is_listing: bool = False
) -> None:
    """Compare Documents with the submissions that have one of their numbers."""
    numbers = {there.number for there in documents}
    if is_listing:
        look.listed.update(numbers)

    async def hear(cases: list[SubmissionRun]) -> dict[int, Any]:
        calls = {case.claim.id: case.submission for case in cases}
        found = await find_matches(look.context, look.company_id, calls, documents)
        look.undecided.update(found.undecided)
        news = {}
        for case in cases:
            if is_listing:
                look.compared.update(
                    (case.claim.id, doc.number)
                    for doc in case.submission.docs
                    if doc.number in numbers
                )
            if seen := found.shown(case.claim.id):
                news[case.claim.id] = Shown(seen)
                look.uids |= _incomplete(case, found.proven.get(case.claim.id, []))
        return news

    await _handle(
        look,
        await _read(look, sql.reconciliation_numbered, numbers=list(numbers), batch=BATCH),
        hear,
    )


def _incomplete(case: SubmissionRun, seen: list[Sighting]) -> set[str]:
    """Return the uids of a submission of which only some documents were seen: their receipts may name all of them."""
    if not case.submission.lacks([*case.submission.proven(), *seen]):
        return set()
    return {one.submission_uid for one in seen if one.submission_uid}


async def _trace(look: Reconciliation) -> None:
    """Search for submissions of many documents by a number of theirs, which leads to the receipt, and so to all of them.

    A company that sends many documents at once may have thousands in a listing, a hundred on a page, and a page every five
    seconds. Only the first MOST_TRACES are searched for; the listing decides about the others. Raises Throttled.
    """
    for row in await _read(look, sql.reconciliation_many_documents, most=MOST_TRACES):
        try:
            until = look.listed_at + CLOCKS_APART
            found = await look.context.portal.search(
                look.tin, look.since, until, text=row["number"], further=bool(look.asked)
            )
        except Throttled:
            raise
        except PortalError as why:  # searching by a text may not work; the listing decides
            log.info("submission company=%d id=%d: %s", look.company_id, row["id"], why)
            continue
        await record_odd_rows(look.context, look.company_id, look.tin, "search", found, found.odd)
        await _compare(look, found)
        await _read_receipts(look)
        if all(there.submission_uid for there in found):
            look.asked.append(row["id"])


async def _read_receipts(look: Reconciliation) -> None:
    """Read the receipts that some documents are on: they may name documents that the listing shows later."""
    for uid in sorted(look.uids - look.receipts_read):
        if not look.receipts_left:
            break
        look.receipts_left -= 1
        look.receipts_read.add(uid)
        try:
            state = await look.context.portal.submission(look.tin, uid)
        except (
            Throttled
        ) as why:  # the listing goes on; the other receipts are read at the next look
            await look.context.apply_throttle(why, "submission")
            look.receipts_left = 0
            look.receipts_read.discard(uid)
        except PortalError as why:
            log.info("reconciliation company=%d receipt=%s: %s", look.company_id, uid, why)
        else:
            await record_odd_rows(
                look.context, look.company_id, look.tin, "submission", state.documents, state.odd
            )
            await _compare(look, state.documents)
    look.uids.clear()


# What it does not show


async def _conclude(look: Reconciliation, ending: Listed | NotListed) -> None:
    """Tell the submissions that were not found how the look ended: those that are due, or whose absence it proves."""
    if isinstance(ending, NotListed) and ending.held is not None:
        # Nobody looks before; the submissions themselves stay as they are
        look.claims.rest = ending.held
        return
    config = look.context.config

    async def hear(cases: list[SubmissionRun]) -> dict[int, Any]:
        return {case.claim.id: _verdict(look, case, ending) for case in cases}

    proof = {
        "is_complete": isinstance(ending, Listed) and ending.complete,
        "listed_at": look.listed_at,
        "settle": config.portal_settle,
        "proof_gap": config.portal_proof_gap,
    }
    after = 0
    while rows := await _read(look, sql.reconciliation_rest, after=after, batch=BATCH, **proof):
        await _handle(look, rows, hear)
        after = rows[-1]["id"]


def _verdict(
    look: Reconciliation, case: SubmissionRun, ending: Listed | NotListed
) -> Listed | NotListed:
    """Return what the end of the look means for one submission.

    Its absence is proven only by a listing that reaches back before its first send, that it was compared with in full, and
    that has no unreadable row which may be one of its documents; and only after the receipts of its other documents were read.
    """
    if case.claim.id in look.undecided:
        return _not_listed(look.undecided[case.claim.id])
    if isinstance(ending, NotListed) or not ending.complete:
        return ending
    if row := look.obstacle(case):
        return NotListed({**UNREADABLE, "message": UNREADABLE["message"].format(row.key)})
    reaches_back = look.since <= case.submission.first_sent_at - CLOCKS_APART
    receipts = {one.submission_uid for one in case.submission.proven()} - {None}
    return replace(
        ending, complete=reaches_back and look.was_compared(case) and receipts <= look.receipts_read
    )


def _not_listed(why: PortalError) -> NotListed:
    error = {"code": type(why).__name__, "path": "", "message": str(why)}
    return NotListed(
        error, retry_delay(why), held(why, "search") if isinstance(why, Held) else None
    )

"""Finding out what became of a submission whose answer was lost: by what we saw ourselves, then by the portal's listing.

What the listing shows is adopted. That it shows nothing proves something only twice, and only after the settling
time: the portal may have had the call in its queue all along.
"""

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

from service import machine
from service.calls import Busy, Call, Claimed, GiveBack, Listed, Look, NotListed, Shown, Write
from service.db import PASSING
from service.portal.client import Document, Held, PortalError, Throttled
from service.statements import sql
from service.submission import record
from service.submission.desk import Claim, Desk
from service.submission.drive import WRITING, drive, held, wait_of
from service.submission.matching import find_matches, matches

log = logging.getLogger(__name__)

CLOCKS_APART = timedelta(minutes=5)  # how far the listing reaches back before the first send, and ahead of now


@dataclass(slots=True)
class Case:
    """An Uncertain submission that is claimed, as it stands after what was heard of it so far."""

    claim: Claim
    call: Call
    is_open: bool = True
    is_asked: bool = False  # for its receipt, and the portal has none that names them all
    undecided: PortalError | None = None  # why a copy could not be compared, so that this look proves no absence

    async def hear(self, desk, event):
        """Takes an event in, and carries out what follows; once the claim is given back the case is closed."""
        then, commands = machine.step(self.call, event, desk.config)
        for command in commands:
            if not isinstance(command, Look):
                await WRITING[type(command)](desk, self.claim, self.call, command)
        self.call = then
        self.is_open = not any(isinstance(command, (Write, GiveBack)) for command in commands)


async def presume(desk, claim):
    """A submission found Sending, which was perhaps received, unless its sender lives and may be about to send."""
    async with desk.keeper.alone(claim.company_id, claim.id) as alone:
        await drive(desk, claim, Claimed() if alone else Busy())


async def reconcile(desk, claim):
    """Resolves a claimed Uncertain submission, and whatever else of its company one listing resolves."""
    async with AsyncExitStack() as locks:
        cases = []
        for one in [claim, *await _siblings(desk, claim)]:
            case = Case(one, await record.load(desk, one))
            if case.call is None:
                continue  # claimed anew meanwhile
            alone = await locks.enter_async_context(desk.keeper.alone(one.company_id, one.id))
            await case.hear(desk, Claimed() if alone else Busy())
            cases.append(case)
        cases = [case for case in cases if case.is_open]
        if cases:
            async with _kept(desk, [case.claim for case in cases]):
                await _look(desk, cases)


async def _siblings(desk, claim):
    async with desk.database.company(claim.company_id) as conn:
        rows = await sql.submission_claim_uncertain(conn, **claim.key, lease=desk.config.portal_lease)
    return [Claim(row["company_id"], row["id"], row["fence"]) for row in rows]


@asynccontextmanager
async def _kept(desk, claims):
    """Keeps claims while the block runs: a long listing is read slowly."""

    async def keep():
        while True:
            await asyncio.sleep(desk.config.portal_lease.total_seconds() / 3)
            for claim in claims:
                with suppress(*PASSING):
                    async with desk.database.company(claim.company_id) as conn:
                        await sql.submission_keep(conn, **claim.key, fence=claim.fence, lease=desk.config.portal_lease)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _look(desk, cases):
    """The listing of the company, from before the oldest send that is open; each submission is held against it.

    Calls of many are asked about first. Then comes the time around the sends, whose listing stands still once it is
    over, however much is sent meanwhile; then the time until now, in case the portal had them in its queue.
    """
    calls = [case.call for case in cases]
    listed_at, tin = calls[0].now, calls[0].tin
    since = min(call.first_sent_at for call in calls) - CLOCKS_APART
    over = max(call.last_sent_at for call in calls) + CLOCKS_APART
    until = listed_at + CLOCKS_APART
    spans = [(since, over), (over, until)] if over < listed_at else [(since, until)]
    try:
        ending = await _show(desk, cases, tin, spans, listed_at)
    except PortalError as why:
        await desk.heed(why, "search")
        ending = _not_listed(why)
    for case in cases:
        if case.is_open:
            await case.hear(desk, _not_listed(case.undecided) if case.undecided else ending)


async def _show(desk, cases, tin, spans, listed_at):
    """Lets each case hear what the portal shows of it, and gives the event that ends the look: Listed."""
    since, until = spans[0][0], spans[-1][1]
    further = any(len(case.call.docs) > 1 for case in cases)
    for case in cases:
        if len(case.call.docs) > 1:
            await _trace(desk, case, tin, since, until, further=case is not cases[0])
    if all(_too_early(desk, case, listed_at) for case in cases if case.is_open):
        return Listed(listed_at, complete=False)
    for span in spans:
        if any(case.is_open for case in cases):
            listing = await desk.portal.search(tin, *span, further=further)
            further = True
            await _compare(desk, cases, listing)
    for case in cases:
        await _read_receipts(desk, case, tin)
    return Listed(listed_at)


def _too_early(desk, case, listed_at):
    """Whether a listing would prove nothing of it yet, and it has been asked for otherwise."""
    return case.is_asked and case.call.last_sent_at + desk.config.portal_settle > listed_at


async def _trace(desk, case, tin, since, until, further):
    """Asks for a call of many by the number of one of its documents, which leads to its receipt, and so to all of it.

    Who sends calls of many may have thousands of documents in a listing, a hundred on a page, and a page every five
    seconds. Raises Throttled.
    """
    try:
        rows = await desk.portal.search(tin, since, until, text=case.call.docs[0].number, further=further)
        uids = {one.submission_uid for one in await matches(desk, case.claim, case.call, rows)}
        for uid in uids - {None}:
            await _compare(desk, [case], (await desk.portal.submission(tin, uid)).documents)
        case.is_asked = None not in uids
    except Throttled:
        raise
    except PortalError as why:  # it need not be able to; the listing decides
        log.info("submission company=%d id=%d: %s", *case.claim.key.values(), why)


async def _read_receipts(desk, case, tin):
    """The receipts that some documents are on may name all of them: the listing may show the others later."""
    for uid in {one.submission_uid for one in case.call.proven()} - {None}:
        if case.is_open:
            await _compare_receipt(desk, case, tin, uid)


async def _compare_receipt(desk, case, tin, uid):
    """One that cannot be had says nothing, and keeps nothing from the others. Raises Throttled."""
    try:
        state = await desk.portal.submission(tin, uid)
    except Throttled:
        raise
    except PortalError as why:
        log.info("submission company=%d id=%d: %s", *case.claim.key.values(), why)
    else:
        await _compare(desk, [case], state.documents)


async def _compare(desk: Desk, cases: list[Case], listing: list[Document]) -> None:
    """Let the open cases hear what a listing shows of them."""
    calls = {case.claim.id: case.call for case in cases if case.is_open}
    if not calls:
        return
    found = await find_matches(desk, cases[0].claim.company_id, calls, listing)
    for case in cases:
        case.undecided = found.undecided.get(case.claim.id, case.undecided)
        if case.is_open and (seen := found.shown(case.claim.id)):
            await case.hear(desk, Shown(seen))


def _not_listed(why):
    error = {"code": type(why).__name__, "path": "", "message": str(why)}
    return NotListed(error, wait_of(why), held(why, "search") if isinstance(why, Held) else None)

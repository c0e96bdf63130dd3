"""Finding out what became of a submission whose answer was lost: by what we saw ourselves, then by the portal's listing.

What the listing shows is adopted. That it shows nothing proves something only twice, and only after the settling
time: the portal may have had the call in its queue all along.
"""

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.db import PASSING
from service.portal import document
from service.portal.client import Held, PortalError, Throttled
from service.statements import sql
from service.submission import batch, record, send
from service.submission.desk import Claim
from service.submission.record import Change

log = logging.getLogger(__name__)

CLOCKS_APART = timedelta(minutes=5)  # how far the listing reaches back before the first send, and ahead of now
LONGEST_LOOK = timedelta(seconds=60)
GIVE_UP = timedelta(hours=24)  # of listings that could not be had
PROOFS = {"submit", "search"}  # where a uuid was seen that is a document's


@dataclass(frozen=True, slots=True)
class Seen:
    """A document of ours that the portal has shown under a uuid. Portal: 4.2, 5.5"""

    document_id: int
    uuid: str
    submission_uid: str | None
    via: str
    received_at: datetime | None = None


@dataclass(slots=True)
class Case:
    """An Uncertain submission that is claimed: its row, the rows of its documents, and what was seen of them, Seen."""

    claim: Claim
    row: object
    docs: list
    seen: list
    is_asked: bool = False  # for its receipt, and the portal has none that names them all


async def presume(desk, claim):
    """A submission found Sending, whose sender died or lost its claim: it was perhaps received."""
    error = {**send.UNKNOWN, "message": "The process that sent it gave no result."}
    await record.move(desk, claim, ["Sending"], "Uncertain", error=error)


async def reconcile(desk, claim):
    """Resolves a claimed Uncertain submission, and whatever else of its company one listing resolves."""
    async with AsyncExitStack() as locks:
        held = []
        for one in [claim, *await _siblings(desk, claim)]:
            if await locks.enter_async_context(desk.keeper.alone(one.company_id, one.id)):
                held.append(one)
            else:  # its sender lives, and may be about to send
                await record.move(desk, one, ["Uncertain"], "Uncertain", delay=desk.config.portal_retry)
        if held:
            await _resolve(desk, held)


async def _siblings(desk, claim):
    async with desk.database.company(claim.company_id) as conn:
        rows = await sql.submission_claim_uncertain(conn, **claim.key, lease=desk.config.portal_lease)
    return [Claim(row["company_id"], row["id"], row["fence"]) for row in rows]


async def _resolve(desk, claims):
    open_ones = []
    for claim in claims:
        case = await _case(desk, claim)
        if not await _adopt(desk, case, [one for one in case.seen if one.via == "submit"]):
            open_ones.append(case)
    if open_ones:
        async with _kept(desk, [case.claim for case in open_ones]):
            await _look(desk, open_ones)


async def _case(desk, claim):
    async with desk.database.reading(claim.company_id) as conn:
        row = await sql.submission_get(conn, **claim.key)
        docs = await sql.submission_documents(conn, company_id=claim.company_id, submission_id=claim.id)
        rows = await sql.evidence_of(conn, company_id=claim.company_id, submission_id=claim.id)
    seen = [Seen(one["document_id"], one["uuid"], one["submission_uid"], one["via"]) for one in rows]
    return Case(claim, row, docs, seen)


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
    listed_at, tin = cases[0].row["now"], cases[0].row["tin"]
    since = min(case.row["first_sent_at"] for case in cases) - CLOCKS_APART
    over = max(case.row["last_sent_at"] for case in cases) + CLOCKS_APART
    until = listed_at + CLOCKS_APART
    spans = [(since, over), (over, until)] if over < listed_at else [(since, until)]
    try:
        further = any(len(case.docs) > 1 for case in cases)
        cases = await _ask(desk, cases, tin, since, until)
        if all(case.is_asked and case.row["last_sent_at"] + desk.config.portal_settle > listed_at for case in cases):
            return await _later(desk, cases)  # a listing would prove nothing yet
        for span in spans:
            if cases:
                listing = await desk.portal.search(tin, *span, further=further)
                further = True
                cases = [case for case in cases if not await _compare(desk, case, listing)]
        cases = [case for case in cases if not await _on_receipts(desk, case, tin)]
    except PortalError as why:
        await desk.heed(why, "search")
        for case in cases:
            await _not_listed(desk, case.claim, case.row, why)
    else:
        for case in cases:
            await _absent(desk, case, listed_at)
    return None


async def _ask(desk, cases, tin, since, until):
    """The cases that are still open after a question for each call of many.

    One of its documents, asked for by number, leads to its receipt, and so to all of it. Who sends calls of many may
    have thousands of documents in a listing, a hundred on a page, and a page every five seconds.
    """
    left = []
    for case in cases:
        if len(case.docs) == 1 or not await _traced(desk, case, tin, since, until, further=case is not cases[0]):
            left.append(case)
    return left


async def _traced(desk, case, tin, since, until, further):
    """True when the receipt of a call was found, and all of its documents on it. Raises Throttled."""
    try:
        rows = await desk.portal.search(tin, since, until, text=case.docs[0]["number"], further=further)
        uids = {one.submission_uid for one in await _matches(desk, case, rows)}
        for uid in uids - {None}:
            state = await desk.portal.submission(tin, uid)
            if await _compare(desk, case, state.documents):
                return True
        case.is_asked = None not in uids
    except Throttled:
        raise
    except PortalError as why:  # it need not be able to; the listing decides
        log.info("submission company=%d id=%d: %s", *case.claim.key.values(), why)
    return False


async def _on_receipts(desk, case, tin):
    """True when the receipts that some documents are on name all of them: the listing may show the others later."""
    for uid in {one.submission_uid for one in case.seen if one.via in PROOFS} - {None}:
        state = await desk.portal.submission(tin, uid)
        if await _compare(desk, case, state.documents):
            return True
    return False


async def _compare(desk, case, listing):
    """True when every document of the case has been seen now: they are taken over with their uuids."""
    found = await _matches(desk, case, listing)
    numbers = {doc["id"]: doc["number"] for doc in case.docs}
    for uid in {one.submission_uid for one in found}:
        pairs = [(numbers[one.document_id], one.uuid) for one in found if one.submission_uid == uid]
        await record.evidence(desk, case.claim, pairs, "search", uid)
    case.seen += found
    return await _adopt(desk, case, [one for one in case.seen if one.via in PROOFS])


async def _matches(desk, case, listing):
    """What of a listing is a document of the case, by number, type and issue time, and no other submission's."""
    by_number = {}
    for there in listing:
        by_number.setdefault(there.number, []).append(there)
    pairs = [(doc, there) for doc in case.docs for there in by_number.get(doc["number"], ()) if _same(doc, there)]
    async with desk.database.reading(case.claim.company_id) as conn:
        rows = await sql.uuids_owned(
            conn,
            company_id=case.claim.company_id,
            uuids=[there.uuid for _, there in pairs],
            submission_id=case.claim.id,
        )
    owned = {row["uuid"] for row in rows}
    return [
        Seen(doc["id"], there.uuid, there.submission_uid, "search", there.received_at)
        for doc, there in pairs
        if there.uuid not in owned
    ]


async def _adopt(desk, case, seen):
    """True when every document was seen at the portal, and so its receipt is made up for, or the claim is lost."""
    if {doc["id"] for doc in case.docs} - {one.document_id for one in seen}:
        return False
    log.info("submission company=%d id=%d was at the portal", *case.claim.key.values())
    async with desk.database.company(case.claim.company_id) as conn:
        await record.lock_subjects(conn, case.claim.company_id, case.claim.id)
        await _accept(conn, case, seen)
    return True


async def _accept(conn, case, seen):
    """Writes what was seen: Accepted with its uid; a part for what is there under another uid, and for what is not.

    Submitted, whatever the listing says further: the poller brings the rest, with its reasons.
    """
    groups = _by_uid(seen)
    found = {id: one for _, group in groups for id, one in group.items()}
    changes = [Change(id, "Submitted", uuid=one.uuid, submitted_at=one.received_at) for id, one in found.items()]
    if not await record.moved(conn, case.claim, ["Uncertain"], "Accepted", changes, submission_uid=groups[0][0]):
        return
    for uid, group in groups[1:]:
        await _part(conn, case, group, "Accepted", uid)
    if missing := {doc["id"] for doc in case.docs} - found.keys():
        await _part(conn, case, missing, "Queued")


async def _part(conn, case, ids, state, uid=None):
    """Moves documents of a case out of it, into a submission of their own."""
    entries = document.entries(await sql.submission_body(conn, **case.claim.key))
    docs = [doc for doc in case.docs if doc["id"] in ids]
    key = (case.claim.company_id, case.claim.id)
    await batch.part(conn, *key, entries, docs, state, uid=uid, delay=record.NOW)


def _by_uid(seen):
    """[(uid of the portal, {document id: Seen})]: each document once, under the uid that has the most of them.

    A row without a uid tells least: what is asked later is asked by uid.
    """
    uids, left = {}, {one.document_id for one in seen}
    for one in seen:
        uids.setdefault(one.submission_uid, {}).setdefault(one.document_id, one)
    groups = []
    while left:
        uid = max(uids, key=lambda uid: (bool(uids[uid].keys() & left), uid is not None, len(uids[uid].keys() & left)))
        groups.append((uid, {id: one for id, one in uids.pop(uid).items() if id in left}))
        left -= groups[-1][1].keys()
    return groups


def _same(row, there):
    """What a listing leaves out does not tell two documents apart; what it says has to agree."""
    return (
        there.number == row["number"]
        and there.type_code in (None, row["document_type"])
        and there.issued_at in (None, row["issued_at"])
        and there.issuer_tin in (None, row["tin"])
    )


async def _absent(desk, case, listed_at):
    """Not all in a complete listing: a proof, when it is late enough. The second decides for those never seen."""
    claim, seen = case.claim, [one for one in case.seen if one.via in PROOFS]
    async with desk.database.company(claim.company_id) as conn:
        await record.lock_subjects(conn, claim.company_id, claim.id)
        proof = await sql.submission_absent(
            conn,
            **claim.key,
            fence=claim.fence,
            listed_at=listed_at,
            settle=desk.config.portal_settle,
            proof_gap=desk.config.portal_proof_gap,
            part=bool(seen),
        )
        if proof and proof["state"] == "NotReceived":
            await _let_go(conn, case)
        if proof and seen and proof["absent_proofs"] > 1:
            await _accept(conn, case, seen)
    if proof is None:
        await _later(desk, [case])
    elif proof["absent_proofs"] > 1:
        desk.due.set()


async def _later(desk, cases):
    """Not found, and nothing proved."""
    for case in cases:
        await record.move(desk, case.claim, ["Uncertain"], "Uncertain", delay=_next_look(desk.config, case.row))


async def _let_go(conn, case):
    wording = "The portal never had the document; it may be submitted again."
    errors = [{"code": "NotReceived", "path": "", "message": wording}]
    await record.apply(conn, case.claim.company_id, [Change(doc["id"], "Rejected", errors=errors) for doc in case.docs])


def _next_look(config, row):
    """Soon after the send, in case it shows at once; then rarer, and once more as the settling time ends."""
    ready = row["last_sent_at"] + config.portal_settle - row["now"]
    usual = min(LONGEST_LOOK, config.portal_retry * 2 ** min(row["looks"], 10))
    if row["absent_proofs"]:
        return config.portal_proof_gap
    return min(usual, ready) if ready > timedelta(0) else usual


async def _not_listed(desk, claim, row, why):
    """No listing could be had. After a day of that a person is asked."""
    if isinstance(why, Held):
        return await record.give_back(desk, claim, why, "search")
    state = "NeedsPerson" if row["now"] - row["first_sent_at"] > GIVE_UP else "Uncertain"
    delay = why.retry_after if isinstance(why, Throttled) else _next_look(desk.config, row)
    error = {"code": type(why).__name__, "path": "", "message": str(why)}
    return await record.move(desk, claim, ["Uncertain"], state, delay=delay, error=error)

"""Finding out what became of a submission whose answer was lost: by what we saw ourselves, then by the portal's listing.

What the listing shows is adopted. That it shows nothing proves something only twice, and only after the settling
time: the portal may have had the call in its queue all along.
"""

import logging
from contextlib import AsyncExitStack
from datetime import timedelta

from service.portal.client import PortalError, Throttled
from service.statements import sql
from service.submission import record, send
from service.submission.desk import Claim
from service.submission.record import Change

log = logging.getLogger(__name__)

CLOCKS_APART = timedelta(minutes=5)  # how far the listing reaches back before the first send, and ahead of now
LONGEST_LOOK = timedelta(seconds=60)
GIVE_UP = timedelta(hours=24)  # of listings that could not be had


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
        async with desk.database.reading(claim.company_id) as conn:
            row = await sql.submission_get(conn, **claim.key)
            seen = await sql.evidence_of(conn, company_id=claim.company_id, submission_id=claim.id)
        if not await _recall(desk, claim, {one["number"]: one for one in seen if one["via"] == "submit"}):
            open_ones.append((claim, row))
    if open_ones:
        await _look(desk, open_ones)


async def _look(desk, open_ones):
    """One listing of the company, from before the oldest send that is open; each submission is held against it."""
    listed_at = open_ones[0][1]["now"]
    since = min(row["first_sent_at"] for _, row in open_ones) - CLOCKS_APART
    try:
        listing = await desk.portal.search(open_ones[0][1]["tin"], since, listed_at + CLOCKS_APART)
    except PortalError as why:
        await desk.heed(why, "search")
        for claim, row in open_ones:
            await _not_listed(desk, claim, row, why)
        return
    for claim, row in open_ones:
        if not await _adopt(desk, claim, listing):
            await _absent(desk, claim, row, listed_at)


async def _adopt(desk, claim, listing):
    """True when the listing shows every document of the submission: they are taken over with their uuids."""
    rows = await record.documents(desk, claim)
    pairs = [(row, await _match(desk, claim, row, listing)) for row in rows]
    found = [(row, there) for row, there in pairs if there]
    for row, there in found:
        await record.evidence(desk, claim, [(row["number"], there.uuid)], "search", there.submission_uid)
    if len(found) < len(rows):
        return False
    # Submitted, whatever the listing says further: the poller brings the rest, with its reasons.
    changes = [Change(row["id"], "Submitted", uuid=there.uuid, submitted_at=there.received_at) for row, there in found]
    uid = found[0][1].submission_uid
    log.info("submission company=%d id=%d was at the portal", *claim.key.values())
    return await record.move(desk, claim, ["Uncertain"], "Accepted", changes, submission_uid=uid)


async def _recall(desk, claim, receipts):
    """True when a receipt of ours names every document: whoever read it lost the claim before writing it down."""
    rows = await record.documents(desk, claim)
    if any(row["number"] not in receipts for row in rows):
        return False
    changes = [Change(row["id"], "Submitted", uuid=receipts[row["number"]]["uuid"]) for row in rows]
    uid = receipts[rows[0]["number"]]["submission_uid"]
    return await record.move(desk, claim, ["Uncertain"], "Accepted", changes, submission_uid=uid)


async def _match(desk, claim, row, listing):
    """The listed document that is this one, by number, type and issue time, and is no other submission's."""
    for there in listing:
        if not _same(row, there):
            continue
        async with desk.database.reading(claim.company_id) as conn:
            owned = await sql.uuid_owned(
                conn, company_id=claim.company_id, uuid=there.uuid, submission_id=claim.id
            )
        if not owned:
            return there
    return None


def _same(row, there):
    """What a listing leaves out does not tell two documents apart; what it says has to agree."""
    return (
        there.number == row["number"]
        and there.type_code in (None, row["document_type"])
        and there.issued_at in (None, row["issued_at"])
        and there.issuer_tin in (None, row["tin"])
    )


async def _absent(desk, claim, row, listed_at):
    """Not in a complete listing: a proof when it is late enough, the second of which decides."""
    async with desk.database.company(claim.company_id) as conn:
        await record.lock_subjects(conn, claim.company_id, claim.id)
        proof = await sql.submission_absent(
            conn,
            **claim.key,
            fence=claim.fence,
            listed_at=listed_at,
            settle=desk.config.portal_settle,
            proof_gap=desk.config.portal_proof_gap,
        )
        if proof and proof["state"] == "NotReceived":
            await _let_go(conn, claim)
    if proof is None:
        await record.move(desk, claim, ["Uncertain"], "Uncertain", delay=_next_look(desk.config, row))
    elif proof["state"] == "Queued":
        desk.due.set()


async def _let_go(conn, claim):
    wording = "The portal never had the document; it may be submitted again."
    errors = [{"code": "NotReceived", "path": "", "message": wording}]
    for row in await sql.submission_documents(conn, company_id=claim.company_id, submission_id=claim.id):
        await record.apply(conn, claim.company_id, Change(row["id"], "Rejected", errors=errors))


def _next_look(config, row):
    """Soon after the send, in case it shows at once; then rarer, and once more as the settling time ends."""
    ready = row["last_sent_at"] + config.portal_settle - row["now"]
    usual = min(LONGEST_LOOK, config.portal_retry * 2 ** min(row["looks"], 10))
    if row["absent_proofs"]:
        return config.portal_proof_gap
    return min(usual, ready) if ready > timedelta(0) else usual


async def _not_listed(desk, claim, row, why):
    """No listing could be had. After a day of that a person is asked."""
    state = "NeedsPerson" if row["now"] - row["first_sent_at"] > GIVE_UP else "Uncertain"
    delay = why.retry_after if isinstance(why, Throttled) else _next_look(desk.config, row)
    error = {"code": type(why).__name__, "path": "", "message": str(why)}
    await record.move(desk, claim, ["Uncertain"], state, delay=delay, error=error)

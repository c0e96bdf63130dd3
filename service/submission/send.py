"""Sending a queued submission: the intent is on disk before the first byte goes out, and every answer is classed."""

import logging
import time
from datetime import timedelta

from service import failpoints
from service.portal import document
from service.portal.client import Duplicate, Held, LoginRefused, NotSent, PortalError, Refused, Throttled, Unclear
from service.statements import sql
from service.submission import batch, record
from service.submission.record import Change

log = logging.getLogger(__name__)

STALE_SECONDS = 2  # between the intent and the first byte; an older intent may be somebody else's by now
LONGEST_RETRY = timedelta(minutes=5)
LOGIN_RETRY = timedelta(minutes=5)  # refused credentials are not tried often, or the account is locked

#: Refusals of whoever sends. All documents of a call name the one issuer that it is sent for: no one of them is the cause.
OF_THE_SENDER = {"IncorrectSubmitter", "Forbidden", "Unauthorized"}

NOT_RECEIVED = "The portal could not be asked: {} Nothing was sent."
UNKNOWN = {"code": "OutcomeUnknown", "path": "", "message": "The portal gave no clear answer."}


async def send(desk, claim, fill=None):
    """Sends a Queued submission that is claimed, and records what came of it.

    `fill(desk, claim)` gives, at the last moment before the intent, the Claim of the call that goes in its place, or
    None. While it is being sent, a lock of this process's session keeps every other process away, for as long as this
    one lives, paused or not.
    """
    async with desk.keeper.alone(claim.company_id, claim.id) as alone:
        if not alone:
            return await record.set_aside(desk, claim, desk.config.portal_retry)
        failpoints.passed("lock_taken")
        row = await _ready(desk, claim)
        if row is None:
            return None
        unsent = row["promise"] == "pending" and row["first_sent_at"] is None
        call = await fill(desk, claim) if fill and unsent else claim
        if call == claim:
            return await _send(desk, claim, row)
    if call is not None:
        async with desk.keeper.alone(call.company_id, call.id) as alone:
            if alone:  # or the connection was lost this moment; then it waits for its lease
                await _send(desk, call, row)


async def send_filled(desk, claim):
    """As send, with all that waits for the same taxpayer in the same call."""
    await send(desk, claim, fill=batch.merged)


async def _ready(desk, claim):
    """The row of a submission for which a token and a place in the quota are held; None when it has to wait.

    Before the intent, which so does not grow old meanwhile, and before the call is filled: what waits, waits together.
    """
    async with desk.database.reading(claim.company_id) as conn:
        row = await sql.submission_get(conn, **claim.key)
    try:
        await desk.portal.ready(row["tin"])
    except PortalError as why:
        await _unsent(desk, claim, row, why, "Queued")
        return None
    return row


async def _send(desk, claim, row):
    began = time.monotonic()
    async with desk.database.company(claim.company_id) as conn:
        frozen = await sql.submission_send(conn, **claim.key, fence=claim.fence, lease=desk.config.portal_lease)
        failpoints.passed("before_intent_commit")
    if frozen is None:
        return None  # claimed anew meanwhile
    failpoints.passed("after_intent_commit")
    try:
        answer = await desk.portal.submit(
            row["tin"], frozen["body"], before_bytes=lambda: _refuse_stale(began), admitted=True
        )
    except PortalError as why:
        failpoints.passed("answer_read")
        return await _failed(desk, claim, row, why, frozen["body"])
    failpoints.passed("answer_read")
    return await accept(desk, claim, answer)


def _refuse_stale(began):
    if time.monotonic() - began > STALE_SECONDS:
        raise NotSent("The process was held up before it could send.")


async def _failed(desk, claim, row, why, body):
    """What an answer that is no receipt means: not received, refused, or unknown. Never simply failed."""
    if isinstance(why, (NotSent, Throttled, LoginRefused)):
        return await _unsent(desk, claim, row, why, "Sending")
    if isinstance(why, Refused):
        return await _refused(desk, claim, why, body)
    if isinstance(why, Unclear) and why.evidence:
        await record.evidence(desk, claim, why.evidence, "damaged answer")
    return await uncertain(desk, claim, _error(why))


async def uncertain(desk, claim, error):
    """The submission was perhaps received: it stays locked until the truth is found. Duplicate, too, says so."""
    await record.move(desk, claim, ["Sending"], "Uncertain", delay=desk.config.portal_retry, error=error)


async def accept(desk, claim, answer):
    """The portal's receipt: the documents it took are Submitted, those it refused Rejected with its reasons."""
    await record.evidence(desk, claim, list(answer.accepted.items()), "submit", answer.uid)
    failpoints.passed("evidence_written")
    rows = await record.documents(desk, claim)
    changes = [change for row in rows if (change := _receipt(row, answer))]
    if len(changes) < len(rows):
        return await uncertain(desk, claim, {**UNKNOWN, "message": "The portal's receipt does not name every document."})
    taken = any(change.status == "Submitted" for change in changes)
    return await record.move(
        desk,
        claim,
        ["Sending"],
        "Accepted" if taken else "Refused",
        changes,
        delay=desk.config.portal_poll,
        submission_uid=answer.uid,
    )


def _receipt(row, answer):
    number = row["number"]
    if number in answer.accepted:
        return Change(row["id"], "Submitted", uuid=answer.accepted[number], submitted_at=answer.received_at)
    if number in answer.rejected:
        return Change(row["id"], "Rejected", errors=answer.rejected[number])
    return None


async def _refused(desk, claim, why, body):
    """The portal refused the whole call: of one document, or for who sends it, that is every document's outcome.

    Else one of several may have broken it for the others, and each half is tried by itself.
    """
    rows = await record.documents(desk, claim)
    if len(rows) > 1 and why.code not in OF_THE_SENDER and why.status not in (401, 403):
        return await _split(desk, claim, rows, why, body)
    errors = why.errors or [_error(why)]
    changes = [Change(row["id"], "Rejected", errors=errors) for row in rows]
    return await record.move(desk, claim, ["Sending"], "Refused", changes, error=_error(why))


async def _split(desk, claim, rows, why, body):
    """Two new submissions in place of one that was refused: certainly not received, it has nothing at the portal."""
    entries, middle = document.entries(body), len(rows) // 2

    async def halves(conn):
        for half in (rows[:middle], rows[middle:]):
            await batch.part(conn, claim.company_id, claim.id, entries, half, delay=record.NOW)

    if await record.move(desk, claim, ["Sending"], "Split", error=_error(why), also=halves):
        desk.due.set()


async def _unsent(desk, claim, row, why, state):
    """Certainly not received. Who was told it will be done is kept waiting; who is told it failed is let go."""
    await desk.heed(why, "submit")
    if row["promise"] != "pending":
        return await close_unreceived(desk, claim, [state], _error(why))
    if state == "Queued" and isinstance(why, Held):
        return await record.give_back(desk, claim, why, "submit")
    return await record.move(desk, claim, [state], "Queued", delay=_patience(desk, row, why), error=_error(why))


async def close_unreceived(desk, claim, expected, error):
    """Lets the documents go: the portal never had them."""
    errors = [{**error, "message": NOT_RECEIVED.format(error["message"])}]
    changes = [Change(row["id"], "Rejected", errors=errors) for row in await record.documents(desk, claim)]
    return await record.move(desk, claim, expected, "NotReceived", changes, error=error)


def _patience(desk, row, why):
    """How long a passing failure is waited out: what the portal asks, else longer each time."""
    if isinstance(why, Throttled):
        return why.retry_after
    if isinstance(why, LoginRefused):
        return LOGIN_RETRY
    return min(LONGEST_RETRY, desk.config.portal_retry * 2 ** min(row["looks"], 10))


async def give_up(desk, claim):
    """A submission that was claimed again and again without a result: a person has to look."""
    error = {"code": "NeedsPerson", "path": "", "message": "It was tried several times and gave no result."}
    await record.move(desk, claim, ["Queued", "Sending", "Uncertain", "Accepted"], "NeedsPerson", error=error)


#: class of failure -> the code that our callers see.
_CODES = {
    NotSent: "PortalUnreachable",
    Held: "TooManyRequests",
    Throttled: "TooManyRequests",
    LoginRefused: "PortalCredentials",
    Duplicate: "DuplicateSubmission",
    Unclear: "OutcomeUnknown",
}


def _error(why):
    code = _CODES.get(type(why)) or getattr(why, "code", None) or "Refused"
    return {"code": code, "path": "", "message": str(why)}

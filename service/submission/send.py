"""Sending a queued submission: the intent is on disk before the first byte goes out, and every answer is classed."""

import time
from datetime import UTC, datetime
from functools import partial

from service import failpoints
from service.calls import Admit, Admitted, Claimed, Intend, Intended, NotReceived, Receipt, Refusal, Replaced, Send, Unknown
from service.portal.client import Duplicate, Held, LoginRefused, NotSent, PortalError, Refused, Throttled, Unclear
from service.statements import sql
from service.submission import batch, record
from service.submission.drive import drive, held, wait_of

CLOCKS_APART_SECONDS = 60
STALE_SECONDS = 2  # between the intent and the first byte; an older intent may be somebody else's by now

#: Refusals of whoever sends. All documents of a call name the one issuer that it is sent for: no one of them is the cause.
OF_THE_SENDER = {"IncorrectSubmitter", "Forbidden", "Unauthorized"}


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
        last = await drive(desk, claim, Claimed(), {**ASKS, Admit: partial(_admit, fill)})
    if isinstance(last, Replaced):
        async with desk.keeper.alone(last.claim.company_id, last.claim.id) as alone:
            if alone:  # or the connection was lost this moment; then it waits for its lease
                await drive(desk, last.claim, Admitted(), ASKS)


async def send_filled(desk, claim):
    """As send, with all that waits for the same taxpayer in the same call."""
    await send(desk, claim, fill=batch.merged)


async def _admit(fill, desk, claim, call, command):
    """Holds a token and a place in the quota: before the intent, which so does not grow old meanwhile.

    And before the call is filled: what waits, waits together.
    """
    ours = datetime.now(UTC) - call.now  # how far this process's clock is ahead of the database's
    try:
        await desk.portal.ready(call.tin)
    except PortalError as why:
        return await _classed(desk, why)
    if apart := _apart(desk.portal.ahead, ours):
        return NotReceived(apart)
    if fill is None or call.promise != "pending" or call.first_sent_at or call.doubted:
        return Admitted()
    filled = await fill(desk, claim)
    if filled is None:
        return None
    return Admitted() if filled == claim else Replaced(filled)


def _apart(ahead, ours):
    """What keeps documents from being sent while issue times and limits would be judged by clocks that do not agree, or None."""
    seconds = 0 if ahead is None else round((ahead + ours).total_seconds())
    if abs(seconds) <= CLOCKS_APART_SECONDS:
        return None
    wording = f"The portal's clock and the database's are {abs(seconds)} seconds apart, and one of them is wrong."
    return {"code": "ClocksApart", "path": "", "message": wording}


async def _intend(desk, claim, call, command):
    began = time.monotonic()
    async with desk.database.company(claim.company_id) as conn:
        frozen = await sql.submission_send(conn, **claim.key, fence=claim.fence, lease=desk.config.portal_lease)
        failpoints.passed("before_intent_commit")
    if frozen is None:
        return None  # claimed anew meanwhile
    failpoints.passed("after_intent_commit")
    return Intended(frozen["body"], began)


async def _put(desk, claim, call, command):
    def refuse_stale():
        if time.monotonic() - command.at > STALE_SECONDS:
            raise NotSent("The process was held up before it could send.")

    try:
        answer = await desk.portal.submit(call.tin, command.body, before_bytes=refuse_stale, admitted=True)
        event = Receipt(answer.uid, answer.accepted, answer.rejected, answer.received_at)
    except PortalError as why:
        event = await _classed(desk, why)
    failpoints.passed("answer_read")
    return event


ASKS = {Intend: _intend, Send: _put}


async def _classed(desk, why):
    """The event that a failed submit is. Where the portal asked to wait, everybody waits."""
    await desk.heed(why, "submit")
    return next(event(why) for kind, event in CLASSES if isinstance(why, kind))


def _refusal(why):
    """Of whoever sends, it is every document's outcome."""
    for_all = why.code in OF_THE_SENDER or why.status in (401, 403)
    return Refusal(_error(why), tuple(why.errors), for_all)


#: kind of failure -> the event it is; the first that fits. Never simply failed: not received, refused, or unknown.
CLASSES = (
    (Held, lambda why: NotReceived(_error(why), why.retry_after, held(why, "submit"))),
    (Throttled, lambda why: NotReceived(_error(why), why.retry_after)),
    (LoginRefused, lambda why: NotReceived(_error(why), wait_of(why))),
    (NotSent, lambda why: NotReceived(_error(why))),
    (Refused, _refusal),
    (Duplicate, lambda why: Unknown(_error(why))),
    (Unclear, lambda why: Unknown(_error(why), tuple(why.evidence))),
)

#: kind of failure -> the code that our callers see.
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

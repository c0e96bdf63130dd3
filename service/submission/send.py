"""Sending a queued submission: the intent is on disk before the first byte goes out, and every answer is classed."""

import logging
import time
from datetime import timedelta

from service.portal.client import Duplicate, LoginRefused, NotSent, PortalError, Refused, Throttled, Unclear
from service.statements import sql
from service.submission import record
from service.submission.record import Change

log = logging.getLogger(__name__)

STALE_SECONDS = 2  # between the intent and the first byte; an older intent may be somebody else's by now
LONGEST_RETRY = timedelta(minutes=5)
LOGIN_RETRY = timedelta(minutes=5)  # refused credentials are not tried often, or the account is locked

NOT_RECEIVED = "The portal could not be asked: {} Nothing was sent."
UNKNOWN = {"code": "OutcomeUnknown", "path": "", "message": "The portal gave no clear answer."}


async def send(desk, claim):
    """Sends a Queued submission that is claimed, and records what came of it.

    While it is being sent, a lock of this process's session keeps every other process away, for as long as
    this one lives, paused or not.
    """
    async with desk.keeper.alone(claim.company_id, claim.id) as alone:
        if alone:
            await _send(desk, claim)
        else:
            await record.move(desk, claim, ["Queued"], "Queued", delay=desk.config.portal_retry)


async def _send(desk, claim):
    async with desk.database.reading(claim.company_id) as conn:
        row = await sql.submission_get(conn, **claim.key)
    try:
        await desk.portal.ready(row["tin"])  # now, so that the intent does not grow old during a login
    except PortalError as why:
        return await _unsent(desk, claim, row, why, "Queued")
    began = time.monotonic()
    async with desk.database.company(claim.company_id) as conn:
        frozen = await sql.submission_send(conn, **claim.key, fence=claim.fence, lease=desk.config.portal_lease)
    if frozen is None:
        return None  # claimed anew meanwhile
    try:
        answer = await desk.portal.submit(row["tin"], frozen["body"], before_bytes=lambda: _refuse_stale(began))
    except PortalError as why:
        return await _failed(desk, claim, row, why)
    return await accept(desk, claim, answer)


def _refuse_stale(began):
    if time.monotonic() - began > STALE_SECONDS:
        raise NotSent("The process was held up before it could send.")


async def _failed(desk, claim, row, why):
    """What an answer that is no receipt means: not received, refused, or unknown. Never simply failed."""
    if isinstance(why, (NotSent, Throttled, LoginRefused)):
        return await _unsent(desk, claim, row, why, "Sending")
    if isinstance(why, Refused):
        return await _refused(desk, claim, why)
    if isinstance(why, Unclear) and why.evidence:
        await record.evidence(desk, claim, why.evidence, "damaged answer")
    return await uncertain(desk, claim, _error(why))


async def uncertain(desk, claim, error):
    """The submission was perhaps received: it stays locked until the truth is found. Duplicate, too, says so."""
    await record.move(desk, claim, ["Sending"], "Uncertain", delay=desk.config.portal_retry, error=error)


async def accept(desk, claim, answer):
    """The portal's receipt: the documents it took are Submitted, those it refused Rejected with its reasons."""
    await record.evidence(desk, claim, answer.accepted.items(), "submit", answer.uid)
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


async def _refused(desk, claim, why):
    """The portal refused the whole call; the reasons are every document's."""
    errors = why.errors or [_error(why)]
    changes = [Change(row["id"], "Rejected", errors=errors) for row in await record.documents(desk, claim)]
    await record.move(desk, claim, ["Sending"], "Refused", changes, error=_error(why))


async def _unsent(desk, claim, row, why, state):
    """Certainly not received. Who was told it will be done is kept waiting; who is told it failed is let go."""
    await desk.heed(why, "submit")
    if row["promise"] == "pending":
        return await record.move(desk, claim, [state], "Queued", delay=_patience(desk, row, why), error=_error(why))
    return await close_unreceived(desk, claim, [state], _error(why))


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
    Throttled: "TooManyRequests",
    LoginRefused: "PortalCredentials",
    Duplicate: "DuplicateSubmission",
    Unclear: "OutcomeUnknown",
}


def _error(why):
    code = _CODES.get(type(why)) or getattr(why, "code", None) or "Refused"
    return {"code": code, "path": "", "message": str(why)}

"""Sending a queued submission: the intent is on disk before the first byte goes out, and every answer is classed."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

from service import failpoints
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS
from service.portal.client import OpenSubmission
from service.portal.clock import MOST_APART, ClockReading
from service.portal.errors import (
    Duplicate,
    Held,
    LoginRefused,
    NotSent,
    PortalError,
    Refused,
    Throttled,
    Unclear,
)
from service.submission import batch, store
from service.submission.context import Claim, SubmissionContext
from service.submission.runner import Ask, held, retry_delay, run
from service.submission.state_machine import NOTHING_SENT
from service.submission.types import (
    Admit,
    Admitted,
    Claimed,
    Connect,
    Connected,
    Intend,
    Intended,
    NotReceived,
    ReceiptReceived,
    Refusal,
    Replaced,
    Send,
    Submission,
    Unknown,
)

# Between the intent and the first byte; an older intent may be somebody else's by now
STALE_SECONDS = 2

Fill = Callable[[SubmissionContext, Claim], Awaitable[Claim | None]]

#: Refusals of whoever sends. All documents of a call name the one issuer that it is sent for: no
#: one of them is the cause.
OF_THE_SENDER = {"IncorrectSubmitter", "Forbidden", "Unauthorized"}


async def send(context: SubmissionContext, claim: Claim, fill: Fill | None = None) -> None:
    """Send a Queued submission that is claimed, and record the outcome.

    Once the quota admits it, `fill(desk, claim)` returns the Claim on the submission that goes in its place, or None.
    While it is being sent, a lock of this process's session keeps every other process away, for as long as this one
    lives, paused or not.
    """
    async with context.session.lock_submission(claim.company_id, claim.id) as alone:
        if not alone:
            return await store.set_aside(context, claim, context.config.portal_retry)
        failpoints.reach("lock_taken")
        async with transmission() as asks:
            last = await run(context, claim, Claimed(), {**asks, Admit: partial(_admit, fill)})
    if isinstance(last, Replaced):
        async with context.session.lock_submission(last.claim.company_id, last.claim.id) as alone:
            if alone:  # or the connection was lost this moment; then it waits for its lease
                async with transmission() as asks:
                    await run(context, last.claim, Admitted(), asks)
    return None


async def send_filled(context, claim):
    """As send, with all that waits for the same taxpayer in the same call."""
    await send(context, claim, fill=batch.merged)


async def _admit(fill, context, claim, submission, command):
    """Holds a token and a place in the quota: before the intent, which so does not grow old meanwhile.

    And before the call is filled: what waits, waits together.
    """
    database_clock = ClockReading(submission.now, time.monotonic())
    try:
        await context.portal.ready(submission.tin)
    except PortalError as why:
        return await _classed(context, why)
    if apart := await context.portal.clocks_apart(
        submission.tin, database_clock, partial(_read_database_clock, context)
    ):
        return NotReceived(_clocks_apart(apart))
    if (
        fill is None
        or submission.on_absence != "retry"
        or submission.first_sent_at
        or submission.possibly_received
    ):
        return Admitted()
    filled = await fill(context, claim)
    if filled is None:
        return None
    return Admitted() if filled == claim else Replaced(filled)


async def _read_database_clock(context: SubmissionContext) -> ClockReading | None:
    try:
        async with context.database.across() as conn:
            shown = await sql.database_now(conn)
    except TRANSIENT_DB_ERRORS:
        return None
    return ClockReading(shown, time.monotonic())


def _clocks_apart(ahead: timedelta) -> dict[str, str]:
    """Return the error of a submission that is not sent while its times would be judged by clocks that differ."""
    differ = f"differ by {abs(ahead).total_seconds():.0f} seconds (at most {MOST_APART.total_seconds():.0f} allowed)"
    message = f"The portal clock and the database clock {differ}. {NOTHING_SENT}"
    return {"code": "ClocksApart", "path": "", "message": message}


@asynccontextmanager
async def transmission() -> AsyncIterator[dict[type, Ask]]:
    """Yield what carries out Connect, Intend and Send for one submission. At the end a request that was not sent is abandoned."""
    async with AsyncExitStack() as stack:
        request = _Transmission(stack)
        yield {Connect: request.connect, Intend: request.intend, Send: request.put}


class _Transmission:
    """One request to the portal: connected first, then the intent is committed, then the bytes are written.

    A slow connection does not age the intent: what STALE_SECONDS bounds is the time from the intent to the first byte.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack  # what it opens ends with it
        self._request: OpenSubmission | None = None
        self._body = b""

    async def connect(
        self, context: SubmissionContext, claim: Claim, submission: Submission, command: Connect
    ) -> Connected | NotReceived:
        """Open the request that will carry the frozen bytes. Nothing is written, on disk or to the portal."""
        async with context.database.reading(claim.company_id) as conn:
            self._body = await sql.submission_body(conn, **claim.key)
        try:
            self._request = await self._stack.enter_async_context(
                context.portal.open_submission(submission.tin, self._body)
            )
        except PortalError as why:
            return await _classed(context, why)
        return Connected()

    async def intend(
        self, context: SubmissionContext, claim: Claim, submission: Submission, command: Intend
    ) -> Intended | None:
        """Commit the intent. None, and nothing is sent, when the claim was lost meanwhile or sending is held."""
        began = time.monotonic()
        async with context.database.company(claim.company_id) as conn:
            frozen = await sql.submission_send(
                conn, **claim.key, fence=claim.fence, lease=context.config.portal_lease
            )
            if frozen and (frozen["tin"], frozen["body"]) != (submission.tin, self._body):
                raise RuntimeError(f"Submission {claim.id} is not what its request was opened for.")
            failpoints.reach("before_intent_commit")
        if frozen is None:
            return None
        failpoints.reach("after_intent_commit")
        return Intended(self._body, began)

    async def put(
        self, context: SubmissionContext, claim: Claim, submission: Submission, command: Send
    ) -> ReceiptReceived | Refusal | Unknown | NotReceived:
        """Write the bytes on the connection that the intent was committed for, and class the answer.

        A 401 was not processed, and makes a second request under the same intent. If its login and connection take
        longer than STALE_SECONDS, it is not sent.
        """

        def refuse_stale() -> None:
            if time.monotonic() - command.at > STALE_SECONDS:
                raise NotSent("The process was held up before it could send.")

        try:
            answer = await self._request.send(refuse_stale)
            event = ReceiptReceived(
                answer.uid, answer.accepted, answer.rejected, answer.received_at
            )
        except PortalError as why:
            event = await _classed(context, why)
        failpoints.reach("answer_read")
        return event


async def _classed(context, why):
    """The event that a failed submit is. Where the portal asked to wait, everybody waits."""
    await context.apply_throttle(why, "submit")
    return next(event(why) for kind, event in CLASSES if isinstance(why, kind))


def _refusal(why):
    """Of whoever sends, it is every document's outcome."""
    for_all = why.code in OF_THE_SENDER or why.status in (401, 403)
    return Refusal(_error(why), tuple(why.errors), for_all)


#: kind of failure -> the event it is; the first that fits. Never simply failed: not received,
#: refused, or unknown.
CLASSES = (
    (Held, lambda why: NotReceived(_error(why), why.retry_after, held(why, "submit"))),
    (Throttled, lambda why: NotReceived(_error(why), why.retry_after)),
    (LoginRefused, lambda why: NotReceived(_error(why), retry_delay(why))),
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

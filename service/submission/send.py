"""Sends queued submissions: commits the intent before the first byte, classifies the response."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

from service import failpoints
from service.db.statements import sql
from service.db.transient_errors import TRANSIENT_DB_ERRORS
from service.monitoring.metrics import SUBMISSION_MOVES
from service.portal.client import Portal
from service.portal.clock import MOST_APART, ClockReading
from service.portal.errors import (
    LoginRefused,
    NotSent,
    PortalError,
    Refused,
    Throttled,
    Unclear,
)
from service.portal.open_submission import OpenSubmission
from service.submission import batch, store
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.runner import Handlers, hold_time, make_error, retry_delay, run
from service.submission.state_machine import NOTHING_SENT
from service.submission.types import (
    Admit,
    Admitted,
    Claimed,
    CommitIntent,
    Connect,
    Connected,
    Error,
    Event,
    IntentCommitted,
    NotReceived,
    OutcomeUnknown,
    RefusalReceived,
    Replaced,
    Send,
    Submission,
)

# At most this time passes between the intent and the first byte, so that the claim is still held.
STALE_SECONDS = 2

STANDBYS_CHANGED: Error = {
    "code": "SendingHeld",
    "path": "",
    "message": "The synchronous standbys of the database have changed. Sending resumes "
    f"automatically after at most 75 seconds. {NOTHING_SENT}",
}

#: Merges waiting submissions into a claimed one. Returns the claim on the result, None if lost.
Merge = Callable[[SubmissionContext, Claim], Awaitable[Claim | None]]

#: Codes of refusals that concern the sender. All documents of a submission have the same issuer,
#: so that none of them is the cause.
SENDER_CODES = {"IncorrectSubmitter", "Forbidden", "Unauthorized"}


async def send(context: SubmissionContext, claim: Claim, merge: Merge | None = None) -> None:
    """Send a claimed Queued submission and record the outcome.

    With `merge`, others are merged with it once the rate limiter has admitted it. A lock of this
    process's session keeps all other processes away while this process lives, even if it is paused.
    """
    context = await context.sign_in(claim.company_id)
    async with context.session.lock_submissions(claim.company_id, [claim.id]) as locked:
        if not locked:
            await store.set_aside(context, claim, context.config.portal_retry)
            return
        failpoints.reach("lock_taken")
        async with open_transmission() as handlers:
            admit = partial(_admit, merge)
            last = await run(context, claim, Claimed(), {**handlers, Admit: admit})
    if isinstance(last, Replaced):
        merged = last.claim
        async with context.session.lock_submissions(merged.company_id, [merged.id]) as locked:
            if locked:  # otherwise the session was lost, and the claim expires
                async with open_transmission() as handlers:
                    await run(context, merged, Admitted(), handlers)


async def send_merged(context: SubmissionContext, claim: Claim) -> None:
    """Send a claimed submission merged with others that wait for the same taxpayer."""
    await send(context, claim, merge=batch.merge_waiting)


async def _admit(
    merge: Merge | None,
    context: CompanyContext,
    claim: Claim,
    submission: Submission,
    command: Admit,
) -> Event | None:
    """Obtain a token and a rate-limit slot, then merge waiting submissions.

    This precedes the intent, so that the intent does not become stale. Submissions that arrive
    during the wait can be merged.
    """
    database_clock = ClockReading(submission.now, time.monotonic())
    try:
        await context.portal.ready(submission.tin)
    except PortalError as why:
        return await _classify(context, why)
    if difference := await context.portal.clocks_apart(
        submission.tin, database_clock, partial(read_database_clock, context)
    ):
        return NotReceived(describe_clocks_apart(difference))
    was_sent = submission.first_sent_at or submission.possibly_received
    if merge is None or submission.on_absence != "retry" or was_sent:
        return Admitted()
    merged = await merge(context, claim)
    if merged is None:
        return None
    return Admitted() if merged == claim else Replaced(merged)


async def read_database_clock(context: SubmissionContext) -> ClockReading | None:
    """Return a reading of the database's clock. None if the database does not respond."""
    try:
        async with context.database.across() as conn:
            now = await sql.database_now(conn)
    except TRANSIENT_DB_ERRORS:
        return None
    return ClockReading(now, time.monotonic())


async def compare_clocks(
    context: SubmissionContext, portal: Portal, tin: str = ""
) -> timedelta | None:
    """Return how far the portal's clock is ahead of the database's if that blocks sending."""
    reading = await read_database_clock(context)
    if reading is None:
        return None
    return await portal.clocks_apart(tin, reading, partial(read_database_clock, context))


def describe_clocks_apart(difference: timedelta) -> Error:
    """Return the error of a submission that is not sent because the clocks differ."""
    seconds, most = abs(difference).total_seconds(), MOST_APART.total_seconds()
    message = (
        f"The portal clock and the database clock differ by {seconds:.0f} seconds "
        f"(at most {most:.0f} allowed). {NOTHING_SENT}"
    )
    return {"code": "ClocksApart", "path": "", "message": message}


@asynccontextmanager
async def open_transmission() -> AsyncIterator[Handlers]:
    """Yield the handlers that send one submission. Close a request that was not sent at the end."""
    async with AsyncExitStack() as stack:
        request = _Transmission(stack)
        yield {Connect: request.connect, CommitIntent: request.commit_intent, Send: request.send}


class _Transmission:
    """One request to the portal: connects, commits the intent, then writes the bytes.

    The connection comes first, so that STALE_SECONDS limits only the time from the intent to the
    first byte.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack  # closes the request
        self._request: OpenSubmission | None = None
        self._body = b""

    async def connect(
        self, context: CompanyContext, claim: Claim, submission: Submission, command: Connect
    ) -> Event:
        """Open the request that will carry the stored bytes. Nothing is written."""
        async with context.database.reading(claim.company_id) as conn:
            self._body = await sql.submission_body(conn, **claim.key)
            if await sql.send_confirmation_get(conn) is None:
                return NotReceived(STANDBYS_CHANGED)
        try:
            self._request = await self._stack.enter_async_context(
                context.portal.open_submission(submission.tin, self._body)
            )
        except PortalError as why:
            return await _classify(context, why)
        return Connected()

    async def commit_intent(
        self,
        context: CompanyContext,
        claim: Claim,
        submission: Submission,
        command: CommitIntent,
    ) -> IntentCommitted | NotReceived | None:
        """Commit the intent. Return None if the claim was lost or sending is held."""
        began = time.monotonic()
        async with context.database.company(claim.company_id) as conn:
            row = await sql.submission_send(
                conn, **claim.key, fence=claim.fence, lease=context.config.portal_lease
            )
            if row and (row["tin"], row["body"]) != (submission.tin, self._body):
                raise RuntimeError(f"The stored bytes of submission {claim} have changed.")
            failpoints.reach("before_intent_commit")
        if row is None:
            return None
        SUBMISSION_MOVES.labels("Sending").inc()
        failpoints.reach("after_intent_commit")
        if not await _is_confirmed(context, row["confirmation"]):
            return NotReceived(STANDBYS_CHANGED)
        return IntentCommitted(self._body, began)

    async def send(
        self, context: CompanyContext, claim: Claim, submission: Submission, command: Send
    ) -> Event:
        """Write the bytes on the open connection and classify the response.

        A request answered by 401 was not processed, and is sent a second time under the same
        intent, unless its login and connection take longer than STALE_SECONDS.
        """
        if self._request is None:
            raise RuntimeError(f"There is no connection to send submission {claim}.")

        def reject_stale() -> None:
            if time.monotonic() - command.at > STALE_SECONDS:
                raise NotSent("The process was delayed before it could send the request.")

        try:
            event = await self._request.send(reject_stale)
        except PortalError as why:
            event = await _classify(context, why)
        failpoints.reach("answer_read")
        return event


async def _is_confirmed(context: SubmissionContext, before: str | None) -> bool:
    """Return whether a committed intent is on all standbys that are promoted without a hold.

    `before` is who would confirm its commit, read in its transaction. It is read again, because
    replication may have been switched to asynchronous meanwhile.
    """
    async with context.database.across() as conn:
        return before is not None and before == await sql.send_confirmation_get(conn)


async def _classify(
    context: SubmissionContext, why: PortalError
) -> NotReceived | RefusalReceived | OutcomeUnknown:
    """Return the event for a failed request, after applying the pause that the portal asked for."""
    await context.apply_throttle(why, "submit")
    return describe_failure(why)


def describe_failure(why: PortalError) -> NotReceived | RefusalReceived | OutcomeUnknown:
    """Return the event for a failed request: refused, not received, or unknown.

    A refusal of the sender applies to every document.
    """
    error = make_error(why, why.code or "Refused")
    match why:
        case Refused():
            for_all = why.code in SENDER_CODES or why.status in (401, 403)
            return RefusalReceived(error, tuple(why.errors), for_all)
        case NotSent() | Throttled() | LoginRefused():
            return NotReceived(error, retry_delay(why), hold_time(why, "submit"))
        case Unclear():
            return OutcomeUnknown(error, tuple(why.evidence))
    return OutcomeUnknown(error)  # a Duplicate

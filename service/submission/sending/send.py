"""Sends queued submissions: commits the intent before the first byte, classifies the response."""

import hashlib
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol, TypedDict

from service import failpoints
from service.db.statements import sql
from service.documents.ubl import document
from service.errors import make_reason
from service.monitoring.metrics import SUBMISSION_MOVES
from service.offload import offload
from service.portal.client import Send
from service.portal.clock import ClockReading
from service.portal.errors import LoginRefused, NotSent, PortalError, Refused, Throttled, Unclear
from service.submission import store
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.machine import state_machine
from service.submission.machine.state_machine import NOTHING_SENT
from service.submission.machine.types import (
    Event,
    NotReceived,
    OutcomeUnknown,
    RefusalReceived,
    RequestChanged,
    Submission,
)
from service.submission.runner import (
    SubmissionRun,
    advance,
    begin,
    begin_claimed,
    make_error,
    make_failure,
)

# At most this time passes between the intent and the first byte, so that the claim is still held.
STALE_SECONDS = 2

STANDBYS_CHANGED = make_reason(
    "SendingHeld",
    "The synchronous standbys of the database have changed. Sending resumes "
    f"automatically after at most 75 seconds. {NOTHING_SENT}",
)

#: Codes of refusals that concern the sender. All documents of a submission have the same issuer,
#: so that none of them is the cause.
SENDER_CODES = {"IncorrectSubmitter", "Forbidden", "Unauthorized"}

MOST_DOCUMENTS = 100  # of one submission. Portal: 1.5
MOST_BYTES = 3_300_000  # of its documents, 4.4 MB in Base64 of at most 5 MB. Portal: 1.5

log = logging.getLogger(__name__)


class Transmission(Protocol):
    """The steps of one send. An event ends it, and so does a PortalError."""

    async def admit(self) -> Event | None: ...

    async def connect(self) -> Event | None: ...

    async def commit_intent(self) -> bool: ...

    async def send(self) -> Event: ...


async def transmit(transmission: Transmission) -> Event | None:
    """Send a claimed Queued submission, and return the event that follows.

    Return None if the intent was not committed. Admission and connection precede the intent, so
    that it does not become stale meanwhile. Raises PortalError.
    """
    if event := await transmission.admit() or await transmission.connect():
        return event
    return await transmission.send() if await transmission.commit_intent() else None


async def send(context: CompanyContext, claim: Claim) -> None:
    """Send a claimed Queued submission and record the outcome.

    If a worker has claimed it, others that wait for the same taxpayer are merged into it once the
    rate limiter has admitted it. A lock of this process's session keeps all other processes away
    while this process lives, even if it is paused.
    """
    async with AsyncExitStack() as stack:
        locked = context.session.lock_submissions(claim.company_id, [claim.id])
        if claim.id not in await stack.enter_async_context(locked):
            # Another process may be about to send it. It does not block those behind it.
            delay = context.config.portal_retry
            async with context.database.company(claim.company_id) as conn:
                await sql.submission_set_aside(conn, **claim.key, fence=claim.fence, delay=delay)
            return
        failpoints.reach("lock_taken")
        submission_run = await begin_claimed(context, claim)
        if submission_run is None:
            return
        request = PortalTransmission(context, submission_run, stack)
        try:
            event = await transmit(request)
        except PortalError as why:
            event = describe_failure(why)
        if event:
            await advance(context, request.run, event)


class UnsentRow(TypedDict):
    """A row of submissions_unsent."""

    id: int
    size: int
    numbers: list[str]


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request that is made of stored documents."""

    body: bytes
    sha256: bytes  # of the taxpayer and the body
    document_hashes: list[str]  # SHA-256 of each document in hexadecimal


def build_request(tin: str, contents: Sequence[store.ContentRow]) -> StoredRequest:
    """Return the request of a submission with these rows of `submission_contents`."""
    entries = [document.build_entry(row["number"], row["content"]) for row in contents]
    body = document.build_envelope(entries)
    sha256 = hashlib.sha256(tin.encode() + b"\n" + body).digest()
    return StoredRequest(body, sha256, [entry["documentHash"] for entry in entries])


@dataclass(slots=True)
class PortalTransmission:
    """One request to the portal. The stack closes its connection, also if nothing was sent.

    The connection comes first, so that STALE_SECONDS limits only the time from the intent to the
    first byte.
    """

    context: CompanyContext
    run: SubmissionRun
    stack: AsyncExitStack
    began: float = 0.0  # when the intent was begun, in monotonic seconds
    request: StoredRequest | None = None
    send_on_connection: Send | None = None
    #: Who confirms the commit of the intent: the standbys that are promoted without a hold.
    confirmation: str | None = None

    async def admit(self) -> Event | None:
        """Obtain a token and a slot, then merge the submissions that arrived meanwhile."""
        context, submission = self.context, self.run.submission
        database_clock = ClockReading(submission.now, time.monotonic())
        await context.portal.ready(submission.tin)
        if apart := await context.compare_clocks(context.portal, submission.tin, database_clock):
            return NotReceived(apart)
        if await merge_waiting(context, self.run.claim, submission):
            # If the claim was lost, the former run continues, and its intent is not committed.
            self.run = await begin(context, self.run.claim) or self.run
        return None

    async def connect(self) -> Event | None:
        """Open a request with the stored documents, unless they or the request have changed."""
        context, claim, submission = self.context, self.run.claim, self.run.submission
        async with context.database.reading(claim.company_id) as conn:
            confirmation = await sql.send_confirmation(conn)
            contents: list[store.ContentRow] = await sql.submission_contents(conn, ids=[claim.id])
        size = sum(len(row["content"]) for row in contents)
        self.request = request = await offload(size, build_request, submission.tin, contents)
        is_repeated = submission.request_sha256 in (None, request.sha256)
        if not is_repeated or request.document_hashes != [row["document_hash"] for row in contents]:
            return RequestChanged()
        if confirmation is None:
            return NotReceived(STANDBYS_CHANGED)
        self.send_on_connection = await self.stack.enter_async_context(
            context.portal.open_submission(submission.tin, request.body)
        )
        return None

    async def commit_intent(self) -> bool:
        """Commit the intent. Return false if the claim was lost or sending is held."""
        assert self.request  # of connect()
        self.began = time.monotonic()
        context, claim, submission = self.context, self.run.claim, self.run.submission
        login = context.portal.login_for(submission.tin)
        async with context.database.company(claim.company_id) as conn:
            row = await sql.submission_send(
                conn,
                **claim.key,
                fence=claim.fence,
                request_sha256=self.request.sha256,
                client_id=login.client_id,
                is_own=login.is_own,
                document_hashes=self.request.document_hashes,
                lease=context.config.portal_lease,
            )
            failpoints.reach("before_intent_commit")
        if row is None:
            return False
        SUBMISSION_MOVES.labels("Sending").inc()
        failpoints.reach("after_intent_commit")
        self.run.submission = state_machine.mark_sending(submission)
        self.confirmation = row["confirmation"]
        return True

    async def send(self) -> Event:
        """Write the bytes on the open connection and return the receipt. Raises PortalError.

        A request answered by 401 was not processed, and is sent a second time under the same
        intent, unless its login and connection take longer than STALE_SECONDS.
        """
        assert self.send_on_connection  # by connect()
        # Replication may have been switched to asynchronous since the commit of the intent.
        confirmation = await self.context.database.call(sql.send_confirmation)
        if self.confirmation is None or self.confirmation != confirmation:
            return NotReceived(STANDBYS_CHANGED)

        def reject_stale() -> None:
            if time.monotonic() - self.began > STALE_SECONDS:
                raise NotSent("The process was delayed before it could send the request.")

        try:
            return await self.send_on_connection(reject_stale)
        finally:
            failpoints.reach("answer_read")


async def merge_waiting(context: SubmissionContext, claim: Claim, submission: Submission) -> bool:
    """Move the documents of waiting submissions of one taxpayer into a claimed one, up to a limit.

    Return whether it has other documents now. Only submissions that were never sent are merged, and
    one whose processing failed before is sent alone, so that it blocks no others. Locks
    submissions, then their submitted documents, but no documents: transactions that change those
    lock them before. Skips submissions that are being merged or sent.
    """
    if submission.on_absence != "retry" or submission.claims != 1 or submission.possibly_received:
        return False
    async with context.database.company(claim.company_id) as conn:
        if await sql.submission_unsent_lock(conn, **claim.key, fence=claim.fence) is None:
            return False
        rows: list[UnsentRow] = await sql.submissions_unsent(
            conn, **claim.key, tin=submission.tin, most=MOST_DOCUMENTS
        )
        _, *ids = _select(rows)
        if not ids:
            return False
        await sql.submission_merge(conn, ids=ids, into=claim.id)
    failpoints.reach("after_merge_commit")
    context.due.set()  # the next submission of the company can be prepared
    log.info("submission %s merged=%d", claim, len(ids) + 1)
    return True


def _select(rows: list[UnsentRow]) -> list[int]:
    """Return the ids of the submissions that one request can hold.

    Numbers must be unique, because the portal's receipt names documents by number.
    """
    ids: list[int] = []
    numbers: set[str] = set()
    left = MOST_BYTES
    for row in rows:
        is_full = len(numbers) + len(row["numbers"]) > MOST_DOCUMENTS or row["size"] > left
        if not is_full and numbers.isdisjoint(row["numbers"]):
            ids.append(row["id"])
            numbers.update(row["numbers"])
            left -= row["size"]
    return ids


def describe_failure(why: PortalError) -> NotReceived | RefusalReceived | OutcomeUnknown:
    """Return the event for a failed request: refused, not received, or unknown.

    A refusal of the sender applies to every document.
    """
    error = make_error(why, why.code or "Refused")
    match why:
        case Refused():
            for_all = why.code in SENDER_CODES or (why.status == 403 and why.code is not None)
            return RefusalReceived(error, tuple(why.errors), for_all)
        case NotSent() | Throttled() | LoginRefused():
            return make_failure(NotReceived, why, "submit", why.code)
        case Unclear():
            return OutcomeUnknown(error, tuple(why.evidence))
        case _:
            return OutcomeUnknown(error)  # a Duplicate

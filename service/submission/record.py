"""Writing down what became of a submission, in one transaction: documents, their invoices, events, the submission."""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from service import failpoints, states, wire
from service.statements import sql

log = logging.getLogger(__name__)

NOW = timedelta(0)


@dataclass(frozen=True, slots=True)
class Change:
    """What is new of one submitted document; None leaves a member as it is."""

    id: int
    status: str
    uuid: str | None = None
    long_id: str | None = None
    validation_link: str | None = None
    errors: list | None = None
    submitted_at: datetime | None = None
    validated_at: datetime | None = None
    cancelled_at: datetime | None = None
    cancel_reason: str | None = None


async def move(desk, claim, expected, state, changes=(), *, also=None, **more):
    """Brings a claimed submission into its next state and gives the claim back, as `moved`; `also(conn)` goes with it.

    The subjects are locked first, then the submission: the order of every transaction.
    """
    async with desk.database.company(claim.company_id) as conn:
        await lock_subjects(conn, claim.company_id, claim.id)
        done = await moved(conn, claim, expected, state, changes, **more)
        if done and also:
            await also(conn)
        failpoints.passed("before_state_commit")
    failpoints.passed("after_state_commit")
    return done


async def moved(conn, claim, expected, state, changes=(), *, delay=NOW, submission_uid=None, error=None):
    """The same in a transaction that has locked the subjects.

    `expected` are the states it may be in. False, and nothing is written, when the claim was lost meanwhile.
    """
    done = await sql.submission_move(
        conn,
        **claim.key,
        fence=claim.fence,
        expected=expected,
        next=state,
        delay=delay,
        submission_uid=submission_uid,
        last_error=wire.dumps(error) if error else None,
    )
    if done:
        await apply(conn, claim.company_id, changes)
    log.info("submission company=%d id=%d state=%s%s", *claim.key.values(), state, "" if done else " (claim lost)")
    return bool(done)


async def give_back(desk, claim, why, operation):
    """Gives a claim back that was not used, because a call was Held.

    What waits for the flow's own operation is due again at once: the workers take up no such work until the operation
    is free, and then whoever's turn it is. Anything else is this submission's to wait for.
    """
    delay = NOW if why.operation == operation else why.retry_after
    async with desk.database.company(claim.company_id) as conn:
        await sql.submission_give_back(conn, **claim.key, fence=claim.fence, delay=delay)


async def set_aside(desk, claim, delay):
    """Leaves a Queued submission that another process may be about to send, and lets those behind it go on."""
    async with desk.database.company(claim.company_id) as conn:
        await sql.submission_set_aside(conn, **claim.key, fence=claim.fence, delay=delay)


async def lock_subjects(conn, company_id, submission_id):
    """Locks what a submission's documents are of: invoices, consolidated invoices, then the notes against them."""
    for lock in (sql.subjects_lock_invoices, sql.subjects_lock_consolidated, sql.subjects_lock_notes):
        await lock(conn, company_id=company_id, submission_id=submission_id)


async def apply(conn, company_id, changes):
    """Writes the changes of documents, of each that stands where its change can come from."""
    if changes:
        text = wire.dumps([_values(change) for change in changes])
        await sql.submitted_documents_move(conn, company_id=company_id, changes=text)


def _values(change):
    """A Change as the statement takes it."""
    values = {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(change).items()
    }
    del values["status"]
    expected = [status for status, moves in states.DOCUMENT_MOVES.items() if change.status in moves]
    subject_status = states.SUBJECT_OF_DOCUMENT[change.status]
    return {**values, "next": change.status, "expected": expected, "subject_status": subject_status}


async def evidence(desk, claim, pairs, via, submission_uid=None):
    """Keeps each (number, uuid) that the portal showed, whether or not the claim still holds."""
    numbers, uuids = zip(*pairs) if pairs else ((), ())
    async with desk.database.company(claim.company_id) as conn:
        await sql.evidence_insert(
            conn,
            company_id=claim.company_id,
            submission_id=claim.id,
            numbers=numbers,
            uuids=uuids,
            submission_uid=submission_uid,
            via=via,
        )


async def documents(desk, claim):
    """The rows of a submission's documents."""
    async with desk.database.reading(claim.company_id) as conn:
        return await sql.submission_documents(conn, company_id=claim.company_id, submission_id=claim.id)

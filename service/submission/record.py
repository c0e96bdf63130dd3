"""Writing down what became of a submission, in one transaction: documents, their invoices, events, the submission."""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from service import states, wire
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


async def move(desk, claim, expected, state, changes=(), *, delay=NOW, submission_uid=None, error=None):
    """Brings a claimed submission into its next state and gives the claim back.

    `expected` are the states it may be in. False, and nothing is written, when the claim was lost meanwhile.
    The subjects are locked first, then the submission: the order of every transaction.
    """
    async with desk.database.company(claim.company_id) as conn:
        await lock_subjects(conn, claim.company_id, claim.id)
        moved = await sql.submission_move(
            conn,
            **claim.key,
            fence=claim.fence,
            expected=expected,
            next=state,
            delay=delay,
            submission_uid=submission_uid,
            last_error=wire.dumps(error) if error else None,
        )
        if moved:
            for change in changes:
                await apply(conn, claim.company_id, change)
    log.info("submission company=%d id=%d state=%s%s", *claim.key.values(), state, "" if moved else " (claim lost)")
    return bool(moved)


async def lock_subjects(conn, company_id, submission_id):
    """Locks what a submission's documents are of: invoices, consolidated invoices, then the notes against them."""
    for lock in (sql.subjects_lock_invoices, sql.subjects_lock_consolidated, sql.subjects_lock_notes):
        await lock(conn, company_id=company_id, submission_id=submission_id)


async def apply(conn, company_id, change):
    """Writes one document's change, if the document stands where the change can come from."""
    values = asdict(change)
    values["errors"] = None if change.errors is None else wire.dumps(change.errors)
    return await sql.submitted_document_move(
        conn,
        company_id=company_id,
        **{name: value for name, value in values.items() if name != "status"},
        next=change.status,
        expected=[status for status, moves in states.DOCUMENT_MOVES.items() if change.status in moves],
        subject_status=states.SUBJECT_OF_DOCUMENT[change.status],
    )


async def evidence(desk, claim, pairs, via, submission_uid=None):
    """Keeps each (number, uuid) that the portal showed, whether or not the claim still holds."""
    async with desk.database.company(claim.company_id) as conn:
        for number, uuid in pairs:
            await sql.evidence_insert(
                conn,
                company_id=claim.company_id,
                submission_id=claim.id,
                uuid=uuid,
                number=number,
                submission_uid=submission_uid,
                via=via,
            )


async def documents(desk, claim):
    """The rows of a submission's documents."""
    async with desk.database.reading(claim.company_id) as conn:
        return await sql.submission_documents(conn, company_id=claim.company_id, submission_id=claim.id)

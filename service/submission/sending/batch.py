"""Merges unsent submissions into one portal request. The bytes of a document never change."""

import logging
from typing import TypedDict

from service import failpoints
from service.db.statements import sql
from service.submission.context import Claim, SubmissionContext
from service.submission.machine.types import Submission

log = logging.getLogger(__name__)

MOST_DOCUMENTS = 100  # of one submission. Portal: 1.5
MOST_BYTES = 3_300_000  # of its documents, 4.4 MB in Base64 of at most 5 MB. Portal: 1.5


class UnsentRow(TypedDict):
    """A row of submissions_unsent."""

    id: int
    size: int
    numbers: list[str]


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
        await sql.submission_merge(conn, company_id=claim.company_id, ids=ids, into=claim.id)
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

"""Merges unsent submissions into one portal request.

The bytes of a document never change, and neither does the body of a submission: a merged or split
submission is a new one, whose body has the same entries. The old one is Merged or Split.
"""

import logging
import uuid
from dataclasses import dataclass, field
from typing import Any

from asyncpg import Record

from service import failpoints
from service.db.connections import Connection
from service.db.statements import sql
from service.documents.ubl import document
from service.submission.context import Claim, SubmissionContext

log = logging.getLogger(__name__)

MOST_DOCUMENTS = 100  # of one submission. Portal: 1.5
MOST_BYTES = 4_500_000  # of its body; the portal's limit is 5 MB. Portal: 1.5


async def merge_waiting(context: SubmissionContext, claim: Claim) -> Claim | None:
    """Merge waiting submissions of one taxpayer into a single portal request, up to its limits.

    Return the claim on the merged submission, the given claim if there is nothing to merge, or None
    if it was lost. Only submissions that were never sent are merged. Locks submissions, then
    documents, but no invoices or notes: transactions that change those lock them before. Skips
    submissions that are being merged or sent.
    """
    async with context.database.company(claim.company_id) as conn:
        first = await sql.submission_unsent_lock(conn, **claim.key, fence=claim.fence)
        if first is None:
            return None
        entries = await _lock_entries(conn, claim, first)
        if len(entries) == 1:
            return claim
        merged_claim = await _merge(context, conn, claim.company_id, first["tin"], entries)
    failpoints.reach("after_merge_commit")
    context.due.set()  # the next submission of the company can be prepared
    log.info("submission %s merged=%d", merged_claim, len(entries))
    return merged_claim


@dataclass(slots=True)
class _Load:
    """The size and the document numbers of a submission that is being filled."""

    size: int = 0
    numbers: set[str] = field(default_factory=set)

    def take(self, row: Record) -> bool:
        """Add a submission. Return False if it exceeds a limit or repeats a number.

        Numbers must be unique, because the portal's receipt names documents by number.
        """
        numbers, size = set(row["numbers"]), self.size + row["size"]
        if (
            len(self.numbers) + len(numbers) > MOST_DOCUMENTS
            or size > MOST_BYTES
            or numbers & self.numbers
        ):
            return False
        self.size, self.numbers = size, self.numbers | numbers
        return True


Entries = dict[int, dict[str, dict[str, Any]]]


async def _lock_entries(conn: Connection, claim: Claim, first: Record) -> Entries:
    """Lock the submissions to be merged. Return {id: {number: entry}}, the claimed one first."""
    load = _Load(first["size"], set(first["numbers"]))
    others = []
    # A submission whose processing failed before is sent alone, so that it blocks no others.
    if first["claims"] == 1:
        others = await sql.submission_unsent_others(
            conn, **claim.key, tin=first["tin"], most=MOST_DOCUMENTS - len(load.numbers)
        )
    ids = [claim.id, *[row["id"] for row in others if load.take(row)]]
    if len(ids) == 1:
        return {claim.id: {}}
    rows = await sql.submission_bodies(conn, company_id=claim.company_id, ids=ids)
    bodies = {row["id"]: row["body"] for row in rows}
    return {submission_id: document.read_entries(bodies[submission_id]) for submission_id in ids}


async def _merge(
    context: SubmissionContext, conn: Connection, company_id: int, tin: str, sources: Entries
) -> Claim:
    """Store a claimed submission of all entries, and move the documents into it."""
    entries = [entry for each in sources.values() for entry in each.values()]
    submission = await sql.submission_insert(
        conn,
        company_id=company_id,
        attempt_key=uuid.uuid4(),
        tin=tin,
        body=document.build_envelope(entries),
        on_absence="retry",
        possibly_received=False,
        lease=context.config.portal_lease,
        delay=None,
    )
    key = {"company_id": company_id, "ids": list(sources), "into": submission["id"]}
    left = await sql.submission_merge(conn, **key)
    moved = {row["number"] for row in await sql.submitted_document_merge(conn, **key)}
    if len(left) != len(sources) or moved != {entry["codeNumber"] for entry in entries}:
        raise RuntimeError(f"Submission {submission['id']} and its body have different documents.")
    return Claim(company_id, submission["id"], submission["fence"])

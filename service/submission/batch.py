"""Calls of many documents: what was never sent is merged into one, and one that was refused as a whole is split.

A document keeps its frozen bytes through every call. No body is ever changed: another call is another submission, with
a body of the same entries. What left a submission can be followed: Merged into another, Split into those that name it.
"""

import logging
import uuid
from dataclasses import dataclass, field

from service import failpoints, json_codec
from service.db.statements import sql
from service.documents.ubl import document
from service.submission.context import Claim

log = logging.getLogger(__name__)

MOST_DOCUMENTS = 100  # of one call. Portal: 1.5
MOST_BYTES = 4_500_000  # of its body; the portal takes 5 MB, however it counts them. Portal: 1.5


async def merged(context, claim):
    """The Claim of one call with all that waits for the same taxpayer, as much as one call takes; None when it is lost.

    Only what was never sent is merged. Locks submissions and then documents, and no invoice or note: who changes those
    has locked them before. Others that are being merged or sent meanwhile are passed over.
    """
    async with context.database.company(claim.company_id) as conn:
        first = await sql.submission_unsent_lock(conn, **claim.key, fence=claim.fence)
        if first is None:
            return None
        taken = await _taken(conn, claim, first)
        if len(taken) == 1:
            return claim
        submission = await _merge(context, conn, claim.company_id, first["tin"], taken)
    failpoints.reach("after_merge_commit")
    context.due.set()  # the company's next call can be prepared
    log.info("submission company=%d id=%d merged=%d", *submission.key.values(), len(taken))
    return submission


async def part(conn, company_id, submission_id, entries, docs, part):
    """Moves documents that were sent into a new submission, due at once, in the transaction of one that is locked.

    `part` is the Part of the machine, `docs` its documents.

    `entries` are those of its body. A part is never merged: what made it one would be in the merged call again.
    """
    id = await sql.submission_part(
        conn,
        company_id=company_id,
        id=submission_id,
        attempt_key=uuid.uuid4(),
        body=document.enclosed([entries[doc.number] for doc in docs]),
        state=part.state,
        submission_uid=part.uid,
        possibly_received=part.possibly_received,
        last_error=json_codec.dumps(part.error) if part.error else None,
    )
    ids = [doc.id for doc in docs]
    await sql.submitted_document_part(
        conn, company_id=company_id, id=submission_id, into=id, document_ids=ids
    )


@dataclass(slots=True)
class _Load:
    """What a call holds so far."""

    size: int = 0
    numbers: set = field(default_factory=set)

    def take(self, row):
        """True when a submission still fits in. Answers are told apart by number, so that each is there once."""
        numbers, size = set(row["numbers"]), self.size + row["size"]
        if (
            len(self.numbers) + len(numbers) > MOST_DOCUMENTS
            or size > MOST_BYTES
            or numbers & self.numbers
        ):
            return False
        self.size, self.numbers = size, self.numbers | numbers
        return True


async def _taken(conn, claim, first):
    """{id: entries} of the submissions that go together, the claimed one first. Their rows are locked."""
    load = _Load(first["size"], set(first["numbers"]))
    others = []
    # One that came to nothing before goes alone, so that it holds up nobody else
    if first["claims"] == 1:
        others = await sql.submission_unsent_others(
            conn, **claim.key, tin=first["tin"], most=MOST_DOCUMENTS - len(load.numbers)
        )
    ids = [claim.id, *[row["id"] for row in others if load.take(row)]]
    if len(ids) == 1:
        return {claim.id: {}}
    bodies = {
        row["id"]: row["body"]
        for row in await sql.submission_bodies(conn, company_id=claim.company_id, ids=ids)
    }
    return {id: document.entries(bodies[id]) for id in ids}


async def _merge(context, conn, company_id, tin, taken):
    entries = [entry for each in taken.values() for entry in each.values()]
    submission = await sql.submission_insert(
        conn,
        company_id=company_id,
        attempt_key=uuid.uuid4(),
        tin=tin,
        body=document.enclosed(entries),
        on_absence="retry",
        possibly_received=False,
        lease=context.config.portal_lease,
        delay=None,
    )
    key = {"company_id": company_id, "ids": list(taken), "into": submission["id"]}
    left = await sql.submission_merge(conn, **key)
    moved = {row["number"] for row in await sql.submitted_document_merge(conn, **key)}
    if len(left) != len(taken) or moved != {entry["codeNumber"] for entry in entries}:
        raise RuntimeError(
            f"The documents of submission {submission['id']} are not those of its body."
        )
    return Claim(company_id, submission["id"], submission["fence"])

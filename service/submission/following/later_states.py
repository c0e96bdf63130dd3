"""Storing of what a read of the portal shows: later states of documents, and unreadable rows."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter

from service.config import Config
from service.db.statements import sql
from service.documents import states
from service.portal.documents import Document
from service.portal.listings import Listing
from service.submission import store
from service.submission.context import SubmissionContext
from service.submission.machine.comparison_rules import Attempt
from service.submission.machine.types import Change, Error, SubmittedDocument

BLOCK = 2000  # submissions whose polls are ended in one statement
MOST_RECORDED = 100  # rows of one response
MOST_TEXT = 1000  # characters of the problems of one row

log = logging.getLogger(__name__)


def describe_change(
    config: Config,
    submitted_document_id: int,
    there: Document,
    status: states.SubmittedStatus,
    errors: list[Error] | None = None,
) -> Change:
    """Return the change of a document to the state that the portal shows, which has a status."""
    return Change(
        submitted_document_id,
        status,
        uuid=there.uuid,
        long_id=there.long_id,
        validation_link=_validation_link(config, there),
        errors=errors,
        submitted_at=there.received_at,
        validated_at=there.validated_at,
        cancelled_at=there.cancelled_at,
        cancel_reason=there.reason if status == "Cancelled" else None,
    )


def _validation_link(config: Config, there: Document) -> str | None:
    """Return the URL of the public page of a validated document. Portal: 7.3"""
    return f"{config.portal_web_base}/{there.uuid}/share/{there.long_id}" if there.long_id else None


def _lacks(doc: SubmittedDocument, there: Document) -> bool:
    """Return whether the portal shows a rejection request, or details that are not stored.

    It may show a document as Valid before it shows its long id and the time of its validation.
    """
    if there.rejection_requested_at:
        return True
    lacked = (not doc.long_id and there.long_id, not doc.validated_at and there.validated_at)
    return doc.status == there.status == "Valid" and any(lacked)


async def record_details(
    context: SubmissionContext, company_id: int, shown: Iterable[tuple[SubmittedDocument, Document]]
) -> None:
    """Record details of documents whose status stays the same, if they are new.

    `shown` are documents with what the portal shows. The reason of a cancelled document is that of
    its cancellation, not of a rejection request.
    """
    new = [(doc.id, there) for doc, there in shown if _lacks(doc, there)]
    if not new:
        return
    async with context.database.company(company_id) as conn:
        for submitted_document_id, there in sorted(new, key=itemgetter(0)):
            await sql.submitted_document_note(
                conn,
                id=submitted_document_id,
                long_id=there.long_id,
                validation_link=_validation_link(context.config, there),
                validated_at=there.validated_at,
                rejection_requested_at=there.rejection_requested_at,
                rejection_reason=there.reason if there.status == "Valid" else None,
            )


async def follow_listing(
    context: SubmissionContext,
    company_id: int,
    listing: Iterable[Document],
    attempts: Iterable[Attempt],
) -> None:
    """Take over what a listing shows of the company's documents, and end the polls of Valid ones.

    The listing lacks the reasons of an Invalid document, which is left to its poll.
    """
    by_uuid = {there.uuid: there for there in listing}
    shown = [(row, by_uuid[row.uuid]) for row in attempts if row.uuid in by_uuid]
    await _write_changes(context, company_id, shown)
    await record_details(context, company_id, shown)
    valid = [row for row, there in shown if there.status == "Valid" and row.state == "Accepted"]
    await _finish(context, company_id, valid)


async def _write_changes(
    context: SubmissionContext, company_id: int, shown: Iterable[tuple[Attempt, Document]]
) -> None:
    """Store the states that follow those of the rows, one submission in each transaction."""
    changes: dict[int, list[Change]] = defaultdict(list)
    for row, there in shown:
        moves = states.SUBMITTED_TRANSITIONS[row.status]
        if there.status in moves and there.status != "Invalid":
            change = describe_change(context.config, row.id, there, there.status)
            changes[row.submission_id].append(change)
    for submission_id, changed in changes.items():
        async with context.database.company(company_id) as conn:
            await store.write_facts(conn, company_id, submission_id, changed)


async def _finish(context: SubmissionContext, company_id: int, rows: Sequence[Attempt]) -> None:
    """End the polls of submissions whose Valid documents are all among the rows."""
    documents: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        documents[row.submission_id].append(row.id)
    ids = sorted(documents)
    for start in range(0, len(ids), BLOCK):
        block = ids[start : start + BLOCK]
        listed = [
            submitted_document_id for key in block for submitted_document_id in documents[key]
        ]
        async with context.database.company(company_id) as conn:
            await sql.submissions_finish(conn, ids=block, listed=listed)


async def record_odd_rows(
    context: SubmissionContext, company_id: int, tin: str, operation: str, listing: Listing
) -> None:
    """Record unreadable rows and documents with an unknown value. Log those that are new.

    Such a row may be any document, so that its listing does not confirm the absence of those.
    """
    found = {row.key: row for row in [*listing.odd, *(row.odd for row in listing if row.odd)]}
    if not found:
        return
    async with context.database.company(company_id) as conn:
        for row in list(found.values())[:MOST_RECORDED]:
            problems = " ".join(row.problems)
            is_new = await sql.odd_row_insert(
                conn,
                row_key=row.key,
                operation=operation,
                tin=tin,
                number=row.number,
                problems=problems[:MOST_TEXT],
                shown=row.shown,
            )
            if is_new:
                log.warning(
                    "portal company=%d operation=%s row=%s: %s",
                    company_id,
                    operation,
                    row.key,
                    problems,
                )

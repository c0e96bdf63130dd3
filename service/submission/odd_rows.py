"""What the portal shows and nobody here can read: recorded once, and a reason to believe no absence that it may disprove."""

import logging
from collections.abc import Iterable

from service.db.statements import sql
from service.portal.responses import Document, OddRow
from service.submission.context import SubmissionContext
from service.submission.types import Submission, SubmittedDocument

MOST_RECORDED = 100  # of one answer
MOST_TEXT = 1000  # characters of the problems of one row

log = logging.getLogger(__name__)


async def record_odd_rows(
    context: SubmissionContext,
    company_id: int,
    tin: str,
    operation: str,
    rows: Iterable[Document],
    odd: Iterable[OddRow],
) -> None:
    """Record rows that could not be read, and Documents with a value that is not known. Log those that are new."""
    found = {row.key: row for row in [*odd, *(row.odd for row in rows if row.odd)]}
    if not found:
        return
    async with context.database.company(company_id) as conn:
        for row in list(found.values())[:MOST_RECORDED]:
            is_new = await sql.odd_row_insert(
                conn,
                company_id=company_id,
                row_key=row.key,
                operation=operation,
                tin=tin,
                number=row.number,
                problems=" ".join(row.problems)[:MOST_TEXT],
                shown=row.shown,
            )
            if is_new:
                log.warning(
                    "portal company=%d operation=%s row=%s: %s",
                    company_id,
                    operation,
                    row.key,
                    " ".join(row.problems),
                )


def may_be_document(row: OddRow, submission: Submission, doc: SubmittedDocument) -> bool:
    """Return whether nothing that could be read of a row says that it is another document."""
    return (
        row.number in (None, doc.number)
        and row.type_code in (None, doc.document_type)
        and row.issued_at in (None, doc.issued_at)
        and row.issuer_tin in (None, submission.tin)
    )

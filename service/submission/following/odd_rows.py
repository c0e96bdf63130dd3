"""Records listed documents that cannot be read.

Such a row may be any document, so that its listing does not confirm the absence of those.
"""

import logging

from service.db.statements import sql
from service.portal.listings import Listing
from service.submission.context import SubmissionContext

MOST_RECORDED = 100  # rows of one response
MOST_TEXT = 1000  # characters of the problems of one row

log = logging.getLogger(__name__)


async def record_odd_rows(
    context: SubmissionContext, company_id: int, tin: str, operation: str, listing: Listing
) -> None:
    """Record unreadable rows and documents with an unknown value. Log those that are new."""
    found = {row.key: row for row in [*listing.odd, *(row.odd for row in listing if row.odd)]}
    if not found:
        return
    async with context.database.company(company_id) as conn:
        for row in list(found.values())[:MOST_RECORDED]:
            problems = " ".join(row.problems)
            is_new = await sql.odd_row_insert(
                conn,
                company_id=company_id,
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

"""The claim on the comparison of a company, and those on the submissions that it decides about.

One statement renews all of them, from the start and during every wait. A submission is claimed only
while it is processed, at most BATCH at a time.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from service.db.connections import TRANSIENT_DB_ERRORS, is_interruption
from service.db.statements import sql
from service.errors import describe_error
from service.json_types import Row
from service.loops import running
from service.portal.errors import PortalError
from service.submission import store
from service.submission.context import Claim, SubmissionContext
from service.submission.runner import SubmissionRun

BATCH = 100  # submissions claimed at a time: the number of rows on a page of the listing
RENEWALS = 3  # per lease
EAGER_RENEWALS = 12  # per lease, after a renewal that failed
LONGEST_BACKOFF = 16  # leases, after failures in a row

log = logging.getLogger(__name__)


class ComparisonStopped(Exception):
    """Another process has claimed the company, or this one ends."""


def is_external_error(error: BaseException) -> bool:
    """Return whether the cause of an error is outside the submissions being processed."""
    return is_interruption(error) or isinstance(
        error, (PortalError, ComparisonStopped, asyncio.CancelledError)
    )


class ComparisonClaim:
    """The claim of this process on the comparison of a company."""

    def __init__(self, context: SubmissionContext, company_id: int, fence: int) -> None:
        self.company_id = company_id
        self.rest: timedelta | None = None  # until the company can be claimed again
        self._context = context
        self._fence = fence
        self._fences: dict[int, int] = {}  # submission -> fence of its claim
        self._is_lost = False

    def check(self) -> None:
        """Raise ComparisonStopped if another process has claimed the company, or this one ends."""
        if self._is_lost or self._context.stopping.is_set():
            raise ComparisonStopped("claimed by another process" if self._is_lost else "shutdown")

    @asynccontextmanager
    async def batch(self, ids: list[int]) -> AsyncGenerator[tuple[list[SubmissionRun], set[int]]]:
        """Claim, load and lock Uncertain submissions. Yield their runs and the locked ids.

        Submissions that are no longer Uncertain, or that another process has claimed, are left out.
        If another session holds the lock of a submission, its sender may be alive. Open claims are
        released at the end and not counted. After an error that is neither the database's nor the
        portal's, the claims expire and stay counted, because a submission may be its cause.
        """
        context = self._context
        async with context.database.company(self.company_id) as conn:
            rows: list[Row] = await sql.submission_claim_batch(
                conn, ids=ids, lease=context.config.portal_lease
            )
            submissions = await store.read_submissions(conn, rows)
        fences: dict[int, int] = {row["id"]: row["fence"] for row in rows}
        claims = [Claim(self.company_id, *each) for each in fences.items()]
        runs = list(map(SubmissionRun, claims, submissions))
        self._fences |= fences
        try:
            async with context.session.lock_submissions(self.company_id, list(fences)) as locked:
                yield runs, locked
        except BaseException as error:
            if is_external_error(error):
                await self._release(runs)
            raise
        else:
            await self._release([each for each in runs if each.is_open])
        finally:
            for submission_id in fences:
                self._fences.pop(submission_id, None)

    async def _release(self, runs: list[SubmissionRun]) -> None:
        if runs:
            released = [(each.claim, None) for each in runs]
            await store.release(self._context, self.company_id, released)

    async def renew_forever(self) -> None:
        """Renew all claims RENEWALS times per lease, until another process claims the company."""
        lease = self._context.config.portal_lease
        pause = lease / RENEWALS
        while not self._is_lost:
            await asyncio.sleep(pause.total_seconds())
            try:
                async with self._context.database.company(self.company_id) as conn:
                    is_kept = await sql.comparison_keep(
                        conn,
                        fence=self._fence,
                        lease=lease,
                        ids=list(self._fences),
                        fences=list(self._fences.values()),
                    )
                self._is_lost = not is_kept
                pause = lease / RENEWALS
            except TRANSIENT_DB_ERRORS as error:
                log.warning(
                    "comparison company=%d: claims could not be renewed: %s",
                    self.company_id,
                    describe_error(error),
                )
                pause = lease / EAGER_RENEWALS

    async def end(self, pause: timedelta | None) -> None:
        """Release the claim on the company. After a failure, back off from `pause`."""
        with suppress(*TRANSIENT_DB_ERRORS):  # otherwise it ends with its lease
            async with self._context.database.company(self.company_id) as conn:
                await sql.comparison_end(
                    conn,
                    fence=self._fence,
                    rest=self.rest,
                    pause=pause,
                    longest=self._context.config.portal_lease * LONGEST_BACKOFF,
                )


@asynccontextmanager
async def hold_claim(
    context: SubmissionContext, company_id: int, fence: int, is_complete: bool
) -> AsyncGenerator[ComparisonClaim]:
    """Renew the claim on a company's comparison during the block, and release it at the end.

    After an error the next complete comparison begins later, with backoff, and the next one for
    unknown outcomes after a moment. After a cancellation, which ends the process, another process
    can begin at once.
    """
    claim, pause = ComparisonClaim(context, company_id, fence), None
    try:
        async with running(claim.renew_forever()):
            yield claim
    except Exception:
        if is_complete:
            pause = context.config.portal_lease
        else:
            claim.rest = claim.rest or context.config.portal_retry
        raise
    finally:
        await claim.end(pause)

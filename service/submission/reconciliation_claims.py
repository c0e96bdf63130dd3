"""The claims of one reconciliation: on the company, and on the submissions being processed.

One statement renews all of them, from the start and during every wait. A submission is claimed only
while it is processed, at most BATCH at a time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from service.db.statements import sql
from service.db.transient_errors import TRANSIENT_DB_ERRORS, is_interruption
from service.errors import describe_error
from service.loops import running
from service.portal.errors import PortalError
from service.submission import store
from service.submission.context import Claim, SubmissionContext
from service.submission.runner import SubmissionRun
from service.submission.types import NO_DELAY

BATCH = 100  # submissions claimed at a time: the number of rows on a page of the listing
RENEWALS = 3  # per lease
EAGER_RENEWALS = 12  # per lease, after a renewal that failed

log = logging.getLogger(__name__)


class ReconciliationClaimLost(Exception):
    """Another process has claimed the company."""


def is_external_error(error: BaseException) -> bool:
    """Return whether the cause of an error is outside the submissions being processed."""
    return is_interruption(error) or isinstance(
        error, (PortalError, ReconciliationClaimLost, asyncio.CancelledError)
    )


class ReconciliationClaims:
    """The claims of this process for one company."""

    def __init__(self, context: SubmissionContext, company_id: int, fence: int) -> None:
        self.company_id = company_id
        self.most = 0  # submissions claimed at a time
        self.rest = NO_DELAY  # until the company can be reconciled again
        self._context = context
        self._fence = fence
        self._fences: dict[int, int] = {}  # submission -> fence of its claim
        self._is_lost = False

    def check(self) -> None:
        """Raise ReconciliationClaimLost if another process has claimed the company."""
        if self._is_lost:
            raise ReconciliationClaimLost(
                f"company={self.company_id}: another process has claimed it."
            )

    @asynccontextmanager
    async def batch(self, ids: list[int]) -> AsyncIterator[tuple[list[SubmissionRun], set[int]]]:
        """Claim, load and lock Uncertain submissions. Yield their runs and the locked ids.

        If another session holds the lock of a submission, its sender may be alive. Open claims are
        released at the end and not counted. After an error that is neither the database's nor the
        portal's, the claims expire and stay counted, because a submission may be its cause.
        """
        context = self._context
        claimed = await store.claim_batch(context, self.company_id, ids)
        runs = [SubmissionRun(claim, submission) for claim, submission in claimed.items()]
        self._fences.update((claim.id, claim.fence) for claim in claimed)
        self.most = max(self.most, len(self._fences))
        try:
            async with context.session.lock_submissions(
                self.company_id, [claim.id for claim in claimed]
            ) as locked:
                yield runs, locked
        except BaseException as error:
            if is_external_error(error):
                await self._release(runs)
            raise
        else:
            await self._release([each for each in runs if each.is_open and not each.has_failed])
        finally:
            for claim in claimed:
                self._fences.pop(claim.id, None)

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
                self._is_lost = not await self._renew(lease)
                pause = lease / RENEWALS
            except TRANSIENT_DB_ERRORS as error:
                log.warning(
                    "reconciliation company=%d: claims could not be renewed: %s",
                    self.company_id,
                    describe_error(error),
                )
                pause = lease / EAGER_RENEWALS

    async def _renew(self, lease: timedelta) -> bool | None:
        """Renew all claims. Return None if another process has claimed the company."""
        ids, fences = list(self._fences), list(self._fences.values())
        async with self._context.database.company(self.company_id) as conn:
            return await sql.reconciliation_keep(
                conn,
                company_id=self.company_id,
                fence=self._fence,
                lease=lease,
                ids=ids,
                fences=fences,
            )


@asynccontextmanager
async def hold_claims(
    context: SubmissionContext, claim: Claim
) -> AsyncIterator[ReconciliationClaims | None]:
    """Claim the company of a claimed Uncertain submission, and renew the claim meanwhile.

    The claim on the submission is released at once. Yield None if another process reconciles the
    company.
    """
    company_id, lease = claim.company_id, context.config.portal_lease
    async with context.database.company(company_id) as conn:
        fence = await sql.reconciliation_begin(conn, company_id=company_id, lease=lease)
        await sql.submission_hand_back(conn, **claim.key, fence=claim.fence)
    if fence is None:
        yield None
        return
    claims = ReconciliationClaims(context, company_id, fence)
    try:
        async with running(claims.renew_forever()):
            yield claims
    except Exception:
        claims.rest = max(claims.rest, context.config.portal_retry)
        raise
    finally:
        with suppress(*TRANSIENT_DB_ERRORS):  # otherwise it ends with its lease
            async with context.database.company(company_id) as conn:
                await sql.reconciliation_end(
                    conn, company_id=company_id, fence=fence, rest=claims.rest
                )

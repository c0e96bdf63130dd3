"""The claims of one reconciliation: the one on the company, and those on the submissions that are handled at the moment.

All of them are renewed by one statement from the first moment on, whatever the process waits for meanwhile. Submissions are
claimed for the moment in which they are handled, at most BATCH of them at a time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS, is_interruption
from service.errors import describe_error
from service.portal.errors import PortalError
from service.submission import store
from service.submission.context import Claim, SubmissionContext
from service.submission.runner import SubmissionRun
from service.submission.types import NOW

# Submissions that are claimed and locked at a time: as many as a page of the listing has rows
BATCH = 100
RENEWALS = 3  # in the time for which a claim holds
EAGER_RENEWALS = 12  # likewise, after a renewal that failed

log = logging.getLogger(__name__)


class ClaimLost(Exception):
    """Another process reconciles the company by now."""


def is_external_error(error: BaseException) -> bool:
    """Return whether an error has its cause outside the submissions that are handled."""
    return is_interruption(error) or isinstance(
        error, (PortalError, ClaimLost, asyncio.CancelledError)
    )


class ReconciliationClaims:
    """The claims that this process holds for one company."""

    def __init__(self, context: SubmissionContext, company_id: int, fence: int) -> None:
        self.company_id = company_id
        self.most = 0  # submissions that were claimed at a time
        self.rest = NOW  # how long nobody is to reconcile the company after this
        self._context = context
        self._fence = fence
        self._fences: dict[int, int] = {}  # submission -> the fence of its claim
        self._is_lost = False

    def check(self) -> None:
        """Raise Lost if the company has been claimed by another process."""
        if self._is_lost:
            raise ClaimLost(
                f"company={self.company_id}: another process has taken its reconciliation over."
            )

    @asynccontextmanager
    async def batch(self, ids: list[int]) -> AsyncIterator[tuple[list[SubmissionRun], set[int]]]:
        """Claim, load and lock some Uncertain submissions while the block runs: the Cases, and the ids that are locked.

        Where another session holds the lock of a submission, its sender may still be alive. What is still open at the end
        is given back, uncounted. After an error that is neither the database's nor the portal's the claims are left to
        their lease, and stay counted: one of the submissions may be its cause.
        """
        context = self._context
        claimed = await store.claim_batch(context, self.company_id, ids)
        cases = [SubmissionRun(claim, submission) for claim, submission in claimed.items()]
        self._fences.update((case.claim.id, case.claim.fence) for case in cases)
        self.most = max(self.most, len(self._fences))
        try:
            async with context.session.lock_submissions(
                self.company_id, [case.claim.id for case in cases]
            ) as alone:
                yield cases, alone
        except BaseException as error:
            if is_external_error(error):
                await self._release(cases)
            raise
        else:
            await self._release([case for case in cases if case.is_open and not case.has_failed])
        finally:
            for case in cases:
                self._fences.pop(case.claim.id, None)

    async def _release(self, cases: list[SubmissionRun]) -> None:
        if cases:
            await store.release_batch(
                self._context, self.company_id, [(case.claim, None) for case in cases]
            )

    async def renew_forever(self) -> None:
        """Renew all claims, RENEWALS times in their lease, until another process has the company."""
        lease = self._context.config.portal_lease
        pause = lease / RENEWALS
        while not self._is_lost:
            await asyncio.sleep(pause.total_seconds())
            try:
                self._is_lost = not await self._renew(lease)
                pause = lease / RENEWALS
            except TRANSIENT_DB_ERRORS as fault:
                log.warning(
                    "reconciliation company=%d: claims could not be renewed: %s",
                    self.company_id,
                    describe_error(fault),
                )
                pause = lease / EAGER_RENEWALS

    async def _renew(self, lease):
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
    """Yield the claims on the company of a claimed Uncertain submission, renewed while the block runs.

    The claim on the submission itself is given back at once. Yields None when another process reconciles the company.
    """
    company_id, lease = claim.company_id, context.config.portal_lease
    async with context.database.company(company_id) as conn:
        fence = await sql.reconciliation_begin(conn, company_id=company_id, lease=lease)
        await sql.submission_hand_back(conn, **claim.key, fence=claim.fence)
    if fence is None:
        yield None
        return
    held = ReconciliationClaims(context, company_id, fence)
    renewing = asyncio.create_task(held.renew_forever())
    try:
        yield held
    except Exception:
        held.rest = max(held.rest, context.config.portal_retry)
        raise
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        with suppress(*TRANSIENT_DB_ERRORS):  # then it ends with its lease
            async with context.database.company(company_id) as conn:
                await sql.reconciliation_end(
                    conn, company_id=company_id, fence=fence, rest=held.rest
                )

"""The claims of one reconciliation: the one on the company, and those on the submissions that are handled at the moment.

All of them are renewed by one statement from the first moment on, whatever the process waits for meanwhile. Submissions are
claimed for the moment in which they are handled, at most BATCH of them at a time.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from service.db.statements import sql
from service.db.transactions import PASSING, is_interruption
from service.errors import kind
from service.portal.responses import PortalError
from service.submission import store
from service.submission.context import Claim, Desk
from service.submission.runner import Case
from service.submission.types import NOW

# Submissions that are claimed and locked at a time: as many as a page of the listing has rows
BATCH = 100
RENEWALS = 3  # in the time for which a claim holds
EAGER_RENEWALS = 12  # likewise, after a renewal that failed

log = logging.getLogger(__name__)


class Lost(Exception):
    """Another process reconciles the company by now."""


def is_of_the_outside(error: BaseException) -> bool:
    """Return whether an error has its cause outside the submissions that are handled."""
    return is_interruption(error) or isinstance(error, (PortalError, Lost, asyncio.CancelledError))


class Holding:
    """The claims that this process holds for one company."""

    def __init__(self, desk: Desk, company_id: int, fence: int) -> None:
        self.company_id = company_id
        self.most = 0  # submissions that were claimed at a time
        self.rest = NOW  # how long nobody is to reconcile the company after this
        self._desk = desk
        self._fence = fence
        self._fences: dict[int, int] = {}  # submission -> the fence of its claim
        self._is_lost = False

    def check(self) -> None:
        """Raise Lost if the company has been claimed by another process."""
        if self._is_lost:
            raise Lost(
                f"company={self.company_id}: another process has taken its reconciliation over."
            )

    @asynccontextmanager
    async def batch(self, ids: list[int]) -> AsyncIterator[tuple[list[Case], set[int]]]:
        """Claim, load and lock some Uncertain submissions while the block runs: the Cases, and the ids that are locked.

        Where another session holds the lock of a submission, its sender may still be alive. What is still open at the end
        is given back, uncounted. After an error that is neither the database's nor the portal's the claims are left to
        their lease, and stay counted: one of the submissions may be its cause.
        """
        desk = self._desk
        claimed = await store.claim_batch(desk, self.company_id, ids)
        cases = [Case(claim, call) for claim, call in claimed.items()]
        self._fences.update((case.claim.id, case.claim.fence) for case in cases)
        self.most = max(self.most, len(self._fences))
        try:
            async with desk.keeper.alone_with(
                self.company_id, [case.claim.id for case in cases]
            ) as alone:
                yield cases, alone
        except BaseException as error:
            if is_of_the_outside(error):
                await self._release(cases)
            raise
        else:
            await self._release([case for case in cases if case.is_open and not case.has_failed])
        finally:
            for case in cases:
                self._fences.pop(case.claim.id, None)

    async def _release(self, cases: list[Case]) -> None:
        if cases:
            await store.release_batch(
                self._desk, self.company_id, [(case.claim, None) for case in cases]
            )

    async def renew_forever(self) -> None:
        """Renew all claims, RENEWALS times in their lease, until another process has the company."""
        lease = self._desk.config.portal_lease
        pause = lease / RENEWALS
        while not self._is_lost:
            await asyncio.sleep(pause.total_seconds())
            try:
                self._is_lost = not await self._renew(lease)
                pause = lease / RENEWALS
            except PASSING as fault:
                log.warning(
                    "reconciliation company=%d: claims could not be renewed: %s",
                    self.company_id,
                    kind(fault),
                )
                pause = lease / EAGER_RENEWALS

    async def _renew(self, lease):
        ids, fences = list(self._fences), list(self._fences.values())
        async with self._desk.database.company(self.company_id) as conn:
            return await sql.reconciliation_keep(
                conn,
                company_id=self.company_id,
                fence=self._fence,
                lease=lease,
                ids=ids,
                fences=fences,
            )


@asynccontextmanager
async def holding(desk: Desk, claim: Claim) -> AsyncIterator[Holding | None]:
    """Yield the claims on the company of a claimed Uncertain submission, renewed while the block runs.

    The claim on the submission itself is given back at once. Yields None when another process reconciles the company.
    """
    company_id, lease = claim.company_id, desk.config.portal_lease
    async with desk.database.company(company_id) as conn:
        fence = await sql.reconciliation_begin(conn, company_id=company_id, lease=lease)
        await sql.submission_hand_back(conn, **claim.key, fence=claim.fence)
    if fence is None:
        yield None
        return
    held = Holding(desk, company_id, fence)
    renewing = asyncio.create_task(held.renew_forever())
    try:
        yield held
    except Exception:
        held.rest = max(held.rest, desk.config.portal_retry)
        raise
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        with suppress(*PASSING):  # then it ends with its lease
            async with desk.database.company(company_id) as conn:
                await sql.reconciliation_end(
                    conn, company_id=company_id, fence=fence, rest=held.rest
                )

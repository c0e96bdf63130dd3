"""The portal's quotas, kept as token buckets in PostgreSQL that all processes and companies share. Portal: 1.4

How the portal measures its minute is not known. Here a token comes back a whole minute after it was taken, so that no
minute, wherever it begins, sees more calls than a bucket has tokens; SLACK is for what passes between the taking of a
token and the arrival of its call. A bucket that refills drop by drop would have to be kept half empty for that.

Background work leaves a tenth of each bucket, at least one token, to people who wait, never takes the promise of a token before them, and
spreads its calls evenly: a late request waits for the next call of somebody else, and not for a minute to pass.

Fair shares: while other taxpayers wait for a bucket, or were refused a token a moment ago, one taxpayer gets at most a
third of it. A taxpayer that is alone may take more, but leaves the last tokens, so that another one is served at once.
"""

import asyncio
import math
import time
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from service.config import Config
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS, Database
from service.portal.errors import Held, NotSent

SLACK = 5  # seconds
TAXPAYER_SLACK = 1  # seconds; of a distance between two calls, which is short itself
RESERVED = 10  # of as many tokens one is not for the background
PARTS = 30  # of a span, over which background work spreads its calls where there are as many
# For the next page of a listing whose first ones would be lost
PAGE_PATIENCE = timedelta(seconds=90)
SHORTEST_WAIT = timedelta(milliseconds=20)  # between two questions for the same token
# For which a taxpayer still counts as waiting after it should have asked again
GRACE = timedelta(seconds=3)
CROWDED = "The portal takes no more of these calls for a moment."
SHARE_USED = "The company has used its share of the portal's calls for a moment."


@dataclass(frozen=True, slots=True)
class Quota:
    """So many calls in so many seconds of a client id, or of each taxpayer that it calls for.

    `alone` is how many of them one taxpayer may make while no other waits. None: two thirds of few calls, four fifths
    of more, all but a twentieth of a hundred and more. A taxpayer may make all searches: they are background work, of
    which a long listing needs many, and spread by the quota of each taxpayer.
    """

    calls: int
    seconds: int = 60
    of_taxpayer: bool = False
    alone: int | None = None

    @property
    def most_alone(self) -> int:
        if self.alone is not None:
            return self.alone
        share = (
            Decimal(2) / 3
            if self.calls < 30
            else Decimal("0.8")
            if self.calls < 100
            else Decimal("0.95")
        )
        return math.floor(self.calls * share)


#: operation of the client -> its quotas; what is not published has none.
QUOTAS: dict[str, tuple[Quota, ...]] = {
    "login": (Quota(12),),
    "validate_tin": (Quota(60),),
    "submit": (Quota(100),),
    "submission": (Quota(300),),
    "cancel": (Quota(12),),
    "details": (Quota(125),),
    "raw": (Quota(60),),
    "recent": (Quota(12),),
    "search": (Quota(1, 5, of_taxpayer=True), Quota(12, alone=12)),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """At most `most` calls in any `span`, and `pace_most` in any `pace_span`; the bucket has `size` tokens.

    Of the calls in a span, `alone` are for a taxpayer that no other waits with.
    """

    most: int
    span: timedelta
    pace_most: int
    pace_span: timedelta
    size: int
    alone: int


def limits(quota: Quota, scale: Decimal, urgent: bool) -> Limits:
    """Return the Limits of a Quota whose rate is multiplied by `scale`, for urgent or for background work."""
    if quota.of_taxpayer:
        span = timedelta(seconds=float(quota.seconds / scale) + TAXPAYER_SLACK)
        return Limits(quota.calls, span, quota.calls, span, quota.calls, quota.calls)
    size, span = max(1, math.floor(quota.calls * scale)), timedelta(seconds=quota.seconds + SLACK)
    alone = max(1, math.floor(quota.most_alone * scale))
    if urgent:
        return Limits(size, span, size, span, size, alone)
    most = max(1, size - max(1, size // RESERVED))
    pace_most = most // PARTS or most  # a few are not worth spreading
    alone = max(1, min(most, alone - 1))  # so that the taxpayer's own urgent work finds a token too
    return Limits(most, span, pace_most, span * pace_most / most, size, alone)


class PortalRateLimiter:
    """Where a Portal's calls take their tokens. `patience` is how long one may be waited for; longer ones are Held."""

    def __init__(
        self,
        database: Database,
        config: Config,
        *,
        urgent: bool,
        patience: timedelta = timedelta(0),
    ) -> None:
        self._database = database
        self._config = config
        self._urgent = urgent
        self._patience = patience

    async def __call__(self, operation: str, tin: str, further: bool = False) -> None:
        """Return when the call may go. Raises Held, and NotSent when PostgreSQL cannot be asked."""
        try:
            await self._tokens(operation, tin, PAGE_PATIENCE if further else self._patience)
        except TRANSIENT_DB_ERRORS as fault:
            raise NotSent(
                "The database cannot be asked whether the portal may be called."
            ) from fault

    async def _tokens(self, operation: str, tin: str, patience: timedelta) -> None:
        """Return with a token of each bucket. Raises Held."""
        quotas = QUOTAS.get(operation, ()) if self._config.portal_rate_scale else ()
        if not quotas:
            return await self._heed_pause(operation)
        until = time.monotonic() + patience.total_seconds()
        while True:
            try:
                return await self._take(operation, quotas, tin, until)
            except Held as why:
                wait = why.retry_after.total_seconds()
                if time.monotonic() + wait > until:
                    raise
            await asyncio.sleep(wait)

    async def _take(
        self, operation: str, quotas: tuple[Quota, ...], tin: str, until: float
    ) -> None:
        """Take a token of each bucket. Raises Held when one has none.

        The promise of a token is taken only where there is one bucket: promises of several would be kept at different
        times. What one bucket gave when the next had nothing is lost; the first is that which is soonest full again.
        """
        patience = (
            timedelta(seconds=max(0.0, until - time.monotonic()))
            if len(quotas) == 1
            else timedelta(0)
        )
        for quota in quotas:
            await asyncio.sleep(await self._token(operation, quota, tin, patience))

    async def _token(self, operation: str, quota: Quota, tin: str, patience: timedelta) -> float:
        """Return the seconds until the token is good that was taken. Raises Held when none was.

        A taxpayer that has its share takes no promise: others may be served before it.
        """
        bounds = limits(quota, self._config.portal_rate_scale, self._urgent)
        async with self._database.across() as conn:
            row = await sql.portal_token_take(
                conn,
                client_id=self._config.portal_client_id,
                operation=operation,
                taxpayer=tin if quota.of_taxpayer else "",
                caller=tin,
                most=bounds.most,
                span=bounds.span,
                pace_most=bounds.pace_most,
                pace_span=bounds.pace_span,
                size=bounds.size,
                alone=bounds.alone,
                patience=patience,
                grace=GRACE,
            )
        if row["is_taken"]:
            return row["wait"].total_seconds()
        wait = max(row["wait"], SHORTEST_WAIT)
        if row["is_share"]:
            raise Held(SHARE_USED, retry_after=wait)
        raise Held(CROWDED, retry_after=wait, operation=None if quota.of_taxpayer else operation)

    async def _heed_pause(self, operation: str) -> None:
        """Raise Held while the portal has asked to wait."""
        async with self._database.across() as conn:
            left = await sql.pause_left(
                conn, client_id=self._config.portal_client_id, operation=operation
            )
        if left:
            raise Held("The portal asked to wait.", retry_after=left, operation=operation)

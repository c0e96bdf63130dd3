"""The portal's quotas, kept by us: buckets of tokens in PostgreSQL, which all processes and companies share. Portal: 1.4

How the portal measures its minute is not known. Here a token comes back a whole minute after it was taken, so that no
minute, wherever it begins, sees more calls than a bucket has tokens; SLACK is for what passes between the taking of a
token and the arrival of its call. A bucket that refills drop by drop would have to be kept half empty for that.

Background work leaves a tenth of each bucket to people who wait, never takes the promise of a token before them, and
spreads its calls evenly: who comes late waits for the next call of somebody else, and not for a minute to pass.
"""

import asyncio
import math
import time
from dataclasses import dataclass
from datetime import timedelta

from service.db import PASSING
from service.portal.answers import Held, NotSent
from service.statements import sql

SLACK = 5  # seconds
TAXPAYER_SLACK = 1  # seconds; of a distance between two calls, which is short itself
RESERVED = 10  # of as many tokens one is not for the background
PARTS = 30  # of a span, over which background work spreads its calls where there are as many
PAGE_PATIENCE = timedelta(seconds=90)  # for the next page of a listing whose first ones would be lost


@dataclass(frozen=True, slots=True)
class Quota:
    """So many calls in so many seconds of a client id, or of each taxpayer that it calls for."""

    calls: int
    seconds: int = 60
    of_taxpayer: bool = False


#: operation of the client -> its quotas; what is not published has none.
QUOTAS = {
    "login": (Quota(12),),
    "validate_tin": (Quota(60),),
    "submit": (Quota(100),),
    "submission": (Quota(300),),
    "cancel": (Quota(12),),
    "details": (Quota(125),),
    "recent": (Quota(12),),
    "search": (Quota(1, 5, of_taxpayer=True), Quota(12)),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """At most `most` calls in any `span`, and `pace_most` in any `pace_span`; the bucket has `size` tokens."""

    most: int
    span: timedelta
    pace_most: int
    pace_span: timedelta
    size: int


def limits(quota, scale, urgent):
    """The Limits of a Quota whose rate is multiplied by `scale`, a Decimal, for urgent or for background work."""
    if quota.of_taxpayer:
        span = timedelta(seconds=float(quota.seconds / scale) + TAXPAYER_SLACK)
        return Limits(quota.calls, span, quota.calls, span, quota.calls)
    size, span = max(1, math.floor(quota.calls * scale)), timedelta(seconds=quota.seconds + SLACK)
    if urgent:
        return Limits(size, span, size, span, size)
    most = max(1, size - math.ceil(size / RESERVED))
    pace_most = most // PARTS or most  # a few are not worth spreading
    return Limits(most, span, pace_most, span * pace_most / most, size)


class Gate:
    """Where a Portal's calls take their tokens. `patience` is how long one may be waited for; longer ones are Held."""

    def __init__(self, database, config, *, urgent, patience=timedelta(0)):
        self._database = database
        self._config = config
        self._urgent = urgent
        self._patience = patience

    async def __call__(self, operation, tin, further=False):
        """Returns when the call may go. Raises Held, and NotSent when PostgreSQL cannot be asked."""
        try:
            await self._tokens(operation, tin, PAGE_PATIENCE if further else self._patience)
        except PASSING as fault:
            raise NotSent("The database cannot be asked whether the portal may be called.") from fault

    async def _tokens(self, operation, tin, patience):
        """Returns with a token of each bucket. Raises Held."""
        quotas = QUOTAS.get(operation, ()) if self._config.portal_rate_scale else ()
        if not quotas:
            return await self._heed_pause(operation)
        if len(quotas) == 1:
            return await asyncio.sleep(await self._token(operation, quotas[0], tin, patience))
        return await self._at_once(operation, quotas, tin, time.monotonic() + patience.total_seconds())

    async def _at_once(self, operation, quotas, tin, until):
        """A token of each bucket at the same time: promises of several would be kept at different times.

        What one bucket gave when the next had nothing is lost; the first is that which is soonest full again.
        """
        while True:
            try:
                for quota in quotas:
                    await self._token(operation, quota, tin, timedelta(0))
                return
            except Held as why:
                wait = why.retry_after.total_seconds()
                if time.monotonic() + wait > until:
                    raise
            await asyncio.sleep(wait)

    async def _token(self, operation, quota, tin, patience):
        """Seconds until the token is good that was taken. Raises Held when none was."""
        bounds = limits(quota, self._config.portal_rate_scale, self._urgent)
        async with self._database.across() as conn:
            row = await sql.portal_token_take(
                conn,
                client_id=self._config.portal_client_id,
                operation=operation,
                taxpayer=tin if quota.of_taxpayer else "",
                most=bounds.most,
                span=bounds.span,
                pace_most=bounds.pace_most,
                pace_span=bounds.pace_span,
                size=bounds.size,
                patience=patience,
            )
        if row["is_taken"]:
            return row["wait"].total_seconds()
        wait = max(row["wait"] or timedelta(0), timedelta(milliseconds=20))
        whose = None if quota.of_taxpayer else operation
        raise Held("The portal takes no more of these calls for a moment.", retry_after=wait, operation=whose)

    async def _heed_pause(self, operation):
        async with self._database.across() as conn:
            left = await sql.pause_left(conn, client_id=self._config.portal_client_id, operation=operation)
        if left:
            raise Held("The portal asked to wait.", retry_after=left, operation=operation)

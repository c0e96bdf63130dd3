"""The portal's rate limits: token buckets in PostgreSQL, shared by all processes. Portal: 1.4

The way the portal measures its minute is unknown. Here a token returns a whole minute after it was
taken, so that no minute, whenever it begins, has more requests than the bucket has tokens. SLACK
allows for the time between taking a token and the arrival of its request. A bucket with continuous
refill would have to be kept half empty for the same guarantee.

Background work leaves a tenth of each bucket, at least one token, to interactive requests, never
reserves a future token before them, and spreads its requests evenly: an interactive request that
finds the bucket empty waits for the next background slot and not for a whole minute.

Fair shares: while other taxpayers wait for a bucket, or were refused a token recently, a taxpayer
gets at most a third of it. A taxpayer that is alone may take more, but leaves the last tokens, so
that another one is served at once. Its submits are spread over the minute, so that the tokens of
another one return soon.

Priorities: the comparisons of held companies take the tokens of searches first, then look-ups of
unknown outcomes and everything else, then the other comparisons.
"""

import asyncio
import math
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple

from service.config import Config
from service.db.connections import TRANSIENT_DB_ERRORS, Connection
from service.db.statements import sql
from service.db.transactions import Database
from service.monitoring.gauges import Sample
from service.monitoring.metrics import PORTAL_WAITS
from service.portal.errors import Held, NotSent

SLACK = 5  # seconds
TAXPAYER_SLACK = 1  # seconds, for the limits of a taxpayer, whose intervals are short
RESERVED = 10  # background work leaves one of so many tokens
PARTS = 30  # of a span, over which background work spreads its requests
#: Maximum wait for a further page of a listing, whose first pages would be lost.
PAGE_PATIENCE = timedelta(seconds=90)
SHORTEST_WAIT = timedelta(milliseconds=20)  # between two attempts to take a token
#: Time for which a taxpayer still counts as waiting after its next attempt was due.
GRACE = timedelta(seconds=3)
#: Priorities of requests. The next one of HELD is expected within FOLLOWS, so that the comparisons
#: of held companies have all searches until they end.
HELD, USUAL, COMPARISON = 1, 2, 3
FOLLOWS = {HELD: timedelta(seconds=10)}
CROWDED = "The portal's rate limit for this operation is exhausted. Try again in a moment."
SHARE_USED = "The company's share of the portal's rate limit is exhausted. Try again in a moment."


class Quota(NamedTuple):
    """A limit of requests per time, for a client id or for each taxpayer that it represents.

    `alone` is the number for one taxpayer while no other waits: two thirds of fewer than 30
    requests, four fifths of fewer than 100, and 95 percent of more. A taxpayer may use all
    searches: they are background work, a long listing needs many, and the limit of each taxpayer
    spreads them. In each of `parts` parts of the time, a taxpayer has as many parts of the number.
    """

    calls: int
    alone: int
    seconds: int = 60
    of_taxpayer: bool = False
    parts: int = 1


#: Rate limits by operation of the client. An operation without a published limit has none.
QUOTAS: dict[str, tuple[Quota, ...]] = {
    "login": (Quota(12, 8),),
    "validate_tin": (Quota(60, 48),),
    "submit": (Quota(100, 95, parts=3),),
    "submission": (Quota(300, 285),),
    "cancel": (Quota(12, 8),),
    "details": (Quota(125, 118),),
    "raw": (Quota(60, 48),),
    "search": (Quota(1, 1, seconds=5, of_taxpayer=True), Quota(12, 12)),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a bucket of `size` tokens: `most` in any `span`, `pace_most` in any `pace_span`.

    A taxpayer gets `alone` of them in an `alone_span` while no other waits.
    """

    most: int
    span: timedelta
    pace_most: int
    pace_span: timedelta
    size: int
    alone: int
    alone_span: timedelta


def limits(quota: Quota, scale: Decimal, urgent: bool, share: Decimal = Decimal(1)) -> Limits:
    """Return the limits of a quota multiplied by `scale`, for urgent or for background work.

    `share` is the part of a client's quota that this cell uses. A taxpayer is in one cell, which
    uses its quota alone. A share of less than one request is one request in a longer time.
    """
    if quota.of_taxpayer:
        span = timedelta(seconds=float(quota.seconds / scale) + TAXPAYER_SLACK)
        return Limits(quota.calls, span, quota.calls, span, quota.calls, quota.calls, span)
    calls = max(1, math.floor(quota.calls * scale)) * share
    size = max(1, math.floor(calls))
    span = timedelta(seconds=float(quota.seconds / min(calls, Decimal(1))) + SLACK)
    alone, alone_span = math.floor(quota.alone * scale * share), span / quota.parts
    if urgent:
        return Limits(size, span, size, span, size, max(1, alone // quota.parts), alone_span)
    most = max(1, size - max(1, size // RESERVED))
    pace_most = most // PARTS or most  # few requests are not spread
    # Leave a token for the taxpayer's own urgent work.
    alone = max(1, min(most, alone - 1) // quota.parts)
    return Limits(most, span, pace_most, span * pace_most / most, size, alone, alone_span)


async def read_quotas(conn: Connection, config: Config) -> list[Sample]:
    """Return the cell's limits of the operator's client, what is left of them, and the pauses.

    Limits of taxpayers are left out. Without rate limits there are no samples.
    """
    scale, share = config.portal_rate_scale, config.portal_rate_share
    bounds = {
        operation: limits(quota, scale, urgent=True, share=share)
        for operation, quotas in QUOTAS.items()
        for quota in (quotas if scale else ())
        if not quota.of_taxpayer
    }
    rows = await sql.portal_quota_use(
        conn,
        client_id=config.portal_client_id,
        operations=list(bounds),
        spans=[bound.span for bound in bounds.values()],
    )
    found: list[Sample] = []
    for row in rows:
        labels, most = (row["operation"],), bounds[row["operation"]].most
        left, pause = max(0, most - row["used"]), row["pause"] or timedelta(0)
        found += [
            ("einvoice_portal_quota", labels, most),
            ("einvoice_portal_quota_remaining", labels, left),
            ("einvoice_portal_pause_seconds", labels, pause.total_seconds()),
        ]
    return found


@dataclass(frozen=True)
class PortalRateLimiter:
    """Takes a token for each portal request.

    Waits for one at most for `patience`, else raises Held. Without `own_client_id`, the client id
    of a company, the limits are those of the operator's client, which the companies share.
    """

    database: Database
    config: Config
    urgent: bool = field(kw_only=True)
    patience: timedelta = timedelta(0)
    priority: int = USUAL
    own_client_id: str | None = None

    async def __call__(
        self, operation: str, tin: str, further: bool = False, own_client_id: str | None = None
    ) -> None:
        """Wait until the request may be sent. Raises Held, or NotSent without PostgreSQL.

        `own_client_id` is the company's own client id; the default is the operator's.
        """
        limiter = self if own_client_id is None else replace(self, own_client_id=own_client_id)
        try:
            await limiter.acquire(operation, tin, further)
        except TRANSIENT_DB_ERRORS as error:
            raise NotSent(
                "The database is unavailable, so the portal's rate limit cannot be checked."
            ) from error

    @property
    def _client_id(self) -> str:
        return self.own_client_id or self.config.portal_client_id

    def _held(self, reason: str, wait: timedelta, operation: str | None) -> Held:
        """Return the error. Only the operator's client pauses an operation for all companies."""
        return Held(
            reason, retry_after=wait, operation=operation if self.own_client_id is None else None
        )

    async def acquire(self, operation: str, tin: str, further: bool) -> None:
        """Take a token of each bucket, waiting for a limited time. Raises Held.

        The first bucket of a further page is that of the taxpayer, and of another request that of
        the client: the one that is more likely to be empty.
        """
        quotas = QUOTAS.get(operation, ()) if self.config.portal_rate_scale else ()
        if not quotas:
            return await self._check_pause(operation)
        quotas = quotas if further else quotas[::-1]
        patience = PAGE_PATIENCE if further else self.patience
        began = time.monotonic()
        until = began + patience.total_seconds()
        while True:
            try:
                await self._take(operation, quotas, tin, until)
            except Held as held:
                wait = held.retry_after.total_seconds()
                if time.monotonic() + wait > until:
                    self._count_wait(operation, time.monotonic() + wait - began)
                    raise
            else:
                return self._count_wait(operation, time.monotonic() - began)
            await asyncio.sleep(wait)

    def _count_wait(self, operation: str, seconds: float) -> None:
        """Count a wait for the operator's client. Comparisons may wait: they use what is left."""
        if (
            self.own_client_id is None
            and self.priority < COMPARISON
            and seconds > SHORTEST_WAIT.total_seconds()
        ):
            PORTAL_WAITS.labels(operation).inc(seconds)

    async def _take(
        self, operation: str, quotas: tuple[Quota, ...], tin: str, until: float
    ) -> None:
        """Take a token of each bucket. Raises Held if one is empty.

        A future token is reserved only if there is one bucket, because reservations of several
        would come due at different times. Tokens of earlier buckets are lost when a later one is
        empty.
        """
        seconds = max(0.0, until - time.monotonic()) if len(quotas) == 1 else 0
        patience = timedelta(seconds=seconds)
        for quota in quotas:
            await asyncio.sleep(await self._take_token(operation, quota, tin, patience))

    async def _take_token(
        self, operation: str, quota: Quota, tin: str, patience: timedelta
    ) -> float:
        """Take a token and return the seconds until it is valid. Raises Held if there is none.

        A taxpayer that has used its share reserves no future token: others may be served first.
        """
        share = self.config.portal_rate_share if self.own_client_id is None else Decimal(1)
        bounds = limits(quota, self.config.portal_rate_scale, self.urgent, share)
        row = await self.database.call(
            sql.take_portal_token,
            client=self._client_id,
            asked=operation,
            bucket=tin if quota.of_taxpayer else "",
            caller=tin,
            **asdict(bounds),
            patience=patience,
            grace=GRACE,
            priority=self.priority,
            follows=FOLLOWS.get(self.priority),
        )
        if row["is_taken"]:
            return row["wait"].total_seconds()
        wait = max(row["wait"], SHORTEST_WAIT)
        if row["is_share"]:
            raise self._held(SHARE_USED, wait, None)
        raise self._held(CROWDED, wait, None if quota.of_taxpayer else operation)

    async def _check_pause(self, operation: str) -> None:
        """Raise Held during a pause that the portal has requested."""
        left = await self.database.call(
            sql.pause_left, client_id=self._client_id, operation=operation
        )
        if left:
            raise self._held("The portal requested a pause.", left, operation)

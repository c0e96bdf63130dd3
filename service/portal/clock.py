"""Comparison of the portal's clock with the database's: a large difference blocks sending.

The portal judges issue times and time limits by its clock, and the service by the database's. A
single wrong `Date` of one response must not block sending: a difference blocks only after a second
measurement confirms it, and it is measured again while it blocks, so that sending resumes when the
clocks agree.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

MOST_APART = timedelta(seconds=60)  # the largest permitted difference
MEASURE_PAUSE = 3.0  # seconds between two measurements that a difference causes
#: Seconds. In a longer measurement, as of a paused process, the times of the readings are unclear.
LONGEST_MEASUREMENT = 15.0

log = logging.getLogger(__name__)


class ClockReading(NamedTuple):
    """The time that a clock showed at `taken_at`, in monotonic seconds of this process."""

    shown: datetime
    taken_at: float

    def ahead_of(self, other: "ClockReading") -> timedelta:
        """Return how far this clock is ahead of one that may be read at another moment."""
        return (self.shown - other.shown) - timedelta(seconds=self.taken_at - other.taken_at)


#: Reads the portal's clock and the database's now. A clock that cannot be read is None.
Measure = Callable[[], Awaitable[tuple[ClockReading | None, ClockReading | None]]]


class PortalClock:
    """The latest reading of the portal's clock, and the confirmed difference that blocks sending.

    `apart_since` is the start of the block by this process's clock, or None without a block.
    """

    def __init__(self) -> None:
        self.latest: ClockReading | None = None
        self.apart_since: datetime | None = None
        self._apart: timedelta | None = None  # the confirmed difference
        self._measured_at = -math.inf
        self._measuring = asyncio.Lock()

    async def blocking_difference(
        self, database: ClockReading, measure: Measure
    ) -> timedelta | None:
        """Return how far the portal's clock is ahead if that blocks sending, else None.

        `database` is a recent reading. If the latest reading of the portal's clock differs too much
        from it, both are measured again, at most once in MEASURE_PAUSE, shared by all callers.
        """
        if self.latest is None or abs(self.latest.ahead_of(database)) <= MOST_APART:
            self._judge(None)
        else:
            async with self._measuring:
                if time.monotonic() - self._measured_at >= MEASURE_PAUSE:
                    await self._measure(measure)
        return self._apart

    async def _measure(self, measure: Measure) -> None:
        """Measure and judge. A failed measurement neither confirms nor refutes a difference."""
        began = time.monotonic()
        portal, database = await measure()
        self._measured_at = time.monotonic()
        if portal and database and self._measured_at - began <= LONGEST_MEASUREMENT:
            self.latest, ahead = portal, portal.ahead_of(database)
            self._judge(ahead if abs(ahead) > MOST_APART else None)

    def _judge(self, apart: timedelta | None) -> None:
        if (apart is None) != (self._apart is None):
            log.warning(
                "portal clock %s",
                "agrees again" if apart is None else f"is {apart.total_seconds():.0f} s ahead",
            )
        self._apart = apart
        self.apart_since = None if apart is None else self.apart_since or datetime.now(UTC)

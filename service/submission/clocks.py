"""The clock of the database, and the portal's, which must agree while anything is sent."""

import time
from datetime import timedelta

from service.db.connections import TRANSIENT_DB_ERRORS
from service.db.statements import sql
from service.errors import make_reason
from service.portal.client import Portal
from service.portal.clock import MOST_APART, ClockReading
from service.submission.context import SubmissionContext
from service.submission.machine.state_machine import NOTHING_SENT
from service.submission.machine.types import Error


async def read_database_clock(context: SubmissionContext) -> ClockReading | None:
    """Return a reading of the database's clock. None if the database does not respond."""
    try:
        async with context.database.across() as conn:
            now = await sql.database_now(conn)
    except TRANSIENT_DB_ERRORS:
        return None
    return ClockReading(now, time.monotonic())


async def compare_clocks(
    context: SubmissionContext, portal: Portal, tin: str = "", reading: ClockReading | None = None
) -> timedelta | None:
    """Return how far the portal's clock is ahead of the database's if that blocks sending.

    `reading` is a recent one of the database's clock.
    """
    reading = reading or await read_database_clock(context)
    if reading is None:
        return None

    async def measure() -> tuple[ClockReading | None, ClockReading | None]:
        return await portal.read_clock(tin), await read_database_clock(context)

    return await portal.portal_clock.blocking_difference(reading, measure)


def describe_clocks_apart(difference: timedelta) -> Error:
    """Return the error of a submission that is not sent because the clocks differ."""
    seconds, most = abs(difference).total_seconds(), MOST_APART.total_seconds()
    message = (
        f"The portal clock and the database clock differ by {seconds:.0f} seconds "
        f"(at most {most:.0f} allowed). {NOTHING_SENT}"
    )
    return make_reason("ClocksApart", message)

"""A portal clock that differs from the database's stops sending once that is confirmed, and for as long as it is so."""

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from conftest import until
from kit import created, reaches, record, submitted

from service.portal import clock
from service.portal.clock import MOST_APART, ClockReading, PortalClock
from service.submission.context import SUBMISSION_CONTEXT

DIFFERENCE = "The portal clock and the database clock differ by (\\d+) seconds \\(at most 60 allowed\\). Nothing was sent."


@pytest.mark.parametrize("seconds", [-75, 75])
@pytest.mark.parametrize("operation", ["login", "submission"])
async def test_one_wrong_date_does_not_stop_sending(api, sandbox, operation, seconds):
    await sandbox.fault(operation, "wrong_date", seconds=seconds)
    for _ in range(2):
        id = await created(api)
        assert (await submitted(api, id))[0] == 200
        await reaches(api, id, "Valid")


async def test_wrong_portal_clock_stops_sending_until_it_is_right(start, company, sandbox):
    api = await start(company, background=False)  # nothing else calls the portal
    portal = api.app[SUBMISSION_CONTEXT].portal
    await sandbox.move_clock(75)
    id = await created(api)
    status, body = await submitted(api, id)
    (error,) = body["errors"]
    assert status == 400 and error["code"] == "ClocksApart"
    assert 70 <= int(re.fullmatch(DIFFERENCE, error["message"])[1]) <= 80
    assert (await record(api, id))["status"] == "Draft" and not await sandbox.ledger()
    assert portal.clocks_apart_since is not None
    await sandbox.move_clock(-75)
    await until(lambda: submitted(api, id), lambda answer: answer[0] == 200)
    assert (await sandbox.calls())["calls"] == {"login": 1, "submit": 1}
    assert portal.clocks_apart_since is None


# The rule


def reading(ahead: float = 0) -> ClockReading:
    return ClockReading(datetime.now(UTC) + timedelta(seconds=ahead), time.monotonic())


class Measured:
    """Counts measurements, and has the portal's clock ahead by `ahead` seconds; None is a clock that cannot be read."""

    def __init__(self, ahead: float | None) -> None:
        self.ahead, self.times = ahead, 0

    async def __call__(self) -> tuple[ClockReading | None, ClockReading | None]:
        self.times += 1
        await asyncio.sleep(0)
        return None if self.ahead is None else reading(self.ahead), reading()


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(clock, "MEASURE_PAUSE", 0)


async def test_readings_of_different_moments_are_compared():
    earlier = ClockReading(datetime(2026, 1, 1, tzinfo=UTC), 100.0)
    later = ClockReading(datetime(2026, 1, 1, 0, 1, tzinfo=UTC), 150.0)
    assert later.ahead_of(earlier) == timedelta(seconds=10) == -earlier.ahead_of(later)


async def test_small_difference_is_not_measured_again():
    portal, measured = PortalClock(), Measured(0)
    portal.latest = reading(59)
    assert await portal.blocking_difference(reading(), measured) is None and measured.times == 0


async def test_portal_that_never_showed_its_clock_does_not_block():
    assert await PortalClock().blocking_difference(reading(), Measured(75)) is None


async def test_difference_that_cannot_be_confirmed_does_not_block(often):
    portal = PortalClock()
    portal.latest = reading(75)
    assert await portal.blocking_difference(reading(), Measured(None)) is None


async def test_confirmed_difference_blocks_while_it_cannot_be_measured(often):
    portal = PortalClock()
    portal.latest = reading(75)
    assert await portal.blocking_difference(reading(), Measured(75)) > MOST_APART
    since = portal.apart_since
    assert (
        await portal.blocking_difference(reading(), Measured(None)) > MOST_APART
        and portal.apart_since == since
    )
    assert (
        await portal.blocking_difference(reading(), Measured(0)) is None
        and portal.apart_since is None
    )


async def test_any_later_response_ends_the_block(often):
    portal = PortalClock()
    portal.latest = reading(-75)
    assert await portal.blocking_difference(reading(), Measured(-75)) < -MOST_APART
    portal.latest, measured = reading(), Measured(-75)
    assert await portal.blocking_difference(reading(), measured) is None and measured.times == 0


async def test_twenty_submissions_at_once_measure_once():
    portal, measured = PortalClock(), Measured(75)
    portal.latest = reading(75)
    found = await asyncio.gather(
        *[portal.blocking_difference(reading(), measured) for _ in range(20)]
    )
    assert all(found) and measured.times == 1
    # Soon after
    assert await portal.blocking_difference(reading(), measured) and measured.times == 1


async def test_measurement_that_took_too_long_confirms_nothing(often, monkeypatch):
    monkeypatch.setattr(clock, "LONGEST_MEASUREMENT", -1)
    portal = PortalClock()
    portal.latest = reading(75)
    assert await portal.blocking_difference(reading(), Measured(75)) is None

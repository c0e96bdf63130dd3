"""A confirmed difference between the portal clock and the database clock stops sending."""

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.reconcile import hold_sending, reconcile
from service.config import Config
from service.portal import clock
from service.portal.clock import MOST_APART, ClockReading, PortalClock
from service.submission.context import SUBMISSION_CONTEXT
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_invoice, wait_for_status
from tests.api_requests import submit
from tests.conftest import Client, Sandbox, StartService, until

ZERO = timedelta(0)
DIFFERENCE = (
    r"The portal clock and the database clock differ by (\d+) seconds \(at most 60 allowed\). "
    "Nothing was sent."
)


@pytest.mark.parametrize("seconds", [-75, 75])
@pytest.mark.parametrize("operation", ["login", "submission"])
async def test_a_single_wrong_date_does_not_stop_sending(
    api: Client, sandbox: Sandbox, operation: str, seconds: int
) -> None:
    await sandbox.fault(operation, "wrong_date", seconds=seconds)
    for _ in range(2):
        await create_valid_invoice(api)


async def test_a_wrong_portal_clock_stops_sending_until_corrected(
    idle: Client, sandbox: Sandbox
) -> None:
    portal = idle.app[SUBMISSION_CONTEXT].shared_portal
    await sandbox.move_clock(75)
    invoice_id = await create_invoice(idle)
    status, body = await submit(idle, invoice_id)
    (error,) = body["errors"]
    assert status == 400 and error["code"] == "ClocksApart"
    (seconds,) = re.findall(DIFFERENCE, error["message"])
    assert 70 <= int(seconds) <= 80
    assert (await get_invoice(idle, invoice_id))["status"] == "Draft" and not await sandbox.ledger()
    assert portal.portal_clock.apart_since is not None
    await sandbox.move_clock(-75)
    await until(lambda: submit(idle, invoice_id), lambda answer: answer[0] == 200)
    assert (await sandbox.calls())["calls"] == {"login": 1, "submit": 1}
    assert portal.portal_clock.apart_since is None


async def test_no_absence_is_confirmed_while_the_clocks_differ(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """One of them was set, so that the settling time may not be over."""
    await sandbox.fault("submit", "drop")
    api = await start(background=False)
    invoice_id = await create_invoice(api)
    await submit(api, invoice_id)
    await sandbox.move_clock(75)
    await start()
    settled = "select reads from submissions where clock_timestamp() > last_sent_at + interval '1s'"
    reads: Any = await until(lambda: owner.fetchval(settled))
    later = "select * from submissions where reads > $1"
    row: Any = await until(lambda: owner.fetchrow(later, reads + 2))
    assert (row["state"], row["absence_confirmations"]) == ("Uncertain", 0)
    await sandbox.move_clock(-75)
    await wait_for_status(api, invoice_id, "Draft")


async def test_a_hold_does_not_end_while_the_clocks_differ(
    api: Client, sandbox: Sandbox, config: Config
) -> None:
    await run_command(config, hold_sending, "A test.")
    await sandbox.move_clock(75)
    (found,) = (await run_command(config, reconcile))["companies"]
    assert re.search(DIFFERENCE, found["error"])
    await sandbox.move_clock(-75)
    await until(
        lambda: run_command(config, reconcile),
        lambda found: not found["companies"][0].get("held", 1),
    )


# PortalClock


def reading(ahead: float = 0) -> ClockReading:
    return ClockReading(datetime.now(UTC) + timedelta(seconds=ahead), time.monotonic())


class MeasuredClocks:
    """Clocks that differ by `ahead` seconds; None means unreadable. Counts measurements."""

    def __init__(self, ahead: float | None) -> None:
        self.ahead, self.times = ahead, 0

    async def __call__(self) -> tuple[ClockReading | None, ClockReading | None]:
        self.times += 1
        await asyncio.sleep(0)
        return None if self.ahead is None else reading(self.ahead), reading()


@pytest.fixture
def without_measure_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "MEASURE_PAUSE", 0)


async def test_clock_readings_of_different_moments_are_compared() -> None:
    earlier = ClockReading(datetime(2026, 1, 1, tzinfo=UTC), 100.0)
    later = ClockReading(datetime(2026, 1, 1, 0, 1, tzinfo=UTC), 150.0)
    assert later.ahead_of(earlier) == timedelta(seconds=10) == -earlier.ahead_of(later)


async def test_a_small_clock_difference_is_not_measured_again() -> None:
    portal, measured = PortalClock(), MeasuredClocks(0)
    portal.latest = reading(59)
    assert await portal.blocking_difference(reading(), measured) is None and measured.times == 0


async def test_an_unconfirmed_clock_difference_does_not_block(without_measure_pause: None) -> None:
    portal = PortalClock()
    portal.latest = reading(75)
    assert await portal.blocking_difference(reading(), MeasuredClocks(None)) is None


async def test_a_confirmed_clock_difference_blocks_until_measured_again(
    without_measure_pause: None,
) -> None:
    portal = PortalClock()
    portal.latest = reading(75)
    assert (await portal.blocking_difference(reading(), MeasuredClocks(75)) or ZERO) > MOST_APART
    since = portal.apart_since
    assert (await portal.blocking_difference(reading(), MeasuredClocks(None)) or ZERO) > MOST_APART
    assert portal.apart_since == since
    assert await portal.blocking_difference(reading(), MeasuredClocks(0)) is None
    assert portal.apart_since is None


async def test_concurrent_submissions_measure_the_clocks_once() -> None:
    portal, measured = PortalClock(), MeasuredClocks(75)
    portal.latest = reading(75)
    found = await asyncio.gather(
        *[portal.blocking_difference(reading(), measured) for _ in range(20)]
    )
    assert all(found) and measured.times == 1
    assert await portal.blocking_difference(reading(), measured) and measured.times == 1


async def test_a_slow_clock_measurement_confirms_nothing(
    without_measure_pause: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "LONGEST_MEASUREMENT", -1)
    portal = PortalClock()
    portal.latest = reading(75)
    assert await portal.blocking_difference(reading(), MeasuredClocks(75)) is None

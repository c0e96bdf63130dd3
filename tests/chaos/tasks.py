"""Tasks that disturb a run until it is over, each with its own seeded source of random numbers.

Times of processes are multiplied on a slow machine, as those of the service are.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from tests.harness.processes import read_peak
from tests.harness.sandbox import Administration

from . import report, schedule
from .counters import count_passes, read_marks, size_of, was_killed
from .installation import Installation
from .processes import Plan, PlannedProcess

LIVES = (0.4, 4)  # seconds that a process lives, on a machine that is not busy
LEAST_PASSES = 40  # of failpoints in a life; on a busy machine the process lives longer
LONGEST_LIFE = 8  # further seconds, even without enough passes
LONG_PAUSES = 0.25  # share of the pauses that are longer than the settling time
PLANNED = 5  # seconds that a process has to reach its planned failpoint
# Shares of the processes that are killed or stopped at a failpoint; the others have no plan.
ENDS = (("kill", 0.6), ("stop", 0.2))
RANDOM_PAUSES = 0.5  # share of the processes without a plan that are paused
DATABASE_REST = (7, 13)  # seconds between two restarts of PostgreSQL
PORTAL_REST = (1.5, 5)  # seconds between two disturbances of the portal
MOST_WAITING = {"submit": 3}  # unused errors of an operation; 1 for all others
FAULT_EVERY = 0.2  # mean seconds between two orders of an error


def make_tasks(installation: Installation) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield the tasks of a installation as coroutines."""
    yield from (hunt(installation, service) for service in installation.services)
    yield from (kill_randomly(installation, process) for process in installation.naive)
    yield order_errors(installation, installation.portal, schedule.ROWS)
    if installation.naive_portal:
        rows = {name: schedule.ROWS[name] for name in schedule.SUBMIT_ROWS}
        yield order_errors(installation, installation.naive_portal, rows)
    yield disturb_portal(installation)
    yield restart_database(installation)
    yield distort_rows(installation)
    if installation.mode.detects:
        yield vary_search_lag(installation)


async def hunt(installation: Installation, service: PlannedProcess) -> None:
    """Kill and pause a process of the service repeatedly, at failpoints and at random moments."""
    random, marks = installation.random(service.name), installation.marks
    clock = asyncio.get_running_loop().time
    while not installation.over.is_set():
        await service.kill()
        plan = _make_plan(installation, random)
        installation.counters.count("starts")
        since = size_of(marks)
        if not await service.start(plan) and not was_killed(marks, service.pid):
            installation.counters.count("starts without a database")
            await asyncio.sleep(0.1)
            continue
        end = clock() + installation.factor * (PLANNED if plan else random.uniform(*LIVES))
        if not plan and random.random() < RANDOM_PAUSES:
            await asyncio.sleep(random.uniform(0, LIVES[0] * installation.factor))
            await _pause(installation, service, random)
        await _wait_until(installation, service, random, end, since)
        if not service.is_gone:
            installation.counters.count("random kills")
            await service.kill()
        elif not was_killed(marks, service.pid):
            log = service.output()
            installation.counters.violate("ended by itself", log[-500:])
        installation.counters.count("kills")


async def _wait_until(
    installation: Installation, service: PlannedProcess, random: Random, end: float, since: int
) -> None:
    """Wait until a process ends by its plan, or its life is over. Continue it if it stops itself.

    A process that has done little at the end of its life lives longer: a submission that is
    claimed while MOST_CLAIMS processes die one after the other is taken for the cause. On a busy
    machine that would happen if lives were bounded by time only.
    """
    clock = asyncio.get_running_loop().time
    longest = end + LONGEST_LIFE * installation.factor
    while not service.is_gone and not installation.over.is_set():
        now = clock()
        if now >= longest or (
            now >= end and count_passes(installation.marks, service.pid, since) >= LEAST_PASSES
        ):
            break
        installation.counters.reach(report.PEAK, read_peak(service.pid))
        if service.is_paused:
            await _pause(installation, service, random)
            end = clock() + LIVES[0] * installation.factor  # for the work that it had claimed
        await asyncio.sleep(0.02)


async def _pause(installation: Installation, service: PlannedProcess, random: Random) -> None:
    """Pause a process for longer than a lease, sometimes for longer than the settling time."""
    seconds = random.uniform(*schedule.PAUSE) * installation.factor
    if installation.settle > seconds and random.random() < LONG_PAUSES:
        seconds = (
            installation.settle + random.uniform(*schedule.PAST_SETTLING) * installation.factor
        )
    if seconds > installation.settle:
        installation.counters.count("pauses longer than the settling time")
    installation.counters.count("pauses")
    await service.pause(seconds)


def _make_plan(installation: Installation, random: Random) -> Plan | None:
    """Return a plan for a failpoint, or None."""
    chance = random.random()
    for action, share in ENDS:
        if chance < share:
            marked, _ = read_marks(installation.marks)
            return schedule.make_plan(
                random, marked, installation.counters.counts["starts"], action
            )
        chance -= share
    return None


async def kill_randomly(installation: Installation, process: PlannedProcess) -> None:
    """Kill a process repeatedly, at random moments."""
    random = installation.random(process.name)
    while not installation.over.is_set():
        await process.start()
        await _sleep(installation, random.uniform(*LIVES))
        await process.kill()


async def order_errors(
    installation: Installation, portal: Administration, rows: Mapping[str, schedule.Row]
) -> None:
    """Order errors of a portal, each row about equally often."""
    random = installation.random("faults")
    while not installation.over.is_set():
        counted = Counter((await portal.calls())["faults"])
        waiting = Counter(fault["operation"] for fault in await portal.waiting())
        names = [
            name for name, row in rows.items() if waiting[row[0]] < MOST_WAITING.get(row[0], 1)
        ]
        if names:
            name = schedule.pick_rarest(random, names, counted)
            operation, kind, members = rows[name]
            await portal.fault(
                operation, kind, label=name, **schedule.scale(members, installation.factor)
            )
        await asyncio.sleep(FAULT_EVERY * 2 * random.random())


async def disturb_portal(installation: Installation) -> None:
    random, sandbox = installation.random("portal"), installation.sandbox
    while not await _sleep(installation, random.uniform(*PORTAL_REST) * installation.factor):
        if random.random() < 0.5:
            installation.counters.count("row portal killed")
            await sandbox.kill()
            await asyncio.sleep(random.uniform(0, 0.5))
            await sandbox.start()
        else:
            installation.counters.count("row portal paused")
            await sandbox.pause(random.uniform(*schedule.PORTAL_PAUSE))


async def distort_rows(installation: Installation) -> None:
    """Make rows of the portal unreadable, one at a time and each for some seconds."""
    random = installation.random("odd rows")
    while not await _sleep(installation, random.uniform(*schedule.ODD_REST) * installation.factor):
        ledger = await installation.portal.ledger()
        if not ledger:
            continue
        number = random.choice(ledger[-schedule.ODD_AMONG :])["number"]
        await installation.portal.show_oddly(number, **random.choice(schedule.ODD_MEMBERS))
        installation.counters.count("odd rows")
        await _sleep(installation, random.uniform(*schedule.ODD_SECONDS) * installation.factor)
        await installation.portal.show_oddly(number)


async def vary_search_lag(installation: Installation) -> None:
    """Let the portal list documents sooner or later after it accepted them."""
    random = installation.random("search lag")
    while not await _sleep(installation, random.uniform(*schedule.LAG_REST) * installation.factor):
        lag = installation.mode.sandbox["search_lag_seconds"] * random.choice(schedule.LAG_TIMES)
        await installation.portal.settings(search_lag_seconds=lag * installation.factor)


async def restart_database(installation: Installation) -> None:
    """Restart PostgreSQL, alternately in fast and in immediate mode."""
    random, number = installation.random("database"), 0
    while not await _sleep(installation, random.uniform(*DATABASE_REST) * installation.factor):
        await installation.postgres.restart(("fast", "immediate")[number % 2])
        installation.counters.count("database restarts")
        number += 1


async def _sleep(installation: Installation, seconds: float) -> bool:
    """Sleep for some seconds, or until the run is over. Return whether it is over."""
    with suppress(TimeoutError):
        await asyncio.wait_for(installation.over.wait(), seconds)
    return installation.over.is_set()

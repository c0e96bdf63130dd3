"""Who makes things go wrong: each until the season is over, each with a source of chance of its own."""

import asyncio
from collections import Counter
from contextlib import suppress

from . import report, schedule
from .counters import count_passes, killed, marks, size_of

LIVES = (0.4, 4)  # seconds that a process lives, on a machine that is not busy
LEAST_PASSES = 40  # of failpoints in a life; on a busy machine the process lives longer
LONGEST_LIFE = 8  # seconds, whether or not it came so far
LONG_PAUSES = 0.25  # of the pauses: longer than the settling time
PLANNED = 5  # seconds that one is given to come to its failpoint
# A plan of a new process ends or stops it at a failpoint; else it has none
ENDS = (("kill", 0.6), ("stop", 0.2))
RANDOM_PAUSES = 0.5  # of the processes without a plan
DATABASE_REST = (7, 13)  # between two restarts of PostgreSQL
PORTAL_REST = (1.5, 5)
MOST_WAITING = {"submit": 3}  # faults that no call has met yet; of any other operation, one
FAULT_EVERY = 0.2


def all_of(stage):
    """The actors of a stage, as coroutines."""
    yield from (hunt(stage, service) for service in stage.services)
    yield from (hunt_simply(stage, process) for process in stage.naive)
    yield vex(stage, stage.portal, schedule.ROWS)
    if stage.naive:
        yield vex(
            stage, stage.naive_portal, {name: schedule.ROWS[name] for name in schedule.SUBMIT_ROWS}
        )
    yield unsettle(stage)
    yield restart(stage)
    yield distort_rows(stage)


async def hunt(stage, service):
    """Kills a process of the service again and again, at random moments and at named ones, and holds it up."""
    random = stage.random(service.name)
    while not stage.over.is_set():
        await service.kill()
        plan = _plan(stage, random)
        stage.counters.count("starts")
        since = size_of(stage.launcher.marks)
        if not await service.start(plan) and not killed(stage.launcher.marks, service.pid):
            stage.counters.count("starts without a database")
            await asyncio.sleep(0.1)
            continue
        end = asyncio.get_running_loop().time() + (PLANNED if plan else random.uniform(*LIVES))
        if not plan and random.random() < RANDOM_PAUSES:
            await asyncio.sleep(random.uniform(0, LIVES[0]))
            await _pause(stage, service, random)
        await _end(stage, service, random, end, since)


async def _end(stage, service, random, end, since):
    """Wait for what was planned, or until `end`, and kill the process. One that stopped itself goes on after a while.

    A process that did little by then lives longer: a submission that is in hand when MOST_CLAIMS processes die, one after
    the other, is taken for the cause. On a busy machine that happens if lives are bounded by time only.
    """
    clock = asyncio.get_running_loop().time
    longest = end + LONGEST_LIFE
    while not service.gone and not stage.over.is_set():
        now = clock()
        if now >= longest or (
            now >= end and count_passes(stage.launcher.marks, service.pid, since) >= LEAST_PASSES
        ):
            break
        stage.counters.reach(report.PEAK, service.peak())
        if service.stopped:
            await _pause(stage, service, random)
            end = clock() + LIVES[0]  # to see what it does with what it held
        await asyncio.sleep(0.02)
    if not service.gone:
        stage.counters.count("random kills")
        await service.kill()
    elif not killed(stage.launcher.marks, service.pid):
        stage.counters.violate("ended by itself", stage.launcher.log(service.name)[-500:])
    stage.counters.count("kills")


async def _pause(stage, service, random):
    """Pause a process for longer than a lease, sometimes for longer than the settling time."""
    seconds = random.uniform(*schedule.PAUSE)
    settle = float(stage.mode.settle)
    if settle > seconds and random.random() < LONG_PAUSES:
        seconds = settle + random.uniform(*schedule.PAST_SETTLING)
    if seconds > settle:
        stage.counters.count("pauses longer than the settling time")
    stage.counters.count("pauses")
    await service.pause(seconds)


def _plan(stage, random):
    """A plan for a failpoint, or none."""
    chance = random.random()
    for action, share in ENDS:
        if chance < share:
            marked, _ = marks(stage.launcher.marks)
            return schedule.plan(random, marked, stage.counters.counts["starts"], action)
        chance -= share
    return None


async def hunt_simply(stage, process):
    """Kills a process at random moments."""
    random = stage.random(process.name)
    while not stage.over.is_set():
        await process.start()
        await _over(stage, random.uniform(*LIVES))
        await process.kill()


async def vex(stage, portal, rows):
    """Orders a portal's faults, of each row as many."""
    random = stage.random("faults")
    while not stage.over.is_set():
        counted = Counter((await portal.calls())["faults"])
        waiting = Counter(fault["operation"] for fault in await portal.waiting())
        names = [
            name for name, row in rows.items() if waiting[row[0]] < MOST_WAITING.get(row[0], 1)
        ]
        if names:
            name = schedule.rarest(random, names, counted)
            operation, kind, members = rows[name]
            await portal.fault(operation, kind, label=name, **members)
        await asyncio.sleep(FAULT_EVERY * 2 * random.random())


async def unsettle(stage):
    """Kills and pauses the portal itself."""
    random, sandbox = stage.random("portal"), stage.sandbox
    while not await _over(stage, random.uniform(*PORTAL_REST)):
        if random.random() < 0.5:
            stage.counters.count("row portal killed")
            await sandbox.kill()
            await asyncio.sleep(random.uniform(0, 0.5))
            await sandbox.start()
        else:
            stage.counters.count("row portal paused")
            await sandbox.pause(random.uniform(*schedule.PORTAL_PAUSE))


async def distort_rows(stage):
    """Have the portal show documents in a form that the service cannot read, one at a time, each for a while."""
    random = stage.random("odd rows")
    while not await _over(stage, random.uniform(*schedule.ODD_REST)):
        ledger = await stage.portal.ledger()
        if not ledger:
            continue
        number = random.choice(ledger[-schedule.ODD_AMONG :])["number"]
        await stage.portal.distort(number, random.choice(schedule.ODD_MEMBERS))
        stage.counters.count("odd rows")
        await _over(stage, random.uniform(*schedule.ODD_SECONDS))
        await stage.portal.distort(number, None)


async def restart(stage):
    """Restarts PostgreSQL, by turns the gentle way and the other."""
    random, number = stage.random("database"), 0
    while not await _over(stage, random.uniform(*DATABASE_REST)):
        await stage.postgres.restart(("fast", "immediate")[number % 2])
        stage.counters.count("database restarts")
        number += 1


async def _over(stage, seconds):
    """Whether the season was over within so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stage.over.wait(), seconds)
    return stage.over.is_set()

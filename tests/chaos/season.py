"""One seed: everything is started, everything goes wrong, everything is started again, and the judge is asked."""

import asyncio
import math
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from . import actors, judge, naive, report, schedule
from .clients import Clients
from .counters import Counters, marks
from .stage import Stage

SETTLING = 60  # seconds within which the last unknown outcome has to be found
LOST = 0.004  # share of the commits whose answer is lost
# Share of the messages to PostgreSQL at which a connection is cut, or falls silent
CUT = SILENT = 0.0004
PROGRESS_SECONDS = 1.0


@dataclass(frozen=True)
class Size:
    """How much has to happen at least; `least` of each event of `report.wanted`.

    `seconds` is the longest time that it may take, `pause` the mean pause of a writer between two scenes.
    """

    documents: int = 400
    kills: int = 100
    pauses: int = 20
    restarts: int = 6
    naive: int = 300
    seconds: int = 400
    least: int = 2
    writers: int = 14
    pause: float = 0.4


async def play(seed, mode, size, keep=None):
    """The Counters of one seed. `keep`: a directory in which its logs and data stay."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        home = Path(keep or temporary)
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o755)  # PostgreSQL may run as another user
        counters = Counters()
        stage = Stage(seed, mode, home, counters)
        async with AsyncExitStack() as stack:
            await stage.open(stack, 0 if mode.detects else size.naive)
            await Season(stage, size).run()
    return counters


class Season:
    """What happens on a stage."""

    def __init__(self, stage, size):
        self._stage, self._size = stage, size
        self._counters = stage.counters
        bases = [service.base for service in stage.services]
        promised = stage.mode.detects
        self._clients = Clients(
            bases, stage.companies, stage.random("clients"), stage.counters, promised
        )
        self._began = time.monotonic()

    async def run(self):
        await self._suffer()
        await self._recover()
        await self._count()

    async def _suffer(self):
        """Run all actors until everything has happened often enough, or the time is over."""
        stage, size = self._stage, self._size
        stage.proxy.lost, stage.proxy.cut, stage.proxy.silent = LOST, CUT, SILENT
        async with asyncio.TaskGroup() as group:
            for actor in actors.all_of(stage):
                group.create_task(actor)
            group.create_task(self._clients.run(size.writers, size.pause))
            while missing := await self._find_missing():
                if time.monotonic() - self._began > size.seconds:
                    evidence = ", ".join(f"{name} {number}" for name, number in missing.items())
                    self._counters.violate(
                        "too little time", f"missing after {size.seconds} seconds: {evidence}"
                    )
                    break
                await asyncio.sleep(PROGRESS_SECONDS)
            stage.over.set()
            self._clients.stopping.set()

    async def _find_missing(self) -> dict[str, int]:
        """Return {event: how many more are needed} of what has not happened often enough."""
        seen, size = Counters(), self._size
        seen.add(self._counters)
        await self._observe(seen)
        self._counters.reach(report.CLAIMS, seen.highest[report.CLAIMS])
        missing = {
            "documents": size.documents - self._clients.count_created(),
            "kills": size.kills - seen.counts["kills"],
            "pauses": size.pauses - seen.counts["pauses"],
            "database restarts": size.restarts - seen.counts["database restarts"],
        }
        missing |= {
            name: size.least - number
            for name, number in seen.seldom(report.wanted(seen), size.least).items()
        }
        if self._stage.naive:
            jobs_end = (size.naive + 1) * naive.EVERY
            missing["seconds of the naive worker"] = math.ceil(
                jobs_end - (time.monotonic() - self._began)
            )
        return {name: number for name, number in missing.items() if number > 0}

    async def _recover(self):
        """Ends the faults, starts all processes anew, waits for the last outcome, and has everything judged."""
        stage = self._stage
        stage.proxy.lost = stage.proxy.cut = stage.proxy.silent = 0
        await stage.portal.clear()
        for process in (*stage.naive, *stage.services):
            await process.kill()
        await asyncio.gather(*[service.start() for service in stage.services])
        took = await judge.settled(stage.postgres.url, SETTLING)
        self._counters.reach("seconds to settle", SETTLING if took is None else round(took, 1))
        await stage.portal.settings(search_lag_seconds=0)
        findings = await judge.swept(stage.environment)
        told, detects = self._clients.records, stage.mode.detects
        facts = await judge.collected(stage.postgres.url, stage.portal, told, detects, findings)
        judge.judge(facts, self._counters)

    async def _count(self):
        """Add the figures that are only final at the end."""
        stage, counters = self._stage, self._counters
        await self._observe(counters)
        for service in stage.services:
            counters.reach(report.PEAK, service.peak())
        if stage.naive:
            ledger = await stage.naive_portal.ledger()
            counters.count("naive duplicates", naive.duplicates(ledger))
            counters.count("naive documents", self._size.naive)
        counters.count("seconds", round(time.monotonic() - self._began))

    async def _observe(self, counters: Counters) -> None:
        """Add what processes, sandbox and clients have recorded so far."""
        stage = self._stage
        marked, memory = marks(stage.launcher.marks)
        counters.reach(report.CLAIMS, await judge.most_claims(stage.postgres.url))
        counters.reach(report.PEAK, memory)
        for (what, name), number in marked.items():
            counters.count(f"{what} {name}", number)
        calls = await stage.portal.calls()
        for label, number in calls["faults"].items():
            counters.count(f"row {label}", number)
        if stage.mode.sandbox["payload_detection"]:
            known = calls["answers"].get("submit", {}).get("422", 0) - calls["faults"].get(
                schedule.TAKEN_BEFORE, 0
            )
            counters.count(f"row {schedule.KNOWN_AGAIN}", known)
        counters.count("row 202 accepted", calls["answers"].get("submit", {}).get("202", 0))
        counters.count(report.ALL_KINDS, not stage.mode.detects)
        for name, number in self._clients.count_acknowledged().items():
            counters.count(name, number)

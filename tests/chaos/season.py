"""One seed: everything is started, everything goes wrong, everything is started again, and the judge is asked."""

import asyncio
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
LOST, CUT = 0.004, 0.0004  # of the commits, of all messages to PostgreSQL


@dataclass(frozen=True)
class Size:
    """How much has to happen; `seconds` is the longest it may take, `pause` a writer's between two scenes."""

    documents: int = 400
    kills: int = 100
    pauses: int = 20
    restarts: int = 6
    naive: int = 300
    seconds: int = 400
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
        self._clients = Clients(bases, stage.companies, stage.random("clients"), stage.counters, promised)
        self._began = time.monotonic()

    async def run(self):
        await self._suffer()
        await self._recover()
        await self._count()

    async def _suffer(self):
        """All actors, until enough has happened or the time is over."""
        stage, size = self._stage, self._size
        stage.proxy.lost, stage.proxy.cut = LOST, CUT
        async with asyncio.TaskGroup() as group:
            for actor in actors.all_of(stage):
                group.create_task(actor)
            group.create_task(self._clients.run(size.writers, size.pause))
            while not self._is_enough():
                await asyncio.sleep(0.1)
            stage.over.set()
            self._clients.stopping.set()

    def _is_enough(self):
        counts, size, seconds = self._counters.counts, self._size, time.monotonic() - self._began
        left = {
            "documents": size.documents - self._clients.created(),
            "kills": size.kills - counts["kills"],
            "pauses": size.pauses - counts["pauses"],
            "database restarts": size.restarts - counts["database restarts"],
        }
        left = {name: number for name, number in left.items() if number > 0}
        if left and seconds > size.seconds:
            self._counters.violate("too little time", f"after {size.seconds} seconds there are left {left}")
            return True
        return not left and (not self._stage.naive or seconds > (size.naive + 1) * naive.EVERY)

    async def _recover(self):
        """Ends the faults, starts all processes anew, waits for the last outcome, and has everything judged."""
        stage = self._stage
        stage.proxy.lost = stage.proxy.cut = 0
        await stage.portal.clear()
        for process in (*stage.naive, *stage.services):
            await process.kill()
        await asyncio.gather(*[service.start() for service in stage.services])
        took = await judge.settled(stage.postgres.url, SETTLING)
        self._counters.reach("seconds to settle", SETTLING if took is None else round(took, 1))
        await stage.portal.settings(search_lag_seconds=0)
        findings = await judge.swept(stage.environment)
        told, detects = self._clients.invoices, stage.mode.detects
        facts = await judge.collected(stage.postgres.url, stage.portal, told, detects, findings)
        judge.judge(facts, self._counters)

    async def _count(self):
        stage, counters = self._stage, self._counters
        marked, memory = marks(stage.launcher.marks)
        for (what, name), number in marked.items():
            counters.count(f"{what} {name}", number)
        for memory in (memory, *[service.peak() for service in stage.services]):
            counters.reach(report.PEAK, memory)
        calls = await stage.portal.calls()
        for label, number in calls["faults"].items():
            counters.count(f"row {label}", number)
        if stage.mode.sandbox["payload_detection"]:
            known = calls["answers"].get("submit", {}).get("422", 0) - calls["faults"].get(schedule.TAKEN_BEFORE, 0)
            counters.count(f"row {schedule.KNOWN_AGAIN}", known)
        counters.count("row 202 accepted", counters.counts["documents in the ledger"])
        if stage.naive:
            ledger = await stage.naive_portal.ledger()
            counters.count("naive duplicates", naive.duplicates(ledger))
            counters.count("naive documents", self._size.naive)
        for name, number in self._clients.told().items():
            counters.count(name, number)
        counters.count("seconds", round(time.monotonic() - self._began))

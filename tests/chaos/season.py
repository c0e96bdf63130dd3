"""One seed: start everything, disturb it, start it again, wait for the last outcome, and judge."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from harness.processes import read_peak

from . import actors, judge, naive, report, schedule
from .clients import Clients
from .counters import Counters, read_marks
from .facts import Known, Source, collect_facts
from .stage import Stage

SETTLING = 60  # seconds in which one of the unknown outcomes must be resolved
HANG = 60  # seconds in which a document must be created
#: A run in which events are still missing ends after so many times the documents that it needs.
MOST_DOCUMENTS = 3
LOST = 0.004  # share of the commits whose response is lost
# Share of the messages to PostgreSQL at which a connection is cut, or falls silent.
CUT = SILENT = 0.0004
PROGRESS_SECONDS = 1.0
MEASURED = 3  # measurements, of which the median counts


@dataclass(frozen=True)
class Size:
    """Minimum numbers of events of a seed; `least` of each event of `report.select_wanted`.

    After `seconds` the run ends although events are missing, if the service has done enough work.
    Both are meant for a machine that is not slow. `pause` is the mean pause of a writer between two
    scenes.
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


async def play(
    seed: int, mode: schedule.Mode, size: Size, keep: str | Path | None = None
) -> Counters:
    """Run one seed. `keep`: a directory in which its logs and data remain."""
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


class Progress:
    """Decides when a run must end although events are missing.

    A busy machine is given the time that it needs: missing events are too rare only in a run that
    has done enough work. A service that does no work hangs. `factor` multiplies all times.
    """

    def __init__(
        self, size: Size, factor: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._size, self._factor, self._clock = size, factor, clock
        self._began = self._latest = clock()
        self._created = 0

    def find_end(self, created: int) -> str | None:
        """Return why the run must end, or None. `created` is the number of documents so far."""
        now = self._clock()
        if created > self._created:
            self._created, self._latest = created, now
        if now - self._latest > HANG * self._factor:
            return f"hang: no document was created for {now - self._latest:.0f} seconds"
        is_over = now - self._began > self._size.seconds * self._factor
        if is_over and created > self._size.documents * MOST_DOCUMENTS:
            return f"too seldom in {now - self._began:.0f} seconds with {created} documents"
        return None


class Season:
    """The course of a seed on its stage."""

    def __init__(self, stage: Stage, size: Size) -> None:
        self._stage, self._size = stage, size
        self._counters = stage.counters
        bases = [service.base for service in stage.services]
        promised = stage.mode.detects
        self._clients = Clients(
            bases, stage.companies, stage.random("clients"), stage.counters, promised
        )
        self._began = time.monotonic()

    async def run(self) -> None:
        """Measure the machine, run the actors, recover, judge, and count."""
        await self._measure()
        await self._run_actors()
        await self._recover()
        await self._judge()
        await self._count()

    async def _measure(self) -> None:
        """Multiply the times of the run if the machine is slow."""
        seconds = median([await self._clients.measure(self._size.writers) for _ in range(MEASURED)])
        self._counters.reach(report.PACE, round(seconds, 2))
        await self._stage.slow_down(max(1.0, seconds / schedule.USUAL_SECONDS))

    async def _run_actors(self) -> None:
        """Run all actors until every event has happened often enough, or the time is over."""
        stage, size = self._stage, self._size
        progress = Progress(size, stage.factor)
        stage.receiver.fails = True
        stage.proxy.lost, stage.proxy.cut, stage.proxy.silent = LOST, CUT, SILENT
        async with asyncio.TaskGroup() as group:
            for actor in actors.make_actors(stage):
                group.create_task(actor)
            group.create_task(self._clients.run(size.writers, size.pause))
            while missing := await self._find_missing():
                if end := progress.find_end(self._clients.count_created()):
                    evidence = ", ".join(f"{name} {number}" for name, number in missing.items())
                    self._counters.violate(end, f"missing: {evidence}")
                    break
                await asyncio.sleep(PROGRESS_SECONDS)
            stage.over.set()
            self._clients.stopping.set()

    async def _find_missing(self) -> dict[str, int]:
        """Return {event: how many more are needed} of the events that were too rare."""
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
            for name, number in seen.seldom(report.select_wanted(seen), size.least).items()
        }
        if self._stage.naive:
            missing["jobs of the naive worker"] = await naive.count_open(self._stage.postgres.url)
        return {name: number for name, number in missing.items() if number > 0}

    async def _recover(self) -> None:
        """End all errors, restart all services, and wait until every outcome is known."""
        stage = self._stage
        stage.proxy.lost = stage.proxy.cut = stage.proxy.silent = 0
        stage.receiver.fails = False
        await stage.portal.clear()
        await stage.configure_portal()
        for process in (*stage.naive, *stage.services):
            await process.kill()
        await asyncio.gather(*[service.start() for service in stage.services])
        await self._clients.repeat_unanswered(self._size.writers)
        limit = SETTLING * stage.factor
        seconds = await judge.wait_until_settled(stage.postgres.url, limit)
        self._counters.reach("seconds to settle", limit if seconds is None else round(seconds, 1))

    async def _judge(self) -> None:
        """Compare the portal, the database and the acknowledged effects."""
        stage = self._stage
        await stage.portal.settings(search_lag_seconds=0)
        findings = await judge.run_sweep(stage.environment)
        source = Source(stage.postgres.url, stage.portal, stage.services[0].base, stage.companies)
        known = Known(self._clients.records, self._clients.keyed, stage.receiver.endpoints)
        facts = await collect_facts(source, known, stage.mode.detects, findings)
        judge.judge(facts, self._counters)

    async def _count(self) -> None:
        """Add the figures that are final only at the end."""
        stage, counters = self._stage, self._counters
        await self._observe(counters)
        for service in stage.services:
            counters.reach(report.PEAK, read_peak(service.pid))
        if stage.naive_portal:
            ledger = await stage.naive_portal.ledger()
            counters.count("naive duplicates", naive.count_duplicates(ledger))
            counters.count("naive documents", self._size.naive)
        counters.count("seconds", round(time.monotonic() - self._began))

    async def _observe(self, counters: Counters) -> None:
        """Add the events that processes, sandbox and clients have recorded so far."""
        stage = self._stage
        marked, memory = read_marks(stage.marks)
        counters.reach(report.CLAIMS, await judge.most_claims(stage.postgres.url))
        counters.reach(report.PEAK, memory)
        for (what, name), number in marked.items():
            counters.count(f"{what} {name}", number)
        calls = await stage.portal.calls()
        for label, number in calls["faults"].items():
            counters.count(f"row {label}", number)
        submits = calls["answers"].get("submit", {})
        if stage.mode.sandbox["payload_detection"]:
            ordered = calls["faults"].get(schedule.TAKEN_BEFORE, 0)
            counters.count(f"row {schedule.KNOWN_AGAIN}", submits.get("422", 0) - ordered)
        counters.count("row 202 accepted", submits.get("202", 0))
        counters.count(report.ALL_KINDS, not stage.mode.detects)
        for name, number in self._clients.count_acknowledged().items():
            counters.count(name, number)

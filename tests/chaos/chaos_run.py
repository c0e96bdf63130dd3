"""One seed: start everything, disturb it, start it again, wait for the last outcome, and judge."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.harness.processes import read_peak

from . import judge, naive, report, schedule, tasks
from .clients import Clients
from .counters import Counters, read_marks
from .facts import Known, Source, collect_facts
from .installation import Installation

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
        installation = Installation(seed, mode, home, counters)
        async with AsyncExitStack() as stack:
            await installation.open(stack, 0 if mode.detects else size.naive)
            await ChaosRun(installation, size).run()
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


class ChaosRun:
    """The course of a seed on its installation."""

    def __init__(self, installation: Installation, size: Size) -> None:
        self._installation, self._size = installation, size
        self._counters = installation.counters
        bases = [service.base for service in installation.services]
        promised = installation.mode.detects
        self._clients = Clients(
            bases,
            installation.companies,
            installation.random("clients"),
            installation.counters,
            promised,
        )
        self._began = time.monotonic()

    async def run(self) -> None:
        """Measure the machine, run the tasks, recover, judge, and count."""
        await self._measure()
        await self._run_tasks()
        await self._recover()
        await self._judge()
        await self._count()

    async def _measure(self) -> None:
        """Multiply the times of the run if the machine is slow."""
        seconds = median([await self._clients.measure(self._size.writers) for _ in range(MEASURED)])
        self._counters.reach(report.PACE, round(seconds, 2))
        await self._installation.slow_down(max(1.0, seconds / schedule.USUAL_SECONDS))

    async def _run_tasks(self) -> None:
        """Run all tasks until every event has happened often enough, or the time is over."""
        installation, size = self._installation, self._size
        progress = Progress(size, installation.factor)
        installation.receiver.fails = True
        proxy = installation.proxy
        proxy.lost, proxy.cut, proxy.silent = LOST, CUT, SILENT
        async with asyncio.TaskGroup() as group:
            for actor in tasks.make_tasks(installation):
                group.create_task(actor)
            group.create_task(self._clients.run(size.writers, size.pause))
            while missing := await self._find_missing():
                if end := progress.find_end(self._clients.count_created()):
                    evidence = ", ".join(f"{name} {number}" for name, number in missing.items())
                    self._counters.violate(end, f"missing: {evidence}")
                    break
                await asyncio.sleep(PROGRESS_SECONDS)
            installation.over.set()
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
        if self._installation.naive:
            missing["jobs of the naive worker"] = await naive.count_open(
                self._installation.postgres.url
            )
        return {name: number for name, number in missing.items() if number > 0}

    async def _recover(self) -> None:
        """End all errors, restart all services, and wait until every outcome is known."""
        installation = self._installation
        installation.proxy.lost = installation.proxy.cut = installation.proxy.silent = 0
        installation.receiver.fails = False
        await installation.portal.clear()
        await installation.configure_portal()
        for process in (*installation.naive, *installation.services):
            await process.kill()
        await asyncio.gather(*[service.start() for service in installation.services])
        await self._clients.repeat_unanswered(self._size.writers)
        limit = SETTLING * installation.factor
        seconds = await judge.wait_until_settled(installation.postgres.url, limit)
        self._counters.reach("seconds to settle", limit if seconds is None else round(seconds, 1))

    async def _judge(self) -> None:
        """Compare the portal, the database and the acknowledged effects."""
        installation = self._installation
        await installation.portal.settings(search_lag_seconds=0)
        findings = await judge.run_comparison(installation.environment)
        source = Source(
            installation.postgres.url,
            installation.portal,
            installation.services[0].base,
            installation.companies,
        )
        known = Known(self._clients.records, self._clients.keyed, installation.receiver.endpoints)
        facts = await collect_facts(source, known, installation.mode.detects, findings)
        judge.judge(facts, self._counters)

    async def _count(self) -> None:
        """Add the figures that are final only at the end."""
        installation, counters = self._installation, self._counters
        await self._observe(counters)
        for service in installation.services:
            counters.reach(report.PEAK, read_peak(service.pid))
        if installation.naive_portal:
            ledger = await installation.naive_portal.ledger()
            counters.count("naive duplicates", naive.count_duplicates(ledger))
            counters.count("naive documents", self._size.naive)
        counters.count("seconds", round(time.monotonic() - self._began))

    async def _observe(self, counters: Counters) -> None:
        """Add the events that processes, sandbox and clients have recorded so far."""
        installation = self._installation
        marked, memory = read_marks(installation.marks)
        counters.reach(report.CLAIMS, await judge.most_claims(installation.postgres.url))
        counters.reach(report.PEAK, memory)
        for (what, name), number in marked.items():
            counters.count(f"{what} {name}", number)
        calls = await installation.portal.calls()
        for label, number in calls["faults"].items():
            counters.count(f"row {label}", number)
        submits = calls["answers"].get("submit", {})
        if installation.mode.sandbox["payload_detection"]:
            ordered = calls["faults"].get(schedule.TAKEN_BEFORE, 0)
            counters.count(f"row {schedule.KNOWN_AGAIN}", submits.get("422", 0) - ordered)
        counters.count("row 202 accepted", submits.get("202", 0))
        counters.count(report.ALL_KINDS, not installation.mode.detects)
        for name, number in self._clients.count_acknowledged().items():
            counters.count(name, number)

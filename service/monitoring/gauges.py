"""The gauges that a scrape reads, from this process and from the database.

Gauges of the database are those of the whole installation, and the same in every process.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service import json_codec
from service.db.connections import TRANSIENT_DB_ERRORS, Connection
from service.db.pool import Pool
from service.db.standby import StandbyReads
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import describe_error
from service.json_types import JsonObject
from service.monitoring.watchdog import Watchdog

#: metric -> {labels, description}
GAUGES: dict[str, JsonObject] = json_codec.load_data(__file__)
#: Suffix of a metric -> its column in waiting_work().
_COLUMNS = (("", "n"), ("_due", "due"), ("_due_seconds", "due_for"), ("_oldest_seconds", "age"))
CACHE_SECONDS = 5.0  # for which one reading of the database answers all scrapes
READ_SECONDS = 3.0  # for one reading; scrapes are given up after ten

#: A metric, the values of its labels, and its value.
Sample = tuple[str, tuple[str, ...], float]
Source = Callable[[], Iterable[Sample]]
Reader = Callable[[Connection], Awaitable[Iterable[Sample]]]

log = logging.getLogger(__name__)


class Gauges(Collector):
    """The gauges of one application: of the database, and from the sources that its parts add.

    The connection of the watchdog reads the database, at most once in CACHE_SECONDS, so that a full
    pool does not hide its gauges. While the database does not answer in time, there are none except
    einvoice_database_up.
    """

    def __init__(self, database: Database, watchdog: Watchdog, readers: Sequence[Reader]) -> None:
        self._database = database
        self._watchdog = watchdog
        self._readers = readers
        self._sources: list[Source] = []
        self._turn = asyncio.Lock()
        self._read_at = -math.inf
        self._samples: list[Sample] = []  # of the last reading of the database

    def add(self, source: Source) -> None:
        """Read a source at each scrape."""
        self._sources.append(source)

    def collect(self) -> Iterator[Metric]:
        """Yield all gauges, also those that have no samples."""
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for name, gauge in GAUGES.items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            families[name] = family(name, gauge["description"], labels=gauge["labels"])
        sources = (source() for source in self._sources)
        for name, labels, value in chain(self._samples, _read_watchdog(self._watchdog), *sources):
            families[name].add_metric(labels, value)
        yield from families.values()

    async def refresh(self) -> None:
        """Read the database, unless the last reading is recent."""
        async with self._turn:
            if time.monotonic() - self._read_at >= CACHE_SECONDS:
                self._samples = await self._read()
                self._read_at = time.monotonic()

    async def _read(self) -> list[Sample]:
        found: list[Sample] = [("einvoice_database_up", (), 1)]
        try:
            async with asyncio.timeout(READ_SECONDS), self._database.across() as conn:
                for read in self._readers:
                    found += await read(conn)
        except TRANSIENT_DB_ERRORS as error:
            log.warning("metrics: %s", describe_error(error))
            return [("einvoice_database_up", (), 0)]
        return found


async def read_waiting(conn: Connection) -> list[Sample]:
    """Return the gauges of submissions and webhook deliveries of all companies."""
    found: list[Sample] = []
    for row in await sql.waiting_work(conn):
        name = f"einvoice_{row['subject']}"
        labels = (row["state"],) if row["state"] else ()
        found += [
            (f"{name}{suffix}", labels, _to_number(row[column]))
            for suffix, column in _COLUMNS
            if f"{name}{suffix}" in GAUGES
        ]
    return found


def _to_number(value: int | timedelta | None) -> float:
    """Return a count, or a time in seconds. Nothing waits if there is none."""
    if isinstance(value, timedelta):
        return max(0.0, value.total_seconds())
    return value or 0


def _read_watchdog(watchdog: Watchdog) -> Iterator[Sample]:
    """Yield the counts of the watchdog, and the ages of the conditions of /readyz."""
    attention = [row for row in watchdog.rows if row.subject == "attention"]
    for row in (*watchdog.overdue, *attention):
        yield f"einvoice_{row.subject}", (row.kind,), row.n
    for condition in watchdog.conditions:
        yield "einvoice_condition_seconds", (condition.kind,), condition.age


def read_pool(name: str, pool: Pool) -> Iterator[Sample]:
    yield "einvoice_pool_size", (name,), pool.size
    yield "einvoice_pool_in_use", (name,), pool.in_use
    yield "einvoice_pool_waiting", (name,), pool.waiting


def read_reads(reads: StandbyReads) -> Iterator[Sample]:
    for target, number in reads.counts.items():
        yield "einvoice_reads_total", (target,), number

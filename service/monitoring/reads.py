"""The metrics of reads on a standby."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.db.standby import StandbyReads


@dataclass(frozen=True, eq=False, slots=True)
class ReadsCollector(Collector):
    """Reads the metrics of the reads of a process."""

    reads: StandbyReads

    def collect(self) -> Iterator[Metric]:
        """Yield the number of reads by server, and whether the standby is used."""
        reads = CounterMetricFamily(
            "einvoice_reads",
            "Reads of this process, by the server that they ran on.",
            labels=("target",),
        )
        for target, number in sorted(self.reads.counts.items()):
            reads.add_metric((target,), number)
        yield reads
        yield GaugeMetricFamily(
            "einvoice_standby_used",
            "1 if reads try the standby, 0 if they run on the primary.",
            float(self.reads.cause is None),
        )

"""The metrics of reads on a standby."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.db.standby import StandbyReads


@dataclass(frozen=True, eq=False, slots=True)
class ReadsCollector(Collector):
    """Reads the metrics of the reads of a process."""

    reads: StandbyReads

    def collect(self) -> Iterator[Metric]:
        """Yield the number of reads by server and reason, and whether the standby is used."""
        counts: Mapping[tuple[str, str], int] = self.reads.counts
        reads = CounterMetricFamily(
            "einvoice_reads",
            "Reads of this process, by the server that they ran on and why it was the primary.",
            labels=("target", "reason"),
        )
        for labels, number in sorted(counts.items()):
            reads.add_metric(labels, number)
        yield reads
        yield GaugeMetricFamily(
            "einvoice_standby_used",
            "1 if reads try the standby, 0 if they run on the primary.",
            float(self.reads.reason is None),
        )

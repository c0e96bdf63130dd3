"""The metrics of a process in the text format of Prometheus."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.monitoring.event_loop import EventLoopMonitor
from service.monitoring.watchdog import Watchdog

#: metric -> (its label, its description)
GAUGES = {
    "einvoice_submissions": ("state", "Submissions that wait, by state."),
    "einvoice_submissions_due_seconds": ("state", "Seconds since the oldest of them became due."),
    "einvoice_overdue": ("kind", "Overdue work, by kind."),
    "einvoice_overdue_seconds": ("kind", "Age of the oldest overdue work in seconds, by kind."),
    "einvoice_attention": ("kind", "Items that need a person, by kind."),
    "einvoice_attention_seconds": (
        "kind",
        "Age of the oldest item that needs a person in seconds, by kind.",
    ),
}


@dataclass(frozen=True, eq=False, slots=True)
class ProcessCollector(Collector):
    """Reads the current metrics of a process. `counts` are {(method, route, status): requests}."""

    watchdog: Watchdog
    monitor: EventLoopMonitor
    counts: Mapping[tuple[str, str, int], int]

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        states, attention = self.watchdog.of("state"), self.watchdog.of("attention")
        overdue = self.watchdog.overdue
        values: dict[str, dict[str, float]] = {
            "einvoice_submissions": {row.kind: row.n for row in states},
            "einvoice_submissions_due_seconds": {row.kind: max(0, row.age) for row in states},
            "einvoice_overdue": {kind: n for kind, (n, _) in overdue.items()},
            "einvoice_overdue_seconds": {kind: age for kind, (_, age) in overdue.items()},
            "einvoice_attention": {row.kind: row.n for row in attention},
            "einvoice_attention_seconds": {row.kind: row.age for row in attention},
        }
        for name, (label, description) in GAUGES.items():
            gauge = GaugeMetricFamily(name, description, labels=(label,))
            for text, value in values[name].items():
                gauge.add_metric((text,), value)
            yield gauge
        yield GaugeMetricFamily(
            "einvoice_watchdog_age_seconds",
            "Seconds since the watchdog last read the database.",
            self.watchdog.age,
        )
        yield GaugeMetricFamily(
            "einvoice_loop_blocked_seconds",
            "Longest time for which the event loop was blocked.",
            self.monitor.longest,
        )
        requests = CounterMetricFamily(
            "einvoice_requests_total",
            "Requests answered by this process, by method, route and status.",
            labels=("method", "route", "status"),
        )
        for (method, route, status), n in sorted(self.counts.items()):
            requests.add_metric((method, route, str(status)), n)
        yield requests


def render_metrics(collector: Collector) -> bytes:
    """Return the metrics of a collector as text."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)

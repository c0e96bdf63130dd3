"""The metrics that a process counts, in one registry. `gauges` has those that a scrape reads."""

import platform
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from service.version import VERSION

CALL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
#: Upper bounds of the buckets of responses in seconds. A last bucket has no bound.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]
LABELS = ("method", "route", "status")
#: Labels -> the number of responses in each bucket, and after these the sum of their times.
Times = dict[tuple[str, str, int], list[float]]


class RequestTimes(Collector):
    """Counts responses by method, route and status. Another thread may use a copy only.

    Every request is counted, without the locks and look-ups of prometheus-client.
    """

    def __init__(self, times: Times | None = None) -> None:
        self._times: Times = times or {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response. `method` and `route` must have few values: no text of a client."""
        key = (method, route, status)
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = [0] * (len(BOUNDS) + 1)
        times[bisect_left(BUCKETS, seconds)] += 1
        times[-1] += seconds

    def copy(self) -> "RequestTimes":
        return RequestTimes({key: times.copy() for key, times in self._times.items()})

    def collect(self) -> Iterator[Metric]:
        """Yield a counter by status, and a histogram by class of status such as 2xx."""
        requests = CounterMetricFamily(
            "einvoice_requests",
            "Responses of this process, by method, route and status.",
            labels=LABELS,
        )
        seconds = HistogramMetricFamily(
            "einvoice_request_duration_seconds",
            "Time to the end of a response, by method, route and class of status such as 2xx.",
            labels=LABELS,
        )
        classes: dict[tuple[str, str, str], list[float]] = {}
        for (method, route, status), times in sorted(self._times.items()):
            requests.add_metric((method, route, str(status)), sum(times[:-1]))
            total = classes.setdefault((method, route, f"{status // 100}xx"), [0] * len(times))
            total[:] = map(sum, zip(total, times, strict=True))
        for labels, (*counts, spent) in classes.items():
            seconds.add_metric(labels, list(zip(BOUNDS, accumulate(counts), strict=True)), spent)
        yield requests
        yield seconds


disable_created_metrics()  # Each would be a further series.
REGISTRY = CollectorRegistry()

REQUEST_TIMES = RequestTimes()
SUBMISSION_MOVES = Counter(
    "einvoice_submission_moves",
    "Submissions that this process moved to a state.",
    ("state",),
    registry=REGISTRY,
)
DOCUMENT_OUTCOMES = Counter(
    "einvoice_document_outcomes",
    "Documents whose status at the portal this process recorded, by kind and status.",
    ("kind", "status"),
    registry=REGISTRY,
)
PORTAL_SECONDS = Histogram(
    "einvoice_portal_request_duration_seconds",
    "Time of a request to the portal, by operation and outcome.",
    ("operation", "outcome"),
    buckets=CALL_BUCKETS,
    registry=REGISTRY,
)
PORTAL_WAITS = Counter(
    "einvoice_portal_wait_seconds",
    "Seconds for which requests waited for the portal's limits, by operation. Comparisons are left "
    "out.",
    ("operation",),
    registry=REGISTRY,
)
DELIVERY_SECONDS = Histogram(
    "einvoice_webhook_attempt_duration_seconds",
    "Time of an attempt to deliver an event to a webhook, by outcome.",
    ("outcome",),
    buckets=CALL_BUCKETS,
    registry=REGISTRY,
)
LOOP_LAG = Histogram(
    "einvoice_event_loop_lag_seconds",
    "Delay of a timer of the event loop, measured twice a second.",
    buckets=LAG_BUCKETS,
    registry=REGISTRY,
)
Info("einvoice_build", "Version of the service and of Python.", registry=REGISTRY).info(
    {"version": VERSION, "python": platform.python_version()}
)
ProcessCollector(registry=REGISTRY)


def render_counted(times: RequestTimes) -> bytes:
    """Return the counted metrics as text. With all routes this takes many milliseconds."""
    return generate_latest(REGISTRY) + generate_latest(times)

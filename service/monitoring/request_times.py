"""The times of responses, counted without the locks and look-ups of prometheus-client.

Every request is counted, and its CPU time is bounded.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

#: Upper bounds of the buckets in seconds. A last bucket has no bound.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]
LABELS = ("method", "route", "status")
#: Labels -> the number of responses in each bucket, and after these the sum of their times.
Times = dict[tuple[str, str, int], list[float]]


class RequestTimes(Collector):
    """Counts responses by method, route and status. Another thread may use a copy only."""

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

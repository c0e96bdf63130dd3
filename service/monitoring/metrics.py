"""The metrics that a process counts, in one registry. `gauges` has those that a scrape reads."""

import platform
from functools import cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from service.version import VERSION

CALL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
#: Upper bounds of the buckets of responses in seconds. A last bucket has no bound.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

disable_created_metrics()  # Each would be a further series.
REGISTRY = CollectorRegistry()

REQUESTS = Counter(
    "einvoice_requests",
    "Responses of this process, by method, route and status.",
    ("method", "route", "status"),
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "einvoice_request_duration_seconds",
    "Time to the end of a response, by method, route and class of status such as 2xx.",
    ("method", "route", "status"),
    buckets=BUCKETS,
    registry=REGISTRY,
)
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


def count_response(method: str, route: str, status: int, seconds: float) -> None:
    """Count a response. `method` and `route` must have few values: no text of a client."""
    requests, times = _metrics_of(method, route, status)
    requests.inc()
    times.observe(seconds)


@cache  # A look-up by labels takes longer than counting.
def _metrics_of(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    return (
        REQUESTS.labels(method, route, status),
        REQUEST_SECONDS.labels(method, route, f"{status // 100}xx"),
    )

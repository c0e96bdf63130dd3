"""The metrics that a process counts, in one registry. `gauges` has those that a scrape reads."""

import platform

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from service.monitoring.request_times import RequestTimes
from service.version import VERSION

CALL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)

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

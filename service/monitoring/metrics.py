"""The metrics that a process counts, in one registry. `gauges` has those that a scrape reads."""

import platform
from functools import cache
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from service import json_codec
from service.json_types import JsonObject
from service.version import VERSION

AnyMetric = TypeVar("AnyMetric", Counter, Histogram)

#: Metric -> the arguments of its class.
_METRICS: dict[str, JsonObject] = json_codec.load_data(__file__)

disable_created_metrics()  # Each would be a further series.
REGISTRY = CollectorRegistry()


def _make(kind: type[AnyMetric], name: str) -> AnyMetric:
    return kind(name, registry=REGISTRY, **_METRICS[name])


REQUESTS = _make(Counter, "einvoice_requests")
REQUEST_SECONDS = _make(Histogram, "einvoice_request_duration_seconds")
SUBMISSION_MOVES = _make(Counter, "einvoice_submission_moves")
DOCUMENT_OUTCOMES = _make(Counter, "einvoice_document_outcomes")
PORTAL_SECONDS = _make(Histogram, "einvoice_portal_request_duration_seconds")
PORTAL_WAITS = _make(Counter, "einvoice_portal_wait_seconds")
DELIVERY_SECONDS = _make(Histogram, "einvoice_webhook_attempt_duration_seconds")
LOOP_LAG = _make(Histogram, "einvoice_event_loop_lag_seconds")
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

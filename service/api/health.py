"""Liveness, readiness and metrics of the process."""

import asyncio

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service.api.operation import ErrorResponse, Group
from service.db.connections import UNAVAILABLE
from service.errors import Unavailable
from service.http import app_keys, responses
from service.json_types import JsonObject
from service.monitoring.metrics import REGISTRY
from service.version import VERSION

operation = GROUP = Group("Service")

_STARTING: JsonObject = {"status": "starting", "reasons": [], "conditions": [], "durability": "on"}


@operation(
    "GET /healthz",
    "Get the liveness of the process",
    "Health",
    description="200 while the process runs. Asks neither PostgreSQL nor the portal.",
)
async def get_liveness(request: web.Request) -> web.Response:
    return responses.json_response({"status": "ok", "version": VERSION})


@operation(
    "GET /readyz",
    "Get the readiness of the service",
    "Readiness",
    errors=(ErrorResponse(503, "Readiness", _STARTING), Unavailable(UNAVAILABLE)),
    description="200 while PostgreSQL responds, also if work is overdue or the portal cannot be "
    "reached: `reasons` has the kinds. No request is sent to the portal.",
)
async def get_readiness(request: web.Request) -> web.Response:
    """Return 200 while PostgreSQL responds and the process does not stop, else 503.

    Asks over the dedicated session, which requests do not use: a full pool is not an outage.
    Overdue work, or a portal that cannot be reached, gives the status `degraded` with reasons, but
    still a 200: the API can serve, and to restart it or to take it out of service would not help.
    """
    summary = request.app[app_keys.WATCHDOG].summary()
    summary["durability"] = request.app[app_keys.CONFIG].database_durability
    if request.app[app_keys.SHUTDOWN].has_begun:
        return responses.json_response({"status": "stopping", **summary}, 503)
    if not await request.app[app_keys.SESSION].answers():
        return responses.json_response({"status": "starting", **summary}, 503)
    return responses.json_response(
        {"status": "degraded" if summary["reasons"] else "ok", **summary}
    )


@operation(
    "GET /metrics",
    "Get the metrics for Prometheus",
    "text/plain",
    description="In the text format of Prometheus: of the process, and gauges of the database.",
)
async def get_metrics(request: web.Request) -> web.Response:
    """Return the metrics, also while PostgreSQL is away."""
    gauges = request.app[app_keys.GAUGES]
    await gauges.refresh()
    found = generate_latest(gauges)
    # With all routes this takes many milliseconds.
    counted = await asyncio.to_thread(generate_latest, REGISTRY)
    return web.Response(body=found + counted, headers={"Content-Type": CONTENT_TYPE_LATEST})

"""Liveness, readiness and metrics of the process."""

from aiohttp import web

from service.http import app_keys, responses
from service.monitoring.watchdog import metrics_text

routes = web.RouteTableDef()


@routes.get("/healthz")
async def get_liveness(request: web.Request) -> web.Response:
    """Return 200 while the process runs."""
    return responses.json_response({"status": "ok"})


@routes.get("/readyz")
async def get_readiness(request: web.Request) -> web.Response:
    """Return 200 while PostgreSQL responds, else 503.

    Asks over the dedicated session, which requests do not use: a full pool is not an outage.
    Overdue work gives the status `degraded`, but still a 200: the API itself can serve.
    """
    summary = request.app[app_keys.WATCHDOG].summary()
    if not await request.app[app_keys.SESSION].answers():
        return responses.json_response({"status": "starting", **summary}, 503)
    return responses.json_response(
        {"status": "degraded" if summary["overdue"] else "ok", **summary}
    )


@routes.get("/metrics")
async def get_metrics(request: web.Request) -> web.Response:
    """Return the metrics of the process in the text format of Prometheus."""
    app = request.app
    text = metrics_text(
        app[app_keys.WATCHDOG], app[app_keys.EVENT_LOOP_MONITOR], app[app_keys.REQUEST_COUNTS]
    )
    return web.Response(text=text, content_type="text/plain")

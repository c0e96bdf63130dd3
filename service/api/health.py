"""Whether the process lives, whether it can serve, and what people and their monitoring should know of it."""

from aiohttp import web

from service.http import app_keys, responses
from service.monitoring.watchdog import metrics_text

routes = web.RouteTableDef()


@routes.get("/healthz")
async def live(request):
    return responses.json_response({"status": "ok"})


@routes.get("/readyz")
async def ready(request):
    """Unavailable while PostgreSQL does not answer. Asked over the connection of this process's locks, which
    requests do not use: a service that is busy is not away.

    What is overdue makes it `degraded` and is no reason to take the API away: that would help nothing on.
    """
    summary = request.app[app_keys.WATCHDOG].summary()
    if not await request.app[app_keys.SESSION].answers():
        return responses.json_response({"status": "starting", **summary}, 503)
    return responses.json_response(
        {"status": "degraded" if summary["overdue"] else "ok", **summary}
    )


@routes.get("/metrics")
async def measured(request):
    app = request.app
    text = metrics_text(
        app[app_keys.WATCHDOG], app[app_keys.EVENT_LOOP_MONITOR], app[app_keys.REQUEST_COUNTS]
    )
    return web.Response(text=text, content_type="text/plain")

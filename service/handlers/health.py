"""Whether the process lives, and whether it can serve."""

from aiohttp import web

from service import wire

routes = web.RouteTableDef()


@routes.get("/healthz")
async def live(request):
    return wire.answer({"status": "ok"})


@routes.get("/readyz")
async def ready(request):
    """Unavailable while PostgreSQL does not answer. Asked over the connection of this process's locks, which
    requests do not use: a service that is busy is not away."""
    answers = await request.app[wire.KEEPER].answers()
    return wire.answer({"status": "ok" if answers else "starting"}, 200 if answers else 503)

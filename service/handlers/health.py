"""Whether the process lives, and whether it can serve."""

from aiohttp import web

from service import wire
from service.statements import sql

routes = web.RouteTableDef()


@routes.get("/healthz")
async def live(request):
    return wire.answer({"status": "ok"})


@routes.get("/readyz")
async def ready(request):
    """Unavailable while PostgreSQL does not answer or the keeper's connection is away."""
    async with request.app[wire.DATABASE].across() as conn:
        await sql.ping(conn)
    keeper = request.app[wire.KEEPER].alive
    return wire.answer({"status": "ok" if keeper else "starting"}, 200 if keeper else 503)

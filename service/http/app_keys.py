"""The keys under which the application and a request keep their values."""

from aiohttp import web

#: What the wiring gives to an application; each is made in service/app.py.
CONFIG = web.AppKey("config", object)
DATABASE = web.AppKey("database", object)
KEEPER = web.AppKey("keeper", object)
KEY_RING = web.AppKey("key_ring", object)
INTEGRATION_KEY_RING = web.AppKey("integration_key_ring", object)
LIMITER = web.AppKey("limiter", object)
WRONG_KEYS = web.AppKey("wrong_keys", object)
QUOTA = web.AppKey("quota", object)
DESK = web.AppKey("desk", object)
WATCHDOG = web.AppKey("watchdog", object)
LOOP_GUARD = web.AppKey("loop_guard", object)
COUNTS = web.AppKey("counts", dict)  # (method, route, status) -> requests answered
TINS = web.AppKey("tins", object)
UPLOADS = web.AppKey("uploads", object)
EXPORTS = web.AppKey("exports", object)
PARTS = web.AppKey("parts", object)
CLOSING = web.AppKey("closing", object)

#: What the middleware finds out of a request.
COMPANY = web.RequestKey("company", int)
ACCOUNT = web.RequestKey("account", int)
KEY_ID = web.RequestKey("key_id", str)
QUOTA_HEADERS = web.RequestKey("quota_headers", dict)
REQUEST_ID = web.RequestKey("request_id", str)
ROOM = web.RequestKey("room", int)  # bytes that are kept for its body

"""The keys under which the application and a request keep their values."""

from aiohttp import web

#: What the wiring gives to an application; each is made in service/app.py.
CONFIG = web.AppKey("config", object)
DATABASE = web.AppKey("database", object)
SESSION = web.AppKey("keeper", object)
KEY_RING = web.AppKey("key_ring", object)
INTEGRATION_KEY_RING = web.AppKey("integration_key_ring", object)
LIMITER = web.AppKey("limiter", object)
WRONG_KEY_LIMITER = web.AppKey("wrong_keys", object)
INTEGRATION_QUOTA = web.AppKey("quota", object)
SUBMISSION_CONTEXT = web.AppKey("desk", object)
WATCHDOG = web.AppKey("watchdog", object)
EVENT_LOOP_MONITOR = web.AppKey("loop_guard", object)
REQUEST_COUNTS = web.AppKey("counts", dict)  # (method, route, status) -> requests answered
TIN_CHECKS = web.AppKey("tins", object)
UPLOAD_BUDGET = web.AppKey("uploads", object)
EXPORTS = web.AppKey("exports", object)
PARTS = web.AppKey("parts", object)
CLOSING = web.AppKey("closing", object)

#: What the middleware finds out of a request.
COMPANY = web.RequestKey("company", int)
ACCOUNT = web.RequestKey("account", int)
KEY_ID = web.RequestKey("key_id", str)
QUOTA_HEADERS = web.RequestKey("quota_headers", dict)
REQUEST_ID = web.RequestKey("request_id", str)
UPLOAD_BYTES = web.RequestKey("room", int)  # bytes that are kept for its body

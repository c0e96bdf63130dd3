"""Keys of the values that the application and a request carry, with their types.

Types of higher layers have their keys in their own modules, for example in submission/context.py.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping

from aiohttp import web
from multidict import MultiDictProxy

from service.config import Config
from service.db.connections import Connection
from service.db.session import DedicatedSession
from service.db.standby import Reads
from service.db.transactions import Database, OwnerKind
from service.http.api_keys import KeyRing
from service.http.limits import KeyQuota, Limits
from service.http.shutdown import GracefulShutdown
from service.monitoring.gauges import Gauges
from service.monitoring.watchdog import Watchdog

#: Values of the application, set in service/app.py.
CONFIG = web.AppKey("config", Config)
DATABASE = web.AppKey("database", Database)
READS: web.AppKey[Reads] = web.AppKey("reads")  # for requests that only read
SESSION = web.AppKey("session", DedicatedSession)
KEY_RING = web.AppKey("key_ring", KeyRing)
LIMITS = web.AppKey("limits", Limits)
INTEGRATION_QUOTA = web.AppKey("integration_quota", KeyQuota)
WATCHDOG = web.AppKey("watchdog", Watchdog)
GAUGES = web.AppKey("gauges", Gauges)
SHUTDOWN = web.AppKey("closing", GracefulShutdown)
#: Returns the page of an error, for browsers.
ERROR_PAGE: web.AppKey[Callable[[Exception, web.Request], web.Response]] = web.AppKey("error_page")
#: Starts a background task that a graceful shutdown waits for.
SPAWN: web.AppKey[Callable[[Coroutine[object, None, None]], object]] = web.AppKey("spawn")

#: Values of a request, set by the middleware.
COMPANY = web.RequestKey("company", int)
ACCOUNT = web.RequestKey("account", int)
#: The owner of the key, by its kind.
OWNERS: dict[OwnerKind, web.RequestKey[int]] = {"company": COMPANY, "account": ACCOUNT}
KEY_ID = web.RequestKey("key_id", str)
LINK = web.RequestKey("link", int)  # of a visitor who makes the request
#: SHA-256 of the secret by which the visitor sees what becomes of the request.
VISITOR_SHA256 = web.RequestKey("visitor_sha256", bytes)
QUOTA_HEADERS: web.RequestKey[dict[str, str]] = web.RequestKey("quota_headers")
#: Raises Forbidden in a transaction if the person who makes the request has lost the role.
CHECK_ROLE: web.RequestKey[Callable[[Connection], Awaitable[None]]] = web.RequestKey("check_role")
BODY = web.RequestKey("body", bytes)  # as received
FORM: web.RequestKey[MultiDictProxy[str]] = web.RequestKey("form")  # its fields
#: The path parts of an operation that a page calls.
CALLED: web.RequestKey[Mapping[str, str]] = web.RequestKey("called")
REQUEST_ID = web.RequestKey("request_id", str)
#: Members that are stored without effect, or that an update removed, as [{path, message}].
WARNINGS: web.RequestKey[list[dict[str, str]]] = web.RequestKey("warnings")

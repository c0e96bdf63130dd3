"""The middleware of every request: request id, authentication, limits, log line and errors.

It is one function, since each further middleware costs every request, also those that it does not
concern.
"""

import random
import re
import time
from collections.abc import Awaitable
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Handler

from service import logs
from service.db.retry import retry
from service.documents import codes
from service.errors import BadRequest, TooManyRequests, Unauthorized, retry_after
from service.fair_queue import CLIENT, STRANGERS
from service.http import app_keys
from service.http.access import identify
from service.http.access_log import ACCESS_LOG
from service.http.api_keys import COMPANY, INTEGRATION, KeyKind, StoredKey, contains_key
from service.http.client_address import SENDER, SENDERS
from service.http.error_responses import error_response, is_client_gone, is_integration
from service.http.idempotency import HEADER as IDEMPOTENCY_KEY
from service.http.idempotency import handle_idempotency_key
from service.http.limits import UPLOAD, Upload
from service.http.requests import header
from service.json_types import JsonObject
from service.monitoring.metrics import count_response

#: Routes that need no key. All others below API need one. Pages of the dashboard need a session.
OPEN = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/openapi.json",
    "/api/docs",
    "/api/docs/docs.js",
    "/api/docs/docs.css",
}
#: The prefix of all paths that respond with data to a key.
API = "/api/"
#: Paths below API that hold no data and are the same for all clients.
PUBLIC = {path for path in OPEN if path.startswith(API)}
NOT_STORED = {"Cache-Control": "private, no-store"}
COMPANY_HEADERS = {**NOT_STORED, "Vary": COMPANY.header}
INTEGRATION_HEADERS = {**NOT_STORED, "Vary": INTEGRATION.header}
#: Methods that metrics count by name; clients can send any word as a method.
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
KEY_IN_URL = (
    "API keys must be sent in a header, not in the URL. "
    "URLs are logged by many systems: replace this key."
)
SLOW_DOWN = "Too many requests, please slow down."
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@web.middleware
async def handle_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Authenticate a request, run its handler, turn an exception into a response, and log it."""
    began, route = time.perf_counter(), _route(request)
    request_id = request[app_keys.REQUEST_ID] = _request_id(request)
    request[SENDER] = request.app[SENDERS].find(request)
    trace_id = logs.read_trace_id(request.headers.get("traceparent"))
    logs.set_request(request_id, trace_id)
    # aiohttp runs each request in a task of its own, so tables and actor need not be reset.
    codes.pin_tables()
    CLIENT.set(STRANGERS)
    try:
        await _authenticate(request, route)
        run = _run_limited if request.body_exists else _run
        response = await run(request, handler)
    except Exception as error:
        if is_client_gone(request, error):
            raise
        respond = request.app[app_keys.ERROR_PAGE] if _wants_page(request) else error_response
        response = respond(error, request)
    _log(request, route, response.status, began, trace_id)
    return response


def _wants_page(request: web.Request) -> bool:
    """Return whether a browser shows the response to a person."""
    return not request.path.startswith(API) and "text/html" in request.headers.get("Accept", "")


async def _run_limited(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count the body of a request as long as it is in memory."""
    upload = Upload(request.app[app_keys.LIMITS].uploads, request[SENDER].group)
    request[UPLOAD] = upload
    try:
        return await _run(request, handler)
    finally:
        upload.release()


def _run(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
    """Return the run of the handler, which is retried if PostgreSQL aborts it, or the replay.

    It is no coroutine, since each costs every request.
    """
    if IDEMPOTENCY_KEY in request.headers and request.path.startswith(API):
        return handle_idempotency_key(request, handler)
    return retry(handler, request)


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers of every response.

    Caches and browsers must not store, share or reinterpret data. They may keep the public
    description of the API, and must revalidate it.
    """
    headers, path = response.headers, request.path
    headers["X-Request-Id"] = request[app_keys.REQUEST_ID]
    headers["X-Content-Type-Options"] = "nosniff"
    del headers["Server"]
    if path in PUBLIC and response.status < 400:
        headers["Cache-Control"] = "no-cache"
    elif is_integration(path):
        headers.update(INTEGRATION_HEADERS)
        headers.update(request.get(app_keys.QUOTA_HEADERS, {}))
    elif path.startswith(API):
        headers.update(COMPANY_HEADERS)
    if request.app[app_keys.SHUTDOWN].closes_connections:
        response.force_close()
        headers["Connection"] = "close"


async def _authenticate(request: web.Request, route: str) -> None:
    """Authenticate a request before its body is read, if its route needs a key.

    Raises Unauthorized, TooManyRequests, and BadRequest for a request with a key in its URL.
    Spec: Authentication
    """
    if is_integration(request.path):
        await _authenticate_account(request)
    elif request.match_info.http_exception is None and route.startswith(API) and route not in OPEN:
        key = await _find_key(request, COMPANY)
        if wait := request.app[app_keys.LIMITS].requests.take(key.owner.id):
            raise TooManyRequests(SLOW_DOWN, retry_after(wait))
    if contains_key(unquote(request.raw_path)):
        raise BadRequest(KEY_IN_URL, code="key_in_url")


async def _authenticate_account(request: web.Request) -> None:
    """Find the account of an integration key, and count the request against the key's quota.

    Also on unknown paths, which need a key on this surface.
    """
    quota = request.app[app_keys.INTEGRATION_QUOTA]
    request[app_keys.QUOTA_HEADERS] = quota.exhausted_headers()
    key = await _find_key(request, INTEGRATION)
    request[app_keys.QUOTA_HEADERS], wait = await quota.take(key.owner, key.key_id)
    if wait:
        raise TooManyRequests(SLOW_DOWN, retry_after(wait), retry_after=wait)


async def _find_key(request: web.Request, kind: KeyKind) -> StoredKey:
    """Find the request's key and its owner, for which the request acts from then on.

    Raises Unauthorized for an invalid key, TooManyRequests after too many from one address. A key
    is never locked and valid keys always pass, so that no client can lock out another.
    """
    text = (header(request, kind.header) or "").strip()
    if not text:
        raise Unauthorized(kind.missing)
    try:
        key = await request.app[app_keys.KEY_RING].find(text, kind)
    except Unauthorized:
        if wait := request.app[app_keys.LIMITS].wrong_keys.take(request[SENDER].group):
            more: JsonObject = {"retry_after": wait} if kind is INTEGRATION else {}
            raise TooManyRequests(SLOW_DOWN, retry_after(wait), **more) from None
        raise
    request[app_keys.OWNERS[kind.owner]] = key.owner.id
    request[app_keys.KEY_ID] = key.key_id
    identify(request, f"key {key.key_id}")
    return key


def _request_id(request: web.Request) -> str:
    sent = request.headers.get("X-Request-Id", "")
    return sent if _REQUEST_ID.fullmatch(sent) else f"{random.getrandbits(96):024x}"


def _route(request: web.Request) -> str:
    """Return the path of the request's route, for example /api/invoices/{id}."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else "unknown"


def _log(request: web.Request, route: str, status: int, began: float, trace_id: str) -> None:
    seconds = time.perf_counter() - began
    count_response(request.method if request.method in METHODS else "?", route, status, seconds)
    request.app[ACCESS_LOG].add(request, route, status, seconds, trace_id)

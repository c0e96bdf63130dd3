"""Around every request: its id, its key, its limit, its log line, and the one place where an error becomes JSON."""

import logging
import math
import re
import secrets
import time
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address

import asyncpg
from aiohttp import web

from service.db.transactions import UNAVAILABLE, acting_as, is_transient, retry
from service.errors import (
    CONSTRAINTS,
    ApiError,
    BadRequest,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    ValidationError,
    describe_error,
    format_traceback,
    retry_after,
    violation,
)
from service.http import app_keys, responses
from service.http.api_keys import REQUIRED, contains_key
from service.http.requests import header

#: Paths that answer without a key. Every other route of the service asks for one.
OPEN = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/openapi.json",
    "/api/docs",
    "/api/docs/docs.js",
    "/api/docs/docs.css",
}
#: All data are below it.
API = "/api/"
#: What describes the API holds no data, and is the same for everybody.
PUBLIC = {path for path in OPEN if path.startswith(API)}
#: What lies below it is the integration surface: it has keys, a quota and error bodies of its own.
INTEGRATIONS = "/api/integrations"
#: Paths whose errors also say `success: false`, but for those of authentication. Spec: Errors
SAYING_SUCCESS = "/api/validation/"
#: What is counted by name; a client can send any other word.
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
INTERNAL = "Internal server error"
KEY_IN_URL = "A key belongs in a header, never in a URL: others may have seen this one by now, please replace it."
SLOW_DOWN = "Too many requests, please slow down."
MOST_BUCKETS = 100_000  # that a limiter remembers at once
_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

log = logging.getLogger("service.requests")


@web.middleware
async def handle_errors(request, handler):
    """Gives the request an id, answers whatever happens, and writes one line."""
    began = time.perf_counter()
    request[app_keys.REQUEST_ID] = _request_id(request)
    try:
        response = await handler(request)
    except Exception as error:
        if is_client_gone(request, error):
            raise  # there is nobody to answer
        response = error_response(error, request)
    _log(request, response.status, began)
    return response


async def add_request_id(request, response):
    """On every response, also a streamed one, as its head goes out."""
    response.headers["X-Request-Id"] = request[app_keys.REQUEST_ID]
    response.headers.pop("Server", None)


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Keep caches and browsers from storing, sharing or reinterpreting data, on every response.

    The API's description is public: caches may keep it, and ask whether it has changed before they use it.
    """
    headers = response.headers
    headers["X-Content-Type-Options"] = "nosniff"
    if request.path in PUBLIC and response.status < 400:
        headers["Cache-Control"] = "no-cache"
    elif request.path.startswith(API):
        headers["Cache-Control"] = "private, no-store"
        headers["Vary"] = "X-Portal-Key" if _on_integrations(request) else "X-API-Key"


async def add_quota_headers(request, response):
    """What is left of the integration key's minute, on every response of its surface. Spec: Limits."""
    response.headers.update(request.get(app_keys.QUOTA_HEADERS, {}))


async def part(request, response):
    """The last response on a connection says so, once the process has been told to stop."""
    if request.app[app_keys.CLOSING].has_begun:
        response.force_close()
        response.headers["Connection"] = "close"


@web.middleware
async def authenticate(request, handler):
    """Authenticate the request before its body is read. Spec: Authentication

    Raises Unauthorized, TooManyRequests, and BadRequest for an authenticated request with a key in its URL.
    """
    if _on_integrations(request):
        await _find_account(request)
    elif request.match_info.http_exception is not None or _route(request) in OPEN:
        _refuse_key_in_url(request)
        return await handler(request)
    else:
        await _find_company(request)
    _refuse_key_in_url(request)
    return await _acted(request, handler)


async def _find_company(request: web.Request) -> None:
    """Find the company of the request's key, and count the request against the key's limit."""
    text = (header(request, "X-API-Key") or "").strip()
    if not text:
        raise Unauthorized(REQUIRED)
    company, key_id = await _owner(request, request.app[app_keys.KEY_RING], text)
    request[app_keys.COMPANY] = company
    request[app_keys.KEY_ID] = key_id
    if wait := request.app[app_keys.LIMITER].take(key_id):
        raise TooManyRequests(SLOW_DOWN, retry_after(wait))


def _refuse_key_in_url(request: web.Request) -> None:
    """Raise BadRequest if the URL contains an API key, valid or not."""
    if contains_key(f"{request.path}?{request.query_string}"):
        raise BadRequest(KEY_IN_URL)


async def _acted(request, handler):
    """Whatever the handler writes is the key's doing."""
    with acting_as(f"key {request[app_keys.KEY_ID]}", request[app_keys.REQUEST_ID]):
        return await handler(request)


@web.middleware
async def repeated(request, handler):
    """Innermost: a handler that PostgreSQL breaks off before it has done anything is asked again."""
    return await retry(handler, request)


async def _find_account(request):
    """Finds the account of an integration key, also where there is no route, and counts the request."""
    quota = request.app[app_keys.INTEGRATION_QUOTA]
    request[app_keys.QUOTA_HEADERS] = quota.headers_of_nobody()
    text = (header(request, "X-Portal-Key") or "").strip()
    account, key_id = await _owner(request, request.app[app_keys.INTEGRATION_KEY_RING], text)
    request[app_keys.ACCOUNT] = account
    request[app_keys.KEY_ID] = key_id
    request[app_keys.QUOTA_HEADERS], wait = await quota.take(account, key_id)
    if wait:
        raise TooManyRequests(SLOW_DOWN, retry_after(wait), retry_after=wait)


async def _owner(request, ring, text):
    """(owner's id, key id) of a key. Raises Unauthorized, and TooManyRequests to an address that goes on with wrong ones.

    No key is ever locked, so that nobody can lock another's; and a good one passes, wherever it comes from.
    """
    try:
        return await ring.owner_of(text)
    except Unauthorized:
        if text and (wait := request.app[app_keys.WRONG_KEY_LIMITER].take(_sender(request.remote))):
            more = {"retry_after": wait} if _on_integrations(request) else {}
            raise TooManyRequests(SLOW_DOWN, retry_after(wait), **more) from None
        raise


def _sender(address):
    """An address, or of IPv6 the network that one customer of a provider has."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return address
    return (
        parsed.packed[:8]
        if isinstance(parsed, IPv6Address) and not parsed.ipv4_mapped
        else str(parsed)
    )


class RateLimiter:
    """So many a minute of each, in this process: a bucket that refills steadily."""

    def __init__(self, per_minute):
        self._per_minute = per_minute
        self._buckets = {}  # name -> (tokens, at), the one that was used last at the end

    def take(self, name):
        """0, or the seconds until there is one again when the minute is used up."""
        if not self._per_minute:
            return 0
        now = time.monotonic()
        tokens, at = self._buckets.pop(name, (self._per_minute, now))
        tokens = min(self._per_minute, tokens + (now - at) * self._per_minute / 60)
        self._buckets[name] = tokens - (tokens >= 1), now
        if len(self._buckets) > MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        if tokens < 1:
            return math.ceil((1 - tokens) * 60 / self._per_minute)
        return 0


def is_client_gone(request, error):
    """Whether an error says that the client is gone; PostgreSQL, too, can reset a connection."""
    return isinstance(error, ConnectionResetError) and (
        request.transport is None or request.transport.is_closing()
    )


def error_response(error, request):
    """The response that an error means. What is not expected is logged, and its cause is not shown."""
    if isinstance(error, web.HTTPException):
        return _rendered_http(error, request)
    refusal = _refusal(error)
    if refusal is None:
        log.error("request_id=%s failed\n%s", request[app_keys.REQUEST_ID], format_traceback(error))
        return _shaped(request, 500, {"message": INTERNAL})
    if refusal is not error:
        log.warning("request_id=%s %s", request[app_keys.REQUEST_ID], describe_error(error))
    misfit = isinstance(refusal, ValidationError) and _on_integrations(request)
    return _shaped(request, 400 if misfit else refusal.status, refusal.body, refusal.headers)


def _shaped(request, status, body, headers=None):
    """A refusal in the shape of the surface that the path is of. Spec: Errors."""
    if _on_integrations(request):
        return _for_integrations(status, dict(body), headers)
    if request.path.startswith(SAYING_SUCCESS) and status != 401 and "message" in body:
        body = {"success": False, **body}
    return responses.json_response(body, status, headers)


def _for_integrations(status, details, headers):
    message = details.pop("message")
    if status == 401:
        return responses.json_response({"error": message}, 401, headers)
    return responses.json_response(
        {"error": HTTPStatus(status).phrase, "message": message, "details": details},
        status,
        headers,
    )


def _refusal(error):
    """The ApiError that an error means, or None when it is not one that can happen to a request."""
    if isinstance(error, ApiError):
        return error
    constraint = CONSTRAINTS.get(getattr(error, "constraint_name", None))
    if constraint:
        return constraint()
    if isinstance(error, asyncpg.DataError):
        return ValidationError([violation("", "value", "A value is not one that can be stored.")])
    if is_transient(error):
        return Unavailable(UNAVAILABLE, retry_after(2))
    return None


def _rendered_http(error, request):
    allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    body = {"message": HTTP_MESSAGES.get(error.status, error.reason)}
    return _shaped(request, error.status, body, allow)


HTTP_MESSAGES = {
    404: "There is nothing at this path.",
    405: "The method is not allowed on this path.",
    413: "The body is larger than is taken.",
}


def _request_id(request):
    sent = request.headers.get("X-Request-Id", "")
    return sent if _SANE_ID.fullmatch(sent) else secrets.token_hex(12)


def _on_integrations(request):
    return request.path == INTEGRATIONS or request.path.startswith(f"{INTEGRATIONS}/")


def _route(request):
    resource = request.match_info.route.resource
    return resource.canonical if resource else "unknown"


def _log(request, status, began):
    counts, key = (
        request.app[app_keys.REQUEST_COUNTS],
        (request.method if request.method in METHODS else "?", _route(request), status),
    )
    counts[key] = counts.get(key, 0) + 1
    log.info(
        "request_id=%s method=%s route=%s status=%d ms=%.1f company=%s account=%s",
        request[app_keys.REQUEST_ID],
        request.method if request.method.isalpha() else "?",
        _route(request),
        status,
        (time.perf_counter() - began) * 1000,
        request.get(app_keys.COMPANY, "-"),
        request.get(app_keys.ACCOUNT, "-"),
    )

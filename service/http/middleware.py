"""Middleware of every request: request id, authentication, rate limit, log line, error responses.

The only place where an exception becomes a JSON response.
"""

import logging
import re
import secrets
import time
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Any

import asyncpg
from aiohttp import web
from aiohttp.typedefs import Handler

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
from service.http.api_keys import REQUIRED, KeyRing, contains_key
from service.http.requests import header

#: Routes that need no key. All other routes need one.
OPEN = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/openapi.json",
    "/api/docs",
    "/api/docs/docs.js",
    "/api/docs/docs.css",
}
#: The prefix of all paths that respond with data.
API = "/api/"
#: Paths below API that hold no data and are the same for all clients.
PUBLIC = {path for path in OPEN if path.startswith(API)}
#: The prefix of the integration surface, which has its own keys, quota and error bodies.
INTEGRATIONS = "/api/integrations"
#: The prefix of paths whose errors have `success: false`, except for 401. Spec: Errors
VALIDATIONS = "/api/validation/"
#: Methods that metrics count by name; clients can send any word as a method.
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
INTERNAL = "Internal server error"
KEY_IN_URL = (
    "API keys must be sent in a header, not in the URL. "
    "URLs are logged by many systems: replace this key."
)
SLOW_DOWN = "Too many requests, please slow down."
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

log = logging.getLogger("service.requests")


@web.middleware
async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Set the request id, turn an exception into a response, and write one log line."""
    began = time.perf_counter()
    request[app_keys.REQUEST_ID] = _request_id(request)
    try:
        response = await handler(request)
    except Exception as error:
        if is_client_gone(request, error):
            raise
        response = error_response(error, request)
    _log(request, response.status, began)
    return response


async def add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    """Add the request id to every response, and remove the name of the server."""
    response.headers["X-Request-Id"] = request[app_keys.REQUEST_ID]
    response.headers.pop("Server", None)


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Keep caches and browsers from storing, sharing or reinterpreting data.

    Caches may keep the public description of the API, and must revalidate it.
    """
    headers = response.headers
    headers["X-Content-Type-Options"] = "nosniff"
    if request.path in PUBLIC and response.status < 400:
        headers["Cache-Control"] = "no-cache"
    elif request.path.startswith(API):
        headers["Cache-Control"] = "private, no-store"
        headers["Vary"] = "X-Portal-Key" if _is_integration(request.path) else "X-API-Key"


async def add_quota_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the rate limit headers to every response of the integration surface. Spec: Limits"""
    response.headers.update(request.get(app_keys.QUOTA_HEADERS, {}))


async def close_on_shutdown(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after the response during a shutdown."""
    if request.app[app_keys.SHUTDOWN].has_begun:
        response.force_close()
        response.headers["Connection"] = "close"


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Authenticate the request before its body is read. Spec: Authentication

    Raises Unauthorized, TooManyRequests, and BadRequest for an authenticated request with a key in
    its URL.
    """
    if _is_integration(request.path):
        await _authenticate_account(request)
    elif request.match_info.http_exception is not None or _route(request) in OPEN:
        _reject_key_in_url(request)
        return await handler(request)
    else:
        await _authenticate_company(request)
    _reject_key_in_url(request)
    with acting_as(f"key {request[app_keys.KEY_ID]}", request[app_keys.REQUEST_ID]):
        return await handler(request)


async def _authenticate_company(request: web.Request) -> None:
    """Find the company of the request's key, and count the request against the key's limit."""
    text = (header(request, "X-API-Key") or "").strip()
    if not text:
        raise Unauthorized(REQUIRED)
    company, key_id = await _find_owner(request, request.app[app_keys.KEY_RING], text)
    request[app_keys.COMPANY] = company
    request[app_keys.KEY_ID] = key_id
    if wait := request.app[app_keys.LIMITER].take(key_id):
        raise TooManyRequests(SLOW_DOWN, retry_after(wait))


async def _authenticate_account(request: web.Request) -> None:
    """Find the account of an integration key, and count the request against the key's quota.

    Also on unknown paths, which need a key on this surface.
    """
    quota = request.app[app_keys.INTEGRATION_QUOTA]
    request[app_keys.QUOTA_HEADERS] = quota.exhausted_headers()
    text = (header(request, "X-Portal-Key") or "").strip()
    account, key_id = await _find_owner(request, request.app[app_keys.INTEGRATION_KEY_RING], text)
    request[app_keys.ACCOUNT] = account
    request[app_keys.KEY_ID] = key_id
    request[app_keys.QUOTA_HEADERS], wait = await quota.take(account, key_id)
    if wait:
        raise TooManyRequests(SLOW_DOWN, retry_after(wait), retry_after=wait)


async def _find_owner(request: web.Request, ring: KeyRing, text: str) -> tuple[int, str]:
    """Return (owner's id, key id) of a key.

    Raises Unauthorized for an invalid key, TooManyRequests after too many from one address. A key
    is never locked and valid keys always pass, so that no client can lock out another.
    """
    try:
        return await ring.owner_of(text)
    except Unauthorized:
        sender = _sender(request.remote)
        if text and (wait := request.app[app_keys.WRONG_KEY_LIMITER].take(sender)):
            more = {"retry_after": wait} if _is_integration(request.path) else {}
            raise TooManyRequests(SLOW_DOWN, retry_after(wait), **more) from None
        raise


def _reject_key_in_url(request: web.Request) -> None:
    """Raise BadRequest if the URL contains an API key, valid or not."""
    if contains_key(f"{request.path}?{request.query_string}"):
        raise BadRequest(KEY_IN_URL)


def _sender(address: str | None) -> str | bytes | None:
    """Return an IPv4 address, or the /64 network of an IPv6 address, which is one customer's."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and not parsed.ipv4_mapped:
        return parsed.packed[:8]
    return str(parsed)


@web.middleware
async def retry_aborted(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Retry a handler whose transaction PostgreSQL aborted. The innermost middleware."""
    return await retry(handler, request)


def is_client_gone(request: web.BaseRequest, error: BaseException) -> bool:
    """Return whether the client closed the connection.

    A ConnectionResetError alone is not enough: PostgreSQL can reset a connection too.
    """
    return isinstance(error, ConnectionResetError) and (
        request.transport is None or request.transport.is_closing()
    )


def error_response(error: Exception, request: web.BaseRequest) -> web.Response:
    """Return the response for an exception.

    An unexpected exception is logged; its response does not contain the cause.
    """
    if isinstance(error, web.HTTPException):
        return _http_error_response(error, request)
    known = _map_error(error)
    if known is None:
        log.error("request_id=%s failed\n%s", request[app_keys.REQUEST_ID], format_traceback(error))
        return _build_response(request, 500, {"message": INTERNAL})
    if known is not error:
        log.warning("request_id=%s %s", request[app_keys.REQUEST_ID], describe_error(error))
    is_bad_request = isinstance(known, ValidationError) and _is_integration(request.path)
    status = 400 if is_bad_request else known.status
    return _build_response(request, status, known.body, known.headers)


def _http_error_response(error: web.HTTPException, request: web.BaseRequest) -> web.Response:
    """Return the response for an HTTP error that aiohttp raised, such as 404 and 405."""
    allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    message = HTTP_MESSAGES.get(error.status, error.reason)
    return _build_response(request, error.status, {"message": message}, allow)


HTTP_MESSAGES = {
    404: "No such endpoint.",
    405: "The method is not allowed on this path.",
    413: "The request body exceeds the limit.",
}


def _build_response(
    request: web.BaseRequest,
    status: int,
    body: dict[str, Any],
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    return responses.json_response(shape_error(request.path, status, body), status, headers)


def shape_error(path: str, status: int, body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of an error in the shape of the path's surface. Spec: Errors"""
    if _is_integration(path):
        message = body["message"]
        if status == 401:
            return {"error": message}
        details = {name: value for name, value in body.items() if name != "message"}
        return {"error": HTTPStatus(status).phrase, "message": message, "details": details}
    if path.startswith(VALIDATIONS) and status != 401 and "message" in body:
        return {"success": False, **body}
    return body


def _map_error(error: Exception) -> ApiError | None:
    """Return the ApiError for an exception, or None for an unexpected one."""
    if isinstance(error, ApiError):
        return error
    constraint = CONSTRAINTS.get(getattr(error, "constraint_name", None) or "")
    if constraint:
        return constraint()
    if isinstance(error, asyncpg.DataError):
        return ValidationError([violation("", "value", "A value is out of range.")])
    if is_transient(error):
        return Unavailable(UNAVAILABLE, retry_after(2))
    return None


def _request_id(request: web.Request) -> str:
    sent = request.headers.get("X-Request-Id", "")
    return sent if _REQUEST_ID.fullmatch(sent) else secrets.token_hex(12)


def _is_integration(path: str) -> bool:
    return path == INTEGRATIONS or path.startswith(f"{INTEGRATIONS}/")


def _route(request: web.Request) -> str:
    """Return the path of the request's route, for example /api/invoices/{id}."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else "unknown"


def _log(request: web.Request, status: int, began: float) -> None:
    """Count the response, and write its log line."""
    counts = request.app[app_keys.REQUEST_COUNTS]
    key = (request.method if request.method in METHODS else "?", _route(request), status)
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

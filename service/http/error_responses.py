"""The JSON response for an exception. The only place where one becomes a response."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

import asyncpg
from aiohttp import web

from service.db.connections import UNAVAILABLE, is_transient
from service.errors import (
    CONSTRAINTS,
    ApiError,
    BadRequest,
    TooLarge,
    Unavailable,
    ValidationError,
    describe_error,
    format_traceback,
    retry_after,
    violation,
)
from service.http import responses
from service.json_types import JsonObject

#: The prefix of the integration surface, which has its own keys, quota and error bodies.
INTEGRATIONS = "/api/integrations"
#: The prefix of paths whose errors have `success: false`, except for 401. Spec: Errors
VALIDATIONS = "/api/validation/"
INTERNAL = "Internal server error"

log = logging.getLogger("service.requests")


def is_integration(path: str) -> bool:
    return path == INTEGRATIONS or path.startswith(f"{INTEGRATIONS}/")


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
        log.error("failed\n%s", format_traceback(error))
        return _build_response(request, 500, ApiError(INTERNAL).body)
    if known is not error:
        log.warning("%s", describe_error(error))
    is_bad_request = isinstance(known, ValidationError) and is_integration(request.path)
    status = 400 if is_bad_request else known.status
    return _build_response(request, status, known.body, known.headers)


def _http_error_response(error: web.HTTPException, request: web.BaseRequest) -> web.Response:
    """Return the response for an HTTP error that aiohttp raised, such as 404 and 405."""
    allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    code, message = HTTP_ERRORS.get(error.status, (BadRequest.code, error.reason))
    if error.status == 404 and request.path.endswith("/"):
        message += NO_SLASH
    return _build_response(request, error.status, {"message": message, "code": code}, allow)


NO_SLASH = " Paths do not end with a slash."
#: Status of an error that aiohttp raises -> its code and its message.
HTTP_ERRORS = {
    404: ("endpoint_not_found", "No such endpoint."),
    405: ("method_not_allowed", "The method is not allowed on this path."),
    413: (TooLarge.code, "The request body exceeds the limit."),
}


def _build_response(
    request: web.BaseRequest,
    status: int,
    body: JsonObject,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    if status == 401:
        name = "X-Portal-Key" if is_integration(request.path) else "X-API-Key"
        headers = {**(headers or {}), "WWW-Authenticate": f'ApiKey header="{name}"'}
    return responses.json_response(shape_error(request.path, status, body), status, headers)


def shape_error(path: str, status: int, body: JsonObject) -> JsonObject:
    """Return the body of an error in the shape of the path's surface. Spec: Errors"""
    if is_integration(path):
        message = body["message"]
        if status == 401:
            return {"error": message}
        known = {"message": message, "code": body["code"]}
        details = {name: value for name, value in body.items() if name not in known}
        return {"error": HTTPStatus(status).phrase, **known, "details": details}
    if path.startswith(VALIDATIONS) and status != 401 and "message" in body:
        return {"success": False, **body}
    return body


def _map_error(error: Exception) -> ApiError | None:
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

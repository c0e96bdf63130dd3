"""The operations of the portal and their rate limits. Portal: 1.4, 1.6"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from . import documents, lists, registers, submissions
from .answers import Body, refusal
from .controls import Call, Sandbox
from .login import authenticate, log_in, read_form

MINUTE = 60
#: Seconds between two searches for one taxpayer.
SEARCH_SECONDS = 5


class Operation(NamedTuple):
    """An operation of the portal: its name for errors and counts, and its rate limit.

    The limit is in requests per minute and client id; 0: none is published. Portal: 1.4
    """

    method: str
    path: str
    name: str
    per_minute: int
    handle: Callable[[Call], Body]  # returns the value of the response
    status: int = 200


OPERATIONS = (
    Operation("POST", "/connect/token", "login", 12, log_in),
    Operation("GET", "/api/v1.0/taxpayer/validate/{tin}", "tin", 60, registers.validate_tin),
    Operation("GET", "/api/v1.0/taxpayer/search/tin", "tin_search", 60, registers.search_tin),
    Operation(
        "GET", "/api/v1.0/taxpayers/qrcodeinfo/{text}", "qr", 60, registers.get_qr_information
    ),
    Operation(
        "POST", "/api/v1.0/documentsubmissions{end:/?}", "submit", 100, submissions.submit, 202
    ),
    Operation(
        "GET", "/api/v1.0/documentsubmissions/{uid}", "submission", 300, submissions.get_submission
    ),
    Operation("GET", "/api/v1.0/documents/recent", "recent", 12, lists.recent),
    Operation("GET", "/api/v1.0/documents/search", "search", 12, lists.search),
    Operation("GET", "/api/v1.0/documents/{uuid}/details", "details", 125, documents.get_details),
    Operation("GET", "/api/v1.0/documents/{uuid}/raw", "raw", 60, documents.get_raw),
    Operation("PUT", "/api/v1.0/documents/state/{uuid}/state", "state", 12, documents.change_state),
    Operation(
        "GET", "/api/v1.0/notifications/taxpayer", "notifications", 0, lists.list_notifications
    ),
    Operation("GET", "/api/v1.0/documenttypes", "types", 0, registers.list_types),
    Operation("GET", "/api/v1.0/documenttypes/{id}", "types", 0, registers.get_type),
    Operation(
        "GET", "/api/v1.0/documenttypes/{id}/versions/{version}", "types", 0, registers.get_version
    ),
)


def admit(call: Call, operation: Operation) -> dict[str, str]:
    """Authenticate a request unless it is a login, count it, and return its rate headers.

    Raises Refusal 401, or 429 above the limit.
    """
    sandbox, name, per_minute = call.sandbox, operation.name, operation.per_minute
    if name == "login":
        name = "login for another" if "onbehalfof" in call.request.headers else name
        client_id = read_form(call).get("client_id", "")
    else:
        call.caller = authenticate(call)
        client_id = call.caller["client_id"]
    scale = sandbox.controls.rate_scale
    if not scale or not per_minute:
        return {}
    headers = count(sandbox, (name, client_id), max(1, math.floor(per_minute * scale)), MINUTE)
    if name == "search":
        count(sandbox, ("search of taxpayer", call.caller["taxpayer"]), 1, SEARCH_SECONDS / scale)
    return headers


def count(sandbox: Sandbox, key: tuple[str, str], most: int, seconds: float) -> dict[str, str]:
    """Count a request of a (limit, subject), at most `most` in a window of `seconds`.

    A window opens with its first request. Return the rate headers. Raises Refusal 429 above the
    limit.
    """
    (name, subject), now = key, sandbox.now()
    window = sandbox.db.quota_take(name=name, subject=subject, now=now, span=seconds)
    headers = {
        "X-Rate-Limit-Limit": str(most),
        "X-Rate-Limit-Remaining": str(max(0, most - window["used"])),
    }
    if window["used"] <= most:
        return headers
    reset_at = window["started_at"] + seconds
    wait = max(1, math.ceil(reset_at - now))
    reset = datetime.fromtimestamp(reset_at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f0Z")
    headers |= {"X-Rate-Limit-Reset": reset, "Retry-After": str(wait)}
    message = f"Request limit exceeded, retry after {wait} seconds."
    raise refusal(429, "TooManyRequests", message, headers=headers)

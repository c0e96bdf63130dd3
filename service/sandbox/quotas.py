"""Rate limits of clients: fixed windows that open with their first request. Portal: 1.4, 1.6"""

import math
from datetime import UTC, datetime

from .answers import refusal
from .controls import Sandbox
from .database import sql

MINUTE = 60
#: Operation -> requests per minute and client id.
PER_MINUTE = {
    "login": 12,
    "login_for_another": 12,
    "tin": 60,
    "tin_search": 60,
    "qr": 60,
    "submit": 100,
    "submission": 300,
    "state": 12,
    "raw": 60,
    "details": 125,
    "recent": 12,
    "search": 12,
}
#: Operation -> seconds between two requests for one taxpayer.
PER_TAXPAYER = {"search": 5}


def take(
    sandbox: Sandbox, operation: str, client_id: str, taxpayer: str | None = None
) -> dict[str, str]:
    """Count a request and return its rate headers. Raises Refusal 429 above the limit."""
    scale = sandbox.controls.rate_scale
    if not scale or operation not in PER_MINUTE:
        return {}
    requests = max(1, math.floor(PER_MINUTE[operation] * scale))
    headers = count(sandbox, (operation, client_id), requests, MINUTE)
    if operation in PER_TAXPAYER:
        seconds = PER_TAXPAYER[operation] / scale
        count(sandbox, (f"{operation} of taxpayer", taxpayer), 1, seconds)
    return headers


def count(
    sandbox: Sandbox, key: tuple[str, str | None], most: int, seconds: float
) -> dict[str, str]:
    """Count a request of a (limit, subject), at most `most` in a window of `seconds`.

    Return the rate headers. Raises Refusal 429 above the limit.
    """
    (name, subject), now = key, sandbox.now()
    window = sql.quota_take(sandbox.db, name=name, subject=subject, now=now, span=seconds)
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

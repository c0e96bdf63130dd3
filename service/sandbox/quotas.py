"""Rate limits of clients: fixed windows that open with their first request. Portal: 1.4, 1.6"""

import math
from datetime import UTC, datetime

from .answers import refusal
from .controls import Sandbox

MINUTE = 60
#: Seconds between two searches for one taxpayer.
SEARCH_SECONDS = 5


def take(
    sandbox: Sandbox, name: str, per_minute: int, client_id: str, taxpayer: str = ""
) -> dict[str, str]:
    """Count a request of an operation and return its rate headers.

    Raises Refusal 429 above the limit.
    """
    scale = sandbox.controls.rate_scale
    if not scale or not per_minute:
        return {}
    requests = max(1, math.floor(per_minute * scale))
    headers = count(sandbox, (name, client_id), requests, MINUTE)
    if name == "search":
        count(sandbox, ("search of taxpayer", taxpayer), 1, SEARCH_SECONDS / scale)
    return headers


def count(sandbox: Sandbox, key: tuple[str, str], most: int, seconds: float) -> dict[str, str]:
    """Count a request of a (limit, subject), at most `most` in a window of `seconds`.

    Return the rate headers. Raises Refusal 429 above the limit.
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

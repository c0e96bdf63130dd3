"""How many calls a client may make. A window of fixed length opens with the first call in it. Portal: 1.4, 1.6"""

import math

from .answers import Refusal
from .clock import precise_instant
from .database import sql

MINUTE = 60
#: operation -> calls a minute for each client id
PER_MINUTE = {
    "login": 12,
    "login_for_another": 12,
    "tin": 60,
    "tin_search": 60,
    "submit": 100,
    "submission": 300,
    "state": 12,
    "raw": 60,
    "details": 125,
    "recent": 12,
    "search": 12,
}
#: operation -> seconds between two calls for one taxpayer
PER_TAXPAYER = {"search": 5}


def take(sandbox, operation, client_id, taxpayer=None):
    """Counts a call and returns its rate headers. Raises Refusal 429 when it is one too many."""
    scale = sandbox.controls.rate_scale
    if not scale or operation not in PER_MINUTE:
        return {}
    limit = max(1, math.floor(PER_MINUTE[operation] * scale))
    headers = spend(sandbox, operation, client_id, limit, MINUTE)
    if operation in PER_TAXPAYER:
        spend(sandbox, f"{operation} of taxpayer", taxpayer, 1, PER_TAXPAYER[operation] / scale)
    return headers


def spend(sandbox, name, subject, limit, span):
    now = sandbox.now()
    window = sql.quota_take(sandbox.db, name=name, subject=subject, now=now, span=span)
    headers = {
        "X-Rate-Limit-Limit": str(limit),
        "X-Rate-Limit-Remaining": str(max(0, limit - window["used"])),
    }
    if window["used"] > limit:
        raise exceeded(now, window["started_at"] + span, headers)
    return headers


def exceeded(now, reset_at, headers):
    seconds = max(1, math.ceil(reset_at - now))
    headers = {
        **headers,
        "X-Rate-Limit-Reset": precise_instant(reset_at),
        "Retry-After": str(seconds),
    }
    return Refusal(
        429,
        "TooManyRequests",
        f"Request limit exceeded, retry after {seconds} seconds.",
        headers=headers,
    )

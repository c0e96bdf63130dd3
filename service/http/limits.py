"""Limits of requests: rates per name and per integration key, and memory for request bodies."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from service.db.statements import sql
from service.db.transactions import Database
from service.errors import Unavailable, retry_after

MAX_BUCKETS = 100_000  # of one RateLimiter
MAX_UPLOAD_BYTES = 64 * 1024 * 1024  # of request bodies in one process

#: Bytes that the UploadBudget has reserved for the body of a request.
UPLOAD_BYTES = web.RequestKey("upload_bytes", int)


class RateLimiter:
    """Limits requests per minute and name in this process, with token buckets. 0 is no limit."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        #: Name -> (tokens, monotonic time), the least recently used first.
        self._buckets: dict[object, tuple[float, float]] = {}

    def take(self, name: object) -> int:
        """Take a token. Return 0, or the seconds until the next token if there is none."""
        if not self._per_minute:
            return 0
        now = time.monotonic()
        tokens, at = self._buckets.pop(name, (self._per_minute, now))
        tokens = min(self._per_minute, tokens + (now - at) * self._per_minute / 60)
        self._buckets[name] = tokens - (tokens >= 1), now
        if len(self._buckets) > MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        if tokens < 1:
            return math.ceil((1 - tokens) * 60 / self._per_minute)
        return 0


class IntegrationQuota:
    """Limits requests per minute and integration key over all processes. Spec: Limits

    A minute begins with a key's first request. With `per_minute` 0 there is no limit and no header.
    """

    def __init__(self, database: Database, per_minute: int) -> None:
        self._database = database
        self._per_minute = per_minute

    async def take(self, account_id: int, key_id: str) -> tuple[dict[str, str], int | None]:
        """Count a request. Return (headers, seconds to wait, or None if the request is allowed)."""
        if not self._per_minute:
            return {}, None
        async with self._database.account(account_id) as conn:
            row = await sql.integration_quota_take(
                conn, account_id=account_id, key_id=key_id, quota=self._per_minute
            )
        return self._headers(row["remaining"], row["reset"]), row["wait"]

    def exhausted_headers(self) -> dict[str, str]:
        """Return the headers for a request without a valid key: nothing remains."""
        return self._headers(0, int(time.time())) if self._per_minute else {}

    def _headers(self, remaining: int, reset: int) -> dict[str, str]:
        return {
            "X-RateLimit-Limit": str(self._per_minute),
            "X-RateLimit-Remaining": str(remaining),
            "X-RateLimit-Reset": str(reset),
        }


class UploadBudget:
    """Limits the total size of request bodies in memory.

    Counts the declared Content-Length, or the maximum if there is none, until the response is sent.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self.taken = 0

    @contextmanager
    def reserve(self, request: web.Request) -> Iterator[None]:
        """Reserve memory for the body of a request. Raises Unavailable if there is not enough."""
        declared = request.content_length
        # A body over the maximum is rejected before it is read.
        size = min(self._max_body_bytes if declared is None else declared, self._max_body_bytes)
        if self.taken + size > MAX_UPLOAD_BYTES:
            raise Unavailable(
                "Too many large request bodies are in progress, please try again.", retry_after(2)
            )
        self.taken += size
        request[UPLOAD_BYTES] = size
        try:
            yield
        finally:
            self.taken -= request[UPLOAD_BYTES]

    def settle(self, request: web.Request, size: int) -> None:
        """Reduce the reservation of a request to the size of the received body."""
        if UPLOAD_BYTES in request:
            self.taken -= request[UPLOAD_BYTES] - size
            request[UPLOAD_BYTES] = size

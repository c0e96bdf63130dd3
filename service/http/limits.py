"""Limits of requests.

- A RateLimiter limits requests per time in one process, a KeyQuota over all processes.
- A ConcurrencyLimiter limits what runs at once in one process.
- The UploadBudget limits the memory for request bodies in one process.

docs/operations.md#limits lists all limits of the service.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from service.config import Config
from service.db.statements import sql
from service.db.transactions import Database, Owner
from service.errors import ApiError, Busy, TooManyRequests, retry_after
from service.fair_queue import CLIENT, STRANGERS

MAX_BUCKETS = 100_000  # of one RateLimiter
RETRY_SECONDS = 5  # for a client that a ConcurrencyLimiter has rejected
MAX_EXPORTS = 64  # running in one process; between two batches an export holds text, no connection
MAX_PARTS = 4  # of streamed pages in memory, per company and process
PART_SECONDS = 60  # for which a part may wait for memory
#: Logins with portal credentials that a company may test. The portal allows 12 of a client id.
PORTAL_TESTS_PER_MINUTE = 6
PUBLIC_PAGES_PER_MINUTE = 60  # of one address
TRIES_PER_MINUTE, TRIES_PER_HOUR = 10, 100  # of passwords
MAX_UPLOAD_BYTES = 64 * 1024 * 1024  # of request bodies in one process
MAX_PUBLIC_UPLOAD_BYTES = 8 * 1024 * 1024  # of those without a company or an account
POOL_SHARE = 3  # A client may take this part of the memory that the others have not taken.
UNCOUNTED_BYTES = 8 * 1024  # of each body, so that a small one always has room


class RateLimiter:
    """Limits requests per name in this process, with token buckets. 0 is no limit.

    `most` requests are allowed in `seconds`, a minute by default. It keeps hashes of names, since a
    client may have chosen their texts. Clients do not know the seed of the hashes.
    """

    def __init__(self, most: int, seconds: int = 60) -> None:
        self._most = most
        self._seconds = seconds
        #: Hash of a name -> (tokens, monotonic time), the least recently used first.
        self._buckets: dict[int, tuple[float, float]] = {}

    def take(self, name: Hashable) -> int:
        """Take a token. Return 0, or the seconds until the next token if there is none."""
        if not self._most:
            return 0
        now = time.monotonic()
        bucket = hash(name)
        tokens, at = self._buckets.pop(bucket, (self._most, now))
        tokens = min(self._most, tokens + (now - at) * self._most / self._seconds)
        self._buckets[bucket] = tokens - (tokens >= 1), now
        if len(self._buckets) > MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        return max(0, math.ceil((1 - tokens) * self._seconds / self._most))


class KeyQuota:
    """Limits requests per minute and key over all processes. Spec: Limits

    A minute begins with a key's first request. With `per_minute` 0 there is no limit and no header.
    """

    def __init__(self, database: Database, per_minute: int) -> None:
        self._database = database
        self._per_minute = per_minute

    async def take(self, owner: Owner, key_id: str) -> tuple[dict[str, str], int | None]:
        """Count a request. Return (headers, seconds to wait, or None if the request is allowed)."""
        if not self._per_minute:
            return {}, None
        async with self._database.owned(owner) as conn:
            row = await sql.key_quota_take(conn, key_id=key_id, quota=self._per_minute)
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


class ConcurrencyLimiter:
    """Limits how many blocks with the same name run at once in this process.

    A block waits `patience` seconds for its turn, then `error` is raised with `message`.
    """

    def __init__(self, most: int, error: type[ApiError], message: str, patience: float = 0) -> None:
        self._most = most
        self._error = error
        self._message = message
        self._patience = patience
        self._semaphores: dict[Hashable, asyncio.Semaphore] = {}
        self._blocks: Counter[Hashable] = Counter()  # running or waiting

    @asynccontextmanager
    async def one(self, name: Hashable = None) -> AsyncIterator[None]:
        """Count the block. Raises the error of the limiter."""
        semaphore = self._semaphores.setdefault(name, asyncio.Semaphore(self._most))
        self._blocks[name] += 1
        try:
            await self._acquire(semaphore)
            try:
                yield
            finally:
                semaphore.release()
        finally:
            self._blocks[name] -= 1
            if not self._blocks[name]:
                del self._blocks[name], self._semaphores[name]

    def running(self, name: Hashable = None) -> int:
        """Return how many blocks with a name run or wait."""
        return self._blocks[name]

    async def _acquire(self, semaphore: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await semaphore.acquire()
        except TimeoutError:
            raise self._error(self._message, retry_after(RETRY_SECONDS)) from None


@dataclass(slots=True)
class _Pool:
    """Memory for request bodies: its size in bytes, and the bytes of each client."""

    size: int
    taken: int = 0
    shares: Counter[Hashable] = field(default_factory=Counter[Hashable])

    def has_room(self, owner: Hashable, size: int) -> bool:
        """Return whether a client may take so many bytes: something is left for the next one."""
        own = self.shares[owner]
        return own + size <= (self.size - self.taken + own) // POOL_SHARE

    def take(self, owner: Hashable, size: int) -> None:
        """Add bytes of a client, negative ones to give them back."""
        self.taken += size
        self.shares[owner] += size
        if not self.shares[owner]:
            del self.shares[owner]


class UploadBudget:
    """Limits the total size of request bodies in memory.

    Requests of companies and accounts have one pool, all others have another: who has no account
    cannot take the memory of those who have one.
    """

    def __init__(self) -> None:
        self.known = _Pool(MAX_UPLOAD_BYTES)
        self.unknown = _Pool(MAX_PUBLIC_UPLOAD_BYTES)


class Upload:
    """The bytes of a request's body that are in memory, until the response was sent.

    A page counts the bodies of the operations that it calls too.
    """

    def __init__(self, budget: UploadBudget, network: Hashable) -> None:
        """Count for the present client: the company or account, or the network of a stranger."""
        self._budget = budget
        self._network = network
        self._parts: list[tuple[_Pool, Hashable, int]] = []
        self._uncounted = UNCOUNTED_BYTES

    def add(self, size: int) -> None:
        """Count bytes that have arrived. Raises Busy if there is no memory for them."""
        size, self._uncounted = max(0, size - self._uncounted), max(0, self._uncounted - size)
        pool, owner = self._budget.known, CLIENT.get()
        if owner == STRANGERS:
            pool, owner = self._budget.unknown, self._network
        if size and not pool.has_room(owner, size):
            raise Busy(
                "Too many large request bodies are in progress, please try again.", retry_after(2)
            )
        pool.take(owner, size)
        self._parts.append((pool, owner, size))

    def release(self) -> None:
        for pool, owner, size in self._parts:
            pool.take(owner, -size)
        self._parts.clear()


class Limits:
    """The limits of one application in this process."""

    def __init__(self, config: Config) -> None:
        self.requests = RateLimiter(config.requests_per_minute)  # by company
        self.portal_tests = RateLimiter(PORTAL_TESTS_PER_MINUTE)  # by company
        self.wrong_keys = RateLimiter(config.wrong_keys_per_minute)
        self.public_pages = RateLimiter(PUBLIC_PAGES_PER_MINUTE)
        #: Of passwords: of one person from one network, and of one client address.
        self.tries = RateLimiter(TRIES_PER_MINUTE)
        #: Of passwords of one person from all networks.
        self.account_tries = RateLimiter(TRIES_PER_HOUR, 3600)
        #: By company and path.
        self.company_exports = ConcurrencyLimiter(
            1, TooManyRequests, "An export of this company is already running."
        )
        self.exports = ConcurrencyLimiter(
            MAX_EXPORTS, Busy, "Too many exports are running, please try again."
        )
        #: Of streamed pages, by company.
        self.company_parts = ConcurrencyLimiter(
            MAX_PARTS,
            Busy,
            "Other large pages of the company are being sent, please try again.",
            PART_SECONDS,
        )
        self.uploads = UploadBudget()


#: What a request has in memory of its body.
UPLOAD = web.RequestKey("upload", Upload)

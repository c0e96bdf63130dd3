"""One HTTP request to the portal: its connection, its failures, its log line and its metrics.

The exceptions distinguish whether the portal received a request. The trace hook `_on_headers`
decides this: it runs when the connection is established and nothing has been written. A failure
before it is NotSent. A failure after it is Unclear, unless a trustworthy response arrived. aiohttp
may repeat a GET or PUT once if a kept-alive connection turns out to be closed, but never a POST
(IDEMPOTENT_METHODS in aiohttp/client.py), so a submission is written once, or twice after a 401.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from service import failpoints
from service.config import Config
from service.loops import Loop
from service.monitoring.metrics import PORTAL_SECONDS
from service.portal.clock import ClockReading, PortalClock
from service.portal.errors import NotSent, PortalError, Unclear
from service.portal.responses import PortalResponse

CONNECTIONS = 32  # of one process
#: Seconds. Shorter than any gateway's, so that a submission rarely meets a closing connection.
KEEP_ALIVE = 10
MOST_BYTES = 1024 * 1024  # of one response, decoded
CLOCK_SECONDS = 5  # for a response of which only the Date is used, after the connection
LEAST_TIMEOUT = 0.001  # seconds; aiohttp treats 0 as no limit

#: Status, or class of a status, of a response -> its outcome in metrics. Others are an "error".
STATUS_OUTCOMES = {401: "unauthorized", 429: "throttled"}
CLASS_OUTCOMES = {2: "ok", 4: "refused"}

FAULTS = (aiohttp.ClientError, OSError)  # a TimeoutError is an OSError

#: Awaited when the connection is established, before the first byte of a request is written.
BeforeBytes = Callable[[], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    tin: str
    operation: str
    method: str
    path: str = ""  # below the base URL of the API
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    before_bytes: BeforeBytes | None = None
    admitted: bool = False  # the first request has passed the rate limiter
    further: bool = False  # it continues a listing, which would be lost


class NoConnectionFree(TimeoutError):
    """No connection became free in time."""


class FairConnections:
    """Limits a process to `size` connections, of which each taxpayer has at most a third.

    Slow responses of one taxpayer therefore leave connections to the others.
    """

    def __init__(self, size: int) -> None:
        self._share = max(1, size // 3)
        self._all = asyncio.Semaphore(size)
        #: Semaphores of the taxpayers that hold a connection or wait for one.
        self._taxpayers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def connection(self, taxpayer: str, seconds: float) -> AsyncIterator[None]:
        """Hold a connection during the block. Raises NoConnectionFree after `seconds`."""
        own = self._taxpayers.setdefault(taxpayer, asyncio.Semaphore(self._share))
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(seconds):
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._all)
            except TimeoutError:
                raise NoConnectionFree from None
            yield


@dataclass(slots=True)
class _Start:
    """The trace hook's record of one request."""

    before_bytes: BeforeBytes | None = None
    begun: int = 0  # number of starts: aiohttp may repeat a request by itself


async def _on_headers(
    _session: aiohttp.ClientSession,
    context: SimpleNamespace,
    _params: aiohttp.TraceRequestHeadersSentParams,
) -> None:
    """Run `before_bytes` after the connection, including TLS, and before the first byte.

    aiohttp 3.14 signals "headers sent" before it composes them; tests pin this. If `before_bytes`
    raises, the request is not written and its connection is closed.
    """
    start = context.trace_request_ctx
    if start.before_bytes:
        await start.before_bytes()
    start.begun += 1


async def _on_body(
    _session: aiohttp.ClientSession,
    context: SimpleNamespace,
    _params: aiohttp.TraceRequestChunkSentParams,
) -> None:
    if context.trace_request_ctx.before_bytes:
        failpoints.reach("bytes_written")


def portal_session(*, tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Return the ClientSession for a Portal, without cookies or proxies.

    `tls` replaces the system's certificate authorities.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(_on_headers)
    trace.on_request_chunk_sent.append(_on_body)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=CONNECTIONS, keepalive_timeout=KEEP_ALIVE, ssl=tls or True
        ),
        headers={"Accept": "application/json", "Accept-Language": "en"},
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[trace],
        trust_env=False,
    )


class Transport:
    """Sends HTTP requests to the portal. All copies share their connections and what they notice.

    The requests of its own need no login and have no effect: they read the portal's clock, and
    notice the end of an outage.
    """

    def __init__(self, session: aiohttp.ClientSession, config: Config) -> None:
        if not any(_on_headers in trace.on_request_headers_sent for trace in session.trace_configs):
            raise ValueError("The session must be made by portal_session, which adds a trace hook.")
        self._session = session
        self._config = config
        self._connections = FairConnections(CONNECTIONS)
        self.portal_clock = PortalClock()
        #: Since when no connection to a server could be made, by its origin.
        self._unreachable: dict[str, datetime] = {}

    @property
    def unreachable_since(self) -> datetime | None:
        """Return since when connecting to the portal has failed; None after a response."""
        return min(self._unreachable.values(), default=None)

    async def reach_again(self) -> None:
        """Connect to the servers that could not be reached, so that a recovery is noticed.

        Nothing is sent to the others. The requests are those of `read_clock`.
        """
        for origin in list(self._unreachable):
            await self._request_root(origin, "")

    async def read_clock(self, tin: str) -> ClockReading | None:
        """Return the portal's current time, or None if it cannot be read soon.

        Requests the base URL, which needs no token, counts against no rate limit and has no effect:
        a response with any status has a Date.
        """
        response = await self._request_root(self._config.portal_api_base, tin)
        if response is None or response.date is None:
            return None
        return ClockReading(response.date, time.monotonic())

    async def _request_root(self, base: str, tin: str) -> PortalResponse | None:
        """Return the response of a server to a request without effect, None without one."""
        seconds = self._config.portal_connect_timeout + CLOCK_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(Request(tin, "clock", "GET"), f"{base}/")
        except (PortalError, TimeoutError):
            return None

    async def _exchange(self, request: Request, url: str, **options: Any) -> PortalResponse:
        """Return the response to one HTTP request.

        Raises NotSent, or Unclear if no status line arrived. Raises Unclear also for a PUT that
        aiohttp has repeated and that failed the second time: the first may still be processed.
        """
        start, began = _Start(request.before_bytes), time.monotonic()
        target = URL(url, encoded=True)
        origin = f"{target.scheme}://{target.raw_authority}"
        try:
            async with (
                self._connection(request.tin) as timeout,
                self._session.request(
                    request.method,
                    target,
                    allow_redirects=False,
                    trace_request_ctx=start,
                    timeout=timeout,
                    **options,
                ) as received,
            ):
                raw, broken = await _read_body(received)
                head = request.operation, received.status, received.headers
                response = PortalResponse(*head, raw, datetime.now(UTC), broken)
        except (*FAULTS, NotSent) as error:  # before_bytes raises NotSent
            if isinstance(error, NotSent) and not start.begun:
                raise
            failure, outcome = _describe_failure(start, error)
            _record(request.operation, outcome, began, error)
            if outcome == "unreachable":
                self._unreachable.setdefault(origin, datetime.now(UTC))
            raise failure from error
        kind = CLASS_OUTCOMES.get(response.status // 100, "error")
        _record(request.operation, STATUS_OUTCOMES.get(response.status, kind), began, response)
        self._unreachable.pop(origin, None)
        if response.date:
            self.portal_clock.latest = ClockReading(response.date, time.monotonic())
        if request.method == "PUT" and start.begun > 1 and response.status != 200:
            raise Unclear(
                "The first of two requests had no response, the second had status "
                f"{response.status}."
            )
        return response

    @asynccontextmanager
    async def _connection(self, tin: str) -> AsyncIterator[aiohttp.ClientTimeout]:
        """Hold a connection of the process for a taxpayer, and yield the remaining timeouts.

        The connect timeout includes the wait for the connection. Raises NoConnectionFree.
        """
        began, total = time.monotonic(), self._config.portal_timeout.total_seconds()
        connect = self._config.portal_connect_timeout
        async with self._connections.connection(tin, min(total, connect)):
            waited = time.monotonic() - began
            yield aiohttp.ClientTimeout(
                total=max(LEAST_TIMEOUT, total - waited),
                connect=max(LEAST_TIMEOUT, connect - waited),
            )


async def _read_body(received: aiohttp.ClientResponse) -> tuple[bytes, str]:
    """Return at most MOST_BYTES of the body, and why it is incomplete or an empty string."""
    raw = bytearray()
    try:
        async for chunk in received.content.iter_any():
            raw += chunk
            if len(raw) > MOST_BYTES:
                received.close()
                return bytes(raw[:MOST_BYTES]), "it is longer than 1 MiB"
    except FAULTS as error:
        # Bytes that arrived before the error remain in aiohttp's buffer, perhaps with a uuid.
        raw += b"".join(getattr(received.content, "_buffer", ()))
        return bytes(raw[:MOST_BYTES]), f"the transfer failed ({type(error).__name__})"
    return bytes(raw), ""


def _describe_failure(start: _Start, failure: Exception) -> tuple[PortalError, str]:
    """Return the exception of a request without a response, and its outcome in metrics."""
    name = type(failure).__name__
    if isinstance(failure, NoConnectionFree):
        return NotSent("No connection to the portal was free."), "no_connection"
    if start.begun:
        return Unclear(f"The portal did not respond ({name})."), "no_response"
    return NotSent(f"The portal cannot be reached ({name})."), "unreachable"


def _record(operation: str, outcome: str, began: float, result: PortalResponse | Exception) -> None:
    """Log a request, and count its outcome and its time."""
    seconds = time.monotonic() - began
    PORTAL_SECONDS.labels(operation, outcome).observe(seconds)
    response = result if isinstance(result, PortalResponse) else None
    log.info(
        "portal operation=%s status=%s ms=%d correlation_id=%s%s",
        operation,
        response.status if response else "-",
        seconds * 1000,
        (response and response.correlation_id) or "-",
        "" if response else f" fault={type(result).__name__}",
    )


class ContactCheck(Loop):
    """Tries to connect to a portal that could not be reached, until it responds.

    Without it, a process that has nothing to send would report an outage that is over. While the
    portal can be reached it sends nothing.
    """

    def __init__(self, portal: Transport, seconds: float) -> None:
        super().__init__("portal contact", seconds)
        self._portal = portal

    async def work(self) -> None:
        await self._portal.reach_again()

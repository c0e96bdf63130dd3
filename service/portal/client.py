"""HTTP client of the portal: one method for each operation, one exception class for each failure.

The exceptions distinguish whether the portal received a request. The trace hook `_on_headers`
decides this: it runs when the connection is established and nothing has been written. A failure
before it is NotSent. A failure after it is Unclear, unless a trustworthy response arrived. aiohttp
may repeat a GET or PUT once if a kept-alive connection turns out to be closed, but never a POST
(IDEMPOTENT_METHODS in aiohttp/client.py), so a submission is written once, or twice after a 401.
A repeated cancellation is harmless, but its second response may be IncorrectState: read the
document after a failed cancellation.
"""

import asyncio
import copy
import io
import logging
import math
import ssl
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from service import failpoints, json_codec
from service.config import Config
from service.monitoring.metrics import PORTAL_SECONDS
from service.portal import responses
from service.portal.clock import ClockReading, PortalClock
from service.portal.connections import FairConnections, NoConnectionFree
from service.portal.errors import LoginRefused, NotSent, PortalError, TruncatedListing, Unclear
from service.portal.logins import Login, OwnClient, RefusedLogins, choose_login
from service.portal.responses import (
    Document,
    Listing,
    OddRow,
    Page,
    PortalResponse,
    Receipt,
    SubmissionState,
    Tally,
)

CONNECTIONS = 32  # of one process
#: Seconds. Shorter than any gateway's, so that a submission rarely meets a closing connection.
KEEP_ALIVE = 10
MOST_BYTES = 1024 * 1024  # of one response, decoded
PAGE_SIZE = 100  # the portal's maximum
MOST_PAGES = 100
SHORTEST_LISTING = timedelta(seconds=2)  # the portal counts in whole seconds
CLOCK_SECONDS = 5  # for a response of which only the Date is used, after the connection
RENEW_AT = 0.8  # of a token's lifetime
LEAST_TIMEOUT = 0.001  # seconds; aiohttp treats 0 as no limit

#: Status, or class of a status, of a response -> its outcome in metrics. Others are an "error".
STATUS_OUTCOMES = {401: "unauthorized", 429: "throttled"}
CLASS_OUTCOMES = {2: "ok", 4: "refused"}

FAULTS = (aiohttp.ClientError, OSError)  # a TimeoutError is an OSError

#: Awaited when the connection is established, before the first byte of a request is written.
BeforeBytes = Callable[[], Awaitable[None]]
#: Called when a page of a listing could not be read, with the error and the number of failures of
#: this kind for this page. Returns whether to request the page again, perhaps after a wait.
RetryPage = Callable[[PortalError, int], Awaitable[bool]]
#: Called with (operation, tin) and, for a further page of a listing, `further=True`. With the
#: company's own client also with `own_client_id`.
RateLimiter = Callable[..., Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request on behalf of a taxpayer, to be repeated after a 401."""

    tin: str
    operation: str
    method: str
    path: str = ""  # below the base URL of the API
    expected: int = 200  # status
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    before_bytes: BeforeBytes | None = None
    admitted: bool = False  # the first request has passed the rate limiter
    further: bool = False  # it continues a listing, which would be lost


@dataclass(frozen=True, slots=True)
class _Query:
    """A listing of the documents that were submitted between two aware times."""

    tin: str
    operation: str
    since: datetime
    until: datetime
    filters: Mapping[str, str] = field(default_factory=dict)
    further: bool = False


@dataclass(slots=True)
class _Start:
    """The trace hook's record of one request."""

    before_bytes: BeforeBytes | None = None
    begun: int = 0  # number of starts: aiohttp may repeat a request by itself


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    renew_at: float  # in seconds of the Portal's monotonic clock


@dataclass(frozen=True, slots=True)
class _ContactState:
    """Records since when no connection to a server of the portal could be made, by its origin."""

    unreachable: dict[str, datetime] = field(default_factory=dict)

    def note_failure(self, origin: str, start: _Start, failure: Exception) -> None:
        """Record a failure to connect, unless only a free connection of the process was missing."""
        if not start.begun and not isinstance(failure, NoConnectionFree | NotSent):
            self.unreachable.setdefault(origin, datetime.now(UTC))

    def note_response(self, origin: str) -> None:
        """Record that a server has responded."""
        self.unreachable.pop(origin, None)


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


def portal_session(config: Config, *, tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Return the ClientSession for a Portal, with timeouts and without cookies or proxies.

    The connect timeout includes the wait for a free connection. `tls` replaces the system's
    certificate authorities.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(_on_headers)
    trace.on_request_chunk_sent.append(_on_body)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=CONNECTIONS, keepalive_timeout=KEEP_ALIVE, ssl=tls or True
        ),
        timeout=aiohttp.ClientTimeout(
            total=config.portal_timeout.total_seconds(),
            connect=config.portal_connect_timeout.total_seconds(),
        ),
        headers={"Accept": "application/json", "Accept-Language": "en"},
        cookie_jar=aiohttp.DummyCookieJar(),
        trace_configs=[trace],
        trust_env=False,
    )


class OpenSubmission:
    """A submission on an established connection, including TLS, with no byte written yet."""

    def __init__(self) -> None:
        self._is_connected = asyncio.Event()
        self._go: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()
        self._request: asyncio.Task[Receipt] | None = None

    async def connected(self, request: asyncio.Task[Receipt]) -> None:
        """Wait until the request is connected. Raises the error that prevents it."""
        self._request = request
        waiting = asyncio.create_task(self._is_connected.wait())
        await asyncio.wait({request, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if request.done():
            request.result()

    async def before_bytes(self) -> None:
        """Hold the request until `send`, then run its check."""
        self._is_connected.set()
        check = await self._go
        check()

    async def send(self, check: Callable[[], None]) -> Receipt:
        """Write the request and return its Receipt.

        `check()` runs immediately before the first byte, and again before a second request that a
        401 causes, which is connected before its check too. If it raises NotSent, nothing is sent.
        If the request has failed since it was connected, by a timeout for example, its error is
        raised.
        """
        if not self._go.done():
            self._go.set_result(check)
        assert self._request is not None  # set by `connected`
        return await self._request


class Portal:
    """Client of the portal's operations. `tin` is the company that a request is made for.

    Methods raise NotSent, Unclear, Throttled, Refused or LoginRefused; submit also Duplicate. For
    a read, Unclear means that the response could not be read.

    `rate_limiter(operation, tin)` is awaited before every request, including logins and further
    pages. It waits for the portal's rate limit, or raises Held. A page that is not the first passes
    `further=True`, because without it the pages before it would be lost. `refusals` is asked before
    every login and records those that the portal refuses. `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        config: Config,
        *,
        rate_limiter: RateLimiter | None = None,
        refusals: RefusedLogins | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not any(_on_headers in trace.on_request_headers_sent for trace in session.trace_configs):
            raise ValueError("The session must be made by portal_session, which adds a trace hook.")
        self._session = session
        self._config = config
        self._rate_limiter = rate_limiter
        self._refusals = refusals
        self._clock = clock
        self._retry_page: RetryPage | None = None
        self._own: OwnClient | None = None  # of the company that this client is for
        self._tokens: dict[Login, _Token] = {}
        self._logins: dict[Login, asyncio.Task[_Token]] = {}  # in progress
        #: Logins of which a token was refused and the next one has not been used yet.
        self._on_trial: set[Login] = set()
        # The clients made by `through` share these three.
        self._connections = FairConnections(CONNECTIONS)
        self._portal_clock = PortalClock()
        self._contact = _ContactState()

    def through(
        self, rate_limiter: RateLimiter | None, refusals: RefusedLogins | None = None
    ) -> "Portal":
        """Return a client with another rate limiter that shares tokens, connections and clock.

        Its logins are separate, because they wait for its rate limiter. `refusals` reads refused
        logins over the rate limiter's database connections.
        """
        other = copy.copy(self)
        other._rate_limiter = rate_limiter
        other._refusals = refusals or self._refusals
        other._logins = {}
        return other

    def with_retries(self, retry_page: RetryPage) -> "Portal":
        """Return a client that requests failed pages of listings again, so that others are kept."""
        other = copy.copy(self)
        other._retry_page = retry_page
        return other

    def for_company(self, own: OwnClient | None) -> "Portal":
        """Return a client that uses a company's own credentials, if it has any.

        It never changes them, so that all requests of a flow are made with the same ones.
        """
        other = copy.copy(self)
        other._own = own
        return other

    def uses_own_client(self, tin: str) -> bool:
        """Return whether requests about a taxpayer are made with the company's own client."""
        return self._login_for(tin).is_own

    async def log_in(self, tin: str) -> None:
        """Log in, also with a valid token. Raises Throttled, LoginRefused or NotSent."""
        self._tokens.pop(self._login_for(tin), None)
        with self._naming_client(tin):
            await self._token(tin)

    @property
    def unreachable_since(self) -> datetime | None:
        """Return since when connecting to the portal has failed; None after a response."""
        return min(self._contact.unreachable.values(), default=None)

    async def reach_again(self) -> None:
        """Connect to the servers that could not be reached, so that a recovery is noticed.

        Nothing is sent to the others. The requests are those of `read_clock`.
        """
        for origin in list(self._contact.unreachable):
            await self._request_root(origin, "")

    @property
    def clocks_apart_since(self) -> datetime | None:
        """Return since when a clock difference has blocked sending; None if it does not."""
        return self._portal_clock.apart_since

    async def clocks_apart(
        self,
        tin: str,
        database: ClockReading,
        read_database: Callable[[], Awaitable[ClockReading | None]],
    ) -> timedelta | None:
        """Return how far the portal's clock is ahead if that blocks sending, else None.

        `database` is a recent reading of the database's clock. `read_database()` takes a new one
        if a difference must be confirmed.
        """

        async def measure() -> tuple[ClockReading | None, ClockReading | None]:
            return await self.read_clock(tin), await read_database()

        return await self._portal_clock.blocking_difference(database, measure)

    async def read_clock(self, tin: str) -> ClockReading | None:
        """Return the portal's current time, or None if it cannot be read soon.

        Requests the base URL, which needs no token, counts against no rate limit and has no effect:
        any response has a Date, whichever its status is.
        """
        response = await self._request_root(self._config.portal_api_base, tin)
        if response is None or response.date is None:
            return None
        return ClockReading(response.date, time.monotonic())

    async def _request_root(self, base: str, tin: str) -> PortalResponse | None:
        """Return the response of a server to a request without effect, None without one."""
        seconds = self._config.portal_connect_timeout.total_seconds() + CLOCK_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(_Request(tin, "clock", "GET"), f"{base}/")
        except (PortalError, TimeoutError):
            return None

    async def ready(self, tin: str) -> None:
        """Obtain a token and a rate-limit slot, so that the next submission waits for neither."""
        with self._naming_client(tin):
            await self._token(tin)
            await self._admit("submit", tin)

    @asynccontextmanager
    async def open_submission(self, tin: str, body: bytes) -> AsyncIterator[OpenSubmission]:
        """Connect for a submission and yield it with no byte written. Call `ready` before.

        Raises NotSent, or the error of a login, if there is no connection. A request that was not
        sent when the block ends is abandoned and its connection closed.
        """
        opened = OpenSubmission()
        request = asyncio.create_task(
            self.submit(tin, body, before_bytes=opened.before_bytes, admitted=True)
        )
        try:
            await opened.connected(request)
            yield opened
        finally:
            request.cancel()
            await asyncio.wait({request})
            # Mark the error as retrieved: it was raised, or the request was abandoned.
            if not request.cancelled():
                request.exception()

    async def submit(
        self,
        tin: str,
        body: bytes,
        *,
        before_bytes: BeforeBytes | None = None,
        admitted: bool = False,
    ) -> Receipt:
        """Send the bytes of a submission unchanged. Portal: 4

        `before_bytes()` is awaited when the connection is established and no byte is written, and
        again if a 401 causes a second request. If it raises NotSent (or any error), nothing is sent
        and the error propagates. With `admitted`, after `ready`, the first request does not pass
        the rate limiter.
        """
        request = _Request(
            tin,
            "submit",
            "POST",
            "/documentsubmissions/",
            expected=202,
            body=body,
            before_bytes=before_bytes,
            admitted=admitted,
        )
        return responses.receipt(await self._call(request))

    async def submission(self, tin: str, uid: str) -> SubmissionState:
        """Return the state of a submission with the documents of all pages. Portal: 5.1

        Refused with status 404 can mean that the portal does not show it yet.
        """
        request = _Request(tin, "submission", "GET", f"/documentsubmissions/{_part(uid)}")

        def read(response: PortalResponse) -> Page:
            return responses.submission_page(response, uid)

        pages = [page async for page in self._pages(request, read)]
        odd = [row for page in pages for row in page.odd]
        documents, last = responses.merge_pages(pages), pages[-1]
        return SubmissionState(uid, last.overall or "", documents, last.received_at, odd)

    async def details(self, tin: str, uuid: str) -> Document:
        """Return a document with its validation errors. Portal: 5.2

        Use it for the errors of an Invalid document, not for polling.
        """
        request = _Request(tin, "details", "GET", f"/documents/{_part(uuid)}/details")
        return responses.details(await self._call(request), uuid)

    async def raw(self, tin: str, uuid: str, *, further: bool = False) -> Document:
        """Return a document with its `content`, the text that was submitted. Portal: 5.3

        `further`: the request is for a row of a listing, which would be lost. Raises Refused with
        status 404 for an Invalid document, because the portal does not return its text.
        """
        path = f"/documents/{_part(uuid)}/raw"
        response = await self._call(_Request(tin, "raw", "GET", path, further=further))
        return responses.raw(response, uuid)

    async def search(
        self,
        tin: str,
        since: datetime,
        until: datetime,
        *,
        text: str | None = None,
        further: bool = False,
    ) -> Listing:
        """Return all documents submitted between two aware times, newest first. Portal: 5.5

        The times may be 31 days apart. Both sent and received documents are requested, because a
        filter that hides one document would confirm a false absence. `text` restricts the listing
        to documents in which the portal finds it; others may exist that it does not find.
        `further`: the request continues another listing, which would be lost.

        Raises Unclear if the listing lost rows or has gaps. At 10,000 documents, where the portal
        may truncate, shorter time ranges are requested, and Unclear is raised for so many in one
        second.
        """
        filters = {"searchQuery": text} if text else {}
        return await self._listing(_Query(tin, "search", since, until, filters, further))

    async def pages(
        self, tin: str, since: datetime, until: datetime, *, further: bool = False
    ) -> AsyncGenerator[Page, None]:
        """Yield the pages of a search, each as soon as it is read. Rows may be repeated.

        The listing is complete only if the last page arrives without an exception: then every row
        was shown that was listed at the beginning.
        """
        query = _Query(tin, "search", since, until, further=further)
        async with aclosing(self._query_pages(query)) as pages:
            async for page in pages:
                yield page

    async def recent(self, tin: str, since: datetime, until: datetime) -> Listing:
        """Return the same as `search`, from the portal's list of recent documents. Portal: 5.4"""
        return await self._listing(_Query(tin, "recent", since, until))

    async def cancel(
        self, tin: str, uuid: str, reason: str, *, before_bytes: BeforeBytes | None = None
    ) -> None:
        """Cancel a document. Portal: 6

        After an exception the document may be cancelled nevertheless: read its state.
        `before_bytes` is used as in `submit`.
        """
        request = _Request(
            tin,
            "cancel",
            "PUT",
            f"/documents/state/{_part(uuid)}/state",
            body=json_codec.encode({"status": "cancelled", "reason": reason}),
            before_bytes=before_bytes,
        )
        responses.cancelled(await self._call(request), uuid)

    async def validate_tin(self, tin: str, id_type: str, id_value: str, *, taxpayer: str) -> None:
        """Check that a TIN belongs to an identifier. Portal: 3.1

        `taxpayer` is the company that asks. Raises Refused with status 404 and the portal's body if
        it does not.
        """
        path = f"/taxpayer/validate/{_part(tin)}"
        params = {"idType": id_type, "idValue": id_value}
        request = _Request(taxpayer, "validate_tin", "GET", path, params=params)
        responses.known_tin(await self._call(request))

    async def _listing(self, query: _Query) -> Listing:
        newest = datetime.max.replace(tzinfo=UTC)
        rows: dict[str, Document] = {}
        odd: dict[str, OddRow] = {}
        async for page in self._query_pages(query):
            rows.update((row.uuid, row) for row in page.rows)
            odd.update((row.key, row) for row in page.odd)
        return Listing(
            sorted(rows.values(), key=lambda row: row.received_at or newest, reverse=True),
            odd.values(),
        )

    async def _query_pages(self, query: _Query) -> AsyncGenerator[Page, None]:
        """Yield the pages of a query, from as many listings as it takes.

        A listing that has too many rows is read again as two of half the time range. Rows on a
        border may be in both.
        """
        queries = [query]
        further = query.further
        while queries:
            part = queries.pop()
            times = {
                "submissionDateFrom": _second(part.since),
                "submissionDateTo": _second(part.until, up=True),
            }
            request = _Request(
                part.tin,
                part.operation,
                "GET",
                f"/documents/{part.operation}",
                params={**times, **part.filters},
                further=further,
            )
            try:
                async for page in self._pages(request, responses.listing_page):
                    yield page
            except TruncatedListing:
                if part.until - part.since < SHORTEST_LISTING:
                    raise
                middle = part.since + (part.until - part.since) / 2
                queries += [replace(part, since=middle), replace(part, until=middle)]
            further = True

    async def _pages(
        self, request: _Request, read: Callable[[PortalResponse], Page]
    ) -> AsyncIterator[Page]:
        """Yield each page of a listing, at least one, as `read` parses it.

        Raises Unclear unless the pages are complete.
        """
        tally = Tally()
        for number in range(1, MOST_PAGES + 1):
            params = {**(request.params or {}), "pageNo": str(number), "pageSize": str(PAGE_SIZE)}
            further = request.further or number > 1
            page = await self._read_page(replace(request, params=params, further=further), read)
            tally.add(page)
            yield page
            if _is_last(tally, page):
                tally.check()
                return
        error = TruncatedListing if tally.has_grown else Unclear
        raise error(f"The listing has more than {MOST_PAGES} pages.")

    async def _read_page(self, request: _Request, read: Callable[[PortalResponse], Page]) -> Page:
        failures: Counter[type[PortalError]] = Counter()
        while True:
            try:
                return read(await self._call(request))
            except PortalError as error:
                kind = type(error)
                failures[kind] += 1
                if not (self._retry_page and await self._retry_page(error, failures[kind])):
                    raise

    async def _call(self, request: _Request) -> PortalResponse:
        """Return the response with the expected status. Portal: 8.4

        A 401 means that the request was not processed: it is repeated once with a new token. A 401
        to the new token too is a refused login.
        """
        with self._naming_client(request.tin):
            response = await self._send(request)
            if response.status == 401:
                response = await self._send(request, is_repeated=True)
            if response.status == 401:
                raise await self._note_refused_token(request.tin, response)
            await self._pass_trial(request.tin)
            responses.check(response, request.expected)
        return response

    @contextmanager
    def _naming_client(self, tin: str) -> Iterator[None]:
        """Name the company's own client in the errors of its requests."""
        try:
            yield
        except PortalError as error:
            login = self._login_for(tin)
            error.own_client_id = login.client_id if login.is_own else None
            raise

    async def _send(self, request: _Request, is_repeated: bool = False) -> PortalResponse:
        """Return the response to a request with a token, which a 401 makes invalid."""
        token = await self._token(request.tin, is_repeated)
        if is_repeated or not request.admitted:
            await self._admit(request.operation, request.tin, request.further)
        response = await self._exchange(
            request,
            f"{self._config.portal_api_base}/api/v1.0{request.path}",
            params=request.params,
            data=request.body and io.BytesIO(request.body),
            headers=_headers(token, request.body),
        )
        if response.status == 401:
            self._drop(request.tin, token)
        return response

    async def _note_refused_token(self, tin: str, response: PortalResponse) -> LoginRefused:
        error, login = responses.login_refused(response), self._login_for(tin)
        if self._refusals:
            self._on_trial.discard(login)
            await self._refusals.note(login, error, "token")
        return error

    async def _admit(self, operation: str, tin: str, further: bool = False) -> None:
        """Pass the rate limiter. Raises Held."""
        if self._rate_limiter:
            login, more = self._login_for(tin), {"further": True} if further else {}
            own = {"own_client_id": login.client_id} if login.is_own else {}
            await self._rate_limiter(operation, tin, **more, **own)

    async def _exchange(self, request: _Request, url: str, **options: Any) -> PortalResponse:
        """Return the response to one HTTP request.

        Raises NotSent, or Unclear if no status line arrived. Also Unclear is a PUT that aiohttp has
        repeated and that failed the second time: the first may still be processed.
        """
        start, began = _Start(request.before_bytes), time.monotonic()
        target = URL(url, encoded=True)
        origin = f"{target.scheme}://{target.raw_authority}"
        response: PortalResponse | None = None
        failure: Exception | None = None
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
                response = await _read_response(request.operation, received)
        except FAULTS as error:
            failure = error
        except NotSent as error:  # raised by before_bytes
            if not start.begun:
                raise
            failure = error
        seconds = time.monotonic() - began
        _log(request.operation, response, failure, seconds)
        outcome = _name_outcome(start, response, failure)
        PORTAL_SECONDS.labels(request.operation, outcome).observe(seconds)
        if failure:
            self._contact.note_failure(origin, start, failure)
            raise _classify_failure(start, failure) from failure
        assert response is not None  # there was no failure
        self._contact.note_response(origin)
        if response.date:
            self._portal_clock.latest = ClockReading(response.date, time.monotonic())
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
        began = time.monotonic()
        total, connect = (
            bound.total_seconds()
            for bound in (self._config.portal_timeout, self._config.portal_connect_timeout)
        )
        async with self._connections.connection(tin, min(total, connect)):
            waited = time.monotonic() - began
            yield aiohttp.ClientTimeout(
                total=max(LEAST_TIMEOUT, total - waited),
                connect=max(LEAST_TIMEOUT, connect - waited),
            )

    async def _token(self, tin: str, is_repeated: bool = False) -> _Token:
        """Return a valid token. Callers for one taxpayer share one login and its outcome.

        `is_repeated`: the request was made with another token, which the portal refused.
        """
        login = self._login_for(tin)
        token = self._tokens.get(login)
        if token and self._clock() < token.renew_at:
            return token
        if login.problem:
            raise LoginRefused(login.problem)
        if login not in self._logins:
            self._logins[login] = asyncio.create_task(self._log_in(tin, login, is_repeated))
        # A caller that is cancelled does not cancel the login of the others.
        return await asyncio.shield(self._logins[login])

    async def _log_in(self, tin: str, login: Login, is_repeated: bool) -> _Token:
        """Store and return a new token. Portal: 2

        Raises Throttled, LoginRefused, or NotSent for any other failure. A repetition belongs to
        the login attempt that the first token started.
        """
        began = self._clock()
        try:
            reason = await self._admit_login(tin, login, is_repeated and login in self._on_trial)
            text, life = await self._request_token(tin, login)
            await self._note_success(login, reason)
        finally:
            del self._logins[login]
        self._forget_expired()
        self._tokens[login] = _Token(text, began + RENEW_AT * life.total_seconds())
        return self._tokens[login]

    def _forget_expired(self) -> None:
        """Forget expired tokens, also of credentials that were replaced."""
        now = self._clock()
        for login in [login for login, token in self._tokens.items() if token.renew_at <= now]:
            del self._tokens[login]

    async def _admit_login(self, tin: str, login: Login, is_started: bool) -> str | None:
        """Pass the rate limiter, unless a recent login was refused: then no slot is used.

        Return the reason of the last refusal, or None. Raises LoginRefused and Held. `is_started`:
        the login attempt has already started.
        """
        if self._refusals is None or is_started:
            await self._admit("login", tin)
            return None
        await self._refusals.check(login)
        await self._admit("login", tin)
        return await self._refusals.begin(login)

    async def _request_token(self, tin: str, login: Login) -> tuple[str, timedelta]:
        """Log in and return a token and its lifetime. Records a refusal."""
        try:
            return responses.login(await self._post_login(tin, login))
        except Unclear as error:
            raise NotSent(f"Login: {error.reason}", correlation_id=error.correlation_id) from error
        except LoginRefused as error:
            if self._refusals:
                self._on_trial.discard(login)
                await self._refusals.note(login, error, "login")
            raise

    async def _note_success(self, login: Login, reason: str | None) -> None:
        """Clear a refused login. After a refused token, the new one must be accepted first."""
        if reason == "token":
            self._on_trial.add(login)
        elif reason and self._refusals:
            await self._refusals.clear(login)

    async def _pass_trial(self, tin: str) -> None:
        """Clear a refused token after the portal has accepted a new one."""
        if self._refusals and (login := self._login_for(tin)) in self._on_trial:
            self._on_trial.discard(login)
            await self._refusals.clear(login)

    async def _post_login(self, tin: str, login: Login) -> PortalResponse:
        form = {
            "client_id": login.client_id,
            "client_secret": login.client_secret,
            "grant_type": "client_credentials",
            "scope": "InvoicingAPI",
        }
        headers = {"onbehalfof": login.on_behalf_of} if login.on_behalf_of else {}
        url = f"{self._config.portal_identity_base}/connect/token"
        return await self._exchange(_Request(tin, "login", "POST"), url, headers=headers, data=form)

    def _drop(self, tin: str, token: _Token) -> None:
        """Discard a refused token, unless a newer one has replaced it."""
        if self._tokens.get(self._login_for(tin)) is token:
            del self._tokens[self._login_for(tin)]

    def _login_for(self, tin: str) -> Login:
        return choose_login(self._config, self._own, tin)


async def _read_response(operation: str, received: aiohttp.ClientResponse) -> PortalResponse:
    raw, broken = await _read_body(received)
    return PortalResponse(
        operation, received.status, received.headers, raw, datetime.now(UTC), broken
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


def _classify_failure(start: _Start, failure: Exception) -> PortalError:
    name = type(failure).__name__
    if isinstance(failure, NoConnectionFree):
        return NotSent("No connection to the portal was free.")
    if start.begun:
        return Unclear(f"The portal did not respond ({name}).")
    return NotSent(f"The portal cannot be reached ({name}).")


def _name_outcome(start: _Start, response: PortalResponse | None, failure: Exception | None) -> str:
    """Return the outcome of a request as metrics count it, one of few words."""
    if response is None:
        if isinstance(failure, NoConnectionFree):
            return "no_connection"
        return "no_response" if start.begun else "unreachable"
    known = STATUS_OUTCOMES.get(response.status)
    return known or CLASS_OUTCOMES.get(response.status // 100, "error")


def _log(
    operation: str, response: PortalResponse | None, failure: Exception | None, seconds: float
) -> None:
    log.info(
        "portal operation=%s status=%s ms=%d correlation_id=%s%s",
        operation,
        response.status if response else "-",
        seconds * 1000,
        (response and response.correlation_id) or "-",
        f" fault={type(failure).__name__}" if failure else "",
    )


def _headers(token: _Token, body: bytes | None) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {token.text}"}
    return headers if body is None else {**headers, "Content-Type": "application/json"}


def _is_last(tally: Tally, page: Page) -> bool:
    """Return whether a page is the last, by its own number or else by the rows read so far."""
    if page.last is not None:
        return tally.pages >= page.last
    return not page.keys or tally.rows >= page.count


def _part(text: str) -> str:
    """Quote a string as one segment of a path. Raises ValueError for an empty or dotted one."""
    if text.strip(".") == "":
        raise ValueError("An identifier in a URL must not be empty or consist of dots.")
    return quote(text, safe="")


def _second(moment: datetime, up: bool = False) -> str:
    """Format an aware time in UTC, rounded down or up to the second. Portal: 5.5"""
    if moment.tzinfo is None:
        raise ValueError("The time must have a time zone.")
    seconds = math.ceil(moment.timestamp()) if up else math.floor(moment.timestamp())
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

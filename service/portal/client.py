"""The portal over HTTP: a method per operation, and for each failure a class that says what became of the request.

What must not be mistaken is whether a request was received. The trace hook below decides: it runs when a connection
stands and nothing has been written. What fails before it is NotSent; what fails after it is Unclear, unless an answer
that can be trusted came. aiohttp may repeat a GET or PUT by itself, once, when a kept connection turns out to be
closed; a POST never (IDEMPOTENT_METHODS in aiohttp/client.py), so a submit is written once, or twice after a 401.
A repeated cancel is harmless, but its second answer may be IncorrectState: after a failed cancel, read the document.
"""

import asyncio
import copy
import io
import logging
import math
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from urllib.parse import quote

import aiohttp
from yarl import URL

from service import failpoints, json_codec
from service.config import Config
from service.portal import responses
from service.portal.clock import ClockReading, PortalClock
from service.portal.connections import FairConnections, NoConnectionFree
from service.portal.errors import Crowded, LoginRefused, NotSent, PortalError, Unclear
from service.portal.responses import Document, Listing, Page, Receipt, SubmissionState, Tally

CONNECTIONS = 32  # of one process
# Seconds; shorter than any gateway's, so that a submit seldom meets a connection just closed
KEEP_ALIVE = 10
MOST_BYTES = 1024 * 1024  # of one answer, decoded
PAGE_SIZE = 100  # the most that the portal allows
MOST_PAGES = 100
SHORTEST_LISTING = timedelta(seconds=2)  # the portal counts in whole seconds
CLOCK_SECONDS = 5  # for an answer of which only the Date matters, once there is a connection
RENEW_AT = 0.8  # of a token's life
LEAST_TIMEOUT = 0.001  # seconds; aiohttp takes 0 for no limit

FAULTS = (aiohttp.ClientError, OSError)  # a TimeoutError is an OSError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Start:
    """What the trace hook knows of one request."""

    before_bytes: Callable[[], Awaitable[None]] | None = None
    begun: int = 0  # times: aiohttp may repeat a request by itself


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    renew_at: float  # on the clock of the Portal


@dataclass(slots=True)
class _ContactState:
    """Whether the portal could be reached at the latest attempt."""

    unreachable_since: datetime | None = None

    def note_failure(self, start: _Start, fault: Exception) -> None:
        """Note a request that failed before a connection was there, unless it was for want of a free one."""
        if not start.begun and not isinstance(fault, (NoConnectionFree, NotSent)):
            self.unreachable_since = self.unreachable_since or datetime.now(UTC)


async def _on_headers(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: object
) -> None:
    """Run `before_bytes` when the connection is established, TLS included, and no byte of the request is written.

    aiohttp 3.14 signals "headers sent" ahead of composing them; tests pin that. If `before_bytes` raises, the request
    is not written and its connection is closed.
    """
    start = context.trace_request_ctx
    if start.before_bytes:
        await start.before_bytes()
    start.begun += 1


async def _on_body(session, context, params):
    if context.trace_request_ctx.before_bytes:
        failpoints.reach("bytes_written")


def portal_session(config: Config, *, tls: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Return the ClientSession that a Portal needs: with timeouts, without cookies and without proxies of the environment.

    The connect timeout covers the wait for a free connection too. Redirects are refused call by call. `tls` replaces
    the certificate authorities of the system.
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
    """A submission whose connection to the portal is established, TLS included, and of which no byte is written."""

    def __init__(self) -> None:
        self._is_connected = asyncio.Event()
        self._go: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()
        self._request: asyncio.Task[Receipt] | None = None

    async def connected(self, request: "asyncio.Task[Receipt]") -> None:
        """Wait until the connection of the request is established. Raises what keeps it from that."""
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
        """Write the request and return the Submission.

        `check()` runs immediately before the first byte, and again before a second request that a 401 makes: that one
        has connected before its check, too. When it raises NotSent, nothing goes out. A request that has ended since it
        connected, by its timeout for example, raises why.
        """
        if not self._go.done():
            self._go.set_result(check)
        return await self._request


class Portal:
    """The calls of one service to the portal. `tin` is the company for which a call is made.

    Each raises NotSent, Unclear, Throttled, Refused or LoginRefused; submit also Duplicate. For a read, Unclear means
    that the answer could not be read. `gate(operation, tin)`, when given, is awaited before every request, logins and
    further pages included: it waits for the portal's quota, or raises Held. For a page that is not the first it is told
    `further=True`: what has come so far would be lost. `refusals`, a RefusedLogins when given, is asked before every
    login and remembers those that the portal refuses. `clock` gives monotonic seconds.
    """

    def __init__(self, session, config, *, gate=None, refusals=None, clock=time.monotonic):
        if not any(_on_headers in trace.on_request_headers_sent for trace in session.trace_configs):
            raise ValueError(
                "The session must come from portal_session: its hook tells what was sent."
            )
        self._session = session
        self._config = config
        self._gate = gate
        self._refusals = refusals
        self._clock = clock
        self._tokens = {}  # represented TIN, or "" -> _Token
        self._logins = {}  # the same key -> the login under way, a task
        # Keys of which a token was refused and a new one has not been used yet
        self._on_trial = set()
        # Shared by the clients that `through` makes
        self._connections = FairConnections(CONNECTIONS)
        self._portal_clock = PortalClock()  # shared, too
        self._contact = _ContactState()  # shared, too

    def through(self, gate, refusals=None):
        """Return the same client, tokens and clock included, whose calls pass another gate. Its logins are its own: they wait there.

        `refusals` reads refused logins over the gate's connections.
        """
        other = copy.copy(self)
        other._gate, other._refusals, other._logins = gate, refusals or self._refusals, {}
        return other

    @property
    def unreachable_since(self) -> datetime | None:
        """Return since when no connection to the portal could be made; None after a response."""
        return self._contact.unreachable_since

    @property
    def clocks_apart_since(self) -> datetime | None:
        """Return since when nothing is sent because the portal's clock and the database's differ; None while they agree."""
        return self._portal_clock.apart_since

    async def clocks_apart(
        self,
        tin: str,
        database: ClockReading,
        read_database: Callable[[], Awaitable[ClockReading | None]],
    ) -> timedelta | None:
        """Return how far the portal's clock is ahead of the database's when that blocks sending, else None.

        `database` is a recent reading; `read_database()` makes another one where a difference has to be confirmed.
        """

        async def measure() -> tuple[ClockReading | None, ClockReading | None]:
            return await self.read_clock(tin), await read_database()

        return await self._portal_clock.blocking_difference(database, measure)

    async def read_clock(self, tin: str) -> ClockReading | None:
        """Return what the portal's clock shows now, or None when it cannot be read soon.

        Any response has a Date, whatever its status: the base address is asked, without a token, a quota or an effect.
        """
        seconds = self._config.portal_connect_timeout.total_seconds() + CLOCK_SECONDS
        try:
            async with asyncio.timeout(seconds):
                answer = await self._exchange(
                    tin, "clock", "GET", f"{self._config.portal_api_base}/"
                )
        except (PortalError, TimeoutError):
            return None
        return answer.date and ClockReading(answer.date, time.monotonic())

    async def ready(self, tin):
        """Holds a token for `tin` and a place in the quota, so that the submit that follows waits for neither."""
        await self._token(tin)
        await self._admit("submit", tin)

    @asynccontextmanager
    async def open_submission(self, tin: str, body: bytes) -> AsyncIterator["OpenSubmission"]:
        """Connect for a submission and yield an OpenSubmission, of which no byte is written yet. Call `ready` before.

        Raises NotSent, and what a login raises, when there is no connection. A request that was not sent when the
        block ends is abandoned and its connection closed.
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
            # It has been raised, or belongs to a request that was abandoned
            request.cancelled() or request.exception()

    async def submit(
        self,
        tin: str,
        body: bytes,
        *,
        before_bytes: Callable[[], Awaitable[None]] | None = None,
        admitted: bool = False,
    ) -> Receipt:
        """Send the bytes of a submission, as they are. Portal: 4

        `before_bytes()` is awaited when the connection is established and no byte is written, again when a 401 makes
        it a second request; when it raises NotSent (or anything), nothing goes out and that propagates. `admitted`,
        after ready: the first request has passed the gate.
        """
        request = {"body": body, "before_bytes": before_bytes, "admitted": admitted}
        return responses.receipt(
            await self._call(tin, "submit", "POST", "/documentsubmissions/", 202, **request)
        )

    async def submission(self, tin, uid):
        """The SubmissionState with the documents of all pages. Refused(404) can mean "not yet". Portal: 5.1"""
        path = f"/documentsubmissions/{_part(uid)}"
        pages = [
            page
            async for page in self._pages(
                tin, "submission", path, {}, lambda answer: responses.submission_page(answer, uid)
            )
        ]
        odd = [row for page in pages for row in page.odd]
        return SubmissionState(
            uid, pages[-1].overall, responses.merge_pages(pages), pages[-1].received_at, odd
        )

    async def details(self, tin, uuid):
        """The Document with its validation errors. For the errors of an Invalid one, not for polling. Portal: 5.2"""
        answer = await self._call(tin, "details", "GET", f"/documents/{_part(uuid)}/details")
        return responses.details(answer, uuid)

    async def raw(self, tin: str, uuid: str, *, further: bool = False) -> Document:
        """Return the Document with its `content`, the text that was submitted. Portal: 5.3

        `further`: it is fetched for a row of a listing, which would be lost. Raises Refused(404) for an Invalid document,
        whose text the portal does not give.
        """
        answer = await self._call(
            tin, "raw", "GET", f"/documents/{_part(uuid)}/raw", further=further
        )
        return responses.raw(answer, uuid)

    async def search(self, tin, since, until, *, text=None, further=False):
        """Return all documents, sent and received, submitted between two aware times, newest first, as a Listing.

        With a `text`, those in which the portal finds it: what it does not find so may be there all the same.

        Raises Unclear when the listing lost rows or has gaps. Where it would have 10,000 documents or more, at which the
        portal may cut, shorter times are asked for, and Unclear is raised for that many in a second. Both directions
        are asked for: a filter that hides one document would prove a false absence. `further`: it belongs to another
        listing, which would be lost. Portal: 5.5, at most 31 days.
        """
        return await self._listing(
            tin, "search", since, until, further, {"searchQuery": text} if text else {}
        )

    async def pages(
        self, tin: str, since: datetime, until: datetime, *, further: bool = False
    ) -> AsyncIterator[Page]:
        """Yield page after page of what `search` returns, each as soon as it is read. Rows may come twice.

        Only when the last page has come without an exception was everything shown that was listed at the beginning.
        """
        async with aclosing(self._listed(tin, "search", since, until, further, {})) as pages:
            async for page in pages:
                yield page

    async def recent(self, tin, since, until):
        """As search, from the portal's other list. Portal: 5.4"""
        return await self._listing(tin, "recent", since, until)

    async def cancel(self, tin, uuid, reason, *, before_bytes=None):
        """Cancel a document. When this raises, the document may be cancelled all the same: read its state. Portal: 6

        `before_bytes` as for submit.
        """
        body = json_codec.dumps({"status": "cancelled", "reason": reason}).encode()
        path = f"/documents/state/{_part(uuid)}/state"
        responses.cancelled(
            await self._call(tin, "cancel", "PUT", path, body=body, before_bytes=before_bytes), uuid
        )

    async def validate_tin(self, tin, id_type, id_value, *, taxpayer):
        """Nothing, when the TIN belongs with the identifier; else Refused, 404 with the portal's body. Portal: 3.1

        `taxpayer` is the company that asks.
        """
        params = {"idType": id_type, "idValue": id_value}
        answer = await self._call(
            taxpayer, "validate_tin", "GET", f"/taxpayer/validate/{_part(tin)}", params=params
        )
        responses.known_tin(answer)

    async def _listing(self, tin, operation, since, until, further=False, filters=None):
        newest = datetime.max.replace(tzinfo=UTC)
        rows, odd = {}, {}
        async for page in self._listed(tin, operation, since, until, further, filters or {}):
            rows.update((row.uuid, row) for row in page.rows)
            odd.update((row.key, row) for row in page.odd)
        return Listing(
            sorted(rows.values(), key=lambda row: row.received_at or newest, reverse=True),
            odd.values(),
        )

    async def _listed(self, tin, operation, since, until, further, filters):
        """Yield the pages of a time, in as many listings as it takes; rows on a border may be in two of them.

        A listing that turns out to have too many rows is read again as two of half the time.
        """
        spans = [(since, until)]
        while spans:
            since, until = spans.pop()
            params = {
                "submissionDateFrom": _second(since),
                "submissionDateTo": _second(until, up=True),
                **filters,
            }
            path = f"/documents/{operation}"
            try:
                async for page in self._pages(
                    tin, operation, path, params, responses.listing_page, further
                ):
                    yield page
            except Crowded:
                if until - since < SHORTEST_LISTING:
                    raise
                middle = since + (until - since) / 2
                spans += [(middle, until), (since, middle)]
            further = True

    async def _pages(self, tin, operation, path, params, read, further=False):
        """Yield what `read` makes of page after page, at least one Page. Raises Unclear unless they show everything."""
        tally = Tally()
        for number in range(1, MOST_PAGES + 1):
            place = {"pageNo": str(number), "pageSize": str(PAGE_SIZE)}
            request = {"params": {**params, **place}, "further": further or number > 1}
            page = read(await self._call(tin, operation, "GET", path, **request))
            tally.add(page)
            yield page
            if _is_last(tally, page):
                tally.check()
                return
        error = Crowded if tally.has_grown else Unclear
        raise error(f"The listing has more than {MOST_PAGES} pages.")

    async def _call(
        self,
        tin,
        operation,
        method,
        path,
        expected=200,
        *,
        params=None,
        body=None,
        before_bytes=None,
        admitted=False,
        further=False,
    ):
        """Return the Answer with the expected status. A 401 was not carried out: one new login, one repetition.

        A 401 to the new token too is a refused login. Portal: 8.4
        """
        url = f"{self._config.portal_api_base}/api/v1.0{path}"
        for attempt in range(2):
            token = await self._token(tin, is_repeated=attempt > 0)
            if attempt or not admitted:
                await self._admit(operation, tin, further)
            request = {
                "params": params,
                "data": body and io.BytesIO(body),
                "headers": _headers(token, body),
            }
            answer = await self._exchange(
                tin, operation, method, url, before_bytes=before_bytes, **request
            )
            if answer.status != 401:
                await self._pass_trial(tin)
                responses.check(answer, expected)
                return answer
            self._drop(tin, token)
        why = responses.login_refused(answer)
        if self._refusals:
            self._on_trial.discard(self._key(tin))
            await self._refusals.note(self._key(tin), why, "token")
        raise why

    async def _admit(self, operation, tin, further=False):
        """Passes the gate. Raises Held."""
        if self._gate:
            await self._gate(operation, tin, **({"further": True} if further else {}))

    async def _exchange(self, tin, operation, method, url, *, before_bytes=None, **request):
        """Return the Answer to one request. Raises NotSent, or Unclear when no status line came.

        A PUT that aiohttp has repeated, and that failed the second time, is Unclear: the first may be carried out yet.
        """
        start, began, answer, fault = _Start(before_bytes), time.monotonic(), None, None
        try:
            async with (
                self._connection(tin) as timeout,
                self._session.request(
                    method,
                    URL(url, encoded=True),
                    allow_redirects=False,
                    trace_request_ctx=start,
                    timeout=timeout,
                    **request,
                ) as response,
            ):
                answer = await _answer(operation, response)
        except FAULTS as raised:
            fault = raised
        except NotSent as raised:  # by before_bytes
            if not start.begun:
                raise
            fault = raised
        _log(operation, answer, fault, began)
        if fault:
            self._contact.note_failure(start, fault)
            raise _failure(start, fault) from fault
        self._contact.unreachable_since = None
        if answer.date:
            self._portal_clock.latest = ClockReading(answer.date, time.monotonic())
        if method == "PUT" and start.begun > 1 and answer.status != 200:
            raise Unclear(
                f"The first of two requests was not answered, the second with status {answer.status}."
            )
        return answer

    @asynccontextmanager
    async def _connection(self, tin):
        """Hold one of the process's connections for a taxpayer, and give the ClientTimeout that is left for the request.

        The connect timeout covers the wait for it. Raises NoConnectionFree.
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

    async def _token(self, tin, is_repeated=False):
        """Return a token that is good for a while. One login at a time for a taxpayer; all who wait share its outcome.

        `is_repeated`: the call was made with another token, which the portal refused.
        """
        key = self._key(tin)
        token = self._tokens.get(key)
        if token and self._clock() < token.renew_at:
            return token
        if key not in self._logins:
            self._logins[key] = asyncio.create_task(self._login(tin, key, is_repeated))
        # A caller that gives up does not take the login from the others
        return await asyncio.shield(self._logins[key])

    async def _login(self, tin, key, is_repeated):
        """Store and return a new token. Raises Throttled, LoginRefused, or NotSent for all else. Portal: 2

        A repetition belongs to the try that was begun with the first token.
        """
        began = self._clock()
        try:
            refused = await self._admit_login(tin, key, is_repeated and key in self._on_trial)
            text, life = await self._granted(tin, key)
            await self._note_success(key, refused)
        finally:
            del self._logins[key]
        self._tokens[key] = _Token(text, began + RENEW_AT * life.total_seconds())
        return self._tokens[key]

    async def _admit_login(self, tin, key, is_begun):
        """Pass the gate, unless the portal refused a login a short while ago: then no token of the quota is taken.

        Returns the reason of the last refusal, or None. Raises LoginRefused and Held. `is_begun`: the try has begun.
        """
        if self._refusals is None or is_begun:
            return await self._admit("login", tin)
        await self._refusals.check(key)
        await self._admit("login", tin)
        return await self._refusals.begin(key)

    async def _granted(self, tin, key):
        """Log in and return (token, its life as a timedelta). A refusal is remembered."""
        try:
            return responses.login(await self._ask_token(tin))
        except Unclear as fault:
            raise NotSent(f"Login: {fault.reason}", correlation_id=fault.correlation_id) from fault
        except LoginRefused as why:
            if self._refusals:
                self._on_trial.discard(key)
                await self._refusals.note(key, why, "login")
            raise

    async def _note_success(self, key, refused):
        """Forget a refused login. Where a token was refused, the new one has to be accepted first."""
        if refused == "token":
            self._on_trial.add(key)
        elif refused:
            await self._refusals.clear(key)

    async def _pass_trial(self, tin):
        """Forget a refused token, now that the portal has accepted a new one."""
        if (key := self._key(tin)) in self._on_trial:
            self._on_trial.discard(key)
            await self._refusals.clear(key)

    async def _ask_token(self, tin):
        """Return the Answer to a login request."""
        config = self._config
        form = {
            "client_id": config.portal_client_id,
            "client_secret": config.portal_client_secret,
            "grant_type": "client_credentials",
            "scope": "InvoicingAPI",
        }
        headers = {"onbehalfof": tin} if config.portal_intermediary else {}
        url = f"{config.portal_identity_base}/connect/token"
        return await self._exchange(tin, "login", "POST", url, headers=headers, data=form)

    def _drop(self, tin, token):
        """Forget a refused token, unless a newer one has taken its place."""
        if self._tokens.get(self._key(tin)) is token:
            del self._tokens[self._key(tin)]

    def _key(self, tin):
        return tin if self._config.portal_intermediary else ""


async def _answer(operation, response):
    raw, broken = await _read(response)
    return responses.Answer(
        operation, response.status, response.headers, raw, datetime.now(UTC), broken
    )


async def _read(response):
    """(the bytes of the body as far as they came, why they are not all or ''); never more than MOST_BYTES."""
    raw = bytearray()
    try:
        async for chunk in response.content.iter_any():
            raw += chunk
            if len(raw) > MOST_BYTES:
                response.close()
                return bytes(raw[:MOST_BYTES]), "it is longer than 1 MiB"
    except FAULTS as fault:
        # What had come stays in aiohttp's buffer behind the exception; a uuid may stand in it.
        raw += b"".join(getattr(response.content, "_buffer", ()))
        return bytes(raw[:MOST_BYTES]), f"it broke off ({type(fault).__name__})"
    return bytes(raw), ""


def _failure(start, fault):
    name = type(fault).__name__
    if isinstance(fault, NoConnectionFree):
        return NotSent("No connection to the portal was free.")
    if start.begun:
        return Unclear(f"The portal did not answer ({name}).")
    return NotSent(f"The portal cannot be reached ({name}).")


def _log(operation, answer, fault, began):
    log.info(
        "portal operation=%s status=%s ms=%d correlation_id=%s%s",
        operation,
        answer.status if answer else "-",
        (time.monotonic() - began) * 1000,
        (answer and answer.correlation_id) or "-",
        f" fault={type(fault).__name__}" if fault else "",
    )


def _headers(token, body):
    headers = {"Authorization": f"Bearer {token.text}"}
    return headers if body is None else {**headers, "Content-Type": "application/json"}


def _is_last(tally: Tally, page: Page) -> bool:
    """Return whether a page is the last: by its own word, else when no more rows are to come."""
    if page.last is not None:
        return tally.pages >= page.last
    return not page.keys or tally.rows >= page.count


def _part(text):
    """A text as one part of a path. Raises ValueError for one that would climb out of it."""
    if text.strip(".") == "":
        raise ValueError("An empty or dotted identifier cannot stand in an address.")
    return quote(text, safe="")


def _second(moment, up=False):
    """An aware time in UTC to the whole second, down or up. Portal: 5.5"""
    if moment.tzinfo is None:
        raise ValueError("A time without a zone says nothing to the portal.")
    seconds = math.ceil(moment.timestamp()) if up else math.floor(moment.timestamp())
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

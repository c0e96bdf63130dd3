"""Client of the portal: one method for each operation, one exception class for each failure."""

import asyncio
import copy
import io
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import aiohttp

from service import json_codec
from service.config import Config
from service.portal import listings, responses
from service.portal.documents import Document
from service.portal.errors import LoginRefused, PortalError, Throttled, TruncatedListing, Unclear
from service.portal.listings import Listing, ListingPage, RetryPage
from service.portal.logins import Login, RateLimiter, RefusedLogins, Tokens
from service.portal.responses import PortalResponse, SubmissionReceipt
from service.portal.transport import BeforeBytes, Request, Transport, portal_session

__all__ = ["Portal", "portal_session"]

#: Writes the request of a connected submission, after a check, and returns the receipt.
Send = Callable[[Callable[[], None]], Awaitable[SubmissionReceipt]]

#: Called for each request that the portal throttled or the rate limiter held.
NoteThrottled = Callable[[Throttled], Awaitable[None]]

T = TypeVar("T")


class Portal(Transport):
    """Client of the portal's operations. `tin` is the company that a request is made for.

    Methods raise NotSent, Unclear, Throttled, Refused or LoginRefused; submit also Duplicate. For
    a read, Unclear means that the response could not be read.

    `rate_limiter` is awaited before every request, including logins and further pages. It waits for
    the portal's rate limit, or raises Held. It knows further pages of a listing, because without
    one of them the pages before it would be lost. `refusals` is asked before
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
        super().__init__(session, config)
        self._tokens = Tokens(self._request_token, rate_limiter, refusals, clock)
        self._retry_page: RetryPage | None = None
        self._own: Login | None = None  # of the company that this client is for
        self._note_throttled: NoteThrottled | None = None

    def through(
        self, rate_limiter: RateLimiter | None, refusals: RefusedLogins | None = None
    ) -> "Portal":
        """Return a client with another rate limiter that shares tokens, connections and clock.

        Its logins are separate, because they wait for its rate limiter. `refusals` reads refused
        logins over the rate limiter's database connections.
        """
        other = copy.copy(self)
        other._tokens = self._tokens.through(rate_limiter, refusals)
        return other

    def with_retries(self, retry_page: RetryPage) -> "Portal":
        """Return a client that requests failed pages of listings again, so that others are kept."""
        other = copy.copy(self)
        other._retry_page = retry_page
        return other

    def for_company(self, own: Login | None, note_throttled: NoteThrottled) -> "Portal":
        """Return a client that uses a company's own credentials, if it has any.

        It never changes them, so that all requests of a flow are made with the same ones.
        `note_throttled` is awaited before a Throttled is raised.
        """
        other = copy.copy(self)
        other._own, other._note_throttled = own, note_throttled
        return other

    def login_for(self, tin: str) -> Login:
        """Return the login for requests about a taxpayer: the company's own one, or the operator's.

        A company's own client belongs to one taxpayer, and is not used after its TIN changed.
        """
        own, config = self._own, self._config
        if own is not None and own.own_tin == tin:
            return own
        represented = tin if config.portal_intermediary else ""
        return Login(config.portal_client_id, config.portal_client_secret, represented)

    # Operations

    async def log_in(self, tin: str) -> None:
        """Log in, also with a valid token. Raises Throttled, LoginRefused or NotSent."""
        async with self._naming_client(tin) as login:
            self._tokens.drop(login)
            await self._tokens.get(tin, login)

    async def ready(self, tin: str) -> None:
        """Obtain a token and a rate-limit slot, so that the next submission waits for neither."""
        async with self._naming_client(tin) as login:
            await self._tokens.get(tin, login)
            await self._tokens.admit("submit", tin, login)

    @asynccontextmanager
    async def open_submission(self, tin: str, body: bytes) -> AsyncIterator[Send]:
        """Start a submission, and yield `send(check)` when it is connected, with TLS. Portal: 4

        Call `ready` before. Raises NotSent, or the error of a login, if there is no connection. A
        request that was not sent when the block ends is abandoned and its connection closed.

        `check()` runs immediately before the first byte, and again before a second request that a
        401 causes, which is connected before its check too. If it raises NotSent, nothing is sent.
        If the request has failed since it was connected, by a timeout for example, `send` raises
        its error.
        """
        is_connected = asyncio.Event()
        go: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()

        async def hold() -> None:
            is_connected.set()
            check = await go
            check()

        async def send(check: Callable[[], None]) -> SubmissionReceipt:
            if not go.done():
                go.set_result(check)
            return await request

        post = Request(
            tin,
            "submit",
            "POST",
            "/documentsubmissions/",
            body=body,
            before_bytes=hold,
            admitted=True,
        )
        request = asyncio.create_task(self._call(post, responses.receipt))
        connected = asyncio.create_task(is_connected.wait())
        try:
            await asyncio.wait({request, connected}, return_when=asyncio.FIRST_COMPLETED)
            if request.done():
                request.result()
            yield send
        finally:
            connected.cancel()
            request.cancel()
            await asyncio.wait({request})
            # Mark the error as retrieved: it was raised, or the request was abandoned.
            if not request.cancelled():
                request.exception()

    async def submission(self, tin: str, uid: str) -> Listing:
        """Return the documents of a submission, of all pages. Portal: 5.1

        Refused with status 404 can mean that the portal does not show it yet.
        """
        request = Request(tin, "submission", "GET", f"/documentsubmissions/{_part(uid)}")
        read = partial(responses.submission_page, uid=uid)
        return listings.merge(await self._pages(request, read))

    async def details(self, tin: str, uuid: str) -> Document:
        """Return a document with its validation errors. Portal: 5.2

        Use it for the errors of an Invalid document, not for polling.
        """
        request = Request(tin, "details", "GET", f"/documents/{_part(uuid)}/details")
        return await self._call(request, partial(responses.details, uuid=uuid))

    async def raw(self, tin: str, uuid: str, *, further: bool = False) -> Document:
        """Return a document with its `content`, the text that was submitted. Portal: 5.3

        `further`: the request is for a row of a listing, which would be lost. Raises Refused with
        status 404 for an Invalid document, because the portal does not return its text.
        """
        request = Request(tin, "raw", "GET", f"/documents/{_part(uuid)}/raw", further=further)
        return await self._call(request, partial(responses.raw, uuid=uuid))

    async def search(
        self,
        tin: str,
        since: datetime,
        until: datetime,
        *,
        text: str | None = None,
        further: bool = False,
        check: Callable[[], None] | None = None,
    ) -> Listing:
        """Return all documents submitted between two aware times, newest first. Portal: 5.5

        The times may be 31 days apart. Both sent and received documents are requested, because a
        filter that hides one document would confirm a false absence. `text` restricts the listing
        to documents in which the portal finds it; others may exist that it does not find.
        `further`: the request continues another listing, which would be lost. `check` is called
        after each page, and ends the listing by raising.

        Raises Unclear if the listing lost rows or has gaps. At 10,000 documents, where the portal
        may truncate, it is read again as two of half the time range, and Unclear is raised for so
        many in one second.
        """
        pages: list[ListingPage] = []
        spans = [(since, until)]
        while spans:
            span = spans.pop()
            params = {
                "submissionDateFrom": listings.format_second(span[0]),
                "submissionDateTo": listings.format_second(span[1], up=True),
                **({"searchQuery": text} if text else {}),
            }
            request = Request(
                tin, "search", "GET", "/documents/search", params=params, further=further
            )
            try:
                pages += await self._pages(request, responses.listing_page, check)
            except TruncatedListing:
                halves = listings.halve(*span)
                if not halves:
                    raise
                spans += halves
            further = True
        return listings.merge(pages)

    async def cancel(
        self, tin: str, uuid: str, reason: str, *, before_bytes: BeforeBytes | None = None
    ) -> None:
        """Cancel a document. Portal: 6

        After an exception the document may be cancelled nevertheless: read its state.
        `before_bytes()` is awaited when the connection is established and no byte is written, and
        again if a 401 causes a second request. If it raises an error, nothing is sent.
        """
        request = Request(
            tin,
            "cancel",
            "PUT",
            f"/documents/state/{_part(uuid)}/state",
            body=json_codec.encode({"status": "cancelled", "reason": reason}),
            before_bytes=before_bytes,
        )
        await self._call(request, partial(responses.cancelled, uuid=uuid))

    async def validate_tin(self, tin: str, id_type: str, id_value: str, *, taxpayer: str) -> None:
        """Check that a TIN belongs to an identifier. Portal: 3.1

        `taxpayer` is the company that asks. Raises Refused with status 404 and the portal's body if
        it does not.
        """
        path = f"/taxpayer/validate/{_part(tin)}"
        params = {"idType": id_type, "idValue": id_value}
        request = Request(taxpayer, "validate_tin", "GET", path, params=params)
        await self._call(request, responses.known_tin)

    # Sending

    async def _pages(
        self,
        request: Request,
        read: Callable[[PortalResponse], ListingPage],
        check: Callable[[], None] | None = None,
    ) -> list[ListingPage]:
        """Return the pages of a listing, at least one. Raises Unclear unless they are complete."""
        pages: list[ListingPage] = []
        for number in range(1, listings.MOST_PAGES + 1):
            params = {"pageNo": str(number), "pageSize": str(listings.PAGE_SIZE)}
            further = request.further or number > 1
            page = replace(request, params={**request.params, **params}, further=further)
            pages.append(await self._page(page, read))
            if check:
                check()
            if listings.is_last(pages):
                listings.check_complete(pages)
                return pages
        error = TruncatedListing if pages[-1].count > pages[0].count else Unclear
        raise error(f"The listing has more than {listings.MOST_PAGES} pages.")

    async def _page(
        self, request: Request, read: Callable[[PortalResponse], ListingPage]
    ) -> ListingPage:
        """Return a page of a listing, after failures only if `_retry_page` permits."""
        failures: Counter[type[PortalError]] = Counter()
        while True:
            try:
                return await self._call(request, read)
            except PortalError as error:
                failures[type(error)] += 1
                if not (self._retry_page and await self._retry_page(error, failures[type(error)])):
                    raise

    async def _call(self, request: Request, read: Callable[[PortalResponse], T]) -> T:
        """Return what `read` makes of the response. Portal: 8.4

        A 401 means that the request was not processed: it is repeated once with a new token. A 401
        to the new token too is a refused login.
        """
        async with self._naming_client(request.tin) as login:
            response = await self._send(request, login)
            if response.status == 401:
                response = await self._send(request, login, is_repeated=True)
            if response.status != 401:
                await self._tokens.note_accepted(login)
            try:
                return responses.read(response, read)
            except LoginRefused as error:
                await self._tokens.note_refused(login, error, "token")
                raise

    async def _send(
        self, request: Request, login: Login, is_repeated: bool = False
    ) -> PortalResponse:
        """Return the response to a request with a token, which a 401 makes invalid."""
        token = await self._tokens.get(request.tin, login, is_repeated)
        if is_repeated or not request.admitted:
            await self._tokens.admit(request.operation, request.tin, login, request.further)
        headers = {"Authorization": f"Bearer {token.text}"}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        body = request.body and io.BytesIO(request.body)
        url = f"{self._config.portal_api_base}/api/v1.0{request.path}"
        response = await self._exchange(
            request, url, params=request.params, data=body, headers=headers
        )
        if response.status == 401:
            self._tokens.drop(login, token)
        return response

    async def _request_token(self, tin: str, login: Login) -> PortalResponse:
        form = {
            "client_id": login.client_id,
            "client_secret": login.client_secret,
            "grant_type": "client_credentials",
            "scope": "InvoicingAPI",
        }
        headers = {"onbehalfof": login.on_behalf_of} if login.on_behalf_of else {}
        url = f"{self._config.portal_identity_base}/connect/token"
        request = Request(tin, "login", "POST")
        return await self._exchange(request, url, headers=headers, data=form)

    @asynccontextmanager
    async def _naming_client(self, tin: str) -> AsyncIterator[Login]:
        """Yield the login for a taxpayer, name the own client in errors, and note a Throttled."""
        login = self.login_for(tin)
        try:
            yield login
        except PortalError as error:
            error.own_client_id = login.client_id if login.is_own else None
            if self._note_throttled and isinstance(error, Throttled):
                await self._note_throttled(error)
            raise


def _part(text: str) -> str:
    """Quote a string as one segment of a path. Raises ValueError for an empty or dotted one."""
    if text.strip(".") == "":
        raise ValueError("An identifier in a URL must not be empty or consist of dots.")
    return quote(text, safe="")

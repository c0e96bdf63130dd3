"""HTTP hardening below aiohttp: limits of connections, and JSON errors for malformed requests.

By itself aiohttp quotes a malformed line in its response and log, which may contain the key, and
waits without limit for the head of a request. The proxy closes clients that read no response.

The server is stopped without losing a request that is on its way. What has arrived at a socket, and
was not read yet, is lost when the socket is closed. A proxy answers a lost POST with a 502, because
it cannot know that the POST had no effect.

tests/operations/test_aiohttp_internals.py pins the private parts of aiohttp that this relies on.
"""

import asyncio
import logging
import os
import secrets
import select
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

from aiohttp import HttpVersion10, HttpVersion11, web

from service import json_codec
from service.config import Config
from service.errors import (
    ApiError,
    BadRequest,
    Busy,
    ExpectationFailed,
    VersionNotSupported,
    retry_after,
)
from service.http import app_keys, responses
from service.http.error_responses import INTERNAL, error_response
from service.http.requests import header
from service.http.shutdown import STOP_SECONDS

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)

NOT_HTTP = "The request is not valid HTTP, or its head is too large."
KEEPALIVE_SECONDS = 75  # longer than proxies keep idle connections
LINGERING_SECONDS = 5  # for reading the rest of a rejected request
PORT_SECONDS = 1.0  # for accepting the connections that wait, at most
PARTING_SECONDS = 1.0  # in which each request ends the connection that its client has kept, at most
POLL_SECONDS = 0.05


class HardenedRunner(web.AppRunner):
    """An AppRunner whose server enforces the connection limits of the application's Config.

    Does not inflate compressed bodies, which are rejected: a small one can expand to gigabytes.
    """

    __slots__ = ()

    def __init__(self, app: web.Application, **options: Any) -> None:
        options = {
            "keepalive_timeout": KEEPALIVE_SECONDS,
            "lingering_time": LINGERING_SECONDS,
            "shutdown_timeout": STOP_SECONDS,
            **options,
        }
        super().__init__(app, access_log=None, auto_decompress=False, **options)

    async def _make_server(self) -> web.Server:
        return Server(await super()._make_server(), self.app[app_keys.CONFIG])


def _reject_unsupported(handler: Handler) -> Handler:
    """Wrap the application's handler to reject requests that aiohttp would mishandle."""

    # It is no coroutine, since each costs every request.
    def handle(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        error = _find_unsupported(request)
        return handler(request) if error is None else _reject(request, error)

    return handle


async def _reject(request: web.BaseRequest, error: ApiError) -> web.StreamResponse:
    return _close_after(error_response(error, request))


class _Refusal(web.Response):
    """A response without the application, whose headers name no software either."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        del self.headers["Server"]


def _close_after(error: web.Response) -> web.Response:
    """Return an error with the headers of every response, after which the connection is closed."""
    headers = {**error.headers, **_common_headers()}
    refusal = _Refusal(body=error.body, status=error.status, headers=headers)
    refusal.force_close()
    return refusal


def _common_headers() -> dict[str, str]:
    return {"X-Request-Id": secrets.token_hex(12), "X-Content-Type-Options": "nosniff"}


def _find_unsupported(request: web.BaseRequest) -> ApiError | None:
    """Return an error if the head of a request that aiohttp has accepted is not supported."""
    if request.version not in (HttpVersion10, HttpVersion11):
        return VersionNotSupported("The HTTP version must be 1.0 or 1.1.")
    coding = header(request, "Transfer-Encoding")
    if coding is not None and (
        coding.strip().lower() != "chunked" or request.version == HttpVersion10
    ):
        return BadRequest("The transfer encoding must be chunked, with HTTP 1.1.")
    expected = header(request, "Expect")
    if expected is not None and expected.strip().lower() != "100-continue":
        return ExpectationFailed("The only supported expectation is 100-continue.")
    return None


class Connection(web.RequestHandler):
    """A client connection with a timeout for request heads."""

    __slots__ = ("_head_timer", "_limits", "waits_since")

    def __init__(self, manager: "Server", **options: Any) -> None:
        super().__init__(manager, **options)
        self._limits = manager.limits
        self._head_timer: asyncio.TimerHandle | None = None
        #: When the connection was opened, or its latest request began.
        self.waits_since = self._loop.time()

    @property
    def is_idle(self) -> bool:
        """True while no request is running. The head of the next may be partly received."""
        return self._waiter is not None and not self._waiter.done()

    @property
    def waits_for_client(self) -> bool:
        """True while there is no request, or only a part of one."""
        running = self._current_request
        return self.is_idle or (
            self.transport is not None and running is not None and not running.content.is_eof()
        )

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response, and free both bodies: aiohttp keeps request and response until the next
        request of the connection. Work that goes on after the response may need the rest.
        """
        finished = await super().finish_response(request, resp, start_time)
        if request.body_exists:
            request.pop(app_keys.BODY, None)
            request.pop(app_keys.FORM, None)
        if isinstance(resp, web.Response):
            resp.body = None
        return finished

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, or reject it with a 503 at the connection limit."""
        transport = cast(asyncio.Transport, transport)
        if not cast(Server, self._manager).make_room():
            self._reject(transport)
            return
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Parse data, and limit the time from the first byte of a head to its last."""
        if self._head_timer is None and self.is_idle:
            self.waits_since = self._loop.time()
        try:
            super().data_received(data)
        except Exception as error:  # asyncio would log its message, which quotes client data
            log.warning("connection closed: %s", type(error).__name__)
            self.force_close()
        if self.is_idle:
            if self._head_timer is None and data:
                self._start_head_timer()
        elif self._request_count and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to malformed HTTP, and close the connection after it."""
        self.log_exception("request rejected", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("The response has begun; the connection is closed.")
        error = ApiError(INTERNAL) if status >= 500 else BadRequest(NOT_HTTP)
        return _close_after(responses.json_response(error.body, status))

    def log_exception(self, *args: object, **kw: object) -> None:
        """Log only the class of an exception: messages of the parser quote client data."""
        error = kw.get("exc_info")
        log.warning("connection closed: %s", type(error).__name__ if error else args[0])

    def _start_head_timer(self) -> None:
        self._head_timer = self._loop.call_later(
            self._limits.head_timeout, self._close_without_head
        )

    def _close_without_head(self) -> None:
        self._head_timer = None
        if self.is_idle:
            self.force_close()

    def _reject(self, transport: asyncio.Transport) -> None:
        """Write a 503 and close, without reading a request."""
        self._force_close = True  # Discards all data that the client sends from now on.
        error = Busy("The service has reached its connection limit, please try again.")
        body = json_codec.encode(error.body)
        fields = {
            "Content-Type": "application/json",
            "Content-Length": len(body),
            "Connection": "close",
            **_common_headers(),
            **retry_after(2),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        transport.write(f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n".encode() + body)
        transport.close()


class Server(web.Server):
    def __init__(self, server: web.Server, limits: Config) -> None:
        """Take over handler and options of a server that has no connections yet."""
        super().__init__(
            _reject_unsupported(server.request_handler),
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
            loop=server._loop,
            **server._kwargs,
        )
        self.limits = limits

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)

    def make_room(self) -> bool:
        """Return whether a new connection is accepted.

        At the limit, closes the connection whose client was waited for longest, for a request or
        the rest of one; without one, returns False.
        """
        if len(self.connections) < self.limits.max_connections:
            return True
        waiting = [
            connection
            for connection in self.connections
            if isinstance(connection, Connection) and connection.waits_for_client
        ]
        if waiting:
            min(waiting, key=lambda connection: connection.waits_since).force_close()
        return bool(waiting)


# Stopping


class Site(web.TCPSite):
    __slots__ = ()

    @property
    def descriptors(self) -> list[int]:
        server = cast(asyncio.Server | None, self._server)
        return [sock.fileno() for sock in server.sockets] if server else []


async def close_port(site: Site) -> None:
    """Close the port of a site once no connection waits to be accepted."""
    until = time.monotonic() + PORT_SECONDS
    while _have_input(site.descriptors) and time.monotonic() < until:
        await asyncio.sleep(0)
    await site.stop()


async def close_idle_connections(runner: web.AppRunner) -> None:
    """Close the idle connections of a server whose responses close theirs.

    Clients get a moment to use the connections that they have kept: a connection that ends with a
    response loses nothing, while a request can cross the close of an idle one.
    """
    until = time.monotonic() + PARTING_SECONDS
    while _find_idle(runner) and time.monotonic() < until:
        await asyncio.sleep(POLL_SECONDS)
    for connection in _find_idle(runner):
        _close_unless_used(connection)


def _find_idle(runner: web.AppRunner) -> list[Connection]:
    connections = runner.server.connections if runner.server else []
    return [one for one in connections if isinstance(one, Connection) and one.is_idle]


def _close_unless_used(connection: Connection) -> None:
    """Close a connection, unless a request has arrived. The client learns of it at once."""
    if connection.transport is None:
        return
    descriptor = connection.transport.get_extra_info("socket").fileno()
    if not _have_input([descriptor]):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as sock:
            sock.shutdown(socket.SHUT_WR)
        connection.force_close()


def _have_input(descriptors: list[int]) -> bool:
    """Return whether a socket has data, or a connection to accept, that was not read yet."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))

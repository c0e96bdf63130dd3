"""Below the application: what never becomes a request of it is answered in our shape, and echoed nowhere.

aiohttp answers a head that it cannot parse by itself, quotes the line at fault, which may be the one with
the key, and logs it. It waits for a head, and for a client that takes its answer, as long as that likes.
"""

import logging
import secrets
import socket

from aiohttp import HttpVersion10, HttpVersion11, web

from service import json_codec
from service.errors import BadRequest, ExpectationFailed, VersionNotSupported, retry_after
from service.http import app_keys, responses
from service.http.middleware import INTERNAL, error_response
from service.http.requests import header

log = logging.getLogger(__name__)

NOT_HTTP = "The request is not one that HTTP allows, or its head is too large."
FULL = "The service has as many connections as it takes, please try again."
KEEPALIVE_SECONDS = 75  # between two requests; longer than a proxy keeps its own
LINGERING_SECONDS = 5  # for what a client still sends when it has been refused
#: What the system keeps of an answer that is not taken. More of it, and a slow reader would seem to
#: stand still.
SEND_BUFFER = 256 * 1024


class HardenedRunner(web.AppRunner):
    """An AppRunner whose connections answer and log in our way, within the limits of the application's Config.

    A compressed body, which is refused, is not inflated either: a small one can hold up everything.
    """

    __slots__ = ()

    def __init__(self, app, **options):
        options = {
            "keepalive_timeout": KEEPALIVE_SECONDS,
            "lingering_time": LINGERING_SECONDS,
            **options,
        }
        super().__init__(app, access_log=None, auto_decompress=False, **options)

    async def _make_server(self):
        server = await super()._make_server()
        server.__class__ = _Server
        server.limits = self.app[app_keys.CONFIG]
        server.request_handler = _guarded(server.request_handler)
        return server


def _guarded(handler):
    """The application's handler, behind what it would answer in another shape or not see at all."""

    async def guarded(request):
        refusal = _refusal(request)
        if refusal is None:
            return await handler(request)
        response = error_response(refusal, request)
        response.headers["X-Request-Id"] = secrets.token_hex(12)
        response.force_close()
        return response

    return guarded


def _refusal(request):
    """What is wrong with the head of a request that aiohttp has let through, or None."""
    if request.version not in (HttpVersion10, HttpVersion11):
        return VersionNotSupported("The version of HTTP must be 1.0 or 1.1.")
    coding = header(request, "Transfer-Encoding")
    if coding is not None and (
        coding.strip().lower() != "chunked" or request.version == HttpVersion10
    ):
        return BadRequest("The transfer encoding must be chunked, in HTTP 1.1.")
    expected = header(request, "Expect")
    if expected is not None and expected.strip().lower() != "100-continue":
        return ExpectationFailed("Nothing but 100-continue can be expected.")
    return None


class _Server(web.Server):
    def __call__(self):
        return _Connection(self, loop=self._loop, **self._kwargs)

    def makes_room(self):
        """Whether one more connection may be: of too many, the one that has been between two requests for longest has to go."""
        if len(self._connections) < self.limits.max_connections:
            return True
        idle = [connection for connection in self._connections if connection.is_idle]
        if idle:
            min(idle, key=_Connection.idle_until).force_close()
        return bool(idle)


class _Connection(web.RequestHandler):
    __slots__ = ("_head_timer", "_limits", "_socket", "_stall_timer")

    def __init__(self, manager, **options):
        super().__init__(manager, **options)
        self._limits = manager.limits
        self._socket = self._head_timer = self._stall_timer = None

    @property
    def is_idle(self):
        """Whether nothing is under way but, at most, a head."""
        return self._waiter is not None and not self._waiter.done()

    def idle_until(self):
        """When it would be closed for its idleness: the sooner, the longer it has been idle."""
        return self._next_keepalive_close_time

    def connection_made(self, transport):
        if not self._manager.makes_room():
            self._turn_away(transport)
            return
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER
        )
        self._socket = transport
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data):
        try:
            super().data_received(data)
        except Exception as fault:  # what asyncio would say of it quotes what was sent
            log.warning("a connection was broken off: %s", type(fault).__name__)
            self.force_close()
        if self.is_idle:
            if self._head_timer is None and data:
                self._await_head()
        elif self._request_count and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self):
        super().pause_writing()
        self._stall_timer = self._loop.call_later(
            self._limits.stall_timeout.total_seconds(), self._stalled
        )

    def resume_writing(self):
        self._stall_timer.cancel()
        super().resume_writing()

    def connection_lost(self, exc):
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_error(self, request, status=500, exc=None, message=None):
        """The response to a head or a body that breaks HTTP; the connection is closed after it."""
        self.log_exception("request refused", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("The response has begun; the connection is broken off.")
        wording = INTERNAL if status >= 500 else NOT_HTTP
        response = responses.json_response(
            {"message": wording}, status, {"X-Request-Id": secrets.token_hex(12)}
        )
        response.force_close()
        return response

    def log_exception(self, *args, **kw):
        """The kind of fault alone: messages of the parser quote what was sent."""
        fault = kw.get("exc_info")
        log.warning("a connection was broken off: %s", type(fault).__name__ if fault else args[0])

    def _await_head(self):
        """From the first byte of a head, or from the start of a connection, to its last there is so much time."""
        self._head_timer = self._loop.call_later(
            self._limits.head_timeout.total_seconds(), self._head_is_late
        )

    def _head_is_late(self):
        self._head_timer = None
        if self.is_idle:
            self.force_close()

    def _stalled(self):
        log.warning("a connection was broken off: the client takes nothing of its answer")
        self._socket.abort()

    def _turn_away(self, transport):
        self._force_close = True
        body = json_codec.dumps({"message": FULL}).encode()
        fields = {
            "Content-Type": "application/json",
            "Content-Length": len(body),
            "Connection": "close",
            **retry_after(2),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        transport.write(f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n".encode() + body)
        transport.close()

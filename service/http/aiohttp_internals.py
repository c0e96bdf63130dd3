"""The private parts of aiohttp's server that the service uses, under names of its own.

tests/operations/test_aiohttp_internals.py pins the behaviour that is relied on.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web

from service.http import app_keys


class Connection(web.RequestHandler):
    """A client connection of aiohttp's server."""

    __slots__ = ()

    @property
    def server(self) -> web.Server | None:
        """The server of the connection, None once the connection is lost."""
        return self._manager

    @property
    def has_had_request(self) -> bool:
        """True once the head of a first request was parsed."""
        return bool(self._request_count)

    @property
    def is_idle(self) -> bool:
        """True while no request is running. The head of the next may be partly received."""
        return self._waiter is not None and not self._waiter.done()

    @property
    def now(self) -> float:
        """The time of the connection's event loop."""
        return self._loop.time()

    @property
    def is_receiving(self) -> bool:
        """True while the body of the running request has not arrived completely."""
        running = self._current_request
        return self.transport is not None and running is not None and not running.content.is_eof()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response, and free both bodies: aiohttp keeps request and response until the next
        request of the connection. Work that goes on after the response may need the rest.
        """
        finished = await super().finish_response(request, resp, start_time)
        if app_keys.BODY in request:
            del request[app_keys.BODY]
        if app_keys.FORM in request:
            del request[app_keys.FORM]
        if isinstance(resp, web.Response):
            resp.body = None
        return finished

    def ignore_input(self) -> None:
        """Discard all data that the client sends from now on."""
        self._force_close = True

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Schedule a callback on the connection's event loop."""
        return self._loop.call_later(seconds, callback)


class Server(web.Server):
    """aiohttp's server of an application, with connections of the class `connection_class`."""

    connection_class: type[Connection] = Connection

    def __init__(self, server: web.Server, **changes: Any) -> None:
        """Take over handler and options of a server that has no connections yet."""
        options = {
            "handler": server.request_handler,
            "request_factory": server.request_factory,
            "handler_cancellation": server.handler_cancellation,
            "loop": server._loop,
            **server._kwargs,
        }
        super().__init__(**{**options, **changes})

    def __call__(self) -> web.RequestHandler:
        """Return the protocol for a new connection."""
        return self.connection_class(self, loop=self._loop, **self._kwargs)

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)


class Site(web.TCPSite):
    """A port of a server."""

    __slots__ = ()

    @property
    def descriptors(self) -> list[int]:
        """The file descriptors of the sockets that listen."""
        server = cast(asyncio.Server | None, self._server)
        return [sock.fileno() for sock in server.sockets] if server else []


class Runner(web.AppRunner):
    """An AppRunner that replaces aiohttp's server by the result of `build_server`."""

    __slots__ = ()

    async def _make_server(self) -> web.Server:
        return self.build_server(await super()._make_server())

    def build_server(self, server: web.Server) -> web.Server:
        """Return the server to use. `server` is aiohttp's, without connections yet."""
        return Server(server)

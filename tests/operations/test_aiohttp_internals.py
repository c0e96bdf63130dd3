"""The behaviour of aiohttp's private parts that service/http/server.py relies on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from service.config import read_config
from service.http import app_keys
from service.http.server import Connection, HardenedRunner, Server
from tests.conftest import patience

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Observed:
    """A server on a free port, and what its handler saw of its connection."""

    def __init__(self) -> None:
        app = web.Application()
        app[app_keys.CONFIG] = read_config({})
        app.router.add_get("/", self._handle)
        self.runner = HardenedRunner(app)
        self.states: list[tuple[bool, bool]] = []
        self.received: list[bool] = []
        self.latest: tuple[web.Request, web.Response] | None = None

    async def _handle(self, request: web.Request) -> web.Response:
        connection = self.connection
        self.states.append((connection.is_idle, bool(connection._request_count)))
        self.received.append(connection.waits_for_client)
        request[app_keys.BODY] = b"{}"
        request[app_keys.COMPANY] = 1
        self.latest = request, web.Response(text="ok")
        return self.latest[1]

    @property
    def server(self) -> Server:
        server = self.runner.server
        assert isinstance(server, Server)
        return server

    @property
    def connection(self) -> Connection:
        (connection,) = self.server.connections
        assert isinstance(connection, Connection)
        return connection


@asynccontextmanager
async def observed() -> AsyncIterator[tuple[Observed, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve, and open one connection."""
    seen = Observed()
    await seen.runner.setup()
    try:
        await web.TCPSite(seen.runner, "127.0.0.1", 0).start()
        reader, writer = await asyncio.open_connection(*seen.runner.addresses[0])
        async with patience():
            while not (seen.server.connections and seen.connection.is_idle):
                await asyncio.sleep(0.01)
        yield seen, reader, writer
        writer.close()
    finally:
        await seen.runner.cleanup()


async def test_a_connection_is_idle_except_during_a_request() -> None:
    async with observed() as (seen, reader, writer), patience():
        assert seen.connection._manager is seen.server
        assert seen.connection.is_idle and not seen.connection._request_count
        writer.write(REQUEST[:10])
        await writer.drain()
        assert seen.connection.is_idle and not seen.connection._request_count
        writer.write(REQUEST[10:])
        await reader.readuntil(b"ok")
        assert seen.states == [(False, True)]
        while not seen.connection.is_idle:
            await asyncio.sleep(0.01)
        assert seen.connection._request_count


async def test_a_connection_is_receiving_until_the_body_is_complete() -> None:
    async with observed() as (seen, reader, writer), patience():
        writer.write(REQUEST.replace(b"Host", b"Content-Length: 2\r\nHost"))
        await reader.readuntil(b"ok")
        writer.write(b"{}" + REQUEST)
        await reader.readuntil(b"ok")
        assert seen.received == [True, False]


async def test_an_idle_connection_keeps_no_body() -> None:
    async with observed() as (seen, reader, writer), patience():
        writer.write(REQUEST.replace(b"Host", b"Content-Length: 2\r\nHost") + b"{}")
        await reader.readuntil(b"ok")
        while not seen.connection.is_idle:
            await asyncio.sleep(0.01)
        assert seen.latest is not None
        request, response = seen.latest
        assert app_keys.BODY not in request and response.body is None
        assert request[app_keys.COMPANY] == 1  # for work that goes on


async def test_force_close_ends_an_idle_connection() -> None:
    async with observed() as (seen, reader, _), patience():
        seen.connection.force_close()
        assert await reader.read() == b""
        while seen.server.connections:
            await asyncio.sleep(0.01)


async def test_ignored_input_reaches_no_handler() -> None:
    async with observed() as (seen, _, _writer):
        seen.connection._force_close = True
        seen.connection.data_received(REQUEST)
        await asyncio.sleep(0)
        assert seen.connection.is_idle and seen.states == []

"""Requests that arrive while the port and idle connections are closed."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from service.config import read_config
from service.http import app_keys
from service.http import server as http_server
from service.http.server import (
    Connection,
    HardenedRunner,
    Site,
    close_idle_connections,
    close_port,
)
from tests.conftest import patience

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Server:
    """A server on a free port that answers every POST."""

    def __init__(self) -> None:
        app = web.Application()
        app[app_keys.CONFIG] = read_config({})
        app.router.add_post("/", self._handle)
        self.runner = HardenedRunner(app)

    async def start(self) -> None:
        await self.runner.setup()
        self.site = Site(self.runner, "127.0.0.1", 0)
        await self.site.start()

    async def _handle(self, request: web.Request) -> web.Response:
        return web.Response(text="stored")

    def connect(self) -> socket.socket:
        """Connect without a step of the event loop, so that nothing is accepted."""
        return socket.create_connection(self.runner.addresses[0][:2])

    async def connect_idle(self) -> socket.socket:
        """Connect, and wait until the connection is idle."""
        number = self._count_idle()
        connected = self.connect()
        async with patience():
            while self._count_idle() == number:
                await asyncio.sleep(0.01)
        return connected

    def _count_idle(self) -> int:
        assert self.runner.server is not None
        connections = self.runner.server.connections
        return sum(isinstance(one, Connection) and one.is_idle for one in connections)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    await server.runner.cleanup()


async def read_all(connected: socket.socket) -> bytes:
    """Return everything that the server sends."""
    connected.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connected)
    async with patience():
        answer = await reader.read()
    writer.close()
    return answer


async def test_connection_that_waits_while_the_port_closes_is_served(server: Server) -> None:
    connected = server.connect()
    connected.sendall(REQUEST)
    await close_port(server.site)
    assert (await read_all(connected)).endswith(b"stored")


async def test_request_that_arrives_while_idle_connections_close_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "PARTING_SECONDS", 0)
    used, idle = await server.connect_idle(), await server.connect_idle()
    await server.site.stop()
    used.sendall(REQUEST)
    await close_idle_connections(server.runner)
    assert idle.recv(1) == b"", "the client learns at once that its connection is closed"
    await server.runner.cleanup()
    assert (await read_all(used)).endswith(b"stored")
    idle.close()


async def test_connections_that_clients_use_end_with_their_responses(server: Server) -> None:
    """The closing waits for the clients, and closes none of the connections itself."""
    used = await server.connect_idle()
    closing_task = asyncio.create_task(close_idle_connections(server.runner))
    await asyncio.sleep(0)
    used.sendall(REQUEST)
    assert (await read_all(used)).endswith(b"stored")
    await closing_task

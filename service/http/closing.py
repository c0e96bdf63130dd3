"""Closing the port and idle connections without losing a request that is on its way.

What has arrived at a socket, and was not read yet, is lost when the socket is closed. A proxy
answers a lost POST with a 502, because it cannot know that the POST had no effect.
"""

import asyncio
import os
import select
import socket
import time
from contextlib import suppress
from typing import cast

from aiohttp import web

from service.http.server import Connection

PORT_SECONDS = 1.0  # for accepting the connections that wait, at most
PARTING_SECONDS = 1.0  # in which each request ends the connection that its client has kept, at most
POLL_SECONDS = 0.05


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

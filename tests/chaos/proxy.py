"""A proxy between the services and PostgreSQL that loses data and connections at bad moments."""

import asyncio
from contextlib import suppress
from random import Random

from .counters import Counters

# The service ends a transaction with a simple query.
COMMIT = b"Q\x00\x00\x00\x0bcommit\x00"
CHUNK = 65536

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Listens on `port` and forwards to the port `target`.

    Three shares, from 0 to 1, can be changed at any time. `lost`: commits that are forwarded while
    their response is not. `cut`: client messages at which both sides of the connection are closed.
    `silent`: client messages after which nothing is forwarded in either direction, without FIN or
    RST, until PostgreSQL's side is closed `silence` seconds later, as the kernel does for a host
    that has vanished.
    """

    def __init__(
        self, target: int, random: Random, counters: Counters, silence: float = 5.0
    ) -> None:
        self.silence = silence
        self._target, self._random, self._counters = target, random, counters
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None] | None] = set()
        self.port = 0
        self.lost = self.cut = self.silent = 0.0

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server:
            self._server.close()
        tasks = [task for task in self._connections if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
        else:
            with suppress(asyncio.CancelledError):
                await Link(self, (reader, writer), server).forward()
        finally:
            self._connections.discard(task)

    def loses(self, chunk: bytes) -> bool:
        """Return whether the response to these bytes gets lost."""
        return chunk.endswith(COMMIT) and self._happens(self.lost, "commit answers lost")

    def cuts(self) -> bool:
        """Return whether the connection is closed now."""
        return self._happens(self.cut, "connections cut")

    def falls_silent(self) -> bool:
        """Return whether the connection forwards nothing from now on."""
        return self._happens(self.silent, "connections silent")

    def _happens(self, share: float, counter: str) -> bool:
        happens = self._random.random() < share
        if happens:
            self._counters.count(counter)
        return happens


class Link:
    """One connection of a client and its connection to PostgreSQL."""

    def __init__(self, proxy: Proxy, client: Streams, server: Streams) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._is_mute = False
        self._is_silent = False

    async def forward(self) -> None:
        """Forward both ways until one side is closed or a response is to be lost."""
        ways = {
            asyncio.create_task(self._forward_requests()),
            asyncio.create_task(self._forward_responses()),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ways:
                task.cancel()
            for _, writer in (self._client, self._server):
                writer.close()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _forward_requests(self) -> None:
        with suppress(OSError):
            while chunk := await self._client[0].read(CHUNK):
                if self._proxy.cuts():
                    return
                if self._proxy.falls_silent():
                    self._is_silent = True
                    await asyncio.sleep(self._proxy.silence)
                    return
                self._is_mute = self._proxy.loses(chunk)
                self._server[1].write(chunk)
                await self._server[1].drain()

    async def _forward_responses(self) -> None:
        with suppress(OSError):
            while chunk := await self._server[0].read(CHUNK):
                if self._is_mute:
                    return
                if self._is_silent:
                    continue
                self._client[1].write(chunk)
                await self._client[1].drain()

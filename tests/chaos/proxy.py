"""Between the services and PostgreSQL: forwards, and now and then loses a connection at a bad moment."""

import asyncio
from contextlib import suppress

# As a simple query, which is how the service ends a transaction
COMMIT = b"Q\x00\x00\x00\x0bcommit\x00"
CHUNK = 65536


class Proxy:
    """Listens on `port` and forwards to whatever `target()` is the port of.

    Of the commits, the share `lost` (0 to 1) is forwarded and the answer is not. Of all messages of clients, the share
    `cut` is not forwarded and the connection is closed on both sides; after the share `silent` nothing is forwarded any
    more in either direction, without a FIN or RST, until `silence` seconds later PostgreSQL's side is closed, as the
    kernel does for a host that has vanished.
    """

    def __init__(self, target, random, counters, silence=5.0):
        self.silence = silence
        self._target, self._random, self._counters = target, random, counters
        self._server = None
        self._connections = set()
        self.port = None
        self.lost = self.cut = self.silent = 0.0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *raised):
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader, writer):
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target())
        except OSError:
            writer.close()
        else:
            with suppress(asyncio.CancelledError):
                await Link(self, (reader, writer), there).forward()
        finally:
            self._connections.discard(task)

    def loses(self, chunk):
        """Whether the answer to these bytes gets lost."""
        return chunk.endswith(COMMIT) and self._happens(self.lost, "commit answers lost")

    def cuts(self):
        return self._happens(self.cut, "connections cut")

    def falls_silent(self):
        return self._happens(self.silent, "connections silent")

    def _happens(self, share, counter):
        happens = self._random.random() < share
        if happens:
            self._counters.count(counter)
        return happens


class Link:
    """One connection and its other half."""

    def __init__(self, proxy, here, there):
        self._proxy, self._here, self._there = proxy, here, there
        self._is_mute = False
        self._is_silent = False

    async def forward(self):
        """Both ways, until either side is closed, or an answer is there that is to be lost."""
        ways = {asyncio.create_task(self._requests()), asyncio.create_task(self._answers())}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ways:
                task.cancel()
            for _, writer in (self._here, self._there):
                writer.close()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self):
        with suppress(OSError):
            while chunk := await self._here[0].read(CHUNK):
                if self._proxy.cuts():
                    return None
                if self._proxy.falls_silent():
                    return await self._be_silent()
                self._is_mute = self._proxy.loses(chunk)
                self._there[1].write(chunk)
                await self._there[1].drain()
        return None

    async def _be_silent(self):
        self._is_silent = True
        await asyncio.sleep(self._proxy.silence)

    async def _answers(self):
        with suppress(OSError):
            while chunk := await self._there[0].read(CHUNK):
                if self._is_mute:
                    return
                if self._is_silent:
                    continue
                self._here[1].write(chunk)
                await self._here[1].drain()

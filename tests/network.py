"""A network between the service and PostgreSQL that can be cut, and that can fall silent."""

import asyncio
import socket
import struct
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit


class Network:
    """Carries bytes from a port of its own to the server of `url`; `self.url` is the way through it.

    What is `silenced` stays open and carries nothing, like a path whose router has forgotten it. Each piece is carried
    `delay` seconds after it came.
    """

    def __init__(self, url, delay=0.0):
        self._delay = delay
        parts = urlsplit(url.replace("sslmode=disable", "sslmode=prefer"))
        self._server = (parts.hostname, parts.port)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        login = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{self.port}"))
        self._accepting = None
        self._paths = set()  # writers of both ends
        self._silent = set()
        self._swallows = self._resets = False

    async def refuse(self):
        """Cuts every connection, and takes no new one."""
        if self._accepting:
            self._accepting.close()
            self._accepting = None
        for writer in list(self._paths):
            writer.transport.abort()

    async def heal(self):
        """Carries new connections again, and what they say; those that were silenced stay silent."""
        self._swallows = self._resets = False
        if not self._accepting:
            self._accepting = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def reset(self):
        """Cuts every connection, and each new one as soon as it is made, as a server does whose process dies."""
        await self.refuse()
        await self.heal()
        self._resets = True

    def forget(self):
        """The connections that there are carry nothing any more; new ones do."""
        self._silent |= self._paths

    def swallow(self):
        """No connection carries anything, and new ones are taken and not answered."""
        self._swallows = True
        self.forget()

    async def _accept(self, reader, writer):
        if self._resets:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            return writer.transport.abort()
        self._paths.add(writer)
        if self._swallows:
            self._silent.add(writer)
        there, back = await asyncio.open_connection(*self._server)
        self._paths.add(back)
        if writer in self._silent:
            self._silent.add(back)
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))
        return None

    async def _carry(self, reader, writer):
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                if self._delay:
                    loop.call_later(self._delay, self._write, writer, piece)
                else:
                    self._write(writer, piece)
        self._paths.discard(writer)
        loop.call_later(self._delay, writer.close)

    def _write(self, writer, piece):
        if writer not in self._silent and not writer.is_closing():
            writer.write(piece)

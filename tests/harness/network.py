"""A network between the service and PostgreSQL that a test can cut or silence."""

import asyncio
import socket
import struct
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

from tests.harness.processes import free_port


class Network:
    """A proxy to the server of `url`, with its own address in `self.url`.

    A silenced connection stays open and carries nothing, as after the loss of a router's state.
    Data is carried after a delay in seconds.
    """

    def __init__(self, url: str, delay: float = 0.0) -> None:
        self._delay = delay
        parts = urlsplit(url.replace("sslmode=disable", "sslmode=prefer"))
        self._server = (parts.hostname, parts.port)
        self.port = free_port()
        login = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{self.port}"))
        self._accepting: asyncio.Server | None = None
        self._paths: set[asyncio.StreamWriter] = set()  # Writers of both ends.
        self._silent: set[asyncio.StreamWriter] = set()
        self._swallows = self._resets = self._loses_commit = False
        self._without_response: asyncio.StreamWriter | None = None

    async def refuse(self) -> None:
        """Cut every connection and accept no new ones."""
        if self._accepting:
            self._accepting.close()
            self._accepting = None
        for writer in list(self._paths):
            writer.transport.abort()

    async def heal(self) -> None:
        """Carry new connections again. Silenced connections stay silent."""
        self._swallows = self._resets = False
        if not self._accepting:
            self._accepting = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def reset(self) -> None:
        """Reset every connection, and each new one at once, as a server whose process dies."""
        await self.refuse()
        await self.heal()
        self._resets = True

    async def lead_to(self, url: str) -> None:
        """Cut every connection, and carry new ones to the server of another URL."""
        await self.refuse()
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        await self.heal()

    def forget(self) -> None:
        """Silence the current connections. New ones are carried."""
        self._silent |= self._paths

    def swallow(self) -> None:
        """Silence all connections. New ones are accepted and get no response."""
        self._swallows = True
        self.forget()

    def lose_commit(self) -> None:
        """Cut the connection of the next transaction when the server has committed it."""
        self._loses_commit = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._resets:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            return writer.transport.abort()
        self._paths.add(writer)
        if self._swallows:
            self._silent.add(writer)
        try:
            there, back = await asyncio.open_connection(*self._server)
        except ConnectionError:
            return writer.transport.abort()
        self._paths.add(back)
        if writer in self._silent:
            self._silent.add(back)
        await asyncio.gather(self._carry(reader, back, writer), self._carry(there, writer))
        return None

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: asyncio.StreamWriter | None = None,
    ) -> None:
        """Carry data in one direction, for a client that gets the responses to it."""
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                if self._loses_commit and client and b"commit\0" in piece:
                    self._loses_commit, self._without_response = False, client
                if self._delay:
                    loop.call_later(self._delay, self._write, writer, piece)
                else:
                    self._write(writer, piece)
        self._paths.discard(writer)
        loop.call_later(self._delay, writer.close)

    def _write(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        if writer is self._without_response:
            writer.transport.abort()
        if writer not in self._silent and not writer.is_closing():
            writer.write(piece)

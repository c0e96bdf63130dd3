"""A TLS proxy in front of a server on loopback that delays the handshake of new connections."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from tests.harness.certificates import make_server_certificate


@dataclass
class Authority:
    """A self-signed certificate of 127.0.0.1."""

    file: Path  # the CA file for clients
    server: ssl.SSLContext

    @property
    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.file)


def make_authority(directory: Path) -> Authority:
    issued = make_server_certificate(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate, private = directory / "tls.pem", directory / "tls.key"
    certificate.write_text(issued.certificate_pem)
    private.write_text(issued.key_pem)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, private)
    return Authority(certificate, server)


@dataclass
class SlowPath:
    """The path to the server. The handshake of a new connection waits for `seconds`."""

    seconds: float
    base: str = ""
    connections: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)  # no handshake before it is set


@asynccontextmanager
async def slow_path(port: int, authority: Authority, seconds: float = 0) -> AsyncIterator[SlowPath]:
    """Yield a path to a local port that connects TCP at once and TLS after a delay."""
    path = SlowPath(seconds)
    path.is_open.set()

    async def delay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path.connections += 1
        await asyncio.sleep(path.seconds)
        await path.is_open.wait()
        await _join(reader, writer, encrypted.sockets[0].getsockname()[1])

    async def decrypt(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join(reader, writer, port)

    encrypted = await asyncio.start_server(decrypt, "127.0.0.1", 0, ssl=authority.server)
    delayed = await asyncio.start_server(delay, "127.0.0.1", 0)
    path.base = f"https://127.0.0.1:{delayed.sockets[0].getsockname()[1]}"
    async with encrypted, delayed:
        yield path


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_carry(reader, back), _carry(there, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()

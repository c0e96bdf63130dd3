"""A TLS proxy in front of a server on loopback that delays the handshake of new connections."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from harness.certificates import rsa_key


@dataclass
class Authority:
    """A self-signed certificate of 127.0.0.1."""

    file: Path  # the CA file for clients
    server: ssl.SSLContext

    @property
    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.file)


def make_authority(directory: Path) -> Authority:
    key, name = (
        rsa_key("tls"),
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")]),
    )
    now, address = datetime.now(UTC), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(
        now + timedelta(days=1)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate, private = directory / "tls.pem", directory / "tls.key"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
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

"""An HTTP client that sends given bytes and reads the response, also for malformed requests."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

LINE_LIMIT = 2**16


class NoResponse(Exception):
    """The connection was closed before the response was complete."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response; its head is in lower case."""

    status: int
    head: bytes
    body: bytes

    @property
    def media_type(self) -> str:
        return get_field(self.head, b"content-type").partition(b";")[0].decode()

    @property
    def is_last(self) -> bool:
        """Return whether the server closes the connection after the response."""
        return get_field(self.head, b"connection") == b"close" or not self.head.startswith(
            b"http/1.1"
        )

    def json(self) -> Any:
        """Return the body as a JSON value. Raises ValueError."""
        return json.loads(self.body)


class Connection:
    """A connection to 127.0.0.1, opened at the first request and again after it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, raw: bytes, method: str = "GET") -> Response:
        """Send the bytes of one request and return the response. Raises NoResponse."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(
                    "127.0.0.1", self._port, limit=LINE_LIMIT
                )
            reader, writer = self._streams
            writer.write(raw)
            response = await read_response(reader, method)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            self.close()
            raise NoResponse(type(error).__name__) from None
        except BaseException:
            self.close()
            raise
        if response.is_last:
            self.close()
        return response

    def close(self) -> None:
        """Abort the connection, if it is open."""
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._streams = None


async def read_response(reader: asyncio.StreamReader, method: str) -> Response:
    """Return the next final response."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split()[1])
        if status >= 200:
            break
    if method == "HEAD" or status in (204, 304):
        return Response(status, head, b"")
    if get_field(head, b"transfer-encoding") == b"chunked":
        return Response(status, head, await read_chunks(reader))
    length = int(get_field(head, b"content-length"))
    return Response(status, head, await reader.readexactly(length))


async def read_chunks(reader: asyncio.StreamReader) -> bytes:
    """Return a chunked body."""
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(parts)


def get_field(head: bytes, name: bytes) -> bytes:
    """Return the value of a field of a head in lower case, empty if it is absent."""
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]


def make_request(method: str, path: str, key: str, body: str | None = None) -> bytes:
    """Return the bytes of a valid request with the key of a company; `body` is JSON text."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {key}"]
    raw = (body or "").encode()
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(raw)}"]
    return "\r\n".join([*lines, "", ""]).encode() + raw

"""A client that sends what it is told, byte by byte, and reads what comes back: for requests that no library would send."""

import asyncio
import json
from dataclasses import dataclass

HIGHEST_LINE = 2**16


class NoAnswer(Exception):
    """The connection was closed before an answer was whole."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    head: bytes  # in lower case
    body: bytes

    @property
    def kind(self):
        """The media type."""
        return field(self.head, b"content-type").partition(b";")[0].decode()

    @property
    def is_last(self):
        """Whether the connection is closed after it."""
        return field(self.head, b"connection") == b"close" or not self.head.startswith(b"http/1.1")

    def json(self):
        return json.loads(self.body)


class Connection:
    """One connection to 127.0.0.1, made when it is first needed and made anew when it was closed."""

    def __init__(self, port):
        self._port = port
        self._reader = self._writer = None

    async def ask(self, sent, method="GET"):
        """The Answer to the bytes of one request. Raises NoAnswer."""
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, limit=HIGHEST_LINE
                )
            self._writer.write(sent)
            answer = await read_answer(self._reader, method)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as fault:
            self.close()
            raise NoAnswer(type(fault).__name__) from None
        except BaseException:
            self.close()
            raise
        if answer.is_last:
            self.close()
        return answer

    def close(self):
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


async def read_answer(reader, method):
    """The next Answer that is final."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split()[1])
        if status >= 200:
            break
    if method == "HEAD" or status in (204, 304):
        return Answer(status, head, b"")
    if field(head, b"transfer-encoding") == b"chunked":
        return Answer(status, head, await _chunks(reader))
    return Answer(status, head, await reader.readexactly(int(field(head, b"content-length"))))


async def _chunks(reader):
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(parts)


def field(head, name):
    """The value of a field of a head in lower case; empty when it is not there."""
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]


def request(method, path, key, body=None, *fields):
    """The bytes of a good request with the key of a company; `body` is JSON text."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {key}", *fields]
    raw = (body or "").encode()
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(raw)}"]
    return "\r\n".join([*lines, "", ""]).encode() + raw

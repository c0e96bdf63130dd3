#!/usr/bin/env python3
"""Send requests over many connections until the input ends, as one client that takes all it can.

    … | .venv/bin/python bench/flood.py

The first line of the input is JSON: `port`, and `requests` with the text of one request for each
connection, in which `{random}` becomes another hexadecimal number each time. For each further line
it prints {status: number of responses} of all its connections, as JSON. A connection that is closed
counts as the status 0 and is opened again.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from typing import cast

import uvloop

END = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
RECONNECT_SECONDS = 0.1
RANDOM = "{random}"


class Connection(asyncio.Protocol):
    """A connection that sends its request again as soon as it has received the response."""

    def __init__(self, port: int, request: str, counts: Counter[int]) -> None:
        self._port = port
        self._parts = [part.encode() for part in request.split(RANDOM)]
        self._counts = counts
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._status = 0
        self._left: int | None = None  # bytes of the body; None while they are chunks
        self._tail = b""

    async def open(self) -> None:
        """Connect, and try again until the service accepts the connection."""
        while True:
            try:
                await asyncio.get_running_loop().create_connection(
                    lambda: self, "127.0.0.1", self._port
                )
                return
            except OSError:
                await asyncio.sleep(RECONNECT_SECONDS)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Read a part of a response, and send the next request after the last part."""
        if not self._status:
            self._head += data
            if END not in self._head:
                return
            head, _, data = self._head.partition(END)
            self._read_head(head.lower())
        if self._left is None:
            self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
            is_complete = self._tail == LAST_CHUNK
        else:
            self._left -= len(data)
            is_complete = self._left <= 0
        if is_complete:
            self._counts[self._status] += 1
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Open the connection again."""
        self._counts[0] += 1
        asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        await asyncio.sleep(RECONNECT_SECONDS)
        await self.open()

    def _read_head(self, head: bytes) -> None:
        self._status = int(head[9:12])
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        self._left = int(length) if length else None
        self._tail = b""

    def _send(self) -> None:
        assert self._transport is not None
        self._head, self._status = b"", 0
        if not self._transport.is_closing():
            self._transport.write(f"{random.getrandbits(96):024x}".encode().join(self._parts))


async def main() -> None:
    """Read the requests, send them, and print the counts for each line of the input."""
    loop, reader, counts = asyncio.get_running_loop(), asyncio.StreamReader(2**26), Counter[int]()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    order = json.loads(await reader.readline())
    for request in order["requests"]:
        await Connection(order["port"], request, counts).open()
    while await reader.readline():
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    uvloop.run(main())

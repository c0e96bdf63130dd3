#!/usr/bin/env python3
"""Measure ordinary requests while a thousand clients hold slow or idle connections.

    .venv/bin/python bench/slow.py [--slow N] [--ordinary N] [--seconds S]

A quarter each sends a head byte by byte, sends a body byte by byte, reads an export slowly (or a
page, if too many exports are running), and is idle after a request. A client that is disconnected
connects again. Exits with 1 if the p99 of the ordinary requests reaches 300 ms with slow clients,
or if the service ever uses 300 MB.
"""

import argparse
import asyncio
import itertools
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmark import print_table, read_memory, run, start_service, summary_of
from http_client import Connection, NoResponse, make_request, read_response
from requests import Request, create_requests

BEAT_SECONDS = 1.0  # between two bytes that are sent, or two reads of a response
READ_BYTES = 512  # that a slow reader reads at a time
SMALL_BUFFER = 4096
INVOICES = 3_000  # of each company that exports; their export fills every buffer on the way
COMPANIES = 4
MAX_P99_MS, MAX_MB = 300, 300
COLUMNS = ("", "requests/s", "p50 ms", "p99 ms", "max ms", "requests", "unexpected")
KINDS = ("head", "body", "reader", "idle")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class SlowClients:
    """The slow clients: open connections by kind, and how connections ended."""

    port: int
    keys: list[str]
    held: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    async def run_client(self, kind: str) -> None:
        """Connect again and again until the task is cancelled."""
        work = {
            "head": self._send_head,
            "body": self._send_body,
            "reader": self._read_slowly,
            "idle": self._stay_idle,
        }[kind]
        while True:
            await asyncio.sleep(random.random() * BEAT_SECONDS)
            try:
                streams = await _connect(self.port)
            except OSError:
                self.ends[f"{kind}: no connection"] += 1
                continue
            self.held[kind] += 1
            try:
                self.ends[f"{kind}: {await work(streams)}"] += 1
            except (OSError, asyncio.IncompleteReadError):
                self.ends[f"{kind}: disconnected"] += 1
            finally:
                self.held[kind] -= 1
                streams[1].transport.abort()

    async def _send_head(self, streams: Streams) -> str:
        head = b"GET /api/invoices HTTP/1.1\r\nHost: x\r\nX-Padding: " + b"x" * 1000
        return await self._send_bytes(streams, head)

    async def _send_body(self, streams: Streams) -> str:
        raw = make_request("POST", "/api/invoices", self.keys[0], " " * 1000)
        streams[1].write(raw[:-1000])
        return await self._send_bytes(streams, raw[-1000:])

    async def _send_bytes(self, streams: Streams, raw: bytes) -> str:
        """Send one byte at a time until a response arrives. Return its status."""
        response = asyncio.create_task(read_response(streams[0], "GET"))
        try:
            for byte in raw:
                streams[1].write(bytes([byte]))
                done, _ = await asyncio.wait({response}, timeout=BEAT_SECONDS)
                if done:
                    return str(response.result().status)
            return "not disconnected"
        finally:
            response.cancel()

    async def _read_slowly(self, streams: Streams) -> str:
        reader, writer = streams
        key = random.choice(self.keys)
        writer.write(make_request("GET", "/api/invoices/export-all", key))
        if b" 429 " in await reader.readuntil(b"\r\n"):
            self.ends["reader: export refused, 429"] += 1
            await asyncio.sleep(BEAT_SECONDS)
            writer.write(make_request("GET", "/api/invoices?per_page=100", key))
        while await reader.read(READ_BYTES):
            await asyncio.sleep(BEAT_SECONDS)
        return "disconnected"

    async def _stay_idle(self, streams: Streams) -> str:
        streams[1].write(make_request("GET", "/healthz", "none"))
        await read_response(streams[0], "GET")
        await streams[0].read()
        return "closed"


async def _connect(port: int) -> Streams:
    """Open a connection with small receive buffers."""
    small = socket.socket()
    small.setblocking(False)
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    try:
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=small, limit=SMALL_BUFFER)
    except BaseException:
        small.close()
        raise


@dataclass(frozen=True, slots=True)
class OrdinaryClients:
    """Clients that create an invoice and read it, again and again, over kept connections."""

    port: int
    key: str
    count: int
    creations: Iterator[Request]

    async def measure(self, seconds: float) -> tuple[int, float, float, float, int, str]:
        """Run the clients for some seconds and return the values of COLUMNS after the first."""
        times: list[float] = []
        unexpected: Counter[int | str] = Counter()
        until = time.perf_counter() + seconds
        clients = [self._run_client(until, times, unexpected) for _ in range(self.count)]
        await asyncio.gather(*clients)
        times.sort()
        p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
        shown = ", ".join(f"{what}: {count}" for what, count in unexpected.items()) or "0"
        return round(len(times) / seconds), p50, p99, times[-1] * 1000, len(times), shown

    async def _run_client(
        self, until: float, times: list[float], unexpected: Counter[int | str]
    ) -> None:
        connection, created = Connection(self.port), None
        while time.perf_counter() < until:
            method, path, body = ("GET", created, None) if created else next(self.creations)
            start = time.perf_counter()
            created = None
            try:
                response = await connection.send(make_request(method, path, self.key, body))
            except NoResponse as error:
                unexpected[str(error)] += 1
                continue
            times.append(time.perf_counter() - start)
            if response.status == 201:
                created = f"/api/invoices/{response.json()['data']['id']}"
            elif response.status != 200:
                unexpected[response.status] += 1
        connection.close()


async def main(options: argparse.Namespace) -> None:
    """Measure ordinary clients without and with slow ones."""
    async with start_service(variables={"LOG_LEVEL": "ERROR"}) as service:
        print(f"Creating {COMPANIES} companies with {INVOICES:,} invoices …", flush=True)
        keys = [(await service.add_company(INVOICES)).key for _ in range(COMPANIES)]
        key = (await service.add_company()).key
        await service.vacuum()
        slow = SlowClients(service.port, keys)
        ordinary = OrdinaryClients(service.port, key, options.ordinary, create_requests())
        await ordinary.measure(1)
        without = await ordinary.measure(options.seconds)
        before = max(filter(None, read_memory(service.pid)))
        kinds = itertools.islice(itertools.cycle(KINDS), options.slow)
        clients = [asyncio.create_task(slow.run_client(kind)) for kind in kinds]
        await _wait_until_connected(slow, options.slow)
        measured = await ordinary.measure(options.seconds)
        held, peak = sum(slow.held.values()), max(filter(None, read_memory(service.pid)))
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    rows = [("without slow clients", *without), (f"with {held:,} slow clients", *measured)]
    title = f"{options.ordinary} clients that create and read, {options.seconds:g} s"
    print_table(title, COLUMNS, rows)
    print(f"  peak memory of the service: {before:.0f} MB before, {peak:.0f} MB with slow clients")
    ends = ", ".join(f"{end}: {count:,}" for end, count in sorted(slow.ends.items()))
    print(f"  ends of slow connections: {ends}")
    if measured[2] >= MAX_P99_MS or peak >= MAX_MB:
        sys.exit(1)


async def _wait_until_connected(slow: SlowClients, wanted: int) -> None:
    """Wait until nearly all are connected; some are always reconnecting."""
    async with asyncio.timeout(60):
        while sum(slow.held.values()) < wanted * 0.95:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--ordinary", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30, help="of each of the two measurements")
    run(main(parser.parse_args()))

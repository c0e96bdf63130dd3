#!/usr/bin/env python3
"""How the others fare while a thousand clients hold connections and do next to nothing with them.

    .venv/bin/python bench/slow.py [--slow N] [--ordinary N] [--seconds S]

A quarter each sends a head byte by byte, sends a body byte by byte, reads an export (or, where too many of those are
under way, a page) as slowly, and is idle after a request; one that is cut off comes again. Ends with 1 when the slowest
hundredth of the others' requests takes 300 ms or more beside them, or the service ever has 300 MB.
"""

import argparse
import asyncio
import itertools
import random
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from ground import ground, memory, run, table
from requests import creates
from wire import Connection, NoAnswer, read_answer, request

BEAT = 1.0  # seconds between two bytes, or two looks at an answer
GULP = 512  # bytes that a slow reader takes at once
SMALL_BUFFER = 4096
INVOICES = 3_000  # of each company that exports; an export of them fills every buffer on the way
COMPANIES = 4
P99_MS, MEMORY_MB = 300, 300
COLUMNS = ("", "requests/s", "p50 ms", "p99 ms", "max ms", "requests", "not as expected")


@dataclass(slots=True)
class Slow:
    """The slow clients: how many are connected, by kind, and what became of their connections."""

    port: int
    keys: list
    held: Counter = field(default_factory=Counter)
    ends: Counter = field(default_factory=Counter)

    async def client(self, kind):
        """One that comes again for as long as it is let."""
        work = {"head": self._head, "body": self._body, "reader": self._reader, "idle": self._idle}[
            kind
        ]
        while True:
            await asyncio.sleep(random.random() * BEAT)
            try:
                reader, writer = await _connected(self.port)
            except OSError:
                self.ends[f"{kind}: no connection"] += 1
                continue
            self.held[kind] += 1
            try:
                self.ends[f"{kind}: {await work(reader, writer)}"] += 1
            except (OSError, asyncio.IncompleteReadError):
                self.ends[f"{kind}: cut off"] += 1
            finally:
                self.held[kind] -= 1
                writer.transport.abort()

    async def _head(self, reader, writer):
        return await self._dribbled(
            reader, writer, b"GET /api/invoices HTTP/1.1\r\nHost: x\r\nX-Padding: " + b"x" * 1000
        )

    async def _body(self, reader, writer):
        head = request("POST", "/api/invoices", self.keys[0], " " * 1000)
        writer.write(head[:-1000])
        return await self._dribbled(reader, writer, head[-1000:])

    async def _dribbled(self, reader, writer, sent):
        """Sends a byte now and then until there is an answer; gives what came."""
        answer = asyncio.create_task(read_answer(reader, "GET"))
        try:
            for byte in sent:
                writer.write(bytes([byte]))
                done, _ = await asyncio.wait({answer}, timeout=BEAT)
                if done:
                    return answer.result().status
            return "not cut off"
        finally:
            answer.cancel()

    async def _reader(self, reader, writer):
        key = random.choice(self.keys)
        writer.write(request("GET", "/api/invoices/export-all", key))
        if b" 429 " in await reader.readuntil(b"\r\n"):
            self.ends["reader: export refused, 429"] += 1
            await asyncio.sleep(BEAT)
            writer.write(request("GET", "/api/invoices?per_page=100", key))
        while await reader.read(GULP):
            await asyncio.sleep(BEAT)
        return "cut off"

    async def _idle(self, reader, writer):
        writer.write(request("GET", "/healthz", "none"))
        await read_answer(reader, "GET")
        await reader.read()
        return "closed"


async def _connected(port):
    """(reader, writer) of a connection that takes little at once."""
    small = socket.socket()
    small.setblocking(False)
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    try:
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=small, limit=SMALL_BUFFER)
    except BaseException:
        small.close()
        raise


async def ordinary(port, key, clients, seconds, bodies):
    """A row: clients that create an invoice and read it, again and again, each on a connection that it keeps."""
    times, wrong, began = [], Counter(), time.perf_counter()

    async def one():
        connection, path = Connection(port), None
        while time.perf_counter() - began < seconds:
            method, path, body = ("GET", path, None) if path else next(bodies)
            start = time.perf_counter()
            try:
                answer = await connection.ask(request(method, path, key, body))
            except NoAnswer as why:
                wrong[str(why)] += 1
                path = None
                continue
            times.append(time.perf_counter() - start)
            wrong.update([answer.status] if answer.status not in (200, 201) else [])
            path = f"/api/invoices/{answer.json()['data']['id']}" if answer.status == 201 else None
        connection.close()

    await asyncio.gather(*[one() for _ in range(clients)])
    times.sort()
    p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
    told = ", ".join(f"{what}: {count}" for what, count in wrong.items()) or "0"
    return round(len(times) / seconds), p50, p99, times[-1] * 1000, len(times), told


async def main(options):
    async with ground(LOG_LEVEL="ERROR") as service:
        print(f"Making {COMPANIES} companies with {INVOICES:,} invoices …", flush=True)
        keys = [(await service.company(INVOICES)).key for _ in range(COMPANIES)]
        key = (await service.company()).key
        await service.tidy()
        slow, bodies = Slow(service.port, keys), creates()
        work = (service.port, key, options.ordinary)
        await ordinary(*work, 1, bodies)
        without = await ordinary(*work, options.seconds, bodies)
        before = memory(service.pid)[1]
        kinds = itertools.islice(itertools.cycle(("head", "body", "reader", "idle")), options.slow)
        clients = [asyncio.create_task(slow.client(kind)) for kind in kinds]
        await _all_there(slow, options.slow)
        beside = await ordinary(*work, options.seconds, bodies)
        held, peak = sum(slow.held.values()), memory(service.pid)[1]
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    rows = [("without slow clients", *without), (f"beside {held:,} slow ones", *beside)]
    table(f"{options.ordinary} clients that create and read, {options.seconds:g} s", COLUMNS, rows)
    print(f"  peak memory of the service: {before:.0f} MB before, {peak:.0f} MB with them")
    print(
        "  what became of slow connections: "
        + ", ".join(f"{end}: {count:,}" for end, count in sorted(slow.ends.items()))
    )
    if beside[2] >= P99_MS or peak >= MEMORY_MB:
        sys.exit(1)


async def _all_there(slow, wanted):
    """Until nearly all are connected: some are always on their way back."""
    async with asyncio.timeout(60):
        while sum(slow.held.values()) < wanted * 0.95:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--ordinary", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30, help="of each of the two measurements")
    run(main(parser.parse_args()))

#!/usr/bin/env python3
"""Measure requests per second of one process over 16 connections: create, get, list, submit.

    .venv/bin/python bench/requests.py [--seconds S] [--connections N] [--largest N]

This process generates the load on the same machine, so it uses a share of the processors.
"""

import argparse
import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from benchmark import Company, Service, print_table, run, start_service, summary_of

#: Method, path, and body as JSON text.
Request = tuple[str, str, str | None]

SIZES = (1_000, 100_000)
BUYER = {
    "type": "LOCAL_INDIVIDUAL",
    "name": "Aminah binti Salleh",
    "registration": {"type": "NRIC", "number": "900101105566"},
    "contactNumber": "+60123456789",
    "address": {
        "line1": "5 Jalan Dahlia",
        "city": "Shah Alam",
        "state": "10",
        "zipCode": "40150",
        "country": "MYS",
    },
}
LINE = {
    "description": "Coffee beans, 1 kg",
    "classifications": ["022"],
    "unit": {"code": "KGM", "price": 48.5, "count": 2},
    "taxDetails": [{"taxType": "02", "taxRate": {"percentage": 8}}],
    "originCountry": "MYS",
}
COLUMNS = ("", "requests/s", "p50 ms", "p99 ms", "requests", "unexpected")


@dataclass(slots=True)
class Load:
    """Sends requests over several connections, for some seconds or until none is left."""

    service: Service
    connections: int
    seconds: float
    rows: list[Sequence[object]] = field(default_factory=list)

    async def run(
        self, name: str, company: Company, requests: Iterator[Request], expected: int = 200
    ) -> list[bytes]:
        """Add a row to the table and return the bodies of the expected responses."""
        times: list[float] = []
        bodies: list[bytes] = []
        unexpected: list[bytes] = []
        began = time.perf_counter()

        async def send_requests() -> None:
            streams = await asyncio.open_connection("127.0.0.1", self.service.port)
            while time.perf_counter() - began < self.seconds and (request := next(requests, None)):
                start = time.perf_counter()
                status, body = await _send(streams, company.key, request)
                times.append(time.perf_counter() - start)
                (bodies if status == expected else unexpected).append(body)
            streams[1].close()

        await asyncio.gather(*[send_requests() for _ in range(self.connections)])
        spent = time.perf_counter() - began
        times.sort()
        p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
        rate = round(len(times) / spent)
        self.rows.append((name, rate, p50, p99, len(times), len(unexpected)))
        if unexpected:
            print(f"  {name}: one of the unexpected responses: {unexpected[0][:200]}")
        return bodies


async def _send(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], key: str, request: Request
) -> tuple[int, bytes]:
    """Return (status, body). All responses have a Content-Length."""
    (reader, writer), (method, path, text) = streams, request
    body = (text or "").encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}\r\n".encode() + body)
    response = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(response.split(b"content-length:")[1].split(b"\r\n")[0])
    return int(response.split()[1]), await reader.readexactly(length)


async def main(options: argparse.Namespace) -> None:
    """Measure all kinds of requests."""
    async with start_service(sandbox=True) as service:
        load = Load(service, options.connections, options.seconds)
        company = await service.add_company()
        await load.run("warm-up", company, _gets("/api/invoices"))
        load.rows.clear()
        created = await load.run("create, 5 lines", company, create_requests(), expected=201)
        ids = [json.loads(body)["data"]["id"] for body in created]
        await load.run("get", company, _random_gets(ids))
        await load.run("list, page 1", company, _gets("/api/invoices"))
        await load.run("submit, with the sandbox", company, _submits(ids))
        title = f"One process, {load.connections} connections, {load.seconds:g} s each"
        print_table(title, COLUMNS, load.rows)
        await _measure_lists(service, load, sorted({*SIZES, options.largest} - {0}))


async def _measure_lists(service: Service, load: Load, sizes: list[int]) -> None:
    """Measure lists of companies of several sizes."""
    load.rows.clear()
    for size in sizes:
        print(f"Creating {size:,} invoices of five lines …", flush=True)
        company = await service.add_company(size)
        await service.vacuum()
        for name, query in (
            ("page 1", ""),
            ("the last page", f"page={size // 10}"),
            ("page 1 of a rare status", "status=Invalid"),
            (
                "page 1 of one day",
                "issued_from=2026-03-01T00:00:00Z&issued_to=2026-03-02T00:00:00Z",
            ),
            ("page 1 of nearly all, by status", "status=Draft"),
        ):
            path = f"/api/invoices?{query}".rstrip("?")
            await load.run(f"{size:,} invoices, {name}", company, _gets(path))
    print_table("Lists of a company", COLUMNS, load.rows)


def create_requests(first: int = 1) -> Iterator[Request]:
    """Yield requests that create invoices with consecutive codes."""
    issued = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = [{"id": str(number), **LINE} for number in range(1, 6)]
    body = {
        "type": "INVOICE",
        "code": 0,
        "issueDateTime": issued,
        "buyer": BUYER,
        "lineItems": lines,
    }
    text = json.dumps(body)
    for code in itertools.count(first):
        yield "POST", "/api/invoices", text.replace('"code": 0', f'"code": {code}', 1)


def _gets(path: str) -> Iterator[Request]:
    return itertools.repeat(("GET", path, None))


def _random_gets(ids: list[int]) -> Iterator[Request]:
    while True:
        yield "GET", f"/api/invoices/{random.choice(ids)}", None


def _submits(ids: list[int]) -> Iterator[Request]:
    for invoice_id in ids:
        yield "POST", f"/api/invoices/{invoice_id}/submit-to-portal", "{}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--seconds", type=float, default=5, help="of each kind of request")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--largest", type=int, default=0, help="add a company with this number of invoices"
    )
    run(main(parser.parse_args()))

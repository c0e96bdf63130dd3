#!/usr/bin/env python3
"""How many requests one process of the service answers a second, over 16 connections: create, get, list, submit.

    .venv/bin/python bench/requests.py [--seconds S] [--connections N] [--largest N]

The load comes from this process on the same machine, and so takes its share of the processors.
"""

import argparse
import asyncio
import itertools
import json
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ground import ground, run, table

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
COLUMNS = ("", "requests/s", "p50 ms", "p99 ms", "requests", "not as expected")


@dataclass(slots=True)
class Load:
    """The same kind of request over several connections until the time is over or there is nothing more to ask."""

    service: object
    connections: int
    seconds: float
    rows: list = field(default_factory=list)

    async def run(self, name, company, requests, expected=200):
        """Adds a row to the table; gives the bodies of the answers. `requests` are (method, path, JSON or None)."""
        times, bodies, wrong = [], [], []
        began = time.perf_counter()

        async def one():
            reader, writer = await asyncio.open_connection("127.0.0.1", self.service.port)
            while time.perf_counter() - began < self.seconds and (request := next(requests, None)):
                start = time.perf_counter()
                status, body = await _asked(reader, writer, company.key, *request)
                times.append(time.perf_counter() - start)
                (bodies if status == expected else wrong).append(body)
            writer.close()

        await asyncio.gather(*[one() for _ in range(self.connections)])
        spent = time.perf_counter() - began
        times.sort()
        p50, p99 = (times[int(len(times) * part)] * 1000 for part in (0.5, 0.99))
        self.rows.append((name, round(len(times) / spent), p50, p99, len(times), len(wrong)))
        if wrong:
            print(f"  {name}: one of the answers that were not expected: {wrong[0][:200]}")
        return bodies


async def _asked(reader, writer, key, method, path, text):
    """(status, body) of one request on a kept connection; the service answers these with a length."""
    body = (text or "").encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}\r\n".encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(answer.split(b"content-length:")[1].split(b"\r\n")[0])
    return int(answer.split()[1]), await reader.readexactly(length)


async def main(options):
    async with ground(sandbox=True) as service:
        load = Load(service, options.connections, options.seconds)
        company = await service.company()
        await load.run("warm-up", company, itertools.repeat(("GET", "/api/invoices", None)))
        load.rows.clear()
        created = await load.run("create, 5 lines", company, creates(), expected=201)
        ids = [json.loads(body)["data"]["id"] for body in created]
        await load.run("get", company, _gets(ids))
        await load.run("list, page 1", company, itertools.repeat(("GET", "/api/invoices", None)))
        submits = (("POST", f"/api/invoices/{id}/submit-to-portal", "{}") for id in ids)
        await load.run("submit, with the sandbox", company, submits)
        table(
            f"One process, {load.connections} connections, {load.seconds:g} s each",
            COLUMNS,
            load.rows,
        )
        await _lists(service, load, sorted({*SIZES, options.largest} - {0}))


async def _lists(service, load, sizes):
    load.rows.clear()
    for size in sizes:
        print(f"Making {size:,} invoices of five lines …", flush=True)
        company = await service.company(size)
        await service.tidy()
        for name, path in (
            ("page 1", "/api/invoices"),
            ("the last page", f"/api/invoices?page={size // 10}"),
            ("page 1 of a rare status", "/api/invoices?status=Invalid"),
            (
                "page 1 of one day",
                "/api/invoices?issued_from=2026-03-01T00:00:00Z&issued_to=2026-03-02T00:00:00Z",
            ),
            ("page 1 of nearly all, by status", "/api/invoices?status=Draft"),
        ):
            await load.run(
                f"{size:,} invoices, {name}", company, itertools.repeat(("GET", path, None))
            )
    table("Lists of a company", COLUMNS, load.rows)


def creates(first=1):
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


def _gets(ids):
    while True:
        yield "GET", f"/api/invoices/{random.choice(ids)}", None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5, help="of each kind of request")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--largest", type=int, default=0, help="one more company with so many invoices"
    )
    run(main(parser.parse_args()))

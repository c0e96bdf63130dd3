#!/usr/bin/env python3
"""Measure reads with and without a standby: rates, and CPU time of service, primary and standby.

    .venv/bin/python bench/replicas.py [--seconds S] [--rounds N] [--invoices N] [--writers N]

Each round measures the same requests of one process without and with DATABASE_READ_URL. Writers
create invoices through another process meanwhile, so that the standby has something to replay.
"""

import argparse
import asyncio
import dataclasses
import random
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmark import Company, Service, ServiceProgram, print_table, run, start_service, summary_of
from cpu import find_postmaster, read_cpu
from harness.databases import name_of, replace_database
from harness.postgres_server import PostgresServer
from harness.standby import StandbyServer
from requests import Load, Request, create_requests

COLUMNS = (
    "",
    "requests/s",
    "p50 ms",
    "p99 ms",
    "service µs",
    "primary µs",
    "standby µs",
)
Figures = tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Bench:
    """The servers, one process without and one with the standby, and the options."""

    primary: str
    standby: str
    service: Service
    reading: ServiceProgram
    options: argparse.Namespace


async def main(options: argparse.Namespace) -> None:
    """Measure all kinds of requests, and print the medians of the rounds."""
    async with _start(options) as bench:
        company = await bench.service.add_company(options.invoices)
        await bench.service.vacuum()
        found: dict[tuple[str, str], list[Figures]] = {}
        for _ in range(options.rounds):
            for name, requests in _make_requests(options.invoices).items():
                for target, process in (
                    ("primary", bench.service.process),
                    ("standby", bench.reading),
                ):
                    figures = await _measure(bench, process, company, requests)
                    found.setdefault((name, target), []).append(figures)
    rows = [
        (f"{name}, {target}", round(medians[0]), *medians[1:3], *map(round, medians[3:]))
        for (name, target), figures in found.items()
        if (medians := [statistics.median(column) for column in zip(*figures, strict=True)])
    ]
    title = f"{options.connections} connections, {options.writers} writers, CPU time per request"
    print_table(title, COLUMNS, rows)


@asynccontextmanager
async def _start(options: argparse.Namespace) -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with (
            PostgresServer(Path(folder, "primary")) as primary,
            start_service(background=False, server=primary.url) as service,
            StandbyServer(Path(folder, "standby"), primary.url) as standby,
        ):
            url = replace_database(standby.url, name_of(service.url))
            async with service.make_another(DATABASE_READ_URL=url) as reading:
                yield Bench(primary.url, standby.url, service, reading, options)


def _make_requests(invoices: int) -> dict[str, Iterator[Request]]:
    """Return the measured requests of a company whose invoices have consecutive ids."""

    def get_random() -> Iterator[Request]:
        while True:
            yield "GET", f"/api/invoices/{random.randint(1, invoices)}", None

    def repeat(path: str) -> Iterator[Request]:
        while True:
            yield "GET", path, None

    return {
        "get": get_random(),
        "list": repeat("/api/invoices"),
        "search": repeat("/api/invoices?query=aminah&sort=code"),
    }


async def _measure(
    bench: Bench, process: ServiceProgram, company: Company, requests: Iterator[Request]
) -> Figures:
    """Return rate, p50, p99, and the CPU time of service, primary and standby per request."""
    options = bench.options
    load = Load(dataclasses.replace(bench.service, process=process), options.connections, 1)
    await load.run("warm-up", company, requests)
    load.seconds = options.seconds
    pids = (process.pid or 0, *[await find_postmaster(u) for u in (bench.primary, bench.standby)])
    async with _writing(bench):
        before = [read_cpu(pid) for pid in pids]
        await load.run("measured", company, requests)
        spent = [after - start for after, start in zip(map(read_cpu, pids), before, strict=True)]
    _, rate, p50, p99, count, _ = map(str, load.rows[-1])
    return float(rate), float(p50), float(p99), *(each * 1e6 / int(count) for each in spent)


@asynccontextmanager
async def _writing(bench: Bench) -> AsyncIterator[None]:
    """Create invoices of another company during the block, in the process without standby."""
    if not bench.options.writers:
        yield
        return
    writer = await bench.service.add_company()
    load = Load(bench.service, bench.options.writers, float("inf"))
    task = asyncio.create_task(load.run("writes", writer, create_requests(), expected=201))
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--invoices", type=int, default=10_000, help="of the company that is read")
    parser.add_argument("--writers", type=int, default=1, help="clients that write meanwhile")
    run(main(parser.parse_args()))

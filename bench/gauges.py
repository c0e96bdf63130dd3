#!/usr/bin/env python3
"""Measure what the gauges of the metrics and the looks of the watchdog cost PostgreSQL.

    .venv/bin/python bench/gauges.py [--invoices N] [--waiting N] [--rounds N]

All invoices were submitted within three days and are Valid, so that each is polled for later
changes. Some more submissions wait to be sent, and as many deliveries to a webhook.
"""

import argparse
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg
from benchmark import Service, print_table, run, sql, start_service, summary_of

from service.monitoring.conditions import read_rows
from service.monitoring.gauges import read_waiting

BATCH = 20_000


async def main(options: argparse.Namespace) -> None:
    """Create the rows, run both statements in turn, and print the table."""
    async with start_service(background=False) as service:
        print(f"Creating {options.invoices:,} submissions …", flush=True)
        company = await service.add_company()
        await _insert(service, company.id, options)
        await service.vacuum()
        async with service.database.across() as conn:
            rows = [
                ("gauges, at each scrape", *await _measure(partial(read_waiting, conn), options)),
                (
                    "watchdog, each half minute",
                    *await _measure(partial(read_rows, conn, service.config), options),
                ),
            ]
    print_table(
        f"{options.invoices:,} invoices of three days, {options.waiting:,} waiting, ms",
        ("statement", "median", "slowest"),
        rows,
    )


async def _insert(service: Service, company_id: int, options: argparse.Namespace) -> None:
    conn = await asyncpg.connect(
        service.url, server_settings={"session_replication_role": "replica"}
    )
    for first in range(0, options.invoices, BATCH):
        await sql.accepted_seed(conn, company_id=company_id, first=first, number=BATCH)
    await sql.waiting_seed(conn, company_id=company_id, number=options.waiting)
    await conn.close()


async def _measure(
    work: Callable[[], Awaitable[Any]], options: argparse.Namespace
) -> tuple[float, float]:
    """Return the median and the longest time in milliseconds."""
    times: list[float] = []
    for _ in range(options.rounds):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times), max(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--invoices", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    run(main(parser.parse_args()))

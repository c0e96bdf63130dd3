#!/usr/bin/env python3
"""Measure memory and time of list pages of large records.

    .venv/bin/python bench/pages.py [--records N] [--bytes N] [--clients N] [--rounds N]

Exits with 1 if the process used 150 MB or more, or if a page was incomplete.
"""

import argparse
import asyncio
import json
import sys
import time

import aiohttp
from benchmark import (
    Company,
    Service,
    parse_options,
    print_memory,
    print_table,
    read_memory,
    run,
    sql,
    start_service,
)

MAX_MB = 150
PATH = "/api/invoices?per_page=100"


async def main(options: argparse.Namespace) -> None:
    """Create large invoices, list them concurrently and print the tables."""
    async with start_service() as service:
        print(f"Creating {options.records} invoices of {options.bytes:,} bytes …", flush=True)
        company = await service.add_company(options.records)
        await _enlarge(service, company, options)
        before, _ = read_memory(service.process.pid)
        rows = []
        async with aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as http:
            for number in range(1, options.rounds + 1):
                began = time.perf_counter()
                pages = await asyncio.gather(*[fetch(http) for _ in range(options.clients)])
                seconds = time.perf_counter() - began
                fewest = min(count for _, count in pages)
                rows.append((number, options.clients, pages[0][0] / 1e6, fewest, seconds))
        after, peak = read_memory(service.process.pid)
    print_table(f"GET {PATH}", ("round", "clients", "MB each", "records", "all s"), rows)
    print_memory(before, after, peak)
    if (peak or after) >= MAX_MB or any(row[3] != min(options.records, 100) for row in rows):
        sys.exit("Too much memory was used, or a page was incomplete.")


async def _enlarge(service: Service, company: Company, options: argparse.Namespace) -> None:
    """Enlarge all invoices of the company to the chosen size."""
    pieces = options.bytes // 32
    for number in range(options.records):
        async with service.database.company(company.id) as conn:
            await sql.invoice_enlarge(conn, company_id=company.id, number=number, pieces=pieces)


async def fetch(http: aiohttp.ClientSession) -> tuple[int, int]:
    """Return (bytes, records) of a page."""
    async with http.get(PATH) as response:
        text = await response.read()
    return len(text), len(json.loads(text)["data"])


if __name__ == "__main__":
    run(main(parse_options(__doc__, records=60, bytes=1_900_000, clients=4, rounds=3)))

#!/usr/bin/env python3
"""How much memory the service takes for list pages of old, large records, and how long they take.

    .venv/bin/python bench/pages.py [--records N] [--bytes N] [--clients N] [--rounds N]

Ends with 1 if the process had 150 MB, or if a page was not whole.
"""

import argparse
import asyncio
import json
import sys
import time

import aiohttp
from ground import ground, memory, run, sql, table

MOST_MB = 150


async def main(records, size, clients, rounds):
    async with ground() as service:
        print(f"Making {records} invoices of {size:,} bytes …", flush=True)
        company = await service.company(records)
        for number in range(records):
            async with service.database.company(company.id) as conn:
                await sql.invoice_enlarge(
                    conn, company_id=company.id, number=number, pieces=size // 32
                )
        before, _ = memory(service.pid)
        rows = []
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{service.port}", headers={"X-API-Key": company.key}
        ) as http:
            for number in range(1, rounds + 1):
                began = time.perf_counter()
                pages = await asyncio.gather(*[fetch(http) for _ in range(clients)])
                rows.append(
                    (
                        number,
                        clients,
                        pages[0][0] / 1e6,
                        min(count for _, count in pages),
                        time.perf_counter() - began,
                    )
                )
        after, highest = memory(service.pid)
    table(
        "GET /api/invoices?per_page=100", ("round", "clients", "MB each", "records", "all s"), rows
    )
    table(
        "Memory of the service process, MB",
        ("", "before", "after", "highest"),
        [("resident", before, after, highest or "unknown")],
    )
    if (highest or after) >= MOST_MB or any(row[3] != min(records, 100) for row in rows):
        sys.exit("Too much memory, or a page was not whole.")


async def fetch(http):
    """(bytes, records) of a page."""
    async with http.get("/api/invoices?per_page=100") as response:
        text = await response.read()
    return len(text), len(json.loads(text)["data"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=60)
    parser.add_argument("--bytes", type=int, default=1_900_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    run(main(options.records, options.bytes, options.clients, options.rounds))

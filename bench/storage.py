#!/usr/bin/env python3
"""Measure the bytes that a submitted invoice takes in PostgreSQL, with indexes, by table.

    .venv/bin/python bench/storage.py [--invoices N]

Invoices of five lines are created over the API and submitted in batches until all are Valid, twice
N of them. The growth of the second half is shown: the first one leaves space that is used again.
"""

import argparse
import time

from batches import create_ready_invoices, wait_until_valid
from benchmark import Service, parse_options, print_table, run, sql, start_service

from tests.harness.databases import open_connection

VARIABLES = {"SANDBOX_PROCESSING_SECONDS": "0.5"}
#: Smaller shares of the total are summed.
SMALLEST = 0.01


async def main(options: argparse.Namespace) -> None:
    """Create and submit the invoices, and print the sizes."""
    async with start_service(sandbox=True, variables=VARIABLES) as service:
        company = await service.add_company()
        sizes = []
        for earlier in (0, options.invoices):
            print(f"Submitting {options.invoices:,} invoices …", flush=True)
            await create_ready_invoices(service, company, options.invoices, earlier + 1)
            valid = earlier + options.invoices
            await wait_until_valid(service, valid, time.perf_counter())
            await service.vacuum()
            sizes.append(await read_sizes(service))
    former, latter = sizes
    grown = {
        name: (total - former[name][0], indexes - former[name][1])
        for name, (total, indexes) in latter.items()
    }
    print_sizes(grown, options.invoices)


async def read_sizes(service: Service) -> dict[str, tuple[int, int]]:
    """Return {table: (bytes with everything, bytes of its indexes)}."""
    async with open_connection(service.url) as conn:
        rows = await sql.sizes_of_tables(conn)
    return {row["name"]: (row["total"], row["indexes"]) for row in rows}


def print_sizes(sizes: dict[str, tuple[int, int]], invoices: int) -> None:
    """Print the bytes of an invoice in each table."""
    whole = sum(total for total, _ in sizes.values())
    shown = [(name, *of) for name, of in sizes.items() if of[0] >= SMALLEST * whole]
    rest = [of for of in sizes.values() if of[0] < SMALLEST * whole]
    shown.append(("others", sum(of[0] for of in rest), sum(of[1] for of in rest)))
    shown.append(("all", whole, sum(indexes for _, indexes in sizes.values())))
    rows = [(name, total // invoices, indexes // invoices) for name, total, indexes in shown]
    print_table(f"Bytes of an invoice, {invoices:,} invoices", ("", "all", "indexes"), rows)


if __name__ == "__main__":
    run(main(parse_options(__doc__, invoices=5_000)))

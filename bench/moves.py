#!/usr/bin/env python3
"""Measure how long a company is held while it moves to another cell, by its number of invoices.

    .venv/bin/python bench/moves.py [--invoices N [N ...]]

Both cells are databases of one PostgreSQL. Seven of ten invoices have a submitted document.
"""

import argparse
import json
import time

import asyncpg
from benchmark import (
    SEED_BATCH,
    Service,
    prepare_service,
    print_table,
    run,
    sql,
    summary_of,
)
from harness.databases import create_database
from harness.processes import run_command

from service.db.cells import check_cell
from service.db.migrations import migrate


async def main(options: argparse.Namespace) -> None:
    """Move a company of each size, and print the times."""
    rows = []
    async with (
        prepare_service(background=False, variables={"CELL": "a"}) as service,
        create_database(service.url) as other,
    ):
        await check_cell(service.url, "a")
        await migrate(other)
        await check_cell(other, "b")
        for invoices in options.invoices:
            rows.append((f"{invoices:,} invoices", *await measure(service, other, invoices)))
    print_table("A company is held", ("", "seconds", "rows"), rows)


async def measure(service: Service, other: str, invoices: int) -> tuple[float, int]:
    """Return the time to move a company, and the number of its rows in the other cell."""
    company = await service.add_company(invoices)
    conn = await asyncpg.connect(service.url)
    for first in range(1, invoices + 1, SEED_BATCH):
        last = min(invoices, first + SEED_BATCH - 1)
        await sql.submissions_seed(conn, company_id=company.id, first=first, last=last)
    await conn.close()
    await service.vacuum()
    began = time.perf_counter()
    arguments = ["move-company", "--company", company.id, "--to", other]
    done = await run_command(arguments, service.environment)
    spent = time.perf_counter() - began
    if done.code:
        raise RuntimeError(done.err)
    return spent, sum(json.loads(done.out)["tables"].values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--invoices", type=int, nargs="+", default=[0, 10_000, 50_000])
    run(main(parser.parse_args()))

#!/usr/bin/env python3
"""Measure the time of every page of the dashboard for a company with many invoices.

    .venv/bin/python bench/dashboard.py [--invoices N] [--rounds N]

Seven of ten invoices are Valid, one in a thousand is Invalid, the others are drafts. Exits with 1
if the median of a page is above 100 ms.
"""

import argparse
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta

from benchmark import Service, print_table, run, sql, start_service, summary_of
from harness.visitors import Visitor, make_person
from yarl import URL

from service.dashboard.table import make_page_routes

MOST_MS = 100.0
EMAIL = "aminah@example.com"
BATCH = 1000  # invoices that one statement can submit within the statement_timeout


async def main(options: argparse.Namespace) -> None:
    """Create the company, open each page in turn, and print the table."""
    async with start_service() as service:
        print(f"Creating {options.invoices:,} invoices …", flush=True)
        company = await service.add_company(options.invoices)
        await _submit(service, company.id, options.invoices)
        await service.vacuum()
        link = await make_person(service.config, company.id, EMAIL, "owner")
        async with Visitor(URL(service.base)) as visitor:
            await visitor.use_link(link)
            paths = [*_list_plain_paths(), *_list_filtered_paths(options.invoices)]
            paths += await _list_document_paths(visitor)
            rows = [(path, *await _measure(visitor, path, options.rounds)) for path in paths]
    print_table(
        f"{options.invoices:,} invoices, {options.rounds} rounds, ms",
        ("page", "median", "slowest", "kB"),
        rows,
    )
    if any(row[1] > MOST_MS for row in rows):
        sys.exit(f"A page took more than {MOST_MS:.0f} ms.")


async def _submit(service: Service, company_id: int, invoices: int) -> None:
    """Give the invoices documents at the portal and entries in the audit log."""
    for first in range(1, invoices + 1, BATCH):
        last = min(invoices, first + BATCH - 1)
        async with service.database.company(company_id) as conn:
            await sql.submissions_seed(conn, company_id=company_id, first=first, last=last)


def _list_plain_paths() -> list[str]:
    """Return the paths of all pages that need no id. Files and redirects are left out."""
    paths = {route.path for route in make_page_routes() if route.method == "GET"}
    return sorted(
        path for path in paths if "{" not in path and "." not in path and path != "/settings"
    )


def _list_filtered_paths(invoices: int) -> list[str]:
    """Return paths of lists with filters, and of the last page of a list."""
    today = datetime.now(UTC).date()
    return [
        f"/invoices?page={max(1, invoices // 25)}",
        "/invoices?status=Draft",
        "/invoices?status=Invalid",
        "/invoices?status=Valid&type=INVOICE",
        "/invoices?query=Buyer%200000500",
        f"/invoices?issued_from={today - timedelta(days=30)}&issued_to={today}",
    ]


async def _list_document_paths(visitor: Visitor) -> list[str]:
    """Return the pages of an invoice in each status, and the form that changes one."""
    paths = [await _find_first(visitor, status) for status in ("Draft", "Valid", "Invalid")]
    return [*paths, f"{paths[0]}/edit"]


async def _find_first(visitor: Visitor, status: str) -> str:
    """Return the path of the first invoice in the list of a status."""
    text = await visitor.get(f"/invoices?status={status}")
    _, found, rest = text.partition('scope="row"')
    if not found:
        sys.exit(f"There is no invoice with the status {status}.")
    return rest.partition('href="')[2].partition('"')[0]


async def _measure(visitor: Visitor, path: str, rounds: int) -> tuple[float, float, float]:
    """Return the median and the slowest time of a page in milliseconds, and its size in kB."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await visitor.get(path)
        times.append((time.perf_counter() - began) * 1000)
        if visitor.status != 200 or visitor.path != path.partition("?")[0]:
            sys.exit(f"{path}: {visitor.status} {visitor.path}")
    return statistics.median(times), max(times), len(visitor.text.encode()) / 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--invoices", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    run(main(parser.parse_args()))

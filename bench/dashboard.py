#!/usr/bin/env python3
"""Measure the time of every page of the dashboard for a company with many invoices.

    .venv/bin/python bench/dashboard.py [--invoices N] [--sales N] [--rounds N]

Seven of ten invoices are Valid, one in a thousand is Invalid, the others are drafts. The month
before has sales without a named buyer, which can be consolidated. There is a note, a buyer's
request, a delivery and two entries of the audit log for every tenth invoice. The oldest 25 drafts
have 1,000 lines. Exits with 1 if the median of a page is above 100 ms.
"""

import argparse
import base64
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
from benchmark import Service, parse_options, print_table, run, sql, start_service
from yarl import URL

from service.dashboard.table import make_page_routes
from tests.harness.companies import Company
from tests.harness.visitors import Visitor, make_person

MOST_MS = 100.0
EMAIL = "aminah@example.com"
BATCH = 1000  # invoices that one statement can submit within the statement_timeout
VARIABLES = {"CONSOLIDATION_DAYS": "40", "SECRET_KEY": base64.b64encode(b"k" * 32).decode()}
CONSOLIDATED = 200  # sales in the consolidated invoice that is opened
LARGE, LINES = 25, 1000  # the oldest drafts, which are a page of the list, and the lines of each


async def main(options: argparse.Namespace) -> None:
    """Create the company, open each page in turn, and print the table."""
    async with start_service(variables=VARIABLES) as service:
        print(f"Creating {options.invoices:,} invoices …", flush=True)
        company = await service.add_company(options.invoices)
        await _submit(service, company.id, options.invoices)
        link = await make_person(service.config, company.id, EMAIL, "owner")
        async with Visitor(URL(service.base)) as visitor:
            await visitor.use_link(link)
            others = await _add_others(service, company, options)
            others += await _add_large(service, company)
            await service.vacuum()
            paths = ["/sign-in", *_list_plain_paths(), *_list_filtered_paths(options.invoices)]
            paths += [*await _list_document_paths(visitor), *others]
            figures = {path: await _measure(visitor, path, options.rounds) for path in paths}
    print_table(
        f"{options.invoices:,} invoices, {options.sales:,} sales, {options.rounds} rounds, ms",
        ("page", "fastest", "median", "slowest", "kB"),
        [(path, *found) for path, found in figures.items()],
    )
    if slow := [path for path, found in figures.items() if found[1] > MOST_MS]:
        sys.exit(f"Above {MOST_MS:.0f} ms: {', '.join(slow)}")


async def _submit(service: Service, company_id: int, invoices: int) -> None:
    """Give the invoices documents at the portal and entries in the audit log."""
    for first in range(1, invoices + 1, BATCH):
        last = min(invoices, first + BATCH - 1)
        async with service.database.company(company_id) as conn:
            await sql.submissions_seed(conn, company_id=company_id, first=first, last=last)


async def _add_others(service: Service, company: Company, options: argparse.Namespace) -> list[str]:
    """Create sales, notes, buyer requests, a webhook with its log, and links.

    Return the paths of their pages.
    """
    async with aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as session:
        body = {"url": "https://hooks.example.com/in"}
        endpoint_id = (await _send(session, "POST", "/api/webhooks", body))["id"]
        await _send(session, "PUT", f"/api/webhooks/{endpoint_id}", {"enabled": False})
        sales = await _seed_others(service, company, options, endpoint_id)
        body = {
            "type": "CONSOLIDATED_INVOICE",
            "code": 1,
            "issueDateTime": datetime.now(UTC).isoformat(),
            "invoiceIds": sales[1:],
        }
        consolidated_id = (await _send(session, "POST", "/api/consolidated-invoices", body))["id"]
        place = f"/api/invoices/{sales[0]}/links"
        links = [
            (await _send(session, "POST", place, {"purpose": purpose}))["url"]
            for purpose in ("view", "request")
        ]
        notes = await _send(session, "GET", "/api/adjustment-notes?per_page=1")
    return [
        f"/notes/{notes[0]['id']}",
        "/notes?query=Buyer",
        f"/consolidated/{consolidated_id}",
        f"/invoices/{sales[0]}",
        "/requests?query=Buyer",
        "/requests?status=Pending",
        f"/settings/webhooks/{endpoint_id}",
        f"/settings/activity?before={options.invoices // 10}",
        *(URL(link).path for link in links),
    ]


async def _seed_others(
    service: Service, company: Company, options: argparse.Namespace, endpoint_id: int
) -> list[int]:
    """Insert sales, notes, buyer requests and deliveries. Return the ids of some sales."""
    first, tenth = options.invoices + 1, max(1, options.invoices // 10)
    key: dict[str, Any] = {"company_id": company.id}
    async with service.database.company(company.id) as conn:
        last = options.invoices + options.sales
        await sql.sales_seed(conn, **key, first=first, last=last)
        await sql.notes_seed(conn, **key, first=1, last=tenth)
        await sql.requests_seed(conn, **key, number=tenth)
        await sql.deliveries_seed(conn, **key, endpoint_id=endpoint_id, number=tenth)
        return await sql.sale_ids(conn, **key, most=CONSOLIDATED + 1)


async def _add_large(service: Service, company: Company) -> list[str]:
    """Lengthen the oldest drafts. Return the paths of the oldest, its print and their list."""
    async with service.database.company(company.id) as conn:
        oldest = await sql.invoices_lengthen(conn, company_id=company.id, number=LARGE, lines=LINES)
    return [f"/invoices/{oldest}", f"/invoices/{oldest}/print", "/invoices?status=Draft&sort=id"]


async def _send(session: aiohttp.ClientSession, method: str, path: str, body: object = None) -> Any:
    """Return the data of an operation's response."""
    async with session.request(method, path, json=body) as response:
        answer = await response.json()
    if response.status >= 400:
        sys.exit(f"{method} {path}: {answer}")
    return answer.get("data", answer)


def _list_plain_paths() -> list[str]:
    """Return the paths of all pages that need no id. Files and redirects are left out."""
    paths = {route.path for route in make_page_routes() if route.method == "GET"}
    return sorted(
        path
        for path in paths
        if "{" not in path and "." not in path and path not in ("/settings", "/sign-in")
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
        "/invoices?query=INV-00500",
        "/invoices?query=Buyer",
        "/invoices?query=B",
        "/invoices?query=Buyer%2000",
        "/invoices?query=Buyer&status=Invalid",
        "/invoices?query=Buyer&page=40",
        f"/invoices?issued_from={today - timedelta(days=30)}&issued_to={today}",
    ]


async def _list_document_paths(visitor: Visitor) -> list[str]:
    """Return the pages of an invoice in each status, and the forms that start from one."""
    draft, valid, invalid = [
        await _find_first(visitor, status) for status in ("Draft", "Valid", "Invalid")
    ]
    return [draft, valid, invalid, f"{draft}/edit", f"{invalid}/edit", f"{valid}/note"]


async def _find_first(visitor: Visitor, status: str) -> str:
    """Return the path of the first invoice in the list of a status."""
    text = await visitor.get(f"/invoices?status={status}")
    _, found, rest = text.partition('scope="row"')
    if not found:
        sys.exit(f"There is no invoice with the status {status}.")
    return rest.partition('href="')[2].partition('"')[0]


async def _measure(visitor: Visitor, path: str, rounds: int) -> tuple[float, float, float, float]:
    """Return the fastest, median and slowest time of a page in milliseconds, and its size in kB."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await visitor.get(path)
        times.append((time.perf_counter() - began) * 1000)
        if visitor.status != 200 or visitor.path != path.partition("?")[0]:
            sys.exit(f"{path}: {visitor.status} {visitor.path}")
    size = len(visitor.text.encode()) / 1000
    return min(times), statistics.median(times), max(times), size


if __name__ == "__main__":
    run(main(parse_options(__doc__, invoices=100_000, sales=5_000, rounds=20)))

#!/usr/bin/env python3
"""Measure the time until sending is released for many companies after a restore.

    .venv/bin/python bench/holds.py [--companies N] [--documents N] [--processes N] [--scale S]

Each company sends some documents. Then sending is held for all of them, and processes are started
with the portal's rate limits times the scale; the sandbox has the same limits. Nothing is known
about the age of the database, so that every hold takes the longest comparison. The times count from
the end of the settling time. With a scale of 1, 200 companies take about 20 minutes. Exits with 1
if a hold does not end or the last one takes longer than the goal: 40 minutes for 200 companies.
"""

import argparse
import asyncio
import statistics
import sys
import time
from contextlib import AsyncExitStack

import asyncpg
from batches import REFUSED, count_requests, create_ready_invoices, start_idle_service
from benchmark import Service, parse_options, print_table, run

GOAL_SECONDS = 12.0  # of one company, with a scale of 1
SETTLE_SECONDS = 5
SEARCHES_A_MINUTE = 12  # that the portal allows
CROWD = 8  # companies that create their invoices at the same time
COUNT_VALID = "select count(*) from submitted_documents where status = 'Valid'"
HOLDS = """
select extract(epoch from released_at - since)::float8 as seconds
  from sending_holds
 order by released_at
"""


async def main(options: argparse.Namespace) -> None:
    """Send the documents, hold sending, wait for the end of the holds and print the figures."""
    async with start_idle_service() as (service, owner), AsyncExitStack() as stack:
        await _send(service, owner, options)
        await service.portal.settings(rate_scale=options.scale)
        held = await owner.fetchval("select hold_sending('A benchmark.')")
        before = await count_requests(service)
        print(f"Sending is held for {held:,} companies …", flush=True)
        for _ in range(options.processes):
            await stack.enter_async_context(
                service.make_another(
                    PORTAL_RATE_SCALE=str(options.scale),
                    PORTAL_SETTLE_SECONDS=str(SETTLE_SECONDS),
                )
            )
        goal = GOAL_SECONDS * options.companies / options.scale + 60
        times = await _wait_for_releases(owner, goal)
        requests = await count_requests(service) - before
    released = [seconds for seconds in times if seconds is not None]
    rows: list[tuple[str, object]] = [
        ("companies held", held),
        ("companies released", len(released)),
        ("searches", requests["search"]),
        ("logins", sum(n for name, n in requests.items() if name.startswith("login"))),
        ("responses 429", requests[REFUSED]),
    ]
    if released:
        quota = SEARCHES_A_MINUTE * options.scale * max(released) / 60
        rows += [
            ("share of the search quota that was used, %", 100 * requests["search"] / quota),
            ("seconds until the first company was released", released[0]),
            ("seconds until half were released", statistics.median(released)),
            ("seconds until the last one was released", released[-1]),
        ]
    title = (
        f"{options.companies:,} companies with {options.documents:,} documents each, "
        f"{options.processes} processes, rate limits times {options.scale:g}"
    )
    print_table(title, ("", ""), rows)
    sys.exit(len(released) < len(times) or max(released) > goal)


async def _send(service: Service, owner: asyncpg.Connection, options: argparse.Namespace) -> None:
    """Create and send the documents of all companies, without rate limits."""
    print(f"{options.companies:,} companies send …", flush=True)
    crowd = asyncio.Semaphore(CROWD)

    async def create() -> None:
        async with crowd:
            company = await service.add_company()
            await create_ready_invoices(service, company, options.documents)

    await asyncio.gather(*[create() for _ in range(options.companies)])
    expected = options.companies * options.documents
    async with service.make_another():
        while (await owner.fetchval(COUNT_VALID) or 0) < expected:
            await asyncio.sleep(0.5)


async def _wait_for_releases(owner: asyncpg.Connection, seconds: float) -> list[float | None]:
    """Wait until no company is held, or the time is over.

    Return the seconds from the end of the settling time to each release, None if it is missing.
    """
    until = time.monotonic() + SETTLE_SECONDS + seconds
    shown = time.monotonic()
    while True:
        times = [row["seconds"] for row in await owner.fetch(HOLDS)]
        if None not in times or time.monotonic() > until:
            return [None if each is None else each - SETTLE_SECONDS for each in times]
        if time.monotonic() > shown + 60:
            shown = time.monotonic()
            print(f"{len(times) - times.count(None):,} are released", flush=True)
        await asyncio.sleep(1)


if __name__ == "__main__":
    run(main(parse_options(__doc__, companies=200, documents=3, processes=2, scale=1.0)))

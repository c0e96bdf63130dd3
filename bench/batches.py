#!/usr/bin/env python3
"""Measure portal requests, time and CPU time to submit waiting invoices within the rate limits.

    .venv/bin/python bench/batches.py [--invoices N] [--companies N] [--scale S]

The invoices are created while no background work runs; then two processes with background work
start. The sandbox counts requests per minute as the portal does, at S times the portal's rates, and
the service has the same limits. Prints also how long the operation that is used most takes for its
requests at the portal's rate: each company needs a login of its own.
"""

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import asyncpg
import cpu
from benchmark import Company, Service, parse_options, print_table, run, start_service
from invoices import make_invoice

from service.portal.rate_limits import QUOTAS
from tests.harness.databases import open_connection

CONNECTIONS = 16
TIMEOUT_SECONDS = 1800
REFUSED = "response 429"
COUNT = "select sum(live)::bigint from record_counts where list = 'invoice' and status = $1"


async def main(options: argparse.Namespace) -> None:
    """Create the invoices, submit them and print the figures."""
    rate = f"{options.scale:g}"
    variables = {
        "SANDBOX_RATE_SCALE": rate,
        "PORTAL_RATE_SCALE": rate,
        "SANDBOX_PROCESSING_SECONDS": "0.5",
    }
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(
            start_service(sandbox=True, background=False, variables=variables)
        )
        share = options.invoices // options.companies
        invoices = share * options.companies
        print(f"Creating {invoices:,} invoices …", flush=True)
        for company in await service.add_companies(options.companies, 0):
            await create_ready_invoices(service, company, share)
        postmaster = await cpu.find_postmaster(service.url)
        before, began = cpu.read_cpu(postmaster), time.perf_counter()
        workers = [await stack.enter_async_context(service.make_another()) for _ in range(2)]
        times = await wait_until_valid(service, invoices, began)
        spent = sum(cpu.read_cpu(worker.pid) for worker in workers if worker.pid)
        spent_by_postgresql = cpu.read_cpu(postmaster) - before
        requests = await count_requests(service)
        sent = [(each["taxpayer"], each["number"]) for each in await service.portal.ledger()]
    submits, refused = requests["submit"], requests.pop(REFUSED)
    slowest = max(_seconds_at_rate(name, count) for name, count in requests.items()) / options.scale
    rows = [
        ("submit requests", submits),
        ("documents per submit request", len(sent) / submits),
        ("duplicate documents at the portal", len(sent) - len(set(sent))),
        ("seconds until all were sent", times["sent"]),
        ("seconds until all were Valid", times["valid"]),
        ("seconds of the requests at the portal's rate", slowest),
        ("CPU ms per invoice, both processes", spent / invoices * 1000),
        ("CPU ms per invoice, PostgreSQL", spent_by_postgresql / invoices * 1000),
        ("all portal requests", requests.total()),
        ("responses 429", refused),
    ]
    title = (
        f"{invoices:,} invoices of {options.companies} companies, two processes, "
        f"rate limits times {rate}"
    )
    print_table(title, ("", ""), rows)


def _seconds_at_rate(operation: str, requests: int) -> float:
    """Return the time in which the portal allows so many requests of the operator's client."""
    quotas = [each for each in QUOTAS.get(operation, ()) if not each.of_taxpayer]
    return max((requests / each.calls * each.seconds for each in quotas), default=0)


@asynccontextmanager
async def start_idle_service() -> AsyncIterator[tuple[Service, asyncpg.Connection]]:
    """Run a service without background work, and its sandbox. Yields it with a connection."""
    variables = {"SANDBOX_PROCESSING_SECONDS": "0"}
    async with (
        start_service(sandbox=True, background=False, variables=variables) as service,
        open_connection(service.url) as owner,
    ):
        yield service, owner


async def count_requests(service: Service) -> Counter[str]:
    """Return the requests of the sandbox by operation, and as REFUSED its responses 429."""
    counts = await service.portal.calls()
    refused = sum(answers.get("429", 0) for answers in counts["answers"].values())
    return Counter({**counts["calls"], REFUSED: refused})


async def create_ready_invoices(
    service: Service, company: Company, invoices: int, first: int = 1
) -> None:
    """Create invoices, the first with this code, of a company that submits automatically."""
    codes = range(first, first + invoices)
    bodies = ({**make_invoice(code), "isReady": True} for code in codes)

    async def create_some() -> None:
        for body in bodies:
            async with http.post("/api/invoices", json=body) as response:
                assert response.status == 201, await response.text()

    headers = {"X-API-Key": company.key}
    async with aiohttp.ClientSession(service.base, headers=headers) as http:
        async with http.get("/api/companies") as response:
            setting = (await response.json())["data"]["setting"]
        setting["AUTO_SUBMIT_INVOICE"] = True
        async with http.put("/api/companies", json={"setting": setting}) as response:
            assert response.status == 200, await response.text()
        await asyncio.gather(*[create_some() for _ in range(CONNECTIONS)])


async def wait_until_valid(service: Service, invoices: int, began: float) -> dict[str, float]:
    """Return {sent, valid}: seconds until none was waiting, and until all were Valid."""
    times: dict[str, float] = {}
    async with asyncio.timeout(TIMEOUT_SECONDS), open_connection(service.url) as owner:
        while "valid" not in times:
            for name, status, expected in (("sent", "Submitting", 0), ("valid", "Valid", invoices)):
                if name not in times and await owner.fetchval(COUNT, status) == expected:
                    times[name] = time.perf_counter() - began
            await asyncio.sleep(0.2)
    return times


if __name__ == "__main__":
    run(main(parse_options(__doc__, invoices=10_000, companies=50, scale=1.0)))

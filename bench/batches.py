#!/usr/bin/env python3
"""Measure portal requests, time and CPU time to submit waiting invoices within the rate limits.

    .venv/bin/python bench/batches.py [--invoices N] [--scale S]

The invoices are created while no background work runs; then two processes with background work
start. The sandbox counts requests per minute as the portal does, at S times the portal's rates, and
the service has the same limits.
"""

import argparse
import asyncio
import time
from contextlib import AsyncExitStack

import aiohttp
import cpu
from benchmark import Service, parse_options, print_table, run, start_service
from invoices import make_invoice

CONNECTIONS = 16
TIMEOUT_SECONDS = 1800


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
        company = await service.add_company()
        http = await stack.enter_async_context(
            aiohttp.ClientSession(headers={"X-API-Key": company.key})
        )
        print(f"Creating {options.invoices:,} invoices …", flush=True)
        await create_ready_invoices(http, service, options.invoices)
        postmaster = await cpu.find_postmaster(service.url)
        before, began = cpu.read_cpu(postmaster), time.perf_counter()
        workers = [await stack.enter_async_context(service.make_another()) for _ in range(2)]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            times = await wait_until_valid(http, service, options.invoices, began)
        spent = sum(cpu.read_cpu(worker.pid) for worker in workers if worker.pid)
        spent_by_postgresql = cpu.read_cpu(postmaster) - before
        calls = await service.portal.calls()
        numbers = [entry["number"] for entry in await service.portal.ledger()]
    submits = calls["calls"]["submit"]
    rows = [
        ("submit requests", submits),
        ("documents per submit request", len(numbers) / submits),
        ("duplicate documents at the portal", len(numbers) - len(set(numbers))),
        ("seconds until all were sent", times["sent"]),
        ("seconds until all were Valid", times["valid"]),
        ("CPU ms per invoice, both processes", spent / options.invoices * 1000),
        ("CPU ms per invoice, PostgreSQL", spent_by_postgresql / options.invoices * 1000),
        ("all portal requests", sum(calls["calls"].values())),
        ("responses 429", sum(answers.get("429", 0) for answers in calls["answers"].values())),
    ]
    title = f"{options.invoices:,} invoices, two processes, rate limits times {rate}"
    print_table(title, ("", ""), rows)


async def create_ready_invoices(
    http: aiohttp.ClientSession, service: Service, invoices: int
) -> None:
    """Create invoices of a company that submits automatically."""
    base = f"{service.base}/api"
    async with http.get(f"{base}/companies") as response:
        setting = (await response.json())["data"]["setting"]
    async with http.put(
        f"{base}/companies", json={"setting": {**setting, "AUTO_SUBMIT_INVOICE": True}}
    ) as response:
        assert response.status == 200, await response.text()
    bodies = ({**make_invoice(code), "isReady": True} for code in range(1, invoices + 1))

    async def create_some() -> None:
        for body in bodies:
            async with http.post(f"{base}/invoices", json=body) as response:
                assert response.status == 201, await response.text()

    await asyncio.gather(*[create_some() for _ in range(CONNECTIONS)])


async def wait_until_valid(
    http: aiohttp.ClientSession, service: Service, invoices: int, began: float
) -> dict[str, float]:
    """Return {sent, valid}: seconds until none was waiting, and until all were Valid."""
    times: dict[str, float] = {}
    base = f"{service.base}/api/invoices?per_page=1&status="
    while "valid" not in times:
        for name, status, expected in (("sent", "Submitting", 0), ("valid", "Valid", invoices)):
            async with http.get(base + status) as response:
                if name not in times and (await response.json())["meta"]["total"] == expected:
                    times[name] = time.perf_counter() - began
        await asyncio.sleep(0.2)
    return times


if __name__ == "__main__":
    run(main(parse_options(__doc__, invoices=10_000, scale=1.0)))

#!/usr/bin/env python3
"""How many calls carry a company's waiting invoices to the portal, and how long that takes within its quotas.

    .venv/bin/python bench/batches.py [--invoices N] [--scale S]

The invoices are made ready over HTTP while no background work runs; then two processes of it start. The sandbox counts
its minutes as the portal does, at S times the rates, and the service is told the same.
"""

import argparse
import asyncio
import json
import time
from contextlib import AsyncExitStack

import aiohttp
from ground import ground, run, table
from requests import creates

CONNECTIONS = 16
PATIENCE = 1800  # seconds


async def main(options):
    rate = f"{options.scale:g}"
    variables = {
        "SANDBOX_RATE_SCALE": rate,
        "PORTAL_RATE_SCALE": rate,
        "SANDBOX_PROCESSING_SECONDS": "0.5",
    }
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(
            ground(sandbox=True, background=False, **variables)
        )
        company = await service.company()
        http = await stack.enter_async_context(
            aiohttp.ClientSession(headers={"X-API-Key": company.key})
        )
        print(f"Making {options.invoices:,} invoices ready …", flush=True)
        await _ready(http, service, options.invoices)
        began = time.perf_counter()
        for _ in range(2):
            await stack.enter_async_context(service.worker())
        async with asyncio.timeout(PATIENCE):
            times = await _settled(http, service, options.invoices, began)
        async with http.get(f"{service.config.portal_api_base}/_sandbox/calls") as response:
            calls = await response.json()
        async with http.get(f"{service.config.portal_api_base}/_sandbox/ledger") as response:
            numbers = [entry["number"] for entry in (await response.json())["documents"]]
    submits = calls["calls"]["submit"]
    rows = [
        ("submits", submits),
        ("documents of one submit", len(numbers) / submits),
        ("documents at the portal more than once", len(numbers) - len(set(numbers))),
        ("seconds until the last had left", times["sent"]),
        ("seconds until the last was Valid", times["valid"]),
        ("all calls", sum(calls["calls"].values())),
        ("answers 429", sum(answers.get("429", 0) for answers in calls["answers"].values())),
    ]
    table(f"{options.invoices:,} invoices, two processes, quotas times {rate}", ("", ""), rows)


async def _ready(http, service, invoices):
    """Creates them, for a company that submits automatically."""
    base = f"http://127.0.0.1:{service.port}/api"
    async with http.get(f"{base}/companies") as response:
        setting = (await response.json())["data"]["setting"]
    async with http.put(
        f"{base}/companies", json={"setting": {**setting, "AUTO_SUBMIT_INVOICE": True}}
    ) as response:
        assert response.status == 200, await response.text()
    bodies = (
        json.loads(body) | {"isReady": True}
        for (_, _, body), _ in zip(creates(), range(invoices), strict=False)
    )

    async def one():
        for body in bodies:
            async with http.post(f"{base}/invoices", json=body) as response:
                assert response.status == 201, await response.text()

    await asyncio.gather(*[one() for _ in range(CONNECTIONS)])


async def _settled(http, service, invoices, began):
    """{sent, valid}: seconds until none was waiting, and until all were Valid."""
    times = {}
    base = f"http://127.0.0.1:{service.port}/api/invoices?per_page=1&status="
    while "valid" not in times:
        for name, status, expected in (("sent", "Submitting", 0), ("valid", "Valid", invoices)):
            async with http.get(base + status) as response:
                if name not in times and (await response.json())["meta"]["total"] == expected:
                    times[name] = time.perf_counter() - began
        await asyncio.sleep(0.2)
    return times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--invoices", type=int, default=10_000)
    parser.add_argument(
        "--scale",
        type=float,
        default=1,
        help="of the portal's rates; 20 is a minute of three seconds",
    )
    run(main(parser.parse_args()))

"""Any number of API processes and workers share one database."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from tests.api_reads import get_invoice, wait_until_status
from tests.api_requests import submit
from tests.conftest import Company, Sandbox, until
from tests.harness.bodies import invoice
from tests.harness.companies import AUTOMATIC
from tests.harness.processes import ChildProcess, Service

NUMBER = 3  # of API processes, and of workers
CLIENTS, INVOICES = 6, 4


@pytest.fixture
async def apis(
    environment: dict[str, str], company: Company, tmp_path: Path
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """Yield clients of API processes without background work."""
    async with AsyncExitStack() as stack:
        services = [
            Service(environment, tmp_path / f"api-{number}.log", ["serve", "--no-background"])
            for number in range(NUMBER)
        ]
        await asyncio.gather(*map(stack.enter_async_context, services))
        yield [await stack.enter_async_context(service.client(company.key)) for service in services]


@pytest.fixture
async def workers(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[list[ChildProcess]]:
    async with AsyncExitStack() as stack:
        found = [
            ChildProcess(["worker"], environment, tmp_path / f"worker-{number}.log")
            for number in range(NUMBER)
        ]
        await asyncio.gather(*map(stack.enter_async_context, found))
        yield found


async def create_by_turns(apis: list[aiohttp.ClientSession], first: int, ready: bool) -> list[int]:
    """Create invoices, and repeat, read and submit each of them in other processes."""
    turns = itertools.cycle([*apis[first % NUMBER :], *apis[: first % NUMBER]])
    ids: list[int] = []
    for place in range(INVOICES):
        body = invoice(isReady=ready)
        headers = {"Idempotency-Key": f"order-{first}-{place}-{ready}"}
        for is_replayed in (False, True):
            async with next(turns).post("/api/invoices", json=body, headers=headers) as response:
                assert response.status == 201, await response.text()
                assert (response.headers.get("Idempotent-Replayed") == "true") is is_replayed
                number = (await response.json())["data"]["id"]
        assert (await get_invoice(next(turns), number))["id"] == number
        if not ready:
            assert (await submit(next(turns), number))[0] == 200
        ids.append(number)
    return ids


async def test_three_api_processes_and_three_workers_share_one_database(
    apis: list[aiohttp.ClientSession],
    workers: list[ChildProcess],
    owner: asyncpg.Connection,
    sandbox: Sandbox,
) -> None:
    """Any process serves any request. Documents are sent once, also if a worker is killed."""
    await owner.execute(AUTOMATIC)
    load = [
        asyncio.create_task(create_by_turns(apis, number, ready=number % 2 == 0))
        for number in range(CLIENTS)
    ]
    await until(sandbox.ledger)
    await workers[0].kill()
    ids = [number for numbers in await asyncio.gather(*load) for number in numbers]
    assert len(set(ids)) == CLIENTS * INVOICES
    for number, api in zip(ids, itertools.cycle(apis), strict=False):
        await wait_until_status(api, number, "Valid")
    numbers = [entry["number"] for entry in await sandbox.ledger()]
    assert len(numbers) == len(set(numbers)) == len(ids)

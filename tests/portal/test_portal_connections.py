"""The connections of a process to the portal are shared fairly between taxpayers."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from service.portal.errors import NotSent, Unclear
from service.portal.transport import FairConnections, NoConnectionFree
from tests.api_invoices import create_invoice, create_submitted_invoice
from tests.api_reads import get_invoice
from tests.api_requests import submit
from tests.conftest import Sandbox, StartService, make_company, until
from tests.portal.test_portal_client import http, portal_to, send_submission, silent

#: A task that waits for a connection.
Waiting = asyncio.Task[AsyncExitStack]

LONG = 600  # seconds


async def hold(
    connections: FairConnections, taxpayer: str, count: int, seconds: float = LONG
) -> tuple[list[AsyncExitStack], list[Waiting]]:
    """Return the stacks of the connections that were granted at once, and the tasks that wait."""
    tasks = [asyncio.create_task(_enter(connections, taxpayer, seconds)) for _ in range(count)]
    await _settle()
    return [task.result() for task in tasks if task.done()], [
        task for task in tasks if not task.done()
    ]


async def _enter(connections: FairConnections, taxpayer: str, seconds: float) -> AsyncExitStack:
    stack = AsyncExitStack()
    await stack.enter_async_context(connections.connection(taxpayer, seconds))
    return stack


async def _settle() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_taxpayer_gets_at_most_a_third_of_the_connections() -> None:
    connections = FairConnections(32)
    (held, waiting), (others, _) = await hold(connections, "A", 40), await hold(connections, "", 5)
    assert (len(held), len(waiting), len(others)) == (10, 30, 5)
    await held[0].aclose()
    await _settle()
    assert [task.done() for task in waiting] == [True] + [False] * 29
    await _cancel(waiting)


async def test_a_process_has_no_more_connections_than_its_limit() -> None:
    connections = FairConnections(32)
    counts = [await hold(connections, taxpayer, 10) for taxpayer in "ABCD"]
    assert [len(held) for held, _ in counts] == [10, 10, 10, 2]
    await _cancel(counts[-1][1])


async def test_a_wait_for_a_connection_times_out_and_leaves_nothing() -> None:
    connections = FairConnections(3)
    (held,), (waiting,) = await hold(connections, "A", 2, seconds=0.05)
    with pytest.raises(NoConnectionFree):
        await waiting
    await held.aclose()
    assert connections._all._value == 3


async def test_cancelled_waits_and_errors_do_not_leak_connections() -> None:
    """Waits are cancelled at every moment: before, with and after the grant."""
    connections = FairConnections(6)

    async def work(name: str) -> None:
        async with connections.connection(name, LONG):
            await asyncio.sleep(0)
            raise ValueError

    for turn in range(30):
        tasks = [asyncio.create_task(work(name)) for name in "AABBBCDDDD" * 3]
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        for task in tasks[turn % 3 :: 3]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {ValueError, asyncio.CancelledError}
        assert connections._all._value == 6
        assert {semaphore._value for semaphore in connections._taxpayers.values()} <= {2}


async def _cancel(tasks: list[Waiting]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# The client


async def test_a_request_without_a_free_connection_is_not_sent() -> None:
    """33 requests of one taxpayer hang. Those without a connection are certainly not sent."""
    bounds: dict[str, Any] = {
        "PORTAL_TIMEOUT_SECONDS": "1",
        "PORTAL_CONNECT_TIMEOUT_SECONDS": "0.5",
    }
    async with portal_to(silent, **bounds) as (portal, server):
        outcomes = await asyncio.gather(
            *[send_submission(portal) for _ in range(33)], return_exceptions=True
        )
        unclear = [outcome for outcome in outcomes if isinstance(outcome, Unclear)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, NotSent)]
        assert (len(unclear), len(refused)) == (10, 23) and len(server.calls) == 10
        assert {str(outcome) for outcome in refused} == {"No connection to the portal was free."}


async def test_clients_of_one_session_share_the_connections() -> None:
    async with portal_to(http(202, {})) as (portal, _):
        assert portal.through(None)._connections is portal._connections


@pytest.mark.long
async def test_hanging_requests_of_one_company_do_not_block_another(
    start: StartService, environment: dict[str, str], sandbox: Sandbox
) -> None:
    """40 requests of one company hang. Another company submits meanwhile."""
    bounds = {
        "PORTAL_TIMEOUT_SECONDS": "15",
        "PORTAL_CONNECT_TIMEOUT_SECONDS": "4",
        "SUBMIT_WAIT_SECONDS": "30",
    }
    api = await start(background=False, **bounds)
    other = await make_company(environment, name="Kedai Lain Sdn. Bhd.", tin_code="C20880050020")
    hanging = [await create_invoice(api) for _ in range(40)]
    for invoice_id in hanging:
        number = f"INV-{int((await get_invoice(api, invoice_id))['invoice_code']):05}"
        await sandbox.fault("submit", "slow_before", number=number, seconds=LONG)
    tasks = [asyncio.create_task(submit(api, invoice_id)) for invoice_id in hanging]
    await until(lambda: sandbox.count_calls("submit"), lambda count: count >= 10)
    async with aiohttp.ClientSession(
        api.make_url(""), headers={"X-API-Key": other.key}
    ) as neighbour:
        await create_submitted_invoice(neighbour)
    assert sum(not task.done() for task in tasks) >= 10
    assert {status for status, _ in await asyncio.gather(*tasks)} == {400}

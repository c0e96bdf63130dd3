"""Killed processes: no acknowledged change is lost, no document is sent twice."""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice, get_statuses, wait_until_status
from tests.api_requests import Answer, cancel_latest, expect, request_json, submit
from tests.conftest import Company, Sandbox, until
from tests.fixtures_service import StartProcess
from tests.harness.bodies import note, now
from tests.harness.processes import Service, free_port

#: Timeouts so long that the service still waits for the portal when it is killed.
PATIENT = {
    "PORTAL_TIMEOUT_SECONDS": "60",
    "PORTAL_LEASE_SECONDS": "3",
    "SUBMIT_WAIT_SECONDS": "60",
}


@pytest.fixture
async def service(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[Service]:
    """Yield a running process of the service that waits long for a slow portal."""
    async with Service({**environment, **PATIENT}, tmp_path / "service.log") as process:
        yield process


async def restart(service: Service, answer: asyncio.Task[Any]) -> None:
    """Kill the service, which loses the response to a request, and start it again."""
    await service.kill()
    with pytest.raises(aiohttp.ClientError):
        await answer
    await service.start()


async def begin_submit(
    client: aiohttp.ClientSession, sandbox: Sandbox, fault: str, seconds: int
) -> tuple[int, asyncio.Task[Answer]]:
    """Submit an invoice to a slow portal, and wait until the portal has received or accepted it."""
    await sandbox.fault("submit", fault, seconds=seconds)
    invoice_id = await create_invoice(client)
    answer = asyncio.create_task(submit(client, invoice_id))
    if fault == "slow":
        await until(sandbox.ledger)
    await until(sandbox.calls, lambda calls: calls["calls"].get("submit"))
    return invoice_id, answer


async def test_kill_between_acceptance_and_its_record_sends_no_duplicate(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    invoice_id, answer = await begin_submit(client, sandbox, "slow", 60)
    await restart(service, answer)
    assert (await get_invoice(client, invoice_id))["status"] == "Submitting"
    await wait_until_status(client, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1
    assert await get_statuses(client, invoice_id) == ["Valid"]


async def test_kill_before_the_portal_accepts_releases_the_invoice(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    invoice_id, answer = await begin_submit(client, sandbox, "slow_before", 600)
    await restart(service, answer)
    await wait_until_status(client, invoice_id, "Draft")
    assert not await sandbox.ledger()
    assert (await submit(client, invoice_id))[0] == 200


async def test_kill_while_cancelling_completes_the_cancellation(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(client)
    await sandbox.fault("state", "slow", seconds=60)
    answer = asyncio.create_task(cancel_latest(client, invoice_id))
    await until(sandbox.ledger, lambda listed: listed[0]["status"] == "Cancelled")
    await restart(service, answer)
    await wait_until_status(client, invoice_id, "Cancelled")


async def test_kill_before_a_late_cancellation_still_finds_it(
    services: StartProcess, company: Company, sandbox: Sandbox
) -> None:
    """The request is sent before the kill. The next process reads Valid first and polls on."""
    service = await services(PORTAL_RECHECK_SECONDS="3600", PORTAL_SETTLE_SECONDS="600")
    async with service.client(company.key) as client:
        invoice_id = await create_valid_invoice(client)
        await sandbox.fault("state", "slow_before", seconds=600)
        answer = asyncio.create_task(cancel_latest(client, invoice_id))
        await until(sandbox.calls, lambda calls: calls["calls"].get("state"))
        await restart(service, answer)
        await until(sandbox.calls, lambda calls: calls["calls"].get("details", 0) >= 2)
        (document,) = await get_documents(client, invoice_id)
        assert document["status"] == "Valid" and document["cancellation_requested_at"]
        path = f"/api/invoices/{invoice_id}/adjustment-note"
        await expect(client, 403, "POST", path, json=note())
        await sandbox.cancel(document["uuid"], "Late")
        await wait_until_status(client, invoice_id, "Cancelled")


@pytest.fixture
async def second(services: StartProcess, company: Company) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a client of another process."""
    async with (await services()).client(company.key) as session:
        yield session


async def submit_to_both(*clients: aiohttp.ClientSession) -> set[int]:
    """Submit an invoice many times at once. Return the statuses, once it is Valid."""
    invoice_id = await create_invoice(clients[0])
    answers = await asyncio.gather(*[submit(each, invoice_id) for each in clients * 25])
    await wait_until_status(clients[0], invoice_id, "Valid")
    return {status for status, _ in answers}


async def test_concurrent_submits_in_two_processes_send_one_document(
    client: aiohttp.ClientSession, second: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    assert await submit_to_both(client, second) == {200}
    assert len(await sandbox.ledger()) == 1


async def test_concurrent_submits_with_a_lost_response_send_one_document(
    client: aiohttp.ClientSession, second: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "accept_then_drop")
    await submit_to_both(client, second)
    assert len(await sandbox.ledger()) == 1


async def test_sigterm_finishes_requests_and_closes_connections(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "slow", seconds=3)
    invoice_id = await create_invoice(client)
    answer = asyncio.create_task(
        client.post(f"/api/invoices/{invoice_id}/submit-to-portal", json={})
    )
    await until(sandbox.ledger)
    assert await service.stop() == 0
    response = await answer
    assert response.status == 200 and response.headers["Connection"] == "close"


async def test_draining_service_is_not_ready_and_serves_requests(
    services: StartProcess, company: Company
) -> None:
    service = await services(DRAIN_SECONDS="60")
    async with service.client(company.key) as client:
        service.send_signal(signal.SIGTERM)
        _, body = await until(
            lambda: request_json(client, "GET", "/readyz"), lambda answer: answer[0] == 503
        )
        assert body["status"] == "stopping"
        async with client.get("/api/invoices") as response:
            assert response.status == 200 and "Connection" not in response.headers
        await expect(client, 200, "GET", "/healthz")
    await service.kill()


async def test_no_work_is_claimed_after_sigterm(
    service: Service,
    client: aiohttp.ClientSession,
    owner: asyncpg.Connection,
    company: Company,
    sandbox: Sandbox,
) -> None:
    """A submission that becomes due while the last request finishes is left to the next process."""
    _, answer = await begin_submit(client, sandbox, "slow", 3)
    service.send_signal(signal.SIGTERM)
    await until(lambda: _refuses(service))
    due = await owner.fetchval(
        """
        insert into submissions (company_id, attempt_key, tin, on_absence, fence)
        values ($1, gen_random_uuid(), 'C20880050010', 'retry', 1) returning id
        """,
        company.id,
    )
    await owner.execute("select pg_notify('submission_due', '')")
    assert await service.wait() == 0 and (await answer)[0] == 200
    assert await owner.fetchval("select fence from submissions where id = $1", due) == 1


async def _refuses(service: Service) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{service.base}/healthz"):
            return False
    except aiohttp.ClientError:
        return True


async def test_second_signal_stops_the_service_immediately(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    _, answer = await begin_submit(client, sandbox, "slow_before", 600)
    service.send_signal(signal.SIGTERM)
    await until(lambda: _refuses(service))
    assert await service.stop() == 1
    with pytest.raises(aiohttp.ClientError):
        await answer


async def test_unconfigured_service_keeps_its_data_after_kill(tmp_path: Path) -> None:
    """One command starts the embedded PostgreSQL, the sandbox and the demo company."""
    environment = {
        "DATABASE_URL": "",
        "DATA_DIR": str(tmp_path / "data"),
        "SANDBOX_PORT": str(free_port()),
        "SANDBOX_PROCESSING_SECONDS": "0.1",
        "PORTAL_POLL_SECONDS": "0.1",
    }
    service = Service(environment, tmp_path / "service.log")
    await service.start()
    (key,) = re.findall(r"export KEY=(\S+)", await service.printed("export KEY="))
    try:
        async with service.client(key) as client:
            draft, sent = (
                await create_invoice(client),
                await create_invoice(client, issueDateTime=now()),
            )
            assert (await submit(client, sent))[0] == 200
            await service.kill()
            await service.start()
            assert (await get_invoice(client, draft))["status"] == "Draft"
            await wait_until_status(client, sent, "Valid")
            (document,) = await get_documents(client, sent)
            async with client.get(document["validation_link"]) as page:
                assert page.status == 200
    finally:
        assert await service.stop() == 0

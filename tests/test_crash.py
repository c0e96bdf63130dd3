"""kill -9 at bad moments: what was acknowledged is there, what was under way is resolved, nothing is sent twice."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from conftest import Sandbox, until
from kit import created, documents, invoice, note, now, record, submitted
from processes import Service, free_port

#: A service that still waits for the portal when it is killed, however busy the machine is.
PATIENT = {
    "PORTAL_TIMEOUT_SECONDS": "60",
    "PORTAL_LEASE_SECONDS": "3",
    "SUBMIT_WAIT_SECONDS": "60",
}


@pytest.fixture
async def service(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[Any]:
    """A running process of the service on the test's database and sandbox, which waits long for a slow portal."""
    process = Service({**environment, **PATIENT}, tmp_path / "service.log")
    await process.start()
    yield process
    await process.stop()


@pytest.fixture
async def client(service: Service, company: Any) -> AsyncIterator[Any]:
    async with aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as session:
        yield session


async def test_killed_after_the_portal_took_it_and_before_it_was_recorded(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "slow", seconds=60)
    invoice_id = await created(client)
    answer = asyncio.create_task(submitted(client, invoice_id))
    await until(sandbox.ledger)
    await service.kill()
    with pytest.raises(aiohttp.ClientError):
        await answer
    await service.start()
    assert (await record(client, invoice_id))["status"] == "Submitting"
    await until(lambda: record(client, invoice_id), lambda found: found["status"] == "Valid")
    assert len(await sandbox.ledger()) == 1
    assert [document["status"] for document in await documents(client, invoice_id)] == ["Valid"]


async def test_killed_before_the_portal_took_it(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "slow_before", seconds=600)
    invoice_id = await created(client)
    answer = asyncio.create_task(submitted(client, invoice_id))
    await until(sandbox.calls, lambda calls: calls["calls"].get("submit"))
    await service.kill()
    with pytest.raises(aiohttp.ClientError):
        await answer
    await service.start()
    await until(lambda: record(client, invoice_id), lambda found: found["status"] == "Draft")
    assert not await sandbox.ledger()
    assert (await submitted(client, invoice_id))[0] == 200


async def test_killed_while_cancelling(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    invoice_id = await created(client)
    await submitted(client, invoice_id)
    await until(lambda: record(client, invoice_id), lambda found: found["status"] == "Valid")
    await sandbox.fault("state", "slow", seconds=60)
    answer = asyncio.create_task(
        client.post(f"/api/invoices/{invoice_id}/cancel-latest-invoice-submitted")
    )
    await until(sandbox.ledger, lambda listed: listed[0]["status"] == "Cancelled")
    await service.kill()
    with pytest.raises(aiohttp.ClientError):
        await answer
    await service.start()
    await until(lambda: record(client, invoice_id), lambda found: found["status"] == "Cancelled")


async def test_killed_while_a_cancellation_is_processed_late(
    environment: dict[str, str], company: Any, sandbox: Sandbox, tmp_path: Path
) -> None:
    """The request is out when the process dies. Another one reads Valid first, and keeps looking."""
    patient = {**environment, "PORTAL_RECHECK_SECONDS": "3600", "PORTAL_SETTLE_SECONDS": "600"}
    service = Service(patient, tmp_path / "service.log")
    await service.start()
    try:
        async with aiohttp.ClientSession(
            service.base, headers={"X-API-Key": company.key}
        ) as client:
            invoice_id = await created(client)
            await submitted(client, invoice_id)
            await until(
                lambda: record(client, invoice_id), lambda found: found["status"] == "Valid"
            )
            await sandbox.fault("state", "slow_before", seconds=600)
            answer = asyncio.create_task(
                client.post(f"/api/invoices/{invoice_id}/cancel-latest-invoice-submitted")
            )
            await until(sandbox.calls, lambda calls: calls["calls"].get("state"))
            await service.kill()
            with pytest.raises(aiohttp.ClientError):
                await answer
            await service.start()
            await until(sandbox.calls, lambda calls: calls["calls"].get("details", 0) >= 2)
            (document,) = await documents(client, invoice_id)
            assert document["status"] == "Valid" and document["cancellation_requested_at"]
            async with client.post(
                f"/api/invoices/{invoice_id}/adjustment-note", json=note()
            ) as response:
                assert response.status == 403
            await sandbox.cancel(document["uuid"], "Late")
            await until(
                lambda: record(client, invoice_id), lambda found: found["status"] == "Cancelled"
            )
    finally:
        await service.stop()


async def test_two_processes_submit_one_invoice_fifty_times(
    service: Service,
    client: aiohttp.ClientSession,
    environment: dict[str, str],
    company: Any,
    sandbox: Sandbox,
    tmp_path: Path,
) -> None:
    other = Service(environment, tmp_path / "other.log")
    await other.start()
    try:
        async with aiohttp.ClientSession(other.base, headers={"X-API-Key": company.key}) as second:
            invoice_id = await created(client)
            answers = await asyncio.gather(
                *[submitted(each, invoice_id) for each in [client, second] * 25]
            )
            assert {status for status, _ in answers} == {200}
            await until(
                lambda: record(client, invoice_id), lambda found: found["status"] == "Valid"
            )
    finally:
        await other.stop()
    assert len(await sandbox.ledger()) == 1


async def test_two_processes_submit_fifty_times_what_loses_its_answer(
    service: Service,
    client: aiohttp.ClientSession,
    environment: dict[str, str],
    company: Any,
    sandbox: Sandbox,
    tmp_path: Path,
) -> None:
    await sandbox.fault("submit", "accept_then_drop")
    other = Service(environment, tmp_path / "other.log")
    await other.start()
    try:
        async with aiohttp.ClientSession(other.base, headers={"X-API-Key": company.key}) as second:
            invoice_id = await created(client)
            await asyncio.gather(*[submitted(each, invoice_id) for each in [client, second] * 25])
            await until(
                lambda: record(client, invoice_id), lambda found: found["status"] == "Valid"
            )
    finally:
        await other.stop()
    assert len(await sandbox.ledger()) == 1


async def test_killed_again_and_again_under_load(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    """Each acknowledged invoice is there, each comes to its end, and the portal has one document of each."""
    acknowledged, stop = [], asyncio.Event()

    async def create() -> None:
        while not stop.is_set():
            try:
                async with client.post(
                    "/api/invoices", json=invoice(submitImmediately=True)
                ) as response:
                    if response.status == 201:
                        acknowledged.append((await response.json())["data"]["id"])
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)

    writers = [asyncio.create_task(create()) for _ in range(4)]
    for round in range(1, 5):
        await until(lambda least=round * 15: _reached(acknowledged, least))
        await service.kill()
        await service.start()
    stop.set()
    await asyncio.gather(*writers)
    for invoice_id in acknowledged:
        await until(
            lambda invoice_id=invoice_id: record(client, invoice_id),
            lambda found: found["status"] == "Valid",
        )
    numbers = [entry["number"] for entry in await sandbox.ledger()]
    assert len(numbers) == len(set(numbers)) >= len(acknowledged)


async def _reached(acknowledged: Any, least: int) -> int:
    return len(acknowledged) >= least


async def test_sigterm_lets_a_request_finish_and_its_answer_says_that_it_is_the_last(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "slow", seconds=3)
    invoice_id = await created(client)
    answer = asyncio.create_task(
        client.post(f"/api/invoices/{invoice_id}/submit-to-portal", json={})
    )
    await until(sandbox.ledger)
    assert await service.stop() == 0
    response = await answer
    assert response.status == 200 and response.headers["Connection"] == "close"


async def test_after_sigterm_no_work_is_claimed_any_more(
    service: Service,
    client: aiohttp.ClientSession,
    owner: asyncpg.Connection,
    company: Any,
    sandbox: Sandbox,
) -> None:
    """What falls due while a last request finishes is left to the next process."""
    await sandbox.fault("submit", "slow", seconds=3)
    invoice_id = await created(client)
    answer = asyncio.create_task(submitted(client, invoice_id))
    await until(sandbox.ledger)
    service.process.send_signal(signal.SIGTERM)
    await until(lambda: _refuses(service))
    due = await owner.fetchval(
        """
        insert into submissions (company_id, attempt_key, tin, body, on_absence, fence)
        values ($1, gen_random_uuid(), 'C20880050010', '{}', 'retry', 1) returning id
        """,
        company.id,
    )
    await owner.execute("select pg_notify('submission_due', '')")
    assert await asyncio.to_thread(service.process.wait, 40) == 0 and (await answer)[0] == 200
    assert await owner.fetchval("select fence from submissions where id = $1", due) == 1


async def _refuses(service: Service) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{service.base}/healthz"):
            return False
    except aiohttp.ClientError:
        return True


async def test_a_second_signal_ends_it_at_once(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "slow_before", seconds=600)
    invoice_id = await created(client)
    answer = asyncio.create_task(submitted(client, invoice_id))
    await until(sandbox.calls, lambda calls: calls["calls"].get("submit"))
    service.process.send_signal(signal.SIGTERM)
    await until(lambda: _refuses(service))
    assert await service.stop() == 1
    with pytest.raises(aiohttp.ClientError):
        await answer


async def test_with_nothing_configured_all_is_there_after_kill_9(tmp_path: Path) -> None:
    """The embedded PostgreSQL, the sandbox and the demo company come with the one command, and stay."""
    environment = {
        "DATABASE_URL": "",
        "DATA_DIR": str(tmp_path / "data"),
        "SANDBOX_PORT": str(free_port()),
        "SANDBOX_PROCESSING_SECONDS": "0.1",
        "PORTAL_POLL_SECONDS": "0.1",
    }
    service = Service(environment, tmp_path / "service.log")
    await service.start()
    printed = await until(lambda: _printed(service), lambda text: "export KEY=" in text)
    key = re.search(r"export KEY=(\S+)", printed)[1]
    try:
        async with aiohttp.ClientSession(service.base, headers={"X-API-Key": key}) as client:
            draft, sent = await created(client), await created(client, issueDateTime=now())
            assert (await submitted(client, sent))[0] == 200
            await service.kill()
            await service.start()
            assert (await record(client, draft))["status"] == "Draft"
            await until(lambda: record(client, sent), lambda found: found["status"] == "Valid")
            (document,) = await documents(client, sent)
            async with client.get(document["validation_link"]) as page:
                assert page.status == 200
    finally:
        assert await service.stop() == 0
    assert json.loads((tmp_path / "data" / "demo-company.json").read_text())["id"] == 1


async def _printed(service: Service) -> Any:
    return service.output()

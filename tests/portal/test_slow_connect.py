"""A slow connection to the portal: the intent is committed only after the TLS handshake."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from service.submission.sending.send import STALE_SECONDS
from tests.api_invoices import create_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_status
from tests.api_requests import submit
from tests.conftest import Company, Sandbox, StartService, until
from tests.harness.companies import AUTOMATIC
from tests.harness.processes import Service
from tests.portal.slow_tls import SlowPath, make_authority, slow_path

CONNECTING = STALE_SECONDS + 1  # seconds
PATIENT = {
    "PORTAL_CONNECT_TIMEOUT_SECONDS": "20",
    "PORTAL_TIMEOUT_SECONDS": "30",
    "PORTAL_LEASE_SECONDS": "60",
    "SUBMIT_WAIT_SECONDS": "60",
}
SENDS = "select state, sends, first_sent_at from submissions where state <> 'Merged'"
REQUEST_SECONDS = 4  # less than the idle timeout of a transaction
IDLE_SECONDS = """
select max(extract(epoch from clock_timestamp() - state_change))
  from pg_stat_activity
 where datname = current_database() and state = 'idle in transaction'
"""


@pytest.fixture
async def path(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[SlowPath]:
    port = sandbox.client.port
    assert port
    async with slow_path(port, make_authority(tmp_path), CONNECTING) as path:
        yield path


@pytest.fixture
async def client(
    path: SlowPath, environment: dict[str, str], company: Company, tmp_path: Path
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a process that submits over the slow path and logs in directly."""
    trust = {"SSL_CERT_FILE": str(tmp_path / "tls.pem"), "PORTAL_API_BASE": path.base}
    process = Service({**environment, **PATIENT, **trust}, tmp_path / "service.log")
    process.has_own_interpreter = True  # aiohttp reads SSL_CERT_FILE at its import
    async with (
        process,
        process.client(company.key) as session,
    ):
        yield session


async def test_a_slow_tls_connection_sends_a_document_once(
    client: aiohttp.ClientSession, path: SlowPath, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(client)
    assert await submit(client, invoice_id) == (
        200,
        {"success": True, "message": "The invoice has been submitted to the portal."},
    )
    (row,) = await owner.fetch(SENDS)
    assert path.connections >= 1 and row["sends"] == 1
    await until(
        lambda: get_invoice(client, invoice_id),
        lambda found: found["status"] == "Valid",
        seconds=60,
    )
    assert len(await sandbox.ledger()) == 1


async def test_a_slow_tls_connection_sends_merged_submissions_once(
    client: aiohttp.ClientSession, path: SlowPath, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await owner.execute(AUTOMATIC)
    ids = [await create_invoice(client, isReady=True) for _ in range(3)]
    for invoice_id in ids:
        await until(
            lambda invoice_id=invoice_id: get_invoice(client, invoice_id),
            lambda found: found["status"] == "Valid",
            seconds=60,
        )
    assert {row["sends"] for row in await owner.fetch(SENDS)} == {1}
    assert len(await sandbox.ledger()) == 3


async def test_a_claim_lost_while_connecting_sends_nothing(
    client: aiohttp.ClientSession, path: SlowPath, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    path.seconds = 0
    path.is_open.clear()
    invoice_id = await create_invoice(client)
    answer = asyncio.create_task(submit(client, invoice_id))
    await until(lambda: asyncio.sleep(0, path.connections))
    (before,) = await owner.fetch(
        "update submissions set fence = fence + 1, lease_until = 'infinity' returning state, sends"
    )
    assert tuple(before) == ("Queued", 0)
    path.is_open.set()
    assert (await answer)[0] == 400
    (row,) = await owner.fetch(SENDS)
    assert row["sends"] == 0 and not await sandbox.ledger()
    # End the lease of the new claim.
    await owner.execute("update submissions set lease_until = clock_timestamp()")
    await until(
        lambda: get_invoice(client, invoice_id),
        lambda found: found["status"] == "Valid",
        seconds=60,
    )
    (row,) = await owner.fetch(SENDS)
    assert row["sends"] == 1 and len(await sandbox.ledger()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
async def test_a_request_that_times_out_before_sending_was_not_sent(
    environment: dict[str, str],
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    tmp_path: Path,
) -> None:
    """The process is paused before it commits the intent, until the request has timed out."""
    bounds = {"PORTAL_TIMEOUT_SECONDS": str(REQUEST_SECONDS), "PORTAL_LEASE_SECONDS": "600"}
    service = Service({**environment, **PATIENT, **bounds}, tmp_path / "service.log")
    await service.start(stops_at="before_intent_commit")
    try:
        async with service.client(company.key) as client:
            invoice_id = await create_invoice(client)
            answer = asyncio.create_task(submit(client, invoice_id))
            await service.paused()
            await until(
                lambda: owner.fetchval(IDLE_SECONDS),
                lambda seconds: (seconds or 0) > REQUEST_SECONDS,
            )
            service.send_signal(signal.SIGCONT)
            status, body = await answer
            assert status == 400 and body["errors"][0]["code"] == "PortalUnreachable"
            (row,) = await owner.fetch(SENDS)
            assert row["state"] == "NotReceived" and not await sandbox.ledger()
            await wait_for_status(client, invoice_id, "Draft")
    finally:
        await service.kill()


async def test_a_failed_connection_leaves_no_intent(
    start: StartService, owner: asyncpg.Connection
) -> None:
    api = await start(PORTAL_API_BASE="http://127.0.0.1:9")
    invoice_id = await create_invoice(api)
    status, body = await submit(api, invoice_id)
    assert status == 400 and body["errors"][0]["code"] == "PortalUnreachable"
    (row,) = await owner.fetch(SENDS)
    assert tuple(row) == ("NotReceived", 0, None)
    assert (await get_documents(api, invoice_id))[0]["status"] == "NotSent"
    await wait_for_status(api, invoice_id, "Draft")

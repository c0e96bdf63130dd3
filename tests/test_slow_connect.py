"""The portal takes seconds to connect to: the intent is committed once there is a connection, and the bytes follow at once."""

import asyncio
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
from conftest import until
from kit import created, documents, reaches, record, submitted
from processes import Service
from slow_tls import SlowPath, make_authority, slow_path

from service.submission.send import STALE_SECONDS

CONNECTING = STALE_SECONDS + 1  # seconds
PATIENT = {
    "PORTAL_CONNECT_TIMEOUT_SECONDS": "20",
    "PORTAL_TIMEOUT_SECONDS": "30",
    "PORTAL_LEASE_SECONDS": "60",
    "SUBMIT_WAIT_SECONDS": "60",
}
AUTOMATIC = """update companies set setting = setting || '{"AUTO_SUBMIT_INVOICE": true}'"""
SENDS = "select state, sends, first_sent_at from submissions where state <> 'Merged'"
REQUEST_SECONDS = 4  # less than PostgreSQL lets a transaction of the service be idle
IDLE_SECONDS = """
select max(extract(epoch from clock_timestamp() - state_change))
  from pg_stat_activity
 where datname = current_database() and state = 'idle in transaction'
"""


@pytest.fixture
async def path(sandbox, tmp_path) -> SlowPath:
    async with slow_path(sandbox.client.port, make_authority(tmp_path), CONNECTING) as path:
        yield path


@pytest.fixture
async def client(path, environment, company, tmp_path: Path) -> aiohttp.ClientSession:
    """A client of a process that reaches the portal's API over the slow path only, and logs in elsewhere."""
    trust = {"SSL_CERT_FILE": str(tmp_path / "tls.pem"), "PORTAL_API_BASE": path.base}
    service = Service({**environment, **PATIENT, **trust}, tmp_path / "service.log")
    await service.start()
    async with aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as session:
        yield session
    await service.stop()


async def test_slow_tls_connection_sends_the_document_once(client, path, owner, sandbox):
    id = await created(client)
    assert await submitted(client, id) == (
        200,
        {"success": True, "message": "The invoice has been submitted to the portal."},
    )
    assert path.connections >= 1 and (await owner.fetchrow(SENDS))["sends"] == 1
    await until(lambda: record(client, id), lambda found: found["status"] == "Valid", seconds=60)
    assert len(await sandbox.ledger()) == 1


async def test_slow_tls_connection_sends_merged_submissions_once(client, path, owner, sandbox):
    await owner.execute(AUTOMATIC)
    ids = [await created(client, isReady=True) for _ in range(3)]
    for id in ids:
        await until(
            lambda id=id: record(client, id), lambda found: found["status"] == "Valid", seconds=60
        )
    assert {row["sends"] for row in await owner.fetch(SENDS)} == {1}
    assert len(await sandbox.ledger()) == 3


async def test_claim_lost_while_connecting_sends_nothing(client, path, owner, sandbox):
    path.seconds = 0
    path.is_open.clear()
    id = await created(client)
    answer = asyncio.create_task(submitted(client, id))
    await until(lambda: asyncio.sleep(0, path.connections))
    before = await owner.fetchrow(
        "update submissions set fence = fence + 1, lease_until = 'infinity' returning state, sends"
    )
    assert tuple(before) == ("Queued", 0)
    path.is_open.set()
    assert (await answer)[0] == 400
    assert (await owner.fetchrow(SENDS))["sends"] == 0 and not await sandbox.ledger()
    # Its new owner gives it up
    await owner.execute("update submissions set lease_until = clock_timestamp()")
    await until(lambda: record(client, id), lambda found: found["status"] == "Valid", seconds=60)
    assert (await owner.fetchrow(SENDS))["sends"] == 1 and len(await sandbox.ledger()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
async def test_request_that_ends_before_it_is_sent_was_not_sent(
    environment, company, owner, sandbox, tmp_path
):
    """The process is held up between connecting and the commit of the intent, until the request's time is over."""
    bounds = {"PORTAL_TIMEOUT_SECONDS": str(REQUEST_SECONDS), "PORTAL_LEASE_SECONDS": "600"}
    service = Service({**environment, **PATIENT, **bounds}, tmp_path / "service.log")
    await service.start(stops_at="before_intent_commit")
    try:
        async with aiohttp.ClientSession(
            service.base, headers={"X-API-Key": company.key}
        ) as client:
            id = await created(client)
            answer = asyncio.create_task(submitted(client, id))
            await service.paused()
            await until(
                lambda: owner.fetchval(IDLE_SECONDS), lambda seconds: seconds > REQUEST_SECONDS
            )
            service.process.send_signal(signal.SIGCONT)
            status, body = await answer
            assert status == 400 and body["errors"][0]["code"] == "PortalUnreachable"
            assert (await owner.fetchrow(SENDS))[
                "state"
            ] == "NotReceived" and not await sandbox.ledger()
            await reaches(client, id, "Draft")
    finally:
        await service.kill()


async def test_failed_connection_leaves_no_intent(start, company, owner, sandbox):
    api = await start(company, PORTAL_API_BASE="http://127.0.0.1:9")
    id = await created(api)
    status, body = await submitted(api, id)
    assert status == 400 and body["errors"][0]["code"] == "PortalUnreachable"
    assert tuple(await owner.fetchrow(SENDS)) == ("NotReceived", 0, None)
    assert (await documents(api, id))[0]["status"] == "Rejected"
    await reaches(api, id, "Draft")

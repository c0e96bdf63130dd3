"""Kills at each failpoint of submissions, batches and cancellations: no loss and no duplicates."""

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice, wait_until_status
from tests.api_requests import cancel_latest, submit
from tests.conftest import Sandbox, some_long, until
from tests.harness.companies import AUTOMATIC
from tests.harness.failpoint_names import NAMES
from tests.harness.processes import Service

OF_A_CANCELLATION = {"before_cancel_sent", "after_cancel_answer"}
OF_MANY = {"after_merge_commit"}
#: Failpoints of one submission, those next to its request first.
NEXT_TO_THE_REQUEST = [
    "before_intent_commit",
    "after_intent_commit",
    "bytes_written",
    "answer_read",
]
OF_ONE = [
    *NEXT_TO_THE_REQUEST,
    *sorted(NAMES.keys() - OF_A_CANCELLATION - OF_MANY - set(NEXT_TO_THE_REQUEST)),
]


@pytest.fixture
async def service(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[Service]:
    process = Service({**environment, "PORTAL_LEASE_SECONDS": "3"}, tmp_path / "service.log")
    yield process
    await process.stop()


async def wait_until_valid(
    client: aiohttp.ClientSession, invoice_id: int, sandbox: Sandbox
) -> None:
    """Wait until the invoice is Valid, after another submit if it became a draft."""
    found = await wait_until_status(client, invoice_id, "Valid", "Draft")
    if found["status"] == "Draft":
        assert (await submit(client, invoice_id))[0] == 200
        await wait_until_status(client, invoice_id, "Valid")
    (entry,) = await sandbox.ledger()
    assert (await get_documents(client, invoice_id))[0]["uuid"] == entry["uuid"]


async def restart_dead(service: Service, request: Awaitable[object]) -> None:
    """Send a request during which the service dies, and start the service again."""
    with pytest.raises(aiohttp.ClientError):
        await request
    await service.died()
    await service.start()


@pytest.mark.parametrize("name", some_long(OF_ONE, len(NEXT_TO_THE_REQUEST)))
async def test_kill_while_submitting_sends_one_document(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox, name: str
) -> None:
    await service.start(dies_at=name)
    invoice_id = await create_invoice(client)
    await restart_dead(service, submit(client, invoice_id))
    await wait_until_valid(client, invoice_id, sandbox)


@pytest.mark.parametrize("name", sorted(OF_MANY))
async def test_kill_while_merging_a_batch_sends_each_document_once(
    service: Service,
    client: aiohttp.ClientSession,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
    name: str,
) -> None:
    await service.start(dies_at=name)
    await owner.execute(AUTOMATIC)
    ids = [await create_invoice(client, isReady=True) for _ in range(2)]
    await service.died()
    await service.start()
    for invoice_id in ids:
        await wait_until_status(client, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 2


@pytest.mark.parametrize("name", sorted(OF_A_CANCELLATION))
async def test_kill_while_cancelling_completes_the_cancellation(
    service: Service, client: aiohttp.ClientSession, sandbox: Sandbox, name: str
) -> None:
    await service.start(dies_at=name)
    invoice_id = await create_valid_invoice(client)
    await restart_dead(service, cancel_latest(client, invoice_id))
    (entry,) = await sandbox.ledger()
    assert entry["status"] == ("Valid" if name == "before_cancel_sent" else "Cancelled")
    # Cancelled by the interrupted request or by this one; 400 while the outcome is unknown.
    await until(lambda: cancel_latest(client, invoice_id), lambda answer: answer[0] in (200, 403))
    assert (await get_invoice(client, invoice_id))["status"] == "Cancelled"
    assert [entry["status"] for entry in await sandbox.ledger()] == ["Cancelled"]

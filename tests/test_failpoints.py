"""Killed at each named moment of a submission, of a call of many, and of a cancellation: one document, and nothing is lost."""

import aiohttp
import pytest
from conftest import until
from kit import cancelled, created, documents, record, submitted
from processes import Service

from service.failpoints import NAMES

OF_A_CANCELLATION = {"before_cancel_sent", "after_cancel_answer"}
OF_MANY = {"after_merge_commit"}
AUTOMATIC = """update companies set setting = setting || '{"AUTO_SUBMIT_INVOICE": true}'"""


@pytest.fixture
async def service(environment, tmp_path):
    process = Service({**environment, "PORTAL_LEASE_SECONDS": "3"}, tmp_path / "service.log")
    yield process
    await process.stop()


@pytest.fixture
async def client(service, company):
    async with aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as session:
        yield session


async def once_valid(client, id, sandbox):
    """The invoice comes to an end by itself; where that is a Draft, it can be submitted."""
    found = await until(
        lambda: record(client, id), lambda found: found["status"] in ("Valid", "Draft")
    )
    if found["status"] == "Draft":
        assert (await submitted(client, id))[0] == 200
        await until(lambda: record(client, id), lambda found: found["status"] == "Valid")
    (entry,) = await sandbox.ledger()
    assert (await documents(client, id))[0]["uuid"] == entry["uuid"]


@pytest.mark.parametrize("name", sorted(NAMES.keys() - OF_A_CANCELLATION - OF_MANY))
async def test_killed_while_submitting(service, client, sandbox, name):
    await service.start(dies_at=name)
    id = await created(client)
    with pytest.raises(aiohttp.ClientError):
        await submitted(client, id)
    await service.died()
    await service.start()
    await once_valid(client, id, sandbox)


@pytest.mark.parametrize("name", sorted(OF_MANY))
async def test_killed_while_a_call_of_many_is_made(service, client, sandbox, owner, name):
    await service.start(dies_at=name)
    await owner.execute(AUTOMATIC)
    ids = [await created(client, isReady=True) for _ in range(2)]
    await service.died()
    await service.start()
    for id in ids:
        await until(lambda id=id: record(client, id), lambda found: found["status"] == "Valid")
    assert len(await sandbox.ledger()) == 2


@pytest.mark.parametrize("name", sorted(OF_A_CANCELLATION))
async def test_killed_while_cancelling(service, client, sandbox, name):
    await service.start(dies_at=name)
    id = await created(client)
    assert (await submitted(client, id))[0] == 200
    await until(lambda: record(client, id), lambda found: found["status"] == "Valid")
    with pytest.raises(aiohttp.ClientError):
        await client.post(f"/api/invoices/{id}/cancel-latest-invoice-submitted")
    await service.died()
    await service.start()
    (entry,) = await sandbox.ledger()
    assert entry["status"] == ("Valid" if name == "before_cancel_sent" else "Cancelled")
    # By a repetition, or by the request that the kill interrupted; 400 while nobody knows.
    await until(lambda: cancelled(client, id), lambda answer: answer[0] in (200, 403))
    assert (await record(client, id))["status"] == "Cancelled"
    assert [entry["status"] for entry in await sandbox.ledger()] == ["Cancelled"]

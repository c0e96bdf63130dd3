"""Which document of the portal is adopted: only the one that the submission itself sent."""

import secrets
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from conftest import Sandbox, Templates, administer, make_company, renamed, until, variables
from kit import cancelled, created, documents, now, reaches, record, submitted, valid_invoice

from service.app import create_app
from service.config import read_config

SETTLED = {"NotReceived", "Accepted", "Finished", "Refused", "NeedsPerson"}


@pytest.fixture
async def elsewhere(
    cluster: str, templates: Templates, sandbox: Sandbox, aiohttp_client: Any
) -> AsyncIterator[Any]:
    """A client of another installation for the same taxpayer."""
    name = f"test_{secrets.token_hex(6)}"
    await administer(
        cluster, f"create database {name} template {templates.empty} strategy file_copy"
    )
    environment = variables(renamed(cluster, name), sandbox.base)
    app = create_app(read_config(environment))
    client = await aiohttp_client(app, headers={"X-API-Key": (await make_company(environment)).key})
    yield client
    await client.close()
    await administer(cluster, f"drop database {name} with (force)")


async def outcome(owner: asyncpg.Connection) -> str:
    """The state in which the latest submission settles."""
    return await until(
        lambda: owner.fetchval("select state from submissions order by id desc limit 1"),
        SETTLED.__contains__,
    )


async def test_a_document_of_the_same_number_and_another_issue_time_is_not_adopted(
    api: Any, elsewhere: Any, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await valid_invoice(elsewhere, code=77, issueDateTime=now(minutes=30))
    await sandbox.fault("submit", "drop")
    invoice_id = await created(api, code=77)
    assert (await submitted(api, invoice_id))[0] == 400
    assert await outcome(owner) == "NotReceived"
    assert (await documents(api, invoice_id))[0]["uuid"] is None


async def test_a_document_of_another_submission_is_not_adopted(
    start: Any, company: Any, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """An invoice takes over the code and the issue time of one that was cancelled and deleted."""
    api = await start(company, PORTAL_LEASE_SECONDS="0.5")
    facts = {"code": 77, "issueDateTime": now(minutes=30)}
    former = await valid_invoice(api, **facts)
    assert (await cancelled(api, former))[0] == 200
    async with api.delete(f"/api/invoices/{former}") as response:
        assert response.status == 200, await response.text()
    long_ago = "now() - interval '3 hours'"  # the portal no longer takes the two for duplicates
    await owner.execute(
        f"update submitted_documents set validated_at = {long_ago}, submitted_at = {long_ago}, created_at = {long_ago}"
    )
    await sandbox.fault("submit", "drop")
    invoice_id = await created(api, **facts)
    assert (await submitted(api, invoice_id))[0] == 400
    assert await outcome(owner) == "NotReceived"
    await reaches(api, invoice_id, "Draft")
    assert (await documents(api, invoice_id))[0]["uuid"] is None
    assert (await record(api, invoice_id))["status"] == "Draft"

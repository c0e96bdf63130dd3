"""A lost submission adopts only the document that it sent itself."""

from typing import Any

import asyncpg

from tests.api_invoices import create_lost_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_status
from tests.api_requests import cancel_latest, expect
from tests.conftest import Client, Sandbox, StartService, until
from tests.harness.bodies import now

SETTLED = {"NotReceived", "Accepted", "Finished", "Refused", "NeedsPerson"}


#: Makes all documents older than the time in which the portal detects duplicates.
AGE = """
update submitted_documents
   set validated_at = now() - interval '3 hours',
       submitted_at = now() - interval '3 hours',
       created_at = now() - interval '3 hours'
"""


async def wait_for_outcome(owner: asyncpg.Connection) -> str:
    """Return the state in which the latest submission settles."""
    query = "select state from submissions order by id desc limit 1"
    state: Any = await until(lambda: owner.fetchval(query), SETTLED.__contains__)
    return state


async def test_a_document_with_another_issue_time_is_not_adopted(
    api: Client, other_installation: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await create_valid_invoice(other_installation, code=77, issueDateTime=now(minutes=30))
    invoice_id = await create_lost_invoice(api, sandbox, "drop", code=77)
    assert await wait_for_outcome(owner) == "NotReceived"
    assert (await get_documents(api, invoice_id))[0]["uuid"] is None


async def test_a_document_of_another_submission_is_not_adopted(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """A new invoice has the code and the issue time of a cancelled and deleted one."""
    api = await start(PORTAL_LEASE_SECONDS="0.5")
    facts = {"code": 77, "issueDateTime": now(minutes=30)}
    former = await create_valid_invoice(api, **facts)
    assert (await cancel_latest(api, former))[0] == 200
    await expect(api, 200, "DELETE", f"/api/invoices/{former}")
    await owner.execute(AGE)
    invoice_id = await create_lost_invoice(api, sandbox, "drop", **facts)
    assert await wait_for_outcome(owner) == "NotReceived"
    await wait_for_status(api, invoice_id, "Draft")
    assert (await get_documents(api, invoice_id))[0]["uuid"] is None
    assert (await get_invoice(api, invoice_id))["status"] == "Draft"

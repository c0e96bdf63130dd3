"""Submitting invoices: responses, documents in the database and documents at the portal."""

import asyncio
import hashlib
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from service.portal.responses import UNREADABLE_REASONS
from service.submission.machine import state_machine
from tests.api_invoices import (
    create_invoice,
    create_lost_invoice,
    create_submitted_invoice,
    create_valid_invoice,
)
from tests.api_reads import (
    get_documents,
    get_invoice,
    get_statuses,
    wait_for_status,
    wait_until_status,
)
from tests.api_requests import create_record, expect, submit
from tests.conftest import Client, Sandbox, StartService, make_company, until
from tests.harness.bodies import STRANGER, buyer, invoice, line, now
from tests.harness.companies import AUTOMATIC

FAILED = "Failed to submit, please try again"
DONE = {"success": True, "message": "The invoice has been submitted to the portal."}
AGAIN = {"success": True, "message": "The invoice has already been submitted to the portal."}
SELLER = buyer(
    type="FOREIGN_COMPANY",
    name="Foshan Timber Export Co. Ltd.",
    registration=None,
    address={"line1": "88 Huanshi Road", "city": "Foshan", "state": "17", "country": "CHN"},
)


async def test_a_submitted_invoice_becomes_valid_with_its_link(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    assert await submit(api, invoice_id) == (200, DONE)
    found = await wait_for_status(api, invoice_id, "Valid")
    assert found["is_submitted_to_portal"] is True
    (document,) = await get_documents(api, invoice_id)
    assert document["status"] == "Valid" and document["errors"] == []
    async with sandbox.client.get(document["validation_link"].removeprefix(sandbox.base)) as page:
        assert page.status == 200


async def test_a_self_billed_invoice_becomes_valid(api: Client) -> None:
    seller = {name: member for name, member in SELLER.items() if member is not None}
    await create_valid_invoice(api, type="SELF_BILLED_INVOICE", buyer=None, supplier=seller)


async def test_the_sent_bytes_are_those_of_the_stored_submission(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    content: Any = await owner.fetchval("select content from submitted_contents")
    (listed,) = await sandbox.ledger()
    (document,) = await get_documents(api, invoice_id)
    assert hashlib.sha256(content).hexdigest() == document["document_hash"] == listed["sha256"]


async def test_a_repeated_submit_succeeds_and_sends_nothing(api: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_valid_invoice(api)
    assert await submit(api, invoice_id) == (200, AGAIN)
    assert len(await sandbox.ledger()) == 1


@pytest.mark.parametrize("shown", [{}, {"validationResults": None}, {"validationResults": []}])
@pytest.mark.parametrize("was_sent_before", [False, True])
async def test_an_invalid_document_without_readable_reasons(
    start: StartService,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    was_sent_before: bool,
    shown: dict[str, object],
) -> None:
    """It becomes Invalid, unless it was sent before: then it may be a duplicate of itself."""
    api = await start(PORTAL_UNKNOWN_SECONDS="0.05")
    await sandbox.settings(stuck=True)
    invoice_id = await create_submitted_invoice(api)
    await owner.execute(
        "update submissions set possibly_received = $1, fence = fence + 1, "
        "not_before = clock_timestamp()",  # so that a poll in progress does not write it back
        was_sent_before,
    )
    if not shown:
        await sandbox.fault("details", "error_before", status=500, times=10**5)
    number = str(await owner.fetchval("select number from submitted_documents"))
    await sandbox.show_oddly(number, status="Invalid", **shown)
    if was_sent_before:
        reviewed = "select last_error ->> 'code' from submissions where state = 'NeedsPerson'"
        assert await until(lambda: owner.fetchval(reviewed)) == "NotProven"
        assert not await owner.fetchval("select count(*) from submissions where state = 'Accepted'")
        assert (await get_invoice(api, invoice_id))["status"] == "Submitted"
        return
    await wait_for_status(api, invoice_id, "Invalid")
    (document,) = await get_documents(api, invoice_id)
    assert [each["message"] for each in document["errors"]] == [UNREADABLE_REASONS["message"]]


async def test_an_invalid_invoice_can_be_corrected_and_resubmitted(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api, buyer=STRANGER)
    await submit(api, invoice_id)
    await wait_for_status(api, invoice_id, "Invalid")
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json={"buyer": buyer()})
    assert (await submit(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")
    assert await get_statuses(api, invoice_id) == ["Valid", "Invalid"]


@pytest.mark.parametrize(
    "changes, path",
    [
        ({"issueDateTime": now(hours=73)}, "/issueDateTime"),
        ({"issueDateTime": now(hours=-1)}, "/issueDateTime"),
        ({"type": "PENDING_FINALIZE_INVOICE", "buyer": None}, "/type"),
        ({"buyer": {"type": "LOCAL_COMPANY", "name": "Somebody"}}, "/buyer/tin"),
        ({"lineItems": [line(taxDetails=[])]}, "/lineItems/0/taxDetails"),
    ],
)
async def test_an_incomplete_invoice_is_refused_before_sending(
    api: Client, sandbox: Sandbox, changes: dict[str, Any], path: str
) -> None:
    invoice_id = await create_invoice(api, **changes)
    status, body = await submit(api, invoice_id)
    assert status == 400 and body["message"] == FAILED
    assert path in [error["path"] for error in body["errors"]]
    assert await get_documents(api, invoice_id) == []
    assert not await sandbox.ledger()


async def test_an_incomplete_company_is_refused_with_the_missing_paths(
    environment: dict[str, str], start: StartService
) -> None:
    bare = await make_company(environment, msic_code=None, phone=None)
    api = await start(bare)
    status, body = await submit(api, await create_invoice(api))
    assert status == 400
    assert {"/company/msic_code", "/company/phone"} <= {error["path"] for error in body["errors"]}


async def test_each_attempt_has_its_own_issue_time(api: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_invoice(api)
    await sandbox.fault("submit", "foreign")
    await submit(api, invoice_id)
    await submit(api, invoice_id)
    await wait_for_status(api, invoice_id, "Valid")
    issue_date = (await get_invoice(api, invoice_id))["issue_date"]
    (listed,) = await sandbox.ledger()
    shift = abs(datetime.fromisoformat(listed["issuedAt"]) - datetime.fromisoformat(issue_date))
    assert timedelta(0) < shift < timedelta(minutes=1)


async def test_concurrent_submits_to_two_services_send_one_document(
    api: Client, start: StartService, sandbox: Sandbox
) -> None:
    other = await start()
    invoice_id = await create_invoice(api)
    answers = await asyncio.gather(*[submit(each, invoice_id) for each in [api, other] * 25])
    assert {status for status, _ in answers} == {200}
    await wait_for_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_submit_immediately_returns_the_status(api: Client) -> None:
    made = await create_record(api, "/api/invoices", **invoice(submitImmediately=True))
    assert made["status"] == "Submitted"
    await wait_for_status(api, made["id"], "Valid")


@pytest.mark.parametrize("kind", ["throttle", "drop", "error_before"])
async def test_submit_immediately_is_retried_after_a_transient_error(
    api: Client, sandbox: Sandbox, kind: str
) -> None:
    await sandbox.fault("submit", kind, **({"retry_after": 1} if kind == "throttle" else {}))
    made = await create_record(api, "/api/invoices", **invoice(submitImmediately=True))
    assert made["status"] == "Submitting"
    await wait_until_status(api, made["id"], "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_ready_invoices_are_submitted_automatically(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await owner.execute(AUTOMATIC)
    waiting = await create_invoice(api)
    await expect(api, 200, "PUT", f"/api/invoices/{waiting}", json={"isReady": True})
    ready = await create_invoice(api, isReady=True)
    for invoice_id in (waiting, ready):
        await wait_until_status(api, invoice_id, "Valid")
    assert (await get_invoice(api, await create_invoice(api)))["status"] == "Draft"
    assert len(await sandbox.ledger()) == 2


async def test_a_submit_continues_after_the_client_disconnects(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "slow", seconds=0.5)
    invoice_id = await create_invoice(api)
    request = asyncio.create_task(submit(api, invoice_id))
    await until(sandbox.ledger)
    request.cancel()
    await wait_for_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_a_concurrent_update_is_sent_or_refused(
    api: Client, owner: asyncpg.Connection
) -> None:
    for _ in range(10):
        invoice_id = await create_invoice(api)
        change = api.put(f"/api/invoices/{invoice_id}", json={"buyer": buyer(name="Somebody Else")})
        (status, _), response = await asyncio.gather(submit(api, invoice_id), change)
        assert (status, response.status) in ((200, 200), (200, 403))
        content: Any = await owner.fetchval(
            "select content from submitted_contents order by submitted_document_id desc"
        )
        assert (b"Somebody Else" in content) == (response.status == 200)


async def test_a_concurrent_deletion_and_submit_are_exclusive(
    api: Client, sandbox: Sandbox
) -> None:
    deleted = 0
    for _ in range(10):
        invoice_id = await create_invoice(api)
        (status, _), response = await asyncio.gather(
            submit(api, invoice_id), api.delete(f"/api/invoices/{invoice_id}")
        )
        assert (status, response.status) in ((404, 200), (200, 403))
        deleted += status == 404
    assert len(await sandbox.ledger()) == 10 - deleted


async def test_a_submission_that_crashes_workers_needs_manual_review(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """The submission is claimed repeatedly without a result, as by processes that crash."""
    invoice_id = await create_lost_invoice(api, sandbox)
    uncertain = "state = 'Uncertain', lease_until = null, not_before = now()"
    await owner.execute(f"update submissions set claims = {state_machine.MOST_CLAIMS}, {uncertain}")
    await until(lambda: owner.fetchval("select state = 'NeedsPerson' from submissions"))
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"
    await create_submitted_invoice(api)

"""An unavailable or slow portal and lost responses: locks, reconciliation and no duplicates."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.api_invoices import create_invoice, create_lost_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_status, wait_until_status
from tests.api_requests import cancel_latest, expect, submit
from tests.conftest import Client, Sandbox, StartService, until
from tests.harness.bodies import buyer
from tests.submission.test_document_identity import QUICK

FAILED = "Failed to submit, please try again"

#: The portal accepts the document, but the response is lost or damaged.
TAKEN = [
    ("accept_then_drop", {}),
    ("error_after", {"status": 500}),
    ("error_after", {"status": 503}),
    ("slow", {"seconds": 7}),
    ("drip", {"seconds": 7}),
    ("truncate", {}),
    ("html", {"processed": True}),
    ("garbage", {}),
    ("neither", {}),
]
#: The portal does not accept the document, but no response says so.
NOT_TAKEN = [
    ("drop", {}),
    ("error_before", {"status": 503}),
    ("html", {}),
    ("redirect", {}),
    ("garbage", {"processed": False}),
    ("neither", {"processed": False}),
]
#: The portal certainly does not accept the document.
UNSENT = [
    ("submit", "throttle", {"retry_after": 1}),
    ("login", "error_before", {}),
    ("login", "throttle", {"retry_after": 1}),
    ("login", "drop", {}),
]


@pytest.mark.parametrize("kind, members", TAKEN)
async def test_lost_response_is_reconciled_without_a_duplicate(
    api: Client, sandbox: Sandbox, kind: Any, members: Any
) -> None:
    await sandbox.fault("submit", kind, **members)
    invoice_id = await create_invoice(api)
    status, body = await submit(api, invoice_id)
    assert (
        status == 400
        and body["message"] == FAILED
        and body["errors"][0]["code"] == "OutcomeUnknown"
    )
    await wait_until_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


@pytest.mark.parametrize("kind, members", NOT_TAKEN)
async def test_document_that_never_arrived_is_released_after_two_confirmations(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox, kind: Any, members: Any
) -> None:
    await sandbox.fault("submit", kind, **members)
    invoice_id = await create_invoice(api)
    assert (await submit(api, invoice_id))[0] == 400
    await wait_until_status(api, invoice_id, "Draft")
    assert await owner.fetchval("select absence_confirmations from submissions") == 2
    assert (await get_documents(api, invoice_id))[0]["errors"][0]["code"] == "NotReceived"
    assert (await submit(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


@pytest.mark.parametrize("operation, kind, members", UNSENT)
async def test_document_that_was_not_sent_is_a_draft_immediately(
    api: Client, sandbox: Sandbox, operation: Any, kind: Any, members: Any
) -> None:
    await sandbox.fault(operation, kind, **members)
    invoice_id = await create_invoice(api)
    status, body = await submit(api, invoice_id)
    assert status == 400 and body["message"] == FAILED and body["errors"]
    assert (await get_invoice(api, invoice_id))["status"] == "Draft"
    assert not await sandbox.ledger()


async def test_unreachable_portal_fails_immediately_and_recovers(
    api: Client, start: StartService
) -> None:
    down = await start(
        PORTAL_API_BASE="http://127.0.0.1:9", PORTAL_IDENTITY_BASE="http://127.0.0.1:9"
    )
    invoice_id = await create_invoice(down)
    status, body = await submit(down, invoice_id)
    assert status == 400 and body["errors"][0]["code"] == "PortalUnreachable"
    assert (await get_invoice(down, invoice_id))["status"] == "Draft"
    assert (await submit(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")


async def test_document_with_an_unknown_outcome_is_locked(idle: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_lost_invoice(idle, sandbox)
    found = await get_invoice(idle, invoice_id)
    assert found["status"] == "Submitting" and found["is_submitted_to_portal"] is True
    await expect(idle, 403, "PUT", f"/api/invoices/{invoice_id}", json={"isReady": True})
    await expect(idle, 403, "DELETE", f"/api/invoices/{invoice_id}")
    assert (await cancel_latest(idle, invoice_id))[0] == 409


async def test_repeated_submit_waits_for_the_unknown_outcome(api: Client, sandbox: Sandbox) -> None:
    await sandbox.settings(search_lag_seconds=1)
    invoice_id = await create_lost_invoice(api, sandbox)
    answers = await asyncio.gather(*[submit(api, invoice_id) for _ in range(5)])
    assert {status for status, _ in answers} <= {200, 400}
    await wait_until_status(api, invoice_id, "Valid", "Draft")
    assert len(await sandbox.ledger()) == 1


async def test_wait_for_an_unknown_outcome_is_bounded(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(background=False, SUBMIT_WAIT_SECONDS="0.3")
    invoice_id = await create_lost_invoice(api, sandbox)
    status, body = await submit(api, invoice_id)
    assert status == 400 and body["errors"][0]["code"] == "OutcomeUnknown"


async def test_delayed_listing_is_waited_for(start: StartService, sandbox: Sandbox) -> None:
    api = await start(PORTAL_SETTLE_SECONDS="1.5")
    await sandbox.settings(search_lag_seconds=1)
    invoice_id = await create_lost_invoice(api, sandbox)
    found = await until(
        lambda: get_invoice(api, invoice_id), lambda found: found["status"] != "Submitting"
    )
    assert found["status"] in ("Submitted", "Valid")


async def test_false_absence_is_corrected_by_payload_detection(
    start: StartService, sandbox: Sandbox
) -> None:
    """The settling time is too short for this portal, so the same bytes are sent again."""
    api = await start(PORTAL_SETTLE_SECONDS="0.1", PORTAL_CONFIRMATION_GAP_SECONDS="0.05")
    await sandbox.settings(search_lag_seconds=3600)
    await sandbox.fault("submit", "accept_then_drop")
    invoice_id = await create_invoice(api, submitImmediately=True)
    await until(sandbox.calls, lambda calls: calls["answers"]["submit"].get("422"))
    await sandbox.settings(search_lag_seconds=0)
    await wait_until_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_duplicate_document_is_replaced_by_the_first_one(
    start: StartService, sandbox: Sandbox
) -> None:
    """The portal detects no identical bytes: the second document is Invalid and names the first."""
    api = await start(**QUICK)
    await sandbox.settings(search_lag_seconds=3600, payload_detection=False)
    await sandbox.fault("submit", "accept_then_drop")
    invoice_id = await create_invoice(api, submitImmediately=True)
    await until(sandbox.ledger, lambda entries: len(entries) == 2)
    await sandbox.settings(search_lag_seconds=0)
    await wait_until_status(api, invoice_id, "Valid")
    first, second = sorted(await sandbox.ledger(), key=lambda entry: entry["status"], reverse=True)
    assert (first["status"], second["status"]) == ("Valid", "Invalid")
    assert (await get_documents(api, invoice_id))[0]["uuid"] == first["uuid"]
    await sandbox.cancel(first["uuid"], "By hand")  # from now on the first one is polled
    await wait_until_status(api, invoice_id, "Cancelled")


async def test_document_released_too_early_is_resubmitted_unchanged(
    start: StartService, sandbox: Sandbox
) -> None:
    """The client repeats the failed submit, and the portal detects the same bytes."""
    api = await start(PORTAL_SETTLE_SECONDS="0.1", PORTAL_CONFIRMATION_GAP_SECONDS="0.05")
    await sandbox.settings(search_lag_seconds=3600)
    invoice_id = await create_lost_invoice(api, sandbox)
    await wait_until_status(api, invoice_id, "Draft")
    assert len(await sandbox.ledger()) == 1
    assert (await submit(api, invoice_id))[0] == 400
    await sandbox.settings(search_lag_seconds=0)
    await until(lambda: submit(api, invoice_id), lambda answer: answer[0] == 200)
    await wait_for_status(api, invoice_id, "Valid")
    assert (
        len(await sandbox.ledger()) == 1
        and len({one["document_hash"] for one in await get_documents(api, invoice_id)}) == 1
    )


async def test_failed_connection_keeps_the_bytes_sent_before(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_SETTLE_SECONDS="0.1", PORTAL_CONFIRMATION_GAP_SECONDS="0.05")
    invoice_id = await create_lost_invoice(api, sandbox, "drop")
    await wait_until_status(api, invoice_id, "Draft")
    away = await start(
        PORTAL_API_BASE="http://127.0.0.1:9", PORTAL_IDENTITY_BASE="http://127.0.0.1:9"
    )
    assert (await submit(away, invoice_id))[0] == 400
    assert (await submit(api, invoice_id))[0] == 200
    assert len({one["document_hash"] for one in await get_documents(api, invoice_id)}) == 1


async def test_refused_resend_is_checked_against_the_listing_first(
    start: StartService, sandbox: Sandbox
) -> None:
    """The first document is listed late, and the second send is refused for another reason."""
    api = await start(PORTAL_SETTLE_SECONDS="0.3", PORTAL_CONFIRMATION_GAP_SECONDS="0.1")
    await sandbox.settings(search_lag_seconds=0.7, payload_detection=False)
    await sandbox.fault("submit", "accept_then_drop")
    await sandbox.fault("submit", "refuse", status=403, code="IncorrectSubmitter")
    invoice_id = await create_invoice(api, submitImmediately=True)
    await wait_until_status(api, invoice_id, "Valid", "Draft")
    (entry,) = await sandbox.ledger()
    (document,) = await get_documents(api, invoice_id)
    assert (await get_invoice(api, invoice_id))["status"] == "Valid" and document["uuid"] == entry[
        "uuid"
    ]


async def test_refused_resend_is_final_if_nothing_is_listed(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_SETTLE_SECONDS="0.3", PORTAL_CONFIRMATION_GAP_SECONDS="0.1")
    await sandbox.fault("submit", "drop")
    await sandbox.fault("submit", "refuse", status=403, code="IncorrectSubmitter")
    invoice_id = await create_invoice(api, submitImmediately=True)
    await wait_until_status(api, invoice_id, "Draft")
    assert (await get_documents(api, invoice_id))[0][
        "status"
    ] == "Rejected" and not await sandbox.ledger()


async def test_changed_invoice_is_sent_as_another_document(api: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_lost_invoice(api, sandbox, "drop")
    await wait_until_status(api, invoice_id, "Draft")
    changes = {"buyer": buyer(name="Somebody else")}
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json=changes)
    assert (await submit(api, invoice_id))[0] == 200
    assert len({one["document_hash"] for one in await get_documents(api, invoice_id)}) == 2


async def test_a_reported_duplicate_that_is_not_listed_needs_manual_review(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """The portal has it: a document that is changed and sent again would be a second one."""
    await sandbox.fault("submit", "duplicate", retry_after=1)
    invoice_id = await create_invoice(api)
    status, _ = await submit(api, invoice_id)
    assert status == 400
    reviewed = "select last_error ->> 'code' from submissions where state = 'NeedsPerson'"
    assert await until(lambda: owner.fetchval(reviewed)) == "ReceivedBefore"
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"


async def test_intent_is_committed_before_the_portal_receives_the_bytes(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await sandbox.fault("submit", "slow", seconds=1)
    invoice_id = await create_invoice(api)
    answer = asyncio.create_task(submit(api, invoice_id))
    await until(sandbox.ledger)
    assert await owner.fetchval("select state from submissions") != "Queued"
    assert await owner.fetchval("select sends from submissions") == 1
    assert (await answer)[0] == 200


async def test_submission_not_found_after_its_receipt_is_polled_again(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.settings(not_found_seconds=1)
    await create_valid_invoice(api)


async def test_rejection_by_the_buyer_and_foreign_cancellation_are_found(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_RECHECK_SECONDS="0.1")
    invoice_id = await create_valid_invoice(api)
    (document,) = await get_documents(api, invoice_id)
    await sandbox.reject(document["uuid"], "Never ordered")
    found = await until(
        lambda: get_documents(api, invoice_id), lambda found: found[0]["rejection_requested_at"]
    )
    assert found[0]["rejection_reason"] == "Never ordered" and found[0]["status"] == "Valid"
    await sandbox.cancel(document["uuid"], "By hand")
    await wait_until_status(api, invoice_id, "Cancelled")
    assert (await get_documents(api, invoice_id))[0]["cancel_reason"] == "By hand"

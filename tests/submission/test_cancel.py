"""Cancellations: specified rejections, codes of the authority, and lost responses of the portal."""

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from service import failpoints
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import (
    get_documents,
    get_invoice,
    wait_for_lock,
    wait_for_status,
    wait_until_status,
)
from tests.api_requests import cancel_latest, expect, request_json, submit
from tests.conftest import Client, Sandbox, StartService, until
from tests.harness.bodies import line, note

FAILED = "Cancellation failed, please try again."
UNKNOWN = (400, {"message": FAILED, "code": "outcome_unknown"})
#: Intervals so long that only the cancellation's own reads find its result during a test.
PATIENT = {"PORTAL_SETTLE_SECONDS": "600", "PORTAL_RECHECK_SECONDS": "3600"}


@pytest.fixture
async def patient(start: StartService) -> Client:
    """Return a client of a service in which only the cancellation itself finds its result."""
    return await start(**PATIENT)


async def test_a_late_submit_of_a_cancelled_invoice_sends_no_second_document(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    await cancel_latest(api, invoice_id)
    path = f"/api/invoices/{invoice_id}"
    for _ in range(2):
        status, body = await submit(api, invoice_id, resubmit=False)
        assert (status, body["code"]) == (409, "already_cancelled")
        assert "has not changed since" in body["message"]
    assert await sandbox.count_calls("submit") == 1
    assert (await get_invoice(api, invoice_id))["status"] == "Cancelled"
    assert (await submit(api, invoice_id, resubmit=True))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")
    await cancel_latest(api, invoice_id)
    assert (await submit(api, invoice_id))[0] == 409
    await expect(api, 200, "PUT", path, json={"reference": "R-1"})
    assert (await submit(api, invoice_id))[0] == 200
    assert await sandbox.count_calls("submit") == 3


async def test_a_repeated_update_of_a_cancelled_invoice_sends_no_second_document(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    path = f"/api/invoices/{invoice_id}"
    changes = {"reference": "ORDER-1", "lineItems": [line()], "submitImmediately": True}
    await expect(api, 200, "PUT", path, json=changes)
    await wait_for_status(api, invoice_id, "Valid")
    await cancel_latest(api, invoice_id)
    status, body = await request_json(api, "PUT", path, json=changes)
    outcome = (status, body["data"]["status"], body["data"]["code"])
    assert outcome == (200, "Cancelled", "already_cancelled")
    await expect(api, 200, "PUT", path, json={})
    assert (await submit(api, invoice_id))[0] == 409
    assert await sandbox.count_calls("submit") == 1
    changes["reference"] = "ORDER-2"
    assert (await request_json(api, "PUT", path, json=changes))[1]["data"]["status"] == "Submitted"
    assert await sandbox.count_calls("submit") == 2


async def test_cancelling_an_invoice_with_a_valid_note_is_rejected(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    assert await request_note(api, invoice_id) == 201
    await owner.execute(
        "update document_states set status = 'Valid' where kind = 'adjustment_note'"
    )
    expected = {
        "message": "Document is currently being referenced by another document",
        "code": "ActiveReferencingDocuments",
    }
    assert await cancel_latest(api, invoice_id) == (400, expected)
    assert (await sandbox.ledger())[0]["status"] == "Valid"


async def test_failed_cancellation_request_leaves_the_document_valid(
    api: Client, sandbox: Sandbox
) -> None:
    """Nothing was sent, so no settling time applies."""
    invoice_id = await create_valid_invoice(api)
    await sandbox.fault("state", "throttle", retry_after=1)
    assert await cancel_latest(api, invoice_id) == (
        400,
        {"message": FAILED, "code": "portal_unavailable"},
    )
    (document,) = await get_documents(api, invoice_id)
    assert (document["status"], document["cancellation_requested_at"]) == ("Valid", None)
    await until(lambda: cancel_latest(api, invoice_id), lambda answer: answer[0] == 200)


@pytest.mark.parametrize(
    "kind, members",
    [("accept_then_drop", {}), ("error_after", {"status": 500}), ("slow", {"seconds": 3})],
)
async def test_cancellation_with_a_lost_response_is_resolved_by_reading(
    api: Client, sandbox: Sandbox, kind: str, members: dict[str, Any]
) -> None:
    invoice_id = await create_valid_invoice(api)
    await sandbox.fault("state", kind, **members)
    assert (await cancel_latest(api, invoice_id))[0] == 200
    assert (await get_invoice(api, invoice_id))["status"] == "Cancelled"


async def test_a_refused_cancellation_ends_although_the_document_is_unreadable(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    await sandbox.fault("state", "refuse", status=400, code="OperationPeriodOver")
    await sandbox.fault("details", "refuse", status=403, code="Forbidden", times=10)
    status, body = await cancel_latest(api, invoice_id)
    assert (status, body["code"]) == (400, "OperationPeriodOver")
    (document,) = await get_documents(api, invoice_id)
    assert (document["status"], document["cancellation_requested_at"]) == ("Valid", None)


async def test_cancellation_without_any_response_is_resolved_in_background(
    patient: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(patient)
    await sandbox.fault("state", "error_after", status=500)
    await sandbox.fault("details", "error_before", status=503)
    assert await cancel_latest(patient, invoice_id) == UNKNOWN
    await wait_until_status(patient, invoice_id, "Cancelled")


async def test_concurrent_cancellations_send_one_request(api: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_valid_invoice(api)
    answers = await asyncio.gather(*[cancel_latest(api, invoice_id) for _ in range(50)])
    assert sorted(status for status, _ in answers) == [200] + [403] * 49
    assert await sandbox.count_calls("state") == 1


async def test_note_is_rejected_while_the_invoice_is_being_cancelled(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_valid_invoice(api)
    await sandbox.fault("state", "slow", seconds=1)
    answer = asyncio.create_task(cancel_latest(api, invoice_id))
    await until(sandbox.ledger, lambda listed: listed[0]["status"] == "Cancelled")
    assert (await request_note(api, invoice_id)) == 403
    assert (await answer)[0] == 200


async def test_note_waits_for_a_lock_on_the_invoice(api: Client, owner: asyncpg.Connection) -> None:
    invoice_id = await create_valid_invoice(api)
    async with owner.transaction():
        await owner.execute(
            "update submitted_documents "
            "set cancelling_until = clock_timestamp() + interval '1 minute'"
        )
        await owner.execute("select from documents for update")
        answer = asyncio.create_task(request_note(api, invoice_id))
        await wait_for_lock(owner)
    assert await answer == 403


async def test_note_is_limited_by_the_amount_after_the_lock(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_valid_invoice(api)
    async with owner.transaction():
        await owner.execute("select from documents for update")
        await owner.execute(
            "update document_states s set adjusted_by = -payable_amount from documents d"
            " where d.id = s.id"
        )
        answer = asyncio.create_task(request_note(api, invoice_id))
        await wait_for_lock(owner)
    assert await answer == 422


async def request_note(api: Client, invoice_id: int) -> int:
    async with api.post(f"/api/invoices/{invoice_id}/adjustment-note", json=note()) as response:
        return response.status


async def test_invalid_cancellation_body_is_rejected(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    assert (await cancel_latest(api, invoice_id, reasn="x"))[0] == 422
    assert (await cancel_latest(api, invoice_id, reason="x" * 301))[0] == 422
    assert (await cancel_latest(api, invoice_id, reason="x" * 300))[0] == 200


async def test_stale_poll_does_not_undo_a_cancellation(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """The portal reported Valid before the cancellation; the report is processed afterwards."""
    invoice_id = await create_valid_invoice(api)
    await sandbox.fault("submission", "slow", seconds=0.5)
    reads = await sandbox.count_calls("submission")
    await owner.execute("update submissions set not_before = now()")
    await owner.execute("notify submission_due")
    await until(sandbox.calls, lambda calls: calls["calls"]["submission"] > reads)
    assert (await cancel_latest(api, invoice_id))[0] == 200
    await until(lambda: owner.fetchval("select lease_until is null from submissions"))
    assert (await get_invoice(api, invoice_id))["status"] == "Cancelled"


# Requests without a clear response, which the portal may process late


async def lose_next_request(sandbox: Sandbox) -> None:
    """Make the portal lose the next cancellation request. aiohttp retries a PUT once by itself."""
    await sandbox.fault("state", "drop", times=2)


async def cancel_unclearly(api: Client, sandbox: Sandbox) -> int:
    """Cancel a Valid invoice by a request that the portal loses, and return its id."""
    invoice_id = await create_valid_invoice(api)
    await lose_next_request(sandbox)
    assert await cancel_latest(api, invoice_id) == UNKNOWN
    return invoice_id


async def get_request_time(api: Client, invoice_id: int) -> str | None:
    """Return when the pending cancellation of the latest document was requested."""
    return (await get_documents(api, invoice_id))[0]["cancellation_requested_at"]


async def test_cancellation_that_the_portal_processes_late_is_found(
    patient: Client, sandbox: Sandbox
) -> None:
    """The portal processes the request after the service has given up and has read Valid."""
    invoice_id = await create_valid_invoice(patient)
    await sandbox.fault("state", "slow_before", seconds=6)
    assert await cancel_latest(patient, invoice_id, reason="Wrong buyer") == UNKNOWN
    await wait_until_status(patient, invoice_id, "Cancelled")
    (document,) = await get_documents(patient, invoice_id)
    assert document["cancel_reason"] == "Wrong buyer" and document["cancelled_at"]
    assert document["cancellation_requested_at"] is None


async def test_unclear_cancellation_is_polled_until_the_portal_shows_it(
    patient: Client, sandbox: Sandbox
) -> None:
    invoice_id = await cancel_unclearly(patient, sandbox)
    await until(lambda: sandbox.count_calls("details"), lambda count: count >= 4)
    assert (await get_invoice(patient, invoice_id))["status"] == "Valid" and await get_request_time(
        patient, invoice_id
    )
    await sandbox.cancel((await get_documents(patient, invoice_id))[0]["uuid"], "Late")
    await wait_until_status(patient, invoice_id, "Cancelled")
    assert (await get_documents(patient, invoice_id))[0]["cancel_reason"] == "Late"


async def test_notes_are_blocked_while_a_cancellation_is_unclear(
    patient: Client, sandbox: Sandbox
) -> None:
    """No note is created, and an existing draft note is not submitted."""
    invoice_id = await create_valid_invoice(patient)
    async with patient.post(f"/api/invoices/{invoice_id}/adjustment-note", json=note()) as response:
        draft = (await response.json())["data"]["id"]
    await lose_next_request(sandbox)
    assert await cancel_latest(patient, invoice_id) == UNKNOWN
    await until(lambda: sandbox.count_calls("details"), lambda count: count >= 3)
    assert await request_note(patient, invoice_id) == 403
    status, body = await request_json(
        patient, "POST", f"/api/adjustment-notes/{draft}/submit-to-portal", json={}
    )
    assert (status, body["message"]) == (
        400,
        "Only invoice with status Valid can have adjustment note submitted to the portal",
    )
    assert len(await sandbox.ledger()) == 1


async def test_cancellation_never_processed_ends_after_the_settling_time(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_RECHECK_SECONDS="3600", PORTAL_SETTLE_SECONDS="5")
    invoice_id = await cancel_unclearly(api, sandbox)
    assert await request_note(api, invoice_id) == 403
    await until(
        lambda: get_request_time(api, invoice_id), lambda requested_at: requested_at is None
    )
    (document,) = await get_documents(api, invoice_id)
    assert (document["status"], document["cancel_reason"]) == ("Valid", None)
    assert await request_note(api, invoice_id) == 201


async def test_repeated_cancellation_resends_the_request(patient: Client, sandbox: Sandbox) -> None:
    invoice_id = await cancel_unclearly(patient, sandbox)
    assert (await cancel_latest(patient, invoice_id))[0] == 200
    assert (await get_invoice(patient, invoice_id))[
        "status"
    ] == "Cancelled" and await get_request_time(patient, invoice_id) is None


@pytest.mark.parametrize(
    "kind, members", [("refuse", {"code": "OperationPeriodOver"}), ("throttle", {"retry_after": 1})]
)
async def test_repeated_cancellation_does_not_shorten_the_settling_time(
    patient: Client, sandbox: Sandbox, kind: str, members: dict[str, Any]
) -> None:
    """The second request is refused or not sent; the portal may still process the first one."""
    invoice_id = await cancel_unclearly(patient, sandbox)
    requested_at = await get_request_time(patient, invoice_id)
    await sandbox.fault("state", kind, **members)
    assert await cancel_latest(patient, invoice_id) == UNKNOWN
    assert (
        await get_request_time(patient, invoice_id) == requested_at
        and await request_note(patient, invoice_id) == 403
    )
    await sandbox.cancel((await get_documents(patient, invoice_id))[0]["uuid"], "Late")
    await wait_until_status(patient, invoice_id, "Cancelled")


async def test_rejected_cancellation_of_a_cancelled_document_succeeds(
    patient: Client, sandbox: Sandbox
) -> None:
    """It was cancelled on the portal's website, and the service has not noticed yet."""
    invoice_id = await create_valid_invoice(patient)
    await sandbox.cancel((await get_documents(patient, invoice_id))[0]["uuid"], "By hand")
    assert (await cancel_latest(patient, invoice_id))[0] == 200
    (document,) = await get_documents(patient, invoice_id)
    assert (document["status"], document["cancel_reason"]) == ("Cancelled", "By hand")


@pytest.mark.parametrize(
    "kind, members", [("html", {"status": 403}), ("garbage", {"status": 200, "processed": False})]
)
async def test_malformed_response_leaves_a_cancellation_unclear(
    patient: Client, sandbox: Sandbox, kind: str, members: dict[str, Any]
) -> None:
    invoice_id = await create_valid_invoice(patient)
    await sandbox.fault("state", kind, **members)
    assert await cancel_latest(patient, invoice_id) == UNKNOWN
    assert await get_request_time(patient, invoice_id)


async def test_concurrent_requests_share_an_unclear_cancellation(
    patient: Client, sandbox: Sandbox
) -> None:
    """The request is not sent again for each of them."""
    invoice_id = await create_valid_invoice(patient)
    await sandbox.fault("state", "slow_before", seconds=600)
    answers = await asyncio.gather(*[cancel_latest(patient, invoice_id) for _ in range(10)])
    assert answers == [UNKNOWN] * 10
    assert await sandbox.count_calls("state") == 1


@pytest.mark.parametrize(
    "ahead, wait, answer", [("30 seconds", "0.5", UNKNOWN), ("1 hour", "10", None)]
)
async def test_wait_for_another_cancellation_is_bounded_by_submit_wait(
    api: Client,
    start: StartService,
    owner: asyncpg.Connection,
    ahead: str,
    wait: str,
    answer: tuple[int, Any] | None,
) -> None:
    """Another process has claimed the cancellation and may still send the request.

    More than a lease ahead, its time was recorded before the clock was set back.
    """
    invoice_id = await create_valid_invoice(api)
    impatient = await start(background=False, SUBMIT_WAIT_SECONDS=wait, PORTAL_LEASE_SECONDS="60")
    await owner.execute(
        """
            update submitted_documents
               set cancelling_until = clock_timestamp() + $1::text::interval,
                   cancel_sent_by = clock_timestamp() + $1::text::interval
            """,
        ahead,
    )
    found = await cancel_latest(impatient, invoice_id)
    assert found == answer if answer else found[0] == 200


async def test_process_with_an_expired_claim_sends_no_cancellation(
    api: Client, start: StartService, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoice_id = await create_valid_invoice(api)
    held_up = await start(background=False, PORTAL_LEASE_SECONDS="0.5")
    monkeypatch.setitem(failpoints.actions, "before_cancel_sent", lambda: time.sleep(1))
    assert (await cancel_latest(held_up, invoice_id))[0] == 400
    assert await sandbox.count_calls("state") == 0
    await until(
        lambda: get_request_time(api, invoice_id), lambda requested_at: requested_at is None
    )
    assert (await get_invoice(api, invoice_id))["status"] == "Valid"

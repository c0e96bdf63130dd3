"""Cancelling: the specified refusals, the authority's codes, and the truth when the portal's answer is lost."""

import asyncio
import time

import pytest
from conftest import until
from kit import (
    answered,
    cancelled,
    created,
    documents,
    note,
    reaches,
    record,
    submitted,
    valid_invoice,
)

from service import failpoints

HOURS_72 = 72 * 3600
NONE = "The invoice does not have any submitted document."
CLOSED = "The latest submitted document of the invoice has already been cancelled/invali."
LATE = (
    "The latest submitted document of the invoice has been submitted more than 72 hours ago. "
    "Submitted documents can only be cancelled within 72 hours."
)
FAILED = "Cancellation failed, please try again."
UNKNOWN = (400, {"message": FAILED, "code": "outcome_unknown"})
#: Nothing but the cancellation itself finds out within the time of a test.
PATIENT = {"PORTAL_SETTLE_SECONDS": "600", "PORTAL_RECHECK_SECONDS": "3600"}


async def test_a_valid_document_is_cancelled(api, sandbox):
    id = await valid_invoice(api)
    status, body = await cancelled(api, id, reason="Wrong buyer")
    assert status == 200 and body["success"] is True
    assert (await record(api, id))["status"] == "Cancelled"
    (document,) = await documents(api, id)
    assert (
        document["status"] == "Cancelled"
        and document["cancel_reason"] == "Wrong buyer"
        and document["cancelled_at"]
    )
    assert (await sandbox.ledger())[0]["status"] == "Cancelled"


async def test_an_invoice_that_was_never_submitted_is_refused(api):
    assert await cancelled(api, await created(api)) == (403, {"message": NONE})


async def test_a_cancelled_document_is_refused(api):
    id = await valid_invoice(api)
    await cancelled(api, id)
    assert await cancelled(api, id) == (403, {"message": CLOSED})


@pytest.mark.parametrize("seconds, status", [(HOURS_72 - 5, 200), (HOURS_72 + 1, 403)])
async def test_72_hours_are_allowed_and_not_a_second_more(api, owner, seconds, status):
    id = await valid_invoice(api)
    await owner.execute(
        "update submitted_documents set submitted_at = clock_timestamp() - $1 * interval '1 second'",
        seconds,
    )
    assert (await cancelled(api, id))[0] == status


async def test_the_message_of_a_late_cancellation(api, owner):
    id = await valid_invoice(api)
    await owner.execute(
        "update submitted_documents set submitted_at = clock_timestamp() - interval '73 hours'"
    )
    assert await cancelled(api, id) == (403, {"message": LATE})


async def test_the_portals_own_window_is_passed_on(api, sandbox):
    id = await valid_invoice(api)
    await sandbox.move_clock(HOURS_72 + 60)
    expected = {
        "message": "Document status can't be changed after limit time exceeded",
        "code": "OperationPeriodOver",
    }
    assert await cancelled(api, id) == (400, expected)
    assert (await record(api, id))["status"] == "Valid"


async def test_a_document_that_is_still_validated_is_passed_to_the_portal(api, sandbox):
    await sandbox.settings(stuck=True)
    id = await created(api)
    await submitted(api, id)
    expected = {
        "message": "Document status has already been rejected or invalid",
        "code": "IncorrectState",
    }
    assert await cancelled(api, id) == (400, expected)
    assert (await record(api, id))["status"] == "Submitted"


async def test_an_invoice_with_a_live_note_is_not_cancelled(api, owner, sandbox):
    id = await valid_invoice(api)
    async with api.post(f"/api/invoices/{id}/adjustment-note", json=note()) as response:
        assert response.status == 201, await response.text()
    await owner.execute("update adjustment_notes set status = 'Valid'")
    expected = {
        "message": "Document is currently being referenced by another document",
        "code": "ActiveReferencingDocuments",
    }
    assert await cancelled(api, id) == (400, expected)
    assert (await sandbox.ledger())[0]["status"] == "Valid"


async def test_a_cancelled_invoice_can_be_sent_again(api, sandbox):
    await sandbox.settings(duplicate_window_seconds=7200)
    id = await valid_invoice(api)
    await cancelled(api, id)
    assert (await submitted(api, id))[0] == 200
    await reaches(api, id, "Valid")
    assert [document["status"] for document in await documents(api, id)] == ["Valid", "Cancelled"]


async def test_a_portal_that_cannot_be_reached_leaves_the_document_valid(api, sandbox):
    """Nothing was sent, so nothing has to settle."""
    id = await valid_invoice(api)
    await sandbox.fault("state", "throttle", retry_after=1)
    assert await cancelled(api, id) == (400, {"message": FAILED})
    (document,) = await documents(api, id)
    assert (document["status"], document["cancellation_requested_at"]) == ("Valid", None)
    await until(lambda: cancelled(api, id), lambda answer: answer[0] == 200)


@pytest.mark.parametrize(
    "kind, members",
    [("accept_then_drop", {}), ("error_after", {"status": 500}), ("slow", {"seconds": 3})],
)
async def test_a_lost_answer_is_made_good_by_reading_the_state(api, sandbox, kind, members):
    id = await valid_invoice(api)
    await sandbox.fault("state", kind, **members)
    assert (await cancelled(api, id))[0] == 200
    assert (await record(api, id))["status"] == "Cancelled"


async def test_a_cancellation_without_any_answer_is_resolved_by_itself(start, company, sandbox):
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await sandbox.fault("state", "error_after", status=500)
    await sandbox.fault("details", "error_before", status=503)
    assert await cancelled(api, id) == UNKNOWN
    await until(lambda: record(api, id), lambda found: found["status"] == "Cancelled")


async def test_fifty_cancellations_at_once_have_one_winner(api, sandbox):
    id = await valid_invoice(api)
    answers = await asyncio.gather(*[cancelled(api, id) for _ in range(50)])
    assert sorted(status for status, _ in answers) == [200] + [403] * 49
    assert (await sandbox.calls())["calls"]["state"] == 1


async def test_no_note_is_made_while_the_invoice_is_being_cancelled(api, sandbox):
    id = await valid_invoice(api)
    await sandbox.fault("state", "slow", seconds=1)
    answer = asyncio.create_task(cancelled(api, id))
    await until(sandbox.ledger, lambda listed: listed[0]["status"] == "Cancelled")
    assert (await noted(api, id)) == 403
    assert (await answer)[0] == 200


async def test_a_note_waits_for_whoever_is_changing_the_invoice(api, owner, database):
    id = await valid_invoice(api)
    async with owner.transaction():
        await owner.execute(
            "update submitted_documents set cancelling_until = clock_timestamp() + interval '1 minute'"
        )
        await owner.execute("select from invoices for update")
        answer = asyncio.create_task(noted(api, id))
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        await until(lambda: owner.fetchval(waiting))
    assert await answer == 403


async def noted(api, id):
    async with api.post(f"/api/invoices/{id}/adjustment-note", json=note()) as response:
        return response.status


async def test_an_unknown_reason_field_and_a_long_reason_are_refused(api):
    id = await valid_invoice(api)
    assert (await cancelled(api, id, reasn="x"))[0] == 422
    assert (await cancelled(api, id, reason="x" * 301))[0] == 422
    assert (await cancelled(api, id, reason="x" * 300))[0] == 200


async def test_a_look_that_comes_late_does_not_undo_a_cancellation(api, owner, sandbox):
    """The answer to a look under way says Valid; the document has been cancelled meanwhile."""
    id = await created(api)
    await submitted(api, id)
    await reaches(api, id, "Valid")
    await sandbox.fault("submission", "slow", seconds=0.5)
    looks = (await sandbox.calls())["calls"]["submission"]
    await owner.execute("update submissions set not_before = now()")
    await owner.execute("notify submission_due")
    await until(sandbox.calls, lambda calls: calls["calls"]["submission"] > looks)
    async with api.post(f"/api/invoices/{id}/cancel-latest-invoice-submitted") as response:
        assert response.status == 200
    await until(lambda: owner.fetchval("select lease_until is null from submissions"))
    assert (await record(api, id))["status"] == "Cancelled"


# A request without a clear answer, which the portal may process late


async def lost(sandbox):
    """Has the portal lose the next request to cancel; aiohttp repeats a PUT once by itself."""
    await sandbox.fault("state", "drop", times=2)


async def under_way(api, id):
    """When the cancellation of an invoice's latest document was requested; None when none is under way."""
    return (await documents(api, id))[0]["cancellation_requested_at"]


async def looks(sandbox):
    return (await sandbox.calls())["calls"].get("details", 0)


async def test_a_cancellation_that_the_portal_processes_late_is_found(start, company, sandbox):
    """The portal takes it up after the service has given up and has read Valid."""
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await sandbox.fault("state", "slow_before", seconds=6)
    assert await cancelled(api, id, reason="Wrong buyer") == UNKNOWN
    await until(lambda: record(api, id), lambda found: found["status"] == "Cancelled")
    (document,) = await documents(api, id)
    assert document["cancel_reason"] == "Wrong buyer" and document["cancelled_at"]
    assert document["cancellation_requested_at"] is None


async def test_a_document_is_looked_at_until_the_portal_shows_it_cancelled(start, company, sandbox):
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await lost(sandbox)
    assert await cancelled(api, id) == UNKNOWN
    await until(lambda: looks(sandbox), lambda count: count >= 4)
    assert (await record(api, id))["status"] == "Valid" and await under_way(api, id)
    await sandbox.cancel((await documents(api, id))[0]["uuid"], "Late")
    await until(lambda: record(api, id), lambda found: found["status"] == "Cancelled")
    assert (await documents(api, id))[0]["cancel_reason"] == "Late"


async def test_notes_wait_while_a_cancellation_is_unclear(start, company, sandbox):
    """None is created, and none that was created before is submitted."""
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    async with api.post(f"/api/invoices/{id}/adjustment-note", json=note()) as response:
        draft = (await response.json())["data"]["id"]
    await lost(sandbox)
    assert await cancelled(api, id) == UNKNOWN
    await until(lambda: looks(sandbox), lambda count: count >= 3)
    assert await noted(api, id) == 403
    status, body = await answered(
        api, "POST", f"/api/adjustment-notes/{draft}/submit-to-portal", json={}
    )
    assert (status, body["message"]) == (
        400,
        "Only invoice with status Valid can have adjustment note submitted to the portal",
    )
    assert len(await sandbox.ledger()) == 1


async def test_a_cancellation_that_is_never_processed_ends_after_settling(start, company, sandbox):
    api = await start(company, PORTAL_RECHECK_SECONDS="3600", PORTAL_SETTLE_SECONDS="5")
    id = await valid_invoice(api)
    await lost(sandbox)
    assert await cancelled(api, id) == UNKNOWN
    assert await noted(api, id) == 403
    await until(lambda: under_way(api, id), lambda requested_at: requested_at is None)
    (document,) = await documents(api, id)
    assert (document["status"], document["cancel_reason"]) == ("Valid", None)
    assert await noted(api, id) == 201


async def test_a_repeated_cancellation_sends_the_request_again(start, company, sandbox):
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await lost(sandbox)
    assert await cancelled(api, id) == UNKNOWN
    assert (await cancelled(api, id))[0] == 200
    assert (await record(api, id))["status"] == "Cancelled" and await under_way(api, id) is None


@pytest.mark.parametrize(
    "kind, members", [("refuse", {"code": "OperationPeriodOver"}), ("throttle", {"retry_after": 1})]
)
async def test_a_repetition_does_not_shorten_the_settling_time(
    start, company, sandbox, kind, members
):
    """The second request is refused, or not sent; the first may be processed all the same, and is."""
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await lost(sandbox)
    assert await cancelled(api, id) == UNKNOWN
    requested_at = await under_way(api, id)
    await sandbox.fault("state", kind, **members)
    assert await cancelled(api, id) == UNKNOWN
    assert await under_way(api, id) == requested_at and await noted(api, id) == 403
    await sandbox.cancel((await documents(api, id))[0]["uuid"], "Late")
    await until(lambda: record(api, id), lambda found: found["status"] == "Cancelled")


async def test_a_refusal_with_a_code_ends_a_cancellation_at_once(start, company, sandbox):
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await sandbox.fault("state", "refuse", code="OperationPeriodOver")
    status, body = await cancelled(api, id)
    assert (status, body["code"]) == (400, "OperationPeriodOver")
    assert await under_way(api, id) is None and await noted(api, id) == 201


async def test_a_refused_cancellation_of_a_cancelled_document_succeeds(start, company, sandbox):
    """Somebody has cancelled it on the portal's own pages, and we have not seen that yet."""
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await sandbox.cancel((await documents(api, id))[0]["uuid"], "By hand")
    assert (await cancelled(api, id))[0] == 200
    (document,) = await documents(api, id)
    assert (document["status"], document["cancel_reason"]) == ("Cancelled", "By hand")


@pytest.mark.parametrize(
    "kind, members", [("html", {"status": 403}), ("garbage", {"status": 200, "processed": False})]
)
async def test_an_answer_that_is_not_the_portals_leaves_it_unclear(
    start, company, sandbox, kind, members
):
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await sandbox.fault("state", kind, **members)
    assert await cancelled(api, id) == UNKNOWN
    assert await under_way(api, id)


async def test_requests_that_join_an_unclear_cancellation_share_its_answer(start, company, sandbox):
    """They do not send it again one after another."""
    api = await start(company, **PATIENT)
    id = await valid_invoice(api)
    await sandbox.fault("state", "slow_before", seconds=600)
    answers = await asyncio.gather(*[cancelled(api, id) for _ in range(10)])
    assert answers == [UNKNOWN] * 10
    assert (await sandbox.calls())["calls"]["state"] == 1


async def test_a_request_waits_no_longer_than_submit_wait_for_another(api, start, company, owner):
    """Another process has claimed the cancellation, and may still send the request."""
    id = await valid_invoice(api)
    impatient = await start(company, background=False, SUBMIT_WAIT_SECONDS="0.5")
    await owner.execute(
        """update submitted_documents
              set cancelling_until = clock_timestamp() + interval '1 hour', cancel_sent_by = clock_timestamp() + interval '1 hour'"""
    )
    assert await cancelled(impatient, id) == UNKNOWN


async def test_a_process_that_was_held_up_past_its_claim_sends_nothing(
    api, start, company, sandbox, monkeypatch
):
    id = await valid_invoice(api)
    held_up = await start(company, background=False, PORTAL_LEASE_SECONDS="0.5")
    monkeypatch.setitem(failpoints._actions, "before_cancel_sent", lambda: time.sleep(1))
    assert (await cancelled(held_up, id))[0] == 400
    assert (await sandbox.calls())["calls"].get("state", 0) == 0
    await until(lambda: under_way(api, id), lambda requested_at: requested_at is None)
    assert (await record(api, id))["status"] == "Valid"


async def test_a_poll_that_sees_it_cancelled_ends_an_unclear_cancellation(start, company, sandbox):
    api = await start(
        company,
        PORTAL_RETRY_SECONDS="60",
        PORTAL_RECHECK_SECONDS="0.3",
        PORTAL_SETTLE_SECONDS="600",
    )
    id = await valid_invoice(api)
    await lost(sandbox)
    assert await cancelled(api, id) == UNKNOWN
    await sandbox.cancel((await documents(api, id))[0]["uuid"], "Late")
    await until(lambda: record(api, id), lambda found: found["status"] == "Cancelled")
    assert await under_way(api, id) is None

"""Cancelling: the specified refusals, the authority's codes, and the truth when the portal's answer is lost."""

import asyncio

import pytest
from conftest import until
from kit import cancelled, created, documents, note, reaches, record, submitted, valid_invoice

HOURS_72 = 72 * 3600
NONE = "The invoice does not have any submitted document."
CLOSED = "The latest submitted document of the invoice has already been cancelled/invali."
LATE = (
    "The latest submitted document of the invoice has been submitted more than 72 hours ago. "
    "Submitted documents can only be cancelled within 72 hours."
)
FAILED = "Cancellation failed, please try again."


async def test_a_valid_document_is_cancelled(api, sandbox):
    id = await valid_invoice(api)
    status, body = await cancelled(api, id, reason="Wrong buyer")
    assert status == 200 and body["success"] is True
    assert (await record(api, id))["status"] == "Cancelled"
    (document,) = await documents(api, id)
    assert document["status"] == "Cancelled" and document["cancel_reason"] == "Wrong buyer" and document["cancelled_at"]
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
    await owner.execute("update submitted_documents set submitted_at = clock_timestamp() - $1 * interval '1 second'", seconds)
    assert (await cancelled(api, id))[0] == status


async def test_the_message_of_a_late_cancellation(api, owner):
    id = await valid_invoice(api)
    await owner.execute("update submitted_documents set submitted_at = clock_timestamp() - interval '73 hours'")
    assert await cancelled(api, id) == (403, {"message": LATE})


async def test_the_portals_own_window_is_passed_on(api, sandbox):
    id = await valid_invoice(api)
    await sandbox.move_clock(HOURS_72 + 60)
    expected = {"message": "Document status can't be changed after limit time exceeded", "code": "OperationPeriodOver"}
    assert await cancelled(api, id) == (400, expected)
    assert (await record(api, id))["status"] == "Valid"


async def test_a_document_that_is_still_validated_is_passed_to_the_portal(api, sandbox):
    await sandbox.settings(stuck=True)
    id = await created(api)
    await submitted(api, id)
    expected = {"message": "Document status has already been rejected or invalid", "code": "IncorrectState"}
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


async def test_a_portal_that_cannot_be_reached_fails_and_the_document_stays_valid(api, sandbox):
    id = await valid_invoice(api)
    await sandbox.fault("state", "drop", times=2)  # aiohttp repeats a PUT once by itself
    assert await cancelled(api, id) == (400, {"message": FAILED})
    assert (await record(api, id))["status"] == "Valid"
    assert (await cancelled(api, id))[0] == 200


@pytest.mark.parametrize("kind, members", [("accept_then_drop", {}), ("error_after", {"status": 500}), ("slow", {"seconds": 3})])
async def test_a_lost_answer_is_made_good_by_reading_the_state(api, sandbox, kind, members):
    id = await valid_invoice(api)
    await sandbox.fault("state", kind, **members)
    assert (await cancelled(api, id))[0] == 200
    assert (await record(api, id))["status"] == "Cancelled"


async def test_a_cancellation_without_any_answer_is_resolved_by_itself(start, company, sandbox):
    api = await start(company, PORTAL_LEASE_SECONDS="0.5")
    id = await valid_invoice(api)
    await sandbox.fault("state", "error_after", status=500)
    await sandbox.fault("details", "error_before", status=503)
    assert await cancelled(api, id) == (400, {"message": FAILED})
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
        await owner.execute("update submitted_documents set cancelling_until = clock_timestamp() + interval '1 minute'")
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

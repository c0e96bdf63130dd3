"""Submissions of which nothing reached the portal: the record, its events and its documents."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.api_invoices import (
    create_invoice,
    create_lost_invoice,
    create_sale,
    create_submitted_invoice,
    create_valid_invoice,
)
from tests.api_reads import (
    get_documents,
    get_invoice,
    get_statuses,
    wait_for_events,
    wait_for_status,
    wait_until_status,
)
from tests.api_requests import create_record, expect, list_paths, request_json, submit
from tests.conftest import Client, Sandbox, StartService
from tests.harness.bodies import STRANGER, buyer, invoice, line, note, now
from tests.harness.companies import AUTOMATIC
from tests.harness.environments import GENEROUS

#: An issue time that the service's own check rejects with CF321.
LATE = {"issueDateTime": now(days=4)}
LATE_NOTE = {"adjustmentNoteIssueDate": now(days=4)}


async def list_not_sent(api: Client, least: int = 1) -> list[dict[str, Any]]:
    """Return the data of at least so many events of submissions that were not sent."""
    return [event["data"] for event in await wait_for_events(api, least, ".not_sent")]


async def check_failed_submission(api: Client, invoice_id: int, status: str = "Draft") -> None:
    """Check an invoice whose submission failed the service's own check, once."""
    found = await get_invoice(api, invoice_id)
    last = found["last_submission"]
    assert found["status"] == status and last["at"] == found["updated_at"]
    assert (last["status"], last["code"], last["retryable"]) == ("NotSent", "check_failed", False)
    (error,) = last["errors"]
    assert error["code"] == "CF321" and error["message"] == last["message"]
    assert error.keys() == {"code", "path", "message"}
    assert await list_not_sent(api) == [
        {
            "invoice_id": invoice_id,
            "status": "NotSent",
            "code": "check_failed",
            "retryable": False,
            "codes": ["CF321"],
        }
    ]


async def test_a_failed_check_is_the_last_submission(api: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_invoice(api, **LATE)
    status, body = await submit(api, invoice_id)
    assert (status, body["code"]) == (400, "check_failed")
    await check_failed_submission(api, invoice_id)
    assert await get_documents(api, invoice_id) == [] == await sandbox.ledger()


@pytest.mark.parametrize("flag", ["submitImmediately", "isReady"])
async def test_a_failed_check_of_a_create_is_the_last_submission(
    api: Client, owner: asyncpg.Connection, flag: str
) -> None:
    await owner.execute(AUTOMATIC)
    body = invoice(**LATE, **{flag: True})
    data = await create_record(api, "/api/invoices", **body)
    assert (data["status"], data["code"]) == ("Draft", "check_failed")
    await check_failed_submission(api, data["id"])
    assert await get_documents(api, data["id"]) == []


async def test_a_failed_check_of_an_update_is_the_last_submission(api: Client) -> None:
    invoice_id = await create_invoice(api)
    status, body = await request_json(
        api, "PUT", f"/api/invoices/{invoice_id}", json={**LATE, "submitImmediately": True}
    )
    assert (status, body["data"]["code"]) == (200, "check_failed")
    await check_failed_submission(api, invoice_id)


async def test_a_failed_check_after_an_approval_is_the_last_submission(
    api: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute(AUTOMATIC)
    pending = {"type": "PENDING_FINALIZE_INVOICE", "buyer": None, "isReady": True, "code": 4711}
    invoice_id = await create_invoice(api, **pending, **LATE)
    await owner.execute("delete from events")
    await owner.execute("update document_states set failed_outcome = null, outcome_at = null")
    asked = {"invoiceCode": "4711", **buyer()}
    request_id = (await create_record(api, "/api/einvoice-requests", **asked))["id"]
    path = f"/api/einvoice-requests/{request_id}"
    status, body = await request_json(api, "PUT", path, json={"status": "Approve"})
    assert (status, body["data"]["invoice"]["code"]) == (200, "check_failed"), body
    await check_failed_submission(api, invoice_id)


async def test_failed_checks_of_notes_and_consolidated_invoices_are_recorded(
    start: StartService,
) -> None:
    api = await start(**GENEROUS)
    target = await create_valid_invoice(api)
    path = f"/api/invoices/{target}/adjustment-note"
    late = await create_record(api, path, **{**note(), **LATE_NOTE})
    family = {"type": "CONSOLIDATED_INVOICE", "code": 1, "invoiceIds": [await create_sale(api)]}
    whole = await create_record(
        api, "/api/consolidated-invoices", **family, issueDateTime=now(days=4)
    )
    made = {"adjustment_note": late["id"], "consolidated_invoice": whole["id"]}
    for kind, record_id in made.items():
        place = f"/api/{kind.replace('_', '-')}s"
        assert (await submit(api, record_id, place))[1]["code"] == "check_failed"
        _, record = await request_json(api, "GET", f"{place}/{record_id}")
        assert record["last_submission"]["code"] == "check_failed" and record["status"] == "Draft"
    last = await list_not_sent(api, len(made))
    assert [data[f"{kind}_id"] for data, kind in zip(last, made, strict=True)] == [*made.values()]


async def test_a_note_without_a_valid_invoice_is_refused_and_recorded_with_reasons(
    api: Client,
) -> None:
    target = await create_valid_invoice(api)
    path = f"/api/invoices/{target}/adjustment-note"
    note_id = (await create_record(api, path, **note()))["id"]
    await request_json(api, "POST", f"/api/invoices/{target}/cancel-latest-invoice-submitted")
    status, body = await submit(api, note_id, "/api/adjustment-notes")
    assert (status, body["code"], body["retryable"]) == (400, "invoice_not_valid", False)
    assert list_paths(body) == ["/targetInvoiceType"] and body["errors"][0]["code"] == "DR303"
    record = await expect(api, 200, "GET", f"/api/adjustment-notes/{note_id}")
    for member in ("code", "retryable", "message", "errors"):
        assert record["last_submission"][member] == body[member]


async def test_an_unverified_tin_is_the_last_submission_of_an_automatic_one(
    api: Client, owner: asyncpg.Connection
) -> None:
    await owner.execute(f"{AUTOMATIC}, tin_verified_at = null")
    invoice_id = await create_invoice(api, isReady=True)
    last = (await get_invoice(api, invoice_id))["last_submission"]
    assert (last["code"], last["retryable"]) == ("tin_not_verified", True)
    assert [data["code"] for data in await list_not_sent(api)] == ["tin_not_verified"]


async def test_a_later_submission_replaces_a_failed_check(api: Client) -> None:
    invoice_id = await create_invoice(api, **LATE)
    await submit(api, invoice_id)
    changes = {"issueDateTime": now()}
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json=changes)
    edited = await get_invoice(api, invoice_id)
    assert edited["last_submission"]["code"] == "check_failed"
    assert (await submit(api, invoice_id))[0] == 200
    last = (await wait_for_status(api, invoice_id, "Valid"))["last_submission"]
    assert last.keys() == {"status", "code", "message", "at"} and last["status"] == "Valid"
    assert len(await list_not_sent(api)) == 1


async def test_a_failed_check_of_an_invalid_invoice_leaves_it_invalid(api: Client) -> None:
    invoice_id = await create_submitted_invoice(api, buyer=STRANGER)
    await wait_for_status(api, invoice_id, "Invalid")
    await request_json(api, "PUT", f"/api/invoices/{invoice_id}", json=LATE)
    assert (await submit(api, invoice_id))[1]["code"] == "check_failed"
    await check_failed_submission(api, invoice_id, "Invalid")
    assert await get_statuses(api, invoice_id) == ["Invalid"]


async def test_a_repetition_with_its_key_records_a_failed_check_once(api: Client) -> None:
    invoice_id = await create_invoice(api, **LATE)
    path, headers = f"/api/invoices/{invoice_id}/submit-to-portal", {"Idempotency-Key": "4711"}
    answers = []
    for _ in range(2):
        async with api.post(path, json={}, headers=headers) as response:
            answers.append((response.status, response.headers.get("Idempotent-Replayed")))
    assert answers == [(400, None), (400, "true")]
    await check_failed_submission(api, invoice_id)


async def test_two_failed_checks_at_once_are_two_events(api: Client) -> None:
    invoice_id = await create_invoice(api, **LATE)
    answers = await asyncio.gather(*[submit(api, invoice_id) for _ in range(2)])
    assert {body["code"] for _, body in answers} == {"check_failed"}
    found = await get_invoice(api, invoice_id)
    assert found["status"] == "Draft" and found["last_submission"]["code"] == "check_failed"
    assert len(await list_not_sent(api, 2)) == 2


async def test_a_running_submission_is_not_replaced_by_a_failed_check(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """The document can no longer pass the checks while its submission is under way."""
    slow = {"PORTAL_SETTLE_SECONDS": "60"}  # before the end of which no absence is confirmed
    api = await start(PORTAL_TIMEOUT_SECONDS="0.3", SUBMIT_WAIT_SECONDS="0.1", **slow)
    invoice_id = await create_invoice(api, **LATE)
    assert (await submit(api, invoice_id))[1]["code"] == "check_failed"
    await request_json(api, "PUT", f"/api/invoices/{invoice_id}", json={"issueDateTime": now()})
    await sandbox.fault("submit", "drop")
    assert (await submit(api, invoice_id))[1]["code"] == "outcome_unknown"
    await owner.execute("update documents set issue_date = issue_date - interval '4 days'")
    assert (await submit(api, invoice_id))[1]["code"] == "outcome_unknown"
    assert (await get_invoice(api, invoice_id))["last_submission"]["status"] == "Submitting"
    assert len(await list_not_sent(api)) == 1


async def test_a_refused_login_makes_the_document_not_sent(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await sandbox.fault("login", "refuse", status=400, code="invalid_client")
    invoice_id = await create_invoice(api)
    status, body = await submit(api, invoice_id)
    assert (status, body["code"]) == (400, "portal_credentials_refused")
    (document,) = await get_documents(api, invoice_id)
    assert document["status"] == "NotSent" and document["errors"] == body["errors"]
    found = await get_invoice(api, invoice_id)
    last = found["last_submission"]
    assert found["status"] == "Draft" and last["errors"] == body["errors"]
    assert (last["status"], last["code"]) == ("NotSent", "portal_credentials_refused")
    assert await list_not_sent(api) == [
        {
            "invoice_id": invoice_id,
            "submitted_document_id": document["id"],
            "status": "NotSent",
            "code": "portal_credentials_refused",
            "retryable": True,
            "codes": ["PortalCredentials"],
        }
    ]
    await owner.execute("delete from refused_logins")
    assert (await submit(api, invoice_id))[0] == 200
    last = (await wait_for_status(api, invoice_id, "Valid"))["last_submission"]
    assert last["status"] == "Valid" and "errors" not in last
    _, body = await request_json(
        api, "GET", "/api/submitted-documents", params={"status": "NotSent"}
    )
    assert [one["id"] for one in body["data"]] == [document["id"]] and body["meta"]["total"] == 1


async def test_an_unsent_document_can_neither_be_cancelled_nor_noted(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.fault("login", "refuse", status=400, code="invalid_client")
    invoice_id = await create_invoice(api)
    await submit(api, invoice_id)
    path = f"/api/invoices/{invoice_id}"
    status, body = await request_json(api, "POST", f"{path}/cancel-latest-invoice-submitted")
    assert (status, body["code"]) == (403, "not_submitted")
    status, body = await request_json(api, "POST", f"{path}/adjustment-note", json=note())
    assert (status, body["code"]) == (403, "not_submitted")


async def test_an_absent_document_is_not_sent(start: StartService, sandbox: Sandbox) -> None:
    api = await start(PORTAL_SETTLE_SECONDS="0.3", PORTAL_CONFIRMATION_GAP_SECONDS="0.1")
    invoice_id = await create_lost_invoice(api, sandbox, "drop")
    await wait_until_status(api, invoice_id, "Draft")
    assert (await get_documents(api, invoice_id))[0]["status"] == "NotSent"
    assert (await get_invoice(api, invoice_id))["last_submission"]["code"] == "not_received"
    (event,) = await list_not_sent(api)
    assert (event["code"], event["retryable"]) == ("not_received", True)


async def test_a_record_has_a_limited_number_of_errors(api: Client) -> None:
    lines = [line(id=str(number), taxDetails=[{"taxType": "E"}]) for number in range(1000)]
    invoice_id = await create_invoice(api, lineItems=lines)
    _, body = await submit(api, invoice_id)
    last = (await get_invoice(api, invoice_id))["last_submission"]
    assert len(body["errors"]) == 100 and len(last["errors"]) == 20
    (event,) = await list_not_sent(api)
    assert event["codes"] == list(dict.fromkeys(error["code"] for error in last["errors"]))


async def test_a_company_sees_only_its_own_failed_checks(api: Client, stranger: Client) -> None:
    invoice_id = await create_invoice(api, **LATE)
    assert (await submit(stranger, invoice_id))[0] == 404
    assert await list_not_sent(api, 0) == [] == await list_not_sent(stranger, 0)
    await submit(api, invoice_id)
    assert len(await list_not_sent(api)) == 1 and await list_not_sent(stranger, 0) == []

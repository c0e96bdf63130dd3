"""A portal that is down, slow, or loses its answer: the caller is told, the document locked, the truth found, nothing sent twice."""

import asyncio
from typing import Any

import asyncpg
import pytest
from aiohttp.test_utils import TestClient
from conftest import Sandbox, until
from kit import created, documents, invoice, reaches, record, submitted

FAILED = "Failed to submit, please try again"

#: The portal took the document, and its answer did not arrive whole.
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
#: The portal did not take it, and did not say so.
NOT_TAKEN = [
    ("drop", {}),
    ("error_before", {"status": 503}),
    ("html", {}),
    ("redirect", {}),
    ("garbage", {"processed": False}),
    ("neither", {"processed": False}),
]
#: The portal certainly did not take it.
UNSENT = [
    ("submit", "throttle", {"retry_after": 1}),
    ("login", "error_before", {}),
    ("login", "throttle", {"retry_after": 1}),
    ("login", "drop", {}),
]


@pytest.mark.parametrize("kind, members", TAKEN)
async def test_a_lost_answer_is_found_and_nothing_sent_twice(
    api: TestClient, sandbox: Sandbox, kind: Any, members: Any
) -> None:
    await sandbox.fault("submit", kind, **members)
    invoice_id = await created(api)
    status, body = await submitted(api, invoice_id)
    assert (
        status == 400
        and body["message"] == FAILED
        and body["errors"][0]["code"] == "OutcomeUnknown"
    )
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Valid")
    assert len(await sandbox.ledger()) == 1


@pytest.mark.parametrize("kind, members", NOT_TAKEN)
async def test_what_never_arrived_is_let_go_after_two_proofs(
    api: TestClient, owner: asyncpg.Connection, sandbox: Sandbox, kind: Any, members: Any
) -> None:
    await sandbox.fault("submit", kind, **members)
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 400
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Draft")
    assert await owner.fetchval("select absence_confirmations from submissions") == 2
    assert (await documents(api, invoice_id))[0]["errors"][0]["code"] == "NotReceived"
    assert (await submitted(api, invoice_id))[0] == 200
    await reaches(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


@pytest.mark.parametrize("operation, kind, members", UNSENT)
async def test_what_was_certainly_not_sent_leaves_a_draft_at_once(
    api: TestClient, sandbox: Sandbox, operation: Any, kind: Any, members: Any
) -> None:
    await sandbox.fault(operation, kind, **members)
    invoice_id = await created(api)
    status, body = await submitted(api, invoice_id)
    assert status == 400 and body["message"] == FAILED and body["errors"]
    assert (await record(api, invoice_id))["status"] == "Draft"
    assert not await sandbox.ledger()


async def test_a_portal_that_is_down_refuses_at_once_and_is_used_again_when_it_is_back(
    api: TestClient, start: Any, company: Any, sandbox: Sandbox
) -> None:
    down = await start(
        company, PORTAL_API_BASE="http://127.0.0.1:9", PORTAL_IDENTITY_BASE="http://127.0.0.1:9"
    )
    invoice_id = await created(down)
    status, body = await submitted(down, invoice_id)
    assert status == 400 and body["errors"][0]["code"] == "PortalUnreachable"
    assert (await record(down, invoice_id))["status"] == "Draft"
    assert (await submitted(api, invoice_id))[0] == 200
    await reaches(api, invoice_id, "Valid")


async def test_a_document_of_unknown_outcome_is_locked(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    api = await start(company, background=False)
    await sandbox.fault("submit", "accept_then_drop")
    invoice_id = await created(api)
    await submitted(api, invoice_id)
    found = await record(api, invoice_id)
    assert found["status"] == "Submitting" and found["is_submitted_to_portal"] is True
    async with api.put(f"/api/invoices/{invoice_id}", json={"isReady": True}) as response:
        assert response.status == 403
    async with api.delete(f"/api/invoices/{invoice_id}") as response:
        assert response.status == 403
    async with api.post(f"/api/invoices/{invoice_id}/cancel-latest-invoice-submitted") as response:
        assert response.status == 409


async def test_a_repeated_submit_joins_the_unknown_attempt(
    api: TestClient, sandbox: Sandbox
) -> None:
    await sandbox.settings(search_lag_seconds=1)
    await sandbox.fault("submit", "accept_then_drop")
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 400
    answers = await asyncio.gather(*[submitted(api, invoice_id) for _ in range(5)])
    assert {status for status, _ in answers} <= {200, 400}
    await until(
        lambda: record(api, invoice_id), lambda found: found["status"] in ("Valid", "Draft")
    )
    assert len(await sandbox.ledger()) == 1


async def test_a_wait_for_an_attempt_without_outcome_ends(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    api = await start(company, background=False, SUBMIT_WAIT_SECONDS="0.3")
    await sandbox.fault("submit", "accept_then_drop")
    invoice_id = await created(api)
    await submitted(api, invoice_id)
    status, body = await submitted(api, invoice_id)
    assert status == 400 and body["errors"][0]["code"] == "OutcomeUnknown"


async def test_a_listing_that_lags_behind_is_waited_for(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    api = await start(company, PORTAL_SETTLE_SECONDS="1.5")
    await sandbox.settings(search_lag_seconds=1)
    await sandbox.fault("submit", "accept_then_drop")
    invoice_id = await created(api)
    await submitted(api, invoice_id)
    found = await until(
        lambda: record(api, invoice_id), lambda found: found["status"] != "Submitting"
    )
    assert found["status"] in ("Submitted", "Valid")


async def test_a_false_absence_ends_in_the_portals_own_refusal_of_the_same_bytes(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    """The settling time is too short for this portal: the frozen bytes are the net below."""
    api = await start(company, PORTAL_SETTLE_SECONDS="0.1", PORTAL_PROOF_GAP_SECONDS="0.05")
    await sandbox.settings(search_lag_seconds=3600)
    await sandbox.fault("submit", "accept_then_drop")
    async with api.post("/api/invoices", json=invoice(submitImmediately=True)) as response:
        invoice_id = (await response.json())["data"]["id"]
    await until(sandbox.calls, lambda calls: calls["answers"]["submit"].get("422"))
    await sandbox.settings(search_lag_seconds=0)
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_a_second_send_that_the_portal_takes_for_a_duplicate_gives_way_to_the_first(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    """As above, with a portal that no longer knows the bytes: it judges the second Invalid, and names the first."""
    hasty = {
        "PORTAL_SETTLE_SECONDS": "0.1",
        "PORTAL_PROOF_GAP_SECONDS": "0.05",
        "PORTAL_RECHECK_SECONDS": "0.1",
    }
    api = await start(company, **hasty)
    await sandbox.settings(search_lag_seconds=3600, payload_detection=False)
    await sandbox.fault("submit", "accept_then_drop")
    async with api.post("/api/invoices", json=invoice(submitImmediately=True)) as response:
        invoice_id = (await response.json())["data"]["id"]
    await until(sandbox.ledger, lambda entries: len(entries) == 2)
    await sandbox.settings(search_lag_seconds=0)
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Valid")
    first, second = sorted(await sandbox.ledger(), key=lambda entry: entry["status"], reverse=True)
    assert (first["status"], second["status"]) == ("Valid", "Invalid")
    assert (await documents(api, invoice_id))[0]["uuid"] == first["uuid"]
    await sandbox.cancel(first["uuid"], "By hand")  # it is the first that is looked at from now on
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Cancelled")


async def test_what_was_let_go_too_early_is_submitted_again_as_the_same_bytes(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    """The caller was told that it failed, and repeats: had the portal had it after all, it knows it again."""
    api = await start(company, PORTAL_SETTLE_SECONDS="0.1", PORTAL_PROOF_GAP_SECONDS="0.05")
    await sandbox.settings(search_lag_seconds=3600)
    await sandbox.fault("submit", "accept_then_drop")
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 400
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Draft")
    assert len(await sandbox.ledger()) == 1
    assert (await submitted(api, invoice_id))[0] == 400
    await sandbox.settings(search_lag_seconds=0)
    await until(lambda: submitted(api, invoice_id), lambda answer: answer[0] == 200)
    await reaches(api, invoice_id, "Valid")
    assert (
        len(await sandbox.ledger()) == 1
        and len({one["document_hash"] for one in await documents(api, invoice_id)}) == 1
    )


async def test_a_try_that_could_not_be_sent_does_not_forget_the_bytes_that_were(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    api = await start(company, PORTAL_SETTLE_SECONDS="0.1", PORTAL_PROOF_GAP_SECONDS="0.05")
    await sandbox.fault("submit", "drop")
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 400
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Draft")
    away = await start(
        company, PORTAL_API_BASE="http://127.0.0.1:9", PORTAL_IDENTITY_BASE="http://127.0.0.1:9"
    )
    assert (await submitted(away, invoice_id))[0] == 400
    assert (await submitted(api, invoice_id))[0] == 200
    assert len({one["document_hash"] for one in await documents(api, invoice_id)}) == 1


async def test_a_refusal_of_what_is_sent_again_is_not_believed_before_the_portal_was_asked_once_more(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    """The first send is there all along, and shows late; the second is refused for a reason of its own."""
    api = await start(company, PORTAL_SETTLE_SECONDS="0.3", PORTAL_PROOF_GAP_SECONDS="0.1")
    await sandbox.settings(search_lag_seconds=0.7, payload_detection=False)
    await sandbox.fault("submit", "accept_then_drop")
    await sandbox.fault("submit", "refuse", status=403, code="IncorrectSubmitter")
    async with api.post("/api/invoices", json=invoice(submitImmediately=True)) as response:
        invoice_id = (await response.json())["data"]["id"]
    await until(
        lambda: record(api, invoice_id), lambda found: found["status"] in ("Valid", "Draft")
    )
    (entry,) = await sandbox.ledger()
    (document,) = await documents(api, invoice_id)
    assert (await record(api, invoice_id))["status"] == "Valid" and document["uuid"] == entry[
        "uuid"
    ]


async def test_a_refusal_of_what_is_sent_again_is_believed_in_the_end(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    api = await start(company, PORTAL_SETTLE_SECONDS="0.3", PORTAL_PROOF_GAP_SECONDS="0.1")
    await sandbox.fault("submit", "drop")
    await sandbox.fault("submit", "refuse", status=403, code="IncorrectSubmitter")
    async with api.post("/api/invoices", json=invoice(submitImmediately=True)) as response:
        invoice_id = (await response.json())["data"]["id"]
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Draft")
    assert (await documents(api, invoice_id))[0][
        "status"
    ] == "Rejected" and not await sandbox.ledger()


async def test_what_was_let_go_and_changed_since_is_another_document(
    api: TestClient, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "drop")
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 400
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Draft")
    async with api.put(
        f"/api/invoices/{invoice_id}",
        json={"buyer": {**invoice()["buyer"], "name": "Somebody else"}},
    ) as response:
        assert response.status == 200, await response.text()
    assert (await submitted(api, invoice_id))[0] == 200
    assert len({one["document_hash"] for one in await documents(api, invoice_id)}) == 2


async def test_a_duplicate_answer_never_makes_a_document_invalid(
    api: TestClient, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "duplicate", retry_after=1)
    invoice_id = await created(api)
    status, _ = await submitted(api, invoice_id)
    assert status == 400
    assert (await record(api, invoice_id))["status"] in ("Submitting", "Draft")
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Draft")


async def test_a_duplicate_answer_to_a_first_send_leaves_the_outcome_unknown(
    start: Any, company: Any, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """It says that the same bytes were received before, so it is no refusal."""
    api = await start(company, background=False)
    await sandbox.fault("submit", "duplicate", retry_after=1)
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 400
    assert await owner.fetchval("select state from submissions") == "Uncertain"
    assert (await record(api, invoice_id))["status"] == "Submitting"


async def test_the_intent_is_on_disk_before_the_portal_receives_the_bytes(
    api: Any, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await sandbox.fault("submit", "slow", seconds=1)
    invoice_id = await created(api)
    answer = asyncio.create_task(submitted(api, invoice_id))
    await until(sandbox.ledger)
    assert await owner.fetchval("select state from submissions") != "Queued"
    assert await owner.fetchval("select sends from submissions") == 1
    assert (await answer)[0] == 200


async def test_an_expired_token_costs_one_login_and_no_second_document(
    api: TestClient, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "unauthorized")
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 200
    await reaches(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_one_listing_resolves_every_unknown_submission_of_a_company(
    api: TestClient, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "accept_then_drop", times=10)
    ids = [await created(api) for _ in range(10)]
    await asyncio.gather(*[submitted(api, invoice_id) for invoice_id in ids])
    for invoice_id in ids:
        await until(
            lambda invoice_id=invoice_id: record(api, invoice_id),
            lambda found: found["status"] == "Valid",
        )
    assert len(await sandbox.ledger()) == 10


async def test_a_submission_that_is_unknown_for_a_while_after_the_receipt_is_polled_on(
    api: TestClient, sandbox: Sandbox
) -> None:
    await sandbox.settings(not_found_seconds=1)
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 200
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Valid")


async def test_a_buyers_rejection_and_a_cancellation_elsewhere_are_seen(
    start: Any, company: Any, sandbox: Sandbox
) -> None:
    api = await start(company, PORTAL_RECHECK_SECONDS="0.1")
    invoice_id = await created(api)
    await submitted(api, invoice_id)
    await reaches(api, invoice_id, "Valid")
    (document,) = await documents(api, invoice_id)
    await sandbox.reject(document["uuid"], "Never ordered")
    found = await until(
        lambda: documents(api, invoice_id), lambda found: found[0]["rejection_requested_at"]
    )
    assert found[0]["rejection_reason"] == "Never ordered" and found[0]["status"] == "Valid"
    await sandbox.cancel(document["uuid"], "By hand")
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Cancelled")
    assert (await documents(api, invoice_id))[0]["cancel_reason"] == "By hand"

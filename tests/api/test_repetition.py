"""Repeated requests and concurrent changes: Idempotency-Key, ETag and If-Match."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from service.submission.sending import submit as submit_module
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_invoice, get_json, wait_until_status
from tests.api_requests import (
    INTEGRATIONS,
    cancel_latest,
    expect,
    list_rules,
    not_found,
    post_once,
    request_json,
    submit,
)
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.fixtures_specification import Context
from tests.harness.bodies import CODES, invoice, note
from tests.harness.environments import GENEROUS

#: A trigger: a response can be stored only by the transaction that has stored its document.
REFUSE_OTHERS = """
    create function refuse() returns trigger language plpgsql as $$
    begin
      if not exists (select from documents where xmin = pg_current_xact_id()::xid) then
        raise exception 'injected failure' using errcode = '53100';
      end if;
      return new;
    end $$;
    create trigger refusing before insert or update on idempotency_keys
       for each row execute function refuse();
"""


#: Path -> makes a new body of a creation, on both surfaces.
CREATIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "/api/invoices": invoice,
    f"{INTEGRATIONS}users": lambda: {
        "name": "Siti",
        "email": f"siti{next(CODES)}@example.com",
        "role": "member",
    },
}


@pytest.mark.parametrize("path", CREATIONS)
async def test_a_repeated_creation_returns_the_first_response(context: Context, path: str) -> None:
    body = CREATIONS[path]()
    first = await post_once(context.api, "a", path, **body)
    assert first[0] == 201 and not first[2]
    assert await post_once(context.api, "a", path, **body) == (*first[:2], True)
    assert (await get_json(context.api, path))["meta"]["total"] == 1


@pytest.mark.parametrize("path", CREATIONS)
async def test_an_idempotency_key_with_another_body_is_refused(context: Context, path: str) -> None:
    await post_once(context.api, "a", path, **CREATIONS[path]())
    status, body, _ = await post_once(context.api, "a", path, **CREATIONS[path]())
    assert (status, body["code"]) == (422, "idempotency_key_reused")
    assert list_rules(body.get("details", body)) == [("Idempotency-Key", "reused")]


@pytest.mark.parametrize("path", CREATIONS)
async def test_an_idempotency_key_expires_after_72_hours(
    context: Context, owner: asyncpg.Connection, path: str
) -> None:
    await post_once(context.api, "a", path, **CREATIONS[path]())
    age = "update idempotency_keys set created_at = clock_timestamp() - interval '72 hours'"
    await owner.execute(f"{age} + interval '1 minute'")
    assert (await post_once(context.api, "a", path, **CREATIONS[path]()))[0] == 422
    await owner.execute(age)
    assert (await post_once(context.api, "a", path, **CREATIONS[path]()))[0::2] == (201, False)


@pytest.mark.parametrize("path", CREATIONS)
@pytest.mark.parametrize("key", ["x" * 256, "tab\tin"])
async def test_an_invalid_idempotency_key_is_refused(context: Context, path: str, key: str) -> None:
    status, body, _ = await post_once(context.api, key, path, **CREATIONS[path]())
    assert (status, body["code"]) == (400, "idempotency_key_invalid")


async def test_an_idempotency_key_is_scoped_to_company_and_route(
    api: Client, stranger: Client
) -> None:
    body = invoice()
    assert (await post_once(api, "a", **body))[0] == 201
    assert (await post_once(stranger, "a", **body))[0] == 201
    invoice_id = await create_invoice(api)
    assert (await post_once(api, "a", f"/api/invoices/{invoice_id}/submit-to-portal"))[0] == 200


async def test_definite_refusals_are_replayed_and_transient_ones_are_not(
    api: Client, sandbox: Sandbox
) -> None:
    status, first, _ = await post_once(api, "a", code=1)
    assert status == 422
    assert await post_once(api, "a", code=1) == (422, first, True)
    headers = {"Idempotency-Key": "b", "Content-Type": "text/plain"}
    await expect(api, 415, "POST", "/api/invoices", data=b"{", headers=headers)
    assert (await post_once(api, "b", **invoice()))[0] == 201


async def test_a_repeated_submit_or_note_returns_the_first_response(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    first = await post_once(api, "s", f"/api/invoices/{invoice_id}/submit-to-portal")
    again = await post_once(api, "s", f"/api/invoices/{invoice_id}/submit-to-portal")
    assert again == (*first[:2], True)
    await wait_until_status(api, invoice_id, "Valid")
    body = note()
    first = await post_once(api, "n", f"/api/invoices/{invoice_id}/adjustment-note", **body)
    assert first[0] == 201
    again = await post_once(api, "n", f"/api/invoices/{invoice_id}/adjustment-note", **body)
    assert again == (*first[:2], True)


async def test_a_submit_that_sent_nothing_is_retried_with_its_key(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    await sandbox.fault("submit", "throttle", retry_after=1)
    status, body, _ = await post_once(api, "s", path)
    assert status == 400
    assert (body["message"], body["retryable"]) == ("Failed to submit, please try again", True)
    assert (await get_invoice(api, invoice_id))["status"] == "Draft"
    again = await until(lambda: post_once(api, "s", path), lambda answer: answer[0] == 200)
    assert not again[2]
    assert await post_once(api, "s", path) == (*again[:2], True)
    assert len(await sandbox.ledger()) == 1


async def test_a_submit_during_a_sending_hold_is_retried_with_its_key(
    api: Client, owner: asyncpg.Connection, company: Company, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    await owner.execute(
        "insert into sending_holds (company_id, reason) values ($1, 'A test.')", company.id
    )
    status, body, _ = await post_once(api, "s", path)
    assert (status, body["errors"][0]["code"], body["retryable"]) == (400, "SendingHeld", True)
    await owner.execute("update sending_holds set released_at = now()")
    assert (await post_once(api, "s", path))[0::2] == (200, False)


async def test_a_refused_submit_is_replayed_for_its_key(api: Client, sandbox: Sandbox) -> None:
    """A refusal by the checks or by the portal is definite and stored with the key."""
    old = await create_invoice(api, issueDateTime="2024-01-01T00:00:00Z")
    new = await create_invoice(api)
    await sandbox.fault("submit", "refuse", status=400, code="BadStructure")
    for invoice_id in (old, new):
        path = f"/api/invoices/{invoice_id}/submit-to-portal"
        first = await post_once(api, str(invoice_id), path)
        assert first[0] == 400 and first[1]["errors"] and first[1]["retryable"] is False
        assert await post_once(api, str(invoice_id), path) == (*first[:2], True)
    assert not await sandbox.ledger()


async def test_a_submit_of_unknown_outcome_is_continued_with_its_key(
    api: Client, sandbox: Sandbox
) -> None:
    invoice_id = await create_invoice(api)
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    await sandbox.fault("submit", "accept_then_drop")
    status, body, _ = await post_once(api, "s", path)
    assert (status, body["errors"][0]["code"], body["retryable"]) == (400, "OutcomeUnknown", True)
    again = await until(lambda: post_once(api, "s", path), lambda answer: answer[0] == 200)
    assert not again[2] and len(await sandbox.ledger()) == 1


async def test_a_failed_cancel_is_retried_with_its_key(api: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_valid_invoice(api)
    path = f"/api/invoices/{invoice_id}/cancel-latest-invoice-submitted"
    await sandbox.fault("state", "drop", times=2)  # aiohttp repeats a PUT once
    status, body, _ = await post_once(api, "c", path)
    assert (status, body["message"]) == (400, "Cancellation failed, please try again.")
    again = await until(lambda: post_once(api, "c", path), lambda answer: answer[0] == 200)
    assert not again[2]
    assert await post_once(api, "c", path) == (*again[:2], True)


async def test_a_cancel_refused_by_the_portal_is_replayed_for_its_key(
    api: Client, sandbox: Sandbox
) -> None:
    await sandbox.settings(stuck=True)
    invoice_id = await create_invoice(api)
    await submit(api, invoice_id)
    path = f"/api/invoices/{invoice_id}/cancel-latest-invoice-submitted"
    first = await post_once(api, "c", path)
    assert (first[0], first[1]["code"]) == (400, "IncorrectState")
    await sandbox.settings(stuck=False)
    await wait_until_status(api, invoice_id, "Valid")
    assert await post_once(api, "c", path) == (*first[:2], True)


async def test_a_response_is_stored_in_the_transaction_of_its_effect(
    api: Client, owner: asyncpg.Connection
) -> None:
    """Storing the response in any other transaction fails."""
    await owner.execute(REFUSE_OTHERS)
    body = invoice()
    first = await post_once(api, "a", **body)
    assert first[0] == 201
    assert await owner.fetchval("select status from idempotency_keys") == 201
    assert await post_once(api, "a", **body) == (*first[:2], True)


async def test_the_idempotency_key_of_a_dead_request_is_taken_over(
    api: Client, owner: asyncpg.Connection
) -> None:
    body = invoice()
    await post_once(api, "a", **body)
    await owner.execute("update idempotency_keys set status = null, answer = null")
    assert (await post_once(api, "a", **body))[0] == 409
    await owner.execute(
        "update idempotency_keys set created_at = created_at - interval '91 seconds'"
    )
    status, answer, _ = await post_once(api, "a", **body)
    assert status == 422 and answer["errors"][0]["rule"] == "unique"


async def test_a_repetition_of_a_creation_waits_for_its_submission(
    api: Client, sandbox: Sandbox
) -> None:
    body = invoice(submitImmediately=True)
    await sandbox.fault("submit", "slow", seconds=1)
    first = asyncio.create_task(post_once(api, "a", **body))
    await until(sandbox.ledger, len)
    second = await post_once(api, "a", **body)
    assert (await first)[1]["data"]["status"] == "Submitted"
    assert second == (*(await first)[:2], True)
    assert len(await sandbox.ledger()) == 1


async def test_an_error_after_a_creation_is_answered_by_the_creation(
    api: Client, owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(submit_module, "describe_outcome", fail)
    status, answer, is_replayed = await post_once(api, "a", **invoice(submitImmediately=True))
    assert status == 201 and is_replayed
    assert await owner.fetchval("select id from documents") == answer["data"]["id"]


async def test_a_creation_whose_process_died_is_replayed_after_its_lease(
    api: Client, owner: asyncpg.Connection
) -> None:
    """The response that was stored with the creation has no outcome of the submission."""
    body = invoice()
    status, created, _ = await post_once(api, "a", **body)
    await owner.execute("update idempotency_keys set is_interim = true")
    assert (await post_once(api, "a", **body))[0] == 409
    await owner.execute(
        "update idempotency_keys set created_at = created_at - interval '91 seconds'"
    )
    assert await post_once(api, "a", **body) == (status, created, True)


async def test_the_idempotency_key_of_a_dead_request_is_not_taken_by_another_body(
    api: Client, owner: asyncpg.Connection
) -> None:
    await post_once(api, "a", **invoice())
    await owner.execute(
        "update idempotency_keys set status = null, answer = null,"
        " created_at = created_at - interval '91 seconds'"
    )
    status, answer, _ = await post_once(api, "a", **invoice())
    assert status == 422 and answer["errors"][0]["rule"] == "reused"
    assert await owner.fetchval("select count(*) from documents") == 1


async def test_a_conflict_is_not_replayed_for_its_key(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_valid_invoice(api)
    assert (await cancel_latest(api, invoice_id))[0] == 200
    path = f"/api/invoices/{invoice_id}/submit-to-portal"
    status, answer, _ = await post_once(api, "a", path)
    assert (status, answer["code"]) == (409, "already_cancelled")
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json={"reference": "R"})
    assert (await post_once(api, "a", path))[0::2] == (200, False)


@pytest.mark.parametrize("invoice_id", ["9" * 7000, "%00", "%F0%9F%92%A9"])
async def test_an_idempotency_key_with_an_invalid_id_in_the_path_is_a_404(
    api: Client, invoice_id: str
) -> None:
    for key in ("one", "one"):
        status, body, _ = await post_once(api, key, f"/api/invoices/{invoice_id}/submit-to-portal")
        assert (status, body) == not_found("Invoice")


async def test_a_matching_if_none_match_is_a_304(api: Client) -> None:
    path = f"/api/invoices/{await create_invoice(api)}"
    async with api.get(path) as response:
        etag = response.headers["ETag"]
    async with api.get(path, headers={"If-None-Match": etag}) as response:
        assert response.status == 304 and not await response.read()
    await expect(api, 200, "PUT", path, json={"isReady": True}, headers={"If-Match": etag})
    async with api.get(path, headers={"If-None-Match": etag}) as response:
        assert response.status == 200 and response.headers["ETag"] != etag


async def test_a_stale_if_match_is_refused(api: Client) -> None:
    path = f"/api/invoices/{await create_invoice(api)}"
    async with api.get(path) as response:
        headers = {"If-Match": response.headers["ETag"]}
    answers = await asyncio.gather(
        *[
            request_json(api, "PUT", path, json={"isReady": True}, headers=headers)
            for _ in range(10)
        ]
    )
    assert sorted(status for status, _ in answers) == [200] + [412] * 9
    await expect(api, 412, "DELETE", path, headers=headers)
    await expect(api, 200, "DELETE", path, headers={"If-Match": "*"})


async def test_a_stale_if_match_submits_and_cancels_nothing(api: Client) -> None:
    invoice_id = await create_invoice(api)
    path = f"/api/invoices/{invoice_id}"
    stale = {"If-Match": '"another"'}
    submit, cancel = f"{path}/submit-to-portal", f"{path}/cancel-latest-invoice-submitted"
    await expect(api, 412, "POST", submit, json={}, headers=stale)
    async with api.get(path) as response:
        headers = {"If-Match": response.headers["ETag"]}
    await expect(api, 200, "POST", submit, json={}, headers=headers)
    # What is done already needs no match.
    await expect(api, 200, "POST", submit, json={}, headers=headers)
    await expect(api, 412, "POST", cancel, json={}, headers=headers)
    await wait_until_status(api, invoice_id, "Valid")
    async with api.get(path) as response:
        headers = {"If-Match": response.headers["ETag"]}
    await expect(api, 200, "POST", cancel, json={}, headers=headers)


async def test_a_repeated_webhook_creation_shows_its_secret_once(
    start: StartService, owner: asyncpg.Connection
) -> None:
    api = await start(**GENEROUS)
    body = {"url": "http://127.0.0.1:9/hook"}
    status, first, _ = await post_once(api, "w", "/api/webhooks", **body)
    assert status == 201 and first["data"]["secret"].startswith("whsec_")
    status, second, is_replayed = await post_once(api, "w", "/api/webhooks", **body)
    assert (status, second["data"], is_replayed) == (201, {"id": first["data"]["id"]}, True)
    found = await owner.fetchval("select answer from idempotency_keys")
    assert first["data"]["secret"] not in found


async def test_every_record_has_an_etag_and_supports_if_match(start: StartService) -> None:
    api = await start(**GENEROUS)
    _, hook, _ = await post_once(api, "w", "/api/webhooks", url="http://127.0.0.1:9/hook")
    _, asked, _ = await post_once(
        api, "r", "/api/einvoice-requests", invoiceCode="1", type="LOCAL_INDIVIDUAL", name="A"
    )
    changes = {
        f"/api/webhooks/{hook['data']['id']}": {"description": "mine"},
        f"/api/einvoice-requests/{asked['data']['id']}": {"status": "Reject"},
        "/api/companies": {"city": "Ipoh"},
    }
    for path, change in changes.items():
        async with api.get(path) as response:
            etag = response.headers["ETag"]
        for status in (200, 412):
            await expect(api, status, "PUT", path, json=change, headers={"If-Match": etag})

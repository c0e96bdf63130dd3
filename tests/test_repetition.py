"""A request that is repeated, and a record that has changed meanwhile: Idempotency-Key, ETag, If-Match."""

import asyncio
from typing import Any

import asyncpg
import pytest
from conftest import make_company, until
from kit import GENEROUS, created, invoice, note, record, submitted, valid_invoice


async def post(api, key, path="/api/invoices", **body):
    async with api.post(path, json=body, headers={"Idempotency-Key": key}) as response:
        return response.status, await response.json(), response.headers.get("Idempotent-Replayed")


async def test_a_repeated_creation_gets_the_first_answer_and_makes_one_invoice(api):
    body = invoice()
    first = await post(api, "a", **body)
    assert first[0] == 201 and first[2] is None
    assert await post(api, "a", **body) == (*first[:2], "true")
    async with api.get("/api/invoices") as response:
        assert (await response.json())["meta"]["total"] == 1


async def test_fifty_repetitions_at_once_make_one_invoice(api):
    body = invoice()
    answers = await asyncio.gather(*[post(api, "a", **body) for _ in range(50)])
    assert {status for status, *_ in answers} <= {201, 409} and 201 in {
        status for status, *_ in answers
    }
    assert len({answer["data"]["id"] for status, answer, _ in answers if status == 201}) == 1


async def test_the_key_with_another_body_is_refused(api):
    await post(api, "a", **invoice())
    status, body, _ = await post(api, "a", **invoice())
    assert status == 422 and body["errors"][0]["path"] == "Idempotency-Key"


async def test_the_key_on_another_route_or_of_another_company_is_another_key(
    api, start, environment
):
    body = invoice()
    assert (await post(api, "a", **body))[0] == 201
    other = await start(await make_company(environment))
    assert (await post(other, "a", **body))[0] == 201
    id = await created(api)
    assert (await post(api, "a", f"/api/invoices/{id}/submit-to-portal"))[0] == 200


async def test_a_refusal_is_repeated_too_and_an_answer_that_passes_is_not(api, sandbox):
    status, first, _ = await post(api, "a", code=1)
    assert status == 422
    assert await post(api, "a", code=1) == (422, first, "true")
    async with api.post(
        "/api/invoices", data=b"{", headers={"Idempotency-Key": "b", "Content-Type": "text/plain"}
    ) as response:
        assert response.status == 415
    assert (await post(api, "b", **invoice()))[0] == 201


async def test_a_repeated_submit_and_a_repeated_note_get_the_first_answer(api, sandbox):
    id = await created(api)
    first = await post(api, "s", f"/api/invoices/{id}/submit-to-portal")
    assert await post(api, "s", f"/api/invoices/{id}/submit-to-portal") == (*first[:2], "true")
    await until(lambda: record(api, id), lambda found: found["status"] == "Valid")
    body = note()
    first = await post(api, "n", f"/api/invoices/{id}/adjustment-note", **body)
    assert first[0] == 201
    assert await post(api, "n", f"/api/invoices/{id}/adjustment-note", **body) == (
        *first[:2],
        "true",
    )


async def test_a_submit_that_sent_nothing_is_tried_again_with_its_key(api, sandbox):
    id = await created(api)
    path = f"/api/invoices/{id}/submit-to-portal"
    await sandbox.fault("submit", "throttle", retry_after=1)
    status, body, _ = await post(api, "s", path)
    assert (status, body["message"], body["retryable"]) == (
        400,
        "Failed to submit, please try again",
        True,
    )
    assert (await record(api, id))["status"] == "Draft"
    again = await until(lambda: post(api, "s", path), lambda answer: answer[0] == 200)
    assert again[2] is None
    assert await post(api, "s", path) == (*again[:2], "true")
    assert len(await sandbox.ledger()) == 1


async def test_a_submit_while_sending_is_held_is_tried_again_with_its_key(
    api, owner, company, sandbox
):
    id = await created(api)
    path = f"/api/invoices/{id}/submit-to-portal"
    await owner.execute(
        "insert into sending_holds (company_id, reason) values ($1, 'A test.')", company.id
    )
    status, body, _ = await post(api, "s", path)
    assert (status, body["errors"][0]["code"], body["retryable"]) == (400, "SendingHeld", True)
    await owner.execute("update sending_holds set released_at = now()")
    assert (await post(api, "s", path))[0::2] == (200, None)


async def test_a_submit_that_was_refused_is_replayed_for_its_key(api, sandbox):
    """By the checks of the service, and by the portal: the refusal is definite, the key's answer final."""
    old = await created(api, issueDateTime="2024-01-01T00:00:00Z")
    new = await created(api)
    await sandbox.fault("submit", "refuse", status=400, code="BadStructure")
    for id in (old, new):
        first = await post(api, str(id), f"/api/invoices/{id}/submit-to-portal")
        assert first[0] == 400 and first[1]["errors"] and first[1]["retryable"] is False
        assert await post(api, str(id), f"/api/invoices/{id}/submit-to-portal") == (
            *first[:2],
            "true",
        )
    assert not await sandbox.ledger()


async def test_a_submit_of_unknown_outcome_joins_its_attempt_with_its_key(api, sandbox):
    id = await created(api)
    path = f"/api/invoices/{id}/submit-to-portal"
    await sandbox.fault("submit", "accept_then_drop")
    status, body, _ = await post(api, "s", path)
    assert (status, body["errors"][0]["code"], body["retryable"]) == (400, "OutcomeUnknown", True)
    again = await until(lambda: post(api, "s", path), lambda answer: answer[0] == 200)
    assert again[2] is None and len(await sandbox.ledger()) == 1


async def test_a_cancel_that_failed_is_tried_again_with_its_key(api, sandbox):
    id = await valid_invoice(api)
    path = f"/api/invoices/{id}/cancel-latest-invoice-submitted"
    await sandbox.fault("state", "drop", times=2)  # aiohttp repeats a PUT once by itself
    status, body, _ = await post(api, "c", path)
    assert (status, body["message"]) == (400, "Cancellation failed, please try again.")
    again = await until(lambda: post(api, "c", path), lambda answer: answer[0] == 200)
    assert again[2] is None
    assert await post(api, "c", path) == (*again[:2], "true")


async def test_a_cancel_that_the_authority_refused_is_replayed_for_its_key(api, sandbox):
    await sandbox.settings(stuck=True)
    id = await created(api)
    await submitted(api, id)
    path = f"/api/invoices/{id}/cancel-latest-invoice-submitted"
    first = await post(api, "c", path)
    assert (first[0], first[1]["code"]) == (400, "IncorrectState")
    await sandbox.settings(stuck=False)
    await until(lambda: record(api, id), lambda found: found["status"] == "Valid")
    assert await post(api, "c", path) == (*first[:2], "true")


async def test_an_answer_is_kept_with_its_effect(api, owner):
    """What a crash after the commit would leave: the creation's answer stands although nobody got it."""
    body = invoice()
    first = await post(api, "a", **body)
    assert await owner.fetchval("select status from idempotency_keys") == 201
    await owner.execute(
        "update idempotency_keys set lease_until = clock_timestamp() - interval '1 hour'"
    )
    assert await post(api, "a", **body) == (*first[:2], "true")


async def test_an_answer_is_stored_in_the_transaction_of_its_effect(
    api: Any, owner: asyncpg.Connection
) -> None:
    """Any other transaction that would store it fails."""
    await owner.execute(
        """
        create function refuse() returns trigger language plpgsql as $$
        begin
          if not exists (select from invoices where xmin = pg_current_xact_id()::xid) then
            raise exception 'told to fail' using errcode = '53100';
          end if;
          return new;
        end $$;
        create trigger refusing before update of status on idempotency_keys for each row execute function refuse();
        """
    )
    body = invoice()
    first = await post(api, "a", **body)
    assert first[0] == 201
    assert await owner.fetchval("select status from idempotency_keys") == 201
    assert await post(api, "a", **body) == (*first[:2], "true")


async def test_a_key_whose_request_died_is_taken_over(api, owner):
    body = invoice()
    await post(api, "a", **body)
    await owner.execute("update idempotency_keys set status = null, answer = null")
    assert (await post(api, "a", **body))[0] == 409
    await owner.execute(
        "update idempotency_keys set lease_until = clock_timestamp() - interval '1 second'"
    )
    status, answer, _ = await post(api, "a", **body)
    assert status == 422 and answer["errors"][0]["rule"] == "unique"


async def test_after_72_hours_the_key_is_free(api, owner):
    await post(api, "a", **invoice())
    await owner.execute("update idempotency_keys set created_at = created_at - interval '73 hours'")
    assert (await post(api, "a", **invoice()))[0::2] == (201, None)


@pytest.mark.parametrize("key", ["x" * 256, "tab\tin"])
async def test_a_key_that_is_none_is_refused(api, key):
    async with api.post(
        "/api/invoices", json=invoice(), headers={"Idempotency-Key": key}
    ) as response:
        assert response.status == 400


@pytest.mark.parametrize("id", ["9" * 7000, "%00", "%F0%9F%92%A9"])
async def test_a_key_with_an_id_that_cannot_be_is_a_404_like_any(api, id):
    for key in ("one", "one"):
        status, body, _ = await post(api, key, f"/api/invoices/{id}/submit-to-portal")
        assert (status, body) == (404, {"message": "Invoice not found"})


async def test_a_record_that_is_known_is_not_sent_again(api):
    id = await created(api)
    async with api.get(f"/api/invoices/{id}") as response:
        etag = response.headers["ETag"]
    async with api.get(f"/api/invoices/{id}", headers={"If-None-Match": etag}) as response:
        assert response.status == 304 and not await response.read()
    async with api.put(
        f"/api/invoices/{id}", json={"isReady": True}, headers={"If-Match": etag}
    ) as response:
        assert response.status == 200
    async with api.get(f"/api/invoices/{id}", headers={"If-None-Match": etag}) as response:
        assert response.status == 200 and response.headers["ETag"] != etag


async def test_a_change_to_what_has_changed_is_refused(api):
    id = await created(api)
    async with api.get(f"/api/invoices/{id}") as response:
        etag = response.headers["ETag"]
    changes = [
        api.put(f"/api/invoices/{id}", json={"isReady": True}, headers={"If-Match": etag})
        for _ in range(10)
    ]
    assert (
        sorted(response.status for response in await asyncio.gather(*changes)) == [200] + [412] * 9
    )
    async with api.delete(f"/api/invoices/{id}", headers={"If-Match": etag}) as response:
        assert response.status == 412 and "message" in await response.json()
    async with api.delete(f"/api/invoices/{id}", headers={"If-Match": "*"}) as response:
        assert response.status == 200


async def test_a_repeated_webhook_is_one_and_its_secret_is_shown_once(start, company, owner):
    api = await start(company, **GENEROUS)
    body = {"url": "http://127.0.0.1:9/hook"}
    status, first, _ = await post(api, "w", "/api/webhooks", **body)
    assert status == 201 and first["data"]["secret"].startswith("whsec_")
    status, second, replayed = await post(api, "w", "/api/webhooks", **body)
    assert (status, second["data"], replayed) == (201, {"id": first["data"]["id"]}, "true")
    assert first["data"]["secret"] not in await owner.fetchval(
        "select answer from idempotency_keys"
    )


async def test_every_single_record_has_an_etag_and_its_change_may_depend_on_it(start, company):
    api = await start(company, **GENEROUS)
    _, hook, _ = await post(api, "w", "/api/webhooks", url="http://127.0.0.1:9/hook")
    _, asked, _ = await post(
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
            async with api.put(path, json=change, headers={"If-Match": etag}) as response:
                assert response.status == status, (path, await response.text())

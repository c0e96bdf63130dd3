"""From a draft to Valid: what a caller sees, and what stands in the database and at the portal."""

import asyncio
import base64
import hashlib
import json

import pytest
from conftest import make_company, until
from kit import (
    buyer,
    created,
    documents,
    invoice,
    line,
    now,
    reaches,
    record,
    submitted,
    valid_invoice,
)

from service.submission import state_machine

FAILED = "Failed to submit, please try again"
DONE = {"success": True, "message": "The invoice has been submitted to the portal."}
AGAIN = {"success": True, "message": "The invoice has already been submitted to the portal."}

#: A buyer whose registration number is not that of the TIN: the portal finds the document Invalid.
STRANGER = buyer(
    type="LOCAL_COMPANY", tin="C5510387420", registration={"type": "BRN", "number": "199901012345"}
)
SELLER = buyer(
    type="FOREIGN_COMPANY",
    name="Foshan Timber Export Co. Ltd.",
    registration=None,
    address={"line1": "88 Huanshi Road", "city": "Foshan", "state": "17", "country": "CHN"},
)


async def test_a_submitted_invoice_becomes_valid_with_its_link(api, sandbox):
    id = await created(api)
    assert await submitted(api, id) == (200, DONE)
    found = await reaches(api, id, "Valid")
    assert found["is_submitted_to_portal"] is True
    (document,) = await documents(api, id)
    assert document["status"] == "Valid" and document["errors"] == []
    async with sandbox.client.get(document["validation_link"].removeprefix(sandbox.base)) as page:
        assert page.status == 200


async def test_a_self_billed_invoice_becomes_valid(api):
    seller = {name: member for name, member in SELLER.items() if member is not None}
    await valid_invoice(api, type="SELF_BILLED_INVOICE", buyer=None, supplier=seller)


async def test_the_bytes_that_were_sent_are_the_frozen_ones(api, owner, sandbox):
    id = await valid_invoice(api)
    body = json.loads(await owner.fetchval("select body from submissions"))
    content = base64.b64decode(body["documents"][0]["document"])
    (listed,) = await sandbox.ledger()
    (document,) = await documents(api, id)
    assert hashlib.sha256(content).hexdigest() == document["document_hash"] == listed["sha256"]


async def test_submitting_what_is_submitted_answers_success_and_sends_nothing(api, sandbox):
    id = await valid_invoice(api)
    assert await submitted(api, id) == (200, AGAIN)
    assert len(await sandbox.ledger()) == 1


async def test_an_invoice_that_the_portal_finds_invalid_shows_the_reasons(api):
    id = await created(api, buyer=STRANGER)
    assert (await submitted(api, id))[0] == 200
    await reaches(api, id, "Invalid")
    (document,) = await documents(api, id)
    assert [error["code"] for error in document["errors"]] == ["ERR206"]


async def test_an_invalid_invoice_can_be_mended_and_sent_again(api, sandbox):
    id = await created(api, buyer=STRANGER)
    await submitted(api, id)
    await reaches(api, id, "Invalid")
    async with api.put(f"/api/invoices/{id}", json={"buyer": buyer()}) as response:
        assert response.status == 200, await response.text()
    assert (await submitted(api, id))[0] == 200
    await reaches(api, id, "Valid")
    assert [document["status"] for document in await documents(api, id)] == ["Valid", "Invalid"]


async def test_a_refusal_at_once_leaves_a_draft_and_names_the_portals_reasons(api, sandbox):
    await sandbox.fault("submit", "foreign")
    id = await created(api)
    status, body = await submitted(api, id)
    assert status == 400 and body["message"] == FAILED
    assert body["errors"] and all(
        set(error) == {"code", "path", "message"} for error in body["errors"]
    )
    assert (await record(api, id))["status"] == "Draft"
    assert (await documents(api, id))[0]["status"] == "Rejected"


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
async def test_what_cannot_be_sent_is_refused_before_the_portal_is_asked(
    api, sandbox, changes, path
):
    id = await created(api, **changes)
    status, body = await submitted(api, id)
    assert status == 400 and body["message"] == FAILED
    assert path in [error["path"] for error in body["errors"]]
    assert await documents(api, id) == []
    assert not await sandbox.ledger()


async def test_a_company_that_lacks_facts_of_an_issuer_is_told_which(environment, start):
    bare = await make_company(environment, msic_code=None, phone=None)
    api = await start(bare)
    status, body = await submitted(api, await created(api))
    assert status == 400
    assert {"/company/msic_code", "/company/phone"} <= {error["path"] for error in body["errors"]}


async def test_each_attempt_has_its_own_issue_time(api, sandbox):
    id = await created(api)
    await sandbox.fault("submit", "foreign")
    await submitted(api, id)
    await submitted(api, id)
    await reaches(api, id, "Valid")
    issue_date = (await record(api, id))["issue_date"]
    (listed,) = await sandbox.ledger()
    assert listed["issuedAt"][:17] == issue_date[:17] and listed["issuedAt"][:19] != issue_date[:19]


async def test_fifty_submits_at_once_send_one_document(api, sandbox):
    id = await created(api)
    answers = await asyncio.gather(*[submitted(api, id) for _ in range(50)])
    assert {status for status, _ in answers} == {200}
    await reaches(api, id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_fifty_submits_to_two_services_send_one_document(api, start, company, sandbox):
    other = await start(company)
    id = await created(api)
    answers = await asyncio.gather(*[submitted(each, id) for each in [api, other] * 25])
    assert {status for status, _ in answers} == {200}
    await reaches(api, id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_submit_immediately_answers_how_it_went(api):
    async with api.post("/api/invoices", json=invoice(submitImmediately=True)) as response:
        body = await response.json()
    assert response.status == 201 and body["data"]["status"] == "Submitted"
    await reaches(api, body["data"]["id"], "Valid")


async def test_a_creation_does_not_fail_with_its_submission(api):
    async with api.post(
        "/api/invoices", json=invoice(submitImmediately=True, issueDateTime=now(hours=80))
    ) as response:
        body = await response.json()
    assert response.status == 201
    assert body["data"]["status"] == "Draft" and body["data"]["errors"][0]["code"] == "CF321"


@pytest.mark.parametrize("kind", ["throttle", "drop", "error_before"])
async def test_submit_immediately_is_tried_again_after_a_passing_failure(api, sandbox, kind):
    await sandbox.fault("submit", kind, **({"retry_after": 1} if kind == "throttle" else {}))
    async with api.post("/api/invoices", json=invoice(submitImmediately=True)) as response:
        body = await response.json()
    assert response.status == 201 and body["data"]["status"] == "Submitting", body
    await until(lambda: record(api, body["data"]["id"]), lambda found: found["status"] == "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_a_ready_invoice_of_a_company_that_submits_automatically_is_submitted(
    api, owner, sandbox
):
    await owner.execute(
        """update companies set setting = setting || '{"AUTO_SUBMIT_INVOICE": true}'"""
    )
    waiting = await created(api)
    async with api.put(f"/api/invoices/{waiting}", json={"isReady": True}) as response:
        assert response.status == 200
    ready = await created(api, isReady=True)
    for id in (waiting, ready):
        await until(lambda id=id: record(api, id), lambda found: found["status"] == "Valid")
    assert (await record(api, await created(api)))["status"] == "Draft"
    assert len(await sandbox.ledger()) == 2


async def test_a_ready_invoice_is_not_submitted_where_the_setting_is_off(api):
    id = await created(api, isReady=True)
    found = await record(api, id)
    assert found["is_ready"] is True and found["status"] == "Draft"


async def test_events_tell_the_story_in_order(api, owner):
    await valid_invoice(api)
    types = await owner.fetch("select type from events order by id")
    assert [row["type"] for row in types] == [
        "invoice.created",
        "invoice.submitting",
        "invoice.submitted",
        "invoice.valid",
    ]


async def test_submitted_documents_of_another_invoice_are_not_found(api):
    id, other = await valid_invoice(api), await created(api)
    (document,) = await documents(api, id)
    async with api.get(f"/api/invoices/{id}/submitted-documents/{document['id']}") as response:
        assert await response.json() == document
    async with api.get(f"/api/invoices/{other}/submitted-documents/{document['id']}") as response:
        assert response.status == 404 and await response.json() == {
            "message": "Submitted document not found"
        }


async def test_a_client_that_goes_away_finds_the_outcome_later(api, sandbox):
    await sandbox.fault("submit", "slow", seconds=0.5)
    id = await created(api)
    request = asyncio.create_task(submitted(api, id))
    await until(sandbox.ledger)
    request.cancel()
    await reaches(api, id, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_an_update_is_in_the_bytes_that_are_sent_or_it_is_refused(api, owner):
    for _ in range(10):
        id = await created(api)
        change = api.put(f"/api/invoices/{id}", json={"buyer": buyer(name="Somebody Else")})
        (status, _), response = await asyncio.gather(submitted(api, id), change)
        assert (status, response.status) in ((200, 200), (200, 403))
        body = await owner.fetchval("select body from submissions order by id desc limit 1")
        (entry,) = json.loads(body)["documents"]
        assert (b"Somebody Else" in base64.b64decode(entry["document"])) == (response.status == 200)


async def test_of_a_deletion_and_a_submit_one_comes_first(api, sandbox):
    deleted = 0
    for _ in range(10):
        id = await created(api)
        (status, _), response = await asyncio.gather(
            submitted(api, id), api.delete(f"/api/invoices/{id}")
        )
        assert (status, response.status) in ((404, 200), (200, 403))
        deleted += status == 404
    assert len(await sandbox.ledger()) == 10 - deleted


async def test_what_ends_every_process_that_takes_it_up_goes_to_a_person_and_holds_up_nobody(
    api, owner, sandbox
):
    """Claimed again and again without a result, as by processes that it kills."""
    await sandbox.fault("submit", "accept_then_drop")
    id = await created(api)
    await submitted(api, id)
    uncertain = "state = 'Uncertain', lease_until = null, not_before = now()"
    await owner.execute(f"update submissions set claims = {state_machine.MOST_CLAIMS}, {uncertain}")
    await until(lambda: owner.fetchval("select state = 'NeedsPerson' from submissions"))
    assert (await record(api, id))["status"] == "Submitting"
    assert (await submitted(api, await created(api)))[0] == 200

"""E-invoice requests: record, states, and approval of an invoice. Spec: E-invoice requests."""

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.api.test_companies import SETTING
from tests.api_invoices import create_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_status
from tests.api_requests import Answer, expect, list_rules, not_found, request_json
from tests.conftest import Client, Company, Sandbox
from tests.harness.bodies import AS_SUPPLIER, buyer, line, now

STATES = ("Pending", "Approve", "Reject")


#: A taxpayer that is registered in the sandbox.
AMINAH = buyer(
    tin="IG40125678090",
    registration={"type": "NRIC", "number": "880214145566"},
    email="aminah@example.my",
)


def request_body(**changes: Any) -> dict[str, Any]:
    """Return the body of a request for the invoice with code 1."""
    return {"invoiceCode": "1", **AMINAH, **changes}


async def create_request(api: Client, **changes: Any) -> int:
    """Create a request and return its id."""
    body = await expect(api, 201, "POST", "/api/einvoice-requests", json=request_body(**changes))
    return body["data"]["id"]


async def get_request(api: Client, request_id: int) -> dict[str, Any]:
    return await expect(api, 200, "GET", f"/api/einvoice-requests/{request_id}")


async def put(api: Client, request_id: int, **changes: Any) -> tuple[int, Any]:
    return await request_json(api, "PUT", f"/api/einvoice-requests/{request_id}", json=changes)


def updated(request_id: int) -> Answer:
    """Return the answer to an update that finalises no invoice."""
    message = "E-invoice request updated."
    return 200, {"success": True, "message": message, "data": {"id": request_id}}


async def approve(api: Client, request_id: int, **changes: Any) -> dict[str, Any]:
    """Approve a request and return the response body."""
    status, body = await put(api, request_id, status="Approve", **changes)
    assert status == 200, body
    return body


async def create_pending_invoice(api: Client, **changes: Any) -> int:
    """Create an invoice that waits for its buyer, and return its id."""
    return await create_invoice(
        api, **{"type": "PENDING_FINALIZE_INVOICE", "code": 1, "buyer": None, **changes}
    )


async def count_updates(owner: asyncpg.Connection, invoice: int) -> Any:
    """Return how often an invoice was updated."""
    return await owner.fetchval(
        """
                select count(*) from events
                 where type = 'invoice.updated' and (data ->> 'invoice_id')::bigint = $1
                """,
        invoice,
    )


# The record


@pytest.mark.own_service
async def test_new_request_is_pending_with_the_specified_members(
    api: Client, company: Company
) -> None:
    body = await expect(api, 201, "POST", "/api/einvoice-requests", json=request_body())
    assert body == {
        "success": True,
        "message": "E-invoice request created.",
        "data": {"id": body["data"]["id"]},
    }
    found = await get_request(api, body["data"]["id"])
    assert found["company_id"] == company.id
    assert (found["invoice_code"], found["status"]) == ("1", "Pending")
    details = {"buyer": AMINAH, "supplier": AS_SUPPLIER, "invoice_code": "1"}
    assert found["document_details"] == details
    assert found["created_at"].endswith("+00:00")


async def test_unspecified_address_members_are_kept_exactly(api: Client) -> None:
    raw = (
        b'{"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "A", '
        b'"address": {"line1": "x", "floor": 0.10}}'
    )
    headers = {"Content-Type": "application/json"}
    _, body = await request_json(api, "POST", "/api/einvoice-requests", data=raw, headers=headers)
    async with api.get(f"/api/einvoice-requests/{body['data']['id']}") as response:
        assert '"floor": 0.10' in await response.text()


@pytest.mark.parametrize(
    "changes, path, rule",
    [
        ({"invoiceCode": None}, "/invoiceCode", "type"),
        ({"type": "PERSON"}, "/type", "code"),
        ({"registration": {"type": "IC", "number": "1"}}, "/registration/type", "code"),
        ({"address": {"state": "Selangor", "country": "MYS"}}, "/address/state", "code"),
        ({"address": {"country": "Malaysia"}}, "/address/country", "code"),
    ],
)
async def test_invalid_body_is_rejected_at_creation_and_update(
    api: Client, changes: dict[str, Any], path: str, rule: str
) -> None:
    request_id = await create_request(api)
    for status, body in (
        await request_json(api, "POST", "/api/einvoice-requests", json=request_body(**changes)),
        await put(api, request_id, **changes),
    ):
        assert (status, set(body)) == (422, {"message", "code", "errors"})
        assert (body["code"], list_rules(body)) == ("validation_failed", [(path, rule)])


# Update and delete


async def test_update_changes_only_the_sent_fields(api: Client) -> None:
    request_id = await create_request(api)
    before = await get_request(api, request_id)
    address = {**AMINAH["address"], "city": "Ipoh", "state": "08", "zipCode": "30000"}
    answer = await put(api, request_id, name="Aminah binti Salim", invoiceCode="2", address=address)
    assert answer == updated(request_id)
    found = await get_request(api, request_id)
    was = before["document_details"]["buyer"]
    assert found["document_details"]["buyer"] == {
        **was,
        "name": "Aminah binti Salim",
        "address": address,
    }
    assert found["invoice_code"] == "2"
    assert (found["document_details"]["invoice_code"], found["status"]) == ("2", "Pending")
    assert (await put(api, request_id))[0] == 200


async def test_deleted_request_is_a_404_and_its_row_is_kept(
    api: Client, owner: asyncpg.Connection
) -> None:
    request_id = await create_request(api)
    answer = await request_json(api, "DELETE", f"/api/einvoice-requests/{request_id}")
    assert answer == (200, {"success": True, "message": "E-invoice request deleted."})
    gone = not_found("E-invoice request")
    for method in ("GET", "DELETE"):
        assert await request_json(api, method, f"/api/einvoice-requests/{request_id}") == gone
    assert await put(api, request_id, status="Approve") == gone
    assert (
        await owner.fetchval("select count(*) from einvoice_requests where deleted_at is not null")
        == 1
    )


async def test_each_change_records_an_event(api: Client, owner: asyncpg.Connection) -> None:
    request_id = await create_request(api)
    await put(api, request_id, status="Reject")
    await request_json(api, "DELETE", f"/api/einvoice-requests/{request_id}")
    rows = await owner.fetch(
        "select type, data ->> 'einvoice_request_id' as id from events order by id"
    )
    assert [row["type"] for row in rows] == [
        f"einvoice_request.{name}" for name in ("created", "updated", "deleted")
    ]
    assert {row["id"] for row in rows} == {str(request_id)}


# The list


async def test_list_is_newest_first_without_deleted_requests(api: Client, stranger: Client) -> None:
    await create_request(stranger)
    ids = [await create_request(api) for _ in range(4)]
    await expect(api, 200, "DELETE", f"/api/einvoice-requests/{ids.pop(-2)}")
    body = await expect(api, 200, "GET", "/api/einvoice-requests?per_page=2")
    assert [found["id"] for found in body["data"]] == ids[:0:-1]
    assert (body["meta"]["total"], body["meta"]["last_page"]) == (3, 2)
    assert body["data"][0] == await get_request(api, ids[-1])
    body = await expect(api, 200, "GET", "/api/einvoice-requests")
    assert [found["id"] for found in body["data"]] == ids[::-1]


async def test_list_is_filtered_by_status_and_query(api: Client) -> None:
    first = await create_request(api, invoiceCode="INV-00007")
    second = await create_request(api, name="Tan Wei Ming")
    await put(api, second, status="Reject")
    for query, ids in (
        ("status=Pending", [first]),
        ("status=Reject", [second]),
        ("status=Approve", []),
        ("query=inv-00007", [first]),
        ("query=wei", [second]),
        ("query=wei&status=Pending", []),
        ("sort=id", [first, second]),
    ):
        _, body = await request_json(api, "GET", f"/api/einvoice-requests?{query}")
        assert ([found["id"] for found in body["data"]], body["meta"]["total"]) == (
            ids,
            len(ids),
        ), query
    for query in ("status=Approved", "page=0", "per_page=101", "sort=name"):
        await expect(api, 422, "GET", f"/api/einvoice-requests?{query}")


# Approval


@pytest.mark.parametrize("name", ["1", "INV-00001"])
async def test_approval_sets_the_buyer_of_the_named_invoice(api: Client, name: str) -> None:
    invoice = await create_pending_invoice(api)
    request_id = await create_request(api, invoiceCode=name)
    answer = await approve(api, request_id)
    assert answer["message"] == "E-invoice request updated. The invoice has been finalized."
    assert answer["data"] == {"id": request_id, "invoice": {"id": invoice}}
    found = await get_invoice(api, invoice)
    assert (found["type"], found["status"]) == ("INVOICE", "Draft")
    assert found["buyer"] == (await get_request(api, request_id))["document_details"]["buyer"]
    assert (await get_request(api, request_id))["invoice_id"] == invoice


@pytest.mark.parametrize("name", ["1", "SB-00001"])
async def test_approval_sets_the_supplier_of_a_self_billed_invoice(api: Client, name: str) -> None:
    invoice = await create_pending_invoice(api, type="PENDING_FINALIZE_SELF_BILLED_INVOICE")
    await approve(api, await create_request(api, invoiceCode=name))
    found = await get_invoice(api, invoice)
    assert found["type"] == "SELF_BILLED_INVOICE"
    assert found["supplier"]["name"] == "Aminah binti Salleh"
    _, company = await request_json(api, "GET", "/api/companies")
    assert found["buyer"] == company["data"]["as_buyer"]


@pytest.mark.parametrize(
    "name", ["2", "01", "00001", "INV-1", "inv-00001", "SB-00001", "9" * 40, "no digits"]
)
async def test_approval_without_a_pending_invoice_changes_only_the_request(
    api: Client, name: str
) -> None:
    invoice = await create_pending_invoice(api)
    answer = await approve(api, await create_request(api, invoiceCode=name))
    assert answer["message"] == "E-invoice request updated." and "invoice" not in answer["data"]
    assert (await get_invoice(api, invoice))["type"] == "PENDING_FINALIZE_INVOICE"


async def test_prefix_that_ends_in_digits_is_separated_from_the_code(api: Client) -> None:
    setting = {**SETTING, "INVOICE_PREFIX": "A2026", "PREFIX_DIGIT_COUNT": 3}
    await expect(api, 200, "PUT", "/api/companies", json={"setting": setting})
    invoice = await create_pending_invoice(api, code=17)
    await approve(api, await create_request(api, invoiceCode="A2026017"))
    assert (await get_invoice(api, invoice))["type"] == "INVOICE"


async def test_approval_does_not_change_a_final_invoice(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice = await create_invoice(api, code=1)
    await approve(api, await create_request(api, name="Somebody else"))
    assert (await get_invoice(api, invoice))["buyer"] == buyer()
    assert await count_updates(owner, invoice) == 0


async def test_only_an_approval_finalises_an_own_existing_invoice(
    api: Client, stranger: Client
) -> None:
    theirs, mine, gone = (
        await create_pending_invoice(stranger),
        await create_pending_invoice(api),
        await create_pending_invoice(api, code=2),
    )
    await request_json(api, "DELETE", f"/api/invoices/{gone}")
    for status in ("Reject", "Pending"):
        assert (await put(api, await create_request(api), status=status))[0] == 200
    await approve(api, await create_request(api, invoiceCode="2"))
    assert (await get_invoice(api, mine))["type"] == "PENDING_FINALIZE_INVOICE"
    await approve(api, await create_request(api))
    assert (await get_invoice(api, mine))["type"] == "INVOICE"
    assert (await get_invoice(stranger, theirs))["type"] == "PENDING_FINALIZE_INVOICE"


async def test_approval_uses_the_values_of_its_own_update(api: Client) -> None:
    invoice = await create_pending_invoice(api, code=2)
    await approve(api, await create_request(api), invoiceCode="2", name="Tan Wei Ming")
    assert (await get_invoice(api, invoice))["buyer"]["name"] == "Tan Wei Ming"


async def test_repeated_approval_finalises_no_other_invoice(api: Client) -> None:
    older = await create_pending_invoice(api, issueDateTime=now(days=400))
    request_id = await create_request(api)
    await approve(api, request_id)
    assert (await get_invoice(api, older))["type"] == "INVOICE"
    newer = await create_pending_invoice(api)
    await approve(api, request_id)
    assert (await get_invoice(api, newer))["type"] == "PENDING_FINALIZE_INVOICE"


@pytest.mark.parametrize("reopened", [True, False])
async def test_approval_after_the_deletion_of_its_invoice_finalises_the_next(
    api: Client, reopened: bool
) -> None:
    deleted = await create_pending_invoice(api)
    request_id = await create_request(api)
    await approve(api, request_id)
    await expect(api, 200, "DELETE", f"/api/invoices/{deleted}")
    newer = await create_pending_invoice(api)
    if reopened:
        assert (await put(api, request_id, status="Pending"))[0] == 200
    await approve(api, request_id)
    assert (await get_invoice(api, newer))["type"] == "INVOICE"
    assert (await get_request(api, request_id))["invoice_id"] == newer


async def test_approval_for_an_invoice_without_requester_is_no_conflict_with_an_older_one(
    api: Client,
) -> None:
    await create_pending_invoice(api, issueDateTime=now(days=400))
    await approve(api, await create_request(api))
    await create_invoice(api, code=1)
    answer = await approve(api, await create_request(api, name="Tan Wei Ming"))
    assert "invoice" not in answer["data"]


async def test_approval_with_an_ambiguous_code_is_a_conflict(api: Client) -> None:
    invoices = [
        await create_pending_invoice(api),
        await create_pending_invoice(api, issueDateTime=now(days=400)),
    ]
    request_id = await create_request(api)
    status, body = await put(api, request_id, status="Approve")
    assert (status, set(body), body["code"]) == (409, {"message", "code"}, "ambiguous_code")
    assert (await get_request(api, request_id))["status"] == "Pending"
    expected = {"PENDING_FINALIZE_INVOICE"}
    assert {(await get_invoice(api, invoice))["type"] for invoice in invoices} == expected


async def test_approval_of_a_consolidated_sale_is_a_conflict(
    api: Client, owner: asyncpg.Connection, company: Company
) -> None:
    invoice = await create_pending_invoice(api)
    await owner.execute(
        """
        with consolidated as (
            insert into documents (
                company_id, kind, code, code_year, type, issue_date, month, invoice_ids,
                line_items, net_amount, excluding_tax, including_tax, payable_amount, bytes,
                optional_members)
            values ($1, 'consolidated_invoice', 1, 2026, 'CONSOLIDATED_INVOICE', now(),
                '2026-01-01', '{}', '[]', 0, 0, 0, 0, 0, '"payment":null')
            returning id)
        update documents set consolidated_invoice_id = consolidated.id
          from consolidated where documents.id = $2
        """,
        company.id,
        invoice,
    )
    request_id = await create_request(api)
    status, body = await put(api, request_id, status="Approve")
    assert (status, set(body)) == (409, {"message", "code"}) and "consolidated" in body["message"]
    assert body["code"] == "in_consolidated_invoice"
    assert (await get_request(api, request_id))["status"] == "Pending"
    assert (await get_invoice(api, invoice))["buyer"] is None


async def test_approval_of_another_request_for_a_finalised_invoice_is_a_conflict(
    api: Client,
) -> None:
    """Also after the first request has been reopened or deleted."""
    invoice = await create_pending_invoice(api)
    first = await create_request(api)
    await approve(api, first)
    second = await create_request(api, invoiceCode="INV-00001", name="Tan Wei Ming")
    expected = {
        "message": "The invoice already has the buyer of another request. "
        "Change the invoice instead.",
        "code": "invoice_has_buyer",
    }
    assert await put(api, second, status="Approve") == (409, expected)
    assert (await put(api, first, status="Pending"))[0] == 200
    assert await put(api, second, status="Approve") == (409, expected)
    await request_json(api, "DELETE", f"/api/einvoice-requests/{first}")
    assert await put(api, second, status="Approve", name="Siti") == (409, expected)
    found = await get_request(api, second)
    assert found["status"] == "Pending"
    assert found["document_details"]["buyer"]["name"] == "Tan Wei Ming"
    assert (await get_invoice(api, invoice))["buyer"]["name"] == "Aminah binti Salleh"


async def test_approval_rejects_other_pending_requests_for_the_invoice(
    api: Client, owner: asyncpg.Connection, stranger: Client
) -> None:
    theirs = await create_request(stranger)
    await create_pending_invoice(api)
    others = [await create_request(api, invoiceCode=name) for name in ("1", "INV-00001")]
    approved = await create_request(api, invoiceCode="2")
    await approve(api, approved)
    kept = [await create_request(api, invoiceCode=name) for name in ("2", "INV-1", "SB-00001")]
    await approve(api, await create_request(api))
    assert [(await get_request(api, each))["status"] for each in others] == ["Reject"] * 2
    assert [(await get_request(api, each))["status"] for each in kept] == ["Pending"] * 3
    assert (await get_request(api, approved))["status"] == "Approve"
    assert (await get_request(stranger, theirs))["status"] == "Pending"
    rows = await owner.fetch("select data from events where data ->> 'status' = 'Reject'")
    assert len(rows) == 2


async def test_approval_keeps_requests_that_name_another_pending_invoice(api: Client) -> None:
    """The text 17 is the full code of one invoice, and the code of another."""
    setting = {**SETTING, "INVOICE_PREFIX": "1", "PREFIX_DIGIT_COUNT": 0}
    await expect(api, 200, "PUT", "/api/companies", json={"setting": setting})
    seventh = await create_pending_invoice(api, code=7)
    await create_pending_invoice(api, code=17)
    kept = await create_request(api, invoiceCode="17")
    await approve(api, await create_request(api, invoiceCode="7"))
    assert (await get_invoice(api, seventh))["type"] == "INVOICE"
    assert (await get_request(api, kept))["status"] == "Pending"


async def test_repeated_approval_changes_nothing(api: Client, owner: asyncpg.Connection) -> None:
    invoice = await create_pending_invoice(api)
    request_id = await create_request(api)
    await approve(api, request_id)
    before = await get_request(api, request_id), await get_invoice(api, invoice)
    events = await owner.fetchval("select max(id) from events")
    assert await put(api, request_id, status="Approve") == updated(request_id)
    assert (await get_request(api, request_id), await get_invoice(api, invoice)) == before
    assert await owner.fetchval("select max(id) from events") == events


async def test_an_approved_request_keeps_its_invoice_under_another_code(api: Client) -> None:
    await create_pending_invoice(api)
    first, second = [await create_request(api) for _ in range(2)]
    await approve(api, first)
    await put(api, first, invoiceCode="A-00001")
    path = f"/api/einvoice-requests/{second}"
    answer = await expect(api, 409, "PUT", path, json={"status": "Approve"})
    assert answer["code"] == "invoice_has_buyer"


# Automatic submission


@pytest.fixture
async def submitting(api: Client) -> Client:
    """Return a client of a company that submits automatically."""
    setting = {**SETTING, "AUTO_SUBMIT_INVOICE": True}
    await expect(api, 200, "PUT", "/api/companies", json={"setting": setting})
    return api


async def test_ready_invoice_is_submitted_after_approval(
    submitting: Client, sandbox: Sandbox
) -> None:
    invoice = await create_pending_invoice(submitting, isReady=True)
    assert (await get_documents(submitting, invoice)) == []
    answer = await approve(submitting, await create_request(submitting))
    assert answer["message"].endswith(
        "The invoice has been finalized. It will be submitted to the portal."
    )
    assert answer["data"]["invoice"] == {"id": invoice, "status": "Submitting"}
    await wait_for_status(submitting, invoice, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_invoice_that_is_not_ready_is_not_submitted(submitting: Client) -> None:
    invoice = await create_pending_invoice(submitting)
    answer = await approve(submitting, await create_request(submitting))
    assert answer["data"]["invoice"] == {"id": invoice}
    assert (await get_invoice(submitting, invoice))["status"] == "Draft"


async def test_approval_is_kept_when_the_submission_fails(submitting: Client) -> None:
    invoice = await create_pending_invoice(submitting, isReady=True)
    request_id = await create_request(submitting, address={"line1": "x"})
    answer = await approve(submitting, request_id)
    assert answer["message"].endswith("It could not be submitted, see errors.")
    assert answer["data"]["invoice"]["status"] == "Draft" and answer["data"]["invoice"]["errors"]
    assert (await get_invoice(submitting, invoice))["type"] == "INVOICE"
    assert (await get_request(submitting, request_id))["status"] == "Approve"


# Races


async def test_concurrent_approvals_finalise_once(
    submitting: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    for code in range(1, 6):
        invoice = await create_pending_invoice(submitting, code=code, isReady=True)
        request_id = await create_request(submitting, invoiceCode=str(code))
        answers = await asyncio.gather(
            *[put(submitting, request_id, status="Approve") for _ in range(3)]
        )
        assert [status for status, _ in answers] == [200] * 3
        assert sum("invoice" in body["data"] for _, body in answers) == 1
        assert await count_updates(owner, invoice) == 1
        await wait_for_status(submitting, invoice, "Valid")
    assert len(await sandbox.ledger()) == 5


async def test_concurrent_requests_for_one_invoice_finalise_it_once(
    api: Client, owner: asyncpg.Connection
) -> None:
    for code in range(1, 4):
        invoice = await create_pending_invoice(api, code=code)
        ids = {
            await create_request(api, invoiceCode=str(code), name=name): name
            for name in map("Buyer {}".format, range(10))
        }
        answers = await asyncio.gather(
            *[put(api, request_id, status="Approve") for request_id in ids]
        )
        assert sorted(status for status, _ in answers) == [200] + [409] * 9
        (taken,) = [body["data"]["id"] for status, body in answers if status == 200]
        assert (await get_invoice(api, invoice))["buyer"]["name"] == ids.pop(taken)
        assert await count_updates(owner, invoice) == 1
        assert {(await get_request(api, other))["status"] for other in ids} == {"Reject"}


async def test_concurrent_approval_and_invoice_update_both_apply(api: Client) -> None:
    lines = [line(unit={"code": "KGM", "price": 50, "count": 1}, taxDetails=[{"taxType": "06"}])]
    for code in range(1, 6):
        invoice = await create_pending_invoice(api, code=code)
        request_id = await create_request(api, invoiceCode=str(code))
        answers = await asyncio.gather(
            put(api, request_id, status="Approve"),
            request_json(api, "PUT", f"/api/invoices/{invoice}", json={"lineItems": lines}),
        )
        assert [status for status, _ in answers] == [200, 200]
        found = await get_invoice(api, invoice)
        assert (found["type"], found["buyer"]["name"]) == ("INVOICE", "Aminah binti Salleh")
        assert found["legal_monetary_total"]["payableAmount"] == 50


async def test_concurrent_approval_and_request_update_leave_one_buyer(api: Client) -> None:
    """The invoice has the buyer of the request before or after the update, never a mixture."""
    for code in range(1, 6):
        invoice = await create_pending_invoice(api, code=code)
        request_id = await create_request(api, invoiceCode=str(code))
        answers = await asyncio.gather(
            put(api, request_id, status="Approve"),
            put(api, request_id, name="Tan Wei Ming", contactNumber="+60198765432"),
        )
        assert [status for status, _ in answers] == [200, 200]
        found, taken = (
            await get_request(api, request_id),
            (await get_invoice(api, invoice))["buyer"],
        )
        assert found["status"] == "Approve"
        assert found["document_details"]["buyer"]["name"] == "Tan Wei Ming"
        assert (taken["name"], taken["contactNumber"]) in {
            ("Tan Wei Ming", "+60198765432"),
            ("Aminah binti Salleh", "+60123456789"),
        }


async def test_approval_and_deletion_of_the_invoice_exclude_each_other(api: Client) -> None:
    for code in range(1, 6):
        invoice = await create_pending_invoice(api, code=code)
        request_id = await create_request(api, invoiceCode=str(code))
        (status, body), (gone, _) = await asyncio.gather(
            put(api, request_id, status="Approve"),
            request_json(api, "DELETE", f"/api/invoices/{invoice}"),
        )
        assert (status, gone) == (200, 200)
        found = await get_request(api, request_id)
        assert found["invoice_id"] == (invoice if "invoice" in body["data"] else None)

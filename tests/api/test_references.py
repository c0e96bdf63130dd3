"""References and metadata of clients, and the filters, orders and outcomes of lists."""

from typing import Any

import pytest

from tests.api_invoices import create_invoice, create_lost_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_status
from tests.api_requests import expect, list_paths, request_json, submit
from tests.conftest import Client, Sandbox
from tests.harness.bodies import STRANGER, invoice, line, note

Query = dict[str, Any]


async def list_ids(api: Client, path: str = "/api/invoices", **query: Any) -> list[int]:
    """Return the ids of a list, whose total is checked."""
    body = await expect(api, 200, "GET", path, params=query)
    assert body["meta"]["total"] == len(body["data"])
    return [found["id"] for found in body["data"]]


async def refuse(api: Client, **query: Any) -> dict[str, str]:
    """Return {parameter: message} of a rejected list."""
    body = await expect(api, 422, "GET", "/api/invoices", params=query)
    return {each["path"]: each["message"] for each in body["errors"]}


async def test_a_reference_is_stored_found_and_unique(api: Client) -> None:
    first = await create_invoice(api, reference="ORDER 7")
    await create_invoice(api)
    assert (await get_invoice(api, first))["reference"] == "ORDER 7"
    assert await list_ids(api, reference="ORDER 7") == [first]
    assert await list_ids(api, query="ORDER 7") == [first]
    assert await list_ids(api, reference="ORDER") == []
    answer = await expect(api, 422, "POST", "/api/invoices", json=invoice(reference="ORDER 7"))
    assert (answer["code"], answer["errors"][0]["path"]) == ("reference_taken", "/reference")


async def test_a_used_reference_is_rejected_with_a_submission_and_in_an_update(api: Client) -> None:
    first = await create_invoice(api, reference="A")
    body = invoice(reference="A", submitImmediately=True)
    found = await request_json(api, "POST", "/api/invoices", json=body)
    assert found[1]["code"] == "reference_taken"
    other = f"/api/invoices/{await create_invoice(api, reference='B')}"
    status, answer = await request_json(api, "PUT", other, json={"reference": "A"})
    assert (status, answer["code"]) == (422, "reference_taken")
    await expect(api, 200, "PUT", other, json={"reference": None})
    await expect(api, 200, "DELETE", f"/api/invoices/{first}")
    await expect(api, 200, "PUT", other, json={"reference": "A"})


async def test_references_of_companies_are_independent(api: Client, stranger: Client) -> None:
    await create_invoice(api, reference="SAME")
    assert await create_invoice(stranger, reference="SAME")
    assert len(await list_ids(stranger, reference="SAME")) == 1


async def test_a_reference_and_metadata_are_not_sent(api: Client) -> None:
    texts = {"reference": "SECRET-REFERENCE", "metadata": {"shop": "SECRET-SHOP"}}
    invoice_id = await create_invoice(api, **texts)
    _, report = await request_json(api, "POST", f"/api/invoices/{invoice_id}/preflight")
    assert report["document"] and "SECRET" not in str(report["document"])


async def test_metadata_is_stored_replaced_and_found(api: Client) -> None:
    first = await create_invoice(api, metadata={"shop": "A", "till": "1"})
    second = await create_invoice(api, metadata={"shop": "A", "till": "2", "Größe [1]": "ü"})
    assert (await get_invoice(api, first))["metadata"] == {"shop": "A", "till": "1"}
    assert await list_ids(api, **{"metadata[shop]": "A"}) == [second, first]
    assert await list_ids(api, **{"metadata[shop]": "A", "metadata[till]": "2"}) == [second]
    assert await list_ids(api, **{"metadata[Größe [1]]": "ü"}) == [second]
    assert await list_ids(api, **{"metadata[shop]": "B"}) == []
    place = f"/api/invoices/{first}"
    await expect(api, 200, "PUT", place, json={"metadata": {"shop": "B"}})
    assert await list_ids(api, **{"metadata[shop]": "B"}) == [first]
    assert await list_ids(api, **{"metadata[till]": "1"}) == []
    await expect(api, 200, "PUT", place, json={"metadata": None})
    assert await list_ids(api, **{"metadata[shop]": "B"}) == []
    path = "/api/invoices"
    _, body = await request_json(api, "GET", path, params={"metadata[shop]": "A", "per_page": 1})
    assert "metadata%5Bshop%5D=A" in body["meta"]["first_page_url"]


@pytest.mark.parametrize(
    "name, words", [("", "must not be empty"), ("x" * 41, "must have at most 40 characters")]
)
async def test_the_message_for_an_invalid_metadata_key_is_about_the_name(
    api: Client, name: str, words: str
) -> None:
    body = invoice(metadata={name: "x"})
    answer = await expect(api, 422, "POST", "/api/invoices", json=body)
    assert answer["message"] == f"A name in metadata {words}."
    assert list_paths(answer) == ["/metadata"]


async def test_notes_and_requests_have_metadata(api: Client) -> None:
    place = f"/api/invoices/{await create_valid_invoice(api)}/adjustment-note"
    body = note(reference="N-1", metadata={"why": "broken"})
    await expect(api, 201, "POST", place, json=body)
    notes = "/api/adjustment-notes"
    found = await list_ids(api, notes, **{"metadata[why]": "broken"})
    assert len(found) == 1 and await list_ids(api, notes, reference="N-1") == found
    again = note(reference="N-1", adjustmentNoteCode=99)
    assert (await request_json(api, "POST", place, json=again))[1]["code"] == "reference_taken"
    request = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "A", "metadata": {"a": "b"}}
    await expect(api, 201, "POST", "/api/einvoice-requests", json=request)
    requests = "/api/einvoice-requests"
    (request_id,) = await list_ids(api, requests, **{"metadata[a]": "b"})
    _, record = await request_json(api, "GET", f"{requests}/{request_id}")
    assert record["metadata"] == {"a": "b"} and "metadata" not in record["document_details"]
    await expect(api, 200, "PUT", f"{requests}/{request_id}", json={"metadata": None})
    assert await list_ids(api, requests, **{"metadata[a]": "b"}) == []


async def test_filters_take_several_statuses_amounts_and_changes(api: Client) -> None:
    small = await create_invoice(api, lineItems=[line(unit={"price": 1, "count": 1})])
    large = await create_invoice(api, lineItems=[line(unit={"price": 1000, "count": 1})])
    assert await list_ids(api, status="Draft,Valid") == [large, small]
    assert await list_ids(api, status="Valid,Invalid") == []
    assert await list_ids(api, amount_from="500") == [large]
    assert await list_ids(api, amount_to="500.50") == [small]
    assert await list_ids(api, sort="amount") == [small, large]
    assert await list_ids(api, sort="-amount") == [large, small]
    changed = (await get_invoice(api, large))["updated_at"]
    assert await list_ids(api, updated_from=changed) == [large]
    assert await list_ids(api, updated_to=changed) == [large, small]
    assert await list_ids(api, updated_to="2026-01-01") == []
    assert await list_ids(api, is_ready="true") == []
    assert await list_ids(api, is_ready="false", amount_from="500") == [large]
    await expect(api, 200, "PUT", f"/api/invoices/{small}", json={"isReady": False})
    assert await list_ids(api, sort="-updated_at") == [small, large]
    assert await list_ids(api, sort="updated_at") == [large, small]


async def test_invalid_filters_name_the_similar_value(api: Client) -> None:
    query = {"status": "Draft,valid", "amount_from": "1,5", "updated_from": "x", "sort": "amont"}
    query |= {"updated_to": "y", "is_ready": "1"}
    wrong = await refuse(api, **query)
    assert wrong.keys() == query.keys()
    assert "Did you mean Valid?" in wrong["status"]
    many = {f"metadata[{key}]": "x" for key in range(51)}
    assert (await refuse(api, **many)).keys() == {"metadata"}
    assert (await refuse(api, metadata="x")).keys() == {"metadata"}


async def test_a_search_finds_the_uuid_of_the_portal(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    await create_invoice(api)
    (document,) = await get_documents(api, invoice_id)
    assert await list_ids(api, query=document["uuid"]) == [invoice_id]


async def test_a_record_says_what_its_last_submission_came_to(api: Client) -> None:
    invoice_id = await create_invoice(api, buyer=STRANGER)
    assert (await get_invoice(api, invoice_id))["last_submission"] is None
    await submit(api, invoice_id)
    last = (await wait_for_status(api, invoice_id, "Invalid"))["last_submission"]
    assert last["at"].endswith("+00:00")
    assert (last["status"], last["code"]) == ("Invalid", "ERR206") and last["message"]
    valid = await get_invoice(api, await create_valid_invoice(api))
    assert {**valid["last_submission"], "at": ""} == {
        "status": "Valid",
        "code": None,
        "message": None,
        "at": "",
    }


async def test_rejected_documents_are_listed_across_invoices(
    api: Client, sandbox: Sandbox, stranger: Client
) -> None:
    valid = await create_valid_invoice(api)
    rejected = await create_lost_invoice(api, sandbox, "foreign")
    assert (await get_invoice(api, rejected))["last_submission"]["status"] == "Rejected"
    path = "/api/submitted-documents"
    status, body = await request_json(api, "GET", path, params={"status": "Rejected"})
    assert (status, [found["invoice_id"] for found in body["data"]]) == (200, [rejected])
    assert body["meta"]["total"] == 1
    _, body = await request_json(api, "GET", path, params={"status": "Rejected,Valid"})
    assert [found["invoice_id"] for found in body["data"]] == [rejected, valid]
    assert body["meta"]["total"] == 2
    await expect(api, 200, "DELETE", f"/api/invoices/{rejected}")
    _, body = await request_json(api, "GET", path)
    assert [found["invoice_id"] for found in body["data"]] == [valid]
    assert body["meta"]["total"] == 1
    await expect(api, 422, "GET", path, params={"status": "Draft"})
    assert (await request_json(stranger, "GET", path))[1]["data"] == []

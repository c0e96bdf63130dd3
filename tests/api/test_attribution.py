"""Attribution: under concurrency, what each client is answered is what is stored for it.

Every request has a mark of its own, the name of its buyer or the description of its line. A success
must lead to a record with that mark, and the mark of a refused request must be stored nowhere.
"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from conftest import Client, Company
from fixtures_shared import SharedService
from kit import (
    Answer,
    buyer,
    create_invoice,
    create_valid_invoice,
    get_invoice,
    invoice,
    line,
    note,
    request_json,
)

CODES, WAYS = 13, 40  # equal codes, and requests at a time
REQUESTS = "/api/einvoice-requests"


@pytest.fixture
def another(shared_service: SharedService) -> Company:
    """Return a second company of the service."""
    return shared_service.take_company()


def mark_of(record: dict[str, Any]) -> str:
    """Return the mark of the record of an invoice, a note or a buyer's request."""
    party = record.get("buyer") or record.get("document_details", {}).get("buyer")
    return party["name"] if party else record["line_items"][0]["description"]


async def list_marks(api: Client, path: str) -> list[str]:
    """Return the marks of all records of a list."""
    marks: list[str] = []
    for page in itertools.count(1):
        _, body = await request_json(api, "GET", f"{path}?per_page=100&page={page}")
        marks += map(mark_of, body["data"])
        if page >= body["meta"]["last_page"]:
            return marks
    raise AssertionError


async def send_all(
    api: Client, requests: Sequence[tuple[str, str, dict[str, Any]]]
) -> list[Answer]:
    """Send (method, path, body) at the same time, and return their answers in this order."""
    return await asyncio.gather(
        *(request_json(api, method, path, json=body) for method, path, body in requests)
    )


async def check_created(
    api: Client, path: str, marks: Sequence[str], answers: Sequence[Answer]
) -> list[str]:
    """Check that each 201 names its own record and that no refused one is stored. Return marks."""
    assert {status for status, _ in answers} <= {201, 422}
    stored = [mark for mark, (status, _) in zip(marks, answers, strict=True) if status == 201]
    for mark, (status, body) in zip(marks, answers, strict=True):
        if status == 201:
            _, record = await request_json(api, "GET", f"{path}/{body['data']['id']}")
            assert mark_of(record) == mark
    assert sorted(await list_marks(api, path)) == sorted(stored)
    return stored


def make_invoices(count: int, codes: int, references: int = 0) -> list[dict[str, Any]]:
    """Return bodies with a mark each, some of which share their code or reference."""
    bodies = [
        invoice(code=1 + number % codes, buyer=buyer(name=f"Buyer {number}"))
        for number in range(count)
    ]
    for number, body in enumerate(bodies):
        if references and number % 2:
            body["reference"] = f"order {number % references}"
    return bodies


async def create_at_once(api: Client, bodies: Sequence[dict[str, Any]]) -> list[str]:
    """Create invoices at the same time, check the answers, and return the marks of the stored."""
    answers = await send_all(api, [("POST", "/api/invoices", body) for body in bodies])
    marks = [body["buyer"]["name"] for body in bodies]
    return await check_created(api, "/api/invoices", marks, answers)


async def test_concurrent_creations_with_equal_codes_get_their_own_answers(api: Client) -> None:
    assert len(await create_at_once(api, make_invoices(CODES * WAYS, CODES))) == CODES


async def test_concurrent_creations_with_used_references_get_their_own_answers(
    api: Client,
) -> None:
    await create_invoice(api, code=999, reference="order 1", buyer=buyer(name="Buyer first"))
    bodies = make_invoices(CODES * WAYS, CODES * WAYS, references=7)
    answers = await send_all(api, [("POST", "/api/invoices", body) for body in bodies])
    stored = {
        body["buyer"]["name"]
        for body, (status, _) in zip(bodies, answers, strict=True)
        if status == 201
    }
    assert set(await list_marks(api, "/api/invoices")) == stored | {"Buyer first"}


async def test_concurrent_creations_with_keys_get_their_own_answers(api: Client) -> None:
    bodies = make_invoices(WAYS, CODES)

    async def create(number: int, body: dict[str, Any]) -> Answer:
        headers = {"Idempotency-Key": f"key {number}"} if number % 2 else {}
        return await request_json(api, "POST", "/api/invoices", json=body, headers=headers)

    answers = await asyncio.gather(*(create(*each) for each in enumerate(bodies)))
    marks = [body["buyer"]["name"] for body in bodies]
    assert len(await check_created(api, "/api/invoices", marks, answers)) == CODES


async def test_concurrent_updates_to_equal_codes_get_their_own_answers(api: Client) -> None:
    ids = [await create_invoice(api) for _ in range(WAYS)]
    former = {number: mark_of(await get_invoice(api, number)) for number in ids}
    changes = {
        number: {"code": 10**6 + number % CODES, "buyer": buyer(name=f"Buyer {number}")}
        for number in ids
    }
    sent = [("PUT", f"/api/invoices/{number}", changes[number]) for number in ids]
    statuses = [status for status, _ in await send_all(api, sent)]
    assert set(statuses) == {200, 422}
    for number, status in zip(ids, statuses, strict=True):
        expected = f"Buyer {number}" if status == 200 else former[number]
        assert mark_of(await get_invoice(api, number)) == expected


async def test_concurrent_updates_of_one_invoice_store_one_of_the_bodies(api: Client) -> None:
    invoice_id = await create_invoice(api)
    bodies = [
        {"buyer": buyer(name=f"Buyer {number}"), "lineItems": [line(description=f"Line {number}")]}
        for number in range(WAYS)
    ]
    sent = [("PUT", f"/api/invoices/{invoice_id}", body) for body in bodies]
    assert {status for status, _ in await send_all(api, sent)} == {200}
    record = await get_invoice(api, invoice_id)
    number = record["buyer"]["name"].removeprefix("Buyer ")
    assert record["line_items"][0]["description"] == f"Line {number}"


async def test_concurrent_notes_with_equal_codes_get_their_own_answers(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    unit = {"code": "KGM", "price": 0.01, "count": 1}
    bodies = [
        note(
            type="DEBIT_NOTE",
            adjustmentNoteCode=1 + number % CODES,
            lineItems=[line(description=f"Line {number}", unit=unit)],
        )
        for number in range(WAYS)
    ]
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    answers = await send_all(api, [("POST", path, body) for body in bodies])
    marks = [body["lineItems"][0]["description"] for body in bodies]
    assert len(await check_created(api, "/api/adjustment-notes", marks, answers)) == CODES


async def test_concurrent_buyer_requests_get_their_own_answers(api: Client) -> None:
    bodies = [
        {"invoiceCode": str(number % CODES), "type": "LOCAL_INDIVIDUAL", "name": f"Buyer {number}"}
        for number in range(WAYS)
    ]
    answers = await send_all(api, [("POST", REQUESTS, body) for body in bodies])
    marks = [body["name"] for body in bodies]
    assert len(await check_created(api, REQUESTS, marks, answers)) == WAYS


async def test_concurrent_gets_and_pages_return_the_requested_records(api: Client) -> None:
    ids = [await create_invoice(api) for _ in range(WAYS)]

    async def get(invoice_id: int) -> bool:
        return (await get_invoice(api, invoice_id))["id"] == invoice_id

    async def list_page(number: int) -> bool:
        _, body = await request_json(api, "GET", f"/api/invoices?per_page=5&page={number}")
        newest = ids[::-1][5 * (number - 1) : 5 * number]
        return [record["id"] for record in body["data"]] == newest

    asked = [map(get, ids), map(list_page, range(1, 9)), map(get, ids), map(list_page, range(1, 9))]
    assert all(await asyncio.gather(*itertools.chain(*asked)))


async def test_concurrent_creations_of_two_companies_stay_apart(
    api: Client, another: Company
) -> None:
    headers = {"X-API-Key": another.key}
    bodies = make_invoices(WAYS, CODES)

    async def create(body: dict[str, Any], **options: Any) -> Answer:
        return await request_json(api, "POST", "/api/invoices", json=body, **options)

    own = [create(body) for body in bodies]
    others = [create({**body, "buyer": buyer(name="Other")}, headers=headers) for body in bodies]
    answers = await asyncio.gather(*own, *others)
    marks = [body["buyer"]["name"] for body in bodies]
    stored = await check_created(api, "/api/invoices", marks, answers[:WAYS])
    _, listed = await request_json(api, "GET", "/api/invoices?per_page=100", headers=headers)
    assert {mark_of(record) for record in listed["data"]} == {"Other"}
    assert len(stored) == listed["meta"]["total"] == CODES

"""Attribution: under concurrency, what each client is answered is what is stored for it.

Every request has a mark of its own, the name of its buyer or the description of its line. A success
must lead to a record with that mark, and the mark of a refused request must be stored nowhere.
"""

import asyncio
import itertools
import re
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from tests.api.test_idempotency_claims import IS_WAITED_FOR
from tests.api_invoices import create_invoice, create_sale, create_valid_invoice
from tests.api_reads import get_invoice, wait_for_status
from tests.api_requests import Answer, create_record, request_json
from tests.conftest import Client, Company, until
from tests.fixtures_shared import SharedService
from tests.harness.bodies import buyer, invoice, line, note, now

CODES, WAYS = 13, 40  # equal codes, and requests at a time
REQUESTS = "/api/einvoice-requests"


def share(number: int, count: int, values: int) -> int:
    """Return one of `values` numbers for the request `number` of `count`.

    It is equal for requests that follow each other, so that they overlap.
    """
    return number * values // count


def mark_of(record: dict[str, Any]) -> str:
    """Return the mark of the record of an invoice, a note or a buyer's request."""
    party = record.get("buyer") or record.get("document_details", {}).get("buyer")
    return party["name"] if party else record["line_items"][0]["description"]


async def list_marks(api: Client, path: str) -> list[str]:
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
    api: Client,
    path: str,
    marks: Sequence[str],
    answers: Sequence[Answer],
    earlier: Sequence[str] = (),
) -> list[str]:
    """Check that each 201 names its own record and that no refused one is stored. Return marks.

    `earlier` are the marks of records that were stored before.
    """
    assert {status for status, _ in answers} <= {201, 422}
    stored = [mark for mark, (status, _) in zip(marks, answers, strict=True) if status == 201]
    for mark, (status, body) in zip(marks, answers, strict=True):
        if status == 201:
            _, record = await request_json(api, "GET", f"{path}/{body['data']['id']}")
            assert mark_of(record) == mark
    assert sorted(await list_marks(api, path)) == sorted([*stored, *earlier])
    return stored


def make_invoices(count: int, codes: int, references: int = 0) -> list[dict[str, Any]]:
    """Return bodies with a mark each, some of which share their code or reference."""
    bodies = [
        invoice(code=1 + share(number, count, codes), buyer=buyer(name=f"Buyer {number}"))
        for number in range(count)
    ]
    if references:
        half = count // 2
        for number, body in enumerate(bodies[:half]):
            body["reference"] = f"order {share(number, half, references)}"
    return bodies


async def create_at_once(api: Client, bodies: Sequence[dict[str, Any]]) -> list[str]:
    """Create invoices at the same time, check the answers, and return the marks of the stored."""
    answers = await send_all(api, [("POST", "/api/invoices", body) for body in bodies])
    marks = [body["buyer"]["name"] for body in bodies]
    return await check_created(api, "/api/invoices", marks, answers)


async def test_concurrent_creations_with_equal_codes_get_their_own_answers(api: Client) -> None:
    assert len(await create_at_once(api, make_invoices(4 * WAYS, CODES))) == CODES


async def test_concurrent_creations_with_used_references_get_their_own_answers(api: Client) -> None:
    await create_invoice(api, code=999, reference="order 1", buyer=buyer(name="Buyer first"))
    bodies = make_invoices(4 * WAYS, 4 * WAYS, references=7)
    answers = await send_all(api, [("POST", "/api/invoices", body) for body in bodies])
    marks = [body["buyer"]["name"] for body in bodies]
    stored = await check_created(api, "/api/invoices", marks, answers, ["Buyer first"])
    assert len(stored) == 2 * WAYS + 6  # without a reference, and one of each other


@pytest.mark.parametrize(
    "column, used",
    [("code", {"code": 5}), ("reference", {"reference": "A"}), ("code", {"adjustmentNoteCode": 5})],
)
async def test_a_code_or_reference_in_an_open_transaction_is_waited_for(
    api: Client, owner: asyncpg.Connection, column: str, used: dict[str, Any]
) -> None:
    path, make = "/api/invoices", invoice
    if "adjustmentNoteCode" in used:
        path, make = f"{path}/{await create_valid_invoice(api)}/adjustment-note", note
    first = await create_record(api, path, **make())
    change = f"update documents set {column} = $2 where id = $1"
    async with owner.transaction():
        await owner.execute(change, first["id"], *used.values())
        late = asyncio.create_task(request_json(api, "POST", path, json=make(**used)))
        await until(lambda: owner.fetchval(IS_WAITED_FOR))
    status, body = await late
    assert (status, body["code"]) == (422, f"{column}_taken")


async def test_concurrent_creations_with_keys_get_their_own_answers(api: Client) -> None:
    bodies = make_invoices(WAYS, CODES)

    async def create(number: int, body: dict[str, Any]) -> Answer:
        headers = {"Idempotency-Key": f"key {number}"} if number % 2 else {}
        return await request_json(api, "POST", "/api/invoices", json=body, headers=headers)

    answers = await asyncio.gather(*(create(*each) for each in enumerate(bodies)))
    marks = [body["buyer"]["name"] for body in bodies]
    assert len(await check_created(api, "/api/invoices", marks, answers)) == CODES


async def test_concurrent_creations_with_equal_keys_get_one_record_each(api: Client) -> None:
    bodies = make_invoices(CODES, CODES)
    sent = [(number, body) for number, body in enumerate(bodies) for _ in range(4)]

    async def create(number: int, body: dict[str, Any]) -> Answer:
        headers = {"Idempotency-Key": f"key {number}"}
        return await request_json(api, "POST", "/api/invoices", json=body, headers=headers)

    answers = await asyncio.gather(*(create(*each) for each in sent))
    assert {status for status, _ in answers} <= {201, 409}
    for (_, body), (status, answer) in zip(sent, answers, strict=True):
        if status == 201:
            record = await get_invoice(api, answer["data"]["id"])
            assert mark_of(record) == body["buyer"]["name"]
    marks = [body["buyer"]["name"] for body in bodies]
    assert sorted(await list_marks(api, "/api/invoices")) == sorted(marks)


async def test_concurrent_bodies_with_one_key_store_the_one_that_is_answered(api: Client) -> None:
    bodies, headers = make_invoices(CODES, CODES), {"Idempotency-Key": "one"}

    async def create(body: dict[str, Any]) -> Answer:
        return await request_json(api, "POST", "/api/invoices", json=body, headers=headers)

    answers = await asyncio.gather(*map(create, bodies))
    assert {status for status, _ in answers} <= {201, 409, 422}
    [winner] = [number for number, (status, _) in enumerate(answers) if status == 201]
    record = await get_invoice(api, answers[winner][1]["data"]["id"])
    assert mark_of(record) == bodies[winner]["buyer"]["name"]
    assert await list_marks(api, "/api/invoices") == [mark_of(record)]


async def test_invoices_that_are_sent_together_get_their_own_documents(api: Client) -> None:
    bodies = [{**body, "submitImmediately": True} for body in make_invoices(CODES, CODES)]
    answers = await send_all(api, [("POST", "/api/invoices", body) for body in bodies])
    marks = [body["buyer"]["name"] for body in bodies]
    assert len(await check_created(api, "/api/invoices", marks, answers)) == CODES
    for mark, (_, body) in zip(marks, answers, strict=True):
        invoice_id = body["data"]["id"]
        await wait_for_status(api, invoice_id, "Valid")
        async with api.get(f"/api/invoices/{invoice_id}/print") as response:
            page = await response.text()  # of the bytes that were sent
        assert re.findall(r"Buyer \d+", page)[:1] == [mark]


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
            adjustmentNoteCode=1 + share(number, WAYS, CODES),
            lineItems=[line(description=f"Line {number}", unit=unit)],
        )
        for number in range(WAYS)
    ]
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    answers = await send_all(api, [("POST", path, body) for body in bodies])
    marks = [body["lineItems"][0]["description"] for body in bodies]
    assert len(await check_created(api, "/api/adjustment-notes", marks, answers)) == CODES


async def test_concurrent_consolidated_invoices_get_their_own_answers(api: Client) -> None:
    sales = [await create_sale(api) for _ in range(WAYS)]
    path, common = "/api/consolidated-invoices", {"type": "CONSOLIDATED_INVOICE"}
    bodies = [
        {
            **common,
            "code": 1 + share(number, WAYS, CODES),
            "issueDateTime": now(),
            "invoiceIds": [sale],
        }
        for number, sale in enumerate(sales)
    ]
    answers = await send_all(api, [("POST", path, body) for body in bodies])
    assert {status for status, _ in answers} == {201, 422}
    made = {}
    for sale, (status, body) in zip(sales, answers, strict=True):
        if status == 201:
            made[body["data"]["id"]] = sale
            _, record = await request_json(api, "GET", f"{path}/{body['data']['id']}")
            assert record["invoice_ids"] == [sale]
    _, listed = await request_json(api, "GET", f"{path}?per_page=100")
    assert {record["id"] for record in listed["data"]} == made.keys() and len(made) == CODES


async def test_an_invoice_in_two_concurrent_consolidations_is_in_the_answered_one(
    api: Client,
) -> None:
    sale, path = await create_sale(api), "/api/consolidated-invoices"
    body = {"type": "CONSOLIDATED_INVOICE", "issueDateTime": now(), "invoiceIds": [sale]}
    sent = [("POST", path, {**body, "code": code}) for code in range(1, CODES)]
    answers = await send_all(api, sent)
    [(_, answer)] = [each for each in answers if each[0] == 201]
    _, listed = await request_json(api, "GET", path)
    assert [record["id"] for record in listed["data"]] == [answer["data"]["id"]]


async def test_concurrent_updates_of_buyer_requests_store_what_is_answered(api: Client) -> None:
    made = [
        await create_record(api, REQUESTS, invoiceCode="1", type="LOCAL_INDIVIDUAL", name="Buyer")
        for _ in range(CODES)
    ]
    sent = [("PUT", f"{REQUESTS}/{each['id']}", {"name": f"Buyer {each['id']}"}) for each in made]
    assert {status for status, _ in await send_all(api, sent)} == {200}
    for each in made:
        _, record = await request_json(api, "GET", f"{REQUESTS}/{each['id']}")
        assert mark_of(record) == f"Buyer {each['id']}"


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


async def test_concurrent_creations_of_several_companies_stay_apart(
    api: Client, shared_service: SharedService
) -> None:
    companies = [shared_service.take_company() for _ in range(4)]
    bodies = make_invoices(WAYS, CODES)

    async def create(company: Company, number: int) -> tuple[Company, str, Answer]:
        mark = f"Buyer {number} of {company.id}"
        body = {**bodies[number], "buyer": buyer(name=mark)}
        headers = {"X-API-Key": company.key, "Idempotency-Key": f"key {number}"}
        answer = await request_json(api, "POST", "/api/invoices", json=body, headers=headers)
        return company, mark, answer

    made = [create(company, number) for number in range(WAYS) for company in companies]
    stored: dict[int, list[str]] = {company.id: [] for company in companies}
    for company, mark, (status, body) in await asyncio.gather(*made):
        headers = {"X-API-Key": company.key}
        if status == 201:
            stored[company.id].append(mark)
            path = f"/api/invoices/{body['data']['id']}"
            _, record = await request_json(api, "GET", path, headers=headers)
            assert mark_of(record) == mark
    for company in companies:
        headers = {"X-API-Key": company.key}
        _, listed = await request_json(api, "GET", "/api/invoices?per_page=100", headers=headers)
        assert sorted(map(mark_of, listed["data"])) == sorted(stored[company.id])
        assert len(stored[company.id]) == CODES

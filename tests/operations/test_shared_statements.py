"""Batches: concurrent items of a company share a statement, and each gets its own result."""

import asyncio

import asyncpg
import pytest
from conftest import Client, make_company
from harness.waiting import wait_until
from kit import create_invoice, invoice, request_json

from service.db.batches import MAX_ITEMS, Batches


class Writer:
    """Writes numbers; each write waits for `go`."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []
        self.go = asyncio.Event()

    async def write(self, company_id: int, items: list[int]) -> list[int]:
        """Return the double of each number. Raises like PostgreSQL for negative ones."""
        self.batches.append((company_id, items))
        await self.go.wait()
        if min(items) < 0:
            raise asyncpg.CheckViolationError("negative")
        return [2 * item for item in items]


async def test_items_that_arrive_during_a_write_share_the_next_one() -> None:
    writer = Writer()
    batches = Batches(writer.write)
    results = [asyncio.create_task(batches.add(1, number)) for number in range(4)]
    other = asyncio.create_task(batches.add(2, 9))
    await asyncio.sleep(0)
    writer.go.set()
    assert await asyncio.gather(*results, other) == [0, 2, 4, 6, 18]
    assert sum(len(items) for _, items in writer.batches) == 5
    assert {company for company, items in writer.batches if 9 in items} == {2}
    assert len(writer.batches) < 5


async def test_items_that_arrive_with_the_results_join_the_next_write() -> None:
    writer = Writer()
    batches = Batches(writer.write)

    async def add_two(first: int, second: int) -> None:
        await batches.add(1, first)
        await batches.add(1, second)

    tasks = [asyncio.create_task(add_two(number, number + 10)) for number in (1, 2)]
    await wait_until(lambda: writer.batches)
    waiting = asyncio.create_task(batches.add(1, 3))
    await asyncio.sleep(0)
    writer.go.set()
    await asyncio.gather(*tasks)
    await waiting
    assert [items for _, items in writer.batches[:2]] == [[1, 2], [3, 11, 12]]


async def test_a_batch_has_a_largest_size() -> None:
    writer = Writer()
    batches = Batches(writer.write)
    count = 2 * MAX_ITEMS + 2
    results = [asyncio.create_task(batches.add(1, number)) for number in range(count)]
    writer.go.set()
    assert await asyncio.gather(*results) == [2 * number for number in range(count)]
    assert max(len(items) for _, items in writer.batches) == MAX_ITEMS


async def test_a_rejected_item_does_not_fail_the_others_of_its_batch() -> None:
    writer = Writer()
    batches = Batches(writer.write)
    tasks = [asyncio.create_task(batches.add(1, number)) for number in (1, 2, -3, 4)]
    writer.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [results[0], results[1], results[3]] == [2, 4, 8]
    assert isinstance(results[2], asyncpg.CheckViolationError)


async def test_a_lost_connection_fails_all_items_of_its_batch_once() -> None:
    calls = []

    async def lose(company_id: int, items: list[int]) -> list[int]:
        calls.append(items)
        raise ConnectionResetError

    batches = Batches(lose)
    tasks = [asyncio.create_task(batches.add(1, number)) for number in range(3)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, ConnectionResetError) for result in results)
    assert sum(map(len, calls)) == 3


async def test_a_caller_that_is_cancelled_does_not_stop_its_batch() -> None:
    writer = Writer()
    batches = Batches(writer.write)
    first, second = (asyncio.create_task(batches.add(1, number)) for number in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    writer.go.set()
    assert await second == 4
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_each_of_many_concurrent_creations_gets_its_own_answer(api: Client) -> None:
    """Pairs of one code, of which one is stored, and bodies that PostgreSQL has not seen."""
    bodies = [invoice(code=1000 + number // 2) for number in range(60)]
    answers = await asyncio.gather(
        *[request_json(api, "POST", "/api/invoices", json=body) for body in bodies]
    )
    for pair in range(30):
        assert sorted(status for status, _ in answers[2 * pair : 2 * pair + 2]) == [201, 422]
    for body, (status, answer) in zip(bodies, answers, strict=True):
        if status == 201:
            record = (await request_json(api, "GET", f"/api/invoices/{answer['data']['id']}"))[1]
            assert record["invoice_code"] == str(body["code"])
            assert record["buyer"] == body["buyer"]


async def test_concurrent_creations_of_two_companies_stay_apart(
    own_api: Client, environment: dict[str, str]
) -> None:
    api, other = own_api, await make_company(environment)
    headers = {"X-API-Key": other.key}
    created = await asyncio.gather(
        *[create_invoice(api, code=number) for number in range(1, 21)],
        *[
            request_json(api, "POST", "/api/invoices", json=invoice(code=number), headers=headers)
            for number in range(1, 21)
        ],
    )
    assert all(isinstance(answer, int) or answer[0] == 201 for answer in created)
    for sent, company_id in (({}, None), (headers, other.id)):
        _, page = await request_json(api, "GET", "/api/invoices?per_page=100", headers=sent)
        assert page["meta"]["total"] == 20 and len(page["data"]) == 20
        assert company_id is None or {row["company_id"] for row in page["data"]} == {company_id}


async def test_concurrent_pages_of_two_companies_and_other_pages_stay_apart(
    own_api: Client, environment: dict[str, str]
) -> None:
    """Each response is that of its own key and query, also if all of them arrive at once."""
    other = await make_company(environment)
    headers: list[dict[str, str]] = [{}, {"X-API-Key": other.key}]
    for place, sent in enumerate(headers):
        for number in range(3 + place):
            body = invoice(code=10 * place + number + 1)
            status, _ = await request_json(
                own_api, "POST", "/api/invoices", json=body, headers=sent
            )
            assert status == 201
    queries = ("", "?page=2&per_page=2", "?sort=code", "?query=1")
    asked = [(sent, query) for query in queries for sent in headers]
    alone = [await list_codes(own_api, sent, query) for sent, query in asked]
    together = await asyncio.gather(
        *[list_codes(own_api, sent, query) for sent, query in asked * 10]
    )
    assert together == alone * 10
    assert all(one != another for one, another in zip(alone[::2], alone[1::2], strict=True))


async def list_codes(api: Client, headers: dict[str, str], query: str) -> list[str]:
    """Return the codes of a page."""
    status, page = await request_json(api, "GET", f"/api/invoices{query}", headers=headers)
    assert status == 200
    return [record["invoice_code"] for record in page["data"]]


async def test_page_that_waited_for_another_has_everything_stored_before_it(
    own_api: Client,
) -> None:
    """Clients list at the same time, and each finds what it has created itself."""

    async def create_and_list() -> bool:
        created = await create_invoice(own_api)
        _, page = await request_json(own_api, "GET", "/api/invoices?per_page=100")
        return created in {record["id"] for record in page["data"]}

    assert all(await asyncio.gather(*[create_and_list() for _ in range(60)]))

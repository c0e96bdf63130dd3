"""List pages of large records: unchanged JSON, streamed in parts of bounded size."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from service.api.records import BUDGET_BYTES, PART_CHARACTERS
from service.db import statements
from service.http import app_keys
from tests.api.test_exports import insert_copies
from tests.api_invoices import create_invoice, create_one_of_each
from tests.api_reads import fail_midway, wait_until_idle
from tests.api_requests import expect, request_json
from tests.conftest import Client, StartService
from tests.harness.environments import GENEROUS

LIST = "/api/invoices?per_page=100"
#: path -> (table and condition of its records, a member that can be large)
PLACES = {
    "/api/invoices": ("documents where kind = 'invoice'", "buyer"),
    "/api/adjustment-notes": ("documents where kind = 'adjustment_note'", "line_items"),
    "/api/consolidated-invoices": ("documents where kind = 'consolidated_invoice'", "line_items"),
    "/api/einvoice-requests": ("einvoice_requests where true", "buyer"),
}
#: SQL expressions for a text of a size in bytes, compressible or not.
TEXTS = {
    "compressible": "repeat('x', {})",
    "incompressible": (
        "(select string_agg(md5(random()::text || n), '') from generate_series(1, {} / 32) n)"
    ),
}


async def enlarge(
    owner: asyncpg.Connection, place: str, member: str, size: int, kind: str = "compressible"
) -> None:
    """Put a text of `size` bytes into every record of a place, even beyond API limits."""
    table, _, condition = place.partition(" ")
    path = "{remark}" if member == "buyer" else "{0,remark}"
    text = TEXTS[kind].format(size)
    counted = f", bytes = {size}" if table == "documents" else ""  # others count themselves
    await owner.execute(
        f"update {table} set {member} = jsonb_set({member}::jsonb, '{path}', to_jsonb({text}))"
        f"{counted} {condition}"
    )


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return a list that collects (statement name, length) of each text result."""
    found: list[tuple[str, int]] = []
    run = statements.Statement._run

    async def measured(statement: statements.Statement, *args: Any) -> Any:
        result = await run(statement, *args)
        if isinstance(result, str):
            found.append((statement.name, len(result)))
        elif isinstance(result, list):
            texts = [value for row in result for value in row if isinstance(value, str)]
            if texts:  # Most statements of background work find nothing.
                found.append((statement.name, sum(map(len, texts))))
        return result

    monkeypatch.setattr(statements.Statement, "_run", measured)
    return found


async def records(api: Client, place: str, ids: list[int]) -> list[dict[str, Any]]:
    found = [(await request_json(api, "GET", f"{place}/{record_id}"))[1] for record_id in ids]
    return [{name: value for name, value in one.items() if name != "invoice_ids"} for one in found]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("query", ["", "&sort=-code", "&query=aminah"])
async def test_large_page_is_complete_and_in_order(
    api: Client, owner: asyncpg.Connection, results: Any, kind: Any, query: str
) -> None:
    await create_page(api, owner, 12, 400_000, kind)
    async with api.get(LIST + query) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        page = json.loads(await response.read())
    ids = [row["id"] for row in await owner.fetch("select id from documents order by id desc")]
    assert list(page) == ["meta", "data"] and len(ids) == 12
    assert page["data"] == await records(api, "/api/invoices", ids)
    assert (
        max(
            length
            for name, length in results
            if name in ("invoice_page", "invoice_search", "invoice_get")
        )
        < 500_000
    )


async def test_every_list_streams_a_large_page(
    start: StartService, owner: asyncpg.Connection, results: Any
) -> None:
    api = await start(background=True, **GENEROUS)
    await create_one_of_each(api)
    for place, (table, member) in PLACES.items():
        await enlarge(owner, table, member, 1_900_000)
        ids = [
            row["id"]
            for row in await owner.fetch(
                f"select id from {table} and deleted_at is null order by id desc"
            )
        ]
        expected = await records(api, place, ids)
        for query in ("", "&sort=-id", "&sort=id"):
            results.clear()
            status, page = await request_json(api, "GET", f"{place}?per_page=100{query}")
            assert status == 200 and page["data"] == (
                expected[::-1] if query == "&sort=id" else expected
            ), (place, query)
            assert max(length for _, length in results) < 2_000_000, place
            paged = [length for name, length in results if name.endswith(("_page", "_search"))]
            assert max(paged, default=0) <= BUDGET_BYTES, place


async def test_page_within_the_budget_needs_one_statement(
    api: Client, owner: asyncpg.Connection, results: Any
) -> None:
    await insert_copies(owner, await create_invoice(api), 100)
    for query in ("", "&sort=-code"):
        results.clear()
        status, page = await request_json(api, "GET", LIST + query)
        assert status == 200 and len(page["data"]) == 100
        names = [name for name, _ in results if name.startswith("invoice_")]
        assert names == ["invoice_search" if query else "invoice_page"]


async def test_streamed_page_has_the_same_text_as_a_small_one(
    api: Client, owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert_copies(owner, await create_invoice(api), 30)
    async with api.get(LIST) as response:
        small = await response.read()
    for budget in (1, 10_000, len(small) - 2_000):
        monkeypatch.setattr("service.api.records.BUDGET_BYTES", budget)
        async with api.get(LIST) as response:
            assert await response.read() == small


async def test_streamed_page_is_read_in_parts(
    api: Client, owner: asyncpg.Connection, results: Any
) -> None:
    """Records are read in parts of limited size; here every record is a part."""
    await create_page(api, owner, 20, PART_CHARACTERS // 2)
    results.clear()
    status, page = await request_json(api, "GET", LIST)
    assert status == 200 and len(page["data"]) == 20
    assert [name for name, _ in results if name == "invoice_get"] == ["invoice_get"] * 20


async def create_page(
    api: Client, owner: asyncpg.Connection, count: int, size: int, kind: str = "compressible"
) -> None:
    """Create invoices with large buyers."""
    await insert_copies(owner, await create_invoice(api), count)
    await enlarge(owner, "documents", "buyer", size, kind)


async def test_head_request_of_a_large_page_has_no_body(
    api: Client, owner: asyncpg.Connection
) -> None:
    await create_page(api, owner, 12, 400_000)
    async with api.head(LIST) as response:
        assert response.status == 200 and await response.read() == b""
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"


async def test_record_deleted_during_streaming_is_omitted(
    api: Client, owner: asyncpg.Connection
) -> None:
    first = await create_invoice(api)
    await insert_copies(owner, first, 100)
    await enlarge(owner, "documents", "buyer", 300_000)
    async with api.get(LIST) as response:
        head = await response.content.readexactly(10_000)
        await expect(api, 200, "DELETE", f"/api/invoices/{first}")
        page = json.loads(head + await response.read())
    assert len(page["data"]) == 99 and first not in {found["id"] for found in page["data"]}
    assert page["meta"]["total"] == 100  # as it was when the response began


async def test_page_that_fails_midway_is_visibly_incomplete(
    api: Client, owner: asyncpg.Connection
) -> None:
    await create_page(api, owner, 100, 300_000)
    async with api.get(LIST) as response:
        await fail_midway(response, owner, "invoice_records")


async def test_slow_list_client_holds_no_database_connection(
    api: Client, owner: asyncpg.Connection
) -> None:
    await create_page(api, owner, 100, 300_000)
    async with api.get(LIST) as response:
        await response.content.readexactly(10_000)
        await wait_until_idle(owner)
        assert (await response.read()).endswith(b"]}")


async def test_concurrent_large_pages_are_complete(api: Client, owner: asyncpg.Connection) -> None:
    await create_page(api, owner, 30, 300_000)
    pages = await asyncio.gather(*[request_json(api, "GET", LIST) for _ in range(12)])
    assert [(status, len(page["data"])) for status, page in pages] == [(200, 30)] * 12


@pytest.mark.parametrize(
    "kind, most", [("incompressible", 1_500_000), ("compressible", 12_000_000)]
)
async def test_export_batch_is_bounded_in_bytes(
    api: Client, owner: asyncpg.Connection, results: Any, kind: str, most: int
) -> None:
    """Small records make the batches grow; the large ones after them make them small again."""
    await insert_copies(owner, await create_invoice(api), 640)
    small = "create temporary table small as select id from documents order by id desc limit 520"
    await owner.execute(f"{small}; create index on small (id)")
    text = TEXTS[kind].format(300_000)
    await owner.execute(
        f"""
            update documents
               set line_items = jsonb_set(line_items::jsonb, '{{0,description}}', to_jsonb({text})),
                   bytes = 300000
             where id not in (select id from small)
            """
    )
    results.clear()
    status, exports = await request_json(api, "GET", "/api/invoices/export-all")
    assert status == 200 and len({export["invoiceCode"] for export in exports}) == 640
    assert max(length for name, length in results if name == "invoice_export_batch") < most


@pytest.mark.own_service
async def test_many_exports_share_the_memory_of_a_few(
    api: Client, owner: asyncpg.Connection, results: Any
) -> None:
    await create_page(api, owner, 40, 40_000)
    longest = list[int]()
    async with AsyncExitStack() as stack:
        for running in (0, 60):
            for _ in range(running):
                await stack.enter_async_context(api.app[app_keys.LIMITS].exports.one())
            results.clear()
            status, exports = await request_json(api, "GET", "/api/invoices/export-all")
            assert status == 200 and len(exports) == 40
            longest.append(
                max(length for name, length in results if name == "invoice_export_batch")
            )
    assert 2 * longest[1] < longest[0]

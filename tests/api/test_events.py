"""The event feed: order, pagination, and no missed events."""

import re
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import asyncpg
import pytest

from service import schema
from service.db.statements import QUERIES
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_requests import expect, list_paths
from tests.conftest import Client, Company
from tests.harness.bodies import invoice

INSERT = "insert into events (company_id, type, data) values ($1, $2, '{}') returning id"


async def feed(api: Client, **query: Any) -> dict[str, Any]:
    return await expect(api, 200, "GET", "/api/events", params=query)


async def ids(api: Client, **query: Any) -> list[int]:
    return [event["id"] for event in (await feed(api, **query))["data"]]


async def all_of(api: Client, **query: Any) -> list[dict[str, Any]]:
    """Return every event, read page by page."""
    events: list[dict[str, Any]] = []
    page = await feed(api, **query)
    while events.extend(page["data"]) or page["meta"]["has_more"]:
        page = await feed(api, **{**query, "after": page["meta"]["next_after"]})
    return events


async def test_events_of_an_invoice_are_in_order(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    page = await feed(api)
    assert [event["type"] for event in page["data"]] == [
        f"invoice.{verb}" for verb in ("created", "submitting", "submitted", "valid")
    ]
    first = page["data"][0]
    assert set(first) == {"id", "type", "data", "created_at"}
    assert first["data"] == {"invoice_id": invoice_id}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["created_at"])


async def test_pages_have_no_gaps_or_overlaps(api: Client) -> None:
    invoices = [await create_invoice(api) for _ in range(7)]
    events = await all_of(api, limit=3)
    assert [event["data"]["invoice_id"] for event in events] == invoices
    page = await feed(api, limit=7)
    assert page["meta"] == {"has_more": False, "next_after": events[-1]["id"]}
    assert await feed(api, after=events[-1]["id"]) == {"data": [], "meta": page["meta"]}


async def test_feed_is_filtered_by_types(api: Client) -> None:
    invoice_id = await create_invoice(api)
    await expect(api, 200, "DELETE", f"/api/invoices/{invoice_id}")
    await create_invoice(api)
    page = await feed(api, types="invoice.deleted,invoice.valid", limit=1)
    assert [event["type"] for event in page["data"]] == ["invoice.deleted"]
    assert not page["meta"]["has_more"]


async def test_feed_without_events_is_empty(api: Client) -> None:
    assert await feed(api) == {"data": [], "meta": {"has_more": False, "next_after": 0}}


@pytest.mark.parametrize(
    "parameter, value",
    [
        ("after", "-1"),
        ("after", "x"),
        ("after", "٣"),
        ("after", "99999999999999999999"),
        ("after", "12345"),
        ("limit", "0"),
        ("limit", "101"),
        ("limit", "1.0"),
        ("types", "invoice.eaten"),
        ("types", "invoice.valid,"),
    ],
)
async def test_invalid_parameter_is_reported(api: Client, parameter: str, value: str) -> None:
    body = await expect(api, 422, "GET", "/api/events", params={parameter: value})
    assert list_paths(body) == [parameter]


async def test_events_of_another_company_are_not_shown(api: Client, stranger: Client) -> None:
    await create_invoice(api)
    [event] = (await feed(api))["data"]
    assert await ids(stranger) == []
    await expect(stranger, 422, "GET", "/api/events", params={"after": event["id"]})


async def read_around(api: Client, commit: Awaitable[None]) -> list[int]:
    """Return the ids of the events before a commit, and of those after them."""
    before = await feed(api)
    await commit
    after = await ids(api, after=before["meta"]["next_after"])
    return [event["id"] for event in before["data"]] + after


async def test_event_committed_later_with_a_smaller_id_is_not_skipped(
    api: Client, company: Company, owner: asyncpg.Connection, second: asyncpg.Connection
) -> None:
    """The slow transaction has the smaller id, so a reader of the greater one would miss it."""
    slow = owner.transaction()
    await slow.start()
    smaller: Any = await owner.fetchval(INSERT, company.id, "invoice.created")
    greater: Any = await second.fetchval(INSERT, company.id, "invoice.updated")
    assert smaller < greater
    assert await read_around(api, slow.commit()) == [smaller, greater]


async def test_event_of_a_transaction_that_began_later_is_not_skipped(
    api: Client, company: Company, owner: asyncpg.Connection, second: asyncpg.Connection
) -> None:
    """The first transaction gets the greater id and commits first; the smaller id comes later."""
    first, later = owner.transaction(), second.transaction()
    await first.start()
    await owner.fetchval("select pg_current_xact_id()")
    await later.start()
    smaller = await second.fetchval(INSERT, company.id, "invoice.updated")
    greater = await owner.fetchval(INSERT, company.id, "invoice.created")
    await first.commit()
    assert await read_around(api, later.commit()) == [greater, smaller]


async def test_rolled_back_event_is_not_shown(
    api: Client, company: Company, owner: asyncpg.Connection, second: asyncpg.Connection
) -> None:
    undone = owner.transaction()
    await undone.start()
    await owner.fetchval(INSERT, company.id, "invoice.created")
    kept = await second.fetchval(INSERT, company.id, "invoice.updated")
    await undone.rollback()
    assert await ids(api) == [kept]


async def test_rejected_creation_records_no_event(api: Client) -> None:
    await create_invoice(api, code=77)
    await expect(api, 422, "POST", "/api/invoices", json=invoice(code=77))
    assert len(await ids(api)) == 1


def test_every_written_event_type_is_in_the_schema() -> None:
    """Literal types only; those of submitted documents consist of a document kind and a state."""
    text = "\n".join(path.read_text() for path in QUERIES.glob("*.sql"))
    inserts = re.findall(r"insert into events.*?(?:;|\n\), |\n\)\n)", text, re.DOTALL)
    written = {name for insert in inserts for name in re.findall(r"'([a-z_]+\.[a-z_]+)'", insert)}
    assert written and written <= set(schema.get_values("event_type"))


@pytest.fixture
async def second(database: str) -> AsyncIterator[asyncpg.Connection]:
    """Yield another connection of the owner."""
    conn = await asyncpg.connect(database)
    yield conn
    await conn.close()

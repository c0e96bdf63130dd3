"""Lists as CSV: streamed in parts, within the limits of exports."""

import asyncio
import csv
import io
import itertools
import socket
import tracemalloc
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from service.http import app_keys
from service.http.limits import MAX_EXPORTS
from tests.api.test_exports import insert_copies
from tests.api_invoices import create_invoice, create_one_of_each, create_valid_invoice
from tests.api_reads import fail_midway, wait_until_idle
from tests.api_requests import create_record
from tests.conftest import Client
from tests.harness.bodies import buyer, line, note
from tests.harness.visitors import Visitor

PATH = "/invoices.csv"


def percent(kind: str, rate: float) -> dict[str, Any]:
    return {"taxType": kind, "taxRate": {"percentage": rate}}


def write_cookies(visitor: Visitor) -> str:
    """Return the header that makes requests of another client those of a visitor."""
    return "; ".join(map("=".join, visitor.cookies.items()))


def open_csv(site: Client, visitor: Visitor) -> Any:
    """Request the list as the visitor, and read only what is asked for."""
    return site.get(PATH, headers={"Cookie": write_cookies(visitor)})


def read_column(text: str, name: str) -> list[str]:
    """Return a column of a CSV file without its name."""
    head, *rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    return [row[head.index(name)] for row in rows]


async def insert_large(owner: asyncpg.Connection, site: Client, count: int, size: int) -> None:
    """Insert invoices with a large member."""
    await insert_copies(owner, await create_invoice(site), count, remark="x" * size)


@pytest.mark.parametrize("query", ["", "?sort=id", "?query=aminah&status="])
async def test_a_list_of_several_pages_is_complete_and_in_order(
    member: Visitor, site: Client, owner: asyncpg.Connection, query: str
) -> None:
    """Pages of large documents are read in parts, others at once."""
    await insert_large(owner, site, 220, 1)
    enlarge = "update documents set buyer = buyer::jsonb || jsonb_build_object('remark', $1::text)"
    await owner.execute(f"{enlarge}, bytes = 60000 where id % 4 = 0 and id < 150", "x" * 60_000)
    await member.get(f"{PATH}{query}")
    ids = [row["id"] for row in await owner.fetch("select id from documents order by id desc")]
    expected = ids[::-1] if query == "?sort=id" else ids
    assert (member.status, len(ids)) == (200, 220)
    assert read_column(member.text, "id") == [str(each) for each in expected]


async def test_a_list_has_each_document_once_while_others_are_created(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    await insert_large(owner, site, 2000, 1)
    before = {str(row["id"]) for row in await owner.fetch("select id from documents")}
    codes = itertools.count(100_000)
    async with open_csv(site, member) as response:
        reading = asyncio.create_task(response.text())
        while not reading.done():
            await create_invoice(site, code=next(codes))
    ids = read_column(await reading, "id")
    assert len(ids) == len(set(ids)) and before <= set(ids)


async def test_a_page_of_large_documents_is_complete(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    await insert_large(owner, site, 25, 60_000)
    await member.get("/invoices")
    assert member.status == 200 and member.is_page and "1 to 25 of 25" in member.words


async def test_lists_of_all_kinds_are_csv_files(member: Visitor, site: Client) -> None:
    await create_one_of_each(site)
    for path in ("/invoices.csv", "/notes.csv", "/consolidated.csv"):
        await member.get(path)
        assert member.status == 200 and read_column(member.text, "id")


def read_row(text: str) -> dict[str, str]:
    """Return the first row of a CSV file by the names of its columns."""
    head, row, *_ = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    return dict(zip(head, row, strict=True))


async def test_a_sale_after_midnight_is_of_its_local_day(member: Visitor, site: Client) -> None:
    await create_invoice(site, issueDateTime="2026-10-31T18:09:10Z")
    await member.get(PATH)
    found = read_row(member.text)
    assert (found["issue_date"], found["issue_time"]) == ("2026-11-01", "02:09:10")


MIXED = [
    line(unit={"price": 100, "count": 1}, taxDetails=[percent("02", 8), percent("01", 5)]),
    line(unit={"price": 10, "count": 1}, taxDetails=[percent("E", 8)], taxExemptionReason="Order"),
]


async def test_a_row_has_what_an_accountant_needs(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    await create_valid_invoice(
        site, code=7, lineItems=MIXED, currencyCode="USD", exchangeRate=4.205
    )
    await member.get(PATH)
    sent = await owner.fetchrow("select uuid, validation_link as link from submitted_documents")
    assert sent and sent["uuid"] and sent["link"]
    assert {
        "number": "INV-00007",
        "currency": "USD",
        "excluding_tax": "110.00",
        "tax": "13.00",
        "including_tax": "123.00",
        "payable": "123.00",
        "tax_01": "5.00",
        "tax_02": "8.00",
        "tax_03": "0.00",
        "exempt": "10.00",
        "exchange_rate": "4.205",
        "excluding_tax_myr": "462.55",
        "tax_myr": "54.67",
        "payable_myr": "517.22",
        "tin": "EI00000000010",
        **sent,
    }.items() <= read_row(member.text).items()


@pytest.mark.parametrize(
    "kind, sign", [("CREDIT_NOTE", "-"), ("REFUND_NOTE", "-"), ("DEBIT_NOTE", "")]
)
async def test_a_note_that_reduces_its_invoice_is_negative(
    member: Visitor, site: Client, kind: str, sign: str
) -> None:
    invoice_id = await create_valid_invoice(
        site, lineItems=MIXED, currencyCode="USD", exchangeRate=4.205
    )
    path = f"/api/invoices/{invoice_id}/adjustment-note"
    await create_record(site, path, **note(type=kind, lineItems=MIXED))
    await member.get("/notes.csv")
    found = read_row(member.text)
    assert {
        "excluding_tax": f"{sign}110.00",
        "tax_02": f"{sign}8.00",
        "tax_03": "0.00",
        "exempt": f"{sign}10.00",
        "payable_myr": f"{sign}517.22",
        "party": buyer()["name"],
        "uuid": "",
        "link": "",
    }.items() <= found.items()


@pytest.mark.parametrize(
    "changes, tin",
    [
        ({"buyer": buyer(tin="C 5510387420")}, "C5510387420"),
        ({"buyer": {"type": "GENERAL_PUBLIC"}}, "EI00000000010"),
        ({"type": "PENDING_FINALIZE_INVOICE", "buyer": None}, ""),
    ],
)
async def test_the_tin_is_that_which_the_portal_receives(
    member: Visitor, site: Client, changes: dict[str, Any], tin: str
) -> None:
    await create_invoice(site, **changes)
    await member.get(PATH)
    assert read_row(member.text)["tin"] == tin


async def test_an_amount_without_a_rate_is_empty(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    await create_invoice(site, currencyCode="USD", exchangeRate=4.2)
    await owner.execute("update documents set exchange_rate = null")
    await member.get(PATH)
    found = read_row(member.text)
    assert [found[name] for name in ("payable_myr", "exchange_rate")] == ["", ""]


async def test_a_list_with_an_invalid_filter_is_an_error_page(member: Visitor) -> None:
    await member.get(f"{PATH}?status=Unknown")
    assert member.status == 422 and member.is_page


async def test_a_list_of_large_documents_takes_little_memory(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    lines = [line(description=f"Coffee {number}") for number in range(800)]
    await insert_copies(owner, await create_invoice(site, lineItems=lines), 60)
    tracemalloc.start()
    try:
        await member.get(PATH)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert len(read_column(member.text, "id")) == 60


async def test_a_company_downloads_a_list_once_at_a_time(
    member: Visitor, admin: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    await create_invoice(site)
    async with owner.transaction():
        await owner.execute("lock table submitted_documents")
        async with open_csv(site, member) as response:
            await response.content.readexactly(100)
            await admin.get(PATH)
            assert admin.status == 429 and "already running" in admin.words
            await admin.get("/notes.csv")
            assert admin.status == 200
    await admin.get(PATH)
    assert admin.status == 200


async def test_downloads_count_as_exports_of_the_process(member: Visitor, site: Client) -> None:
    exports = site.app[app_keys.LIMITS].exports
    async with AsyncExitStack() as stack:
        for _ in range(MAX_EXPORTS):
            await stack.enter_async_context(exports.one())
        await member.get(PATH)
        assert member.status == 503 and member.is_page


async def test_a_list_that_fails_midway_is_visibly_incomplete(
    member: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    await insert_copies(owner, await create_invoice(site), 3000)
    async with open_csv(site, member) as response:
        await fail_midway(response, owner, "submitted_documents", 100)


async def test_a_slow_reader_of_a_list_holds_no_connection(
    member: Visitor, admin: Visitor, site: Client, owner: asyncpg.Connection
) -> None:
    await insert_copies(owner, await create_invoice(site), 3000, name="A" * 300)
    head = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nCookie: {write_cookies(member)}\r\n\r\n"
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await loop.sock_connect(connection, ("127.0.0.1", site.port))
        await loop.sock_sendall(connection, head.encode())
        assert (await loop.sock_recv(connection, 100)).startswith(b"HTTP/1.1 200 OK")
        await wait_until_idle(owner)
        await admin.get(PATH)
        assert admin.status == 429  # the first download has not ended

"""Requests of buyers by a public link: one pending request per buyer, and few per link."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from conftest import Client, Company, StartService, make_company
from harness.visitors import Visitor
from kit import GENEROUS, create_invoice, request_json
from yarl import URL

from service.api.einvoice_requests import MOST_PENDING, buyer_waits, link_full

REQUESTS = "/api/einvoice-requests"
PLACE = "/api/invoices/{}/links"
SENT = "Your request was sent to the seller."
WAITS, FULL = str(buyer_waits()), str(link_full())


@dataclass
class Receipt:
    """The page of a link, at one service."""

    visitor: Visitor
    path: str
    link_id: int
    statuses: list[int] = field(default_factory=list)

    async def ask(self, **buyer: str) -> str:
        """Send the form for a buyer and return the words of the page that follows."""
        await self.visitor.get(self.path)
        fields = {"name": "Aminah", "type": "LOCAL_INDIVIDUAL", **buyer}
        await self.visitor.post(
            self.path, {f"/{name.replace('__', '/')}": text for name, text in fields.items()}
        )
        self.statuses.append(self.visitor.status)
        return self.visitor.words


@pytest.fixture
async def stack() -> Any:
    async with AsyncExitStack() as opened:
        yield opened


async def make_link(site: Client) -> dict[str, Any]:
    invoice_id = await create_invoice(site, type="PENDING_FINALIZE_INVOICE", buyer=None)
    _, answer = await request_json(
        site, "POST", PLACE.format(invoice_id), json={"purpose": "request"}
    )
    return answer["data"]


async def open_receipt(stack: AsyncExitStack, site: Client, link: dict[str, Any]) -> Receipt:
    visitor = await stack.enter_async_context(Visitor(site.make_url("/")))
    return Receipt(visitor, URL(link["url"]).path, link["id"])


@pytest.fixture
async def receipt(stack: AsyncExitStack, site: Client) -> Receipt:
    return await open_receipt(stack, site, await make_link(site))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"tin": "IG40125678090"}, {"tin": "ig 40125678090"}),
        ({"registration__number": "880214-14-5566"}, {"registration__number": "880214145566"}),
        (
            {"tin": "IG1", "registration__number": "880214145566"},
            {"tin": "IG2", "registration__number": "880214145566"},
        ),
    ],
    ids=["tin", "number", "number with another tin"],
)
async def test_a_second_pending_request_of_a_buyer_is_a_409(
    receipt: Receipt, site: Client, first: dict[str, str], second: dict[str, str]
) -> None:
    assert SENT in await receipt.ask(**first)
    assert WAITS in await receipt.ask(**second)
    assert receipt.statuses == [200, 409]
    _, answer = await request_json(site, "GET", REQUESTS)
    (stored,) = answer["data"]
    path = f"{REQUESTS}/{stored['id']}"
    assert (await request_json(site, "PUT", path, json={"status": "Reject"}))[0] == 200
    assert SENT in await receipt.ask(**second)  # The seller has answered the first one.


@pytest.mark.parametrize(
    "buyer",
    [{}, {"tin": "EI00000000020"}, {"registration__number": "NA"}],
    ids=["nothing", "general tin", "no number"],
)
async def test_requests_without_an_own_number_are_of_different_buyers(
    receipt: Receipt, buyer: dict[str, str]
) -> None:
    assert SENT in await receipt.ask(**buyer)
    assert SENT in await receipt.ask(**buyer)


async def test_a_link_has_few_pending_requests(
    receipt: Receipt, stack: AsyncExitStack, site: Client
) -> None:
    for number in range(MOST_PENDING):
        assert SENT in await receipt.ask(tin=f"IG{number}")
    assert FULL in await receipt.ask(tin="IG99") and receipt.statuses[-1] == 409
    other = await open_receipt(stack, site, await make_link(site))
    assert SENT in await other.ask(tin="IG99")


async def test_the_api_stores_any_number_of_requests(site: Client) -> None:
    body = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "A", "tin": "IG1"}
    for _ in range(MOST_PENDING + 1):
        assert (await request_json(site, "POST", REQUESTS, json=body))[0] == 201


@pytest.mark.parametrize("is_same", [True, False], ids=["one buyer", "many buyers"])
async def test_concurrent_requests_at_two_services_keep_to_the_limits(
    stack: AsyncExitStack,
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    is_same: bool,
) -> None:
    sites = [await start(company, background=False, **GENEROUS) for _ in range(2)]
    link = await make_link(sites[0])
    receipts = [await open_receipt(stack, sites[number % 2], link) for number in range(24)]
    await asyncio.gather(
        *(each.ask(tin="IG1" if is_same else f"IG{number}") for number, each in enumerate(receipts))
    )
    stored = await owner.fetchval(
        "select count(*) from einvoice_requests where link_id = $1", link["id"]
    )
    most = 1 if is_same else MOST_PENDING
    statuses = sorted(status for each in receipts for status in each.statuses)
    assert (stored, statuses) == (most, [200] * most + [409] * (24 - most))


async def test_the_link_of_an_invoice_with_its_buyer_stores_nothing(
    receipt: Receipt, site: Client
) -> None:
    """Its approval could only be refused."""
    await receipt.ask(registration__number="880214145566")
    _, found = await request_json(site, "GET", "/api/einvoice-requests")
    path = f"/api/einvoice-requests/{found['data'][0]['id']}"
    await receipt.visitor.get(receipt.path)
    status, _ = await request_json(site, "PUT", path, json={"status": "Approve"})
    assert status == 200
    await receipt.visitor.post(receipt.path, {"/name": "Bakar", "/type": "LOCAL_INDIVIDUAL"})
    assert receipt.visitor.status == 409
    await receipt.visitor.get(receipt.path)
    assert "The seller has entered the buyer" in receipt.visitor.words
    assert "<form" not in receipt.visitor.text
    _, found = await request_json(site, "GET", "/api/einvoice-requests")
    assert found["meta"]["total"] == 1


async def test_a_link_that_is_revoked_while_a_request_waits_for_it_stores_nothing(
    receipt: Receipt, owner: asyncpg.Connection
) -> None:
    async with owner.transaction():
        await owner.execute("update document_links set revoked_at = now()")
        asking = asyncio.create_task(receipt.ask(tin="IG1"))
        waiting = "select count(*) from pg_locks where not granted"
        while not await owner.fetchval(waiting):
            assert not asking.done()
    assert "expired or was revoked" in await asking and receipt.statuses == [404]
    assert await owner.fetchval("select count(*) from einvoice_requests") == 0


async def test_links_of_another_company_share_no_limits(
    receipt: Receipt,
    stack: AsyncExitStack,
    start: StartService,
    environment: dict[str, str],
) -> None:
    assert SENT in await receipt.ask(tin="IG1")
    theirs = await start(await make_company(environment), **GENEROUS)
    other = await open_receipt(stack, theirs, await make_link(theirs))
    assert SENT in await other.ask(tin="IG1")

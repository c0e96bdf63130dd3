"""Requests of buyers by a public link: one pending request per buyer, and few per link."""

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest
from yarl import URL

from service.api.einvoice_requests import MOST_PENDING, buyer_waits, link_full
from tests.api_invoices import create_invoice
from tests.api_reads import get_invoice, wait_until_status
from tests.api_requests import expect, request_json, submit
from tests.conftest import Client, StartService, make_company
from tests.fixtures_dashboard import SignIn
from tests.harness.bodies import buyer
from tests.harness.environments import GENEROUS
from tests.harness.visitors import Visitor

REQUESTS = "/api/einvoice-requests"
PLACE = "/api/invoices/{}/links"
SENT = "Your request was sent to the seller."
WAITS, FULL = str(buyer_waits()), str(link_full())


#: The fields of a buyer, without the numbers.
BUYER = {
    "name": "Aminah",
    "type": "LOCAL_INDIVIDUAL",
    "contactNumber": "+60123456789",
    "address__line1": "5 Jalan Dahlia",
    "address__zipCode": "40150",
    "address__city": "Shah Alam",
    "address__state": "10",
    "address__country": "MYS",
}
KEY = "k" * 30
NUMBER = {"registration__type": "NRIC", "registration__number": "880214145566"}
ABROAD = {"type": "FOREIGN_INDIVIDUAL", "address__country": "SGP", "address__state": "17"}


@dataclass
class Receipt:
    """The page of a link, at one service."""

    visitor: Visitor
    path: str
    link_id: int
    statuses: list[int] = field(default_factory=list)

    async def ask(self, form_key: str = "", **buyer: str) -> str:
        """Send the form for a buyer and return the words of the page that follows."""
        await self.visitor.get(self.path)
        fields = {**BUYER, **buyer}
        key = {"form_key": form_key} if form_key else {}
        sent = {f"/{name.replace('__', '/')}": text for name, text in fields.items()}
        await self.visitor.post(self.path, {**sent, **key})
        self.statuses.append(self.visitor.status)
        return self.visitor.words


@pytest.fixture
async def stack() -> Any:
    async with AsyncExitStack() as opened:
        yield opened


async def make_link(site: Client) -> dict[str, Any]:
    invoice_id = await create_invoice(site, type="PENDING_FINALIZE_INVOICE", buyer=None)
    body = {"purpose": "request"}
    _, answer = await request_json(site, "POST", PLACE.format(invoice_id), json=body)
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
    assert (
        f'href="{receipt.path}"' in receipt.visitor.text and 'href="/"' not in receipt.visitor.text
    )
    _, answer = await request_json(site, "GET", REQUESTS)
    (stored,) = answer["data"]
    path = f"{REQUESTS}/{stored['id']}"
    await expect(site, 200, "PUT", path, json={"status": "Reject"})
    assert SENT in await receipt.ask(**second)  # The seller has answered the first one.


async def test_a_request_has_only_the_members_of_its_form(receipt: Receipt, site: Client) -> None:
    assert SENT in await receipt.ask(
        **NUMBER, metadata__approved="yes", address__floor="5", reference="R-1"
    )
    (stored,) = (await request_json(site, "GET", REQUESTS))[1]["data"]
    assert stored["metadata"] is None
    assert "floor" not in stored["document_details"]["buyer"]["address"]


@pytest.mark.parametrize(
    "buyer",
    [ABROAD, {**ABROAD, "tin": "EI00000000020"}, {**ABROAD, "registration__number": "NA"}],
    ids=["nothing", "general tin", "no number"],
)
async def test_requests_without_an_own_number_are_of_different_buyers(
    receipt: Receipt, buyer: dict[str, str]
) -> None:
    assert SENT in await receipt.ask(**buyer)
    assert SENT in await receipt.ask(**buyer)


#: Field -> text that the portal would refuse -> words of the correction.
REFUSED = {
    "contactNumber": {
        "12": "must have 8 to 20 characters",
        "": "The phone number of the buyer is missing",
    },
    "address__zipCode": {"4015": "fewer than the 5 digits", "401500": "at most 5 digits"},
    "tin": dict.fromkeys(("X123", "C123"), "must be a prefix and digits"),
    "registration__number": {"123": "must have 12 digits"},
    "email": {"a@b": "not a valid address"},
    "address__state": {"17": "must not be 17"},
    "address__city": {"": "The city of the buyer is missing"},
    "type": {
        "GENERAL_PUBLIC": "must name the buyer",
        "LOCAL_COMPANY": "The TIN of the buyer is missing",
    },
}


@pytest.mark.parametrize(
    "field, text, words", [(name, *row) for name, texts in REFUSED.items() for row in texts.items()]
)
async def test_a_buyer_whom_the_portal_would_refuse_is_corrected_in_the_form(
    receipt: Receipt, owner: asyncpg.Connection, field: str, text: str, words: str
) -> None:
    await receipt.ask(**{**NUMBER, field: text})
    assert receipt.statuses == [422] and words in receipt.visitor.words
    name = {"type": "tin"}.get(field, field) if text == "LOCAL_COMPANY" else field
    place = f'id="/{name.replace("__", "/")}"'
    assert place in receipt.visitor.text, receipt.visitor.text
    assert "Aminah" in receipt.visitor.text  # what was entered stays
    assert await owner.fetchval("select count(*) from einvoice_requests") == 0
    assert SENT in await receipt.ask(**NUMBER)


async def read_page(receipt: Receipt) -> str:
    """Open the link again, and return the words of its page."""
    await receipt.visitor.get(receipt.path)
    assert receipt.visitor.status == 200
    return receipt.visitor.words


async def decide(site: Client, **body: str) -> None:
    """Change the newest request."""
    _, found = await request_json(site, "GET", REQUESTS)
    path = f"{REQUESTS}/{found['data'][0]['id']}"
    await expect(site, 200, "PUT", path, json=body)


async def test_a_link_shows_what_became_of_a_request_to_its_buyer_alone(
    receipt: Receipt, stack: AsyncExitStack, site: Client
) -> None:
    stranger = await open_receipt(stack, site, {"url": receipt.path, "id": receipt.link_id})
    blank = await read_page(stranger)
    await receipt.ask(**NUMBER)
    assert "waits for the seller" in await read_page(receipt)
    assert "Aminah" not in receipt.visitor.text
    assert await read_page(stranger) == blank
    await decide(site, status="Reject", reason="The name <b>differs</b>")
    words = await read_page(receipt)
    assert "The seller rejected your request" in words
    assert "Reason: The name <b>differs</b>" in words
    assert "<form" in receipt.visitor.text and "<b>" not in receipt.visitor.text
    assert await read_page(stranger) == blank
    assert SENT in await receipt.ask(**NUMBER)
    assert "waits for the seller" in await read_page(receipt)
    await decide(site, status="Approve")
    words = await read_page(receipt)
    assert "The seller approved your request" in words and "has not sent the e-invoice" in words
    assert "<form" not in receipt.visitor.text
    assert "approved" not in await read_page(stranger)


async def test_a_reload_after_a_rejection_shows_the_form_and_no_success(
    receipt: Receipt, site: Client
) -> None:
    await receipt.ask(**NUMBER)
    page = f"{receipt.path}?sent=yes"
    await receipt.visitor.get(page)
    assert SENT in receipt.visitor.words and "<form" not in receipt.visitor.text
    await decide(site, status="Reject")
    await receipt.visitor.get(page)
    assert SENT not in receipt.visitor.words and '<form class="stack"' in receipt.visitor.text


async def test_the_form_of_a_rejected_request_is_shown_with_a_new_key(
    receipt: Receipt, site: Client
) -> None:
    await receipt.ask(**NUMBER, form_key=KEY)
    await receipt.visitor.get(f"{receipt.path}?form={KEY}")
    assert f'value="{KEY}"' in receipt.visitor.text  # The same entries are not sent twice.
    await decide(site, status="Reject")
    await receipt.visitor.get(f"{receipt.path}?form={KEY}")
    assert f'value="{KEY}"' not in receipt.visitor.text
    assert '<form class="stack"' in receipt.visitor.text


async def test_other_entries_of_a_sent_form_are_kept_and_sent_again(
    receipt: Receipt, site: Client
) -> None:
    await receipt.ask(**NUMBER, form_key=KEY)
    await decide(site, status="Reject")
    other = {**NUMBER, "name": "Aminah Two"}
    words = await receipt.ask(**other, form_key=KEY)
    assert receipt.statuses[-1] == 409 and "These entries are not sent yet." in words
    assert 'value="Aminah Two"' in receipt.visitor.text
    key = re.search(r'name="form_key" value="([^"]*)"', receipt.visitor.text)
    assert SENT in await receipt.ask(**other, form_key=key[1] if key else "")


async def approve(receipt: Receipt, site: Client, owner: asyncpg.Connection) -> int:
    """Ask for an invoice, approve the request, and return the id of the invoice."""
    await receipt.ask(**NUMBER)
    await decide(site, status="Approve")
    invoice_id = await owner.fetchval("select invoice_id from einvoice_requests")
    assert invoice_id
    return invoice_id


async def test_an_approved_request_shows_the_state_and_the_page_of_its_document(
    receipt: Receipt, site: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await approve(receipt, site, owner)
    await submit(site, invoice_id)
    await wait_until_status(site, invoice_id, "Valid")
    assert "The tax authority has validated the e-invoice." in await read_page(receipt)
    link = await owner.fetchval("select validation_link from submitted_documents")
    assert f'href="{link}"' in receipt.visitor.text


async def test_the_buyer_of_a_request_sees_nothing_of_the_next_buyer(
    receipt: Receipt, site: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await approve(receipt, site, owner)
    path = f"/api/invoices/{invoice_id}"
    moved = {**(await get_invoice(site, invoice_id))["buyer"], "contactNumber": "+60187654321"}
    await expect(site, 200, "PUT", path, json={"buyer": moved})
    assert "has not sent the e-invoice" in await read_page(receipt)
    await expect(site, 200, "PUT", path, json={"buyer": buyer(name="Tan Ah Kow")})
    await submit(site, invoice_id)
    await wait_until_status(site, invoice_id, "Valid")
    words = await read_page(receipt)
    assert "The invoice has another buyer" in words and "validated" not in words
    assert "/share/" not in receipt.visitor.text


@pytest.mark.parametrize("change", ["renumbered", "deleted", "finalized by hand"])
async def test_an_approval_finalizes_the_invoice_of_the_link_only(
    receipt: Receipt, site: Client, owner: asyncpg.Connection, change: str
) -> None:
    await receipt.ask(**NUMBER)
    row = await owner.fetchrow("select id, code from documents")
    assert row
    path = f"/api/invoices/{row['id']}"
    if change == "renumbered":
        await expect(site, 200, "PUT", path, json={"code": row["code"] + 1000})
    elif change == "deleted":
        await expect(site, 200, "DELETE", path)
    else:
        changed = {"type": "INVOICE", "buyer": buyer(), "code": row["code"] + 1000}
        await expect(site, 200, "PUT", path, json=changed)
    other = await create_invoice(
        site, type="PENDING_FINALIZE_INVOICE", buyer=None, code=row["code"]
    )
    await decide(site, status="Approve")
    assert (await get_invoice(site, other))["type"] == "PENDING_FINALIZE_INVOICE"
    if change == "renumbered":
        assert (await get_invoice(site, row["id"]))["buyer"]["name"] == "Aminah"
    else:
        await decide(site, status="Approve", invoiceCode=f"INV-{row['code']:05}")
        assert (await get_invoice(site, other))["buyer"]["name"] == "Aminah"


async def test_an_approval_without_an_invoice_says_so_to_both(
    receipt: Receipt, site: Client, sign_in: SignIn, owner: asyncpg.Connection
) -> None:
    await receipt.ask(**NUMBER)
    invoice_id = await owner.fetchval("select id from documents")
    body = {"type": "INVOICE", "buyer": buyer(name="Tan Ah Kow")}
    await expect(site, 200, "PUT", f"/api/invoices/{invoice_id}", json=body)
    member = await sign_in(site, "member")
    await member.get("/requests")
    await member.post("/requests/1/approve", {})
    assert "its buyer is not the buyer of an invoice" in member.words
    assert "The invoice has another buyer" in await read_page(receipt)


async def test_other_requests_for_an_issued_invoice_have_their_reason(
    receipt: Receipt, stack: AsyncExitStack, site: Client
) -> None:
    other = await open_receipt(stack, site, {"url": receipt.path, "id": receipt.link_id})
    await other.ask(tin="IG1")
    await receipt.ask(**NUMBER)
    await decide(site, status="Approve")
    words = await read_page(other)
    assert "rejected your request" in words and "issued to another buyer" in words
    assert "<form" not in other.visitor.text and "Aminah" not in words


async def test_the_secret_of_a_request_opens_no_other_link(
    receipt: Receipt, stack: AsyncExitStack, site: Client
) -> None:
    await receipt.ask(**NUMBER)
    other = await open_receipt(stack, site, await make_link(site))
    page = site.make_url(receipt.path)
    secret = receipt.visitor.cookies_of(page)["receipt"]
    headers = {"Cookie": f"receipt={secret}"}
    async with site.get(other.path, headers=headers) as response:
        assert "waits for the seller" not in await response.text()
    async with site.get(receipt.path, headers=headers) as response:
        assert "waits for the seller" in await response.text()
    for wrong in ("", "x", secret[:-1] + ("A" if secret[-1] != "A" else "B")):
        async with site.get(receipt.path, headers={"Cookie": f"receipt={wrong}"}) as response:
            assert "waits for the seller" not in await response.text()


@pytest.mark.parametrize("status", [None, "Approve", "Pending"])
async def test_a_reason_requires_a_rejection(receipt: Receipt, site: Client, status: Any) -> None:
    await receipt.ask(**NUMBER)
    _, found = await request_json(site, "GET", REQUESTS)
    path = f"{REQUESTS}/{found['data'][0]['id']}"
    body = {"reason": "No", **({"status": status} if status else {})}
    code, answer = await request_json(site, "PUT", path, json=body)
    assert (code, answer["errors"][0]["path"]) == (422, "/reason")


async def test_a_reason_of_a_rejection_ends_with_it(receipt: Receipt, site: Client) -> None:
    await receipt.ask(**NUMBER)
    for body, reason in (
        ({"status": "Reject", "reason": "No"}, "No"),
        ({"name": "Bakar"}, "No"),
        ({"status": "Pending"}, None),
        ({"status": "Reject"}, None),
    ):
        await decide(site, **body)
        _, found = await request_json(site, "GET", REQUESTS)
        assert found["data"][0]["rejection_reason"] == reason


async def test_the_seller_enters_a_reason_with_the_rejection(
    receipt: Receipt, site: Client, member: Visitor
) -> None:
    await receipt.ask(**NUMBER)
    _, found = await request_json(site, "GET", REQUESTS)
    await member.fill_in(
        "/requests", {"reason": "Wrong shop"}, path=f"/requests/{found['data'][0]['id']}/reject"
    )
    assert "Wrong shop" in member.words
    assert "Reason: Wrong shop" in await read_page(receipt)


async def test_a_link_has_few_pending_requests(
    receipt: Receipt, stack: AsyncExitStack, site: Client
) -> None:
    for number in range(MOST_PENDING):
        assert SENT in await receipt.ask(tin=f"IG{number}")
    assert FULL in await receipt.ask(tin="IG99") and receipt.statuses[-1] == 409
    other = await open_receipt(stack, site, await make_link(site))
    assert SENT in await other.ask(tin="IG99")


async def test_a_full_link_does_not_tell_whose_request_waits(receipt: Receipt) -> None:
    """Strangers could try numbers without limit."""
    for number in range(MOST_PENDING):
        await receipt.ask(tin=f"IG{number}")
    assert FULL in await receipt.ask(tin="IG1")


async def test_the_api_stores_any_number_of_requests(site: Client) -> None:
    body = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "A", "tin": "IG1"}
    for _ in range(MOST_PENDING + 1):
        await expect(site, 201, "POST", REQUESTS, json=body)


@pytest.mark.parametrize("is_same", [True, False], ids=["one buyer", "many buyers"])
async def test_concurrent_requests_at_two_services_keep_to_the_limits(
    stack: AsyncExitStack, start: StartService, owner: asyncpg.Connection, is_same: bool
) -> None:
    sites = [await start(background=False, **GENEROUS) for _ in range(2)]
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
    receipt: Receipt, stack: AsyncExitStack, site: Client
) -> None:
    """Its approval could only be refused."""
    await receipt.ask(registration__number="880214145566")
    _, found = await request_json(site, "GET", "/api/einvoice-requests")
    path = f"/api/einvoice-requests/{found['data'][0]['id']}"
    await receipt.visitor.get(receipt.path)
    await expect(site, 200, "PUT", path, json={"status": "Approve"})
    await receipt.visitor.post(receipt.path, {"/name": "Bakar", "/type": "LOCAL_INDIVIDUAL"})
    assert receipt.visitor.status == 409
    stranger = await open_receipt(stack, site, {"url": receipt.path, "id": receipt.link_id})
    assert "The seller has entered the buyer" in await stranger.visitor.read_words(receipt.path)
    assert "<form" not in stranger.visitor.text
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


async def test_the_link_of_a_deleted_invoice_is_gone(
    receipt: Receipt, site: Client, owner: asyncpg.Connection
) -> None:
    await receipt.visitor.get(receipt.path)
    invoice_id = await owner.fetchval("select id from documents")
    await expect(site, 200, "DELETE", f"/api/invoices/{invoice_id}")
    await receipt.visitor.post(receipt.path, {"/name": "Aminah"})
    assert receipt.visitor.status == 404 and "expired or was revoked" in receipt.visitor.words
    await receipt.visitor.get(receipt.path)
    assert receipt.visitor.status == 404 and "expired or was revoked" in receipt.visitor.words


async def test_links_of_another_company_share_no_limits(
    receipt: Receipt, stack: AsyncExitStack, start: StartService, environment: dict[str, str]
) -> None:
    assert SENT in await receipt.ask(tin="IG1")
    theirs = await start(await make_company(environment), **GENEROUS)
    other = await open_receipt(stack, theirs, await make_link(theirs))
    assert SENT in await other.ask(tin="IG1")

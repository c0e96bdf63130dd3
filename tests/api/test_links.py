"""Links to a document for people without an account: create, list, revoke."""

from typing import Any

import asyncpg
import pytest
from yarl import URL

from service.api.links import MOST
from tests.api.test_notes import create_note
from tests.api_invoices import create_invoice, create_one_of_each, create_valid_invoice
from tests.api_requests import expect, not_found, request_json
from tests.conftest import Client, StartService, make_company
from tests.harness.bodies import buyer
from tests.harness.environments import GENEROUS

PENDING = "PENDING_FINALIZE_INVOICE"
PLACES = ("/api/invoices", "/api/adjustment-notes", "/api/consolidated-invoices")
MISSING = (404, {"message": "Link not found", "code": "not_found"})


async def create_link(api: Client, place: str, **body: str) -> dict[str, Any]:
    answer = await expect(api, 201, "POST", f"{place}/links", json=body)
    return answer["data"]


async def list_links(api: Client, place: str) -> Any:
    return (await request_json(api, "GET", f"{place}/links"))[1]


async def open_link(api: Client, url: str) -> tuple[int, str]:
    """Open the page of a link as a visitor, and return its status and text."""
    async with api.get(URL(url).path) as response:
        return response.status, await response.text()


async def test_a_link_to_each_kind_of_document_opens_its_page_until_revoked(
    start: StartService, environment: dict[str, str]
) -> None:
    api = await start(await make_company(environment), **GENEROUS)
    ids = await create_one_of_each(api)
    for path in PLACES:
        place = f"{path}/{ids[path]}"
        link = await create_link(api, place)
        assert list(link) == ["id", "expires_at", "url"] and "/shared/" in link["url"]
        (listed,) = await list_links(api, place)
        assert listed == {
            "id": link["id"],
            "purpose": "view",
            "created_at": listed["created_at"],
            "expires_at": link["expires_at"],
        }
        assert (await open_link(api, link["url"]))[0] == 200
        revoked = await request_json(api, "DELETE", f"{place}/links/{link['id']}")
        assert revoked == (200, {"success": True, "message": "Link revoked."})
        assert (await open_link(api, link["url"]))[0] == 404
        assert await list_links(api, place) == []
        assert await request_json(api, "DELETE", f"{place}/links/{link['id']}") == MISSING


async def test_a_change_of_the_buyer_revokes_the_links_to_the_printed_page(
    api: Client, owner: asyncpg.Connection
) -> None:
    place = f"/api/invoices/{await create_invoice(api, type=PENDING, buyer=None)}"
    link = await create_link(api, place)
    for body, status in (
        ({"type": "INVOICE", "buyer": buyer()}, 200),
        ({"buyer": buyer(contactNumber="+60187654321")}, 200),
        ({"isReady": True}, 200),
        ({"buyer": buyer(name="Tan Ah Kow")}, 404),
    ):
        await expect(api, 200, "PUT", place, json=body)
        assert (await open_link(api, link["url"]))[0] == status, body
    assert await list_links(api, place) == []
    link = await create_link(api, place)
    seller = {"type": "SELF_BILLED_INVOICE", "supplier": buyer(), "buyer": buyer()}
    await expect(api, 200, "PUT", place, json=seller)
    link = await create_link(api, place)
    other = {"supplier": buyer(name="Foshan Timber Export Co. Ltd."), "buyer": buyer()}
    await expect(api, 200, "PUT", place, json=other)
    assert (await open_link(api, link["url"]))[0] == 404
    query = "select count(*) from audit_log where action = 'unshare'"
    assert await owner.fetchval(query) == 3


async def test_links_are_listed_newest_first_without_expired_ones(
    own_api: Client, owner: asyncpg.Connection
) -> None:
    place = f"/api/invoices/{await create_invoice(own_api)}"
    made = [(await create_link(own_api, place))["id"] for _ in range(3)]
    await owner.execute(
        "update document_links set expires_at = clock_timestamp() where id = $1", made[1]
    )
    assert [link["id"] for link in await list_links(own_api, place)] == [made[2], made[0]]
    assert await request_json(own_api, "DELETE", f"{place}/links/{made[1]}") == MISSING


async def test_a_link_of_a_pending_invoice_opens_the_form_of_the_buyer(api: Client) -> None:
    pending = await create_invoice(api, type="PENDING_FINALIZE_INVOICE", buyer=None)
    link = await create_link(api, f"/api/invoices/{pending}", purpose="request")
    assert "/receipt/" in link["url"]
    status, text = await open_link(api, link["url"])
    assert status == 200 and "<form" in text


async def test_a_link_for_a_request_needs_a_pending_invoice(api: Client) -> None:
    invoice_id = await create_valid_invoice(api)
    body = {"purpose": "request"}
    place = f"/api/invoices/{invoice_id}/links"
    assert await request_json(api, "POST", place, json=body) == (
        409,
        {
            "message": "Only an invoice with a pending-finalize type can have a link for a buyer's "
            "request.",
            "code": "not_pending",
        },
    )
    note = await create_note(api, invoice_id)
    path = f"/api/adjustment-notes/{note}/links"
    status, answer = await request_json(api, "POST", path, json=body)
    assert status == 422 and answer["errors"][0]["path"] == "/purpose"


async def test_the_number_of_links_of_a_document_is_limited(
    own_api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_invoice(own_api)
    await create_link(own_api, f"/api/invoices/{invoice_id}")
    await owner.execute(
        "insert into document_links (company_id, token_sha256, purpose, kind, document_id, "
        "expires_at)"
        " select company_id, sha256(n::text::bytea), purpose, kind, document_id, expires_at"
        " from document_links, generate_series(2, $1) n",
        MOST,
    )
    assert await request_json(own_api, "POST", f"/api/invoices/{invoice_id}/links", json={}) == (
        409,
        {"message": f"A document can have at most {MOST} links.", "code": "too_many_links"},
    )
    await create_link(own_api, f"/api/invoices/{await create_invoice(own_api)}")


async def test_a_link_of_another_document_is_unknown(api: Client) -> None:
    first, second = [f"/api/invoices/{await create_invoice(api)}" for _ in range(2)]
    link = await create_link(api, first)
    for link_id in (link["id"], 0, "x", "{x}", 10**30):
        assert await request_json(api, "DELETE", f"{second}/links/{link_id}") == MISSING
    assert (await open_link(api, link["url"]))[0] == 200


async def test_links_of_an_unknown_or_deleted_document_are_not_found(api: Client) -> None:
    invoice_id = await create_invoice(api)
    await expect(api, 200, "DELETE", f"/api/invoices/{invoice_id}")
    for each in (invoice_id, 999999999):
        place = f"/api/invoices/{each}/links"
        for method, path in (("POST", place), ("GET", place), ("DELETE", f"{place}/1")):
            assert await request_json(api, method, path) == not_found("Invoice")


async def test_a_repeated_creation_returns_no_url(own_api: Client) -> None:
    place = f"/api/invoices/{await create_invoice(own_api)}"
    headers = {"Idempotency-Key": "link-1"}
    answers = [
        await request_json(own_api, "POST", f"{place}/links", json={}, headers=headers)
        for _ in range(2)
    ]
    (first, repeated) = [answer["data"] for _, answer in answers]
    assert "url" in first and repeated == {"id": first["id"], "expires_at": first["expires_at"]}
    assert len(await list_links(own_api, place)) == 1


async def test_only_the_digest_of_a_link_is_stored(
    own_api: Client, owner: asyncpg.Connection
) -> None:
    link = await create_link(own_api, f"/api/invoices/{await create_invoice(own_api)}")
    token = link["url"].rpartition("/")[2]
    for table in ("document_links", "audit_log", "idempotency_keys"):
        rows = await owner.fetch(f"select t::text from {table} t")
        assert not any(token in row[0] for row in rows)
    log = "select action, subject from audit_log where action = 'share'"
    assert [tuple(row) for row in await owner.fetch(log)] == [("share", "invoice 1")]


@pytest.mark.parametrize("body", [{"purpose": "print"}, {"days": 3}, {"purpose": None}])
async def test_an_invalid_link_is_a_violation(api: Client, body: dict[str, Any]) -> None:
    place = f"/api/invoices/{await create_invoice(api)}/links"
    await expect(api, 422, "POST", place, json=body)

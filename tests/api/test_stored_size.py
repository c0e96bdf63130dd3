"""The size limit of a stored document: 300,000 bytes as compact JSON."""

import json
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from service import json_codec
from tests.api.test_openapi import API
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_invoice, wait_until_status
from tests.api_requests import expect, list_rules, request_json, submit
from tests.conftest import Client, Sandbox
from tests.harness.bodies import buyer, invoice, line, note

MOST = 300_000
REQUEST = {"invoiceCode": "1", "type": "LOCAL_INDIVIDUAL", "name": "Aminah"}


def compact_size(body: dict[str, Any]) -> int:
    return len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())


def fill_up(body: dict[str, Any], member: str, size: int) -> dict[str, Any]:
    """Return a body with text in a member so that it has `size` bytes as compact JSON."""
    whole = {
        **body,
        member: [{**body[member][0], "remark": ""}]
        if member == "lineItems"
        else {**body[member], "remark": ""},
    }
    holder = whole[member][0] if member == "lineItems" else whole[member]
    holder["remark"] = "x" * (size - compact_size(whole))
    assert compact_size(whole) == size
    return whole


def too_large(answer: tuple[int, Any], path: str, size: int) -> bool:
    """Return whether a response refuses a document of `size` bytes with its largest member."""
    status, body = answer
    wording = f"The document has {size} bytes as compact JSON (at most 300000 allowed)."
    return status == 422 and body["errors"] == [
        {"path": path, "rule": "maxBytes", "message": wording}
    ]


@pytest.mark.parametrize("member", ["lineItems", "buyer"])
async def test_an_invoice_above_the_size_limit_is_refused(api: Client, member: str) -> None:
    await expect(api, 201, "POST", "/api/invoices", json=fill_up(invoice(), member, MOST))
    path = "/api/invoices"
    answer = await request_json(api, "POST", path, json=fill_up(invoice(), member, MOST + 1))
    assert too_large(answer, f"/{member}", MOST + 1), answer


async def test_white_space_and_escapes_do_not_count_as_size(api: Client) -> None:
    # Each is sent as six bytes.
    text = json.dumps(invoice(buyer=buyer(remark="é" * 60_000)), indent=40)
    assert len(text) > MOST
    headers = {"Content-Type": "application/json"}
    await expect(api, 201, "POST", "/api/invoices", data=text, headers=headers)
    status, body = await request_json(
        api, "POST", "/api/invoices", json=invoice(buyer=buyer(remark="é" * 151_000))
    )
    assert (status, body["errors"][0]["rule"]) == (422, "maxBytes")


async def test_a_number_counts_with_all_its_digits(api: Client) -> None:
    """PostgreSQL stores 1e300 with all its digits."""
    text = json.dumps(invoice(buyer=buyer(numbers=[]))).replace(
        "[]", "[" + ",".join(["1E39"] * 10_000) + "]", 1
    )
    assert len(text) < MOST / 4
    headers = {"Content-Type": "application/json"}
    status, body = await request_json(api, "POST", "/api/invoices", data=text, headers=headers)
    assert (status, body["errors"][0]["rule"]) == (422, "maxBytes")


def test_the_size_of_a_number_is_that_of_its_digits() -> None:
    for text in ("1E+3", "1E39", "1.5E-7", "0.1", "100", "-2E3"):
        number = Decimal(text)
        assert json_codec.measure_stored_bytes({"a": [number]}) == len(f'{{"a":[{number:f}]}}'), (
            text
        )


async def test_an_update_above_the_size_limit_is_refused(api: Client) -> None:
    invoice_id = await create_invoice(api, buyer=buyer(remark="x" * 200_000))
    before = await get_invoice(api, invoice_id)
    body = await expect(
        api,
        422,
        "PUT",
        f"/api/invoices/{invoice_id}",
        json={"lineItems": [line(remark="x" * 100_000)]},
    )
    assert list_rules(body) == [("/buyer", "maxBytes")]
    assert await get_invoice(api, invoice_id) == before
    await expect(
        api,
        200,
        "PUT",
        f"/api/invoices/{invoice_id}",
        json={"lineItems": [line(remark="x" * 90_000)]},
    )


async def test_a_note_above_the_size_limit_is_refused(api: Client) -> None:
    path = f"/api/invoices/{await create_valid_invoice(api)}/adjustment-note"
    answer = await request_json(api, "POST", path, json=fill_up(note(), "lineItems", MOST + 1))
    assert too_large(answer, "/lineItems", MOST + 1), answer
    body = await expect(api, 201, "POST", path, json=fill_up(note(), "lineItems", MOST))
    one = f"/api/adjustment-notes/{body['data']['id']}"
    found = await request_json(api, "PUT", one, json={"payment": {"terms": "x" * 300}})
    assert found[1]["errors"][0]["rule"] == "maxBytes"


async def test_an_einvoice_request_above_the_size_limit_is_refused(api: Client) -> None:
    path = "/api/einvoice-requests"
    refused = await request_json(
        api, "POST", path, json={**REQUEST, "address": {"remark": "x" * MOST}}
    )
    assert (refused[0], refused[1]["errors"][0]["rule"]) == (422, "maxBytes"), refused
    body = await expect(
        api, 201, "POST", path, json={**REQUEST, "address": {"remark": "x" * 200_000}}
    )
    one = f"{path}/{body['data']['id']}"
    before = await request_json(api, "GET", one)
    body = await expect(api, 422, "PUT", one, json={"registration": {"remark": "x" * 100_000}})
    assert (body["errors"][0]["path"], body["errors"][0]["rule"]) == ("/address", "maxBytes")
    assert await request_json(api, "GET", one) == before
    await expect(api, 200, "PUT", one, json={"status": "Reject"})


async def test_an_oversized_old_record_is_readable_and_can_be_reduced(
    api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_invoice(api)
    await owner.execute(
        "update documents set line_items ="
        " jsonb_set(line_items::jsonb, '{0,remark}', to_jsonb(repeat('x', 1900000)))"
    )
    assert len((await get_invoice(api, invoice_id))["line_items"][0]["remark"]) == 1_900_000
    await expect(api, 422, "PUT", f"/api/invoices/{invoice_id}", json={"isReady": True})
    await expect(api, 200, "PUT", f"/api/invoices/{invoice_id}", json={"lineItems": [line()]})


async def test_a_submit_checks_the_size_limit_of_the_portal(api: Client, sandbox: Sandbox) -> None:
    lines = [line(classifications=[f"{code:03}" for code in range(1, 46)]) for _ in range(630)]
    assert 285_000 < compact_size(invoice(lineItems=lines)) < MOST
    invoice_id = await create_invoice(api, lineItems=lines)
    status, body = await submit(api, invoice_id)
    assert status == 400 and "MaximumSizeExceeded" in [error["code"] for error in body["errors"]]
    assert not await sandbox.ledger()
    await wait_until_status(api, invoice_id, "Draft")


def test_the_description_names_the_size_limit() -> None:
    assert f"{MOST:,} bytes" in API["info"]["description"] and json_codec.MOST_STORED_BYTES == MOST

"""Webhooks: deliveries, signatures, retries, URL restrictions and fair shares of companies."""

import asyncio
import base64
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpServer

from service.config import read_config
from service.webhooks import signature
from service.webhooks.addresses import is_internal, url_violation
from service.webhooks.dispatcher import (
    AT_ONCE,
    COMPANY_SHARE,
    ENDPOINT_AT_ONCE,
    RECORD_BYTES,
    SCHEDULE,
    Outcome,
    delivery_session,
)
from tests.api_invoices import create_invoice, create_one_of_each, create_valid_invoice
from tests.api_reads import get_documents, get_json, wait_for_events, wait_for_lock
from tests.api_requests import expect, list_paths, not_found, request_json
from tests.conftest import Client, Company, StartService, make_company, patience, until
from tests.fixtures_webhooks import (
    LOCAL,
    Receiver,
    create_endpoint,
    list_deliveries,
    wait_for_delivery,
)
from tests.harness.bodies import line
from tests.harness.databases import open_connection
from tests.harness.environments import GENEROUS
from tests.harness.processes import Service
from tests.harness.signatures import is_signed_by
from tests.harness.waiting import wait_until


@pytest.fixture
async def api(start: StartService) -> Client:
    """Return a client of a service that delivers to loopback."""
    return await start(**LOCAL)


async def post(api: Client, path: str, body: dict[str, Any] | None = None) -> tuple[Any, Any]:
    return await request_json(api, "POST", path, json=body or {})


async def test_an_event_is_delivered_and_signed(api: Client, receiver: Receiver) -> None:
    endpoint_id, secret = await create_endpoint(api, receiver.url)
    invoice = await create_invoice(api)
    [(headers, body)] = await receiver.gets(1)
    [event] = await wait_for_events(api)
    assert json.loads(body) == {
        "type": "invoice.created",
        "timestamp": event["created_at"],
        "data": {"invoice_id": invoice},
    }
    assert headers["webhook-id"] == f"evt_{event['id']}"
    assert headers["Content-Type"] == "application/json"
    assert is_signed_by(headers, body, secret)
    assert not is_signed_by(headers, body + " ", secret)
    found = await wait_for_delivery(api, endpoint_id, "Delivered")
    assert found["event_id"] == event["id"]
    assert (found["event_type"], found["attempts"]) == ("invoice.created", 1)
    assert (found["response_status"], found["error"], found["next_attempt_at"]) == (200, None, None)


async def test_deliveries_do_not_change_the_etag_of_a_webhook(
    api: Client, receiver: Receiver
) -> None:
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    path = f"/api/webhooks/{endpoint_id}"
    async with api.get(path) as response:
        etag = response.headers["ETag"]
    await create_invoice(api)
    await wait_for_delivery(api, endpoint_id, "Delivered")
    async with api.get(path) as response:
        assert response.headers["ETag"] == etag
        assert (await response.json())["delivered_last_minute"] == 1
    for status in (200, 412):
        change = {"json": {"description": "mine"}, "headers": {"If-Match": etag}}
        await expect(api, status, "PUT", path, **change)


def test_the_signature_equals_the_example_of_standard_webhooks() -> None:
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signature.sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_only_enabled_endpoints_receive_their_event_types(
    api: Client, receiver: Receiver
) -> None:
    chosen, _ = await create_endpoint(api, receiver.url, types=["invoice.deleted"])
    disabled, _ = await create_endpoint(api, receiver.url, enabled=False)
    invoice_id = await create_invoice(api)
    await expect(api, 200, "DELETE", f"/api/invoices/{invoice_id}")
    found = await wait_for_delivery(api, chosen, "Delivered")
    assert found["event_type"] == "invoice.deleted"
    assert await list_deliveries(api, disabled) == []
    assert len(receiver.got) == 1


async def test_errors_and_timeouts_are_retried_with_the_same_id_and_body(
    api: Client, receiver: Receiver
) -> None:
    async def hang_in_its_body(request: web.Request) -> None:
        response = web.StreamResponse(headers={"Content-Length": "2"})
        await response.prepare(request)
        await response.write(b"1")
        await asyncio.Event().wait()

    receiver.answers = [500]
    receiver.hold()
    receiver.answers += [503, hang_in_its_body]
    endpoint_id, secret = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    requests = await receiver.gets(5)
    assert len({headers["webhook-id"] for headers, _ in requests}) == 1
    assert len({body for _, body in requests}) == 1
    assert all(is_signed_by(headers, body, secret) for headers, body in requests)
    assert (await wait_for_delivery(api, endpoint_id, "Delivered"))["attempts"] == 5


async def _receive(receiver: Receiver, event_type: str) -> dict[str, Any]:
    """Wait for a delivery of an event type and return its body. Numbers are Decimal."""

    def find() -> list[dict[str, Any]]:
        bodies = [json.loads(body, parse_float=Decimal) for _, body in receiver.got]
        return [body for body in bodies if body["type"] == event_type]

    await wait_until(find)
    return find()[0]


async def _read_exact(api: Client, path: str) -> Any:
    """Return the record at a path. Numbers are Decimal."""
    async with api.get(path) as response:
        record = json.loads(await response.text(), parse_float=Decimal)
    return record.get("data", record)


async def test_a_delivery_includes_the_record_for_endpoints_that_ask_for_it(
    api: Client, receiver: Receiver
) -> None:
    await create_endpoint(api, receiver.url, include_record=True)
    invoice_id = await create_valid_invoice(api)
    body = await _receive(receiver, "invoice.valid")
    assert body["record"] == await _read_exact(api, f"/api/invoices/{invoice_id}")
    [document] = await get_documents(api, invoice_id)
    assert body["submitted_document"] == document and document["status"] == "Valid"
    assert body["data"]["submitted_document_id"] == document["id"]
    members = "type timestamp data record submitted_document record_omitted"
    assert list(body) == members.split() and body["record_omitted"] is None


async def test_every_kind_of_record_is_included(start: StartService, receiver: Receiver) -> None:
    api = await start(**GENEROUS)
    await create_endpoint(api, receiver.url, include_record=True)
    await expect(api, 200, "PUT", "/api/companies", json={"city": "Ipoh"})
    made = await create_one_of_each(api)
    for event_type, path in (
        ("adjustment_note.created", f"/api/adjustment-notes/{made['/api/adjustment-notes']}"),
        (
            "consolidated_invoice.created",
            f"/api/consolidated-invoices/{made['/api/consolidated-invoices']}",
        ),
        ("einvoice_request.created", f"/api/einvoice-requests/{made['/api/einvoice-requests']}"),
        ("company.updated", "/api/companies"),
    ):
        body = await _receive(receiver, event_type)
        assert body["record"] == await _read_exact(api, path), event_type
        assert body["submitted_document"] is None


async def test_a_retried_delivery_has_the_present_record(api: Client, receiver: Receiver) -> None:
    async def delete(request: web.Request) -> web.Response:
        await expect(api, 200, "DELETE", f"/api/invoices/{receiver.invoices()[0]}")
        return web.Response(status=500)

    receiver.answers = [delete]
    await create_endpoint(api, receiver.url, include_record=True, types=["invoice.created"])
    await create_invoice(api)
    first, second = (json.loads(body) for _, body in await receiver.gets(2))
    assert first["record"]["status"] == "Draft" and first["record_omitted"] is None
    assert (second["record"], second["record_omitted"]) == (None, "deleted")
    assert first["data"] == second["data"]


async def test_a_record_above_the_size_limit_is_left_out(api: Client, receiver: Receiver) -> None:
    await create_endpoint(api, receiver.url, include_record=True)
    lines = [line(id=str(number), description="x" * 300) for number in range(RECORD_BYTES // 450)]
    await create_invoice(api, lineItems=lines)
    [(_, body)] = await receiver.gets(1)
    assert json.loads(body)["record"] is None and len(body) < 1000
    assert json.loads(body)["record_omitted"] == "too_large"


async def test_a_delivery_fails_after_its_last_attempt_and_can_be_redelivered(
    api: Client, receiver: Receiver
) -> None:
    receiver.answers = [500] * len(SCHEDULE)
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    failed = await wait_for_delivery(api, endpoint_id, "Failed")
    assert failed["attempts"] == len(SCHEDULE)
    assert (failed["response_status"], failed["next_attempt_at"]) == (500, None)
    assert await post(api, f"/api/webhooks/{endpoint_id}/deliveries/{failed['id']}/redeliver") == (
        200,
        {"success": True, "message": "The event will be delivered again."},
    )
    assert (await wait_for_delivery(api, endpoint_id, "Delivered"))["attempts"] == len(SCHEDULE) + 1
    requests = await receiver.gets(len(SCHEDULE) + 1)
    assert len({headers["webhook-id"] for headers, _ in requests}) == 1


async def test_a_redelivery_during_an_attempt_adds_an_attempt(
    api: Client, receiver: Receiver
) -> None:
    released = receiver.hold()
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    await receiver.gets(1)
    [found] = await list_deliveries(api, endpoint_id)
    given = await post(api, f"/api/webhooks/{endpoint_id}/deliveries/{found['id']}/redeliver")
    assert given[0] == 200
    released.set()
    await receiver.gets(2)
    assert (await wait_for_delivery(api, endpoint_id, "Delivered"))["attempts"] == 2


async def test_the_first_retry_waits_for_its_pause(start: StartService, receiver: Receiver) -> None:
    api = await start(**{**LOCAL, "WEBHOOK_RETRY_SCALE": "1"})
    receiver.answers = [500]
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    await receiver.gets(1)
    [found] = await until(
        lambda: list_deliveries(api, endpoint_id),
        lambda listed: listed and listed[0]["response_status"],
    )
    assert found["status"] == "Pending" and found["next_attempt_at"] > found["last_attempt_at"]


@pytest.mark.parametrize("step", range(1, 11))
def test_retries_follow_the_schedule_and_then_fail(step: int) -> None:
    seconds = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    state, delay = Outcome(response_status=500).result(step, Decimal(1))
    if step == 10:
        assert state == "Failed"
    else:
        assert (state, delay.total_seconds()) == ("Pending", seconds[step - 1])


async def test_a_redirect_is_not_followed(api: Client, receiver: Receiver) -> None:
    async def redirect(request: web.Request) -> None:
        raise web.HTTPTemporaryRedirect(receiver.url + "?followed")

    receiver.answers = [redirect] * len(SCHEDULE)
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    failed = await wait_for_delivery(api, endpoint_id, "Failed")
    assert failed["response_status"] == 307 and len(receiver.got) == len(SCHEDULE)


async def test_an_endless_response_is_cut_off(start: StartService, receiver: Receiver) -> None:
    """It is cut off after a number of bytes, long before the time of an attempt is over."""
    ended = asyncio.Event()

    async def respond_endlessly(request: web.Request) -> None:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        finally:
            ended.set()

    receiver.answers = [respond_endlessly]
    api = await start(**PATIENT)
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    found = await wait_for_delivery(api, endpoint_id, "Delivered")
    async with patience():
        await ended.wait()
    assert (found["response_status"], found["attempts"]) == (200, 1)


async def test_410_disables_the_endpoint_and_enabling_restarts_the_schedule(
    api: Client, receiver: Receiver
) -> None:
    receiver.answers = [410]
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    failed = await wait_for_delivery(api, endpoint_id, "Failed")
    assert (failed["response_status"], failed["attempts"]) == (410, 1)
    assert (await get_json(api, f"/api/webhooks/{endpoint_id}"))["enabled"] is False
    found = await post(api, f"/api/webhooks/{endpoint_id}/deliveries/{failed['id']}/redeliver")
    assert found[0] == 409
    await create_invoice(api)
    await expect(api, 200, "PUT", f"/api/webhooks/{endpoint_id}", json={"enabled": True})
    later = await create_invoice(api)
    await receiver.gets(2)
    assert receiver.invoices()[-1] == later
    listed = await until(
        lambda: list_deliveries(api, endpoint_id), lambda listed: listed[0]["status"] == "Delivered"
    )
    assert [one["status"] for one in listed] == ["Delivered", "Failed"]


async def test_events_before_a_change_of_the_endpoint_are_delivered(
    api: Client, receiver: Receiver
) -> None:
    """They have no deliveries yet when the endpoint is disabled, or gets other types."""
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    made: list[int] = []
    for change in ({"enabled": False}, {"types": ["invoice.deleted"]}):
        for _ in range(5):
            made.append(await create_invoice(api))
            await expect(api, 200, "PUT", f"/api/webhooks/{endpoint_id}", json=change)
            restored = {"enabled": True, "types": []}
            await expect(api, 200, "PUT", f"/api/webhooks/{endpoint_id}", json=restored)
    await receiver.gets(len(made))
    assert sorted(receiver.invoices()) == made


async def begin_attempt(api: Client, receiver: Receiver) -> tuple[int, asyncio.Event]:
    """Return an endpoint with an attempt that gets a 410 after the event."""
    ready = receiver.hold(status=410)
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    await receiver.gets(1)
    return endpoint_id, ready


async def test_an_outcome_that_meets_a_deadlock_is_stored(
    api: Client, owner: asyncpg.Connection, receiver: Receiver
) -> None:
    endpoint_id, locked = await begin_attempt(api, receiver)
    async with owner.transaction():
        # PostgreSQL aborts the transaction that looks for a deadlock first.
        await owner.execute("set local deadlock_timeout = '1min'")
        await owner.execute("select from webhook_endpoints for update")
        locked.set()
        await wait_for_lock(owner)
        await owner.execute("select from webhook_deliveries for update")
    await wait_for_delivery(api, endpoint_id, "Failed")
    assert (await get_json(api, f"/api/webhooks/{endpoint_id}"))["enabled"] is False


async def test_events_before_a_410_are_delivered(
    api: Client, owner: asyncpg.Connection, receiver: Receiver
) -> None:
    """They have no deliveries yet, because another transaction is open."""
    endpoint_id, ready = await begin_attempt(api, receiver)
    webhook = f"/api/webhooks/{endpoint_id}"
    await owner.execute("begin; select pg_current_xact_id()")
    second = await create_invoice(api)
    ready.set()
    await until(lambda: get_json(api, webhook), lambda found: not found["enabled"])
    await owner.execute("commit")
    await expect(api, 200, "PUT", webhook, json={"enabled": True})
    await receiver.gets(2)
    assert receiver.invoices()[-1] == second


async def test_410_of_a_former_url_does_not_disable_the_endpoint(
    api: Client, receiver: Receiver
) -> None:
    endpoint_id, changed = await begin_attempt(api, receiver)
    change = {"url": f"{receiver.url}?new"}
    await expect(api, 200, "PUT", f"/api/webhooks/{endpoint_id}", json=change)
    changed.set()
    await wait_for_delivery(api, endpoint_id, "Failed")
    assert (await get_json(api, f"/api/webhooks/{endpoint_id}"))["enabled"] is True
    await create_invoice(api)
    await receiver.gets(2)


async def test_a_rotated_secret_signs_until_it_expires(
    start: StartService, receiver: Receiver
) -> None:
    api = await start(**{**LOCAL, "WEBHOOK_ROTATION_SECONDS": "2"})
    endpoint_id, first = await create_endpoint(api, receiver.url)
    status, body = await post(api, f"/api/webhooks/{endpoint_id}/rotate-secret")
    second = body["data"]["secret"]
    assert status == 200 and body["data"]["previous_valid_until"] and second != first
    await create_invoice(api)
    [(headers, text)] = await receiver.gets(1)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert is_signed_by(headers, text, first) and is_signed_by(headers, text, second)

    async def cause_delivery() -> tuple[Mapping[str, str], str]:
        """Cause one more event and return its request."""
        count = len(receiver.got)
        await create_invoice(api)
        await receiver.gets(count + 1)
        return receiver.got[-1]

    headers, text = await until(cause_delivery, lambda got: not is_signed_by(got[0], got[1], first))
    assert is_signed_by(headers, text, second)


async def test_at_most_two_secrets_sign(api: Client, receiver: Receiver) -> None:
    endpoint_id, first = await create_endpoint(api, receiver.url)
    second = (await post(api, f"/api/webhooks/{endpoint_id}/rotate-secret"))[1]["data"]["secret"]
    third = (await post(api, f"/api/webhooks/{endpoint_id}/rotate-secret"))[1]["data"]["secret"]
    await create_invoice(api)
    [(headers, body)] = await receiver.gets(1)
    assert [is_signed_by(headers, body, secret) for secret in (first, second, third)] == [
        False,
        True,
        True,
    ]


async def test_a_secret_is_shown_once_and_unreadable_for_the_service(
    api: Client, receiver: Receiver, owner: asyncpg.Connection
) -> None:
    endpoint_id, secret = await create_endpoint(api, receiver.url)
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    members = (
        "id company_id url description types enabled include_record ordered pending "
        "delivered_last_minute created_at updated_at"
    )
    assert set(await get_json(api, f"/api/webhooks/{endpoint_id}")) == set(members.split())
    async with api.get("/api/webhooks") as response:
        assert secret not in await response.text()
    assert not await owner.fetchval(
        "select has_column_privilege("
        "'einvoice_service', 'webhook_secrets', 'sealed_secret', 'select')"
    )


async def test_an_endpoint_gets_eight_events_at_a_time_from_all_processes(
    start: StartService, owner: asyncpg.Connection, receiver: Receiver
) -> None:
    """None is delivered twice, and the record says how many wait."""
    patient = {**LOCAL, "WEBHOOK_TIMEOUT_SECONDS": "60"}
    api, _ = [await start(**patient) for _ in range(2)]
    go_on = receiver.hold(20)
    webhook_id, _ = await create_endpoint(api, receiver.url)
    await owner.execute("update webhook_endpoints set slow = false")
    made = [await create_invoice(api) for _ in range(20)]
    await receiver.gets(ENDPOINT_AT_ONCE)
    shown = await until(
        lambda: get_json(api, f"/api/webhooks/{webhook_id}"), lambda found: found["pending"] == 20
    )
    assert (shown["ordered"], shown["delivered_last_minute"]) == (False, 0)
    go_on.set()
    shown = await until(
        lambda: get_json(api, f"/api/webhooks/{webhook_id}"), lambda found: not found["pending"]
    )
    assert shown["delivered_last_minute"] == 20
    assert sorted(receiver.invoices()) == made
    assert receiver.most_at_once == ENDPOINT_AT_ONCE


async def test_events_are_delivered_in_order_and_one_at_a_time(
    api: Client, receiver: Receiver
) -> None:
    receiver.answers = [200, 500, 200]
    endpoint_id, _ = await create_endpoint(api, receiver.url, ordered=True)
    made = [await create_invoice(api) for _ in range(12)]
    await until(
        lambda: list_deliveries(api, endpoint_id),
        lambda listed: [one["status"] for one in listed].count("Delivered") == 10,
    )
    assert list(dict.fromkeys(receiver.invoices())) == made
    assert receiver.most_at_once == 1


async def test_an_event_of_a_slow_transaction_is_delivered(
    start: StartService, company: Company, database: str, owner: asyncpg.Connection
) -> None:
    """The transaction began before that of another event, and commits after its delivery."""
    api = await start(background=False, **LOCAL)
    await create_endpoint(api, "http://127.0.0.1:9/in", types=["invoice.created"])
    insert = (
        "insert into events (company_id, type, data)"
        " values ($1, 'invoice.created', '{}') returning id"
    )
    fan_out = "select fan_out_webhooks(9, 100)"
    async with open_connection(database) as slow:
        ids = [await owner.fetchval(insert, company.id)]
        await slow.execute("begin")
        ids.append(await slow.fetchval(insert, company.id))
        ids.append(await owner.fetchval(insert, company.id))
        await owner.execute(fan_out)
        await slow.execute("commit")

    async def deliver() -> list[int] | None:
        """Transactions in other databases of the server delay events too."""
        await owner.execute(fan_out)
        return await owner.fetchval(
            "select array_agg(event_id order by event_id) from webhook_deliveries"
        )

    await until(deliver, lambda delivered: delivered == ids)


async def test_a_failing_event_does_not_delay_later_events(
    start: StartService, receiver: Receiver
) -> None:
    api = await start(**{**LOCAL, "WEBHOOK_RETRY_SCALE": "1"})
    receiver.answers = [500]
    await create_endpoint(api, receiver.url)
    made = [await create_invoice(api) for _ in range(3)]
    await receiver.gets(3)
    assert sorted(receiver.invoices()) == made


async def test_an_update_keeps_the_other_members_of_an_endpoint(
    api: Client, receiver: Receiver
) -> None:
    endpoint_id, _ = await create_endpoint(
        api, "https://hooks.example.com/in", description="Ledger", types=["invoice.valid"]
    )
    path = f"/api/webhooks/{endpoint_id}"
    answer = await expect(api, 200, "PUT", path, json={"url": receiver.url, "types": []})
    assert answer == {"success": True, "message": "Webhook updated."}
    record = await get_json(api, path)
    assert (record["url"], record["types"], record["description"]) == (receiver.url, [], "Ledger")
    await create_invoice(api)
    await receiver.gets(1)


async def test_a_deleted_endpoint_is_not_found(api: Client, receiver: Receiver) -> None:
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    await wait_for_delivery(api, endpoint_id, "Delivered")
    path = f"/api/webhooks/{endpoint_id}"
    answer = await expect(api, 200, "DELETE", path)
    assert answer == {"success": True, "message": "Webhook deleted."}
    assert await request_json(api, "GET", f"{path}/deliveries") == not_found("Webhook")
    assert (await get_json(api, "/api/webhooks"))["meta"]["total"] == 0


async def test_lists_have_pages_with_nine_meta_fields(api: Client) -> None:
    made = [(await create_endpoint(api, "https://hooks.example.com/in"))[0] for _ in range(3)]
    page = await get_json(api, "/api/webhooks?page=2&per_page=1")
    assert [one["id"] for one in page["data"]] == [made[1]]
    assert len(page["meta"]) == 9
    assert page["meta"]["total"] == 3
    page = await get_json(api, f"/api/webhooks/{made[0]}/deliveries?status=Failed")
    assert page["data"] == [] and page["meta"]["first_page_url"].endswith("status=Failed")


async def test_concurrent_creations_do_not_exceed_the_endpoint_limit(
    start: StartService, owner: asyncpg.Connection
) -> None:
    """The requests go to two services, and have counted the endpoints or wait to count them."""
    clients = [await start(background=False, **LOCAL) for _ in range(2)]
    body = {"url": "https://hooks.example.com/in"}
    for _ in range(19):
        await create_endpoint(clients[0], **body)
    async with owner.transaction():
        await owner.execute("select from companies for update")
        creations = [
            asyncio.create_task(post(clients[n % 2], "/api/webhooks", body)) for n in range(4)
        ]
        await wait_for_lock(owner, len(creations))
    answers = await asyncio.gather(*creations)
    assert sorted(status for status, _ in answers) == [201, 409, 409, 409]
    assert (await get_json(clients[0], "/api/webhooks"))["meta"]["total"] == 20


async def test_events_are_delivered_to_endpoints_of_their_company_only(
    api: Client, start: StartService, environment: dict[str, str], receiver: Receiver
) -> None:
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await create_invoice(api)
    await wait_for_delivery(api, endpoint_id, "Delivered")
    other = await start(await make_company(environment, name="Other"), **LOCAL)
    await create_endpoint(other, receiver.url)
    await create_invoice(other)
    await receiver.gets(2)
    assert len(await list_deliveries(api, endpoint_id)) == 1


HOSTS = (
    "127.0.0.1 127.0.0.1. 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 "
    "100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255 198.18.0.1 192.0.2.1 2130706433 "
    "0x7f000001 0x7f.0.0.1 127.1 0177.0.0.1 127.0.0.01 ①②⑦.0.0.1 [::1] [::] [fe80::1] "
    "[fe80::1%25eth0] [fc00::1] [ff02::1] [::ffff:127.0.0.1] [::ffff:8.8.8.8] "
    "[::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::a00:1] [2002:7f00:1::] [2001::1] "
    "[2001:db8::1]"
)


@pytest.mark.parametrize("host", HOSTS.split())
def test_a_url_with_an_internal_host_is_refused(host: str) -> None:
    assert url_violation(f"https://{host}/hook", allow_internal=False)


OTHER_URLS = (
    "http://hooks.example.com/ https://hooks.example.com:444/ https://hooks.example.com:22/ "
    "https://a:b@hooks.example.com/ https://hooks.example.com/#x https://hooks.example.com:x/ "
    "https://-a.example/ //hooks.example.com/ hooks.example.com file:///etc/passwd "
    "https://hooks.example.com:99999/"
)


@pytest.mark.parametrize("url", [*OTHER_URLS.split(), "https://exa mple.com/"])
def test_a_url_of_another_form_is_refused(url: str) -> None:
    assert url_violation(url, allow_internal=False)


PUBLIC_URLS = (
    "https://hooks.example.com https://hooks.example.com:8443/a?b=c https://8.8.8.8/ "
    "https://[2606:4700::1111]/ https://例え.jp/ https://a_b.example/ https://0xabc.example.com/ "
    "HTTPS://Hooks.Example.COM/"
)


@pytest.mark.parametrize("url", PUBLIC_URLS.split())
def test_a_public_https_url_is_accepted(url: str) -> None:
    assert url_violation(url, allow_internal=False) is None


@pytest.mark.parametrize(
    "address", ["nonsense", "", "::ffff:10.0.0.1", "fe80::1%2", "100.127.255.255", "::1"]
)
def test_an_address_that_is_not_public_is_internal(address: str) -> None:
    assert is_internal(address)


async def test_creation_and_update_refuse_an_internal_url(start: StartService) -> None:
    api = await start(SECRET_KEY=GENEROUS["SECRET_KEY"])
    for url in ("https://127.0.0.1/hook", "https://2130706433/", "http://hooks.example.com/"):
        status, answer = await post(api, "/api/webhooks", {"url": url})
        assert (status, list_paths(answer)) == (422, ["/url"])
    endpoint_id, _ = await create_endpoint(api, "https://hooks.example.com/")
    await expect(api, 422, "PUT", f"/api/webhooks/{endpoint_id}", json={"url": "https://[::1]/"})


async def test_the_connector_refuses_internal_addresses(
    environment: dict[str, str], receiver: Receiver
) -> None:
    """It checks every connection, independently of the check of URLs."""
    async with delivery_session(read_config(environment)) as session:
        for host in ("localhost", "127.0.0.1"):
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.post(receiver.url.replace("127.0.0.1", host), data=b"{}")
    assert not receiver.got
    async with (
        delivery_session(read_config({**environment, **LOCAL})) as session,
        session.post(receiver.url.replace("127.0.0.1", "localhost"), data=b"{}") as response,
    ):
        assert response.status == 200


#: host name -> its address, or the error of its lookup
NAMES = {
    "unknown.example": socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    "internal.example": "10.0.0.1",
    "loopback.example": "127.0.0.1",
    "metadata.example": "169.254.169.254",
    "inner6.example": "fd00::1",
}


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Resolve host names from the returned dictionary, first NAMES. Callables run in the thread."""
    names, real = dict(NAMES), socket.getaddrinfo

    def look_up(host: str, port: int, *args: Any, **more: Any) -> Any:
        if host not in names:
            return real(host, port, *args, **more)
        found = names[host]() if callable(names[host]) else names[host]
        if isinstance(found, Exception):
            raise found
        family, rest = (socket.AF_INET6, (0, 0)) if ":" in found else (socket.AF_INET, ())
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (found, port, *rest))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return names


async def wait_for_error(api: Client, webhook_id: int) -> dict[str, Any]:
    """Return the only delivery of an endpoint as soon as an attempt has failed."""
    [found] = await until(
        lambda: list_deliveries(api, webhook_id), lambda listed: listed and listed[0]["error"]
    )
    return found


async def test_an_internal_name_fails_like_an_unknown_name(
    start: StartService,
    company: Company,
    resolver: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The company sees the same error; the log has the cause."""
    caplog.set_level("INFO", "service.webhooks.dispatcher")
    variables = {"WEBHOOK_ALLOW_INTERNAL": "false", "WEBHOOK_RETRY_SCALE": "1"}
    api = await start(**{**LOCAL, **variables, "LOG_LEVEL": "INFO"})
    ids = {name: (await create_endpoint(api, f"https://{name}/hook"))[0] for name in NAMES}
    await create_invoice(api)
    seen = {}
    for name, webhook_id in ids.items():
        failed = await wait_for_error(api, webhook_id)
        seen[name] = {
            member: failed[member]
            for member in ("error", "response_status", "attempts", "delivered_at")
        }
    assert list(seen.values()) == [
        {**seen["unknown.example"], "error": "connection", "response_status": None}
    ] * len(NAMES)
    for name, cause in (
        ("unknown.example", "ClientConnectorDNSError"),
        ("internal.example", "internal address"),
    ):
        (found,) = await list_deliveries(api, ids[name])
        assert (
            f"webhooks: delivery {found['id']} of company {company.id}: {cause}" in caplog.messages
        )


async def test_failed_connections_are_recorded_with_a_constant_delay(
    start: StartService, resolver: dict[str, Any]
) -> None:
    """The duration of an attempt (here 0.2 s) does not show whether a name was resolved."""
    variables = {
        "WEBHOOK_ALLOW_INTERNAL": "false",
        "WEBHOOK_TIMEOUT_SECONDS": "3",
        "WEBHOOK_RETRY_SCALE": "1",
    }
    api = await start(**{**LOCAL, **variables})
    ids = [(await create_endpoint(api, f"https://{name}/hook"))[0] for name in NAMES]
    await create_invoice(api)
    for invoice_id in ids:
        tried = await wait_for_error(api, invoice_id)
        first, next_one = (
            datetime.fromisoformat(tried[name]) for name in ("last_attempt_at", "next_attempt_at")
        )
        assert next_one - first - SCHEDULE[1] >= timedelta(seconds=0.2)


async def test_a_stored_internal_url_receives_no_request(
    start: StartService, receiver: Receiver, owner: asyncpg.Connection
) -> None:
    api = await start(**{**LOCAL, "WEBHOOK_ALLOW_INTERNAL": "false"})
    endpoint_id, _ = await create_endpoint(api, "https://hooks.example.com/hook", enabled=False)
    await owner.execute("update webhook_endpoints set url = $1, enabled = true", receiver.url)
    await create_invoice(api)
    assert (await wait_for_delivery(api, endpoint_id, "Failed"))["error"] == "address"
    assert not receiver.got


async def test_a_connection_refused_by_the_receiver_is_recorded(
    api: Client, receiver: Receiver
) -> None:
    endpoint_id, _ = await create_endpoint(api, "http://127.0.0.1:1/")
    await create_invoice(api)
    assert (await wait_for_delivery(api, endpoint_id, "Failed"))["error"] == "connection"


async def test_two_processes_deliver_each_event_once(
    start: StartService, receiver: Receiver
) -> None:
    # Within the lease, which is two timeouts, an attempt ends on a busy machine too.
    variables = {**LOCAL, "WEBHOOK_TIMEOUT_SECONDS": "20"}
    one, two = await start(**variables), await start(**variables)
    ids = [(await create_endpoint(one, receiver.url))[0] for _ in range(3)]
    made = [
        invoice_id
        for pair in [
            await asyncio.gather(create_invoice(one), create_invoice(two)) for _ in range(10)
        ]
        for invoice_id in pair
    ]
    for invoice_id in ids:
        page = f"/api/webhooks/{invoice_id}/deliveries?per_page=100&status=Delivered"
        await until(
            lambda page=page: get_json(one, page), lambda listed: len(listed["data"]) == len(made)
        )
    assert sorted(receiver.invoices()) == sorted(made * len(ids))


async def test_the_delivery_of_a_killed_process_is_repeated(
    environment: dict[str, str], company: Company, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.hold()
    service = Service(
        {**environment, **LOCAL, "WEBHOOK_TIMEOUT_SECONDS": "3"}, tmp_path / "service.log"
    )
    await service.start()
    try:
        async with service.client(company.key) as client:
            endpoint_id, secret = await create_endpoint(client, receiver.url, ordered=True)
            made = [await create_invoice(client) for _ in range(2)]
            await receiver.gets(1)
            await service.kill()
            await service.start()
            await until(
                lambda: get_json(
                    client, f"/api/webhooks/{endpoint_id}/deliveries?status=Delivered"
                ),
                lambda page: len(page["data"]) == 2,
            )
    finally:
        await service.stop()
    assert receiver.invoices() == [made[0], *made]
    assert all(is_signed_by(headers, body, secret) for headers, body in receiver.got)


# Fair shares of companies

MANY = 20  # endpoints, the most of one company
PATIENT = {**LOCAL, "WEBHOOK_TIMEOUT_SECONDS": "60", "REQUESTS_PER_MINUTE": "0"}


class Hanging:
    """A receiver that responds once it is released, and counts open requests by company."""

    def __init__(self) -> None:
        self.url = ""
        self.open: Counter[str] = Counter()
        self.released = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        company = request.match_info["company"]
        self.open[company] += 1
        await self.released.wait()
        return web.Response()


@pytest.fixture
async def hanging(aiohttp_server: AiohttpServer) -> AsyncIterator[Hanging]:
    hanging, app = Hanging(), web.Application()
    app.router.add_post("/{company}", hanging.handle)
    server = await aiohttp_server(app)
    hanging.url = str(server.make_url("/"))
    yield hanging
    hanging.released.set()


async def make_slow_companies(
    start: StartService, environment: dict[str, str], hanging: Hanging, count: int
) -> list[Client]:
    """Return clients of companies with the maximum number of endpoints, all of which hang."""
    made = []
    for number in range(count):
        client = await start(
            await make_company(environment, name=f"Slow {number}"), background=False, **PATIENT
        )
        await asyncio.gather(
            *[create_endpoint(client, f"{hanging.url}{number}") for _ in range(MANY)]
        )
        made.append(client)
    return made


async def wait_for_attempts(owner: asyncpg.Connection, hanging: Hanging, least: int) -> None:
    """Wait until deliveries exist for all endpoints, and at least some attempts have begun."""
    due = "select count(*) from webhook_deliveries where status = 'Pending'"
    await until(lambda: owner.fetchval(due), lambda n: n and n % MANY == 0)

    async def count_open() -> int:
        return hanging.open.total()

    await until(count_open, lambda n: n >= least)


@pytest.mark.long
@pytest.mark.parametrize("is_proven", [True, False])
async def test_hanging_receivers_do_not_delay_another_company(
    start: StartService,
    environment: dict[str, str],
    owner: asyncpg.Connection,
    receiver: Receiver,
    hanging: Hanging,
    is_proven: bool,
) -> None:
    """Four companies have 80 hanging endpoints. Another company's event is delivered meanwhile."""
    slow_ones = await make_slow_companies(start, environment, hanging, 4)
    api = await start(background=False, **PATIENT)
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    if is_proven:
        await owner.execute("update webhook_endpoints set slow = false where id = $1", endpoint_id)
    await asyncio.gather(*[create_invoice(client) for client in slow_ones])
    await start(**PATIENT)
    await wait_for_attempts(owner, hanging, 20)
    await create_invoice(api)
    await receiver.gets(1)
    assert hanging.open.total() <= AT_ONCE / 2 and not hanging.released.is_set()
    assert max(hanging.open.values()) <= COMPANY_SHARE / 2


async def test_endpoints_that_become_slow_together_do_not_delay_others(
    receiver: Receiver,
    hanging: Hanging,
    start: StartService,
    environment: dict[str, str],
    owner: asyncpg.Connection,
) -> None:
    """The endpoints were quick before."""
    slow_ones = await make_slow_companies(start, environment, hanging, 4)
    await owner.execute("update webhook_endpoints set slow = false")
    api = await start(background=False, **PATIENT)
    await create_endpoint(api, receiver.url)
    await asyncio.gather(*[create_invoice(client) for client in slow_ones])
    await start(**PATIENT)
    await wait_for_attempts(owner, hanging, 40)
    await create_invoice(api)
    await receiver.gets(1)
    assert max(hanging.open.values()) <= COMPANY_SHARE and hanging.open.total() < AT_ONCE
    hanging.released.set()


async def test_a_new_endpoint_is_slow_until_a_quick_attempt(
    start: StartService, owner: asyncpg.Connection, receiver: Receiver
) -> None:
    api = await start(**{**LOCAL, "WEBHOOK_TIMEOUT_SECONDS": "30"})
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    assert await owner.fetchval("select slow from webhook_endpoints")
    await create_invoice(api)
    await wait_for_delivery(api, endpoint_id, "Delivered")
    assert not await owner.fetchval("select slow from webhook_endpoints")


async def test_a_timeout_makes_an_endpoint_slow(
    start: StartService, owner: asyncpg.Connection, receiver: Receiver
) -> None:
    api = await start(**{**LOCAL, "WEBHOOK_RETRY_SCALE": "1"})
    endpoint_id, _ = await create_endpoint(api, receiver.url)
    await owner.execute("update webhook_endpoints set slow = false")
    receiver.hold()
    await create_invoice(api)
    assert (await wait_for_error(api, endpoint_id))["error"] == "timeout"
    assert await owner.fetchval("select slow from webhook_endpoints")


async def test_slow_name_servers_of_one_company_do_not_delay_another(
    receiver: Receiver, start: StartService, environment: dict[str, str], resolver: dict[str, Any]
) -> None:
    """The lookups of the other company wait in threads until the end of the test."""
    released, waiting = threading.Event(), []

    def hang() -> str:
        waiting.append(threading.current_thread())
        released.wait(60)
        return "127.0.0.1"

    resolver["slow.example"], resolver["quick.example"] = hang, "127.0.0.1"
    other = await start(await make_company(environment, name="Slow"), background=False, **PATIENT)
    for _ in range(MANY):
        await create_endpoint(other, receiver.url.replace("127.0.0.1", "slow.example"))
    api = await start(**PATIENT)
    try:
        await create_invoice(other)
        await until(lambda: asyncio.sleep(0, len(waiting)), lambda n: n >= 4)
        await create_endpoint(api, receiver.url.replace("127.0.0.1", "quick.example"))
        await create_invoice(api)
        await receiver.gets(1)
        assert len(waiting) == 4
    finally:
        released.set()

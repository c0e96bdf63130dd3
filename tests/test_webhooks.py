"""Webhooks: what is delivered, how it is signed, when it is tried again, and where nothing is ever sent."""

import asyncio
import base64
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from aiohttp import web
from conftest import make_company, until
from fixtures_webhooks import LOCAL, delivery, get, hook, log_of, signed_by
from kit import GENEROUS, created
from processes import Service

from service.config import read_config
from service.webhooks import signature
from service.webhooks.dispatcher import AT_ONCE, COMPANY_SHARE, SCHEDULE, Outcome, delivery_session
from service.webhooks.url_policy import is_internal, url_violation


@pytest.fixture
async def api(start: Any, company: Any) -> Any:
    return await start(company, **LOCAL)


async def post(api: Any, path: str, body: dict[str, Any] | None = None) -> tuple[Any, Any]:
    async with api.post(path, json=body or {}) as response:
        return response.status, await response.json()


async def test_an_event_is_delivered_and_signed(api: Any, receiver: Any) -> None:
    invoice_id, secret = await hook(api, receiver.url)
    invoice = await created(api)
    [(headers, body)] = await receiver.gets(1)
    [event] = (await get(api, "/api/events"))["data"]
    assert json.loads(body) == {
        "type": "invoice.created",
        "timestamp": event["created_at"],
        "data": {"invoice_id": invoice},
    }
    assert (
        headers["webhook-id"] == f"evt_{event['id']}"
        and headers["Content-Type"] == "application/json"
    )
    assert signed_by(headers, body, secret)
    assert not signed_by(headers, body + " ", secret)
    found = await delivery(api, invoice_id, "Delivered")
    assert (found["event_id"], found["event_type"], found["attempts"]) == (
        event["id"],
        "invoice.created",
        1,
    )
    assert (found["response_status"], found["error"], found["next_attempt_at"]) == (200, None, None)


def test_the_example_of_the_specification() -> None:
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signature.sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_types_choose_and_a_disabled_endpoint_gets_nothing(api: Any, receiver: Any) -> None:
    chosen, _ = await hook(api, receiver.url, types=["invoice.deleted"])
    disabled, _ = await hook(api, receiver.url, enabled=False)
    invoice_id = await created(api)
    async with api.delete(f"/api/invoices/{invoice_id}") as response:
        assert response.status == 200
    found = await delivery(api, chosen, "Delivered")
    assert found["event_type"] == "invoice.deleted"
    assert await log_of(api, disabled) == []
    assert len(receiver.got) == 1


async def test_an_answer_of_500_and_one_that_never_comes_are_tried_again(
    api: Any, receiver: Any
) -> None:
    async def never(request: web.Request) -> None:
        await asyncio.Event().wait()

    receiver.answers = [500, never, 503]
    invoice_id, secret = await hook(api, receiver.url)
    await created(api)
    requests = await receiver.gets(4)
    assert len({headers["webhook-id"] for headers, _ in requests}) == 1
    assert len({body for _, body in requests}) == 1
    assert all(signed_by(headers, body, secret) for headers, body in requests)
    assert (await delivery(api, invoice_id, "Delivered"))["attempts"] == 4


async def test_after_its_last_attempt_a_delivery_has_failed_and_can_be_made_again(
    api: Any, receiver: Any
) -> None:
    receiver.answers = [500] * len(SCHEDULE)
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    failed = await delivery(api, invoice_id, "Failed")
    assert (failed["attempts"], failed["response_status"], failed["next_attempt_at"]) == (
        len(SCHEDULE),
        500,
        None,
    )
    assert await post(api, f"/api/webhooks/{invoice_id}/deliveries/{failed['id']}/redeliver") == (
        200,
        {"success": True, "message": "The event will be delivered again."},
    )
    assert (await delivery(api, invoice_id, "Delivered"))["attempts"] == len(SCHEDULE) + 1


async def test_what_was_delivered_can_be_delivered_again(api: Any, receiver: Any) -> None:
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    first = await delivery(api, invoice_id, "Delivered")
    assert (await post(api, f"/api/webhooks/{invoice_id}/deliveries/{first['id']}/redeliver"))[
        0
    ] == 200
    (one, _), (two, _) = await receiver.gets(2)
    assert one["webhook-id"] == two["webhook-id"]


async def test_to_deliver_again_counts_also_while_an_attempt_is_under_way(
    api: Any, receiver: Any
) -> None:
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(request: web.Request) -> Any:
        held.set()
        await go_on.wait()
        return web.Response()

    receiver.answers = [hold]
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    await held.wait()
    [found] = await log_of(api, invoice_id)
    assert (await post(api, f"/api/webhooks/{invoice_id}/deliveries/{found['id']}/redeliver"))[
        0
    ] == 200
    go_on.set()
    await receiver.gets(2)
    assert (await delivery(api, invoice_id, "Delivered"))["attempts"] == 2


async def test_the_first_pause_is_kept(start: Any, company: Any, receiver: Any) -> None:
    api = await start(company, **{**LOCAL, "WEBHOOK_RETRY_SCALE": "1"})
    receiver.answers = [500]
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    await receiver.gets(1)
    [found] = await until(
        lambda: log_of(api, invoice_id), lambda listed: listed and listed[0]["response_status"]
    )
    assert found["status"] == "Pending" and found["next_attempt_at"] > found["last_attempt_at"]


@pytest.mark.parametrize("step", range(1, 11))
def test_the_schedule(step: Any) -> None:
    seconds = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    ends = Outcome(response_status=500).result(step, 1)
    if step == 10:
        assert ends["next"] == "Failed"
    else:
        assert (ends["next"], ends["delay"].total_seconds()) == ("Pending", seconds[step - 1])


async def test_a_redirect_is_not_followed(api: Any, receiver: Any) -> None:
    async def elsewhere(request: web.Request) -> None:
        raise web.HTTPTemporaryRedirect(receiver.url + "?followed")

    receiver.answers = [elsewhere] * len(SCHEDULE)
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    failed = await delivery(api, invoice_id, "Failed")
    assert failed["response_status"] == 307 and len(receiver.got) == len(SCHEDULE)


async def test_an_endless_answer_is_cut_off(api: Any, receiver: Any) -> None:
    async def endless(request: web.Request) -> None:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    receiver.answers = [endless]
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    assert (await delivery(api, invoice_id, "Delivered"))["response_status"] == 200


async def test_410_disables_the_endpoint_and_enabling_restarts_the_schedule(
    api: Any, receiver: Any
) -> None:
    receiver.answers = [410]
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    failed = await delivery(api, invoice_id, "Failed")
    assert (failed["response_status"], failed["attempts"]) == (410, 1)
    assert (await get(api, f"/api/webhooks/{invoice_id}"))["enabled"] is False
    assert (await post(api, f"/api/webhooks/{invoice_id}/deliveries/{failed['id']}/redeliver"))[
        0
    ] == 409
    await created(api)
    async with api.put(f"/api/webhooks/{invoice_id}", json={"enabled": True}) as response:
        assert response.status == 200
    later = await created(api)
    await receiver.gets(2)
    assert receiver.invoices()[-1] == later
    listed = await until(
        lambda: log_of(api, invoice_id), lambda listed: listed[0]["status"] == "Delivered"
    )
    assert [one["status"] for one in listed] == ["Delivered", "Failed"]


async def test_a_rotated_secret_signs_together_with_the_new_one_until_it_expires(
    start: Any, company: Any, receiver: Any
) -> None:
    api = await start(company, **{**LOCAL, "WEBHOOK_ROTATION_SECONDS": "2"})
    invoice_id, first = await hook(api, receiver.url)
    status, body = await post(api, f"/api/webhooks/{invoice_id}/rotate-secret")
    second = body["data"]["secret"]
    assert status == 200 and body["data"]["previous_valid_until"] and second != first
    await created(api)
    [(headers, text)] = await receiver.gets(1)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert signed_by(headers, text, first) and signed_by(headers, text, second)

    async def again() -> Any:
        """The latest request, of one more event."""
        count = len(receiver.got)
        await created(api)
        await receiver.gets(count + 1)
        return receiver.got[-1]

    headers, text = await until(again, lambda got: not signed_by(*got, first))
    assert signed_by(headers, text, second)


async def test_at_most_two_secrets_sign(api: Any, receiver: Any) -> None:
    invoice_id, first = await hook(api, receiver.url)
    second = (await post(api, f"/api/webhooks/{invoice_id}/rotate-secret"))[1]["data"]["secret"]
    third = (await post(api, f"/api/webhooks/{invoice_id}/rotate-secret"))[1]["data"]["secret"]
    await created(api)
    [(headers, body)] = await receiver.gets(1)
    assert [signed_by(headers, body, secret) for secret in (first, second, third)] == [
        False,
        True,
        True,
    ]


async def test_a_secret_is_shown_once_and_the_service_cannot_read_it(
    api: Any, receiver: Any, owner: asyncpg.Connection
) -> None:
    invoice_id, secret = await hook(api, receiver.url)
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    assert set(await get(api, f"/api/webhooks/{invoice_id}")) == {
        "id", "company_id", "url", "description", "types", "enabled", "created_at", "updated_at",
    }  # fmt: skip
    async with api.get("/api/webhooks") as response:
        assert secret not in await response.text()
    assert not await owner.fetchval(
        "select has_column_privilege('einvoice_service', 'webhook_secrets', 'secret', 'select')"
    )


async def test_events_come_one_after_another_in_their_order(api: Any, receiver: Any) -> None:
    receiver.answers = [200, 500, 200]
    invoice_id, _ = await hook(api, receiver.url)
    made = [await created(api) for _ in range(12)]
    await until(
        lambda: log_of(api, invoice_id),
        lambda listed: [one["status"] for one in listed].count("Delivered") == 10,
    )
    assert list(dict.fromkeys(receiver.invoices())) == made
    assert receiver.most_at_once == 1


async def test_a_failing_event_does_not_hold_up_those_after_it(
    start: Any, company: Any, receiver: Any
) -> None:
    api = await start(company, **{**LOCAL, "WEBHOOK_RETRY_SCALE": "1"})
    receiver.answers = [500]
    await hook(api, receiver.url)
    made = [await created(api) for _ in range(3)]
    await receiver.gets(3)
    assert receiver.invoices() == made


async def test_an_endpoint_that_is_changed_keeps_the_rest(api: Any, receiver: Any) -> None:
    invoice_id, _ = await hook(
        api, "https://hooks.example.com/in", description="Ledger", types=["invoice.valid"]
    )
    async with api.put(
        f"/api/webhooks/{invoice_id}", json={"url": receiver.url, "types": []}
    ) as response:
        assert (response.status, await response.json()) == (
            200,
            {"success": True, "message": "Webhook updated."},
        )
    record = await get(api, f"/api/webhooks/{invoice_id}")
    assert (record["url"], record["types"], record["description"]) == (receiver.url, [], "Ledger")
    await created(api)
    await receiver.gets(1)


async def test_a_deleted_endpoint_is_gone(api: Any, receiver: Any) -> None:
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    await delivery(api, invoice_id, "Delivered")
    async with api.delete(f"/api/webhooks/{invoice_id}") as response:
        assert (response.status, await response.json()) == (
            200,
            {"success": True, "message": "Webhook deleted."},
        )
    async with api.get(f"/api/webhooks/{invoice_id}/deliveries") as response:
        assert (response.status, await response.json()) == (404, {"message": "Webhook not found"})
    assert (await get(api, "/api/webhooks"))["meta"]["total"] == 0


async def test_lists_have_nine_meta_fields_and_pages(api: Any) -> None:
    made = [(await hook(api, "https://hooks.example.com/in"))[0] for _ in range(3)]
    page = await get(api, "/api/webhooks?page=2&per_page=1")
    assert (
        [one["id"] for one in page["data"]] == [made[1]]
        and len(page["meta"]) == 9
        and page["meta"]["total"] == 3
    )
    page = await get(api, f"/api/webhooks/{made[0]}/deliveries?status=Failed")
    assert page["data"] == [] and page["meta"]["first_page_url"].endswith("status=Failed")


async def test_a_company_has_at_most_twenty_endpoints(api: Any) -> None:
    for _ in range(20):
        await hook(api, "https://hooks.example.com/in")
    assert (await post(api, "/api/webhooks", {"url": "https://hooks.example.com/in"}))[0] == 409


@pytest.mark.parametrize("existing, requests", [(19, 40), (0, 40)])
async def test_the_limit_of_webhooks_holds_for_concurrent_requests(
    start: Any, company: Any, existing: int, requests: int
) -> None:
    """Through two processes."""
    clients = [await start(company, background=False, **LOCAL) for _ in range(2)]
    body = {"url": "https://hooks.example.com/in"}
    for _ in range(existing):
        await hook(clients[0], **body)
    answers = await asyncio.gather(
        *[post(clients[n % 2], "/api/webhooks", body) for n in range(requests)]
    )
    room = 20 - existing
    assert sorted(status for status, _ in answers) == [201] * room + [409] * (requests - room)
    assert (await get(clients[0], "/api/webhooks"))["meta"]["total"] == 20


@pytest.mark.parametrize(
    "body, path",
    [({}, "/url"), ({"url": ""}, "/url"), ({"url": "ftp://hooks.example.com/"}, "/url"), ({"url": "https://"}, "/url"),
     ({"url": "https://hooks.example.com/", "types": ["invoice.eaten"]}, "/types/0"),
     ({"url": "https://hooks.example.com/", "secret": "whsec_x"}, "/secret")],
)  # fmt: skip
async def test_a_bad_body_is_refused(api: Any, body: dict[str, Any], path: str) -> None:
    status, answer = await post(api, "/api/webhooks", body)
    assert status == 422 and path in [fault["path"] for fault in answer["errors"]]


async def test_another_companys_endpoints_are_not_there(
    api: Any, start: Any, environment: dict[str, str], receiver: Any
) -> None:
    invoice_id, _ = await hook(api, receiver.url)
    await created(api)
    found = await delivery(api, invoice_id, "Delivered")
    other = await start(await make_company(environment, name="Other"), **LOCAL)
    place = f"/api/webhooks/{invoice_id}"
    for method, path in (
        ("GET", place),
        ("PUT", place),
        ("DELETE", place),
        ("POST", f"{place}/rotate-secret"),
        ("GET", f"{place}/deliveries"),
        ("POST", f"{place}/deliveries/{found['id']}/redeliver"),
    ):
        async with other.request(method, path) as response:
            assert (response.status, await response.json()) == (
                404,
                {"message": "Webhook not found"},
            ), (method, path)
    own, _ = await hook(other, receiver.url)
    status, answer = await post(other, f"/api/webhooks/{own}/deliveries/{found['id']}/redeliver")
    assert (status, answer) == (404, {"message": "Delivery not found"})
    await created(other)
    await receiver.gets(2)
    assert len(await log_of(api, invoice_id)) == 1


HOSTS = (
    "127.0.0.1", "127.0.0.1.", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1",
    "2130706433", "0x7f000001", "0x7f.0.0.1", "127.1", "0177.0.0.1", "127.0.0.01", "①②⑦.0.0.1",
    "[::1]", "[::]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]", "[ff02::1]", "[::ffff:127.0.0.1]", "[::ffff:8.8.8.8]",
    "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::a00:1]", "[2002:7f00:1::]", "[2001::1]", "[2001:db8::1]",
)  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_an_internal_host_is_refused(host: str) -> None:
    assert url_violation(f"https://{host}/hook", allow_internal=False)


@pytest.mark.parametrize(
    "url",
    ["http://hooks.example.com/", "https://hooks.example.com:444/", "https://hooks.example.com:22/",
     "https://a:b@hooks.example.com/", "https://hooks.example.com/#x", "https://exa mple.com/", "https://hooks.example.com:x/", "https://-a.example/",
     "//hooks.example.com/", "hooks.example.com", "file:///etc/passwd", "https://hooks.example.com:99999/"],
)  # fmt: skip
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    assert url_violation(url, allow_internal=False)


@pytest.mark.parametrize(
    "url",
    ["https://hooks.example.com", "https://hooks.example.com:8443/a?b=c", "https://8.8.8.8/", "https://[2606:4700::1111]/",
     "https://例え.jp/", "https://a_b.example/", "https://0xabc.example.com/", "HTTPS://Hooks.Example.COM/"],
)  # fmt: skip
def test_a_public_url_is_taken(url: str) -> None:
    assert url_violation(url, allow_internal=False) is None


@pytest.mark.parametrize(
    "address", ["nonsense", "", "::ffff:10.0.0.1", "fe80::1%2", "100.127.255.255", "::1"]
)
def test_an_address_that_is_not_public_is_internal(address: str) -> None:
    assert is_internal(address)


async def test_an_internal_url_is_refused_where_it_is_written(start: Any, company: Any) -> None:
    api = await start(company, SECRET_KEY=GENEROUS["SECRET_KEY"])
    for url in ("https://127.0.0.1/hook", "https://2130706433/", "http://hooks.example.com/"):
        status, answer = await post(api, "/api/webhooks", {"url": url})
        assert (status, [fault["path"] for fault in answer["errors"]]) == (422, ["/url"])
    invoice_id, _ = await hook(api, "https://hooks.example.com/")
    async with api.put(f"/api/webhooks/{invoice_id}", json={"url": "https://[::1]/"}) as response:
        assert response.status == 422


async def test_a_name_that_leads_inside_is_not_called(
    environment: dict[str, str], receiver: Any
) -> None:
    """The connector refuses names and addresses that the earlier checks accepted."""
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


#: Names as the resolver of these tests knows them: an exception, or an address.
NAMES = {
    "unknown.example": socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    "internal.example": "10.0.0.1",
    "loopback.example": "127.0.0.1",
    "metadata.example": "169.254.169.254",
    "inner6.example": "fd00::1",
}


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has names ending in .example looked up in NAMES, or in what a test adds: a callable is run in its thread."""
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


async def test_an_internal_name_fails_like_an_unknown_or_refusing_one(
    start: Any, company: Any, resolver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The company sees the same error; the log has the cause."""
    caplog.set_level("INFO", "service.webhooks.dispatcher")
    api = await start(company, **{**LOCAL, "WEBHOOK_ALLOW_INTERNAL": "false", "LOG_LEVEL": "INFO"})
    ids = {name: (await hook(api, f"https://{name}/hook"))[0] for name in NAMES}
    await created(api)
    seen = {}
    for name, invoice_id in ids.items():
        failed = await delivery(api, invoice_id, "Failed")
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
        (found,) = await log_of(api, ids[name])
        assert (
            f"webhooks: delivery {found['id']} of company {company.id}: {cause}" in caplog.messages
        )


async def test_a_failed_connection_is_recorded_at_the_end_of_a_step(
    start: Any, company: Any, resolver: Any
) -> None:
    """The time that an attempt took does not show whether a name was resolved: here a step lasts 0.2 s."""
    variables = {
        "WEBHOOK_ALLOW_INTERNAL": "false",
        "WEBHOOK_TIMEOUT_SECONDS": "3",
        "WEBHOOK_RETRY_SCALE": "1",
    }
    api = await start(company, **{**LOCAL, **variables})
    ids = [(await hook(api, f"https://{name}/hook"))[0] for name in NAMES]
    await created(api)
    for invoice_id in ids:
        [tried] = await until(
            lambda invoice_id=invoice_id: log_of(api, invoice_id),
            lambda listed: listed and listed[0]["error"],
        )
        first, next_one = (
            datetime.fromisoformat(tried[name]) for name in ("last_attempt_at", "next_attempt_at")
        )
        assert next_one - first - SCHEDULE[1] >= timedelta(seconds=0.2)


async def test_a_url_that_was_stored_and_is_internal_is_not_called(
    start: Any, company: Any, receiver: Any, owner: asyncpg.Connection
) -> None:
    api = await start(company, **{**LOCAL, "WEBHOOK_ALLOW_INTERNAL": "false"})
    invoice_id, _ = await hook(api, "https://hooks.example.com/hook", enabled=False)
    await owner.execute("update webhook_endpoints set url = $1, enabled = true", receiver.url)
    await created(api)
    assert (await delivery(api, invoice_id, "Failed"))["error"] == "address"
    assert not receiver.got


async def test_connection_refused_by_the_receiver(api: Any, receiver: Any) -> None:
    invoice_id, _ = await hook(api, "http://127.0.0.1:1/")
    await created(api)
    assert (await delivery(api, invoice_id, "Failed"))["error"] == "connection"


async def test_two_processes_deliver_each_event_once(
    start: Any, company: Any, receiver: Any
) -> None:
    one, two = await start(company, **LOCAL), await start(company, **LOCAL)
    ids = [(await hook(one, receiver.url))[0] for _ in range(3)]
    made = [
        invoice_id
        for pair in [await asyncio.gather(created(one), created(two)) for _ in range(10)]
        for invoice_id in pair
    ]
    for invoice_id in ids:
        page = f"/api/webhooks/{invoice_id}/deliveries?per_page=100&status=Delivered"
        await until(
            lambda page=page: get(one, page), lambda listed: len(listed["data"]) == len(made)
        )
    assert sorted(receiver.invoices()) == sorted(made * len(ids))


async def test_a_killed_process_has_its_delivery_made_again(
    environment: dict[str, str], company: Any, receiver: Any, tmp_path: Path
) -> None:
    held = asyncio.Event()

    async def hold(request: web.Request) -> None:
        held.set()
        await asyncio.Event().wait()

    receiver.answers = [hold]
    service = Service(
        {**environment, **LOCAL, "WEBHOOK_TIMEOUT_SECONDS": "3"}, tmp_path / "service.log"
    )
    await service.start()
    try:
        async with aiohttp.ClientSession(
            service.base, headers={"X-API-Key": company.key}
        ) as client:
            invoice_id, secret = await hook(client, receiver.url)
            made = [await created(client) for _ in range(2)]
            async with asyncio.timeout(60):
                await held.wait()
            await service.kill()
            await service.start()
            await until(
                lambda: get(client, f"/api/webhooks/{invoice_id}/deliveries?status=Delivered"),
                lambda page: len(page["data"]) == 2,
            )
    finally:
        await service.stop()
    assert receiver.invoices() == [made[0], *made]
    assert all(signed_by(headers, body, secret) for headers, body in receiver.got)


# Fair shares

MANY = 20  # endpoints, the most of one company
PATIENT = {**LOCAL, "WEBHOOK_TIMEOUT_SECONDS": "60", "REQUESTS_PER_MINUTE": "0"}


class Hanging:
    """A receiver that never answers until it is released; counts the requests under way by the path's company."""

    def __init__(self) -> None:
        self.under_way, self.released = Counter(), asyncio.Event()

    async def take(self, request: web.Request) -> Any:
        company = request.match_info["company"]
        self.under_way[company] += 1
        await self.released.wait()
        return web.Response()


@pytest.fixture
async def hanging(aiohttp_server: Any) -> AsyncIterator[Any]:
    hanging, app = Hanging(), web.Application()
    app.router.add_post("/{company}", hanging.take)
    server = await aiohttp_server(app)
    hanging.url = str(server.make_url("/"))
    yield hanging
    hanging.released.set()


async def attackers(start: Any, environment: dict[str, str], hanging: Any, count: int) -> Any:
    """Clients of some companies that have as many endpoints as they may have, all of which hang."""
    made = []
    for number in range(count):
        client = await start(
            await make_company(environment, name=f"Slow {number}"), background=False, **PATIENT
        )
        await asyncio.gather(*[hook(client, f"{hanging.url}{number}") for _ in range(MANY)])
        made.append(client)
    return made


async def all_claimed(owner: asyncpg.Connection, hanging: Any, least: Any) -> None:
    """Waits until the events have become deliveries and attempts have begun, as many as get a place now."""
    due = "select count(*) from webhook_deliveries where status = 'Pending'"
    await until(lambda: owner.fetchval(due), lambda n: n % MANY == 0 and n > 0)

    async def begun() -> Any:
        return hanging.under_way.total()

    await until(begun, lambda n: n >= least)


@pytest.mark.parametrize("is_proven", [True, False])
async def test_hanging_receivers_do_not_delay_another_company(
    start: Any,
    environment: dict[str, str],
    company: Any,
    owner: asyncpg.Connection,
    receiver: Any,
    hanging: Any,
    is_proven: bool,
) -> None:
    """Four companies, 80 endpoints that hang. Another's event arrives before any of their attempts has ended."""
    slow_ones = await attackers(start, environment, hanging, 4)
    api = await start(company, background=False, **PATIENT)
    invoice_id, _ = await hook(api, receiver.url)
    if is_proven:
        await owner.execute("update webhook_endpoints set slow = false where id = $1", invoice_id)
    await asyncio.gather(*[created(client) for client in slow_ones])
    await start(company, **PATIENT)
    await all_claimed(owner, hanging, 20)
    await created(api)
    await receiver.gets(1)
    assert hanging.under_way.total() <= AT_ONCE / 2 and not hanging.released.is_set()
    assert max(hanging.under_way.values()) <= COMPANY_SHARE / 2


async def test_quick_endpoints_that_hang_at_once_leave_room_for_others(
    start: Any,
    environment: dict[str, str],
    company: Any,
    owner: asyncpg.Connection,
    receiver: Any,
    hanging: Any,
) -> None:
    """The endpoints responded in time before."""
    slow_ones = await attackers(start, environment, hanging, 4)
    await owner.execute("update webhook_endpoints set slow = false")
    api = await start(company, background=False, **PATIENT)
    await hook(api, receiver.url)
    await asyncio.gather(*[created(client) for client in slow_ones])
    await start(company, **PATIENT)
    await all_claimed(owner, hanging, 40)
    await created(api)
    await receiver.gets(1)
    assert max(hanging.under_way.values()) <= COMPANY_SHARE and hanging.under_way.total() < AT_ONCE


async def test_an_endpoint_is_slow_until_an_attempt_was_quick(
    start: Any, company: Any, owner: asyncpg.Connection, receiver: Any
) -> None:
    api = await start(company, **{**LOCAL, "WEBHOOK_TIMEOUT_SECONDS": "30"})
    invoice_id, _ = await hook(api, receiver.url)
    assert await owner.fetchval("select slow from webhook_endpoints")
    await created(api)
    await delivery(api, invoice_id, "Delivered")
    assert not await owner.fetchval("select slow from webhook_endpoints")


async def test_an_attempt_that_timed_out_makes_its_endpoint_slow(
    start: Any, company: Any, owner: asyncpg.Connection, receiver: Any
) -> None:
    async def never(request: web.Request) -> None:
        await asyncio.Event().wait()

    api = await start(company, **{**LOCAL, "WEBHOOK_RETRY_SCALE": "1"})
    invoice_id, _ = await hook(api, receiver.url)
    await owner.execute("update webhook_endpoints set slow = false")
    receiver.answers = [never]
    await created(api)
    await until(
        lambda: log_of(api, invoice_id), lambda listed: listed and listed[0]["error"] == "timeout"
    )
    assert await owner.fetchval("select slow from webhook_endpoints")


async def test_slow_name_servers_of_one_company_do_not_delay_another(
    start: Any, environment: dict[str, str], company: Any, receiver: Any, resolver: Any
) -> None:
    """Its lookups wait in threads for as long as the test goes on."""
    released, waiting = threading.Event(), []

    def hang() -> OSError:
        waiting.append(threading.current_thread())
        released.wait(60)
        return OSError("no answer")

    resolver["slow.example"], resolver["quick.example"] = hang, "127.0.0.1"
    other = await start(await make_company(environment, name="Slow"), background=False, **PATIENT)
    for _ in range(MANY):
        await hook(other, "http://slow.example/")
    api = await start(company, **PATIENT)
    try:
        await created(other)
        await until(lambda: asyncio.sleep(0, len(waiting)), lambda n: n >= 4)
        await hook(api, receiver.url.replace("127.0.0.1", "quick.example"))
        await created(api)
        await receiver.gets(1)
        assert len(waiting) == 4
    finally:
        released.set()

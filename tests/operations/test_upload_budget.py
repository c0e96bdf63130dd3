"""The memory for request bodies is given back after every kind of request."""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from service.dashboard.table import make_page_routes
from service.errors import Busy
from service.fair_queue import CLIENT
from service.http import app_keys
from service.http.limits import MAX_UPLOAD_BYTES, UNCOUNTED_BYTES, Upload, UploadBudget
from tests.api_invoices import create_invoice
from tests.api_requests import fill_path, list_routes, request_json
from tests.conftest import Client, StartService
from tests.fixtures_dashboard import SignIn
from tests.harness.bodies import invoice
from tests.harness.environments import GENEROUS
from tests.harness.visitors import Visitor
from tests.harness.waiting import wait_until

JSON = {"Content-Type": "application/json"}


def taken(api: Client) -> int:
    budget = api.app[app_keys.LIMITS].uploads
    return budget.known.taken + budget.unknown.taken


async def is_given_back(api: Client) -> None:
    await wait_until(lambda: taken(api) == 0)


@pytest.fixture
async def site(start: StartService) -> Client:
    return await start(**GENEROUS, REQUEST_BODY_SECONDS="1")


async def test_many_clients_leave_memory_for_the_next_one() -> None:
    budget = UploadBudget()
    for company in range(100):
        CLIENT.set(company)
        upload = Upload(budget, None)
        if company == 8:
            upload.add(MAX_UPLOAD_BYTES // 100)
        with pytest.raises(Busy):
            while True:
                upload.add(UNCOUNTED_BYTES)
    CLIENT.set(100)
    Upload(budget, None).add(UNCOUNTED_BYTES)
    with pytest.raises(Busy):
        Upload(budget, None).add(10 * UNCOUNTED_BYTES)


async def test_memory_is_given_back_after_every_form(site: Client, sign_in: SignIn) -> None:
    """Pages call operations inside, with bodies of another size than the form."""
    visitor = await sign_in(site, "owner")
    invoice_id = await create_invoice(site)
    for route in make_page_routes():
        if route.method == "POST" and not re.search("sign-out|/end$", route.path):
            await visitor.get("/companies")
            path = re.sub(r"\{[^/]*\}", str(invoice_id), route.path)
            await visitor.post(path, {"/buyer/name": "Aminah" * 40, "purpose": "view"})
            assert (path, taken(site)) == (path, 0)
    body = {"/type": "INVOICE", "/lineItems/0/description": "Dates", "do": "save"}
    await visitor.get("/invoices/new")
    for _ in range(3):
        await visitor.post("/invoices/new", body)
        assert visitor.status == 422 and taken(site) == 0


async def test_memory_is_given_back_after_every_operation(site: Client) -> None:
    for method, path in list_routes(site):
        for body in (json.dumps(invoice()), "{", "[]", "x" * 100_000):
            async with site.request(method, fill_path(path), data=body, headers=JSON) as response:
                await response.read()
            assert (method, path, taken(site)) == (method, path, 0)


async def send_a_large_body(api: Client) -> None:
    await api.post("/api/invoices", data=b" " * 3_000_000, headers=JSON)


async def send_large_chunks(api: Client) -> None:
    async def chunks() -> Any:
        for _ in range(50):
            yield b" " * 65_536

    with contextlib.suppress(aiohttp.ClientError):  # The response comes before the last chunk.
        await api.post("/api/invoices", data=chunks(), headers=JSON)


async def send_half(api: Client) -> None:
    """Wait until a timeout responds."""
    assert await exchange(api, b"Content-Length: 9000\r\n\r\n{") == b"408"


async def send_half_and_leave(api: Client) -> None:
    await exchange(api, b"Content-Length: 90000\r\n\r\n" + b" " * 40_000, waits=False)


async def send_broken_chunks(api: Client) -> None:
    await exchange(api, b"Transfer-Encoding: chunked\r\n\r\n5\r\n     \r\nzz\r\n")


async def send_a_compressed_body(api: Client) -> None:
    await exchange(api, b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")


async def send_the_wrong_key(api: Client) -> None:
    await request_json(api, "POST", "/api/invoices", json=invoice(), headers={"X-API-Key": "x"})


async def send_to_an_unknown_path(api: Client) -> None:
    await api.post("/api/nothing", json=invoice())
    await api.post("/nothing", data={"a": "b"})
    await api.request("PATCH", "/api/invoices", json=invoice())


async def send_a_body_with_get(api: Client) -> None:
    await api.request("GET", "/api/invoices", json=invoice())


async def send_twice_with_a_key(api: Client) -> None:
    for _ in range(2):
        headers = {"Idempotency-Key": "same"}
        await request_json(api, "POST", "/api/invoices", json=invoice(code=7), headers=headers)


async def send_an_odd_form(api: Client) -> None:
    for body in (b"a=%zz", b"a=\xff", b"&" * 200, b"a=" + b"x" * 60_000, b"a=1"):
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        await api.post("/sign-in", data=body, headers=headers)


async def exchange(api: Client, rest: bytes, waits: bool = True) -> bytes:
    """Send a request to create an invoice. Return the status of the response."""
    url = api.make_url("/")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    key = api.session.headers["X-API-Key"]
    head = f"POST /api/invoices HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
    writer.write(head.encode() + b"Content-Type: application/json\r\n" + rest)
    await writer.drain()
    status = b""
    if waits:
        status = (await reader.readline()).split()[1]
    else:
        await wait_until(lambda: taken(api))
    writer.close()
    return status


@pytest.mark.parametrize(
    "send",
    [
        send_a_large_body,
        send_large_chunks,
        send_half,
        send_half_and_leave,
        send_broken_chunks,
        send_a_compressed_body,
        send_the_wrong_key,
        send_to_an_unknown_path,
        send_a_body_with_get,
        send_twice_with_a_key,
        send_an_odd_form,
    ],
)
async def test_memory_is_given_back_after_a_broken_request(
    site: Client, send: Callable[[Client], Awaitable[None]]
) -> None:
    await send(site)
    await is_given_back(site)
    assert await create_invoice(site)
    assert taken(site) == 0


async def test_memory_is_given_back_when_a_browser_leaves(site: Client) -> None:
    async with Visitor(site.make_url("/")) as visitor:
        await visitor.get("/sign-in")
        url = site.make_url("/")
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(
            b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\n\r\nform_token=" + b"x" * 20_000
        )
        await wait_until(lambda: taken(site))
        writer.close()
    await is_given_back(site)

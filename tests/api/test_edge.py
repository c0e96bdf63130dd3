"""Malformed, slow and oversized HTTP requests: error responses and logs without request content."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from service.app import create_app
from service.config import read_config
from service.http.server import HardenedRunner
from tests.api_requests import INTEGRATIONS, expect
from tests.conftest import Client, Company, patience
from tests.harness.bodies import invoice

#: Malformed requests, each with the API key in its head.
BROKEN = {
    "a NUL in a header": b"GET /api/invoices HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\x00\r\n\r\n",
    "no method": b"\x16\x03\x01 %s\r\n\r\n",
    "two lengths": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\n"
    b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
    "length and chunks": b"GET /healthz HTTP/1.1\r\nHost: %s\r\n"
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a target of 9,000 bytes": b"GET /%s" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
}


@contextlib.asynccontextmanager
async def run_service(environment: dict[str, str], **variables: str) -> AsyncIterator[int]:
    """Yield the port of a service that listens on a TCP socket."""
    runner = HardenedRunner(
        create_app(read_config({**environment, **variables})), shutdown_timeout=1
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.fixture
async def port(environment: dict[str, str]) -> AsyncIterator[int]:
    async with run_service(environment) as port:
        yield port


async def answer_to(port: int, sent: bytes) -> tuple[bytes, bytes]:
    """Send bytes. Return (head, body) of the response, empty if the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        async with patience():
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].split()[0]
            return head, await reader.readexactly(int(length))
    except asyncio.IncompleteReadError as cut:
        return cut.partial, b""
    finally:
        writer.close()


def status_of(head: bytes) -> int:
    return int(head.split()[1])


def code_of(body: bytes) -> str:
    """Return the code of an error body, whose only other member is the message."""
    found = json.loads(body)
    assert list(found) == ["message", "code"], found
    return found["code"]


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN.keys())
async def test_malformed_http_is_rejected_without_quoting_it(
    port: int, company: Company, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    head, body = await answer_to(port, sent.replace(b"%s", company.key.encode()))
    assert status_of(head) == 400 and b"application/json" in head
    assert b"X-Content-Type-Options: nosniff" in head and b"\r\nServer:" not in head
    assert code_of(body) == "bad_request"
    assert company.key not in caplog.text and company.key.encode() not in head + body


async def test_compressed_body_is_rejected_without_decompression(
    port: int, company: Company
) -> None:
    bomb = gzip.compress(bytes(200_000_000))
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{port}", headers={"X-API-Key": company.key}
    ) as client:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        for body in (bomb, b"no gzip at all"):
            async with client.post("/api/invoices", data=body, headers=headers) as response:
                assert response.status == 415 and "message" in await response.json()


#: Requests that aiohttp accepts and the service rejects: (status, request line, headers).
STRANGE = {
    "HTTP 2.0": (505, "GET /api/invoices HTTP/2.0", ""),
    "HTTP 0.9": (505, "GET /api/invoices HTTP/0.9", ""),
    "another expectation": (
        417,
        "POST /api/invoices HTTP/1.1",
        "Expect: the-unexpected\r\nContent-Length: 0\r\n",
    ),
    "two expectations": (
        417,
        "GET /nothing HTTP/1.1",
        "Expect: 100-continue\r\nExpect: 200-ok\r\n",
    ),
    "a compressed transfer": (
        400,
        "POST /api/invoices HTTP/1.1",
        "Transfer-Encoding: gzip, chunked\r\n",
    ),
    "chunks in HTTP 1.0": (400, "POST /api/invoices HTTP/1.0", "Transfer-Encoding: chunked\r\n"),
}
#: Status of a response to unsupported HTTP -> its code.
UNSUPPORTED = {400: "bad_request", 417: "expectation_failed", 505: "http_version_not_supported"}


@pytest.mark.parametrize("name", STRANGE)
async def test_unsupported_http_is_rejected_in_the_surface_format(
    port: int, company: Company, name: str
) -> None:
    status, line, more = STRANGE[name]
    for place, members in (
        ("/api/invoices", {"message", "code"}),
        (f"{INTEGRATIONS}users", {"error", "message", "code", "details"}),
    ):
        sent = f"{line}\r\nHost: x\r\nX-API-Key: {company.key}\r\n{more}\r\n".replace(
            "/api/invoices", place
        )
        head, body = await answer_to(port, sent.replace("/nothing", place).encode())
        assert status_of(head) == status and set(json.loads(body)) == members
        assert json.loads(body)["code"] == UNSUPPORTED[status]
        assert b"x-request-id:" in head.lower() and b"\r\nServer:" not in head
        assert b"X-Content-Type-Options: nosniff" in head


def post(key: str, more: str) -> bytes:
    """Return the head of a POST with more header lines."""
    head = f"POST /api/invoices HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
    return f"{head}Content-Type: application/json\r\n{more}\r\n".encode()


async def test_duplicate_header_is_rejected(port: int, company: Company) -> None:
    repeated = post(company.key, "X-API-Key: x\r\nContent-Length: 0\r\n")
    assert status_of((await answer_to(port, repeated))[0]) == 401
    twice = "Content-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n"
    assert status_of((await answer_to(port, post(company.key, twice)))[0]) == 415


async def test_too_large_content_length_is_rejected_before_the_body(
    port: int, company: Company
) -> None:
    head, body = await answer_to(port, post(company.key, "Content-Length: 99999999999\r\n"))
    assert status_of(head) == 413 and code_of(body) == "request_too_large"


async def test_slow_body_is_a_408_and_slow_head_is_closed(
    environment: dict[str, str], company: Company
) -> None:
    times = {"REQUEST_HEAD_SECONDS": "1", "REQUEST_BODY_SECONDS": "0.2"}
    async with run_service(environment, **times) as port:
        head, body = await answer_to(port, post(company.key, "Content-Length: 10\r\n") + b"{")
        assert status_of(head) == 408 and code_of(body) == "request_timeout"
        whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        assert await answer_to(port, b"") == await answer_to(port, whole[:-2]) == (b"", b"")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole)
        async with patience():
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
            writer.write(whole[:20])
            assert b"HTTP" not in await reader.read()
        writer.close()


async def test_connection_limit_closes_the_connection_that_waits_longest(
    environment: dict[str, str], company: Company
) -> None:
    async with run_service(environment, MAX_CONNECTIONS="2") as port, patience():
        idle, _ = await asyncio.open_connection("127.0.0.1", port)
        halves = [await _in_a_body(port, company.key)]
        halves.append(await _in_a_body(port, company.key))  # closes the idle connection
        assert await idle.read() == b""
        head, _ = await answer_to(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_of(head) == 200  # closes the first half request
        assert await halves[0][0].read() == b""
        reader, writer = halves[1]
        writer.write(b"{}")
        assert status_of(await reader.readuntil(b"\r\n\r\n")) == 422


async def test_connection_limit_closes_no_connection_that_waits_for_a_response(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> None:
    request = b"GET /api/invoices HTTP/1.1\r\nHost: x\r\nX-API-Key: %b\r\n\r\n"
    async with run_service(environment, MAX_CONNECTIONS="2") as port, patience():
        async with owner.transaction():
            await owner.execute("lock table documents")
            busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for _, writer in busy:
                writer.write(request % company.key.encode())
            while await owner.fetchval(BLOCKED) != 2:
                await asyncio.sleep(0.01)
            head, body = await answer_to(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status_of(head) == 503 and code_of(body) == "busy" and b"Retry-After" in head
            assert b"X-Request-Id" in head and b"X-Content-Type-Options: nosniff" in head
        for reader, _ in busy:
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200


#: The number of statements that wait for a table of this database.
BLOCKED = """
    select count(*) from pg_locks
     where not granted
       and database = (select oid from pg_database where datname = current_database())
"""


async def _in_a_body(port: int, key: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection whose request waits for its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post(key, "Expect: 100-continue\r\nContent-Length: 2\r\n"))
    assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_internal_error_is_logged_without_request_content(
    api: Client, owner: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await owner.execute(
        "alter table documents add constraint surprise check (currency_code <> 'SGD')"
    )
    body = invoice(currencyCode="SGD", exchangeRate=3.4)
    answer = await expect(api, 500, "POST", "/api/invoices", json=body)
    assert answer == {"message": "Internal server error", "code": "internal_error"}
    assert "CheckViolationError 23514 surprise" in caplog.text
    assert "SGD" not in caplog.text and "Coffee" not in caplog.text

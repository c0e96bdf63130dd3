"""What is no HTTP: answered in our shape, and quoted neither in the answer nor in the log."""

import asyncio
import gzip
import json

import aiohttp
import pytest
from aiohttp import web

from service.app import create_app
from service.config import read_config
from service.edge import Runner

#: What breaks HTTP, each with the key in its head.
BROKEN = {
    "a NUL in a header": b"GET /api/invoices HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\x00\r\n\r\n",
    "no method": b"\x16\x03\x01 %s\r\n\r\n",
    "two lengths": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
    "length and chunks": b"GET /healthz HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a target of 9,000 bytes": b"GET /%s" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.fixture
async def port(environment):
    runner = Runner(create_app(read_config(environment)))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN.keys())
async def test_what_is_no_http_is_refused_and_quoted_nowhere(port, company, caplog, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent.replace(b"%s", company.key.encode()))
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    assert b" 400 " in head.splitlines()[0] and b"application/json" in head
    assert set(json.loads(body)) == {"message"}
    assert company.key not in caplog.text and company.key.encode() not in head + body


async def test_a_compressed_body_is_refused_without_being_inflated(port, company):
    bomb = gzip.compress(bytes(200_000_000))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers={"X-API-Key": company.key}) as client:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        for body in (bomb, b"no gzip at all"):
            async with client.post("/api/invoices", data=body, headers=headers) as response:
                assert response.status == 415 and "message" in await response.json()

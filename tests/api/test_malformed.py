"""Malformed requests, derived from valid ones: none gets a 500, and each error has its form.

They have changed bodies, fields, methods, paths and bytes, which a generator from the OpenAPI
description does not send. `make fuzz` sends more of them.
"""

import asyncio
import json
import os
import random
import re
from contextlib import suppress

import aiohttp
import pytest

from service.api.operation import Operation
from service.api.table import OPERATIONS
from tests.api.test_bodies import GOOD, mutate
from tests.api.test_edge import run_service
from tests.api_invoices import create_one_of_each
from tests.api_requests import make_account, place_of
from tests.conftest import Company
from tests.harness.environments import GENEROUS

pytestmark = pytest.mark.long

REQUESTS = 200 * int(os.environ.get("FUZZ_EXAMPLES") or 20)
CLIENTS = 8
ANSWER_SECONDS = 20.0
UNFINISHED_SECONDS = 0.1  # for a response to bytes that may be an incomplete request
TOKENS = (
    *(b"", b"\x00", b"\xff", b"\xed\xa0\x80", b"{", b"}", b"[" * 300, b'"', b",", b":", b"\n"),
    *(b"\\u0000", b"\\ud800", b"1e400", b"NaN", b"//", b"9" * 300, b'"a":1,'),
)
SEGMENTS = (
    *("0", "-1", "0001", "1.0", "9223372036854775807", "9223372036854775808", "%D9%A1", "%00"),
    *("%FF", "%ED%A0%80", "..", "", "%2F", "%2e%2e", "a" * 500, "export-all", "*", "{id}", "%"),
    *("usr_" + "a" * 22, "'", "1;a=b", "-id", "100", "Valid", "2026-01-01T00:00:00Z", "a,b"),
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "TRACE", "get", "QUERY")
FIELDS = (
    *("Content-Type: \x80", "Content-Type:", "Content-Encoding: gzip", "Expect: 100-continue"),
    *(
        "Idempotency-Key: " + "k" * 256,
        "Idempotency-Key: \xff",
        "Idempotency-Key: one",
        "If-Match:",
    ),
    *("If-None-Match: \xff", "X-Request-Id: " + "r" * 5000, "X-API-Key: second", "Upgrade: h2c"),
    *("Range: bytes=0-1", "Host: other", "A" * 9000 + ": b", " folded", "No-Colon", "Cookie: a=b"),
)
#: Schema -> its good bodies.
BODIES = {name: [*bodies.values()] for name, bodies in GOOD.items()}


class Malformer:
    """Makes requests from valid ones."""

    def __init__(self, seed: int, keys: str, ids: dict[str, int]) -> None:
        self._random, self._keys, self._ids = random.Random(seed), keys, ids

    def make(self) -> tuple[bytes, bool]:
        """Return the bytes of a request with one kind of change, and whether it is complete."""
        operation, kind = self._random.choice(OPERATIONS), self._random.randrange(5)
        method, body, fields = operation.method, self._make_body(operation), [self._keys]
        if kind == 1:
            body = self._corrupt(body)
        elif kind == 2:
            fields.append(self._random.choice(FIELDS))
        elif kind == 3:
            method = self._random.choice(METHODS)
        if body:
            fields += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        line = f"{method} {self._make_path(operation)} HTTP/1.1"
        head = "\r\n".join([line, "Host: x", "Connection: close", *fields, "", ""])
        raw = head.encode("latin-1") + body
        return (self._corrupt(raw), False) if kind == 4 else (raw, True)

    def _make_path(self, operation: Operation) -> str:
        """Return the path of a record, or of none, with some parameters."""
        known = str(self._ids.get(place_of(operation.path)))
        segment = self._random.choice([*SEGMENTS, *[known] * len(SEGMENTS)])
        names = [parameter.name for parameter in operation.query] or ["unknown"]
        chosen = self._random.choices(names, k=self._random.randint(0, 2))
        query = "&".join(f"{name}={self._random.choice(SEGMENTS)}" for name in chosen)
        return re.sub(r"\{\w+\}", lambda _: segment, operation.path) + f"?{query}"

    def _make_body(self, operation: Operation) -> bytes:
        """Return a good body of the operation, mostly with some changes, empty without a body."""
        if not operation.body:
            return b""
        body = self._random.choice(BODIES[operation.body])
        if self._random.random() < 0.7:
            body = mutate(body, self._random)
        text = json.dumps(body, default=float, ensure_ascii=self._random.random() < 0.9)
        local = re.sub(r'"https?://[^"]*"', '"http://127.0.0.1:9/"', text)
        return local.encode("utf-8", "surrogatepass")

    def _corrupt(self, raw: bytes) -> bytes:
        """Replace the bytes at one place."""
        place = self._random.randrange(len(raw) + 1)
        removed = self._random.choice((0, 0, 1, 5, len(raw)))
        return raw[:place] + self._random.choice(TOKENS) + raw[place + removed :]


async def exchange(port: int, raw: bytes, seconds: float) -> bytes:
    """Send bytes, and return what was received until the connection was closed, or in a time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(seconds):
            writer.write(raw)
            while piece := await reader.read(2**16):
                received += piece
    writer.transport.abort()
    return received


def is_good(received: bytes, is_complete: bool) -> bool:
    """Return whether a response is no internal error, and an error has its form."""
    head, _, body = received.partition(b"\r\n\r\n")
    if not received:
        return not is_complete
    status = int(head.split()[1])
    is_error = status >= 400 and b"application/json" in head.lower() and body
    has_form = not is_error or {"message", "error"} & json.loads(body).keys()
    return bool(has_form) and status not in (500, 502, 504)


async def test_no_malformed_request_gets_an_internal_error(
    environment: dict[str, str], company: Company
) -> None:
    given = {**environment, **GENEROUS, "SUBMIT_WAIT_SECONDS": "1"}
    keys = f"X-API-Key: {company.key}\r\nX-Portal-Key: {(await make_account(given)).key}"
    turns, failed = iter(range(REQUESTS)), list[tuple[bytes, bytes]]()
    async with run_service(given) as port:
        base, headers = f"http://127.0.0.1:{port}", {"X-API-Key": company.key}
        async with aiohttp.ClientSession(base, headers=headers) as http:
            ids = await create_one_of_each(http)

        async def send(number: int) -> None:
            malformer = Malformer(number, keys, ids)
            for _ in turns:
                raw, is_complete = malformer.make()
                seconds = ANSWER_SECONDS if is_complete else UNFINISHED_SECONDS
                received = await exchange(port, raw, seconds)
                if not is_good(received, is_complete):
                    failed.append((raw, received[:500]))

        await asyncio.gather(*map(send, range(CLIENTS)))
    assert failed == []

"""The portal client against hostile servers: error classes, logins, listings, no repetition."""

import asyncio
import base64
import gzip
import json
import logging
import re
import socket
import struct
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from service.config import Config, read_config
from service.portal import listings, responses, transport
from service.portal.client import Portal, Send, portal_session
from service.portal.documents import MOST_PAGE_ROWS, Document
from service.portal.errors import (
    Duplicate,
    LoginRefused,
    NotSent,
    PortalError,
    Refused,
    Throttled,
    Unclear,
)
from service.portal.responses import UNREADABLE_REASONS, SubmissionReceipt
from tests.conftest import until
from tests.harness.paths import DOCUMENTS
from tests.portal.slow_tls import make_authority

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
TIN = "C4821093650"
UID = "4HD2W8ZKJ6T0RVB5XQ9NM3PC10"
UUID = "7G3KX2M9QPWZ41VTB8RHNYDC10"
NOW = datetime(2026, 9, 14, 3, 26, tzinfo=UTC)
RECEIPT = {
    "submissionUid": UID,
    "acceptedDocuments": [{"uuid": UUID, "invoiceCodeNumber": "INV-1"}],
    "rejectedDocuments": [],
}
RAW = json.dumps(RECEIPT).encode()


# A portal on raw sockets


def http(
    status: int,
    body: Any = b"",
    kind: str | None = "application/json",
    length: int | None = None,
    close: bool = True,
    **headers: Any,
) -> bytes:
    """Return the bytes of a response. `length` may be wrong; headers that are None are omitted."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {
        "Content_Type": kind,
        "Content_Length": len(body) if length is None else length,
        **headers,
    }
    lines["Connection"] = "close" if close else "keep-alive"
    head = "".join(
        f"{name.replace('_', '-')}: {value}\r\n"
        for name, value in lines.items()
        if value is not None
    )
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, Any]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}


#: A response: bytes, a function of the request, or a coroutine that writes to the connection.
Response = bytes | Callable[..., Any]


class RawPortal:
    """A portal that answers logins with `login` and all other requests with `act`."""

    def __init__(self, act: Response, login: Response | None = None) -> None:
        self.act, self.login = act, login or self.new_token
        self.requests: list[Request] = []
        self.received = b""
        self.handlers: set[asyncio.Task[Any] | None] = set()

    def new_token(self, request: Request) -> bytes:
        return http(
            200, {"access_token": f"token-{len(self.logins)}", "expires_in": 3600}, close=False
        )

    @property
    def logins(self) -> list[Request]:
        return [request for request in self.requests if request.target == "/connect/token"]

    @property
    def calls(self) -> list[Request]:
        return [request for request in self.requests if request.target != "/connect/token"]

    async def serve(self, reader: Reader, writer: Writer) -> None:
        self.handlers.add(asyncio.current_task())
        try:
            while request := await self.read(reader):
                self.requests.append(request)
                act = self.login if request.target == "/connect/token" else self.act
                await self.answer(act, request, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, act: Response, request: Request, reader: Reader, writer: Writer) -> None:
        if asyncio.iscoroutinefunction(act):
            await act(reader, writer, request)
            return
        raw = act if isinstance(act, bytes) else act(request)
        writer.write(raw)
        await writer.drain()
        if b"Connection: keep-alive" not in raw:
            raise ConnectionError

    async def read(self, reader: Reader) -> Request:
        head = await reader.readuntil(b"\r\n\r\n")
        self.received += head
        first, *lines = head.decode().split("\r\n")[:-2]
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        method, target, _ = first.split()
        return Request(
            method, target, headers, await reader.readexactly(int(headers.get("content-length", 0)))
        )


def config_for(base: str, **more: str) -> Config:
    names = ("PORTAL_API_BASE", "PORTAL_IDENTITY_BASE", "PORTAL_WEB_BASE")
    client = {"PORTAL_CLIENT_ID": "the-client", "PORTAL_CLIENT_SECRET": "the-secret"}
    return read_config({**dict.fromkeys(names, base), **client, **more})


def address_of(server: asyncio.Server) -> str:
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def portal_to(
    act: Response,
    login: Response | None = None,
    options: dict[str, Any] | None = None,
    **variables: Any,
) -> AsyncIterator[tuple[Portal, RawPortal]]:
    """Yield a portal client and its server. Close all connections and wait for their handlers."""
    server = RawPortal(act, login)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        config = config_for(f"http://{address_of(listening)}", **variables)
        async with portal_session() as session:
            yield Portal(session, config, **options or {}), server
        await asyncio.gather(*filter(None, server.handlers))


async def send_submission(
    portal: Portal,
    body: bytes = b"{}",
    tin: str = TIN,
    check: Callable[[], None] = lambda: None,
) -> SubmissionReceipt:
    """Open a submission and send it."""
    async with portal.open_submission(tin, body) as send:
        return await send(check)


async def reset(reader: Reader, writer: Writer, request: Request) -> None:
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    writer.transport.abort()


async def hang_up(reader: Reader, writer: Writer, request: Request) -> None:
    raise ConnectionError


async def silent(reader: Reader, writer: Writer, request: Request) -> None:
    await reader.read()


def dripping(head: bytes) -> Response:
    """Return a response that writes a byte every 10 ms without end."""

    async def drip(reader: Reader, writer: Writer, request: Request) -> None:
        writer.write(head)
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    return drip


def refusal(code: str, **more: Any) -> dict[str, Any]:
    members = {"code": code, "message": f"It is {code}.", "target": None, "details": None}
    return {"error": {**members, **more}}


STANDARD = {
    "error": {
        "errorCode": "NotFound",
        "error": "Not there.",
        "errorMS": "Tiada.",
        "innerError": None,
    }
}
PROBLEM = {
    "type": "https://tools.ietf.org/html/rfc9110#section-15.5.5",
    "title": "Not Found",
    "status": 404,
    "traceId": "00-5b1f0c9a77e34f0c8d2a6b3e91c4d7f2-8a4c2e6f10b3d975-00",
}


def respond_in_chunks(*chunks: bytes, **headers: Any) -> bytes:
    """Return a chunked 202 response without its last chunk."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return http(202, body, Content_Length=None, Transfer_Encoding="chunked", **headers)


def damaged_gzip() -> bytes:
    """Return a response whose first chunk unpacks to the receipt and whose second is invalid."""
    packer = zlib.compressobj(wbits=31)
    return respond_in_chunks(
        packer.compress(RAW) + packer.flush(zlib.Z_SYNC_FLUSH),
        b"\xff" * 99,
        Content_Encoding="gzip",
    )


PAGE = b"<html><title>Sign in to the network</title></html>"


def receipt(**changes: Any) -> dict[str, Any]:
    return {**RECEIPT, **changes}


# The error class of each response. test_send_outcomes.py has those that the sandbox can give.

#: Long enough to connect on a busy machine.
TIMEOUT: dict[str, Any] = {"PORTAL_TIMEOUT_SECONDS": "1"}

#: Receipts with the status 202 that are not one of the sent document.
RECEIPTS = {
    "null": b"null",
    "list": [RECEIPT],
    "without lists": {"submissionUid": UID},
    "with null lists": receipt(acceptedDocuments=None, rejectedDocuments=None),
    "with an object for a list": receipt(acceptedDocuments={"uuid": UUID}),
    "with texts in a list": receipt(acceptedDocuments=[UUID]),
    "with a number for a text": receipt(acceptedDocuments=[{"uuid": UUID, "invoiceCodeNumber": 1}]),
    "without a uuid": receipt(acceptedDocuments=[{"invoiceCodeNumber": "INV-1"}]),
    "with a path for a uuid": receipt(
        acceptedDocuments=[{"uuid": "../state", "invoiceCodeNumber": "INV-1"}]
    ),
    "accepted without an id": receipt(submissionUid=None),
    "naming one twice": receipt(acceptedDocuments=RECEIPT["acceptedDocuments"] * 2),
    "accepting and rejecting": receipt(
        rejectedDocuments=[{"invoiceCodeNumber": "INV-1", "error": None}]
    ),
}
UNPACKED = gzip.compress(b" " * 20_000_000)

SUBMITS: dict[type[Exception], dict[str, Response]] = {
    Unclear: {
        "reset": reset,
        "head without end": dripping(b"HTTP/1.1 202 Accepted\r\nX: "),
        "not HTTP": b"220 mail.example ESMTP\r\n",
        "200": http(200, RECEIPT),
        "201": http(201, RECEIPT),
        "202 of no type": http(202, RECEIPT, None),
        "202 as text": http(202, RECEIPT, "text/plain"),
        "202 with a length too short": http(202, RECEIPT, length=20),
        "202 in broken chunks": respond_in_chunks(RAW) + b"zz\r\n",
        "202 in chunks without an end": respond_in_chunks(RAW),
        "202 not gzip": http(202, RECEIPT, Content_Encoding="gzip"),
        "202 not UTF-8": http(202, b'{"submissionUid": "\xff"}'),
        "202 empty": http(202),
        "202 too long when unpacked": http(202, UNPACKED, Content_Encoding="gzip"),
        **{f"202 {name}": http(202, body) for name, body in RECEIPTS.items()},
        "400 as text": http(400, b"Bad Request", "text/plain"),
        "400 cut": http(400, refusal("BadStructure"), length=9999),
        "400 without an error": http(400, {}),
        "404 page": http(404, PAGE, "text/html"),
        "403 of a gateway": http(403, {"message": "Forbidden"}),
        "404 of a gateway": http(404, {"statusCode": 404, "message": "Resource not found"}),
        "423 of a gateway": http(423, {"error": "Maintenance."}),
        "422 empty": http(422),
        "422 page": http(422, PAGE, "text/html"),
    },
    Duplicate: {"422": http(422, refusal("DuplicateSubmission"))},
    Refused: {
        "404 standard": http(404, STANDARD),
        "404 problem": http(404, PROBLEM, "application/problem+json"),
        "422 other": http(422, refusal("ValidationError")),
    },
    Throttled: {
        "429 empty": http(429),
        "429 page": http(429, PAGE, "text/html"),
        "429 cut": http(429, refusal("TooManyRequests"), length=9999),
    },
}

READS: dict[type[Exception], dict[str, Response]] = {
    Unclear: {
        "reset": reset,
        "closed": hang_up,
        "no answer": silent,
        "202": http(202, {}),
        "302": http(302, b"", Location="/elsewhere"),
        "500": http(500),
        "page": http(200, PAGE, "text/html"),
        "another document": http(200, {"uuid": "A" * 26}),
    },
    Refused: {
        "403 page": http(403, PAGE, "text/html"),
        "404": http(404, refusal("NotFound")),
        "404 empty": http(404),
        "422": http(422, refusal("DuplicateSubmission")),
    },
    Throttled: {"429": http(429)},
    LoginRefused: {"401 for ever": http(401)},
}

CANCELLED = {"uuid": UUID, "status": "Cancelled"}
CANCELS: dict[type[Exception], dict[str, Response]] = {
    Unclear: {
        "closed": hang_up,
        "500": http(500),
        "202": http(202, CANCELLED),
        "page": http(200, PAGE, "text/html"),
        "empty": http(200),
        "without a status": http(200, {"uuid": UUID}),
        "another status": http(200, {"uuid": UUID, "status": "Valid"}),
        "another document": http(200, {"uuid": "A" * 26, "status": "Cancelled"}),
    },
    Refused: {
        "error in a 200": http(200, {**CANCELLED, **refusal("IncorrectState")}),
        "empty error in a 200": http(200, {**CANCELLED, "error": {}}),
        "400": http(400, refusal("OperationPeriodOver")),
        "403 page": http(403, PAGE, "text/html"),
    },
}
#: An operation, its arguments, a response and the error that it raises.
ERRORS = [
    pytest.param(call, act, error, id=f"{operation}: {name}")
    for operation, call, table in (
        ("submit", send_submission, SUBMITS),
        ("details", lambda portal: portal.details(TIN, UUID), READS),
        ("cancel", lambda portal: portal.cancel(TIN, UUID, "Wrong buyer"), CANCELS),
    )
    for error, acts in table.items()
    for name, act in acts.items()
]


@pytest.mark.parametrize("call, act, expected", ERRORS)
async def test_a_request_raises_the_error_class_of_its_response(
    call: Callable[[Portal], Awaitable[Any]], act: Response, expected: type[Exception]
) -> None:
    """Redirects must be ignored."""
    async with portal_to(act, **TIMEOUT) as (portal, server):
        with pytest.raises(PortalError) as raised:
            await call(portal)
    assert type(raised.value) is expected
    assert "the-secret" not in repr(raised.value) and "token-" not in repr(raised.value)
    assert "/elsewhere" not in [request.target for request in server.requests]


# Requests that are not sent


@pytest.mark.parametrize("act", [hang_up, silent])
async def test_a_failed_or_stalled_tls_handshake_sends_nothing(act: Any) -> None:
    async def speak(reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        with suppress(ConnectionError):
            await act(reader, writer, None)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as listening:
        base = f"https://{address_of(listening)}"
        config = config_for(base, PORTAL_CONNECT_TIMEOUT_SECONDS="0.3")
        async with asyncio.timeout(60), portal_session() as session:
            with pytest.raises(NotSent):
                await send_submission(Portal(session, config))


@pytest.mark.parametrize(
    "error", [NotSent("The claim is too old."), LookupError("A bug."), OSError("Passing.")]
)
async def test_an_error_in_the_check_stops_the_request(error: Exception) -> None:
    def stop() -> None:
        raise error

    expected = NotSent if isinstance(error, OSError) else type(error)
    async with portal_to(http(202, RECEIPT)) as (portal, server):
        with pytest.raises(expected):
            await send_submission(portal, check=stop)
    assert len(server.logins) == 1 and b"documentsubmissions" not in server.received


@dataclass
class TlsPortal:
    """A portal over TLS that counts handshakes, keeps the received bytes and sends `answer`."""

    answer: bytes
    handshakes: int = 0
    received: bytes = b""

    async def serve(self, reader: Reader, writer: Writer) -> None:
        self.handshakes += 1
        while piece := await reader.read(65536):
            self.received += piece
            if self.received.endswith(b"{}"):
                writer.write(self.answer)
        writer.close()


@asynccontextmanager
async def open_over_tls(tmp_path: Path) -> AsyncIterator[tuple[Send, TlsPortal]]:
    """Yield an open submission and its server. The login went to another server."""
    authority, server = make_authority(tmp_path), TlsPortal(http(202, RECEIPT))
    identity = RawPortal(b"")
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=authority.server)
    logins = await asyncio.start_server(identity.serve, "127.0.0.1", 0)
    bases = {
        "PORTAL_API_BASE": f"https://{address_of(listening)}",
        "PORTAL_IDENTITY_BASE": f"http://{address_of(logins)}",
    }
    config = config_for("http://unused.invalid", **bases)
    async with listening, logins, portal_session(tls=authority.client) as session:
        portal = Portal(session, config)
        await portal.ready(TIN)
        async with portal.open_submission(TIN, b"{}") as send:
            await until(lambda: asyncio.sleep(0, server.handshakes))
            yield send, server


async def test_an_open_submission_is_connected_and_writes_on_send(tmp_path: Path) -> None:
    checked = []
    async with open_over_tls(tmp_path) as (send, server):
        receipt = await send(lambda: checked.append(server.received))
    assert receipt.uid == UID and checked == [b""] and server.received.startswith(b"POST ")


async def test_an_abandoned_open_submission_writes_nothing(tmp_path: Path) -> None:
    async with open_over_tls(tmp_path) as (_, server):
        pass
    assert server.received == b""


async def test_an_open_submission_whose_check_raises_writes_nothing(tmp_path: Path) -> None:
    def refuse() -> None:
        raise NotSent("The process was held up.")

    async with open_over_tls(tmp_path) as (send, server):
        with pytest.raises(NotSent):
            await send(refuse)
    assert server.received == b""


async def test_an_open_submission_checks_again_before_a_second_request() -> None:
    seen = []
    async with portal_to(accepts_token("token-2", http(202, RECEIPT))) as (portal, server):
        await portal.ready(TIN)
        async with portal.open_submission(TIN, b"{}") as send:
            await send(lambda: seen.append(len(server.calls)))
    assert seen == [0, 1]


async def test_a_submit_on_a_closed_connection_is_not_repeated() -> None:
    def once(request: Request) -> bytes:
        return http(200, document(), close=False) if request.method == "GET" else b""

    async with portal_to(once) as (portal, server):
        await portal.details(TIN, UUID)
        with pytest.raises(Unclear):
            await send_submission(portal)
    assert [request.method for request in server.calls] == ["GET", "POST"]


@pytest.mark.parametrize(
    "second", [http(429, {}), http(400, refusal("IncorrectState")), http(503, {})]
)
async def test_a_cancel_repeated_by_the_library_that_fails_is_unclear(second: bytes) -> None:
    """The first request may still be processed, regardless of the response to the second."""
    responses = iter([b"", second])
    async with portal_to(lambda request: next(responses)) as (portal, server):
        with pytest.raises(Unclear):
            await portal.cancel(TIN, UUID, "Wrong buyer")
    assert [request.method for request in server.calls] == ["PUT", "PUT"]


async def test_a_stopped_repetition_of_a_cancel_is_unclear() -> None:
    async def stop() -> None:
        if server.calls:
            raise NotSent("The claim has expired.")

    async with portal_to(b"") as (portal, server):
        with pytest.raises(Unclear):
            await portal.cancel(TIN, UUID, "Wrong buyer", before_bytes=stop)
    assert len(server.calls) == 1


async def test_a_session_without_the_trace_hook_is_refused() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ValueError):
            Portal(session, config_for("http://127.0.0.1"))


async def test_the_rate_limiter_is_asked_before_every_request() -> None:
    passed = []

    async def limiter(operation: str, tin: str, *more: object) -> None:
        passed.append((operation, tin))
        if operation == "submit":
            raise Throttled("Our own quota.", retry_after=timedelta(seconds=5))

    async with portal_to(http(202, RECEIPT), options={"rate_limiter": limiter}) as (portal, server):
        with pytest.raises(Throttled):
            await portal.ready(TIN)
    assert passed == [("login", TIN), ("submit", TIN)] and not server.calls


# Login


def accepts_token(token: str, raw: Any) -> Callable[..., Any]:
    return lambda request: (
        raw if request.headers["authorization"] == f"Bearer {token}" else http(401, close=False)
    )


BLOCKED = {"error": "invalid_client", "error_description": "User blocked"}
LOGINS: dict[type[Exception], dict[str, Response]] = {
    LoginRefused: {
        "invalid_client": http(400, BLOCKED),
        "401": http(401, {"error": "invalid_client"}),
        "403": http(403, refusal("Forbidden")),
        "403 empty": http(403),
    },
    NotSent: {
        "403 page": http(403, PAGE, "text/html"),
        "400 page": http(400, PAGE, "text/html"),
        "404": http(404),
        "302": http(302, Location="/elsewhere"),
        "cut": http(200, {"access_token": "x", "expires_in": 3600}, length=999),
        "no token": http(200, {"expires_in": 3600}),
        "a token that breaks a header": http(
            200, {"access_token": "a\r\nX: b", "expires_in": 3600}
        ),
        "reset": reset,
    },
    Throttled: {"429": http(429, Retry_After="9")},
}


@pytest.mark.parametrize(
    "login, expected",
    [
        pytest.param(login, error, id=name)
        for error, logins in LOGINS.items()
        for name, login in logins.items()
    ],
)
async def test_a_failed_login_raises_its_error_class_and_sends_nothing(
    login: Response, expected: type[Exception]
) -> None:
    async with portal_to(http(202, RECEIPT), login, **TIMEOUT) as (portal, server):
        with pytest.raises(expected):
            await send_submission(portal)
    assert len(server.logins) == 1 and not server.calls


async def test_a_refused_login_has_the_reason_of_the_portal() -> None:
    async with portal_to(b"", http(400, BLOCKED)) as (portal, _):
        with pytest.raises(LoginRefused) as refused:
            await send_submission(portal)
    expected = [{"code": "invalid_client", "path": "", "message": "User blocked"}]
    assert refused.value.errors == expected


async def test_the_login_is_a_form_without_onbehalfof() -> None:
    async with portal_to(http(202, RECEIPT)) as (portal, server):
        await send_submission(portal)
    form = parse_qs(server.logins[0].body.decode())
    assert form["client_id"] == ["the-client"] and form["grant_type"] == ["client_credentials"]
    assert "onbehalfof" not in server.logins[0].headers


async def test_an_intermediary_logs_in_once_for_each_company() -> None:
    async with portal_to(http(202, RECEIPT), PORTAL_INTERMEDIARY="true") as (portal, server):
        for tin in ("C10", "C20", "C10"):
            await send_submission(portal, tin=tin)
    assert [request.headers["onbehalfof"] for request in server.logins] == ["C10", "C20"]
    assert [request.headers["authorization"][-1] for request in server.calls] == ["1", "2", "1"]
    assert not any("onbehalfof" in request.headers for request in server.calls)


async def test_concurrent_requests_share_a_failed_login() -> None:
    async with portal_to(b"", http(500)) as (portal, server):
        results = await asyncio.gather(
            *(send_submission(portal) for _ in range(20)), return_exceptions=True
        )
    assert {type(result) for result in results} == {NotSent} and len(server.logins) == 1


async def test_a_cancelled_request_does_not_cancel_a_shared_login() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow_login(reader: Reader, writer: Writer, request: Request) -> None:
        asked.set()
        await go_on.wait()
        writer.write(http(200, {"access_token": "token-1", "expires_in": 3600}, close=False))

    async with portal_to(http(202, RECEIPT), slow_login) as (portal, server):
        first, second = (asyncio.create_task(send_submission(portal)) for _ in range(2))
        await asked.wait()
        first.cancel()
        go_on.set()
        assert (await second).uid == UID
    assert len(server.logins) == 1 and first.cancelled()


async def test_a_refused_token_is_renewed_once_for_all_requests() -> None:
    async with portal_to(accepts_token("token-2", http(202, RECEIPT))) as (portal, server):
        results = await asyncio.gather(*(send_submission(portal) for _ in range(20)))
    assert len(results) == 20 and len(server.logins) == 2


async def test_a_late_refusal_of_an_old_token_keeps_the_new_one() -> None:
    held, renewed = asyncio.Event(), asyncio.Event()

    async def late(reader: Reader, writer: Writer, request: Request) -> None:
        is_old = request.headers["authorization"] == "Bearer token-1"
        if is_old and not held.is_set():
            held.set()
            await renewed.wait()
        writer.write(http(401, close=False) if is_old else http(202, RECEIPT, close=False))

    async with portal_to(late) as (portal, server):
        slow = asyncio.create_task(send_submission(portal))
        await held.wait()
        await send_submission(portal)
        renewed.set()
        await slow
    assert len(server.logins) == 2 and len(server.calls) == 4


async def test_a_token_is_renewed_after_80_percent_of_its_lifetime() -> None:
    now = [0.0]
    async with portal_to(http(202, RECEIPT), options={"clock": lambda: now[0]}) as (portal, server):
        for now[0], logins in ((0, 1), (0.8 * 3600 - 1, 1), (0.8 * 3600, 2)):
            await send_submission(portal)
            assert len(server.logins) == logins


# Retry-After


def retry_at(moment: datetime) -> dict[str, str]:
    return {"Retry_After": format_datetime(moment, True), "Date": format_datetime(NOW, True)}


@pytest.mark.parametrize(
    "headers, expected",
    [
        ({"Retry_After": "34"}, 34),
        ({"Retry_After": "0"}, 1),
        ({"Retry_After": "99999"}, 900),
        ({"Retry_After": "9" * 5000}, 900),
        ({}, 60),
        ({"Retry_After": "soon"}, 60),
        ({"Retry_After": "-5"}, 60),
        (retry_at(NOW + timedelta(seconds=90)), 90),
        (retry_at(NOW - timedelta(days=9)), 1),
        ({"Retry_After": "Sun, 01 Jan 2090 00:00:00 GMT"}, 900),
    ],
)
async def test_retry_after_accepts_seconds_or_a_date_within_bounds(
    headers: dict[str, Any], expected: int
) -> None:
    async with portal_to(http(429, **headers)) as (portal, _):
        with pytest.raises(Throttled) as raised:
            await send_submission(portal)
    assert raised.value.retry_after == timedelta(seconds=expected)


# Receipts


async def test_a_submission_is_sent_unchanged_and_returns_its_receipt() -> None:
    body = json.dumps({"documents": ["x" * 3_000_000]}).encode()
    error = refusal(
        "3", details=[{"code": "CF321", "message": "Too old.", "propertyPath": "Invoice.IssueDate"}]
    )
    rejected = [{"invoiceCodeNumber": "INV-2", **error}]
    answer = http(202, receipt(rejectedDocuments=rejected), Date="Mon, 14 Sep 2026 03:26:00 GMT")
    async with portal_to(answer) as (portal, server):
        submission = await send_submission(portal, body)
    assert server.calls[0].body == body
    assert server.calls[0].target == "/api/v1.0/documentsubmissions/"
    assert server.calls[0].headers["content-type"] == "application/json"
    assert submission == SubmissionReceipt(
        UID,
        {"INV-1": UUID},
        {"INV-2": [{"code": "CF321", "path": "Invoice.IssueDate", "message": "Too old."}]},
        NOW,
    )


@pytest.mark.parametrize(
    "error, message",
    [
        ({"code": None, "message": "Hash.", "details": None}, "Hash."),
        (None, UNREADABLE_REASONS["message"]),
    ],
)
async def test_a_submission_can_be_rejected_as_a_whole(error: Any, message: str) -> None:
    rejected = [{"invoiceCodeNumber": "INV-1", "error": error}]
    all_rejected = {"submissionUid": None, "acceptedDocuments": [], "rejectedDocuments": rejected}
    async with portal_to(http(202, all_rejected)) as (portal, _):
        submission = await send_submission(portal)
    assert submission.uid is None and not submission.accepted
    assert submission.rejected == {"INV-1": [{"code": None, "path": "", "message": message}]}
    async with portal_to(http(202, {"acceptedDocuments": []})) as (portal, _):
        assert not (await send_submission(portal)).accepted


@pytest.mark.parametrize(
    "raw, expected",
    [
        (http(202, RAW, length=9999), [("INV-1", UUID)]),
        (http(202, RAW[: RAW.index(b"INV-1") + 3], length=9999), []),
        (http(202, RAW[: RAW.index(UUID.encode()) + 9], length=9999), []),
        (http(202, RAW.replace(b"uuid", b"UUID")[:-1]), [("INV-1", UUID)]),
        (http(202, RAW.replace(b"INV-1", b'{\\"\\u00e9}'), length=9999), [('{"\u00e9}', UUID)]),
        (http(202, RAW, "text/html"), [("INV-1", UUID)]),
        (http(200, RAW), [("INV-1", UUID)]),
        (http(202, receipt(submissionUid=7)), [("INV-1", UUID)]),
        (http(202, RAW + b" " * 1024 * 1024), [("INV-1", UUID)]),
        (respond_in_chunks(RAW), [("INV-1", UUID)]),
        (damaged_gzip(), [("INV-1", UUID)]),
        (http(500, RAW), []),
    ],
)
async def test_a_damaged_receipt_is_unclear_with_the_uuids_it_shows(
    raw: bytes, expected: list[Any]
) -> None:
    async with portal_to(raw) as (portal, _):
        with pytest.raises(Unclear) as unclear:
            await send_submission(portal)
    assert unclear.value.evidence == expected


# Errors in both dialects


OTHER_TIN = "The authenticated TIN and documents TIN is not matching "


def deep(code: str) -> dict[str, Any]:
    return {
        "errorCode": "Error04",
        "error": "Step04",
        "innerError": [{"errorCode": code, "error": "No such state."}],
    }


@pytest.mark.parametrize(
    "body, code, errors",
    [
        (refusal("BadStructure"), "BadStructure", [("BadStructure", "", "It is BadStructure.")]),
        (
            refusal("BadRequest", details=[{"code": "OperationPeriodOver", "message": "Over."}]),
            "OperationPeriodOver",
            [("OperationPeriodOver", "", "Over.")],
        ),
        (
            {"error": {"errorCode": "IncorrectState", "error": "No."}},
            "IncorrectState",
            [("IncorrectState", "", "No.")],
        ),
        ({"error": deep("ActiveReferencingDocuments")}, "ActiveReferencingDocuments", None),
        (
            {"ERROR": {"CODE": "incorrectstate", "Message": "No."}},
            "IncorrectState",
            [("incorrectstate", "", "No.")],
        ),
        (deep("CV302"), "Error04", [("CV302", "", "No such state.")]),
        ({"error": {"code": 7, "message": None}}, "7", [("7", "", "")]),
        (refusal("ValidationError", message=OTHER_TIN), "IncorrectSubmitter", None),
        (PROBLEM, None, [(None, "", "Not Found")]),
        ({"error": PROBLEM}, None, [(None, "", "Not Found")]),
        (
            {**PROBLEM, "errors": {"idType": ["Wrong.", "Bad."]}},
            None,
            [(None, "idType", "Wrong."), (None, "idType", "Bad.")],
        ),
        ({"error": {"message": "text only"}}, None, [(None, "", "text only")]),
    ],
)
async def test_a_refusal_is_parsed_in_both_dialects(
    body: Any, code: str | None, errors: Any
) -> None:
    async with portal_to(http(400, body, correlationId="0HNXQ1C5T7K2A:00000003")) as (portal, _):
        with pytest.raises(Refused) as refused:
            await send_submission(portal)
    assert (refused.value.status, refused.value.code, refused.value.body) == (400, code, body)
    assert refused.value.correlation_id == "0HNXQ1C5T7K2A:00000003"
    if errors is not None:
        assert [tuple(error.values()) for error in refused.value.errors] == errors


async def test_texts_of_the_portal_are_cleaned_and_truncated() -> None:
    details = [{"code": "A\0B", "message": "\ud800" + "x" * 3000}] * 300
    answer = http(400, refusal("Z", details=details), correlationId="a b")
    async with portal_to(answer) as (portal, _):
        with pytest.raises(Refused) as refused:
            await send_submission(portal)
    assert refused.value.errors == [{"code": "AB", "path": "", "message": "x" * 2000}] * 200
    body: Any = refused.value.body
    assert len(body["error"]["details"]) == 200
    assert refused.value.correlation_id is None


# Documents


def document(**changes: Any) -> dict[str, Any]:
    return {
        "uuid": UUID,
        "submissionUid": UID,
        "longId": "",
        "internalId": "INV-1",
        "typeName": "Invoice",
        "typeVersionName": "1.0",
        "issuerTin": TIN,
        "dateTimeIssued": "2026-09-14T03:25:10Z",
        "dateTimeReceived": "2026-09-14T03:26:02.1819279Z",
        "dateTimeValidated": None,
        "status": "Submitted",
        "cancelDateTime": None,
        "rejectRequestDateTime": None,
        "documentStatusReason": None,
        **changes,
    }


def convert_to_upper_case(value: Any) -> Any:
    """Return the same JSON with member names in upper case."""
    if isinstance(value, dict):
        return {name.upper(): convert_to_upper_case(member) for name, member in value.items()}
    return [convert_to_upper_case(item) for item in value] if isinstance(value, list) else value


async def read(operation: str, answer: dict[str, Any], *arguments: Any) -> Any:
    async with portal_to(http(200, answer)) as (portal, _):
        return await getattr(portal, operation)(TIN, *arguments)


async def search(*rows: Any) -> Any:
    """Return the result of a search whose one page has the rows."""
    return await read("search", listing(list(rows)), NOW, NOW + timedelta(1))


async def test_member_names_of_a_document_are_case_insensitive() -> None:
    whole = document(longId="LONG1", status="valid", dateTimeValidated="2026-09-14T11:26:07+08:00")
    expected = Document(
        uuid=UUID,
        submission_uid=UID,
        long_id="LONG1",
        number="INV-1",
        type_code="01",
        issuer_tin=TIN,
        status="Valid",
        issued_at=datetime(2026, 9, 14, 3, 25, 10, tzinfo=UTC),
        received_at=datetime(2026, 9, 14, 3, 26, 2, 181927, tzinfo=UTC),
        validated_at=datetime(2026, 9, 14, 3, 26, 7, tzinfo=UTC),
        cancelled_at=None,
        rejection_requested_at=None,
        reason=None,
    )
    assert await read("details", whole, UUID) == expected
    assert await read("details", convert_to_upper_case(whole), UUID) == expected


async def test_member_names_of_other_responses_are_case_insensitive() -> None:
    async with portal_to(http(202, convert_to_upper_case(RECEIPT))) as (portal, _):
        assert (await send_submission(portal)).accepted == {"INV-1": UUID}
    assert len(await read("submission", convert_to_upper_case(state([document()])), UID)) == 1
    assert len(await read("search", convert_to_upper_case(listing([document()])), NOW, NOW)) == 1
    found = await read("details", {"submissionUID": None, **document()}, UUID)
    assert found.submission_uid == UID
    assert await read("cancel", {"UUID": UUID, "STATUS": "cancelled"}, UUID, "Wrong") is None


async def test_identifiers_in_lower_case_are_read_in_upper_case() -> None:
    """The long id has lower and upper case."""
    lower = document(uuid=UUID.lower(), submissionUid=UID.lower(), longId="Long1")
    (listed,) = await search(lower)
    (polled,) = await read("submission", state([lower], submissionUid=UID.lower()), UID)
    assert listed == polled
    assert (listed.uuid, listed.submission_uid, listed.long_id) == (UUID, UID, "Long1")
    accepted = [{"uuid": UUID.lower(), "invoiceCodeNumber": "INV-1"}]
    receipt = {**RECEIPT, "submissionUid": UID.lower(), "acceptedDocuments": accepted}
    async with portal_to(http(202, receipt)) as (portal, _):
        found = await send_submission(portal)
    assert (found.uid, found.accepted) == (UID, {"INV-1": UUID})


@pytest.mark.parametrize("zone", ["", "Z", "+08:00"])
async def test_the_default_date_of_dotnet_is_no_date(zone: str) -> None:
    names = ("dateTimeReceived", "dateTimeValidated", "cancelDateTime", "rejectRequestDateTime")
    (listed,) = await search(document(**dict.fromkeys(names, f"0001-01-01T00:00:00{zone}")))
    assert listed.odd is None
    times = (listed.received_at, listed.validated_at, listed.cancelled_at)
    assert (*times, listed.rejection_requested_at) == (None,) * 4


@pytest.mark.parametrize(
    "name, code",
    [
        ("invoice", "01"),
        ("Credit Note", "02"),
        ("Debit Note", "03"),
        ("refund note", "04"),
        ("Self-billed Invoice", "11"),
        ("Self-billed Credit Note", "12"),
        ("Self-Billed Debit Note", "13"),
        ("self billed refund note", "14"),
        ("Delivery Order", None),
        (None, None),
    ],
)
async def test_a_type_name_is_mapped_to_its_code(name: str | None, code: str | None) -> None:
    assert (await read("details", document(typeName=name), UUID)).type_code == code


@pytest.mark.parametrize(
    "changes",
    [
        {"uuid": None},
        {"internalId": None},
        {"internalId": 5},
        {"internalId": "INV\0-1"},
        {"dateTimeIssued": "yesterday"},
        {"dateTimeIssued": "0001-01-01T00:00:00+08:00"},
        {"typeName": 1},
        {"issuerTin": ["C1"]},
    ],
)
async def test_a_document_with_an_invalid_member_is_unclear(changes: dict[str, Any]) -> None:
    with pytest.raises(Unclear):
        await read("details", document(**changes), UUID)


async def test_a_raw_document_has_the_submitted_text_and_its_amounts() -> None:
    amounts = {
        "totalPayableAmount": 104.76,
        "totalExcludingTax": 97,
        "totalNetAmount": None,
        "receiverName": "Aminah",
    }
    found = await read("raw", document(document='{"Invoice":[{"\u00e9":1}]}', **amounts), UUID)
    assert found.content == '{"Invoice":[{"\u00e9":1}]}'
    assert (found.payable, found.excluding_tax, found.net) == (Decimal("104.76"), Decimal(97), None)
    assert found.receiver_name == "Aminah" and found.buyer_tin is None


@pytest.mark.parametrize(
    "changes", [{}, {"document": None}, {"document": ""}, {"document": {}}, {"uuid": "OTHER"}]
)
async def test_a_raw_document_without_its_text_is_unclear(changes: dict[str, Any]) -> None:
    with pytest.raises(Unclear):
        await read("raw", document(**changes), UUID)


async def test_errors_of_invalid_steps_are_flattened_to_the_innermost() -> None:
    path = "$.Invoice[*].ID[*]._"
    inner = {
        "propertyName": "ID",
        "propertyPath": path,
        "errorCode": "CV302",
        "error": "Wrong.",
        "errorMs": "Salah.",
    }
    steps = [
        {"status": "Valid", "name": "Step03"},
        {
            "status": "Invalid",
            "name": "Step04",
            "error": {**deep("CV300"), "innerError": [inner, deep("CV316")]},
        },
        {
            "status": "Invalid",
            "name": "Step05",
            "error": {"errorCode": "Error05", "error": "TIN.", "innerError": []},
        },
        {"status": "Invalid", "name": "Step06"},
        {"status": "Submitted", "name": "Step07", "error": deep("Never")},
    ]
    results = {"status": "Invalid", "validationSteps": steps}
    invalid = await read("details", document(status="Invalid", validationResults=results), UUID)
    assert [tuple(error.values()) for error in invalid.errors] == [
        ("CV302", path, "Wrong."),
        ("CV316", "", "No such state."),
        ("Error05", "", "TIN."),
    ]
    assert (await read("details", document(validationResults=None), UUID)).errors == []


# Listings


def numbered_document(number: int, **changes: Any) -> dict[str, Any]:
    moment = (NOW + timedelta(seconds=number)).isoformat().replace("+00:00", "Z")
    return document(
        **{
            "uuid": f"UUID{number:05}",
            "internalId": f"INV-{number}",
            "dateTimeReceived": moment,
            **changes,
        }
    )


def listing(rows: list[Any], pages: int = 1, count: int | None = None) -> dict[str, Any]:
    return {
        "result": rows,
        "metadata": {"totalPages": pages, "totalCount": len(rows) if count is None else count},
    }


def state(rows: list[Any], count: int | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "submissionUid": UID,
        "documentCount": len(rows) if count is None else count,
        "dateTimeReceived": "2026-09-14T03:26:02Z",
        "overallStatus": "in progress",
        "documentSummary": rows,
        **changes,
    }


def respond_by_page(*answers: dict[str, Any]) -> Callable[[Request], bytes]:
    """Return a response function with one answer per page."""
    return lambda request: http(200, answers[int(request.query["pageNo"]) - 1], close=False)


HUNDREDS = [[numbered_document(100 * page + row) for row in range(100)] for page in range(3)]


async def test_a_listing_returns_all_pages_newest_first() -> None:
    act = respond_by_page(*(listing(rows, 3, 300) for rows in HUNDREDS))
    async with portal_to(act) as (portal, server):
        rows = await portal.search(TIN, NOW, NOW + timedelta(milliseconds=1500))
    assert [row.number for row in rows] == [f"INV-{number}" for number in reversed(range(300))]
    assert [request.query["pageNo"] for request in server.calls] == ["1", "2", "3"]
    assert server.calls[0].target.startswith("/api/v1.0/documents/search?")
    assert server.calls[0].query == {
        "submissionDateFrom": "2026-09-14T03:26:00Z",
        "submissionDateTo": "2026-09-14T03:26:02Z",
        "pageNo": "1",
        "pageSize": "100",
    }


async def test_a_period_with_too_many_documents_is_listed_in_halves() -> None:
    """A document on the border is listed twice and returned once."""
    limited = []

    async def limiter(operation: str, tin: str, further: bool, *more: object) -> None:
        limited.append((operation, further))

    def act(request: Request) -> bytes:
        whole = request.query["submissionDateTo"] == "2026-09-14T03:36:00Z"
        if whole and request.query["submissionDateFrom"] == "2026-09-14T03:26:00Z":
            return http(200, listing(HUNDREDS[0], 100, 10_000), close=False)
        return http(
            200, listing([numbered_document(2 if whole else 1), numbered_document(3)]), close=False
        )

    async with portal_to(act, options={"rate_limiter": limiter}) as (portal, _):
        rows = await portal.search(TIN, NOW, NOW + timedelta(minutes=10))
    assert [row.number for row in rows] == ["INV-3", "INV-2", "INV-1"]
    assert limited[1:] == [("search", False), ("search", True), ("search", True)]


async def test_a_client_through_another_rate_limiter_shares_tokens() -> None:
    passed = []

    async def limiter(operation: str, tin: str, *more: object) -> None:
        passed.append(operation)

    async with portal_to(http(202, RECEIPT)) as (portal, server):
        await portal.ready(TIN)
        view = portal.through(limiter)
        await view.ready(TIN)
        await send_submission(view)
    assert passed == ["submit"] and len(server.calls) == 1


async def test_an_empty_listing_is_complete() -> None:
    assert await read("search", listing([], pages=0), NOW, NOW + timedelta(1)) == []


INCOMPLETE = {
    "a row is missing": [listing(HUNDREDS[0][:99], count=100)],
    "a row too many": [listing(HUNDREDS[0], count=99)],
    "a row comes twice": [listing(HUNDREDS[0], 2, 200), listing(HUNDREDS[0], 2, 200)],
    "the count changed": [listing(HUNDREDS[0], 2, 200), listing(HUNDREDS[1], 2, 201)],
    "a page fewer": [listing(HUNDREDS[0], 1, 200)],
    "too many rows": [listing(HUNDREDS[0], 100, 10_000)],
    "no metadata": [{"result": HUNDREDS[0]}],
    "no result": [{"metadata": {"totalPages": 1, "totalCount": 0}}],
    "a count that is text": [{"result": [], "metadata": {"totalPages": 1, "totalCount": "0"}}],
    "rows were lost": [listing(HUNDREDS[0], 2, 200), listing(HUNDREDS[1][:99], 2, 199)],
    "more rows than announced pages": [listing(HUNDREDS[0], 2, 150), listing(HUNDREDS[1], 2, 250)],
    "it grew, not a full page": [listing(HUNDREDS[0][:50], 2, 150), listing(HUNDREDS[1], 2, 151)],
    "it grew, rows missing": [listing(HUNDREDS[0], 2, 150), listing(HUNDREDS[0][60:], 2, 160)],
}


@pytest.mark.parametrize("given", INCOMPLETE.values(), ids=INCOMPLETE)
async def test_a_listing_that_may_be_incomplete_is_unclear(given: list[dict[str, Any]]) -> None:
    async with portal_to(respond_by_page(*given)) as (portal, _):
        with pytest.raises(Unclear):
            await portal.search(TIN, NOW, NOW + timedelta(1))


async def test_a_page_with_many_more_rows_than_requested_is_unclear() -> None:
    given = listing([{}] * (MOST_PAGE_ROWS + 1), 1, MOST_PAGE_ROWS + 1)
    async with portal_to(respond_by_page(given)) as (portal, _):
        with pytest.raises(Unclear, match="more than 1000 rows"):
            await portal.search(TIN, NOW, NOW + timedelta(1))


GROWN = [row for rows in HUNDREDS for row in rows]


@pytest.mark.parametrize(
    "later_pages, numbers",
    [
        # Newest first. 20 documents arrive before the second page, which repeats the last 20.
        ([listing(GROWN[80:170], 2, 170)], range(170)),
        # Newest first. A whole page arrives; the second page announces a third one.
        ([listing(GROWN[:100], 3, 260), listing(GROWN[90:150], 3, 260)], range(150)),
        # Oldest first: new documents are at the end.
        ([listing(GROWN[100:200], 3, 230), listing(GROWN[200:230], 3, 230)], range(230)),
    ],
)
async def test_a_listing_that_grew_while_read_is_complete(
    later_pages: list[dict[str, Any]], numbers: range
) -> None:
    first = listing(GROWN[:100], 2, 150)
    async with portal_to(respond_by_page(first, *later_pages)) as (portal, _):
        rows = await portal.search(TIN, NOW, NOW + timedelta(1))
    assert {row.number for row in rows} == {f"INV-{number}" for number in numbers}


@pytest.mark.parametrize("status", ["Archived", "", None, 7])
async def test_an_unknown_status_does_not_affect_other_rows(status: str | int | None) -> None:
    rows = [numbered_document(1), numbered_document(2, status=status), numbered_document(3)]
    found = await search(*rows)
    assert [(row.number, row.status) for row in found] == [
        ("INV-3", "Submitted"),
        ("INV-2", "Unknown"),
        ("INV-1", "Submitted"),
    ]
    assert found.odd == [] and [bool(row.odd) for row in found] == [False, True, False]
    assert found[1].odd.number == "INV-2" and "status" in found[1].odd.problems[0].lower()
    submission = await read("submission", state(rows), UID)
    assert [row.status for row in submission] == ["Submitted", "Unknown", "Submitted"]
    assert (await read("details", document(status=status), UUID)).status == "Unknown"


@pytest.mark.parametrize(
    "changes",
    [
        {"internalId": None},
        {"internalId": 5},
        {"uuid": "a/../b"},
        {"dateTimeIssued": "yesterday"},
        {"dateTimeIssued": 7},
        {"issuerTin": {}},
        {"typeName": False},
    ],
)
async def test_an_unreadable_row_is_skipped_and_reported(changes: dict[str, Any]) -> None:
    rows = [numbered_document(1), numbered_document(2, **changes)]
    found = await search(*rows)
    (odd,) = found.odd
    assert [row.number for row in found] == ["INV-1"]
    assert odd.number in ("INV-2", None)
    assert odd.uuid in ("UUID00002", None)
    assert next(iter(changes)) in odd.problems[0]
    submission = await read("submission", state(rows), UID)
    assert [row.key for row in submission.odd] == [odd.key] and len(submission) == 1


@pytest.mark.parametrize(
    "member, value, attribute",
    [
        ("longId", "a/../b", "long_id"),
        ("dateTimeValidated", "soon", "validated_at"),
        ("cancelDateTime", 5, "cancelled_at"),
        ("documentStatusReason", [], "reason"),
        ("typeName", "Order", "type_code"),
    ],
)
async def test_an_invalid_optional_member_of_a_row_is_omitted(
    member: str, value: object, attribute: str
) -> None:
    (row,) = await search(numbered_document(1, **{member: value}))
    assert row.number == "INV-1" and row.odd.uuid == row.uuid
    assert getattr(row, attribute) is None


async def test_unknown_members_of_a_row_are_ignored() -> None:
    (row,) = found = await search(numbered_document(1, colour="red", parts=[{}]))
    assert row.odd is None and found.odd == []


@pytest.mark.parametrize("row", [None, 5, "INV-1", []])
async def test_a_row_that_is_not_an_object_is_skipped(row: Any) -> None:
    found = await search(numbered_document(1), row)
    assert len(found) == 1 and found.odd[0].number is None


@pytest.mark.parametrize(
    "results", [[], "none", {"validationSteps": "none"}, {"validationSteps": [5]}]
)
async def test_unreadable_validation_results_are_reported_as_such(results: Any) -> None:
    found = await read("details", document(status="Invalid", validationResults=results), UUID)
    assert found.status == "Invalid" and found.errors == [responses.UNREADABLE_REASONS]


async def test_a_failure_on_a_later_page_fails_the_listing() -> None:
    def second_fails(request: Request) -> bytes:
        page = request.query["pageNo"]
        return http(200, listing(HUNDREDS[0], 2, 200), close=False) if page == "1" else http(429)

    async with portal_to(second_fails) as (portal, _):
        with pytest.raises(Throttled):
            await portal.search(TIN, NOW, NOW + timedelta(1))


async def test_an_endless_listing_stops_at_the_page_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "MOST_PAGES", 2)
    async with portal_to(http(200, listing(HUNDREDS[0], 99, 9900))) as (portal, server):
        with pytest.raises(Unclear):
            await portal.search(TIN, NOW, NOW + timedelta(1))
    assert len(server.calls) == 2


async def test_a_search_without_a_time_zone_is_refused() -> None:
    async with portal_to(b"") as (portal, _):
        with pytest.raises(ValueError):
            await portal.search(TIN, NOW.replace(tzinfo=None), NOW)


async def test_a_submission_returns_the_documents_of_all_pages() -> None:
    pages = state(HUNDREDS[0], 120), state(HUNDREDS[1][:20], 120)
    async with portal_to(respond_by_page(*pages)) as (portal, server):
        found = await portal.submission(TIN, UID)
    assert len(found) == 120
    assert len(server.calls) == 2


@pytest.mark.parametrize(
    "pages",
    [
        [state(HUNDREDS[0], 120), state([], 120)],
        [state(HUNDREDS[0], 120), state(HUNDREDS[0][:20], 120)],
        [state([document()], submissionUid="A" * 26)],
        [state([document()], documentSummary=None, documentCount=None)],
    ],
)
async def test_an_incomplete_submission_is_unclear(pages: list[dict[str, Any]]) -> None:
    async with portal_to(respond_by_page(*pages)) as (portal, _):
        with pytest.raises(Unclear):
            await portal.submission(TIN, UID)


# Cancel, TIN, addresses, log


async def test_a_cancel_is_a_put_request_with_its_reason() -> None:
    async with portal_to(http(200, {**CANCELLED, "error": None})) as (portal, server):
        assert await portal.cancel(TIN, UUID, "Wrong buyer – sorry") is None
    assert server.calls[0].method == "PUT"
    assert server.calls[0].target == f"/api/v1.0/documents/state/{UUID}/state"
    sent = {"status": "cancelled", "reason": "Wrong buyer – sorry"}
    assert json.loads(server.calls[0].body) == sent


async def test_a_tin_is_valid_if_the_status_is_200() -> None:
    async with portal_to(http(200, b"", None)) as (portal, server):
        assert await portal.validate_tin("C 1/2?3", "BRN", "2018&01", taxpayer=TIN) is None
    assert server.calls[0].target.startswith("/api/v1.0/taxpayer/validate/C%201%2F2%3F3?")
    assert server.calls[0].query == {"idType": "BRN", "idValue": "2018&01"}


async def test_a_web_page_as_response_to_a_tin_check_is_unclear() -> None:
    async with portal_to(http(200, PAGE, "text/html; charset=utf-8")) as (portal, _):
        with pytest.raises(Unclear):
            await portal.validate_tin("C10", "BRN", "1", taxpayer=TIN)


@pytest.mark.parametrize("uuid", ["", ".", ".."])
async def test_an_identifier_cannot_change_the_request_path(uuid: str) -> None:
    async with portal_to(b"") as (portal, server):
        with pytest.raises(ValueError):
            await portal.details(TIN, uuid)
    assert not server.requests


async def test_cookies_of_the_portal_are_not_stored() -> None:
    async with portal_to(http(202, RECEIPT, Set_Cookie="a=b")) as (portal, server):
        await send_submission(portal)
        await send_submission(portal)
    assert not any("cookie" in request.headers for request in server.calls)


async def test_each_request_is_logged_in_one_line_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with portal_to(http(202, RECEIPT, correlationId="0HN:3")) as (portal, _):
        await send_submission(portal, b'{"body": 1}')
    async with portal_to(hang_up) as (portal, _):
        with pytest.raises(Unclear):
            await send_submission(portal)
    lines = [record.getMessage() for record in caplog.records if record.name == transport.__name__]
    assert re.fullmatch(r"portal operation=submit status=202 ms=\d+ correlation_id=0HN:3", lines[1])
    assert re.fullmatch(
        r"portal operation=submit status=- ms=\d+ correlation_id=- fault=\w+", lines[3]
    )
    assert len(lines) == 4 and not re.search("secret|token|body", " ".join(lines))


def test_sightings_in_hostile_bytes_take_linear_time() -> None:
    began = time.process_time()
    for hostile in (b'{\\"', b'"uuid"', b'"uuid":"', b"{"):
        hostile *= 1024 * 1024 // len(hostile)
        assert responses.sightings_in(hostile) == []
    assert time.process_time() - began < 10  # seconds. Quadratic time would take hours.


# The sandbox


def fresh_submission(number: str) -> bytes:
    document = json.loads((DOCUMENTS / "portal_example.json").read_text())
    document["Invoice"][0]["ID"][0]["_"] = number
    issued = datetime.now(UTC) - timedelta(minutes=5)
    document["Invoice"][0]["IssueDate"][0]["_"] = issued.strftime("%Y-%m-%d")
    document["Invoice"][0]["IssueTime"][0]["_"] = issued.strftime("%H:%M:00Z")
    raw = json.dumps(document).encode()
    entry = {
        "format": "JSON",
        "document": base64.b64encode(raw).decode(),
        "documentHash": sha256(raw).hexdigest(),
    }
    return json.dumps({"documents": [{**entry, "codeNumber": number}]}).encode()

"""Injected errors: misbehaviour of the portal, or of the network in front of it.

A request that meets an error is already authenticated and counted. Its kind says whether it is
processed first; otherwise it leaves no trace. Each kind reads some members of its order.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, NoReturn

from aiohttp import web

from .answers import answer, detail, encode, mismatch, refusal
from .controls import DATE_SHIFT, Call, FaultOrder
from .document import read_json
from .records import new_uuid
from .submissions import duplicate_payload, refuse_same_payload, reject
from .validators import Finding

GATEWAY_PAGE = b"<!doctype html><html><body><h1>Scheduled maintenance</h1></body></html>"
NO_DOCUMENTS = {"submissionUid": None, "acceptedDocuments": [], "rejectedDocuments": []}
OVERSIZE = 1024 * 1024  # bytes
ERROR_CODES = {500: "InternalServerError", 501: "NotImplemented"}

Process = Callable[[], Awaitable[web.Response]]


class Dropped(Exception):
    """Closes the connection without a response."""


class Injection(NamedTuple):
    """An ordered error that a request meets, with the response if the request was processed."""

    call: Call
    order: FaultOrder
    response: web.Response

    @property
    def body(self) -> bytes:
        assert isinstance(self.response.body, bytes)
        return self.response.body

    async def start_stream(self) -> web.StreamResponse:
        """Send the head of the response, which announces all of its body."""
        stream = web.StreamResponse(status=self.response.status, headers=self.response.headers)
        stream.content_length = len(self.body)
        await stream.prepare(self.call.request)
        return stream


Handler = Callable[[Injection], Awaitable[web.StreamResponse]]


def refuse_with(status: int, code: str, message: str) -> Handler:
    """Return a handler that refuses. An order may have another `status`, and `retry_after`."""

    async def handle(injection: Injection) -> NoReturn:
        order = injection.order
        asked = order.status or status
        headers = {"Retry-After": str(order.retry_after)} if order.retry_after else None
        raise refusal(asked, ERROR_CODES.get(asked, code), message, headers=headers)

    return handle


def respond_with(status: int, body: bytes, headers: Mapping[str, str]) -> Handler:
    """Return a handler that sends a fixed body. An order may have another `status`."""

    async def handle(injection: Injection) -> web.Response:
        return web.Response(status=injection.order.status or status, body=body, headers=headers)

    return handle


async def pass_on(injection: Injection) -> web.Response:
    return injection.response


async def drop(injection: Injection) -> NoReturn:
    raise Dropped


async def delay(injection: Injection) -> web.Response:
    await asyncio.sleep(injection.order.seconds)
    return injection.response


async def drip(injection: Injection) -> web.StreamResponse:
    stream, body = await injection.start_stream(), injection.body
    for byte in body:
        await stream.write(bytes((byte,)))
        await asyncio.sleep(injection.order.seconds / len(body))
    return stream


async def truncate(injection: Injection) -> web.StreamResponse:
    stream, body = await injection.start_stream(), injection.body
    await stream.write(body[: len(body) // 2])
    if transport := injection.call.request.transport:
        transport.close()
    return stream


async def change_uuid(injection: Injection) -> web.Response:
    """Return a different uuid for the first accepted document of a submission."""
    body = json.loads(injection.body)
    if body.get("acceptedDocuments"):
        body["acceptedDocuments"][0]["uuid"] = injection.order.uuid or new_uuid()
    return answer(body, status=injection.response.status)


async def enlarge(injection: Injection) -> web.Response:
    """Return valid JSON that exceeds a reasonable limit for a response body."""
    injection.response.body = injection.body + b" " * OVERSIZE
    return injection.response


async def shift_date(injection: Injection) -> web.Response:
    injection.call.request[DATE_SHIFT] = injection.order.seconds
    return injection.response


async def reject_all(injection: Injection) -> web.Response:
    """Reject each document, as the immediate checks do, with the ordered `code` and `message`."""
    refuse_same_payload(injection.call)
    numbers = sorted(code_numbers("submit", injection.call.body))
    order = injection.order
    finding = Finding(order.code, order.message, "document")
    rejected = [reject(number, [finding]) for number in numbers]
    return answer({**NO_DOCUMENTS, "rejectedDocuments": rejected}, status=202)


async def refuse(injection: Injection) -> NoReturn:
    """Refuse the whole request, as the portal does for one broken document or a wrong sender."""
    call, order = injection.call, injection.order
    if call.request.method == "POST" and call.caller:
        refuse_same_payload(call)
    code = order.code or "BadStructure"
    entry = detail(code, order.message, "documents")
    raise refusal(order.status or 400, code, "The submission is refused.", details=[entry])


async def refuse_payload(injection: Injection) -> NoReturn:
    raise duplicate_payload(injection.order.retry_after or 600)


async def refuse_issuer(injection: Injection) -> NoReturn:
    raise mismatch(injection.call.sandbox.controls.mismatch_status)


fail = refuse_with(503, "ServiceUnavailable", "The service failed.")
JSON = {"Content-Type": "application/json"}
#: Kind of error -> (whether the request is processed unless the order says `processed`, handler).
#: The kind `none` uses up an order without an error.
KINDS: dict[str, tuple[bool, Handler]] = {
    "none": (True, pass_on),
    "drop": (False, drop),
    "accept_then_drop": (True, drop),
    "error_before": (False, fail),
    "error_after": (True, fail),
    "throttle": (False, refuse_with(429, "TooManyRequests", "Request limit exceeded.")),
    "unauthorized": (False, refuse_with(401, "Unauthorized", "The access token is not known.")),
    "forget": (False, refuse_with(404, "NotFound", "The requested resource was not found.")),
    "duplicate": (False, refuse_payload),
    "foreign": (False, refuse_issuer),
    "refuse": (False, refuse),
    "reject": (False, reject_all),
    "slow": (True, delay),
    "slow_before": (True, pass_on),
    "drip": (True, drip),
    "truncate": (True, truncate),
    "other_uuid": (True, change_uuid),
    "oversized": (True, enlarge),
    "wrong_date": (True, shift_date),
    "html": (False, respond_with(200, GATEWAY_PAGE, {"Content-Type": "text/html"})),
    "redirect": (False, respond_with(302, b"", {"Location": "/maintenance"})),
    "garbage": (True, respond_with(202, b'{"submissionUid": "', JSON)),
    "neither": (True, respond_with(202, encode(NO_DOCUMENTS), JSON)),
}


async def perform(call: Call, operation: str, process: Process) -> web.StreamResponse:
    """Process the request with the oldest error that is ordered for it, or without one."""
    order = claim(call, operation)
    if order is None:
        return await process()
    if order.kind == "slow_before":
        # Processed even if the client disconnects.
        return await asyncio.shield(asyncio.create_task(process_late(process, order.seconds)))
    is_processed, handle = KINDS[order.kind]
    if order.processed is not None:
        is_processed = order.processed
    response = await process() if is_processed else web.Response()
    return await handle(Injection(call, order, response))


async def process_late(process: Process, seconds: float) -> web.Response:
    await asyncio.sleep(seconds)
    return await process()


def claim(call: Call, operation: str) -> FaultOrder | None:
    """Return the oldest error for the request and use it up once, before it takes effect."""
    state = call.sandbox.state
    for fault_id, order in state.faults.items():
        is_meant = order.number is None or order.number in code_numbers(operation, call.body)
        if order.operation in (operation, "*") and is_meant:
            order.times -= 1
            if not order.times:
                del state.faults[fault_id]
            label = order.label or order.kind
            state.met_faults[label] = state.met_faults.get(label, 0) + 1
            call.sandbox.save()
            return order
    return None


def code_numbers(operation: str, body: bytes) -> set[str]:
    """Return the document numbers in a submission, valid or not; none for other operations."""
    try:
        documents = read_json(body)["documents"] if operation == "submit" else []
        return {each["codeNumber"] for each in documents}
    except (ValueError, TypeError, KeyError):
        return set()

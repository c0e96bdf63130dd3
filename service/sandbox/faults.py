"""Injected errors: misbehaviour of the portal, or of the network in front of it.

`process` runs the ordinary handling of a request that is already authenticated and counted. An
error that does not call it leaves no trace of the request. Each kind reads the members of its
order.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

from aiohttp import web

from .answers import Refusal, answer, detail, mismatch, not_found, refusal, unauthorized
from .controls import CALLER, DATE_SHIFT, SANDBOX
from .database import Row, sql, transaction
from .document import read_json
from .identifiers import new_uuid
from .submissions import duplicate_payload, refuse_same_payload, reject
from .validators import Finding

GATEWAY_PAGE = "<!doctype html><html><body><h1>Scheduled maintenance</h1></body></html>"
BROKEN = "A rule is broken."
NO_DOCUMENTS = {"submissionUid": None, "acceptedDocuments": [], "rejectedDocuments": []}
OVERSIZE = 1024 * 1024  # bytes
ERROR_CODES = {500: "InternalServerError", 501: "NotImplemented", 503: "ServiceUnavailable"}

Process = Callable[[], Awaitable[web.Response]]
Order = Mapping[str, Any]
Handler = Callable[[web.Request, Process, Order], Awaitable[web.StreamResponse]]


class Dropped(Exception):
    """Closes the connection without a response."""


async def slow(request: web.Request, process: Process, order: Order) -> web.Response:
    """Delay the response."""
    response = await process()
    await asyncio.sleep(order.get("seconds", 1))
    return response


async def slow_before(request: web.Request, process: Process, order: Order) -> web.Response:
    """Delay the processing, which takes place even if the client disconnects."""

    async def process_later() -> web.Response:
        await asyncio.sleep(order.get("seconds", 1))
        return await process()

    return await asyncio.shield(asyncio.create_task(process_later()))


async def drip(request: web.Request, process: Process, order: Order) -> web.StreamResponse:
    """Send the response body byte by byte."""
    body, stream = await prepare_stream(request, process)
    for byte in body:
        await stream.write(bytes((byte,)))
        await asyncio.sleep(order.get("seconds", 1) / len(body))
    return stream


async def truncate(request: web.Request, process: Process, order: Order) -> web.StreamResponse:
    """Send half of the response body and close the connection."""
    body, stream = await prepare_stream(request, process)
    await stream.write(body[: len(body) // 2])
    if request.transport:
        request.transport.close()
    return stream


async def prepare_stream(
    request: web.Request, process: Process
) -> tuple[bytes, web.StreamResponse]:
    """Process the request; return the body and a stream whose head announces all of it."""
    response = await process()
    body = body_of(response)
    stream = web.StreamResponse(status=response.status, headers=response.headers)
    stream.content_length = len(body)
    await stream.prepare(request)
    return body, stream


def body_of(response: web.Response) -> bytes:
    """Return the body of a response of the sandbox, which is always in memory."""
    assert isinstance(response.body, bytes)
    return response.body


async def other_uuid(request: web.Request, process: Process, order: Order) -> web.Response:
    """Process a submission, but return a different uuid for its first accepted document."""
    response = await process()
    body = json.loads(body_of(response))
    if body.get("acceptedDocuments"):
        body["acceptedDocuments"][0]["uuid"] = order.get("uuid", new_uuid())
    return answer(body, status=response.status)


async def oversized(request: web.Request, process: Process, order: Order) -> web.Response:
    """Return valid JSON that exceeds a reasonable limit for a response body."""
    response = await process()
    return web.Response(
        body=body_of(response) + b" " * OVERSIZE,
        status=response.status,
        content_type="application/json",
    )


async def reject_documents(request: web.Request, process: Process, order: Order) -> web.Response:
    """Reject each document, as the immediate checks do, with the ordered `code` and `message`."""
    await refuse_same_payload(request)
    numbers = sorted(code_numbers("submit", await request.read()))
    finding = Finding(order.get("code"), order.get("message", BROKEN), "document")
    rejected = [reject(number, [finding]) for number in numbers]
    return answer({**NO_DOCUMENTS, "rejectedDocuments": rejected}, status=202)


async def wrong_date(request: web.Request, process: Process, order: Order) -> web.Response:
    """Shift the `Date` header of the response by the ordered number of seconds."""
    request[DATE_SHIFT] = order.get("seconds", 90)
    return await process()


async def refuse(request: web.Request, process: Process, order: Order) -> NoReturn:
    """Refuse the whole request, as the portal does for one broken document or a wrong sender."""
    if request.method == "POST" and CALLER in request:
        await refuse_same_payload(request)
    code = order.get("code", "BadStructure")
    entry = detail(code, order.get("message", BROKEN), "documents")
    raise refusal(order.get("status", 400), code, "The submission is refused.", details=[entry])


def failure(order: Order) -> Refusal:
    """Return the error with the ordered `status`, 503 by default."""
    status = order.get("status", 503)
    code = ERROR_CODES.get(status, "ServiceUnavailable")
    return refusal(status, code, "The service failed.", headers=retry_after(order))


def retry_after(order: Order) -> dict[str, str] | None:
    """Return the header Retry-After if the order has one."""
    return {"Retry-After": str(order["retry_after"])} if "retry_after" in order else None


def show_gateway(request: web.Request, order: Order) -> web.Response:
    """Return the HTML page of a gateway."""
    status = order.get("status", 200)
    return web.Response(text=GATEWAY_PAGE, status=status, content_type="text/html")


def redirect(request: web.Request, order: Order) -> web.Response:
    """Return a redirect to a maintenance page."""
    return web.Response(status=order.get("status", 302), headers={"Location": "/maintenance"})


def truncated_json(request: web.Request, order: Order) -> web.Response:
    """Return a body that is not JSON."""
    status, body = order.get("status", 202), b'{"submissionUid": "'
    return web.Response(body=body, status=status, content_type="application/json")


#: Kind of error -> (whether the request is processed unless the order says `processed`, what
#: happens instead of the response).
REPLACED: dict[str, tuple[bool, Callable[[web.Request, Order], web.Response | Exception]]] = {
    "drop": (False, lambda request, order: Dropped()),
    "accept_then_drop": (True, lambda request, order: Dropped()),
    "error_before": (False, lambda request, order: failure(order)),
    "error_after": (True, lambda request, order: failure(order)),
    "duplicate": (
        False,
        lambda request, order: duplicate_payload(order.get("retry_after", 600)),
    ),
    "throttle": (
        False,
        lambda request, order: refusal(
            429, "TooManyRequests", "Request limit exceeded.", headers=retry_after(order)
        ),
    ),
    "unauthorized": (False, lambda request, order: unauthorized()),
    "forget": (False, lambda request, order: not_found("resource", None)),
    "foreign": (
        False,
        lambda request, order: mismatch(request.app[SANDBOX].controls.mismatch_status),
    ),
    "html": (False, show_gateway),
    "redirect": (False, redirect),
    "garbage": (True, truncated_json),
    "neither": (True, lambda request, order: answer(NO_DOCUMENTS, 202)),
}
#: Kind of error -> handler that processes the request itself.
HANDLERS: dict[str, Handler] = {
    "slow": slow,
    "slow_before": slow_before,
    "drip": drip,
    "truncate": truncate,
    "other_uuid": other_uuid,
    "oversized": oversized,
    "reject": reject_documents,
    "refuse": refuse,
    "wrong_date": wrong_date,
}
#: The kind `none` uses up an order without an error.
KINDS = {"none", *REPLACED, *HANDLERS}


async def perform(request: web.Request, operation: str, process: Process) -> web.StreamResponse:
    """Process the request with the oldest error that is ordered for it, or without one."""
    fault = await claim(request, operation)
    if fault is None or fault["kind"] == "none":
        return await process()
    order = json.loads(fault["members"])
    if fault["kind"] in HANDLERS:
        return await HANDLERS[fault["kind"]](request, process, order)
    is_processed, replace = REPLACED[fault["kind"]]
    if order.get("processed", is_processed):
        await process()
    replacement = replace(request, order)
    if isinstance(replacement, Exception):
        raise replacement
    return replacement


async def claim(request: web.Request, operation: str) -> Row | None:
    """Return the oldest error for the request and use it up once, before it takes effect."""
    db = request.app[SANDBOX].db
    numbers: set[str] | None = None
    for fault in sql.fault_waiting(db, operation=operation):
        if fault["number"] is not None and numbers is None:
            numbers = code_numbers(operation, await request.read())
        if fault["number"] is None or fault["number"] in (numbers or ()):
            with transaction(db):
                sql.fault_use(db, id=fault["id"])
                # Counted under the label of its order, or its kind.
                label = json.loads(fault["members"]).get("label", fault["kind"])
                sql.fault_count(db, label=str(label))
                sql.fault_forget_used(db)
            return fault
    return None


def code_numbers(operation: str, body: bytes) -> set[str]:
    """Return the document numbers in a submission, valid or not; none for other operations."""
    try:
        documents = read_json(body)["documents"] if operation == "submit" else []
        return {each["codeNumber"] for each in documents}
    except (ValueError, TypeError, KeyError):
        return set()

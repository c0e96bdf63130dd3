"""Faults on order: what the portal, or the network before it, does to a call.

`process` is the ordinary handling of the call, already authenticated and counted; a fault that does not await it
leaves no trace of the call. Each kind takes the members that the order carried.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from .answers import Mismatch, Refusal, answer, detail, not_found
from .controls import CALLER, DATE_SHIFT, SANDBOX
from .database import sql, transaction
from .document import read_json
from .identifiers import new_uuid
from .login import unauthorized
from .submissions import Entry, duplicate_payload, refuse_same_payload, rejection
from .validators import Finding

GATEWAY_PAGE = "<!doctype html><html><body><h1>Scheduled maintenance</h1></body></html>"
OVERSIZE = 1024 * 1024  # bytes
Process = Callable[[], Awaitable[web.StreamResponse]]
ERROR_CODES = {500: "InternalServerError", 501: "NotImplemented", 503: "ServiceUnavailable"}


class Dropped(Exception):
    """The connection is to be closed without an answer."""


async def through(request, process, order):
    return await process()


async def drop(request, process, order):
    raise Dropped()


async def accept_then_drop(request, process, order):
    await process()
    raise Dropped()


async def error_before(request, process, order):
    raise failure(order)


async def error_after(request, process, order):
    await process()
    raise failure(order)


def failure(order):
    status = order.get("status", 503)
    headers = {"Retry-After": str(order["retry_after"])} if "retry_after" in order else None
    return Refusal(
        status,
        ERROR_CODES.get(status, "ServiceUnavailable"),
        "The service failed.",
        headers=headers,
    )


async def duplicate(request, process, order):
    await process_if(process, order, False)
    raise duplicate_payload(order.get("retry_after", 600))


async def throttle(request, process, order):
    headers = {"Retry-After": str(order["retry_after"])} if "retry_after" in order else None
    raise Refusal(429, "TooManyRequests", "Request limit exceeded.", headers=headers)


async def slow(request, process, order):
    response = await process()
    await asyncio.sleep(order.get("seconds", 1))
    return response


async def slow_before(request, process, order):
    """In a task of its own, so that the call is processed although the client has hung up."""

    async def later():
        await asyncio.sleep(order.get("seconds", 1))
        return await process()

    return await asyncio.shield(asyncio.create_task(later()))


async def drip(request, process, order):
    body, stream = await prepared(request, process)
    for byte in body:
        await stream.write(bytes((byte,)))
        await asyncio.sleep(order.get("seconds", 1) / len(body))
    return stream


async def truncate(request, process, order):
    body, stream = await prepared(request, process)
    await stream.write(body[: len(body) // 2])
    request.transport.close()
    return stream


async def prepared(request, process):
    """The processed answer's body, and the stream whose head promises all of it."""
    response = await process()
    stream = web.StreamResponse(status=response.status, headers=response.headers)
    stream.content_length = len(response.body)
    await stream.prepare(request)
    return response.body, stream


async def html(request, process, order):
    await process_if(process, order, False)
    return web.Response(
        text=GATEWAY_PAGE, status=order.get("status", 200), content_type="text/html"
    )


async def redirect(request, process, order):
    await process_if(process, order, False)
    location = f"{request.app[SANDBOX].settings.public_base}/maintenance"
    return web.Response(status=order.get("status", 302), headers={"Location": location})


async def garbage(request, process, order):
    await process_if(process, order, True)
    return web.Response(
        body=b'{"submissionUid": "',
        status=order.get("status", 202),
        content_type="application/json",
    )


async def neither(request, process, order):
    await process_if(process, order, True)
    return answer(
        {"submissionUid": None, "acceptedDocuments": [], "rejectedDocuments": []}, status=202
    )


async def other_uuid(request: web.Request, process: Process, order: dict[str, Any]) -> web.Response:
    """Process a submit, and name the uuid of another document for the first one that was accepted."""
    response = await process()
    body = json.loads(response.body)
    if body.get("acceptedDocuments"):
        body["acceptedDocuments"][0]["uuid"] = order.get("uuid", new_uuid())
    return answer(body, status=response.status)


async def oversized(request, process, order):
    """More than anybody should read of one answer; JSON all the same."""
    response = await process()
    return web.Response(
        body=response.body + b" " * OVERSIZE,
        status=response.status,
        content_type="application/json",
    )


async def reject(request, process, order):
    """Each document by itself, as the immediate checks would."""
    await refuse_same_payload(request)
    numbers = sorted(code_numbers("submit", await request.read()))
    finding = Finding(order.get("code"), "A rule is broken.", "document")
    rejected = [rejection(Entry(number, b"", None, [finding])) for number in numbers]
    body = {"submissionUid": None, "acceptedDocuments": [], "rejectedDocuments": rejected}
    return answer(body, status=202)


async def wrong_date(
    request: web.Request, process: Process, order: Mapping[str, Any]
) -> web.StreamResponse:
    """Answer as usual, under a `Date` that is wrong by so many seconds."""
    request[DATE_SHIFT] = order.get("seconds", 90)
    return await process()


async def process_if(process, order, default):
    if order.get("processed", default):
        await process()


async def refuse_token(request, process, order):
    raise unauthorized()


async def forget(request, process, order):
    raise not_found("resource", None)


async def refuse(request, process, order):
    """The whole call, as the portal refuses it for one document that breaks it, or for who sends it."""
    if request.method == "POST" and CALLER in request:
        await refuse_same_payload(request)
    code = order.get("code", "BadStructure")
    entry = detail(code, "A rule is broken.", "documents")
    raise Refusal(order.get("status", 400), code, "The submission is refused.", details=[entry])


async def foreign(request, process, order):
    raise Mismatch(request.app[SANDBOX].controls.mismatch_status)


#: kind -> what it does
KINDS = {
    "none": through,
    "drop": drop,
    "accept_then_drop": accept_then_drop,
    "error_before": error_before,
    "error_after": error_after,
    "duplicate": duplicate,
    "throttle": throttle,
    "slow": slow,
    "slow_before": slow_before,
    "drip": drip,
    "truncate": truncate,
    "html": html,
    "redirect": redirect,
    "garbage": garbage,
    "neither": neither,
    "other_uuid": other_uuid,
    "oversized": oversized,
    "reject": reject,
    "unauthorized": refuse_token,
    "forget": forget,
    "refuse": refuse,
    "foreign": foreign,
    "wrong_date": wrong_date,
}


async def perform(request, operation, process):
    """The answer of the call, through the oldest fault that waits for it."""
    fault = await claim(request, operation)
    if fault is None:
        return await process()
    return await KINDS[fault["kind"]](request, process, json.loads(fault["members"]))


async def claim(request, operation):
    """Uses up one time of the fault, before it does anything."""
    db, numbers = request.app[SANDBOX].db, None
    for fault in sql.fault_waiting(db, operation=operation):
        if fault["number"] is not None and numbers is None:
            numbers = code_numbers(operation, await request.read())
        if fault["number"] is None or fault["number"] in numbers:
            with transaction(db):
                sql.fault_use(db, id=fault["id"])
                sql.fault_count(db, label=label(fault))
                sql.fault_forget_used(db)
            return fault
    return None


def label(fault):
    """By what name it is counted: its order's, else its kind."""
    return str(json.loads(fault["members"]).get("label", fault["kind"]))


def code_numbers(operation, body):
    """The numbers in a submission, however it is shaped; no other call has any."""
    try:
        documents = read_json(body)["documents"] if operation == "submit" else []
        return {each["codeNumber"] for each in documents}
    except (ValueError, TypeError, KeyError):
        return set()

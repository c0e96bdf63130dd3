"""Idempotency-Key: the first answer to a POST is kept with its effect, and given again to a repetition."""

import hashlib
import random
from datetime import timedelta

from aiohttp import web

from service import wire
from service.errors import BadRequest, Conflict, Invalid, fault
from service.intake import read_raw
from service.middleware import render
from service.statements import sql

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
LEASE = timedelta(seconds=90)  # longer than any request takes
SWEEP_ONE_IN = 100  # keyed requests, so that old answers go without a task of their own
#: Answers that say nothing of the effect: a repetition is the first again.
NOT_KEPT = {401, 408, 409, 413, 415, 429}

KEPT_UNDER = web.RequestKey("idempotency", dict)
SECRET_OUT = web.RequestKey("secret_out", bool)  # what was kept is the final answer but for what is shown once


@web.middleware
async def idempotent(request, handler):
    """Answers a repetition from memory. Raises Invalid for the key with another body, Conflict while the first runs."""
    text = request.headers.get(HEADER)
    if text is None or request.method != "POST" or wire.COMPANY not in request:
        return await handler(request)
    under = await _under(request, text)
    if (replayed := await _claim(request, under)) is not None:
        return replayed
    request[KEPT_UNDER] = {name: under[name] for name in ("company_id", "route", "key")}
    try:
        response = await handler(request)
    except ConnectionResetError:
        raise
    except Exception as error:
        response = render(error, request)
    await _settle(request, response)
    return response


async def keep(request, conn, response):
    """Keeps an answer in the transaction of the effect; the middleware replaces it when a later one is final."""
    if KEPT_UNDER in request:
        await sql.idempotency_keep(conn, **request[KEPT_UNDER], status=response.status, answer=response.text)


async def keep_without(request, conn, response, *shown_once):
    """Keeps an answer but for members of its data that are shown once and stored nowhere."""
    body = wire.loads(response.body)
    kept = {**body, "data": {name: member for name, member in body["data"].items() if name not in shown_once}}
    await keep(request, conn, wire.answer(kept, response.status))
    request[SECRET_OUT] = True


async def _under(request, text):
    if not 0 < len(text) <= LONGEST_KEY or not text.isprintable():
        raise BadRequest(f"{HEADER} must be 1 to {LONGEST_KEY} printable characters.")
    return {
        "company_id": request[wire.COMPANY],
        "route": f"{request.method} {request.path}",
        "key": text,
        "body_sha256": hashlib.sha256(await read_raw(request)).digest(),
    }


async def _claim(request, under):
    """None when this request is the first, else the response of the first."""
    async with request.app[wire.DATABASE].company(under["company_id"]) as conn:
        if random.randrange(SWEEP_ONE_IN) == 0:
            await sql.idempotency_sweep(conn, company_id=under["company_id"])
        if await sql.idempotency_claim(conn, **under, lease=LEASE):
            return None
        first = await sql.idempotency_get(
            conn, company_id=under["company_id"], route=under["route"], key=under["key"]
        )
    if first is None:
        raise Conflict("The request was under way when this one came, please try again.")
    if first["body_sha256"] != under["body_sha256"]:
        raise Invalid([fault(HEADER, "reused", f"{HEADER} was used with another body.")])
    if first["status"] is None:
        raise Conflict(f"A request with this {HEADER} is still running.")
    return wire.passed(first["answer"], first["status"], {"Idempotent-Replayed": "true"})


async def _settle(request, response):
    """Keeps the final answer, or lets the key go where it is not one to repeat."""
    if SECRET_OUT in request and response.status < 400:
        return
    async with request.app[wire.DATABASE].company(request[wire.COMPANY]) as conn:
        if response.status >= 500 or response.status in NOT_KEPT:
            await sql.idempotency_drop(conn, **request[KEPT_UNDER])
        else:
            await keep(request, conn, response)

"""Idempotency-Key: the first answer to a POST is kept with its effect, and given again to a repetition."""

import asyncio
import hashlib
import logging
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from aiohttp import web

from service import wire
from service.db import PASSING, Database
from service.errors import BadRequest, Conflict, KeyReused, fault, kind
from service.intake import header, read_raw
from service.middleware import is_gone, render
from service.statements import sql

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
LONGEST_PATH = 255  # no id is so long that a longer one could be of a record
LEASE = timedelta(seconds=90)  # longer than any request takes
SETTLE_SECONDS = 60  # for an answer that cannot be kept at once; within the lease, when the key is nobody else's
SETTLE_AGAIN_SECONDS = 0.5
SWEEP_ONE_IN = 100  # keyed requests, so that old answers go without a task of their own
#: Answers that say nothing of the effect: a repetition is the first again.
NOT_KEPT = {401, 408, 409, 413, 415, 429}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the answers to owners of one kind are kept: behind which wall, and by which statements."""

    owner: web.RequestKey  # under which a request has the owner's id
    column: str
    wall: object
    claim: object
    unclaim: object
    get: object
    keep: object
    drop: object
    sweep: object


MEMORIES = (
    Memory(
        wire.COMPANY,
        "company_id",
        Database.company,
        sql.idempotency_claim,
        sql.idempotency_unclaim,
        sql.idempotency_get,
        sql.idempotency_keep,
        sql.idempotency_drop,
        sql.idempotency_sweep,
    ),
    Memory(
        wire.ACCOUNT,
        "account_id",
        Database.account,
        sql.integration_idempotency_claim,
        sql.integration_idempotency_unclaim,
        sql.integration_idempotency_get,
        sql.integration_idempotency_keep,
        sql.integration_idempotency_drop,
        sql.integration_idempotency_sweep,
    ),
)

#: (owner, route, key) -> what writes that which could not be written yet
UNSETTLED = web.AppKey("unsettled", dict)
MEMORY = web.RequestKey("memory", Memory)
KEPT_UNDER = web.RequestKey("kept_under", dict)
SECRET_OUT = web.RequestKey("secret_out", bool)  # what was kept is the final answer but for what is shown once


@web.middleware
async def idempotent(request, handler):
    """Answers a repetition from memory. Raises KeyReused for the key with another body, Conflict while the first runs."""
    text, memory = header(request, HEADER), _memory(request)
    if text is None or request.method != "POST" or memory is None:
        return await handler(request)
    under = _under(request, memory, text)
    with suppress(*PASSING):  # the claim says what there is
        await _settle_first(request, under)
    if (replayed := await _claim(request, memory, under)) is not None:
        return replayed
    request[MEMORY], request[KEPT_UNDER] = memory, under
    try:
        response = await handler(request)
    except Exception as error:
        if is_gone(request, error):
            raise
        response = render(error, request)
    await _settle(request, response)
    return response


async def keep(request, conn, response):
    """Keeps an answer in the transaction of the effect; the middleware replaces it when a later one is final."""
    if KEPT_UNDER in request:
        await request[MEMORY].keep(conn, **request[KEPT_UNDER], status=response.status, answer=response.text)


async def keep_without(request, conn, response, *shown_once):
    """Keeps an answer but for members of its data that are shown once and stored nowhere."""
    body = wire.loads(response.body)
    kept = {**body, "data": {name: member for name, member in body["data"].items() if name not in shown_once}}
    await keep(request, conn, wire.answer(kept, response.status))
    request[SECRET_OUT] = True


def _memory(request):
    """The memory for whom the key belongs to; None for nobody, and where there is nothing that could have an effect."""
    if request.match_info.http_exception or len(request.path) > LONGEST_PATH or not request.path.isprintable():
        return None
    return next((memory for memory in MEMORIES if memory.owner in request), None)


def _behind_wall(request, memory):
    """A transaction that sees what is kept for the owner."""
    return memory.wall(request.app[wire.DATABASE], request[memory.owner])


def _under(request, memory, text):
    if not 0 < len(text) <= LONGEST_KEY or not text.isprintable():
        raise BadRequest(f"{HEADER} must be 1 to {LONGEST_KEY} printable characters.")
    return {memory.column: request[memory.owner], "route": f"{request.method} {request.path}", "key": text}


async def _claim(request, memory, under):
    """None when this request is the first, else the response of the first."""
    body_sha256 = hashlib.sha256(await read_raw(request)).digest()
    claim = None
    try:
        async with _behind_wall(request, memory) as conn:
            if random.randrange(SWEEP_ONE_IN) == 0:
                await memory.sweep(conn, **{memory.column: request[memory.owner]})
            claim = await memory.claim(conn, **under, body_sha256=body_sha256, lease=LEASE)
            first = None if claim else await memory.get(conn, **under)
    except PASSING:
        if claim:  # which may have been committed all the same
            _settle_later(request, under, partial(_unclaim, request, memory, under, claim))
        raise
    if claim:
        return None
    if first is None:
        raise Conflict("The request was under way when this one came, please try again.")
    if first["body_sha256"] != body_sha256:
        wording = f"{HEADER} was used with another body."
        raise KeyReused(wording, errors=[fault(HEADER, "reused", wording)])
    if first["status"] is None:
        raise Conflict(f"A request with this {HEADER} is still running.")
    return wire.passed(first["answer"], first["status"], {"Idempotent-Replayed": "true"})


async def _settle(request, response):
    """Keeps the final answer, or lets the key go where it is not one to repeat."""
    if SECRET_OUT in request and response.status < 400:
        return
    try:
        await _write(request, response)
    except PASSING as fault:  # what came of the request is told all the same
        log.warning("idempotency: an answer is not kept yet: %s", kind(fault))
        _settle_later(request, request[KEPT_UNDER], partial(_write, request, response))


def _settle_later(request, under, write):
    """Sees that a key is settled once PostgreSQL is back: else its repetition would wait for the whole lease."""
    request.app[UNSETTLED][_name(under)] = write
    request.app[wire.DESK].spawn(_settling(request, under))


async def _settling(request, under):
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until and not request.app[wire.CLOSING].has_begun:
        await asyncio.sleep(SETTLE_AGAIN_SECONDS)
        with suppress(*PASSING):
            return await _settle_first(request, under)
    request.app[UNSETTLED].pop(_name(under), None)


async def _settle_first(request, under):
    """Writes what could not be written of an earlier request with this key."""
    if (write := request.app[UNSETTLED].get(_name(under))) is not None:
        await write()
        request.app[UNSETTLED].pop(_name(under), None)


def _name(under):
    return tuple(under.values())


async def _unclaim(request, memory, under, claim):
    async with _behind_wall(request, memory) as conn:
        await memory.unclaim(conn, **under, claim=claim)


async def _write(request, response):
    memory = request[MEMORY]
    async with _behind_wall(request, memory) as conn:
        if response.status >= 500 or response.status in NOT_KEPT:
            await memory.drop(conn, **request[KEPT_UNDER])
        else:
            await keep(request, conn, response)

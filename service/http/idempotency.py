"""Idempotency-Key: the first answer to a POST is stored with its effect, and replayed to a repetition.

A request claims its key under a token. Its effect and its answer are committed only while the token is still there: a
request that was paused for longer than its lease, and whose key a repetition has taken over, changes nothing and gets the
answer of that repetition.
"""

import asyncio
import hashlib
import logging
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import asyncpg
from aiohttp import web

from service import json_codec
from service.db.statements import Statement, sql
from service.db.transactions import TRANSIENT_DB_ERRORS, Database
from service.errors import (
    STILL_RUNNING,
    BadRequest,
    ClaimLost,
    Conflict,
    KeyReused,
    describe_error,
    violation,
)
from service.http import app_keys, responses
from service.http.middleware import error_response, is_client_gone
from service.http.requests import header, read_raw

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
LONGEST_PATH = 255  # no id is so long that a longer one could be of a record
LEASE = timedelta(seconds=90)  # longer than any request takes
# For an answer that cannot be kept at once; within the lease, when the key is nobody else's
SETTLE_SECONDS = 60
SETTLE_AGAIN_SECONDS = 0.5
# How long a request whose key was taken over waits for the answer of the one that has it
TAKEN_OVER_SECONDS = 3
TAKEN_OVER_AGAIN_SECONDS = 0.05
SWEEP_ONE_IN = 100  # keyed requests, so that old answers go without a task of their own
#: Answers that say nothing of the effect: a repetition is the first again.
NOT_KEPT = {401, 408, 409, 413, 415, 429}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IdempotencyStore:
    """Where the answers to owners of one kind are kept: behind which wall, and by which statements."""

    owner: web.RequestKey[int]  # under which a request has the owner's id
    column: str
    wall: Callable[[Database, int], AbstractAsyncContextManager[asyncpg.Connection]]
    claim: Statement
    get: Statement
    hold: Statement
    keep: Statement
    drop: Statement
    sweep: Statement


STORES = (
    IdempotencyStore(
        app_keys.COMPANY,
        "company_id",
        Database.company,
        sql.idempotency_claim,
        sql.idempotency_get,
        sql.idempotency_hold,
        sql.idempotency_keep,
        sql.idempotency_drop,
        sql.idempotency_sweep,
    ),
    IdempotencyStore(
        app_keys.ACCOUNT,
        "account_id",
        Database.account,
        sql.integration_idempotency_claim,
        sql.integration_idempotency_get,
        sql.integration_idempotency_hold,
        sql.integration_idempotency_keep,
        sql.integration_idempotency_drop,
        sql.integration_idempotency_sweep,
    ),
)


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """One request's claim on an Idempotency-Key."""

    memory: IdempotencyStore
    under: dict[str, object]  # owner, route and key
    token: uuid.UUID
    body_sha256: bytes

    @property
    def named(self) -> dict[str, object]:
        """The variables by which a statement finds the key only while this claim holds it."""
        return {**self.under, "claim_token": self.token}


#: (owner, route, key) -> what writes that which could not be written yet
UNSETTLED = web.AppKey("unsettled", dict)
CLAIM = web.RequestKey("claim", IdempotencyClaim)
# What was kept is the final answer but for what is shown once
SECRET_OUT = web.RequestKey("secret_out", bool)


@web.middleware
async def handle_idempotency_key(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Replay the answer to a repetition; run the handler for the first request with a key, and store its answer.

    Raises KeyReused for the key with another body, Conflict while the first request is running.
    """
    text, memory = header(request, HEADER), _memory(request)
    if text is None or request.method != "POST" or memory is None:
        return await handler(request)
    under = _under(request, memory, text)
    with suppress(*TRANSIENT_DB_ERRORS):  # the claim says what there is
        await _settle_first(request, under)
    claim = IdempotencyClaim(
        memory, under, uuid.uuid4(), hashlib.sha256(await read_raw(request)).digest()
    )
    if (first := await _take(request, claim)) is not None:
        return _replay(first, claim)
    request[CLAIM] = claim
    try:
        response, is_kept = await handler(request), True
    except ClaimLost:
        return _replay(await _answer_of_other(request, claim), claim)
    except Exception as error:
        if is_client_gone(request, error):
            raise
        response, is_kept = error_response(error, request), not getattr(error, "retryable", False)
    return await _settle(request, response, is_kept)


async def store_response(
    request: web.Request, conn: asyncpg.Connection, response: web.Response
) -> None:
    """Store an answer in the transaction of its effect; the middleware replaces it when a later one is final.

    Raises ClaimLost, which rolls the effect back, if another request has taken the key over.
    """
    claim = request.get(CLAIM)
    if claim is not None and not await _store(conn, claim, response):
        raise ClaimLost


async def store_response_without(
    request: web.Request, conn: asyncpg.Connection, response: web.Response, *shown_once: str
) -> None:
    """Store an answer as `keep` does, without members of its data that are shown once and stored nowhere."""
    body = json_codec.loads(response.body)
    kept = {
        **body,
        "data": {name: member for name, member in body["data"].items() if name not in shown_once},
    }
    await store_response(request, conn, responses.json_response(kept, response.status))
    request[SECRET_OUT] = True


async def hold_claim(request: web.Request, conn: asyncpg.Connection) -> None:
    """Lock the request's claim until the transaction ends, for an effect whose answer is known only later.

    Raises ClaimLost, which rolls the effect back, if another request has taken the key over.
    """
    claim = request.get(CLAIM)
    if claim is not None and not await claim.memory.hold(conn, **claim.named):
        raise ClaimLost


def _memory(request):
    """The memory for whom the key belongs to; None for nobody, and where there is nothing that could have an effect."""
    if (
        request.match_info.http_exception
        or len(request.path) > LONGEST_PATH
        or not request.path.isprintable()
    ):
        return None
    return next((memory for memory in STORES if memory.owner in request), None)


def _behind_wall(
    request: web.Request, memory: IdempotencyStore
) -> AbstractAsyncContextManager[asyncpg.Connection]:
    """A transaction that sees what is kept for the owner."""
    return memory.wall(request.app[app_keys.DATABASE], request[memory.owner])


def _under(request, memory, text):
    if not 0 < len(text) <= LONGEST_KEY or not text.isprintable():
        raise BadRequest(f"{HEADER} must be 1 to {LONGEST_KEY} printable characters.")
    return {
        memory.column: request[memory.owner],
        "route": f"{request.method} {request.path}",
        "key": text,
    }


async def _take(request: web.Request, claim: IdempotencyClaim) -> asyncpg.Record | None:
    """Claim the key. Return None, or what is stored of the request that has the key.

    Raises Conflict if that request has released the key meanwhile.
    """
    memory, is_taken = claim.memory, False
    try:
        async with _behind_wall(request, memory) as conn:
            if random.randrange(SWEEP_ONE_IN) == 0:
                await memory.sweep(conn, **{memory.column: request[memory.owner]})
            is_taken = await memory.claim(
                conn, **claim.named, body_sha256=claim.body_sha256, lease=LEASE
            )
            first = None if is_taken else await memory.get(conn, **claim.under)
    except TRANSIENT_DB_ERRORS:
        if is_taken:  # which may have been committed all the same
            _settle_later(request, claim.under, partial(_drop, request, claim))
        raise
    if not is_taken and first is None:
        raise Conflict("The request was under way when this one came, please try again.")
    return first


def _replay(first: asyncpg.Record, claim: IdempotencyClaim) -> web.Response:
    """Return the stored answer. Raises KeyReused if it is of another body, Conflict if there is no answer yet."""
    if first["body_sha256"] != claim.body_sha256:
        wording = f"{HEADER} was used with another body."
        raise KeyReused(wording, errors=[violation(HEADER, "reused", wording)])
    if first["status"] is None:
        raise Conflict(STILL_RUNNING)
    return responses.json_text_response(
        first["answer"], first["status"], {"Idempotent-Replayed": "true"}
    )


async def _answer_of_other(request: web.Request, claim: IdempotencyClaim) -> asyncpg.Record:
    """Wait for the answer of the request that has taken the key over, and return what is stored of it by then.

    Raises Conflict if it has released the key.
    """
    until = time.monotonic() + TAKEN_OVER_SECONDS
    while True:
        async with _behind_wall(request, claim.memory) as conn:
            other = await claim.memory.get(conn, **claim.under)
        if other is None:
            raise Conflict("The request was under way when this one came, please try again.")
        if other["status"] is not None or time.monotonic() >= until:
            return other
        await asyncio.sleep(TAKEN_OVER_AGAIN_SECONDS)


async def _settle(request: web.Request, response: web.Response, is_kept: bool) -> web.Response:
    """Store the final answer, or release the key where the answer must not be replayed, and return the answer.

    If the key was taken over meanwhile, that is the answer of the request that has it, if there is one.
    """
    if SECRET_OUT in request and response.status < 400:
        return response
    claim = request[CLAIM]
    is_kept = is_kept and response.status < 500 and response.status not in NOT_KEPT
    write = (
        partial(_keep_final, request, claim, response)
        if is_kept
        else partial(_drop, request, claim)
    )
    try:
        if await write():
            return response
        return _replay(await _answer_of_other(request, claim), claim)
    except Conflict:
        return response
    except TRANSIENT_DB_ERRORS as why:  # what came of the request is told all the same
        log.warning("idempotency: an answer is not kept yet: %s", describe_error(why))
        _settle_later(request, claim.under, write)
        return response


def _settle_later(request, under, write):
    """Sees that a key is settled once PostgreSQL is back: else its repetition would wait for the whole lease."""
    request.app[UNSETTLED][_name(under)] = write
    request.app[app_keys.SUBMISSION_CONTEXT].spawn(_settling(request, under))


async def _settling(request, under):
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until and not request.app[app_keys.CLOSING].has_begun:
        await asyncio.sleep(SETTLE_AGAIN_SECONDS)
        with suppress(*TRANSIENT_DB_ERRORS):
            return await _settle_first(request, under)
    request.app[UNSETTLED].pop(_name(under), None)
    return None


async def _settle_first(request, under):
    """Writes what could not be written of an earlier request with this key."""
    if (write := request.app[UNSETTLED].get(_name(under))) is not None:
        await write()
        request.app[UNSETTLED].pop(_name(under), None)


def _name(under):
    return tuple(under.values())


async def _keep_final(
    request: web.Request, claim: IdempotencyClaim, response: web.Response
) -> bool:
    """Store the final answer. False if another request has taken the key over."""
    async with _behind_wall(request, claim.memory) as conn:
        return bool(await _store(conn, claim, response))


async def _drop(request: web.Request, claim: IdempotencyClaim) -> bool:
    """Release the key if no answer is stored for it. False if another request has taken the key over."""
    async with _behind_wall(request, claim.memory) as conn:
        return await claim.memory.drop(conn, **claim.named)


async def _store(
    conn: asyncpg.Connection, claim: IdempotencyClaim, response: web.Response
) -> bool | None:
    return await claim.memory.keep(
        conn, **claim.named, status=response.status, answer=response.text
    )

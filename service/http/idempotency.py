"""Idempotency-Key: the first response to a POST is stored with its effect, and replayed.

A request claims its key under a token. Its effect and its response are committed only while the
claim holds. A request that was paused beyond its lease, and whose key a repetition has taken over,
changes nothing and gets the response of that repetition.
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
from aiohttp.typedefs import Handler

from service import json_codec
from service.db.connections import Connection
from service.db.statements import Statement, sql
from service.db.transactions import TRANSIENT_DB_ERRORS, Database, retry
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
from service.http.error_responses import error_response, is_client_gone
from service.http.requests import header, read_raw

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
INVALID_KEY = f"{HEADER} must be 1 to {LONGEST_KEY} printable characters."
LONGEST_PATH = 255  # longer than the path of any record
LEASE = timedelta(seconds=90)  # longer than any request takes
#: A response that could not be stored is stored within this time, which is below the lease.
SETTLE_SECONDS = 60
SETTLE_RETRY_SECONDS = 0.5
#: A request that lost its key waits this long for the response of the request that has it.
TAKEN_OVER_SECONDS = 3
TAKEN_OVER_RETRY_SECONDS = 0.05
RELEASED = "Another request with this Idempotency-Key was running, please try again."
SWEEP_ONE_IN = 100  # requests with a key; the others do not delete expired responses
#: Statuses of responses that are not stored: a repetition runs as a first request.
NOT_STORED = {401, 408, 409, 413, 415, 429}

log = logging.getLogger(__name__)

Write = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class IdempotencyStore:
    """The statements that store responses for owners of one kind.

    `owner` is the request key of the owner's id, `column` its variable. `transaction` opens a
    transaction with tenant isolation for the owner.
    """

    owner: web.RequestKey[int]
    column: str
    transaction: Callable[[Database, int], AbstractAsyncContextManager[Connection]]
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
    """One request's claim on an Idempotency-Key. `key` holds owner, route and key.

    With `keeps_errors`, errors are stored too, so that a repetition gets the same error.
    """

    store: IdempotencyStore
    key: dict[str, object]
    token: uuid.UUID
    body_sha256: bytes
    keeps_errors: bool = True

    @property
    def variables(self) -> dict[str, object]:
        """The variables by which a statement finds the key only while this claim holds it."""
        return {**self.key, "claim_token": self.token}


#: (owner, route, key) -> the write that failed because of a transient error.
UNSETTLED: web.AppKey[dict[tuple[object, ...], Write]] = web.AppKey("unsettled")
CLAIM = web.RequestKey("claim", IdempotencyClaim)
#: The stored response is final, but lacks the secrets of the response that is sent.
SECRET_OUT = web.RequestKey("secret_out", bool)
#: Encrypts the secrets of a response, which are stored until `take_secrets` shows them.
SEAL: web.RequestKey[Callable[[bytes], bytes]] = web.RequestKey("seal")


async def handle_idempotency_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Replay the response to a repetition. Otherwise run the handler and store its response.

    Raises KeyReused for the key with another body, Conflict while the first request is running.
    """
    text, store = header(request, HEADER), _find_store(request)
    if text is None or request.method != "POST" or store is None:
        return await retry(handler, request)
    key = _read_key(request, store, text)
    with suppress(*TRANSIENT_DB_ERRORS):
        await _settle_first(request, key)
    body_sha256 = hashlib.sha256(await read_raw(request)).digest()
    return await _run(request, handler, IdempotencyClaim(store, key, uuid.uuid4(), body_sha256))


async def run_form(
    request: web.Request, handler: Handler, text: str, fields_sha256: bytes
) -> web.StreamResponse:
    """Run a handler once for the form with a key, and replay its success to a repetition.

    Errors are not stored: the form with its key is sent again with other fields. Raises KeyReused
    for other fields after a success, Conflict while the first request is running.
    """
    store = STORES[0]
    key = _read_key(request, store, text)
    with suppress(*TRANSIENT_DB_ERRORS):
        await _settle_first(request, key)
    claim = IdempotencyClaim(store, key, uuid.uuid4(), fields_sha256, keeps_errors=False)
    return await _run(request, handler, claim)


async def find_answer(request: web.Request, path: str, text: str) -> str | None:
    """Return the body of the stored response to a POST of the company with a key, or None."""
    key = {"company_id": request[app_keys.COMPANY], "route": f"POST {path}", "key": text}
    async with _transaction(request, STORES[0]) as conn:
        first = await sql.idempotency_get(conn, **key)
    return first and first["answer"]


async def take_secrets(request: web.Request, path: str, text: str) -> bytes | None:
    """Return the encrypted secrets of the response to a POST with a key, once; else None."""
    key = {"company_id": request[app_keys.COMPANY], "route": f"POST {path}", "key": text}
    async with _transaction(request, STORES[0]) as conn:
        return await sql.idempotency_secrets_take(conn, **key)


async def _run(
    request: web.Request, handler: Handler, claim: IdempotencyClaim
) -> web.StreamResponse:
    """Claim a key and run the handler, or replay the response of the request that has the key."""
    if (first := await _claim_key(request, claim)) is not None:
        return _replay(first, claim)
    request[CLAIM] = claim
    try:
        response, is_final = await retry(handler, request), True
    except ClaimLost:
        return _replay(await _wait_for_other(request, claim), claim)
    except Exception as error:
        if is_client_gone(request, error):
            raise
        response = error_response(error, request)
        is_final = claim.keeps_errors and not getattr(error, "retryable", False)
    return await _settle(request, response, is_final)


async def store_response(request: web.Request, conn: Connection, response: web.Response) -> None:
    """Store a response in the transaction of its effect.

    The middleware replaces it by the final response. Raises ClaimLost, which rolls the effect back,
    if another request has taken the key over.
    """
    claim = request.get(CLAIM)
    if claim is not None and not await _store(conn, claim, response):
        raise ClaimLost


async def store_response_without(
    request: web.Request, conn: Connection, response: web.Response, *secrets: str
) -> None:
    """Store a response as store_response does, without the named secrets in its data.

    A request with SEAL also stores all data, encrypted, until it is shown once.
    """
    body = json_codec.loads((response.text or "").encode())
    data = {name: member for name, member in body["data"].items() if name not in secrets}
    stored = responses.json_response({**body, "data": data}, response.status)
    await store_response(request, conn, stored)
    if (claim := request.get(CLAIM)) is not None and SEAL in request:
        sealed = request[SEAL](json_codec.encode(body["data"]))
        await sql.idempotency_secrets_keep(conn, **claim.variables, sealed_secrets=sealed)
    request[SECRET_OUT] = True


async def hold_claim(request: web.Request, conn: Connection) -> None:
    """Lock the request's claim until the transaction ends, for an effect without response yet.

    Raises ClaimLost, which rolls the effect back, if another request has taken the key over.
    """
    claim = request.get(CLAIM)
    if claim is not None and not await claim.store.hold(conn, **claim.variables):
        raise ClaimLost


def _find_store(request: web.Request) -> IdempotencyStore | None:
    """Return the store of the key's owner, or None for a path that has no effects."""
    if (
        request.match_info.http_exception
        or len(request.path) > LONGEST_PATH
        or not request.path.isprintable()
    ):
        return None
    return next((store for store in STORES if store.owner in request), None)


def _transaction(
    request: web.Request, store: IdempotencyStore
) -> AbstractAsyncContextManager[Connection]:
    """Open a transaction that sees the responses stored for the request's owner."""
    return store.transaction(request.app[app_keys.DATABASE], request[store.owner])


def _read_key(request: web.Request, store: IdempotencyStore, text: str) -> dict[str, object]:
    """Return the variables owner, route and key. Raises BadRequest for an invalid key."""
    if not 0 < len(text) <= LONGEST_KEY or not text.isprintable():
        raise BadRequest(INVALID_KEY, code="idempotency_key_invalid")
    return {
        store.column: request[store.owner],
        "route": f"{request.method} {request.path}",
        "key": text,
    }


async def _claim_key(request: web.Request, claim: IdempotencyClaim) -> asyncpg.Record | None:
    """Claim the key. Return None, or the stored row of the request that has the key.

    Raises Conflict if that request has released the key meanwhile.
    """
    store, is_taken = claim.store, False
    try:
        async with _transaction(request, store) as conn:
            if random.randrange(SWEEP_ONE_IN) == 0:
                await store.sweep(conn, **{store.column: request[store.owner]})
            is_taken = await store.claim(
                conn, **claim.variables, body_sha256=claim.body_sha256, lease=LEASE
            )
            first = None if is_taken else await store.get(conn, **claim.key)
    except TRANSIENT_DB_ERRORS:
        if is_taken:  # the claim may have been committed
            _settle_later(request, claim.key, partial(_release, request, claim))
        raise
    if not is_taken and first is None:
        raise Conflict(RELEASED, code=ClaimLost.code)
    return first


def key_reused() -> KeyReused:
    """Return the error for a key that was used with another body."""
    message = f"{HEADER} was used with another body."
    return KeyReused(message, errors=[violation(HEADER, "reused", message)])


def _replay(first: asyncpg.Record, claim: IdempotencyClaim) -> web.Response:
    """Return the stored response.

    Raises KeyReused if its request had another body, Conflict if there is no response yet.
    """
    if first["body_sha256"] != claim.body_sha256:
        raise key_reused()
    if first["status"] is None:
        raise Conflict(STILL_RUNNING, code=ClaimLost.code)
    return responses.json_text_response(
        first["answer"], first["status"], {"Idempotent-Replayed": "true"}
    )


async def _wait_for_other(request: web.Request, claim: IdempotencyClaim) -> asyncpg.Record:
    """Wait for the response of the request that has taken the key over, and return its stored row.

    Raises Conflict if that request has released the key.
    """
    until = time.monotonic() + TAKEN_OVER_SECONDS
    while True:
        async with _transaction(request, claim.store) as conn:
            other = await claim.store.get(conn, **claim.key)
        if other is None:
            raise Conflict(RELEASED, code=ClaimLost.code)
        if other["status"] is not None or time.monotonic() >= until:
            return other
        await asyncio.sleep(TAKEN_OVER_RETRY_SECONDS)


async def _settle(
    request: web.Request, response: web.StreamResponse, is_final: bool
) -> web.StreamResponse:
    """Store the final response, or release the key if it must not be replayed. Return the response.

    If the key was taken over, return the response of the request that has it, if there is one.
    """
    if SECRET_OUT in request and response.status < 400:
        return response
    claim = request[CLAIM]
    is_stored = is_final and response.status < 500 and response.status not in NOT_STORED
    write: Write = partial(_release, request, claim)
    if is_stored and isinstance(response, web.Response):
        write = partial(_store_final, request, claim, response)
    try:
        if await write():
            return response
        return _replay(await _wait_for_other(request, claim), claim)
    except Conflict:
        return response
    except TRANSIENT_DB_ERRORS as error:
        log.warning("idempotency: a response is not stored yet: %s", describe_error(error))
        _settle_later(request, claim.key, write)
        return response


def _settle_later(request: web.Request, key: dict[str, object], write: Write) -> None:
    """Retry a write in the background, so that a repetition need not wait for the lease to end."""
    request.app[UNSETTLED][_identify(key)] = write
    request.app[app_keys.SPAWN](_retry_settling(request, key))


async def _retry_settling(request: web.Request, key: dict[str, object]) -> None:
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until and not request.app[app_keys.SHUTDOWN].has_begun:
        await asyncio.sleep(SETTLE_RETRY_SECONDS)
        with suppress(*TRANSIENT_DB_ERRORS):
            await _settle_first(request, key)
            return
    request.app[UNSETTLED].pop(_identify(key), None)


async def _settle_first(request: web.Request, key: dict[str, object]) -> None:
    """Repeat the failed write of an earlier request with this key."""
    if (write := request.app[UNSETTLED].get(_identify(key))) is not None:
        await write()
        request.app[UNSETTLED].pop(_identify(key), None)


def _identify(key: dict[str, object]) -> tuple[object, ...]:
    return tuple(key.values())


async def _store_final(
    request: web.Request, claim: IdempotencyClaim, response: web.Response
) -> bool:
    """Store the final response. Return false if another request has taken the key over."""
    async with _transaction(request, claim.store) as conn:
        return await _store(conn, claim, response)


async def _release(request: web.Request, claim: IdempotencyClaim) -> bool:
    """Release the key if no response is stored for it.

    Return false if another request has taken the key over.
    """
    async with _transaction(request, claim.store) as conn:
        return bool(await claim.store.drop(conn, **claim.variables))


async def _store(conn: Connection, claim: IdempotencyClaim, response: web.Response) -> bool:
    return bool(
        await claim.store.keep(
            conn, **claim.variables, status=response.status, answer=response.text
        )
    )

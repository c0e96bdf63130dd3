"""Idempotency-Key: the first response to a POST is stored with its effect, and replayed.

The transaction of the effect stores the key with the response. Of several requests with one key,
the second one waits there until the first has committed, is rolled back, and replays the response.
A submission or cancellation stores its key when it begins, without a response yet, and a creation
that submits stores an interim response: repetitions wait for the final one.
"""

import asyncio
import hashlib
import logging
import random
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import asyncpg
from aiohttp import web
from aiohttp.typedefs import Handler

from service import json_codec
from service.db.connections import TRANSIENT_DB_ERRORS, Connection
from service.db.retry import retry
from service.db.statements import sql
from service.db.transactions import Owner
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
REPLAYED = "Idempotent-Replayed"  # header of a replayed response
LONGEST_KEY = 255
INVALID_KEY = f"{HEADER} must be 1 to {LONGEST_KEY} printable characters."
LONGEST_PATH = 255  # longer than the path of any record
#: A key without a response belongs to its request for so long, which is longer than any takes.
LEASE = timedelta(seconds=90)
#: How long a repetition waits for the response of the first request, and looks for it how often.
WAIT_SECONDS, LOOK_SECONDS = 3, 0.1
#: A response that could not be stored is stored within this time, which is below the lease.
SETTLE_SECONDS = 60
SETTLE_RETRY_SECONDS = 0.5
SWEEP_ONE_IN = 100  # requests with a key; the others do not delete expired responses
#: Statuses of responses that are not stored: a repetition runs as a first request.
NOT_STORED = {401, 408, 409, 413, 415, 429}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """A request with an Idempotency-Key. `key` holds owner, route and key.

    `token` distinguishes it from other requests with the key. With `keeps_errors`, errors are
    stored too, so that a repetition gets the same error.
    """

    owner: Owner
    key: dict[str, object]
    body_sha256: bytes
    keeps_errors: bool = True
    token: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def variables(self) -> dict[str, object]:
        """The variables by which a statement finds the key only if this request has stored it."""
        return {**self.key, "claim_token": self.token}


CLAIM = web.RequestKey("claim", IdempotencyClaim)
#: What the request has stored with its key: a response, or None if its work has just begun.
STORED: web.RequestKey[web.Response | None] = web.RequestKey("stored")
#: The stored response is final, but lacks the secrets of the response that is sent.
SECRET_OUT = web.RequestKey("secret_out", bool)
#: Encrypts the secrets of a response, which are stored until `take_secrets` shows them.
SEAL: web.RequestKey[Callable[[bytes], bytes]] = web.RequestKey("seal")


async def handle_idempotency_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Replay the response to a repetition. Otherwise run the handler and store its response.

    Raises BadRequest for an invalid key, KeyReused for the key with another body, Conflict while
    the first request is running.
    """
    text, owner = header(request, HEADER), _find_owner(request)
    if text is None or request.method != "POST" or owner is None:
        return await retry(handler, request)
    if not 0 < len(text) <= LONGEST_KEY or not text.isprintable():
        raise BadRequest(INVALID_KEY, code="idempotency_key_invalid")
    key = _key_of(owner, f"POST {request.path}", text)
    body_sha256 = hashlib.sha256(await read_raw(request)).digest()
    return await _run(request, handler, IdempotencyClaim(owner, key, body_sha256))


async def run_form(
    request: web.Request, handler: Handler, text: str, fields_sha256: bytes
) -> web.StreamResponse:
    """Run a handler once for the form with a key, and replay its success to a repetition.

    Errors are not stored: the form with its key is sent again with other fields. Raises KeyReused
    for other fields after a success, Conflict while the first request is running.
    """
    owner = Owner("company", request[app_keys.COMPANY])
    key = _key_of(owner, f"{request.method} {request.path}", text)
    claim = IdempotencyClaim(owner, key, fields_sha256, keeps_errors=False)
    return await _run(request, handler, claim)


async def find_answer(request: web.Request, path: str, text: str) -> str | None:
    """Return the body of the stored response to a POST of the company with a key, or None."""
    key = _key_of(Owner("company", request[app_keys.COMPANY]), f"POST {path}", text)
    database = request.app[app_keys.DATABASE]
    first = await database.read(sql.idempotency_get, **key, body_sha256=None, lease=LEASE)
    return first and first["answer"]


async def take_secrets(request: web.Request, path: str, text: str) -> bytes | None:
    """Return the encrypted secrets of the response to a POST with a key, once; else None."""
    owner = Owner("company", request[app_keys.COMPANY])
    async with request.app[app_keys.DATABASE].owned(owner) as conn:
        return await sql.idempotency_secrets_take(conn, **_key_of(owner, f"POST {path}", text))


async def _run(
    request: web.Request, handler: Handler, claim: IdempotencyClaim
) -> web.StreamResponse:
    """Run the handler, or replay the response of the request that has the key."""
    if random.randrange(SWEEP_ONE_IN) == 0:
        async with request.app[app_keys.DATABASE].owned(claim.owner) as conn:
            await sql.idempotency_sweep(conn)
    if (first := await _find_other(request, claim)) is not None:
        return _replay(first, claim)
    request[CLAIM] = claim
    try:
        response, is_final = await retry(handler, request), True
    except ClaimLost:
        if (first := await _find_other(request, claim)) is None:
            raise
        return _replay(first, claim)
    except Exception as error:
        if is_client_gone(request, error):
            raise
        response = error_response(error, request)
        is_final = claim.keeps_errors and not getattr(error, "retryable", False)
    return await _settle(request, response, is_final)


async def store_response(
    request: web.Request,
    conn: Connection,
    response: web.Response | None,
    sealed_secrets: bytes | None = None,
    is_interim: bool = False,
) -> None:
    """Store a response with the request's key, in the transaction of its effect.

    None stores the key alone, of work that has just begun. `sealed_secrets` are the secrets of the
    response, encrypted. The middleware replaces it by the final response; an interim response is
    replayed only if the process dies before that. Raises ClaimLost, which rolls the effect back, if
    another request has the key, or has kept it for longer than a statement waits for a lock.
    """
    if (claim := request.get(CLAIM)) is None:
        return
    try:
        is_stored = await _keep(conn, claim, response, sealed_secrets, is_interim)
    except asyncpg.LockNotAvailableError:
        raise ClaimLost from None
    if not is_stored:
        raise ClaimLost
    request[STORED] = response


async def store_response_without(
    request: web.Request, conn: Connection, response: web.Response, *secrets: str
) -> None:
    """Store a response as store_response does, without the named secrets in its data.

    A request with SEAL also stores all data, encrypted, until it is shown once.
    """
    body = json_codec.loads_own(response.text or "")
    data = {name: member for name, member in body["data"].items() if name not in secrets}
    stored = responses.json_response({**body, "data": data}, response.status)
    sealed = request[SEAL](json_codec.encode(body["data"])) if SEAL in request else None
    await store_response(request, conn, stored, sealed)
    request[SECRET_OUT] = True


def _find_owner(request: web.Request) -> Owner | None:
    """Return the owner of the request's key, or None for a path that has no effects."""
    if (
        request.match_info.http_exception
        or len(request.path) > LONGEST_PATH
        or not request.path.isprintable()
    ):
        return None
    owners = app_keys.OWNERS.items()
    return next((Owner(kind, request[key]) for kind, key in owners if key in request), None)


def _key_of(owner: Owner, route: str, text: str) -> dict[str, object]:
    """Return the variables of an owner's request with a key. `route` is its method and path."""
    return {**owner.variables, "route": route, "key": text}


async def _find_other(request: web.Request, claim: IdempotencyClaim) -> asyncpg.Record | None:
    """Return the row of the request that has the key, or None if this one may have it.

    Waits WAIT_SECONDS for the response to the same body.
    """
    until = time.monotonic() + WAIT_SECONDS
    first = await _read_first(request, claim)
    while (
        first is not None
        and first["status"] is None
        and first["body_sha256"] == claim.body_sha256
        and time.monotonic() < until
    ):
        await asyncio.sleep(LOOK_SECONDS)
        first = await _read_first(request, claim)
    return first


async def _read_first(
    request: web.Request, claim: IdempotencyClaim, lease: timedelta = LEASE
) -> asyncpg.Record | None:
    """Return the row of the key. A request without a final response has ended after `lease`."""
    return await request.app[app_keys.DATABASE].read(
        sql.idempotency_get, **claim.key, body_sha256=claim.body_sha256, lease=lease
    )


def key_reused() -> KeyReused:
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
    return responses.json_text_response(first["answer"], first["status"], {REPLAYED: "true"})


async def _settle(
    request: web.Request, response: web.StreamResponse, is_final: bool
) -> web.StreamResponse:
    """Store the final response, or release the key if it must not be replayed. Return the response.

    If another request was faster, with the same effect, return its response. Raises as _replay.
    """
    if SECRET_OUT in request and response.status < 400:
        return response
    claim, stored = request[CLAIM], request.get(STORED)
    has_begun = STORED in request and stored is None
    keeps = is_final and response.status < 500 and response.status not in NOT_STORED
    final = response if keeps and isinstance(response, web.Response) else None
    if final and stored and (final.status, final.text) == (stored.status, stored.text):
        return response
    try:
        if final or has_begun:
            is_mine = await _write(request, claim, final)
        else:
            is_mine = response.status < 400  # else perhaps a conflict with the other request
        if is_mine:
            return response
        # The response that this request has stored, if an error followed its effect, or another's.
        first = await (
            _read_first(request, claim, timedelta(0)) if stored else _find_other(request, claim)
        )
    except TRANSIENT_DB_ERRORS as error:
        log.warning("idempotency: a response is not stored yet: %s", describe_error(error))
        request.app[app_keys.SPAWN](_retry_writing(request, claim, final))
        return response
    return response if first is None else _replay(first, claim)


async def _retry_writing(
    request: web.Request, claim: IdempotencyClaim, final: web.Response | None
) -> None:
    """Retry a write in the background, so that a repetition need not wait for the lease to end."""
    until = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < until and not request.app[app_keys.SHUTDOWN].has_begun:
        await asyncio.sleep(SETTLE_RETRY_SECONDS)
        with suppress(*TRANSIENT_DB_ERRORS):
            await _write(request, claim, final)
            return


async def _write(request: web.Request, claim: IdempotencyClaim, final: web.Response | None) -> bool:
    """Store the final response, or release the key. Return false if another request has the key."""
    async with request.app[app_keys.DATABASE].owned(claim.owner) as conn:
        if final is not None:
            return await _keep(conn, claim, final)
        return bool(await sql.idempotency_drop(conn, **claim.variables))


async def _keep(
    conn: Connection,
    claim: IdempotencyClaim,
    response: web.Response | None,
    sealed_secrets: bytes | None = None,
    is_interim: bool = False,
) -> bool:
    """Store a key. Return false if another request has it."""
    kept = await sql.idempotency_keep(
        conn,
        **claim.variables,
        body_sha256=claim.body_sha256,
        status=response and response.status,
        answer=response and response.text,
        sealed_secrets=sealed_secrets,
        is_interim=is_interim,
        lease=LEASE,
    )
    return bool(kept)

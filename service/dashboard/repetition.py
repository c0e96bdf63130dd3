"""Forms that create or edit a record: each has a key, and is carried out once.

The hidden field `form_key` is the Idempotency-Key of what the form creates or changes. A second
click, a reload, or Back and the same button get the outcome of the first request. The form of a new
document has its key in its address, so that Back shows the form with the same key.

A secret that was created is stored until the page after the redirect shows it, once. It is
encrypted with a key that is derived from the token of the session, which only the browser has.
"""

import asyncio
import hashlib
import re
import time
from functools import partial
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.typedefs import Handler

from service import json_codec
from service.dashboard.operations import Answer, run_handler, run_operation
from service.dashboard.pages import FORM_KEY, FORM_TOKEN, TEXTS, redirect
from service.dashboard.sessions import SESSION
from service.errors import ClaimLost, Conflict, KeyReused
from service.http import app_keys, idempotency
from service.http.forms import FORM, NO_FORM
from service.http.tokens import make_token
from service.json_types import JsonMapping

#: A repetition waits this long for the first request: longer than a submission takes.
RUNNING_SECONDS = 60
RUNNING_RETRY_SECONDS = 0.1
#: Parameters of addresses: the key of a form, and the key of the form whose secret is shown.
KEY, SHOWN = "form", "made"
#: Fields that differ between two requests for the same effect.
_NOT_COMPARED = (FORM_TOKEN, FORM_KEY, "do")
_KEY = re.compile(r"[A-Za-z0-9_-]{16,64}", re.ASCII)
_READ_KEY = web.RequestKey("form_key", str)
TEXT = TEXTS["repetition"]


def form_key(request: web.Request) -> str:
    """Return the key of the form that is shown or was sent, or a new key."""
    if _READ_KEY not in request:
        text = request.get(FORM, NO_FORM).get(FORM_KEY) or request.query.get(KEY, "")
        request[_READ_KEY] = text if _KEY.fullmatch(text) else make_token()
    return request[_READ_KEY]


def renew_key(request: web.Request) -> None:
    """Give the form that is shown a new key, for entries that differ from those sent before."""
    request[_READ_KEY] = make_token()


def give_key(request: web.Request) -> web.Response | None:
    """Return a redirect to the same page with a new key in its address, or None if it has one."""
    if _KEY.fullmatch(request.query.get(KEY, "")):
        return None
    return redirect(f"{request.path}?{urlencode({**request.query, KEY: make_token()})}")


async def call_once(request: web.Request, method: str, path: str, body: object) -> Answer:
    """Run an operation of the API once for the form of the request, and return its response."""
    return await run_operation(request, method, path, body, partial(_run_once, request))


async def run_once(request: web.Request, handler: Handler) -> Answer:
    """Run a handler of the page once for the form of the request, and return its response."""
    return await _run_once(request, request, handler)


async def find_created(request: web.Request, path: str) -> int | None:
    """Return the id of the record that a POST created for the form of the request, or None."""
    answer = await idempotency.find_answer(request, path, _make_owned_key(request))
    return None if answer is None else int(json_codec.loads_own(answer)["data"]["id"])


def show_secrets(request: web.Request, path: str, **query: object) -> web.Response:
    """Return the redirect to the page that shows the secrets of what the form has created."""
    return redirect(f"{path}?{urlencode({SHOWN: form_key(request), **query})}")


async def take_secrets(request: web.Request, path: str) -> JsonMapping | None:
    """Return the secrets of what a POST to a path created, once. None: the page shows none.

    They are empty if they were shown before.
    """
    key = request.query.get(SHOWN)
    if key is None or request.method != "GET":
        return None
    if not _KEY.fullmatch(key):
        return {}
    sealed = await idempotency.take_secrets(request, path, f"{request[app_keys.KEY_ID]} {key}")
    opened = sealed and request[SESSION].open_secrets(sealed)
    return json_codec.loads(opened) if opened else {}


async def _run_once(page: web.Request, request: web.Request, handler: Handler) -> Answer:
    """Run a handler once for the form of a page, and return its response, also for an error."""
    if SESSION in page:
        request[idempotency.SEAL] = page[SESSION].seal_secrets
    return await run_handler(request, partial(_claim_and_run, page, handler))


async def _claim_and_run(
    page: web.Request, handler: Handler, request: web.Request
) -> web.StreamResponse:
    """Run a handler under the claim on the form's key. A repetition waits for the first request.

    Raises Conflict for a form that was sent with other fields, and after RUNNING_SECONDS.
    """
    key = _make_owned_key(page)
    fields = [pair for pair in page[FORM].items() if pair[0] not in _NOT_COMPARED]
    fields_sha256 = hashlib.sha256(json_codec.encode(fields)).digest()
    until = time.monotonic() + RUNNING_SECONDS
    while True:
        try:
            return await idempotency.run_form(request, handler, key, fields_sha256)
        except KeyReused:
            raise Conflict(TEXT["other_fields"], code=KeyReused.code) from None
        except Conflict as error:
            if error.code != ClaimLost.code:
                raise
            if time.monotonic() >= until:
                raise Conflict(TEXT["running"], code=ClaimLost.code) from None
        await asyncio.sleep(RUNNING_RETRY_SECONDS)


def _make_owned_key(page: web.Request) -> str:
    """Return the form's key for the person or the link that sends it: no other can replay it."""
    owner = page.get(app_keys.KEY_ID) or f"link:{page[app_keys.LINK]}"
    return f"{owner} {form_key(page)}"

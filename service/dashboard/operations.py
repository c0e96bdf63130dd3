"""Calls of the API's operations inside the process, as the company of the session.

The dashboard is a client of the API: it has no rules and no statements of documents of its own. A
call runs the handler of a route with a copy of the page's request. Sign-in, limits and log line are
those of the page.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Self
from urllib.parse import urlencode

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from service import json_codec
from service.dashboard.formats import TEXTS
from service.errors import ApiError
from service.http import app_keys, idempotency
from service.http.error_responses import error_response
from service.http.forms import FORM, NO_FORM
from service.json_types import JsonMapping
from service.offload import offload

#: The field of a form with the ETag of the record that it changes.
ETAG = "etag"
#: The ETag of the record that a button of a page concerns, as the page has shown it.
SHOWN = web.RequestKey("shown_etag", str)
ANSWER_BYTES = web.RequestKey("answer_bytes", int)

#: Calls the handler of an operation, and returns its response, also for an exception.
Run = Callable[[web.Request, Handler], Awaitable["Answer"]]


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def is_success(self) -> bool:
        return self.status < 400

    @property
    def is_replayed(self) -> bool:
        """True for the stored response to an earlier request of the same form."""
        return idempotency.REPLAYED in self.headers

    def require_success(self) -> Self:
        """Return this response. Raises Failed for an error."""
        if not self.is_success:
            raise Failed(self)
        return self

    @cached_property
    def value(self) -> Any:
        """The JSON value of the body, with exact decimals."""
        return json_codec.loads_own(self.body)

    @property
    def message(self) -> str:
        """The message of the body, or what a changed record means to a person."""
        if self.status == 412:
            return TEXTS["errors"]["changed"]
        return str(self.value.get("message", ""))

    @property
    def violations(self) -> dict[str, str]:
        """The messages of violations by the JSON Pointer of the member, the first of each."""
        return find_messages(self.value)


def find_messages(body: JsonMapping) -> dict[str, str]:
    """Return the messages of the violations in the body of an error, the first of each path."""
    found: dict[str, str] = {}
    for each in body.get("errors", []):
        found.setdefault(each["path"], each["message"])
    return found


class Findings(msgspec.Struct):
    """The response of preflight without the document, which is most of it."""

    ready: bool = False
    errors: Sequence[JsonMapping] = ()
    warnings: Sequence[JsonMapping] = ()


class Failed(ApiError):
    """An operation failed, and the page has no better answer than its error."""

    def __init__(self, answer: Answer) -> None:
        body = dict(answer.value)
        super().__init__(body.pop("message", ""), **body)
        self.status = answer.status


async def call(request: web.Request, method: str, target: str, body: object = None) -> Answer:
    """Run an operation and return its response, also that of an error."""
    answer = await run_operation(request, method, target, body, run_handler)
    if answer.headers["Content-Type"].startswith("application/json"):
        await offload(len(answer.body), getattr, answer, "value")
    return answer


async def check(request: web.Request, path: str) -> Findings:
    """Run preflight on the document of a path, and return what it has found."""
    answer = await run_operation(request, "POST", f"{path}/preflight", None, run_handler)
    return await offload(len(answer.body), _findings.decode, answer.body)


async def run_operation(
    request: web.Request, method: str, target: str, body: object, run: Run
) -> Answer:
    """Run the operation of a path, without middleware, and return its response.

    Its request has the values of the page's request, such as the company, but none of its headers.
    It changes only the record that the page has shown, if the page names its ETag. That of a form
    is only for a PUT, because what follows the PUT concerns the changed record.
    """
    content = b"" if body is None else json_codec.encode(body)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(content))}
    tag = request.get(FORM, NO_FORM).get(ETAG) if method == "PUT" else None
    if method != "GET" and (tag := request.get(SHOWN) or tag):
        headers["If-Match"] = tag
    called = request.clone(method=method, rel_url=URL(target, encoded=True), headers=headers)
    match = await request.app.router.resolve(called)
    called[app_keys.BODY], called[app_keys.CALLED] = content, match
    answer = await run(called, match.handler)
    request[ANSWER_BYTES] = answer_bytes(request) + len(answer.body)
    return answer


async def run_handler(request: web.Request, handler: Handler) -> Answer:
    """Call a handler, and return its response, also that of an error."""
    try:
        response = await handler(request)
    except Exception as error:
        response = error_response(error, request)
    assert isinstance(response, web.Response) and isinstance(response.body, bytes)
    return Answer(response.status, response.body, response.headers)


def answer_bytes(request: web.Request) -> int:
    """Return the size of all responses of operations so far, which a page is made from."""
    return request.get(ANSWER_BYTES, 0)


async def read(request: web.Request, path: str, query: Mapping[str, object] | None = None) -> Any:
    """Return the JSON value of a GET. Raises Failed."""
    target = f"{path}?{urlencode(query)}" if query else path
    return (await call(request, "GET", target)).require_success().value


async def read_tagged(request: web.Request, path: str) -> tuple[Any, str]:
    """Return the JSON value of a GET, and the ETag for the form: the one that it was made from.

    Raises Failed.
    """
    answer = (await call(request, "GET", path)).require_success()
    return answer.value, request.get(FORM, NO_FORM).get(ETAG) or answer.headers["ETag"]


async def read_company(request: web.Request) -> JsonMapping:
    return (await read(request, "/api/companies"))["data"]


async def read_if_any(request: web.Request, path: str) -> JsonMapping | None:
    """Return the record of a GET, or None if there is none. Raises Failed for another error."""
    answer = await call(request, "GET", path)
    return None if answer.status == 404 else answer.require_success().value["data"]


def pass_through(answer: Answer) -> web.Response:
    """Return the response of an operation, such as a printed page, as it is."""
    return web.Response(body=answer.body, headers={**answer.headers, "Cache-Control": "no-store"})


_findings = msgspec.json.Decoder(Findings, float_hook=Decimal)

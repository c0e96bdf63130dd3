"""The one gate for what comes in: bodies and ids. Everything past it is JSON of a known shape."""

import asyncio
import re

from aiohttp import web

from service import schema, wire
from service.errors import (
    ApiError,
    BadRequest,
    Invalid,
    NotFound,
    PreconditionFailed,
    TooLarge,
    UnsupportedMediaType,
    fault,
)

BODY_SECONDS = 20  # for the whole of a body; the server itself has no limit
MAX_ID = 2**63 - 1
#: Years that an instant of a document may lie in; PostgreSQL and a smallint can hold them.
FIRST_YEAR, LAST_YEAR = 1990, 2999
_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class RequestTimeout(ApiError):
    status = 408


async def read_body(request, name):
    """The body of a request, held against schemas/<name>.json.

    Returns (value, text): the value with decimals, and its JSON text for PostgreSQL, `{}` when there is no body.
    Raises UnsupportedMediaType, TooLarge, BadRequest for what is no JSON, Invalid for what breaks the schema.
    """
    raw = await read_raw(request)
    if not raw.strip():
        raw = b"{}"
    try:
        value = wire.loads(raw)
    except wire.NotJson as why:
        raise BadRequest(str(why)) from None
    if wire.has_bad_text(raw):
        _refuse_bad_text(value)
    if not isinstance(value, dict):
        raise Invalid([fault("", "type", "The body must be an object.")])
    if faults := schema.faults(name, value):
        raise Invalid(faults)
    return value, raw.decode()


def path_id(request, noun, part="id"):
    """An id from the path. Raises the NotFound of an unknown one for whatever no id can look like."""
    text = request.match_info[part]
    if not _ID.fullmatch(text) or int(text) > MAX_ID:
        raise NotFound(f"{noun} not found")
    return int(text)


def text_id(request, noun, form):
    """As path_id, for an id that is a text of the compiled `form`."""
    text = request.match_info["id"]
    if not form.fullmatch(text):
        raise NotFound(f"{noun} not found")
    return text


def found(value, noun):
    """The value, or the NotFound that an absent one means."""
    if value is None:
        raise NotFound(f"{noun} not found")
    return value


async def refuse_stale(request, conn, statement, **key):
    """Raises PreconditionFailed when If-Match is sent and the record, as `statement` gives it, is another by now."""
    if "If-Match" in request.headers and not wire.matches(request.headers["If-Match"], await statement(conn, **key)):
        raise PreconditionFailed("The record has changed since it was read.")


def document_instant(body, member):
    """The UTC instant of a document's member. Raises Invalid when the calendar does not have it."""
    try:
        at = wire.instant(body[member])
        if FIRST_YEAR <= at.year <= LAST_YEAR:
            return at
    except ValueError:
        pass
    wording = f"{member} must be a day of the calendar, between the years {FIRST_YEAR} and {LAST_YEAR}."
    raise Invalid([fault(f"/{member}", "format", wording)])


async def read_raw(request):
    """The bytes of a body. Raises UnsupportedMediaType, TooLarge and RequestTimeout."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("A compressed body is not taken.")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            raw = await request.read()
    except TimeoutError:
        raise RequestTimeout(f"The body took longer than {BODY_SECONDS} seconds.") from None
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge("The body is larger than is taken.") from None
    if raw and request.content_type != "application/json":
        raise UnsupportedMediaType("The content type must be application/json.")
    return raw


def _refuse_bad_text(value):
    paths = list(wire.bad_text(value))[: schema.MAX_FAULTS]
    if paths:
        wording = "A text must hold neither the character NUL nor half of a surrogate pair."
        raise Invalid([fault(path, "text", wording) for path in paths])

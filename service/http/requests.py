"""The one gate for what comes in: bodies and ids. Everything past it is JSON of a known shape."""

import asyncio
import re
from contextlib import contextmanager
from urllib.parse import parse_qsl

from aiohttp import web

from service import json_codec, schema
from service.errors import (
    BadRequest,
    NotFound,
    PreconditionFailed,
    RequestTimeout,
    TooLarge,
    Unavailable,
    UnsupportedMediaType,
    ValidationError,
    retry_after,
    violation,
)
from service.http import app_keys, responses
from service.offload import offload

MOST_UNREAD_BYTES = 64 * 1024 * 1024  # of all bodies that one process takes in at once
MAX_ID = 2**63 - 1
#: Years that an instant of a document may lie in; PostgreSQL and a smallint can hold them.
FIRST_YEAR, LAST_YEAR = 1990, 2999
BLANK = b" \t\r\n"  # what JSON calls white space
_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,19}", re.ASCII)


class UploadBudget:
    """The bytes of the bodies that are in memory: what is announced, or the most that may come, until the answer is out."""

    def __init__(self, most_of_one):
        self._most_of_one = most_of_one
        self.taken = 0

    @contextmanager
    def one(self, request):
        """Raises Unavailable when there is no room for the body of the request."""
        announced = self._most_of_one if request.content_length is None else request.content_length
        size = min(announced, self._most_of_one)  # what is larger is refused before it is read
        if self.taken + size > MOST_UNREAD_BYTES:
            raise Unavailable(
                "Too many large bodies are under way, please try again.", retry_after(2)
            )
        self.taken += size
        request[app_keys.UPLOAD_BYTES] = size
        try:
            yield
        finally:
            self.taken -= request[app_keys.UPLOAD_BYTES]

    def settle(self, request, size):
        """The body of a request is here, and takes no more than its size."""
        if app_keys.UPLOAD_BYTES in request:
            self.taken -= request[app_keys.UPLOAD_BYTES] - size
            request[app_keys.UPLOAD_BYTES] = size


@web.middleware
async def limit_uploads(request, handler):
    """Within the room that there is for bodies."""
    if not request.body_exists:
        return await handler(request)
    with request.app[app_keys.UPLOAD_BUDGET].one(request):
        return await handler(request)


async def read_body(request, name):
    """The body of a request, held against schemas/<name>.json.

    Returns (value, text): the value with decimals, and its JSON text for PostgreSQL, `{}` when there is no body.
    Raises UnsupportedMediaType, TooLarge, BadRequest for what is no JSON, Invalid for what breaks the schema.
    """
    raw = await read_raw(request)
    if not raw.strip(BLANK):
        raw = b"{}"
    return await offload(len(raw), _judged, raw, name), raw.decode()


def _judged(raw, name):
    """The value of a body's bytes. Raises BadRequest and Invalid."""
    try:
        value = json_codec.loads(raw)
    except json_codec.NotJson as why:
        raise BadRequest(str(why)) from None
    if json_codec.has_invalid_text(raw):
        _refuse_bad_text(value)
    if not isinstance(value, dict):
        raise ValidationError([violation("", "type", "The body must be an object.")])
    if faults := schema.violations(name, value):
        raise ValidationError(faults)
    return value


def header(request, name):
    """The text of a header; of several, all with commas between them, so that none is chosen. None when it is not sent."""
    sent = request.headers.getall(name, ())
    return ", ".join(sent) if sent else None


def read_query(request, names):
    """{name: text} of the parameters that are sent and are among `names`; others are nobody's.

    Raises Invalid for one that is sent twice, or is no UTF-8: aiohttp would choose one, and make up the characters.
    """
    sent = parse_qsl(
        request.rel_url.raw_query_string, keep_blank_values=True, errors="surrogateescape"
    )
    asked, faults = {}, []
    for name, text in sent:
        if name in asked:
            faults.append(violation(name, "unique", f"{name} must not be sent twice."))
        elif name in names:
            asked[name] = text
            if not json_codec.is_valid_text(text):
                faults.append(
                    violation(name, "text", f"{name} must be UTF-8 without the character NUL.")
                )
    if faults:
        raise ValidationError(faults[: schema.MAX_FAULTS])
    return asked


def read_integer(asked, name, low, high, default, faults):
    """The whole number of a query's parameter, `default` where it is not sent or adds to the faults."""
    text = asked.get(name, str(default))
    if _WHOLE.fullmatch(text) and low <= int(text) <= high:
        return int(text)
    faults.append(violation(name, "range", f"{name} must be a whole number from {low} to {high}."))
    return default


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


def or_not_found(value, noun):
    """The value, or the NotFound that an absent one means."""
    if value is None:
        raise NotFound(f"{noun} not found")
    return value


async def check_if_match(request, conn, statement, **key):
    """Raises PreconditionFailed when If-Match is sent and the record, as `statement` gives it, is another by now."""
    if "If-Match" in request.headers and not responses.etag_matches(
        request.headers["If-Match"], await statement(conn, **key)
    ):
        raise PreconditionFailed("The record has changed since it was read.")


def document_instant(body, member):
    """The UTC instant of a document's member. Raises Invalid when the calendar does not have it."""
    try:
        at = json_codec.parse_instant(body[member])
        if FIRST_YEAR <= at.year <= LAST_YEAR:
            return at
    except ValueError:
        pass
    wording = (
        f"{member} must be a day of the calendar, between the years {FIRST_YEAR} and {LAST_YEAR}."
    )
    raise ValidationError([violation(f"/{member}", "format", wording)])


async def read_raw(request):
    """Return the bytes of the request body. Raises UnsupportedMediaType, TooLarge and RequestTimeout.

    A body of white space counts as no body, so that its content type does not matter.
    """
    if (header(request, "Content-Encoding") or "identity").lower() != "identity":
        raise UnsupportedMediaType("A compressed body is not taken.")
    config = request.app[app_keys.CONFIG]
    if (request.content_length or 0) > config.max_body_bytes:  # before a byte of it is waited for
        raise TooLarge("The body is larger than is taken.")
    seconds = config.body_timeout.total_seconds()
    try:
        async with asyncio.timeout(seconds):  # for the whole of it; the server itself has no limit
            raw = await request.read()
    except TimeoutError:
        raise RequestTimeout(f"The body took longer than {seconds:g} seconds.") from None
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge("The body is larger than is taken.") from None
    request.app[app_keys.UPLOAD_BUDGET].settle(request, len(raw))
    if request.content_type != "application/json" and raw.strip(BLANK):
        raise UnsupportedMediaType("The content type must be application/json.")
    return raw


def _refuse_bad_text(value):
    paths = list(json_codec.invalid_text(value))[: schema.MAX_FAULTS]
    if paths:
        wording = "A text must hold neither the character NUL nor half of a surrogate pair."
        raise ValidationError([violation(path, "text", wording) for path in paths])

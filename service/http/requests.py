"""Reading of requests: bodies, query parameters, path parameters and headers, all validated."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import islice
from typing import TypeVar
from urllib.parse import parse_qsl

from aiohttp import web

from service import json_codec, schema
from service.db.connections import Connection
from service.documents import codes
from service.documents.doubts import Doubt
from service.documents.optional_members import read_stored_body
from service.errors import (
    MAX_VIOLATIONS,
    BadRequest,
    NotFound,
    PreconditionFailed,
    RequestTimeout,
    TooLarge,
    UnsupportedMediaType,
    ValidationError,
    Violation,
    reject,
    violation,
)
from service.http import app_keys, responses
from service.http.limits import UPLOAD
from service.json_types import JsonObject, Row
from service.offload import offload

Value = TypeVar("Value")

MAX_ID = 2**63 - 1
WHITE_SPACE = b" \t\r\n"  # of JSON
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NOT_JSON_TYPE = "The content type must be application/json."
TOO_SLOW = "The request body was not received within {:g} seconds."
TOO_LARGE = "The request body exceeds the limit of {} bytes."
CHANGED = "The record has changed since it was read."
_ID = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


async def read_body(request: web.Request, name: str) -> JsonObject:
    """Return the value of the request body, validated by schemas/<name>.json.

    Its numbers are decimals. No body counts as `{}`, and a byte order mark is ignored (RFC 8259,
    section 8.1).
    Raises BadRequest for invalid JSON, ValidationError for violations of the schema, and the errors
    of read_raw.
    """
    raw = _get_json(await read_raw(request))
    # Requests that have arrived together are all received before the first body is checked. The
    # same code then runs several times in a row, from the caches of the processor.
    await asyncio.sleep(0)
    value, warnings = await offload(len(raw), _parse_body, raw, name)
    request[app_keys.WARNINGS] = warnings  # without those of an attempt that was rolled back
    return value


def get_text(request: web.Request) -> str:
    """Return the JSON text of the body that read_body has validated, for PostgreSQL."""
    return _get_json(request[app_keys.BODY]).decode()


def _get_json(raw: bytes) -> bytes:
    raw = raw.removeprefix(BYTE_ORDER_MARK)
    return raw if raw.strip(WHITE_SPACE) else b"{}"


def _parse_body(raw: bytes, name: str) -> tuple[JsonObject, list[dict[str, str]]]:
    """Return the value of a request body, and its warnings. Raises BadRequest, ValidationError."""
    # Without them there is no NUL, and no unpaired surrogate.
    has_code_points = json_codec.has_code_points(raw)
    try:
        json_codec.check_count(raw)
        value = json_codec.parse_any_depth(raw)
        # Nearly all bodies return here. The schema limits their depth.
        if not has_code_points and schema.has_only_known(name, value):
            return value, []
        json_codec.check_depth(value)
    except json_codec.NotJson as error:
        raise BadRequest(str(error), code="invalid_json") from None
    if has_code_points:
        _reject_invalid_text(value)
    if not isinstance(value, dict):
        raise ValidationError([violation("", "type", "The request body must be an object.")])
    if violations := schema.find_violations(name, value):
        raise ValidationError(_add_unknown_codes(violations, name, value))
    return value, schema.find_stored_only(name, value)


async def warn_of_removed(request: web.Request, stored: str, changes: JsonObject) -> None:
    """Add a warning for each member that an update removes, because it replaces whole objects.

    `stored` is the JSON text that read_stored_body reads.
    """
    objects = {name: value for name, value in changes.items() if isinstance(value, dict)}
    if objects:
        removed = await offload(
            len(stored), lambda: schema.find_removed(read_stored_body(stored), objects)
        )
        _add_warnings(request, removed)


def warn_of_doubts(request: web.Request, doubts: Iterable[Doubt], row: Row) -> None:
    """Add a warning for each member of a document that is probably wrong.

    `row` has the tax registrations of the company.
    """
    company = dict(row)
    found = [each for each in doubts if each.holds_for(company)]
    _add_warnings(request, [{"path": each.path, "message": each.message} for each in found])


def _add_warnings(request: web.Request, found: list[dict[str, str]]) -> None:
    if found:
        request[app_keys.WARNINGS] = [*request.get(app_keys.WARNINGS, ()), *found]


#: Start of a schema's name -> the places of codes in its bodies.
CODE_PLACES = {
    "invoice": codes.DOCUMENT,
    "adjustment_note": codes.DOCUMENT,
    "einvoice_request": codes.PARTY,
    "company": codes.COMPANY,
}


def _add_unknown_codes(
    violations: list[Violation], name: str, value: JsonObject
) -> list[Violation]:
    """Return violations of a schema with those of the code tables, so that all are found at once.

    A member with a violation gets no second one. The entries of arrays that are too long are not
    judged.
    """
    places = CODE_PLACES.get(name.rpartition("_")[0])
    if any(each["rule"] == "maxItems" for each in violations):
        return violations
    known = {each["path"] for each in violations}
    further = codes.search_violations(value, places) if places else []
    return [*violations, *(each for each in further if each["path"] not in known)]


def header(request: web.BaseRequest, name: str) -> str | None:
    """Return the text of a header, or None if it is absent.

    Repeated headers are joined by commas, so that none of them is silently preferred.
    """
    sent = request.headers.getall(name, ())
    return ", ".join(sent) if sent else None


def reject_parameters(request: web.Request, ignored: Collection[str]) -> None:
    """Raise ValidationError for query parameters of an operation that reads none."""
    if not request.rel_url.raw_query_string:
        return
    violations: list[Violation] = []
    read_query(request, ignored, violations)
    reject(violations)


def name_family(name: str) -> str:
    """Return `family[]` for a query parameter `family[key]`, such as `metadata[order]`."""
    family, bracket, _ = name.partition("[")
    return f"{family}[]" if bracket and name.endswith("]") else name


def read_query(
    request: web.Request, names: Collection[str], violations: list[Violation]
) -> dict[str, str]:
    """Return the query parameters with these names as {name: text}.

    A name `family[]` includes all parameters `family[key]`.

    Appends to `violations`, up to MAX_VIOLATIONS, for a parameter that is unknown, repeated or not
    UTF-8: a misspelt filter would have no effect, and aiohttp would choose one value, or replace
    bytes.
    """
    query: dict[str, str] = {}
    found: dict[str, Violation] = {}
    for name, text in parse_qsl(
        request.rel_url.raw_query_string, keep_blank_values=True, errors="surrogateescape"
    ):
        path = json_codec.replace_invalid_text(name)
        if path in found or len(found) == MAX_VIOLATIONS:
            continue
        if name not in names and name_family(name) not in names:
            message = schema.describe_unknown("query parameter", path, names)
            found[path] = violation(path, "unknown", message)
        elif name in query:
            found[path] = violation(path, "unique", f"{path} must not be sent twice.")
        elif json_codec.is_valid_text(name + text):
            query[name] = text
        else:
            message = f"{path} must be UTF-8 without NUL characters."
            found[path] = violation(path, "text", message)
    violations += found.values()
    return query


def read_path_part(request: web.Request, part: str) -> str:
    """Return the text of a part of the operation's path."""
    return request.get(app_keys.CALLED, request.match_info)[part]


def read_path_id(request: web.Request, noun: str, part: str = "id") -> int:
    """Return an id from the path.

    Raises NotFound, in the same words as for an unknown id, if the text is not a valid id.
    """
    text = read_path_part(request, part)
    if not _ID.fullmatch(text) or int(text) > MAX_ID:
        raise not_found(noun)
    return int(text)


def or_not_found(value: Value | None, noun: str) -> Value:
    if value is None:
        raise not_found(noun)
    return value


def not_found(noun: str) -> NotFound:
    return NotFound(f"{noun} not found")


async def check_if_match(
    request: web.Request,
    conn: Connection,
    statement: Callable[..., Awaitable[str | None]],
    **key: int | str,
) -> None:
    """Raise PreconditionFailed if If-Match is sent and does not match the record.

    `statement` returns the JSON text of the record, or None if there is none.
    """
    if "If-Match" not in request.headers:
        return
    text = await statement(conn, **key) or ""
    tag = responses.etag(text.encode())
    if not responses.tag_matches(request.headers["If-Match"], tag):
        raise PreconditionFailed(CHANGED)


async def read_raw(request: web.Request) -> bytes:
    """Return the bytes of the request body.

    Raises UnsupportedMediaType, TooLarge and RequestTimeout. A body of white space counts as no
    body, so that its content type does not matter.
    """
    raw = await receive_body(request, request.app[app_keys.CONFIG].max_body_bytes)
    if request.content_type != "application/json" and raw.strip(WHITE_SPACE):
        raise UnsupportedMediaType(NOT_JSON_TYPE)
    return raw


async def receive_body(request: web.Request, most: int) -> bytes:
    """Return the bytes of the request body, of which there may be `most`.

    Raises UnsupportedMediaType for a compressed body, TooLarge, RequestTimeout and Busy.
    """
    if (header(request, "Content-Encoding") or "identity").lower() != "identity":
        raise UnsupportedMediaType("Compressed request bodies are not supported.")
    config = request.app[app_keys.CONFIG]
    most = min(most, config.max_body_bytes)
    # Reject a declared length before any byte is read.
    if (request.content_length or 0) > most:
        raise TooLarge(TOO_LARGE.format(most))
    if app_keys.BODY not in request:
        request[app_keys.BODY] = await _receive(request, most, config.body_timeout)
    return request[app_keys.BODY]


async def _receive(request: web.Request, most: int, seconds: float) -> bytes:
    """Return the request body. Raises RequestTimeout: aiohttp has no limit for the whole body."""
    if request.content.is_eof():  # It has arrived together with the head.
        return await _read_parts(request, most)
    try:
        async with asyncio.timeout(seconds):
            return await _read_parts(request, most)
    except TimeoutError:
        raise RequestTimeout(TOO_SLOW.format(seconds)) from None


async def _read_parts(request: web.Request, most: int) -> bytes:
    """Return the request body, counted as it arrives. Raises TooLarge and Busy."""
    parts: list[bytes] = []
    size = 0
    while part := await request.content.readany():
        size += len(part)
        if size > most:
            raise TooLarge(TOO_LARGE.format(most))
        request[UPLOAD].add(len(part))
        parts.append(part)
    return b"".join(parts)


def _reject_invalid_text(value: object) -> None:
    paths = list(islice(json_codec.find_invalid_text(value), MAX_VIOLATIONS))
    if paths:
        message = "Strings must not contain NUL characters or unpaired surrogates."
        raise ValidationError([violation(path, "text", message) for path in paths])

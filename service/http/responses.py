"""JSON responses, entity tags and download headers."""

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache

from aiohttp import web

from service.http import app_keys
from service.json_codec import encode

_GZIP = re.compile(r"(?i)\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")
JSON = {"Content-Type": "application/json; charset=utf-8"}


def json_response(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(body=encode(value), status=status, headers={**JSON, **(headers or {})})


def json_text_response(
    text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(body=text.encode(), status=status, headers={**JSON, **(headers or {})})


def record_response(request: web.Request, text: str, tagged: str | None = None) -> web.Response:
    """Return a record with its ETag, or a 304 if If-None-Match matches.

    `tagged` is the part of the record that the tag depends on, by default all of it.
    """
    body = text.encode()
    tag = etag(tagged.encode() if tagged else body)
    if "If-None-Match" in request.headers and tag_matches(request.headers["If-None-Match"], tag):
        return web.Response(status=304, headers={"ETag": tag})
    return web.Response(body=body, headers={**JSON, "ETag": tag})


def compress_fixed(request: web.Request, response: web.Response) -> web.Response:
    """Compress a response that is the same for everyone, once, if the client accepts gzip.

    Responses with secrets or form tokens are not compressed: their length would reveal parts of
    them.
    """
    if isinstance(response.body, bytes) and accepts_gzip(request):
        response.body = _compress(response.body)
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    return response


def accepts_gzip(request: web.Request) -> bool:
    return _GZIP.search(request.headers.get("Accept-Encoding", "")) is not None


@lru_cache(maxsize=32)
def _compress(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def tag_matches(header: str, tag: str) -> bool:
    """Return whether an If-Match or If-None-Match header names the entity tag, or is `*`."""
    tags = [each.strip().removeprefix("W/") for each in header.split(",")]
    return "*" in tags or tag in tags


def attachment_headers(filename: str) -> dict[str, str]:
    """Return the header of a download. Replaces special characters of the file name."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", filename)
    return {"Content-Disposition": f'attachment; filename="{safe}"'}


def success_response(
    request: web.Request, message: str, status: int = 200, **members: object
) -> web.Response:
    """Return `{"success": true, "message": …}` with further members such as `data`.

    `warnings` of the request, if there are any, are added: about members that are stored without
    effect, were removed or are probably wrong.
    """
    body = {"success": True, "message": message, **members}
    warnings = request.get(app_keys.WARNINGS)
    return json_response({**body, "warnings": warnings} if warnings else body, status)

"""JSON responses, entity tags and the headers of downloads."""

import hashlib
import re

from aiohttp import web

from service.json_codec import dumps


def json_response(value, status=200, headers=None):
    """A response of ours, from Python values."""
    return json_text_response(dumps(value), status, headers)


def json_text_response(text, status=200, headers=None):
    """A response from JSON text that PostgreSQL made."""
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def record_response(request, text):
    """One record with its ETag; 304 when the client has it already."""
    headers = {"ETag": etag(text)}
    if etag_matches(request.headers.get("If-None-Match", ""), text):
        return web.Response(status=304, headers=headers)
    return json_text_response(text, headers=headers)


def etag(text):
    """A strong validator of a record's JSON text."""
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def etag_matches(header, text):
    """Whether an If-Match or If-None-Match names the record, or any."""
    names = [name.strip().removeprefix("W/") for name in header.split(",")]
    return "*" in names or etag(text) in names


def attachment_headers(filename):
    """The header of a file to download; the name keeps letters, digits, dot, dash and underscore."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", filename)
    return {"Content-Disposition": f'attachment; filename="{safe}"'}

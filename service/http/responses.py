"""JSON responses, entity tags and the headers of downloads."""

import hashlib
import re

from aiohttp import web

from service.json_codec import dumps


def answer(value, status=200, headers=None):
    """A response of ours, from Python values."""
    return passed(dumps(value), status, headers)


def passed(text, status=200, headers=None):
    """A response from JSON text that PostgreSQL made."""
    return web.Response(text=text, status=status, headers=headers, content_type="application/json")


def record(request, text):
    """One record with its ETag; 304 when the client has it already."""
    headers = {"ETag": etag(text)}
    if matches(request.headers.get("If-None-Match", ""), text):
        return web.Response(status=304, headers=headers)
    return passed(text, headers=headers)


def etag(text):
    """A strong validator of a record's JSON text."""
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def matches(header, text):
    """Whether an If-Match or If-None-Match names the record, or any."""
    names = [name.strip().removeprefix("W/") for name in header.split(",")]
    return "*" in names or etag(text) in names


def attachment(filename):
    """The header of a file to download; the name keeps letters, digits, dot, dash and underscore."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", filename)
    return {"Content-Disposition": f'attachment; filename="{safe}"'}

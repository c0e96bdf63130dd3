"""Answers that are too large to hold: written piece by piece."""

import logging

from aiohttp import web

from service import wire

log = logging.getLogger(__name__)


async def stream_array(request, filename, pieces):
    """A JSON array as a file to download, from pieces that each hold some of its entries.

    The head goes out at once. When a piece fails the connection is broken: a short array that looks whole
    would be taken for everything.
    """
    response = web.StreamResponse(headers=wire.attachment(filename))
    response.content_type = "application/json"
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        await response.write(b"[")
        separator = ""
        async for piece in pieces:
            await response.write((separator + piece).encode())
            separator = ","
        await response.write(b"]")
        await response.write_eof()
    except ConnectionResetError:
        pass  # the client went away
    except Exception:
        log.exception("request_id=%s: an export broke off", request[wire.REQUEST_ID])
        request.transport.abort()
    return response

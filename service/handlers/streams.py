"""Answers that are too large to hold: written piece by piece."""

import logging

from aiohttp import web

from service import wire

log = logging.getLogger(__name__)


EXPORT_BATCH = 500
LAST_ID = 2**63 - 1


async def export_batches(request, statement):
    """Pieces of an export, newest first. A batch is one transaction: a client that reads slowly holds no connection
    and no snapshot meanwhile."""
    company, before = request[wire.COMPANY], LAST_ID
    while before is not None:
        async with request.app[wire.DATABASE].reading(company) as conn:
            row = await statement(conn, company_id=company, before=before, most=EXPORT_BATCH)
        if row["text"]:
            yield row["text"]
        before = row["last"]


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

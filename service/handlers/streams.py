"""Answers that are too large to hold: written piece by piece."""

import logging
from contextlib import contextmanager

from aiohttp import web

from service import wire
from service.errors import TooManyRequests, retry_after, traced

log = logging.getLogger(__name__)


FIRST_BATCH = 20
LARGEST_BATCH = 500
BATCH_CHARACTERS = 1_000_000  # of text, which is held while the client takes it
EXPORTS_AT_ONCE = 16  # of all companies in one process
OF_ONE_COMPANY = 4
TOO_MANY = "Too many exports are under way, please try again when one of them has ended."
LAST_ID = 2**63 - 1


async def export_batches(request, statement):
    """Pieces of an export, newest first. A batch is one transaction: a client that reads slowly holds no connection
    and no snapshot meanwhile."""
    company, before, most = request[wire.COMPANY], LAST_ID, FIRST_BATCH
    while before is not None:
        async with request.app[wire.DATABASE].reading(company) as conn:
            row = await statement(conn, company_id=company, before=before, most=most)
        if row["text"]:
            yield row["text"]
            most = max(1, min(LARGEST_BATCH, most * BATCH_CHARACTERS // len(row["text"])))
        before = row["last"]


@contextmanager
def _turn(request):
    """One of the exports that may be under way. Raises TooManyRequests when there are as many as may be."""
    under_way, company = request.app[wire.EXPORTS], request[wire.COMPANY]
    if len(under_way) >= EXPORTS_AT_ONCE or under_way.count(company) >= OF_ONE_COMPANY:
        raise TooManyRequests(TOO_MANY, retry_after(5))
    under_way.append(company)
    try:
        yield
    finally:
        under_way.remove(company)


async def stream_array(request, filename, pieces):
    """A JSON array as a file to download, from pieces that each hold some of its entries.

    The head goes out at once. When a piece fails the connection is broken: a short array that looks whole
    would be taken for everything. Raises TooManyRequests while too many are under way.
    """
    with _turn(request):
        return await _streamed(request, filename, pieces)


async def _streamed(request, filename, pieces):
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
    except Exception as error:
        if request.transport is not None:  # else the client has gone, and nobody takes it for everything
            log.error("request_id=%s: an export broke off\n%s", request[wire.REQUEST_ID], traced(error))
            request.transport.abort()
    return response

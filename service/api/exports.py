"""Answers that are too large to hold: written piece by piece."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, contextmanager

from aiohttp import web

from service.errors import TooManyRequests, Unavailable, format_traceback, retry_after
from service.http import app_keys, responses

log = logging.getLogger(__name__)

FIRST_BATCH = 20
LARGEST_BATCH = 500
BATCH_CHARACTERS = 1_000_000  # of text, which is held while the client takes it
LAST_ID = 2**63 - 1
# At once in one process; between two batches one holds its text, and no connection
MOST_EXPORTS = 16
EXPORT_AGAIN_SECONDS = 5
PIECE_CHARACTERS = 64 * 1024
PIECE_SECONDS = 10  # for a client to take so much; a slower one would keep the others waiting


class Exports:
    """The exports under way in this process: one of each kind of a company, and MOST_EXPORTS in all."""

    def __init__(self):
        self._under_way = set()  # (company, path)

    @contextmanager
    def one(self, company, path=""):
        """Raises TooManyRequests for a company that has one under way, Unavailable while others have all places."""
        if (company, path) in self._under_way:
            raise TooManyRequests(
                "An export of this company is under way.", retry_after(EXPORT_AGAIN_SECONDS)
            )
        if len(self._under_way) >= MOST_EXPORTS:
            raise Unavailable(
                "Other exports are under way, please try again.", retry_after(EXPORT_AGAIN_SECONDS)
            )
        self._under_way.add((company, path))
        try:
            yield
        finally:
            self._under_way.discard((company, path))


async def export_batches(request, statement):
    """Pieces of an export, newest first. A batch is one transaction: a client that reads slowly holds no connection
    and no snapshot meanwhile."""
    company, before, most = request[app_keys.COMPANY], LAST_ID, FIRST_BATCH
    while before is not None:
        async with request.app[app_keys.DATABASE].reading(company) as conn:
            row = await statement(
                conn, company_id=company, before=before, most=most, budget=BATCH_CHARACTERS
            )
        if row["text"]:
            yield row["text"]
            most = max(1, min(LARGEST_BATCH, most * BATCH_CHARACTERS // len(row["text"])))
        before = row["last"]


async def stream_array(
    request: web.Request, filename: str, pieces: AsyncIterator[str]
) -> web.StreamResponse:
    """Stream a JSON array as a file to download, from pieces that each hold some of its entries.

    Raises TooManyRequests and Unavailable, as Exports does. After that, see stream_text.
    """
    response = web.StreamResponse(headers=responses.attachment_headers(filename))
    response.content_type = "application/json"
    if request.method == "HEAD":
        return await stream_text(request, response, pieces)
    with request.app[app_keys.EXPORTS].one(request[app_keys.COMPANY], request.path):
        return await stream_text(request, response, _array(pieces))


async def stream_text(
    request: web.Request, response: web.StreamResponse, pieces: AsyncIterator[str]
) -> web.StreamResponse:
    """Send the head of a response at once, then the pieces of its body.

    When a piece fails, or the client takes too little, the connection is broken: a short body that looks whole would be
    taken for everything.
    """
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                await _write(response, piece)
        await response.write_eof()
    except (
        Exception
    ) as error:  # also when the client went away, which nobody can tell from a database that did
        log.error(
            "request_id=%s: a streamed response broke off\n%s",
            request[app_keys.REQUEST_ID],
            format_traceback(error),
        )
        if request.transport is not None:
            request.transport.abort()
    return response


async def _array(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield the text of a JSON array from pieces that each hold some of its entries."""
    start = "["
    async for piece in pieces:
        yield start + piece
        start = ","
    yield "[]" if start == "[" else "]"


async def _write(response: web.StreamResponse, piece: str) -> None:
    """Write a piece in small parts. Raises TimeoutError if the client does not take one within PIECE_SECONDS."""
    for start in range(0, len(piece), PIECE_CHARACTERS):
        async with asyncio.timeout(PIECE_SECONDS):
            await response.write(piece[start : start + PIECE_CHARACTERS].encode())

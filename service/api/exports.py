"""Streaming of responses that are too large for memory."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from service.db.statements import Run, Statement
from service.documents.optional_members import join_exports
from service.errors import format_traceback
from service.http import app_keys
from service.http.access import read_own

log = logging.getLogger(__name__)

FIRST_BATCH = 20
LARGEST_BATCH = 500
BATCH_CHARACTERS = 1_000_000  # of text, which is in memory while the client reads it
FULL_BATCHES = 16  # exports of a process; more of them share this memory
LAST_ID = 2**63 - 1
PIECE_BYTES = 64 * 1024
PIECE_SECONDS = 10  # for a client to read a piece


async def read_batches(request: web.Request, statement: Statement) -> AsyncGenerator[str, None]:
    """Yield the text of a JSON array of documents, newest first, in batches of a statement.

    Each batch is one transaction: a slow client holds neither a connection nor a snapshot. The next
    batch is read while the client reads the previous one.
    """
    exports = request.app[app_keys.LIMITS].exports

    def read(before: int, most: int) -> Run:
        budget = BATCH_CHARACTERS * FULL_BATCHES // max(FULL_BATCHES, exports.running())
        return read_own(request, statement, budget=budget, before=before, most=most)

    most, start = FIRST_BATCH, 1  # The first batch begins without a comma.
    rows = await read(LAST_ID, most)
    yield "["
    while rows:
        size = sum(len(row["export"]) for row in rows)
        most = max(1, min(LARGEST_BATCH, most * BATCH_CHARACTERS // size))
        next_rows = asyncio.create_task(read(rows[-1]["id"], most))
        try:
            await asyncio.sleep(0)  # PostgreSQL begins while this batch is written.
            yield join_exports(rows)[start:]
            start, rows = 0, await next_rows
        finally:
            next_rows.cancel()
    yield "]"


async def stream_export(
    request: web.Request, response: web.StreamResponse, pieces: AsyncGenerator[str, None]
) -> web.StreamResponse:
    """Stream a file from pieces of its text, within the limits of exports.

    Raises TooManyRequests if the company has the same export running, and Unavailable if the
    process has too many. After that, see stream_text.
    """
    if request.method == "HEAD":
        return await stream_text(request, response, pieces)
    company, app = request[app_keys.COMPANY], request.app
    async with (
        app[app_keys.LIMITS].company_exports.one((company, request.path)),
        app[app_keys.LIMITS].exports.one(),
    ):
        return await stream_text(request, response, pieces)


async def stream_text(
    request: web.Request, response: web.StreamResponse, pieces: AsyncGenerator[str, None]
) -> web.StreamResponse:
    """Send the head of a response at once, then the pieces of its body.

    If a piece fails or the client reads too slowly, the connection is aborted: a truncated body
    must not look complete. A page that calls an operation gets the whole body.
    """
    if app_keys.CALLED in request:
        async with aclosing(pieces):
            body = "".join([piece async for piece in pieces]).encode()
        return web.Response(body=body, headers=response.headers)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                await _write(response, piece)
        await response.write_eof()
    except Exception as error:  # a closed connection may be the client's or PostgreSQL's
        log.error("a streamed response was aborted\n%s", format_traceback(error))
        if request.transport is not None:
            request.transport.abort()
    return response


async def _write(response: web.StreamResponse, piece: str) -> None:
    """Write a piece in small parts. Raises TimeoutError if one takes over PIECE_SECONDS."""
    raw = memoryview(piece.encode())
    for start in range(0, len(raw), PIECE_BYTES):
        async with asyncio.timeout(PIECE_SECONDS):
            await response.write(raw[start : start + PIECE_BYTES])

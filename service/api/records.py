"""Get, export and list records of a resource.

A small page of a list is one response. A large one is streamed in parts, so that it is never in
memory as a whole.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
from aiohttp import web

from service import json_codec
from service.api.exports import stream_text
from service.api.pagination import Page
from service.db.statements import Statement
from service.errors import Unavailable, retry_after
from service.http import app_keys, responses
from service.http.requests import or_not_found, read_path_id

#: Bytes of records that one statement returns. A larger page is streamed.
BUDGET_BYTES = 1_000_000
PART_CHARACTERS = 250_000  # of a streamed page, more only if a single record is larger
MOST_PARTS = 4  # in memory, per company and process
PART_SECONDS = 60  # for which a part may wait for memory
SEPARATOR = ", \n "  # between the records of an array, as PostgreSQL writes it


@dataclass(frozen=True, slots=True)
class Source:
    """The statements of a list: an unfiltered page, a search, and a single record of the list."""

    page: Statement
    search: Statement
    record: Statement


class Parts:
    """Limits the number of parts of streamed pages in memory per company."""

    def __init__(self) -> None:
        self._semaphores: dict[int, asyncio.Semaphore] = {}
        self._users: dict[int, int] = {}  # company -> parts in memory or waiting

    @asynccontextmanager
    async def one(self, company: int) -> AsyncIterator[None]:
        """Wait for memory for one part. Raises Unavailable after PART_SECONDS."""
        semaphore = self._semaphores.setdefault(company, asyncio.Semaphore(MOST_PARTS))
        self._users[company] = self._users.get(company, 0) + 1
        try:
            try:
                async with asyncio.timeout(PART_SECONDS):
                    await semaphore.acquire()
            except TimeoutError:
                raise Unavailable(
                    "Other large pages of the company are being sent, please try again.",
                    retry_after(5),
                ) from None
            try:
                yield
            finally:
                semaphore.release()
        finally:
            self._users[company] -= 1
            if not self._users[company]:
                del self._users[company], self._semaphores[company]


PARTS = web.AppKey("parts", Parts)


async def get_record(request: web.Request, statement: Statement, noun: str) -> web.Response:
    """Return the record of the path's id. `statement` returns its JSON text."""
    company, record_id = request[app_keys.COMPANY], read_path_id(request, noun)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        record = await statement(conn, company_id=company, id=record_id)
    return responses.record_response(request, or_not_found(record, noun))


async def export_record(request: web.Request, statement: Statement, noun: str) -> web.Response:
    """Return the record of the path's id as a file, which is named after its full code.

    `statement` returns the columns export and full_code.
    """
    company, record_id = request[app_keys.COMPANY], read_path_id(request, noun)
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        row = or_not_found(await statement(conn, company_id=company, id=record_id), noun)
    prefix = noun.lower().replace(" ", "-")
    return responses.json_text_response(
        row["export"], headers=responses.attachment_headers(f"{prefix}-{row['full_code']}.json")
    )


async def list_page(request: web.Request, page: Page, source: Source) -> web.StreamResponse:
    """Return a page of a list.

    A page of more than BUDGET_BYTES is streamed: its records are read by id, one part at a time in
    a transaction of its own. A record that is deleted meanwhile is left out. If a part fails, the
    connection is aborted.
    """
    row = await _read_page(request, page, source)
    head = f'{{"meta":{json_codec.dumps(page.meta(row["total"]))},"data":'
    if row["ids"] is None:
        return responses.json_text_response(f"{head}{row['data'] or '[]'}}}")
    response = web.StreamResponse()
    response.content_type, response.charset = "application/json", "utf-8"
    return await stream_text(
        request, response, _large_page(request, head, source.record, row["ids"])
    )


async def _read_page(request: web.Request, page: Page, source: Source) -> asyncpg.Record:
    """Return the row of the page's statement: total, and data or ids."""
    company, database = request[app_keys.COMPANY], request.app[app_keys.DATABASE]
    window = {
        "company_id": company,
        "per_page": page.per_page,
        "offset": page.offset,
        "budget": BUDGET_BYTES,
    }
    if page.is_plain:
        async with database.paging(company) as conn:
            return await source.page(conn, **window)
    async with database.searching(company) as conn:
        return await source.search(conn, **window, **page.filters, sort=page.sort)


async def _large_page(
    request: web.Request, head: str, record: Statement, ids: list[int]
) -> AsyncGenerator[str, None]:
    """Yield the text of a page in parts.

    While the caller writes a part, its memory is reserved and no connection is held.
    """
    company, place, separator = request[app_keys.COMPANY], 0, ""
    yield f"{head}["
    while place < len(ids):
        async with request.app[PARTS].one(company):
            records, place = await _read_part(request, record, ids, place)
            if records:
                yield separator + SEPARATOR.join(records)
                separator = SEPARATOR
            del records
    yield "]}"


async def _read_part(
    request: web.Request, record: Statement, ids: list[int], place: int
) -> tuple[list[str], int]:
    """Return the records from `place` on, about PART_CHARACTERS, and the place after them."""
    company, length = request[app_keys.COMPANY], 0
    records: list[str] = []
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        while place < len(ids) and length < PART_CHARACTERS:
            text = await record(conn, company_id=company, id=ids[place])
            place += 1
            if text is not None:
                records.append(text)
                length += len(text)
    return records, place

"""One page of a list: in one response where it is small, else streamed in parts, so that no page is held as a whole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from service import json_codec
from service.api.exports import stream_text
from service.api.pagination import Page
from service.db.statements import Statement
from service.errors import Unavailable, retry_after
from service.http import app_keys, responses

# Of the records of a page that one statement returns; a larger page is streamed
BUDGET_BYTES = 1_000_000
PART_CHARACTERS = 250_000  # of a streamed page; a part is larger only where a single record is
MOST_PARTS = 4  # of one company that are held at once in one process
PART_SECONDS = 60  # how long a part may wait for its turn
SEPARATOR = ", \n "  # as PostgreSQL writes it between the records of an array


@dataclass(frozen=True, slots=True)
class Source:
    """The statements of one list: a plain page, one that is filtered or sorted, and a record as the list has it."""

    page: Statement
    search: Statement
    record: Statement


class Parts:
    """Bounds the parts of streamed pages that are in memory, per company."""

    def __init__(self) -> None:
        self._semaphores: dict[int, asyncio.Semaphore] = {}
        self._users: dict[int, int] = {}  # company -> parts that are held or waited for

    @asynccontextmanager
    async def one(self, company: int) -> AsyncIterator[None]:
        """Wait for room for one part. Raises Unavailable if there is none for PART_SECONDS."""
        semaphore = self._semaphores.setdefault(company, asyncio.Semaphore(MOST_PARTS))
        self._users[company] = self._users.get(company, 0) + 1
        try:
            try:
                async with asyncio.timeout(PART_SECONDS):
                    await semaphore.acquire()
            except TimeoutError:
                raise Unavailable(
                    "Other large pages of the company are under way.", retry_after(5)
                ) from None
            try:
                yield
            finally:
                semaphore.release()
        finally:
            self._users[company] -= 1
            if not self._users[company]:
                del self._users[company], self._semaphores[company]


async def list_page(request: web.Request, page: Page, source: Source) -> web.StreamResponse:
    """Return the list that a Page asks for.

    A page of more than BUDGET_BYTES is streamed: its records are read by id, a part at a time, each in a transaction of
    its own. A record that is deleted meanwhile is left out. If a part fails, the connection is broken.
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


async def _read_page(request, page, source):
    """The row of the page's statement: total, and data or ids."""
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
) -> AsyncIterator[str]:
    """Yield the text of a page in parts. While the caller writes a part, its room is taken and no connection is held."""
    company, place, separator = request[app_keys.COMPANY], 0, ""
    yield f"{head}["
    while place < len(ids):
        async with request.app[app_keys.PARTS].one(company):
            records, place = await _read_part(request, record, ids, place)
            if records:
                yield separator + SEPARATOR.join(records)
                separator = SEPARATOR
            del records
    yield "]}"


async def _read_part(
    request: web.Request, record: Statement, ids: list[int], place: int
) -> tuple[list[str], int]:
    """Return the next records from `place` on, until they are PART_CHARACTERS long, and the place after them."""
    company, records, length = request[app_keys.COMPANY], [], 0
    async with request.app[app_keys.DATABASE].reading(company) as conn:
        while place < len(ids) and length < PART_CHARACTERS:
            text = await record(conn, company_id=company, id=ids[place])
            place += 1
            if text is not None:
                records.append(text)
                length += len(text)
    return records, place

"""Get and list records of a resource.

A small page of a list is one response. A large one is streamed in parts, so that it is never in
memory as a whole.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

from aiohttp import web

from service import json_codec
from service.api.exports import stream_text
from service.api.operation import QueryParameter
from service.api.pagination import Page, read_page
from service.db.connections import Connection
from service.db.statements import Statement, sql
from service.http import app_keys, responses
from service.http.access import read_own, read_own_with
from service.http.idempotency import store_response, store_response_without
from service.http.requests import check_if_match, or_not_found, read_path_id
from service.json_types import JsonObject, Row

#: Bytes of records that one statement returns. A larger page is streamed.
BUDGET_BYTES = 1_000_000
PART_CHARACTERS = 250_000  # of a streamed page, more only if a single record is larger
SEPARATOR = ",\n"  # between the records of a page
FAR_OFFSET = 1000  # Records that PostgreSQL skips in less time than another round trip takes.

_Read = Callable[..., Awaitable[list[Row]]]


async def lock_record(
    request: web.Request, conn: Connection, name: str, noun: str, record_id: int | str
) -> Row:
    """Lock a record for a change. `name` begins the names of its statements.

    Raises NotFound, and PreconditionFailed if If-Match does not match.
    """
    row = or_not_found(await sql.by_name[f"{name}_lock"](conn, id=record_id), noun)
    await check_if_match(request, conn, sql.by_name[f"{name}_get"], id=record_id)
    return row


async def get_record(request: web.Request, statement: Statement, noun: str) -> web.Response:
    """Return the record of the path's id. `statement` returns its JSON text."""
    record = await read_own(request, statement, id=read_path_id(request, noun))
    return responses.record_response(request, or_not_found(record, noun))


async def get_own_record(
    request: web.Request, read: Callable[[Connection], Awaitable[str | None]], noun: str
) -> web.Response:
    """Return the only record of its kind that the company has. `read` returns its JSON text."""
    record = or_not_found(await read_own_with(request, read), noun)
    return responses.record_response(request, record)


async def store_created(
    request: web.Request, conn: Connection, message: str, data: JsonObject, *secrets: str
) -> web.Response:
    """Return the 201 for a new record, and store it for repetitions of the request.

    `secrets` are names in `data`.
    """
    response = responses.success_response(request, message, 201, data=data)
    if secrets:
        await store_response_without(request, conn, response, *secrets)
    else:
        await store_response(request, conn, response)
    return response


def page_response(page: Page, row: Row) -> web.Response:
    """Return a page of a list whose records are one JSON text."""
    meta = json_codec.dumps(page.meta(row["total"]))
    return responses.json_text_response(f'{{"meta":{meta},"data":{row["data"]}}}')


async def list_records(
    request: web.Request, name: str, filters: Sequence[QueryParameter]
) -> web.StreamResponse:
    """Return a page of a list. `name` begins the names of its statements.

    A page of more than BUDGET_BYTES is streamed: its records are read by id, one part at a time in
    a transaction of its own. A record that is deleted meanwhile is left out. If a part fails, the
    connection is aborted.
    """
    page = read_page(request, filters)
    ids, records, meta = await _read_page(request, page, name, BUDGET_BYTES)
    head = f'{{"meta":{json_codec.dumps(meta)},"data":'
    if len(records) == len(ids):
        return responses.json_text_response(f"{head}[{SEPARATOR.join(records)}]}}")
    response = web.StreamResponse()
    response.content_type, response.charset = "application/json", "utf-8"
    return await stream_text(request, response, _large_page(request, head, name, ids))


async def read_ids(request: web.Request, page: Page, name: str) -> tuple[list[int], JsonObject]:
    """Return the ids of the records of a page, and the `meta` of the list."""
    ids, _, meta = await _read_page(request, page, name, budget=0)
    return ids, meta


async def _read_page(
    request: web.Request, page: Page, name: str, budget: int
) -> tuple[list[int], list[str], JsonObject]:
    """Return the ids of a page, its records if they are within the budget, and its `meta`."""
    rows = await _read_rows(request, page, name, budget)
    ids = [row["id"] for row in rows if row["id"] is not None]
    records = [row["record"] for row in rows if row["record"] is not None]
    return ids, records, page.meta(rows[0]["total"], dict(rows[0]).get("is_exact", True), ids)


async def _read_rows(request: web.Request, page: Page, name: str, budget: int) -> list[Row]:
    """Return the rows of the page's statement: total, id and record, the last two may be null."""
    read_newest = partial(read_own, request, sql.by_name[f"{name}_page"], budget=budget)
    search = partial(read_own, request, sql.by_name[f"{name}_search"], budget=budget)
    if not page.is_plain:
        return await search(
            per_page=page.per_page, offset=page.offset, sort=page.sort, filters=page.filters_text
        )
    if page.offset <= FAR_OFFSET:
        return await read_newest(per_page=page.per_page, offset=page.offset)
    return await _read_far_page(read_newest, search, page)


async def _read_far_page(read_newest: _Read, search: _Read, page: Page) -> list[Row]:
    """Return a page that is far from the newest record, read from the nearer end of the list."""
    (row,) = await read_newest(per_page=0, offset=0)
    from_oldest = row["total"] - page.offset - page.per_page
    if page.offset <= from_oldest:
        return await read_newest(per_page=page.per_page, offset=page.offset)
    count = max(0, page.per_page + min(0, from_oldest))
    offset = max(0, from_oldest)
    rows = await search(per_page=count, offset=offset, sort="id", filters=page.filters_text)
    return rows[::-1]


async def _large_page(
    request: web.Request, head: str, name: str, ids: Sequence[int]
) -> AsyncGenerator[str, None]:
    """Yield the text of a page in parts.

    While the caller writes a part, its memory is reserved and no connection is held.
    """
    company, place, separator = request[app_keys.COMPANY], 0, ""
    yield f"{head}["
    while place < len(ids):
        async with request.app[app_keys.LIMITS].company_parts.one(company):
            records, place = await _read_part(request, name, ids, place)
            if records:
                yield separator + SEPARATOR.join(records)
                separator = SEPARATOR
            del records
    yield "]}"


async def _read_part(
    request: web.Request, name: str, ids: Sequence[int], place: int
) -> tuple[list[str], int]:
    """Return the records from `place` on, about PART_CHARACTERS, and the place after them."""
    record = sql.by_name[f"{name}_get"]

    async def read(conn: Connection) -> tuple[list[str], int]:
        records: list[str] = []
        length, end = 0, place
        while end < len(ids) and length < PART_CHARACTERS:
            text = await record(conn, id=ids[end])
            end += 1
            if text is not None:
                records.append(text)
                length += len(text)
        return records, end

    return await read_own_with(request, read)

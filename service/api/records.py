"""Get, export and list records of a resource, and the operations that do so for documents.

A small page of a list is one response. A large one is streamed in parts, so that it is never in
memory as a whole.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import asyncpg
from aiohttp import web

from service import json_codec
from service.api.exports import export_batches, stream_array, stream_text
from service.api.filters import DOCUMENT_SORTS, sort_by
from service.api.operation import Operation, QueryParameter
from service.api.pagination import PAGE, Page, read_page
from service.db.connections import Connection
from service.db.statements import Statement
from service.http import app_keys, responses
from service.http.requests import or_not_found, read_path_id
from service.submission.document_kinds import DocumentKind

#: Bytes of records that one statement returns. A larger page is streamed.
BUDGET_BYTES = 1_000_000
PART_CHARACTERS = 250_000  # of a streamed page, more only if a single record is larger
SEPARATOR = ",\n"  # between the records of a page
FAR_OFFSET = 1000  # Records that PostgreSQL skips in less time than another round trip takes.


@dataclass(frozen=True, slots=True)
class Source:
    """The statements of a list: an unfiltered page, a search, and a single record of the list."""

    page: Statement
    search: Statement
    record: Statement


@dataclass(frozen=True, slots=True)
class Documents:
    """A kind of document as a resource.

    `schema` is that of a record, and the start of the names of the other schemas. `get`,
    `export` and `export_batch` are statements, `cancelling` is the last segment of the path that
    cancels.
    """

    kind: DocumentKind
    path: str
    schema: str
    filters: tuple[QueryParameter, ...]
    source: Source
    get: Statement
    export: Statement
    export_batch: Statement
    cancelling: str = "cancel-latest-invoice-submitted"

    @property
    def record_path(self) -> str:
        """The path of one document."""
        return f"{self.path}/{{id}}"


async def list_of_document(
    kind: DocumentKind, request: web.Request, statement: Statement
) -> web.Response:
    """Return what a statement lists of one document. Raises NotFound without the document."""
    company, document_id = request[app_keys.COMPANY], read_path_id(request, kind.title)
    text = await request.app[app_keys.READS].read(
        statement, company_id=company, **kind.ids(document_id)
    )
    return responses.json_text_response(or_not_found(text, kind.title))


def declare_reading(operation: partial[Operation], documents: Documents, everything: str) -> None:
    """Declare the operations that list and get documents. `everything` describes their export."""
    path, plural = documents.path, f"{documents.kind.noun}s"
    operation(
        "GET",
        path,
        f"List {plural}",
        f"{documents.schema}List",
        query=(*PAGE, *documents.filters, sort_by(DOCUMENT_SORTS)),
        description="Newest first, unless `sort` says otherwise. Filters can be combined.",
        name=f"list_{documents.kind.identifier}s",
    )(partial(_list_documents, documents))
    operation(
        "GET",
        f"{path}/export-all",
        f"Export all {plural}",
        f"{documents.schema}Exports",
        description=everything,
        is_file=True,
        name=f"export_all_{documents.kind.identifier}s",
    )(partial(_export_documents, documents))
    operation(
        "GET",
        documents.record_path,
        f"Get {documents.kind.with_article}",
        documents.schema,
        description="The ETag of the response can be sent as `If-Match` with a change.",
        is_record=True,
        name=f"get_{documents.kind.identifier}",
    )(partial(_get_document, documents))


def declare_export(operation: partial[Operation], documents: Documents) -> None:
    """Declare the operation that exports a document."""
    operation(
        "GET",
        f"{documents.record_path}/export",
        f"Export {documents.kind.with_article}",
        f"{documents.schema}Export",
        description="A JSON file for other systems, named after the full code.",
        is_file=True,
        name=f"export_{documents.kind.identifier}",
    )(partial(_export_document, documents))


async def _list_documents(documents: Documents, request: web.Request) -> web.StreamResponse:
    """Return a page of documents."""
    page = read_page(request, documents.filters, DOCUMENT_SORTS)
    return await list_page(request, page, documents.source)


async def _export_documents(documents: Documents, request: web.Request) -> web.StreamResponse:
    """Stream all documents of the company, newest first, as one JSON array."""
    name = documents.path.rpartition("/")[2]
    pieces = export_batches(request, documents.export_batch)
    return await stream_array(request, f"{name}.json", pieces)


async def _get_document(documents: Documents, request: web.Request) -> web.Response:
    """Return a document."""
    return await get_record(request, documents.get, documents.kind.title)


async def _export_document(documents: Documents, request: web.Request) -> web.Response:
    """Return a document as a file, which is named after its full code.

    The statement returns the columns export and full_code.
    """
    company, title = request[app_keys.COMPANY], documents.kind.title
    key = {"company_id": company, "id": read_path_id(request, title)}
    row = or_not_found(await request.app[app_keys.READS].read(documents.export, **key), title)
    name = f"{title.lower().replace(' ', '-')}-{row['full_code']}.json"
    return responses.json_text_response(row["export"], headers=responses.attachment_headers(name))


async def get_record(request: web.Request, statement: Statement, noun: str) -> web.Response:
    """Return the record of the path's id. `statement` returns its JSON text."""
    company, record_id = request[app_keys.COMPANY], read_path_id(request, noun)
    record = await request.app[app_keys.READS].read(statement, company_id=company, id=record_id)
    return responses.record_response(request, or_not_found(record, noun))


async def list_page(request: web.Request, page: Page, source: Source) -> web.StreamResponse:
    """Return a page of a list.

    A page of more than BUDGET_BYTES is streamed: its records are read by id, one part at a time in
    a transaction of its own. A record that is deleted meanwhile is left out. If a part fails, the
    connection is aborted.
    """
    rows = await _read_page(request, page, source)
    meta = page.meta(rows[0]["total"], rows[0].get("is_exact", True))
    head = f'{{"meta":{json_codec.dumps(meta)},"data":'
    ids = [row["id"] for row in rows if row["id"] is not None]
    records = [row["record"] for row in rows if row["record"] is not None]
    if len(records) == len(ids):
        return responses.json_bytes_response(f"{head}[{SEPARATOR.join(records)}]}}".encode())
    response = web.StreamResponse()
    response.content_type, response.charset = "application/json", "utf-8"
    return await stream_text(request, response, _large_page(request, head, source.record, ids))


async def read_parts(
    request: web.Request, page: Page, source: Source
) -> AsyncGenerator[list[str], None]:
    """Yield the records of a page as JSON texts, in parts of limited size. An empty page has none.

    No connection is held between parts. A record that is deleted meanwhile is left out.
    """
    rows = await _read_page(request, page, source)
    ids = [row["id"] for row in rows if row["id"] is not None]
    records = [row["record"] for row in rows if row["record"] is not None]
    place = len(ids) if len(records) == len(ids) else 0
    if place:
        yield records
    del rows, records
    while place < len(ids):
        part, place = await _read_part(request, source.record, ids, place)
        yield part


async def _read_page(request: web.Request, page: Page, source: Source) -> list[asyncpg.Record]:
    """Return the rows of the page's statement: total, id and record, the last two may be null."""
    company = request[app_keys.COMPANY]
    read = partial(request.app[app_keys.READS].read, company_id=company, budget=BUDGET_BYTES)
    if not page.is_plain:
        return await read(
            source.search,
            per_page=page.per_page,
            offset=page.offset,
            sort=page.sort,
            filters=page.filters_text,
        )
    if page.offset <= FAR_OFFSET:
        return await read(source.page, per_page=page.per_page, offset=page.offset)
    return await _read_far_page(read, page, source)


async def _read_far_page(
    read: Callable[..., Awaitable[list[asyncpg.Record]]], page: Page, source: Source
) -> list[asyncpg.Record]:
    """Return a page that is far from the newest record, read from the nearer end of the list."""
    (row,) = await read(source.page, per_page=0, offset=0)
    from_oldest = row["total"] - page.offset - page.per_page
    if page.offset <= from_oldest:
        return await read(source.page, per_page=page.per_page, offset=page.offset)
    count = max(0, page.per_page + min(0, from_oldest))
    rows = await read(
        source.search,
        per_page=count,
        offset=max(0, from_oldest),
        sort="id",
        filters=page.filters_text,
    )
    return rows[::-1]


async def _large_page(
    request: web.Request, head: str, record: Statement, ids: Sequence[int]
) -> AsyncGenerator[str, None]:
    """Yield the text of a page in parts.

    While the caller writes a part, its memory is reserved and no connection is held.
    """
    company, place, separator = request[app_keys.COMPANY], 0, ""
    yield f"{head}["
    while place < len(ids):
        async with request.app[app_keys.COMPANY_PARTS].one(company):
            records, place = await _read_part(request, record, ids, place)
            if records:
                yield separator + SEPARATOR.join(records)
                separator = SEPARATOR
            del records
    yield "]}"


async def _read_part(
    request: web.Request, record: Statement, ids: Sequence[int], place: int
) -> tuple[list[str], int]:
    """Return the records from `place` on, about PART_CHARACTERS, and the place after them."""
    company = request[app_keys.COMPANY]

    async def read(conn: Connection) -> tuple[list[str], int]:
        records: list[str] = []
        length, end = 0, place
        while end < len(ids) and length < PART_CHARACTERS:
            text = await record(conn, company_id=company, id=ids[end])
            end += 1
            if text is not None:
                records.append(text)
                length += len(text)
        return records, end

    return await request.app[app_keys.READS].read_with(company, read)

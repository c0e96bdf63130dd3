"""Lists of documents, and the lines of one, as CSV."""

import csv
import io
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from aiohttp import web
from yarl import URL

from service import json_codec
from service.api import adjustment_notes, consolidated_invoices, invoices
from service.api.exports import stream_export
from service.api.pagination import DOCUMENT_SORTS, Page, read_page
from service.api.records import Documents, Source, read_parts
from service.dashboard import pages
from service.dashboard.documents import (
    CONSOLIDATED,
    INVOICES,
    KINDS,
    NOTES,
    Kind,
    Target,
    read_amounts,
    read_currency,
    read_filters,
    read_targets,
)
from service.dashboard.formats import other_party
from service.dashboard.operations import read
from service.dashboard.sessions import READ
from service.documents import money
from service.http.responses import accepts_gzip
from service.offload import offload

PAGES: list[pages.Page] = []
page = partial(pages.page, PAGES)

MOST_ROWS = 10_000
PER_PAGE = 100
COLUMNS = (
    "id",
    "number",
    "type",
    "status",
    "issued_at",
    "party",
    "currency",
    "excluding_tax",
    "including_tax",
    "payable",
)
LINE_COLUMNS = (
    "line",
    "description",
    "classifications",
    "quantity",
    "unit",
    "unit_price",
    "currency",
    "amount",
    "tax",
)
MARK = "\ufeff"  # Spreadsheets read UTF-8 with a mark.
#: The place in a text where a spreadsheet may find a formula, also if it splits cells at another
#: character than the comma, and unquotes cells. It reads full-width characters as the usual ones.
_FORMULA = re.compile(
    r"(?:^|(?<=[,;|\t\r\n\v\f\x85\u2028\u2029]))(?=[ \u00a0\u3000\"]*[=+@＝＋－＠-])|^(?=[\t\r\n])"
)


#: Kind of document -> its list in the API.
LISTS: dict[Kind, Documents] = {
    INVOICES: invoices.DOCUMENTS,
    NOTES: adjustment_notes.DOCUMENTS,
    CONSOLIDATED: consolidated_invoices.DOCUMENTS,
}


async def show_csv(kind: Kind, request: web.Request) -> web.StreamResponse:
    """Stream the newest MOST_ROWS documents of a list with its filters, as the API's exports.

    Raises ValidationError for invalid filters, and the errors of stream_export.
    """
    documents = LISTS[kind]
    query = {**read_filters(request), "per_page": PER_PAGE, "count_to": 1}  # needs no total
    listing = request.clone(rel_url=URL.build(path=kind.api, query=query))
    page = read_page(listing, documents.filters, DOCUMENT_SORTS)
    response = web.StreamResponse(headers=_make_headers(kind.path.strip("/")))
    return await stream_export(request, response, _make_list(kind, request, page))


async def show_lines_csv(kind: Kind, request: web.Request) -> web.Response:
    """Return the lines of a document."""
    record = await read(request, f"{kind.api}/{request.match_info['id']}")
    target = (await read_targets(request, kind, [record])).get(record["id"])
    lines = _read_lines(record, read_currency(record, target))
    response = web.Response(
        text=MARK + _make_rows([LINE_COLUMNS, *lines]),
        headers=_make_headers(f"{kind.texts}-{record[kind.code]}"),
    )
    if accepts_gzip(request):  # unlike a list: a truncated file must not look complete
        response.enable_compression(web.ContentCoding.gzip)
    return response


def _make_headers(name: str) -> dict[str, str]:
    return {
        "Content-Type": "text/csv; charset=utf-8",
        "Content-Disposition": f'attachment; filename="{name}.csv"',
        "Cache-Control": "no-store",
        "Vary": "Accept-Encoding",
    }


async def _make_list(kind: Kind, request: web.Request, page: Page) -> AsyncGenerator[str, None]:
    """Yield the text of a list in parts."""
    yield MARK + _make_rows([COLUMNS])
    async for records in _read_records(request, page, LISTS[kind].source):
        rows: list[Iterable[object]] = []
        for record in records:
            target = (await read_targets(request, kind, [record])).get(record["id"])
            rows.append(_read_columns(kind, record, target))
        yield _make_rows(rows)


async def _read_records(
    request: web.Request, page: Page, source: Source
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the records of MOST_ROWS from the first page on, in parts, without their lines."""
    for number in range(1, MOST_ROWS // PER_PAGE + 1):
        is_empty = True
        async for texts in read_parts(request, replace(page, number=number), source):
            is_empty = False
            yield await offload(sum(map(len, texts)), _parse_records, texts)
        if is_empty:
            return


def _parse_records(texts: list[str]) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for text in texts:
        record = json_codec.loads_own(text)
        del record["line_items"]  # They take most of the memory.
        records.append(record)
    return records


def _make_rows(rows: Iterable[Iterable[object]]) -> str:
    """Return the text of rows."""
    output = io.StringIO()
    writer = csv.writer(output, quoting=csv.QUOTE_ALL)
    writer.writerows([_make_cell(value) for value in row] for row in rows)
    return output.getvalue()


def _read_columns(kind: Kind, record: dict[str, Any], target: Target | None) -> Iterable[object]:
    totals = record["legal_monetary_total"]
    return (
        record["id"],
        record[kind.code],
        record["type"],
        record["status"],
        record["issue_date"],
        target.party if target else other_party(record),
        read_currency(record, target),
        totals["excludingTax"],
        totals["includingTax"],
        totals["payableAmount"],
    )


def _read_lines(record: dict[str, Any], currency: str) -> Iterable[Iterable[object]]:
    """Yield the cells of each line. Amounts are without tax."""
    sums = money.compute_document(read_amounts(record)).lines
    for number, (item, line) in enumerate(zip(record["line_items"], sums, strict=True), 1):
        unit = item["unit"]
        yield (
            number,
            item["description"],
            " ".join(item.get("classifications") or []),
            unit["count"],
            unit.get("code", ""),
            unit["price"],
            currency,
            line.net,
            line.tax,
        )


def _make_cell(value: object) -> str:
    """Return the text of a cell. No spreadsheet takes it for a formula; a number stays one."""
    return _FORMULA.sub("'", value) if isinstance(value, str) else str(value)


for _kind in KINDS:
    _list = pages.Page("GET", f"{_kind.path}.csv", partial(show_csv, _kind), READ, is_stream=True)
    PAGES.append(_list)
    page("GET", f"{_kind.path}/{{id:[0-9]+}}.csv")(partial(show_lines_csv, _kind))

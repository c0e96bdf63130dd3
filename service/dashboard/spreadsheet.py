"""Lists of documents as CSV."""

import csv
import io
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

from aiohttp import web

from service.dashboard import pages
from service.dashboard.documents import KINDS, Kind, read_filters
from service.dashboard.formats import other_party
from service.dashboard.operations import Failed, call
from service.dashboard.pages import Page

PAGES: list[Page] = []
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
#: First characters of a cell that spreadsheets take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


async def show_csv(kind: Kind, request: web.Request) -> web.Response:
    """Return the newest MOST_ROWS documents of a list with its filters."""
    output = io.StringIO()
    output.write("\ufeff")  # Spreadsheets read UTF-8 with a mark.
    writer = csv.writer(output)
    writer.writerow(COLUMNS)
    async for record in _read_records(kind, request):
        writer.writerow([_make_cell(value) for value in _read_columns(kind, record)])
    name = f"{kind.path.strip('/')}.csv"
    return web.Response(
        body=output.getvalue().encode(),
        headers={
            "Content-Type": "text/csv; charset=utf-8",
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store",
        },
    )


async def _read_records(kind: Kind, request: web.Request) -> AsyncIterator[dict[str, Any]]:
    query = read_filters(request)
    for number in range(1, MOST_ROWS // PER_PAGE + 1):
        answer = await call(
            request, "GET", kind.api, query={**query, "page": number, "per_page": PER_PAGE}
        )
        if not answer.is_success:
            raise Failed(answer)
        records = answer.value["data"]
        for record in records:
            yield record
        if len(records) < PER_PAGE:
            return


def _read_columns(kind: Kind, record: dict[str, Any]) -> Iterable[object]:
    totals = record["legal_monetary_total"]
    return (
        record["id"],
        record[kind.code],
        record["type"],
        record["status"],
        record["issue_date"],
        other_party(record),
        record.get("currency_code") or "MYR",
        totals["excludingTax"],
        totals["includingTax"],
        totals["payableAmount"],
    )


def _make_cell(value: object) -> str:
    """Return the text of a cell, which no spreadsheet takes for a formula."""
    text = str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA) else text


for _kind in KINDS:
    page("GET", f"{_kind.path}.csv")(partial(show_csv, _kind))

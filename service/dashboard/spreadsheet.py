"""Lists of documents, and the lines of one, as CSV."""

import csv
import io
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from service.dashboard import pages
from service.dashboard.documents import (
    KINDS,
    Kind,
    Target,
    read_amounts,
    read_currency,
    read_filters,
    read_targets,
)
from service.dashboard.formats import other_party
from service.dashboard.operations import Failed, call, read
from service.dashboard.pages import Page
from service.documents import money

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
#: The place in a text where a spreadsheet may find a formula, also if it splits cells at another
#: character than the comma. It reads full-width characters as the usual ones.
_FORMULA = re.compile(
    r"(?:^|(?<=[,;|\t\r\n\v\f\x85\u2028\u2029]))(?=[ \u00a0\u3000]*[=+@＝＋－＠-])|^(?=[\t\r\n])"
)


async def show_csv(kind: Kind, request: web.Request) -> web.Response:
    """Return the newest MOST_ROWS documents of a list with its filters."""
    rows = [
        _read_columns(kind, record, target) async for record, target in _read_records(kind, request)
    ]
    return _make_response(kind.path.strip("/"), COLUMNS, rows)


async def show_lines_csv(kind: Kind, request: web.Request) -> web.Response:
    """Return the lines of a document."""
    record = await read(request, f"{kind.api}/{request.match_info['id']}")
    target = (await read_targets(request, kind, [record])).get(record["id"])
    lines = _read_lines(record, read_currency(record, target))
    return _make_response(f"{kind.texts}-{record[kind.code]}", LINE_COLUMNS, lines)


def _make_response(
    name: str, columns: Sequence[str], rows: Iterable[Iterable[object]]
) -> web.Response:
    """Return a CSV file."""
    output = io.StringIO()
    output.write("\ufeff")  # Spreadsheets read UTF-8 with a mark.
    writer = csv.writer(output, quoting=csv.QUOTE_ALL)
    writer.writerow(columns)
    writer.writerows([_make_cell(value) for value in row] for row in rows)
    return web.Response(
        body=output.getvalue().encode(),
        headers={
            "Content-Type": "text/csv; charset=utf-8",
            "Content-Disposition": f'attachment; filename="{name}.csv"',
            "Cache-Control": "no-store",
        },
    )


async def _read_records(
    kind: Kind, request: web.Request
) -> AsyncIterator[tuple[dict[str, Any], Target | None]]:
    """Yield the records of a list, each with the document that it adjusts if it is a note."""
    query = {**read_filters(request), "per_page": PER_PAGE, "count_to": 1}  # needs no total
    for number in range(1, MOST_ROWS // PER_PAGE + 1):
        answer = await call(request, "GET", kind.api, query={**query, "page": number})
        if not answer.is_success:
            raise Failed(answer)
        records = answer.value["data"]
        targets = await read_targets(request, kind, records)
        for record in records:
            yield record, targets.get(record["id"])
        if len(records) < PER_PAGE:
            return


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
    page("GET", f"{_kind.path}.csv")(partial(show_csv, _kind))
    page("GET", f"{_kind.path}/{{id:[0-9]+}}.csv")(partial(show_lines_csv, _kind))

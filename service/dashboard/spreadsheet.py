"""Lists of documents, and the lines of one, as CSV."""

import csv
import io
import re
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from datetime import tzinfo
from decimal import Decimal
from functools import partial

import asyncpg
from aiohttp import web

from service import json_codec
from service.api.exports import stream_export
from service.api.pagination import Page
from service.api.records import read_ids
from service.dashboard.documents import (
    KINDS,
    NOTES,
    Kind,
    choose_currency,
    choose_page,
    read_amounts,
    read_target,
)
from service.dashboard.formats import listed_party
from service.dashboard.operations import read
from service.dashboard.pages import page
from service.db.statements import sql
from service.documents import codes, money, printing
from service.documents.ubl import parties
from service.http.access import read_own, zone_of
from service.http.responses import accepts_gzip
from service.json_types import JsonObject

MOST_ROWS = 10_000
PART_ROWS = 200  # that one statement reads
#: Tax types with a column each. Portal: 12.5
TAX_TYPES = tuple(code for code in codes.BUILT_IN["tax_types"].codes if code != money.EXEMPT)
AMOUNTS = ("excluding_tax", "tax", "including_tax", "payable")
COLUMNS = (
    "id",
    "number",
    "type",
    "status",
    "issue_date",
    "issue_time",
    "party",
    "tin",
    "currency",
    *AMOUNTS,
    *(f"tax_{code}" for code in TAX_TYPES),
    "exempt",
    "exchange_rate",
    *(f"{name}_myr" for name in AMOUNTS),
    "uuid",
    "link",
)
#: Notes whose amounts are negative: they reduce the value of the document that they adjust.
REDUCING = {"CREDIT_NOTE", "REFUND_NOTE"}
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


async def show_csv(kind: Kind, request: web.Request) -> web.StreamResponse:
    """Stream the newest MOST_ROWS documents of a list with its filters, as the API's exports.

    Raises ValidationError for invalid filters, and the errors of stream_export.
    """
    page = choose_page(request, kind, count_to=1)  # needs no total
    response = web.StreamResponse(headers=_make_headers(kind.path.strip("/")))
    return await stream_export(request, response, _make_list(request, page, kind))


async def show_lines_csv(kind: Kind, request: web.Request) -> web.Response:
    record = await read(request, f"{kind.api}/{request.match_info['id']}")
    target = await read_target(request, record["id"]) if kind is NOTES else None
    lines = _read_lines(record, choose_currency(record.get("currency_code"), target))
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


async def _make_list(request: web.Request, page: Page, kind: Kind) -> AsyncGenerator[str, None]:
    """Yield the first MOST_ROWS in parts. Deleted documents are left out.

    The ids are read once, so that new documents shift no others.
    """
    zone = zone_of(request)
    yield MARK + _make_rows([COLUMNS])
    all_rows = replace(page, number=1, per_page=MOST_ROWS)
    ids, _ = await read_ids(request, all_rows, kind.documents.kind.name)
    for place in range(0, len(ids), PART_ROWS):
        part = ids[place : place + PART_ROWS]
        rows = await read_own(request, sql.documents_listed, ids=part)
        yield _make_rows(_read_columns(row, zone) for row in rows)


def _make_rows(rows: Iterable[Iterable[object]]) -> str:
    output = io.StringIO()
    writer = csv.writer(output, quoting=csv.QUOTE_ALL)
    writer.writerows([_make_cell(value) for value in row] for row in rows)
    return output.getvalue()


def _read_columns(facts: asyncpg.Record, zone: tzinfo) -> Iterable[object]:
    """Return the cells of a document. The time is that of the zone."""
    issued_at = facts["issue_date"].astimezone(zone)
    reduces = facts["type"] in REDUCING
    amounts = _negate((facts[name] for name in AMOUNTS), reduces)
    home_rate = facts["home_rate"]
    return (
        facts["id"],
        facts["number"],
        facts["type"],
        facts["status"],
        f"{issued_at:%Y-%m-%d}",
        f"{issued_at:%H:%M:%S}",
        listed_party(facts),
        _read_tin(facts),
        facts["currency"],
        *amounts,
        *_read_taxes(facts["taxes"], reduces),
        "" if facts["exchange_rate"] is None else facts["exchange_rate"],
        *(printing.convert_home(each, home_rate) if home_rate else "" for each in amounts),
        facts["uuid"] or "",
        facts["validation_link"] or "",
    )


def _negate(amounts: Iterable[Decimal], reduces: bool) -> list[Decimal]:
    """Return the amounts, negative if the document reduces the value of another one."""
    return [-amount if reduces else amount for amount in amounts]


def _read_taxes(taxes: str, reduces: bool) -> Iterable[object]:
    """Return the tax of each type, and the exempt amount."""
    sums = dict.fromkeys((*TAX_TYPES, money.EXEMPT), money.ZERO)
    for tax in json_codec.loads_own(taxes):
        if tax["type"] in sums:
            sums[tax["type"]] += Decimal(tax["taxable" if tax["type"] == money.EXEMPT else "tax"])
    return _negate(sums.values(), reduces)


def _read_tin(facts: asyncpg.Record) -> str:
    """Return the TIN of the other party as the portal receives it, or an empty text."""
    party = parties.GENERAL_PUBLIC if facts["month"] else json_codec.loads_own(facts["party"])
    is_self_billed = "SELF_BILLED" in facts["source_type"]
    general_tins = parties.SUPPLIER_TINS if is_self_billed else parties.BUYER_TINS
    return parties.get_own_tin(party) or parties.get_general_tin(party, general_tins) or ""


def _read_lines(record: JsonObject, currency: str) -> Iterable[Iterable[object]]:
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
    page("GET", f"{_kind.path}.csv", is_stream=True)(partial(show_csv, _kind))
    page("GET", f"{_kind.path}/{{id:[0-9]+}}.csv")(partial(show_lines_csv, _kind))

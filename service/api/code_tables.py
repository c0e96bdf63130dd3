"""The code tables: which codes a document may have. They are the same for all companies."""

from collections.abc import Iterator
from datetime import date

from aiohttp import web

from service import json_codec
from service.api.filters import search_for
from service.api.operation import Group
from service.api.pagination import PAGE, read_page
from service.documents import codes
from service.http import responses
from service.http.requests import not_found, read_path_part
from service.json_types import JsonObject

operation = GROUP = Group("Code tables")

NOUN = "Code table"
PATH = "/api/code-tables"
SEARCH = search_for("the start of a code, or a part of a description")


@operation(
    f"GET {PATH}",
    "List the code tables",
    "CodeTableList",
    description="In the order of their names, without their codes.",
    is_record=True,
)
async def list_code_tables(request: web.Request) -> web.Response:
    tables = [_describe(name) for name in sorted(codes.DESCRIPTIONS)]
    return responses.record_response(request, json_codec.dumps({"data": tables}))


@operation(
    f"GET {PATH}/{{name}}",
    "Get a code table",
    "CodeTableAnswer",
    query=(*PAGE, SEARCH),
    errors=(not_found(NOUN),),
    description="A page of its codes. The ETag changes with the table and with the page.",
    is_record=True,
)
async def get_code_table(request: web.Request) -> web.Response:
    name, page = read_path_part(request, "name"), read_page(request, (SEARCH,))
    if name not in codes.DESCRIPTIONS:
        raise not_found(NOUN)
    found = list(_find(name, page.filters["query"] or ""))
    shown = found[page.offset : page.offset + page.per_page]
    answer = {
        "table": _describe(name),
        "meta": page.meta(len(found)),
        "data": [_describe_code(name, code, description) for code, description in shown],
    }
    return responses.record_response(request, json_codec.dumps(answer))


def _find(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (code, description) of the codes of a table that a search text selects."""
    wanted = text.strip().casefold()
    for code, description in codes.get_names(name).items():
        if code.casefold().startswith(wanted) or wanted in description.casefold():
            yield code, description


def _describe(name: str) -> JsonObject:
    table = codes.get_tables()[name]
    imported_at = table.imported_at
    return {
        "name": name,
        "description": codes.DESCRIPTIONS[name],
        "code_count": len(table.codes),
        "source": "imported" if imported_at else "built_in",
        "version": table.day.isoformat(),
        "imported_at": imported_at.isoformat(timespec="milliseconds") if imported_at else None,
    }


def _describe_code(name: str, code: str, description: str) -> dict[str, str | None]:
    first, last = codes.get_tables()[name].get_validity(code)
    return {
        "code": code,
        "description": description,
        "valid_from": None if first == date.min else first.isoformat(),
        "valid_to": None if last == date.max else last.isoformat(),
    }

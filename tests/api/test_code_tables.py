"""Code tables over the API: sources, search, pages and entity tags."""

from typing import Any

import pytest

from service.documents import codes
from tests.api_requests import expect, list_paths, request_json
from tests.conftest import Client

TABLES = "/api/code-tables"


async def get(api: Client, path: str = "") -> Any:
    return await expect(api, 200, "GET", f"{TABLES}{path}")


async def test_tables_are_listed_with_their_source(api: Client) -> None:
    tables = {table.pop("name"): table for table in (await get(api))["data"]}
    assert list(tables) == sorted(codes.DESCRIPTIONS)
    assert tables["states"] == {
        "description": "States and federal territories of Malaysia.",
        "code_count": 17,
        "source": "built_in",
        "version": "2025-06-01",
        "imported_at": None,
    }
    assert tables["units"]["code_count"] == 2163


async def test_codes_of_a_table_have_pages(api: Client) -> None:
    first = await get(api, "/countries")
    assert first["table"]["name"] == "countries"
    assert (first["meta"]["total"], len(first["data"])) == (253, 10)
    following = await get(api, first["meta"]["next_page_url"].removeprefix(TABLES))
    assert following["meta"]["current_page"] == 2
    found = [code["code"] for page in (first, following) for code in page["data"]]
    assert found == list(codes.BUILT_IN["countries"].codes)[:20]
    assert (await get(api, "/countries?page=99"))["data"] == []


@pytest.mark.parametrize(
    "table, text, found",
    [
        ("tax_types", "TAX", ["01", "02", "03", "04", "05", "E"]),
        ("tax_types", "02", ["02"]),
        ("states", "kuala", ["14"]),
        ("states", "colour", []),
        ("states", "1", ["10", "11", "12", "13", "14", "15", "16", "17"]),
        ("units", "KGM", ["KGM"]),
    ],
)
async def test_codes_are_searched_by_code_and_description(
    api: Client, table: str, text: str, found: list[str]
) -> None:
    answer = await get(api, f"/{table}?query={text}&per_page=100")
    assert [code["code"] for code in answer["data"]] == found
    assert answer["meta"]["total"] == len(found)
    assert f"query={text}" in answer["meta"]["first_page_url"]


@pytest.mark.parametrize("name", ["colours", "Units", "%00", "1", "units%2F", "{x}"])
async def test_an_unknown_table_is_not_found(api: Client, name: str) -> None:
    status, body = await request_json(api, "GET", f"{TABLES}/{name}")
    assert (status, body["message"]) == (404, "Code table not found")


@pytest.mark.parametrize(
    "query, path",
    [("per_page=101", "per_page"), (f"query={'x' * 301}", "query"), ("search=1", "search")],
)
async def test_an_invalid_parameter_of_a_table_is_refused(
    api: Client, query: str, path: str
) -> None:
    status, body = await request_json(api, "GET", f"{TABLES}/units?{query}")
    assert (status, list_paths(body)) == (422, [path])


@pytest.mark.parametrize("path", ["", "/states", "/states?query=joh"])
async def test_an_unchanged_table_is_not_sent_again(api: Client, path: str) -> None:
    async with api.get(f"{TABLES}{path}") as response:
        tag = response.headers["ETag"]
    async with api.get(f"{TABLES}{path}", headers={"If-None-Match": tag}) as response:
        assert (response.status, await response.read()) == (304, b"")
    await expect(api, 200, "GET", f"{TABLES}{path}", headers={"If-None-Match": '"other"'})

"""Cells: names, ids and keys of two of them, which are two databases of the test's server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service.app import create_app
from service.config import read_config
from service.db.cells import check_cell, claim_tin, id_base
from tests.api_reads import get_json
from tests.conftest import ClientFactory, Sandbox, Templates, make_company
from tests.harness.companies import make_tin
from tests.harness.databases import create_database
from tests.harness.environments import variables
from tests.harness.processes import run_command

Cells = dict[str, dict[str, str]]  # name -> variables of its processes


@asynccontextmanager
async def create_cell(
    cluster: str, templates: Templates, portal: str, name: str
) -> AsyncIterator[dict[str, str]]:
    """Yield the variables of the processes of an empty cell."""
    async with create_database(cluster, templates.empty) as url:
        await check_cell(url, name)
        yield {**variables(url, portal), "CELL": name}


@pytest.fixture
async def cells(cluster: str, templates: Templates, sandbox: Sandbox) -> AsyncIterator[Cells]:
    async with (
        create_cell(cluster, templates, sandbox.base, "a") as a,
        create_cell(cluster, templates, sandbox.base, "b") as b,
    ):
        yield {"a": a, "b": b}


async def test_ids_and_keys_of_a_cell_contain_it(
    cells: Cells, aiohttp_client: ClientFactory
) -> None:
    company = await make_company(cells["b"])
    assert company.id == id_base("b") + 1 == 11_000_000_001
    assert company.key_id.startswith("b") and len(company.key_id) == 13
    assert company.key.startswith(f"einv_test_{company.key_id}_")
    app = create_app(read_config(cells["b"]))
    api = await aiohttp_client(app, headers={"X-API-Key": company.key})
    assert (await get_json(api, "/api/companies"))["data"]["id"] == company.id
    await api.close()


async def test_process_of_another_cell_is_refused(cells: Cells) -> None:
    for name, shown in (("c", "c"), ("", "not set")):
        done = await run_command(["migrate"], {**cells["a"], "CELL": name})
        assert done.code == 1
        assert done.err.startswith(f"The database is the cell a, and CELL is {shown}. ")


async def test_tin_belongs_to_the_cell_of_the_registry(cells: Cells, tmp_path: Path) -> None:
    registry = {"CELL_REGISTRY": str(tmp_path / "tins")}
    add = ["add-company", "--name", "A", "--tin", make_tin(7)]
    assert (await run_command(add, {**cells["a"], **registry})).code == 0
    refused = await run_command(add, {**cells["b"], **registry})
    assert f"The TIN {make_tin(7)} belongs to the cell a" in refused.err
    assert (tmp_path / "tins").read_text() == f"{make_tin(7)} a\n"


def test_incomplete_last_line_of_the_registry_is_removed(tmp_path: Path) -> None:
    """The line names the cell ab."""
    registry = tmp_path / "tins"
    registry.write_text("C1 a\nC2 a")
    claim_tin(registry, "C3", "b")
    claim_tin(registry, "C2", "ab")
    assert registry.read_text() == "C1 a\nC3 b\nC2 ab\n"

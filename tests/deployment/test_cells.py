"""Two cells behind one nginx: routing by keys and by host names."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from service.db.cells import check_cell
from service.db.migrations import migrate
from tests.api_requests import expect, request_json
from tests.conftest import Sandbox, make_company, until
from tests.harness.companies import Company, make_tin
from tests.harness.environments import GENEROUS, variables
from tests.harness.nginx import CellsNginx, Local, needs_nginx
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import Service

pytestmark = [pytest.mark.long, needs_nginx]


@dataclass
class Site:
    """Two cells behind one nginx."""

    environments: dict[str, dict[str, str]]
    cells: dict[str, Service]
    nginx: CellsNginx
    stack: AsyncExitStack

    async def client(self, company: Company, host: str = CellsNginx.name) -> aiohttp.ClientSession:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        client = aiohttp.ClientSession(
            f"https://{host}:{self.nginx.port}",
            connector=aiohttp.TCPConnector(resolver=Local(), ssl=tls, limit=0),
            headers={"X-API-Key": company.key},
        )
        return await self.stack.enter_async_context(client)

    async def company(self, cell: str, number: int) -> Company:
        return await make_company(self.environments[cell], tin_code=make_tin(number))


@pytest.fixture
async def site(tmp_path: Path, sandbox: Sandbox) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        environments: dict[str, dict[str, str]] = {}
        cells: dict[str, Service] = {}
        for name in ("a", "b"):
            server = await stack.enter_async_context(PostgresServer(tmp_path / name))
            await migrate(server.url)
            await check_cell(server.url, name)
            environments[name] = environment = {
                **variables(server.url, sandbox.base),
                **GENEROUS,
                "CELL": name,
                "REQUESTS_PER_MINUTE": "0",
                "TRUSTED_PROXIES": "127.0.0.1",
            }
            api = Service(environment, tmp_path / f"api-{name}.log", ["serve", "--no-background"])
            cells[name] = await stack.enter_async_context(api)
        home = tmp_path / "nginx"
        home.mkdir()
        nginx = CellsNginx(home, [cell.port for cell in cells.values()])
        await stack.enter_async_context(nginx)
        yield Site(environments, cells, nginx, stack)


async def test_configuration_is_valid_and_has_no_warnings(site: Site) -> None:
    output = await site.nginx.check()
    assert "test is successful" in output and "[warn]" not in output


async def test_requests_go_to_the_cell_of_their_key(site: Site) -> None:
    """The host decides for pages only."""
    ids = {}
    for cell, number in (("a", 1), ("b", 2)):
        company = await site.company(cell, number)
        for host in (CellsNginx.name, f"a.{CellsNginx.name}", f"b.{CellsNginx.name}"):
            client = await site.client(company, host)
            status, body = await request_json(client, "GET", "/api/companies")
            assert (status, body["data"]["id"]) == (200, company.id)
        ids[cell] = company
    client = await site.client(ids["a"])
    for key in ("no", "einv_test_zz7aaaaaaaaaaaa_x", ""):
        await expect(client, 401, "GET", "/api/companies", headers={"X-API-Key": key})


async def test_page_goes_to_the_cell_of_its_host_name(site: Site) -> None:
    company = await site.company("a", 1)
    cells = {"": "a", "a.": "a", "b.": "b", "www.": "a", "api.": "a"}
    for number, label in enumerate(cells):
        client = await site.client(company, f"{label}{CellsNginx.name}")
        async with client.get(f"/{number}", headers={"X-API-Key": ""}):
            pass

    async def read_log() -> list[dict[str, str]]:
        return [json.loads(line) for line in site.nginx.access_log().splitlines()]

    entries = await until(read_log, lambda found: len(found) == len(cells))
    assert {entry["path"]: entry["upstream"] for entry in entries} == {
        f"/{number}": f"127.0.0.1:{site.cells[cell].port}"
        for number, cell in enumerate(cells.values())
    }

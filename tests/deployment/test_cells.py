"""Two cells behind one nginx: routing by keys, and the move of a company under load."""

import asyncio
import itertools
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from conftest import Sandbox, make_company, until
from fixtures_webhooks import Receiver, create_endpoint
from harness.companies import Company, make_tin
from harness.environments import variables
from harness.nginx import CellsNginx, Local, find_nginx
from harness.paths import ROOT
from harness.postgres_server import PostgresServer
from harness.processes import ChildProcess, Service
from harness.waiting import patience, wait_until
from kit import (
    GENEROUS,
    create_invoice,
    create_valid_invoice,
    get_invoice,
    invoice,
    request_json,
    wait_for_status,
)

from service import failpoints
from service.db.cells import check_cell
from service.db.migrations import migrate
from service.db.statements import parse

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        find_nginx() is None, reason="nginx is not installed (Debian and Ubuntu: apt install nginx)"
    ),
]

STEPS = list(failpoints.MOVES)
INVOICES = 10_000
SEED = {statement.name: statement for statement in parse((ROOT / "bench/seed.sql").read_text())}
#: Rows that are never deleted: after a move, all of them are in the other cell.
HISTORY = {
    "invoices": "id",
    "submissions": "id",
    "submitted_documents": "id",
    "portal_sightings": "(submission_id, uuid, via)",
    "events": "id",
    "webhook_deliveries": "id",
    "audit_log": "id",
    "idempotency_keys": "(route, key)",
}


@dataclass
class Cell:
    """A cell: a PostgreSQL, an API process and a worker."""

    url: str
    environment: dict[str, str]
    api: Service
    worker: ChildProcess


@dataclass
class Site:
    """Two cells behind one nginx."""

    cells: dict[str, Cell]
    nginx: CellsNginx
    stack: AsyncExitStack

    async def client(self, company: Company, host: str = CellsNginx.name) -> aiohttp.ClientSession:
        """Return a client with a company's key."""
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        client = aiohttp.ClientSession(
            f"https://{host}:{self.nginx.port}",
            connector=aiohttp.TCPConnector(resolver=Local(), ssl=tls, limit=0),
            headers={"X-API-Key": company.key},
        )
        return await self.stack.enter_async_context(client)

    async def company(self, cell: str, number: int) -> Company:
        """Create a company and a key."""
        return await make_company(self.cells[cell].environment, tin_code=make_tin(number))

    async def move(self, company: Company, log: Path, dies_at: str | None = None) -> int:
        """Run the command that moves a company to b, and return its exit code."""
        a, b = self.cells["a"], self.cells["b"]
        arguments = ["move-company", "--company", str(company.id), "--to", b.url]
        arguments += ["--routes", str(self.nginx.routes), "--reload", self.nginx.reload_command]
        process = ChildProcess(arguments, a.environment, log)
        await process.start(dies_at=dies_at)
        return await process.wait(300)


@pytest.fixture
async def site(tmp_path: Path, sandbox: Sandbox) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        cells: dict[str, Cell] = {}
        for name in ("a", "b"):
            server = await stack.enter_async_context(PostgresServer(tmp_path / name))
            await migrate(server.url)
            await check_cell(server.url, name)
            environment = {
                **variables(server.url, sandbox.base),
                **GENEROUS,
                "CELL": name,
                "REQUESTS_PER_MINUTE": "0",
                "TRUSTED_PROXIES": "127.0.0.1",
            }
            api = Service(environment, tmp_path / f"api-{name}.log", ["serve", "--no-background"])
            await stack.enter_async_context(api)
            worker = ChildProcess(["worker"], environment, tmp_path / f"worker-{name}.log")
            cells[name] = Cell(server.url, environment, api, worker)
        home = tmp_path / "nginx"
        home.mkdir()
        nginx = CellsNginx(home, [cell.api.port for cell in cells.values()])
        await stack.enter_async_context(nginx)
        yield Site(cells, nginx, stack)


async def test_configuration_is_valid_and_has_no_warnings(site: Site) -> None:
    output = await site.nginx.check()
    assert "test is successful" in output and "[warn]" not in output


async def test_requests_go_to_the_cell_of_their_key(site: Site) -> None:
    """The host decides for pages only. Moved keys are read with the next reload."""
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
        async with client.get("/api/companies", headers={"X-API-Key": key}) as response:
            assert response.status == 401
    site.nginx.routes.write_text(f"{ids['a'].key_id} b;\n")
    await site.nginx.reload()
    await until(
        lambda: request_json(client, "GET", "/api/companies"), lambda answer: answer[0] == 401
    )


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
        f"/{number}": f"127.0.0.1:{site.cells[cell].api.port}"
        for number, cell in enumerate(cells.values())
    }


async def test_shared_link_is_found_in_the_other_cell(site: Site, tmp_path: Path) -> None:
    company = await site.company("a", 1)
    client = await site.client(company, f"a.{CellsNginx.name}")
    invoice_id = await create_invoice(client)
    _, made = await request_json(
        client, "POST", f"/api/invoices/{invoice_id}/links", json={"purpose": "view"}
    )
    path = "/shared/" + made["data"]["url"].partition("/shared/")[2]
    for _ in ("before", "after"):
        async with client.get(path) as response:
            assert response.status == 200, await response.text()
        assert await site.move(company, tmp_path / "move.log") == 0
    async with client.get("/shared/unknown") as response:
        assert response.status == 404


@dataclass
class Load:
    """Clients of other companies, which must not fail, and the client of the moved company."""

    failures: list[object] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    created: dict[str, int] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    reconnects: int = 0
    is_over: bool = False

    async def work(self, client: aiohttp.ClientSession, name: str) -> None:
        """Create invoices and read lists."""
        for number in itertools.count():
            if self.is_over:
                return
            for method, path, body, expected in (
                ("POST", "/api/invoices", invoice(), 201),
                ("GET", "/api/invoices?per_page=5", None, 200),
            ):
                status, answer = await self._send(client, method, path, f"{number}", body)
                if status != expected:
                    self.failures.append((name, status, answer))
            self.done[name] += 1

    async def write(self, client: aiohttp.ClientSession) -> None:
        """Create invoices of the moved company, each until it is answered."""
        for number in itertools.count():
            if self.is_over:
                return
            key, body = f"key-{number}", invoice()
            while (made := await self._try_to_create(client, key, body)) is None:
                await asyncio.sleep(0.1)
            self.created[key] = made

    async def _try_to_create(
        self, client: aiohttp.ClientSession, key: str, body: dict[str, Any]
    ) -> int | None:
        status, answer = await self._send(client, "POST", "/api/invoices", key, body)
        self.statuses[status] += 1
        return answer["data"]["id"] if status == 201 else None

    async def _send(
        self,
        client: aiohttp.ClientSession,
        method: str,
        path: str,
        key: str,
        body: dict[str, Any] | None,
    ) -> tuple[int, Any]:
        """Send a request, again if nginx closes its idle connection at that moment to reload."""
        while True:
            try:
                headers = {"Idempotency-Key": key} if method == "POST" else {}
                return await request_json(client, method, path, json=body, headers=headers)
            except aiohttp.ClientConnectionError:
                self.reconnects += 1

    async def go_on(self) -> None:
        """Wait until each company has done more."""
        done, created = Counter(self.done), len(self.created)
        await wait_until(
            lambda: (
                all(self.done[name] > done[name] + 5 for name in ("a", "b"))
                and len(self.created) > created + 5
            )
        )


async def open_submissions(
    client: aiohttp.ClientSession, sandbox: Sandbox, url: str
) -> dict[str, list[int]]:
    """Leave submissions Accepted, Uncertain and Queued while no worker runs, for an hour."""
    opened: dict[str, list[int]] = {"Accepted": [], "Uncertain": [], "Queued": []}
    await sandbox.settings(processing_seconds=3600)
    for _ in range(3):
        opened["Accepted"].append(await create_invoice(client, submitImmediately=True))
    for _ in range(3):
        await sandbox.fault("submit", "accept_then_drop")
        opened["Uncertain"].append(await create_invoice(client, submitImmediately=True))
    _, company = await request_json(client, "GET", "/api/companies")
    setting = {**company["data"]["setting"], "AUTO_SUBMIT_INVOICE": True}
    await request_json(client, "PUT", "/api/companies", json={"setting": setting})
    for _ in range(3):
        opened["Queued"].append(await create_invoice(client, isReady=True))
    setting["AUTO_SUBMIT_INVOICE"] = False
    await request_json(client, "PUT", "/api/companies", json={"setting": setting})
    conn = await asyncpg.connect(url)
    await conn.execute(
        "update submissions set not_before = clock_timestamp() + interval '1 hour'"
        " where state in ('Queued', 'Uncertain', 'Accepted')"
    )
    rows = await conn.fetch(
        "select state, count(*) as n from submissions where not has_outcome group by state"
    )
    await conn.close()
    states = {row["state"]: row["n"] for row in rows}
    assert {name: len(ids) for name, ids in opened.items()}.items() <= states.items(), states
    return opened


async def seed(url: str, company: int) -> None:
    """Insert many invoices with submissions."""
    conn = await asyncpg.connect(url)
    span = {"company_id": company, "first": 50_001, "last": 50_000 + INVOICES}
    for name in ("invoices_seed", "submissions_seed"):
        await SEED[name](conn, **span)
    await conn.close()


async def read_history(url: str, company: int) -> dict[str, set[str]]:
    """Return the identity of each row that is never deleted."""
    conn = await asyncpg.connect(url)
    try:
        return {
            table: {
                row["key"]
                for row in await conn.fetch(
                    f"select ({key})::text as key from {table} where company_id = $1", company
                )
            }
            for table, key in HISTORY.items()
        }
    finally:
        await conn.close()


async def test_company_moves_under_load_though_each_step_is_killed(
    site: Site, sandbox: Sandbox, receiver: Receiver, tmp_path: Path
) -> None:
    a, b = site.cells["a"], site.cells["b"]
    company, others = await site.company("a", 1), [await site.company(*of) for of in OTHERS]
    client = await site.client(company)
    await seed(a.url, company.id)
    async with a.worker:
        await create_endpoint(client, receiver.url)
        await create_valid_invoice(client)
    opened = await open_submissions(client, sandbox, a.url)
    await site.stack.enter_async_context(a.worker)
    await site.stack.enter_async_context(b.worker)

    load = Load()
    tasks = [asyncio.create_task(load.write(client))]
    for other, (cell, _) in zip(others, OTHERS, strict=True):
        tasks.append(asyncio.create_task(load.work(await site.client(other), cell)))
    await load.go_on()
    for step in STEPS:
        assert await site.move(company, tmp_path / f"{step}.log", dies_at=step) == -9, step
    assert await site.move(company, tmp_path / "last.log") == 0
    await load.go_on()
    load.is_over = True
    async with patience():
        await asyncio.gather(*tasks)
    print(load.done, load.statuses, load.reconnects)
    assert load.reconnects <= 2 * len(tasks)
    assert load.failures == []
    assert load.statuses[503] > 0 and set(load.statuses) <= {201, 503, 409}
    assert len(set(load.created.values())) == len(load.created)

    await sandbox.settings(processing_seconds=0)
    conn = await asyncpg.connect(b.url)
    await conn.execute(
        "update submissions set not_before = clock_timestamp()"
        " where state in ('Queued', 'Uncertain', 'Accepted')"
    )
    await conn.close()
    for invoice_id in itertools.chain(*opened.values()):
        await wait_for_status(client, invoice_id, "Valid")
    for made in load.created.values():
        assert (await get_invoice(client, made))["status"] == "Draft"

    old, new = await read_history(a.url, company.id), await read_history(b.url, company.id)
    assert all(old[table] <= new[table] for table in HISTORY)
    assert len(old["invoices"]) >= INVOICES and old["portal_sightings"]
    numbers = Counter(one["number"] for one in await sandbox.ledger())
    assert len(numbers) == 10 and set(numbers.values()) == {1}
    await check_deliveries(receiver, b.url, company.id)


#: (cell, number of the TIN) of other companies.
OTHERS = (("a", 2), ("a", 3), ("b", 4))


async def check_deliveries(receiver: Receiver, url: str, company: int) -> None:
    """Check that each event reaches the webhook once."""
    conn = await asyncpg.connect(url)
    count = "select count(*) from events where company_id = $1"

    async def all_delivered() -> bool:
        return len(receiver.got) >= await conn.fetchval(count, company)

    await until(all_delivered)
    await conn.close()
    ids = Counter(headers["webhook-id"] for headers, _ in receiver.got)
    assert set(ids.values()) == {1}

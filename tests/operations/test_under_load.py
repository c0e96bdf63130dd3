"""Promises under load: a stop, a restart of PostgreSQL, a full disk and slow clients."""

import asyncio
import itertools
import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from conftest import Company, Sandbox, make_company, until
from harness.environments import variables
from harness.postgres_server import PostgresServer
from harness.processes import Service, read_peak
from harness.waiting import wait_until
from kit import create_invoice, invoice, line, request_json, submit
from test_exports import insert_copies

from service.db.migrations import migrate

pytestmark = pytest.mark.long

WRITERS, READERS, SUBMITTERS, IDLE = 6, 4, 2, 10
STOPS, STOP_SECONDS = 3, 30
RESTARTS = ("fast", "immediate", "fast", "immediate")
DISK_BYTES = 220 * 2**20
FREE_BYTES = 1_500_000  # left to PostgreSQL on the full disk
SLOW = 400  # connections
MOST_KILOBYTES = 300_000


@dataclass
class Load:
    """Clients of a company that each use one connection, and the answers to their requests.

    A request is accepted if it was sent before the time `signalled`, or if a part of its response
    was received.
    """

    service: Service
    company: Company
    signalled: float = float("inf")
    acknowledged: dict[int, str] = field(default_factory=dict)  # id -> reference
    statuses: Counter[int] = field(default_factory=Counter)
    unanswered: list[str] = field(default_factory=list)  # accepted requests
    ended: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def create(self) -> None:
        """Create invoices. Every second one is repeated with its key until it is stored."""
        async with self._open() as http:
            for number in self._numbers:
                body, is_open = invoice(reference=f"order {number}"), True
                headers = {"Idempotency-Key": f"{number}"} if number % 2 else {}
                while is_open and not self.ended:
                    answer = await self._send(
                        http, "POST", "/api/invoices", json=body, headers=headers
                    )
                    if answer is None:
                        return
                    if answer[0] == 201:
                        self.acknowledged[answer[1]["data"]["id"]] = body["reference"]
                    is_open = bool(headers) and answer[0] != 201
                if self.ended:
                    return

    async def repeat(self, paths: Iterator[tuple[str, str]]) -> None:
        """Send requests without a body until there are no more, or the service is gone."""
        async with self._open() as http:
            for method, path in paths:
                if self.ended or await self._send(http, method, path) is None:
                    return

    async def stay_idle(self) -> None:
        """Send one request and keep the connection until the service closes it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.service.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.read()
        writer.close()

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            self.service.base,
            headers={"X-API-Key": self.company.key},
            connector=aiohttp.TCPConnector(limit=1),
        )

    async def _send(
        self, http: aiohttp.ClientSession, method: str, path: str, **request: Any
    ) -> tuple[int, Any] | None:
        """Return the answer to a request, or None if there is no service."""
        began = time.monotonic()
        try:
            status, answer = await request_json(http, method, path, **request)
        except aiohttp.ClientError as error:
            if began < self.signalled or isinstance(error, aiohttp.ClientPayloadError):
                self.unanswered.append(f"{method} {path}: {error!r}")
            return None
        self.statuses[status] += 1
        return status, answer

    async def grow(self, count: int) -> None:
        """Wait until some more creations are acknowledged."""
        most = len(self.acknowledged) + count
        await wait_until(lambda: len(self.acknowledged) >= most)


async def read_references(url: str) -> dict[int, str]:
    """Return {id: reference} of the invoices of the load."""
    conn = await asyncpg.connect(url)
    try:
        query = "select id, reference from invoices where reference like 'order %'"
        return {row["id"]: row["reference"] for row in await conn.fetch(query)}
    finally:
        await conn.close()


async def test_sigterm_under_load_ends_in_time_and_loses_no_accepted_request(
    environment: dict[str, str],
    company: Company,
    database: str,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    tmp_path: Path,
) -> None:
    """Requests that are sent after the signal may find no service, and have no effect then."""
    acknowledged: dict[int, str] = {}
    numbers = itertools.count()
    for turn in range(STOPS):
        async with Service(environment, tmp_path / f"{turn}.log") as service:
            load = Load(service, company, _numbers=numbers)
            async with aiohttp.ClientSession(
                service.base, headers={"X-API-Key": company.key}
            ) as http:
                drafts = [await create_invoice(http) for _ in range(8)]
                if turn == 0:
                    copied = await create_invoice(http, code=10**9)
                    await insert_copies(owner, copied, 300, remark="x" * 40_000)
            await sandbox.fault("submit", "slow_before", seconds=1, times=2 * SUBMITTERS)
            clients = [asyncio.create_task(work) for work in make_clients(load, drafts)]
            await load.grow(30)
            load.signalled = time.monotonic()
            assert await service.stop() == 0
            assert time.monotonic() - load.signalled < STOP_SECONDS
            await asyncio.gather(*clients)
        assert load.unanswered == []
        assert load.statuses.keys() == {200, 201}
        acknowledged |= load.acknowledged
    assert await read_references(database) == acknowledged


def make_clients(load: Load, drafts: list[int]) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield clients of each kind."""
    submissions = iter([("POST", f"/api/invoices/{each}/submit-to-portal") for each in drafts])
    yield from (load.create() for _ in range(WRITERS))
    yield from (load.repeat(itertools.repeat(("GET", "/api/invoices"))) for _ in range(READERS))
    yield load.repeat(itertools.repeat(("GET", "/api/invoices/export-all")))
    yield from (load.repeat(submissions) for _ in range(SUBMITTERS))
    yield from (load.stay_idle() for _ in range(IDLE))


@asynccontextmanager
async def run_on(
    server: PostgresServer, sandbox: Sandbox, log: Path
) -> AsyncIterator[tuple[Service, Company]]:
    """Yield a service on a PostgreSQL of the test, and a company."""
    await migrate(server.url)
    environment = {**variables(server.url, sandbox.base), "DATABASE_ACQUIRE_SECONDS": "2"}
    environment["REQUESTS_PER_MINUTE"] = "0"
    company = await make_company(environment)
    async with Service(environment, log) as service:
        yield service, company


async def test_restarts_of_postgresql_under_load_lose_nothing(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Each response is a success or a 503, and each invoice is stored once."""
    async with (
        PostgresServer(tmp_path / "postgres") as server,
        run_on(server, sandbox, tmp_path / "service.log") as (service, company),
    ):
        load = Load(service, company)
        pages = itertools.repeat(("GET", "/api/invoices"))
        work = [load.create() for _ in range(WRITERS)]
        work += [load.repeat(pages) for _ in range(READERS)]
        clients = [asyncio.create_task(each) for each in work]
        for mode in RESTARTS:
            await load.grow(50)
            await server.restart(mode)
        await load.grow(50)
        load.ended = True
        await asyncio.gather(*clients)
        assert load.unanswered == [] and load.statuses.keys() <= {200, 201, 503}
        stored = await read_references(server.url)
        assert stored.items() >= load.acknowledged.items()
        assert len(set(stored.values())) == len(stored)
        assert read_peak(service.pid) < MOST_KILOBYTES


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder on a small file system in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(["mount", *options], check=False).returncode:
        pytest.skip("a small file system cannot be mounted: this needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_disk_answers_503_sends_nothing_and_loses_nothing(
    small_disk: Path, sandbox: Sandbox, tmp_path: Path
) -> None:
    """A PostgreSQL that cannot write its log stops. It is started again once there is space."""
    filler = small_disk / "filler"
    async with (
        PostgresServer(small_disk / "postgres") as server,
        run_on(server, sandbox, tmp_path / "service.log") as (service, company),
        aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as http,
    ):
        draft = await create_invoice(http)
        load = Load(service, company)
        clients = [asyncio.create_task(load.create()) for _ in range(WRITERS)]
        await load.grow(1)
        free = os.statvfs(small_disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - FREE_BYTES))
        await wait_until(lambda: load.statuses[503] >= 50)
        assert (await submit(http, draft))[0] == 503
        assert (await request_json(http, "GET", "/api/invoices"))[0] in (200, 503)
        assert not await sandbox.ledger()
        load.ended = True
        await asyncio.gather(*clients)
        assert load.unanswered == [] and load.statuses.keys() == {201, 503}
        filler.unlink()
        await server.start()
        await until(lambda: submit(http, draft), lambda answer: answer[0] == 200)
        assert await create_invoice(http)
        assert (await read_references(server.url)).items() >= load.acknowledged.items()
        assert len(await sandbox.ledger()) == 1


async def connect_slowly(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection that can receive little."""
    slow = socket.socket()
    slow.setblocking(False)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=slow, limit=4096)


def make_slow_requests(key: str) -> list[tuple[bytes, bytes]]:
    """Return what a slow client of each kind sends at once, and what it sends byte by byte."""
    head = f"HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
    json_body = "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    return [
        (b"GET /api/invoices HTTP/1.1\r\nX-Padding: ", b"x" * 1000),
        (f"POST /api/invoices {head}{json_body}".encode(), b" " * 999),
        (f"GET /api/invoices?per_page=100 {head}\r\n".encode(), b""),
        (f"GET /api/invoices/export-all {head}\r\n".encode(), b""),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b""),
    ]


async def hold_connection(port: int, start: bytes, rest: bytes, held: Counter[str]) -> None:
    """Send and receive a byte now and then. Connect again when the service disconnects."""
    while True:
        try:
            reader, writer = await connect_slowly(port)
            writer.write(start)
            held["connections"] += 1
            for place in itertools.count():
                if place < len(rest):
                    writer.write(rest[place : place + 1])
                elif rest or not await reader.read(1):
                    break
                await asyncio.sleep(0.5)
            writer.close()
        except OSError:
            await asyncio.sleep(0.5)


async def test_slow_clients_do_not_stop_others(
    environment: dict[str, str],
    company: Company,
    owner: asyncpg.Connection,
    tmp_path: Path,
) -> None:
    """The slow clients send heads and bodies and read pages and exports byte by byte, or idle."""
    other, held = await make_company(environment), Counter[str]()
    async with Service({**environment, "REQUESTS_PER_MINUTE": "0"}, tmp_path / "log") as service:
        async with aiohttp.ClientSession(service.base, headers={"X-API-Key": other.key}) as http:
            copied = await create_invoice(http, lineItems=[line()])
        await insert_copies(owner, copied, 600, remark="x" * 10_000)
        requests = itertools.cycle(make_slow_requests(other.key))
        slow = [
            asyncio.create_task(hold_connection(service.port, *each, held))
            for each in itertools.islice(requests, SLOW)
        ]
        await wait_until(lambda: held["connections"] >= SLOW)
        load = Load(service, company)
        pages = itertools.repeat(("GET", "/api/invoices"))
        clients = [asyncio.create_task(load.create()) for _ in range(WRITERS)]
        clients += [asyncio.create_task(load.repeat(pages)) for _ in range(READERS)]
        await load.grow(300)
        load.ended = True
        await asyncio.gather(*clients)
        assert load.unanswered == [] and load.statuses.keys() == {200, 201}
        assert read_peak(service.pid) < MOST_KILOBYTES
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

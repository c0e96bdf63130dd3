"""Promises under load: a stop, restarts of PostgreSQL, a full disk and slow clients."""

import asyncio
import itertools
import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from service.db.migrations import migrate
from tests.api.test_exports import insert_copies
from tests.api_invoices import create_invoice
from tests.api_requests import request_json, submit
from tests.conftest import Company, Sandbox, make_company, until
from tests.harness.bodies import invoice
from tests.harness.databases import open_connection
from tests.harness.environments import variables
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import Service, read_peak
from tests.harness.waiting import patience, wait_until

pytestmark = pytest.mark.long

WRITERS, READERS, SUBMITTERS = 6, 4, 2
STOPS, STOP_SECONDS = 3, 30
DISK_BYTES = 220 * 2**20
FREE_BYTES = 1_500_000  # left to PostgreSQL on the full disk
SLOW, SLOWEST_SECONDS = 400, 5.0  # slow connections, the slowest response to another client
MOST_KILOBYTES = 300_000
SUCCESSES = {200, 201}
#: Codes of drafts, between which there is room for those of copies.
_codes = itertools.count(10**6, 10**4)
#: A 409 says that the key of a request whose end is not known is still in use.
UNAVAILABLE = {503, 409}
CREATE = ("POST", "/api/invoices")
PAGES = ("GET", "/api/invoices")
EXPORTS = ("GET", "/api/invoices/export-all")


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
    slowest: float = 0.0
    ended: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)
    clients: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, *further: Iterator[tuple[str, str]]) -> None:
        """Start clients that create invoices, that read pages, and that send further requests."""
        work = [self._create() for _ in range(WRITERS)]
        requests = [*[itertools.repeat(PAGES)] * READERS, *further]
        self.clients = [asyncio.create_task(each) for each in (*work, *map(self._repeat, requests))]

    async def grow(self, count: int) -> None:
        """Wait until some more creations are acknowledged."""
        most = len(self.acknowledged) + count
        await wait_until(lambda: len(self.acknowledged) >= most)

    async def finish(self, statuses: set[int]) -> None:
        """Let the clients end what they have begun, and check that each request was answered."""
        self.ended = True
        async with patience():
            await asyncio.gather(*self.clients)
        assert self.unanswered == []
        assert self.statuses.keys() <= statuses

    async def check(self, url: str) -> None:
        """Check that what was acknowledged is stored, and everything once."""
        stored = await read_references(url)
        assert stored.items() >= self.acknowledged.items()
        assert len(set(stored.values())) == len(stored)

    async def _create(self) -> None:
        """Create invoices. Every second one is repeated with its key until it is stored."""
        async with self.open() as http:
            for number in self.numbers:
                body = invoice(reference=f"order {number}")
                headers = {"Idempotency-Key": f"{number}"} if number % 2 else {}
                send = partial(self._send, http, *CREATE, json=body, headers=headers)
                status, answer = await send()
                while headers and status not in (201, None):
                    status, answer = await send()
                if status == 201:
                    self.acknowledged[answer["data"]["id"]] = body["reference"]
                if self.ended or status is None:
                    return

    async def _repeat(self, requests: Iterator[tuple[str, str]]) -> None:
        """Send requests until there are no more, or the service is gone."""
        async with self.open() as http:
            for request in requests:
                if self.ended or (await self._send(http, *request))[0] is None:
                    return

    def open(self) -> aiohttp.ClientSession:
        headers = {"X-API-Key": self.company.key}
        one = aiohttp.TCPConnector(limit=1)
        return aiohttp.ClientSession(self.service.base, headers=headers, connector=one)

    async def _send(
        self, http: aiohttp.ClientSession, method: str, path: str, **request: Any
    ) -> tuple[int | None, Any]:
        """Return the status and the body of a response. Without a service there is no status."""
        began = time.monotonic()
        try:
            status, answer = await request_json(http, method, path, **request)
        except aiohttp.ClientError as error:
            if began < self.signalled or isinstance(error, aiohttp.ClientPayloadError):
                self.unanswered.append(f"{method} {path}: {error!r}")
            return None, None
        self.statuses[status] += 1
        self.slowest = max(self.slowest, time.monotonic() - began)
        return status, answer


async def read_references(url: str) -> dict[int, str]:
    """Return {id: reference} of the invoices of the load."""
    async with open_connection(url) as conn:
        query = "select id, reference from documents where reference like 'order %'"
        return {row["id"]: row["reference"] for row in await conn.fetch(query)}


async def create_drafts(service: Service, company: Company, count: int) -> list[int]:
    async with service.client(company.key) as http:
        return [await create_invoice(http, code=next(_codes)) for _ in range(count)]


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
            drafts = await create_drafts(service, company, 8)
            await insert_copies(owner, drafts[-1], 300, remark="x" * 40_000)
            await sandbox.fault("submit", "slow_before", seconds=1, times=2 * SUBMITTERS)
            submissions = iter(
                [("POST", f"/api/invoices/{each}/submit-to-portal") for each in drafts]
            )
            load = Load(service, company, numbers=numbers)
            load.start(itertools.repeat(EXPORTS), *[submissions] * SUBMITTERS)
            await load.grow(30)
            load.signalled = time.monotonic()
            assert await service.stop() == 0
            assert time.monotonic() - load.signalled < STOP_SECONDS
            await load.finish(SUCCESSES)
        acknowledged |= load.acknowledged
    assert await read_references(database) == acknowledged


@asynccontextmanager
async def run_on(server: PostgresServer, sandbox: Sandbox, log: Path) -> AsyncIterator[Load]:
    """Yield the load of a service on a PostgreSQL of the test."""
    await migrate(server.url)
    environment = {**variables(server.url, sandbox.base), "DATABASE_ACQUIRE_SECONDS": "2"}
    environment["REQUESTS_PER_MINUTE"] = "0"
    company = await make_company(environment)
    async with Service(environment, log) as service:
        yield Load(service, company)


async def test_restarts_of_postgresql_under_load_lose_nothing(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Each response is a success or a refusal that can be repeated."""
    async with (
        PostgresServer(tmp_path / "postgres") as server,
        run_on(server, sandbox, tmp_path / "service.log") as load,
    ):
        load.start()
        for mode in ("fast", "immediate") * 2:
            await load.grow(50)
            await server.restart(mode)
        await load.grow(50)
        await load.finish(SUCCESSES | UNAVAILABLE)
        await load.check(server.url)
        assert read_peak(load.service.pid) < MOST_KILOBYTES


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
        run_on(server, sandbox, tmp_path / "service.log") as load,
        load.open() as http,
    ):
        draft = await create_invoice(http)
        load.start()
        await load.grow(1)
        free = os.statvfs(small_disk)
        filler.write_bytes(bytes(free.f_bavail * free.f_frsize - FREE_BYTES))
        await wait_until(lambda: load.statuses[503] >= 50)
        assert (await submit(http, draft))[0] == 503
        assert not await sandbox.ledger()
        filler.unlink()
        await server.start()
        await load.finish(SUCCESSES | UNAVAILABLE)
        await until(lambda: submit(http, draft), lambda answer: answer[0] == 200)
        await load.check(server.url)
        assert len(await sandbox.ledger()) == 1


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
    """Send or receive a byte now and then. Connect again when the service disconnects."""
    while True:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=slow, limit=4096)
        try:
            writer.write(start)
            held["connections"] += 1
            for byte in rest:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.5)
            while not rest and await reader.read(1):
                await asyncio.sleep(0.5)
        except (OSError, RuntimeError):  # uvloop's error for a closed connection
            held["disconnected"] += 1
        finally:
            writer.transport.abort()


async def test_slow_clients_do_not_stop_others(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """The slow clients send heads and bodies and read pages and exports byte by byte, or idle."""
    other, held = await make_company(environment), Counter[str]()
    async with Service({**environment, "REQUESTS_PER_MINUTE": "0"}, tmp_path / "log") as service:
        [copied] = await create_drafts(service, other, 1)
        await insert_copies(owner, copied, 600, remark="x" * 10_000)
        requests = itertools.cycle(make_slow_requests(other.key))
        slow = [
            asyncio.create_task(hold_connection(service.port, *each, held))
            for each in itertools.islice(requests, SLOW)
        ]
        await wait_until(lambda: held["connections"] >= SLOW)
        load = Load(service, company)
        load.start()
        await load.grow(300)
        await load.finish(SUCCESSES)
        assert load.slowest < SLOWEST_SECONDS
        assert read_peak(service.pid) < MOST_KILOBYTES
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

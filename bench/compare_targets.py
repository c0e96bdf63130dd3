"""The targets of compare.py, their data, and the measurement of one operation of a target."""

import asyncio
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import cpu
import peer_programs
from benchmark import Company, Service
from compare_export import TIMEOUT_SECONDS, read_export
from invoices import make_invoice
from programs import ProgramError, run_program
from wrk import CREATE, Load, LoadResult, run_wrk

from tests.harness.databases import open_connection
from tests.harness.processes import ChildProcess

PEERS = peer_programs.PEERS
#: A process of the service, or of a peer.
Process = ChildProcess | peer_programs.Peer
SERVICE, AGAINST = "service", "against"
FASTIFY, FASTAPI, COPY = "fastify", "fastapi", "copy"
TARGETS = (SERVICE, FASTIFY, FASTAPI)
LIST, GET, EXPORT, SUBMIT = "list", "get", "export", "submit"
PAGE = "/api/invoices?page=1&per_page=10"
EXPORT_ALL = "/api/invoices/export-all"
IN_TURN, BY_ZIPF = "in turn", "by Zipf"
SEQUENCE = 100_000  # companies chosen by Zipf, the same in each run, before they repeat
WARM_UP_SECONDS = 2  # V8 and the caches of the targets need it

STOP_AUTOVACUUM = """
select array_agg(format('alter table %s set (autovacuum_enabled = off)', oid::regclass))
  from pg_class
 where relkind = 'r' and relnamespace::regnamespace::text in ('public', 'peers')
"""

IDS = """
select company_id, min(id) as first, max(id) as last, count(*)
  from invoice_records
 where company_id = any($1)
 group by company_id
"""
DRAFTS = "select company_id, id from invoice_records where id > $1 order by id"


@dataclass(frozen=True, slots=True)
class Invoices:
    """A company and the ids of its invoices, which are consecutive."""

    company: Company
    ids: range


@dataclass(frozen=True, slots=True)
class Data:
    """Companies that all targets have: those that send requests, and a large one to export.

    `file` has the companies of requests for wrk, in turn or by Zipf, `body` a body with code 0.
    """

    companies: Sequence[Invoices]
    choice: str
    large: Invoices
    file: Path
    body: Path


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one operation of one target. Times of the CPU are microseconds per request.

    For exports a request is the export of one invoice, and `p50` and `p99` are the whole time.
    """

    rate: float
    p50: float
    p99: float
    cpu: float | None
    postgres_cpu: float
    memory: float | None

    @property
    def spread(self) -> float:
        """The ratio p99/p50."""
        return self.p99 / self.p50

    @property
    def all_cpu(self) -> float:
        """The CPU time of the target and of PostgreSQL."""
        return (self.cpu or 0) + self.postgres_cpu


@dataclass(frozen=True, slots=True)
class Setting:
    """The environment of all measurements."""

    service: Service
    data: Data
    postmaster: int
    seconds: float
    connections: int


async def seed(
    service: Service, companies: int, invoices: int, exported: int, choice: str = IN_TURN
) -> Data:
    """Create companies with the same number of invoices, and one with those to export."""
    print(f"Creating {companies:,} companies with {invoices:,} invoices …", flush=True)
    added = await add_invoices(service, companies, invoices)
    print(f"Creating a company with {exported:,} invoices …", flush=True)
    [large] = await add_invoices(service, 1, exported)
    body = service.home / "body.json"
    body.write_text(json.dumps(make_invoice(0)))
    return Data(added, choice, large, write_companies(service, added, choice), body)


async def add_invoices(service: Service, companies: int, count: int) -> list[Invoices]:
    """Add companies with a number of invoices each, whose ids must be consecutive."""
    added = await service.add_companies(companies, count)
    async with open_connection(service.url) as conn:
        rows = await conn.fetch(IDS, [company.id for company in added])
    if any(row["last"] - row["first"] + 1 != row["count"] for row in rows):
        raise RuntimeError("The ids of the invoices are not consecutive.")
    ids = {row["company_id"]: range(row["first"], row["last"] + 1) for row in rows}
    return [Invoices(company, ids[company.id]) for company in added]


def write_companies(service: Service, companies: Sequence[Invoices], choice: str = IN_TURN) -> Path:
    """Write the companies of requests for wrk. By Zipf, the n-th has 1/n of those of the first."""
    path = service.home / f"{choice} {len(companies)} from {companies[0].company.id}.txt"
    if choice == BY_ZIPF:
        weights = [1 / place for place in range(1, len(companies) + 1)]
        companies = random.Random(1).choices(companies, weights, k=SEQUENCE)
    lines = [f"{each.company.key} {each.ids[0]} {each.ids[-1]}\n" for each in companies]
    path.write_text("".join(lines))
    return path


async def fill_peers(service: Service, companies: list[Company]) -> None:
    """Create the tables of the peers with all companies, their invoices and keys."""
    async with open_connection(service.url) as conn:
        await conn.execute((PEERS / "schema.sql").read_text())
        keys = [(company.key.encode(), company.id) for company in companies]
        await conn.executemany("insert into peers.api_keys values (sha256($1), $2)", keys)


async def stop_autovacuum(service: Service) -> None:
    """Switch autovacuum off for the tables of this database, and nothing else of the server."""
    async with open_connection(service.url) as conn:
        for statement in await conn.fetchval(STOP_AUTOVACUUM):
            await conn.execute(statement)


def choose_process(setting: Setting, target: str) -> Process:
    """Return the process of a target, which is a context manager."""
    service = setting.service
    match target:
        case "service" | "against":
            return service.make_another()
        case "fastapi":
            return peer_programs.create_fastapi(service.url, service.home)
        case _:
            return peer_programs.create_fastify(service.url, service.home)


async def measure(setting: Setting, operation: str, process: Process | None) -> Figures:
    """Measure one operation of a target that runs, or without one COPY of the same export."""
    if process is None:
        return await _measure_copy(setting)
    if operation == EXPORT:
        return await _observe(setting, process, lambda: _export(process, setting.data))
    load = await _choose_load(setting, process, operation)
    return await measure_load(setting, process, load)


async def measure_load(setting: Setting, process: Process, load: Load) -> Figures:
    """Measure the load of wrk on a process, after a warm-up if the load can be repeated."""
    if load.request[0] != SUBMIT:
        await run_wrk(load, WARM_UP_SECONDS)
    return await _observe(setting, process, lambda: run_wrk(load, setting.seconds))


async def _observe(
    setting: Setting, process: Process | None, work: Callable[[], Awaitable[LoadResult]]
) -> Figures:
    """Run the work and return its figures with the CPU time that it took."""
    pids = [setting.postmaster, *([process.pid] if process and process.pid else [])]
    before = [cpu.read_cpu(pid) for pid in pids]
    result = await work()
    spent = [cpu.read_cpu(pid) - start for pid, start in zip(pids, before, strict=True)]
    used = [seconds / result.requests * 1e6 for seconds in spent]
    memory = cpu.read_peak(pids[1]) if len(pids) > 1 else None
    return Figures(
        result.requests / result.seconds,
        result.p50,
        result.p99,
        used[1] if len(used) > 1 else None,
        used[0],
        memory,
    )


def take_median(measured: Sequence[Figures]) -> Figures:
    """Return the median of each figure."""

    def median(name: str) -> Any:
        values = [getattr(each, name) for each in measured]
        return None if None in values else statistics.median(values)

    return Figures(**{field.name: median(field.name) for field in fields(Figures)})


async def _choose_load(setting: Setting, process: Process, operation: str) -> Load:
    """Return the load of an operation, after what it needs was prepared."""
    data = setting.data
    request = make_request(CREATE if operation == SUBMIT else operation, data)
    load = Load(process.base, data.file, request, setting.connections)
    if operation == SUBMIT:
        return replace(load, companies=await _create_drafts(setting, load), request=(SUBMIT,))
    return load


def make_request(operation: str, data: Data) -> tuple[str, ...]:
    """Return the arguments of an operation for load.lua."""
    return {LIST: (LIST, PAGE), GET: (GET,), CREATE: (CREATE, str(data.body))}[operation]


async def _create_drafts(setting: Setting, load: Load) -> Path:
    """Create invoices, and return a file with a line for each in the order of the requests."""
    service = setting.service
    keys = {each.company.id: each.company.key for each in setting.data.companies}
    async with open_connection(service.url) as conn:
        last = await conn.fetchval("select max(id) from invoice_records")
        await run_wrk(load, setting.seconds)
        rows = await conn.fetch(DRAFTS, last)
    await service.vacuum()  # The planner must know the size of the companies.
    path = service.home / "drafts.txt"
    path.write_text("".join(f"{keys[row['company_id']]} {row['id']} {row['id']}\n" for row in rows))
    return path


async def _export(process: Process, data: Data) -> LoadResult:
    """Export all invoices once. A request of the result is one invoice."""
    invoices, seconds = await asyncio.to_thread(read_export, process.port, data.large.company.key)
    if invoices != len(data.large.ids):
        raise ProgramError(f"{invoices:,} of {len(data.large.ids):,} invoices are exported.")
    return LoadResult(invoices, seconds, seconds * 1000, seconds * 1000)


async def _measure_copy(setting: Setting) -> Figures:
    """Measure COPY of the same text, which psql writes to /dev/null."""
    large = setting.data.large
    query = (
        "copy (select optional_members, export::text from invoice_exports "
        f"where company_id = {large.company.id} order by id desc) to stdout"
    )
    command = ["psql", setting.service.url, "-X", "-c", query]

    async def copy() -> LoadResult:
        began = time.perf_counter()
        variables = {"PGOPTIONS": "-c jit=off -c timezone=UTC"}
        await run_program(command, TIMEOUT_SECONDS, variables, asyncio.subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        return LoadResult(len(large.ids), seconds, seconds * 1000, seconds * 1000)

    return await _observe(setting, None, copy)

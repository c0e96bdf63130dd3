#!/usr/bin/env python3
"""Measure what the libraries of the request path cost alone, as a bound for the service's figures.

    .venv/bin/python bench/floor.py [--seconds S] [--rounds N] [--connections N]

A server with aiohttp alone returns the responses that the service returns. In the second variant
each request also runs the service's statement, prepared, on a connection of asyncpg that only it
uses; a create also checks the body as the service does. In the third it runs through the service's
Database: with the fair queue, time limits, and the check of lost connections. None of them has
authentication, limits, log, headers or retries. The last variant is the service itself, which also
answers a request that needs neither a key nor a statement, and one that needs no statement. Prints
CPU time per request in microseconds, the medians of the rounds: of the server, and of PostgreSQL.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import asyncpg
from aiohttp import web
from asyncpg.prepared_stmt import PreparedStatement
from benchmark import Service, parse_options, prepare_service, run
from compare_targets import GET, LIST, Data, Invoices, make_request, seed
from cpu import find_postmaster, read_cpu
from wrk import CREATE, Load, run_wrk

from service import json_codec, schema
from service.db.pool import SESSION, connected_pool
from service.db.statements import Result, Statement, sql
from service.db.transactions import Database
from service.documents.body_checks import check_draft
from service.documents.kind import INVOICE
from service.fair_queue import CLIENT
from tests.harness.processes import free_port

CONNECTIONS = 8  # to PostgreSQL
STATEMENTS = (sql.invoice_get, sql.invoice_page)
PAGE = {"per_page": 10, "offset": 0, "budget": 1_000_000}
COMPANIES, INVOICES = 20, 1000  # companies that send requests in turn, invoices of each
#: Pages from the memory of the service.
NO_KEY, NO_STATEMENT = "/healthz", "/api/code-tables/document_types?per_page=1"
CREATED = '{"success":true,"message":"Invoice created.","data":{"id":1}}'
Handler = Callable[[web.Request], Awaitable[web.Response]]
#: The prepared statements of each connection that is idle.
Connections = asyncio.Queue[dict[Statement, PreparedStatement]]
Read = Callable[..., Awaitable[Result]]


async def read_prepared(connections: Connections, statement: Statement, **values: object) -> Result:
    """Run a statement on an idle connection."""
    prepared = await connections.get()
    try:
        rows = await prepared[statement].fetch(*[values[name] for name in statement.variables])
    finally:
        connections.put_nowait(prepared)
    return rows[0][0] if statement.kind == "value" else rows


@asynccontextmanager
async def open_connections(url: str) -> AsyncIterator[Connections]:
    """Open the connections, and prepare the statements of get and list."""
    opened = [await asyncpg.connect(url, server_settings=SESSION) for _ in range(CONNECTIONS)]
    try:
        idle = Connections()
        for conn in opened:
            idle.put_nowait({each: await conn.prepare(each.isolated) for each in STATEMENTS})
            await conn.execute("select 1")  # Ends the time limit of the preparation.
        yield idle
    finally:
        for conn in opened:
            conn.terminate()


def make_bare_handlers(record: str, page: str) -> dict[str, Handler]:
    """Return handlers that respond with constant texts."""

    async def get(request: web.Request) -> web.Response:
        return _respond(record)

    async def list_page(request: web.Request) -> web.Response:
        return _respond(page)

    async def create(request: web.Request) -> web.Response:
        json.loads(await request.read())
        return _respond(CREATED)

    return {"get": get, "list": list_page, "create": create}


def make_handlers(read: Read, companies: Sequence[Invoices]) -> dict[str, Handler]:
    """Return handlers that run the service's statement, or check a body as the service does."""
    ids = {each.company.key: each.company.id for each in companies}

    async def get(request: web.Request) -> web.Response:
        CLIENT.set(company_id := ids[request.headers["X-API-Key"]])
        document_id = int(request.match_info["id"])
        return _respond(await read(sql.invoice_get, company_id=company_id, id=document_id))

    async def list_page(request: web.Request) -> web.Response:
        CLIENT.set(company_id := ids[request.headers["X-API-Key"]])
        return _respond(_join(await read(sql.invoice_page, company_id=company_id, **PAGE)))

    async def create(request: web.Request) -> web.Response:
        raw = await request.read()
        body = json_codec.parse_any_depth(raw)
        assert schema.has_only_known("invoice_create", body)
        check_draft(INVOICE, body)
        return _respond(CREATED)

    return {"get": get, "list": list_page, "create": create}


def _respond(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")


@asynccontextmanager
async def serve(handlers: dict[str, Handler]) -> AsyncIterator[str]:
    """Serve the handlers and yield the base address."""
    app = web.Application()
    app.router.add_get("/api/invoices", handlers["list"])
    app.router.add_post("/api/invoices", handlers["create"])
    app.router.add_get("/api/invoices/{id}", handlers["get"])
    runner, port = web.AppRunner(app, access_log=None), free_port()
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@dataclass(frozen=True, slots=True)
class Variant:
    """A server, and a function that returns the CPU seconds it has used."""

    name: str
    base: str
    read_time: Callable[[], float]


async def measure(
    options: argparse.Namespace, variant: Variant, load: Load, postmaster: int
) -> tuple[float, float]:
    """Return the CPU time per request of the server and of PostgreSQL, in microseconds."""
    own, others = variant.read_time(), read_cpu(postmaster)
    result = await run_wrk(load, options.seconds)
    own, others = variant.read_time() - own, read_cpu(postmaster) - others
    return own / result.requests * 1e6, others / result.requests * 1e6


async def main(options: argparse.Namespace) -> None:
    """Measure the variants of the three operations, and print the table."""
    async with prepare_service(background=False) as service:
        data = await seed(service, COMPANIES, INVOICES, exported=1)
        await service.vacuum()
        async with (
            open_connections(service.url) as connections,
            connected_pool(service.url, CONNECTIONS) as pool,
        ):
            read, company = partial(read_prepared, connections), data.companies[0].company.id
            page = await read(sql.invoice_page, company_id=company, **PAGE)
            variants = {
                "aiohttp alone": make_bare_handlers(page[0]["record"], _join(page)),
                "with the statement, or the checks": make_handlers(read, data.companies),
                "with the statement of the pool": make_handlers(
                    Database(pool).read, data.companies
                ),
            }
            for name, handlers in variants.items():
                async with serve(handlers) as base:
                    variant = Variant(name, base, time.process_time)
                    await _print_variant(options, service, data, variant)
        async with service.make_another() as process:
            assert process.pid
            variant = Variant("the service", process.base, partial(read_cpu, process.pid))
            await _print_variant(options, service, data, variant)
            for name, path in (("no statement", NO_STATEMENT), ("nor key", NO_KEY)):
                load = Load(process.base, data.file, (LIST, path), options.connections)
                await _print_operation(options, service, variant, name, load)


def _join(rows: list[asyncpg.Record]) -> str:
    """Return the text of a page."""
    return f'{{"data":[{",".join(row["record"] for row in rows)}]}}'


async def _print_variant(
    options: argparse.Namespace, service: Service, data: Data, variant: Variant
) -> None:
    for operation in (GET, LIST, CREATE):
        request = make_request(operation, data)
        load = Load(variant.base, data.file, request, options.connections)
        await _print_operation(options, service, variant, operation, load)


async def _print_operation(
    options: argparse.Namespace, service: Service, variant: Variant, operation: str, load: Load
) -> None:
    postmaster = await find_postmaster(service.url)
    figures = [await measure(options, variant, load, postmaster) for _ in range(options.rounds)]
    own, others = (statistics.median(column) for column in zip(*figures, strict=True))
    print(f"{variant.name:36}{operation:14}{own:8.0f} µs{others:8.0f} µs", flush=True)


if __name__ == "__main__":
    run(main(parse_options(__doc__, seconds=3.0, rounds=3, connections=32)))

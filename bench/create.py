#!/usr/bin/env python3
"""Measure what the parts of a create cost in PostgreSQL.

    .venv/bin/python bench/create.py [--companies N] [--rounds N] [--creates N]

Each line has a database and a connection of its own, over which invoices with five lines are stored
one by one, each of another company than the one before it. From line to line one more part is gone.
The last lines are the statement of the Fastify peer, and a row with one column: the price of a
transaction that shares its commit with no other. Figures are medians of the rounds, in which the
lines alternate.
"""

import argparse
import itertools
import re
import statistics
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg
from benchmark import parse_options, prepare_service, print_table, provide_large_server, run
from invoices import make_invoice

from service import json_codec
from service.db.pool import SESSION
from service.db.statements import sql
from service.documents.body_checks import check_draft
from service.documents.checks.rule import PORTAL_ZONE
from service.documents.kind import INVOICE
from tests.harness.databases import administer, create_database, open_connection

PEERS = Path(__file__).resolve().parent / "peers"
#: The parts in the order of their removal: DDL, or the name of a step of the statement.
PARTS = {
    "counts of lists": "drop trigger counted_inserted on document_states",
    "state, words of the name": "drop trigger add_parts on documents",
    "audit log": "audited",
    "event": "noted",
    "checks": "alter table documents drop constraint documents_columns_by_kind;"
    "alter domain optional_members drop constraint documents_optional_members;"
    "alter domain document_type drop constraint documents_type",
    "indexes of lists": "drop index documents_live, documents_by_issue_date, documents_by_buyer",
    "row-level security": "alter table documents disable row level security",
}
ONE_COLUMN = "create table one_column (code bigint); grant insert on one_column to einvoice_service"

Arguments = Callable[[int, int], Sequence[object]]


class Line(NamedTuple):
    """A line of the table: DDL, a statement, and its arguments for a company and a code."""

    name: str
    ddl: str
    query: str
    arguments: Arguments


async def main(options: argparse.Namespace) -> None:
    """Measure and print the table."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(provide_large_server())
        service = await stack.enter_async_context(prepare_service(server=server))
        companies = [each.id for each in await service.add_companies(options.companies, 1000)]
        await service.vacuum()
        template = urlsplit(service.url).path[1:]
        end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'"
        await administer(server, end.format(template))  # A template must have no connections.
        connections: dict[Line, asyncpg.Connection] = {}
        for line in make_lines():
            url = await stack.enter_async_context(create_database(server, template))
            await administer(url, line.ddl)
            connection = open_connection(url, server_settings=SESSION)
            connections[line] = await stack.enter_async_context(connection)
        keys = zip(itertools.cycle(companies), itertools.count(1_000_000), strict=False)
        times: dict[str, list[float]] = {line.name: [] for line in connections}
        for _ in range(options.rounds):
            for line, conn in connections.items():
                calls = [line.arguments(*key) for key in itertools.islice(keys, options.creates)]
                times[line.name].append(await measure(conn, line.query, calls))
    print_times({name: statistics.median(own) for name, own in times.items()})


async def measure(conn: asyncpg.Connection, query: str, calls: Sequence[Sequence[object]]) -> float:
    """Return the processor time of the server process for a call, in microseconds."""
    path = Path(f"/proc/{conn.get_server_pid()}/schedstat")
    statement = await conn.prepare(query)
    before = int(path.read_text().split()[0])
    for arguments in calls:
        await statement.fetch(*arguments)
    return (int(path.read_text().split()[0]) - before) / 1000 / len(calls)


def make_lines() -> list[Line]:
    """Return the lines, from the whole create on."""
    insert = sql.document_insert
    query, ddl = insert.query, "select;"
    lines = [Line("create", ddl, query, fill(insert.variables))]
    for name, part in PARTS.items():
        shorter = re.sub(rf", {part} as \(.*?\n\)", "", query, flags=re.DOTALL)
        ddl += "" if shorter != query else f"{part};"
        query = shorter
        lines.append(Line(f"without {name}", ddl, query, fill(insert.variables)))
    peer = (PEERS / "fastify" / "database.js").read_text()
    [(columns, values)] = re.findall(
        r"insert into peers\.invoices \((.*?)\)(.*?)`", peer, re.DOTALL
    )
    rights = "; grant usage on schema peers to einvoice_service;"
    rights += "grant all on all tables in schema peers to einvoice_service"
    schema = (PEERS / "schema.sql").read_text() + rights
    query = f"insert into peers.invoices ({columns}) {values}"
    lines.append(
        Line("statement of Fastify", schema, query, fill(columns.replace(",", "").split()))
    )
    query = "insert into one_column values ($1)"
    return [*lines, Line("a row with one column", ONE_COLUMN, query, fill(["code"]))]


def fill(names: Sequence[str]) -> Arguments:
    """Return a function that gives the values of columns or variables of an invoice."""
    body = json_codec.loads(json_codec.encode(make_invoice(1)))
    draft = check_draft(INVOICE, body)
    values = {"kind": INVOICE.name, "actor": "key", "request_id": "1", "client_address": "::1"}
    values = {**values, **draft.columns(PORTAL_ZONE)}

    def make(company: int, code: int) -> Sequence[object]:
        own = {**values, "company_id": company, "code": code}
        return [own.get(name) for name in names]

    return make


def print_times(times: dict[str, float]) -> None:
    """Print the times, and what each part adds."""
    whole, peer = times["create"], times["statement of Fastify"]
    rows = [(name, each, each / whole, each / peer) for name, each in times.items()]
    columns = ("", "µs", "of a create", "of Fastify's")
    print_table("Processor time of PostgreSQL for each invoice", columns, rows)


if __name__ == "__main__":
    run(main(parse_options(__doc__, companies=20, rounds=15, creates=300)))

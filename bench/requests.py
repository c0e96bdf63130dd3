#!/usr/bin/env python3
"""Measure requests per second of one process over 16 connections: create, get, list, submit.

    .venv/bin/python bench/requests.py [--seconds S] [--connections N] [--largest N]

wrk generates the load on the same machine, so it uses a share of the processors.
"""

import argparse
from collections.abc import Sequence

from benchmark import parse_options, print_table, run, start_service
from compare_targets import (
    CREATE,
    GET,
    LIST,
    SERVICE,
    SUBMIT,
    Figures,
    Setting,
    add_invoices,
    measure,
    measure_load,
    seed,
    write_companies,
)
from cpu import find_postmaster
from wrk import Load

SIZES = (1_000, 100_000)
#: Lists by name: the query, in which {last} is the last page.
LISTS = {
    "page 1": "",
    "the last page": "page={last}",
    "page 1 of a rare status": "status=Invalid",
    "page 1 of one day": "issued_from=2026-03-01T00:00:00Z&issued_to=2026-03-02T00:00:00Z",
    "page 1 of nearly all, by status": "status=Draft",
}
COLUMNS = ("", "requests/s", "p50 ms", "p99 ms", "CPU µs", "PostgreSQL CPU µs")


async def main(options: argparse.Namespace) -> None:
    """Measure all kinds of requests."""
    async with start_service(sandbox=True) as service:
        data = await seed(service, 1, SIZES[0], 1)
        postmaster = await find_postmaster(service.url)
        setting = Setting(service, data, postmaster, options.seconds, options.connections)
        rows = [
            _make_row(operation, await measure(setting, SERVICE, operation, service.process))
            for operation in (CREATE, GET, LIST, SUBMIT)
        ]
        title = f"One process, {options.connections} connections, {options.seconds} s each"
        print_table(title, COLUMNS, rows)
        rows = []
        for size in sorted({*SIZES, options.largest} - {0}):
            rows += await _measure_lists(setting, size)
        print_table("Lists of a company", COLUMNS, rows)


async def _measure_lists(setting: Setting, size: int) -> list[Sequence[object]]:
    """Measure the lists of a company with a number of invoices."""
    print(f"Creating {size:,} invoices of five lines …", flush=True)
    service, rows = setting.service, list[Sequence[object]]()
    file = write_companies(service, f"{size}", [await add_invoices(service, size)])
    await service.vacuum()
    for name, query in LISTS.items():
        path = f"/api/invoices?{query.format(last=size // 10)}".rstrip("?")
        load = Load(service.base, file, (LIST, path), setting.connections)
        figures = await measure_load(setting, service.process, load)
        rows.append(_make_row(f"{size:,} invoices, {name}", figures))
    return rows


def _make_row(name: str, each: Figures) -> Sequence[object]:
    costs = (each.cpu or 0.0, each.postgres_cpu)
    return (name, round(each.rate), each.p50, each.p99, *costs)


if __name__ == "__main__":
    run(main(parse_options(__doc__, seconds=5, connections=16, largest=0)))

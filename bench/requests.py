#!/usr/bin/env python3
"""Measure requests per second of one process over 16 connections: create, get, list, submit.

    .venv/bin/python bench/requests.py [--seconds S] [--connections N]

wrk generates the load on the same machine, so it uses a share of the processors. `compare.py
--growth` measures lists of companies of several sizes.
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
    measure,
    seed,
)
from cpu import find_postmaster

INVOICES = 1_000
COLUMNS = ("", "requests/s", "p50 ms", "p99 ms", "CPU µs", "PostgreSQL CPU µs")


async def main(options: argparse.Namespace) -> None:
    """Measure all kinds of requests."""
    async with start_service(sandbox=True) as service:
        data = await seed(service, 1, INVOICES, 1)
        postmaster = await find_postmaster(service.url)
        setting = Setting(service, data, postmaster, options.seconds, options.connections)
        rows = [
            _make_row(operation, await measure(setting, SERVICE, operation, service.process))
            for operation in (CREATE, GET, LIST, SUBMIT)
        ]
        title = f"One process, {options.connections} connections, {options.seconds} s each"
        print_table(title, COLUMNS, rows)


def _make_row(name: str, each: Figures) -> Sequence[object]:
    costs = (each.cpu or 0.0, each.postgres_cpu)
    return (name, round(each.rate), each.p50, each.p99, *costs)


if __name__ == "__main__":
    run(main(parse_options(__doc__, seconds=5, connections=16)))

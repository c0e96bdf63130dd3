#!/usr/bin/env python3
"""Measure time and memory of export-all of 100,000 invoices over HTTP.

.venv/bin/python bench/export.py [--invoices N] [--rounds N]
"""

import argparse
import asyncio
import http.client
import time
from contextlib import closing
from dataclasses import astuple, dataclass

from benchmark import parse_options, print_memory, print_table, read_memory, run, start_service
from programs import ProgramError

PATH = "/api/invoices/export-all"
MARK = b'"invoiceCodeWithPrefixAndDigits"'
TIMEOUT_SECONDS = 300
COLUMNS = ("round", "head s", "first byte s", "first invoice s", "all s", "MB", "invoices")


@dataclass(slots=True)
class Export:
    """An export: the seconds until its parts were received, its MB, and its invoices."""

    head: float
    first_byte: float = 0.0
    first_invoice: float = 0.0
    seconds: float = 0.0
    megabytes: float = 0.0
    invoices: int = 0


async def main(options: argparse.Namespace) -> None:
    """Export several times and print the tables."""
    async with start_service() as service:
        print(f"Creating {options.invoices:,} invoices of five lines …", flush=True)
        company = await service.add_company(options.invoices)
        await service.vacuum()
        before, _ = read_memory(service.process.pid)
        exports = [
            await asyncio.to_thread(read_export, service.process.port, company.key)
            for _ in range(options.rounds)
        ]
        after = read_memory(service.process.pid)
    rows = [(number, *astuple(export)) for number, export in enumerate(exports, 1)]
    print_table(f"GET {PATH}", COLUMNS, rows)
    print_memory(before, *after)


def read_export(port: int, key: str) -> Export:
    """Read an export of a company. Raises ProgramError if it is cut."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    buffer, tail, began = bytearray(2**18), b"", time.perf_counter()
    with closing(connection):
        connection.request("GET", PATH, headers={"X-API-Key": key})
        response = connection.getresponse()
        export = Export(time.perf_counter() - began)
        while length := response.readinto(buffer):
            export.seconds = time.perf_counter() - began
            export.first_byte = export.first_byte or export.seconds
            export.megabytes += length / 1e6
            piece = tail + buffer[:length]  # The mark may be split between two pieces.
            export.invoices += piece.count(MARK)
            tail = bytes(piece[1 - len(MARK) :])
            if export.invoices:
                export.first_invoice = export.first_invoice or export.seconds
    if response.status != 200 or not tail.endswith(b"]"):
        raise ProgramError(f"The export has status {response.status}, or was cut.")
    return export


if __name__ == "__main__":
    run(main(parse_options(__doc__, invoices=100_000, rounds=3)))

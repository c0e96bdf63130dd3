#!/usr/bin/env python3
"""Measure time and memory of export-all of 100,000 invoices over HTTP.

.venv/bin/python bench/export.py [--invoices N] [--rounds N]
"""

import argparse
import asyncio
import time

from benchmark import (
    Company,
    Service,
    print_table,
    read_memory,
    run,
    start_service,
    summary_of,
)

PATH = "/api/invoices/export-all"
MARK = b'"invoiceCodeWithPrefixAndDigits"'
COLUMNS = (
    "round",
    "head s",
    "first byte s",
    "first invoice s",
    "all s",
    "MB",
    "invoices",
    "status",
)


async def main(invoices: int, rounds: int) -> None:
    """Export several times and print the tables."""
    async with start_service() as service:
        print(f"Creating {invoices:,} invoices of five lines …", flush=True)
        company = await service.add_company(invoices)
        await service.vacuum()
        rows, (before, _) = [], read_memory(service.pid)
        for number in range(1, rounds + 1):
            rows.append((number, *await export(service, company)))
        after, peak = read_memory(service.pid)
    print_table(f"GET {PATH}", COLUMNS, rows)
    print_table(
        "Memory of the service process, MB",
        ("", "before", "after", "peak"),
        [("resident", before, after, peak or "unknown")],
    )


async def export(service: Service, company: Company) -> tuple[object, ...]:
    """Export once and return the values of COLUMNS after the first."""
    head = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {company.key}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=2**22)
    began, times = time.perf_counter(), {}
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    response = await reader.readuntil(b"\r\n\r\n")
    times["head"] = time.perf_counter() - began
    size, tail, count = 0, b"", 0
    while piece := await reader.read(2**20):
        now = time.perf_counter() - began
        times.setdefault("byte", now)
        size += len(piece)
        piece = tail + piece  # the mark may be split between two pieces
        count += piece.count(MARK)
        tail = piece[1 - len(MARK) :]
        if count:
            times.setdefault("invoice", now)
    writer.close()
    status = response.split()[1].decode()
    total = time.perf_counter() - began
    first = times.get("invoice", total)
    return times["head"], times["byte"], first, total, size / 1e6, count, status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--invoices", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    run(main(options.invoices, options.rounds))

#!/usr/bin/env python3
"""How long export-all of 100,000 invoices takes over HTTP, and how much memory the service takes for it.

.venv/bin/python bench/export.py [--invoices N] [--rounds N]
"""

import argparse
import asyncio
import time

from ground import ground, memory, run, table

PATH = "/api/invoices/export-all"
MARK = b'"invoiceCodeWithPrefixAndDigits"'


async def main(invoices, rounds):
    async with ground() as service:
        print(f"Making {invoices:,} invoices of five lines …", flush=True)
        company = await service.company(invoices)
        await service.tidy()
        rows, (before, _) = [], memory(service.pid)
        for number in range(1, rounds + 1):
            rows.append((number, *await exported(service, company)))
        after, highest = memory(service.pid)
    columns = (
        "round",
        "head s",
        "first byte s",
        "first invoice s",
        "all s",
        "MB",
        "invoices",
        "status",
    )
    table(f"GET {PATH}", columns, rows)
    columns = ("", "before", "after", "highest")
    table(
        "Memory of the service process, MB",
        columns,
        [("resident", before, after, highest or "unknown")],
    )


async def exported(service, company):
    """(seconds to the head, to the first byte of the body, to the first invoice, to the end; MB; invoices; status)."""
    head = f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {company.key}\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port, limit=2**22)
    began, times = time.perf_counter(), {}
    writer.write(head.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    times["head"] = time.perf_counter() - began
    size, tail, found = 0, b"", 0
    while piece := await reader.read(2**20):
        now = time.perf_counter() - began
        times.setdefault("byte", now)
        size += len(piece)
        piece = tail + piece  # a mark may be cut by the end of a piece
        found += piece.count(MARK)
        tail = piece[1 - len(MARK) :]
        if found:
            times.setdefault("invoice", now)
    writer.close()
    status = answer.split()[1].decode()
    whole = time.perf_counter() - began
    return (
        times["head"],
        times["byte"],
        times.get("invoice", whole),
        whole,
        size / 1e6,
        found,
        status,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--invoices", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    run(main(options.invoices, options.rounds))

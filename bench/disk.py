#!/usr/bin/env python3
"""Check the responses to clients while the disk of PostgreSQL is full, and afterwards.

    mount -t tmpfs -o size=220m tmpfs DIRECTORY    # or any small file system
    .venv/bin/python bench/disk.py DIRECTORY

A PostgreSQL of the run stores its data in that directory, next to a file that fills the remaining
space and is removed at the end. Exits with 1 if an acknowledged creation is lost, a write gets a
status other than 2xx and 503, a read fails, a submission reaches the portal, or writes do not
succeed again.
"""

import argparse
import asyncio
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
from benchmark import Service, print_table, read_memory, run, start_service, summary_of
from harness.postgres_server import PostgresServer
from requests import create_requests

FREE_BYTES = 1_500_000  # left to PostgreSQL when the file is written
MAX_DISK_BYTES = 10**9  # size of a file system that may be filled
CONCURRENT = 8
REFUSALS = 50  # after this number the disk counts as full
MAX_WRITES = 20_000


async def main(directory: Path) -> None:
    """Fill the disk, print the results and compare them with EXPECTED."""
    if shutil.disk_usage(directory).total > MAX_DISK_BYTES:
        sys.exit(f"{directory} is on a large file system: mount a small one there.")
    home = directory / "postgres"
    try:
        async with (
            PostgresServer(home) as server,
            start_service(
                sandbox=True, server=server.url, variables={"LOG_LEVEL": "WARNING"}
            ) as service,
        ):
            results = await _fill_disk(service, directory / "filler")
    finally:
        shutil.rmtree(home)
    print_table("A full disk", ("", ""), list(results.items()))
    wrong = {
        name: value
        for name, value in results.items()
        if name in EXPECTED and value not in EXPECTED[name]
    }
    if wrong:
        sys.exit(f"Unexpected results: {wrong}")


#: Name of a result -> allowed values.
EXPECTED: dict[str, tuple[object, ...]] = {
    "statuses of writes while full": ("201 503",),
    "status of a read": (200,),
    "status of a submit": (503,),
    "documents at the portal": (0,),
    "statuses of writes afterwards": ("201",),
    "of them lost": (0,),
}


async def _fill_disk(service: Service, filler: Path) -> dict[str, Any]:
    """Write until the disk is full, free it, write again. Return the results."""
    company = await service.add_company()
    acknowledged: list[int] = []
    bodies = create_requests()
    async with aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as http:

        async def write() -> int:
            _, path, text = next(bodies)
            async with http.post(
                path, data=text, headers={"Content-Type": "application/json"}
            ) as response:
                if response.status == 201:
                    acknowledged.append((await response.json())["data"]["id"])
                return response.status

        await write()
        disk = os.statvfs(filler.parent)
        filler.write_bytes(bytes(disk.f_bavail * disk.f_frsize - FREE_BYTES))
        try:
            full: Counter[int] = Counter()
            while full[503] < REFUSALS and full.total() < MAX_WRITES:
                full.update(await asyncio.gather(*[write() for _ in range(CONCURRENT)]))
            async with http.get("/api/invoices") as response:
                read = response.status
            path = f"/api/invoices/{acknowledged[0]}/submit-to-portal"
            async with http.post(path, json={}) as response:
                submit = response.status
            sent = len(await service.portal.ledger())
        finally:
            filler.unlink()
        after = Counter([await write() for _ in range(REFUSALS)])
    return {
        "writes until and while full": full.total(),
        "statuses of writes while full": " ".join(map(str, sorted(full))),
        "status of a read": read,
        "status of a submit": submit,
        "documents at the portal": sent,
        "statuses of writes afterwards": " ".join(map(str, sorted(after))),
        "creations acknowledged": len(acknowledged),
        "of them lost": await count_lost(service, acknowledged),
        "peak memory of the service, MB": read_memory(service.pid)[1] or "unknown",
    }


async def count_lost(service: Service, acknowledged: list[int]) -> int:
    """Return how many of the acknowledged invoices are not stored."""
    conn = await asyncpg.connect(service.url)
    stored = await conn.fetchval(
        "select count(*) from invoices where id = any ($1::bigint[])", acknowledged
    )
    await conn.close()
    return len(acknowledged) - stored


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("directory", type=Path)
    run(main(parser.parse_args().directory.resolve()))

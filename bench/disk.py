#!/usr/bin/env python3
"""What clients see while the disk of PostgreSQL is full, and afterwards.

    mount -t tmpfs -o size=220m tmpfs DIRECTORY    # or any small file system
    .venv/bin/python bench/disk.py DIRECTORY

PostgreSQL is one of its own in that directory, next to a file that takes the rest of the room and is removed in the end.
Ends with 1 when an acknowledged creation is lost, an answer to a write is neither 2xx nor 503, a read fails, a submit goes
to the portal, or writes do not succeed again.
"""

import argparse
import asyncio
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import aiohttp
import asyncpg
from ground import ground, memory, run, table
from requests import creates
from restarts import Server

ROOM = 1_500_000  # bytes that are left to PostgreSQL
MOST_BYTES = 10**9  # of a file system that this may fill
AT_ONCE = 8
REFUSALS = 50  # until the disk counts as full
MOST_WRITES = 20_000


async def main(directory):
    if shutil.disk_usage(directory).total > MOST_BYTES:
        sys.exit(f"{directory} is on a large file system: mount a small one there.")
    home = directory / "postgres"
    home.mkdir()
    server = Server(home)
    await server.make()
    await server.start()
    try:
        async with ground(sandbox=True, server=server.url, LOG_LEVEL="WARNING") as service:
            found = await _filled(service, directory / "filler")
    finally:
        await server.stop()
        shutil.rmtree(home)
    table("A full disk", ("", ""), list(found.items()))
    bad = {
        name: value
        for name, value in found.items()
        if name in EXPECTED and value not in EXPECTED[name]
    }
    if bad:
        sys.exit(f"Not as promised: {bad}")


#: what was found -> what it may be
EXPECTED = {
    "statuses of writes while full": ("201 503",),
    "status of a read": (200,),
    "status of a submit": (503,),
    "documents at the portal": (0,),
    "statuses of writes afterwards": ("201",),
    "of them lost": (0,),
}


async def _filled(service, filler):
    company = await service.company()
    acknowledged, bodies = [], creates()
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{service.port}", headers={"X-API-Key": company.key}
    ) as http:

        async def write():
            _, path, text = next(bodies)
            async with http.post(
                path, data=text, headers={"Content-Type": "application/json"}
            ) as response:
                if response.status == 201:
                    acknowledged.append((await response.json())["data"]["id"])
                return response.status

        await write()
        room = os.statvfs(filler.parent)
        filler.write_bytes(bytes(room.f_bavail * room.f_frsize - ROOM))
        try:
            full = Counter()
            while full[503] < REFUSALS and full.total() < MOST_WRITES:
                full.update(await asyncio.gather(*[write() for _ in range(AT_ONCE)]))
            async with http.get("/api/invoices") as response:
                read = response.status
            async with http.post(
                f"/api/invoices/{acknowledged[0]}/submit-to-portal", json={}
            ) as response:
                submit = response.status
            sent = await _ledger(service)
        finally:
            filler.unlink()
        after = Counter([await write() for _ in range(REFUSALS)])
    return {
        "writes while it filled and was full": full.total(),
        "statuses of writes while full": " ".join(map(str, sorted(full))),
        "status of a read": read,
        "status of a submit": submit,
        "documents at the portal": sent,
        "statuses of writes afterwards": " ".join(map(str, sorted(after))),
        "creations acknowledged": len(acknowledged),
        "of them lost": await _lost(service, acknowledged),
        "highest memory of the service, MB": memory(service.pid)[1] or "unknown",
    }


async def _ledger(service):
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{service.config.portal_api_base}/_sandbox/ledger") as response,
    ):
        return len((await response.json())["documents"])


async def _lost(service, acknowledged):
    conn = await asyncpg.connect(service.url)
    stored = await conn.fetchval(
        "select count(*) from invoices where id = any ($1::bigint[])", acknowledged
    )
    await conn.close()
    return len(acknowledged) - stored


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    run(main(parser.parse_args().directory.resolve()))

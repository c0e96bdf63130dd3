#!/usr/bin/env python3
"""What clients see, and what is lost, while PostgreSQL is restarted under load, fast and immediate in turn.

    .venv/bin/python bench/restarts.py [--restarts N] [--seed N]

PostgreSQL is one of its own. Clients do not wait out Retry-After; half of the writers repeat a creation with its
Idempotency-Key until it is acknowledged, and one of ten of theirs is submitted. Ends with 1 when an acknowledged creation
is lost or was done twice, a document is at the portal twice, an answer is neither 2xx nor 503, the service is not all
well two seconds after PostgreSQL is back, or has taken 300 MB.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import asyncpg
from ground import free_port, ground, memory, run, table
from requests import creates

from service.embedded_postgres.binaries import account_for, find_programs, launch, reaching
from service.embedded_postgres.server import NO_ANSWER, SETTINGS, give, make_cluster

WRITERS, READERS = 8, 6
BETWEEN_SECONDS = 3  # of load, before each restart and after the last
HEALED_SECONDS = 2
MOST_MEGABYTES = 300
STOPS = (("fast", signal.SIGINT), ("immediate", signal.SIGQUIT))
#: So that submissions that a restart left open come to their end within the run.
QUICK = {
    "PORTAL_LEASE_SECONDS": "4",
    "PORTAL_TIMEOUT_SECONDS": "3",
    "PORTAL_SETTLE_SECONDS": "1",
    "PORTAL_PROOF_GAP_SECONDS": "0.5",
    "PORTAL_POLL_SECONDS": "0.3",
    "PORTAL_RETRY_SECONDS": "0.5",
    "SANDBOX_PROCESSING_SECONDS": "0.2",
    "LOG_LEVEL": "WARNING",
}


class Server:
    """A PostgreSQL on one port, to be stopped and started again."""

    def __init__(self, home):
        self._home, self._port = home, free_port()
        self._account = account_for(home)
        self._programs = find_programs()

    async def make(self):
        give(self._home, self._account)
        self._account = reaching(self._account, self._programs, self._home)
        await make_cluster(self._home / "cluster", self._programs, self._account)
        password = (self._home / "cluster" / "superuser_password").read_text()
        self.url = (
            f"postgresql://postgres:{password}@127.0.0.1:{self._port}/postgres?sslmode=disable"
        )

    async def start(self):
        """Until it takes a connection."""
        settings = [f"--{name}={value}" for name, value in {**SETTINGS, "port": self._port}.items()]
        command = [self._programs.bin / "postgres", *settings, "-D", self._home / "cluster"]
        with open(self._home / "server.log", "ab") as log:
            self._process = launch(command, self._account, stdout=log, stderr=log)
        while True:
            try:
                return await (await asyncpg.connect(self.url, timeout=5)).close()
            except NO_ANSWER:
                await asyncio.sleep(0.01)

    async def stop(self, number=signal.SIGINT):
        self._process.send_signal(number)
        await asyncio.to_thread(self._process.wait, 60)


@dataclass(slots=True)
class Load:
    """Clients of one company: what they were answered, and which creations were acknowledged."""

    http: aiohttp.ClientSession
    chance: random.Random
    # (began, ended, what was asked, status or the kind of failure)
    answers: list = field(default_factory=list)
    acknowledged: dict = field(default_factory=dict)  # id -> code
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, bodies, keyed):
        for _, path, text in bodies:
            body = json.loads(text)
            if keyed and self.chance.random() < 0.1:
                body["submitImmediately"] = True
            headers = {"Idempotency-Key": f"restarts-{body['code']}"} if keyed else {}
            while not self.stop.is_set():
                status, answer = await self._ask("create", "POST", path, json=body, headers=headers)
                if status == 201:
                    self.acknowledged[answer["data"]["id"]] = body["code"]
                if status == 201 or not keyed:
                    break
            if self.stop.is_set():
                return

    async def read(self):
        while not self.stop.is_set():
            ids = list(self.acknowledged)[-500:]
            path = (
                f"/api/invoices/{self.chance.choice(ids)}"
                if ids and self.chance.random() < 0.7
                else "/api/invoices"
            )
            await self._ask("read", "GET", path)

    async def _ask(self, name, method, path, **more):
        began = time.monotonic()
        try:
            async with self.http.request(method, path, **more) as response:
                status, answer = response.status, await response.json()
        except (aiohttp.ClientError, TimeoutError) as fault:
            status, answer = type(fault).__name__, None
        self.answers.append((began, time.monotonic(), name, status))
        if status not in (200, 201):
            await asyncio.sleep(0.01)
        return status, answer


async def main(options):
    with tempfile.TemporaryDirectory(prefix="bench-restarts-") as home:
        server = Server(Path(home))
        await server.make()
        await server.start()
        try:
            async with ground(sandbox=True, server=server.url, **QUICK) as service:
                faults = await _restarted(server, service, options)
        finally:
            await server.stop()
    if faults:
        sys.exit("Not as promised: " + "; ".join(faults))


async def _restarted(server, service, options):
    """What was not as promised, after the load and all its restarts."""
    company = await service.company()
    chance = random.Random(options.seed)
    session = aiohttp.ClientSession(
        f"http://127.0.0.1:{service.port}",
        headers={"X-API-Key": company.key},
        timeout=aiohttp.ClientTimeout(total=40),
        connector=aiohttp.TCPConnector(limit=0),
    )
    async with session as http:
        load, bodies = Load(http, chance), creates()
        clients = [load.write(bodies, number % 2) for number in range(WRITERS)] + [
            load.read() for _ in range(READERS)
        ]
        tasks = [asyncio.create_task(client) for client in clients]
        rows = [await _restart(server, load, number) for number in range(1, options.restarts + 1)]
        load.stop.set()
        await asyncio.gather(*tasks)
        return await _report(service, company, load, rows, options)


async def _restart(server, load, number):
    """A row: kind, seconds away, until the first success, until all succeed, and the answers meanwhile."""
    await asyncio.sleep(BETWEEN_SECONDS)
    kind, stop = STOPS[(number - 1) % len(STOPS)]
    began = time.monotonic()
    await server.stop(stop)
    await asyncio.sleep(load.chance.uniform(0, 1.5))
    await server.start()
    back = time.monotonic()
    await asyncio.sleep(BETWEEN_SECONDS)
    since = [answer for answer in load.answers if answer[1] >= began]
    good = [
        ended - back
        for _, ended, name, status in since
        if name == "create" and status == 201 and ended >= back
    ]
    bad = [ended - back for _, ended, _, status in since if status not in (200, 201)]
    longest = max(ended - started for started, ended, _, _ in since)
    refused = sum(status == 503 for *_, status in since)
    return number, kind, back - began, min(good, default=99.0), max([0.0, *bad]), refused, longest


async def _report(service, company, load, rows, options):
    columns = ("", "kind", "away s", "first success s", "all succeed s", "503", "longest request s")
    table(
        f"{options.restarts} restarts of PostgreSQL under load, seed {options.seed}; seconds since it was back",
        columns,
        rows,
    )
    statuses = Counter((name, status) for *_, name, status in load.answers)
    table(
        "Answers",
        ("", "status", "count"),
        [(*kind, count) for kind, count in sorted(statuses.items(), key=str)],
    )
    stored, promised, open_ones, ledger = await _truth(service, company)
    lost = [id for id, code in load.acknowledged.items() if stored.get(id) != code]
    numbers = Counter(entry["number"] for entry in ledger)
    repeated = len(load.acknowledged) - len(set(load.acknowledged.values()))
    now, highest = memory(service.pid)
    _show_errors(service)
    totals = {
        "creations acknowledged": len(load.acknowledged),
        "of them lost": len(lost),
        "done twice": repeated,
        "stored without an acknowledgement": len(stored.keys() - load.acknowledged.keys()),
        "submitted with their creation": promised,
        "of them not Valid": open_ones,
        "documents at the portal": len(ledger),
        "of them twice": sum(count - 1 for count in numbers.values()),
        "memory of the service, MB": now,
        "its highest": highest or 0.0,
    }
    table("In all", ("", ""), list(totals.items()))
    return [
        *(
            f"{name}: {totals[name]}"
            for name in ("of them lost", "done twice", "of them twice", "of them not Valid")
            if totals[name]
        ),
        *(
            f"answers {status} to {name}"
            for name, status in statuses
            if status not in (200, 201, 503)
        ),
        *(
            f"restart {row[0]}: all succeed only after {row[4]:.1f} s"
            for row in rows
            if max(row[3], row[4]) > HEALED_SECONDS
        ),
        *([f"{highest:.0f} MB"] if (highest or 0) >= MOST_MEGABYTES else []),
    ]


def _show_errors(service):
    """The first of what the service logged as its own failure."""
    said = (
        (service.home / f"serve-{service.port}.log")
        .read_text()
        .partition(" level=ERROR logger=service.requests ")[2]
    )
    if said:
        print(f"\nThe service says:\n{said[:4000]}")


async def _truth(service, company):
    """({id: code} of what is stored, how many were submitted, how many of them never became Valid, the portal's ledger)."""
    conn = await asyncpg.connect(service.url)
    query = "select count(*) filter (where status <> 'Valid') from invoices where status <> 'Draft'"
    for _ in range(300):
        if not (left := await conn.fetchval(query)):
            break
        await asyncio.sleep(0.1)
    promised = await conn.fetchval("select count(*) from invoices where status <> 'Draft'")
    stored = {row["id"]: row["code"] for row in await conn.fetch("select id, code from invoices")}
    await conn.close()
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{service.config.portal_api_base}/_sandbox/ledger") as response,
    ):
        return stored, promised, left, (await response.json())["documents"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    run(main(parser.parse_args()))

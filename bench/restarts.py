#!/usr/bin/env python3
"""Check that nothing is lost while PostgreSQL is restarted under load, in fast and immediate mode.

    .venv/bin/python bench/restarts.py [--restarts N] [--seed N]

PostgreSQL is a server of the run. Clients ignore Retry-After. Half of the writers repeat a creation
with its Idempotency-Key until it is acknowledged, and submit one in ten. Exits with 1 if an
acknowledged creation is lost or was done twice, a document is at the portal twice, a status is
neither 2xx nor 503, requests still fail two seconds after PostgreSQL is back, or the service has
used 300 MB.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
from benchmark import (
    Service,
    print_table,
    read_memory,
    run,
    start_service,
    summary_of,
)
from harness.postgres_server import PostgresServer
from requests import Request, create_requests

WRITERS, READERS = 8, 6
LOAD_SECONDS = 3  # before each restart and after the last
RECOVERY_SECONDS = 2
MAX_MEGABYTES = 300
STOPS = ("fast", "immediate")
#: Short times, so that submissions that a restart interrupted are resolved within the run.
VARIABLES = {
    "PORTAL_LEASE_SECONDS": "4",
    "PORTAL_TIMEOUT_SECONDS": "3",
    "PORTAL_SETTLE_SECONDS": "1",
    "PORTAL_PROOF_GAP_SECONDS": "0.5",
    "PORTAL_POLL_SECONDS": "0.3",
    "PORTAL_RETRY_SECONDS": "0.5",
    "SANDBOX_PROCESSING_SECONDS": "0.2",
    "LOG_LEVEL": "WARNING",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request: its times (monotonic), and the status or the name of the exception."""

    began: float
    ended: float
    name: str
    status: int | str

    @property
    def is_success(self) -> bool:
        return self.status in (200, 201)


@dataclass(slots=True)
class Load:
    """Clients of one company, the outcomes of their requests, and the acknowledged creations."""

    http: aiohttp.ClientSession
    random: random.Random
    outcomes: list[Outcome] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)  # id -> code
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self, requests: Iterator[Request], keyed: bool) -> None:
        """Create invoices; with `keyed`, repeat each until it is acknowledged."""
        for _, path, text in requests:
            body = json.loads(text or "")
            if keyed and self.random.random() < 0.1:
                body["submitImmediately"] = True
            headers = {"Idempotency-Key": f"restarts-{body['code']}"} if keyed else {}
            while not self.stop.is_set():
                status, answer = await self._send("create", "POST", path, body, headers)
                if status == 201:
                    self.acknowledged[answer["data"]["id"]] = body["code"]
                if status == 201 or not keyed:
                    break
            if self.stop.is_set():
                return

    async def read(self) -> None:
        """Read invoices and lists."""
        while not self.stop.is_set():
            ids = list(self.acknowledged)[-500:]
            path = (
                f"/api/invoices/{self.random.choice(ids)}"
                if ids and self.random.random() < 0.7
                else "/api/invoices"
            )
            await self._send("read", "GET", path)

    async def _send(
        self,
        name: str,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int | str, Any]:
        """Return (status, response body); for an exception, its name and None."""
        began = time.monotonic()
        try:
            async with self.http.request(method, path, json=body, headers=headers) as response:
                status, answer = response.status, await response.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            status, answer = type(error).__name__, None
        outcome = Outcome(began, time.monotonic(), name, status)
        self.outcomes.append(outcome)
        if not outcome.is_success:
            await asyncio.sleep(0.01)
        return status, answer


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart and the requests around it. Seconds count from when PostgreSQL was back."""

    number: int
    kind: str
    away: float
    first_success: float
    last_failure: float
    refused: int  # responses 503
    longest: float  # request in seconds

    def row(self) -> Sequence[object]:
        """Return the row of the table."""
        return (
            self.number,
            self.kind,
            self.away,
            self.first_success,
            self.last_failure,
            self.refused,
            self.longest,
        )


async def main(options: argparse.Namespace) -> None:
    """Run the load and the restarts, and print the results."""
    with tempfile.TemporaryDirectory(prefix="bench-restarts-") as home:
        async with (
            PostgresServer(Path(home)) as server,
            start_service(sandbox=True, server=server.url, variables=VARIABLES) as service,
        ):
            violations = await _run_restarts(server, service, options)
    if violations:
        sys.exit("Violations: " + "; ".join(violations))


async def _run_restarts(
    server: PostgresServer, service: Service, options: argparse.Namespace
) -> list[str]:
    """Restart PostgreSQL under load. Return the violations."""
    company = await service.add_company()
    session = aiohttp.ClientSession(
        service.base,
        headers={"X-API-Key": company.key},
        timeout=aiohttp.ClientTimeout(total=40),
        connector=aiohttp.TCPConnector(limit=0),
    )
    async with session as http:
        load, requests = Load(http, random.Random(options.seed)), create_requests()
        writers = [load.write(requests, bool(number % 2)) for number in range(WRITERS)]
        readers = [load.read() for _ in range(READERS)]
        tasks = [asyncio.create_task(client) for client in (*writers, *readers)]
        restarts = [
            await _restart(server, load, number) for number in range(1, options.restarts + 1)
        ]
        load.stop.set()
        await asyncio.gather(*tasks)
        title = f"{options.restarts} restarts of PostgreSQL under load, seed {options.seed}"
        _print_restarts(title, load, restarts)
        return await _report(service, load, restarts)


async def _restart(server: PostgresServer, load: Load, number: int) -> Restart:
    """Restart PostgreSQL once, with load before and after."""
    await asyncio.sleep(LOAD_SECONDS)
    kind = STOPS[(number - 1) % len(STOPS)]
    began = time.monotonic()
    await server.stop(kind)
    await asyncio.sleep(load.random.uniform(0, 1.5))
    await server.start()
    back = time.monotonic()
    await asyncio.sleep(LOAD_SECONDS)
    since = [outcome for outcome in load.outcomes if outcome.ended >= began]
    successes = [
        outcome.ended - back
        for outcome in since
        if outcome.name == "create" and outcome.status == 201 and outcome.ended >= back
    ]
    failures = [outcome.ended - back for outcome in since if not outcome.is_success]
    return Restart(
        number,
        kind,
        away=back - began,
        first_success=min(successes, default=99.0),
        last_failure=max([0.0, *failures]),
        refused=sum(outcome.status == 503 for outcome in since),
        longest=max(outcome.ended - outcome.began for outcome in since),
    )


def _print_restarts(title: str, load: Load, restarts: list[Restart]) -> None:
    columns = ("", "kind", "away s", "first success s", "last failure s", "503", "longest s")
    rows = [restart.row() for restart in restarts]
    print_table(f"{title}; seconds since PostgreSQL was back", columns, rows)
    statuses = Counter((outcome.name, outcome.status) for outcome in load.outcomes)
    counts = [(*kind, count) for kind, count in sorted(statuses.items(), key=str)]
    print_table("Responses", ("", "status", "count"), counts)


async def _report(service: Service, load: Load, restarts: list[Restart]) -> list[str]:
    """Print the totals and return the violations."""
    final = await _read_final_state(service)
    lost = [id_ for id_, code in load.acknowledged.items() if final.stored.get(id_) != code]
    numbers = Counter(entry["number"] for entry in final.ledger)
    memory, peak = read_memory(service.pid)
    _print_errors(service)
    totals: dict[str, float] = {
        "creations acknowledged": len(load.acknowledged),
        "of them lost": len(lost),
        "done twice": len(load.acknowledged) - len(set(load.acknowledged.values())),
        "stored without an acknowledgement": len(final.stored.keys() - load.acknowledged.keys()),
        "submitted with their creation": final.submitted,
        "of them not Valid": final.not_valid,
        "documents at the portal": len(final.ledger),
        "of them twice": sum(count - 1 for count in numbers.values()),
        "memory of the service, MB": memory,
        "its peak": peak or 0.0,
    }
    print_table("In all", ("", ""), list(totals.items()))
    failed = ("of them lost", "done twice", "of them twice", "of them not Valid")
    violations = [f"{name}: {totals[name]}" for name in failed if totals[name]]
    statuses = {(outcome.name, outcome.status) for outcome in load.outcomes}
    violations += [
        f"{name}: status {status}"
        for name, status in sorted(statuses, key=str)
        if status not in (200, 201, 503)
    ]
    for restart in restarts:
        seconds = max(restart.first_success, restart.last_failure)
        if seconds > RECOVERY_SECONDS:
            violations.append(f"restart {restart.number}: recovered only after {seconds:.1f} s")
    if (peak or 0) >= MAX_MEGABYTES:
        violations.append(f"{peak:.0f} MB")
    return violations


def _print_errors(service: Service) -> None:
    """Print the first errors that the service logged about requests."""
    errors = service.process.output().partition(" level=ERROR logger=service.requests ")[2]
    if errors:
        print(f"\nErrors in the log of the service:\n{errors[:4000]}")


@dataclass(frozen=True, slots=True)
class FinalState:
    """The stored invoices {id: code}, the submitted ones, and the portal's ledger."""

    stored: dict[int, int]
    submitted: int
    not_valid: int  # of the submitted ones
    ledger: list[dict[str, Any]]


async def _read_final_state(service: Service) -> FinalState:
    """Wait up to 30 seconds until all submitted invoices are Valid, and return the state."""
    conn = await asyncpg.connect(service.url)
    query = "select count(*) filter (where status <> 'Valid') from invoices where status <> 'Draft'"
    not_valid = 0
    for _ in range(300):
        if not (not_valid := await conn.fetchval(query)):
            break
        await asyncio.sleep(0.1)
    submitted = await conn.fetchval("select count(*) from invoices where status <> 'Draft'")
    stored = {row["id"]: row["code"] for row in await conn.fetch("select id, code from invoices")}
    await conn.close()
    return FinalState(stored, submitted, not_valid, await service.portal.ledger())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    run(main(parser.parse_args()))

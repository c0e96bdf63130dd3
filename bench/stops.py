#!/usr/bin/env python3
"""Check that no accepted request is lost when a process of the service gets SIGTERM under load.

    .venv/bin/python bench/stops.py [--stops N] [--seed N]

Each time a new process serves clients that create and read over kept connections, two that export
everything, some that submit to a portal that takes a second, and idle connections; then it gets
SIGTERM. A request is accepted if it was written before the signal, or if one byte of its response
was received. A later request may find its connection refused or closed before any byte, and has no
effect. Exits with 1 if an accepted request got no complete response with 2xx, an acknowledged
creation is lost, a stop took 30 s, an exit code was not 0, or 300 MB were used.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from benchmark import (
    Company,
    Service,
    print_table,
    read_memory,
    run,
    start_service,
    summary_of,
)
from disk import count_lost
from harness.processes import ChildProcess
from requests import Request, create_requests

CLIENTS, SUBMITTERS, IDLE = 10, 2, 10
EXPORTERS = 2  # companies that export
EXPORTED = 5_000  # invoices of each company that exports
LOAD_SECONDS = (0.3, 1.5)
MAX_STOP_SECONDS = 30
MAX_MEGABYTES = 300
DELAY = {"seconds": 1, "times": 2 * SUBMITTERS}  # of submissions at the portal


class ConnectionClosed(Exception):
    """The connection was closed; `begun`: a byte of the response had been received."""

    def __init__(self, begun: bool) -> None:
        super().__init__("after a part of the response" if begun else "before any response")
        self.begun = begun


@dataclass(frozen=True, slots=True)
class Response:
    """A response; the body is empty if it was chunked. `is_last`: the connection is closed."""

    status: int
    body: bytes
    is_last: bool


async def send(
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], key: str, request: Request
) -> Response:
    """Send a request and return the response. Raises ConnectionClosed."""
    (reader, writer), (method, path, text) = streams, request
    body = (text or "").encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", f"X-API-Key: {key}"]
    lines += ["Content-Type: application/json"] if body else []
    lines += [f"Content-Length: {len(body)}"]
    begun = False
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        first = await reader.readexactly(1)
        begun = True
        head = (first + await reader.readuntil(b"\r\n\r\n")).lower()
        received = await _read_body(reader, head)
    except (asyncio.IncompleteReadError, ConnectionError):
        raise ConnectionClosed(begun) from None
    return Response(int(head.split()[1]), received, b"connection: close" in head)


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Read the body. A chunked body, which is large, is discarded."""
    if b"transfer-encoding: chunked" not in head:
        return await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
    while length := int(await reader.readuntil(b"\r\n"), 16):
        await reader.readexactly(length + 2)
    await reader.readexactly(2)
    return b""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request: kind, start (monotonic), status or error. `is_last`: the server said `close`."""

    kind: str
    began: float
    status: int | ConnectionClosed
    is_last: bool = False


@dataclass(slots=True)
class Round:
    """One process and its clients: outcomes of requests, and the time of the signal (monotonic)."""

    port: int
    stopped_at: float = float("inf")
    outcomes: list[Outcome] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    idle_closed: list[float] = field(default_factory=list)  # seconds after the signal

    async def repeat(self, kind: str, key: str, requests: Iterator[Request]) -> None:
        """Send requests until the process is gone. A closed connection is opened again."""
        while True:
            try:
                streams = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
            except OSError:
                error = ConnectionClosed(begun=False)
                self.outcomes.append(Outcome("connect", time.monotonic(), error))
                return
            is_last = False
            while not is_last:
                began = time.monotonic()
                try:
                    response = await send(streams, key, next(requests))
                except ConnectionClosed as error:
                    self.outcomes.append(Outcome(kind, began, error))
                    break
                is_last = response.is_last
                self.outcomes.append(Outcome(kind, began, response.status, is_last))
                if kind == "create" and response.status == 201:
                    self.acknowledged.append(json.loads(response.body)["data"]["id"])
            streams[1].close()

    async def stay_idle(self, key: str) -> None:
        """Send one request and wait until the server closes the connection."""
        streams = await asyncio.open_connection("127.0.0.1", self.port)
        await send(streams, key, ("GET", "/api/invoices?per_page=1", None))
        await streams[0].read(1)
        self.idle_closed.append(time.monotonic() - self.stopped_at)
        streams[1].close()

    def find_failures(self) -> Iterator[str]:
        """Yield the accepted requests that got no complete response with 2xx."""
        for outcome in self.outcomes:
            if isinstance(outcome.status, ConnectionClosed):
                is_accepted = outcome.began < self.stopped_at
                if outcome.status.begun or is_accepted:
                    when = "accepted" if is_accepted else "written later"
                    yield f"{outcome.kind}, {when}: closed {outcome.status}"
            elif outcome.status not in (200, 201):
                yield f"{outcome.kind}: {outcome.status}"


@dataclass(frozen=True, slots=True)
class Stop:
    """How a process stopped: seconds, exit code, and peak memory in MB."""

    seconds: float
    code: int
    peak: float

    def find_violations(self) -> Iterator[str]:
        """Yield the limits that the stop exceeded."""
        if self.code:
            yield f"exit code {self.code}"
        if self.seconds >= MAX_STOP_SECONDS:
            yield f"took {self.seconds:.0f} s"
        if self.peak >= MAX_MEGABYTES:
            yield f"{self.peak:.0f} MB"


@dataclass(frozen=True, slots=True)
class Work:
    """The requests for all rounds: companies with exports, creations, submissions of drafts."""

    companies: list[Company]
    creations: Iterator[Request]
    submissions: Iterator[Request]

    def clients(self, round_: Round) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield all clients of a round."""
        key = self.companies[0].key
        for number in range(CLIENTS):
            if number % 2:
                yield round_.repeat("create", key, self.creations)
            else:
                yield round_.repeat("get", key, _gets("/api/invoices"))
        for company in self.companies:
            yield round_.repeat("export", company.key, _gets("/api/invoices/export-all"))
        for _ in range(SUBMITTERS):
            yield round_.repeat("submit", key, self.submissions)
        for _ in range(IDLE):
            yield round_.stay_idle(key)


def _gets(path: str) -> Iterator[Request]:
    return itertools.repeat(("GET", path, None))


async def main(options: argparse.Namespace) -> None:
    """Stop processes under load and print the results."""
    chance, violations, rows = random.Random(options.seed), [], []
    async with start_service(
        sandbox=True, background=False, variables={"LOG_LEVEL": "WARNING"}
    ) as service:
        companies = [await service.add_company(EXPORTED) for _ in range(EXPORTERS)]
        await service.vacuum()
        submissions = await _create_drafts(service, companies[0], options.stops * 10 + 50)
        work = Work(companies, create_requests(first=10**6), submissions)
        acknowledged: list[int] = []
        total: Counter[tuple[str, str]] = Counter()
        for number in range(1, options.stops + 1):
            process = service.make_another(PORTAL_POLL_SECONDS="60")
            round_ = Round(process.port)
            async with process:
                await service.portal.fault("submit", "slow_before", **DELAY)
                stop = await _run_round(process, work, round_, chance.uniform(*LOAD_SECONDS))
            rows.append((number, *_make_row(round_, stop)))
            failures = [*round_.find_failures(), *stop.find_violations()]
            violations += [f"stop {number}: {failure}" for failure in failures]
            acknowledged += round_.acknowledged
            total.update((outcome.kind, str(outcome.status)) for outcome in round_.outcomes)
        lost = await count_lost(service, acknowledged)
    _print_results(options, rows, total)
    totals = [
        ("longest stop, s", max(row[1] for row in rows)),
        ("creations acknowledged", len(acknowledged)),
        ("of them lost", lost),
        ("peak memory of a process, MB", max(row[-1] for row in rows)),
    ]
    print_table("In all", ("", ""), totals)
    if lost:
        violations.append(f"{lost} acknowledged creations lost")
    if violations:
        sys.exit("Violations:\n" + "\n".join(violations[:20]))


async def _run_round(process: ChildProcess, work: Work, round_: Round, seconds: float) -> Stop:
    """Run the clients of a process for some seconds, send it SIGTERM and wait for its end."""
    clients = [asyncio.create_task(client) for client in work.clients(round_)]
    await asyncio.sleep(seconds)
    _, peak = read_memory(process.pid)
    round_.stopped_at = time.monotonic()
    with suppress(TimeoutError):  # It was killed.
        await process.stop()
    stop = Stop(time.monotonic() - round_.stopped_at, process.exit_code or 0, peak or 0.0)
    await asyncio.gather(*clients)
    return stop


def _make_row(round_: Round, stop: Stop) -> tuple[Any, ...]:
    """Return a row of the table without the number of the stop."""
    gone = sum(
        isinstance(outcome.status, ConnectionClosed) and not outcome.status.begun
        for outcome in round_.outcomes
    )
    in_flight = sum(
        outcome.is_last
        and outcome.began < round_.stopped_at
        and not isinstance(outcome.status, ConnectionClosed)
        for outcome in round_.outcomes
    )
    return (
        stop.seconds,
        stop.code,
        len(round_.outcomes),
        in_flight,
        sum(outcome.is_last for outcome in round_.outcomes),
        gone,
        max(round_.idle_closed, default=0.0),
        stop.peak,
    )


async def _create_drafts(service: Service, company: Company, count: int) -> Iterator[Request]:
    """Create invoices and return the requests that submit them."""
    async with aiohttp.ClientSession(service.base, headers={"X-API-Key": company.key}) as http:
        ids = []
        for _, path, text in itertools.islice(create_requests(first=10**8), count):
            async with http.post(
                path, data=text, headers={"Content-Type": "application/json"}
            ) as response:
                ids.append((await response.json())["data"]["id"])
    return iter([("POST", f"/api/invoices/{each}/submit-to-portal", "{}") for each in ids])


def _print_results(
    options: argparse.Namespace,
    rows: list[Sequence[Any]],
    total: Counter[tuple[str, str]],
) -> None:
    columns = (
        "",
        "stop s",
        "exit",
        "requests",
        "in flight",
        "last on connection",
        "connection gone",
        "idle closed s",
        "MB",
    )
    title = f"{options.stops} times SIGTERM under load, seed {options.seed}"
    print_table(title, columns, rows)
    counts = [(*kind, count) for kind, count in sorted(total.items())]
    print_table("Outcomes of requests", ("", "", "count"), counts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    run(main(parser.parse_args()))

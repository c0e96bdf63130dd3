#!/usr/bin/env python3
"""What clients see when a process of the service is told to stop under load, again and again.

    .venv/bin/python bench/stops.py [--stops N] [--seed N]

Each time a fresh process serves clients that create and read over kept connections, two that export everything, some
that submit to a portal which takes a second, and connections that stand idle; then it gets SIGTERM. A request is accepted
when it was written before the signal, or when one byte of its answer has come; what was written later may find its
connection refused or closed before any byte, and nothing was done. Ends with 1 when an accepted request got no whole
answer with 2xx, an acknowledged creation is lost, a stop took 30 s or its exit code was not 0, or 300 MB were used.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
import asyncpg
from ground import ROOT, START_SECONDS, free_port, ground, memory, run, table
from requests import creates

CLIENTS, EXPORTERS, SUBMITTERS, IDLE = 10, 2, 2, 10
EXPORTED = 5_000  # invoices of each company that exports
LOAD_SECONDS = (0.3, 1.5)
LONGEST_STOP_SECONDS = 30
MOST_MEGABYTES = 300
PORTAL_SECONDS = 1


class Gone(Exception):
    """The connection was closed; `begun` says whether a byte of the answer had come."""

    def __init__(self, begun):
        super().__init__("after a part of the answer" if begun else "before any answer")
        self.begun = begun


async def ask(reader, writer, key, method, path, text=""):
    """(status, body, whether the connection is the answer's last). Raises Gone."""
    body = text.encode()
    kind = "Content-Type: application/json\r\n" if body else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nX-API-Key: {key}\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
    begun = False
    try:
        writer.write(head.encode() + body)
        first = await reader.readexactly(1)
        begun = True
        answer = (first + await reader.readuntil(b"\r\n\r\n")).lower()
        body = await _body(reader, answer)
    except (asyncio.IncompleteReadError, ConnectionError):
        raise Gone(begun) from None
    return int(answer.split()[1]), body, b"connection: close" in answer


async def _body(reader, head):
    if b"transfer-encoding: chunked" not in head:
        return await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
    size = 0
    while length := int(await reader.readuntil(b"\r\n"), 16):
        await reader.readexactly(length + 2)
        size += length
    await reader.readexactly(2)
    return size


@dataclass(slots=True)
class Round:
    """One process and its clients: what came of each request, and when it was told to stop (monotonic)."""

    port: int
    told: float = float("inf")
    # (what, began, status or Gone, says that it is the last)
    answers: list = field(default_factory=list)
    acknowledged: list = field(default_factory=list)
    idle_closed: list = field(default_factory=list)  # seconds after the signal

    async def repeat(self, what, key, requests):
        """Asks over a kept connection until the process is gone; one that is closed is opened anew."""
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
            except OSError:
                return self._note("connect", time.monotonic(), Gone(begun=False))
            last = False
            while not last:
                began = time.monotonic()
                try:
                    status, body, last = await ask(reader, writer, key, *next(requests))
                except Gone as why:
                    self._note(what, began, why)
                    break
                self._note(what, began, status, last)
                if what == "create" and status == 201:
                    self.acknowledged.append(json.loads(body)["data"]["id"])
            writer.close()

    async def idle(self, key):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        await ask(reader, writer, key, "GET", "/api/invoices?per_page=1")
        await reader.read(1)
        self.idle_closed.append(time.monotonic() - self.told)
        writer.close()

    def _note(self, what, began, outcome, last=False):
        self.answers.append((what, began, outcome, last))

    def failed(self):
        """The accepted requests that were not answered with 2xx, in whole."""
        for what, began, outcome, _ in self.answers:
            if isinstance(outcome, Gone):
                if outcome.begun or began < self.told:
                    yield f"{what}, {'accepted' if began < self.told else 'written later'}: closed {outcome}"
            elif outcome not in (200, 201):
                yield f"{what}: {outcome}"


async def main(options):
    chance, faults, rows = random.Random(options.seed), [], []
    async with ground(sandbox=True, background=False, LOG_LEVEL="WARNING") as service:
        companies = [await service.company(EXPORTED) for _ in range(EXPORTERS)]
        await service.tidy()
        bodies, drafts = (
            creates(first=10**6),
            await _drafts(service, companies[0], options.stops * 10 + 50),
        )
        acknowledged, total = [], Counter()
        for number in range(1, options.stops + 1):
            round, row, why = await _stopped(service, companies, bodies, drafts, chance)
            rows.append((number, *row))
            faults += [f"stop {number}: {each}" for each in [*round.failed(), *why]]
            acknowledged += round.acknowledged
            total.update((what, str(outcome)) for what, _, outcome, _ in round.answers)
        lost = await _lost(service, acknowledged)
    _report(options, rows, total, acknowledged, lost)
    if lost:
        faults.append(f"{lost} acknowledged creations lost")
    if faults:
        sys.exit("Not as promised:\n" + "\n".join(faults[:20]))


async def _stopped(service, companies, bodies, drafts, chance):
    """(Round, row of the table, what was not as promised of the process)."""
    round = Round(free_port())
    environment = {**service.environment, "PORT": str(round.port), "PORTAL_POLL_SECONDS": "60"}
    with open(service.home / f"stops-{round.port}.log", "wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "run.py"),
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    await _ready(round.port)
    await _slow_portal(service)
    clients = [asyncio.create_task(client) for client in _clients(round, companies, bodies, drafts)]
    await asyncio.sleep(chance.uniform(*LOAD_SECONDS))
    _, highest = memory(process.pid)
    round.told = time.monotonic()
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(LONGEST_STOP_SECONDS + 10):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        code = await process.wait()
    seconds = time.monotonic() - round.told
    await asyncio.gather(*clients)
    later = sum(isinstance(each, Gone) and not each.begun for _, _, each, _ in round.answers)
    said_last = sum(last for *_, last in round.answers)
    flying = sum(
        began < round.told and not isinstance(each, Gone) and last
        for _, began, each, last in round.answers
    )
    row = (
        seconds,
        code,
        len(round.answers),
        flying,
        said_last,
        later,
        max(round.idle_closed, default=0.0),
        highest or 0.0,
    )
    why = [f"exit code {code}"] if code else []
    why += [f"took {seconds:.0f} s"] if seconds >= LONGEST_STOP_SECONDS else []
    why += [f"{highest:.0f} MB"] if (highest or 0) >= MOST_MEGABYTES else []
    return round, row, why


def _clients(round, companies, bodies, drafts):
    key = companies[0].key
    for number in range(CLIENTS):
        if number % 2:
            yield round.repeat("create", key, bodies)
        else:
            yield round.repeat("get", key, iter(lambda: ("GET", "/api/invoices"), None))
    for company in companies:
        yield round.repeat(
            "export", company.key, iter(lambda: ("GET", "/api/invoices/export-all"), None)
        )
    for _ in range(SUBMITTERS):
        yield round.repeat("submit", key, drafts)
    for _ in range(IDLE):
        yield round.idle(key)


async def _drafts(service, company, count):
    """Requests that submit invoices made for it."""
    async with aiohttp.ClientSession(
        f"http://127.0.0.1:{service.port}", headers={"X-API-Key": company.key}
    ) as http:
        ids = []
        for (_, path, text), _ in zip(creates(first=10**8), range(count), strict=False):
            async with http.post(
                path, data=text, headers={"Content-Type": "application/json"}
            ) as response:
                ids.append((await response.json())["data"]["id"])
    return iter([("POST", f"/api/invoices/{id}/submit-to-portal", "{}") for id in ids])


async def _slow_portal(service):
    """The next submits take their second."""
    order = {
        "operation": "submit",
        "kind": "slow_before",
        "seconds": PORTAL_SECONDS,
        "times": 2 * SUBMITTERS,
    }
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{service.config.portal_api_base}/_sandbox/faults", json=order) as response,
    ):
        assert response.status < 300, await response.text()


async def _ready(port):
    async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(f"http://127.0.0.1:{port}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def _lost(service, acknowledged):
    conn = await asyncpg.connect(service.url)
    stored = await conn.fetchval(
        "select count(*) from invoices where id = any ($1::bigint[])", acknowledged
    )
    await conn.close()
    return len(acknowledged) - stored


def _report(options, rows, total, acknowledged, lost):
    columns = (
        "",
        "stop s",
        "exit",
        "requests",
        "in flight",
        "said last",
        "found it gone",
        "idle closed s",
        "MB",
    )
    table(f"{options.stops} times SIGTERM under load, seed {options.seed}", columns, rows)
    table(
        "What came of requests",
        ("", "", "count"),
        [(*kind, count) for kind, count in sorted(total.items())],
    )
    totals = [
        ("longest stop, s", max(row[1] for row in rows)),
        ("creations acknowledged", len(acknowledged)),
        ("of them lost", lost),
        ("highest memory of a process, MB", max(row[-1] for row in rows)),
    ]
    table("In all", ("", ""), totals)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    run(main(parser.parse_args()))

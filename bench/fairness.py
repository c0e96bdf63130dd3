#!/usr/bin/env python3
"""Measure how long requests of a company take while another client floods the service.

    .venv/bin/python bench/fairness.py [--seconds S] [--connections N] [--only NAME …]

The victim sends 20 gets and 5 creates a second, at fixed times: a request that has to wait does not
delay the next one. Each flood runs over 64 connections, each with a client address of its own, in a
process of its own. The reference is a flood of gets of single invoices, before and after the
others. Exits with 1 if a p99 is more than three times that of the reference.

The load is generated on the same machine, so it uses a share of the processors.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from benchmark import Service, make_parser, print_table, run, start_service
from compare_targets import Invoices, add_invoices
from invoices import make_invoice
from yarl import URL

from service.http.api_keys import new_key
from tests.harness.companies import Company
from tests.harness.visitors import Visitor, make_person

GOAL = 3.0
GETS, CREATES = 20, 5  # of the victim, a second
INVOICES = 2_000  # of each company
LARGE, LINES = 16, 1_000  # invoices of the flooding company, and their lines
SETTLE_SECONDS = 2.0  # for which a flood runs before it is measured
IDLE_MS = 6.0  # p90 of the victim without a flood is about 4 ms
REFERENCE = "gets"
FLOOD = Path(__file__).with_name("flood.py")
VARIABLES = {"TRUSTED_PROXIES": "127.0.0.1", "WRONG_KEYS_PER_MINUTE": "300"}
COLUMNS = ("flood", "p50 ms", "p99 ms", "ratio", "goal", "gets", "creates", "refused")
FLOOD_COLUMNS = ("its requests/s", "its 429", "its 503", "its others")


@dataclass(slots=True)
class Times:
    """The times of the victim's requests in ms, and how many had another status than a success."""

    gets: list[float] = field(default_factory=list)
    creates: list[float] = field(default_factory=list)
    refused: int = 0

    def percentile(self, part: float, times: list[float] | None = None) -> float:
        """Return a percentile of some times, or of all."""
        ordered = sorted(self.gets + self.creates if times is None else times)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


@dataclass(frozen=True, slots=True)
class Result:
    """The times of the victim during a flood, and the responses to the flood by status."""

    times: Times
    counts: Counter[int]
    seconds: float

    @property
    def p99(self) -> float:
        """The p99 of all requests of the victim."""
        return self.times.percentile(0.99)


@dataclass(slots=True)
class Victim:
    """A company that sends requests at fixed times, over as many connections as it needs."""

    http: aiohttp.ClientSession
    ids: range
    creates: Iterator[int] = field(default_factory=lambda: itertools.count(INVOICES + 1))

    async def measure(self, seconds: float) -> Times:
        """Send requests for some seconds, and return their times."""
        times, began, rate = Times(), time.perf_counter(), GETS + CREATES
        async with asyncio.TaskGroup() as tasks:
            for number in range(round(seconds * rate)):
                at = began + number / rate
                await asyncio.sleep(max(0.0, at - time.perf_counter()))
                tasks.create_task(self._send_one(at, number % rate, times))
        return times

    async def _send_one(self, at: float, place: int, times: Times) -> None:
        """Send the request that is due at `at`, and add its time."""
        is_create = place % (GETS // CREATES + 1) == 0
        status, expected = (await self._create(), 201) if is_create else (await self._get(), 200)
        (times.creates if is_create else times.gets).append((time.perf_counter() - at) * 1000)
        times.refused += status != expected

    async def _get(self) -> int:
        path = f"/api/invoices/{random.choice(self.ids)}"
        async with self.http.get(path) as response:
            await response.read()
        return response.status

    async def _create(self) -> int:
        body = make_invoice(next(self.creates))
        async with self.http.post("/api/invoices", json=body) as response:
            await response.read()
        return response.status


@dataclass(frozen=True, slots=True)
class Flooder:
    """The client that floods the service, with what its requests need.

    `large` are the ids of invoices with many lines, of a company of its own. The cookies are
    headers: of sessions in both companies, and of a visitor, with its form token.
    """

    port: int
    small: Invoices
    large_company: Company
    large: list[int]
    small_session: str
    large_session: str
    visitor: str
    form_token: str

    def get_headers(self, sender: str) -> str:
        """Return the headers of a sender."""
        small_key = self.small.company.key
        return {
            "": "",
            "small company": f"X-API-Key: {small_key}\r\n",
            "large company": f"X-API-Key: {self.large_company.key}\r\n",
            "person of the small company": self.small_session,
            "person of the large company": self.large_session,
            # A well-formed key of which no one knows the secret: its checksum is right.
            "unknown key": f"X-API-Key: {new_key(live='_live_' in small_key).text}\r\n",
            "unknown person": "Cookie: einvoice={random}\r\n",
            "visitor": self.visitor,
        }[sender]


@dataclass(frozen=True, slots=True)
class Flood:
    """The request of a flood: its line, who sends it, and its form.

    {small} and {large} are ids of invoices, {random} is another number each time.
    """

    request: str
    sender: str = ""
    form: str = ""

    def make(self, flooder: Flooder, number: int) -> str:
        """Return the text of the request of a connection."""
        method, path = self.request.split(" ")
        path = path.replace("{small}", str(random.choice(flooder.small.ids)))
        path = path.replace("{large}", str(flooder.large[number % len(flooder.large)]))
        headers = f"Host: 127.0.0.1\r\n{flooder.get_headers(self.sender)}"
        form = self.form.replace("{token}", flooder.form_token)
        if form:
            # A random number has 24 characters.
            length = len(form.replace("{random}", "0" * 24).encode())
            headers += "Content-Type: application/x-www-form-urlencoded\r\n"
            headers += f"Content-Length: {length}\r\n"
        return f"{method} {path} HTTP/1.1\r\n{headers}\r\n{form}"


LOGIN = "form_token={token}&email={random}%40example.com&password=a+wrong+guess"
#: A form of the largest size, with as many escapes as possible and no token.
LARGEST_FORM = "&".join(["a=" + "%C3%A9%41" * 880] * 8)
FLOODS = {
    "print": Flood("GET /api/invoices/{large}/print", "large company"),
    "page": Flood("GET /invoices/{large}", "person of the large company"),
    "list-100": Flood("GET /api/invoices?per_page=100", "small company"),
    "list-large": Flood("GET /api/invoices?per_page=100", "large company"),
    "search": Flood("GET /api/invoices?query=Buyer", "small company"),
    "csv": Flood("GET /invoices.csv", "person of the small company"),
    "preflight": Flood("POST /api/invoices/{large}/preflight", "large company"),
    "unknown-keys": Flood("GET /api/invoices/1", "unknown key"),
    "unknown-sessions": Flood("GET /invoices", "unknown person"),
    "link": Flood("GET /link/{random}"),
    "sign-in": Flood("POST /sign-in", "visitor", LOGIN),
    "form": Flood("POST /sign-in", "visitor", LARGEST_FORM),
}
GETS_OF_ONE = Flood("GET /api/invoices/{small}", "small company")


async def main(options: argparse.Namespace) -> None:
    """Measure the victim under each flood, and print the table."""
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(start_service(variables=VARIABLES))
        [invoices] = await add_invoices(service, 1, INVOICES)
        http = aiohttp.ClientSession(
            service.base,
            headers={"X-API-Key": invoices.company.key},
            connector=aiohttp.TCPConnector(limit=0),
        )
        victim = Victim(await stack.enter_async_context(http), invoices.ids)
        print("Creating companies, invoices and sessions …", flush=True)
        flooder = await _make_flooder(service)
        await service.vacuum()
        alone = await victim.measure(SETTLE_SECONDS + 1)
        print(f"Without a flood: p99 {alone.percentile(0.99):.1f} ms", flush=True)
        names = [REFERENCE, *(options.only or FLOODS), REFERENCE]
        results: list[tuple[str, Result]] = []
        for name in names:
            results.append((name, await _measure(victim, flooder, name, options)))
            await _wait_until_idle(victim)
    _report(results, options)


async def _make_flooder(service: Service) -> Flooder:
    [small], large = await add_invoices(service, 1, INVOICES), await service.add_company()
    ids = await _create_large(service.base, large)
    async with Visitor(URL(service.base)) as visitor:
        await visitor.get("/sign-in")
        token = visitor.text.partition('name="form_token" value="')[2].partition('"')[0]
        cookie = _make_cookie(visitor)
    sessions = [await _sign_in_owner(service, each) for each in (small.company, large)]
    return Flooder(service.process.port, small, large, ids, sessions[0], sessions[1], cookie, token)


async def _create_large(base: str, company: Company) -> list[int]:
    """Create the large invoices, and return their ids."""
    ids: list[int] = []
    async with aiohttp.ClientSession(base, headers={"X-API-Key": company.key}) as http:
        for code in range(1, LARGE + 1):
            async with http.post("/api/invoices", json=make_invoice(code, LINES)) as response:
                ids.append((await response.json())["data"]["id"])
    return ids


async def _sign_in_owner(service: Service, company: Company) -> str:
    """Return the cookie of a session of a company's owner."""
    email = f"owner{company.id}@example.com"
    link = await make_person(service.config, company.id, email, "owner")
    async with Visitor(URL(service.base)) as visitor:
        await visitor.use_link(link)
        return _make_cookie(visitor)


def _make_cookie(visitor: Visitor) -> str:
    """Return the header with the cookies of a visitor."""
    pairs = (f"{name}={value}" for name, value in visitor.cookies.items())
    return f"Cookie: {'; '.join(pairs)}\r\n"


async def _measure(
    victim: Victim, flooder: Flooder, name: str, options: argparse.Namespace
) -> Result:
    """Measure the victim during a flood."""
    flood = FLOODS.get(name, GETS_OF_ONE)
    place = [REFERENCE, *FLOODS].index(name)
    requests = [
        _add_address(flood.make(flooder, number), f"10.{place}.{number}.1")
        for number in range(options.connections)
    ]
    async with _flooding(flooder.port, requests) as read_counts:
        await asyncio.sleep(SETTLE_SECONDS)
        before, began = await read_counts(), time.perf_counter()
        times = await victim.measure(options.seconds)
        counts, seconds = await read_counts() - before, time.perf_counter() - began
    result = Result(times, counts, seconds)
    print(f"  {name}: p99 {result.p99:.1f} ms, {sum(counts.values()) / seconds:.0f}/s", flush=True)
    return result


async def _wait_until_idle(victim: Victim) -> None:
    """Wait until the service has ended what a flood has begun, at most about 20 s."""
    for _ in range(20):
        times = await victim.measure(1)
        if times.percentile(0.9) < IDLE_MS:
            return


def _add_address(request: str, address: str) -> str:
    first, rest = request.split("\r\n", 1)
    return f"{first}\r\nX-Forwarded-For: {address}\r\n{rest}"


@asynccontextmanager
async def _flooding(
    port: int, requests: list[str]
) -> AsyncIterator[Callable[[], Awaitable[Counter[int]]]]:
    """Run a flood. Yields a coroutine that returns {status: number of responses}."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, FLOOD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    async def read_counts() -> Counter[int]:
        stdin.write(b"\n")
        found = json.loads(await stdout.readline())
        return Counter({int(status): number for status, number in found.items()})

    try:
        stdin.write(json.dumps({"port": port, "requests": requests}).encode() + b"\n")
        yield read_counts
    finally:
        stdin.close()
        await process.wait()


def _report(results: list[tuple[str, Result]], options: argparse.Namespace) -> None:
    """Print the table. Exits with 1 if a flood misses the goal."""
    references = [result.p99 for name, result in results if name == REFERENCE]
    reference = sum(references) / len(references)
    title = (
        f"The victim's {GETS} gets and {CREATES} creates a second during floods of "
        f"{options.connections} connections, {options.seconds:g} s each"
    )
    rows = [_make_row(name, result, reference) for name, result in results]
    print_table(title, (*COLUMNS, *FLOOD_COLUMNS), rows)
    if missed := [name for name, result in results if result.p99 > GOAL * reference]:
        sys.exit(f"Above {GOAL:g} times the p99 of the reference: {', '.join(missed)}")


def _make_row(name: str, result: Result, reference: float) -> tuple[object, ...]:
    times, counts = result.times, result.counts
    others = sum(number for status, number in counts.items() if status in (0, 500, 502, 504))
    return (
        name,
        times.percentile(0.5),
        result.p99,
        result.p99 / reference,
        GOAL,
        times.percentile(0.99, times.gets),
        times.percentile(0.99, times.creates),
        times.refused,
        sum(counts.values()) / result.seconds,
        counts[429],
        counts[503],
        others,
    )


if __name__ == "__main__":
    parser = make_parser(__doc__, seconds=12.0, connections=64)
    parser.add_argument("--only", nargs="+", choices=FLOODS, metavar="NAME", help=", ".join(FLOODS))
    run(main(parser.parse_args()))

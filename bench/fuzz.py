#!/usr/bin/env python3
"""Send malformed requests to a running service: changed bodies, paths, queries, heads and bytes.

    .venv/bin/python bench/fuzz.py [--requests N] [--seed S] [--connections N] [--keep FOLDER]
                                   [--repeat FILE]

First, every body of tests/harness/no_json.py is sent to each POST and PUT. Exits with 1 if there
was a 500, a response after more than two seconds, a response of a wrong form, or an invalid body
was accepted. Requests that got a 500 are stored as they were sent, except for the keys. --repeat
sends such a file again.
"""

import argparse
import asyncio
import base64
import json
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark import Service, print_table, read_memory, run, start_service, summary_of
from harness.no_json import NOT_A_BODY, NOT_JSON
from http_client import Connection, NoResponse, Response
from inventor import BODIES, CREATED, CREATIONS, FuzzRequest, RequestGenerator, replace_urls

from service.api.table import OPERATIONS
from service.commands.integrations import insert_integration_key

INITIAL_RECORDS = 20  # of each kind; a company has no more webhooks
MAX_IDS = 500  # of each kind that are used in paths
LATE_SECONDS = 2.0
TIMEOUT_SECONDS = 15.0
UNFINISHED_SECONDS = 0.05  # for a response to bytes that may be an incomplete request
PLACEHOLDERS = (b"KEY-OF-A-COMPANY", b"KEY-OF-AN-ACCOUNT")
VARIABLES = {
    "INTEGRATION_REQUESTS_PER_MINUTE": "0",
    "WEBHOOK_ALLOW_INTERNAL": "true",
    "CONSOLIDATION_DAYS": "40",
    "SUBMIT_WAIT_SECONDS": "1",
    "SECRET_KEY": base64.b64encode(b"k" * 32).decode(),
    "SANDBOX_PROCESSING_SECONDS": "0",
    "LOG_LEVEL": "WARNING",
}

Ids = dict[str, list[Any]]


@dataclass(slots=True)
class Tally:
    """Counts of responses, and the violations."""

    statuses: Counter[int] = field(default_factory=Counter)
    unavailable: Counter[str] = field(default_factory=Counter)  # 503, by route
    closed: Counter[str] = field(default_factory=Counter)  # without a response
    unfinished: int = 0  # incomplete requests, which get no response
    failed: list[FuzzRequest] = field(default_factory=list)
    late: list[tuple[float, str]] = field(default_factory=list)
    malformed: list[tuple[int, str, str, bytes]] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    def add_time(self, seconds: float, route: str) -> None:
        """Record the time until a response."""
        self.slowest = max(self.slowest, (seconds, route))
        if seconds > LATE_SECONDS:
            self.late.append((seconds, route))

    def add_response(self, response: Response, request: FuzzRequest) -> None:
        """Record a response."""
        self.statuses[response.status] += 1
        if response.status == 500:
            self.failed.append(request)
        if response.status == 503:
            self.unavailable[request.route] += 1
        if not is_well_formed(response) and request.method != "HEAD":
            start = response.body[:100]
            self.malformed.append((response.status, response.media_type, request.route, start))


async def main(options: argparse.Namespace) -> None:
    """Run all checks and print the results."""
    async with start_service(sandbox=True, variables=VARIABLES) as service:
        companies = [await service.add_company(), await service.add_company()]
        account = await insert_integration_key(
            service.config, service.database, "Penang Trading Group"
        )
        keys = [*[company.key for company in companies], account["key"]]
        if options.repeat:
            await _repeat(service, keys, Path(options.repeat))
            return
        accepted = await _send_invalid_bodies(service, keys)
        ids = await _create_records(service, keys)
        tally, seconds = await _fuzz(service, keys, ids, options)
        _print_tally(tally, seconds, max(filter(None, read_memory(service.pid))), options)
        _store_failed(tally.failed, keys, Path(options.keep), options.seed)
    if accepted or tally.failed or tally.late or tally.malformed:
        sys.exit(1)


async def _send_invalid_bodies(service: Service, keys: Sequence[str]) -> int:
    """Send all invalid bodies. Return how many were not rejected in the documented form."""
    connection, accepted = Connection(service.port), 0
    statuses: Counter[int] = Counter()
    bodies = {**NOT_JSON, **NOT_A_BODY}
    operations = [each for each in OPERATIONS if each.method in ("POST", "PUT")]
    for operation in operations:
        path = re.sub("{.*?}", "1", operation.path)
        for name, body in bodies.items():
            raw = _make_request(operation.method, path, keys, body)
            response = await connection.send(raw)
            statuses[response.status] += 1
            if response.status not in (400, 422) or not is_well_formed(response):
                accepted += 1
                print(f"  {operation.method} {operation.path} accepted {name}: {response.status}")
    print(
        f"{len(bodies)} invalid bodies at each of {len(operations)} routes: "
        f"{dict(statuses)}, {accepted} not rejected",
        flush=True,
    )
    return accepted


def _make_request(method: str, path: str, keys: Sequence[str], body: bytes) -> bytes:
    """Return the bytes of a request with the keys of both APIs."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        f"X-API-Key: {keys[0]}",
        f"X-Portal-Key: {keys[-1]}",
    ]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _create_records(service: Service, keys: Sequence[str]) -> Ids:
    """Create records of each kind. Return {path of the list: ids}."""
    connection, ids = Connection(service.port), {place: [] for place in CREATED.values()}
    for operation in CREATIONS:
        if "{" in operation.path:
            continue
        for code in range(1, INITIAL_RECORDS + 1):
            body = replace_urls(json.loads(BODIES[operation.body][0]))
            if "code" in body:
                body["code"] = code
            if "email" in body and "role" in body:
                body["email"] = f"{secrets.token_hex(4)}@example.com"
            raw = _make_request("POST", operation.path, keys, json.dumps(body).encode())
            response = await connection.send(raw)
            if response.status == 201:
                ids[operation.path].append(_created_id(response))
    counts = ", ".join(f"{len(found)} at {place}" for place, found in ids.items())
    print(f"records: {counts}", flush=True)
    return ids


def _created_id(response: Response) -> Any:
    """Return the id of the created record, with or without `data` around it."""
    body = response.json()
    return body.get("data", body)["id"]


async def _fuzz(
    service: Service, keys: Sequence[str], ids: Ids, options: argparse.Namespace
) -> tuple[Tally, float]:
    """Send random requests. Return the tally and the seconds."""
    tally, began, turns = Tally(), time.perf_counter(), iter(range(options.requests))

    async def send_requests(number: int) -> None:
        generator = RequestGenerator(f"{options.seed}/{number}", keys, ids)
        connection = Connection(service.port)
        for turn in turns:
            request = generator.next_request()
            # An incomplete request may leave its connection in any state.
            used = connection if request.is_whole else Connection(service.port)
            await _send(used, request, tally, ids)
            if turn and turn % 10_000 == 0:
                print(f"  {turn:,} requests, {time.perf_counter() - began:.0f} s", flush=True)
        connection.close()

    await asyncio.gather(*[send_requests(number) for number in range(options.connections)])
    return tally, time.perf_counter() - began


async def _send(connection: Connection, request: FuzzRequest, tally: Tally, ids: Ids) -> None:
    """Send one request, record its outcome, and the id of a created record."""
    start = time.perf_counter()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS if request.is_whole else UNFINISHED_SECONDS):
            response = await connection.send(request.raw, request.method)
    except NoResponse as error:
        name = request.route.split()[0] if request.is_whole else "bytes"
        tally.closed[f"{name} {error}"] += 1
        return
    except (TimeoutError, ValueError):
        if request.is_whole:
            tally.add_time(TIMEOUT_SECONDS, request.route)
        else:
            tally.unfinished += 1
        return
    finally:
        if not request.is_whole:
            connection.close()
    tally.add_time(time.perf_counter() - start, request.route)
    tally.add_response(response, request)
    place = CREATED.get(request.route.partition(" ")[2])
    if response.status == 201 and place and len(ids[place]) < MAX_IDS:
        ids[place].append(_created_id(response))


def is_well_formed(response: Response) -> bool:
    """Return whether an error has an object with a message, and other bodies fit their type."""
    is_json = response.media_type == "application/json"
    try:
        body = response.json() if is_json else None
    except ValueError:
        return False
    if response.status >= 400:
        return isinstance(body, dict) and not {"message", "error", "title"}.isdisjoint(body)
    return (
        response.status == 304
        or body is not None
        or response.media_type.startswith(("text/", "image/"))
    )


def _print_tally(tally: Tally, spent: float, peak: float, options: argparse.Namespace) -> None:
    seconds, route = tally.slowest
    classes = Counter(f"{status // 100}xx" for status in tally.statuses.elements())
    rows = [
        ("seed", str(options.seed)),
        ("requests", options.requests),
        ("requests per second", options.requests / spent),
        *[(f"responses {name}", count) for name, count in sorted(classes.items())],
        ("responses 500", len(tally.failed)),
        (f"responses after more than {LATE_SECONDS:g} s", len(tally.late)),
        (f"slowest, ms: {route}", seconds * 1000),
        ("malformed responses", len(tally.malformed)),
        ("connections closed without a response", sum(tally.closed.values())),
        ("incomplete requests", tally.unfinished),
        ("peak memory of the service, MB", peak),
    ]
    print_table("Malformed requests", ("", ""), rows)
    statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(tally.statuses.items()))
    print(f"  statuses: {statuses}")
    for name, counts in (
        ("closed without a response", tally.closed),
        ("responses 503", tally.unavailable),
    ):
        shown = ", ".join(f"{what}: {count}" for what, count in counts.items()) or "none"
        print(f"  {name}: {shown}")
    for each in [*tally.late[:20], *tally.malformed[:20]]:
        print(f"  {each}")


def _store_failed(
    failed: Sequence[FuzzRequest], keys: Sequence[str], folder: Path, seed: int
) -> None:
    """Store requests that got a 500, with placeholders instead of the keys."""
    for number, request in enumerate(failed[:100]):
        raw = request.raw
        for key in keys:
            raw = raw.replace(key.encode(), PLACEHOLDERS[key.startswith("einp")])
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{seed}-{number}.http"
        path.write_bytes(raw)
        print(f"  500 of {request.route}: {path}")


async def _repeat(service: Service, keys: Sequence[str], path: Path) -> None:
    """Send a stored request again and print the response."""
    raw = path.read_bytes()
    for placeholder, key in zip(PLACEHOLDERS, (keys[0], keys[-1]), strict=False):
        raw = raw.replace(placeholder, key.encode())
    response = await Connection(service.port).send(raw, raw.split()[0].decode())
    print(response.head.decode(), response.body.decode(errors="replace"), sep="")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=summary_of(__doc__))
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--keep", default=".data/fuzz", help="folder for requests that got a 500")
    parser.add_argument("--repeat", help="a file of that folder to send again")
    run(main(parser.parse_args()))

#!/usr/bin/env python3
"""Asks a running service for what nobody would: good bodies changed at random, paths, queries, heads and bytes.

    .venv/bin/python bench/fuzz.py [--requests N] [--seed S] [--connections N] [--keep FOLDER] [--repeat FILE]

Before that, every POST and PUT is asked with each body of tests/no_json.py. Ends with 1 when there was a 500, an answer
that took more than two seconds, one that has not our shape, or a body taken that must not be. Requests that got a
500 are kept as they were sent, but for the keys; --repeat sends such a file again.
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
from dataclasses import dataclass, field
from pathlib import Path

from ground import ROOT, ground, memory, run, table
from inventor import BODIES, CREATED, CREATIONS, Inventor, harmless
from wire import Answer, Connection, NoAnswer

sys.path.insert(0, str(ROOT / "tests"))

from no_json import NOT_A_BODY, NOT_JSON

from service.api.operations import OPERATIONS
from service.commands.integrations import insert_integration_key

RECORDS = 20  # of each kind, to begin with; a company has no more webhooks
LATE = 2.0  # seconds
PATIENCE = 15.0
UNFINISHED = 0.05  # seconds for an answer to bytes that need not be a whole request
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


@dataclass(slots=True)
class Tally:
    """What came back."""

    statuses: Counter = field(default_factory=Counter)
    away: Counter = field(default_factory=Counter)  # 503, by route
    breaks: Counter = field(default_factory=Counter)
    waiting: int = 0  # what was no whole request, and so has no answer
    failed: list = field(default_factory=list)
    late: list = field(default_factory=list)
    shapeless: list = field(default_factory=list)
    slowest: tuple = (0.0, "")

    def took(self, seconds, route):
        self.slowest = max(self.slowest, (seconds, route))
        if seconds > LATE:
            self.late.append((seconds, route))


async def main(options):
    async with ground(sandbox=True, **VARIABLES) as service:
        companies = [await service.company(), await service.company()]
        account = await insert_integration_key(
            service.config, service.database, "Penang Trading Group"
        )
        keys = [*[company.key for company in companies], account["key"]]
        if options.repeat:
            return await _repeated(service, keys, options.repeat)
        wrong = await _must_be_refused(service, keys)
        ids = await _records(service, keys)
        tally, spent = await _fuzzed(service, keys, ids, options)
        _print(tally, spent, memory(service.pid)[1], options)
        _keep(tally.failed, keys, Path(options.keep), options.seed)
    if wrong or tally.failed or tally.late or tally.shapeless:
        sys.exit(1)
    return None


async def _must_be_refused(service, keys):
    """How many of the bodies that no route may take were not refused in our shape."""
    connection, statuses, wrong = Connection(service.port), Counter(), 0
    asked = [each for each in OPERATIONS if each.method in ("POST", "PUT")]
    for operation in asked:
        path = re.sub("{.*?}", "1", operation.path)
        for name, body in {**NOT_JSON, **NOT_A_BODY}.items():
            answer = await connection.ask(_keyed(operation.method, path, keys, body))
            statuses[answer.status] += 1
            if answer.status not in (400, 422) or not _has_shape(answer):
                wrong += 1
                print(f"  {operation.method} {operation.path} took {name}: {answer.status}")
    count = len(NOT_JSON) + len(NOT_A_BODY)
    print(
        f"{count} bodies that are none, at each of {len(asked)} routes: {dict(statuses)}, {wrong} not refused",
        flush=True,
    )
    return wrong


def _keyed(method, path, keys, body):
    """The bytes of a request with the keys of both surfaces."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: x",
        f"X-API-Key: {keys[0]}",
        f"X-Portal-Key: {keys[-1]}",
    ]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _records(service, keys):
    """{place: ids} of records to begin with."""
    connection, ids = Connection(service.port), {place: [] for place in CREATED.values()}
    for operation in CREATIONS:
        if "{" not in operation.path:
            for code in range(1, RECORDS + 1):
                body = harmless(json.loads(BODIES[operation.body][0]))
                body.update({"code": code} if "code" in body else {})
                body.update(
                    {"email": f"{secrets.token_hex(4)}@example.com"}
                    if "email" in body and "role" in body
                    else {}
                )
                answer = await connection.ask(
                    _keyed("POST", operation.path, keys, json.dumps(body).encode())
                )
                if answer.status == 201:
                    told = answer.json()
                    ids[operation.path].append(told.get("data", told)["id"])
    print(
        "records: " + ", ".join(f"{len(found)} at {place}" for place, found in ids.items()),
        flush=True,
    )
    return ids


async def _fuzzed(service, keys, ids, options):
    tally, began, left = Tally(), time.perf_counter(), iter(range(options.requests))

    async def one(number):
        inventor, connection = (
            Inventor(f"{options.seed}/{number}", keys, ids),
            Connection(service.port),
        )
        for turn in left:
            await _asked(service.port, connection, inventor.request(), tally, ids)
            if turn and turn % 10_000 == 0:
                print(f"  {turn:,} requests, {time.perf_counter() - began:.0f} s", flush=True)
        connection.close()

    await asyncio.gather(*[one(number) for number in range(options.connections)])
    return tally, time.perf_counter() - began


async def _asked(port, connection, sent, tally, ids):
    if not sent.is_whole:
        connection = Connection(port)
    start = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE if sent.is_whole else UNFINISHED):
            answer = await connection.ask(sent.raw, sent.method)
    except NoAnswer as why:
        tally.breaks[f"{sent.route.split()[0] if sent.is_whole else 'bytes'} {why}"] += 1
        return
    except (TimeoutError, ValueError):
        if sent.is_whole:
            tally.took(PATIENCE, sent.route)
        else:
            tally.waiting += 1
        return
    finally:
        if not sent.is_whole:
            connection.close()
    tally.took(time.perf_counter() - start, sent.route)
    _judge(answer, sent, tally)
    place = CREATED.get(sent.route.partition(" ")[2])
    if answer.status == 201 and place and len(found := ids[place]) < 500:
        told = answer.json()
        found.append(told.get("data", told)["id"])


def _judge(answer: Answer, sent, tally):
    tally.statuses[answer.status] += 1
    if answer.status == 500:
        tally.failed.append(sent)
    if answer.status == 503:
        tally.away[sent.route] += 1
    if not _has_shape(answer) and sent.method != "HEAD":
        tally.shapeless.append((answer.status, answer.kind, sent.route, answer.body[:100]))


def _has_shape(answer):
    """Whether a refusal is an object that says why, and anything else is what it says it is."""
    try:
        body = answer.json() if answer.kind == "application/json" else None
    except ValueError:
        return False
    if answer.status >= 400:
        return isinstance(body, dict) and not {"message", "error", "title"}.isdisjoint(body)
    return answer.status == 304 or body is not None or answer.kind.startswith(("text/", "image/"))


def _print(tally, spent, peak, options):
    seconds, route = tally.slowest
    classes = Counter(f"{status // 100}xx" for status in tally.statuses.elements())
    rows = [
        ("seed", str(options.seed)),
        ("requests", options.requests),
        ("requests a second", options.requests / spent),
        *[(f"answers {name}", count) for name, count in sorted(classes.items())],
        ("answers of 500", len(tally.failed)),
        (f"answers after more than {LATE:g} s", len(tally.late)),
        (f"the slowest, ms: {route}", seconds * 1000),
        ("answers without our shape", len(tally.shapeless)),
        ("connections closed without an answer", sum(tally.breaks.values())),
        ("bytes that were no whole request", tally.waiting),
        ("peak memory of the service, MB", peak),
    ]
    table("Requests that nobody would send", ("", ""), rows)
    print(
        "  statuses: "
        + ", ".join(f"{status}: {count:,}" for status, count in sorted(tally.statuses.items()))
    )
    for name, counts in (
        ("closed without an answer", tally.breaks),
        ("answered with 503", tally.away),
    ):
        print(
            f"  {name}: "
            + (", ".join(f"{what}: {count}" for what, count in counts.items()) or "none")
        )
    for each in [*tally.late[:20], *tally.shapeless[:20]]:
        print(f"  {each}")


def _keep(failed, keys, folder, seed):
    for number, sent in enumerate(failed[:100]):
        raw = sent.raw
        for key in keys:
            raw = raw.replace(key.encode(), PLACEHOLDERS[key.startswith("einp")])
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{seed}-{number}.http"
        path.write_bytes(raw)
        print(f"  500 of {sent.route}: {path}")


async def _repeated(service, keys, path):
    raw = Path(path).read_bytes()
    for placeholder, key in zip(PLACEHOLDERS, (keys[0], keys[-1]), strict=False):
        raw = raw.replace(placeholder, key.encode())
    answer = await Connection(service.port).ask(raw, raw.split()[0].decode())
    print(answer.head.decode(), answer.body.decode(errors="replace"), sep="")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--keep", default=".data/fuzz", help="folder for requests that got a 500")
    parser.add_argument("--repeat", help="a file of that folder, to be sent once more")
    run(main(parser.parse_args()))

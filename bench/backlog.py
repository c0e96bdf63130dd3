#!/usr/bin/env python3
"""How long it takes to find out what became of many sends of one company whose answers were lost.

    .venv/bin/python bench/backlog.py [--documents N] [--processes N] [--delay-ms MS] [--lease S] [--scale S]

The invoices are sent in calls of a hundred, and every document is then made a send of its own whose answer was lost, as the
database would show it. After that the processes start, with a database that is so many milliseconds away, and the portal's
quotas times the scale. Ends with 1 when a submission needs a person or none was resolved in time.
"""

import argparse
import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import aiohttp
import asyncpg
from batches import _ready
from ground import ROOT, Ground, ground, memory, run, table

sys.path.insert(0, str(ROOT / "tests"))

from network import Network

from service.documents.ubl import document

PATIENCE = 3600  # seconds
SENT = "select count(*) from submitted_documents where uuid is not null"
CALLS = """
select s.company_id, s.id, s.tin, s.body
  from submissions s
 where s.state in ('Accepted', 'Finished')
"""
LOSE = """
with lost as (
  insert into submissions (company_id, attempt_key, tin, body, on_absence, state, fence, first_sent_at, last_sent_at, sends)
  values ($1, $2, $3, $4, 'retry', 'Uncertain', 1, now() - interval '10 minutes', now() - interval '10 minutes', 1)
  returning company_id, id
)
update submitted_documents d
   set submission_id = lost.id, status = 'Submitting', uuid = null, long_id = null, validation_link = null,
       submitted_at = null, validated_at = null
  from lost
 where d.company_id = lost.company_id and d.submission_id = $5 and d.number = $6
"""


async def main(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(
            ground(sandbox=True, background=False, SANDBOX_PROCESSING_SECONDS="0")
        )
        owner = await asyncpg.connect(service.url)
        stack.push_async_callback(owner.close)
        await _send(service, owner, options.documents)
        await _lose(owner)
        print(
            f"{options.documents:,} answers are lost; starting {options.processes} processes",
            flush=True,
        )
        await _count_calls(service, options.scale)
        before = await _calls(service)
        began, pids = time.perf_counter(), []
        async with _far(service, options) as far:
            for _ in range(options.processes):
                pids.append(await stack.enter_async_context(far.worker()))
            most, states = await _resolved(owner, options.documents)
            seconds = time.perf_counter() - began
            highest = max(memory(pid)[1] or 0 for pid in pids)
            calls = {name: n - before.get(name, 0) for name, n in (await _calls(service)).items()}
    rows = [
        ("seconds until all were resolved", seconds),
        *((f"submissions {state}", n) for state, n in sorted(states.items())),
        *((f"portal calls: {name}", n) for name, n in sorted(calls.items()) if n),
        ("submissions claimed at a time, at most", most),
        ("MB of a process, at most", float(highest)),
    ]
    title = f"{options.documents:,} lost answers, {options.processes} processes, a database {options.delay_ms:g} ms away, "
    table(f"{title}a lease of {options.lease:g} s, quotas times {options.scale:g}", ("", ""), rows)
    sys.exit(any(state in states for state in ("NeedsPerson", "Uncertain", "Sending")))


async def _send(service: Ground, owner: asyncpg.Connection, documents: int) -> None:
    company = await service.company()
    print(f"Sending {documents:,} invoices …", flush=True)
    async with aiohttp.ClientSession(headers={"X-API-Key": company.key}) as http:
        await _ready(http, service, documents)
    async with service.worker(), asyncio.timeout(PATIENCE):
        while await owner.fetchval(SENT) < documents:
            await asyncio.sleep(0.5)


async def _lose(owner: asyncpg.Connection) -> None:
    """Make every document a send of its own whose answer was lost."""
    for submission in await owner.fetch(CALLS):
        for number, entry in document.entries(submission["body"]).items():
            body = document.enclosed([entry])
            await owner.execute(
                LOSE,
                submission["company_id"],
                uuid.uuid4(),
                submission["tin"],
                body,
                submission["id"],
                number,
            )
    await owner.execute("update invoices set status = 'Submitting' where status <> 'Draft'")
    await owner.execute("update submissions set state = 'Finished' where state = 'Accepted'")
    await owner.execute("delete from portal_sightings")
    await owner.execute(
        "update submissions set lease_until = null, not_before = now() where state = 'Uncertain'"
    )


@asynccontextmanager
async def _far(service: Ground, options: argparse.Namespace) -> AsyncIterator[Ground]:
    """The service on a database that is some milliseconds away."""
    network = Network(service.url, delay=options.delay_ms / 1000)
    await network.heal()
    variables = {
        "DATABASE_URL": network.url,
        "DATABASE_OWNER_URL": service.url,
        "PORTAL_LEASE_SECONDS": f"{options.lease:g}",
        "PORTAL_RATE_SCALE": f"{options.scale:g}",
        "PORTAL_RECHECK_SECONDS": "36000",
        "SWEEP_SECONDS": "86400",
        "LOG_LEVEL": "WARNING",
    }
    yield replace(service, environment={**service.environment, **variables})


async def _count_calls(service: Ground, scale: float) -> None:
    """Have the sandbox count the portal's quotas from now on."""
    async with aiohttp.ClientSession(service.config.portal_api_base) as http:
        async with http.post("/_sandbox/settings", json={"rate_scale": scale}) as response:
            assert response.status == 200, await response.text()


async def _calls(service: Ground) -> dict[str, int]:
    async with (
        aiohttp.ClientSession(service.config.portal_api_base) as http,
        http.get("/_sandbox/calls") as response,
    ):
        told = await response.json()
    refused = sum(answers.get("429", 0) for answers in told["answers"].values())
    return {**told["calls"], "answered 429": refused}


async def _resolved(owner: asyncpg.Connection, documents: int) -> tuple[int, dict[str, int]]:
    """Return how many were claimed at a time, and the states once none is Uncertain, or patience is over."""
    most, until = 0, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        rows = await owner.fetch(
            """select state, count(*) as n, count(*) filter (where state = 'Uncertain' and lease_until > now()) as held
                 from submissions where on_absence = 'retry' and sends = 1 and first_sent_at < now() - interval '9 minutes'
                group by state"""
        )
        most = max([most, *(row["held"] for row in rows)])
        states = {row["state"]: row["n"] for row in rows}
        if "Uncertain" not in states:
            break
        await asyncio.sleep(0.1)
    return most, states


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--delay-ms", type=float, default=5, help="of everything to and from the database"
    )
    parser.add_argument("--lease", type=float, default=60, help="PORTAL_LEASE_SECONDS")
    parser.add_argument(
        "--scale",
        type=float,
        default=1,
        help="of the portal's rates; 20 is a minute of three seconds",
    )
    run(main(parser.parse_args()))

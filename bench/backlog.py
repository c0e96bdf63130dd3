#!/usr/bin/env python3
"""Measure the time to resolve many submissions of one company whose responses were lost.

    .venv/bin/python bench/backlog.py [--documents N] [--processes N] [--delay-ms MS] [--lease S]
                                      [--scale S]

The invoices are sent in requests of a hundred. Then every document becomes a submission of its own
whose response was lost, by changes in the database. After that the processes start, with the given
delay to the database and the portal's rate limits times the scale. Exits with 1 if a submission
needs a person or is not resolved in time.
"""

import argparse
import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import asyncpg
from batches import count_requests, create_ready_invoices, start_idle_service
from benchmark import Service, parse_options, print_table, read_memory, run

from tests.harness.network import Network

TIMEOUT_SECONDS = 3600
COUNT_SENT = "select count(*) from submitted_documents where uuid is not null"
SUBMISSIONS = """
select s.company_id, s.id, s.tin, d.number
  from submissions s
  join submitted_documents d on d.company_id = s.company_id and d.submission_id = s.id
 where s.state in ('Accepted', 'Finished')
"""
LOSE_RESPONSE = """
with lost as (
  insert into submissions (company_id, attempt_key, tin, on_absence, state, fence,
                           first_sent_at, last_sent_at, sends)
  values ($1, $2, $3, 'retry', 'Uncertain', 1,
          now() - interval '10 minutes', now() - interval '10 minutes', 1)
  returning company_id, id
)
update submitted_documents d
   set submission_id = lost.id, status = 'Submitting', uuid = null, long_id = null,
       validation_link = null, submitted_at = null, validated_at = null
  from lost
 where d.company_id = lost.company_id and d.submission_id = $4 and d.number = $5
"""
STATES = """
select state, count(*) as n,
       count(*) filter (where state = 'Uncertain' and lease_until > now()) as held
  from submissions
 where on_absence = 'retry' and sends = 1 and first_sent_at < now() - interval '9 minutes'
 group by state
"""


async def main(options: argparse.Namespace) -> None:
    """Send the invoices, lose the responses, resolve them and print the figures."""
    async with start_idle_service() as (service, owner), AsyncExitStack() as stack:
        await _send(service, owner, options.documents)
        await _lose_responses(owner)
        print(
            f"{options.documents:,} responses are lost; starting {options.processes} processes",
            flush=True,
        )
        await service.portal.settings(rate_scale=options.scale)
        before = await count_requests(service)
        began, pids = time.perf_counter(), []
        async with _add_delay(service, options) as distant:
            for _ in range(options.processes):
                process = await stack.enter_async_context(distant.make_another())
                pids.append(process.pid)
            most, states = await _wait_until_resolved(owner)
            seconds = time.perf_counter() - began
            peak = max(read_memory(pid)[1] or 0 for pid in pids)
            requests = await count_requests(service) - before
    rows = [
        ("seconds until all were resolved", seconds),
        *((f"submissions {state}", count) for state, count in sorted(states.items())),
        *((f"portal requests: {name}", count) for name, count in sorted(requests.items())),
        ("submissions claimed at a time, at most", most),
        ("MB of a process, at most", float(peak)),
    ]
    title = (
        f"{options.documents:,} lost responses, {options.processes} processes, "
        f"a delay of {options.delay_ms:g} ms to the database, a lease of {options.lease:g} s, "
        f"rate limits times {options.scale:g}"
    )
    print_table(title, ("", ""), rows)
    sys.exit(any(state in states for state in ("NeedsPerson", "Uncertain", "Sending")))


async def _send(service: Service, owner: asyncpg.Connection, documents: int) -> None:
    company = await service.add_company()
    print(f"Sending {documents:,} invoices …", flush=True)
    await create_ready_invoices(service, company, documents)
    async with service.make_another(), asyncio.timeout(TIMEOUT_SECONDS):
        while (await owner.fetchval(COUNT_SENT) or 0) < documents:
            await asyncio.sleep(0.5)


async def _lose_responses(owner: asyncpg.Connection) -> None:
    """Make every document a submission of its own whose response was lost."""
    for company_id, submission_id, tin, number in await owner.fetch(SUBMISSIONS):
        await owner.execute(LOSE_RESPONSE, company_id, uuid.uuid4(), tin, submission_id, number)
    await owner.execute("update document_states set status = 'Submitting' where status <> 'Draft'")
    await owner.execute("update submissions set state = 'Finished' where state = 'Accepted'")
    await owner.execute("delete from portal_sightings")
    await owner.execute(
        "update submissions set lease_until = null, not_before = now() where state = 'Uncertain'"
    )


@asynccontextmanager
async def _add_delay(service: Service, options: argparse.Namespace) -> AsyncIterator[Service]:
    """Return the service with a delay on the way to its database."""
    network = Network(service.url, delay=options.delay_ms / 1000)
    await network.heal()
    variables = {
        "DATABASE_URL": network.url,
        "DATABASE_OWNER_URL": service.url,
        "PORTAL_LEASE_SECONDS": f"{options.lease:g}",
        "PORTAL_RATE_SCALE": f"{options.scale:g}",
        "PORTAL_RECHECK_SECONDS": "36000",
        "COMPARISON_SECONDS": "86400",
        "LOG_LEVEL": "WARNING",
    }
    yield replace(service, environment={**service.environment, **variables})


async def _wait_until_resolved(owner: asyncpg.Connection) -> tuple[int, dict[str, int]]:
    """Wait until no submission is Uncertain, or the time is over.

    Return the maximum number claimed at a time, and the number of submissions by state.
    """
    most, until = 0, time.monotonic() + TIMEOUT_SECONDS
    while True:
        rows = await owner.fetch(STATES)
        most = max([most, *(row["held"] for row in rows)])
        states = {row["state"]: row["n"] for row in rows}
        if "Uncertain" not in states or time.monotonic() >= until:
            return most, states
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    numbers = {"documents": 10_000, "processes": 2, "delay_ms": 5.0, "lease": 60.0, "scale": 1.0}
    run(main(parse_options(__doc__, **numbers)))

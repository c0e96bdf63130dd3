"""A naive worker for comparison: it repeats a POST after any error or expired lease.

It has its own jobs and its own sandbox, with errors from the same tables and the same kinds of
kills. If it makes no duplicates, the schedule is too mild, and a service without duplicates has
proved nothing.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from service import json_codec
from service.commands.bootstrap import run
from service.commands.serve import DEMO_COMPANY
from service.db.statements import Statements
from service.documents.ubl import document
from tests.harness.databases import ask, open_connection

from .clients import invoice_body

sql = Statements(Path(__file__).resolve().parent)
CONCURRENT = 4
LEASE = timedelta(seconds=2.5)
TIMEOUT = aiohttp.ClientTimeout(total=0.8)
IDLE_SECONDS = 0.05
JOB_SECONDS = 0.15  # between the due times of two jobs
ERRORS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    aiohttp.ClientError,
)


def main() -> None:
    """Work until the process is killed.

    The environment has the addresses: DATABASE_URL, PORTAL_API_BASE and NAIVE_TOKEN.
    """
    run(_work(os.environ["DATABASE_URL"], os.environ["PORTAL_API_BASE"], os.environ["NAIVE_TOKEN"]))


async def _work(url: str, portal: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(portal, headers=headers, timeout=TIMEOUT) as session:
        await asyncio.gather(*[_process_jobs(url, session) for _ in range(CONCURRENT)])


async def _process_jobs(url: str, session: aiohttp.ClientSession) -> None:
    """Process jobs over one connection, and connect again after an error."""
    while True:
        try:
            conn = await asyncpg.connect(url, timeout=2, command_timeout=5)
            while True:
                await _process_job(conn, session)
        except ERRORS:
            await asyncio.sleep(IDLE_SECONDS)


async def _process_job(conn: asyncpg.Connection, session: aiohttp.ClientSession) -> None:
    """Send one job. It is done if the portal accepts it with 202, else it is repeated."""
    job = await sql.naive_claim(conn, lease=LEASE)
    if job is None:
        await asyncio.sleep(IDLE_SECONDS)
        return
    is_done = False
    try:
        async with session.post("/api/v1.0/documentsubmissions/", data=job["body"]) as response:
            is_done = response.status == 202 and bool((await response.json())["acceptedDocuments"])
    except (aiohttp.ClientError, OSError, ValueError):
        pass
    await sql.naive_release(conn, id=job["id"], is_done=is_done)


async def prepare(url: str, documents: int) -> None:
    """Create the jobs, which become due one after the other."""
    async with open_connection(url) as conn:
        await sql.naive_prepare(conn)
        for number in range(1, documents + 1):
            due = timedelta(seconds=number * JOB_SECONDS)
            await sql.naive_insert(conn, id=number, body=_make_body(number), due=due)


async def count_open(url: str) -> int:
    """Return the number of jobs that are not done; 1 while PostgreSQL is down."""
    return await ask(url, sql.naive_open, otherwise=1)


def _make_body(job: int) -> bytes:
    number = f"NAIVE-{job:05}"
    issued_at = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=60)
    # As the service reads it: its numbers are exact.
    invoice = json_codec.loads(json.dumps(invoice_body(job, f"Tea {job}")).encode())
    built = document.build(invoice, DEMO_COMPANY, number=number, issued_at=issued_at)
    return document.build_envelope([document.build_entry(number, document.encode(built))])


def count_duplicates(ledger: Sequence[dict[str, Any]]) -> int:
    """Return the number of the portal's documents beyond one per number."""
    return len(ledger) - len({document["number"] for document in ledger})

"""What many would write: claim, POST, and on any error, or when the lease is over, again. A yardstick for the schedule.

It works on jobs of its own and sends them to a sandbox of its own, under faults of the same tables and kills of the
same kind. When it makes no duplicates, the schedule does not bite, and a service that makes none has shown nothing.
"""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import asyncpg

from service.commands.bootstrap import run
from service.commands.serve import DEMO_COMPANY
from service.db.statements import Statements
from service.documents.ubl import document

from .clients import invoice_body

sql = Statements(Path(__file__).resolve().parent)
CONCURRENT = 4
LEASE = timedelta(seconds=2.5)
TIMEOUT = aiohttp.ClientTimeout(total=0.8)
IDLE = 0.05
EVERY = 0.15  # seconds between two jobs that fall due
FAULTS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    aiohttp.ClientError,
)


def main():
    """The process: DATABASE_URL, PORTAL_API_BASE and NAIVE_TOKEN say where it works; it goes on until it is killed."""
    run(_work(os.environ["DATABASE_URL"], os.environ["PORTAL_API_BASE"], os.environ["NAIVE_TOKEN"]))


async def _work(url, portal, token):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(portal, headers=headers, timeout=TIMEOUT) as session:
        await asyncio.gather(*[_again_and_again(url, session) for _ in range(CONCURRENT)])


async def _again_and_again(url, session):
    while True:
        try:
            conn = await asyncpg.connect(url, timeout=2, command_timeout=5)
            while True:
                await _one(conn, session)
        except FAULTS:
            await asyncio.sleep(IDLE)


async def _one(conn, session):
    """One job: done when the portal says 202, else to be done again."""
    job = await sql.naive_claim(conn, lease=LEASE)
    if job is None:
        return await asyncio.sleep(IDLE)
    is_done = False
    try:
        async with session.post("/api/v1.0/documentsubmissions/", data=job["body"]) as response:
            is_done = response.status == 202 and bool((await response.json())["acceptedDocuments"])
    except (aiohttp.ClientError, OSError, ValueError):
        pass
    return await sql.naive_release(conn, id=job["id"], is_done=is_done)


# For the season


async def prepare(url, documents):
    """Makes the jobs, which fall due one after the other."""
    conn = await asyncpg.connect(url)
    try:
        await sql.naive_prepare(conn)
        for id in range(1, documents + 1):
            await sql.naive_insert(conn, id=id, body=_body(id), due=timedelta(seconds=id * EVERY))
    finally:
        await conn.close()


def _body(id):
    number, at = f"NAIVE-{id:05}", datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=60)
    built = document.build(invoice_body(id, f"Tea {id}"), DEMO_COMPANY, number=number, issued_at=at)
    return document.envelope([(number, document.encode(built))])


async def token(base):
    """A token of the sandbox for the company that issues the documents."""
    form = {
        "client_id": "sandbox-client",
        "client_secret": "sandbox-secret",
        "grant_type": "client_credentials",
    }
    headers = {"onbehalfof": DEMO_COMPANY["tin_code"]}
    async with aiohttp.ClientSession(base) as session:
        async with session.post("/connect/token", data=form, headers=headers) as response:
            return (await response.json())["access_token"]


def duplicates(ledger):
    """How many documents of the portal are one too many."""
    return len(ledger) - len({there["number"] for there in ledger})

"""Many unknown outcomes of one company at once: resolved with few claims, without manual review."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from service.submission.context import SUBMISSION_CONTEXT
from service.submission.following import comparison
from tests.api_invoices import create_invoice, create_lost_invoice, create_submitted_invoice
from tests.api_reads import get_invoice, read_request
from tests.api_requests import submit
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.fixtures_service import StartProcess
from tests.harness.network import Network
from tests.harness.processes import Service
from tests.submission.test_batches import count_states

MANY = 200
LEASE = "1.5"  # seconds, less than resolving the backlog takes


MakeBacklog = Callable[[int], Awaitable[list[int]]]


@pytest.fixture
def make_backlog(idle: Client, owner: asyncpg.Connection, sandbox: Sandbox) -> MakeBacklog:
    """Return a function that makes `count` Uncertain submissions which the portal has."""

    async def make(count: int) -> list[int]:
        await sandbox.fault("submit", "accept_then_drop", times=count)
        places = asyncio.Semaphore(20)

        async def lose() -> int:
            async with places:
                invoice_id = await create_invoice(idle)
                # Submit again if no connection could be made.
                while (await get_invoice(idle, invoice_id))["status"] == "Draft":
                    await submit(idle, invoice_id)
                return invoice_id

        ids = await asyncio.gather(*[lose() for _ in range(count)])
        unknown = "select count(*) from submissions where state = 'Uncertain'"
        await until(lambda: owner.fetchval(unknown), lambda n: n == count)
        return ids

    return make


async def wait_until_resolved(owner: asyncpg.Connection, seconds: float = 120) -> dict[str, int]:
    """Wait until no outcome is unknown and return the states."""
    return await until(
        lambda: count_states(owner),
        lambda found: "Uncertain" not in found and "Sending" not in found,
        seconds,
    )


@pytest.mark.long
async def test_backlog_is_resolved_by_two_processes_on_a_slow_database(
    services: StartProcess,
    database: str,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    make_backlog: MakeBacklog,
) -> None:
    await make_backlog(MANY)
    network = Network(database, delay=0.003)
    await network.heal()
    variables = {"DATABASE_URL": network.url, "DATABASE_OWNER_URL": database}
    for _ in range(2):
        await services(**variables, PORTAL_LEASE_SECONDS=LEASE)
    found = await wait_until_resolved(owner)
    found.pop("NotReceived", None)  # of documents that were submitted again
    assert set(found) <= {"Accepted", "Finished"} and sum(found.values()) == MANY
    assert len(await sandbox.ledger()) == MANY


@pytest.mark.long
async def test_crash_while_reading_a_listing_counts_against_no_submission(
    services: StartProcess, owner: asyncpg.Connection, sandbox: Sandbox, make_backlog: MakeBacklog
) -> None:
    """Six processes in a row are killed while they read the listing. No submission was claimed."""
    await make_backlog(5)
    await sandbox.fault("search", "slow_before", seconds=600, times=6)
    service = await services(PORTAL_LEASE_SECONDS="1", PORTAL_TIMEOUT_SECONDS="900")
    for kills in range(1, 7):
        await until(
            sandbox.calls,
            lambda found, least=kills: found["calls"].get("search", 0) >= least,
            seconds=60,
        )
        await service.kill()
        assert await owner.fetchval("select max(claims) from submissions") == 0
        await service.start()
    assert set(await wait_until_resolved(owner)) <= {"Accepted", "Finished"}


async def test_crash_in_a_batch_causes_no_manual_review(
    environment: dict[str, str],
    owner: asyncpg.Connection,
    make_backlog: MakeBacklog,
    tmp_path: Path,
) -> None:
    """The batch was claimed. Each submission is retried alone, and a result resets its count."""
    await make_backlog(8)
    service = Service({**environment, "PORTAL_LEASE_SECONDS": "1"}, tmp_path / "service.log")
    await service.start(dies_at="before_state_commit")
    await service.died()
    assert await owner.fetchval(
        "select array_agg(distinct claims) from submissions where state = 'Uncertain'"
    ) == [1]
    await service.start()
    try:
        found = await wait_until_resolved(owner)
    finally:
        await service.stop()
    assert set(found) <= {"Accepted", "Finished"} and sum(found.values()) == 8


async def test_failing_submission_causes_no_manual_review_of_others(
    start: StartService, owner: asyncpg.Connection, make_backlog: MakeBacklog
) -> None:
    ids = await make_backlog(6)
    await owner.execute(
        """update submitted_contents set content = 'no longer JSON'
            where submitted_document_id = (
                  select id from submitted_documents where document_id = $1)""",
        ids[2],
    )
    api = await start(PORTAL_LEASE_SECONDS="0.5")
    found = await wait_until_resolved(owner)
    assert found.pop("NeedsPerson") == 1 and sum(found.values()) == 5, found
    assert (await get_invoice(api, ids[2]))["status"] == "Submitting"


async def test_one_claim_covers_all_unknown_outcomes_of_a_company(
    idle: Client, company: Company, owner: asyncpg.Connection, make_backlog: MakeBacklog
) -> None:
    await make_backlog(20)
    await owner.execute(
        "update submissions set not_before = clock_timestamp() - interval '1 second'"
    )
    context = idle.app[SUBMISSION_CONTEXT]
    ((claimed, _),) = await comparison.claim(context, comparison.UNKNOWN, 50)
    assert claimed == company.id
    assert await comparison.claim(context, comparison.UNKNOWN, 50) == []
    assert await owner.fetch("select * from claim_submissions(interval '1 minute', 50)") == []


# A listing that grows while it is read


async def put_copies(
    sandbox: Sandbox, tin: str, body: bytes, count: int, series: int | str
) -> None:
    """Submit `count` copies of a document under other numbers, as third-party software would."""
    (entry,) = json.loads(body)["documents"]
    content, entries = base64.b64decode(entry["document"]).decode(), []
    for at in range(count):
        number = f"OTHER-{series}-{at}"
        copy = content.replace(entry["codeNumber"], number).encode()
        facts = {
            "document": base64.b64encode(copy).decode(),
            "documentHash": hashlib.sha256(copy).hexdigest(),
        }
        entries.append({**entry, **facts, "codeNumber": number})
    for first in range(0, count, 100):
        sent = {"documents": entries[first : first + 100]}
        await sandbox.request(tin, "POST", "documentsubmissions/", json=sent)


@pytest.mark.long
async def test_absence_is_confirmed_while_the_company_keeps_sending(
    idle: Client, start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """More than a page of documents arrives between two pages of every listing."""
    await create_submitted_invoice(idle)
    (tin, request), rounds = await read_request(owner), 0
    await put_copies(sandbox, tin, request.body, 350, "first")
    absent = await create_lost_invoice(idle, sandbox, "drop")
    await sandbox.fault("search", "slow", seconds=0.3, times=10**6)
    api = await start(PORTAL_TIMEOUT_SECONDS="60")
    while (await get_invoice(api, absent))["status"] != "Draft":
        pages = await sandbox.count_calls("search")
        if pages >= 3 * rounds + 1:  # every third page, so that a listing can end
            await put_copies(sandbox, tin, request.body, 110, rounds)
            rounds += 1
        assert rounds < 30, "absence was not confirmed while documents kept arriving"
        await asyncio.sleep(0.01)
    assert (
        rounds >= 2
        and await owner.fetchval("select max(absence_confirmations) from submissions") == 2
    )

"""Batches: many documents per request, one outcome per document, no loss and no duplicates."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import asyncpg
import pytest

from service.db.statements import sql
from service.submission import store as records
from service.submission.context import SUBMISSION_CONTEXT, Claim, SubmissionContext
from service.submission.own_clients import sign_in
from service.submission.sending import send
from tests.api_invoices import create_invoice, create_submitted_invoice
from tests.api_reads import get_documents, get_invoice, read_request, wait_for_lock
from tests.api_requests import expect, submit
from tests.conftest import Client, Company, Sandbox, StartService, make_company, some_long, until
from tests.fixtures_service import StartProcess
from tests.harness.bodies import STRANGER, invoice, line, now
from tests.harness.companies import AUTOMATIC
from tests.harness.processes import Service
from tests.submission.test_faults import NOT_TAKEN, TAKEN


@pytest.fixture
async def asleep(idle: Client, owner: asyncpg.Connection) -> Client:
    """Return a client of a company that submits automatically, without background work."""
    await owner.execute(AUTOMATIC)
    return idle


#: Number of invoices -> their ids.
SendReady = Callable[[int], Awaitable[list[int]]]


@pytest.fixture
def send_ready(asleep: Client, owner: asyncpg.Connection, start: StartService) -> SendReady:
    """Return a function that creates invoices, starts a service and waits until all are Valid."""

    async def send(count: int) -> list[int]:
        ids = await create_ready(asleep, count)
        await start()
        assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": count}
        return ids

    return send


async def create_ready(api: Client, count: int, **changes: Any) -> list[int]:
    """Create `count` invoices to be submitted and return their ids."""
    ids = []
    for _ in range(0, count, 10):
        part = min(10, count - len(ids))
        ids += await asyncio.gather(
            *[create_invoice(api, isReady=True, **changes) for _ in range(part)]
        )
    return ids


async def wait_for_statuses(
    owner: asyncpg.Connection, ids: list[int], *statuses: str
) -> dict[str, int]:
    """Wait until each invoice has one of the statuses. Return {status: number of invoices}."""

    async def counted() -> dict[str, int]:
        rows = await owner.fetch(
            "select status, count(*) from document_states where id = any ($1) group by 1", ids
        )
        return {row["status"]: row["count"] for row in rows}

    return await until(counted, lambda found: set(found) <= set(statuses))


async def is_sent_once_each(sandbox: Sandbox, ids: list[int]) -> bool:
    """Return whether the portal accepted one document per invoice."""
    numbers = [entry["number"] for entry in await sandbox.ledger()]
    return len(numbers) == len(set(numbers)) == len(ids)


async def call_of(owner: asyncpg.Connection, invoice_id: int) -> Any:
    """Return the id of the submission that holds the document of an invoice."""
    return await owner.fetchval(
        "select submission_id from submitted_documents where document_id = $1", invoice_id
    )


async def claim_next(context: SubmissionContext) -> Claim:
    """Claim the next unsent submission once it is due."""

    async def claim() -> list[asyncpg.Record]:
        async with context.database.across() as conn:
            return await sql.claim_submissions(
                conn, lease=context.config.portal_lease, most=9, states=["Queued"], suspects=1
            )

    (head,) = await until(claim)
    return Claim(head["company_id"], head["id"], head["fence"])


async def count_states(owner: asyncpg.Connection) -> dict[str, int]:
    """Return {state: number of submissions}."""
    rows = await owner.fetch("select state, count(*) from submissions group by 1")
    return {row["state"]: row["count"] for row in rows}


# Merging


async def test_waiting_documents_are_sent_in_full_batches(
    send_ready: SendReady, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    ids = await send_ready(250)
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") == 3
    states = await count_states(owner)
    assert states.pop("Merged") == 247 and sum(states.values()) == 3
    assert states.keys() <= {"Accepted", "Finished"}  # The portal may have validated them already.


async def merge(context: SubmissionContext, claim: Claim) -> bool:
    """Merge the waiting submissions into a claimed one."""
    submission = await records.load(context, claim)
    assert submission
    return await send.merge_waiting(context, claim, submission)


async def test_merging_keeps_the_bytes_of_each_document(
    asleep: Client, send_ready: SendReady, sandbox: Sandbox
) -> None:
    ids = await send_ready(5)
    hashes = {(await get_documents(asleep, invoice_id))[0]["document_hash"] for invoice_id in ids}
    assert {entry["sha256"] for entry in await sandbox.ledger()} == hashes and len(hashes) == 5


async def test_service_role_cannot_change_the_content_of_a_submission(
    asleep: Client, owner: asyncpg.Connection
) -> None:
    await create_ready(asleep, 1)
    await owner.execute("set role einvoice_service; set app.company_id = '1'")
    for change in (
        "submissions set on_absence = 'release'",
        "submissions set tin = ''",
        "submitted_contents set content = ''",
    ):
        with pytest.raises(Exception, match="permission denied"):
            await owner.execute(f"update {change}")
    await owner.execute("reset role")


@pytest.mark.long
async def test_batch_stays_within_the_portal_size_limit(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    lines = [
        line(id=str(number), description="Coffee beans " + "x" * 280) for number in range(1, 241)
    ]
    ids = [await create_invoice(asleep, isReady=True, lineItems=lines) for _ in range(18)]
    stored: Any = await owner.fetchval("select sum(octet_length(content)) from submitted_contents")
    assert stored > send.MOST_BYTES
    await start(PORTAL_TIMEOUT_SECONDS="30", PORTAL_LEASE_SECONDS="60")
    assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": 18}
    largest: Any = await owner.fetchval(
        "select max(size) from (select sum(octet_length(content)) as size"
        " from submitted_contents c join submitted_documents d on d.id = c.submitted_document_id"
        " group by d.submission_id) sent"
    )
    assert largest <= send.MOST_BYTES
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") == 2


async def test_documents_with_the_same_number_are_sent_in_two_batches(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    first = await create_invoice(asleep, code=77, isReady=True, issueDateTime=now(minutes=2))
    await owner.execute("update documents set code_year = code_year - 1")
    second = await create_invoice(asleep, code=77, isReady=True)
    third = await create_invoice(asleep, isReady=True)
    await start()
    await wait_for_statuses(owner, [first, second, third], "Valid")
    assert await sandbox.count_calls("submit") == 2 and len(await sandbox.ledger()) == 3
    submissions = [await call_of(owner, invoice_id) for invoice_id in (first, second, third)]
    assert submissions[0] == submissions[2] != submissions[1]


async def test_two_workers_merge_disjoint_batches(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    ids = await create_ready(asleep, 150)
    await asyncio.gather(start(), start())
    await wait_for_statuses(owner, ids, "Valid")
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") <= 4


@pytest.mark.parametrize("place", [0, 2])
async def test_submission_with_a_failed_claim_is_sent_alone(
    asleep: Client, owner: asyncpg.Connection, start: StartService, place: int
) -> None:
    """It may be what crashes the process, so it is not merged with others."""
    ids = await create_ready(asleep, 5)
    suspect = await call_of(owner, ids[place])
    await owner.execute("update submissions set claims = 1 where id = $1", suspect)
    await start()
    assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": 5}
    assert await call_of(owner, ids[place]) == suspect and await count_states(owner) == {
        "Merged": 3,
        "Accepted": 2,
    }


async def test_submit_waits_for_the_batch_its_document_was_merged_into(
    asleep: Client, start: StartService, sandbox: Sandbox
) -> None:
    ids = await create_ready(asleep, 5)
    await sandbox.fault("submit", "slow", seconds=0.5)
    waiting = [asyncio.create_task(submit(asleep, invoice_id)) for invoice_id in ids]
    await start()
    assert {(await answer)[0] for answer in waiting} == {200}
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") == 1


async def test_interactive_submit_is_sent_alone_and_immediately(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    ids = await create_ready(asleep, 5)
    alone = await create_submitted_invoice(asleep)
    assert [entry["number"] for entry in await sandbox.ledger()] == [
        f"INV-{int((await get_invoice(asleep, alone))['invoice_code']):05}"
    ]
    await start()
    await wait_for_statuses(owner, ids, "Valid")
    assert await sandbox.count_calls("submit") == 2


async def test_waiting_or_merged_invoice_is_locked(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    ids = await create_ready(asleep, 3)
    await sandbox.fault("submit", "slow", seconds=3)
    await start(PORTAL_TIMEOUT_SECONDS="10", PORTAL_LEASE_SECONDS="15")
    await until(sandbox.ledger)
    for invoice_id in ids:
        await expect(asleep, 403, "PUT", f"/api/invoices/{invoice_id}", json={"isReady": True})
        await expect(asleep, 403, "DELETE", f"/api/invoices/{invoice_id}")
        await expect(
            asleep, 409, "POST", f"/api/invoices/{invoice_id}/cancel-latest-invoice-submitted"
        )
    await wait_for_statuses(owner, ids, "Valid")
    await expect(asleep, 200, "POST", f"/api/invoices/{ids[1]}/cancel-latest-invoice-submitted")
    assert await wait_for_statuses(owner, ids, "Valid", "Cancelled") == {"Valid": 2, "Cancelled": 1}


# Outcomes


async def test_rejected_document_of_a_batch_becomes_a_draft(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    ids = await create_ready(asleep, 4)
    late = await create_invoice(asleep, isReady=True, issueDateTime=now(hours=2))
    await sandbox.settings(age_window_seconds=3600)
    await start()
    assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": 4}
    assert await wait_for_statuses(owner, [late], "Draft") == {"Draft": 1}
    assert (await get_documents(asleep, late))[0]["errors"][0]["code"] == "CF321"
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") == 1


async def test_invalid_document_of_a_batch_shows_its_errors(
    asleep: Client, owner: asyncpg.Connection, start: StartService
) -> None:
    ids = await create_ready(asleep, 3)
    strange = await create_invoice(asleep, isReady=True, buyer=STRANGER)
    await start()
    assert await wait_for_statuses(owner, [*ids, strange], "Valid", "Invalid") == {
        "Valid": 3,
        "Invalid": 1,
    }
    assert [error["code"] for error in (await get_documents(asleep, strange))[0]["errors"]] == [
        "ERR206"
    ]


async def test_missing_validation_errors_do_not_delay_other_documents(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    strange = await create_ready(asleep, 2, buyer=STRANGER)
    ids = await create_ready(asleep, 3)
    await sandbox.fault("details", "throttle", retry_after=2)
    await start()
    assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": 3}
    assert await wait_for_statuses(owner, strange, "Submitted", "Submitting") == {"Submitted": 2}
    assert await wait_for_statuses(owner, strange, "Invalid") == {"Invalid": 2}


@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize("code", ["BadStructure", "MaximumSizeExceeded"])
async def test_document_that_breaks_a_batch_is_isolated(
    asleep: Client,
    owner: asyncpg.Connection,
    start: StartService,
    sandbox: Sandbox,
    place: int,
    code: str,
) -> None:
    ids = await create_ready(asleep, 9)
    broken = ids[place]
    number = await owner.fetchval(
        "select number from submitted_documents where document_id = $1", broken
    )
    await sandbox.fault("submit", "refuse", number=number, code=code, times=100)
    await start()
    assert await wait_for_statuses(owner, ids, "Valid", "Draft") == {"Valid": 8, "Draft": 1}
    assert (await get_invoice(asleep, broken))["status"] == "Draft"
    assert (await get_documents(asleep, broken))[0]["errors"][0]["code"] == code
    assert len(await sandbox.ledger()) == 8
    assert await owner.fetchval("select count(*) from submissions where state = 'Refused'") == 1


async def test_refusal_of_the_issuer_rejects_the_whole_batch(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    ids = await create_ready(asleep, 5)
    await sandbox.fault("submit", "foreign", times=10)
    await start()
    assert await wait_for_statuses(owner, ids, "Draft") == {"Draft": 5}
    assert await sandbox.count_calls("submit") == 1 and not await sandbox.ledger()


@pytest.mark.parametrize("kind, members", some_long(TAKEN))
async def test_lost_response_of_a_batch_is_reconciled_for_every_document(
    send_ready: SendReady, sandbox: Sandbox, kind: Any, members: Any
) -> None:
    await sandbox.fault("submit", kind, **members)
    ids = await send_ready(7)
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") == 1


@pytest.mark.parametrize("kind, members", some_long(NOT_TAKEN))
async def test_batch_that_never_arrived_is_resent_unchanged(
    send_ready: SendReady, owner: asyncpg.Connection, sandbox: Sandbox, kind: Any, members: Any
) -> None:
    await sandbox.fault("submit", kind, **members)
    ids = await send_ready(7)
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") == 2
    assert await count_states(owner) == {"Merged": 6, "Accepted": 1}


@pytest.mark.parametrize("fault", ["accept_then_drop", "truncate"])
async def test_partly_accepted_batch_with_a_lost_response_is_reconciled(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox, fault: str
) -> None:
    """Four were accepted and one was rejected; the response was lost or truncated."""
    ids = await create_ready(asleep, 4)
    late = await create_invoice(asleep, isReady=True, issueDateTime=now(hours=2))
    await sandbox.settings(age_window_seconds=3600)
    await sandbox.fault("submit", fault)
    service = await start()
    assert await wait_for_statuses(owner, [late], "Draft") == {"Draft": 1}
    assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": 4}
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") == 2
    assert (await get_documents(service, late))[0]["errors"][0]["code"] == "CF321"


@pytest.mark.parametrize(
    "parts, submits",
    some_long([([3, 2], 0), ([3], 1), ([5], 0), ([2, 1, 2], 0), ([1, 1], 1)]),
)
async def test_only_missing_documents_of_a_batch_are_resent(
    asleep: Client,
    owner: asyncpg.Connection,
    start: StartService,
    sandbox: Sandbox,
    parts: list[Any],
    submits: int,
) -> None:
    ids = await create_ready(asleep, 5)
    await sandbox.fault("submit", "slow_before", seconds=600)
    await start(PORTAL_TIMEOUT_SECONDS="1", PORTAL_SETTLE_SECONDS="3")
    await until(lambda: sandbox.count_calls("submit"))
    tin, request = await read_request(owner)
    entries = iter(json.loads(request.body)["documents"])
    for part in parts:
        sent = {"documents": list(itertools.islice(entries, part))}
        await sandbox.request(tin, "POST", "documentsubmissions/", json=sent)
    before = await sandbox.count_calls("submit")
    assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": 5}
    assert (
        await is_sent_once_each(sandbox, ids)
        and await sandbox.count_calls("submit") - before == submits
    )
    found = await owner.fetchval(
        "select count(distinct submission_uid) from submissions"
        " where state in ('Accepted', 'Finished')"
    )
    assert found == len(parts) + submits


async def test_unlisted_documents_are_found_on_the_receipt_of_a_listed_one(
    asleep: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    """One document was listed; the others are listed only after an hour."""
    ids = await create_ready(asleep, 4)
    await sandbox.settings(search_lag_seconds=3600)
    await sandbox.fault("submit", "accept_then_drop")
    await start(PORTAL_SETTLE_SECONDS="10")
    first, *_ = await until(sandbox.ledger)
    await owner.execute(
        """
            insert into portal_sightings
              (company_id, submission_id, uuid, number, submission_uid, via)
            select company_id, submission_id, $1, number, $2, 'search'
              from submitted_documents where number = $3
            """,
        first["uuid"],
        first["submissionUid"],
        first["number"],
    )
    assert await wait_for_statuses(owner, ids, "Valid") == {"Valid": 4}
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") == 1


async def test_transient_error_keeps_the_batch_together(
    send_ready: SendReady, sandbox: Sandbox
) -> None:
    await sandbox.fault("login", "error_before", times=2)
    await sandbox.fault("submit", "throttle", retry_after=1)
    await send_ready(6)
    assert await sandbox.count_calls("submit") == 2 and await sandbox.count_calls("login") == 3


# Crashes


@pytest.mark.long
async def test_kill_while_merging_loses_nothing(
    asleep: Client, owner: asyncpg.Connection, services: StartProcess, sandbox: Sandbox
) -> None:
    ids = await create_ready(asleep, 30)
    async with owner.transaction():
        await owner.execute("select from submitted_documents for update")
        service = await services()
        await wait_for_lock(owner)
        await service.kill()
    assert await count_states(owner) == {"Queued": 30} and not await sandbox.ledger()
    await service.start()
    await wait_for_statuses(owner, ids, "Valid")
    assert await is_sent_once_each(sandbox, ids) and await sandbox.count_calls("submit") <= 2


async def test_claim_on_a_merged_submission_sends_nothing(
    asleep: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    await create_ready(asleep, 3)
    context = asleep.app[SUBMISSION_CONTEXT]
    claim = await claim_next(context)
    assert await merge(context, claim) and not await merge(context, claim)
    own = await sign_in(context, claim.company_id)
    for other in await owner.fetch("select company_id, id from submissions where state = 'Merged'"):
        await send.send(own, Claim(other["company_id"], other["id"], 0))
        await send.send(own, Claim(other["company_id"], other["id"], 1))
    assert await sandbox.count_calls("submit") == 0
    await send.send(own, claim)
    assert await sandbox.count_calls("submit") == 1 and len(await sandbox.ledger()) == 3


@pytest.mark.long
async def test_repeated_kills_of_two_processes_send_no_duplicates(
    owner: asyncpg.Connection, company: Company, services: StartProcess, sandbox: Sandbox
) -> None:
    """Every acknowledged invoice becomes Valid, and the portal has one document of each."""
    await owner.execute(AUTOMATIC)
    acknowledged: list[int] = []
    stop = asyncio.Event()
    pair = [await services(), await services()]

    async def create(service: Service) -> None:
        async with service.client(company.key) as client:
            while not stop.is_set():
                try:
                    async with client.post("/api/invoices", json=invoice(isReady=True)) as response:
                        if response.status == 201:
                            acknowledged.append((await response.json())["data"]["id"])
                except aiohttp.ClientError:
                    await asyncio.sleep(0.02)

    writers = [asyncio.create_task(create(service)) for service in pair * 3]
    faults = itertools.cycle(["accept_then_drop", "drop", "truncate", "error_after"])
    for turn in range(6):
        await sandbox.fault("submit", next(faults))
        least = len(acknowledged) + 20
        await until(lambda: _reached(acknowledged, least))
        await pair[turn % 2].kill()
        await pair[turn % 2].start()
    stop.set()
    await asyncio.gather(*writers)
    await wait_for_statuses(owner, acknowledged, "Valid")
    numbers = [entry["number"] for entry in await sandbox.ledger()]
    assert len(numbers) == len(set(numbers)) >= len(acknowledged)
    assert (
        await owner.fetchval("select count(*) from submitted_documents where status = 'Submitting'")
        == 0
    )


async def _reached(acknowledged: list[int], least: int) -> bool:
    return len(acknowledged) >= least


# Fairness


@pytest.mark.long
async def test_large_backlog_of_a_company_does_not_delay_another(
    asleep: Client,
    owner: asyncpg.Connection,
    start: StartService,
    environment: dict[str, str],
    sandbox: Sandbox,
) -> None:
    """The next request is the other company's, although its document is younger."""
    other = await make_company(environment, name="Kedai Lain Sdn. Bhd.", tin_code="C20880050020")
    await owner.execute(AUTOMATIC)
    neighbour = await start(other, background=False)
    many = await create_ready(asleep, 310)
    await sandbox.settings(rate_scale=0.5)
    # The answer to the first request is delayed until the neighbour's invoice is ready.
    await sandbox.fault("submit", "slow", seconds=4)
    times = {"PORTAL_TIMEOUT_SECONDS": "30", "PORTAL_LEASE_SECONDS": "60"}
    await start(PORTAL_RATE_SCALE="0.5", **times)
    await until(sandbox.ledger)
    one = await create_ready(neighbour, 1)
    await wait_for_statuses(owner, many + one, "Valid")
    taxpayers = [entry["taxpayer"] for entry in await sandbox.ledger()]
    assert taxpayers.index("C20880050020") in (100, 200) and len(taxpayers) == 311
    assert "429" not in (await sandbox.calls())["answers"]["submit"]


@pytest.mark.parametrize("fault", [{"kind": "error_before"}, {"kind": "html", "status": 413}])
async def test_a_document_that_fails_every_request_does_not_stop_the_others(
    asleep: Client,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    start: StartService,
    fault: dict[str, Any],
) -> None:
    """The portal, or a gateway before it, gives no clear response to each request with it."""
    first, *others = await create_ready(asleep, 4)
    of_first = "select number from submitted_documents where document_id = $1"
    number = await owner.fetchval(of_first, first)
    await sandbox.fault("submit", times=10**5, number=number, **fault)
    await start()
    assert await wait_for_statuses(owner, others, "Valid") == {"Valid": 3}
    assert (await get_invoice(asleep, first))["status"] == "Submitting"
    assert len(await sandbox.ledger()) == 3

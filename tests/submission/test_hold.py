"""Sending holds after a restore: nothing is sent before the portal was read, and nothing twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import asyncpg
import pytest

from service.app import create_app
from service.commands.bootstrap import run_command
from service.commands.reconcile import attention, hold_sending, reconcile, resolve_finding
from service.config import read_config
from service.db.statements import sql
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice, get_statuses, wait_for_status
from tests.api_requests import create_record, expect, request_json, submit
from tests.conftest import Client, ClientFactory, Company, Sandbox, patience, until
from tests.harness.bodies import invoice, now
from tests.harness.companies import AUTOMATIC
from tests.harness.databases import administer, create_database, name_of, open_connection
from tests.harness.environments import variables
from tests.harness.processes import Service

QUICK = {"COMPARISON_SECONDS": "0.2"}
SETTLE_SECONDS = "60"  # longer than a test takes
#: A service that would wait for an outcome longer than any test may take.
PATIENT = {"SUBMIT_WAIT_SECONDS": "3600", "PORTAL_SETTLE_SECONDS": SETTLE_SECONDS}
WAITS = {"status": "Submitting", "code": "sending_held"}


class RunService(Protocol):
    """The type of the fixture serving."""

    def __call__(
        self, url: str, background: bool = True, **more: str
    ) -> AbstractAsyncContextManager[Client]: ...


CopyDatabase = Callable[[], Awaitable[str]]


@pytest.fixture
async def serving(aiohttp_client: ClientFactory, sandbox: Sandbox, company: Company) -> RunService:
    """Return a context manager that runs a service: `async with serving(url) as api`."""

    @asynccontextmanager
    async def run(url: str, background: bool = True, **more: str) -> AsyncIterator[Client]:
        app = create_app(
            read_config({**variables(url, sandbox.base), **QUICK, **more}), background=background
        )
        client = await aiohttp_client(app, headers={"X-API-Key": company.key})
        yield client
        await client.close()

    return run


@pytest.fixture
async def backup(cluster: str, database: str) -> AsyncIterator[CopyDatabase]:
    """Yield a function that copies the database and returns the URL of the copy."""
    async with AsyncExitStack() as stack:

        async def copy() -> str:
            return await stack.enter_async_context(create_database(cluster, name_of(database)))

        yield copy


async def count_holds(url: str) -> int:
    """Return how many companies are held."""
    async with open_connection(url) as conn:
        return await conn.fetchval("select count(*) from sending_holds where released_at is null")


async def submit_refused(api: Client, invoice_id: int) -> str:
    """Submit an invoice, which is refused. Return the error code."""
    status, body = await submit(api, invoice_id)
    assert status == 400 and (await get_invoice(api, invoice_id))["status"] == "Draft", body
    return body["errors"][0]["code"]


async def list_numbers(sandbox: Sandbox) -> list[str]:
    return sorted(entry["number"] for entry in await sandbox.ledger())


async def test_restored_database_sends_no_document_of_the_portal_again(
    serving: RunService, backup: CopyDatabase, database: str, sandbox: Sandbox
) -> None:
    """Two invoices of the backup were sent after it, and a third one was created and sent."""
    await administer(database, AUTOMATIC)
    async with serving(database, background=False) as api:
        draft = await create_invoice(api, code=500, issueDateTime=now(minutes=3))
        waiting = await create_invoice(api, code=501, isReady=True)
    old = await backup()
    async with serving(database) as api:
        await wait_for_status(api, waiting, "Valid")
        assert (await submit(api, draft))[0] == 200
        await create_valid_invoice(api, code=600, issueDateTime=now(minutes=3))
    sent = await list_numbers(sandbox)
    assert len(sent) == 3
    async with serving(old) as api:
        assert await count_holds(old) == 1
        assert await submit_refused(api, draft) in ("SendingHeld", "NumberAtPortal")
        await wait_for_status(api, waiting, "Valid")
        config = read_config(variables(old, sandbox.base))
        result = await until(
            lambda: run_command(config, attention), lambda found: len(found["findings"]) == 2
        )
        assert sorted(one["number"] for one in result["findings"]) == ["INV-00500", "INV-00600"]
        assert await submit_refused(api, draft) == "NumberAtPortal"
        assert await submit_refused(api, await create_invoice(api, code=600)) == "NumberAtPortal"
        assert await submit_refused(api, await create_invoice(api, code=601)) == "SendingHeld"
        assert len(result["holds"]) == 1
    assert await list_numbers(sandbox) == sent


async def test_hold_ends_by_itself_if_nothing_was_lost(
    serving: RunService, backup: CopyDatabase, database: str
) -> None:
    async with serving(database) as api:
        invoice_id = await create_valid_invoice(api)
        left = await create_invoice(api)
    old = await backup()
    async with serving(old) as api:
        assert await count_holds(old) == 1
        await until(lambda: count_holds(old), lambda n: n == 0)
        assert (await submit(api, left))[0] == 200
        await wait_for_status(api, left, "Valid")
        assert (await get_invoice(api, invoice_id))["status"] == "Valid"
    async with serving(old):
        assert await count_holds(old) == 0


async def test_automatic_submissions_wait_for_the_end_of_the_hold(
    serving: RunService, database: str, sandbox: Sandbox
) -> None:
    await administer(database, AUTOMATIC)
    config = read_config(variables(database, sandbox.base))
    async with serving(database, PORTAL_SETTLE_SECONDS=SETTLE_SECONDS) as api:
        assert await run_command(config, hold_sending, "Before the backup is put back.") == {
            "held": 1
        }
        assert await run_command(config, hold_sending, "Again.") == {"held": 0}
        invoice_id = await create_invoice(api)
        _status, body = await submit(api, invoice_id)
        assert (
            body["errors"][0]["code"] == "SendingHeld" and "Again." in body["errors"][0]["message"]
        )
        waiting = await create_invoice(api, isReady=True)
        at_once = await create_invoice(api, submitImmediately=True)
        assert (
            (await get_invoice(api, waiting))["status"]
            == (await get_invoice(api, at_once))["status"]
            == "Submitting"
        )
        assert await _claimed(database) == 0 and not await sandbox.ledger()
        assert (
            await until(
                lambda: run_command(config, reconcile),
                lambda found: not found["companies"][0]["held"],
            )
        )["open"] == 0
        await wait_for_status(api, waiting, "Valid")
        assert (await submit(api, invoice_id))[0] == 200


async def _claimed(url: str) -> int:
    """Claim waiting submissions, and return how many were claimed."""
    async with open_connection(url) as conn:
        waiting = (
            "select count(*) from submissions "
            "where state = 'Queued' and not_before < now() and lease_until is null"
        )
        await until(lambda: conn.fetchval(waiting))
        return await conn.fetchval("select count(*) from claim_submissions('1s', 9)")


async def _release(url: str, sandbox: Sandbox) -> None:
    """Compare with the portal until the hold ends."""
    config = read_config(variables(url, sandbox.base))
    await until(
        lambda: run_command(config, reconcile), lambda found: not found["companies"][0]["held"]
    )


async def _check_sent_once(api: Client | aiohttp.ClientSession, invoice_id: int) -> None:
    """Check that an invoice becomes Valid by the only submitted document that it has."""
    await wait_for_status(api, invoice_id, "Valid")
    assert await get_statuses(api, invoice_id) == ["Valid"]


async def test_submit_immediately_is_answered_at_once_during_a_hold(
    serving: RunService, database: str, sandbox: Sandbox
) -> None:
    await administer(database, AUTOMATIC)
    async with serving(database, True, **PATIENT) as api:
        draft = await create_invoice(api)
        await run_command(
            read_config(variables(database, sandbox.base)), hold_sending, "A restore."
        )
        created = await create_record(api, "/api/invoices", **invoice(submitImmediately=True))
        ready = await create_record(api, "/api/invoices", **invoice(isReady=True))
        path = f"/api/invoices/{draft}"
        _, changed = await request_json(api, "PUT", path, json={"submitImmediately": True})
        for data in (created, ready, changed["data"]):
            assert data == {"id": data["id"], **WAITS}
        assert "when the hold ends" in changed["message"]
        assert not await sandbox.ledger()
        await _release(database, sandbox)
        for data in (created, ready, changed["data"]):
            await _check_sent_once(api, data["id"])
    assert len(await sandbox.ledger()) == 3


async def test_a_submit_joins_without_waiting_during_a_hold(
    serving: RunService, database: str, sandbox: Sandbox
) -> None:
    async with serving(database, True, **PATIENT) as api:
        await run_command(
            read_config(variables(database, sandbox.base)), hold_sending, "A restore."
        )
        invoice_id = (await create_record(api, "/api/invoices", **invoice(submitImmediately=True)))[
            "id"
        ]
        async with patience():
            answers = await asyncio.gather(*[submit(api, invoice_id) for _ in range(3)])
        for status, body in answers:
            (error,) = body["errors"]
            assert (status, body["code"], body["retryable"]) == (400, "sending_held", True)
            assert error["code"] == "SendingHeld" and "when the hold ends" in error["message"]
        await _release(database, sandbox)
        await _check_sent_once(api, invoice_id)
        assert (await submit(api, invoice_id))[0] == 200
    assert len(await sandbox.ledger()) == 1


async def test_a_repeated_create_during_a_hold_is_replayed(
    serving: RunService, database: str, sandbox: Sandbox
) -> None:
    body, headers = invoice(submitImmediately=True), {"Idempotency-Key": "4711"}
    async with serving(database, True, **PATIENT) as api:
        await run_command(
            read_config(variables(database, sandbox.base)), hold_sending, "A restore."
        )
        answers: list[Any] = []
        for _ in range(2):
            sent = {"json": body, "headers": headers}
            answers.append(await request_json(api, "POST", "/api/invoices", **sent))
        assert answers[0] == answers[1] and answers[0][1]["data"]["code"] == "sending_held"
        await _release(database, sandbox)
        await _check_sent_once(api, answers[0][1]["data"]["id"])
    assert len(await sandbox.ledger()) == 1


async def test_a_hold_that_begins_before_the_send_is_reported(
    serving: RunService, database: str, sandbox: Sandbox
) -> None:
    async with serving(database, True, **{**PATIENT, "PORTAL_LEASE_SECONDS": "2"}) as api:
        await sandbox.fault("login", "slow", seconds=1)
        answer = asyncio.create_task(
            create_record(api, "/api/invoices", **invoice(submitImmediately=True))
        )
        await until(sandbox.calls, lambda calls: calls["calls"].get("login"))
        await run_command(
            read_config(variables(database, sandbox.base)), hold_sending, "A restore."
        )
        data = await answer
        assert data == {"id": data["id"], **WAITS} and not await sandbox.ledger()
        await _release(database, sandbox)
        await _check_sent_once(api, data["id"])
    assert len(await sandbox.ledger()) == 1


async def test_a_process_killed_during_a_hold_loses_no_submission(
    environment: dict[str, str], company: Company, sandbox: Sandbox, tmp_path: Path
) -> None:
    async with Service({**environment, **PATIENT}, tmp_path / "service.log") as service:
        headers = {"X-API-Key": company.key}
        async with aiohttp.ClientSession(service.base, headers=headers) as api:
            await run_command(read_config(environment), hold_sending, "A restore.")
            data = await create_record(api, "/api/invoices", **invoice(submitImmediately=True))
            assert data == {"id": data["id"], **WAITS}
            await service.kill()
            await service.start()
            assert (await get_invoice(api, data["id"]))["status"] == "Submitting"
            await _release(environment["DATABASE_URL"], sandbox)
            await _check_sent_once(api, data["id"])
    assert len(await sandbox.ledger()) == 1


async def test_queued_number_known_to_the_portal_needs_manual_review(
    serving: RunService, backup: CopyDatabase, database: str, sandbox: Sandbox
) -> None:
    old = await backup()
    async with serving(database) as api:
        await create_valid_invoice(api, code=700, issueDateTime=now(minutes=3))
    await administer(old, "update database_state set identity = 'another'")
    await administer(old, AUTOMATIC)
    config = read_config(variables(old, sandbox.base))
    async with serving(old, background=False) as api:
        invoice_id = await create_invoice(api, code=700, isReady=True)
        assert (await get_invoice(api, invoice_id))["status"] == "Submitting"
    await until(lambda: run_command(config, reconcile), lambda found: found["open"])
    result = await run_command(config, attention)
    (stopped,), (orphan,) = result["submissions"], result["findings"]
    assert (
        stopped["last_error"]["code"] == "NumberAtPortal"
        and stopped["documents"][0]["number"] == orphan["number"]
    )
    assert orphan["uuid"] == (await sandbox.ledger())[0]["uuid"] != stopped["documents"][0]["uuid"]
    await run_command(config, resolve_finding, [orphan["id"]], "Sent before the restore.")
    compared = await until(
        lambda: run_command(config, reconcile), lambda found: not found["companies"][0]["held"]
    )
    assert compared["open"] == 0
    assert len(await sandbox.ledger()) == 1


@pytest.mark.long
async def test_nothing_is_sent_after_a_failover_to_another_database(
    serving: RunService, database: str, sandbox: Sandbox
) -> None:
    """A failover to another database happens behind a running process."""
    async with serving(database, background=False) as api:
        invoice_id = await create_invoice(api)
        await administer(database, "update database_state set identity = 'the one that is gone'")
        status, _body = await submit(api, invoice_id)
        assert status == 400 and not await sandbox.ledger()
    async with serving(database) as api:
        await wait_for_status(api, invoice_id, "Valid")
        assert len(await sandbox.ledger()) == 1
        assert len(await get_documents(api, invoice_id)) == 1
        await expect(api, 200, "GET", "/readyz")


async def test_an_absence_confirmed_before_a_hold_does_not_count_after_it(
    serving: RunService, database: str, sandbox: Sandbox
) -> None:
    """Lost transactions may have sent the document again, until the hold began."""
    await sandbox.fault("submit", "accept_then_drop")
    config = read_config(variables(database, sandbox.base))
    async with serving(database, background=False) as api:
        await submit(api, await create_invoice(api))
    async with open_connection(database) as conn:
        await conn.execute(
            "update submissions set absence_confirmations = 1, lease_until = now() + interval '1h',"
            " absence_confirmed_at = now() - interval '1h', last_sent_at = now() - interval '2h'"
        )
        before = await conn.fetchrow("select * from submissions")
        await run_command(config, hold_sending, "A test.")
        after = await conn.fetchrow("select * from submissions")
    assert before["state"] == after["state"] == "Uncertain"
    assert (after["absence_confirmations"], after["absence_confirmed_at"]) == (0, None)
    assert after["last_sent_at"] > before["absence_confirmed_at"]
    assert after["lease_until"] is None and after["fence"] > before["fence"]


@pytest.mark.parametrize("state", ["Queued", "Uncertain"])
async def test_nothing_is_claimed_in_another_database_than_the_noted_one(
    serving: RunService, database: str, sandbox: Sandbox, company: Company, state: str
) -> None:
    """No process has noticed a failover yet, which may have lost that the submission was sent."""
    async with serving(database, background=False) as api:
        await sandbox.fault("submit", "accept_then_drop")
        await submit(api, await create_invoice(api))
    async with open_connection(database) as conn:
        await conn.execute("select set_config('app.company_id', $1, false)", str(company.id))
        await conn.execute(
            "update submissions set state = $1, not_before = now() - interval '1h',"
            " lease_until = null",
            state,
        )
        lease = {"company_id": company.id, "lease": timedelta(minutes=1)}
        (submission_id,) = [row["id"] for row in await conn.fetch("select id from submissions")]
        claims = [
            lambda: conn.fetch("select * from claim_submissions('1s', 9)"),
            lambda: sql.submission_claim_batch(conn, ids=[submission_id], **lease),
        ]
        await conn.execute("update database_state set identity = 'another'")
        assert [await claim() for claim in claims] == [[], []]
        await conn.execute("update database_state set identity = database_identity()")
        assert len(await claims[state == "Uncertain"]()) == 1


async def test_an_unknown_database_is_held_if_it_has_sends(
    owner: asyncpg.Connection, api: Client
) -> None:
    """After a restore of the data alone, the row of the migrations has no identity."""
    for create, holds in ((create_invoice, 0), (create_valid_invoice, 1)):
        await create(api)
        await owner.execute("update database_state set identity = null")
        await owner.execute("select record_database_identity()")
        assert await owner.fetchval("select identity is not null from database_state")
        assert await owner.fetchval("select count(*) from sending_holds") == holds

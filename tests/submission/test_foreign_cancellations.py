"""Cancellations at the portal by others are reported once, by polls and by comparisons."""

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.reconcile import attention, reconcile
from service.config import Config
from tests.api_invoices import create_valid_invoice
from tests.api_reads import get_documents, wait_until_status
from tests.api_requests import cancel_latest
from tests.conftest import Client, Sandbox, StartService, until

ELSEWHERE = "On the portal's page"
#: Intervals with which polls find every change soon, and unclear cancellations are only polled.
POLLS = {
    "PORTAL_RECHECK_SECONDS": "0.3",
    "PORTAL_RETRY_SECONDS": "60",
    "PORTAL_SETTLE_SECONDS": "600",
}
#: Intervals with which polls find no change within a test.
NO_POLLS = {**POLLS, "PORTAL_RECHECK_SECONDS": "3600"}


async def cancel_elsewhere(api: Client, sandbox: Sandbox, invoice_id: int) -> str:
    """Cancel the document of an invoice at the portal, and return its uuid."""
    (document,) = await get_documents(api, invoice_id)
    await sandbox.cancel(document["uuid"], ELSEWHERE)
    return document["uuid"]


async def open_findings(config: Config) -> list[tuple[str, str, str]]:
    """Return (kind, uuid, reason) of the open findings, without a comparison."""
    return [
        (one["kind"], one["uuid"], one["reason"])
        for one in (await run_command(config, attention))["findings"]
    ]


async def end_without_effect(
    api: Client, sandbox: Sandbox, invoice_id: int, kind: str, members: dict[str, Any]
) -> None:
    """Request a cancellation that the portal does not carry out."""
    await sandbox.fault("state", kind, **members)
    assert (await cancel_latest(api, invoice_id))[0] == 400
    (document,) = await get_documents(api, invoice_id)
    assert (document["status"], document["cancellation_requested_at"]) == ("Valid", None)


#: Faults with which a cancellation certainly has no effect: it is rejected or not sent.
WITHOUT_EFFECT = [("refuse", {"code": "OperationPeriodOver"}), ("throttle", {"retry_after": 1})]


async def test_poll_reports_a_foreign_cancellation_after_30_hours(
    start: StartService, config: Config, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """Comparisons list the documents of the last day only."""
    api = await start(**POLLS)
    invoice_id = await create_valid_invoice(api)
    await owner.execute(
        """
            update submitted_documents
               set submitted_at = submitted_at - interval '30 hours',
                   validated_at = validated_at - interval '30 hours'
            """
    )
    uuid = await cancel_elsewhere(api, sandbox, invoice_id)
    await wait_until_status(api, invoice_id, "Cancelled")
    assert await open_findings(config) == [("cancelled_elsewhere", uuid, ELSEWHERE)]
    row: Any = await owner.fetchrow(
        """
            select f.tin = s.tin, f.number = d.number, f.document_type = d.document_type,
                   f.submitted_document_id = d.id, f.received_at = d.submitted_at,
                   f.cancelled_at = d.cancelled_at
              from findings f, submitted_documents d, submissions s
            """
    )
    assert all(row), row


#: client and invoice id -> None
Find = Callable[[Client, int], Awaitable[None]]


@pytest.fixture(params=["poll", "comparison"])
def find(
    request: pytest.FixtureRequest, start: StartService, config: Config, owner: asyncpg.Connection
) -> Find:
    """Return a function that makes a poll or a comparison find the cancellation of an invoice."""

    async def compare(api: Client, invoice_id: int) -> None:
        await run_command(config, reconcile)

    async def poll(api: Client, invoice_id: int) -> None:
        await owner.execute("update submissions set not_before = now()")
        await start(**POLLS)
        await wait_until_status(api, invoice_id, "Cancelled")

    return poll if request.param == "poll" else compare


@pytest.mark.parametrize("kind, members", WITHOUT_EFFECT)
async def test_foreign_cancellation_after_a_failed_one_is_reported(
    start: StartService,
    config: Config,
    sandbox: Sandbox,
    find: Find,
    kind: str,
    members: dict[str, Any],
) -> None:
    api = await start(**NO_POLLS)
    invoice_id = await create_valid_invoice(api)
    await end_without_effect(api, sandbox, invoice_id, kind, members)
    uuid = await cancel_elsewhere(api, sandbox, invoice_id)
    await find(api, invoice_id)
    assert await open_findings(config) == [("cancelled_elsewhere", uuid, ELSEWHERE)]


async def test_foreign_cancellation_is_reported_once(
    start: StartService, config: Config, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """A comparison neither repeats nor resolves the findings of polls, and vice versa."""
    idle = await start(**NO_POLLS)
    compared, polled = await create_valid_invoice(idle), await create_valid_invoice(idle)
    for invoice_id in (compared, polled):
        await end_without_effect(idle, sandbox, invoice_id, *WITHOUT_EFFECT[0])
    first = await cancel_elsewhere(idle, sandbox, compared)
    await run_command(config, reconcile)
    second = await cancel_elsewhere(idle, sandbox, polled)
    await owner.execute("update submissions set state = 'Accepted', not_before = now()")
    api = await start(**POLLS)
    for invoice_id in (compared, polled):
        await wait_until_status(api, invoice_id, "Cancelled")
    for _ in range(2):
        await run_command(config, reconcile)
        assert {uuid for _, uuid, _ in await open_findings(config)} == {first, second}
    assert await owner.fetchval("select count(*) from findings") == 2


async def assert_not_reported(config: Config, owner: asyncpg.Connection) -> None:
    """Check that neither polls nor comparisons report a finding."""
    assert await owner.fetchval("select count(*) from findings") == 0
    (company,) = (await run_command(config, reconcile))["companies"]
    assert company["listed"] == 1 and company["findings"] == []


async def cancel_unclearly(api: Client, sandbox: Sandbox) -> int:
    """Cancel a new Valid invoice without a response, and return its id."""
    invoice_id = await create_valid_invoice(api)
    await sandbox.fault("state", "drop", times=2)  # aiohttp repeats a PUT once
    assert (await cancel_latest(api, invoice_id))[1]["code"] == "outcome_unknown"
    return invoice_id


async def test_unclear_own_cancellation_is_not_reported(
    start: StartService, config: Config, sandbox: Sandbox, owner: asyncpg.Connection, find: Find
) -> None:
    """The portal processes the request late, and a poll or a comparison finds it."""
    api = await start(**NO_POLLS)
    invoice_id = await cancel_unclearly(api, sandbox)
    await cancel_elsewhere(api, sandbox, invoice_id)
    await find(api, invoice_id)
    await assert_not_reported(config, owner)


@pytest.mark.long
async def test_own_cancellation_after_the_settling_time_is_not_reported(
    start: StartService, config: Config, sandbox: Sandbox, owner: asyncpg.Connection, find: Find
) -> None:
    """The portal processes the request after the service has stopped waiting for it."""
    api = await start(PORTAL_RECHECK_SECONDS="3600", PORTAL_SETTLE_SECONDS="3")
    invoice_id = await cancel_unclearly(api, sandbox)
    await until(
        lambda: get_documents(api, invoice_id),
        lambda found: found[0]["cancellation_requested_at"] is None,
    )
    await cancel_elsewhere(api, sandbox, invoice_id)
    await find(api, invoice_id)
    await assert_not_reported(config, owner)

"""Comparisons with the portal report orphans, duplicates and missing documents."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.reconcile import (
    attention,
    hold_sending,
    reconcile,
    resolve_finding,
    resolve_submission,
)
from service.config import Config
from service.errors import OperatorError
from service.portal.client import Portal, portal_session
from service.submission.following import comparison
from tests.api_invoices import (
    create_invoice,
    create_lost_invoice,
    create_submitted_invoice,
    create_valid_invoice,
)
from tests.api_reads import (
    get_documents,
    get_invoice,
    read_request,
    wait_for_status,
    wait_until_status,
)
from tests.api_requests import cancel_latest, submit
from tests.conftest import Client, Company, Sandbox, StartService, make_company, until
from tests.harness.bodies import now
from tests.harness.companies import NEIGHBOUR


async def compare(config: Config, **options: Any) -> list[dict[str, Any]]:
    result = await run_command(config, reconcile, **options)
    return [one for company in result["companies"] for one in company["findings"]]


async def wait_for_finding(config: Config, kind: str) -> dict[str, Any]:
    """Wait for the only finding and return it. It must be of a kind."""
    (one,) = await until(lambda: compare(config), bool)
    assert one["kind"] == kind, one
    return one


async def test_a_comparison_without_differences_finds_nothing(
    api: Client, config: Config, company: Company
) -> None:
    ids = [await create_valid_invoice(api) for _ in range(3)]
    result = await run_command(config, reconcile)
    assert result["open"] == 0 and result["companies"][0]["listed"] == len(ids)
    other = await run_command(config, reconcile, company_id=company.id, days=30)
    assert other["open"] == 0 and other["companies"][0]["days"] == 30


async def test_an_orphan_prevents_sending_its_number(
    api: Client, config: Config, other_installation: Client, sandbox: Sandbox
) -> None:
    await create_valid_invoice(other_installation, code=77, issueDateTime=now(minutes=5))
    orphan = await wait_for_finding(config, "orphan")
    (entry,) = await sandbox.ledger()
    assert (orphan["number"], orphan["uuid"]) == ("INV-00077", entry["uuid"])
    invoice_id = await create_invoice(api, code=77)
    status, body = await submit(api, invoice_id)
    assert (
        status == 400
        and body["errors"][0]["code"] == "NumberAtPortal"
        and entry["uuid"] in body["errors"][0]["message"]
    )
    assert (await get_invoice(api, invoice_id))["status"] == "Draft" and len(
        await sandbox.ledger()
    ) == 1
    await create_submitted_invoice(api, code=78)
    ids = [orphan["id"]] * 2
    for resolved in ([orphan["id"]], []):
        found = await run_command(config, resolve_finding, ids, "Sent by our former software.")
        assert found["resolved"] == resolved
    assert (await submit(api, invoice_id))[0] == 200
    assert (await run_command(config, reconcile))["open"] == 0


async def test_a_document_released_too_early_is_found_and_adopted(
    start: StartService, config: Config, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_SETTLE_SECONDS="0.1", PORTAL_CONFIRMATION_GAP_SECONDS="0.05")
    await sandbox.settings(search_lag_seconds=3600)
    invoice_id = await create_lost_invoice(api, sandbox)
    await wait_for_status(api, invoice_id, "Draft")
    await sandbox.settings(search_lag_seconds=0)
    await wait_for_finding(config, "orphan")
    await until(lambda: submit(api, invoice_id), lambda answer: answer[0] == 200)
    await wait_for_status(api, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1 and await compare(config) == []


async def test_an_orphan_cancelled_at_the_portal_is_resolved_by_a_comparison(
    config: Config,
    other_installation: Client,
    company: Company,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    await create_valid_invoice(other_installation)
    orphan = await wait_for_finding(config, "orphan")
    await sandbox.cancel(orphan["uuid"], "Sent twice")
    assert await compare(config) == []
    assert await owner.fetchval("select resolved_by from findings") == "comparison"


async def test_an_orphan_without_a_receipt_time_is_resolved_by_a_comparison(
    api: Client, config: Config, sandbox: Sandbox
) -> None:
    """It was an unreadable row during a hold, which ends when the row can be read."""
    await create_valid_invoice(api)
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"], uuid=5)
    await run_command(config, hold_sending, "A test.")
    orphan = await wait_for_finding(config, "orphan")
    assert orphan["received_at"] is None
    await sandbox.show_oddly(entry["number"])
    assert await compare(config) == []
    await until(
        lambda: run_command(config, reconcile), lambda found: not found["companies"][0]["held"]
    )


async def send_twice(
    api: Client, config: Config, owner: asyncpg.Connection, sandbox: Sandbox
) -> tuple[int, str]:
    """Send the bytes of an invoice twice. Return its id, and the uuid of the second document."""
    await sandbox.settings(payload_detection=False, duplicate_detection=False)
    invoice_id = await create_valid_invoice(api)
    tin, request = await read_request(owner)
    async with (
        portal_session() as session,
        Portal(session, config).open_submission(tin, request.body) as send,
    ):
        answer = await send(lambda: None)
    (uuid,) = answer.accepted.values()
    return invoice_id, uuid


async def test_a_duplicate_finding_names_the_later_document(
    api: Client, config: Config, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    invoice_id, again = await send_twice(api, config, owner, sandbox)
    second = await wait_for_finding(config, "duplicate")
    ours = (await get_documents(api, invoice_id))[0]["uuid"]
    assert (second["other_uuid"], second["uuid"]) == (ours, again)
    assert second["cancellable_until"] > second["received_at"]
    assert await owner.fetchval("select count(*) from portal_sightings") == 2


async def test_a_live_document_is_an_orphan_if_the_recorded_one_is_cancelled(
    api: Client, config: Config, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """A finding that asks to cancel the cancelled document would leave the live one unnoticed."""
    invoice_id, again = await send_twice(api, config, owner, sandbox)
    assert (await cancel_latest(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Cancelled")
    orphan = await wait_for_finding(config, "orphan")
    assert orphan["uuid"] == again
    assert [found["kind"] for found in await compare(config)] == ["orphan"]


async def cancel_in_vain(api: Client, sandbox: Sandbox) -> tuple[int, str]:
    """Cancel an invoice that the portal still shows as Valid. Return its id and uuid."""
    invoice_id = await create_valid_invoice(api)
    (entry,) = await sandbox.ledger()
    assert (await cancel_latest(api, invoice_id))[0] == 200
    await wait_for_status(api, invoice_id, "Cancelled")
    await sandbox.show_oddly(entry["number"], status="Valid", cancelDateTime=None)
    return invoice_id, entry["uuid"]


async def test_a_document_that_is_valid_only_at_the_portal_is_an_orphan(
    api: Client, config: Config, sandbox: Sandbox
) -> None:
    invoice_id, uuid = await cancel_in_vain(api, sandbox)
    orphan = await wait_for_finding(config, "orphan")
    assert (orphan["uuid"], orphan["other_uuid"]) == (uuid, None)
    assert (await submit(api, invoice_id, resubmit=True))[0] == 400
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"])
    assert await compare(config) == []


async def test_a_valid_document_with_a_later_live_submission_is_a_duplicate(
    api: Client, config: Config, sandbox: Sandbox
) -> None:
    """The finding names the document that is closed here, because it is the one to cancel."""
    invoice_id, uuid = await cancel_in_vain(api, sandbox)
    assert (await submit(api, invoice_id, resubmit=True))[0] == 200
    await wait_for_status(api, invoice_id, "Valid")
    duplicate = await wait_for_finding(config, "duplicate")
    latest = (await get_documents(api, invoice_id))[0]["uuid"]
    assert (duplicate["uuid"], duplicate["other_uuid"]) == (uuid, latest)


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_listing_that_lags_behind_a_cancellation_is_no_finding(
    api: Client, config: Config, sandbox: Sandbox, owner: asyncpg.Connection, is_held: bool
) -> None:
    await cancel_in_vain(api, sandbox)
    if is_held:
        await run_command(config, hold_sending, "A test.")
    patient = replace(config, portal_settle=timedelta(minutes=6))
    assert await compare(patient) == []
    await owner.execute("update submitted_documents set updated_at = now() - interval '7 minutes'")
    assert [found["kind"] for found in await compare(patient)] == ["orphan"]


async def test_a_document_that_is_not_listed_is_missing_until_it_is(
    api: Client, config: Config, sandbox: Sandbox
) -> None:
    await sandbox.settings(search_lag_seconds=3600)
    invoice_id = await create_valid_invoice(api)
    gone = await wait_for_finding(config, "missing")
    assert gone["uuid"] == (await get_documents(api, invoice_id))[0]["uuid"]
    await sandbox.settings(search_lag_seconds=0)
    assert await compare(config) == []


async def test_a_submission_in_progress_is_not_a_finding(
    api: Client, config: Config, sandbox: Sandbox
) -> None:
    await sandbox.settings(search_lag_seconds=3600)
    invoice_id = await create_lost_invoice(api, sandbox)
    await sandbox.settings(search_lag_seconds=0)
    assert await compare(config) == []
    await wait_for_status(api, invoice_id, "Valid")
    assert await compare(config) == []


async def test_the_background_work_compares_periodically(
    start: StartService, owner: asyncpg.Connection, other_installation: Client
) -> None:
    api = await start(COMPARISON_SECONDS="0.2")
    await create_valid_invoice(other_installation)
    await create_valid_invoice(api)
    kind = await until(lambda: owner.fetchval("select kind from findings"))
    assert kind == "orphan"


async def test_one_process_compares_a_company_and_another_after_a_crash(
    idle: Client, owner: asyncpg.Connection
) -> None:
    await create_submitted_invoice(idle)
    claim = (
        "select fence from claim_comparisons('regular', 1, interval '1 hour', interval '0',"
        " interval '0', interval '74 hours', interval '30 days')"
    )
    assert [await owner.fetchval(claim) for _ in range(2)] == [1, None]
    await owner.execute("update comparisons set lease_until = now() - interval '1 second'")
    assert [await owner.fetchval(claim) for _ in range(2)] == [2, None]


async def test_an_unknown_outcome_does_not_wait_for_a_long_comparison(
    monkeypatch: pytest.MonkeyPatch,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    start: StartService,
) -> None:
    """It is found while the portal answers the first page of the listing."""
    monkeypatch.setattr(comparison, "LOOK_UP_SECONDS", 0.1)
    await create_submitted_invoice(await start(background=False))
    await sandbox.fault("search", "slow", seconds=600)
    api = await start(COMPARISON_SECONDS="0.2", PORTAL_TIMEOUT_SECONDS="600")
    await until(sandbox.waiting, lambda faults: not faults)
    await wait_for_status(api, await create_lost_invoice(api, sandbox), "Valid")
    assert await owner.fetchval("select is_complete and lease_until > now() from comparisons")


async def test_an_unreachable_portal_is_reported_by_the_comparison(
    config: Config, company: Company, sandbox: Sandbox
) -> None:
    await sandbox.fault("search", "error_before", status=503, times=5)
    result = await run_command(config, reconcile)
    assert result["failed"] == 1 and "error" in result["companies"][0]
    with pytest.raises(OperatorError):
        await run_command(config, reconcile, days=31)


async def test_a_document_of_a_submission_in_manual_review_is_adoptable(
    idle: Client,
    start: StartService,
    config: Config,
    company: Company,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    """It is not an orphan. The command in the finding adopts it."""
    invoice_id = await create_lost_invoice(idle, sandbox, code=77)
    await owner.execute("update submissions set state = 'NeedsPerson', lease_until = null")
    submission: Any = await owner.fetchval("select id from submissions")
    (entry,) = await sandbox.ledger()
    adoptable = await wait_for_finding(config, "adoptable")
    assert adoptable["uuid"] == entry["uuid"] and adoptable["cancellable_until"] is None
    shown = await run_command(config, attention)
    command = (
        f"python run.py resolve-submission {submission} --company {company.id} "
        f"--received {entry['uuid']}"
    )
    assert shown["submissions"][0]["adopt_with"] == shown["findings"][0]["adopt_with"] == command
    assert (
        "cancellable_until" not in shown["findings"][0]
        and "adopts it" in shown["findings"][0]["what"]
    )
    await run_command(
        config,
        resolve_submission,
        company_id=company.id,
        submission_id=submission,
        uuids=[entry["uuid"]],
        note="As proposed.",
    )
    assert (await run_command(config, attention))["findings"] == []
    await start()
    await wait_for_status(idle, invoice_id, "Valid")
    assert await compare(config) == []


async def test_an_adoptable_document_does_not_prolong_a_sending_hold(
    idle: Client, config: Config, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await create_lost_invoice(idle, sandbox)
    await owner.execute("update submissions set state = 'NeedsPerson', lease_until = null")
    await run_command(config, hold_sending, "A test.")
    result = await until(
        lambda: run_command(config, reconcile), lambda result: not result["companies"][0]["held"]
    )
    assert [one["kind"] for one in result["companies"][0]["findings"]] == ["adoptable"]


async def test_a_foreign_cancellation_is_found_once(
    start: StartService, config: Config, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    api = await start()
    invoice_id = await create_valid_invoice(api)
    uuid = (await get_documents(api, invoice_id))[0]["uuid"]
    await sandbox.cancel(uuid, "On the portal's page")
    finding = await wait_for_finding(config, "cancelled_elsewhere")
    assert (finding["uuid"], finding["reason"]) == (uuid, "On the portal's page") and finding[
        "cancelled_at"
    ]
    assert finding["cancellable_until"] is None
    (shown,) = (await run_command(config, attention))["findings"]
    assert (
        shown["reason"] == "On the portal's page" and "no request of this service" in shown["what"]
    )
    assert len(await compare(config)) == 1
    await owner.execute("update submissions set not_before = now()")
    other = await start()  # compares in the background
    await wait_until_status(other, invoice_id, "Cancelled")
    assert len(await compare(config)) == 1
    await owner.execute("update findings set found_at = found_at - interval '25 hours'")
    assert await compare(config) == [] == await compare(config)


async def test_a_cancellation_by_the_company_is_not_a_finding(api: Client, config: Config) -> None:
    invoice_id = await create_valid_invoice(api)
    assert (await cancel_latest(api, invoice_id))[0] == 200
    assert await compare(config) == []


async def test_a_uuid_recorded_for_another_company_is_found(
    start: StartService,
    environment: dict[str, str],
    company: Company,
    config: Config,
    sandbox: Sandbox,
) -> None:
    """The receipt of one company has the uuid of another company's document."""
    api = await start()
    invoice_id = await create_valid_invoice(api)
    uuid = (await get_documents(api, invoice_id))[0]["uuid"]
    other = await make_company(environment, **NEIGHBOUR)
    await sandbox.fault("submit", "other_uuid", uuid=uuid)
    stranger = await start(other)
    assert (await submit(stranger, await create_invoice(stranger)))[0] == 400
    result = await until(
        lambda: run_command(config, reconcile, company_id=company.id), lambda result: result["open"]
    )
    (finding,) = result["companies"][0]["findings"]
    assert (finding["kind"], finding["uuid"]) == ("shared_uuid", uuid) and str(
        other.id
    ) not in finding.values()
    (shown,) = [
        one
        for one in (await run_command(config, attention))["findings"]
        if one["kind"] == "shared_uuid"
    ]
    assert shown["companies"] == [other.id] and "cancellable_until" not in shown
    await create_submitted_invoice(api)


async def test_an_unknown_document_of_a_shared_tin_is_not_an_orphan(
    idle: Client,
    start: StartService,
    neighbour: Company,
    config: Config,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    """Two companies share a TIN. A document with a lost response belongs to one of them."""
    await create_lost_invoice(idle, sandbox)
    theirs = await start(neighbour, background=False)
    await create_submitted_invoice(theirs)
    await until(
        lambda: run_command(config, reconcile, company_id=neighbour.id),
        lambda result: result["companies"][0]["listed"] == 2,
    )
    await wait_until_settled(owner)
    assert (await run_command(config, reconcile, company_id=neighbour.id))["open"] == 0


async def wait_until_settled(owner: asyncpg.Connection) -> None:
    """Wait until the comparison includes everything that was sent."""
    await until(
        lambda: owner.fetchval(
            "select max(last_sent_at) + interval '1 second' < clock_timestamp() from submissions"
        )
    )

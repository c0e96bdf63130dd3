"""Changes of Valid documents: comparisons take them over, and end the polls of each document."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.reconcile import reconcile
from service.config import Config
from service.db.statements import sql
from service.submission.machine.comparison_rules import (
    CHANGING,
    FURTHEST,
    BasisRow,
    first_moment,
)
from tests.api_invoices import create_submitted_invoice, create_valid_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_status
from tests.api_requests import request_json
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.harness.bodies import buyer

STATES = "select array_agg(distinct state) from submissions"
NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


async def test_a_comparison_ends_the_polls_of_the_valid_documents_that_it_lists(
    start: StartService,
    company: Company,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
    config: Config,
) -> None:
    api = await start(PORTAL_RECHECK_SECONDS="3600")
    for _ in range(3):
        await create_valid_invoice(api)
    await until(
        lambda: owner.fetchval(
            "select bool_and(has_outcome and lease_until is null) from submissions"
        )
    )
    assert await owner.fetchval(STATES) == ["Accepted"]
    await sandbox.settings(search_lag_seconds=3600)
    await run_command(config, reconcile)
    assert await owner.fetchval(STATES) == ["Accepted"]  # not listed
    ids = [row["id"] for row in await owner.fetch("select id from submissions")]
    assert not await sql.submissions_finish(owner, company_id=company.id, ids=ids, listed=[])
    await sandbox.settings(search_lag_seconds=0)
    late = await owner.fetchval(
        "update submitted_documents set validated_at = submitted_at + interval '2 hours'"
        " where id = (select min(id) from submitted_documents) returning submission_id"
    )
    await run_command(config, reconcile)
    found = await owner.fetch("select id, state from submissions order by id")
    assert [(row["state"] == "Accepted") == (row["id"] == late) for row in found] == [True] * 3
    polled = await sandbox.count_calls("submission")
    await owner.execute("update submissions set not_before = now(); notify submission_due")
    await until(lambda: sandbox.count_calls("submission"), lambda n: n > polled)
    assert await sandbox.count_calls("submission") == polled + 1


async def test_a_comparison_takes_over_rejections_and_cancellations(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection, config: Config
) -> None:
    """Nothing is polled any more."""
    api = await start()
    invoice_id = await create_valid_invoice(api)
    await until(lambda: owner.fetchval("select bool_and(lease_until is null) from submissions"))
    await run_command(config, reconcile)
    assert await owner.fetchval(STATES) == ["Finished"]
    polled = await sandbox.count_calls("submission")
    (document,) = await get_documents(api, invoice_id)
    await sandbox.reject(document["uuid"], "Never ordered")
    await run_command(config, reconcile)
    (shown,) = await get_documents(api, invoice_id)
    assert shown["status"] == "Valid" and shown["rejection_requested_at"]
    assert shown["rejection_reason"] == "Never ordered"
    await sandbox.cancel(document["uuid"], "Agreed by telephone")
    result = await run_command(config, reconcile)
    (shown,) = await get_documents(api, invoice_id)
    assert (shown["status"], shown["cancel_reason"]) == ("Cancelled", "Agreed by telephone")
    assert shown["rejection_reason"] == "Never ordered" and shown["cancelled_at"]
    assert (await get_invoice(api, invoice_id))["status"] == "Cancelled"
    # Events wait for older transactions of the whole cluster.
    await until(
        lambda: request_json(api, "GET", "/api/events"),
        lambda answer: (
            [event["type"] for event in answer[1]["data"]][-2:]
            == ["invoice.valid", "invoice.cancelled"]
        ),
    )
    assert [one["kind"] for one in result["companies"][0]["findings"]] == ["cancelled_elsewhere"]
    assert await sandbox.count_calls("submission") == polled


async def test_a_comparison_shows_the_outcome_of_a_document_that_is_not_polled(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox, config: Config
) -> None:
    """An Invalid document is left to its poll, because the listing lacks the reasons."""
    api = await start(PORTAL_POLL_SECONDS="3600")
    valid = await create_submitted_invoice(api)
    await sandbox.settings(strict_register=True)
    registration = {"type": "BRN", "number": "202301000001"}
    stranger = buyer(type="LOCAL_COMPANY", tin="C25000000010", registration=registration)
    invalid = await create_submitted_invoice(api, buyer=stranger)

    async def compare() -> str:
        await run_command(config, reconcile)
        found: str = (await get_invoice(api, valid))["status"]
        return found

    await until(compare, lambda status: status == "Valid")
    assert (await get_documents(api, valid))[0]["validation_link"]
    assert (await get_invoice(api, invalid))["status"] == "Submitted"
    await owner.execute("update submissions set not_before = now() where state = 'Accepted'")
    await owner.execute("notify submission_due")
    await wait_for_status(api, invalid, "Invalid")


async def create_valid_without_details(api: Client, sandbox: Sandbox) -> tuple[int, str]:
    """Create an invoice whose document is Valid without its details. Return its id and number."""
    await sandbox.settings(stuck=True)
    invoice_id = await create_submitted_invoice(api)
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"], longId="", dateTimeValidated=None)
    await sandbox.settings(stuck=False)
    await wait_for_status(api, invoice_id, "Valid")
    (document,) = await get_documents(api, invoice_id)
    assert (document["validation_link"], document["validated_at"]) == (None, None)
    return invoice_id, entry["number"]


async def test_a_poll_adds_details_that_a_valid_document_lacked(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_RECHECK_SECONDS="0.1", COMPARISON_SECONDS="3600")
    invoice_id, number = await create_valid_without_details(api, sandbox)
    await sandbox.show_oddly(number)
    (document,) = await until(
        lambda: get_documents(api, invoice_id), lambda found: found[0]["validation_link"]
    )
    assert document["uuid"] in document["validation_link"] and document["validated_at"]


async def test_a_comparison_adds_details_that_a_valid_document_lacked(
    start: StartService, sandbox: Sandbox, owner: asyncpg.Connection, config: Config
) -> None:
    """The document is polled until the portal has shown when it validated it."""
    api = await start(PORTAL_RECHECK_SECONDS="3600", COMPARISON_SECONDS="3600")
    invoice_id, number = await create_valid_without_details(api, sandbox)
    await until(lambda: owner.fetchval("select bool_and(lease_until is null) from submissions"))
    await run_command(config, reconcile)
    assert await owner.fetchval(STATES) == ["Accepted"]
    await sandbox.show_oddly(number)
    await run_command(config, reconcile)
    (document,) = await get_documents(api, invoice_id)
    assert document["uuid"] in document["validation_link"] and document["validated_at"]
    assert await owner.fetchval(STATES) == ["Finished"]


async def test_a_rejection_request_that_is_recorded_is_not_written_again(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_RECHECK_SECONDS="0.1", COMPARISON_SECONDS="3600")
    invoice_id = await create_valid_invoice(api)
    (document,) = await get_documents(api, invoice_id)
    await sandbox.reject(document["uuid"], "Never ordered")
    (requested,) = await until(
        lambda: get_documents(api, invoice_id), lambda found: found[0]["rejection_requested_at"]
    )
    polled = await sandbox.count_calls("submission")
    await until(lambda: sandbox.count_calls("submission"), lambda n: n > polled + 2)
    assert await get_documents(api, invoice_id) == [requested]


@pytest.mark.parametrize(
    "compared, sent, days, expected",
    [
        (1, 100, None, 75),  # hours before now
        (25, 100, None, 99),
        (25, 60, None, 84),  # a day before the first send
        (None, 100, None, 124),
        (1, 600, 20, 480),
        (1, 600, 1, 75),
        (700, 719, None, 720),
        (None, None, None, 24),
        (None, None, 30, 720),
    ],
)
def test_a_comparison_covers_what_may_have_changed_since_the_latest_one(
    compared: int | None, sent: int | None, days: int | None, expected: int
) -> None:
    def before(hours: int | None) -> datetime | None:
        return None if hours is None else NOW - timedelta(hours=hours)

    basis: BasisRow = {
        "own_tin": None,
        "held_since": None,
        "known_until": None,
        "compared_at": before(compared),
        "sent_from": before(sent),
        "now": NOW,
    }
    assert first_moment(basis, days) == before(expected)


@pytest.mark.parametrize(
    "compared, sent, is_due",
    [
        (2, 1, True),
        (2, 70, True),
        (2, 77, False),  # it could not change any more at the latest comparison
        (0.5, 1, False),
        (30, 26, True),  # nothing was sent for a day, and no worker was running
        (30, 100, True),
        (None, 26, True),
        (None, 0.5, False),
        (800, 730, False),  # the portal does not list it any more
    ],
)
async def test_a_company_is_due_while_documents_may_have_changed_since_its_comparison(
    owner: asyncpg.Connection, company: Company, compared: float | None, sent: float, is_due: bool
) -> None:
    hour = timedelta(hours=1)
    await owner.execute(
        "insert into submissions (company_id, attempt_key, tin, on_absence, state,"
        " last_sent_at) values ($1, gen_random_uuid(), 'C1', 'release', 'Finished',"
        " now() - $2::interval)",
        *[company.id, sent * hour],
    )
    if compared is not None:
        await owner.execute(
            "insert into comparisons (company_id, compared_at) values ($1, now() - $2::interval)",
            *[company.id, compared * hour],
        )
    spans = dict.fromkeys(("age", "grace", "settle", "confirmation_gap"), hour)
    found = await sql.conditions_watched(
        owner, **spans, every=hour / 24, client_id="", fingerprint=""
    )
    watched = {row["kind"] for row in found}
    assert ("Comparison" in watched) == (is_due and (compared or sent) > 1)
    rows = await sql.claim_comparisons(
        owner,
        cause="regular",
        most=1,
        lease=hour,
        every=hour,
        settle=hour,
        changing=CHANGING,
        furthest=FURTHEST,
    )
    assert bool(rows) == is_due

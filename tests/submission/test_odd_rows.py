"""Unreadable rows of portal listings are recorded and skipped; other rows are processed."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.reconcile import attention, reconcile
from service.config import Config
from service.portal.documents import OddRow
from service.submission.machine.comparison_rules import is_candidate
from service.submission.machine.types import SubmittedDocument
from tests.api_invoices import (
    create_invoice,
    create_lost_invoice,
    create_submitted_invoice,
    create_valid_invoice,
)
from tests.api_reads import get_documents, get_invoice, wait_for_status, wait_until_status
from tests.api_requests import cancel_latest, submit
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.harness.bodies import now
from tests.harness.world import World

#: Members that make a row of a listing unreadable.
ODD = (
    {"status": "Archived"},
    {"status": None},
    {"internalId": None},
    {"dateTimeIssued": "soon"},
    {"uuid": 5},
)


async def latest_number(sandbox: Sandbox) -> str:
    """Return the number of the document that the portal accepted last."""
    return (await sandbox.ledger())[-1]["number"]


@pytest.mark.parametrize("members", ODD)
async def test_an_odd_row_does_not_block_other_outcomes(
    idle: Client,
    start: StartService,
    company: Company,
    config: Config,
    sandbox: Sandbox,
    members: dict[str, Any],
) -> None:
    """The listing has an unreadable row and a document whose response was lost."""
    await create_submitted_invoice(idle)
    await sandbox.show_oddly(await latest_number(sandbox), **members)
    lost = await create_lost_invoice(idle, sandbox)
    api = await start()
    await wait_for_status(api, lost, "Valid")
    (found,) = (
        await until(lambda: run_command(config, attention), lambda shown: shown["oddities"])
    )["oddities"]
    assert found["company_id"] == company.id and found["problems"] and found["what_to_do"]


async def test_the_comparison_skips_odd_rows_without_a_finding(
    api: Client, config: Config, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    good, _ = await create_valid_invoice(api), await create_valid_invoice(api)
    for members in ODD:
        await sandbox.show_oddly(await latest_number(sandbox), **members)
        (compared,) = (await run_command(config, reconcile))["companies"]
        assert "error" not in compared and compared["findings"] == [], members
    assert await owner.fetchval("select count(*) from portal_odd_rows")
    assert (await get_invoice(api, good))["status"] == "Valid"


async def test_an_odd_row_is_recorded_and_logged_once(
    api: Client,
    config: Config,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create_valid_invoice(api)
    await sandbox.show_oddly(await latest_number(sandbox), status="Archived")
    for _ in range(3):
        await run_command(config, reconcile)
    assert await owner.fetchval("select count(*) from portal_odd_rows") == 1
    assert len([line for line in caplog.messages if "Archived" in line]) == 1


@pytest.mark.parametrize("status", ["Archived", ""])
async def test_a_lost_document_with_an_unknown_status_is_adopted(
    idle: Client, start: StartService, sandbox: Sandbox, status: str
) -> None:
    """The status of the invoice changes when the portal shows a known status again."""
    invoice_id = await create_lost_invoice(idle, sandbox)
    await sandbox.show_oddly(await latest_number(sandbox), status=status)
    api = await start()
    await wait_for_status(api, invoice_id, "Submitted")
    assert (await get_documents(api, invoice_id))[0]["uuid"] == (await sandbox.ledger())[0]["uuid"]
    await sandbox.show_oddly(await latest_number(sandbox))
    await wait_for_status(api, invoice_id, "Valid")


async def test_a_possible_match_blocks_only_its_own_absence_confirmation(
    idle: Client, start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """Two responses are lost: of an accepted document without a readable number, and of another."""
    accepted, absent = (
        await create_invoice(idle),
        await create_invoice(idle, issueDateTime=now(minutes=30)),
    )
    await sandbox.fault("submit", "accept_then_drop")
    await submit(idle, accepted)
    await sandbox.fault("submit", "drop")
    await submit(idle, absent)
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"], internalId=7)
    api = await start()
    await wait_for_status(api, absent, "Draft")
    error = "select last_error ->> 'code' from submissions where state = 'Uncertain'"
    await until(lambda: owner.fetchval(error), lambda code: code == "UnreadableRow")
    assert (await get_invoice(api, accepted))["status"] == "Submitting"
    await sandbox.show_oddly(entry["number"])
    await wait_for_status(api, accepted, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_a_cancellation_waits_for_a_known_status(api: Client, sandbox: Sandbox) -> None:
    invoice_id = await create_valid_invoice(api)
    number = await latest_number(sandbox)
    await sandbox.show_oddly(number, status="Archived")
    await sandbox.fault("state", "accept_then_drop")
    status, _ = await cancel_latest(api, invoice_id)
    assert status != 200
    await sandbox.show_oddly(number)
    await wait_until_status(api, invoice_id, "Cancelled")


NOW = World(None).now
DOC = SubmittedDocument(1, "INV-1", "01", NOW)


@pytest.mark.parametrize(
    "read, blocks",
    [
        ({}, True),
        ({"number": "INV-1"}, True),
        ({"number": "INV-2"}, False),
        ({"type_code": "02"}, False),
        ({"issued_at": NOW + timedelta(seconds=1)}, False),
        ({"issuer_tin": "C2"}, False),
        ({"type_code": "01", "issued_at": NOW, "issuer_tin": "C1"}, True),
    ],
)
def test_readable_members_of_an_odd_row_exclude_documents(
    read: dict[str, Any], blocks: bool
) -> None:
    assert is_candidate("C1", DOC, OddRow("X", ("odd",), "{}", "X", **read)) is blocks

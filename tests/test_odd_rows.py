"""Unreadable rows of the portal are recorded and skipped; all other rows are processed."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from conftest import Sandbox, until
from kit import cancelled, created, documents, now, reaches, record, submitted, valid_invoice
from world import World

from service.commands.reconcile import attention, reconcile
from service.config import read_config
from service.portal.responses import OddRow
from service.submission.odd_rows import may_be_document
from service.submission.types import Submission, SubmittedDocument

#: Members with which a row is no longer what it was.
ODD = (
    {"status": "Archived"},
    {"status": None},
    {"internalId": None},
    {"dateTimeIssued": "soon"},
    {"uuid": 5},
)


@pytest.fixture
def config(environment: dict[str, str]) -> Any:
    return read_config(environment)


async def latest_number(sandbox: Sandbox) -> str:
    """Return the number of the document that the portal took last."""
    return (await sandbox.ledger())[-1]["number"]


@pytest.mark.parametrize("members", ODD)
async def test_an_odd_row_keeps_no_other_outcome_unknown(
    start: Any, company: Any, config: Any, sandbox: Sandbox, members: dict[str, Any]
) -> None:
    """The listing has an unreadable row and a document whose response was lost."""
    idle = await start(company, background=False)
    odd = await created(idle)
    assert (await submitted(idle, odd))[0] == 200
    await sandbox.show_oddly(await latest_number(sandbox), **members)
    await sandbox.fault("submit", "accept_then_drop")
    lost = await created(idle)
    assert (await submitted(idle, lost))[0] == 400
    api = await start(company)
    await reaches(api, lost, "Valid")
    (found,) = (await until(lambda: attention(config), lambda told: told["oddities"]))["oddities"]
    assert found["company_id"] == company.id and found["problems"] and found["what_to_do"]


async def test_the_sweep_goes_past_an_odd_row_and_misses_nothing(
    api: Any, config: Any, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    good, _ = await valid_invoice(api), await valid_invoice(api)
    for members in ODD:
        await sandbox.show_oddly(await latest_number(sandbox), **members)
        (told,) = (await reconcile(config))["companies"]
        assert "error" not in told and told["findings"] == [], members
    assert await owner.fetchval("select count(*) from portal_odd_rows") >= 1
    assert (await record(api, good))["status"] == "Valid"


async def test_an_oddity_is_recorded_once(
    api: Any, config: Any, sandbox: Sandbox, owner: asyncpg.Connection, caplog: Any
) -> None:
    await valid_invoice(api)
    await sandbox.show_oddly(await latest_number(sandbox), status="Archived")
    for _ in range(3):
        await reconcile(config)
    assert await owner.fetchval("select count(*) from portal_odd_rows") == 1
    assert len([line for line in caplog.messages if "Archived" in line]) == 1


@pytest.mark.parametrize("status", ["Archived", ""])
async def test_a_lost_answer_is_adopted_also_with_an_unknown_status(
    start: Any, company: Any, sandbox: Sandbox, status: str
) -> None:
    """The document is adopted. Its status is followed once it is a known one."""
    idle = await start(company, background=False)
    await sandbox.fault("submit", "accept_then_drop")
    invoice_id = await created(idle)
    await submitted(idle, invoice_id)
    await sandbox.show_oddly(await latest_number(sandbox), status=status)
    api = await start(company)
    await reaches(api, invoice_id, "Submitted")
    assert (await documents(api, invoice_id))[0]["uuid"] == (await sandbox.ledger())[0]["uuid"]
    await sandbox.show_oddly(await latest_number(sandbox))
    await reaches(api, invoice_id, "Valid")


async def test_a_row_that_may_be_the_document_blocks_only_its_own_absence(
    start: Any, company: Any, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """One was taken and is shown without its number; another, of another issue time, never arrived."""
    idle = await start(company, background=False)
    taken, absent = await created(idle), await created(idle, issueDateTime=now(minutes=30))
    await sandbox.fault("submit", "accept_then_drop")
    await submitted(idle, taken)
    await sandbox.fault("submit", "drop")
    await submitted(idle, absent)
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"], internalId=7)
    api = await start(company)
    await reaches(api, absent, "Draft")
    error = "select last_error ->> 'code' from submissions where state = 'Uncertain'"
    await until(lambda: owner.fetchval(error), lambda code: code == "UnreadableRow")
    assert (await record(api, taken))["status"] == "Submitting"
    await sandbox.show_oddly(entry["number"])
    await reaches(api, taken, "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_a_cancellation_waits_until_the_status_is_known(api: Any, sandbox: Sandbox) -> None:
    invoice_id = await valid_invoice(api)
    number = await latest_number(sandbox)
    await sandbox.show_oddly(number, status="Archived")
    await sandbox.fault("state", "accept_then_drop")
    status, _ = await cancelled(api, invoice_id)
    assert status != 200
    await sandbox.show_oddly(number)
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Cancelled")


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
def test_what_can_be_read_of_a_row_tells_whose_it_is_not(
    read: dict[str, Any], blocks: bool
) -> None:
    submission = Submission("Uncertain", "release", NOW, tin="C1", docs=(DOC,))
    assert may_be_document(OddRow("X", ("odd",), "{}", "X", **read), submission, DOC) is blocks

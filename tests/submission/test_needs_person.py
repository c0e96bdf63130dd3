"""Submissions that need a person: they are listed, and resolved only if the portal agrees."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.reconcile import attention, resolve_submission
from service.config import Config
from service.errors import OperatorError
from service.submission.operator.manual_resolution import CannotResolve
from tests.api_invoices import create_invoice, create_lost_invoice, create_submitted_invoice
from tests.api_reads import get_documents, get_invoice, wait_for_status
from tests.api_requests import submit
from tests.conftest import Client, Company, Sandbox, StartService, make_company
from tests.harness.bodies import STRANGER
from tests.harness.companies import NEIGHBOUR

STUCK = """update submissions
              set state = 'NeedsPerson',
                  last_error = '{"code": "Unclear", "message": "A day without an answer."}'
            where id = $1"""
RECEIVED = "Seen on the portal's page."
NOT_RECEIVED = "Confirmed by the portal's support."


@dataclass(frozen=True, slots=True)
class Stuck:
    """An invoice whose submission needs a person."""

    api: Client
    invoice_id: int
    config: Config
    company: Company
    submission: int

    async def get_status(self) -> str:
        return (await get_invoice(self.api, self.invoice_id))["status"]

    async def resolve(self, uuids: list[str] | None, note: str) -> None:
        case = {"company_id": self.company.id, "submission_id": self.submission}
        await run_command(self.config, resolve_submission, uuids=uuids, note=note, **case)

    async def refuse(self, uuids: list[str] | None, reason: str) -> None:
        """Check that a resolution is refused and changes nothing."""
        with pytest.raises((CannotResolve, OperatorError), match=reason):
            await self.resolve(uuids, "A mistake.")
        assert await self.get_status() == "Submitting"


class MakeStuck(Protocol):
    """The type of the fixture make_stuck."""

    def __call__(self, kind: str, **changes: Any) -> Awaitable[Stuck]: ...


@pytest.fixture
async def make_stuck(
    idle: Client, config: Config, company: Company, sandbox: Sandbox, owner: asyncpg.Connection
) -> MakeStuck:
    """Return a function that makes an invoice whose submission needs a person."""

    async def make(kind: str, **changes: Any) -> Stuck:
        invoice_id = await create_lost_invoice(idle, sandbox, kind, **changes)
        submission: Any = await owner.fetchval("select max(id) from submissions")
        await owner.execute(STUCK, submission)
        return Stuck(idle, invoice_id, config, company, submission)

    return make


async def test_a_named_document_is_adopted_if_the_portal_shows_it(
    make_stuck: MakeStuck,
    start: StartService,
    config: Config,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    stuck = await make_stuck("accept_then_drop")
    (listed,) = (await run_command(config, attention))["submissions"]
    assert (listed["id"], listed["last_error"]["code"]) == (stuck.submission, "Unclear")
    assert len(listed["request_sha256"]) == 64
    (entry,) = await sandbox.ledger()
    await stuck.refuse(None, entry["uuid"])
    await stuck.refuse(["ABC"], "does not show")
    await stuck.resolve([entry["uuid"]], RECEIVED)
    await start()
    await wait_for_status(stuck.api, stuck.invoice_id, "Valid")
    assert (await get_documents(stuck.api, stuck.invoice_id))[0]["uuid"] == entry["uuid"]
    assert (await run_command(config, attention))["submissions"] == []
    (row,) = await owner.fetch("select * from audit_log where action = 'resolve'")
    assert row["subject"] == f"invoice {stuck.invoice_id}" and row["actor"] == "command"
    decided = {name: value["new"] for name, value in json.loads(row["changes"]).items()}
    assert decided == {"outcome": "received", "uuid": entry["uuid"], "note": RECEIVED}
    with pytest.raises(CannotResolve, match="No submission"):
        await stuck.resolve(None, "Again.")


async def test_a_submission_the_portal_never_received_is_released(
    make_stuck: MakeStuck, sandbox: Sandbox
) -> None:
    stuck = await make_stuck("drop")
    await stuck.resolve(None, NOT_RECEIVED)
    assert await stuck.get_status() == "Draft"
    (refused,) = await get_documents(stuck.api, stuck.invoice_id)
    (error,) = refused["errors"]
    assert error["code"] == "NotReceived" and "portal's support" in error["message"]
    assert (await submit(stuck.api, stuck.invoice_id))[0] == 200
    assert len(await sandbox.ledger()) == 1


async def test_the_uuid_of_another_document_is_refused(
    make_stuck: MakeStuck, sandbox: Sandbox
) -> None:
    stuck = await make_stuck("drop")
    await submit(stuck.api, await create_invoice(stuck.api))
    (other,) = await sandbox.ledger()
    await stuck.refuse([other["uuid"]], "None of the uuids")


async def test_a_document_with_another_issue_time_is_refused(
    make_stuck: MakeStuck, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    stuck = await make_stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await owner.execute(
        "update submitted_documents set issued_at = issued_at + interval '1 second'"
    )
    await stuck.refuse([entry["uuid"]], "another type or issue")


async def test_an_unreachable_portal_prevents_manual_resolution(
    make_stuck: MakeStuck, sandbox: Sandbox
) -> None:
    stuck = await make_stuck("drop")
    await sandbox.fault("search", "error_before", status=503)
    await stuck.refuse(None, "The portal request failed")


async def test_a_throttled_manual_resolution_pauses_the_operation(
    make_stuck: MakeStuck, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    stuck = await make_stuck("drop")
    await sandbox.fault("search", "throttle", retry_after=600)
    await stuck.refuse(None, "The portal request failed")
    paused = "select operation from portal_buckets where paused_until > clock_timestamp()"
    assert await owner.fetchval(paused) == "search"


async def change_document(
    owner: asyncpg.Connection, submission: int, change: Callable[[str], str]
) -> None:
    """Change the text of the document in a submission, as if another one had been sent."""
    (row,) = await owner.fetch(
        "select id, content from submitted_contents"
        " join submitted_documents on id = submitted_document_id where submission_id = $1",
        submission,
    )
    await owner.execute(
        "update submitted_contents set content = $1 where submitted_document_id = $2",
        change(row["content"].decode()).encode(),
        row["id"],
    )


async def test_a_document_with_other_amounts_is_not_adopted_by_a_person(
    make_stuck: MakeStuck, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    stuck = await make_stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await change_document(owner, stuck.submission, lambda text: text.replace("104.76", "105.00"))
    await stuck.refuse([entry["uuid"]], r"payable amount: 104.76 there, 105.00 sent")
    await stuck.resolve(None, "The portal has another document of this number.")
    assert await stuck.get_status() == "Draft"


async def test_a_uuid_of_another_company_is_refused_without_naming_it(
    make_stuck: MakeStuck,
    start: StartService,
    environment: dict[str, str],
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    stuck = await make_stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    other = await make_company(environment, **NEIGHBOUR)
    theirs = await start(other, background=False)
    await create_submitted_invoice(theirs)
    await owner.execute(
        "update submitted_documents set uuid = $1 where company_id = $2", entry["uuid"], other.id
    )
    with pytest.raises(CannotResolve) as refusal:
        await stuck.resolve([entry["uuid"]], "A mistake.")
    assert str(refusal.value) == f"{entry['uuid']} is recorded for another document."
    assert await stuck.get_status() == "Submitting"


async def test_an_invalid_document_is_adopted_if_its_summary_agrees(
    make_stuck: MakeStuck, start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    stuck = await make_stuck("accept_then_drop", buyer=STRANGER)
    (entry,) = await sandbox.ledger()
    assert entry["status"] == "Invalid"
    await change_document(owner, stuck.submission, lambda text: text.replace("Aminah", "Aisyah"))
    await stuck.refuse([entry["uuid"]], "receiver name")
    await change_document(owner, stuck.submission, lambda text: text.replace("Aisyah", "Aminah"))
    await stuck.resolve([entry["uuid"]], RECEIVED)
    await start()
    await wait_for_status(stuck.api, stuck.invoice_id, "Invalid")


@pytest.mark.parametrize(
    "members", [{"internalId": 7}, {"typeName": "e-Invoice"}, {"dateTimeIssued": "soon"}]
)
async def test_not_received_is_refused_for_an_odd_row(
    make_stuck: MakeStuck, config: Config, sandbox: Sandbox, members: dict[str, Any]
) -> None:
    """The portal shows the document with an unreadable or unknown member."""
    stuck = await make_stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"], **members)
    await stuck.refuse(None, entry["uuid"])
    assert (await run_command(config, attention))["oddities"]


async def test_not_received_ignores_the_odd_row_of_another_document(
    make_stuck: MakeStuck, sandbox: Sandbox
) -> None:
    """The portal never had the document. The odd row belongs to another submission."""
    stuck = await make_stuck("drop")
    assert (await submit(stuck.api, await create_invoice(stuck.api)))[0] == 200
    (other,) = await sandbox.ledger()
    await sandbox.show_oddly(other["number"], internalId=7, dateTimeIssued=None)
    await stuck.resolve(None, NOT_RECEIVED)
    assert await stuck.get_status() == "Draft"


async def test_received_adopts_a_document_of_an_unknown_type(
    make_stuck: MakeStuck, start: StartService, sandbox: Sandbox
) -> None:
    stuck = await make_stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"], typeName="e-Invoice")
    await stuck.resolve([entry["uuid"]], RECEIVED)
    await start()
    await wait_for_status(stuck.api, stuck.invoice_id, "Valid")
    assert (await get_documents(stuck.api, stuck.invoice_id))[0]["uuid"] == entry["uuid"]


async def test_an_adopted_submission_is_polled_for_its_outcome(
    make_stuck: MakeStuck, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """Polls for an outcome come before polls for later changes."""
    stuck = await make_stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await stuck.resolve([entry["uuid"]], RECEIVED)
    (row,) = await owner.fetch(
        "select state, has_outcome from submissions where id = $1", stuck.submission
    )
    assert tuple(row) == ("Accepted", False)

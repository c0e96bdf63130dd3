"""Submissions that need a person: they are listed, and resolved only if the portal agrees."""

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.operator_errors import OperatorError
from service.commands.reconcile import attention, resolve_submission
from service.config import Config
from service.submission.manual_resolution import CannotResolve
from tests.api_reads import get_documents, get_invoice, wait_for_status
from tests.api_requests import create_invoice, submit
from tests.conftest import Client, Company, Sandbox, StartService, make_company
from tests.submission.test_submission import STRANGER

STUCK = """update submissions
              set state = 'NeedsPerson',
                  last_error = '{"code": "Unclear", "message": "A day without an answer."}'
            where id = $1"""


async def resolve(
    config: Config, company: Company, submission: int, uuids: list[str] | None, note: str
) -> Any:
    """Resolve a submission by the command."""
    case = {"company_id": company.id, "submission_id": submission}
    return await run_command(config, resolve_submission, uuids=uuids, note=note, **case)


class MakeStuck(Protocol):
    """The type of the fixture stuck."""

    def __call__(self, kind: str, **changes: Any) -> Awaitable[tuple[Client, int, int]]:
        """Return (client, invoice id, submission id)."""
        ...


@pytest.fixture
async def stuck(idle: Client, sandbox: Sandbox, owner: asyncpg.Connection) -> MakeStuck:
    """Return a function that makes an invoice whose submission needs a person.

    `api, invoice_id, submission_id = await stuck(kind of fault)`.
    """

    async def make(kind: str, **changes: Any) -> tuple[Client, int, int]:
        await sandbox.fault("submit", kind)
        invoice_id = await create_invoice(idle, **changes)
        assert (await submit(idle, invoice_id))[0] == 400
        submission: Any = await owner.fetchval("select max(id) from submissions")
        await owner.execute(STUCK, submission)
        return idle, invoice_id, submission

    return make


async def test_a_named_document_is_adopted_if_the_portal_shows_it(
    stuck: MakeStuck,
    start: StartService,
    config: Config,
    company: Company,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    api, invoice_id, submission = await stuck("accept_then_drop")
    (listed,) = (await run_command(config, attention))["submissions"]
    assert (listed["id"], listed["last_error"]["code"]) == (submission, "Unclear")
    assert len(listed["body_sha256"]) == 64
    (entry,) = await sandbox.ledger()
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"
    with pytest.raises(CannotResolve, match=entry["uuid"]):
        await resolve(config, company, submission, None, "I think it is not there.")
    with pytest.raises(CannotResolve, match="does not show"):
        await resolve(config, company, submission, ["ABC"], "A mistake.")
    await resolve(config, company, submission, [entry["uuid"]], "Seen on the portal's page.")
    await start()
    await wait_for_status(api, invoice_id, "Valid")
    assert (await get_documents(api, invoice_id))[0]["uuid"] == entry["uuid"]
    assert (await run_command(config, attention))["submissions"] == []
    (row,) = await owner.fetch("select outcome, uuids, note from manual_resolutions")
    assert tuple(row) == ("received", [entry["uuid"]], "Seen on the portal's page.")
    with pytest.raises(CannotResolve, match="No submission"):
        await resolve(config, company, submission, None, "Again.")


async def test_a_submission_the_portal_never_received_is_released(
    stuck: MakeStuck, config: Config, company: Company, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    api, invoice_id, submission = await stuck("drop")
    await resolve(config, company, submission, None, "Confirmed by the portal's support.")
    assert (await get_invoice(api, invoice_id))["status"] == "Draft"
    (refused,) = await get_documents(api, invoice_id)
    (error,) = refused["errors"]
    assert error["code"] == "NotReceived" and "portal's support" in error["message"]
    assert (await submit(api, invoice_id))[0] == 200 and len(await sandbox.ledger()) == 1


async def test_the_uuid_of_another_document_is_refused(
    stuck: MakeStuck, config: Config, company: Company, sandbox: Sandbox
) -> None:
    api, invoice_id, submission = await stuck("drop")
    await submit(api, await create_invoice(api))
    (other,) = await sandbox.ledger()
    with pytest.raises(CannotResolve, match="None of the uuids"):
        await resolve(config, company, submission, [other["uuid"]], "A mistake.")
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"


async def test_a_document_with_another_issue_time_is_refused(
    stuck: MakeStuck, config: Config, company: Company, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    api, invoice_id, submission = await stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await owner.execute(
        "update submitted_documents set issued_at = issued_at + interval '1 second'"
    )
    with pytest.raises(CannotResolve, match="another type or issue"):
        await resolve(config, company, submission, [entry["uuid"]], "A mistake.")
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"


async def test_an_unreachable_portal_prevents_manual_resolution(
    stuck: MakeStuck, config: Config, company: Company, sandbox: Sandbox
) -> None:
    api, invoice_id, submission = await stuck("drop")
    await sandbox.fault("search", "error_before", status=503)
    with pytest.raises(OperatorError, match="The portal request failed"):
        await resolve(config, company, submission, None, "I think it is not there.")
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"


async def change_document(
    owner: asyncpg.Connection, submission: int, change: Callable[[str], str]
) -> None:
    """Change the text of the document in a submission, as if another one had been sent."""
    (row,) = await owner.fetch("select body from submissions where id = $1", submission)
    body = json.loads(row["body"])
    (entry,) = body["documents"]
    text = change(base64.b64decode(entry["document"]).decode())
    entry["document"] = base64.b64encode(text.encode()).decode()
    await owner.execute(
        "update submissions set body = $1 where id = $2", json.dumps(body).encode(), submission
    )


async def test_a_document_with_other_amounts_is_not_adopted_by_a_person(
    stuck: MakeStuck, config: Config, company: Company, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    api, invoice_id, submission = await stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await change_document(owner, submission, lambda text: text.replace("104.76", "105.00"))
    with pytest.raises(CannotResolve, match=r"payable amount: 104.76 there, 105.00 sent"):
        await resolve(config, company, submission, [entry["uuid"]], "A mistake.")
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"
    await resolve(
        config, company, submission, None, "The portal has another document of this number."
    )
    assert (await get_invoice(api, invoice_id))["status"] == "Draft"


async def test_a_uuid_of_another_company_is_refused_without_naming_it(
    stuck: MakeStuck,
    start: StartService,
    config: Config,
    company: Company,
    environment: dict[str, str],
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    api, invoice_id, submission = await stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    other = await make_company(
        environment, tin_code="C20880050020", name="Teh Tarik Utara Sdn. Bhd."
    )
    theirs = await start(other, background=False)
    assert (await submit(theirs, await create_invoice(theirs)))[0] == 200
    await owner.execute(
        "update submitted_documents set uuid = $1 where company_id = $2", entry["uuid"], other.id
    )
    with pytest.raises(CannotResolve) as refusal:
        await resolve(config, company, submission, [entry["uuid"]], "A mistake.")
    assert str(refusal.value) == f"{entry['uuid']} is recorded for another document."
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"


async def test_an_invalid_document_is_adopted_if_its_summary_agrees(
    stuck: MakeStuck,
    start: StartService,
    config: Config,
    company: Company,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    api, invoice_id, submission = await stuck("accept_then_drop", buyer=STRANGER)
    (entry,) = await sandbox.ledger()
    assert entry["status"] == "Invalid"
    await change_document(owner, submission, lambda text: text.replace("Aminah", "Aisyah"))
    with pytest.raises(CannotResolve, match="receiver name"):
        await resolve(config, company, submission, [entry["uuid"]], "A mistake.")
    await change_document(owner, submission, lambda text: text.replace("Aisyah", "Aminah"))
    await resolve(config, company, submission, [entry["uuid"]], "Seen on the portal's page.")
    await start()
    await wait_for_status(api, invoice_id, "Invalid")


@pytest.mark.parametrize(
    "members", [{"internalId": 7}, {"typeName": "e-Invoice"}, {"dateTimeIssued": "soon"}]
)
async def test_not_received_is_refused_for_an_odd_row(
    stuck: MakeStuck, config: Config, company: Company, sandbox: Sandbox, members: dict[str, Any]
) -> None:
    """The portal shows the document with an unreadable or unknown member."""
    api, invoice_id, submission = await stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"], **members)
    with pytest.raises(CannotResolve, match=entry["uuid"]):
        await resolve(config, company, submission, None, "I think it is not there.")
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting"
    assert (await run_command(config, attention))["oddities"]


async def test_not_received_ignores_the_odd_row_of_another_document(
    stuck: MakeStuck, config: Config, company: Company, sandbox: Sandbox
) -> None:
    """The portal never had the document. The odd row belongs to another submission."""
    api, invoice_id, submission = await stuck("drop")
    assert (await submit(api, await create_invoice(api)))[0] == 200
    (other,) = await sandbox.ledger()
    await sandbox.show_oddly(other["number"], internalId=7, dateTimeIssued=None)
    await resolve(config, company, submission, None, "Confirmed by the portal's support.")
    assert (await get_invoice(api, invoice_id))["status"] == "Draft"


async def test_received_adopts_a_document_of_an_unknown_type(
    stuck: MakeStuck, start: StartService, config: Config, company: Company, sandbox: Sandbox
) -> None:
    api, invoice_id, submission = await stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await sandbox.show_oddly(entry["number"], typeName="e-Invoice")
    await resolve(config, company, submission, [entry["uuid"]], "Seen on the portal's page.")
    await start()
    await wait_for_status(api, invoice_id, "Valid")
    assert (await get_documents(api, invoice_id))[0]["uuid"] == entry["uuid"]


async def test_an_adopted_submission_is_polled_for_its_outcome(
    stuck: MakeStuck, config: Config, company: Company, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    """Polls for an outcome come before polls for later changes."""
    _, _, submission = await stuck("accept_then_drop")
    (entry,) = await sandbox.ledger()
    await resolve(config, company, submission, [entry["uuid"]], "Seen on the portal's page.")
    (row,) = await owner.fetch(
        "select state, has_outcome from submissions where id = $1", submission
    )
    assert tuple(row) == ("Accepted", False)

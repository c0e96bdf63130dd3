"""A portal uuid belongs to one document, and a document is adopted only if proven to be ours."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from service.config import Config
from service.db.pool import connected_pool
from service.db.transactions import Database
from service.portal.client import Portal, portal_session
from service.portal.documents import Document
from service.portal.errors import Held, NotSent, Refused, Unclear
from service.submission import store as records
from service.submission.context import Claim, CompanyContext
from service.submission.following.document_comparison import copy_differences
from service.submission.following.matching import (
    MOST_COPIES,
    Matches,
    find_first_send,
    find_matches,
)
from service.submission.foreign_uuids import mask_foreign_uuids
from service.submission.machine import state_machine
from service.submission.machine.types import Sighting, SightingsReceived, Submission
from tests.api_invoices import (
    create_invoice,
    create_lost_invoice,
    create_submitted_invoice,
    create_valid_invoice,
)
from tests.api_reads import get_documents, get_invoice, get_json, wait_for_status, wait_until_status
from tests.api_requests import cancel_latest, submit
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.harness.bodies import line, now
from tests.harness.paths import DOCUMENTS
from tests.security.test_tin_claims import add_claims
from tests.submission.test_needs_person import change_document

#: Lines of a document that differs from another one with its number and issue time.
OTHER_LINES = [line(unit={"code": "KGM", "price": 9, "count": 9})]
#: Short intervals, so that unknown outcomes are resolved within a test.
QUICK = {
    "PORTAL_SETTLE_SECONDS": "0.1",
    "PORTAL_CONFIRMATION_GAP_SECONDS": "0.05",
    "PORTAL_RECHECK_SECONDS": "0.1",
}


@dataclass(slots=True)
class Lost:
    """A submission whose response was lost, and the row of its document in the listing."""

    context: CompanyContext
    claim: Claim
    submission: Submission
    row: Document

    async def match(self, **changes: Any) -> Matches:
        """Match the submission with the row, in which some values are replaced."""
        submissions, listing = {self.claim.id: self.submission}, [replace(self.row, **changes)]
        return await find_matches(self.context, self.claim.company_id, submissions, listing)


def uuids(found: Mapping[int, Sequence[Sighting]]) -> list[str]:
    return [one.uuid for each in found.values() for one in each]


@pytest.fixture
async def context(config: Config) -> AsyncIterator[CompanyContext]:
    """Yield a submission context without rate limits."""
    async with connected_pool(config.database_url, 4) as pool, portal_session() as session:
        unused: Any = None
        portal = Portal(session, config)
        yield CompanyContext(
            config, Database(pool), unused, shared_portal=portal, signers=unused, portal=portal
        )


async def entry_of(sandbox: Sandbox, uuid: str) -> dict[str, Any]:
    (entry,) = [entry for entry in await sandbox.ledger() if entry["uuid"] == uuid]
    return entry


async def load_latest(owner: asyncpg.Connection, context: CompanyContext) -> tuple[Claim, Any]:
    """Return a claim on the latest submission, and the submission."""
    row: Any = await owner.fetchrow(
        "select company_id, id, fence from submissions order by id desc limit 1"
    )
    claim = Claim(row["company_id"], row["id"], row["fence"])
    return claim, await records.load(context, claim)


# Documents of another company


@dataclass(frozen=True, slots=True)
class Theirs:
    """A Valid invoice of a company whose TIN another company has too."""

    api: Client
    invoice_id: int
    uuid: str
    facts: dict[str, Any]  # the code and the issue time


@pytest.fixture
async def theirs(start: StartService, neighbour: Company) -> Theirs:
    """Return an invoice whose number and issue time are known, as they are printed on it."""
    api, facts = await start(), {"code": 77, "issueDateTime": now(minutes=1)}
    invoice_id = await create_valid_invoice(api, **facts)
    return Theirs(api, invoice_id, (await get_documents(api, invoice_id))[0]["uuid"], facts)


async def test_company_cannot_adopt_or_cancel_anothers_document(
    start: StartService,
    company: Company,
    neighbour: Company,
    theirs: Theirs,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    attacker = await start(neighbour, **QUICK)
    invoice_id = await create_invoice(attacker, **theirs.facts, lineItems=OTHER_LINES)
    answers = [await submit(attacker, invoice_id)]
    await wait_for_status(attacker, invoice_id, "Invalid")
    answers += [
        await get_documents(attacker, invoice_id),
        await get_invoice(attacker, invoice_id),
        await cancel_latest(attacker, invoice_id),
    ]
    assert theirs.uuid not in json.dumps(answers, default=str)
    assert (await entry_of(sandbox, theirs.uuid))["status"] == "Valid"
    assert (await get_invoice(theirs.api, theirs.invoice_id))["status"] == "Valid"
    assert await owner.fetch(
        "select company_id from submitted_documents where uuid = $1", theirs.uuid
    ) == [(company.id,)]


@pytest.mark.parametrize("kind", ["reject", "refuse"])
async def test_refusal_of_a_submission_hides_the_uuid_of_another_company(
    start: StartService, neighbour: Company, theirs: Theirs, sandbox: Sandbox, kind: str
) -> None:
    """The portal refuses a duplicate at once, as a document or with the whole submission."""
    other, uuid = await start(neighbour), theirs.uuid
    await sandbox.fault("submit", kind, code="DS302", message=f"It is a duplicate of {uuid}.")
    invoice_id = await create_invoice(other)
    status, answer = await submit(other, invoice_id)
    assert (status, answer["errors"][0]["message"]) == (
        400,
        "It is a duplicate of another document.",
    )
    answers = [answer, await get_documents(other, invoice_id), await get_invoice(other, invoice_id)]
    answers.append(await get_json(other, "/api/events"))
    assert uuid not in json.dumps(answers, default=str)


async def test_company_with_identical_bytes_does_not_adopt_anothers_document(
    start: StartService,
    neighbour: Company,
    theirs: Theirs,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    """Both send the same document: the portal refuses the second one as a duplicate payload."""
    await owner.execute(
        "update companies set (name, phone, email) = "
        "(select name, phone, email from companies where id <> $1) where id = $1",
        neighbour.id,
    )
    second = await start(neighbour, **QUICK)
    invoice_id = await create_invoice(second, **theirs.facts)
    assert (await submit(second, invoice_id))[0] == 400
    await until(
        lambda: owner.fetchval(
            "select state = 'NeedsPerson' from submissions where company_id = $1", neighbour.id
        )
    )
    assert (await get_documents(second, invoice_id))[0]["uuid"] is None
    assert (await cancel_latest(second, invoice_id))[0] == 409
    assert (await entry_of(sandbox, theirs.uuid))["status"] == "Valid"


async def test_lost_request_is_not_matched_to_another_companys_document(
    start: StartService, neighbour: Company, theirs: Theirs, sandbox: Sandbox
) -> None:
    """Two companies with one TIN use the same number in the same second; one request is lost."""
    second = await start(neighbour, **QUICK)
    facts = {**theirs.facts, "lineItems": OTHER_LINES}
    invoice_id = await create_lost_invoice(second, sandbox, "drop", **facts)
    found = await until(
        lambda: get_invoice(second, invoice_id), lambda found: found["status"] != "Submitting"
    )
    assert found["status"] == "Draft" and theirs.uuid not in json.dumps(
        await get_documents(second, invoice_id)
    )
    assert (await entry_of(sandbox, theirs.uuid))["status"] == "Valid"
    assert (await get_invoice(theirs.api, theirs.invoice_id))["status"] == "Valid"


async def test_document_of_another_company_needs_manual_review(
    start: StartService,
    company: Company,
    neighbour: Company,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
) -> None:
    """Neither outcome is known yet, so no document has the uuid of the portal's document."""
    same = {"code": 77, "issueDateTime": now(minutes=1)}
    first, second = await start(background=False), await start(neighbour, background=False)
    theirs = await create_lost_invoice(first, sandbox, **same)
    invoice_id = await create_lost_invoice(second, sandbox, "drop", **same, lineItems=OTHER_LINES)
    await owner.execute(
        "update submissions set not_before = now() + interval '1 hour' where company_id = $1",
        company.id,
    )
    service = await start(neighbour, **QUICK)
    error = (
        "select last_error ->> 'code' from submissions "
        "where company_id = $1 and state = 'NeedsPerson'"
    )
    assert await until(lambda: owner.fetchval(error, neighbour.id)) == "NotProven"
    (entry,) = await sandbox.ledger()
    assert (await get_invoice(service, invoice_id))["status"] == "Submitting" and entry[
        "uuid"
    ] not in json.dumps(await get_documents(service, invoice_id))
    seen: Any = await owner.fetchrow(
        "select uuid, via from portal_sightings where company_id = $1", neighbour.id
    )
    assert tuple(seen) == (entry["uuid"], "unproven")
    await owner.execute(
        "update submissions set not_before = now() where company_id = $1", company.id
    )
    await owner.execute("notify submission_due")
    await wait_for_status(first, theirs, "Valid")


async def test_document_is_adopted_by_its_bytes_if_the_tin_is_shared(
    start: StartService, neighbour: Company, sandbox: Sandbox
) -> None:
    api = await start()
    invoice_id = await create_lost_invoice(api, sandbox)
    await wait_until_status(api, invoice_id, "Valid")
    assert await sandbox.count_calls("raw") >= 1


async def test_listing_row_proves_nothing_if_the_tin_is_shared(
    lost: Lost, neighbour: Company, sandbox: Sandbox
) -> None:
    await sandbox.fault("raw", "forget")
    found = await lost.match()
    assert not found.proven and uuids(found.unproven) == [lost.row.uuid]


async def test_unverified_claims_change_no_evidence_and_mask_no_uuid(
    lost: Lost, context: CompanyContext, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await add_claims(owner, lost.claim.company_id)
    await sandbox.fault("raw", "forget")
    found = await lost.match()
    assert uuids(found.proven) == [lost.row.uuid] and not found.unproven
    errors = [{"code": "DV302", "path": "", "message": f"It is a duplicate of {lost.row.uuid}."}]
    unused: Any = context
    tin = lost.submission.tin
    assert await mask_foreign_uuids(unused, lost.claim.company_id, tin, errors) == errors


# Evidence of identity


@pytest.fixture
async def lost(
    idle: Client, owner: asyncpg.Connection, context: CompanyContext, sandbox: Sandbox
) -> Lost:
    """Send an invoice and lose the response."""
    await create_lost_invoice(idle, sandbox)
    claim, submission = await load_latest(owner, context)
    uuid = (await sandbox.ledger())[-1]["uuid"]
    hour = timedelta(hours=1)
    listing = await context.portal.search(
        submission.tin, submission.now - hour, submission.now + hour
    )
    (row,) = [row for row in listing if row.uuid == uuid]
    return Lost(context, claim, replace(submission, sightings=()), row)


async def test_listed_document_is_proven_by_its_bytes(lost: Lost, sandbox: Sandbox) -> None:
    found = await lost.match()
    assert [(one.uuid, one.via) for one in found.proven[lost.claim.id]] == [
        (lost.row.uuid, "search")
    ]
    assert not found.unproven and not found.undecided and await sandbox.count_calls("raw") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"type_code": "02"},
        {"issuer_tin": "C12345678900"},
        {"number": "INV-99999"},
        {"issued_at": "later"},
    ],
)
async def test_document_that_only_shares_the_number_is_not_adopted(
    lost: Lost, sandbox: Sandbox, changes: dict[str, Any]
) -> None:
    if "issued_at" in changes:
        assert lost.row.issued_at
        changes = {"issued_at": lost.row.issued_at + timedelta(seconds=1)}
    found = await lost.match(**changes)
    assert not found.proven and not found.unproven and await sandbox.count_calls("raw") == 0


async def test_uuid_of_another_document_is_not_adopted(
    idle: Client, lost: Lost, owner: asyncpg.Connection
) -> None:
    await create_submitted_invoice(idle)
    await owner.execute(
        "update submitted_documents set uuid = $1 where uuid is not null", lost.row.uuid
    )
    found = await lost.match()
    assert not found.proven and not found.unproven


async def test_uuid_of_another_company_is_unproven(
    lost: Lost, start: StartService, neighbour: Company, owner: asyncpg.Connection
) -> None:
    """The bytes are those that were sent, but only one of the two companies can have the uuid."""
    theirs = await start(neighbour, background=False)
    await create_submitted_invoice(theirs)
    await owner.execute(
        "update submitted_documents set uuid = $1 where company_id = $2",
        lost.row.uuid,
        neighbour.id,
    )
    found = await lost.match()
    assert not found.proven and uuids(found.unproven) == [lost.row.uuid]


async def test_document_with_other_bytes_is_unproven(lost: Lost, owner: asyncpg.Connection) -> None:
    await change_document(
        owner, lost.claim.id, lambda text: text.replace("Coffee beans", "Cocoa beans")
    )
    found = await lost.match()
    assert not found.proven and uuids(found.unproven) == [lost.row.uuid]


async def test_reformatted_copy_is_proven(lost: Lost, owner: asyncpg.Connection) -> None:
    await change_document(
        owner, lost.claim.id, lambda text: json.dumps(json.loads(text), indent=1, sort_keys=True)
    )
    found = await lost.match()
    assert uuids(found.proven) == [lost.row.uuid]


def test_a_copy_that_is_nested_too_deeply_cannot_be_read() -> None:
    sent = (DOCUMENTS / "everything.json").read_bytes()
    assert copy_differences(sent, sent.decode()) == []
    assert copy_differences(sent, "[" * 100_000) == ["its text cannot be read as a document"]


async def test_listing_row_with_a_different_or_missing_value_proves_nothing(
    lost: Lost, sandbox: Sandbox
) -> None:
    """The portal returns no copy of the document, so the listing row decides."""
    different: list[dict[str, Any]] = [
        {"payable": Decimal("104.77")},
        {"payable": None},
        {"net": Decimal("97.01")},
        {"excluding_tax": Decimal("96.99")},
        {"buyer_name": "Somebody Else"},
        {"buyer_tin": "C99999999990"},
        {"receiver_name": "Somebody Else"},
        {"buyer_tin": None, "buyer_name": None, "receiver_name": None},
        {"issuer_tin": None},
        {"type_code": None},
        {"issued_at": None},
    ]
    await sandbox.fault("raw", "forget", times=1 + len(different))
    found = await lost.match()
    assert uuids(found.proven) == [lost.row.uuid]
    for changes in different:
        found = await lost.match(**changes)
        assert not found.proven and len(found.unproven[lost.claim.id]) == 1, changes


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "html", "status": 403},
        {"kind": "html", "status": 404},
        {"kind": "refuse", "status": 403, "code": "Forbidden"},
        {"kind": "refuse", "status": 400, "code": "BadArgument"},
    ],
    ids=lambda fault: f"{fault['kind']}-{fault['status']}",
)
async def test_unspecific_rejection_of_a_copy_postpones_the_decision(
    lost: Lost, sandbox: Sandbox, fault: dict[str, Any]
) -> None:
    await sandbox.fault("raw", **fault)
    found = await lost.match(payable=None)
    assert found.undecided and not found.proven and not found.unproven
    found = await lost.match(payable=None)
    assert found.proven and not found.undecided


async def test_missing_copy_is_accepted_at_the_second_attempt(lost: Lost, sandbox: Sandbox) -> None:
    await sandbox.fault("raw", "forget", times=2)
    found = await lost.match(payable=None)
    assert found.unproven and found.undecided and not found.proven
    lost.submission = replace(lost.submission, sightings=found.shown(lost.claim.id))
    found = await lost.match(payable=None)
    assert found.unproven and not found.undecided and not found.proven
    found = await lost.match(payable=None)
    assert found.proven and not found.undecided and not found.unproven


@pytest.mark.parametrize(
    "body, is_missing",
    [
        (
            {
                "error": {
                    "code": "NotFound",
                    "message": "It was not found.",
                    "target": "uuid",
                    "details": None,
                }
            },
            True,
        ),
        (
            {"error": {"errorCode": "NotFound", "error": "It was not found.", "innerError": None}},
            True,
        ),
        (
            {"type": "about:blank", "title": "Not Found", "status": 404, "traceId": "00-5b-8a-00"},
            True,
        ),
        ({"code": 404, "message": "Resource not found"}, False),
        ({"status": 404, "error": "Not Found", "path": "/"}, False),
        ({"error": {"code": "BadArgument", "message": "It is not valid."}}, False),
        (["NotFound"], False),
        (None, False),
    ],
)
def test_only_a_404_of_the_portal_itself_means_missing(body: Any, is_missing: bool) -> None:
    assert Refused("It refuses.", status=404, body=body).is_missing == is_missing
    assert not Refused("It refuses.", status=403, body=body).is_missing


async def test_gateway_rejection_does_not_rule_out_the_first_send(
    lost: Lost, context: CompanyContext, sandbox: Sandbox
) -> None:
    errors = [{"code": "DV302", "path": "", "message": f"It equals document {lost.row.uuid}."}]
    sent = (context, lost.claim, lost.submission, lost.submission.docs[0])
    for operation in ("details", "raw"):
        await sandbox.fault(operation, "html", status=403)
        with pytest.raises(Unclear):
            await find_first_send(*sent, errors)
    adopted = await find_first_send(*sent, errors)
    assert adopted
    there, seen = adopted
    assert there.uuid == seen.uuid == lost.row.uuid


@pytest.mark.parametrize("operation", ["details", "raw"])
async def test_a_missing_first_send_of_a_resent_document_decides_nothing(
    lost: Lost, context: CompanyContext, sandbox: Sandbox, operation: str
) -> None:
    """The portal does not show a document for some seconds."""
    errors = [{"code": "DV302", "path": "", "message": f"It equals document {lost.row.uuid}."}]
    resent = replace(lost.submission, possibly_received=True)
    await sandbox.fault(operation, "forget")
    with pytest.raises(Unclear):
        await find_first_send(context, lost.claim, resent, resent.docs[0], errors)
    assert await find_first_send(context, lost.claim, resent, resent.docs[0], errors)


@pytest.fixture
async def lost_and_valid(idle: Client, neighbour: Company, sandbox: Sandbox) -> Any:
    """Return the id of an invoice that the portal found Valid and whose response was lost."""
    invoice_id = await create_lost_invoice(idle, sandbox)
    await until(sandbox.ledger, lambda entries: [entry["status"] for entry in entries] == ["Valid"])
    return invoice_id


@pytest.mark.parametrize(
    "fault", [{"kind": "html", "status": 403}, {"kind": "forget"}], ids=lambda fault: fault["kind"]
)
async def test_single_rejection_of_a_copy_needs_no_manual_review(
    start: StartService, lost_and_valid: int, sandbox: Sandbox, fault: dict[str, Any]
) -> None:
    await sandbox.fault("raw", **fault)
    api = await start(**QUICK)
    await wait_for_status(api, lost_and_valid, "Valid")
    assert len(await sandbox.ledger()) == 1 and await sandbox.count_calls("raw") > 1


async def test_copy_that_stays_missing_needs_manual_review(
    start: StartService, lost_and_valid: int, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    await sandbox.fault("raw", "forget", times=1000)
    await start(**QUICK)
    error = "select last_error ->> 'code' from submissions where state = 'NeedsPerson'"
    assert await until(lambda: owner.fetchval(error)) == "NotProven"
    assert await sandbox.count_calls("raw") > 1 and len(await sandbox.ledger()) == 1


@pytest.mark.parametrize(
    "error",
    [NotSent("It is away."), Held("Later.", retry_after=timedelta(seconds=1), operation="raw")],
)
async def test_unavailable_copy_postpones_the_decision(
    lost: Lost, context: CompanyContext, sandbox: Sandbox, error: Any
) -> None:
    async def limit(operation: str, tin: str, further: bool, own_client: str | None) -> None:
        if operation == "raw":
            raise error

    context.portal = context.portal.through(limit)
    found = await lost.match(payable=None)
    assert found.undecided == {lost.claim.id: error} and not found.proven and not found.unproven
    by_row = await lost.match()
    assert bool(by_row.proven) == isinstance(error, Held)


async def test_many_unknown_outcomes_are_proven_by_listing_rows(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """No copy is fetched, because the listing resolves more outcomes than copies are allowed."""
    count = MOST_COPIES + 5
    idle = await start(background=False)
    await sandbox.fault("submit", "accept_then_drop", times=count)
    ids = [await create_invoice(idle) for _ in range(count)]
    for part in range(0, count, 5):
        await asyncio.gather(*[submit(idle, invoice_id) for invoice_id in ids[part : part + 5]])
    await owner.execute("update submissions set lease_until = null, not_before = now()")
    await start()
    valid = "select count(*) from document_states where status = 'Valid'"
    assert await until(lambda: owner.fetchval(valid), lambda found: found == count, seconds=40)
    assert await sandbox.count_calls("raw") == 0 and len(await sandbox.ledger()) == count


async def test_invalid_document_with_a_lost_response_shows_its_errors(
    api: Client, sandbox: Sandbox
) -> None:
    """The portal returns no copy of an Invalid document, so the listing row proves it."""
    stranger = {"type": "LOCAL_COMPANY", "name": "Stranger Sdn. Bhd.", "tin": "C25000000010"}
    registration = {
        "registration": {"type": "BRN", "number": "202301000001"},
        "contactNumber": "+60123456789",
    }
    address = {
        "address": {
            "line1": "1 Jalan Ipoh",
            "city": "Ipoh",
            "state": "08",
            "zipCode": "30000",
            "country": "MYS",
        }
    }
    await sandbox.settings(strict_register=True)
    invoice_id = await create_lost_invoice(
        api, sandbox, buyer={**stranger, **registration, **address}
    )
    await wait_until_status(api, invoice_id, "Invalid")
    assert (await get_documents(api, invoice_id))[0]["errors"]


# Duplicate uuids


async def test_receipt_with_a_used_uuid_needs_manual_review(
    api: Client, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    theirs = await create_valid_invoice(api)
    uuid = (await get_documents(api, theirs))[0]["uuid"]
    await sandbox.fault("submit", "other_uuid", uuid=uuid)
    invoice_id = await create_invoice(api)
    status, body = await submit(api, invoice_id)
    assert status == 400 and uuid not in json.dumps(body)
    row: Any = await owner.fetchrow(
        """
            select state, last_error ->> 'code' as code, claims
              from submissions order by id desc limit 1
            """
    )
    assert tuple(row) == ("NeedsPerson", "UuidTaken", 0)
    assert (await get_invoice(api, invoice_id))["status"] == "Submitting" and (
        await get_invoice(api, theirs)
    )["status"] == "Valid"
    assert (await get_documents(api, invoice_id))[0]["uuid"] is None
    seen = await owner.fetch(
        "select via from portal_sightings where uuid = $1 order by submission_id", uuid
    )
    assert [row["via"] for row in seen] == ["submit", "submit"]


async def test_used_uuid_does_not_affect_other_documents_of_the_batch(
    idle: Client, start: StartService, sandbox: Sandbox, owner: asyncpg.Connection
) -> None:
    theirs = await create_submitted_invoice(idle)
    uuid = (await get_documents(idle, theirs))[0]["uuid"]
    await owner.execute(
        """update companies set setting = setting || '{"AUTO_SUBMIT_INVOICE": true}'"""
    )
    ids = [await create_invoice(idle, isReady=True) for _ in range(3)]
    await sandbox.fault("submit", "other_uuid", uuid=uuid)
    await start()
    statuses = "select status from document_states where id = any ($1) order by status"
    done = ["Submitting", "Valid", "Valid"]
    await until(
        lambda: owner.fetch(statuses, ids), lambda rows: [row["status"] for row in rows] == done
    )
    codes = await owner.fetch(
        "select last_error ->> 'code' as code from submissions where state = 'NeedsPerson'"
    )
    assert [row["code"] for row in codes] == ["UuidTaken"]


async def test_concurrent_adoptions_of_one_uuid_succeed_once(
    start: StartService,
    company: Company,
    neighbour: Company,
    sandbox: Sandbox,
    owner: asyncpg.Connection,
    context: CompanyContext,
) -> None:
    claims = []
    for each in (company, neighbour):
        idle = await start(each, background=False)
        await sandbox.fault("submit", "accept_then_drop")
        assert (await submit(idle, await create_invoice(idle)))[0] == 400
        claims.append(await load_latest(owner, context))
    await owner.execute(
        "update submissions set lease_until = now() + interval '1 hour', state = 'Uncertain'"
    )
    claims = [(claim, replace(submission, state="Uncertain")) for claim, submission in claims]

    def adopted(submission: Any) -> Any:
        seen = (Sighting(submission.docs[0].id, "7G3KX2M9QPWZ41VTB8RHNYDC10", "S", "search"),)
        return state_machine.step(submission, SightingsReceived(seen), context.config)[1][-1]

    results = await asyncio.gather(
        *[
            records.write(context, claim, submission, adopted(submission))
            for claim, submission in claims
        ]
    )
    assert results == [True, True]
    rows = await owner.fetch(
        "select state, last_error ->> 'code' as code from submissions order by state"
    )
    assert [tuple(row) for row in rows] == [("Accepted", None), ("NeedsPerson", "UuidTaken")]

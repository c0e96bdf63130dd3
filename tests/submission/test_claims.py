"""Lost or returned claims change nothing, but sightings are recorded in any case."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from service import json_codec
from service.db.statements import sql
from service.portal.errors import NotSent
from service.submission import store as results
from service.submission.context import SUBMISSION_CONTEXT, Claim, SubmissionContext
from service.submission.machine import state_machine
from service.submission.machine.types import Change, RecordSightings, Sighting, Write
from service.submission.own_clients import sign_in
from service.submission.runner import SubmissionRun
from service.submission.sending.send import PortalTransmission, StoredRequest, send
from tests.api_invoices import create_invoice, create_valid_invoice
from tests.api_reads import read_request, wait_until_status
from tests.api_requests import submit
from tests.conftest import Client, Company, Sandbox, StartService, until
from tests.harness.companies import AUTOMATIC

#: The claim on the comparison of a company, by this process.
COMPARE = """insert into comparisons (company_id, fence, lease_until)
             values ($1, 1, now() + interval '1 minute')"""
CHANGE_BYTES = "update submitted_contents set content = content || 'x'"
HASH_BYTES = """update submitted_documents set document_hash = encode(sha256(content), 'hex')
                  from submitted_contents where submitted_document_id = id"""
ANOTHER_DOCUMENT = "update submitted_documents set document_hash = 'x'"
LEASE, DELAY = timedelta(seconds=60), timedelta(seconds=1)
#: Arguments of each statement that acts for a claim, without the claim. Each statement changes a
#: claimed row.
STATEMENTS = {
    "submission_send": {"lease": LEASE, "client_id": "sandbox-client", "is_own": False},
    "submission_set_aside": {"delay": DELAY},
}
MOVE = {
    "expected": "Queued",
    "next": "NotReceived",
    "reads": 3,
    "confirms_absence": False,
    "still_sent": False,
    "possibly_received": False,
    "has_outcome": False,
    "delay": 1,
    "submission_uid": None,
    "last_error": None,
}
#: Statements that act for several claims of a company: the arguments for one claim.
BATCHES = {
    "submission_move": lambda claim: {
        "moves": json_codec.dumps([{**MOVE, "id": claim.id, "fence": claim.fence}]),
    },
    "submission_release": lambda claim: {
        "given": json_codec.dumps([{"id": claim.id, "fence": claim.fence, "delay": 1}]),
    },
    "comparison_keep": lambda claim: {
        "fence": 1,
        "lease": 2 * LEASE,
        "ids": [claim.id],
        "fences": [claim.fence],
    },
}


@dataclass(frozen=True, slots=True)
class Claimed:
    """A Queued submission of one invoice, claimed by this process."""

    context: SubmissionContext
    claim: Claim
    invoice_id: int
    owner: asyncpg.Connection
    request: StoredRequest

    async def run(self, name: str, claim: Claim | None = None, **values: object) -> Any:
        """Run a statement for a claim, by default the valid one."""
        claim = claim or self.claim
        statement = getattr(sql, name)
        if "request_sha256" in statement.variables:
            hashes = self.request.document_hashes
            request = {"request_sha256": self.request.sha256, "document_hashes": hashes}
            values = {**request, **values}
        async with self.context.database.company(claim.company_id) as conn:
            return await statement(
                conn, **claim.key, fence=claim.fence, **STATEMENTS[name], **values
            )

    async def run_batch(self, name: str) -> None:
        """Run a statement that acts for several claims, for this claim only."""
        company_id = self.claim.company_id
        async with self.context.database.company(company_id) as conn:
            await self.owner.execute(COMPARE, company_id)
            await getattr(sql, name)(conn, company_id=company_id, **BATCHES[name](self.claim))

    async def rows(self) -> list[str]:
        """Return the submission, its document and its invoice as JSON."""
        query = " union all ".join(
            f"select to_jsonb(t)::text from {table} t"
            for table in ("submissions", "submitted_documents", "documents")
        )
        return [row[0] for row in await self.owner.fetch(query)]

    async def submission(self) -> Any:
        return await self.owner.fetchrow("select * from submissions")


@pytest.fixture
async def claimed(idle: Client, owner: asyncpg.Connection) -> Claimed:
    await owner.execute(AUTOMATIC)
    invoice_id = await create_invoice(idle, isReady=True)
    await owner.execute("update submissions set not_before = now() - interval '1 hour'")
    context = idle.app[SUBMISSION_CONTEXT]
    async with context.database.across() as conn:
        (row,) = await sql.claim_submissions(
            conn, lease=LEASE, most=9, states=["Queued"], suspects=1
        )
    _, request = await read_request(owner)
    claim = Claim(row["company_id"], row["id"], row["fence"])
    return Claimed(context, claim, invoice_id, owner, request)


@pytest.mark.parametrize("name", [*STATEMENTS, *BATCHES])
async def test_statement_for_a_valid_claim_changes_the_row(claimed: Claimed, name: str) -> None:
    before = await claimed.rows()
    await (claimed.run if name in STATEMENTS else claimed.run_batch)(name)
    assert await claimed.rows() != before


@pytest.mark.parametrize("name", STATEMENTS)
async def test_statement_for_a_lost_claim_changes_nothing(claimed: Claimed, name: str) -> None:
    await claimed.owner.execute("update submissions set fence = fence + 1")
    before = await claimed.rows()
    assert await claimed.run(name) in (None, "UPDATE 0")
    assert await claimed.rows() == before


@pytest.mark.parametrize("change", ["fence = fence + 1", "lease_until = null"])
@pytest.mark.parametrize("name", BATCHES)
async def test_batch_statement_for_a_lost_claim_changes_nothing(
    claimed: Claimed, name: str, change: str
) -> None:
    await claimed.owner.execute(f"update submissions set {change}")
    before = await claimed.rows()
    await claimed.run_batch(name)
    assert await claimed.rows() == before


async def test_a_stored_result_resets_the_claims_without_a_result(claimed: Claimed) -> None:
    await claimed.owner.execute("update submissions set claims = 3")
    await claimed.run_batch("submission_move")
    assert (await claimed.submission())["claims"] == 0


async def test_claim_is_not_renewed_once_another_process_compares(claimed: Claimed) -> None:
    company_id, before = claimed.claim.company_id, await claimed.rows()
    await claimed.owner.execute(COMPARE, company_id)
    await claimed.owner.execute("update comparisons set fence = 2")
    async with claimed.context.database.company(company_id) as conn:
        kept = BATCHES["comparison_keep"](claimed.claim)
        assert await sql.comparison_keep(conn, company_id=company_id, **kept) is None
    assert await claimed.rows() == before


@pytest.mark.parametrize("suspects", [0, 1, 2])
async def test_claims_take_at_most_the_allowed_number_of_suspects(
    idle: Client, claimed: Claimed, suspects: int
) -> None:
    """Work on three of five submissions began before and gave no result."""
    for _ in range(4):
        await create_invoice(idle, isReady=True)
    await claimed.owner.execute(
        "update submissions set state = 'Sending', first_sent_at = now(), last_sent_at = now(),"
        " lease_until = null, not_before = now() - interval '1 hour',"
        " claims = (id <> all (array(select id from submissions order by id limit 2)))::int"
    )
    async with claimed.context.database.across() as conn:
        rows = await sql.claim_submissions(
            conn, lease=LEASE, most=9, states=None, suspects=suspects
        )
    assert len(rows) == 2 + suspects


async def test_claim_lost_to_a_live_process_is_not_counted(claimed: Claimed) -> None:
    submission: Any = await results.load(claimed.context, claimed.claim)
    await claimed.owner.execute("update submissions set fence = fence + 1, claims = claims + 1")
    assert not await results.write(claimed.context, claimed.claim, submission, Write("NotReceived"))
    assert (await claimed.submission())["claims"] == 1
    await results.write_batch(
        claimed.context,
        claimed.claim.company_id,
        [(claimed.claim, submission, Write("NotReceived"))],
    )
    row = await claimed.submission()
    assert (row["claims"], row["state"]) == (0, "Queued")


@pytest.mark.parametrize("state", ["Sending", "Uncertain", "Accepted"])
async def test_only_a_queued_submission_is_marked_as_sending(claimed: Claimed, state: str) -> None:
    sent = "last_sent_at = now(), first_sent_at = now()"
    await claimed.owner.execute(f"update submissions set state = $1, {sent}", state)
    before = await claimed.rows()
    assert await claimed.run("submission_send") is None
    assert await claimed.rows() == before


@pytest.mark.parametrize(
    "change", [ANOTHER_DOCUMENT, "update submissions set request_sha256 = 'x'"]
)
async def test_no_intent_is_committed_for_another_request(claimed: Claimed, change: str) -> None:
    await claimed.owner.execute(change)
    before = await claimed.rows()
    assert await claimed.run("submission_send") is None
    assert await claimed.rows() == before


@pytest.mark.parametrize(
    ("was_sent", "change"), [(False, CHANGE_BYTES), (True, f"{CHANGE_BYTES}; {HASH_BYTES}")]
)
async def test_changed_documents_are_not_sent(
    claimed: Claimed, sandbox: Sandbox, was_sent: bool, change: str
) -> None:
    """The portal would take them for other documents."""
    if was_sent:
        assert await claimed.run("submission_send")
    await claimed.owner.execute(f"update submissions set state = 'Queued'; {change}")
    await send(await sign_in(claimed.context, claimed.claim.company_id), claimed.claim)
    row = await claimed.submission()
    assert (row["state"], json_codec.loads(row["last_error"].encode())["code"]) == (
        "NeedsPerson",
        "RequestChanged",
    )
    assert not await sandbox.ledger()


@pytest.mark.parametrize(
    "change",
    [
        "insert into sending_holds (company_id, reason) "
        "select company_id, 'A restore.' from submissions",
        "update database_state set identity = 'another database'",
    ],
)
async def test_no_submission_is_marked_as_sending_during_a_sending_hold(
    claimed: Claimed, change: str
) -> None:
    await claimed.owner.execute(change)
    before = await claimed.rows()
    assert await claimed.run("submission_send") is None
    assert await claimed.rows() == before


async def test_an_intent_whose_confirmation_changes_during_its_commit_is_not_sent(
    api: Client, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """Evidence begins after the transaction has read that there is none."""
    await owner.execute(
        """
        create function begin_evidence() returns trigger security definer language plpgsql as $$
        begin
          update database_state
             set standbys = '{b}', guarded_until = clock_timestamp() + interval '1 hour';
          return null;
        end $$;
        create trigger begin_evidence after update on submissions
           for each row when (new.state = 'Sending') execute function begin_evidence();
        """
    )
    invoice_id = await create_invoice(api)
    status, body = await submit(api, invoice_id)
    assert (status, body["code"]) == (400, "sending_held")
    assert not await sandbox.ledger()


async def test_expired_intent_is_not_sent(claimed: Claimed, sandbox: Sandbox) -> None:
    """The process paused between the intent and the send; its claim may be lost by now."""
    submission: Any = await results.load(claimed.context, claimed.claim)
    context = await sign_in(claimed.context, claimed.claim.company_id)
    async with AsyncExitStack() as stack:
        request = PortalTransmission(context, SubmissionRun(claimed.claim, submission), stack)
        assert await request.admit() is None and await request.connect() is None
        assert await request.commit_intent()
        request.began -= 60
        with pytest.raises(NotSent):
            await request.send()
    assert not await sandbox.ledger()


async def test_result_for_a_lost_claim_changes_no_document(claimed: Claimed) -> None:
    submission: Any = await results.load(claimed.context, claimed.claim)
    rejected = Write(
        "NotReceived", tuple(Change(doc.id, "Rejected", errors=[]) for doc in submission.docs)
    )
    await claimed.owner.execute("update submissions set fence = fence + 1, claims = 0")
    before = await claimed.rows()
    assert not await results.write(claimed.context, claimed.claim, submission, rejected)
    assert await claimed.rows() == before


async def test_sighting_is_recorded_for_a_lost_claim(claimed: Claimed) -> None:
    submission: Any = await results.load(claimed.context, claimed.claim)
    await claimed.owner.execute("update submissions set fence = fence + 1")
    ways = ["damaged answer", "submit"]
    for via in ways:
        shown = RecordSightings((Sighting(submission.docs[0].id, "U1", "S1", via),))
        await results.record_sightings(
            claimed.context, claimed.claim.company_id, [(claimed.claim, submission, shown)]
        )
    rows = await claimed.owner.fetch("select uuid, via from portal_sightings order by seen_at")
    assert [tuple(row) for row in rows] == [("U1", via) for via in ways]


async def test_unclear_send_resets_absence_confirmations(claimed: Claimed) -> None:
    old = "now() - interval '1 hour'"
    await claimed.owner.execute(
        f"update submissions set state = 'Sending', first_sent_at = {old}, last_sent_at = {old},"
        f" absence_confirmations = 1, absence_confirmed_at = {old}"
    )
    submission: Any = await results.load(claimed.context, claimed.claim)
    assert await results.write(
        claimed.context, claimed.claim, submission, Write("Uncertain", still_sent=True)
    )
    row = await claimed.submission()
    assert (row["state"], row["absence_confirmations"], row["absence_confirmed_at"]) == (
        "Uncertain",
        0,
        None,
    )
    assert row["last_sent_at"] >= submission.now > row["first_sent_at"]


async def test_stale_status_does_not_overwrite_a_later_one(claimed: Claimed) -> None:
    """A poll was answered before the document was cancelled, and is written afterwards."""
    await claimed.owner.execute("update submitted_documents set status = 'Cancelled', uuid = 'U1'")
    before = await claimed.rows()
    company = claimed.claim.company_id
    async with claimed.context.database.company(company) as conn:
        document_id: Any = await claimed.owner.fetchval("select id from submitted_documents")
        await results.apply_changes(conn, company, [Change(document_id, "Valid")])
    assert await claimed.rows() == before


async def claim_cancellation(api: Client, owner: asyncpg.Connection) -> int:
    """Claim the cancellation of a Valid document with fence 5, and return the document's id."""
    await create_valid_invoice(api)
    document_id: Any = await owner.fetchval(
        "update submitted_documents "
        "set cancelling_until = now() + interval '1 hour', cancel_fence = 5 returning id"
    )
    return document_id


async def test_end_of_a_lost_cancellation_changes_nothing(
    api: Client, company: Company, owner: asyncpg.Connection
) -> None:
    key = {"company_id": company.id, "id": await claim_cancellation(api, owner)}
    async with api.app[SUBMISSION_CONTEXT].database.company(company.id) as conn:
        assert await sql.cancellation_end(conn, **key, fence=4, is_unclear=False) is None
        assert await sql.cancellation_end(conn, **key, fence=5, is_unclear=False)
    assert await owner.fetchval("select cancelling_until is null from submitted_documents")


async def test_result_of_a_lost_cancellation_changes_nothing(
    api: Client, company: Company, owner: asyncpg.Connection
) -> None:
    key = {"company_id": company.id, "id": await claim_cancellation(api, owner)}
    look = {"delay": timedelta(0), "sent_by": None, "is_unclear": True}
    async with api.app[SUBMISSION_CONTEXT].database.company(company.id) as conn:
        assert await sql.cancellation_wait(conn, **key, fence=4, **look) is None
        assert await sql.cancellation_wait(conn, **key, fence=5, **look)
    assert await owner.fetchval("select cancel_reads from submitted_documents") == 1


#: A trigger that fails every update of a document to a status with a SQLSTATE. It counts failures
#: in a sequence, which a rollback does not reset.
FAIL_RESULTS = """
create sequence failures;
create function fail_result() returns trigger language plpgsql as $$
begin
  perform nextval('failures');
  raise exception using errcode = '{state}', message = 'planned';
end $$;
grant usage on sequence failures to public;
create trigger fail_results before update on submitted_documents for each row
  when (new.status = '{status}') execute function fail_result();
"""
LASTING = ("22023", "57014")  # an invalid value, a statement timeout
PASSING = "57P01"  # a server shutdown
FORMER_CLAIMS = state_machine.MOST_CLAIMS - 2


async def make_results_fail(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    status: str = "Valid",
) -> tuple[Any, int]:
    """Return (client, invoice id) of a service that cannot set a document to a status.

    FORMER_CLAIMS have given no result before.
    """
    monkeypatch.setattr(results, "REPEATS", ())
    await owner.execute(FAIL_RESULTS.format(state=state, status=status))
    idle = await start(company, background=False)
    invoice_id = await create_invoice(idle)
    await submit(idle, invoice_id)
    await owner.execute("update submissions set claims = $1, lease_until = null", FORMER_CLAIMS)
    api = await start(company, PORTAL_RETRY_SECONDS="0.05", PORTAL_LEASE_SECONDS="0.5")
    return api, invoice_id


async def test_transient_database_errors_are_not_counted(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, invoice_id = await make_results_fail(start, company, owner, monkeypatch, PASSING)
    await until(
        lambda: owner.fetchval("select last_value from failures"),
        lambda n: (n or 0) > 3,
    )
    claims: Any = await owner.fetchval("select max(claims) from submissions")
    assert claims <= FORMER_CLAIMS + 1
    await owner.execute("drop trigger fail_results on submitted_documents")
    await wait_until_status(api, invoice_id, "Valid")


async def test_submit_that_the_database_interrupts_is_continued_by_a_worker(
    start: StartService,
    owner: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The claim of the request is released. Its lease is longer than a test takes."""
    monkeypatch.setattr(results, "REPEATS", ())
    await owner.execute(FAIL_RESULTS.format(state=PASSING, status="Submitted"))
    api = await start(background=False, PORTAL_LEASE_SECONDS="3600")
    invoice_id = await create_invoice(api)
    status, body = await submit(api, invoice_id)
    assert (status, body["code"]) == (400, "outcome_unknown")
    await owner.execute("drop trigger fail_results on submitted_documents")
    assert await owner.fetchval("select lease_until from submissions") is None
    assert not [record for record in caplog.records if record.name == "asyncio"]
    await start(PORTAL_LEASE_SECONDS="3600")
    await wait_until_status(api, invoice_id, "Valid")


@pytest.mark.parametrize("sqlstate", LASTING)
async def test_result_that_the_database_rejects_needs_manual_review(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    sqlstate: str,
) -> None:
    await make_results_fail(start, company, owner, monkeypatch, sqlstate)
    state = "select state from submissions"
    await until(lambda: owner.fetchval(state), lambda found: found == "NeedsPerson")
    assert await owner.fetchval("select last_value from failures") == 2


@pytest.mark.long
@pytest.mark.parametrize("sqlstate", LASTING)
async def test_adoption_that_the_database_rejects_needs_manual_review(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    sqlstate: str,
) -> None:
    """The portal has the document, its response was lost, and the listing shows it."""
    await sandbox.fault("submit", "accept_then_drop")
    await make_results_fail(start, company, owner, monkeypatch, sqlstate, status="Submitted")
    await until(
        lambda: owner.fetchval("select state from submissions"),
        lambda found: found == "NeedsPerson",
    )


async def test_a_claim_lost_by_a_failover_has_another_token_than_later_ones(
    claimed: Claimed,
) -> None:
    """A failover takes the latest claim back, whose process may still run."""
    await claimed.owner.execute("update submissions set fence = 1, lease_until = null")
    claim = "select fence from claim_submissions('1s', 9)"
    lost: Any = await claimed.owner.fetchval(claim)
    await claimed.owner.execute("update submissions set fence = 1, lease_until = null")
    later: Any = await claimed.owner.fetchval(claim)
    assert later > lost > 1

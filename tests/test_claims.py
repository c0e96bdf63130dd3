"""A claim that was lost, or given back, changes nothing; what the portal showed is recorded all the same."""

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from conftest import Sandbox, until
from kit import created, record, submitted, valid_invoice

from service import json_codec
from service.db.statements import sql
from service.submission import state_machine
from service.submission import store as results
from service.submission.context import SUBMISSION_CONTEXT, Claim, SubmissionContext
from service.submission.send import transmission
from service.submission.types import (
    Change,
    Connect,
    Connected,
    Keep,
    NotReceived,
    Send,
    Sighting,
    Write,
)

AUTOMATIC = """update companies set setting = setting || '{"AUTO_SUBMIT_INVOICE": true}'"""
LEASE, DELAY = timedelta(seconds=60), timedelta(seconds=1)
#: What each statement that acts for a claim takes besides its claim; all of them change a row that
#: is claimed.
OF_QUEUED = {
    "submission_send": {"lease": LEASE},
    "submission_give_back": {"delay": DELAY},
    "submission_set_aside": {"delay": DELAY},
}
#: Those that change nothing, either, once the claim was given back.
OF_THE_LEASED = {"submission_give_back", "submission_move"}
MOVE = {
    "expected": "Queued",
    "next": "NotReceived",
    "looks": 3,
    "confirms_absence": False,
    "still_sent": False,
    "possibly_received": False,
    "has_outcome": False,
    "delay": DELAY,
    "submission_uid": None,
    "last_error": None,
}
STATEMENTS = {**OF_QUEUED, "submission_move": MOVE}
#: Statements that act for several claims of one company: what each takes for one claim.
BATCHES = {
    "submission_move_batch": lambda claim: {
        "moves": json_codec.dumps([{**MOVE, "id": claim.id, "fence": claim.fence, "delay": 1}]),
    },
    "submission_release_batch": lambda claim: {
        "given": json_codec.dumps([{"id": claim.id, "fence": claim.fence, "delay": 1}]),
        "counted": 1,
    },
    "reconciliation_keep": lambda claim: {
        "fence": 1,
        "lease": 2 * LEASE,
        "ids": [claim.id],
        "fences": [claim.fence],
    },
}


@dataclass(frozen=True, slots=True)
class Claimed:
    """A submission that this process has claimed: Queued, of one invoice."""

    context: SubmissionContext
    claim: Claim
    invoice_id: int
    owner: asyncpg.Connection

    async def run(self, name: str, claim: Claim | None = None, **values: object) -> Any:
        """Run a statement for a claim, by default the one that holds."""
        claim = claim or self.claim
        async with self.context.database.company(claim.company_id) as conn:
            return await getattr(sql, name)(
                conn, **claim.key, fence=claim.fence, **STATEMENTS[name], **values
            )

    async def run_batch(self, name: str) -> None:
        """Run a statement that acts for several claims, for this one."""
        company_id = self.claim.company_id
        async with self.context.database.company(company_id) as conn:
            await sql.reconciliation_begin(conn, company_id=company_id, lease=LEASE)
            await getattr(sql, name)(conn, company_id=company_id, **BATCHES[name](self.claim))

    async def rows(self) -> list[str]:
        """The submission, its document and its invoice, as JSON."""
        query = " union all ".join(
            f"select to_jsonb(t)::text from {table} t"
            for table in ("submissions", "submitted_documents", "invoices")
        )
        return [row[0] for row in await self.owner.fetch(query)]

    async def submission(self) -> asyncpg.Record:
        return await self.owner.fetchrow("select * from submissions")


@pytest.fixture
async def claimed(start: Any, company: Any, owner: asyncpg.Connection) -> Claimed:
    api = await start(company, background=False)
    await owner.execute(AUTOMATIC)
    invoice_id = await created(api, isReady=True)
    await owner.execute("update submissions set not_before = now() - interval '1 hour'")
    context = api.app[SUBMISSION_CONTEXT]
    async with context.database.across() as conn:
        (row,) = await sql.submission_claim(
            conn, lease=LEASE, most=9, states=["Queued"], suspects=1
        )
    return Claimed(context, Claim(row["company_id"], row["id"], row["fence"]), invoice_id, owner)


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_statement_for_a_claim_that_holds_changes_the_row(
    claimed: Claimed, name: str
) -> None:
    before = await claimed.rows()
    await claimed.run(name)
    assert await claimed.rows() != before


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_statement_for_a_lost_claim_changes_nothing(claimed: Claimed, name: str) -> None:
    await claimed.owner.execute("update submissions set fence = fence + 1")
    before = await claimed.rows()
    assert await claimed.run(name) in (None, "UPDATE 0")
    assert await claimed.rows() == before


@pytest.mark.parametrize("name", sorted(OF_THE_LEASED))
async def test_a_statement_for_a_returned_claim_changes_nothing(
    claimed: Claimed, name: str
) -> None:
    await claimed.owner.execute("update submissions set lease_until = null")
    before = await claimed.rows()
    assert await claimed.run(name) in (None, "UPDATE 0")
    assert await claimed.rows() == before


@pytest.mark.parametrize("name", BATCHES)
async def test_a_batch_statement_for_a_claim_that_holds_changes_the_row(
    claimed: Claimed, name: str
) -> None:
    before = await claimed.rows()
    await claimed.run_batch(name)
    assert await claimed.rows() != before


@pytest.mark.parametrize("change", ["fence = fence + 1", "lease_until = null"])
@pytest.mark.parametrize("name", BATCHES)
async def test_a_batch_statement_for_a_lost_claim_changes_nothing(
    claimed: Claimed, name: str, change: str
) -> None:
    await claimed.owner.execute(f"update submissions set {change}")
    before = await claimed.rows()
    await claimed.run_batch(name)
    assert await claimed.rows() == before


async def test_nothing_is_renewed_once_another_process_reconciles(claimed: Claimed) -> None:
    company_id, before = claimed.claim.company_id, await claimed.rows()
    async with claimed.context.database.company(company_id) as conn:
        await sql.reconciliation_begin(conn, company_id=company_id, lease=-LEASE)
        assert await sql.reconciliation_begin(conn, company_id=company_id, lease=LEASE) == 2
        assert await sql.reconciliation_begin(conn, company_id=company_id, lease=LEASE) is None
        kept = BATCHES["reconciliation_keep"](claimed.claim)
        assert await sql.reconciliation_keep(conn, company_id=company_id, **kept) is None
    assert await claimed.rows() == before


async def test_a_claim_that_was_lost_to_a_live_process_is_not_counted(claimed: Claimed) -> None:
    submission = await results.load(claimed.context, claimed.claim)
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
    "change",
    [
        "insert into sending_holds (company_id, reason) select company_id, 'A restore.' from submissions",
        "update database_identities set identity = 'another database'",
    ],
)
async def test_nothing_is_marked_as_sending_while_sending_is_held(
    claimed: Claimed, change: str
) -> None:
    await claimed.owner.execute(change)
    before = await claimed.rows()
    assert await claimed.run("submission_send") is None
    assert await claimed.rows() == before


async def test_an_intent_that_grew_old_is_not_sent(claimed: Claimed, sandbox: Sandbox) -> None:
    """The process was held up between the intent and the bytes: the claim may be somebody else's by now."""
    submission = await results.load(claimed.context, claimed.claim)
    body = await claimed.owner.fetchval("select body from submissions")
    await claimed.context.portal.ready(submission.tin)
    async with transmission() as asks:
        assert isinstance(
            await asks[Connect](claimed.context, claimed.claim, submission, Connect()), Connected
        )
        event = await asks[Send](
            claimed.context, claimed.claim, submission, Send(body, time.monotonic() - 60)
        )
    assert isinstance(event, NotReceived)
    assert not await sandbox.ledger()


async def test_a_result_for_a_lost_claim_leaves_the_documents_alone(claimed: Claimed) -> None:
    submission = await results.load(claimed.context, claimed.claim)
    rejected = Write(
        "NotReceived", tuple(Change(doc.id, "Rejected", errors=[]) for doc in submission.docs)
    )
    await claimed.owner.execute("update submissions set fence = fence + 1, claims = 0")
    before = await claimed.rows()
    assert not await results.write(claimed.context, claimed.claim, submission, rejected)
    assert await claimed.rows() == before


async def test_evidence_is_recorded_also_for_a_lost_claim(claimed: Claimed) -> None:
    submission = await results.load(claimed.context, claimed.claim)
    await claimed.owner.execute("update submissions set fence = fence + 1")
    await results.keep(
        claimed.context,
        claimed.claim,
        submission,
        Keep((Sighting(submission.docs[0].id, "U1", "S1", "submit"),)),
    )
    assert await claimed.owner.fetchval("select array_agg(uuid) from portal_sightings") == ["U1"]


async def test_an_unclear_send_voids_earlier_proofs_of_absence(claimed: Claimed) -> None:
    old = "now() - interval '1 hour'"
    await claimed.owner.execute(
        f"update submissions set state = 'Sending', first_sent_at = {old}, last_sent_at = {old},"
        f" absence_confirmations = 1, absence_confirmed_at = {old}"
    )
    submission = await results.load(claimed.context, claimed.claim)
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


async def test_a_document_does_not_return_to_a_state_that_it_has_left(claimed: Claimed) -> None:
    """A look at the portal that was answered before the document was cancelled, and is written afterwards."""
    await claimed.owner.execute("update submitted_documents set status = 'Cancelled', uuid = 'U1'")
    before = await claimed.rows()
    company = claimed.claim.company_id
    async with claimed.context.database.company(company) as conn:
        (document_id,) = await claimed.owner.fetchrow("select id from submitted_documents")
        await results.apply(conn, company, [Change(document_id, "Valid")])
    assert await claimed.rows() == before


async def test_the_end_of_a_lost_cancellation_changes_nothing(
    api: Any, company: Any, owner: asyncpg.Connection
) -> None:
    await valid_invoice(api)
    document_id = await owner.fetchval(
        "update submitted_documents set cancelling_until = now() + interval '1 hour', cancel_fence = 5 returning id"
    )
    key = {"company_id": company.id, "id": document_id}
    async with api.app[SUBMISSION_CONTEXT].database.company(company.id) as conn:
        assert await sql.cancellation_end(conn, **key, fence=4, is_unclear=False) is None
        assert await sql.cancellation_end(conn, **key, fence=5, is_unclear=False)
    assert await owner.fetchval("select cancelling_until is null from submitted_documents")


async def test_the_result_of_a_lost_cancellation_changes_nothing(
    api: Any, company: Any, owner: asyncpg.Connection
) -> None:
    await valid_invoice(api)
    document_id = await owner.fetchval(
        "update submitted_documents set cancelling_until = now() + interval '1 hour', cancel_fence = 5 returning id"
    )
    look = {"delay": timedelta(0), "sent_by": None, "is_unclear": True}
    async with api.app[SUBMISSION_CONTEXT].database.company(company.id) as conn:
        assert (
            await sql.cancellation_wait(
                conn, company_id=company.id, id=document_id, fence=4, **look
            )
            is None
        )
        assert await sql.cancellation_wait(
            conn, company_id=company.id, id=document_id, fence=5, **look
        )
    assert await owner.fetchval("select cancel_looks from submitted_documents") == 1


#: Fails every update of a document to a status with a SQLSTATE, and counts in a sequence, which no
#: rollback undoes.
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
LASTING = ("22023", "57014")  # a value that is refused, a statement that ran too long
PASSING = "57P01"  # a shutdown of the server


async def make_results_fail(
    start: Any,
    company: Any,
    owner: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    status: str = "Valid",
) -> tuple[Any, int]:
    """Return (a client, an invoice) of a service that cannot write that a document has a status."""
    monkeypatch.setattr(results, "REPEATS", ())
    await owner.execute(FAIL_RESULTS.format(state=state, status=status))
    api = await start(company, PORTAL_RETRY_SECONDS="0.05", PORTAL_LEASE_SECONDS="0.5")
    invoice_id = await created(api)
    await submitted(api, invoice_id)
    return api, invoice_id


async def test_failures_of_the_database_count_against_no_submission(
    start: Any, company: Any, owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, invoice_id = await make_results_fail(start, company, owner, monkeypatch, PASSING)
    await until(
        lambda: owner.fetchval("select last_value from failures"),
        lambda n: n > 2 * state_machine.MOST_CLAIMS,
    )
    assert await owner.fetchval("select max(claims) from submissions") <= 1
    await owner.execute("drop trigger fail_results on submitted_documents")
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Valid")


@pytest.mark.parametrize("sqlstate", LASTING)
async def test_a_result_that_the_database_refuses_again_and_again_needs_a_person(
    start: Any,
    company: Any,
    owner: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    sqlstate: str,
) -> None:
    await make_results_fail(start, company, owner, monkeypatch, sqlstate)
    state = "select state from submissions"
    await until(lambda: owner.fetchval(state), lambda found: found == "NeedsPerson")
    assert await owner.fetchval("select last_value from failures") == state_machine.MOST_CLAIMS


@pytest.mark.parametrize("sqlstate", LASTING)
async def test_an_adoption_that_the_database_refuses_again_and_again_needs_a_person(
    start: Any,
    company: Any,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    sqlstate: str,
) -> None:
    """The portal has the document, its answer was lost, and the listing shows it."""
    await sandbox.fault("submit", "accept_then_drop")
    await make_results_fail(start, company, owner, monkeypatch, sqlstate, status="Submitted")
    await until(
        lambda: owner.fetchval("select state from submissions"),
        lambda found: found == "NeedsPerson",
    )

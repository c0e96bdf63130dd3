"""Which listings, receipts and sightings decide about an unknown outcome."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from service.errors import make_reason
from service.portal.listings import Listing
from service.portal.responses import SubmissionReceipt
from service.submission import store as records
from service.submission.context import Claim, CompanyContext
from service.submission.following.unknown_outcomes import UnknownOutcomes
from service.submission.machine import state_machine
from service.submission.machine.types import (
    CLOCK_TOLERANCE,
    ListingEnded,
    Part,
    Sighting,
    Submission,
    SubmittedDocument,
    Write,
)
from tests.api_invoices import create_lost_invoice
from tests.api_reads import get_invoice, wait_for_status
from tests.conftest import Client, Sandbox, StartService, until
from tests.harness.world import TIMES, World, create_parts
from tests.submission.test_claims import Claimed, claimed  # noqa: F401  (a fixture)
from tests.submission.test_document_identity import QUICK, context  # noqa: F401  (a fixture)

NOW = World(None).now
HOUR = timedelta(hours=1)
UNCERTAIN = Submission(
    "Uncertain",
    "retry",
    NOW,
    docs=(SubmittedDocument(1, "INV-1", "01", NOW), SubmittedDocument(2, "INV-2", "01", NOW)),
    first_sent_at=NOW - HOUR,
    last_sent_at=NOW - HOUR,
)


async def test_document_that_waited_in_the_queue_of_the_portal_is_found(
    idle: Client, start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """The portal received it long after it was sent, which the second listing shows."""
    invoice_id = await create_lost_invoice(idle, sandbox)
    await owner.execute(
        "update submissions set first_sent_at = first_sent_at - interval '1 hour',"
        " last_sent_at = last_sent_at - interval '1 hour', not_before = now()"
    )
    api = await start(**QUICK)
    found = await until(
        lambda: get_invoice(api, invoice_id), lambda found: found["status"] != "Submitting"
    )
    assert found["status"] in ("Submitted", "Valid") and len(await sandbox.ledger()) == 1


async def test_old_unknown_outcome_needs_manual_review_and_blocks_no_other(
    idle: Client, start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """The portal refuses a listing that begins with its send, 32 days ago."""
    await create_lost_invoice(idle, sandbox, "drop")
    month = "update submissions set first_sent_at = now() - interval '32 days'"
    await owner.execute(f"{month}, last_sent_at = now() - interval '25 hours'")
    invoice_id = await create_lost_invoice(idle, sandbox)
    query = "select concat(state, ' ', last_error ->> 'code') from submissions order by id"
    before = await owner.fetchval(query)
    api = await start()
    await wait_for_status(api, invoice_id, "Valid")
    after = await until(lambda: owner.fetchval(query), lambda found: found != before)
    assert after == "NeedsPerson SentLongAgo"


def is_complete(current: UnknownOutcomes, submission: Submission) -> bool:
    """Return whether the end of the listing confirms the absence of a submission's documents."""
    ending = current.ending_for(submission, ListingEnded(NOW), ())
    return isinstance(ending, ListingEnded) and ending.complete


def test_receipt_that_was_not_read_confirms_no_absence() -> None:
    """The receipt of the one document may name the other."""
    unused: Any = None
    current = UnknownOutcomes(unused, unused, "C1", NOW - HOUR - CLOCK_TOLERANCE, NOW)
    submission = replace(UNCERTAIN, sightings=(Sighting(2, "U2", "S2", "search"),))
    assert is_complete(current, UNCERTAIN) and not is_complete(current, submission)
    current.receipts["S2"] = Listing()
    assert is_complete(current, submission)


async def test_only_a_receipt_that_the_portal_has_answered_counts_as_read(
    context: CompanyContext,  # noqa: F811
    sandbox: Sandbox,
) -> None:
    claim: Any = SimpleNamespace(company_id=1)
    current = UnknownOutcomes(context, claim, "C20880050010", NOW, NOW)
    await sandbox.fault("submission", "error_before", status=503)
    assert list(await current.read_receipt("S" * 26)) == [] and not current.receipts
    await current.read_receipt("S" * 26)  # The portal does not know it.
    assert current.receipts.keys() == {"S" * 26}


async def test_uuid_seen_for_the_former_submission_counts_for_a_part(
    claimed: Claimed,  # noqa: F811
) -> None:
    company_id = claimed.claim.company_id
    await claimed.owner.execute(
        "update submissions set first_sent_at = now(), last_sent_at = now()"
    )
    former: Any = await records.load(claimed.context, claimed.claim)
    async with claimed.context.database.company(company_id) as conn:
        shown = (claimed.claim.id, "U1", former.docs[0].number, "S1", "submit")
        await records.insert_sightings(conn, [shown])
        part = Part(frozenset({former.docs[0].id}), "Uncertain", "S1")
        await records.create_parts(conn, claimed.claim, [part])
    row: Any = await claimed.owner.fetchrow("select id, fence from submissions order by id desc")
    moved: Any = await records.load(claimed.context, Claim(company_id, row["id"], row["fence"]))
    assert row["id"] != claimed.claim.id
    assert [one.uuid for one in moved.proven()] == ["U1"]


@pytest.mark.parametrize(
    "sends, documents, hours, state",
    [
        (4, 2, 30, "Queued"),
        (5, 2, 1, "Split"),
        (5, 1, 23, "Queued"),
        (5, 1, 25, "NeedsPerson"),
        (4, 1, 25, "Queued"),
    ],
)
def test_promised_work_that_was_sent_in_vain_is_split_then_reviewed(
    sends: int, documents: int, hours: int, state: str
) -> None:
    """`hours` are those since the first send."""
    docs = tuple(
        SubmittedDocument(key, f"INV-{key}", "01", NOW, "Submitting") for key in range(documents)
    )
    submission = replace(
        UNCERTAIN,
        on_absence="retry",
        docs=docs,
        sends=sends,
        first_sent_at=NOW - hours * HOUR,
        last_sent_at=NOW - HOUR,
        absence_confirmations=1,
        absence_confirmed_at=NOW - HOUR,
    )
    after, (write,) = state_machine.step(submission, ListingEnded(NOW), TIMES)
    assert after.state == state and isinstance(write, Write)
    parts = create_parts(submission, write)
    assert [len(part.docs) for part in parts] == ([1, 1] if state == "Split" else [])
    assert all(part.possibly_received and part.sends == 0 for part in parts)


@pytest.mark.parametrize("via, state", [("search", "Accepted"), ("unproven", "NeedsPerson")])
def test_absent_documents_that_are_sent_again_are_marked(via: str, state: str) -> None:
    submission = replace(
        UNCERTAIN,
        docs=tuple(
            SubmittedDocument(key, f"INV-{key}", "01", NOW, "Submitting") for key in range(2)
        ),
        sightings=(Sighting(0, "U1", "S1", via),),
        first_sent_at=NOW - HOUR,
        last_sent_at=NOW - HOUR,
        absence_confirmations=1,
        absence_confirmed_at=NOW - HOUR,
    )
    after, commands = state_machine.step(submission, ListingEnded(NOW), TIMES)
    (write,) = [each for each in commands if isinstance(each, Write)]
    assert after.state == state
    assert write.parts == (Part(frozenset({1}), "Queued", possibly_received=True),)


@pytest.mark.parametrize("documents, state", [(1, "Uncertain"), (2, "Split")])
def test_a_rejection_of_what_was_sent_before_is_not_believed(documents: int, state: str) -> None:
    """The portal may have the document of the earlier send."""
    docs = [
        SubmittedDocument(key, f"INV-{key}", "01", NOW, "Submitting") for key in range(documents)
    ]
    rejected = {doc.number: [make_reason("CF321", "Invalid.")] for doc in docs}
    submission = replace(UNCERTAIN, state="Sending", docs=tuple(docs), possibly_received=True)
    after, (write,) = state_machine.step(submission, SubmissionReceipt(None, {}, rejected), TIMES)
    assert after.state == state and isinstance(write, Write) and not write.changes

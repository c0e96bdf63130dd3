"""Accepted submissions that the portal no longer knows: searched, then reviewed, never resent."""

from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from service.documents import states
from service.submission.following.poll import needs_search
from service.submission.machine import state_machine
from service.submission.machine.types import (
    NO_DELAY,
    StatesUnavailable,
    Submission,
    SubmittedDocument,
    Write,
)
from tests.api_invoices import create_submitted_invoice, create_valid_invoice
from tests.api_reads import get_invoice
from tests.conftest import Sandbox, StartService, until
from tests.harness.world import LOST, TIMES, World

NOW = World(None).now
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "hours, searched, is_due, state",
    [
        (0.9, None, False, "Accepted"),
        (1, None, True, "Accepted"),
        (1.9, 1, False, "Accepted"),
        (2, 1, True, "Accepted"),
        (24.1, 23, True, "NeedsPerson"),
    ],
)
def test_unknown_submission_is_searched_hourly_then_reviewed(
    hours: float | int, searched: int | None, is_due: bool, state: str
) -> None:
    """`hours` since the portal first did not know it; `searched` is when it was last searched."""
    docs = (SubmittedDocument(1, "INV-1", "01", NOW, "Submitted", "U"),)
    times = {"unknown_since": NOW, "searched_at": searched and NOW + searched * HOUR}
    submission = Submission("Accepted", "retry", NOW + hours * HOUR, docs=docs, **times)
    assert needs_search(submission, TIMES) is is_due
    for is_searched in (False, True):
        event = StatesUnavailable(LOST, unknown=True, searched=is_searched)
        then, (written,) = state_machine.step(submission, event, TIMES)
        assert then.state == state
        assert isinstance(written, Write) and written.error
        assert written.error["since"] == NOW.isoformat()


def test_failed_poll_does_not_end_the_time_since_when_a_submission_is_unknown() -> None:
    docs = (SubmittedDocument(1, "INV-1", "01", NOW, "Submitted", "U"),)
    submission = Submission("Accepted", "retry", NOW + 23 * HOUR, docs=docs)
    unknown = replace(submission, unknown_since=NOW, searched_at=NOW + HOUR)
    _, (written,) = state_machine.step(unknown, StatesUnavailable(LOST), TIMES)
    times = {"since": NOW.isoformat(), "searched_at": (NOW + HOUR).isoformat()}
    assert isinstance(written, Write)
    assert written.error == {
        **LOST,
        "code": state_machine.NOT_FOUND,
        "message": state_machine.STILL_UNKNOWN.format(LOST["message"]),
        **times,
    }
    _, (written,) = state_machine.step(submission, StatesUnavailable(LOST), TIMES)
    assert isinstance(written, Write) and written.error == LOST


@pytest.mark.parametrize("hours, state", [(25, "Accepted"), (73.9, "Accepted"), (74.1, "Finished")])
def test_unknown_submission_with_an_outcome_needs_no_manual_review(
    hours: float, state: str
) -> None:
    """Another client of the portal need not see it. A document can change for 74 hours."""
    valid = SubmittedDocument(1, "INV-1", "01", NOW, "Valid", "U1", validated_at=NOW)
    docs = (valid, SubmittedDocument(2, "INV-2", "01", NOW, "Invalid", "U2"))
    now = NOW + hours * HOUR
    submission = Submission("Accepted", "retry", now, docs=docs, unknown_since=NOW)
    assert not needs_search(submission, TIMES)
    then, (written,) = state_machine.step(submission, StatesUnavailable(LOST, unknown=True), TIMES)
    assert then.state == state
    assert isinstance(written, Write)
    assert written.delay == (TIMES.portal_recheck if state == "Accepted" else NO_DELAY)


@pytest.mark.parametrize(
    "hours, status, state",
    [
        (23.9, "Submitted", "Accepted"),
        (24.1, "Submitted", "NeedsPerson"),
        (99, "Valid", "Accepted"),
    ],
)
@pytest.mark.parametrize("member", ["refused_since", "unknown_since"])
def test_submission_whose_polls_are_refused_for_a_day_needs_manual_review(
    hours: float, status: states.SubmittedStatus, state: str, member: str
) -> None:
    docs = (SubmittedDocument(1, "INV-1", "01", NOW, status, "U"),)
    submission = replace(
        Submission("Accepted", "retry", NOW + hours * HOUR, docs=docs), **{member: NOW}
    )
    then, (written,) = state_machine.step(submission, StatesUnavailable(LOST, refused=True), TIMES)
    assert then.state == state
    assert isinstance(written, Write) and written.error
    assert written.error["since"] == NOW.isoformat()


async def test_polls_are_refused_until_a_submission_needs_manual_review(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_UNKNOWN_SECONDS="0.05")
    await sandbox.settings(stuck=True)
    invoice_id = await create_submitted_invoice(api)
    await sandbox.fault("submission", "refuse", status=403, code="Forbidden", times=10**5)
    await until(lambda: owner.fetchval("select state = 'NeedsPerson' from submissions"))
    assert await owner.fetchval("select last_error ->> 'code' from submissions") == "Refused"
    assert (await get_invoice(api, invoice_id))["status"] == "Submitted"


async def test_unknown_submission_is_found_by_its_number(
    start: StartService, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_UNKNOWN_SECONDS="0.3")
    await sandbox.settings(not_found_seconds=3600)
    await create_valid_invoice(api)
    assert len(await sandbox.ledger()) == 1


async def test_submission_found_nowhere_needs_manual_review(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_UNKNOWN_SECONDS="0.1")
    await sandbox.settings(not_found_seconds=3600, search_lag_seconds=3600)
    invoice_id = await create_submitted_invoice(api)
    await until(lambda: owner.fetchval("select state = 'NeedsPerson' from submissions"))
    assert (await get_invoice(api, invoice_id))["status"] == "Submitted" and len(
        await sandbox.ledger()
    ) == 1


async def test_gateway_404_does_not_mean_that_a_submission_is_unknown(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """It is not in the portal's own format."""
    api = await start()
    await sandbox.settings(stuck=True)
    await create_submitted_invoice(api)
    await sandbox.fault("submission", "html", status=404, times=10**5)
    code = await until(lambda: owner.fetchval("select last_error ->> 'code' from submissions"))
    assert code == "Refused"


async def test_failed_search_for_an_unknown_submission_is_repeated(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    api = await start(PORTAL_UNKNOWN_SECONDS="0.2")
    await sandbox.settings(not_found_seconds=3600)
    await sandbox.fault("search", "html", status=404, times=10**5)
    await create_submitted_invoice(api)
    await until(sandbox.calls, lambda found: found["calls"].get("search", 0) > 2)
    times = "select concat(last_error ->> 'code', ' ', last_error ->> 'searched_at')"
    assert await owner.fetchval(f"{times} from submissions") == "NotFound "

"""A submission that the portal accepted and then does not know: looked for by number, shown to a person, never sent again."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from conftest import Sandbox, until
from kit import created, record, submitted
from world import LOST, TIMES, World

from service.submission import state_machine
from service.submission.types import Find, StatesUnavailable, Submission, SubmittedDocument

NOW = World(None).now
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "hours, searched, state",
    [
        (0.9, None, "Accepted"),
        (1, None, "look"),
        (1.9, 1, "Accepted"),
        (2, 1, "look"),
        (24.1, 24, "NeedsPerson"),
    ],
)
def test_it_is_waited_for_then_looked_for_every_hour_then_given_to_a_person(
    hours: float | int, searched: int | None, state: str
) -> None:
    """Hours since the portal first did not know it, and since it was last looked for."""
    docs = (SubmittedDocument(1, "INV-1", "01", NOW, "Submitted", "U"),)
    times = {"unknown_since": NOW, "searched_at": searched and NOW + searched * HOUR}
    submission = Submission("Accepted", "retry", NOW + hours * HOUR, docs=docs, **times)
    then, (command,) = state_machine.step(submission, StatesUnavailable(LOST, unknown=True), TIMES)
    assert isinstance(command, Find) if state == "look" else then.state == state
    looked, (written,) = state_machine.step(
        submission, StatesUnavailable(LOST, unknown=True, searched=True), TIMES
    )
    assert looked.state == ("NeedsPerson" if state == "NeedsPerson" else "Accepted")
    assert written.error["since"] == NOW.isoformat()


async def test_it_becomes_valid_by_its_number(start: Any, company: Any, sandbox: Sandbox) -> None:
    api = await start(company, PORTAL_UNKNOWN_SECONDS="0.3")
    await sandbox.settings(not_found_seconds=3600)
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 200
    await until(lambda: record(api, invoice_id), lambda found: found["status"] == "Valid")
    assert len(await sandbox.ledger()) == 1


async def test_what_is_found_nowhere_goes_to_a_person(
    start: Any, company: Any, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    api = await start(company, PORTAL_UNKNOWN_SECONDS="0.1")
    await sandbox.settings(not_found_seconds=3600, search_lag_seconds=3600)
    invoice_id = await created(api)
    assert (await submitted(api, invoice_id))[0] == 200
    await until(lambda: owner.fetchval("select state = 'NeedsPerson' from submissions"))
    assert (await record(api, invoice_id))["status"] == "Submitted" and len(
        await sandbox.ledger()
    ) == 1

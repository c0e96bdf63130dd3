"""The submission state machine in a simulated world: no document is sent twice or lost."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from service.config import Config
from service.documents import states
from service.portal.responses import SubmissionReceipt
from service.submission.machine import state_machine
from service.submission.machine.types import (
    Claimed,
    ListingEnded,
    StatesReceived,
    Submission,
    SubmittedDocument,
    Write,
)
from tests.conftest import some_long
from tests.harness.world import (
    CLOCKS,
    FAILOVERS,
    HASTY,
    ON_ABSENCE,
    TIMES,
    WAITS,
    Faults,
    Job,
    Process,
    World,
    schedule,
)
from tests.harness.world_portal import ANSWERS, LOST

MOST_CLAIMS = state_machine.MOST_CLAIMS
NOW = World(None).now
DOCS = (SubmittedDocument(1, "INV-1", "01", NOW), SubmittedDocument(2, "INV-2", "01", NOW))
SCHEDULES = int(os.environ.get("SCHEDULES", "400"))  # seeds of each kind
FEW = 60


class Submissions(RuleBasedStateMachine):
    """Clients, time and two processes in any order. Hypothesis finds the shortest failing one."""

    times: Config = TIMES
    detects = False
    world: World

    @initialize(on_absence=st.sampled_from(ON_ABSENCE))
    def start(self, on_absence: str) -> None:
        self.world = World(None, self.times, self.detects)
        self.world.submit(on_absence)

    @rule(on_absence=st.sampled_from(ON_ABSENCE))
    def submit(self, on_absence: str) -> None:
        self.world.submit(on_absence)

    @rule(on_absence=st.sampled_from(ON_ABSENCE))
    def repeat(self, on_absence: str) -> None:
        self.world.repeat(on_absence)

    @rule(seconds=st.sampled_from(WAITS))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule(at=st.sampled_from((0, 1)), is_paused=st.booleans())
    def pause(self, at: int, is_paused: bool) -> None:
        self.world.processes[at].is_paused = is_paused

    @rule(at=st.sampled_from((0, 1)))
    def crash(self, at: int) -> None:
        self.world.crash(self.world.processes[at])

    @rule()
    def cancel(self) -> None:
        self.world.cancel()

    @rule(at=st.sampled_from((0, 1)), steps=st.integers(1, 6), data=st.data())
    def work(self, at: int, steps: int, data: st.DataObject) -> None:
        self.world.choose = lambda options: data.draw(st.sampled_from(options))
        for _ in range(steps):
            self.world.work(self.world.processes[at])

    @invariant()
    def check(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.choose = lambda options: options[0]
            self.world.settle()


class FailingOver(Submissions):
    """The database loses transactions, and sending is held."""

    @rule()
    def stop_replication(self) -> None:
        self.world.stop_replication()

    @rule()
    def fail_over(self) -> None:
        self.world.fail_over()


class HastySubmissions(Submissions):
    """The settling time is too short for this portal, which recognises duplicates."""

    times, detects = HASTY, True


LIMITS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
        HealthCheck.too_slow,
    ],
)
TestSubmissions = Submissions.TestCase
TestSubmissions.settings = LIMITS
TestFailingOver = FailingOver.TestCase
TestFailingOver.settings = LIMITS
TestHastySubmissions = HastySubmissions.TestCase
TestHastySubmissions.settings = LIMITS


@pytest.mark.long
@pytest.mark.parametrize("times, detects", [(TIMES, False), (HASTY, True)])
def test_random_schedules_end_with_one_document_each(times: Config, detects: bool) -> None:
    for seed in range(SCHEDULES):
        schedule(seed, times, detects)


@pytest.mark.parametrize("seeds", some_long([range(FEW), range(FEW, SCHEDULES)], 1))
@pytest.mark.parametrize("faults", [FAILOVERS, CLOCKS])
def test_failovers_and_clock_steps_send_nothing_twice_and_lose_nothing(
    faults: Faults, seeds: range
) -> None:
    """Transactions are lost, clocks are set, sending is held and compared with the portal."""
    for seed in seeds:
        schedule(seed, faults=faults)


def test_a_document_whose_sending_a_failover_forgot_is_adopted() -> None:
    world = World(lambda options: options[0])
    world.submit("retry")
    world.stop_replication()
    while not world.portal.ledger:
        world.work(world.processes[0])
    world.fail_over()
    world.settle()
    assert not world.findings


def test_schedules_with_failovers_reach_holds_findings_and_adoptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: set[str] = set()
    methods = ("hold_sending", "end_hold", "adopt", "stop")
    for name in methods:
        monkeypatch.setattr(World, name, _recording(getattr(World, name), name, reached))
    seeds = iter(range(FEW))
    while not reached >= {*methods, "orphan"}:
        world = schedule(next(seeds), faults=FAILOVERS)
        reached |= {one.finding.kind for one in world.findings}


def _recording(method: Callable[..., Any], name: str, called: set[str]) -> Callable[..., Any]:
    def record(*args: Any) -> Any:
        called.add(name)
        return method(*args)

    return record


def test_the_world_detects_a_second_document() -> None:
    """A settling time that is too short, and a portal without duplicate detection, lead to one."""
    with pytest.raises(AssertionError, match="2 legal documents"):
        for seed in range(10 * SCHEDULES):
            schedule(seed, HASTY, detects=False)


def test_schedules_reach_every_state() -> None:
    missing = set(states.SUBMISSION_TRANSITIONS) - {"Queued", "Sending", "Uncertain", "NeedsPerson"}
    seeds = iter(range(FEW))
    while missing:
        missing -= {row.submission.state for row in schedule(next(seeds)).rows.values()}


def test_open_submissions_can_be_claimed_and_closed_ones_cannot() -> None:
    open_states = {state for state, event in state_machine.RULES if event is Claimed}
    assert open_states == {
        state for state, moves in states.SUBMISSION_TRANSITIONS.items() if moves
    } - {"NeedsPerson"}
    assert {state for state, _ in state_machine.RULES} == open_states


@pytest.mark.parametrize("state", ["Queued", "Sending", "Uncertain", "Accepted"])
def test_too_many_claims_without_a_result_need_manual_review(
    state: states.SubmissionState,
) -> None:
    submission = Submission(state, "retry", NOW, docs=DOCS, claims=MOST_CLAIMS + 1)
    assert state_machine.step(submission, Claimed(), TIMES)[1] == [
        Write("NeedsPerson", error=state_machine.FRUITLESS)
    ]


def test_a_receipt_that_does_not_name_every_document_decides_nothing() -> None:
    submission = Submission("Sending", "retry", NOW, docs=DOCS, first_sent_at=NOW, last_sent_at=NOW)
    then, _ = state_machine.step(submission, SubmissionReceipt("S", {"INV-1": "U"}, {}), TIMES)
    assert then.state == "Uncertain" and {doc.status for doc in then.docs} == {"Submitting"}
    assert [one.uuid for one in then.sightings] == ["U"]


def test_a_submission_found_sending_is_never_queued_again() -> None:
    """Its sender died and may have sent it at any time until now."""
    hour_ago = NOW - timedelta(hours=1)
    submission = Submission(
        "Sending",
        "retry",
        NOW,
        docs=DOCS,
        first_sent_at=hour_ago,
        last_sent_at=hour_ago,
        absence_confirmations=1,
    )
    then, (write,) = state_machine.step(submission, Claimed(), TIMES)
    assert then.state == "Uncertain" and isinstance(write, Write) and write.still_sent
    assert (then.last_sent_at, then.absence_confirmations) == (NOW, 0)


@pytest.mark.parametrize("is_shown", [True, False])
@pytest.mark.parametrize("hours, state", [(72, "Accepted"), (73.9, "Accepted"), (74.1, "Finished")])
def test_valid_documents_are_read_until_two_hours_after_the_cancel_window(
    hours: float, state: str, is_shown: bool
) -> None:
    """A cancellation in the last minutes of the window may be shown later.

    The send counts while the portal does not show when it validated the document.
    """
    since = NOW - timedelta(hours=hours)
    shown, sent = (since, None) if is_shown else (None, since)
    docs = tuple(replace(doc, status="Valid", validated_at=shown) for doc in DOCS)
    submission = Submission("Accepted", "retry", NOW, docs=docs, last_sent_at=sent)
    then, _ = state_machine.step(submission, StatesReceived((), {}), TIMES)
    assert then.state == state


SETTLED, UNSETTLED = TIMES.portal_settle, TIMES.portal_settle - timedelta(seconds=1)
GAP = TIMES.portal_confirmation_gap


@pytest.mark.parametrize(
    "sent_ago, confirmed_ago, state, confirmations",
    [
        (SETTLED, None, "Uncertain", 1),
        (UNSETTLED, None, "Uncertain", 0),
        (SETTLED + GAP, GAP, "Queued", 2),
        (SETTLED + GAP, GAP - timedelta(seconds=1), "Uncertain", 1),
    ],
)
def test_absence_takes_two_confirmations_after_the_settling_time(
    sent_ago: timedelta, confirmed_ago: timedelta | None, state: str, confirmations: int
) -> None:
    submission = Submission(
        "Uncertain",
        "retry",
        NOW,
        docs=DOCS,
        first_sent_at=NOW - sent_ago,
        last_sent_at=NOW - sent_ago,
        absence_confirmations=0 if confirmed_ago is None else 1,
        absence_confirmed_at=None if confirmed_ago is None else NOW - confirmed_ago,
    )
    then, _ = state_machine.step(submission, ListingEnded(NOW), TIMES)
    assert (then.state, then.absence_confirmations) == (state, confirmations)


@pytest.mark.parametrize("is_alone, reviews", [(True, 1), (False, 6)])
def test_only_the_submission_that_crashes_workers_needs_manual_review(
    monkeypatch: pytest.MonkeyPatch, is_alone: bool, reviews: int
) -> None:
    """Six unknown outcomes make one batch; one of them crashes each process that handles it.

    If those in hand at a crash were not processed alone afterwards, all would need manual review.
    """
    if not is_alone:
        monkeypatch.setattr(World, "_is_fresh", _is_uncertain)
        monkeypatch.setattr(World, "_write", _without_check(World._write))
    world = World(lambda options: "lose" if options is ANSWERS else options[0])
    for _ in range(6):
        world.submit("release")
    process = world.processes[0]
    while not all(row.submission.state == "Uncertain" for row in world.rows.values()):
        world.work(process)
        world.wait(0.1)
    world.wait(10)  # until all of them are due
    for _ in range(500):
        if _handles_first(process) and world.rows[0].submission.claims <= MOST_CLAIMS:
            world.crash(process)
            world.wait(70)
        world.work(process)
        world.wait(1)
    ended = [row.submission.state for row in world.rows.values()]
    assert ended.count("NeedsPerson") == reviews and ended[0] == "NeedsPerson", ended


def _handles_first(process: Process) -> bool:
    job = process.job
    return isinstance(job, Job) and job.submission_id == 0 and bool(job.commands or job.request)


def _is_uncertain(world: World, submission_id: int) -> bool:
    return world.rows[submission_id].submission.state == "Uncertain"


def _without_check(write: Callable[[World, Job, Write], None]) -> Callable[..., None]:
    """Return World._write without the check that a submission caused its crashes itself."""

    def write_unchecked(world: World, job: Job, command: Write) -> None:
        world.crashes[job.submission_id] = MOST_CLAIMS
        write(world, job, command)

    return write_unchecked


def test_a_closed_submission_cannot_move() -> None:
    closed = Submission("Finished", "retry", NOW, docs=DOCS)
    with pytest.raises(ValueError, match="Finished cannot become Queued"):
        state_machine.apply_command(closed, Write("Queued", error=LOST))

"""The machine of submissions without sockets: whatever crashes, pauses or lies, no document is sent twice, and none is lost."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from world import ANSWERS, HASTY, LOST, PROMISES, TIMES, WAITS, World, schedule

from service.documents import states
from service.submission import state_machine
from service.submission.types import (
    Claimed,
    Listed,
    ReceiptReceived,
    Submission,
    SubmittedDocument,
    Write,
)

MOST_CLAIMS = state_machine.MOST_CLAIMS
NOW = World(None).now
DOCS = (SubmittedDocument(1, "INV-1", "01", NOW), SubmittedDocument(2, "INV-2", "01", NOW))
SCHEDULES = 700


class Submissions(RuleBasedStateMachine):
    """Clients, time, and two processes, in any order; hypothesis looks for the shortest one that goes wrong."""

    times, detects = TIMES, False

    @initialize(on_absence=st.sampled_from(PROMISES))
    def start(self, on_absence):
        self.world = World(lambda options: options[0], self.times, self.detects)
        self.world.submit(on_absence)

    @rule(on_absence=st.sampled_from(PROMISES))
    def submit(self, on_absence):
        self.world.submit(on_absence)

    @rule(on_absence=st.sampled_from(PROMISES))
    def repeat(self, on_absence):
        self.world.repeat(on_absence)

    @rule(seconds=st.sampled_from(WAITS))
    def wait(self, seconds):
        self.world.wait(seconds)

    @rule(at=st.sampled_from((0, 1)), is_paused=st.booleans())
    def pause(self, at, is_paused):
        self.world.processes[at].is_paused = is_paused

    @rule(at=st.sampled_from((0, 1)))
    def crash(self, at):
        self.world.crash(self.world.processes[at])

    @rule()
    def cancel(self):
        self.world.cancel()

    @rule(at=st.sampled_from((0, 1)), steps=st.integers(1, 6), data=st.data())
    def work(self, at, steps, data):
        self.world.choose = lambda options: data.draw(st.sampled_from(options))
        for _ in range(steps):
            self.world.work(self.world.processes[at])

    @invariant()
    def holds(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if hasattr(self, "world"):
            self.world.choose = lambda options: options[0]
            self.world.settle()


class HastySubmissions(Submissions):
    """The settling time is too short for this portal, which knows the same bytes and the same document again."""

    times, detects = HASTY, True


LIMITS = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSubmissions = Submissions.TestCase
TestSubmissions.settings = LIMITS
TestHastySubmissions = HastySubmissions.TestCase
TestHastySubmissions.settings = LIMITS


@pytest.mark.parametrize("times, detects", [(TIMES, False), (HASTY, True)])
def test_random_schedules_end_with_one_document_each(times, detects):
    for seed in range(SCHEDULES):
        schedule(seed, times, detects)


def test_the_world_sees_a_second_document():
    """With a settling time that is too short, and a portal that knows nothing again, there is one sooner or later."""
    with pytest.raises(AssertionError, match="2 legal documents"):
        for seed in range(10 * SCHEDULES):
            schedule(seed, HASTY, detects=False)


def test_schedules_reach_every_state():
    reached = {
        row.submission.state
        for seed in range(SCHEDULES // 7)
        for row in schedule(seed, steps=150).rows.values()
    }
    assert set(states.SUBMISSION_MOVES) - reached <= {
        "Queued",
        "Sending",
        "Uncertain",
        "NeedsPerson",
    }


def test_what_is_open_can_be_claimed_and_what_is_closed_cannot():
    open_ones = {state for state, event in state_machine.RULES if event is Claimed}
    assert open_ones == {state for state, moves in states.SUBMISSION_MOVES.items() if moves} - {
        "NeedsPerson"
    }
    assert {state for state, _ in state_machine.RULES} == open_ones


@pytest.mark.parametrize("state", ["Queued", "Sending", "Uncertain", "Accepted"])
def test_what_is_claimed_again_and_again_without_a_result_goes_to_a_person(state):
    submission = Submission(state, "retry", NOW, docs=DOCS, claims=state_machine.MOST_CLAIMS + 1)
    assert state_machine.step(submission, Claimed(), TIMES)[1] == [
        Write("NeedsPerson", error=state_machine.FRUITLESS)
    ]


def test_a_receipt_that_does_not_name_every_document_decides_nothing():
    submission = Submission("Sending", "retry", NOW, docs=DOCS, first_sent_at=NOW, last_sent_at=NOW)
    then, _commands = state_machine.step(
        submission, ReceiptReceived("S", {"INV-1": "U"}, {}), TIMES
    )
    assert then.state == "Uncertain" and {doc.status for doc in then.docs} == {"Submitting"}
    assert [one.uuid for one in then.sightings] == ["U"]


def test_a_submission_found_sending_is_never_queued_again() -> None:
    """Its sender died and may have sent it: how late nobody knows."""
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
    assert then.state == "Uncertain" and write.still_sent
    assert (then.last_sent_at, then.absence_confirmations) == (NOW, 0)


SETTLED, UNSETTLED = TIMES.portal_settle, TIMES.portal_settle - timedelta(seconds=1)


@pytest.mark.parametrize(
    "sent_ago, proved_ago, state, proofs",
    [
        (SETTLED, None, "Uncertain", 1),
        (UNSETTLED, None, "Uncertain", 0),
        (SETTLED + TIMES.portal_proof_gap, TIMES.portal_proof_gap, "Queued", 2),
        (
            SETTLED + TIMES.portal_proof_gap,
            TIMES.portal_proof_gap - timedelta(seconds=1),
            "Uncertain",
            1,
        ),
    ],
)
def test_absence_takes_two_proofs_after_the_settling_time(
    sent_ago: timedelta, proved_ago: timedelta | None, state: str, proofs: int
) -> None:
    sent_at, proved_at = NOW - sent_ago, None if proved_ago is None else NOW - proved_ago
    submission = Submission(
        "Uncertain",
        "retry",
        NOW,
        docs=DOCS,
        first_sent_at=sent_at,
        last_sent_at=sent_at,
        absence_confirmations=0 if proved_at is None else 1,
        absence_confirmed_at=proved_at,
    )
    then, _ = state_machine.step(submission, Listed(NOW), TIMES)
    assert (then.state, then.absence_confirmations) == (state, proofs)


@pytest.mark.parametrize("is_alone, persons", [(True, 1), (False, 6)])
def test_only_the_submission_that_ends_processes_goes_to_a_person(monkeypatch, is_alone, persons):
    """Six unknown outcomes make one batch; one of them ends each process that handles it.

    If those that were in hand at a crash were not handled alone afterwards, all of them would be given to a person.
    """
    if not is_alone:
        monkeypatch.setattr(
            World, "_is_fresh", lambda self, id: self.rows[id].submission.state == "Uncertain"
        )
        monkeypatch.setattr(World, "_write", _without_the_check(World._write))
    world = World(lambda options: "lose" if options is ANSWERS else options[0])
    for _ in range(6):
        world.submit("release")
    process = world.processes[0]
    while not all(row.submission.state == "Uncertain" for row in world.rows.values()):
        world.work(process)
        world.wait(0.1)
    world.wait(10)  # until all of them are due
    for _ in range(500):
        if (
            process.job
            and process.job.id == 0
            and len(process.job.commands)
            and world.rows[0].submission.claims <= MOST_CLAIMS
        ):
            world.crash(process)
            world.wait(70)
        world.work(process)
        world.wait(1)
    ended = [row.submission.state for row in world.rows.values()]
    assert ended.count("NeedsPerson") == persons and ended[0] == "NeedsPerson", ended


def _without_the_check(write):
    """World._write as it was before it looked for whose crashes a submission was given to a person."""

    def writing(self, job, command):
        self.crashes[job.id] = MOST_CLAIMS
        return write(self, job, command)

    return writing


def test_no_table_no_move():
    closed = Submission("Finished", "retry", NOW, docs=DOCS)
    with pytest.raises(ValueError, match="Finished cannot become Queued"):
        state_machine.after(closed, Write("Queued", error=LOST))

"""A simulated world for the submission state machine: rows, processes and a hostile portal.

It has no sockets. Processes can crash or pause between any two small steps. The world carries out
commands as PostgreSQL and the portal would, without knowledge of the machine's rules, and checks
the results.
"""

import random
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import coroutine
from typing import Any

from service.documents import states
from service.submission import cancellation, state_machine
from service.submission.context import Claim
from service.submission.types import (
    NO_DELAY,
    Admit,
    Admitted,
    Change,
    Claimed,
    Command,
    CommitIntent,
    Connect,
    Connected,
    Event,
    FindByNumber,
    IntentCommitted,
    ListingEnded,
    ListingUnavailable,
    LockUnavailable,
    NotReceived,
    OutcomeUnknown,
    ReadListing,
    ReadStates,
    ReceiptReceived,
    RecordSightings,
    Refusal,
    ReleaseClaim,
    Replaced,
    Send,
    Sighting,
    SightingsReceived,
    StatesReceived,
    StatesUnavailable,
    Submission,
    SubmittedDocument,
    Write,
)

#: Chooses one of some options.
Choose = Callable[[Sequence[Any]], Any]
CancelResponse = (
    cancellation.Done | cancellation.NotSent | cancellation.Refused | cancellation.Unclear
)


def seconds(number: float) -> timedelta:
    """Return a number of seconds as a timedelta."""
    return timedelta(seconds=number)


LEASE, STALE, LOST = seconds(60), seconds(2), {"code": "X", "path": "", "message": "x"}
# The longest time until a document is processed, and then until it is listed
PROCESSING, LAG = seconds(120), seconds(60)
# For how long the portal recognises the same bytes, and the same document
PAYLOADS, DUPLICATES = seconds(600), seconds(7200)


@dataclass(slots=True)
class Settings:
    """The settings that the state machines use."""

    portal_settle: timedelta
    portal_proof_gap: timedelta
    portal_poll: timedelta
    portal_poll_max: timedelta
    portal_recheck: timedelta
    portal_retry: timedelta
    portal_unknown: timedelta


#: A settling time that is long enough for this portal, and one that is too short.
TIMES = Settings(
    portal_settle=seconds(360),
    portal_proof_gap=seconds(30),
    portal_poll=seconds(3),
    portal_poll_max=seconds(60),
    portal_recheck=seconds(3600),
    portal_retry=seconds(5),
    portal_unknown=seconds(3600),
)
HASTY = replace(TIMES, portal_settle=seconds(20), portal_proof_gap=seconds(5))

#: Possible outcomes of a submit request.
ANSWERS = (
    "accept",
    "accept",
    "accept",
    "lose",
    "late",
    "damage",
    "unnamed",
    "reject",
    "refuse",
    "throttle",
    "fail",
    "unreachable",
)
#: Possible outcomes of a cancel request.
CANCEL_ANSWERS = ("done", "lose", "late", "late", "fail", "refuse", "unsent")
ON_ABSENCE = ("retry", "release")
WAITS = (0.1, 1, 3, 10, 35, 70, 400)
OPEN = {"Queued", "Sending", "Uncertain"}
MAY_BE_THERE = {"Submitting", "Submitted", "Valid", "Invalid"}


@dataclass(slots=True)
class Row:
    """A submission in PostgreSQL. `submission.now` has no meaning in it."""

    submission: Submission
    body: tuple[str, ...]  # the numbers of its documents, immutable
    not_before: datetime
    fence: int = 0
    lease_until: datetime | None = None

    @property
    def is_sent(self) -> bool:
        """Return whether it was sent before, or its documents possibly were."""
        return bool(self.submission.first_sent_at or self.submission.possibly_received)


@dataclass(slots=True)
class Job:
    """The work of one process on one claim. A crash loses it."""

    submission_id: int
    fence: int
    submission: Submission
    commands: list[Command] = field(default_factory=list)
    is_past_check: bool = False


@coroutine
def _pause() -> Generator[None]:
    """Suspend the work of a process until its next step."""
    yield


@dataclass(slots=True)
class Cancelling:
    """The work of one process on the cancellation of one document. A crash loses it."""

    world: "World"
    document_id: int
    fence: int
    send_until: datetime
    steps: Coroutine[None, None, None] | None = None

    def start(self, state: cancellation.CancellationState, is_new: bool) -> None:
        """Run until the first pause, which is before the first request."""
        self.steps = self._run(state, is_new)
        self.steps.send(None)

    def step(self) -> bool:
        """Continue until the next pause. Return whether there is one."""
        assert self.steps
        try:
            self.steps.send(None)
        except StopIteration:
            return False
        return True

    async def _run(self, state: cancellation.CancellationState, is_new: bool) -> None:
        state, result = await cancellation.resolve(state, self, self.world.times, is_new)
        await _pause()
        self.world.store_cancellation(self, state, result)

    async def cancel(self) -> CancelResponse:
        """Send the request."""
        await _pause()
        return self.world.request_cancel(self)

    async def read(self) -> cancellation.Shown | cancellation.NotShown:
        """Read the state of the document."""
        await _pause()
        return self.world.show_status(self)


@dataclass(slots=True)
class Cancellation:
    """A pending cancellation in PostgreSQL."""

    until: datetime
    sent_by: datetime | None
    looks: int = 0


@dataclass(slots=True)
class Process:
    """A worker process."""

    job: Job | Cancelling | None = None
    # The rest of a batch: claimed and locked, but not processed yet
    waiting: list[Job] = field(default_factory=list)
    is_paused: bool = False


@dataclass(slots=True)
class Entry:
    """A document in the portal's ledger."""

    number: str
    uuid: str
    uid: str
    due: datetime
    listed: datetime
    status: str = "Submitted"
    first: "Entry | None" = None  # the entry that this one duplicates
    cancel_at: datetime | None = None  # when the portal processes a cancel request


class World:
    """The rows, the processes and the portal. `choose(options)` makes every random decision."""

    def __init__(
        self,
        choose: Choose | None,
        times: Settings = TIMES,
        detects: bool = False,
        processes: int = 2,
    ) -> None:
        self.choose: Choose = choose or (lambda options: options[0])
        self.times, self.detects = times, detects
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.rows: dict[int, Row] = {}
        self.sightings: dict[int, list[Sighting]] = {}  # by document
        self.locks: dict[int, Process] = {}  # by submission
        self.processes = [Process() for _ in range(processes)]
        self.ledger: list[Entry] = []
        self.arrived: dict[tuple[str, ...], datetime] = {}  # body -> latest time of receipt
        self.on_absence: dict[int, str] = {}  # by document
        # By document: the pending cancellation, and the latest fencing token
        self.cancelling: dict[int, Cancellation] = {}
        self.fences: dict[int, int] = {}
        self.is_hostile = True
        # Submission -> number of crashes while it was processed alone
        self.crashes: dict[int, int] = {}

    # Clients and time

    def submit(self, on_absence: str, count: int = 1) -> None:
        """Queue a submission of new documents."""
        first = len(self.on_absence)
        self._queue(
            on_absence,
            tuple(
                SubmittedDocument(document_id, f"INV-{document_id}", "01", self.now)
                for document_id in range(first, first + count)
            ),
        )

    def repeat(self, on_absence: str) -> None:
        """Submit the same bytes again after a submission that was not received."""
        released = [
            row.submission.docs
            for row in self.rows.values()
            if row.submission.state == "NotReceived" and row.submission.docs
        ]
        repeatable = [
            docs for docs in released if all(self._latest(doc.number) == doc.id for doc in docs)
        ]
        if repeatable:
            first, docs = len(self.on_absence), self.choose(repeatable)
            docs = tuple(
                replace(doc, id=first + at, status="Submitting") for at, doc in enumerate(docs)
            )
            self._queue(on_absence, docs, possibly_received=True)

    def _queue(
        self, on_absence: str, docs: tuple[SubmittedDocument, ...], possibly_received: bool = False
    ) -> None:
        self.on_absence.update({doc.id: on_absence for doc in docs})
        self._add(
            Submission(
                "Queued", on_absence, self.now, docs=docs, possibly_received=possibly_received
            )
        )

    def cancel(self) -> None:
        """Cancel a document in an idle process, also one with a pending cancellation."""
        documents = [
            doc.id
            for doc in self._docs()
            if doc.status in ("Submitted", "Valid") and not self._is_being_cancelled(doc.id)
        ]
        idle = [process for process in self.processes if not (process.job or process.is_paused)]
        if documents and idle:
            process, document_id = self.choose(idle), self.choose(documents)
            former = self.cancelling.get(document_id)
            sent_by = former.sent_by if former else None
            self.cancelling[document_id] = Cancellation(self.now, self.now + LEASE)
            state = cancellation.CancellationState(self.now, sent_by)
            self._cancel(process, document_id, state, is_new=True)

    def _is_being_cancelled(self, document_id: int) -> bool:
        row = self.cancelling.get(document_id)
        return row is not None and row.sent_by is not None and row.sent_by > self.now

    def _resume(self, process: Process, document_id: int) -> None:
        row = self.cancelling[document_id]
        state = cancellation.CancellationState(self.now, row.sent_by, row.looks)
        self._cancel(process, document_id, state, is_new=False)

    def _cancel(
        self,
        process: Process,
        document_id: int,
        state: cancellation.CancellationState,
        is_new: bool,
    ) -> None:
        self.fences[document_id] = self.fences.get(document_id, 0) + 1
        self.cancelling[document_id].until = self.now + LEASE
        job = Cancelling(self, document_id, self.fences[document_id], self.now + LEASE)
        job.start(state, is_new)
        process.job = job

    def _docs(self) -> list[SubmittedDocument]:
        return [doc for row in self.rows.values() for doc in row.submission.docs]

    def _latest(self, number: str) -> int:
        return max(doc.id for doc in self._docs() if doc.number == number)

    def wait(self, number: float) -> None:
        """Advance the clock by a number of seconds. The portal processes cancel requests."""
        self.now += seconds(number)
        for entry in self.ledger:
            is_due = entry.cancel_at is not None and entry.cancel_at <= self.now
            if is_due and entry.status in ("Submitted", "Valid"):
                entry.status = "Cancelled"

    def crash(self, process: Process) -> None:
        """Kill and restart a process. Its memory and its locks are lost."""
        if isinstance(process.job, Job) and not process.waiting:
            submission_id = process.job.submission_id
            self.crashes[submission_id] = self.crashes.get(submission_id, 0) + 1
        self._end(process)
        process.is_paused = False

    # Processes

    def due(self) -> list[int]:
        """Return the submissions that can be claimed."""
        return [
            submission_id
            for submission_id, row in self.rows.items()
            if row.submission.state in (*OPEN, "Accepted")
            and row.not_before <= self.now
            and not self._is_claimed(row)
        ]

    def _is_claimed(self, row: Row) -> bool:
        return row.lease_until is not None and row.lease_until >= self.now

    def claim(self, process: Process, submission_id: int) -> None:
        """Claim a submission, and with a fresh Uncertain one all others as a batch.

        A submission with an earlier claim without a result is processed alone.
        """
        batch = [submission_id]
        if self._is_fresh(submission_id):
            due = self.due()
            batch += [other for other in due if other != submission_id and self._is_fresh(other)]
        for one in batch:
            if job := self._claim_one(process, one):
                process.waiting.append(job)
        process.job = process.waiting.pop(0) if process.waiting else None

    def _is_fresh(self, submission_id: int) -> bool:
        submission = self.rows[submission_id].submission
        return submission.state == "Uncertain" and not submission.claims

    def _claim_one(self, process: Process, submission_id: int) -> Job | None:
        row = self.rows[submission_id]
        row.fence += 1
        row.lease_until = self.now + LEASE
        row.submission = replace(row.submission, claims=row.submission.claims + 1)
        job = Job(submission_id, row.fence, self._load(row))
        state = row.submission.state
        if state in OPEN and self.locks.setdefault(submission_id, process) is not process:
            if state == "Queued":  # set aside
                row.submission = replace(row.submission, claims=0)
                row.lease_until = self.now + self.times.portal_retry
                return None
            self._hear(job, LockUnavailable())
        else:
            self._hear(job, Claimed())
        return job

    def work(self, process: Process) -> None:
        """Do one step of a process that is not paused: its job, or new work."""
        if process.is_paused:
            return
        overdue = self._overdue_cancellations()
        if process.job:
            self.act(process)
            self.check()
        elif overdue:
            self._resume(process, overdue[0])
        elif due := self.due():
            self.claim(process, self.choose(due))

    def _overdue_cancellations(self) -> list[int]:
        return [document_id for document_id, row in self.cancelling.items() if row.until < self.now]

    def act(self, process: Process) -> None:
        """Do the next small step of a process's job."""
        job = process.job
        if isinstance(job, Cancelling):
            if not job.step():
                self._end(process)
        elif job is None or not job.commands:
            self._take_next(process)
        elif isinstance(job.commands[0], Send) and not job.is_past_check:
            self._check_send(job, job.commands[0])
        else:
            events = self._carry_out(job, job.commands.pop(0))
            for event in events:
                self._hear(job, event)
                if event is not events[-1]:
                    self._write_all(job)

    def finish_job(self, process: Process) -> None:
        """Do all steps of a process's jobs."""
        while process.job:
            self.act(process)

    def _hear(self, job: Job, event: Event) -> None:
        _, commands = state_machine.step(job.submission, event, self.times)
        job.commands, job.is_past_check = list(commands), False

    def _write_all(self, job: Job) -> None:
        """Carry out the commands between two events of one look."""
        while job.commands and self.rows[job.submission_id].fence == job.fence:
            self._carry_out(job, job.commands.pop(0))

    def _take_next(self, process: Process) -> None:
        """End the job of a process, and continue with the rest of its batch."""
        waiting, process.waiting = process.waiting, []
        self._end(process)
        if waiting:
            process.job, *process.waiting = waiting

    def _end(self, process: Process) -> None:
        for job in (process.job, *process.waiting):
            if isinstance(job, Job) and self.locks.get(job.submission_id) is process:
                del self.locks[job.submission_id]
        process.job, process.waiting = None, []

    # Commands of a submission

    def _carry_out(self, job: Job, command: Command) -> list[Event]:
        """Carry out a command and return the events that it produces."""
        event: Event | None = None
        match command:
            case RecordSightings():
                self._keep(job, command)
            case Write():
                self._write(job, command)
            case ReleaseClaim():
                self._release(job, command)
            case Admit():
                event = self._admit(job)
            case Connect():
                event = self._connect()
            case CommitIntent():
                event = self._commit_intent(job, command)
            case Send():
                event = self._send(command)
            case ReadListing():
                return self._read_listing(job)
            case ReadStates():
                event = self._read_states(job)
            case FindByNumber():
                event = StatesUnavailable(LOST, unknown=True, searched=True)
        return [event] if event else []

    def _add(self, submission: Submission) -> int:
        submission_id = len(self.rows)
        body = tuple(doc.number for doc in submission.docs)
        self.rows[submission_id] = Row(submission, body, not_before=self.now)
        return submission_id

    def _load(self, row: Row) -> Submission:
        docs = row.submission.docs
        sightings = tuple(one for doc in docs for one in self.sightings.get(doc.id, ()))
        return replace(row.submission, now=self.now, sightings=sightings)

    def _keep(self, job: Job, command: RecordSightings) -> None:
        for one in command.sightings:
            known = self.sightings.setdefault(one.document_id, [])
            # (uuid, via) is the table's key
            if (one.uuid, one.via) not in {(kept.uuid, kept.via) for kept in known}:
                known.append(one)
        job.submission = state_machine.apply_command(job.submission, command)

    def _write(self, job: Job, command: Write) -> None:
        row = self.rows[job.submission_id]
        if row.fence != job.fence:
            # The claim is lost and this process is alive, so that the claim is not counted.
            self._uncount(row)
            return
        if row.lease_until is None or row.submission.state != job.submission.state:
            return
        if command.error is state_machine.FRUITLESS:
            crashes = self.crashes.get(job.submission_id, 0)
            assert crashes >= state_machine.MOST_CLAIMS - 1, "blamed for the crashes of others"
        before = self._load(row)
        for submission in state_machine.create_parts(before, command):
            self._add(submission)
        row.submission = state_machine.apply_command(before, command)
        row.lease_until, row.not_before = None, self.now + command.delay

    def _uncount(self, row: Row) -> None:
        row.submission = replace(row.submission, claims=max(0, row.submission.claims - 1))

    def _release(self, job: Job, command: ReleaseClaim) -> None:
        row = self.rows[job.submission_id]
        if row.fence == job.fence and row.lease_until is not None:
            self._uncount(row)
            row.lease_until, row.not_before = None, self.now + command.wait

    def _admit(self, job: Job) -> Event:
        row = self.rows[job.submission_id]
        if self.is_hostile and self.choose((False, False, True)):
            return NotReceived(LOST, seconds(5), held_for=self.choose((None, NO_DELAY)))
        others = [
            submission_id
            for submission_id, other in self.rows.items()
            if submission_id != job.submission_id
            and other.submission.state == "Queued"
            and other.submission.on_absence == row.submission.on_absence == "retry"
            and not (other.is_sent or row.is_sent)
            and not self._is_claimed(other)
        ]
        if others and row.fence == job.fence and self.choose((False, True)):
            return Replaced(Claim(0, self._merge([job.submission_id, *others]), 0))
        return Admitted()

    def _merge(self, submission_ids: list[int]) -> int:
        rows = [self.rows[submission_id] for submission_id in submission_ids]
        docs = tuple(doc for row in rows for doc in row.submission.docs)
        for row in rows:
            row.submission = replace(row.submission, state="Merged", docs=())
            row.fence, row.lease_until = row.fence + 1, None
        return self._add(Submission("Queued", "retry", self.now, docs=docs))

    def _connect(self) -> Event:
        if self.is_hostile and self.choose((False, False, False, True)):
            return NotReceived(LOST)
        return Connected()

    def _commit_intent(self, job: Job, command: CommitIntent) -> Event | None:
        row = self.rows[job.submission_id]
        if row.fence != job.fence or row.submission.state != "Queued":
            return None
        row.submission = state_machine.apply_command(replace(row.submission, now=self.now), command)
        row.lease_until = self.now + LEASE
        job.submission = state_machine.apply_command(replace(job.submission, now=self.now), command)
        return IntentCommitted(_encode(row.body), self.now.timestamp())

    # Requests and results of a cancellation

    def store_cancellation(
        self,
        job: Cancelling,
        state: cancellation.CancellationState,
        result: cancellation.Note | cancellation.Wait | cancellation.End,
    ) -> None:
        """Store the result of a cancellation, as the claim permits."""
        match result:
            case cancellation.Note():
                self._record_cancelled(job.document_id)
            case cancellation.Wait(delay):
                self._postpone_cancel(job, state, delay)
            case cancellation.End():
                if self.fences[job.document_id] == job.fence:
                    self.cancelling.pop(job.document_id, None)

    def show_status(self, job: Cancelling) -> cancellation.Shown | cancellation.NotShown:
        """Return the state of the document, or nothing."""
        if self.is_hostile and self.choose((False, True)):
            return cancellation.NotShown()
        return cancellation.Shown(self._entry_of(job.document_id).status)

    def request_cancel(self, job: Cancelling) -> CancelResponse:
        """Send a cancel request, which the portal may process late. An expired claim sends none."""
        if self.now > job.send_until:
            return cancellation.NotSent()
        entry = self._entry_of(job.document_id)
        how = self.choose(CANCEL_ANSWERS) if self.is_hostile else "done"
        if how == "unsent":
            return cancellation.NotSent()
        if how == "fail":
            return cancellation.Unclear()
        if how == "refuse" or entry.status not in ("Submitted", "Valid"):
            return cancellation.Refused("IncorrectState")
        if how == "late":
            late = self.now + seconds(self.choose((1, 30, 120)))
            entry.cancel_at = min(entry.cancel_at or late, late)
            return cancellation.Unclear()
        entry.status, entry.cancel_at = "Cancelled", self.now
        return cancellation.Unclear() if how == "lose" else cancellation.Done()

    def _record_cancelled(self, document_id: int) -> None:
        for row in self.rows.values():
            docs = tuple(
                replace(doc, status="Cancelled")
                if doc.id == document_id and "Cancelled" in states.DOCUMENT_TRANSITIONS[doc.status]
                else doc
                for doc in row.submission.docs
            )
            row.submission = replace(row.submission, docs=docs)
        self.cancelling.pop(document_id, None)

    def _postpone_cancel(
        self, job: Cancelling, state: cancellation.CancellationState, delay: timedelta
    ) -> None:
        row = self.cancelling.get(job.document_id)
        if row and self.fences[job.document_id] == job.fence:
            row.until = self.now + delay
            row.sent_by = self.now if state.is_unclear else state.sent_by
            row.looks = state.looks + 1

    def _entry_of(self, document_id: int) -> Entry:
        (doc,) = [doc for doc in self._docs() if doc.id == document_id]
        (entry,) = [entry for entry in self.ledger if entry.uuid == doc.uuid]
        return entry

    # The portal

    def _check_send(self, job: Job, command: Send) -> None:
        """Check an intent immediately before the first byte. A stale one does not send."""
        if self.now.timestamp() - command.at > STALE.total_seconds():
            job.commands.pop(0)
            self._hear(job, NotReceived(LOST))
            return
        row = self.rows[job.submission_id]
        has_intent = row.submission.state == "Sending" and row.fence == job.fence
        assert has_intent, "sent without a stored intent"
        assert command.body == _encode(row.body), "sent bytes that differ from the stored ones"
        job.is_past_check = True

    def _send(self, command: Send) -> Event:
        how = self.choose(ANSWERS) if self.is_hostile else "accept"
        if how == "unreachable":
            return NotReceived(LOST)
        if how == "throttle":
            return NotReceived(LOST, seconds(7))
        if how == "fail":
            return OutcomeUnknown(LOST)
        if how == "refuse":
            return Refusal(LOST, for_all=self.choose((False, True)))
        numbers = _decode(command.body)
        last = self.arrived.get(numbers)
        if self.detects and last and self.now - last < PAYLOADS:
            return OutcomeUnknown(LOST)
        self.arrived[numbers] = self.now
        return self._accept(how, numbers)

    def _accept(self, how: str, numbers: tuple[str, ...]) -> Event:
        late = seconds(self.choose((0, 1, 60, 120))) if how == "late" else NO_DELAY
        rejected = numbers[:1] if how == "reject" else ()
        uid = f"S{len(self.arrived)}-{len(self.ledger)}"
        accepted = [number for number in numbers if number not in rejected]
        entries = [self._add_entry(number, uid, late) for number in accepted]
        if how in ("lose", "late"):
            return OutcomeUnknown(LOST)
        shown = {entry.number: entry.uuid for entry in entries}
        if how == "damage":
            return OutcomeUnknown(LOST, tuple(shown.items())[:1])
        if how == "unnamed":
            shown.pop(next(iter(shown)))
        errors = {number: [LOST] for number in rejected}
        return ReceiptReceived(uid if shown else None, shown, errors, self.now)

    def _add_entry(self, number: str, uid: str, late: timedelta) -> Entry:
        listed = self.now + late + seconds(self.choose((0, 1, 30, 60)) if self.is_hostile else 0)
        entry = Entry(number, f"U{len(self.ledger)}", uid, self.now + late, listed)
        same = [one for one in self.ledger if one.number == number and one.status != "Invalid"]
        if self.detects and same and self.now - same[0].due < DUPLICATES:
            entry.status, entry.first = "Invalid", same[0]
        self.ledger.append(entry)
        return entry

    def _read_listing(self, job: Job) -> list[Event]:
        if self.is_hostile and self.choose((False, False, False, True)):
            return [ListingUnavailable(LOST)]
        others = [row for key, row in self.rows.items() if key != job.submission_id]
        owned = {doc.uuid for row in others for doc in row.submission.docs}
        ids = {doc.number: doc.id for doc in job.submission.docs}
        sightings = tuple(
            Sighting(ids[entry.number], entry.uuid, entry.uid, "search", entry.due)
            for entry in self.ledger
            if entry.number in ids and entry.listed <= self.now and entry.uuid not in owned
        )
        if not sightings:
            return [ListingEnded(job.submission.now)]
        _, commands = state_machine.step(job.submission, SightingsReceived(sightings), self.times)
        if any(isinstance(one, Write) for one in commands):
            return [SightingsReceived(sightings)]
        return [SightingsReceived(sightings), ListingEnded(job.submission.now)]

    def _read_states(self, job: Job) -> Event:
        if self.is_hostile and self.choose((False, False, False, True)):
            return StatesUnavailable(LOST, unknown=self.choose((False, True)))
        changes: list[Change] = []
        duplicates: dict[int, Sighting] = {}
        for doc in job.submission.docs:
            entry = self._find_entry(one for one in self.ledger if one.uuid == doc.uuid)
            if entry is None:
                continue
            if entry.first:
                entry = entry.first
                duplicates[doc.id] = Sighting(doc.id, entry.uuid, entry.uid, "search")
            if entry.status == "Submitted":
                entry.status = self.choose(("Valid", "Valid", "Invalid"))
            if (
                entry.status == doc.status
                or entry.status not in states.DOCUMENT_TRANSITIONS[doc.status]
            ):
                duplicates.pop(doc.id, None)
                continue
            changes.append(Change(doc.id, entry.status, uuid=entry.uuid, validated_at=self.now))
        return StatesReceived(tuple(changes), duplicates)

    def _find_entry(self, entries: Iterable[Entry]) -> Entry | None:
        return next((entry for entry in entries if entry.due <= self.now), None)

    # Checks

    def check(self) -> None:
        """Check what holds at any time. Raises AssertionError."""
        documents = [doc.id for doc in self._docs()]
        assert sorted(documents) == sorted(self.on_absence), (
            "a document in no submission, or in two"
        )
        if self.times is not HASTY:
            self._check_cancellations()
        for number in {entry.number for entry in self.ledger}:
            live = [entry for entry in self.ledger if entry.number == number and not entry.first]
            assert len(live) <= 1, f"{number} has {len(live)} legal documents"

    def _check_cancellations(self) -> None:
        """Check that no document is shown as Valid while a cancel request may be processed."""
        requested = {
            entry.uuid
            for entry in self.ledger
            if entry.cancel_at and entry.status in ("Valid", "Cancelled")
        }
        for doc in self._docs():
            if doc.uuid in requested and doc.status == "Valid":
                assert doc.id in self.cancelling, f"{doc.number} is Valid with a cancel request"

    def settle(self) -> None:
        """Stop all errors, and check that every submission ends with what the portal has."""
        self.is_hostile = False
        for _ in range(400):
            for process in self.processes:
                process.is_paused = False
                self.finish_job(process)
            if not (self._unresolved() or self.cancelling):
                break
            self._finish_due(self.processes[0])
            self.wait(20)
        self.check()
        assert not self._unresolved(), f"unresolved: {self._unresolved()}"
        assert not self.cancelling, "a cancellation without an end"
        for row in self.rows.values():
            for doc in row.submission.docs:
                if self._latest(doc.number) == doc.id:
                    self._check_outcome(row, doc)

    def _finish_due(self, process: Process) -> None:
        """Do all cancellations and submissions that are due now."""
        for document_id in self._overdue_cancellations():
            self._resume(process, document_id)
            self.finish_job(process)
        for submission_id in self.due():
            if submission_id in self.due():  # it was not merged meanwhile
                self.claim(process, submission_id)
            self.finish_job(process)

    def _unresolved(self) -> list[str]:
        """Return the states of the submissions that still have to change."""
        return [
            row.submission.state
            for row in self.rows.values()
            if row.submission.state in OPEN or self._has_news(row)
        ]

    def _has_news(self, row: Row) -> bool:
        """Return whether the next poll of a submission changes a document."""
        status = {entry.uuid: entry.status for entry in self.ledger if not entry.first}
        news = (
            doc.status == "Submitted" or doc.status == "Valid" != status.get(doc.uuid or "")
            for doc in row.submission.docs
        )
        return row.submission.state == "Accepted" and any(news)

    def _check_outcome(self, row: Row, doc: SubmittedDocument) -> None:
        there = [entry for entry in self.ledger if entry.number == doc.number and not entry.first]
        is_release = self.on_absence[doc.id] == "release"
        if row.submission.state == "NeedsPerson":
            assert doc.status in MAY_BE_THERE, "released without knowledge"
        elif there and doc.status == "NotSent" and self.times is HASTY:
            # Absence was confirmed too early: the sweep finds the document.
            assert is_release
        elif there:
            shown = (there[0].uuid, there[0].status)
            assert (doc.uuid, doc.status) == shown, "differs from the portal"
        else:
            is_refused = row.submission.state in ("Refused", "Accepted", "Finished")
            expected = "Rejected" if is_refused else "NotSent"
            assert doc.status == expected, f"{doc.status}, and the portal has nothing"
            assert is_refused or is_release, "a submission with on_absence retry was not sent"


def _encode(numbers: tuple[str, ...]) -> bytes:
    return " ".join(numbers).encode()


def _decode(body: bytes) -> tuple[str, ...]:
    return tuple(body.decode().split())


def schedule(seed: int, times: Settings = TIMES, detects: bool = False, steps: int = 150) -> World:
    """Return the world after a random schedule. Raises AssertionError for a violation."""
    rng = random.Random(seed)
    world = World(rng.choice, times, detects)
    for _ in range(rng.choice((1, 2, 3, 12))):
        world.submit(rng.choice(ON_ABSENCE))
    for _ in range(steps):
        _do_random_step(world, rng)
    world.settle()
    return world


def _do_random_step(world: World, rng: random.Random) -> None:
    number, process = rng.random(), rng.choice(world.processes)
    if number < 0.06:
        world.submit(rng.choice(ON_ABSENCE))
    elif number < 0.09:
        world.repeat(rng.choice(ON_ABSENCE))
    elif number < 0.12:
        world.crash(process)
    elif number < 0.18:
        world.cancel()
    elif number < 0.21:
        process.is_paused = True
    elif number < 0.29:
        process.is_paused = False
    elif number < 0.45:
        world.wait(rng.choice(WAITS))
    else:
        for _ in range(rng.randint(1, 8)):
            world.work(process)

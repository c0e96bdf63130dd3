"""A simulated world for the submission state machine: rows, processes and a hostile portal.

It has no sockets. Processes can crash or pause between any two small steps. The database can fail
over to a standby that lacks the latest transactions, and the clocks can be set. The world carries
out commands as PostgreSQL and the portal would, without knowledge of the machine's rules, and
checks the results.
"""

import random
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import coroutine

from service.config import Config, read_config
from service.documents import states
from service.portal.documents import Document
from service.portal.errors import NotSent, Refused, Unclear
from service.submission import store
from service.submission.machine import cancellation, comparison_rules, state_machine
from service.submission.machine.types import (
    CLOCK_TOLERANCE,
    NO_DELAY,
    Change,
    Claimed,
    Command,
    Event,
    ListingEnded,
    ListingUnavailable,
    LockUnavailable,
    NotReceived,
    RecordSightings,
    ReleaseClaim,
    Sighting,
    SightingsReceived,
    StatesReceived,
    StatesUnavailable,
    Submission,
    SubmittedDocument,
    Write,
)
from service.submission.sending.send import transmit
from tests.harness.environments import variables
from tests.harness.world_portal import LOST, Choose, Entry, SimulatedPortal, encode
from tests.harness.world_tables import (
    BEGIN,
    LEASE,
    OPEN,
    TIN,
    Cancellation,
    Origin,
    Row,
    Tables,
    next_fence,
)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


STALE = seconds(2)
NO_CLAIM = -1
#: The longest time until the comparison of a process notices another database.
NOTICE = seconds(15)
DAY = timedelta(days=1)


#: A settling time that is long enough for this portal, and one that is too short.
TIMES = read_config(
    {
        **variables("postgresql:///", "http://127.0.0.1"),
        "PORTAL_SETTLE_SECONDS": "360",
        "PORTAL_CONFIRMATION_GAP_SECONDS": "30",
        "PORTAL_POLL_SECONDS": "3",
        "PORTAL_POLL_MAX_SECONDS": "60",
        "PORTAL_RECHECK_SECONDS": "3600",
        "PORTAL_RETRY_SECONDS": "5",
        "PORTAL_UNKNOWN_SECONDS": "3600",
    }
)
HASTY = replace(TIMES, portal_settle=seconds(20), portal_confirmation_gap=seconds(5))

#: Possible outcomes of a cancel request.
CANCEL_ANSWERS = ("done", "lose", "late", "late", "fail", "refuse", "unsent")
#: By how many seconds a clock can be set ahead. Zero is right.
CLOCK_STEPS = {
    "database": (-600, -90, -30, 0, 0, 0, 30, 90, 600),
    "portal": (-90, -30, 0, 0, 0, 30, 90),
}
ON_ABSENCE = ("retry", "release")
WAITS = (0.1, 1, 3, 10, 35, 70, 400)
MAY_BE_THERE = {"Submitting", "Submitted", "Valid", "Invalid"}


@dataclass(frozen=True, slots=True)
class Faults:
    """The share of steps that are failovers or clock steps, and the share of clocks among them."""

    share: float = 0
    clocks: float = 0


BY_HAND = 0.2  # share of other faults in whose place a person compares
NO_FAULTS, FAILOVERS, CLOCKS = Faults(), Faults(0.08), Faults(0.1, 0.6)


@dataclass(slots=True)
class Job:
    """The work of one process on one claim. A crash loses it."""

    submission_id: int
    fence: int
    submission: Submission
    commands: list[Command] = field(default_factory=list)
    request: Coroutine[None, None, list[Event]] | None = None  # returns the events that follow
    is_admitted: bool = False  # to send
    body: tuple[str, ...] = ()  # of the open request
    intended_at: float = 0.0  # true time of the intent, in seconds


@coroutine
def _pause() -> Generator[None]:
    """Suspend the work of a process until its next step."""
    yield


class Steps:
    """Work of one process that is a coroutine. A crash loses it."""

    steps: Coroutine[None, None, None] | None = None

    def start(self, steps: Coroutine[None, None, None]) -> None:
        """Run until the first pause, which is before the first request."""
        self.steps = steps
        self.steps.send(None)

    def step(self) -> bool:
        """Continue until the next pause. Return whether there is one."""
        assert self.steps
        try:
            self.steps.send(None)
        except StopIteration:
            return False
        return True


@dataclass
class Sending:
    """The steps of one send, with a pause before each."""

    world: "World"
    job: Job

    async def admit(self) -> Event | None:
        """Obtain a slot, and merge others that wait."""
        await _pause()
        return self.world.admit(self.job)

    async def connect(self) -> Event | None:
        await _pause()
        return self.world.connect(self.job)

    async def commit_intent(self) -> bool:
        await _pause()
        return self.world.commit_intent(self.job)

    async def send(self) -> Event:
        """Check the intent immediately before the first byte. A stale one does not send."""
        await _pause()
        if not self.world.check_send(self.job):
            return NotReceived(LOST)
        await _pause()
        return self.world.send(self.job)


@dataclass
class Cancelling(Steps):
    """The cancellation of one document."""

    world: "World"
    document_id: int
    uuid: str | None
    fence: int
    send_until: datetime  # true time

    async def run(self, state: cancellation.CancellationState, is_new: bool) -> None:
        """Cancel the document, and store the result."""
        cancel = self.cancel if is_new else None
        state, result = await cancellation.resolve(state, cancel, self.read, self.world.times)
        await _pause()
        self.world.store_cancellation(self, state, result)

    async def cancel(self) -> None:
        await _pause()
        self.world.request_cancel(self)

    async def read(self) -> Document:
        await _pause()
        return self.world.show_document(self)


@dataclass
class Comparing(Steps):
    """The complete comparison of the company with the portal, as `compare()` does it."""

    world: "World"
    fence: int

    async def run(self) -> None:
        """Compare, store the findings, and end the hold."""
        world, now, is_held = self.world, self.world.now, self.world.hold is not None
        since = comparison_rules.first_moment(world.basis(now), None)
        await _pause()
        if world.portal.is_hostile and world.choose((False, False, False, True)):
            world.fail_comparison(self.fence)
            return
        until = now + CLOCK_TOLERANCE
        found = world.portal.search(since - CLOCK_TOLERANCE, until)
        if is_held and world.portal.is_apart(world.now):
            world.fail_comparison(self.fence)
            return
        listing = [entry.show() for entry in found]
        await _pause()
        settled_at = None if is_held else now - world.times.portal_settle
        verdict = comparison_rules.judge_listing(
            TIN, listing, world.attempts(listing), set(), settled_at
        )
        await _pause()
        world.store_verdict(verdict, now)
        listed = {one.uuid for one in listing}
        world.store_findings(verdict.findings, listed, since, until)
        await _pause()
        world.end_comparison(self.fence, now)


@dataclass(slots=True)
class Process:
    """A worker process."""

    job: Job | Steps | None = None
    # The rest of a batch: claimed and locked, but not processed yet
    waiting: list[Job] = field(default_factory=list)
    is_paused: bool = False


class World(Tables):
    """The rows, the processes and the portal. `choose(options)` makes every random decision."""

    def __init__(
        self,
        choose: Choose | None,
        times: Config = TIMES,
        detects: bool = False,
        processes: int = 2,
    ) -> None:
        super().__init__()
        self.choose: Choose = choose or (lambda options: options[0])
        self.times = times
        self.portal = SimulatedPortal(lambda options: self.choose(options), detects)
        self.ahead = NO_DELAY  # the database's clock, of the true time
        self.locks: dict[int, Process] = {}  # by submission
        self.processes = [Process() for _ in range(processes)]
        # A failover takes back no id: a sequence is logged ahead of its values.
        self.last_ids = {"submissions": -1, "documents": -1, "contents": -1}
        # Submission -> number of crashes while it was processed alone
        self.crashes: dict[int, int] = {}
        self.standby: Tables | None = None  # the rows that a failover returns to
        self.timeline = self.identity
        self.failed_over_at: datetime | None = None  # true time
        self.held_at: datetime | None = None  # true time
        self.has_clock_steps = False

    @property
    def time(self) -> datetime:
        return self.portal.time

    @property
    def now(self) -> datetime:
        """Return the time that the database's clock shows."""
        return self.time + self.ahead

    # Clients and time

    def submit(self, on_absence: str, count: int = 1) -> None:
        """Queue a submission of new documents, unless that is blocked.

        The numbers of documents that a failover lost are used again.
        """
        documents = [self._create_document(on_absence) for _ in range(count)]
        if not any(self.is_blocked(doc.number, on_absence) for doc, _ in documents):
            self._queue(documents)

    def _create_document(self, on_absence: str) -> tuple[SubmittedDocument, Origin]:
        document_id, lost = self._next("documents"), self._lost_numbers()
        number = self.choose(lost) if lost else f"INV-{document_id}"
        issued_at = self.choose((BEGIN, self.now)) if lost else self.now
        doc = SubmittedDocument(document_id, number, "01", issued_at)
        return doc, Origin(f"{number}|{issued_at.isoformat()}|{self._next('contents')}", on_absence)

    def _lost_numbers(self) -> list[str]:
        if self.failed_over_at is None:
            return []
        known = {doc.number for doc in self.docs()}
        return sorted({entry.number for entry in self.portal.ledger} - known)

    def _next(self, table: str) -> int:
        self.last_ids[table] += 1
        return self.last_ids[table]

    def repeat(self, on_absence: str) -> None:
        """Submit the same bytes again after a submission that was not received."""
        released = [
            row.submission.docs
            for row in self.rows.values()
            if row.submission.state == "NotReceived" and row.submission.docs
        ]
        repeatable = [docs for docs in released if all(self._is_latest(doc) for doc in docs)]
        if repeatable:
            docs = self.choose(repeatable)
            if not any(self.is_blocked(doc.number, on_absence, doc.id) for doc in docs):
                self._queue(
                    [
                        (
                            replace(doc, id=self._next("documents"), status="Submitting"),
                            replace(self.origins[doc.id], on_absence=on_absence),
                        )
                        for doc in docs
                    ],
                    possibly_received=True,
                )

    def _queue(
        self, documents: list[tuple[SubmittedDocument, Origin]], possibly_received: bool = False
    ) -> None:
        self.origins.update({doc.id: origin for doc, origin in documents})
        docs, on_absence = tuple(doc for doc, _ in documents), documents[0][1].on_absence
        self._add(
            Submission(
                "Queued", on_absence, self.now, TIN, docs, possibly_received=possibly_received
            )
        )

    def cancel(self) -> None:
        """Cancel a document in an idle process, also one with a pending cancellation."""
        documents = [
            doc.id
            for doc in self.docs()
            if doc.status in ("Submitted", "Valid")
            and self.now - (doc.validated_at or self.now) <= states.CANCEL_WINDOW
            and not self._is_being_cancelled(doc.id)
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
        state = cancellation.CancellationState(self.now, row.sent_by, row.reads)
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
        (doc,) = [doc for doc in self.docs() if doc.id == document_id]
        fence, send_until = self.fences[document_id], self.time + LEASE
        job = Cancelling(self, document_id, doc.uuid, fence, send_until)
        job.start(job.run(state, is_new))
        process.job = job

    def _is_latest(self, doc: SubmittedDocument) -> bool:
        """Return whether a document is the latest one with its number."""
        return doc.id == max(other.id for other in self.docs() if other.number == doc.number)

    def wait(self, number: float) -> None:
        """Let a number of seconds pass. The portal processes cancel requests."""
        self.portal.pass_time(self.time + seconds(number))
        if any(not process.is_paused for process in self.processes):
            self._notice_database()

    def crash(self, process: Process) -> None:
        """Kill and restart a process. Its memory and its locks are lost."""
        if isinstance(process.job, Job) and not process.waiting:
            submission_id = process.job.submission_id
            self.crashes[submission_id] = self.crashes.get(submission_id, 0) + 1
        self._end(process)
        process.is_paused = False
        self._notice_database(at_once=True)

    # Failovers and clocks

    def stop_replication(self) -> None:
        """Let the standby receive no more transactions, until the next failover."""
        self.standby = self.standby or self.dump()

    def fail_over(self) -> None:
        """Continue with the rows of the standby. Sessions end, and with them the locks."""
        if self.standby is None:
            return
        self.wait(1)
        self.restore(self.standby)
        self.standby, self.timeline = None, self.timeline + 1
        self.ahead = NO_DELAY  # another machine, with its own clock
        self.locks.clear()
        self.failed_over_at, self.held_at = self.time, None

    def step_clock(self, clock: str, number: int) -> None:
        """Set the clock of the database or the portal to a number of seconds ahead.

        The database's is not set between the comparison of the clocks and the first byte of a
        request, nor between a failover and the hold: nothing could notice it.
        """
        self.has_clock_steps = True
        jobs = [process.job for process in self.processes if isinstance(process.job, Job)]
        is_sending = any(job.request and job.is_admitted for job in jobs)
        if clock == "portal":
            self.portal.ahead = seconds(number)
        elif self.identity == self.timeline and not is_sending:
            self.ahead = seconds(number)

    def _notice_database(self, at_once: bool = False) -> None:
        """Hold sending once a process notices that the database is another one."""
        if self.identity == self.timeline or self.failed_over_at is None:
            return
        if at_once or self.time - self.failed_over_at > NOTICE:
            self.note_database(self.now, self.timeline)
            self.held_at = self.time

    # Processes

    def claim(self, process: Process, submission_id: int) -> None:
        """Claim a submission, and with a fresh Uncertain one all others as a batch.

        A submission with an earlier claim without a result is processed alone.
        """
        batch = [submission_id]
        if self._is_fresh(submission_id):
            due = self.due(self.now, self.timeline)
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
        row.fence = next_fence(row.fence, self.now)
        row.lease_until = self.now + LEASE
        row.submission = replace(row.submission, claims=row.submission.claims + 1)
        job = Job(submission_id, row.fence, self._load(submission_id))
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
        self._notice_database(at_once=not process.job and self.choose((False, True)))
        overdue = self._overdue_cancellations()
        if process.job:
            self.act(process)
            self.check()
        elif overdue:
            self._resume(process, overdue[0])
        elif self._is_due_for_comparison() and self.choose((False, True)):
            self._compare(process)
        elif due := self.due(self.now, self.timeline):
            self.claim(process, self.choose(due))

    def _overdue_cancellations(self) -> list[int]:
        return [document_id for document_id, row in self.cancelling.items() if row.until < self.now]

    def _is_due_for_comparison(self) -> bool:
        return self.is_comparison_due(self.now, self.times.portal_settle)

    def _compare(self, process: Process) -> None:
        """Claim the company, and compare it with the portal."""
        self.comparison.fence += 1
        self.comparison.lease_until = self.now + LEASE
        self._start_comparison(process, self.comparison.fence)

    def compare_by_hand(self) -> None:
        """Compare the company in an idle process without a claim, as `reconcile` does any time."""
        idle = [process for process in self.processes if not (process.job or process.is_paused)]
        if idle:
            self._start_comparison(self.choose(idle), NO_CLAIM)

    def _start_comparison(self, process: Process, fence: int) -> None:
        job = Comparing(self, fence)
        job.start(job.run())
        process.job = job

    def act(self, process: Process) -> None:
        """Do the next small step of a process's job."""
        job = process.job
        if isinstance(job, Steps):
            if not job.step():
                self._end(process)
        elif job and job.commands:
            self._carry_out(job, job.commands.pop(0))
        elif job and job.request:
            self._continue_request(job, job.request)
        else:
            self._take_next(process)

    def _continue_request(self, job: Job, request: Coroutine[None, None, list[Event]]) -> None:
        """Do the next step of a request to the portal. At its end, apply the events."""
        try:
            request.send(None)
        except StopIteration as end:
            job.request = None
            for event in end.value:
                while job.commands and self._claimed(job):  # Those of the event before.
                    self._carry_out(job, job.commands.pop(0))
                self._hear(job, event)

    def finish_job(self, process: Process) -> None:
        """Do all steps of a process's jobs."""
        while process.job:
            self.act(process)

    def _hear(self, job: Job, event: Event) -> None:
        submission, commands = state_machine.step(job.submission, event, self.times)
        job.commands = list(commands)
        if isinstance(event, Claimed) and not commands:
            job.request = REQUESTS[submission.state](self, job)
            job.request.send(None)

    def _claimed(self, job: Job) -> Row | None:
        """Return the row of a job whose claim is valid."""
        row = self.rows.get(job.submission_id)
        return row if row and row.fence == job.fence else None

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

    def _carry_out(self, job: Job, command: Command) -> None:
        match command:
            case RecordSightings():
                self._keep(job, command)
            case Write():
                self._write(job, command)
            case ReleaseClaim():
                self._release(job, command)

    def _add(self, submission: Submission) -> None:
        body = tuple(self.origins[doc.id].content for doc in submission.docs)
        self.rows[self._next("submissions")] = Row(submission, body, self.now, self.now)

    def _load(self, submission_id: int) -> Submission:
        submission = self.rows[submission_id].submission
        owned = self._owned_by_others(submission_id)
        sightings = tuple(
            one
            for doc in submission.docs
            for one in self.sightings.get(doc.id, ())
            if one.via != "search" or one.uuid not in owned
        )
        return replace(submission, now=self.now, sightings=sightings)

    def _owned_by_others(self, submission_id: int) -> set[str | None]:
        others = [row for key, row in self.rows.items() if key != submission_id]
        return {doc.uuid for row in others for doc in row.submission.docs if doc.uuid}

    def _keep(self, job: Job, command: RecordSightings) -> None:
        for one in command.sightings:
            if one.submitted_document_id in self.origins:
                self.keep_sighting(one)
        job.submission = state_machine.apply_command(job.submission, command)

    def keep_sighting(self, sighting: Sighting) -> None:
        """Insert a sighting: (uuid, via) is the table's key."""
        known = self.sightings.setdefault(sighting.submitted_document_id, [])
        if (sighting.uuid, sighting.via) not in {(kept.uuid, kept.via) for kept in known}:
            known.append(sighting)

    def _write(self, job: Job, command: Write) -> None:
        row = self.rows.get(job.submission_id)
        if row is None:
            return
        if row.fence != job.fence:
            # The claim is lost and this process is alive, so that the claim is not counted.
            self._uncount(row)
            return
        if row.lease_until is None or row.submission.state != job.submission.state:
            return
        if command.error is state_machine.FRUITLESS:
            crashes = self.crashes.get(job.submission_id, 0)
            assert crashes >= state_machine.MOST_CLAIMS - 1, "blamed for the crashes of others"
        before = self._load(job.submission_id)
        command = self._exclude_taken(job.submission_id, before, command)
        for submission in create_parts(before, command):
            self._add(submission)
        row.submission = state_machine.apply_command(before, command)
        self._check_rejected(command)
        row.lease_until, row.not_before = None, self.now + command.delay

    def _exclude_taken(self, submission_id: int, before: Submission, command: Write) -> Write:
        owned = self._owned_by_others(submission_id)
        taken = {change.id for change in command.changes if change.uuid in owned}
        return store.exclude_taken(before, command, taken) if taken else command

    def _uncount(self, row: Row) -> None:
        row.submission = replace(row.submission, claims=max(0, row.submission.claims - 1))

    def _release(self, job: Job, command: ReleaseClaim) -> None:
        row = self._claimed(job)
        if row and row.lease_until is not None:
            self._uncount(row)
            row.lease_until, row.not_before = None, self.now + command.wait

    def admit(self, job: Job) -> Event | None:
        """Obtain a slot, or fail. Perhaps merge all that wait, which ends the claim."""
        if self.portal.is_hostile and self.choose((False, False, True)):
            return NotReceived(LOST, seconds(5), held_for=self.choose((None, NO_DELAY)))
        if self.portal.is_apart(self.now):
            return NotReceived(LOST)
        row = self._claimed(job)
        others = [
            submission_id
            for submission_id, other in self.rows.items()
            if row
            and submission_id != job.submission_id
            and (other.submission.state, row.submission.state) == ("Queued", "Queued")
            and other.submission.on_absence == row.submission.on_absence == "retry"
            and not (other.is_sent or row.is_sent)
            and not other.is_claimed(self.now)
        ]
        if others and self.choose((False, True)):
            self._merge([job.submission_id, *others])
        job.is_admitted = True
        return None

    def _merge(self, submission_ids: list[int]) -> None:
        rows = [self.rows[submission_id] for submission_id in submission_ids]
        docs = tuple(doc for row in rows for doc in row.submission.docs)
        for row in rows:
            row.submission = replace(row.submission, state="Merged", docs=())
            row.fence, row.lease_until = row.fence + 1, None
        self._add(Submission("Queued", "retry", self.now, TIN, docs))

    def connect(self, job: Job) -> Event | None:
        """Open the request for the stored bytes, or fail."""
        row = self.rows.get(job.submission_id)
        if row is None:
            return None
        if self.portal.is_hostile and self.choose((False, False, False, True)):
            return NotReceived(LOST)
        job.body = row.body
        return None

    def commit_intent(self, job: Job) -> bool:
        """Mark the submission as Sending, unless the claim is lost or sending is held."""
        if not self.can_send(job.submission_id, job.fence, self.timeline):
            return False
        row = self.rows[job.submission_id]
        row.submission = state_machine.mark_sending(replace(row.submission, now=self.now))
        row.lease_until = self.now + LEASE
        job.submission = state_machine.mark_sending(replace(job.submission, now=self.now))
        job.intended_at = self.time.timestamp()
        return True

    # Comparison with the portal

    def store_verdict(self, verdict: comparison_rules.Verdict, until: datetime) -> None:
        """Store what a comparison found about submissions."""
        for submission_id, listed in (*verdict.adopt.items(), *verdict.sightings):
            row = self.rows.get(submission_id)
            for doc in row.submission.docs if row else ():
                if doc.number == listed.number:
                    self.keep_sighting(Sighting(doc.id, listed.uuid, None, "listed"))
        for submission_id, listed in verdict.adopt.items():
            self.adopt(submission_id, listed.received_at or until, self.now)
        for submission_id in verdict.stop:
            self.stop(submission_id)

    def end_comparison(self, fence: int, compared_at: datetime) -> None:
        """Record a complete comparison and end the hold: comparison_done, comparison_end."""
        if self.identity == self.timeline:
            self.comparison.compared_at = compared_at
            self.comparison.failures, self.comparison.retry_at = 0, None
        if self.end_hold(self.times.portal_settle, self.timeline):
            self._check_release()
            self.failed_over_at = self.held_at = None
        if self.comparison.fence == fence:
            self.comparison.lease_until = None

    def fail_comparison(self, fence: int) -> None:
        """Record a comparison that failed: comparison_end."""
        if self.comparison.fence == fence:
            self.comparison.lease_until = None
            self.comparison.retry_at = self.now + LEASE * 2 ** min(self.comparison.failures, 4)
            self.comparison.failures += 1

    # Requests and results of a cancellation

    def store_cancellation(
        self,
        job: Cancelling,
        state: cancellation.CancellationState,
        result: cancellation.Cancelled | cancellation.Wait | cancellation.End,
    ) -> None:
        """Store the result of a cancellation, as the claim permits."""
        match result:
            case cancellation.Cancelled():
                self._record_cancelled(job)
            case cancellation.Wait(delay):
                self._postpone_cancel(job, state, delay)
            case cancellation.End():
                if self.fences.get(job.document_id) == job.fence:
                    self.cancelling.pop(job.document_id, None)

    def show_document(self, job: Cancelling) -> Document:
        if self.portal.is_hostile and self.choose((False, True)):
            raise Unclear("The portal shows nothing.")
        return self._entry_of(job).show()

    def request_cancel(self, job: Cancelling) -> None:
        """Send a cancel request, which the portal may process late. An expired claim sends none."""
        if self.time > job.send_until:
            raise NotSent("The claim has expired.")
        entry = self._entry_of(job)
        how = self.choose(CANCEL_ANSWERS) if self.portal.is_hostile else "done"
        if how == "unsent":
            raise NotSent("There is no connection.")
        if how == "fail":
            raise Unclear("There is no response.")
        if how == "refuse" or entry.status not in ("Submitted", "Valid"):
            raise Refused("The state forbids it.", status=400, code="IncorrectState")
        if how == "late":
            late = self.time + seconds(self.choose((1, 30, 120)))
            entry.cancel_at = min(entry.cancel_at or late, late)
            raise Unclear("There is no response yet.")
        entry.status, entry.cancel_at = "Cancelled", self.time
        if how == "lose":
            raise Unclear("The response was lost.")

    def _record_cancelled(self, job: Cancelling) -> None:
        for row in self.rows.values():
            docs = tuple(
                replace(doc, status="Cancelled")
                if (doc.id, doc.uuid) == (job.document_id, job.uuid)
                and "Cancelled" in states.SUBMITTED_TRANSITIONS[doc.status]
                else doc
                for doc in row.submission.docs
            )
            row.submission = replace(row.submission, docs=docs)
        self.cancelling.pop(job.document_id, None)

    def _postpone_cancel(
        self, job: Cancelling, state: cancellation.CancellationState, delay: timedelta
    ) -> None:
        row = self.cancelling.get(job.document_id)
        if row and self.fences.get(job.document_id) == job.fence:
            row.until = self.now + delay
            row.sent_by = self.now if state.is_unclear else state.sent_by
            row.reads = state.reads + 1

    def _entry_of(self, job: Cancelling) -> Entry:
        (entry,) = [entry for entry in self.portal.ledger if entry.uuid == job.uuid]
        return entry

    # Requests of a submission

    def check_send(self, job: Job) -> bool:
        """Check an intent immediately before the first byte. Return false if it is stale."""
        if self._is_stale(job):
            return False
        if self._is_current(job):
            # A clock step ends the claim early; the lock keeps other processes away.
            row = self.rows.get(job.submission_id) if self.has_clock_steps else self._claimed(job)
            has_intent = row is not None and row.submission.state == "Sending"
            assert row and has_intent, "sent without a stored intent"
            assert job.body == row.body, "sent bytes that differ from the stored ones"
        return True

    def _is_stale(self, job: Job) -> bool:
        return self.time.timestamp() - job.intended_at > STALE.total_seconds()

    def _is_current(self, job: Job) -> bool:
        """Return whether no failover can have lost the intent."""
        return self.failed_over_at is None or job.intended_at > self.failed_over_at.timestamp()

    def send(self, job: Job) -> Event:
        """Write the request."""
        assert self.failed_over_at is None or not self._is_current(job), "sent during a hold"
        holder = self.locks.get(job.submission_id)
        has_lock = holder is not None and holder.job is job
        before = len(self.portal.ledger)
        event = self.portal.submit(encode(job.body))
        ids = {doc.number: doc.id for doc in job.submission.docs}
        for entry in self.portal.ledger[before:]:
            entry.document_id = ids[entry.number]
            entry.is_stray = self._is_stale(job) and not has_lock
        return event

    def read_listing(self, job: Job) -> list[Event]:
        """Return what the listing shows, and how it ended."""
        if self.portal.is_hostile and self.choose((False, False, False, True)):
            return [ListingUnavailable(LOST)]
        submission, owned = job.submission, self._owned_by_others(job.submission_id)
        first_sent_at, _ = submission.send_times
        at = self.now
        listing = self.portal.search(first_sent_at - CLOCK_TOLERANCE, at + CLOCK_TOLERANCE)
        sightings = tuple(
            Sighting(
                doc.id,
                entry.uuid,
                entry.uid,
                "search" if self.origins[doc.id].content == entry.content else "unproven",
                entry.received_at,
            )
            for doc in submission.docs
            if doc.id in self.origins
            for entry in listing
            if entry.uuid not in owned
            and entry.number == doc.number
            and comparison_rules.is_candidate(submission.tin, doc, entry.show())
        )
        ended = ListingEnded(at, complete=not self.portal.is_apart(at))
        if not sightings:
            return [ended]
        _, commands = state_machine.step(submission, SightingsReceived(sightings), self.times)
        if any(isinstance(one, Write) for one in commands):
            return [SightingsReceived(sightings)]
        return [SightingsReceived(sightings), ended]

    def read_states(self, job: Job) -> Event:
        """Return the states of the documents that have changed, or fail."""
        if self.portal.is_hostile and self.choose((False, False, False, True)):
            is_unknown = self.choose((False, True))
            return StatesUnavailable(
                LOST, unknown=is_unknown, searched=is_unknown and self.choose((False, True))
            )
        changes: list[Change] = []
        duplicates: dict[int, Sighting] = {}
        for doc in job.submission.docs:
            entry = self.portal.find(doc.uuid)
            if entry is None:
                continue
            if entry.first:
                entry = entry.first
                duplicates[doc.id] = Sighting(doc.id, entry.uuid, entry.uid, "search")
            if entry.status == "Submitted":
                entry.status = self.choose(("Valid", "Valid", "Invalid"))
            if (
                entry.status == doc.status
                or entry.status not in states.SUBMITTED_TRANSITIONS[doc.status]
            ):
                duplicates.pop(doc.id, None)
                continue
            changes.append(Change(doc.id, entry.status, uuid=entry.uuid, validated_at=self.now))
        return StatesReceived(tuple(changes), duplicates)

    # Checks

    def check(self) -> None:
        """Check what holds at any time. Raises AssertionError."""
        documents = self.docs()
        assert sorted(doc.id for doc in documents) == sorted(self.origins), (
            "a document in no submission, or in two"
        )
        contents = {entry.uuid: entry.content for entry in self.portal.ledger}
        uuids = [doc.uuid for doc in documents if doc.uuid]
        assert len(uuids) == len(set(uuids)), "two documents with one uuid"
        for doc in documents:
            if doc.uuid:
                assert contents[doc.uuid] == self.origins[doc.id].content, "adopted another's"
        if self.times is not HASTY and not self._has_faults:
            self._check_cancellations()
        if not self._has_faults:
            for content in {entry.content for entry in self.portal.ledger}:
                found = self.portal.find_all(content)
                assert len(found) <= 1, f"{content} has {len(found)} legal documents"

    @property
    def _has_faults(self) -> bool:
        """Return whether the database has failed over, or a clock was set."""
        return self.timeline > 1 or self.has_clock_steps

    def _check_cancellations(self) -> None:
        """Check that no document is shown as Valid while a cancel request may be processed."""
        requested = {
            entry.uuid
            for entry in self.portal.ledger
            if entry.cancel_at and entry.status in ("Valid", "Cancelled")
        }
        for doc in self.docs():
            if doc.uuid in requested and doc.status == "Valid":
                assert doc.id in self.cancelling, f"{doc.number} is Valid with a cancel request"

    def _check_rejected(self, command: Write) -> None:
        """Check that the portal has none of the documents that become Rejected or NotSent."""
        ended = ("Rejected", "NotSent")
        rejected = [change.id for change in command.changes if change.status in ended]
        there = [
            one.content
            for one in self.portal.ledger
            if one.document_id in rejected and not (one.is_stray or one.first)
        ]
        assert self.times is HASTY or not there, f"rejected, and the portal has {there}"

    def _check_release(self) -> None:
        """Check that the portal has no unknown document of before the hold when it ends."""
        for entry in self.portal.ledger:
            if entry.is_live and not (entry.is_stray or self._is_known(entry)):
                assert self.held_at and entry.sent > self.held_at, (
                    f"the hold ended, and {entry.content} is unknown"
                )

    def _is_known(self, entry: Entry) -> bool:
        """Return whether a document is recorded or found, or will be looked up."""
        return self._is_found(entry) or any(
            doc.uuid == entry.uuid
            or (
                row.submission.state in ("Sending", "Uncertain", "NeedsPerson")
                and (doc.number, doc.issued_at) == (entry.number, entry.issued_at)
            )
            for row in self.rows.values()
            for doc in row.submission.docs
        )

    def _is_found(self, entry: Entry) -> bool:
        """Return whether a finding names a document."""
        return any(
            entry.uuid in (stored.finding.uuid, stored.finding.other_uuid)
            for stored in self.findings
        )

    def settle(self) -> None:
        """Stop all errors, and check that every submission ends with what the portal has."""
        self.portal.is_hostile, self.standby = False, None
        self.ahead = self.portal.ahead = NO_DELAY
        self._notice_database(at_once=True)
        began = self.time
        while self.time - began < DAY:
            for process in self.processes:
                process.is_paused = False
                self.finish_job(process)
            is_busy = self._unresolved() or self.cancelling or self.hold
            if not is_busy and self._is_compared(began):
                break
            self._finish_due(self.processes[0])
            self._resolve_findings()
            self.wait(20 if is_busy else 600)
        self.check()
        assert not self._unresolved(), f"unresolved: {self._unresolved()}"
        assert not self.cancelling, "a cancellation without an end"
        assert not self.hold, "a hold without an end"
        self._check_duplicates()
        for row in self.rows.values():
            for doc in row.submission.docs:
                if self._is_latest(doc):
                    self._check_outcome(row, doc)

    def _is_compared(self, began: datetime) -> bool:
        """Return whether a comparison covers everything that was sent before a time."""
        compared_at = self.comparison.compared_at
        until = max([began, *(entry.sent for entry in self.portal.ledger)])
        is_covered = compared_at is not None and compared_at > until + self.times.portal_settle
        return (
            is_covered
            or not self.portal.ledger
            or not any(row.submission.first_sent_at for row in self.rows.values())
        )

    def _resolve_findings(self) -> None:
        """Cancel the documents at the portal that the findings name, as a person would."""
        for stored in self.findings:
            one = stored.finding
            if stored.blocks:
                (entry,) = [entry for entry in self.portal.ledger if entry.uuid == one.uuid]
                entry.status = "Cancelled" if entry.is_live else entry.status
                if one.received_at is None or one.received_at < self.now - DAY:
                    stored.resolved_by = "person"  # a comparison may not reach back so far

    def _finish_due(self, process: Process) -> None:
        """Do all cancellations, comparisons and submissions that are due now."""
        for document_id in self._overdue_cancellations():
            self._resume(process, document_id)
            self.finish_job(process)
        if self._is_due_for_comparison():
            self._compare(process)
            self.finish_job(process)
        for submission_id in self.due(self.now, self.timeline):
            if submission_id in self.due(self.now, self.timeline):  # it was not merged meanwhile
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
        status = {entry.uuid: entry.status for entry in self.portal.ledger if not entry.first}
        news = (
            doc.status == "Submitted" or doc.status == "Valid" != status.get(doc.uuid or "")
            for doc in row.submission.docs
        )
        return row.submission.state == "Accepted" and any(news)

    def _check_duplicates(self) -> None:
        """Check that a finding names each live document that is not recorded."""
        uuids = {doc.uuid for doc in self.docs()}
        for entry in self.portal.ledger:
            if entry.is_live and entry.uuid not in uuids and self.times is not HASTY:
                assert self._is_found(entry) or self._is_known(entry), (
                    f"{entry.content} is live, and no finding names it"
                )
        for number, live in self.portal.count_live().items():
            found = [entry for entry in live if self._is_found(entry)]
            assert len(live) - len(found) <= 1, f"{number} has {len(live)} live documents"

    def _check_outcome(self, row: Row, doc: SubmittedDocument) -> None:
        origin = self.origins[doc.id]
        there = self.portal.find_all(origin.content)
        is_release = origin.on_absence == "release"
        if row.submission.state == "NeedsPerson":
            assert doc.status in MAY_BE_THERE, "released without knowledge"
        elif doc.uuid:
            (entry,) = [entry for entry in self.portal.ledger if entry.uuid == doc.uuid]
            assert doc.status == entry.status, "differs from the portal"
        elif there and doc.status == "NotSent" and self.times is HASTY:
            # Absence was confirmed too early: the comparison finds the document.
            assert is_release
        else:
            # A failover can have lost a repetition, which sent the same bytes for another document.
            sent = [one for one in there if one.document_id == doc.id and not one.is_stray]
            assert not sent, f"{doc.status}, and the portal has it"
            is_refused = row.submission.state in ("Refused", "Accepted", "Finished")
            expected = "Rejected" if is_refused else "NotSent"
            assert doc.status == expected, f"{doc.status}, and the portal has nothing"
            assert is_refused or is_release, "a submission with on_absence retry was not sent"


async def _request_send(world: World, job: Job) -> list[Event]:
    event = await transmit(Sending(world, job))
    return [event] if event else []


async def _request_listing(world: World, job: Job) -> list[Event]:
    await _pause()
    return world.read_listing(job)


async def _request_states(world: World, job: Job) -> list[Event]:
    await _pause()
    return [world.read_states(job)]


#: State of a claimed submission -> the request that follows.
REQUESTS = {"Queued": _request_send, "Uncertain": _request_listing, "Accepted": _request_states}


def create_parts(submission: Submission, write: Write) -> list[Submission]:
    """Return the new submissions of the parts of a Write. `submission` is the state before it."""
    docs = [state_machine.apply_changes(doc, write.changes) for doc in submission.docs]
    fresh = replace(
        submission,
        claims=0,
        reads=0,
        sends=0,
        absence_confirmations=0,
        absence_confirmed_at=None,
        refusal=None,
    )
    return [
        replace(
            fresh,
            state=part.state,
            submission_uid=part.uid,
            possibly_received=submission.possibly_received or part.possibly_received,
            docs=tuple(doc for doc in docs if doc.id in part.ids),
            sightings=tuple(
                one for one in submission.sightings if one.submitted_document_id in part.ids
            ),
        )
        for part in write.parts
    ]


def schedule(
    seed: int,
    times: Config = TIMES,
    detects: bool = False,
    steps: int = 150,
    faults: Faults = NO_FAULTS,
) -> World:
    """Return the world after a random schedule. Raises AssertionError for a violation."""
    rng = random.Random(seed)
    world = World(rng.choice, times, detects)
    try:
        run_steps(world, rng, steps, faults)
        world.settle()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return world


def run_steps(world: World, rng: random.Random, steps: int, faults: Faults) -> None:
    """Submit documents and do random steps."""
    for _ in range(rng.choice((1, 2, 3, 12))):
        world.submit(rng.choice(ON_ABSENCE))
    for _ in range(steps):
        if rng.random() < faults.share:
            _do_fault(world, rng, faults)
        else:
            _do_random_step(world, rng)


def _do_fault(world: World, rng: random.Random, faults: Faults) -> None:
    """Fail over, set a clock, or let a person compare. A backup may be days old."""
    number = rng.random()
    if number < faults.clocks:
        clock = rng.choice(tuple(CLOCK_STEPS))
        world.step_clock(clock, rng.choice(CLOCK_STEPS[clock]))
    elif rng.random() < BY_HAND:
        world.compare_by_hand()
    elif world.standby is None:
        world.stop_replication()
    elif number > 0.95:
        world.wait(2 * DAY.total_seconds())
    else:
        world.fail_over()


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

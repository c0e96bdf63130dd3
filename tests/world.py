"""A world in which the machine of submissions lives without sockets: rows, processes that die and pause, a hostile portal.

Every action is one small step, so that a crash fits between any two. Nothing here knows what the machine decides; it
carries out commands as PostgreSQL and the portal would, and judges what came of it.
"""

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

from service.documents import states
from service.submission import cancellation, state_machine
from service.submission.types import (
    NOW,
    Admitted,
    Busy,
    Change,
    Claimed,
    Connect,
    Connected,
    Intended,
    Listed,
    NotListed,
    NotReceived,
    ReceiptReceived,
    Refusal,
    Replaced,
    Send,
    Shown,
    Sighting,
    StatesReceived,
    StatesUnavailable,
    Submission,
    SubmittedDocument,
    Unknown,
    Write,
)


def seconds(number):
    return timedelta(seconds=number)


LEASE, STALE, LOST = seconds(60), seconds(2), {"code": "X", "path": "", "message": "x"}
# The longest that this portal takes to process, and then to list
PROCESSING, LAG = seconds(120), seconds(60)
# How long it knows the same bytes, and the same document
PAYLOADS, TWINS = seconds(600), seconds(7200)

#: A settling time that is long enough for this portal, and one that is not.
TIMES = SimpleNamespace(
    portal_settle=seconds(360),
    portal_proof_gap=seconds(30),
    portal_poll=seconds(3),
    portal_poll_max=seconds(60),
    portal_recheck=seconds(3600),
    portal_retry=seconds(5),
    portal_unknown=seconds(3600),
)
HASTY = SimpleNamespace(
    **{**vars(TIMES), "portal_settle": seconds(20), "portal_proof_gap": seconds(5)}
)

#: What the portal may make of a submit that reaches it.
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
#: What it may make of a request to cancel that reaches it, or does not.
CANCEL_ANSWERS = ("done", "lose", "late", "late", "fail", "refuse", "unsent")
PROMISES = ("retry", "release")
WAITS = (0.1, 1, 3, 10, 35, 70, 400)
OPEN = {"Queued", "Sending", "Uncertain"}
MAY_BE_THERE = {"Submitting", "Submitted", "Valid", "Invalid"}


@dataclass(slots=True)
class Row:
    """A submission in PostgreSQL; `call.now` means nothing there."""

    submission: Submission
    body: tuple  # the numbers that its bytes hold: frozen
    fence: int = 0
    lease_until: datetime | None = None
    not_before: datetime | None = None


@dataclass(slots=True)
class Job:
    """What one process does with one claim: volatile, and gone with it."""

    id: int
    fence: int
    submission: Submission
    commands: list = field(default_factory=list)
    then: Submission | None = None
    event: object = None
    is_past_check: bool = False


@dataclass(slots=True)
class Cancelling:
    """The work of one process on the cancellation of one document: volatile, and lost with it."""

    document_id: int
    fence: int
    standing: cancellation.CancellationState
    command: object
    send_until: datetime


@dataclass(slots=True)
class Cancellation:
    """A cancellation under way, in PostgreSQL."""

    until: datetime
    sent_by: datetime | None
    looks: int = 0


@dataclass(slots=True)
class Process:
    job: Job | Cancelling | None = None
    # The rest of a batch: claimed and locked, and not handled yet
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
    first: object = None  # the Entry that it repeats
    cancel_at: datetime | None = None  # when the portal processes a request to cancel it


class World:
    """`choose(options)` decides whatever is left to chance."""

    def __init__(self, choose, times=TIMES, detects=False, processes=2):
        self.choose, self.times, self.detects = choose, times, detects
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.rows, self.evidence, self.locks = {}, {}, {}
        self.processes = [Process() for _ in range(processes)]
        self.ledger, self.arrived, self.promises = [], {}, {}
        # Document id -> its Cancellation under way, and the latest fence
        self.cancelling, self.fences = {}, {}
        self.is_hostile = True
        # Submission -> how often its process died while it was in hand alone
        self.crashes: dict[int, int] = {}

    # What clients and time do

    def submit(self, on_absence, count=1):
        """Writes the intent of a call with so many documents. What a client waits for is claimed by who serves it."""
        first = len(self.promises)
        docs = tuple(
            SubmittedDocument(id, f"INV-{id}", "01", self.now) for id in range(first, first + count)
        )
        self.promises.update({doc.id: on_absence for doc in docs})
        self._add(Submission("Queued", on_absence, self.now, docs=docs))

    def repeat(self, on_absence):
        """Submits anew what was believed not to be there: unchanged, and so the same bytes."""
        let_go = [
            row.submission.docs
            for row in self.rows.values()
            if row.submission.state == "NotReceived" and row.submission.docs
        ]
        open = [docs for docs in let_go if all(self._latest(doc.number) == doc.id for doc in docs)]
        if open:
            first, docs = len(self.promises), self.choose(open)
            docs = tuple(
                replace(doc, id=first + at, status="Submitting") for at, doc in enumerate(docs)
            )
            self.promises.update({doc.id: on_absence for doc in docs})
            self._add(Submission("Queued", on_absence, self.now, docs=docs, possibly_received=True))

    def cancel(self):
        """Cancel a document through an idle process. One whose outcome is unclear may be cancelled again."""
        open = [
            doc.id
            for doc in self._docs()
            if doc.status in ("Submitted", "Valid") and not self._is_being_sent(doc.id)
        ]
        free = [process for process in self.processes if not (process.job or process.is_paused)]
        if open and free:
            process, id = self.choose(free), self.choose(open)
            former = self.cancelling[id].sent_by if id in self.cancelling else None
            self.cancelling[id] = Cancellation(self.now, self.now + LEASE)
            self._cancel(
                process, id, cancellation.CancellationState(self.now, former), cancellation.Begun()
            )

    def _is_being_sent(self, id):
        row = self.cancelling.get(id)
        return row is not None and row.sent_by is not None and row.sent_by > self.now

    def _resume(self, process, id):
        row = self.cancelling[id]
        self._cancel(
            process,
            id,
            cancellation.CancellationState(self.now, row.sent_by, row.looks),
            cancellation.Resumed(),
        )

    def _cancel(self, process, id, standing, event):
        self.fences[id] = self.fences.get(id, 0) + 1
        self.cancelling[id].until = self.now + LEASE
        process.job = Cancelling(
            id, self.fences[id], *cancellation.step(standing, event, self.times), self.now + LEASE
        )

    def _docs(self):
        return [doc for row in self.rows.values() for doc in row.submission.docs]

    def _latest(self, number):
        return max(
            doc.id
            for row in self.rows.values()
            for doc in row.submission.docs
            if doc.number == number
        )

    def wait(self, number):
        self.now += seconds(number)
        for entry in self.ledger:
            if (
                entry.cancel_at
                and entry.cancel_at <= self.now
                and entry.status in ("Submitted", "Valid")
            ):
                entry.status = "Cancelled"

    def crash(self, process):
        """kill -9, and a new process in its place: what it held in memory is gone, and so are its locks."""
        if isinstance(process.job, Job) and not process.waiting:
            self.crashes[process.job.id] = self.crashes.get(process.job.id, 0) + 1
        self._end(process)
        process.is_paused = False

    # What processes do

    def due(self):
        return [
            id
            for id, row in self.rows.items()
            if row.submission.state in (*OPEN, "Accepted")
            and row.not_before <= self.now
            and (row.lease_until is None or row.lease_until < self.now)
        ]

    def claim(self, process: Process, id: int) -> None:
        """Claim a submission, and with an Uncertain one all that are handled in the same batch.

        One whose handling began before and gave no result is handled alone.
        """
        batch = [id]
        if self._is_fresh(id):
            batch += [other for other in self.due() if other != id and self._is_fresh(other)]
        for one in batch:
            self._claim_one(process, one)
            if process.job:
                process.waiting.append(process.job)
        process.job = process.waiting.pop(0) if process.waiting else None

    def _is_fresh(self, id: int) -> bool:
        submission = self.rows[id].submission
        return submission.state == "Uncertain" and not submission.claims

    def _claim_one(self, process, id):
        process.job, row = None, self.rows[id]
        row.fence += 1
        row.lease_until = self.now + LEASE
        row.submission = replace(row.submission, claims=row.submission.claims + 1)
        job = process.job = Job(id, row.fence, self._loaded(row))
        if row.submission.state in OPEN and self.locks.setdefault(id, process) is not process:
            if row.submission.state == "Queued":  # set aside
                row.submission, row.lease_until = (
                    replace(row.submission, claims=0),
                    self.now + self.times.portal_retry,
                )
                process.job = None
                return None
            return self._hear(job, Busy())
        self._hear(job, Claimed())
        return None

    def work(self, process):
        """One step of a process, if it is awake: what it has in its hands, or something that is due."""
        if process.is_paused:
            return
        stuck = [id for id, row in self.cancelling.items() if row.until < self.now]
        if process.job:
            self.act(process)
            self.check()
        elif stuck:
            self._resume(process, stuck[0])
        elif due := self.due():
            self.claim(process, self.choose(due))

    def act(self, process):
        """The next small step of what a process does."""
        job = process.job
        if isinstance(job, Cancelling):
            event = getattr(self, f"_cancel_{type(job.command).__name__.lower()}")(job, job.command)
            if event is None:
                return self._end(process)
            job.standing, job.command = cancellation.step(job.standing, event, self.times)
            return None
        if not job.commands:
            return self._next(process)
        command = job.commands[0]
        if isinstance(command, Send) and not job.is_past_check:
            return self._check(job, command)
        job.commands.pop(0)
        event = getattr(self, f"_{type(command).__name__.lower()}")(job, command)
        if isinstance(event, list):
            for one in event:
                self._hear(job, one)
                if one is not event[-1]:
                    self._write_all(job)
        elif event is not None:
            self._hear(job, event)
        return None

    def _hear(self, job, event):
        job.then, commands = state_machine.step(job.submission, event, self.times)
        job.commands, job.is_past_check = list(commands), False
        if isinstance(event, Replaced):
            job.commands = []

    def _write_all(self, job):
        """What is between two pieces of news of one look."""
        while job.commands and not self._is_done(job):
            command = job.commands.pop(0)
            getattr(self, f"_{type(command).__name__.lower()}")(job, command)

    def _is_done(self, job):
        return self.rows[job.id].fence != job.fence

    def _next(self, process: Process) -> None:
        """End what a process has in hand, and go on with the rest of its batch."""
        waiting, process.waiting = process.waiting, []
        self._end(process)
        if waiting:
            process.job, *process.waiting = waiting

    def _end(self, process):
        for job in (process.job, *process.waiting):
            if isinstance(job, Job) and self.locks.get(job.id) is process:
                del self.locks[job.id]
        process.job, process.waiting = None, []

    # Commands, as PostgreSQL carries them out

    def _add(self, submission, body=None):
        id = len(self.rows)
        self.rows[id] = Row(
            submission, body or tuple(doc.number for doc in submission.docs), not_before=self.now
        )
        return id

    def _loaded(self, row):
        seen = tuple(one for doc in row.submission.docs for one in self.evidence.get(doc.id, ()))
        return replace(row.submission, now=self.now, sightings=seen)

    def _keep(self, job, command):
        for one in command.sightings:
            known = self.evidence.setdefault(one.document_id, [])
            # The table's key
            if (one.uuid, one.via) not in {(kept.uuid, kept.via) for kept in known}:
                known.append(one)
        job.submission = state_machine.after(job.submission, command)

    def _write(self, job, command):
        row = self.rows[job.id]
        if (
            row.fence != job.fence
            or row.lease_until is None
            or row.submission.state != job.submission.state
        ):
            # Lost to another process: this one lives, so that the claim is not counted
            if row.fence != job.fence:
                row.submission = replace(row.submission, claims=max(0, row.submission.claims - 1))
            return
        if command.error is state_machine.FRUITLESS:
            assert self.crashes.get(job.id, 0) >= state_machine.MOST_CLAIMS - 1, (
                "given to a person for the crashes of others"
            )
        before = replace(self._loaded(row), now=self.now)
        for submission in state_machine.parted(before, command):
            self._add(submission)
        row.submission = state_machine.after(before, command)
        row.lease_until, row.not_before = None, self.now + command.delay

    def _giveback(self, job, command):
        row = self.rows[job.id]
        if row.fence == job.fence and row.lease_until is not None:
            row.submission = replace(row.submission, claims=max(0, row.submission.claims - 1))
            row.lease_until, row.not_before = None, self.now + command.wait

    def _admit(self, job, command):
        row = self.rows[job.id]
        if self.is_hostile and self.choose((False, False, True)):
            return NotReceived(LOST, seconds(5), held=self.choose((None, NOW)))
        others = [
            id
            for id, other in self.rows.items()
            if id != job.id
            and other.submission.state == "Queued"
            and other.submission.on_absence == row.submission.on_absence == "retry"
            and not (
                other.submission.first_sent_at
                or row.submission.first_sent_at
                or other.submission.possibly_received
                or row.submission.possibly_received
            )
            and (other.lease_until is None or other.lease_until < self.now)
        ]
        if others and row.fence == job.fence and self.choose((False, True)):
            return Replaced(self._merge([job.id, *others]))
        return Admitted()

    def _merge(self, ids):
        docs = tuple(doc for id in ids for doc in self.rows[id].submission.docs)
        for id in ids:
            row = self.rows[id]
            row.submission, row.fence, row.lease_until = (
                replace(row.submission, state="Merged", docs=()),
                row.fence + 1,
                None,
            )
        return self._add(Submission("Queued", "retry", self.now, docs=docs))

    def _connect(self, job: Job, command: Connect) -> Connected | NotReceived:
        if self.is_hostile and self.choose((False, False, False, True)):
            return NotReceived(LOST)
        return Connected()

    def _intend(self, job, command):
        row = self.rows[job.id]
        if row.fence != job.fence or row.submission.state != "Queued":
            return None
        row.submission = state_machine.after(replace(row.submission, now=self.now), command)
        row.lease_until = self.now + LEASE
        job.submission = replace(job.submission, now=self.now)
        job.submission = state_machine.after(job.submission, command)
        return Intended(row.body, self.now.timestamp())

    # A cancellation

    def _cancel_put(self, job, command):
        """The request, which the portal may process late. A claim that has expired does not send it."""
        if self.now > job.send_until:
            return cancellation.NotSent()
        entry = self._there(job.document_id)
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

    def _cancel_read(self, job, command):
        if self.is_hostile and self.choose((False, True)):
            return cancellation.NotShown()
        return cancellation.Shown(self._there(job.document_id).status, code=command.code)

    def _cancel_note(self, job, command):
        for row in self.rows.values():
            row.submission = replace(
                row.submission,
                docs=tuple(self._cancelled(doc, job.document_id) for doc in row.submission.docs),
            )
        self.cancelling.pop(job.document_id, None)

    def _cancel_wait(self, job, command):
        row = self.cancelling.get(job.document_id)
        if row and self.fences[job.document_id] == job.fence:
            row.until = self.now + command.delay
            row.sent_by = self.now if job.standing.is_unclear else job.standing.sent_by
            row.looks = job.standing.looks + 1

    def _cancelled(self, doc, id):
        may = doc.id == id and "Cancelled" in states.DOCUMENT_MOVES[doc.status]
        return replace(doc, status="Cancelled") if may else doc

    def _cancel_end(self, job, command):
        if self.fences[job.document_id] == job.fence:
            self.cancelling.pop(job.document_id, None)

    def _there(self, id):
        (doc,) = [doc for doc in self._docs() if doc.id == id]
        (entry,) = [entry for entry in self.ledger if entry.uuid == doc.uuid]
        return entry

    # The portal

    def _check(self, job, command):
        """Immediately before the first byte: a claim that has grown old does not send."""
        if self.now.timestamp() - command.at > STALE.total_seconds():
            job.commands.pop(0)
            return self._hear(job, NotReceived(LOST))
        row = self.rows[job.id]
        assert row.submission.state == "Sending" and row.fence == job.fence, (
            "sent without an intent on disk"
        )
        assert command.body == row.body, "other bytes were sent than those that were frozen"
        job.is_past_check = True
        return None

    def _send(self, job, command):
        how = self.choose(ANSWERS) if self.is_hostile else "accept"
        if how == "unreachable":
            return NotReceived(LOST)
        if how == "throttle":
            return NotReceived(LOST, seconds(7))
        if how == "fail":
            return Unknown(LOST)
        if how == "refuse":
            return Refusal(LOST, for_all=self.choose((False, True)))
        last = self.arrived.get(command.body)
        if self.detects and last and self.now - last < PAYLOADS:
            return Unknown(LOST)
        self.arrived[command.body] = self.now
        return self._accepted(how, command.body)

    def _accepted(self, how, numbers):
        late = seconds(self.choose((0, 1, 60, 120))) if how == "late" else NOW
        rejected = numbers[:1] if how == "reject" else ()
        uid = f"S{len(self.arrived)}-{len(self.ledger)}"
        entries = [self._entry(number, uid, late) for number in numbers if number not in rejected]
        if how in ("lose", "late"):
            return Unknown(LOST)
        shown = {entry.number: entry.uuid for entry in entries}
        if how == "damage":
            return Unknown(LOST, tuple(shown.items())[:1])
        if how == "unnamed":
            shown.pop(next(iter(shown)))
        return ReceiptReceived(
            uid if shown else None, shown, {number: [LOST] for number in rejected}, self.now
        )

    def _entry(self, number, uid, late):
        listed = self.now + late + seconds(self.choose((0, 1, 30, 60)) if self.is_hostile else 0)
        entry = Entry(number, f"U{len(self.ledger)}", uid, self.now + late, listed)
        same = [one for one in self.ledger if one.number == number and one.status != "Invalid"]
        if self.detects and same and self.now - same[0].due < TWINS:
            entry.status, entry.first = "Invalid", same[0]
        self.ledger.append(entry)
        return entry

    def _look(self, job, command):
        if self.is_hostile and self.choose((False, False, False, True)):
            return NotListed(LOST)
        owned = {
            doc.uuid for id, row in self.rows.items() if id != job.id for doc in row.submission.docs
        }
        ids = {doc.number: doc.id for doc in job.submission.docs}
        seen = tuple(
            Sighting(ids[entry.number], entry.uuid, entry.uid, "search", entry.due)
            for entry in self.ledger
            if entry.number in ids and entry.listed <= self.now and entry.uuid not in owned
        )
        if not seen:
            return Listed(job.submission.now)
        _then, commands = state_machine.step(job.submission, Shown(seen), self.times)
        decided = any(isinstance(one, Write) for one in commands)
        return [Shown(seen)] if decided else [Shown(seen), Listed(job.submission.now)]

    def _ask(self, job, command):
        if self.is_hostile and self.choose((False, False, False, True)):
            return StatesUnavailable(LOST, unknown=self.choose((False, True)))
        changes, twins = [], {}
        for doc in job.submission.docs:
            entry = next(
                (one for one in self.ledger if one.uuid == doc.uuid and one.due <= self.now), None
            )
            if entry is None:
                continue
            if entry.first:
                entry = entry.first
                twins[doc.id] = Sighting(doc.id, entry.uuid, entry.uid, "search")
            if entry.status == "Submitted":
                entry.status = self.choose(("Valid", "Valid", "Invalid"))
            if entry.status == doc.status or entry.status not in states.DOCUMENT_MOVES[doc.status]:
                twins.pop(doc.id, None)
                continue
            changes.append(Change(doc.id, entry.status, uuid=entry.uuid, validated_at=self.now))
        return StatesReceived(tuple(changes), twins)

    def _find(self, job, command):
        return StatesUnavailable(LOST, unknown=True, searched=True)

    # Judging

    def check(self):
        """What holds at any time."""
        homes = [doc.id for row in self.rows.values() for doc in row.submission.docs]
        assert sorted(homes) == sorted(self.promises), "a document is in no call, or in two"
        if self.times is not HASTY:
            self._check_cancellations()
        for number in {entry.number for entry in self.ledger}:
            live = [entry for entry in self.ledger if entry.number == number and not entry.first]
            assert len(live) <= 1, f"{number} has {len(live)} legal documents"

    def _check_cancellations(self):
        """While a request to cancel may be processed, or was, the document is not shown as one that stays Valid."""
        requested = {
            entry.uuid
            for entry in self.ledger
            if entry.cancel_at and entry.status in ("Valid", "Cancelled")
        }
        for doc in self._docs():
            if doc.uuid in requested and doc.status == "Valid":
                assert doc.id in self.cancelling, (
                    f"{doc.number} is shown Valid, and a request to cancel it may be processed"
                )

    def settle(self):
        """The faults stop, whoever is paused wakes up: every call comes to an end, or to a person, and is what the portal says."""
        self.is_hostile = False
        for _ in range(400):
            for process in self.processes:
                process.is_paused = False
                while process.job:
                    self.act(process)
            open = [
                row
                for row in self.rows.values()
                if row.submission.state in OPEN or self._is_polled(row)
            ]
            if not (open or self.cancelling):
                break
            for id in [id for id, row in self.cancelling.items() if row.until < self.now]:
                self._resume(self.processes[0], id)
                while self.processes[0].job:
                    self.act(self.processes[0])
            for id in self.due():
                if id in self.due():  # and not merged meanwhile
                    self.claim(self.processes[0], id)
                while self.processes[0].job:
                    self.act(self.processes[0])
            self.wait(20)
        self.check()
        assert not open, f"unresolved: {[row.call.state for row in open]}"
        assert not self.cancelling, "a cancellation without an end"
        for row in self.rows.values():
            for doc in row.submission.docs:
                if self._latest(doc.number) == doc.id:
                    self._judge(row, doc)

    def _is_polled(self, row):
        """Whether the portal has news of it, which the next look brings."""
        status = {entry.uuid: entry.status for entry in self.ledger if not entry.first}
        news = (
            doc.status == "Submitted" or doc.status == "Valid" != status.get(doc.uuid)
            for doc in row.submission.docs
        )
        return row.submission.state == "Accepted" and any(news)

    def _judge(self, row, doc):
        there = [entry for entry in self.ledger if entry.number == doc.number and not entry.first]
        if row.submission.state == "NeedsPerson":
            assert doc.status in MAY_BE_THERE, "let go without knowing"
        elif there and doc.status == "Rejected" and self.times is HASTY:
            # Believed absent too early: the orphan sweep finds it
            assert self.promises[doc.id] == "release"
        elif there:
            assert (doc.uuid, doc.status) == (there[0].uuid, there[0].status), (
                "ours is not what the portal has"
            )
        else:
            assert doc.status == "Rejected", f"{doc.status}, and the portal has nothing"
            refused = row.submission.state in ("Refused", "Accepted", "Finished")
            assert refused or self.promises[doc.id] == "release", "a promise was not kept"


def schedule(seed, times=TIMES, detects=False, steps=150):
    """The World after a random schedule and its end. Raises AssertionError for what must not be."""
    rng = random.Random(seed)
    world = World(rng.choice, times, detects)
    for _ in range(rng.choice((1, 2, 3, 12))):
        world.submit(rng.choice(PROMISES))
    for _ in range(steps):
        _happen(world, rng)
    world.settle()
    return world


def _happen(world, rng):
    what, process = rng.random(), rng.choice(world.processes)
    if what < 0.06:
        world.submit(rng.choice(PROMISES))
    elif what < 0.09:
        world.repeat(rng.choice(PROMISES))
    elif what < 0.12:
        world.crash(process)
    elif what < 0.18:
        world.cancel()
    elif what < 0.21:
        process.is_paused = True
    elif what < 0.29:
        process.is_paused = False
    elif what < 0.45:
        world.wait(rng.choice(WAITS))
    else:
        for _ in range(rng.randint(1, 8)):
            world.work(process)

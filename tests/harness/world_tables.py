"""The tables of the simulated world: the rows that a failover can lose, and the statements on them.

Each method models one statement of `sql/` and repeats its conditions. The tests compare the methods
with the statements, on the same rows.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from service.portal.documents import Document
from service.submission.machine.comparison_rules import (
    CHANGING,
    DUPLICATE,
    FURTHEST,
    ORPHAN,
    Attempt,
    BasisRow,
    PortalFinding,
)
from service.submission.machine.types import Sighting, Submission, SubmittedDocument

OPEN = {"Queued", "Sending", "Uncertain"}
LEASE, EVERY = timedelta(seconds=60), timedelta(hours=1)
TIN = "C1"  # of the only company
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Row:
    """A submission in PostgreSQL. `submission.now` has no meaning in it."""

    submission: Submission
    body: tuple[str, ...]  # its documents, immutable
    not_before: datetime
    created_at: datetime
    fence: int = 0
    lease_until: datetime | None = None

    @property
    def is_sent(self) -> bool:
        """Return whether it was sent before, or its documents possibly were."""
        return bool(self.submission.first_sent_at or self.submission.possibly_received)

    def is_claimed(self, now: datetime) -> bool:
        """Return whether a process has a claim on it, as far as the clock shows."""
        return self.lease_until is not None and self.lease_until >= now


@dataclass(frozen=True, slots=True)
class Origin:
    """The bytes of a document of a client, and how its submission was requested."""

    content: str
    on_absence: str


@dataclass(slots=True)
class Cancellation:
    """A pending cancellation in PostgreSQL."""

    until: datetime
    sent_by: datetime | None
    reads: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold on sending that is not released."""

    since: datetime
    known_until: datetime | None = None


@dataclass(slots=True)
class Comparison:
    """The row of `comparisons`."""

    compared_at: datetime | None = None
    fence: int = 0
    lease_until: datetime | None = None
    failures: int = 0
    retry_at: datetime | None = None


@dataclass(slots=True)
class StoredFinding:
    """A row of `findings`."""

    finding: PortalFinding
    resolved_by: str | None = None

    @property
    def blocks(self) -> bool:
        """Return whether it keeps a hold, and nothing is sent under its number."""
        return self.resolved_by is None and self.finding.kind in (DUPLICATE, ORPHAN)


@dataclass
class Tables:
    """All rows of the database. `identity` is the noted one, of the timeline."""

    rows: dict[int, Row] = field(default_factory=dict)
    sightings: dict[int, list[Sighting]] = field(default_factory=dict)  # by document
    origins: dict[int, Origin] = field(default_factory=dict)  # by document
    # By document: the pending cancellation, and the latest fencing token
    cancelling: dict[int, Cancellation] = field(default_factory=dict)
    fences: dict[int, int] = field(default_factory=dict)
    hold: Hold | None = None
    comparison: Comparison = field(default_factory=Comparison)
    findings: list[StoredFinding] = field(default_factory=list)
    identity: int = 1

    def dump(self) -> "Tables":
        return Tables(**{each.name: _copy(getattr(self, each.name)) for each in fields(Tables)})

    def restore(self, dump: "Tables") -> None:
        for each in fields(Tables):
            setattr(self, each.name, _copy(getattr(dump, each.name)))

    def docs(self) -> list[SubmittedDocument]:
        """Return all documents, with their number at the portal."""
        return [doc for row in self.rows.values() for doc in row.submission.docs]

    # Holds

    def note_database(self, now: datetime, timeline: int) -> None:
        """Hold sending if the timeline is another one than before: record_database_identity()."""
        if self.identity != timeline:
            self.identity = timeline
            compared_at = self.comparison.compared_at
            self.hold_sending(now, compared_at if compared_at and compared_at <= now else None)

    def hold_sending(self, now: datetime, known_until: datetime | None) -> None:
        """Hold sending, or begin the hold again: hold_sending()."""
        if self.hold is not None:
            both = (self.hold.known_until, known_until)
            known_until = None if None in both else min(filter(None, both))
        self.hold = Hold(now, known_until)
        for row in self.rows.values():
            if row.submission.state == "Uncertain":
                row.fence, row.lease_until = next_fence(row.fence, now), None
                row.submission = replace(
                    row.submission,
                    last_sent_at=now,
                    absence_confirmations=0,
                    absence_confirmed_at=None,
                )

    def can_send(self, submission_id: int, fence: int, timeline: int) -> bool:
        """Return whether an intent can be committed: submission_send."""
        row = self.rows.get(submission_id)
        return (
            row is not None
            and (row.fence, row.submission.state) == (fence, "Queued")
            and self.hold is None
            and self.identity == timeline
        )

    def due(self, now: datetime, timeline: int) -> list[int]:
        """Return the submissions that can be claimed: claim_submissions()."""
        if self.identity != timeline:
            return []
        return [
            submission_id
            for submission_id, row in self.rows.items()
            if row.submission.state in (*OPEN, "Accepted")
            and row.not_before <= now
            and not row.is_claimed(now)
            and not (row.submission.state == "Queued" and self.hold)
        ]

    def end_hold(self, settle: timedelta, timeline: int) -> bool:
        """Release the hold after a comparison, and return whether it is released: hold_release."""
        compared_at = self.comparison.compared_at
        if (
            self.hold is None
            or self.identity != timeline
            or compared_at is None
            or compared_at < self.hold.since + settle
            or any(one.blocks for one in self.findings)
        ):
            return False
        self.hold = None
        return True

    def is_blocked(self, number: str, on_absence: str, former: int | None = None) -> bool:
        """Return whether a document may not be submitted now: sending_bars.

        `former` is the document whose bytes would be sent again.
        """
        found = [one.finding for one in self.findings if one.blocks]
        is_found = any(
            one.number == number and (former is None or one.submitted_document_id != former)
            for one in found
        )
        return is_found or (self.hold is not None and on_absence == "release")

    # Comparisons with the portal

    def is_comparison_due(self, now: datetime, settle: timedelta) -> bool:
        """Return whether the company can be claimed to be compared: claim_comparisons()."""
        claim, compared_at = self.comparison, self.comparison.compared_at
        if (claim.lease_until and claim.lease_until >= now) or (
            claim.retry_at and claim.retry_at >= now
        ):
            return False
        if self.hold is not None:
            from_at = self.hold.since + settle
            is_first = compared_at is None or compared_at < from_at
            return from_at <= now and (is_first or (compared_at or now) + EVERY <= now)
        earliest = max(now - FURTHEST, compared_at - CHANGING) if compared_at else now - FURTHEST
        sent = [at for at in self._send_times() if at > earliest]
        return bool(sent) and (compared_at or min(sent)) + EVERY <= now

    def basis(self, now: datetime) -> BasisRow:
        """Return what decides about the length of a comparison: comparison_basis."""
        sent = [at for at in self._send_times() if at > now - FURTHEST]
        return {
            "own_tin": TIN,
            "held_since": self.hold and self.hold.since,
            "known_until": self.hold and self.hold.known_until,
            "compared_at": self.comparison.compared_at,
            "sent_from": min(sent, default=None),
            "now": now,
        }

    def _send_times(self) -> list[datetime]:
        sent = (row.submission.last_sent_at for row in self.rows.values())
        return [at for at in sent if at]

    def attempts(self, listing: Iterable[Document]) -> list[Attempt]:
        """Return the documents that may be listed: comparison_attempts."""
        uuids = {listed.uuid for listed in listing}
        numbers = {listed.number for listed in listing}
        found = [
            _attempt(submission_id, row, doc)
            for submission_id, row in self.rows.items()
            for doc in row.submission.docs
            if doc.uuid in uuids or doc.number in numbers
        ]
        return sorted(found, key=attrgetter("id"))

    def adopt(self, submission_id: int, received_at: datetime, now: datetime) -> None:
        """Move a Queued submission to Uncertain: comparison_move."""
        if not (row := self._take_queued(submission_id)):
            return
        before = row.submission
        row.not_before = now
        row.submission = replace(
            before,
            state="Uncertain",
            claims=0,
            reads=0,
            absence_confirmations=0,
            absence_confirmed_at=None,
            first_sent_at=min(before.first_sent_at or received_at, received_at),
            last_sent_at=max(before.last_sent_at or received_at, received_at),
        )

    def stop(self, submission_id: int) -> None:
        """Move a Queued submission to NeedsPerson: comparison_move."""
        if row := self._take_queued(submission_id):
            row.submission = replace(row.submission, state="NeedsPerson", claims=0)

    def _take_queued(self, submission_id: int) -> Row | None:
        row = self.rows.get(submission_id)
        if row is None or row.submission.state != "Queued":
            return None
        row.fence, row.lease_until = row.fence + 1, None
        return row

    def store_findings(
        self, found: Sequence[PortalFinding], listed: set[str], since: datetime, until: datetime
    ) -> None:
        """Insert findings, and clear those that were not found again: finding_insert, _clear."""
        still = {one.key for one in found}
        for one in found:
            known = [stored for stored in self.findings if stored.finding.key == one.key]
            if not any(stored.resolved_by in (None, "person") for stored in known):
                self.findings.append(StoredFinding(one))
        for stored in self.findings:
            one = stored.finding
            is_covered = one.received_at is not None and since <= one.received_at <= until
            is_listed = one.other_uuid is None or {one.uuid, one.other_uuid} <= listed
            if stored.resolved_by is None and one.key not in still and is_covered and is_listed:
                stored.resolved_by = "comparison"


def next_fence(fence: int, now: datetime) -> int:
    return max(fence + 1, int(now.timestamp() * 1_000_000))


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copy(one) for key, one in value.items()}
    return [copy(one) for one in value] if isinstance(value, list) else copy(value)


def _attempt(submission_id: int, row: Row, doc: SubmittedDocument) -> Attempt:
    return Attempt(
        **asdict(doc),
        submission_id=submission_id,
        document_id=doc.id,
        updated_at=row.created_at,
        is_foreign_if_cancelled=False,
        tin=TIN,
        state=row.submission.state,
        created_at=row.created_at,
        possibly_received=row.submission.possibly_received,
    )

"""Comparison of a listing of the portal with the company's attempts. No I/O and no clock.

An attempt is a submitted document with its submission. A listed document without a live attempt is
a finding only while it is live: an Invalid or a Cancelled one has no effect.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypedDict

from service.documents import states
from service.portal.documents import Document, OddRow
from service.submission.machine.state_machine import CANCEL_GRACE
from service.submission.machine.types import SubmittedDocument

#: Also the range of a comparison that ends a hold. With CLOCK_TOLERANCE it is one listing of the
#: portal, which lists 31 days at most. Portal: 5.5
MOST_DAYS = 30
FURTHEST = timedelta(days=MOST_DAYS)  # that a comparison reaches back
#: A hold compares from so long before the time until which everything sent is known to be recorded.
#: The clocks of two database servers may differ by as much.
KNOWN_MARGIN = timedelta(days=1)
#: Time after the send in which a document can change at the portal. One that was validated late can
#: change for longer, and is polled.
CHANGING = states.CANCEL_WINDOW + CANCEL_GRACE
#: A comparison begins so long before the latest send of the first submission that it covers, which
#: may have been sent before.
SEND_MARGIN = timedelta(days=1)
#: A document that was received this long before a submission was stored is another document. The
#: portal shows whole seconds.
RECEIPT_TOLERANCE = timedelta(minutes=1)
LIVE = {"Submitted", "Valid", "Unknown"}  # a document with an unknown status may be valid

DUPLICATE, ORPHAN, MISSING = "duplicate", "orphan", "missing"
ADOPTABLE, CANCELLED_ELSEWHERE, SHARED_UUID = "adoptable", "cancelled_elsewhere", "shared_uuid"


@dataclass(frozen=True, slots=True)
class PortalFinding:
    """A row of findings."""

    kind: str
    number: str
    document_type: str | None
    uuid: str
    other_uuid: str | None = None
    submitted_document_id: int | None = None
    received_at: datetime | None = None
    cancelled_at: datetime | None = None
    reason: str | None = None

    @property
    def key(self) -> str:
        return f"{self.kind} {self.uuid}"


class BasisRow(TypedDict):
    """The row of comparison_basis."""

    own_tin: str | None
    held_since: datetime | None
    known_until: datetime | None
    compared_at: datetime | None
    sent_from: datetime | None
    now: datetime


class ExpectedRow(TypedDict):
    """A row of comparison_expected."""

    id: int
    number: str
    document_type: str
    uuid: str
    submitted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(SubmittedDocument):
    """A row of comparison_attempts."""

    submission_id: int
    document_id: int
    updated_at: datetime
    is_foreign_if_cancelled: bool
    tin: str
    state: states.SubmissionState
    created_at: datetime
    possibly_received: bool


@dataclass(slots=True)
class Verdict:
    """The result of a comparison, with documents by submission id."""

    findings: list[PortalFinding] = field(default_factory=list[PortalFinding])
    #: Queued submissions whose document the portal has.
    adopt: dict[int, Document] = field(default_factory=dict[int, Document])
    #: Queued submissions whose number a document of the portal has.
    stop: dict[int, Document] = field(default_factory=dict[int, Document])
    sightings: list[tuple[int, Document]] = field(default_factory=list[tuple[int, Document]])


def first_moment(basis: BasisRow, days: int | None) -> datetime:
    """Return from when a company is compared, at least over `days`.

    A comparison shows everything that may have changed since the latest complete one. It begins
    with the company's first send, because documents of other software before it are no findings.
    """
    now, known_until = basis["now"], basis["known_until"]
    longest = now - FURTHEST
    if basis["held_since"]:
        return max(longest, known_until - KNOWN_MARGIN) if known_until else longest
    since = basis["compared_at"] - CHANGING if basis["compared_at"] else longest
    since = max(since, (basis["sent_from"] or now) - SEND_MARGIN)
    return max(longest, min(since, now - timedelta(days=days or 0)))


def judge_listing(
    tin: str,
    listing: Sequence[Document],
    attempts: Sequence[Attempt],
    elsewhere: Set[str],
    settled_at: datetime | None = None,
) -> Verdict:
    """Return the verdict on the listed documents of the company's TIN.

    `attempts` were read after the listing. `elsewhere` are the uuids that other companies have, or
    may have sent with an unknown outcome. Documents received after `settled_at` are left for the
    next comparison.
    """
    verdict = Verdict()
    verdict.findings += _find_foreign_cancellations(listing, attempts)
    owned = {row.uuid for row in attempts} | elsewhere
    by_uuid = {listed.uuid: listed for listed in listing}
    by_number: dict[str, list[Attempt]] = {}
    for row in attempts:
        by_number.setdefault(row.number, []).append(row)
    for listed in listing:
        if (
            listed.issuer_tin == tin
            and listed.uuid not in owned
            and not _is_later(listed.received_at, settled_at)
        ):
            _judge_document(verdict, listed, tin, by_number.get(listed.number, []), by_uuid)
    return verdict


def _judge_document(
    verdict: Verdict,
    listed: Document,
    tin: str,
    attempts: Sequence[Attempt],
    by_uuid: Mapping[str, Document],
) -> None:
    """Judge a document whose uuid no attempt has.

    By number, type and issue time it may still belong to one of `attempts`, which have its number.
    """
    same = [row for row in attempts if row.tin == tin and is_candidate(tin, row, listed)]
    row = same[-1] if same else None
    may_be_sent = row is not None and (
        row.possibly_received
        or not _is_later(row.created_at - RECEIPT_TOLERANCE, listed.received_at)
    )
    if row and row.state == "Queued" and may_be_sent:
        verdict.adopt[row.submission_id] = listed
    elif row and may_be_sent and row.state == "NeedsPerson" and row.status == "Submitting":
        verdict.findings.append(_finding(ADOPTABLE, listed, row))
    elif listed.status not in LIVE:
        pass
    elif row and row.uuid:
        verdict.sightings.append((row.submission_id, listed))
        verdict.findings.append(_find_second(listed, row, by_uuid.get(row.uuid)))
    elif not row or row.state not in ("Sending", "Uncertain"):  # decided as unknown outcomes
        verdict.findings.append(_finding(ORPHAN, listed, row))
        waiting = (one for one in attempts if one.state == "Queued" and _has_type(one, listed))
        verdict.stop |= {one.submission_id: listed for one in waiting}


def _find_second(listed: Document, row: Attempt, other: Document | None) -> PortalFinding:
    """Return the finding of a live document of an attempt that has `other`, if that is listed.

    Of two live documents the later one is to be cancelled.
    """
    if (other.status if other else row.status) not in LIVE:
        return _finding(ORPHAN, listed, row)
    if other is None or not _is_later(other.received_at, listed.received_at):
        return _finding(DUPLICATE, listed, row, row.uuid)
    return _finding(DUPLICATE, other, row, listed.uuid)


def _finding(
    kind: str, listed: Document, row: Attempt | None, other_uuid: str | None = None
) -> PortalFinding:
    return PortalFinding(
        kind=kind,
        number=listed.number,
        document_type=listed.type_code,
        uuid=listed.uuid,
        other_uuid=other_uuid,
        submitted_document_id=row.id if row else None,
        received_at=listed.received_at,
    )


def _find_foreign_cancellations(
    listing: Iterable[Document], attempts: Iterable[Attempt]
) -> list[PortalFinding]:
    """Return findings of cancelled documents that no request of this service cancelled."""
    own = {row.uuid: row for row in attempts if row.uuid and row.is_foreign_if_cancelled}
    return [
        replace(
            _finding(CANCELLED_ELSEWHERE, listed, own[listed.uuid]),
            cancelled_at=listed.cancelled_at,
            reason=listed.reason,
        )
        for listed in listing
        if listed.status == "Cancelled" and listed.uuid in own
    ]


def find_valid_there(
    tin: str, listing: Iterable[Document], attempts: Sequence[Attempt], settled_at: datetime
) -> list[PortalFinding]:
    """Return findings of attempts that are final here, and Valid at the portal.

    If a later attempt of the same document is live, the finding is a duplicate of that attempt.
    Attempts that changed after `settled_at` may be listed with their former status.
    """
    final = {
        row.uuid: row
        for row in attempts
        if row.status in states.FINAL and row.tin == tin and row.updated_at <= settled_at
    }
    live = {row.document_id: row.uuid for row in attempts if row.status in states.LOCKED}
    found: list[PortalFinding] = []
    for listed in listing:
        if listed.status == "Valid" and (row := final.get(listed.uuid)):
            kind = DUPLICATE if row.document_id in live else ORPHAN
            found.append(_finding(kind, listed, row, live.get(row.document_id)))
    return found


def find_shared(
    listing: Iterable[Document], attempts: Iterable[Attempt], uuids: Set[str]
) -> list[PortalFinding]:
    """Return findings of documents whose uuids are recorded for other companies too."""
    own = {row.uuid: row for row in attempts if row.uuid in uuids}
    return [
        _finding(SHARED_UUID, listed, own[listed.uuid]) for listed in listing if listed.uuid in own
    ]


def find_unreadable(
    tin: str, odd: Iterable[OddRow], attempts: Iterable[Attempt]
) -> list[PortalFinding]:
    """Return findings of unreadable rows without an attempt: each may be a sent document."""
    owned = {row.uuid for row in attempts}
    return [
        PortalFinding(ORPHAN, row.number or "", row.type_code, row.key)
        for row in odd
        if row.issuer_tin in (None, tin) and row.key not in owned
    ]


def find_missing(
    listing: Iterable[Document], expected: Iterable[ExpectedRow], odd: Iterable[OddRow]
) -> list[PortalFinding]:
    """Return findings of expected documents that are neither listed nor one of the `odd` rows."""
    listed = {one.uuid for one in listing} | {row.key for row in odd}
    numbers = {row.number for row in odd if row.uuid is None}
    if None in numbers:
        return []
    return [
        PortalFinding(
            MISSING,
            row["number"],
            row["document_type"],
            row["uuid"],
            None,
            row["id"],
            row["submitted_at"],
        )
        for row in expected
        if row["uuid"] not in listed and row["number"] not in numbers
    ]


def is_candidate(tin: str, doc: SubmittedDocument, there: Document | OddRow) -> bool:
    """Return whether number, type, issue time and issuer agree, as far as the portal shows them."""
    return (
        there.number in (None, doc.number)
        and there.type_code in (None, doc.document_type)
        and there.issued_at in (None, doc.issued_at)
        and there.issuer_tin in (None, tin)
    )


def _has_type(row: Attempt, listed: Document) -> bool:
    return listed.type_code in (None, row.document_type)


def _is_later(at: datetime | None, than: datetime | None) -> bool:
    return at is not None and than is not None and at > than

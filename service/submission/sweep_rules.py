"""Compare a listing of the portal with our attempts: no I/O and no clock.

A document that no attempt accounts for is a finding only while it is live: an Invalid or a Cancelled one binds nobody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from service.portal.responses import Document, OddRow

Row = Mapping[str, Any]  # of sweep_attempts

#: What was received so long before a submission was written is another document. The portal shows
#: whole seconds.
CLOCKS_APART = timedelta(minutes=1)
LIVE = {"Submitted", "Valid", "Unknown"}  # one whose status is not known may bind

DUPLICATE, ORPHAN, MISSING = "duplicate", "orphan", "missing"
ADOPTABLE, CANCELLED_ELSEWHERE, SHARED_UUID = "adoptable", "cancelled_elsewhere", "shared_uuid"


@dataclass(frozen=True, slots=True)
class Finding:
    """The members of a row of sweep_findings."""

    kind: str
    tin: str
    number: str
    document_type: str | None
    uuid: str
    other_uuid: str | None = None
    submitted_document_id: int | None = None
    received_at: datetime | None = None
    cancelled_at: datetime | None = None
    reason: str | None = None

    @property
    def key(self):
        return f"{self.kind} {self.uuid}"


@dataclass(slots=True)
class Verdict:
    """What is to be done about a listing; submissions by id."""

    findings: list = field(default_factory=list)
    # A Queued submission that the portal has -> a Document of it
    adopt: dict = field(default_factory=dict)
    # A Queued submission -> the Document that has its number
    stop: dict = field(default_factory=dict)
    evidence: list = field(default_factory=list)  # (submission, Document)


def judged(tin, listing, attempts, elsewhere, settled_at=None):
    """Return the Verdict on the Documents of a listing under our TIN.

    `attempts` are the rows of sweep_attempts, read after the listing. `elsewhere` are the uuids that other companies have,
    or may have sent without knowing the outcome yet. What the portal received after `settled_at` is left for the next time.
    """
    verdict = Verdict()
    verdict.findings += _cancelled_elsewhere(tin, listing, attempts)
    owned = {row["uuid"] for row in attempts} | set(elsewhere)
    listed = {there.uuid: there for there in listing}
    by_number = {}
    for row in attempts:
        by_number.setdefault(row["number"], []).append(row)
    for there in listing:
        if (
            there.issuer_tin == tin
            and there.uuid not in owned
            and not _is_later(there.received_at, settled_at)
        ):
            _judge(verdict, there, tin, by_number.get(there.number, []), listed)
    return verdict


def _judge(verdict, there, tin, attempts, listed):
    """Judge a document whose uuid no attempt has. By number, type and issue time it may still belong to one."""
    same = [row for row in attempts if _same(row, there, tin)]
    row = same[-1] if same else None
    is_ours = row and (
        row["possibly_received"]
        or not _is_later(row["created_at"] - CLOCKS_APART, there.received_at)
    )
    if row and row["state"] == "Queued" and is_ours:
        verdict.adopt[row["submission_id"]] = there
    elif is_ours and row["state"] == "NeedsPerson" and row["status"] == "Submitting":
        verdict.findings.append(_finding(ADOPTABLE, tin, there, row))
    elif there.status not in LIVE:
        pass
    elif row and row["uuid"]:
        verdict.evidence.append((row["submission_id"], there))
        verdict.findings.append(_duplicate(tin, there, row, listed.get(row["uuid"])))
    elif not row or row["state"] not in (
        "Sending",
        "Uncertain",
    ):  # of which the truth is being found
        verdict.findings.append(_finding(ORPHAN, tin, there, row))
        waiting = (one for one in attempts if one["state"] == "Queued" and _has_type(one, there))
        verdict.stop |= {one["submission_id"]: there for one in waiting}


def _duplicate(tin, there, row, other):
    """Two documents of one attempt; the later of them is the one to cancel."""
    if other is None or not _is_later(other.received_at, there.received_at):
        return _finding(DUPLICATE, tin, there, row, row["uuid"])
    return _finding(DUPLICATE, tin, other, row, there.uuid)


def _finding(kind, tin, there, row, other_uuid=None):
    id = row["id"] if row else None
    return Finding(
        kind, tin, there.number, there.type_code, there.uuid, other_uuid, id, there.received_at
    )


def _cancelled_elsewhere(tin: str, listing: list[Document], attempts: list[Row]) -> list[Finding]:
    """Return findings of documents that the portal shows as cancelled, and that no request of this service cancelled."""
    ours = {row["uuid"]: row for row in attempts if row["uuid"] and row["is_foreign_if_cancelled"]}
    cancelled = [there for there in listing if there.status == "Cancelled" and there.uuid in ours]
    return [
        replace(
            _finding(CANCELLED_ELSEWHERE, tin, there, ours[there.uuid]),
            cancelled_at=there.cancelled_at,
            reason=there.reason,
        )
        for there in cancelled
    ]


def shared(
    tin: str, listing: list[Document], attempts: list[Row], uuids: set[str]
) -> list[Finding]:
    """Return findings of our documents whose uuids other companies have recorded as theirs."""
    ours = {row["uuid"]: row for row in attempts if row["uuid"] in uuids}
    return [
        _finding(SHARED_UUID, tin, there, ours[there.uuid])
        for there in listing
        if there.uuid in ours
    ]


def unreadable(
    tin: str, odd: Iterable[OddRow], attempts: Iterable[Mapping[str, Any]]
) -> list[Finding]:
    """Return findings of rows that could not be read and that no attempt accounts for: each may be a document of ours."""
    owned = {row["uuid"] for row in attempts}
    return [
        Finding(ORPHAN, tin, row.number or "", row.type_code, row.key)
        for row in odd
        if row.issuer_tin in (None, tin) and row.key not in owned
    ]


def missing(tin, listing, expected, odd=()):
    """Return findings of documents of ours that a complete listing does not have, and that no `odd` row of it may be."""
    there = {one.uuid for one in listing} | {row.key for row in odd}
    numbers = {row.number for row in odd if row.uuid is None}
    expected = [] if None in numbers else [row for row in expected if row["number"] not in numbers]
    return [
        Finding(
            MISSING,
            tin,
            row["number"],
            row["document_type"],
            row["uuid"],
            None,
            row["id"],
            row["submitted_at"],
        )
        for row in expected
        if row["uuid"] not in there
    ]


def _same(row, there, tin):
    """What a listing leaves out does not tell two documents apart; what it says has to agree."""
    return (
        row["tin"] == tin and _has_type(row, there) and there.issued_at in (None, row["issued_at"])
    )


def _has_type(row, there):
    return there.type_code in (None, row["document_type"])


def _is_later(at, than):
    return at is not None and than is not None and at > than

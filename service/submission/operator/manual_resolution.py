"""Manual resolution: an operator's decision on a submission, checked against the portal.

The decision is stored with the statements of every other outcome, and with the operator's note.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from service.db.connections import UniqueViolationError
from service.db.statements import sql
from service.documents import states
from service.errors import make_reason
from service.json_types import JsonObject
from service.portal.documents import Document
from service.portal.errors import Refused
from service.submission import store
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.following import document_comparison
from service.submission.following.matching import is_candidate
from service.submission.following.odd_rows import may_be_document, record_odd_rows
from service.submission.foreign_uuids import RecordedRow
from service.submission.machine.comparison_rules import FURTHEST
from service.submission.machine.types import (
    CLOCK_TOLERANCE,
    Change,
    Submission,
    SubmittedDocument,
    Write,
)
from service.submission.own_clients import sign_in

LONGEST_DELAY = timedelta(days=1)  # between a send and its arrival
NOT_RECEIVED = "An operator has confirmed that the portal never received the document: {}"
TAKEN = "{} is recorded for another document."
UNREADABLE = "The portal lists {}, which may be one of the documents and cannot be read: {}"
#: Status of a document that the portal does not have -> its new status.
RELEASED: dict[states.SubmittedStatus, states.SubmittedStatus] = {
    "Submitting": "NotSent",
    "Submitted": "Invalid",
}


class CannotResolve(Exception):
    """The reason why a decision is rejected, for the operator."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A submission in manual review, with its documents that have no final status."""

    company_id: int
    row: store.SubmissionRow
    docs: tuple[SubmittedDocument, ...]

    @property
    def id(self) -> int:
        return self.row["id"]

    @property
    def tin(self) -> str:
        return self.row["tin"]

    @property
    def submission(self) -> Submission:
        """Return the submission with its open documents, for comparisons."""
        row = self.row
        return Submission(
            row["state"],
            row["on_absence"],
            row["now"],
            tin=self.tin,
            docs=self.docs,
            first_sent_at=row["first_sent_at"],
            last_sent_at=row["last_sent_at"],
        )


@dataclass(frozen=True, slots=True)
class _Decision:
    """A checked decision: the new state of the submission and the changes of its documents."""

    outcome: str
    state: states.SubmissionState
    changes: Sequence[Change]
    note: str
    submission_uid: str | None = None
    numbers: Sequence[str] = field(default_factory=tuple)
    uuids: Sequence[str] = field(default_factory=tuple)


async def resolve_as_received(
    context: SubmissionContext, company_id: int, submission_id: int, uuids: list[str], note: str
) -> JsonObject:
    """Adopt the portal's documents with these uuids. Each must be the document that was sent.

    Raises CannotResolve and PortalError.
    """
    context = await sign_in(context, company_id)
    case = await _load_case(context, company_id, submission_id)
    shown = [await _get_details(context, case, uuid) for uuid in uuids]
    submission = case.submission
    pairs = [(doc, _match(submission, doc, shown)) for doc in submission.docs]
    uids = {listed.submission_uid for _, listed in pairs}
    if len(pairs) != len(uuids) or len(uids) != 1:
        raise CannotResolve(
            f"Submission {submission_id} has {len(pairs)} documents: give one uuid for each, all "
            "from one portal submission."
        )
    if recorded := await _find_recorded(context, case, uuids):
        raise CannotResolve(TAKEN.format(recorded[0]))
    contents = await _load_contents(context, case)
    for doc, listed in pairs:
        await _check_is_sent(context, case, listed, contents[doc.number])
    decision = _Decision(
        "received",
        "Accepted",
        [
            Change(doc.id, "Submitted", uuid=listed.uuid, submitted_at=listed.received_at)
            for doc, listed in pairs
        ],
        note,
        submission_uid=uids.pop(),
        numbers=[doc.number for doc, _ in pairs],
        uuids=[listed.uuid for _, listed in pairs],
    )
    return await _store(context, case, decision)


async def resolve_as_not_received(
    context: SubmissionContext, company_id: int, submission_id: int, note: str
) -> JsonObject:
    """Release documents that the portal never received, so that they may be sent again.

    Raises CannotResolve and PortalError.
    """
    context = await sign_in(context, company_id)
    case = await _load_case(context, company_id, submission_id)
    if valid := [doc.number for doc in case.docs if doc.status not in RELEASED]:
        raise CannotResolve(f"The portal validated {', '.join(valid)}, so it was received.")
    if case.row["first_sent_at"]:
        await _check_not_listed(context, case)
    errors = [make_reason("NotReceived", NOT_RECEIVED.format(note))]
    changes = [Change(doc.id, RELEASED[doc.status], errors=errors) for doc in case.docs]
    return await _store(context, case, _Decision("not received", "NotReceived", changes, note))


async def _load_case(context: SubmissionContext, company_id: int, submission_id: int) -> _Case:
    async with context.database.reading(company_id) as conn:
        row = await sql.submission_get(conn, company_id=company_id, id=submission_id)
        docs = await store.read_documents(conn, company_id, [submission_id])
    if row is None or row["state"] != "NeedsPerson":
        raise CannotResolve(
            f"No submission {submission_id} of company {company_id} is in manual review."
        )
    open_ones = (doc for doc in docs.get(submission_id, ()) if doc.status not in states.FINAL)
    return _Case(company_id, row, tuple(open_ones))


async def _get_details(context: CompanyContext, case: _Case, uuid: str) -> Document:
    try:
        return await context.portal.details(case.tin, uuid)
    except (Refused, ValueError) as error:
        raise CannotResolve(f"The portal does not show {uuid}: {error}") from None


def _match(submission: Submission, doc: SubmittedDocument, shown: Iterable[Document]) -> Document:
    """Return the portal's document that may be this one. Raises CannotResolve."""
    for listed in shown:
        if listed.number == doc.number:
            if not is_candidate(submission, doc, listed):
                message = (
                    f"{listed.uuid} has the number {listed.number}, but another type or issue "
                    "time, or another issuer."
                )
                raise CannotResolve(message)
            if doc.uuid not in (None, listed.uuid):
                raise CannotResolve(f"{listed.number} has the uuid {doc.uuid}, not {listed.uuid}.")
            return listed
    raise CannotResolve(f"None of the uuids belongs to {doc.number}.")


async def _find_recorded(
    context: SubmissionContext, case: _Case, uuids: Sequence[str]
) -> list[str]:
    """Return the uuids that are recorded for documents of other submissions of any company."""
    async with context.database.reading(case.company_id) as conn:
        rows: list[RecordedRow] = await sql.uuids_recorded(
            conn, company=case.company_id, uuids=uuids
        )
    return [row["uuid"] for row in rows if row["own_submission"] != case.id]


async def _load_contents(context: SubmissionContext, case: _Case) -> dict[str, bytes]:
    """Return the bytes of the sent documents by number."""
    async with context.database.reading(case.company_id) as conn:
        rows: list[store.ContentRow] = await sql.submission_contents(
            conn, company_id=case.company_id, ids=[case.id]
        )
    return {row["number"]: row["content"] for row in rows}


async def _check_is_sent(
    context: CompanyContext, case: _Case, listed: Document, content: bytes
) -> None:
    """Raise CannotResolve unless a document of the portal is the one that was sent.

    The portal returns no copy of an Invalid document: everything that it shows must agree. Raises
    PortalError.
    """
    if listed.status == "Invalid":
        sent = document_comparison.read_sent(content)
        differing = document_comparison.row_differences(sent, listed)
        differing += [] if listed.issuer_tin == case.tin else ["issuer TIN"]
    else:
        copy = await _get_copy(context, case, listed)
        differing = document_comparison.copy_differences(content, copy)
    if differing:
        raise CannotResolve(
            f"{listed.uuid} is not the document that was sent. Differences: {'; '.join(differing)}."
        )


async def _get_copy(context: CompanyContext, case: _Case, listed: Document) -> str:
    try:
        return (await context.portal.raw(case.tin, listed.uuid)).content or ""
    except Refused as error:
        message = f"The portal does not show the text of {listed.uuid}: {error}"
        raise CannotResolve(message) from None


async def _check_not_listed(context: CompanyContext, case: _Case) -> None:
    """Raise CannotResolve if the portal may list one of the documents.

    The listing ends a day after the last send. A candidate does not count if its uuid is recorded
    for another document, or if its text is not the one that was sent. An unreadable row counts
    unless it is recognisably another document, or its uuid is recorded for one. Raises PortalError.
    """
    submission = case.submission
    first_sent_at, last_sent_at = submission.send_times
    until = min(last_sent_at + LONGEST_DELAY, submission.now) + CLOCK_TOLERANCE
    since = max(first_sent_at - CLOCK_TOLERANCE, until - FURTHEST)
    listing = await context.portal.search(case.tin, since, until)
    await record_odd_rows(context, case.company_id, case.tin, "search", listing)
    candidates = [
        listed
        for listed in listing
        if any(is_candidate(submission, doc, listed) for doc in submission.docs)
    ]
    unreadable = [
        one
        for one in listing.odd
        if any(may_be_document(one, submission, doc) for doc in submission.docs)
    ]
    if not candidates and not unreadable:
        return
    contents = await _load_contents(context, case)
    uuids = [one.uuid for one in (*candidates, *unreadable) if one.uuid]
    recorded = await _find_recorded(context, case, uuids)
    for listed in candidates:
        content = contents[listed.number]
        if listed.uuid not in recorded and await _may_be_sent(context, case, listed, content):
            raise CannotResolve(f"The portal has {listed.number}: --received {listed.uuid}")
    for one in unreadable:
        if one.uuid not in recorded:
            raise CannotResolve(UNREADABLE.format(one.key, " ".join(one.problems)))


async def _may_be_sent(
    context: CompanyContext, case: _Case, listed: Document, content: bytes
) -> bool:
    """Return whether the portal's copy, if it returns one, is the document that was sent."""
    try:
        copy = (await context.portal.raw(case.tin, listed.uuid)).content or ""
    except Refused:
        return True
    return document_comparison.is_same(content, copy)


async def _store(context: SubmissionContext, case: _Case, decision: _Decision) -> JsonObject:
    """Store a decision and its effects in one transaction. Raises CannotResolve."""
    company_id, submission_id = case.company_id, case.id
    key = {"company_id": company_id, "submission_id": submission_id}
    async with context.database.company(company_id) as conn:
        await sql.subjects_lock(conn, **key)
        taken = await sql.submission_take_over(conn, company_id=company_id, id=submission_id)
        if taken is None:
            raise CannotResolve(f"Submission {submission_id} has been resolved meanwhile.")
        shown = zip(decision.uuids, decision.numbers, strict=True)
        uid = decision.submission_uid
        await store.insert_sightings(
            conn, company_id, [(submission_id, *one, uid, "details") for one in shown]
        )
        docs = await store.read_documents(conn, company_id, [submission_id])
        submission = Submission(
            "NeedsPerson", "release", taken["now"], docs=docs.get(submission_id, ())
        )
        claim = Claim(company_id, submission_id, taken["fence"])
        result = Write(decision.state, tuple(decision.changes), uid=decision.submission_uid)
        try:
            await store.write_result(conn, claim, submission, result)
        except UniqueViolationError as error:  # another submission has adopted it meanwhile
            if getattr(error, "constraint_name", None) != store.UUID_ONCE:
                raise
            raise CannotResolve(TAKEN.format("One of the uuids")) from None
        await sql.manual_resolution_record(
            conn, **key, outcome=decision.outcome, note=decision.note
        )
    return {**key, "state": decision.state}

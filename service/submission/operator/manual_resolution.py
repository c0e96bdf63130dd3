"""Manual resolution: an operator's decision on a submission, checked against the portal.

The decision is stored with the statements of every other outcome, and with the operator's note.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from service.db.connections import UniqueViolationError
from service.db.statements import sql
from service.documents import states
from service.documents.ubl import reader
from service.errors import OperatorError, make_reason
from service.json_types import JsonObject
from service.portal.documents import Document, OddRow
from service.portal.errors import Refused
from service.submission import store
from service.submission.context import Claim, CompanyContext, SubmissionContext
from service.submission.following import document_comparison
from service.submission.following.later_states import record_odd_rows
from service.submission.foreign_uuids import read_recorded
from service.submission.machine.comparison_rules import FURTHEST, is_candidate
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


class CannotResolve(OperatorError):
    """The reason why a decision is rejected, for the operator."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A submission in manual review, with its documents that have no final status."""

    company_id: int
    id: int
    submission: Submission


async def resolve_as_received(
    context: SubmissionContext, company_id: int, submission_id: int, uuids: list[str], note: str
) -> JsonObject:
    """Adopt the portal's documents with these uuids. Each must be the document that was sent.

    Raises CannotResolve and PortalError.
    """
    context = await sign_in(context, company_id)
    case = await _load_case(context, company_id, submission_id)
    submission = case.submission
    there = [await _get_details(context, submission.tin, uuid) for uuid in uuids]
    pairs = [(doc, _match(submission, doc, there)) for doc in submission.docs]
    uids = {listed.submission_uid for _, listed in pairs}
    if len(pairs) != len(uuids) or len(uids) != 1:
        raise CannotResolve(
            f"Submission {submission_id} has {len(pairs)} documents: give one uuid for each, all "
            "from one portal submission."
        )
    recorded, contents = await _load_stored(context, case, uuids)
    if recorded:
        raise CannotResolve(TAKEN.format(recorded[0]))
    for doc, listed in pairs:
        await _check_is_sent(context, submission.tin, listed, contents[case.id, doc.number])
    changes = tuple(
        Change(doc.id, "Submitted", uuid=listed.uuid, submitted_at=listed.received_at)
        for doc, listed in pairs
    )
    shown = [
        (case.id, listed.uuid, doc.number, listed.submission_uid, "details")
        for doc, listed in pairs
    ]
    return await _store(context, case, Write("Accepted", changes, uid=uids.pop()), note, shown)


async def resolve_as_not_received(
    context: SubmissionContext, company_id: int, submission_id: int, note: str
) -> JsonObject:
    """Release documents that the portal never received, so that they may be sent again.

    Raises CannotResolve and PortalError.
    """
    context = await sign_in(context, company_id)
    case = await _load_case(context, company_id, submission_id)
    docs = case.submission.docs
    if valid := [doc.number for doc in docs if doc.status not in RELEASED]:
        raise CannotResolve(f"The portal validated {', '.join(valid)}, so it was received.")
    if case.submission.first_sent_at:
        await _check_not_listed(context, case)
    errors = [make_reason("NotReceived", NOT_RECEIVED.format(note))]
    changes = tuple(Change(doc.id, RELEASED[doc.status], errors=errors) for doc in docs)
    return await _store(context, case, Write("NotReceived", changes), note)


async def _load_case(context: SubmissionContext, company_id: int, submission_id: int) -> _Case:
    async with context.database.reading(company_id) as conn:
        row = await sql.submission_get(conn, id=submission_id)
        if row is None or row["state"] != "NeedsPerson":
            raise CannotResolve(
                f"No submission {submission_id} of company {company_id} is in manual review."
            )
        (submission,) = await store.read_submissions(conn, [row])
    docs = tuple(doc for doc in submission.docs if doc.status not in states.FINAL)
    # The decision ends the doubt whether an earlier send was received.
    submission = replace(submission, docs=docs, possibly_received=False)
    return _Case(company_id, submission_id, submission)


async def _get_details(context: CompanyContext, tin: str, uuid: str) -> Document:
    try:
        return await context.portal.details(tin, uuid)
    except (Refused, ValueError) as error:
        raise CannotResolve(f"The portal does not show {uuid}: {error}") from None


def _match(submission: Submission, doc: SubmittedDocument, shown: Iterable[Document]) -> Document:
    """Return the portal's document that may be this one. Raises CannotResolve."""
    for listed in shown:
        if listed.number == doc.number:
            if not is_candidate(submission.tin, doc, listed):
                message = (
                    f"{listed.uuid} has the number {listed.number}, but another type or issue "
                    "time, or another issuer."
                )
                raise CannotResolve(message)
            if doc.uuid not in (None, listed.uuid):
                raise CannotResolve(f"{listed.number} has the uuid {doc.uuid}, not {listed.uuid}.")
            return listed
    raise CannotResolve(f"None of the uuids belongs to {doc.number}.")


async def _load_stored(
    context: SubmissionContext, case: _Case, uuids: list[str]
) -> tuple[list[str], dict[tuple[int, str], bytes]]:
    """Return the uuids that documents of other submissions of any company have, and what was sent.

    The latter is {(submission id, number): bytes of the document}.
    """
    async with context.database.reading(case.company_id) as conn:
        recorded = await read_recorded(conn, case.company_id, uuids)
        contents = await store.read_contents(conn, [case.id])
    return [uuid for uuid, own in recorded.items() if own != case.id], contents


async def _check_is_sent(
    context: CompanyContext, tin: str, listed: Document, content: bytes
) -> None:
    """Raise CannotResolve unless a document of the portal is the one that was sent.

    The portal returns no copy of an Invalid document: everything that it shows must agree. Raises
    PortalError.
    """
    if listed.status == "Invalid":
        differing = document_comparison.row_differences(reader.read(content), listed)
        differing += [] if listed.issuer_tin == tin else ["issuer TIN"]
    else:
        try:
            copy = (await context.portal.raw(tin, listed.uuid)).content or ""
        except Refused as error:
            message = f"The portal does not show the text of {listed.uuid}: {error}"
            raise CannotResolve(message) from None
        differing = document_comparison.copy_differences(content, copy)
    if differing:
        raise CannotResolve(
            f"{listed.uuid} is not the document that was sent. Differences: {'; '.join(differing)}."
        )


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
    listing = await context.portal.search(submission.tin, since, until)
    await record_odd_rows(context, case.company_id, submission.tin, "search", listing)
    possible = [
        one
        for one in (*listing, *listing.odd)
        if any(is_candidate(submission.tin, doc, one) for doc in submission.docs)
    ]
    if not possible:
        return
    uuids = [one.uuid for one in possible if one.uuid]
    recorded, contents = await _load_stored(context, case, uuids)
    for one in possible:
        if one.uuid in recorded:
            continue
        if isinstance(one, OddRow):
            raise CannotResolve(UNREADABLE.format(one.key, " ".join(one.problems)))
        if await _may_be_sent(context, submission.tin, one, contents[case.id, one.number]):
            raise CannotResolve(f"The portal has {one.number}: --received {one.uuid}")


async def _may_be_sent(context: CompanyContext, tin: str, listed: Document, content: bytes) -> bool:
    """Return whether the portal's copy, if it returns one, is the document that was sent."""
    try:
        copy = (await context.portal.raw(tin, listed.uuid)).content or ""
    except Refused:
        return True
    return document_comparison.is_same(content, copy)


async def _store(
    context: SubmissionContext,
    case: _Case,
    result: Write,
    note: str,
    shown: Sequence[store.Shown] = (),
) -> JsonObject:
    """Store a result and its effects in one transaction. Raises CannotResolve."""
    key = {"company_id": case.company_id, "submission_id": case.id}
    async with context.database.company(case.company_id) as conn:
        await sql.subjects_lock(conn, **key)
        fence = await sql.submission_take_over(conn, id=case.id)
        if fence is None:
            raise CannotResolve(f"Submission {case.id} has been resolved meanwhile.")
        await store.insert_sightings(conn, shown)
        claim = Claim(case.company_id, case.id, fence)
        try:
            await store.write_results(conn, case.company_id, [(claim, case.submission, result)])
        except UniqueViolationError as error:  # another submission has adopted it meanwhile
            if getattr(error, "constraint_name", None) != store.UUID_ONCE:
                raise
            raise CannotResolve(TAKEN.format("One of the uuids")) from None
        outcome = "received" if result.state == "Accepted" else "not received"
        await sql.manual_resolution_record(conn, **key, outcome=outcome, note=note)
    return {**key, "state": result.state}

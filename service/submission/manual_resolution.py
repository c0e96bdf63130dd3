"""Record what a person decides about a submission that needs one, after the portal has confirmed it.

The decision goes through the statements of every other outcome, and is written down with the person's note.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import asyncpg

from service.db.statements import sql
from service.documents import states
from service.documents.ubl import document
from service.portal.errors import Refused
from service.portal.responses import Document
from service.submission import document_comparison, store
from service.submission.context import Claim, SubmissionContext
from service.submission.matching import is_candidate
from service.submission.odd_rows import may_be_document, record_odd_rows
from service.submission.sweep import CLOCKS_APART, LONGEST_LISTING
from service.submission.types import Change, Submission, SubmittedDocument, Write

LONGEST_DELAY = timedelta(days=1)  # between a send and its arrival
NOT_RECEIVED = "A person has found out that the portal never had the document: {}"
TAKEN = "{} is recorded for another document."
UNREADABLE = "The portal lists {}, which may be one of the documents and cannot be read: {}"
#: status of a document that the portal does not have -> what it becomes
LET_GO = {"Submitting": "Rejected", "Submitted": "Invalid"}


class CannotResolve(Exception):
    """Why the decision is not taken, for the person."""


async def resolve_as_received(
    context: SubmissionContext, company: int, id: int, uuids: list[str], note: str
) -> dict[str, Any]:
    """Adopt the documents that the portal has under these uuids. Each has to be the one that was sent.

    Raises Unsettled and PortalError.
    """
    row, docs = await _case(context, company, id)
    seen = [await _details(context, row, uuid) for uuid in uuids]
    submission = _submission(row, docs)
    pairs = [(doc, _match(submission, SubmittedDocument(**doc), seen)) for doc in docs]
    uids = {there.submission_uid for _, there in pairs}
    if len(pairs) != len(uuids) or len(uids) != 1:
        raise CannotResolve(
            f"Submission {id} has {len(docs)} documents: name a uuid of each, all of one call."
        )
    await _refuse_taken(context, company, id, uuids)
    contents = await _contents(context, company, id)
    for doc, there in pairs:
        await _refuse_unproven(context, row, there, contents[doc["number"]])
    changes = [
        Change(doc["id"], "Submitted", uuid=there.uuid, submitted_at=there.received_at)
        for doc, there in pairs
    ]
    numbers = [doc["number"] for doc, _ in pairs]
    more = {
        "submission_uid": uids.pop(),
        "numbers": numbers,
        "uuids": [there.uuid for _, there in pairs],
    }
    return await _written(context, company, id, "received", "Accepted", changes, note, **more)


async def resolve_as_not_received(context, company, id, note):
    """The portal never had the documents: they may be sent anew. Raises Unsettled, PortalError."""
    row, docs = await _case(context, company, id)
    if valid := [doc["number"] for doc in docs if doc["status"] not in LET_GO]:
        raise CannotResolve(
            f"{', '.join(valid)} was found Valid by the portal, so it was received."
        )
    if row["first_sent_at"]:
        await _refuse_listed(context, company, row, docs)
    errors = [{"code": "NotReceived", "path": "", "message": NOT_RECEIVED.format(note)}]
    changes = [Change(doc["id"], LET_GO[doc["status"]], errors=errors) for doc in docs]
    return await _written(context, company, id, "not_received", "NotReceived", changes, note)


async def _case(context, company, id):
    """The submission, and its documents that are still open."""
    async with context.database.reading(company) as conn:
        row = await sql.submission_get(conn, company_id=company, id=id)
        docs = await sql.submission_documents(conn, company_id=company, submission_id=id)
    if row is None or row["state"] != "NeedsPerson":
        raise CannotResolve(f"No submission {id} of company {company} needs a person.")
    return row, [doc for doc in docs if doc["status"] not in states.FINAL]


async def _details(context, row, uuid):
    try:
        return await context.portal.details(row["tin"], uuid)
    except Refused as why:
        raise CannotResolve(f"The portal does not show {uuid}: {why}") from None


def _submission(row: Mapping[str, Any], docs: Iterable[Mapping[str, Any]]) -> Submission:
    """Return the submission with its open documents, to compare them with documents of the portal."""
    return Submission(
        row["state"],
        row["on_absence"],
        row["now"],
        tin=row["tin"],
        docs=tuple(SubmittedDocument(**doc) for doc in docs),
    )


def _match(submission: Submission, doc: SubmittedDocument, seen: Iterable[Document]) -> Document:
    """Return the one of the portal's documents that is this one. Raise Unsettled, naming the members that differ."""
    for there in seen:
        if there.number == doc.number:
            if not is_candidate(submission, doc, there):
                differing = "another type or issue time, or issuer"
                raise CannotResolve(f"{there.uuid} has the number {there.number}, and {differing}.")
            if doc.uuid not in (None, there.uuid):
                raise CannotResolve(f"{there.number} has the uuid {doc.uuid}, not {there.uuid}.")
            return there
    raise CannotResolve(f"None of the uuids is of {doc.number}.")


async def _refuse_taken(
    context: SubmissionContext, company: int, submission_id: int, uuids: list[str]
) -> None:
    """Raise Unsettled if a document of another submission has one of the uuids, whichever company it belongs to."""
    async with context.database.reading(company) as conn:
        rows = await sql.uuids_recorded(conn, company_id=company, uuids=uuids)
    if taken := [row["uuid"] for row in rows if row["own_submission"] != submission_id]:
        raise CannotResolve(TAKEN.format(taken[0]))


async def _contents(
    context: SubmissionContext, company: int, submission_id: int
) -> dict[str, bytes]:
    """Return {number: the bytes of the document that was sent}."""
    async with context.database.reading(company) as conn:
        body = await sql.submission_body(conn, company_id=company, id=submission_id)
    return document.contents(body)


async def _refuse_unproven(
    context: SubmissionContext, row: Mapping[str, Any], there: Document, content: bytes
) -> None:
    """Raise Unsettled unless a document of the portal is the one that was sent.

    The portal gives no copy of an Invalid document: of that, everything that it shows has to agree. Raises PortalError.
    """
    if there.status == "Invalid":
        differing = document_comparison.row_differences(
            document_comparison.read_sent(content), there
        )
        differing += [] if there.issuer_tin == row["tin"] else ["issuer TIN"]
    else:
        differing = document_comparison.copy_differences(content, await _copy(context, row, there))
    if differing:
        raise CannotResolve(
            f"{there.uuid} is not the document that was sent. What differs: {'; '.join(differing)}."
        )


async def _copy(context: SubmissionContext, row: Mapping[str, Any], there: Document) -> str:
    try:
        return (await context.portal.raw(row["tin"], there.uuid)).content or ""
    except Refused as why:
        raise CannotResolve(f"The portal does not show the text of {there.uuid}: {why}") from None


async def _refuse_listed(
    context: SubmissionContext, company: int, row: Mapping[str, Any], docs: list[Mapping[str, Any]]
) -> None:
    """Raise Unsettled if the portal may list one of the documents after all, within a day after the last send.

    A candidate does not count if another document has its uuid, or if its text is not the one that was sent. A row that
    could not be read counts unless it shows that it is another document, or another document has its uuid. Raises
    PortalError.
    """
    until = min(row["last_sent_at"] + LONGEST_DELAY, row["now"]) + CLOCKS_APART
    since = max(row["first_sent_at"] - CLOCKS_APART, until - LONGEST_LISTING)
    listing = await context.portal.search(row["tin"], since, until)
    await record_odd_rows(context, company, row["tin"], "search", listing, listing.odd)
    submission = _submission(row, docs)
    candidates = [
        there
        for there in listing
        if any(is_candidate(submission, doc, there) for doc in submission.docs)
    ]
    unreadable = [
        one
        for one in listing.odd
        if any(may_be_document(one, submission, doc) for doc in submission.docs)
    ]
    if not candidates and not unreadable:
        return
    contents = await _contents(context, company, row["id"])
    async with context.database.reading(company) as conn:
        uuids = [one.uuid for one in (*candidates, *unreadable) if one.uuid]
        rows = await sql.uuids_recorded(conn, company_id=company, uuids=uuids)
    recorded = {one["uuid"] for one in rows if one["own_submission"] != row["id"]}
    for there in candidates:
        if there.uuid not in recorded and await _may_be(
            context, row, there, contents[there.number]
        ):
            raise CannotResolve(f"The portal has {there.number}: --received {there.uuid}")
    for one in unreadable:
        if one.uuid not in recorded:
            raise CannotResolve(UNREADABLE.format(one.key, " ".join(one.problems)))


async def _may_be(
    context: SubmissionContext, row: Mapping[str, Any], there: Document, content: bytes
) -> bool:
    """Return false if the portal's copy shows that it is not the document that was sent. Raises PortalError."""
    try:
        return document_comparison.is_same(
            content, (await context.portal.raw(row["tin"], there.uuid)).content or ""
        )
    except Refused:
        return True


async def _written(
    context: SubmissionContext,
    company: int,
    id: int,
    outcome: str,
    state: str,
    changes: list[Change],
    note: str,
    *,
    submission_uid: str | None = None,
    numbers: Iterable[str] = (),
    uuids: Iterable[str] = (),
) -> dict[str, Any]:
    """Write the decision with all that follows from it in one transaction. Raises Unsettled."""
    async with context.database.company(company) as conn:
        await store.lock_subjects(conn, company, id)
        taken = await sql.submission_take_over(conn, company_id=company, id=id)
        if taken is None:
            raise CannotResolve(f"Submission {id} was settled meanwhile.")
        evidence = {
            "numbers": numbers,
            "uuids": uuids,
            "submission_uid": submission_uid,
            "via": "details",
        }
        await sql.sighting_insert(conn, company_id=company, submission_id=id, **evidence)
        rows = await sql.submission_documents(conn, company_id=company, submission_id=id)
        submission = Submission(
            "NeedsPerson",
            "release",
            taken["now"],
            docs=tuple(SubmittedDocument(**row) for row in rows),
        )
        write = Write(state, tuple(changes), uid=submission_uid)
        try:
            await store.write_result(conn, Claim(company, id, taken["fence"]), submission, write)
        except (
            asyncpg.UniqueViolationError
        ) as error:  # adopted by another submission since it was looked for
            if error.constraint_name != store.UUID_ONCE:
                raise
            raise CannotResolve(TAKEN.format("One of the uuids")) from None
        await sql.findings_settle(conn, company_id=company, submission_id=id, note=note)
        await sql.settlement_insert(
            conn, company_id=company, submission_id=id, outcome=outcome, uuids=uuids, note=note
        )
    return {"company_id": company, "submission_id": id, "state": state}

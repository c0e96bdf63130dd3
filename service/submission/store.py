"""Stores submissions: loads claimed ones, and writes results, sightings and released claims."""

import asyncio
import functools
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from typing import ParamSpec, TypedDict, TypeVar

from service import failpoints, json_codec
from service.db.connections import (
    TRANSIENT_DB_ERRORS,
    Connection,
    UniqueViolationError,
    is_transient,
)
from service.db.statements import sql
from service.documents import states
from service.errors import describe_error, make_reason
from service.json_types import JsonObject, Row
from service.monitoring.metrics import DOCUMENT_OUTCOMES, SUBMISSION_MOVES
from service.submission.context import Claim, SubmissionContext
from service.submission.foreign_uuids import mask_foreign_uuids, read_recorded
from service.submission.machine import state_machine
from service.submission.machine.failures import describe_not_sent, name_failure
from service.submission.machine.types import (
    NO_DELAY,
    Change,
    Part,
    RecordSightings,
    Sighting,
    Submission,
    SubmittedDocument,
    Write,
)

log = logging.getLogger(__name__)

# The unique index that gives a uuid to one document of all companies
UUID_ONCE = "submitted_documents_uuid_once"
UUID_TAKEN = make_reason(
    "UuidTaken", "The portal returned an identifier that cannot be recorded for this document."
)
REPEATS = (0.1, 0.5, 1, 2)  # between tries to write while PostgreSQL is unavailable

#: A claim, the submission before a result, and the result.
Move = tuple[Claim, Submission, Write]
#: A sighting to insert: submission id, uuid, number, submission uid and source.
Shown = tuple[int, str, str, str | None, str]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class ContentRow(TypedDict):
    """A row of submission_contents."""

    submission_id: int
    number: str
    document_hash: str
    content: bytes


async def load(context: SubmissionContext, claim: Claim) -> Submission | None:
    """Return a claimed submission as stored, or None if the claim was lost."""
    async with context.database.reading(claim.company_id) as conn:
        row = await sql.submission_get(conn, **claim.key)
        if row["fence"] != claim.fence:
            return None
        return (await read_submissions(conn, [row]))[0]


async def read_submissions(conn: Connection, rows: Sequence[Row]) -> list[Submission]:
    """Return the submissions of some rows in their order, with their documents and sightings."""
    ids = [row["id"] for row in rows]
    submitted = await sql.submission_documents(conn, ids=ids)
    docs = _group(SubmittedDocument, submitted)
    sent = [row["id"] for row in rows if row["first_sent_at"]]
    shown: list[Row] = []
    if sent:
        shown = await sql.sightings_of(conn, ids=sent)
    sightings = _group(Sighting, shown)
    return [_make_submission(row, docs[row["id"]], sightings[row["id"]]) for row in rows]


async def read_contents(conn: Connection, ids: Collection[int]) -> dict[tuple[int, str], bytes]:
    """Return {(submission id, number): bytes of the sent document}."""
    if not ids:
        return {}
    rows: list[ContentRow] = await sql.submission_contents(conn, ids=sorted(ids))
    return {(row["submission_id"], row["number"]): row["content"] for row in rows}


def _group(kind: Callable[..., Result], rows: Iterable[Row]) -> defaultdict[int, list[Result]]:
    """Return {submission id: objects of the rows}, whose other columns are their members."""
    groups: defaultdict[int, list[Result]] = defaultdict(list)
    for row in rows:
        values = dict(row)
        groups[values.pop("submission_id")].append(kind(**values))
    return groups


def _make_submission(
    row: Row, docs: Iterable[SubmittedDocument], sightings: Iterable[Sighting]
) -> Submission:
    # An unconfirmed refusal, or the times since when the portal does not know the submission or
    # refuses its polls.
    error: JsonObject = json_codec.loads((row["last_error"] or "{}").encode())
    is_unknown = error.get("code") == state_machine.NOT_FOUND
    values: JsonObject = {**row}
    del values["id"], values["fence"], values["last_error"]
    return Submission(
        **values,
        docs=tuple(docs),
        sightings=tuple(sightings),
        refusal=error if error.get("code") in state_machine.KEPT_CODES else None,
        unknown_since=_parse_time(error.get("since")) if is_unknown else None,
        searched_at=_parse_time(error.get("searched_at")) if is_unknown else None,
        refused_since=_parse_time(error.get("since")) if error.get("code") == "Refused" else None,
    )


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def persistent(
    write: Callable[Arguments, Awaitable[Result]],
) -> Callable[Arguments, Awaitable[Result]]:
    """Retry a writing function while PostgreSQL is unavailable, so that no response is lost.

    The second argument of the function is a Claim, or the id of a company.
    """

    @functools.wraps(write)
    async def write_with_retries(*args: Arguments.args, **values: Arguments.kwargs) -> Result:
        for pause in REPEATS:
            try:
                return await write(*args, **values)
            except TRANSIENT_DB_ERRORS as error:
                if not is_transient(error):
                    raise
                log.warning("submission %s: %s", args[1], describe_error(error))
                await asyncio.sleep(pause)
        return await write(*args, **values)

    return write_with_retries


@persistent
async def write(
    context: SubmissionContext, claim: Claim, submission: Submission, command: Write
) -> bool:
    """Write a result and release the claim. Return False, with nothing written, if it was lost.

    `submission` is the state before the command. A lost claim is not counted as one that ended a
    process. If a uuid now belongs to another document, the documents concerned need manual review,
    and the rest is written in a new transaction with the same claim. Errors are stored without
    uuids of other companies.
    """
    command = await _mask_uuids(context, claim, submission, command)
    try:
        written = await _write_moves(context, claim.company_id, [(claim, submission, command)])
    except UniqueViolationError as error:
        if getattr(error, "constraint_name", None) != UUID_ONCE:
            raise
        taken = await _find_taken(context, claim, submission, command)
        log.error("submission %s: %d uuids belong to other documents", claim, len(taken))
        command = exclude_taken(submission, command, taken)
        written = await _write_moves(context, claim.company_id, [(claim, submission, command)])
    suffix = "" if written else " (claim lost)"
    log.info("submission %s state=%s%s", claim, command.state, suffix)
    return bool(written)


@persistent
async def write_batch(context: SubmissionContext, company_id: int, moves: Sequence[Move]) -> None:
    """Carry out plain Writes in one transaction. Lost claims are skipped."""
    written = await _write_moves(context, company_id, moves)
    lost = len(moves) - len(written)
    log.info("submissions company=%d written=%d claims_lost=%d", company_id, len(written), lost)


async def _mask_uuids(
    context: SubmissionContext, claim: Claim, submission: Submission, command: Write
) -> Write:
    """Return the command with masked uuids in the errors of the portal."""
    mask = partial(mask_foreign_uuids, context, claim.company_id, submission.tin)
    changes = [
        replace(change, errors=await mask(change.errors)) if change.errors else change
        for change in command.changes
    ]
    error = command.error
    if error:
        error, *inner = await mask([error, *error.get("errors", [])])
        error = {**error, "errors": inner} if inner else error
    return replace(command, changes=tuple(changes), error=error)


async def _write_moves(
    context: SubmissionContext, company_id: int, moves: Sequence[Move]
) -> set[int]:
    """Write results in one transaction, and return the ids of those whose claim was valid.

    Locks the subjects of documents that change before the submissions.
    """
    async with context.database.company(company_id) as conn:
        for claim, _, command in moves:
            if not is_plain(command):
                await sql.subjects_lock(conn, submission_id=claim.id)
        written = await write_results(conn, company_id, moves)
        for claim, _, _ in moves:
            if claim.id not in written:
                await sql.submission_uncount(conn, **claim.key, fence=claim.fence)
        failpoints.reach("before_state_commit")
    failpoints.reach("after_state_commit")
    for claim, submission, command in moves:
        if claim.id in written and command.state != submission.state:
            SUBMISSION_MOVES.labels(command.state).inc()
    return written


async def _find_taken(
    context: SubmissionContext, claim: Claim, submission: Submission, command: Write
) -> set[int]:
    """Return the ids of documents whose new uuid another document has, or another one gets, too.

    Returns all documents with a new uuid if none is found, because the other document may have been
    rolled back since.
    """
    uuids = {change.id: change.uuid for change in command.changes if change.uuid}
    async with context.database.reading(claim.company_id) as conn:
        recorded = await read_recorded(conn, claim.company_id, list(uuids.values()))
    unchanged = {doc.id for doc in submission.docs if doc.uuid and doc.uuid == uuids.get(doc.id)}
    repeated = {uuid for uuid, count in Counter(uuids.values()).items() if count > 1}
    taken = {
        submitted_document_id
        for submitted_document_id, uuid in uuids.items()
        if uuid in repeated or (uuid in recorded and submitted_document_id not in unchanged)
    }
    return taken or set(uuids)


def exclude_taken(submission: Submission, command: Write, taken: set[int]) -> Write:
    """Return the Write with documents left to manual review whose uuids other documents have.

    `taken` are their ids. They do not change, so that the uuid stays with the other document.
    """
    changes = tuple(change for change in command.changes if change.id not in taken)
    parts = tuple(replace(part, ids=part.ids - taken) for part in command.parts if part.ids - taken)
    staying = {doc.id for doc in submission.docs} - command.moved_ids
    if staying <= taken:  # the submission itself needs review, with all taken documents
        command = replace(command, state="NeedsPerson", delay=NO_DELAY, error=UUID_TAKEN)
        return replace(command, changes=changes, parts=parts)
    review = Part(frozenset(taken), "NeedsPerson", error=UUID_TAKEN)
    return replace(command, changes=changes, parts=(*parts, review))


async def write_results(conn: Connection, company_id: int, moves: Sequence[Move]) -> set[int]:
    """Write results in a transaction that has locked the subjects of documents that change.

    Return the ids of the submissions whose claim was valid. The others do not change.
    """
    rows = [_move_values(*move) for move in moves]
    done = await sql.submission_move(conn, moves=json_codec.dumps(rows))
    written = {row["id"] for row in done}
    for claim, _, command in moves:
        if claim.id in written:
            await apply_changes(conn, company_id, command.changes)
            await create_parts(conn, claim, command.parts)
    return written


def is_plain(command: Write) -> bool:
    """Return whether a Write changes no document, so that it can be written with others."""
    return not command.changes and not command.parts


def _move_values(claim: Claim, submission: Submission, command: Write) -> JsonObject:
    """Return a Write as an element of the JSON array of submission_move."""
    then = state_machine.apply_command(submission, command)
    return {
        "id": claim.id,
        "fence": claim.fence,
        "expected": submission.state,
        "next": then.state,
        "reads": then.reads,
        "confirms_absence": command.confirms_absence,
        "still_sent": command.still_sent,
        "possibly_received": then.possibly_received,
        "has_outcome": then.has_outcome,
        "submission_uid": command.uid,
        "delay": command.delay.total_seconds(),
        "last_error": command.error,
    }


async def create_parts(conn: Connection, claim: Claim, parts: Sequence[Part]) -> None:
    """Move the documents of each part from a locked submission into a new one, due at once.

    The new submission is never merged, because that would restore what was separated.
    """
    for part in parts:
        await sql.submission_part(
            conn,
            **claim.key,
            attempt_key=uuid.uuid4(),
            state=part.state,
            submission_uid=part.uid,
            possibly_received=part.possibly_received,
            last_error=json_codec.dumps(part.error) if part.error else None,
            document_ids=sorted(part.ids),
        )


@persistent
async def record_sightings(
    context: SubmissionContext,
    company_id: int,
    commands: list[tuple[Claim, Submission, RecordSightings]],
) -> None:
    """Record the sightings of submissions, also if claims were lost."""
    shown = [
        (claim.id, one.uuid, doc.number, one.submission_uid, one.via)
        for claim, submission, command in commands
        for one in command.sightings
        for doc in submission.docs
        if doc.id == one.submitted_document_id
    ]
    async with context.database.company(company_id) as conn:
        await insert_sightings(conn, shown)
    failpoints.reach("sightings_written")


async def insert_sightings(conn: Connection, shown: Sequence[Shown]) -> None:
    """Insert sightings."""
    if not shown:
        return
    names = ("submission_ids", "uuids", "numbers", "submission_uids", "via")
    columns = zip(*shown, strict=True)
    await sql.sighting_insert(conn, **dict(zip(names, columns, strict=True)))


@persistent
async def release(
    context: SubmissionContext, company_id: int, given: Sequence[tuple[Claim, timedelta | None]]
) -> None:
    """Release claims without a result, which are not counted any more.

    Each has a delay, or None to keep the due time.
    """
    rows = [
        {
            "id": claim.id,
            "fence": claim.fence,
            "delay": None if delay is None else delay.total_seconds(),
        }
        for claim, delay in given
    ]
    async with context.database.company(company_id) as conn:
        await sql.submission_release(conn, given=json_codec.dumps(rows))


async def apply_changes(conn: Connection, company_id: int, changes: Sequence[Change]) -> None:
    """Write the changes that the documents' states allow.

    Record a finding for each document that was cancelled outside this service.
    """
    if not changes:
        return
    text = json_codec.dumps([_change_values(change) for change in changes])
    moved = await sql.submitted_documents_move(conn, changes=text)
    for row in moved:
        DOCUMENT_OUTCOMES.labels(row["kind"], row["status"]).inc()
    if foreign := [row["id"] for row in moved if row["is_foreign"]]:
        for row in await sql.findings_insert_cancelled(conn, ids=foreign):
            log.warning(
                "company=%d kind=cancelled_elsewhere number=%s uuid=%s",
                company_id,
                row["number"],
                row["uuid"],
            )


async def write_facts(
    conn: Connection, company_id: int, submission_id: int, changes: Sequence[Change]
) -> None:
    """Write changes that the portal shows, which need no claim, and wake those that wait."""
    await sql.subjects_lock(conn, submission_id=submission_id)
    await apply_changes(conn, company_id, changes)
    await sql.notify(conn, channel="submission_moved", payload=f"{company_id}:{submission_id}")


def _change_values(change: Change) -> JsonObject:
    """Return a Change as an element of the JSON array of submitted_documents_move."""
    values: JsonObject = asdict(change)
    del values["status"]
    values["next"] = change.status
    values["expected"] = [
        status for status, moves in states.SUBMITTED_TRANSITIONS.items() if change.status in moves
    ]
    values["subject_status"] = states.DOCUMENT_STATUSES[change.status]
    if change.status == "NotSent":
        errors = change.errors or []
        values["failure"] = describe_not_sent(name_failure("NotReceived", errors), errors)
    return values

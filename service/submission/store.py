"""Writing down what became of a submission, in one transaction: documents, their invoices, events, the submission."""

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from asyncpg import Record

from service import failpoints, json_codec
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS, is_transient
from service.documents import states
from service.documents.ubl import document
from service.errors import describe_error
from service.submission import batch, state_machine
from service.submission.context import Claim, SubmissionContext
from service.submission.types import Change, Keep, Sighting, Submission, SubmittedDocument, Write

log = logging.getLogger(__name__)

# The unique index: a uuid belongs to one document of all companies
UUID_ONCE = "submitted_documents_uuid_once"
REPEATS = (0.1, 0.5, 1, 2)  # seconds between tries to write a result while PostgreSQL is away


async def load(context, claim):
    """The Call of a claimed submission as it is on disk; None when the claim was lost."""
    key = {"company_id": claim.company_id, "submission_id": claim.id}
    async with context.database.reading(claim.company_id) as conn:
        row = await sql.submission_get(conn, **claim.key)
        if row["fence"] != claim.fence:
            return None
        docs = await sql.submission_documents(conn, **key)
        shown = await sql.sightings_of(conn, **key) if row["first_sent_at"] else ()
    return _submission(row, docs, shown)


async def claim_batch(
    context: SubmissionContext, company_id: int, ids: list[int]
) -> dict[Claim, Submission]:
    """Claim some Uncertain submissions whose handling begins now, and return their Calls as they are on disk.

    Submissions that are no longer Uncertain, or that somebody else holds, are left out.
    """
    async with context.database.company(company_id) as conn:
        rows = await sql.submission_claim_batch(
            conn, company_id=company_id, ids=ids, lease=context.config.portal_lease
        )
        key = {"company_id": company_id, "ids": [row["id"] for row in rows]}
        docs = _by_submission(await sql.submission_batch_documents(conn, **key))
        shown = _by_submission(await sql.sightings_of_batch(conn, **key))
    return {
        Claim(company_id, row["id"], row["fence"]): _submission(
            row, docs.get(row["id"], ()), shown.get(row["id"], ())
        )
        for row in rows
    }


def _by_submission(rows: Iterable[Record]) -> dict[int, list[dict[str, Any]]]:
    """Group rows by their submission_id, which is taken out of them."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in map(dict, rows):
        groups.setdefault(row.pop("submission_id"), []).append(row)
    return groups


def _submission(
    row: Record, docs: Iterable[Mapping[str, Any]], shown: Iterable[Mapping[str, Any]]
) -> Submission:
    return Submission(
        docs=tuple(SubmittedDocument(**doc) for doc in docs),
        sightings=tuple(
            Sighting(one["document_id"], one["uuid"], one["submission_uid"], one["via"])
            for one in shown
        ),
        **_told_before(row["last_error"]),
        **{name: row[name] for name in _OF_THE_ROW},
    )


_OF_THE_ROW = (
    *(
        "state",
        "on_absence",
        "now",
        "tin",
        "claims",
        "looks",
        "absence_confirmations",
        "absence_confirmed_at",
    ),
    *("first_sent_at", "last_sent_at", "submission_uid", "possibly_received"),
)


def _told_before(last_error):
    """What the last look or send left to be remembered: a refusal, or since when the portal does not know it."""
    error = json_codec.loads(last_error.encode()) if last_error else {}
    if error.get("code") == state_machine.REFUSED_AGAIN:
        return {"refusal": error}
    if error.get("code") != state_machine.NOT_FOUND:
        return {}
    times = {"unknown_since": error.get("since"), "searched_at": error.get("searched_at")}
    return {name: datetime.fromisoformat(text) for name, text in times.items() if text}


def persistent(write):
    """Repeat a writing function while PostgreSQL is away: the portal should not be asked again for what it said.

    The second argument of the function is a Claim, or the id of a company.
    """

    @functools.wraps(write)
    async def persisting(context, claim, *args):
        for pause in (*REPEATS, None):
            try:
                return await write(context, claim, *args)
            except TRANSIENT_DB_ERRORS as fault:
                if pause is None or not is_transient(fault):
                    raise
                log.warning("submission %s: %s", claim, describe_error(fault))
                await asyncio.sleep(pause)
        return None

    return persisting


@persistent
async def write(context, claim, submission, command):
    """Carry out a Write for a call as it was before it. Return False, with nothing written, if the claim was lost.

    The claim is given back with the state, and so nothing is written twice. A lost claim is not counted as one that ended a
    process, since this one lives. If a uuid belongs to another document by now, the documents concerned need a person, and
    the rest is written in a new transaction with the same claim.
    """
    try:
        return await _written_once(context, claim, submission, command)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != UUID_ONCE:
            raise
    taken = await _taken(context, claim, submission, command)
    log.error(
        "submission company=%d id=%d: %d uuids belong to other documents",
        *claim.key.values(),
        len(taken),
    )
    return await _written_once(
        context, claim, submission, state_machine.without_taken(submission, command, taken)
    )


async def _written_once(
    context: SubmissionContext, claim: Claim, submission: Submission, command: Write
) -> bool:
    """Write in one transaction. It locks the subjects first, then the submission, as every transaction does."""
    async with context.database.company(claim.company_id) as conn:
        await lock_subjects(conn, claim.company_id, claim.id)
        done = await write_result(conn, claim, submission, command)
        if not done:
            await sql.submission_uncount(conn, **claim.key, fence=claim.fence)
        failpoints.reach("before_state_commit")
    failpoints.reach("after_state_commit")
    log.info(
        "submission company=%d id=%d state=%s%s",
        *claim.key.values(),
        command.state,
        "" if done else " (claim lost)",
    )
    return done


async def _taken(
    context: SubmissionContext, claim: Claim, submission: Submission, command: Write
) -> set[int]:
    """Return the ids of documents whose new uuids other documents have, or that get one uuid together.

    All of them where none is found: the other document may have been rolled back since.
    """
    uuids = {change.id: change.uuid for change in command.changes if change.uuid}
    async with context.database.reading(claim.company_id) as conn:
        rows = await sql.uuids_recorded(
            conn, company_id=claim.company_id, uuids=list(uuids.values())
        )
    mine = {doc.id for doc in submission.docs if doc.uuid and doc.uuid == uuids.get(doc.id)}
    recorded = {row["uuid"] for row in rows}
    often = {uuid for uuid, count in Counter(uuids.values()).items() if count > 1}
    taken = {
        id for id, uuid in uuids.items() if uuid in often or (uuid in recorded and id not in mine)
    }
    return taken or set(uuids)


async def write_result(conn, claim, submission, command):
    """The same in a transaction that has locked the subjects."""
    done = await _moved(conn, claim, submission, command)
    if done:
        await apply(conn, claim.company_id, command.changes)
        await _part(conn, claim, submission, command.parts)
    return bool(done)


def is_plain(command: Write) -> bool:
    """Return whether a Write changes no document, so that it can be written together with others."""
    return not command.changes and not command.parts


@persistent
async def write_batch(
    context: SubmissionContext, company_id: int, moves: list[tuple[Claim, Submission, Write]]
) -> None:
    """Carry out plain Writes, each for a call as it was before it, in one statement. Lost claims are passed over."""
    rows = [_move(claim, submission, command) for claim, submission, command in moves]
    async with context.database.company(company_id) as conn:
        done = await sql.submission_move_batch(
            conn, company_id=company_id, moves=json_codec.dumps(rows)
        )
        lost = {claim.id for claim, _, _ in moves} - {row["id"] for row in done}
        for claim, _, _ in moves:
            if claim.id in lost:
                await sql.submission_uncount(conn, **claim.key, fence=claim.fence)
        failpoints.reach("before_state_commit")
    failpoints.reach("after_state_commit")
    log.info("submissions company=%d written=%d claims_lost=%d", company_id, len(done), len(lost))


def _move(claim: Claim, submission: Submission, command: Write) -> dict[str, Any]:
    """Return a Write as submission_move_batch takes it."""
    return {
        **_result(claim, submission, command),
        "delay": command.delay.total_seconds(),
        "last_error": command.error,
    }


def _result(claim: Claim, submission: Submission, command: Write) -> dict[str, Any]:
    """Return what both statements that write a result take in the same form."""
    then = state_machine.after(submission, command)
    return {
        "id": claim.id,
        "fence": claim.fence,
        "expected": submission.state,
        "next": then.state,
        "looks": then.looks,
        "proof": command.proof,
        "still_sent": command.still_sent,
        "possibly_received": then.possibly_received,
        "has_outcome": then.has_outcome,
        "submission_uid": command.uid,
    }


async def _moved(
    conn: asyncpg.Connection, claim: Claim, submission: Submission, command: Write
) -> bool | None:
    """Write the state of a submission. Return None if the claim was lost."""
    return await sql.submission_move(
        conn,
        company_id=claim.company_id,
        **_result(claim, submission, command),
        delay=command.delay,
        last_error=json_codec.dumps(command.error) if command.error else None,
    )


async def _part(conn, claim, submission, parts):
    """Moves documents into submissions of their own."""
    if not parts:
        return
    entries = document.entries(await sql.submission_body(conn, **claim.key))
    for part in parts:
        docs = [doc for doc in submission.docs if doc.id in part.ids]
        await batch.part(conn, claim.company_id, claim.id, entries, docs, part)


@persistent
async def keep(context, claim, submission, command):
    """Writes down each uuid that the portal showed, whether or not the claim still holds."""
    numbers = {doc.id: doc.number for doc in submission.docs}
    for via, uid in {(one.via, one.submission_uid) for one in command.sightings}:
        seen = [one for one in command.sightings if (one.via, one.submission_uid) == (via, uid)]
        async with context.database.company(claim.company_id) as conn:
            await sql.sighting_insert(
                conn,
                company_id=claim.company_id,
                submission_id=claim.id,
                numbers=[numbers[one.document_id] for one in seen],
                uuids=[one.uuid for one in seen],
                submission_uid=uid,
                via=via,
            )
    failpoints.reach("sightings_written")


@persistent
async def keep_batch(
    context: SubmissionContext, company_id: int, shown: list[tuple[Claim, Submission, Keep]]
) -> None:
    """Record each uuid that the portal showed for some submissions, whether or not the claims still hold."""
    rows = [
        {
            "submission_id": claim.id,
            "number": doc.number,
            "uuid": one.uuid,
            "submission_uid": one.submission_uid,
            "via": one.via,
        }
        for claim, submission, command in shown
        for one in command.sightings
        for doc in submission.docs
        if doc.id == one.document_id
    ]
    async with context.database.company(company_id) as conn:
        await sql.sighting_insert_batch(conn, company_id=company_id, shown=json_codec.dumps(rows))
    failpoints.reach("sightings_written")


@persistent
async def release_batch(
    context: SubmissionContext,
    company_id: int,
    given: list[tuple[Claim, timedelta | None]],
    counted: bool = True,
) -> None:
    """Give claims back whose handling gave no result, each with a delay, or None where it stays due as it was.

    `counted` says whether the claims were counted, which is undone.
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
        await sql.submission_release_batch(
            conn, company_id=company_id, given=json_codec.dumps(rows), counted=int(counted)
        )


async def give_back(context, claim, submission, command):
    """Gives a claim back that was not used: nothing was tried, and nothing is counted."""
    async with context.database.company(claim.company_id) as conn:
        await sql.submission_give_back(conn, **claim.key, fence=claim.fence, delay=command.wait)


async def set_aside(context, claim, delay):
    """Leaves a Queued submission that another process may be about to send, and lets those behind it go on."""
    async with context.database.company(claim.company_id) as conn:
        await sql.submission_set_aside(conn, **claim.key, fence=claim.fence, delay=delay)


async def lock_subjects(conn, company_id, submission_id):
    """Locks what a submission's documents are of: invoices, consolidated invoices, then the notes against them."""
    for lock in (
        sql.subjects_lock_invoices,
        sql.subjects_lock_consolidated,
        sql.subjects_lock_notes,
    ):
        await lock(conn, company_id=company_id, submission_id=submission_id)


async def apply(conn: asyncpg.Connection, company_id: int, changes: Iterable[Change]) -> None:
    """Write the Changes of documents whose state allows them. Record a finding of each that others have cancelled."""
    if not changes:
        return
    text = json_codec.dumps([_values(change) for change in changes])
    moved = await sql.submitted_documents_move(conn, company_id=company_id, changes=text)
    if foreign := [row["id"] for row in moved if row["is_foreign"]]:
        for row in await sql.findings_insert_cancelled(conn, company_id=company_id, ids=foreign):
            log.warning(
                "company=%d kind=cancelled_elsewhere number=%s uuid=%s",
                company_id,
                row["number"],
                row["uuid"],
            )


def _values(change: Change) -> dict[str, Any]:
    """Return a Change as the statement takes it."""
    values = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(change).items()
    }
    del values["status"]
    expected = [status for status, moves in states.DOCUMENT_MOVES.items() if change.status in moves]
    subject_status = states.SUBJECT_OF_DOCUMENT[change.status]
    return {**values, "next": change.status, "expected": expected, "subject_status": subject_status}

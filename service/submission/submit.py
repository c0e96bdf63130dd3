"""Starting a submission: the document is built, its bytes frozen and the intent written, then it is sent.

Who asks for a submission that is already under way waits for its outcome. A document is never sent twice.
"""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg

from service import failpoints, json_codec
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS
from service.documents import states
from service.documents.checks import preflight
from service.documents.signing import signature
from service.documents.ubl import document, parties
from service.errors import BadRequest
from service.http.requests import or_not_found
from service.offload import offload
from service.submission import checks, eligibility
from service.submission.context import Claim, SubmissionContext
from service.submission.document_kinds import INVOICE, DocumentKind, check_ready
from service.submission.send import send
from service.submission.state_machine import UNKNOWN

RECHECK = timedelta(seconds=1)  # while waiting: news can be missed when a connection is lost
# The outcome is known, or a person's
TOLD = {"Accepted", "Finished", "Refused", "NotReceived", "NeedsPerson"}
#: States of a submission in which a document that is not with the portal was refused by it.
REFUSED_BY_PORTAL = {"Accepted", "Finished", "Refused"}

#: Awaited with the connection of a transaction, which it undoes by raising.
Guard = Callable[[asyncpg.Connection], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Started:
    """A submission that was written down, or the reasons why none was."""

    claim: Claim | None = None
    at_once: bool = False  # this process sends it now; else a worker does
    errors: list = field(default_factory=list)


async def submit(
    context: SubmissionContext, company: int, subject: DocumentKind, id: int, guard: Guard
) -> str:
    """Submit an invoice, a note or a consolidated invoice, and return the message of success.

    `guard` is awaited in the transaction that writes the submission, and undoes it by raising. Raises NotFound, and
    BadRequest in the specified words when the submission failed or its outcome is unknown. The error is `retryable` if
    the portal has not refused the document: then a repetition tries again, or joins the attempt that is under way.
    """
    status, claim = await _begun(context, company, subject, id, guard)
    if status in ("Submitted", "Valid"):
        return states.ALREADY_SUBMITTED.format(noun=subject.noun)
    ids = subject.ids(id)
    outcome = await (_sent(context, claim, ids) if claim else _joined(context, company, ids))
    failpoints.reach("before_reply")
    if outcome["state"] in ("Accepted", "Finished") and outcome["status"] != "Rejected":
        return states.SUBMITTED.format(noun=subject.noun)
    raise BadRequest(
        states.SUBMIT_FAILED,
        errors=_reasons(outcome),
        retryable=outcome["state"] not in REFUSED_BY_PORTAL,
    )


async def _begun(
    context: SubmissionContext, company: int, subject: DocumentKind, id: int, guard: Guard
) -> tuple[str, Claim | None]:
    """Write the submission of a record that has none. Return the record's status, and the Claim on the new submission.

    An intent whose commit was not confirmed is looked for on another connection, and carried on when it is there.
    """
    attempt_key = uuid.uuid4()
    try:
        async with context.database.company(company) as conn:
            row = or_not_found(await subject.locked(conn, company, id), subject.title)
            if row["status"] in states.LOCKED:
                return row["status"], None
            await guard(conn)
            claim = await prepare_submission(
                context,
                conn,
                company,
                subject,
                row,
                "release",
                context.config.portal_lease,
                attempt_key,
            )
            failpoints.reach("before_freeze_commit")
    except TRANSIENT_DB_ERRORS:
        async with context.database.reading(company) as conn:
            kept = await sql.submission_of_attempt(
                conn, company_id=company, attempt_key=attempt_key
            )
        if kept is None:
            raise
        claim = Claim(company, kept["id"], kept["fence"])
    failpoints.reach("after_freeze_commit")
    return "Submitting", claim


async def start_if_asked(context, conn, company, invoice_id, body):
    """Writes the submission that a body asks for, or the company's setting, in the transaction of the body.

    Returns a Started, or None when nothing was asked. Never raises for a document that cannot be submitted.
    """
    at_once = body.get("submitImmediately", False)
    if not (
        at_once
        or (body.get("isReady") and await sql.company_auto_submits(conn, company_id=company))
    ):
        return None
    row = await INVOICE.locked(conn, company, invoice_id)
    lease = context.config.portal_lease if at_once else None
    try:
        return Started(
            await prepare_submission(context, conn, company, INVOICE, row, "retry", lease),
            at_once,
        )
    except BadRequest as refusal:
        return Started(errors=refusal.more["errors"])


async def describe_outcome(context, company, invoice_id, started):
    """(a sentence, data) on the submission that a creation or an update asked for, once it is committed.

    One that is to go at once is sent now. Both are empty when none was asked for.
    """
    if started is None:
        return "", {}
    if started.claim is None:
        return " It could not be submitted, see errors.", {
            "status": "Draft",
            "errors": started.errors,
        }
    if not started.at_once:
        return " It will be submitted to the portal.", {"status": "Submitting"}
    outcome = await _sent(context, started.claim, INVOICE.ids(invoice_id))
    if outcome["status"] == "Rejected":
        return " The portal did not take it, see errors.", {
            "status": "Draft",
            "errors": _reasons(outcome),
        }
    if outcome["state"] in ("Accepted", "Finished"):
        return " It has been submitted to the portal.", {"status": outcome["status"]}
    return " Its submission is under way.", {"status": "Submitting", "errors": _passing(outcome)}


async def prepare_submission(
    context, conn, company, subject, row, on_absence, lease, attempt_key=None
):
    """Writes a Queued submission of a locked subject, with the bytes that will be sent, and returns its Claim.

    With a `lease` the caller holds it at once; by the `attempt_key` it is found when the commit's answer is lost. Raises
    BadRequest with every reason why the document cannot go. The company's TIN cannot change until the transaction ends,
    and afterwards not before the portal has judged the document.
    """
    await check_ready(conn, context.config, company, subject, row)
    await sql.company_hold(conn, company_id=company)
    source = await offload(len(row["body"]), json_codec.stored_body, row)
    issuer = await sql.issuer_get(conn, company_id=company)
    refuse_unverified_tin(issuer)
    issued_at, frozen, former = await _as_before(
        context, conn, company, subject, row, source, issuer
    )
    await eligibility.check_not_blocked(conn, company, row, source, on_absence, former)
    if errors := await _own_refusals(context, conn, company, row, source, issuer, issued_at):
        raise BadRequest(states.SUBMIT_FAILED, errors=errors, retryable=False)
    content = frozen or await _content(context, conn, company, row, source, issuer, issued_at)
    submission = await sql.submission_insert(
        conn,
        company_id=company,
        attempt_key=attempt_key or uuid.uuid4(),
        tin=parties.own_tin({"tin": issuer["tin_code"]}),
        body=document.envelope([(row["number"], content)]),
        on_absence=on_absence,
        possibly_received=frozen is not None,
        lease=lease,
        delay=None if lease else context.config.portal_batch,  # others may come that go with it
    )
    await sql.submitted_document_insert(
        conn,
        company_id=company,
        submission_id=submission["id"],
        **subject.ids(row["id"]),
        number=row["number"],
        document_type=document.document_type(source),
        document_version=context.config.portal_document_version,
        issued_at=issued_at,
        document_hash=hashlib.sha256(content).hexdigest(),
    )
    if lease is None:
        await sql.work_due_notify(conn)
    return Claim(company, submission["id"], submission["fence"])


def refuse_unverified_tin(issuer: Mapping[str, Any]) -> None:
    """Raise BadRequest while the TIN of the issuing company is not verified."""
    if issuer["tin_verified_at"] is None:
        reason = states.TIN_NOT_VERIFIED
        raise BadRequest(states.SUBMIT_FAILED, code=reason["code"], errors=[reason], retryable=True)


def issue_time(issue_date, attempts, now):
    """The issue time that is sent: the client's, to the second, shifted by a second for each earlier attempt.

    The portal takes two documents that agree in number, type and issue time for one, and so do we when we look
    for one: an attempt must differ from those before it. Portal: 14.8
    """
    at = issue_date.replace(microsecond=0)
    later = at + timedelta(seconds=attempts)
    return later if later <= now else at - timedelta(seconds=attempts)


async def _as_before(context, conn, company, subject, row, source, issuer):
    """(issue time, bytes, document's id) of the attempt before, if it was believed not to be there and is still the same.

    Should the portal have had it after all, it knows the same bytes again, and later the same document. Any other attempt
    has an issue time of its own, and no bytes yet.
    """
    former = row["attempts"] and await sql.submission_let_go(
        conn, company_id=company, **subject.ids(row["id"])
    )
    content = former and document.contents(former["body"]).get(row["number"])
    if content:
        built = await _built(context, row, source, issuer, former["issued_at"])
        if _unsigned(json_codec.loads(content)) == _unsigned(built):
            return former["issued_at"], content, former["id"]
    return issue_time(row["issue_date"], row["attempts"], issuer["now"]), None, None


def _unsigned(built):
    return document.encode(signature.unsigned(built))


async def _built(context, row, source, issuer, issued_at):
    version = context.config.portal_document_version
    facts = {"number": row["number"], "issued_at": issued_at, "version": version}
    return await offload(len(row["body"]), partial(document.build, source, dict(issuer), **facts))


async def _content(context, conn, company, row, source, issuer, issued_at):
    built = await _built(context, row, source, issuer, issued_at)
    content = await context.signers.content(conn, company, issuer, built)
    if too_large := checks.size_refusals(content):
        raise BadRequest(states.SUBMIT_FAILED, errors=too_large, retryable=False)
    return content


async def _own_refusals(context, conn, company, row, source, issuer, issued_at):
    """Why the portal would refuse the document, before it is asked; warnings keep nothing back."""
    return preflight.errors(
        await checks.findings(context.config, conn, company, row, source, dict(issuer), issued_at)
    )


async def _sent(context, claim, ids):
    """Sends, and gives the submission as it then stands, or as it does when the wait is over."""
    await asyncio.wait(
        {context.spawn(send(context, claim))}, timeout=context.config.submit_wait.total_seconds()
    )
    return await _standing(context, claim.company_id, ids)


async def _joined(context, company, ids):
    """Somebody else's attempt once its outcome is known, or as it stands when the wait is over.

    The document is followed from call to call: it may be merged into another, or split off.
    """
    until = time.monotonic() + context.config.submit_wait.total_seconds()
    row = await _standing(context, company, ids)
    document_id = row["document_id"]
    while True:
        submission = row["id"]
        with context.waiters.waiting(company, submission) as moved:
            row = await _standing(context, company, ids)
            left = until - time.monotonic()
            if row["document_id"] != document_id or row["state"] in TOLD or left <= 0:
                return row
            if row["id"] == submission:
                await _news(moved, min(left, RECHECK.total_seconds()))


async def _news(moved, seconds):
    """Waits for an event, or until the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await moved.wait()
    except TimeoutError:
        pass


async def _standing(context, company, ids):
    async with context.database.reading(company) as conn:
        return await sql.submission_of_subject(conn, company_id=company, **ids)


def _reasons(outcome):
    """Why it did not go through, for a caller."""
    errors = json_codec.loads(outcome["errors"].encode())
    if errors or outcome["state"] not in ("Queued", "Sending", "Uncertain", "NeedsPerson"):
        return errors
    waiting = " The document is locked until the service has found out by itself; a repeated submit joins this one."
    return [{**UNKNOWN, "message": UNKNOWN["message"] + waiting}]


def _passing(outcome):
    """What keeps a submission waiting, for a caller who was promised that it goes on."""
    return [json_codec.loads(outcome["last_error"].encode())] if outcome["last_error"] else []

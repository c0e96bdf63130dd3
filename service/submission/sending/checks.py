"""Checks of a locked record before it is sent, and preflight, which reports them and sends nothing.

The dated checks are applied with the facts that only PostgreSQL has. A hold on sending, or the
portal's documents, block a valid document too.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

import msgspec

from service import schema
from service.config import Config
from service.db.connections import Connection
from service.db.statements import sql
from service.documents import states
from service.documents.checks import preflight
from service.documents.checks.rule import CheckFinding, Circumstances
from service.documents.kind import CONSOLIDATED, DocumentKind
from service.documents.money import AmountError
from service.documents.signing import certificate
from service.documents.ubl import document as ubl
from service.documents.ubl import parties
from service.errors import BadRequest, make_reason
from service.json_types import JsonObject
from service.offload import offload
from service.submission.context import SubmissionContext
from service.submission.locked_documents import (
    LockedRecord,
    SendableDocument,
    check_ready,
    load_document,
    lock_document,
)
from service.submission.machine.failures import refuse_submission
from service.submission.machine.types import Error

MOST_DOCUMENT_BYTES = 300_000  # Portal: 1.5
DUPLICATE_WINDOW = timedelta(hours=2)  # Portal: 14.8
HELD = (
    "Sending is held since {since:%Y-%m-%dT%H:%M:%SZ}: {reason} Nothing was sent. "
    "Sending resumes automatically after the comparison with the portal."
)
AT_PORTAL = (
    "The portal already has another document with the number {number}, {uuid}. Nothing "
    "is sent under this number until finding {finding} is resolved manually."
)
#: Status of a record that is not sent again -> error code and message.
ALREADY_SENT = {
    "Submitting": ("Submitting", "The submission of the {noun} is under way."),
    "Submitted": ("AlreadySubmitted", states.ALREADY_SUBMITTED),
    "Valid": ("AlreadySubmitted", states.ALREADY_SUBMITTED),
}


async def findings(
    conn: Connection, document: SendableDocument, issued_at: datetime
) -> list[CheckFinding]:
    """Return the findings of a document that would be sent at the issuer's `now`."""
    circumstances = Circumstances(
        at=document.issuer["now"],
        issued_at=issued_at,
        duplicate=await _find_duplicate(conn, document, issued_at),
    )
    return await offload(
        document.size, preflight.check_document, document.source, document.issuer, circumstances
    )


async def _find_duplicate(
    conn: Connection, document: SendableDocument, issued_at: datetime
) -> str | None:
    """Return the uuid of a document that the portal would treat as identical."""
    return await sql.submitted_document_duplicate(
        conn,
        number=document.number,
        document_type=document.document_type,
        document_version=document.version,
        issued_at=issued_at,
        tin=parties.normalize_tin(document.issuer["tin_code"]),
        at=document.issuer["now"],
        span=DUPLICATE_WINDOW,
    )


def size_refusals(content: bytes) -> list[Error]:
    """Return the error of a document that exceeds the portal's size limit, as a list."""
    if len(content) <= MOST_DOCUMENT_BYTES:
        return []
    message = (
        f"The document has {len(content)} bytes; the portal accepts at most {MOST_DOCUMENT_BYTES}."
    )
    return [make_reason("MaximumSizeExceeded", message, "/lineItems")]


async def check_not_blocked(
    conn: Connection, document: SendableDocument, on_absence: str, former_id: int | None = None
) -> None:
    """Raise BadRequest if nothing may be sent now, or under the number of the document.

    A hold does not reject a submission that is retried on absence: it waits until the hold ends.
    `former_id` is the submitted document whose bytes are to be sent again.
    """
    bars = await sql.sending_bars(
        conn, number=document.number, document_type=document.document_type, former=former_id
    )
    if bars["finding"]:
        message = AT_PORTAL.format(number=document.number, **bars)
        raise _blocked("number_at_portal", "NumberAtPortal", message)
    if bars["since"] and on_absence == "release":
        raise _blocked("sending_held", "SendingHeld", HELD.format(**bars))


def _blocked(code: str, reason: str, message: str) -> BadRequest:
    return refuse_submission(code, [make_reason(reason, message)])


async def preflight_document(
    context: SubmissionContext,
    company_id: int,
    kind: DocumentKind,
    document_id: int,
    at: datetime | None = None,
) -> str:
    """Return the JSON of {ready, errors, warnings, document} of a record, judged at `at` or now.

    `document` is the document that would be sent, without a signature; null if none can be built.
    Raises NotFound.
    """
    async with context.database.company(company_id) as conn:
        row = await lock_document(conn, kind, document_id)
        record = LockedRecord(company_id, kind, row)
        document = await load_document(conn, context.config, record)
        document = document.as_of(at or document.issuer["now"])
        issued_at = document.next_issue_time
        errors = await _find_obstacles(conn, context.config, document)
        if document.issuer["tin_verified_at"] is None:
            errors.append(states.TIN_NOT_VERIFIED)
        found = await findings(conn, document, issued_at)
        signing_errors, ending = await context.signers.outlook(conn, company_id, document.issuer)
    errors += [*preflight.list_errors(found), *signing_errors]
    warnings = preflight.list_warnings(found)
    warnings += [make_reason("Certificate", message, certificate.PATH) for message in ending]
    report = partial(_report, document, issued_at, found)
    return await offload(document.size, report, errors, warnings)


def _report(
    document: SendableDocument,
    issued_at: datetime,
    found: list[CheckFinding],
    errors: list[Error],
    warnings: list[Error],
) -> str:
    content = ubl.encode(_build(document, issued_at, found))
    errors = _distinct([*errors, *size_refusals(content)])
    warnings = [*warnings, *_find_stored_only(document)]
    report = {"ready": not errors, "errors": errors, "warnings": warnings}
    return ubl.encode({**report, "document": msgspec.Raw(content)}).decode()


def _find_stored_only(document: SendableDocument) -> list[Error]:
    if document.kind is CONSOLIDATED:  # it has no open objects
        return []
    found = schema.find_stored_only(f"{document.kind.name}_update", document.source)
    return [{"code": "UnknownMember", **each} for each in found]


async def _find_obstacles(conn: Connection, config: Config, record: LockedRecord) -> list[Error]:
    """Return the errors that prevent sending the record independently of its content."""
    status = record.row["status"]
    if status in ALREADY_SENT:
        code, message = ALREADY_SENT[status]
        return [make_reason(code, message.format(noun=record.kind.noun))]
    try:
        await check_ready(conn, config, record)
    except BadRequest as error:
        return error.more["errors"]
    return []


def _build(
    document: SendableDocument, issued_at: datetime, found: list[CheckFinding]
) -> JsonObject | None:
    if not preflight.can_be_built(found):
        return None
    try:
        return document.build(issued_at)
    except AmountError:  # no exchange rate on a day on which the portal did not require one
        return None


def _distinct(errors: Iterable[Error]) -> list[Error]:
    """Keep the first of errors with the same code and path, as of a dependency and a check."""
    kept: dict[tuple[str, str], Error] = {}
    for error in errors:
        kept.setdefault((error["code"], error["path"]), error)
    return list(kept.values())

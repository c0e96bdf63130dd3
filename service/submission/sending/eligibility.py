"""Conditions that block sending a valid document: a hold on sending, or the portal's documents."""

from service.db.connections import Connection
from service.db.statements import sql
from service.errors import BadRequest, make_reason
from service.submission.locked_documents import SendableDocument
from service.submission.machine.failures import refuse_submission

HELD = (
    "Sending is held since {since:%Y-%m-%dT%H:%M:%SZ}: {reason} Nothing was sent. "
    "Sending resumes automatically after the comparison with the portal."
)
AT_PORTAL = (
    "The portal already has another document with the number {number}, {uuid}. Nothing "
    "is sent under this number until finding {finding} is resolved manually."
)


async def check_not_blocked(
    conn: Connection, document: SendableDocument, on_absence: str, former_id: int | None = None
) -> None:
    """Raise BadRequest if nothing may be sent now, or under the number of the document.

    A hold does not reject a submission that is retried on absence: it waits until the hold ends.
    `former_id` is the submitted document whose bytes are to be sent again.
    """
    bars = await sql.sending_bars(
        conn,
        company_id=document.company_id,
        number=document.number,
        document_type=document.document_type,
        former=former_id,
    )
    if bars["finding"]:
        message = AT_PORTAL.format(number=document.number, **bars)
        raise _blocked("number_at_portal", "NumberAtPortal", message)
    if bars["since"] and on_absence == "release":
        raise _blocked("sending_held", "SendingHeld", HELD.format(**bars))


def _blocked(code: str, reason: str, message: str) -> BadRequest:
    return refuse_submission(code, [make_reason(reason, message)])

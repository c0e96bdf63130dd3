"""What keeps a document from being sent that is itself in order: a hold on all sending, or what the portal has already."""

from service.db.statements import sql
from service.documents import states
from service.documents.ubl import document
from service.errors import BadRequest

HELD = (
    "Sending is held back since {since:%Y-%m-%dT%H:%M:%SZ}: {reason} Nothing was sent. "
    "It goes on by itself once all that the portal has is known here."
)
AT_PORTAL = (
    "The portal already has a document {number} that is not known here, {uuid}. Nothing is sent under this number until "
    "a person has looked at it (finding {finding})."
)


async def check_not_blocked(conn, company, row, source, on_absence, former=None):
    """Raises BadRequest when nothing may be sent under the number of a locked record, or now.

    A hold does not refuse what is promised to be sent later: it waits until the hold ends. `former` is the id of an
    attempt whose very bytes are to be sent again.
    """
    facts = {
        "number": row["number"],
        "document_type": document.document_type(source),
        "former": former,
    }
    bars = await sql.sending_bars(conn, company_id=company, **facts)
    if bars["finding"]:
        raise _refused("NumberAtPortal", AT_PORTAL.format(number=row["number"], **bars))
    if bars["since"] and on_absence == "release":
        raise _refused("SendingHeld", HELD.format(**bars))


def _refused(code: str, message: str) -> BadRequest:
    """Return the refusal. It is retryable: nothing was sent, and the same document can be sent once this has ended."""
    errors = [{"code": code, "path": "", "message": message}]
    return BadRequest(states.SUBMIT_FAILED, errors=errors, retryable=True)

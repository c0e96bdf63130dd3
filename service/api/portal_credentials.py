"""The company's own client at the portal, which is used instead of the operator's. Portal: 2

New credentials are tested before they take effect. The secret is stored encrypted and never
returned.
"""

from aiohttp import web

from service.api.operation import Group, Operation
from service.api.records import get_own_record
from service.db.connections import Connection
from service.db.encryption import PORTAL_SECRET, MissingSecretKey
from service.db.statements import sql
from service.documents.ubl import parties
from service.errors import BadRequest, Conflict, TooManyRequests, Unavailable, retry_after
from service.http import app_keys, responses
from service.http.access import company_transaction
from service.http.requests import check_if_match, not_found, or_not_found
from service.json_types import JsonObject
from service.portal.logins import Login, OwnClient
from service.submission import own_clients
from service.submission.context import SUBMISSION_CONTEXT
from service.submission.operator import login_check

GROUP = Group("Company")

PATH = "/api/companies/portal-credentials"
NOUN = "Portal credentials"
BUSY = (
    "The portal credentials cannot be changed while documents are being submitted, validated or "
    "cancelled. Please try again when the portal has validated them."
)
REMOVED = "Portal credentials removed."
TOO_MANY = "Too many tests of portal credentials, please slow down."


@Operation(
    GROUP,
    f"GET {PATH}",
    "Get the company's own portal credentials, without the secret",
    "PortalCredentialsAnswer",
    errors=(not_found(NOUN),),
    description="A 404 means that the company uses the operator's client.",
    is_record=True,
)
async def get_portal_credentials(request: web.Request) -> web.Response:
    return await get_own_record(request, _read_record, NOUN)


@Operation(
    GROUP,
    f"PUT {PATH}",
    "Log in to the portal with the company's own client",
    "PortalCredentialsAnswer",
    body="portal_credentials_update",
    errors=(
        BadRequest(
            login_check.REFUSED.format(words="User blocked."), code=login_check.REFUSED_CODE
        ),
        MissingSecretKey(PORTAL_SECRET),
        Conflict(BUSY, code="tin_in_use"),
        Unavailable(login_check.NOT_TESTED, code="portal_unavailable"),
    ),
    description="The portal must accept a login with them. Replaces the previous ones. The secret "
    "is stored encrypted and never returned.",
)
async def set_portal_credentials(request: web.Request, body: JsonObject) -> web.Response:
    company, context = request[app_keys.COMPANY], request.app[SUBMISSION_CONTEXT]
    if not context.config.secret_key:
        raise MissingSecretKey(PORTAL_SECRET)
    login = Login(body["client_id"], body["client_secret"], is_own=True)
    async with company_transaction(request) as conn:
        own = OwnClient(await _lock(request, conn, company), login)
        await _reject_busy(conn, company, own)
    if wait := request.app[app_keys.PORTAL_TEST_LIMITER].take(company):
        raise TooManyRequests(TOO_MANY, retry_after(wait))
    await login_check.check_login(context, own)
    async with company_transaction(request) as conn:
        own = OwnClient(await _lock(request, conn, company), login)
        await _reject_busy(conn, company, own)
        await own_clients.store(conn, context.config, company, own)
        return responses.json_text_response(await _read_record(conn, company) or "")


@Operation(
    GROUP,
    f"DELETE {PATH}",
    "Remove the company's own portal credentials",
    "Success",
    message=REMOVED,
    errors=(not_found(NOUN), Conflict(BUSY, code="tin_in_use")),
    description="The operator's client is used again. It does not see the documents that the "
    "company sent with its own client.",
)
async def delete_portal_credentials(request: web.Request) -> web.Response:
    company = request[app_keys.COMPANY]
    async with company_transaction(request) as conn:
        or_not_found(await _read_record(conn, company), NOUN)
        await _lock(request, conn, company)
        # The removal is first: a send waits for it, or the check sees what was sent.
        or_not_found(await sql.portal_credentials_remove(conn, company_id=company), NOUN)
        await _reject_busy(conn, company, None)
    return responses.success_response(request, REMOVED)


async def _lock(request: web.Request, conn: Connection, company: int) -> str:
    """Lock the company and return its normalised TIN. Raises PreconditionFailed.

    Waits for transactions that are about to send or cancel a document.
    """
    await sql.company_lock_alone(conn, company_id=company)
    await check_if_match(request, conn, _read_record, company=company)
    issuer = await sql.issuer_get(conn, company_id=company)
    return parties.normalize_tin(issuer["tin_code"])


async def _reject_busy(conn: Connection, company: int, own: OwnClient | None) -> None:
    """Raise Conflict while documents are under way that the new login may not see.

    Another client of the same taxpayer sees them. It may be needed, because the portal no longer
    accepts the former one. After a removal the operator's client sends what was not received.
    """
    row = await sql.portal_credentials_get(conn, company_id=company)
    if row and own and row["tin"] == own.tin:
        return
    work = await sql.company_work(conn, company_id=company)
    is_under_way = work["is_submitting"] if own else work["is_sent"]
    if is_under_way or work["is_cancelling"]:  # Another login might not see it.
        raise Conflict(BUSY, code="tin_in_use")


async def _read_record(conn: Connection, company: int) -> str | None:
    """Return the JSON text of the response, or None if there are no credentials."""
    record = await sql.portal_credentials_record(conn, company_id=company)
    return f'{{"data":{record}}}' if record else None

"""Own clients of companies at the portal: tested, stored encrypted, and used in flows.

The credentials are read from the database at the start of each flow, so that a change takes effect
in all processes at once. While a document is being submitted or cancelled, the company cannot
change between its own client and the operator's: the outcome is visible to the login that sent it.
Portal: 2.1
"""

import asyncio
import logging

from service.config import Config, fingerprint_credentials
from service.db.connections import Connection
from service.db.encryption import PORTAL_SECRET, DecryptionError, Vault
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import BadRequest, TooManyRequests, Unavailable, retry_after
from service.portal.errors import LoginRefused, PortalError, Throttled
from service.portal.logins import Login
from service.submission.context import CompanyContext, SubmissionContext
from service.submission.machine.types import NO_DELAY

UNREADABLE = (
    "The company's portal credentials cannot be decrypted with the SECRET_KEY of the service; "
    "set them again."
)
#: Code of the errors of a refused login.
REFUSED_CODE = "portal_credentials_refused"
REFUSED = "The portal refuses the login with these credentials: {words} Nothing was changed."
NOT_TESTED = (
    "The portal cannot be reached, so the credentials could not be tested. Nothing was changed. "
    "Please try again later."
)
CROWDED = "The portal allows no further login at the moment. Please try again later."

log = logging.getLogger(__name__)


async def sign_in(context: SubmissionContext, company_id: int) -> CompanyContext:
    """Return the context for the requests of one flow about a company.

    It has the company's portal credentials as they are now, so that no flow mixes two logins.
    """
    own = await load(context.database, context.config, company_id)
    return CompanyContext(**vars(context), portal=context.portal_for(own))


async def load(database: Database, config: Config, company_id: int) -> Login | None:
    """Return a company's own client, or None if it uses the operator's.

    The operator's is no substitute for a secret that cannot be decrypted.
    """
    row = await database.read(sql.portal_credentials_get, company_id=company_id)
    if row is None:
        return None
    vault = Vault(config.secret_key, config.secret_key_previous)
    secret, problem = b"", ""
    try:
        secret = vault.open(row["sealed_secret"], company_id, PORTAL_SECRET)
    except DecryptionError as error:
        log.error("portal: cannot decrypt the secret of company %d: %s", company_id, error)
        problem = UNREADABLE
    return Login(row["client_id"], secret.decode(), own_tin=row["tin"], problem=problem)


async def store(conn: Connection, config: Config, company_id: int, login: Login) -> None:
    """Replace a company's own client. Lock the company first. Raises MissingSecretKey."""
    vault = Vault(config.secret_key, config.secret_key_previous)
    sealed = vault.seal(login.client_secret.encode(), company_id, PORTAL_SECRET)
    await sql.portal_credentials_remove(conn)
    await sql.portal_credentials_insert(
        conn,
        tin=login.own_tin,
        client_id=login.client_id,
        fingerprint=fingerprint_credentials(login.client_id, login.client_secret),
        sealed_secret=sealed,
    )


async def check_login(context: SubmissionContext, login: Login) -> None:
    """Log in to the portal with new credentials.

    Raises BadRequest if the portal refuses them, TooManyRequests, and Unavailable if it does not
    respond in time.
    """
    portal = context.portal_for(login)
    try:
        async with asyncio.timeout(context.config.submit_wait):
            await portal.log_in(login.own_tin or "")
    except LoginRefused as error:
        message = REFUSED.format(words=describe_refusal(error))
        raise BadRequest(
            message, retry_after(error.retry_after or NO_DELAY), code=REFUSED_CODE
        ) from None
    except Throttled as error:
        raise TooManyRequests(CROWDED, retry_after(error.retry_after)) from None
    except (PortalError, TimeoutError):
        wait = retry_after(context.config.portal_retry)
        raise Unavailable(NOT_TESTED, wait, code="portal_unavailable") from None


def describe_refusal(error: PortalError) -> str:
    """Return the portal's own words about a refusal, or else those of the client."""
    words = " ".join(entry["message"] for entry in error.errors if entry["message"])
    text = words or error.reason
    return text if text.endswith((".", "!", "?")) else f"{text}."

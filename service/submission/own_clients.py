"""Own clients of companies at the portal: stored encrypted, and used instead of the operator's.

The credentials are read from the database at the start of each flow, so that a change takes effect
in all processes at once. While a document is being submitted or cancelled, the company cannot
change between its own client and the operator's: the outcome is visible to the login that sent it.
Portal: 2.1
"""

import logging

from service.config import Config, fingerprint_credentials
from service.db.connections import Connection
from service.db.encryption import PORTAL_SECRET, DecryptionError, Vault
from service.db.statements import sql
from service.db.transactions import Database
from service.portal.logins import Login, OwnClient
from service.submission.context import CompanyContext, SubmissionContext

UNREADABLE = (
    "The company's portal credentials cannot be decrypted with the SECRET_KEY of the service; "
    "set them again."
)

log = logging.getLogger(__name__)


async def sign_in(context: SubmissionContext, company_id: int) -> CompanyContext:
    """Return the context for the requests of one flow about a company.

    It has the company's portal credentials as they are now, so that no flow mixes two logins.
    """
    own = await load(context.database, context.config, company_id)
    return CompanyContext(**vars(context), portal=context.shared_portal.for_company(own))


async def load(database: Database, config: Config, company_id: int) -> OwnClient | None:
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
    login = Login(row["client_id"], secret.decode(), is_own=True, problem=problem)
    return OwnClient(row["tin"], login)


async def store(conn: Connection, config: Config, company_id: int, own: OwnClient) -> None:
    """Replace a company's own client. Lock the company first. Raises MissingSecretKey."""
    login = own.login
    vault = Vault(config.secret_key, config.secret_key_previous)
    sealed = vault.seal(login.client_secret.encode(), company_id, PORTAL_SECRET)
    await sql.portal_credentials_remove(conn, company_id=company_id)
    await sql.portal_credentials_insert(
        conn,
        company_id=company_id,
        tin=own.tin,
        client_id=login.client_id,
        fingerprint=fingerprint_credentials(login.client_id, login.client_secret),
        sealed_secret=sealed,
    )

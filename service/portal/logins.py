"""Logins that the portal refused, kept in PostgreSQL for all processes: repeating them can lock the account."""

import logging
import math
from datetime import timedelta

from service.config import Config
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS, Database
from service.errors import describe_error
from service.portal.errors import LoginRefused, NotSent

LONGEST_PAUSE = timedelta(hours=1)
# In which a try is over, besides the timeouts of its two calls
LEASE_MARGIN = timedelta(seconds=10)
MOST_MESSAGE = 500  # characters
WAITING = "The portal refused the login. It is tried again in {} seconds at the earliest."
WHAT_TO_DO = {
    "login": "Check PORTAL_CLIENT_ID and PORTAL_CLIENT_SECRET, that the portal has not blocked the client, and that the "
    "taxpayer has appointed it as its intermediary. New credentials are tried at once after a restart; else wait for "
    "retry_at, or run retry-logins.",
    "token": "The portal gives a token and refuses it. Check that the taxpayer has appointed the client as its "
    "intermediary with the permissions to submit, view and cancel documents. Then wait for retry_at, or run retry-logins.",
}
UNKNOWN = "The database cannot be asked whether the portal refused the login."

log = logging.getLogger(__name__)


class RefusedLogins:
    """Remembers refused logins by client id and taxpayer, with a pause that doubles up to an hour.

    A taxpayer is a TIN, or '' where the client logs in for itself.
    """

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._config = config
        self._credentials = {
            "client_id": config.portal_client_id,
            "fingerprint": config.portal_credentials_fingerprint,
        }

    async def check(self, taxpayer: str) -> None:
        """Raise LoginRefused while no login may be tried for the taxpayer, NotSent when PostgreSQL cannot be asked."""
        try:
            async with self._database.across() as conn:
                wait = await sql.refused_login_wait(conn, taxpayer=taxpayer, **self._credentials)
        except TRANSIENT_DB_ERRORS as fault:
            raise NotSent(UNKNOWN) from fault
        if wait is not None:
            raise _refused(wait)

    async def begin(self, taxpayer: str) -> str | None:
        """Take up a try. Return the reason of the refusal before it, or None when there was none.

        After a refusal one process tries at a time. Raises LoginRefused when it is another, and NotSent as check does.
        """
        lease = self._config.portal_timeout * 2 + LEASE_MARGIN
        try:
            async with self._database.across() as conn:
                row = await sql.refused_login_try(
                    conn, taxpayer=taxpayer, lease=lease, **self._credentials
                )
        except TRANSIENT_DB_ERRORS as fault:
            raise NotSent(UNKNOWN) from fault
        if not row["is_mine"]:
            raise _refused(row["wait"])
        return row["reason"]

    async def note(self, taxpayer: str, why: LoginRefused, reason: str) -> None:
        """Remember a refusal, and set why.retry_after. `reason` is login or token."""
        said = " ".join(
            dict.fromkeys(
                [why.reason, *(error["message"] for error in why.errors if error["message"])]
            )
        )
        try:
            async with self._database.across() as conn:
                row = await sql.refused_login_note(
                    conn,
                    taxpayer=taxpayer,
                    reason=reason,
                    message=said[:MOST_MESSAGE],
                    first=self._config.portal_login_retry,
                    longest=LONGEST_PAUSE,
                    **self._credentials,
                )
        except TRANSIENT_DB_ERRORS as fault:
            log.warning("portal: a refused login is not noted: %s", describe_error(fault))
            return
        why.retry_after = max(row["wait"] or timedelta(0), timedelta(0))
        if row["is_new"]:
            log.warning(
                "portal: login refused, next try in %d s, see attention",
                why.retry_after.total_seconds(),
            )

    async def clear(self, taxpayer: str) -> None:
        """Forget the refusals of a taxpayer after a success."""
        try:
            async with self._database.across() as conn:
                await sql.refused_login_clear(
                    conn, client_id=self._config.portal_client_id, taxpayer=taxpayer
                )
        except TRANSIENT_DB_ERRORS as fault:
            log.warning("portal: a refused login is not cleared: %s", describe_error(fault))

    async def listed(self) -> list[dict[str, object]]:
        """Return the refused logins for an operator, the longest first, with what to do."""
        async with self._database.across() as conn:
            rows = await sql.refused_logins_list(conn, **self._credentials)
        return [{**row, "what_to_do": WHAT_TO_DO[row["reason"]]} for row in rows]

    async def forget(self, taxpayer: str | None) -> int:
        """Forget the refusals of one taxpayer, or of all, and return how many there were."""
        async with self._database.across() as conn:
            return await sql.refused_logins_forget(
                conn, client_id=self._config.portal_client_id, taxpayer=taxpayer
            )


def _refused(wait: timedelta) -> LoginRefused:
    return LoginRefused(WAITING.format(math.ceil(wait.total_seconds())), retry_after=wait)

"""Refused logins, stored in PostgreSQL for all processes: repeating them can lock the account."""

import logging
import math
from datetime import timedelta
from typing import Any

from service.config import Config
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS, Database
from service.errors import describe_error
from service.portal.errors import LoginRefused, NotSent

LONGEST_PAUSE = timedelta(hours=1)
#: Added to the timeouts of the two requests of a login attempt.
LEASE_MARGIN = timedelta(seconds=10)
MOST_MESSAGE = 500  # characters
WAITING = "The portal refused the login. It is tried again in {} seconds at the earliest."
WHAT_TO_DO = {
    "login": "Check PORTAL_CLIENT_ID and PORTAL_CLIENT_SECRET, that the portal has not blocked the "
    "client, and that the taxpayer has appointed it as its intermediary. New credentials are tried "
    "at once after a restart. Otherwise wait for retry_at, or run retry-logins.",
    "token": "The portal issues a token and refuses it. Check that the taxpayer has appointed the "
    "client as its intermediary with the permissions to submit, view and cancel documents. Then "
    "wait for retry_at, or run retry-logins.",
}
UNKNOWN = "The database is unavailable, so refused logins cannot be checked. Nothing was sent."

log = logging.getLogger(__name__)


class RefusedLogins:
    """Store of refused logins by client id and taxpayer, with a pause that doubles up to an hour.

    A taxpayer is a TIN, or an empty string if the client logs in for itself.
    """

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._config = config
        self._credentials = {
            "client_id": config.portal_client_id,
            "fingerprint": config.portal_credentials_fingerprint,
        }

    async def check(self, taxpayer: str) -> None:
        """Raise LoginRefused while the taxpayer's logins pause, NotSent without PostgreSQL."""
        try:
            async with self._database.across() as conn:
                wait = await sql.refused_login_wait(conn, taxpayer=taxpayer, **self._credentials)
        except TRANSIENT_DB_ERRORS as failure:
            raise NotSent(UNKNOWN) from failure
        if wait is not None:
            raise _refused(wait)

    async def begin(self, taxpayer: str) -> str | None:
        """Start a login attempt. Return the reason of the last refusal, or None if there is none.

        After a refusal only one process attempts a login at a time: if it is another process,
        LoginRefused is raised. Raises NotSent if PostgreSQL is unavailable.
        """
        lease = self._config.portal_timeout * 2 + LEASE_MARGIN
        try:
            async with self._database.across() as conn:
                row = await sql.refused_login_try(
                    conn, taxpayer=taxpayer, lease=lease, **self._credentials
                )
        except TRANSIENT_DB_ERRORS as failure:
            raise NotSent(UNKNOWN) from failure
        if not row["is_mine"]:
            raise _refused(row["wait"])
        return row["reason"]

    async def note(self, taxpayer: str, error: LoginRefused, reason: str) -> None:
        """Store a refusal and set `error.retry_after`. `reason` is "login" or "token"."""
        messages = [error.reason, *(entry["message"] for entry in error.errors if entry["message"])]
        message = " ".join(dict.fromkeys(messages))
        try:
            async with self._database.across() as conn:
                row = await sql.refused_login_note(
                    conn,
                    taxpayer=taxpayer,
                    reason=reason,
                    message=message[:MOST_MESSAGE],
                    first=self._config.portal_login_retry,
                    longest=LONGEST_PAUSE,
                    **self._credentials,
                )
        except TRANSIENT_DB_ERRORS as failure:
            log.warning("portal: cannot store a refused login: %s", describe_error(failure))
            return
        error.retry_after = max(row["wait"] or timedelta(0), timedelta(0))
        if row["is_new"]:
            log.warning(
                "portal: login refused, next attempt in %d s, see attention",
                error.retry_after.total_seconds(),
            )

    async def clear(self, taxpayer: str) -> None:
        """Delete the refusals of a taxpayer after a success."""
        try:
            async with self._database.across() as conn:
                await sql.refused_login_clear(
                    conn, client_id=self._config.portal_client_id, taxpayer=taxpayer
                )
        except TRANSIENT_DB_ERRORS as failure:
            log.warning("portal: cannot clear a refused login: %s", describe_error(failure))

    async def listed(self) -> list[dict[str, Any]]:
        """Return the refused logins, oldest first, each with instructions for the operator."""
        async with self._database.across() as conn:
            rows = await sql.refused_logins_list(conn, **self._credentials)
        return [{**row, "what_to_do": WHAT_TO_DO[row["reason"]]} for row in rows]

    async def forget(self, taxpayer: str | None) -> int:
        """Delete the refusals of one taxpayer, or of all, and return their number."""
        async with self._database.across() as conn:
            return await sql.refused_logins_forget(
                conn, client_id=self._config.portal_client_id, taxpayer=taxpayer
            )


def _refused(wait: timedelta) -> LoginRefused:
    return LoginRefused(WAITING.format(math.ceil(wait.total_seconds())), retry_after=wait)

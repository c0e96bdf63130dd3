"""Logins, and those that the portal refused, which PostgreSQL stores for all processes.

Repeating a refused login can lock the account.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from service.config import Config, fingerprint_credentials
from service.db.statements import sql
from service.db.transactions import Database
from service.db.transient_errors import TRANSIENT_DB_ERRORS
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
WHAT_THE_COMPANY_DOES = (
    "These are the company's own credentials. An owner or administrator of the company replaces or "
    "removes them on the page Settings, Portal."
)
UNKNOWN = "The database is unavailable, so refused logins cannot be checked. Nothing was sent."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials of a client, and the taxpayer on whose behalf it logs in.

    An empty `on_behalf_of` means that the client logs in for itself. `is_own` marks a company's own
    client, whose rate limits are not shared. With a `problem`, the credentials cannot be used.
    """

    client_id: str
    client_secret: str = field(repr=False)
    on_behalf_of: str = ""
    is_own: bool = False
    problem: str = ""

    @property
    def key(self) -> dict[str, str]:
        """Return the key of its refusals."""
        return {
            "client_id": self.client_id,
            "fingerprint": fingerprint_credentials(self.client_id, self.client_secret),
            "taxpayer": self.on_behalf_of,
        }


@dataclass(frozen=True, slots=True)
class OwnClient:
    """A company's own client, and the normalised TIN of the taxpayer that it belongs to."""

    tin: str
    login: Login


def choose_login(config: Config, own: OwnClient | None, tin: str) -> Login:
    """Return the login for requests about a taxpayer: the company's own one, or the operator's.

    A company's own client belongs to one taxpayer, and is not used after the company's TIN changed.
    """
    if own is not None and own.tin == tin:
        return own.login
    represented = tin if config.portal_intermediary else ""
    return Login(config.portal_client_id, config.portal_client_secret, represented)


class RefusedLogins:
    """Store of refused logins, each with a pause that doubles up to an hour.

    Other credentials or another taxpayer have a pause of their own. If the client itself was
    refused, the pause is for all taxpayers.
    """

    def __init__(self, database: Database, config: Config) -> None:
        self._database = database
        self._config = config

    async def check(self, login: Login) -> None:
        """Raise LoginRefused while the login pauses, NotSent without PostgreSQL."""
        try:
            async with self._database.across() as conn:
                wait = await sql.refused_login_wait(conn, **login.key)
        except TRANSIENT_DB_ERRORS as failure:
            raise NotSent(UNKNOWN) from failure
        if wait is not None:
            raise _refused(wait)

    async def begin(self, login: Login) -> str | None:
        """Start a login attempt. Return the reason of the last refusal, or None if there is none.

        After a refusal only one process attempts a login at a time: if it is another process,
        LoginRefused is raised. Raises NotSent if PostgreSQL is unavailable.
        """
        lease = self._config.portal_timeout * 2 + LEASE_MARGIN
        try:
            async with self._database.across() as conn:
                row = await sql.refused_login_try(conn, lease=lease, **login.key)
        except TRANSIENT_DB_ERRORS as failure:
            raise NotSent(UNKNOWN) from failure
        if not row["is_mine"]:
            raise _refused(row["wait"])
        return row["reason"]

    async def note(self, login: Login, error: LoginRefused, reason: str) -> None:
        """Store a refusal and set `error.retry_after`. `reason` is "login" or "token".

        The refusal of a taxpayer shows that the client is not refused any more.
        """
        key = {**login.key, "taxpayer": ""} if error.is_client else login.key
        messages = [error.reason, *(entry["message"] for entry in error.errors if entry["message"])]
        message = " ".join(dict.fromkeys(messages))
        try:
            async with self._database.across() as conn:
                if key["taxpayer"]:
                    await sql.refused_login_clear(conn, **{**key, "taxpayer": ""})
                row = await sql.refused_login_note(
                    conn,
                    reason=reason,
                    message=message[:MOST_MESSAGE],
                    first=self._config.portal_login_retry,
                    longest=LONGEST_PAUSE,
                    **key,
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

    async def clear(self, login: Login) -> None:
        """Delete the refusals of a login after a success."""
        try:
            async with self._database.across() as conn:
                await sql.refused_login_clear(conn, **login.key)
        except TRANSIENT_DB_ERRORS as failure:
            log.warning("portal: cannot clear a refused login: %s", describe_error(failure))

    async def listed(self) -> list[dict[str, Any]]:
        """Return the refused logins, oldest first, each with instructions for the operator."""
        async with self._database.across() as conn:
            rows = await sql.refused_logins_list(
                conn,
                client_id=self._config.portal_client_id,
                fingerprint=self._config.portal_credentials_fingerprint,
            )
        return [{**row, "what_to_do": _what_to_do(row)} for row in rows]

    async def forget(self, taxpayer: str | None) -> int:
        """Delete the refusals of one taxpayer, or of all, and return their number.

        The companies' own clients are included.
        """
        async with self._database.across() as conn:
            return await sql.refused_logins_forget(
                conn, client_id=self._config.portal_client_id, taxpayer=taxpayer
            )


def _what_to_do(row: Mapping[str, Any]) -> str:
    return WHAT_THE_COMPANY_DOES if row["company_id"] else WHAT_TO_DO[row["reason"]]


def _refused(wait: timedelta) -> LoginRefused:
    return LoginRefused(WAITING.format(math.ceil(wait.total_seconds())), retry_after=wait)

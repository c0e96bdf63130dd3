"""Logins and their tokens, and the logins that the portal refused.

PostgreSQL stores the refused ones for all processes, because repeating them can lock the account.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from service.config import Config, fingerprint_credentials
from service.db.connections import TRANSIENT_DB_ERRORS
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import describe_error
from service.json_types import JsonMapping, JsonObject
from service.portal import responses
from service.portal.errors import LoginRefused, NotSent, Unclear
from service.portal.responses import PortalResponse

RENEW_AT = 0.8  # of a token's lifetime
LONGEST_PAUSE = timedelta(hours=1)
#: Added to the timeouts of the two requests of a login attempt.
LEASE_MARGIN = timedelta(seconds=10)
MOST_MESSAGE = 500  # characters
WAITING = "The portal refused the login. It is tried again in {} seconds at the earliest."
WHAT_TO_DO = {
    "login": "Check PORTAL_CLIENT_ID and PORTAL_CLIENT_SECRET: each environment has its own, and "
    "they expire. Check that the portal has not blocked the client, and that the taxpayer has "
    "appointed it as its intermediary. New credentials are tried at once after a restart. "
    "Otherwise run `run.py retry-logins`, or wait for the next attempt.",
    "token": "The portal issues a token and refuses it. Check that the taxpayer has appointed the "
    "client as its intermediary with the permissions to submit, view and cancel documents. Then "
    "run `run.py retry-logins`, or wait for the next attempt.",
}
WHAT_THE_COMPANY_DOES = (
    "These are the company's own credentials. An owner or administrator of the company replaces or "
    "removes them on the page Settings, Portal."
)
UNKNOWN = "The database is unavailable, so refused logins cannot be checked. Nothing was sent."

#: Called with the operation, the TIN, whether the request is for a further page of a listing, and
#: the client id of the company's own client, if that is used.
RateLimiter = Callable[[str, str, bool, str | None], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials of a client, and the taxpayer on whose behalf it logs in.

    An empty `on_behalf_of` means that the client logs in for itself. `own_tin` is the normalised
    TIN of the taxpayer to whom a company's own client belongs. With a `problem`, the credentials
    cannot be used.
    """

    client_id: str
    client_secret: str = field(repr=False)
    on_behalf_of: str = ""
    own_tin: str | None = None
    problem: str = ""

    @property
    def is_own(self) -> bool:
        """Return whether it is a company's own client, whose rate limits are not shared."""
        return self.own_tin is not None

    @property
    def key(self) -> dict[str, str]:
        """Return the key of its refusals."""
        return {
            "client_id": self.client_id,
            "fingerprint": fingerprint_credentials(self.client_id, self.client_secret),
            "taxpayer": self.on_behalf_of,
        }


@dataclass(frozen=True)
class RefusedLogins:
    """Store of refused logins, each with a pause that doubles up to an hour.

    Other credentials or another taxpayer have a pause of their own. If the client itself was
    refused, the pause is for all taxpayers.
    """

    database: Database
    config: Config

    async def begin(self, login: Login, is_admitted: bool) -> str | None:
        """Start a login attempt. Return the reason of the last refusal, or None if there is none.

        After a refusal only one process attempts a login at a time, which the rate limiter has
        admitted: if it is another process, and during the pause, LoginRefused is raised. Raises
        NotSent if PostgreSQL is unavailable.
        """
        lease = self.config.portal_timeout * 2 + LEASE_MARGIN if is_admitted else timedelta(0)
        try:
            row = await self.database.call(sql.refused_login_try, lease=lease, **login.key)
        except TRANSIENT_DB_ERRORS as failure:
            raise NotSent(UNKNOWN) from failure
        if not row["is_mine"]:
            seconds = math.ceil(row["wait"].total_seconds())
            raise LoginRefused(WAITING.format(seconds), retry_after=row["wait"])
        return row["reason"]

    async def note(self, login: Login, error: LoginRefused, reason: str) -> None:
        """Store a refusal and set `error.retry_after`. `reason` is "login" or "token".

        The refusal of a taxpayer shows that the client is not refused any more.
        """
        key = {**login.key, "taxpayer": ""} if error.is_client else login.key
        messages = [error.reason, *(entry["message"] for entry in error.errors if entry["message"])]
        message = " ".join(dict.fromkeys(messages))
        try:
            if key["taxpayer"]:
                await self.database.call(sql.refused_login_clear, **{**key, "taxpayer": ""})
            row = await self.database.call(
                sql.refused_login_note,
                reason=reason,
                message=message[:MOST_MESSAGE],
                first=self.config.portal_login_retry,
                longest=LONGEST_PAUSE,
                **key,
            )
        except TRANSIENT_DB_ERRORS as failure:
            log.warning("portal: cannot store a refused login: %s", describe_error(failure))
            return
        wait = error.retry_after = max(row["wait"] or timedelta(0), timedelta(0))
        if row["is_new"]:
            log.warning(
                "portal: login refused, next attempt in %d s, see attention",
                wait.total_seconds(),
            )

    async def clear(self, login: Login) -> None:
        """Delete the refusals of a login after a success."""
        try:
            await self.database.call(sql.refused_login_clear, **login.key)
        except TRANSIENT_DB_ERRORS as failure:
            log.warning("portal: cannot clear a refused login: %s", describe_error(failure))

    async def listed(self) -> list[JsonObject]:
        """Return the refused logins, oldest first, each with instructions for the operator."""
        rows = await self.database.call(
            sql.refused_logins_list,
            client_id=self.config.portal_client_id,
            fingerprint=self.config.portal_credentials_fingerprint,
        )
        return [{**row, "what_to_do": _what_to_do(row)} for row in rows]

    async def forget(self, taxpayer: str | None) -> int:
        """Delete the refusals of one taxpayer, or of all, and return their number.

        The companies' own clients are included.
        """
        return await self.database.call(
            sql.refused_logins_forget, client_id=self.config.portal_client_id, taxpayer=taxpayer
        )


def _what_to_do(row: JsonMapping) -> str:
    return WHAT_THE_COMPANY_DOES if row["company_id"] else WHAT_TO_DO[row["reason"]]


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and when it is renewed, in monotonic seconds."""

    text: str = field(repr=False)
    renew_at: float


@dataclass
class Tokens:
    """The valid token of each login. `request(tin, login)` sends the request for a new one."""

    request: Callable[[str, Login], Awaitable[PortalResponse]]
    rate_limiter: RateLimiter | None
    refusals: RefusedLogins | None
    clock: Callable[[], float]
    _tokens: dict[Login, Token] = field(default_factory=dict)
    _logins: dict[Login, asyncio.Task[Token]] = field(default_factory=dict)  # in progress
    #: Logins of which a token was refused and the next one has not been used yet.
    _on_trial: set[Login] = field(default_factory=set)

    def through(self, rate_limiter: RateLimiter | None, refusals: RefusedLogins | None) -> "Tokens":
        """Return the same tokens with logins of their own, which wait for another rate limiter."""
        refusals = refusals or self.refusals
        return replace(self, rate_limiter=rate_limiter, refusals=refusals, _logins={})

    async def admit(self, operation: str, tin: str, login: Login, further: bool = False) -> None:
        """Pass the rate limiter. Raises Held."""
        if self.rate_limiter:
            own_client_id = login.client_id if login.is_own else None
            await self.rate_limiter(operation, tin, further, own_client_id)

    async def get(self, tin: str, login: Login, is_repeated: bool = False) -> Token:
        """Return a valid token. Callers with one login share its request and its outcome.

        `is_repeated`: the request was made with another token, which the portal refused.
        """
        token = self._tokens.get(login)
        if token and self.clock() < token.renew_at:
            return token
        if login.problem:
            raise LoginRefused(login.problem)
        if login not in self._logins:
            self._logins[login] = asyncio.create_task(self._log_in(tin, login, is_repeated))
        # A caller that is cancelled does not cancel the login of the others.
        return await asyncio.shield(self._logins[login])

    def drop(self, login: Login, token: Token | None = None) -> None:
        """Discard the token of a login, or only this one: a newer one may have replaced it."""
        if token in (None, self._tokens.get(login)):
            self._tokens.pop(login, None)

    async def note_refused(self, login: Login, error: LoginRefused, reason: str) -> None:
        """Record a refused login, or a refused new token. `reason` is "login" or "token"."""
        if self.refusals:
            self._on_trial.discard(login)
            await self.refusals.note(login, error, reason)

    async def note_accepted(self, login: Login) -> None:
        """Clear a refused token after the portal has accepted a new one."""
        if self.refusals and login in self._on_trial:
            self._on_trial.discard(login)
            await self.refusals.clear(login)

    async def _log_in(self, tin: str, login: Login, is_repeated: bool) -> Token:
        """Store and return a new token. Portal: 2

        Raises Throttled, LoginRefused, or NotSent for any other failure. A repetition belongs to
        the login attempt that the first token started. After a refused token, the new one must be
        accepted first.
        """
        began = self.clock()
        try:
            reason = await self._begin(tin, login, is_repeated and login in self._on_trial)
            text, life = await self._obtain(tin, login)
            if reason == "token":
                self._on_trial.add(login)
            elif reason and self.refusals:
                await self.refusals.clear(login)
        finally:
            del self._logins[login]
        # Forget expired tokens, also of credentials that were replaced.
        now = self.clock()
        for expired in [one for one, token in self._tokens.items() if token.renew_at <= now]:
            del self._tokens[expired]
        token = self._tokens[login] = Token(text, began + RENEW_AT * life.total_seconds())
        return token

    async def _begin(self, tin: str, login: Login, is_started: bool) -> str | None:
        """Pass the rate limiter, unless a recent login was refused: then no slot is used.

        Return the reason of the last refusal, or None. Raises LoginRefused and Held. `is_started`:
        the login attempt has already started.
        """
        if self.refusals is None or is_started:
            await self.admit("login", tin, login)
            return None
        await self.refusals.begin(login, is_admitted=False)
        await self.admit("login", tin, login)
        return await self.refusals.begin(login, is_admitted=True)

    async def _obtain(self, tin: str, login: Login) -> tuple[str, timedelta]:
        """Log in and return a token and its lifetime. Records a refusal."""
        try:
            return responses.login(await self.request(tin, login))
        except Unclear as error:
            raise NotSent(f"Login: {error.reason}", correlation_id=error.correlation_id) from error
        except LoginRefused as error:
            await self.note_refused(login, error, "login")
            raise

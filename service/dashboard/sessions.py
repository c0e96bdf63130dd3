"""Sessions of people: the cookie, the token against forged requests, and the rights of roles.

A session is 256 random bits in a cookie; PostgreSQL stores their SHA-256. Every request looks the
session up, so that it ends in all processes at the same time.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from aiohttp import web

from service import json_codec
from service.db.encryption import DecryptionError, Vault
from service.db.statements import sql
from service.db.transactions import Database
from service.http import app_keys
from service.http.forms import read_number
from service.http.tokens import digest_of, make_token
from service.json_types import JsonMapping

IDLE = timedelta(minutes=30)
LONGEST = timedelta(hours=12)
#: Time after the password was entered in which secrets and roles may be changed without entering
#: it again.
RECENT = timedelta(minutes=10)
#: Browsers accept the first name only from HTTPS, for the whole host and from no other host.
SECURE_COOKIE, PLAIN_COOKIE = "__Host-einvoice", "einvoice"

#: The company of forms of a person without one, and of visitors.
NO_COMPANY = 0
#: The purpose of a secret that a page shows once, see repetition.py.
SHOWN_SECRET = "shown secret"

READ, WRITE, ADMINISTER, OWN = "read", "write", "administer", "own"
#: Right of everyone who has signed in, also without a company.
PERSON = "person"
#: Role -> what it may do. Members write documents; admins change settings, keys and people; owners
#: also change owners and admins.
RIGHTS: Mapping[str, frozenset[str]] = {
    "reader": frozenset({READ}),
    "member": frozenset({READ, WRITE}),
    "admin": frozenset({READ, WRITE, ADMINISTER}),
    "owner": frozenset({READ, WRITE, ADMINISTER, OWN}),
}


class SignInNeeded(Exception):
    """The request has no session, or none any more."""


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a request. `digest` identifies it, `token` is the text in the cookie.

    `form_secret` is the person's. Company and role are None for a person who has accepted no role.
    `is_recent` is true if the password was entered a short time ago. `links_made` are the latest
    links that others made for the person, who has not seen them yet.
    """

    token: str
    digest: bytes
    id: int
    user_id: int
    name: str
    email: str
    form_secret: bytes = field(repr=False)
    has_password: bool
    company_id: int | None
    company_name: str | None
    role: str | None
    is_recent: bool
    links_made: Sequence[JsonMapping]

    def seal_secrets(self, secrets: bytes) -> bytes:
        """Return secrets encrypted with a key that only the browser of the session has."""
        return self._vault.seal(secrets, self.company_id or 0, SHOWN_SECRET)

    def open_secrets(self, sealed: bytes) -> bytes | None:
        """Return the secrets that this session has encrypted, or None if another one has."""
        try:
            return self._vault.open(sealed, self.company_id or 0, SHOWN_SECRET)
        except DecryptionError:
            return None

    @property
    def _vault(self) -> Vault:
        return Vault(hmac.digest(self.token.encode("utf-8", "replace"), b"secrets", "sha256"))

    def may(self, right: str) -> bool:
        return right == PERSON or (self.role is not None and right in RIGHTS[self.role])


SESSION = web.RequestKey("dashboard_session", Session)


def make_form_token(secret: bytes, company_id: int) -> str:
    """Return the hidden field of forms for a company, which another site cannot know.

    `secret` is that of the person's forms. So the field outlives the session, and a form can be
    sent after the person has signed in again. A visitor without a session has another secret.
    """
    digest = hmac.digest(secret, f"form {company_id}".encode(), "sha256")
    return f"{company_id}.{digest.hex()}"


def read_form_token(secret: bytes, text: str) -> int | None:
    """Return the company of a form with the secret, NO_COMPANY for a form without one.

    None: the token has another secret.
    """
    company_id = read_number(text.partition(".")[0], 18)
    if company_id is None:
        return None
    expected = make_form_token(secret, company_id)
    return company_id if hmac.compare_digest(text.encode(), expected.encode()) else None


def cookie_name(request: web.Request) -> str:
    return SECURE_COOKIE if is_secure(request) else PLAIN_COOKIE


def is_secure(request: web.Request) -> bool:
    """Return whether people reach the service by HTTPS."""
    return request.app[app_keys.CONFIG].public_url.startswith("https:")


async def get_session(database: Database, token: str) -> Session | None:
    digest = digest_of(token)
    row = await database.call(
        sql.session_get, token_sha256=digest, idle=IDLE, longest=LONGEST, recent=RECENT
    )
    if row is None:
        return None
    links_made = json_codec.loads_own(row["links_made"])
    return Session(token, digest, **{**row, "links_made": links_made})


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to begin, for a person who has proved a password or used a link.

    `password_hash` is that of the person then. `action` is the entry in the log of the person, None
    if there is one already. `is_authenticated` is false if no password was entered.
    """

    user_id: int
    password_hash: str | None
    company_id: int | None
    action: str | None
    is_authenticated: bool = True


async def begin_session(database: Database, entry: NewSession) -> str:
    """Begin a session, and return its token. Raises SignInNeeded if the password has changed."""
    token = make_token()
    async with database.person() as conn:
        user = await sql.user_lock(conn, user_id=entry.user_id)
        if user is None or user["password_hash"] != entry.password_hash:
            raise SignInNeeded
        await sql.session_insert(
            conn,
            token_sha256=digest_of(token),
            user_id=entry.user_id,
            company=entry.company_id,
            action=entry.action,
            is_authenticated=entry.is_authenticated,
        )
    return token


def set_cookie(
    request: web.Request, response: web.StreamResponse, name: str, text: str, **more: Any
) -> None:
    """Store a cookie in the browser, by default for all pages and until the browser is closed."""
    secure = is_secure(request)
    response.set_cookie(name, text, secure=secure, httponly=True, samesite="Lax", **more)

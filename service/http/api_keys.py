"""API keys: `einv_live_<key id>_<secret><checksum>`, `einp_` for integrations. Only the secret's SHA-256 is kept."""

import asyncio
import hashlib
import hmac
import logging
import math
import re
import secrets
import time
import zlib
from dataclasses import dataclass, field

from service.db.statements import Statement, sql
from service.db.transactions import TRANSIENT_DB_ERRORS, Database
from service.errors import Unauthorized, describe_error

REQUIRED = "API key is required"
WRONG = "Invalid API key"
INTEGRATION_WRONG = "Unauthorized: Valid API key required"

log = logging.getLogger(__name__)

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(
    r"((ein[vp])_(?:live|test)_([0-9A-Za-z]{12})_([0-9A-Za-z]{43}))([0-9A-Za-z]{6})", re.ASCII
)
_SHOWN = re.compile(r"ein[vp]_(?:live|test)_[0-9A-Za-z]{12}_", re.ASCII)
_NOBODY = bytes(32)  # what an unknown key id is compared with, so that both ways do the same work

#: How long a key is believed without asking. A revocation is told to every process; one that cannot
#: hear it, and does
#: not know that either, finds out in less than a second all the same.
TRUST_SECONDS = 0.5
MAX_CACHED = 10_000
#: From when on the log says, once a day, that a key which is in use is about to expire.
WARN_SECONDS = 14 * 86400
DAY_SECONDS = 86400


@dataclass(frozen=True, slots=True)
class KeyKind:
    """What sets the keys of one surface apart: `owner` is the column, and the variable, of whom they belong to."""

    prefix: str
    owner: str
    wrong: str
    wall: object  # (database, owner's id) -> a transaction behind the owner's wall
    of: Statement
    used: Statement
    revoke: Statement


COMPANY = KeyKind(
    "einv",
    "company_id",
    WRONG,
    Database.company,
    sql.api_key_of,
    sql.api_key_used,
    sql.api_key_revoke,
)
INTEGRATION = KeyKind(
    "einp",
    "account_id",
    INTEGRATION_WRONG,
    Database.account,
    sql.integration_key_of,
    sql.integration_key_used,
    sql.integration_key_revoke,
)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is shown once: `text` is never stored, `digest` is."""

    text: str = field(repr=False)
    key_id: str
    digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Known:
    """What PostgreSQL says of a key. `asked` and `ends` are of the monotonic clock: no clock of ours has to be right."""

    owner: int
    digest: bytes
    revoked: bool
    asked: float
    ends: float


def random_text(length):
    """Letters and digits that nobody guesses."""
    return "".join(secrets.choice(BASE62) for _ in range(length))


def new_key(live, kind=COMPANY):
    """A fresh key; `live` is false where the portal is a sandbox."""
    key_id = random_text(12)
    secret = _base62(int.from_bytes(secrets.token_bytes(32)), 43)
    body = f"{kind.prefix}_{'live' if live else 'test'}_{key_id}_{secret}"
    return NewKey(body + _checksum(body), key_id, _digest(secret))


def parse_key(text, kind=COMPANY):
    """(key id, SHA-256 of the secret) of a key's text; None for anything that is no key of this kind."""
    parts = _KEY.fullmatch(text)
    if (
        parts is None
        or parts[2] != kind.prefix
        or not hmac.compare_digest(_checksum(parts[1]), parts[5])
    ):
        return None
    return parts[3], _digest(parts[4])


def contains_key(text):
    """Whether a text that may be seen by others, as an address may, holds a key of any kind."""
    return _SHOWN.search(text) is not None


class KeyRing:
    """Who a key belongs to: looked up once, then for a moment in memory, or until it is revoked or expires."""

    def __init__(self, database, kind=COMPANY):
        self._kind = kind
        self._database = database
        self._known = {}  # key id -> _Known
        self._news = 0  # notifications so far
        self._used = {}  # key id -> owner, since the last flush
        self._warned = {}  # key id -> when the log was last told, by the monotonic clock

    async def owner_of(self, text):
        """(owner's id, key id) of a key's text. Raises Unauthorized, in the same words for every fault."""
        parsed = parse_key(text, self._kind)
        if parsed is None:
            raise Unauthorized(self._kind.wrong)
        key_id, digest = parsed
        known = await self._look_up(key_id)
        fits = hmac.compare_digest(known.digest if known else _NOBODY, digest)
        if not (known and fits) or known.revoked or known.ends <= time.monotonic():
            raise Unauthorized(self._kind.wrong)
        self._used[key_id] = known.owner
        self._tell(key_id, known)
        return known.owner, key_id

    def forget(self, key_id):
        """A key has changed somewhere: the next request asks again."""
        self._news += 1
        self._known.pop(key_id, None)

    def forget_all(self):
        """Notifications may have been missed."""
        self._news += 1
        self._known.clear()

    async def record_use(self):
        """Writes last_used_at of the keys used since the last call, outside of any request.

        What cannot be written now is written with the next call.
        """
        try:
            for key_id, owner in list(self._used.items()):
                async with self._kind.wall(self._database, owner) as conn:
                    await self._kind.used(conn, key_id=key_id, **{self._kind.owner: owner})
                self._used.pop(key_id, None)
        except TRANSIENT_DB_ERRORS as fault:
            log.warning("keys: the last use is not noted: %s", describe_error(fault))

    async def record_use_forever(self):
        while True:
            await asyncio.sleep(60)
            await self.record_use()

    async def _look_up(self, key_id):
        known, now = self._known.get(key_id), time.monotonic()
        if known is not None and now < known.asked + TRUST_SECONDS:
            return known
        news = self._news
        async with self._database.across() as conn:
            row = await self._kind.of(conn, key_id=key_id)
        if row is None:
            return None
        ends = math.inf if row["expires_in"] is None else now + row["expires_in"]
        known = _Known(row[self._kind.owner], row["secret_sha256"], row["revoked"], now, ends)
        if news == self._news:  # else what was just read may be older than the news
            _make_room(self._known)
            self._known[key_id] = known
        return known

    def _tell(self, key_id, known):
        """Says in the log that a key which is in use is about to expire, once a day."""
        now = time.monotonic()
        if (
            known.ends - now > WARN_SECONDS
            or now < self._warned.get(key_id, -math.inf) + DAY_SECONDS
        ):
            return
        _make_room(self._warned)
        self._warned[key_id] = now
        days = (known.ends - now) / DAY_SECONDS
        log.warning(
            "keys: %s=%d key_id=%s expires in %.1f days",
            self._kind.owner,
            known.owner,
            key_id,
            days,
        )


def _make_room(cache):
    if len(cache) >= MAX_CACHED:
        cache.clear()


def _digest(secret):
    return hashlib.sha256(secret.encode()).digest()


def _checksum(body):
    return _base62(zlib.crc32(body.encode()), 6)


def _base62(number, width):
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(BASE62[digit])
    return "".join(reversed(digits))

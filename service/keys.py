"""API keys: `einv_live_<key id>_<secret><checksum>`. Only the secret's SHA-256 is kept."""

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
import zlib
from dataclasses import dataclass

from service.db import PASSING
from service.errors import Unauthorized
from service.statements import sql

REQUIRED = "API key is required"
WRONG = "Invalid API key"

log = logging.getLogger(__name__)

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(r"(einv_(?:live|test)_([0-9A-Za-z]{12})_([0-9A-Za-z]{43}))([0-9A-Za-z]{6})", re.ASCII)
_NOBODY = bytes(32)  # what an unknown key id is compared with, so that both ways do the same work

#: How long a key is believed without asking: while notifications of a revocation arrive, and while they may not.
TRUST_SECONDS = 60
TRUST_SECONDS_DEAF = 0.5
MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is shown once: `text` is never stored, `digest` is."""

    text: str
    key_id: str
    digest: bytes


def new_key(live):
    """A fresh company key; `live` is false where the portal is a sandbox."""
    key_id = "".join(secrets.choice(BASE62) for _ in range(12))
    secret = _base62(int.from_bytes(secrets.token_bytes(32)), 43)
    body = f"einv_{'live' if live else 'test'}_{key_id}_{secret}"
    return NewKey(body + _checksum(body), key_id, _digest(secret))


def parse(text):
    """(key id, SHA-256 of the secret) of a key's text; None for anything that is no key of ours."""
    parts = _KEY.fullmatch(text)
    if parts is None or not hmac.compare_digest(_checksum(parts[1]), parts[4]):
        return None
    return parts[2], _digest(parts[3])


class KeyRing:
    """Who a key belongs to: looked up once, then in memory until it is revoked, expires or grows old."""

    def __init__(self, database, keeper):
        self._database = database
        self._keeper = keeper
        self._rows = {}  # key id -> (row, when it was asked for, by the monotonic clock)
        self._news = 0  # notifications so far
        self._used = {}  # key id -> company, since the last flush

    async def company_of(self, text):
        """(company id, key id) of a key's text. Raises Unauthorized, in the same words for every fault."""
        parsed = parse(text)
        if parsed is None:
            raise Unauthorized(WRONG)
        key_id, digest = parsed
        row = await self._row(key_id)
        known = hmac.compare_digest(row["secret_sha256"] if row else _NOBODY, digest)
        if not (row and known) or row["revoked_at"] or (row["expires_at"] and row["expires_at"].timestamp() <= time.time()):
            raise Unauthorized(WRONG)
        self._used[key_id] = row["company_id"]
        return row["company_id"], key_id

    def forget(self, key_id):
        """A key has changed somewhere: the next request asks again."""
        self._news += 1
        self._rows.pop(key_id, None)

    def forget_all(self):
        """Notifications may have been missed."""
        self._news += 1
        self._rows.clear()

    async def note_use(self):
        """Writes last_used_at of the keys used since the last call, outside of any request.

        What cannot be written now is written with the next call.
        """
        try:
            for key_id, company_id in list(self._used.items()):
                async with self._database.company(company_id) as conn:
                    await sql.api_key_used(conn, company_id=company_id, key_id=key_id)
                self._used.pop(key_id, None)
        except PASSING as fault:
            log.warning("keys: the last use is not noted: %s", fault)

    async def keep_noting(self):
        while True:
            await asyncio.sleep(60)
            await self.note_use()

    async def _row(self, key_id):
        row, asked = self._rows.get(key_id, (None, 0))
        trust = TRUST_SECONDS if self._keeper.alive else TRUST_SECONDS_DEAF
        if row is not None and time.monotonic() < asked + trust:
            return row
        asked, news = time.monotonic(), self._news
        async with self._database.across() as conn:
            row = await sql.api_key_of(conn, key_id=key_id)
        if row is not None and news == self._news:  # else what was just read may be older than the news
            if len(self._rows) >= MAX_CACHED:
                self._rows.clear()
            self._rows[key_id] = row, asked
        return row


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

"""API keys: `einv_live_<key id>_<secret><checksum>`, for integrations `einp_live_…`.

The database stores only the SHA-256 of the secret. In a cell, key ids begin with its name, so that
a proxy can route requests by their keys.
"""

import hmac
import logging
import math
import re
import secrets
import sys
import time
import zlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime

from service.db.connections import TRANSIENT_DB_ERRORS, Connection
from service.db.session import DedicatedSession, Seen
from service.db.statements import sql
from service.db.transactions import Database, Owner, OwnerKind
from service.errors import Conflict, Unauthorized, describe_error
from service.fair_queue import CLIENT
from service.http.tokens import digest_of
from service.loops import Loop

REQUIRED = "API key is required"
WRONG = "Invalid API key"
INTEGRATION_WRONG = "Unauthorized: Valid API key required"
MOST_KEYS = 50  # of a company that are neither revoked nor expired
TOO_MANY_KEYS = (
    f"A company can have at most {MOST_KEYS} valid API keys. Revoke a key that is no longer used."
)

log = logging.getLogger(__name__)

BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY = re.compile(
    r"((ein[vp])_(?:live|test)_([0-9A-Za-z]{12,15})_([0-9A-Za-z]{43}))([0-9A-Za-z]{6})", re.ASCII
)
_KEY_START = re.compile(r"ein[vp]_(?:live|test)_[0-9A-Za-z]{12,15}_", re.ASCII)
#: The digest that a secret is compared with if the key id is unknown: both cases take equal time.
_NO_DIGEST = bytes(32)

#: Time for which a key is used after it was read, or after a heartbeat of the session, with which
#: a notification of its change would have arrived. A process whose session is lost or late still
#: rejects a revoked key within a second.
CACHE_SECONDS = 0.5
#: Time for which a key is used at most, should a notification be missing.
MOST_SECONDS = 300
MAX_CACHED = 50_000  # about 25 MB
#: The last characters of a key id are random. A name of a cell can precede them.
KEY_ID_CHARACTERS = 12
RECORD_SECONDS = 300  # between two writes of last_used_at


@dataclass(frozen=True, slots=True)
class KeyKind:
    """The differences between keys of companies and of integration accounts.

    `owner` is the kind of the owner. `missing` and `wrong` are the messages of a 401.
    """

    owner: OwnerKind
    prefix: str
    header: str
    missing: str
    wrong: str


COMPANY = KeyKind("company", "einv", "X-API-Key", REQUIRED, WRONG)
INTEGRATION = KeyKind("account", "einp", "X-Portal-Key", INTEGRATION_WRONG, INTEGRATION_WRONG)
KINDS = (COMPANY, INTEGRATION)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key. `text` is shown once and never stored; `digest` is stored."""

    text: str = field(repr=False)
    key_id: str
    digest: bytes = field(repr=False)
    kind: KeyKind = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as read from the database.

    `seen` is the database from which it was read. `expires_at` is by its clock; None: never.
    """

    owner: Owner
    key_id: str
    digest: bytes = field(repr=False)
    is_revoked: bool
    expires_at: datetime | None
    seen: Seen


def random_text(length: int) -> str:
    """Return random letters and digits from a cryptographic source."""
    return "".join(secrets.choice(BASE62) for _ in range(length))


def new_key(live: bool, kind: KeyKind = COMPANY, cell: str = "") -> NewKey:
    """Return a new key of a cell. `live` is false if the portal is a sandbox."""
    key_id = cell + random_text(KEY_ID_CHARACTERS)
    secret = _base62(int.from_bytes(secrets.token_bytes(32)), 43)
    body = f"{kind.prefix}_{'live' if live else 'test'}_{key_id}_{secret}"
    return NewKey(body + _checksum(body), key_id, digest_of(secret), kind)


async def insert_key(conn: Connection, key: NewKey, name: str, expires_at: datetime | None) -> None:
    """Store a new key of the company or account of the transaction.

    Raises Conflict if the company has MOST_KEYS valid keys.
    """
    if key.kind is COMPANY:
        await sql.company_lock(conn)
    inserted = await sql.api_key_insert(
        conn,
        key_id=key.key_id,
        name=name,
        secret_sha256=key.digest,
        expires_at=expires_at,
        most=MOST_KEYS if key.kind is COMPANY else None,
    )
    if inserted is None:
        raise Conflict(TOO_MANY_KEYS)


def parse_key(text: str, kind: KeyKind = COMPANY) -> tuple[str, bytes] | None:
    """Return (key id, SHA-256 of the secret) of a key, or None if it is not a key of this kind."""
    parts = _KEY.fullmatch(text)
    if (
        parts is None
        or parts[2] != kind.prefix
        or not hmac.compare_digest(_checksum(parts[1]), parts[5])
    ):
        return None
    return parts[3], digest_of(parts[4])


def contains_key(text: str) -> bool:
    """Return whether a text contains an API key of any kind, valid or not."""
    return _KEY_START.search(text) is not None


class KeyRing(Loop):
    """Looks up keys and their owners, with a cache that notifications invalidate.

    `session` receives them. In the background it records when keys were last used.
    """

    def __init__(self, database: Database, session: DedicatedSession) -> None:
        super().__init__("keys", RECORD_SECONDS)
        self._database = database
        self._session = session
        self._cached: dict[tuple[str, str], StoredKey] = {}  # by the kind of owner and the key id
        self._identity = ""  # of the database from which a key was read last
        self._invalidations = 0  # counts notifications
        self._used: set[tuple[Owner, str]] = set()  # owners and key ids since the last flush

    async def find(self, text: str, kind: KeyKind) -> StoredKey:
        """Return a valid key, for whose owner the present task works from then on.

        Raises Unauthorized with one message for unknown, wrong, revoked and expired keys.
        """
        parsed = parse_key(text, kind)
        if parsed is None:
            raise Unauthorized(kind.wrong)
        key_id, digest = parsed
        key = self._cached.get((kind.owner, key_id))
        if key is None or not self._is_fresh(key, time.monotonic()):
            if key and hmac.compare_digest(key.digest, digest):
                CLIENT.set(_client(key.owner))  # It does not wait with strangers.
            key = await self._read(kind.owner, key_id)
        is_right = hmac.compare_digest(key.digest if key else _NO_DIGEST, digest)
        left = self._seconds_left(key, time.monotonic()) if key else 0
        if not key or not is_right or key.is_revoked or left <= 0:
            raise Unauthorized(kind.wrong)
        CLIENT.set(_client(key.owner))
        self._used.add((key.owner, key_id))
        return key

    def forget(self, key_id: str) -> None:
        self._invalidations += 1
        for kind in KINDS:
            self._cached.pop((kind.owner, key_id), None)

    def forget_all(self) -> None:
        """Clear the cache, since notifications may have been missed."""
        self._invalidations += 1
        self._cached.clear()

    async def work(self) -> None:
        """Write last_used_at of the keys used since the last call, and warn of their expiry.

        Keys that cannot be written because of a transient error are written by the next call.
        """
        try:
            for owner, key_id in list(self._used):
                async with self._database.owned(owner) as conn:
                    days = await sql.api_key_used(conn, key_id=key_id)
                if days is not None:
                    log.warning(
                        "keys: %s_id=%d key_id=%s expires in %.1f days", *owner, key_id, days
                    )
                self._used.discard((owner, key_id))
        except TRANSIENT_DB_ERRORS as error:
            log.warning("keys: last_used_at is not written yet: %s", describe_error(error))

    async def close(self) -> None:
        """Write the use of keys since the last round."""
        await self.work()

    def _last_seen(self, key: StoredKey) -> Seen:
        """Return the latest moment until which no change of a cached key is missing.

        The heartbeat of another database does not count, such as that of a former primary.
        """
        heartbeat = self._session.heartbeat
        if heartbeat and heartbeat.identity == key.seen.identity == self._identity:
            return heartbeat if heartbeat.began > key.seen.began else key.seen
        return key.seen

    def _is_fresh(self, key: StoredKey, now: float) -> bool:
        return (
            now < self._last_seen(key).began + CACHE_SECONDS and now < key.seen.began + MOST_SECONDS
        )

    def _seconds_left(self, key: StoredKey, now: float) -> float:
        """Return the seconds until the expiry of a key, by the clock of the database."""
        if key.expires_at is None:
            return math.inf
        return (key.expires_at - self._last_seen(key).now(now)).total_seconds()

    async def _read(self, kind: OwnerKind, key_id: str) -> StoredKey | None:
        invalidations = self._invalidations
        async with self._database.across() as conn:
            began = time.monotonic()
            row = await sql.api_key_get(conn, owner_kind=kind, key_id=key_id)
        if row is None:
            return None
        self._identity = sys.intern(row["identity"])  # the same for all keys
        seen = Seen(self._identity, row["at"], began)
        owner = Owner(kind, row["owner_id"])
        key = StoredKey(
            owner, key_id, row["secret_sha256"], row["revoked"], row["expires_at"], seen
        )
        if invalidations == self._invalidations:  # otherwise the row may be older than the change
            if len(self._cached) >= MAX_CACHED:
                self._cached.clear()
            self._cached[kind, key_id] = key
        return key


def _client(owner: Owner) -> Hashable:
    """Return the owner as a client of the fair queues: a company by its id, as pages set it."""
    return owner.id if owner.kind == COMPANY.owner else owner


def _checksum(body: str) -> str:
    """Return the CRC-32 of a text in six digits of base 62."""
    return _base62(zlib.crc32(body.encode()), 6)


def _base62(number: int, width: int) -> str:
    return "".join(BASE62[number // 62**place % 62] for place in reversed(range(width)))

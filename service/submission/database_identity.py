"""Detect another database than before: a restored one, a copy, or a promoted standby.

Its rows may be older than what was sent, so sending is held. It is not held if this process has a
recent proof of the former database: the promoted standby had to confirm every commit.
"""

import logging
import time
from dataclasses import dataclass
from datetime import timedelta

from service.db.connections import Connection
from service.db.statements import sql
from service.db.transactions import Database
from service.db.transient_errors import TRANSIENT_DB_ERRORS
from service.loops import Loop

CHECK_SECONDS = 5
#: A clock that also runs while the machine is suspended. Without Linux, the monotonic one does.
CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
MESSAGES = {
    "held": "This is another database than before: sending is held for each company until it was "
    "compared with the portal.",
    "lossless": "This is a promoted standby that had to confirm every commit: sending goes on.",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof that synchronous standbys confirm every commit. `began` is before it, by CLOCK."""

    identity: str
    number: int
    began: float


async def record_database_identity(database: Database, proof: Proof | None = None) -> None:
    """Record which database this is. Hold sending if it is another one, and no proof forbids that.

    The age of the proof is that at which another database was seen, and not a later one.
    """
    async with database.across() as conn:
        await _record(conn, proof)


async def _record(conn: Connection, proof: Proof | None) -> None:
    found = await sql.database_identity_get(conn)
    if found["seen"] == found["recorded"]:
        return
    outcome = await sql.database_note(
        conn,
        seen=found["seen"],
        former=proof and proof.identity,
        proof=proof and proof.number,
        age=proof and timedelta(seconds=time.clock_gettime(CLOCK) - proof.began),
    )
    if outcome:
        log.warning(MESSAGES[outcome])


class DatabaseMonitor(Loop):
    """Checks the identity of the database, and renews this process's proof.

    It is woken when PostgreSQL was unavailable and may be another database now.
    """

    def __init__(self, database: Database) -> None:
        super().__init__("database identity", CHECK_SECONDS, TRANSIENT_DB_ERRORS)
        self._database = database
        self._proof: Proof | None = None

    async def work(self) -> None:
        """Check the identity, and prove it again."""
        async with self._database.across() as conn:
            await _record(conn, self._proof)
            began = time.clock_gettime(CLOCK)
            row = await sql.database_prove(conn)
        self._proof = Proof(row["identity"], row["proof"], began) if row else None

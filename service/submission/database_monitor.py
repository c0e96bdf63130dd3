"""Detect another database than before, and a step backward of its clock.

The rows of another one (restored, a copy, or a promoted standby) may be older than what was sent,
so sending is held. It is not held if this process has a recent evidence of the former database: the
promoted standby had to confirm every commit. After a step of the clock, times that lie ahead are
moved back, so that it stops nothing: see note_clock().
"""

import logging
import time
from datetime import timedelta

from service.db.connections import TRANSIENT_DB_ERRORS, Connection, Record
from service.db.statements import sql
from service.db.transactions import Database
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


async def record_database_identity(database: Database) -> None:
    """Record which database this is. Hold sending if it is another one than before."""
    await database.call(_record)


async def _record(conn: Connection, evidence: Record | None = None, began: float = 0) -> None:
    """Record which database this is. Hold sending if it is another one without evidence.

    `evidence` is that synchronous standbys confirm every commit. `began` is before it, by CLOCK.
    Its age is that at which another database was seen, and not a later one.
    """
    found = await sql.database_identity_get(conn)
    if found["seen"] == found["recorded"]:
        return
    outcome = await sql.record_database_identity(
        conn,
        seen=found["seen"],
        former=evidence and evidence["identity"],
        evidence=evidence and evidence["evidence"],
        age=evidence and timedelta(seconds=time.clock_gettime(CLOCK) - began),
    )
    if outcome:
        log.warning(MESSAGES[outcome])


class DatabaseMonitor(Loop):
    """Checks the identity and the clock of the database, and renews this process's evidence.

    It is woken when PostgreSQL was unavailable and may be another database now.
    """

    def __init__(self, database: Database) -> None:
        super().__init__("database monitor", CHECK_SECONDS, TRANSIENT_DB_ERRORS)
        self._database = database
        self._evidence: Record | None = None
        self._began = 0.0  # before the evidence

    async def work(self) -> None:
        """Check the identity, prove it again, and note the time."""
        async with self._database.across() as conn:
            await _record(conn, self._evidence, self._began)
            began = time.clock_gettime(CLOCK)
            self._evidence = await sql.record_evidence(conn)
            self._began = began
            if step := await sql.note_clock(conn):
                log.warning("the clock of the database was set back by %s", step)

"""Notes the time of the database, so that a step backward of its clock stops nothing."""

import logging

from service.db.statements import sql
from service.db.transactions import Database
from service.db.transient_errors import TRANSIENT_DB_ERRORS
from service.loops import Loop

SECONDS = 5.0  # between two looks

log = logging.getLogger(__name__)


class ClockWatcher(Loop):
    """Lets the database move the recorded times that lie ahead after a step. See note_clock()."""

    def __init__(self, database: Database) -> None:
        super().__init__("clock", SECONDS, TRANSIENT_DB_ERRORS)
        self._database = database

    async def work(self) -> None:
        async with self._database.across() as conn:
            step = await sql.note_clock(conn)
        if step:
            log.warning("the clock of the database was set back by %s", step)

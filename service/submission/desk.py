"""What every flow of a submission needs, and how those who wait for one hear of it."""

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field

from service.config import Config
from service.db import Database, Keeper
from service.portal.client import Portal, Throttled
from service.statements import sql
from service.submission.signing import Signers


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on one submission until somebody claims it anew: then `fence` has grown."""

    company_id: int
    id: int
    fence: int

    @property
    def key(self):
        return {"company_id": self.company_id, "id": self.id}


class Bell:
    """Wakes those in this process who wait for a submission to move; the news comes from PostgreSQL."""

    def __init__(self):
        self._waiting = {}  # "company:submission" -> events

    def ring(self, name):
        for event in self._waiting.get(name, ()):
            event.set()

    @contextmanager
    def heard(self, company_id, submission_id):
        """An event that is set at every move of the submission while the block runs."""
        name, event = f"{company_id}:{submission_id}", asyncio.Event()
        self._waiting.setdefault(name, []).append(event)
        try:
            yield event
        finally:
            self._waiting[name].remove(event)
            if not self._waiting[name]:
                del self._waiting[name]


@dataclass(slots=True)
class Desk:
    """One process's means: where it reads and writes, how it calls the portal, and its work under way."""

    config: Config
    database: Database
    keeper: Keeper
    portal: Portal
    signers: Signers
    bell: Bell = field(default_factory=Bell)
    due: asyncio.Event = field(default_factory=asyncio.Event)  # set when a worker should look for work
    tasks: set = field(default_factory=set)

    def spawn(self, work):
        """Runs a coroutine on its own: a client that goes away does not end it, a graceful stop waits for it."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def heed(self, why, operation):
        """Where the portal asked to wait, all that use our client id wait with this operation."""
        if isinstance(why, Throttled):
            async with self.database.across() as conn:
                await sql.pause_set(
                    conn, client_id=self.config.portal_client_id, operation=operation, pause=why.retry_after
                )

    async def finish(self, seconds):
        """Waits for the work under way. What is not done by then is found again in the database."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=seconds)

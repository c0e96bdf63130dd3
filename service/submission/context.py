"""What every flow of a submission needs, and how those who wait for one hear of it."""

import asyncio
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from service.config import Config
from service.db.session import DedicatedSession
from service.db.statements import sql
from service.db.transactions import Database
from service.portal.client import Portal
from service.portal.responses import Held, Throttled
from service.submission.signers import Signers

SCARCE_SECONDS = 5  # after a call was held back


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on one submission until somebody claims it anew: then `fence` has grown."""

    company_id: int
    id: int
    fence: int

    @property
    def key(self):
        return {"company_id": self.company_id, "id": self.id}

    def __str__(self) -> str:
        return f"company={self.company_id} id={self.id}"


class SubmissionWaiters:
    """Wakes those in this process who wait for a submission to move; the news comes from PostgreSQL."""

    def __init__(self):
        self._waiting = {}  # "company:submission" -> events

    def ring(self, name):
        for event in self._waiting.get(name, ()):
            event.set()

    @contextmanager
    def waiting(self, company_id, submission_id):
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
class SubmissionContext:
    """One process's means: where it reads and writes, how it calls the portal, and its work under way."""

    config: Config
    database: Database
    session: DedicatedSession
    portal: Portal
    signers: Signers
    waiters: SubmissionWaiters = field(default_factory=SubmissionWaiters)
    # Set when a worker should look for work
    due: asyncio.Event = field(default_factory=asyncio.Event)
    # Set when long work should end at its next pause
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set = field(default_factory=set)
    # Operation of the portal -> until when trying is of no use, monotonic
    held: dict = field(default_factory=dict)

    def spawn(self, work):
        """Runs a coroutine on its own: a client that goes away does not end it, a graceful stop waits for it."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def apply_throttle(self, why, operation):
        """Where the portal asked to wait, all that use our client id wait with this operation, or that of a login."""
        if not isinstance(why, Throttled):
            return
        if isinstance(why, Held):
            operation = why.operation
        else:
            operation = why.operation or operation
            async with self.database.across() as conn:
                await sql.pause_set(
                    conn,
                    client_id=self.config.portal_client_id,
                    operation=operation,
                    pause=why.retry_after,
                )
        if operation:
            self.held[operation] = time.monotonic() + why.retry_after.total_seconds()

    def is_held(self, operation):
        """Whether a call of this operation would only be held back."""
        return self.held.get(operation, 0) > time.monotonic()

    def is_scarce(self, operation):
        """Whether calls of this operation are held back, or were until a moment ago."""
        return self.held.get(operation, -math.inf) > time.monotonic() - SCARCE_SECONDS

    def held_for(self, operations):
        """Seconds until the next of the operations that are held back is not; infinite when none is."""
        now = time.monotonic()
        left = [self.held[operation] - now for operation in operations if operation in self.held]
        return min((seconds for seconds in left if seconds > 0), default=math.inf)

    async def finish(self, seconds):
        """Waits for the work under way. What is not done by then is found again in the database."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=seconds)


#: The context of the application's own requests.
SUBMISSION_CONTEXT = web.AppKey("submission_context", SubmissionContext)

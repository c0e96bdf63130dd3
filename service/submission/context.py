"""Shared state of the submission flows in one process, and wake-ups for waiting requests."""

import asyncio
import math
import time
from collections.abc import Coroutine, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from aiohttp import web

from service.config import Config
from service.db.connections import TRANSIENT_DB_ERRORS
from service.db.session import DedicatedSession
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import make_reason
from service.portal.client import Portal
from service.portal.clock import MOST_APART, ClockReading
from service.portal.errors import Held, Throttled
from service.portal.logins import Login
from service.submission.machine.state_machine import NOTHING_SENT
from service.submission.machine.types import Error
from service.submission.signers import Signers

SCARCE_SECONDS = 5  # after a request was held
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a submission, or on the cancellation of a submitted document.

    It is lost to a newer claim, which increases `fence`.
    """

    company_id: int
    id: int
    fence: int

    @property
    def key(self) -> dict[str, int]:
        return {"company_id": self.company_id, "id": self.id}

    def __str__(self) -> str:
        return f"company={self.company_id} id={self.id}"


class SubmissionWaiters:
    """Wakes the tasks of this process that wait for a submission, on notifications."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Event]] = {}  # by "company_id:submission_id"

    def wake(self, name: str) -> None:
        """Wake the tasks that wait for a submission, named "company_id:submission_id"."""
        for event in self._waiting.get(name, ()):
            event.set()

    @contextmanager
    def waiting(self, company_id: int, submission_id: int) -> Generator[asyncio.Event]:
        """Yield an event that is set whenever the submission changes during the block."""
        name, event = f"{company_id}:{submission_id}", asyncio.Event()
        self._waiting.setdefault(name, []).append(event)
        try:
            yield event
        finally:
            self._waiting[name].remove(event)
            if not self._waiting[name]:
                del self._waiting[name]


@dataclass
class SubmissionContext:
    """The database, the portal client and the running tasks of one process.

    Requests to the portal need the context of a company: see `own_clients.sign_in`.
    """

    config: Config
    database: Database
    session: DedicatedSession
    shared_portal: Portal  # of no company
    signers: Signers
    waiters: SubmissionWaiters = field(default_factory=SubmissionWaiters)
    due: asyncio.Event = field(default_factory=asyncio.Event)  # set when work may be due
    #: Set when long work should end at its next pause.
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[object]] = field(default_factory=set[asyncio.Task[object]])
    #: Operation of the portal -> monotonic time until which requests would be held.
    held: dict[str, float] = field(default_factory=dict[str, float])

    def spawn(self, work: Coroutine[object, None, T]) -> asyncio.Task[T]:
        """Run a coroutine independently of its request; a graceful shutdown waits for it."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def portal_for(self, own: Login | None) -> Portal:
        """Return the client of the portal for a company, which may have a client of its own."""
        return self.shared_portal.for_company(own, self._note_throttled)

    async def _note_throttled(self, error: Throttled) -> None:
        """After a 429, pause its operation for every process that shares the client id.

        The work of other companies continues while a company's own client is paused.
        """
        if error.operation is None:
            return
        if not isinstance(error, Held):
            await self.database.call(
                sql.pause_set,
                client_id=error.own_client_id or self.config.portal_client_id,
                operation=error.operation,
                pause=error.retry_after,
            )
        if error.own_client_id is None:
            self.held[error.operation] = time.monotonic() + error.retry_after.total_seconds()

    async def read_database_clock(self) -> ClockReading | None:
        """Return a reading of the database's clock. None if the database does not respond."""
        try:
            now = await self.database.call(sql.database_now)
        except TRANSIENT_DB_ERRORS:
            return None
        return ClockReading(now, time.monotonic())

    async def compare_clocks(
        self, portal: Portal, tin: str = "", reading: ClockReading | None = None
    ) -> Error | None:
        """Return why nothing is sent if the clocks of the portal and the database differ too far.

        `reading` is a recent one of the database's clock.
        """
        reading = reading or await self.read_database_clock()
        if reading is None:
            return None

        async def measure() -> tuple[ClockReading | None, ClockReading | None]:
            return await portal.read_clock(tin), await self.read_database_clock()

        difference = await portal.portal_clock.blocking_difference(reading, measure)
        if difference is None:
            return None
        seconds, most = abs(difference).total_seconds(), MOST_APART.total_seconds()
        message = (
            f"The portal clock and the database clock differ by {seconds:.0f} seconds "
            f"(at most {most:.0f} allowed). {NOTHING_SENT}"
        )
        return make_reason("ClocksApart", message)

    def is_held(self, operation: str | None) -> bool:
        """Return whether a request of this operation would be held."""
        return operation is not None and self.held.get(operation, 0) > time.monotonic()

    def is_scarce(self, operation: str) -> bool:
        """Return whether requests of this operation are held, or were until recently."""
        return self.held.get(operation, -math.inf) > time.monotonic() - SCARCE_SECONDS

    def held_for(self, operations: Iterable[str]) -> float:
        """Return the seconds until the first of the held operations resumes; infinite if none."""
        now = time.monotonic()
        left = [self.held[operation] - now for operation in operations if operation in self.held]
        return min((seconds for seconds in left if seconds > 0), default=math.inf)

    async def finish(self, seconds: float) -> None:
        """Wait for running tasks. Unfinished work is found in the database again."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=seconds)


@dataclass
class CompanyContext(SubmissionContext):
    """The context of a flow of one company. `portal` uses the company's login."""

    portal: Portal = field(kw_only=True)


#: The context of the application's own requests.
SUBMISSION_CONTEXT = web.AppKey("submission_context", SubmissionContext)

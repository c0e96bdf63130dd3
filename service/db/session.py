"""The connection that a process keeps for itself: what belongs to a session, locks and notifications."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from service.config import SILENCE_SECONDS
from service.db.connections import connect
from service.db.statements import sql
from service.db.transactions import (
    CLOSE_SECONDS,
    SESSION,
    STATEMENT_SECONDS,
    TRANSIENT_DB_ERRORS,
    UNAVAILABLE,
    Bounds,
)
from service.errors import Unavailable, describe_error, retry_after

HEARTBEAT_SECONDS = 5
RECONNECT_SECONDS = 0.2

log = logging.getLogger(__name__)


class DedicatedSession:
    """One connection of its own, for what belongs to a session: advisory locks and notifications.

    A process that is paused keeps its locks, one that dies loses them at once, and one whose host vanishes loses them
    within `silence` seconds. When the connection is lost, every lock is gone, and `alive` is false until there is
    another connection.
    """

    def __init__(
        self,
        url: str,
        listeners: Mapping[str, Callable[[str], None]],
        silence: int = SILENCE_SECONDS,
        bounds: Bounds | None = None,
    ) -> None:
        self._url = url
        self._silence = silence
        self._bounds = bounds or Bounds()
        self._listeners = listeners  # channel -> callable(payload)
        self._conn = None
        self._turn = asyncio.Lock()  # one statement at a time on the one connection
        self._held = set()
        self._lost = asyncio.Event()
        self._made = asyncio.Event()
        self.on_reconnect = []

    @property
    def alive(self):
        return self._conn is not None and not self._conn.is_closed()

    async def run(self):
        """Keeps the connection: makes it, and makes it anew when it is lost. Ends when cancelled."""
        while True:
            try:
                await self._connect()
            except TRANSIENT_DB_ERRORS as fault:
                log.warning("keeper: no connection: %s", describe_error(fault))
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            await self._while_it_lives()
            self._made.clear()
            log.warning("keeper: the connection was lost")

    async def _while_it_lives(self):
        """Until the connection is lost, also to a network that no longer carries anything and says nothing."""
        while not self._lost.is_set():
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._lost.wait()
            except TimeoutError:
                await self._beat()

    async def _beat(self):
        try:
            async with self._turn, asyncio.timeout(self._bounds.acquire):
                await sql.ping(self._conn)
        except TRANSIENT_DB_ERRORS:
            self._conn.terminate()
            self._lost.set()

    async def _connect(self):
        lost = asyncio.Event()
        bounds = {"timeout": self._bounds.acquire, "command_timeout": STATEMENT_SECONDS}
        conn = await connect(self._url, SESSION, silence=self._silence, **bounds)
        conn.add_termination_listener(lambda _: lost.set())
        for channel, heard in self._listeners.items():
            await conn.add_listener(channel, lambda *args, heard=heard: heard(args[3]))
        self._lost, self._held, self._conn = lost, set(), conn
        self._made.set()
        for wake in self.on_reconnect:
            wake()

    async def answers(self):
        """Whether PostgreSQL answers this very session now."""
        if not self.alive:
            return False
        try:
            async with asyncio.timeout(self._bounds.answer), self._turn:
                await sql.ping(self._conn)
            return True
        except TRANSIENT_DB_ERRORS:
            return False

    async def connected(self):
        """Waits until there is a connection."""
        await self._made.wait()

    async def ready(self):
        """Waits a moment for a connection. Raises Unavailable without one: nothing can be kept to this process."""
        try:
            async with asyncio.timeout(self._bounds.acquire):
                await self.connected()
        except TimeoutError:
            raise Unavailable(UNAVAILABLE, retry_after(2)) from None

    @asynccontextmanager
    async def lock_submission(self, company_id, submission_id):
        """Yields whether this process alone works on a submission, and keeps it so meanwhile."""
        key = (company_id, submission_id)
        if not self.alive or key in self._held:
            yield False
            return
        conn = self._conn
        self._held.add(key)
        try:
            async with self._turn:
                got = await sql.submission_lock_try(conn, company_id=company_id, id=submission_id)
            try:
                yield got
            finally:
                if got and not conn.is_closed():
                    async with self._turn:
                        await sql.submission_lock_release(
                            conn, company_id=company_id, id=submission_id
                        )
        finally:
            self._held.discard(key)

    @asynccontextmanager
    async def lock_submissions(
        self, company_id: int, submission_ids: list[int]
    ) -> AsyncIterator[set[int]]:
        """Yield on which of some submissions this process works alone, and keep the others away from those meanwhile."""
        wanted = [id for id in submission_ids if (company_id, id) not in self._held]
        if not self.alive or not wanted:
            yield set()
            return
        conn, keys, got = self._conn, {(company_id, id) for id in wanted}, set()
        self._held |= keys
        try:
            async with self._turn:
                rows = await sql.submission_locks_try(conn, company_id=company_id, ids=wanted)
            got = {row["id"] for row in rows}
            try:
                yield got
            finally:
                if got and not conn.is_closed():
                    async with self._turn:
                        await sql.submission_locks_release(
                            conn, company_id=company_id, ids=list(got)
                        )
        finally:
            self._held -= keys

    async def close(self):
        if self.alive:
            with suppress(*TRANSIENT_DB_ERRORS):
                await self._conn.close(timeout=CLOSE_SECONDS)

"""The watchdog: finds overdue work with a task, a statement and a connection of its own.

It repairs nothing. Findings are in /readyz and /metrics, and in the log once per look.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from service.config import Config
from service.db.connections import Connection, connect
from service.db.pool import SESSION
from service.db.transient_errors import TRANSIENT_DB_ERRORS
from service.errors import describe_error
from service.loops import Loop
from service.monitoring.conditions import (
    DEGRADING,
    Condition,
    WatchRow,
    collect,
    describe,
    read_rows,
    sort_by_age,
)
from service.monitoring.event_loop import BLOCKED_SECONDS

STALE_LOOKS = 3  # Looks that may fail before the watchdog itself is overdue.

log = logging.getLogger(__name__)


class Watchdog(Loop):
    """Reads the counts every `config.watchdog`. `rows` are the last ones, None before the first."""

    def __init__(self, config: Config) -> None:
        super().__init__("watchdog", config.watchdog.total_seconds())
        self._config = config
        self._conn: Connection | None = None
        self._turn = asyncio.Lock()  # A connection runs one statement at a time.
        self._seen_at = time.monotonic()
        #: name -> function that returns when the task last made progress, monotonic
        self._beats: dict[str, Callable[[], float]] = {}
        #: kind -> function that returns the start of a condition of this process, or None
        self._since: dict[str, Callable[[], datetime | None]] = {}
        self._logged: set[str] = set()  # Kinds of the conditions that were logged.
        self.rows: list[WatchRow] | None = None

    def listen(self, name: str, beat: Callable[[], float]) -> None:
        """Report a task of this process as overdue when its `beat` stops advancing."""
        self._beats[name] = beat

    def add_condition(self, kind: str, since: Callable[[], datetime | None]) -> None:
        """Report a condition of this process while `since` returns its start and not None."""
        self._since[kind] = since

    @property
    def conditions(self) -> list[Condition]:
        """Return the conditions for the operator, the oldest first."""
        found = {condition.kind: condition for condition in collect(self.rows or ())}
        for name, (n, age) in self.overdue.items():
            found.setdefault(name, describe(name, n, datetime.now(UTC) - timedelta(seconds=age)))
        for name, ask in self._since.items():
            if since := ask():
                found.setdefault(name, describe(name, 1, since))
        return sort_by_age(found.values())

    def _log_conditions(self) -> None:
        """Log each condition once while it lasts."""
        current = self.conditions
        for condition in current:
            if condition.kind not in self._logged:
                log.warning("condition=%s %s %s", condition.kind, condition.what, condition.action)
        self._logged = {condition.kind for condition in current}

    async def work(self) -> None:
        """Read the counts, and log overdue work and new conditions."""
        await self._look()
        for name, (n, age) in self.overdue.items():
            log.warning("watchdog overdue=%s n=%d oldest_seconds=%.1f", name, n, age)
        self._log_conditions()

    async def _look(self) -> None:
        try:
            async with self.connection() as conn:
                self.rows = await read_rows(conn, self._config)
            self._seen_at = time.monotonic()
        except TRANSIENT_DB_ERRORS as error:
            log.warning("watchdog: %s", describe_error(error))

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield the watchdog's connection, which requests cannot use up, to one user at a time.

        After an error in the block it is replaced.
        """
        config, timeouts = self._config, {"timeout": 5, "command_timeout": 10}
        async with self._turn:
            try:
                if self._conn is None or self._conn.is_closed():
                    self._conn = await connect(
                        config.database_url, SESSION, silence=config.database_silence, **timeouts
                    )
                yield self._conn
            except BaseException:
                if self._conn:
                    self._conn.terminate()
                self._conn = None
                raise

    async def close(self) -> None:
        """Close the connection."""
        if self._conn:
            with suppress(*TRANSIENT_DB_ERRORS):
                await self._conn.close(timeout=1)
        self._conn = None

    @property
    def overdue(self) -> dict[str, tuple[int, float]]:
        """Return {kind: (count, age of the oldest in seconds)} of overdue work."""
        found = {row.kind: (row.n, row.age) for row in self.of("overdue")}
        now = time.monotonic()
        for name, beat in self._beats.items():
            if now - beat() > self._config.overdue.total_seconds():
                found[name] = (1, now - beat())
        if self.age > STALE_LOOKS * max(self._config.watchdog.total_seconds(), BLOCKED_SECONDS):
            found["Watchdog"] = (1, self.age)
        return found

    @property
    def age(self) -> float:
        """Return the seconds since the watchdog last read the database."""
        return time.monotonic() - self._seen_at

    def of(self, subject: str) -> list[WatchRow]:
        """Return the rows of one subject: overdue or attention."""
        return [row for row in self.rows or () if row.subject == subject]

    @property
    def reasons(self) -> list[str]:
        """Return why the service is degraded: kinds of overdue work and of conditions."""
        lasting = {condition.kind for condition in self.conditions}
        return [*self.overdue, *(kind for kind in DEGRADING if kind in lasting)]

    def summary(self) -> dict[str, Any]:
        """Return the members of /readyz other than `status`: counts of all companies together."""
        counts = {row.kind: row.n for row in self.of("attention")}
        oldest = [row.oldest for row in self.rows or () if row.oldest]
        return {
            "reasons": self.reasons,
            "overdue": {kind: n for kind, (n, _) in self.overdue.items()},
            "needs_person": counts.get("NeedsPerson"),
            "findings": counts.get("Finding"),
            "held": counts.get("Hold"),
            "credentials_refused": counts.get("CredentialsRefused"),
            "oldest": min(oldest).isoformat(timespec="milliseconds") if oldest else None,
            "conditions": [condition.as_json() for condition in self.conditions],
        }

"""What is older than it should be, found without those whose work it is: a task, a statement and a connection of its own.

It mends nothing. What it sees is in /readyz and /metrics, and in the log, a line for each kind at each look.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from service.db.connections import connect
from service.db.transactions import SESSION, TRANSIENT_DB_ERRORS
from service.errors import describe_error
from service.monitoring.conditions import Condition, collect, describe, read_rows

BLOCKED_SECONDS = 2.0  # after which a readiness probe has given the process up
STALE_LOOKS = 3  # that may fail before the watchdog itself is overdue

log = logging.getLogger(__name__)


class Watchdog:
    """Looks every `config.watchdog`; `rows` is what it last saw, None before it has seen anything."""

    def __init__(self, config):
        self._config = config
        self._conn = None
        self._seen_at = time.monotonic()
        self._beats = {}  # name -> callable() giving when it last showed life, monotonic
        # Kind -> since when it is the case in this process
        self._since: dict[str, Callable[[], datetime | None]] = {}
        self._logged: set[str] = set()  # kinds of conditions that the log names already
        self.rows = None

    def listen(self, name, beat):
        """What shows life in this process from now on, and is overdue when it no longer does."""
        self._beats[name] = beat

    def add_condition(self, kind: str, since: Callable[[], datetime | None]) -> None:
        """Report a condition of this process; `since` returns since when it is the case, None while it is not."""
        self._since[kind] = since

    @property
    def conditions(self) -> list[Condition]:
        """What an operator should know of, the longest first."""
        found = {condition.kind: condition for condition in collect(self.rows or ())}
        for name, (n, age) in self.overdue.items():
            found.setdefault(name, describe(name, n, datetime.now(UTC) - timedelta(seconds=age)))
        for name, ask in self._since.items():
            if since := ask():
                found.setdefault(name, describe(name, 1, since))
        return sorted(
            found.values(), key=lambda condition: (condition.since is None, condition.since)
        )

    def _log_conditions(self) -> None:
        """Log each condition once while it lasts, in words."""
        current = self.conditions
        for condition in current:
            if condition.kind not in self._logged:
                log.warning("condition=%s %s %s", condition.kind, condition.what, condition.action)
        self._logged = {condition.kind for condition in current}

    async def run(self):
        """Ends when cancelled."""
        try:
            while True:
                await self._look()
                for name, (n, age) in self.overdue.items():
                    log.warning("watchdog overdue=%s n=%d oldest_seconds=%.1f", name, n, age)
                self._log_conditions()
                await asyncio.sleep(self._config.watchdog.total_seconds())
        finally:
            await self._hang_up()

    async def _look(self):
        config = self._config
        try:
            if self._conn is None or self._conn.is_closed():
                bounds = {"timeout": 5, "command_timeout": 10}
                self._conn = await connect(
                    config.database_url, SESSION, silence=config.database_silence, **bounds
                )
            self.rows = await read_rows(self._conn, config)
            self._seen_at = time.monotonic()
        except TRANSIENT_DB_ERRORS as fault:
            log.warning("watchdog: %s", describe_error(fault))
            await self._hang_up()

    async def _hang_up(self):
        if self._conn:
            with suppress(*TRANSIENT_DB_ERRORS):
                await self._conn.close(timeout=1)
        self._conn = None

    @property
    def overdue(self):
        """{kind: (how many, age of the oldest in seconds)}, of what should have been done by now."""
        found = {row["kind"]: (row["n"], _age(row)) for row in self.of("overdue")}
        now = time.monotonic()
        for name, beat in self._beats.items():
            if now - beat() > self._config.overdue.total_seconds():
                found[name] = (1, now - beat())
        if self.age > STALE_LOOKS * max(self._config.watchdog.total_seconds(), BLOCKED_SECONDS):
            found["Watchdog"] = (1, self.age)
        return found

    @property
    def age(self):
        """Seconds since it last saw the database."""
        return time.monotonic() - self._seen_at

    def of(self, subject):
        """The rows of one subject: state, overdue or attention."""
        return [row for row in self.rows or () if row["subject"] == subject]

    def summary(self):
        """What /readyz says beside `status`: counts of all companies together."""
        counts = {row["kind"]: row["n"] for row in self.of("attention")}
        oldest = [
            row["oldest"] for row in self.rows or () if row["subject"] != "state" and row["oldest"]
        ]
        return {
            "overdue": {kind: n for kind, (n, _) in self.overdue.items()},
            "needs_person": counts.get("NeedsPerson"),
            "findings": counts.get("Finding"),
            "held": counts.get("Hold"),
            "credentials_refused": counts.get("CredentialsRefused"),
            "oldest": min(oldest).isoformat(timespec="milliseconds") if oldest else None,
            "conditions": [condition.as_json() for condition in self.conditions],
        }


def _age(row):
    return (row["now"] - row["oldest"]) / timedelta(seconds=1) if row["oldest"] else 0.0


def metrics_text(watchdog, guard, counts):
    """The text of /metrics, as Prometheus reads it. `counts` is of requests, by (method, route, status)."""
    states, attention = watchdog.of("state"), watchdog.of("attention")
    overdue = watchdog.overdue.items()
    samples = {
        "einvoice_submissions": [({"state": row["kind"]}, row["n"]) for row in states],
        "einvoice_submissions_due_seconds": [
            ({"state": row["kind"]}, max(0, _age(row))) for row in states
        ],
        "einvoice_overdue": [({"kind": kind}, n) for kind, (n, _) in overdue],
        "einvoice_overdue_seconds": [({"kind": kind}, age) for kind, (_, age) in overdue],
        "einvoice_attention": [({"kind": row["kind"]}, row["n"]) for row in attention],
        "einvoice_attention_seconds": [({"kind": row["kind"]}, _age(row)) for row in attention],
        "einvoice_watchdog_age_seconds": [({}, watchdog.age)],
        "einvoice_loop_blocked_seconds": [({}, guard.longest)],
        "einvoice_requests_total": [
            ({"method": method, "route": route, "status": status}, n)
            for (method, route, status), n in sorted(counts.items())
        ],
    }
    return "".join(line for name, lines in samples.items() for line in _exposed(name, lines))


#: metric -> what it is
HELP = {
    "einvoice_submissions": "Submissions that wait for something, by state.",
    "einvoice_submissions_due_seconds": "For how long the oldest of them has been due.",
    "einvoice_overdue": "What should have been done by now, by kind.",
    "einvoice_overdue_seconds": "The age of the oldest of it.",
    "einvoice_attention": "What waits for a person, by kind.",
    "einvoice_attention_seconds": "The age of the oldest of it.",
    "einvoice_watchdog_age_seconds": "Since the watchdog last saw the database.",
    "einvoice_loop_blocked_seconds": "The longest time for which the event loop of this process stood still.",
    "einvoice_requests_total": "Requests that this process answered, by method, route and status.",
}


def _exposed(name, samples):
    yield f"# HELP {name} {HELP[name]}\n# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n"
    for labels, value in samples:
        named = ",".join(f'{label}="{text}"' for label, text in labels.items())
        yield f"{name}{{{named}}} {value}\n" if named else f"{name} {value}\n"


class EventLoopMonitor(threading.Thread):
    """Sees from outside that the event loop stands still, which no task of it can, and logs where."""

    def __init__(self, loop, seconds=BLOCKED_SECONDS):
        super().__init__(name="loop guard", daemon=True)
        self.longest = 0.0  # seconds
        self._loop = loop
        self._seconds = seconds
        self._beat = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.get_ident()  # of the loop
        self._next = None

    def begin(self):
        """From within the loop."""
        self._pulse()
        self.start()

    def end(self):
        self._ended.set()
        self._next.cancel()

    def _pulse(self):
        now = time.monotonic()
        self.longest = max(self.longest, now - self._beat - self._seconds / 4)
        self._beat = now
        self._next = self._loop.call_later(self._seconds / 4, self._pulse)

    def run(self):
        told = None
        while not self._ended.wait(self._seconds / 4):
            beat = self._beat
            if time.monotonic() - beat > self._seconds and beat != told:
                told = beat
                log.warning(
                    "The event loop stands still for %.1f s:\n%s",
                    time.monotonic() - beat,
                    self._where(),
                )

    def _where(self):
        return "".join(traceback.format_stack(sys._current_frames().get(self._thread), limit=12))

"""Conditions for the operator, with what to do, and the watchdog, which finds them.

A condition is named by its kind, and has the same wording in /readyz, the log and `attention`.
Counts come from PostgreSQL; conditions of one process, such as an unreachable portal, come from
that process. The watchdog has a task, a statement and a connection of its own. It repairs nothing.
Findings are in /readyz and /metrics, and in the log when they begin.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.config import Config
from service.db.connections import TRANSIENT_DB_ERRORS, Connection
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import describe_error, read_rows
from service.json_types import JsonObject
from service.loops import Loop
from service.monitoring.event_loop import BLOCKED_SECONDS

STALE_CHECKS = 3  # Looks that may fail before the watchdog itself is overdue.
#: The age from which a state that is normal for a moment is a condition.
MINIMUM_AGE = timedelta(seconds=30)
#: Conditions other than overdue work that degrade the service.
DEGRADING = ("PortalUnreachable", "CredentialsRefused", "ClocksApart")

#: kind -> {what: the condition, with its count `{n}`; action: what to do}
WORDING = {row.pop("kind"): row for row in read_rows(Path(__file__).with_name("conditions.csv"))}

#: Returns the start of a condition, or None while there is none.
Since = Callable[[], datetime | None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Condition:
    """The count of one kind, and since when the oldest is. `subject` is overdue or attention."""

    subject: str
    kind: str
    n: int
    since: datetime | None

    @property
    def age(self) -> float:
        """Return the seconds since its start, 0 if it has none."""
        return (datetime.now(UTC) - self.since).total_seconds() if self.since else 0.0

    def describe(self) -> dict[str, str]:
        """Return `what` the condition is, and what to do (`action`)."""
        return {name: text.format(n=self.n) for name, text in WORDING[self.kind].items()}

    def as_json(self) -> JsonObject:
        """Return the condition as /readyz shows it, with the instant as ISO 8601 text."""
        since = self.since.isoformat(timespec="milliseconds") if self.since else None
        return {"kind": self.kind, "n": self.n, "since": since, **self.describe()}


def sort_by_age(conditions: Iterable[Condition]) -> list[Condition]:
    """Return the conditions with a count, the oldest first and those without a start last."""
    found = [condition for condition in conditions if condition.n]
    return sorted(found, key=lambda condition: (condition.since is None, condition.since))


async def read_conditions(conn: Connection, config: Config) -> list[Condition]:
    """Return the conditions of all companies, some of them with a count of 0."""
    rows = await sql.conditions_watched(
        conn,
        age=min(MINIMUM_AGE, config.overdue),
        grace=config.overdue,
        settle=config.portal_settle,
        confirmation_gap=config.portal_confirmation_gap,
        every=config.comparison,
        client_id=config.portal_client_id,
        fingerprint=config.portal_credentials_fingerprint,
    )
    return [Condition(**row) for row in rows]


class Watchdog(Loop):
    """Reads the conditions every `config.watchdog`. `rows` are the last ones.

    `database` has one connection, which requests cannot use up.
    """

    def __init__(self, config: Config, database: Database) -> None:
        super().__init__("watchdog", config.watchdog)
        self._config = config
        self._database = database
        self._seen_at = time.monotonic()
        #: kind -> its subject, and the function that returns its start
        self._own: dict[str, tuple[str, Since]] = {}
        self._logged: set[str] = set()  # Kinds of the conditions that were logged.
        self.rows: list[Condition] = []
        stale = STALE_CHECKS * max(config.watchdog, BLOCKED_SECONDS)
        self.listen("Watchdog", lambda: self._seen_at, stale)

    def listen(self, kind: str, beat: Callable[[], float], seconds: float) -> None:
        """Report a task of this process as overdue when its `beat` does not advance for so long."""

        def since() -> datetime | None:
            age = time.monotonic() - beat()
            return datetime.now(UTC) - timedelta(seconds=age) if age > seconds else None

        self.add_condition(kind, since, "overdue")

    def add_condition(self, kind: str, since: Since, subject: str = "attention") -> None:
        """Report a condition of this process while `since` returns its start and not None."""
        self._own[kind] = (subject, since)

    @property
    def conditions(self) -> list[Condition]:
        """Return the conditions for the operator, the oldest first."""
        own = (Condition(subject, kind, 1, ask()) for kind, (subject, ask) in self._own.items())
        found = (*(each for each in own if each.since), *self.rows)
        return sort_by_age({condition.kind: condition for condition in found}.values())

    @property
    def overdue(self) -> list[Condition]:
        return [condition for condition in self.conditions if condition.subject == "overdue"]

    async def work(self) -> None:
        try:
            self.rows = await self._database.call(read_conditions, config=self._config)
            self._seen_at = time.monotonic()
        except TRANSIENT_DB_ERRORS as error:
            log.warning("watchdog: %s", describe_error(error))
        current = self.conditions
        for row in current:
            if row.kind not in self._logged:
                log.warning("condition=%s %s %s", row.kind, *row.describe().values())
        self._logged = {row.kind for row in current}  # Each is described once while it lasts.

    def summary(self) -> JsonObject:
        """Return the members of /readyz about all companies together."""
        conditions = self.conditions
        reasons = [
            each.kind for each in conditions if each.subject == "overdue" or each.kind in DEGRADING
        ]
        return {
            "reasons": reasons,
            "conditions": [each.as_json() for each in conditions],
        }

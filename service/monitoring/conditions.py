"""Conditions for the operator, with what to do: the wording of /readyz, the log and `attention`.

A condition is named by its kind. Counts come from PostgreSQL; conditions of one process, such as an
unreachable portal, come from that process.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.config import Config
from service.db.connections import Connection
from service.db.statements import sql
from service.json_types import JsonObject

#: The age from which a state that is normal for a moment is a condition.
MINIMUM_AGE = timedelta(seconds=30)

#: Conditions other than overdue work that degrade the service.
DEGRADING = ("PortalUnreachable", "CredentialsRefused", "ClocksApart")

_TABLE = Path(__file__).with_suffix(".csv").read_text("utf-8").splitlines()
#: kind -> {what: the condition, with its count `{n}`; action: what to do}
WORDING = {row.pop("kind"): row for row in csv.DictReader(_TABLE)}


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

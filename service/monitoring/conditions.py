"""Conditions for the operator, with what to do: the wording of /readyz, the log and `attention`.

A condition is named by its kind. Counts come from PostgreSQL; conditions of one process, such as an
unreachable portal, come from that process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from service.config import Config
from service.db.connections import Connection
from service.db.statements import sql

#: The age from which a state that is normal for a moment is a condition.
MINIMUM_AGE = timedelta(seconds=30)

#: Conditions other than overdue work that degrade the service.
DEGRADING = ("PortalUnreachable", "CredentialsRefused", "ClocksApart")

#: kind -> (the condition, with its count `{n}`; what to do)
WORDING: dict[str, tuple[str, str]] = {
    "Queued": (
        "{n} submissions are due and were not sent.",
        "Check that a worker runs (`run.py serve` or `run.py worker`) and read its log.",
    ),
    "Sending": (
        "{n} submissions are marked as being sent, and no process reports progress.",
        "Check that a worker runs. Nothing is sent twice; the outcome is looked up at the portal.",
    ),
    "Uncertain": (
        "{n} submissions have an unknown outcome for longer than the lookup should take.",
        "Check that a worker runs and that the portal's document search answers. "
        "Their documents stay locked until then.",
    ),
    "Accepted": (
        "{n} accepted submissions were not polled in time.",
        "Check that a worker runs and that the portal answers.",
    ),
    "Cancellation": (
        "{n} cancellations have had no outcome since their settling time ended.",
        "Check that a worker runs and that the portal shows document details.",
    ),
    "Delivery": (
        "{n} webhook endpoints have deliveries that were due and not attempted.",
        "Check that a worker runs and read its log.",
    ),
    "Comparison": (
        "{n} companies were not compared with the portal for a day.",
        "Check that a worker runs and that the portal's document search answers, "
        "then run `run.py reconcile`.",
    ),
    "Worker": (
        "The background work of this process makes no progress.",
        "Read the log of the process and restart it.",
    ),
    "Watchdog": (
        "The watchdog of this process cannot read the database.",
        "Check PostgreSQL and its connections.",
    ),
    "NeedsPerson": (
        "{n} submissions need manual review.",
        "Run `run.py attention`, compare each with the portal, "
        "then run `run.py resolve-submission`.",
    ),
    "Finding": (
        "{n} differences from the portal are open.",
        "Run `run.py attention`, look at each, then run `run.py resolve-finding`.",
    ),
    "Hold": (
        "Sending is held for {n} companies.",
        "Run `run.py reconcile`. "
        "The hold of a company ends when the comparison leaves no difference open.",
    ),
    "CredentialsRefused": (
        "The portal refuses {n} logins, of the client or for a taxpayer.",
        "Check PORTAL_CLIENT_ID, PORTAL_CLIENT_SECRET and the taxpayers' appointment of the "
        "intermediary; `run.py attention` lists them.",
    ),
    "CompanyCredentialsRefused": (
        "The portal refuses the own credentials of {n} companies.",
        "An owner or administrator of the company replaces or removes them on the page Settings, "
        "Portal; `run.py attention` lists them.",
    ),
    "UnknownOutcome": (
        "The outcome of {n} submissions is unknown and being looked up.",
        "Nothing, unless the number does not fall: "
        "then check that the portal's document search answers.",
    ),
    "SenderSilent": (
        "{n} submissions were being sent by processes that report no progress.",
        "Nothing, if a process is paused or its host is gone: its lock ends with its database "
        "session, within a minute for a vanished host. End a process that hangs.",
    ),
    "UnclearCancellation": (
        "The outcome of {n} cancellations is unclear; the documents are polled until the settling "
        "time is over.",
        "Nothing. Notes against these documents wait meanwhile.",
    ),
    "RepeatedFailure": (
        "{n} submissions were attempted more than once without a result.",
        "Read the log for the errors of these submissions. "
        "Submissions that fail repeatedly end in manual review.",
    ),
    "PortalUnreachable": (
        "The portal cannot be reached, so nothing is sent.",
        "Check the network, PORTAL_API_BASE and PORTAL_IDENTITY_BASE. "
        "Waiting submissions are sent when it answers.",
    ),
    "ClocksApart": (
        "The portal clock and the database clock differ by more than 60 seconds, "
        "so nothing is sent.",
        "Check the clock of the database server (NTP). Sending resumes when the clocks agree.",
    ),
    "ClockStepped": (
        "The clock of the database server was set back by {n} seconds within the last day.",
        "Check NTP on the database server: a clock should be corrected slowly. Due times were "
        "moved by as much, so that work goes on.",
    ),
    "OpenTransaction": (
        "A transaction that writes has been open for more than a minute on the database server. "
        "Events and webhooks of all companies wait for it.",
        "Find it in pg_stat_activity or pg_prepared_xacts, also of other databases of the server, "
        "and end it (docs/operations.md).",
    ),
    "StandbyUnused": (
        "The standby of DATABASE_READ_URL is not used, so reads run on the primary.",
        "Read the reason in the log of the process (docs/replicas.md). "
        "The standby is used again when it follows the primary.",
    ),
    "UnreadableRows": (
        "The portal shows {n} documents in a form that the service cannot read. They are skipped.",
        "Run `run.py attention`, look at them at the portal, "
        "and report new values to the maintainers.",
    ),
}


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

    def describe(self) -> tuple[str, str]:
        """Return what the condition is, and what to do."""
        what, action = WORDING[self.kind]
        return what.format(n=self.n), action

    def as_json(self) -> dict[str, Any]:
        """Return the condition as /readyz shows it, with the instant as ISO 8601 text."""
        since = self.since.isoformat(timespec="milliseconds") if self.since else None
        what, action = self.describe()
        return {"kind": self.kind, "n": self.n, "since": since, "what": what, "action": action}


def sort_by_age(conditions: Iterable[Condition]) -> list[Condition]:
    """Return the conditions with a count, the oldest first and those without a start last."""
    found = [condition for condition in conditions if condition.n]
    return sorted(found, key=lambda condition: (condition.since is None, condition.since))


async def read_conditions(conn: Connection, config: Config) -> list[Condition]:
    """Return the conditions of all companies, some of them with a count of 0."""
    rows = await sql.conditions(
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

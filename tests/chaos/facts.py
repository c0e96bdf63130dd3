"""The facts that the judge compares: from the portal, the database, the API, clients, receivers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from service.db.statements import Statements
from tests.harness.databases import open_connection
from tests.harness.sandbox import Administration

from .clients import KINDS, Company, KeyedRequest, Record
from .receiver import Endpoint

sql = Statements(Path(__file__).resolve().parent)
PAGE = 37  # events of a page of the feed
FEED_TRIES, FEED_PAUSE = 100, 0.1  # until the feed shows the latest event
#: Statuses by which the lists are counted.
STATUSES = {
    **dict.fromkeys(
        ("invoice", "note", "consolidated"),
        ("Draft", "Submitting", "Submitted", "Valid", "Invalid", "Cancelled"),
    ),
    "request": ("Pending", "Approve", "Reject"),
}

#: A document in the portal's ledger.
Entry = dict[str, Any]
Rows = list[asyncpg.Record]
#: Kind, company and id of a record.
Subject = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """Where facts are read: the database by a login that sees all rows, the portal, a process."""

    url: str
    portal: Administration
    base: str
    companies: Sequence[Company]


@dataclass(frozen=True, slots=True)
class Known:
    """The effects and requests that clients and receivers of webhooks know."""

    records: Sequence[Record]
    keyed: Sequence[KeyedRequest] = ()
    endpoints: Sequence[Endpoint] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the feed. `subject` is the record that it is about, None for a company."""

    company: int
    id: int
    type: str
    data: dict[str, Any]
    subject: Subject | None

    @property
    def name(self) -> str:
        """The second part of the type, such as valid."""
        return self.type.partition(".")[2]


@dataclass(frozen=True, slots=True)
class Total:
    """`meta.total` of a list of records of a kind, with a status or None for all."""

    kind: str
    company: int
    status: str | None
    total: int


@dataclass
class Facts:
    """Knowledge of clients, the portal's documents, responses of the API, and rows of the service.

    `detects`: the portal detects duplicates, so it may have refused the second of two documents.
    The settling time is then too short, so a document at the portal may have been released as
    absent, which the comparison must report.
    """

    known: Known
    companies: Sequence[Company]
    ledger: list[Entry]
    rows: Mapping[str, Rows]  # name of a statement without _all -> its rows
    feed: list[Event]  # as the API returns it
    totals: list[Total]  # as the API returns them
    detects: bool = False
    findings: Sequence[dict[str, Any]] = ()  # of the comparison: {kind, uuid, ...}
    records: dict[Subject, asyncpg.Record] = field(init=False)

    def __post_init__(self) -> None:
        self.records = {(row["kind"], row["company_id"], row["id"]): row for row in self["records"]}

    def __getitem__(self, name: str) -> Rows:
        return self.rows[name]


#: Statements whose rows the judge reads.
STATEMENTS = (
    *("records", "documents", "unresolved", "persons"),
    *("counters", "adjustments", "outcomes", "events", "attempts", "audit"),
)


async def collect_facts(
    source: Source, known: Known, detects: bool, findings: Sequence[dict[str, Any]] = ()
) -> Facts:
    """Return the facts after everything has settled."""
    async with open_connection(source.url) as conn:
        rows = {name: await getattr(sql, f"{name}_all")(conn) for name in STATEMENTS}
    feed: list[Event] = []
    totals: list[Total] = []
    for company in source.companies:
        headers = {"X-API-Key": company["key"]}
        last = max((e["id"] for e in rows["events"] if e["company_id"] == company["id"]), default=0)
        async with aiohttp.ClientSession(source.base, headers=headers) as session:
            feed += await _read_feed(session, company["id"], last)
            totals += await _read_totals(session, company["id"])
    ledger = await source.portal.ledger()
    return Facts(known, source.companies, ledger, rows, feed, totals, detects, findings)


async def _read_feed(session: aiohttp.ClientSession, company: int, last: int) -> list[Event]:
    """Return the feed once it shows the event `last`, or as it is after some tries.

    The feed shows an event once all older transactions have ended.
    """
    feed: list[Event] = []
    for _ in range(FEED_TRIES):
        feed = await _read_pages(session, company)
        if last in {0, *(event.id for event in feed)}:
            break
        await asyncio.sleep(FEED_PAUSE)
    return feed


async def _read_pages(session: aiohttp.ClientSession, company: int) -> list[Event]:
    feed: list[Event] = []
    after, has_more = 0, True
    while has_more:
        page = await _read(session, f"/api/events?after={after}&limit={PAGE}")
        feed += [make_event(company, row["id"], row["type"], row["data"]) for row in page["data"]]
        after, has_more = page["meta"]["next_after"], page["meta"]["has_more"]
    return feed


def make_event(company: int, event_id: int, name: str, data: dict[str, Any]) -> Event:
    subject = name.partition(".")[0]
    kind = next((kind.name for kind in KINDS if kind.subject == subject), None)
    about = None if kind is None else (kind, company, data[f"{subject}_id"])
    return Event(company, event_id, name, data, about)


async def _read_totals(session: aiohttp.ClientSession, company: int) -> list[Total]:
    return [
        Total(kind.name, company, status, (await _read(session, path))["meta"]["total"])
        for kind in KINDS
        for status in (None, *STATUSES[kind.name])
        for path in [f"{kind.path}?per_page=1{'' if status is None else f'&status={status}'}"]
    ]


async def _read(session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(path) as response:
        response.raise_for_status()
        return await response.json()

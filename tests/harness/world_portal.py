"""The simulated portal: its ledger, its listing and its clock."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from service.portal.clock import MOST_APART, ClockReading
from service.portal.documents import Document, PortalStatus
from service.portal.responses import SubmissionReceipt
from service.submission.machine.comparison_rules import LIVE
from service.submission.machine.types import (
    NO_DELAY,
    Event,
    NotReceived,
    OutcomeUnknown,
    RefusalReceived,
)
from tests.harness.world_tables import BEGIN, TIN

#: Chooses one of some options.
Choose = Callable[[Sequence[Any]], Any]

LOST = {"code": "X", "path": "", "message": "x"}
# For how long the portal recognises the same bytes, and the same document
PAYLOADS, DUPLICATES = timedelta(seconds=600), timedelta(seconds=7200)
# The delays of a document in seconds: until it is processed, and then until it is listed
PROCESSING, LAG = (0, 1, 60, 120), (0, 1, 30, 60)
#: Possible outcomes of a submit request.
ANSWERS = (
    "accept",
    "accept",
    "accept",
    "lose",
    "late",
    "damage",
    "unnamed",
    "reject",
    "refuse",
    "throttle",
    "fail",
    "unreachable",
)


@dataclass(slots=True)
class Entry:
    """A document in the portal's ledger. Its times are true, but that of its receipt."""

    content: str
    uuid: str
    uid: str
    sent: datetime
    due: datetime
    listed: datetime
    received_at: datetime  # by the portal's clock
    status: PortalStatus = "Submitted"
    first: "Entry | None" = None  # the entry that this one duplicates
    cancel_at: datetime | None = None  # when the portal processes a cancel request
    document_id: int = -1  # of the service
    is_stray: bool = False  # sent by a process that was paused after its last check, without a lock

    @property
    def number(self) -> str:
        return self.content.split("|")[0]

    @property
    def issued_at(self) -> datetime:
        return datetime.fromisoformat(self.content.split("|")[1])

    @property
    def is_live(self) -> bool:
        """Return whether it has legal effect, or can have it."""
        return self.status in LIVE

    def show(self) -> Document:
        """Return the row of the listing."""
        shown: dict[str, Any] = dict.fromkeys(Document.__dataclass_fields__)
        return Document(
            **{
                **shown,
                "uuid": self.uuid,
                "submission_uid": self.uid,
                "number": self.number,
                "type_code": "01",
                "issuer_tin": TIN,
                "status": self.status,
                "issued_at": self.issued_at,
                "received_at": self.received_at,
                "content": self.content,
                "errors": [],
            }
        )


class SimulatedPortal:
    """The portal. `choose(options)` makes its random decisions; `time` is the true time."""

    def __init__(self, choose: Choose, detects: bool) -> None:
        self._choose, self._detects = choose, detects
        self.time = BEGIN
        self.ahead = NO_DELAY  # its clock, of the true time
        self.is_hostile = True
        self.ledger: list[Entry] = []
        self.arrived: dict[tuple[str, ...], datetime] = {}  # body -> latest time of receipt

    def pass_time(self, time: datetime) -> None:
        """Process the cancel requests that are due."""
        self.time = time
        for entry in self.ledger:
            is_due = entry.cancel_at is not None and entry.cancel_at <= time
            if is_due and entry.status in ("Submitted", "Valid"):
                entry.status = "Cancelled"

    def is_apart(self, database: datetime) -> bool:
        """Return whether its clock differs too much from the database's, which shows that time."""
        return abs(ClockReading(self.time + self.ahead, 0).ahead_of(ClockReading(database, 0))) > (
            MOST_APART
        )

    def find(self, uuid: str | None) -> Entry | None:
        """Return the document with a uuid once it is processed."""
        found = (one for one in self.ledger if one.uuid == uuid and one.due <= self.time)
        return next(found, None)

    def search(self, since: datetime, until: datetime) -> list[Entry]:
        """Return the documents received between two times that are listed by now, newest first."""
        listed = [
            entry
            for entry in self.ledger
            if entry.listed <= self.time and since <= entry.received_at <= until
        ]
        return sorted(listed, key=lambda entry: entry.received_at, reverse=True)

    def submit(self, body: bytes) -> Event:
        """Answer a submit request."""
        how = self._choose(ANSWERS) if self.is_hostile else "accept"
        if how == "unreachable":
            return NotReceived(LOST)
        if how == "throttle":
            return NotReceived(LOST, timedelta(seconds=7))
        if how == "fail":
            return OutcomeUnknown(LOST)
        if how == "refuse":
            return RefusalReceived(LOST, for_all=self._choose((False, True)))
        contents = decode(body)
        last = self.arrived.get(contents)
        if self._detects and last and self.time - last < PAYLOADS:
            return OutcomeUnknown(LOST)
        self.arrived[contents] = self.time
        return self._accept(how, contents)

    def _accept(self, how: str, contents: tuple[str, ...]) -> Event:
        late = timedelta(seconds=self._choose(PROCESSING)) if how == "late" else NO_DELAY
        rejected = contents[:1] if how == "reject" else ()
        uid = f"S{len(self.arrived)}-{len(self.ledger)}"
        accepted = [content for content in contents if content not in rejected]
        entries = [self._add_entry(content, uid, late) for content in accepted]
        if how in ("lose", "late"):
            return OutcomeUnknown(LOST)
        shown = {entry.number: entry.uuid for entry in entries}
        if how == "damage":
            return OutcomeUnknown(LOST, tuple(shown.items())[:1])
        if how == "unnamed":
            shown.pop(next(iter(shown)))
        errors = {content.split("|")[0]: [LOST] for content in rejected}
        return SubmissionReceipt(uid if shown else None, shown, errors, self.time + self.ahead)

    def _add_entry(self, content: str, uid: str, late: timedelta) -> Entry:
        lag = timedelta(seconds=self._choose(LAG) if self.is_hostile else 0)
        due = self.time + late
        uuid = f"U{len(self.ledger)}"
        entry = Entry(content, uuid, uid, self.time, due, due + lag, due + self.ahead)
        key = (entry.number, entry.issued_at)
        same = [
            one
            for one in self.ledger
            if (one.number, one.issued_at) == key and one.status != "Invalid"
        ]
        if self._detects and same and self.time - same[0].due < DUPLICATES:
            entry.status, entry.first = "Invalid", same[0]
        self.ledger.append(entry)
        return entry

    def find_all(self, content: str) -> list[Entry]:
        """Return the documents with the same content that are no recognised duplicates."""
        return [one for one in self.ledger if one.content == content and not one.first]

    def count_live(self) -> dict[str, list[Entry]]:
        """Return {number: its live documents} of the numbers with several."""
        by_number: dict[str, list[Entry]] = {}
        for entry in self.ledger:
            if entry.is_live:
                by_number.setdefault(entry.number, []).append(entry)
        return {number: live for number, live in by_number.items() if len(live) > 1}


def encode(contents: Iterable[str]) -> bytes:
    """Return the bytes of a request."""
    return " ".join(contents).encode()


def decode(body: bytes) -> tuple[str, ...]:
    """Return the contents of a request."""
    return tuple(body.decode().split())

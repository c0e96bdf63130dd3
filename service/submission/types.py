"""A call to the portal as the machine sees it: what is on disk, what happens to it, and what is to be done about it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

NOW = timedelta(0)
#: How a uuid was seen that belongs to a document: named by the receipt, or proven to be the
#: document that was sent.
#: "details" was named by a person; that, a damaged answer, "listed" and "unproven" are kept for
#: people and prove nothing.
PROOFS = {"submit", "search"}


# What is on disk


@dataclass(frozen=True, slots=True)
class SubmittedDocument:
    """One document of a call. With number, type and issue time the portal tells it from every other."""

    id: int
    number: str
    document_type: str
    issued_at: datetime
    status: str = "Submitting"
    uuid: str | None = None
    validated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """A document of ours that the portal has shown under a uuid. Portal: 4.2, 5.5"""

    document_id: int
    uuid: str
    submission_uid: str | None
    via: str  # submit, search, details, damaged answer, unproven, or listed
    received_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission at `now` of the database's clock, with what was ever seen of its documents at the portal."""

    state: str
    # Pending: the caller was told that it will be done; failed: that it was not, or nothing
    on_absence: str
    now: datetime
    tin: str = ""
    docs: tuple = ()  # of Doc
    sightings: tuple = ()  # of Seen
    claims: int = 0  # since the last result
    looks: int = 0  # since the last state
    absence_confirmations: int = 0  # since the last send
    absence_confirmed_at: datetime | None = None  # of the latest proof
    first_sent_at: datetime | None = None
    last_sent_at: datetime | None = None
    submission_uid: str | None = None
    possibly_received: bool = False  # it was sent before, and seemed absent
    refusal: dict | None = None  # what a possibly_received one was refused with
    # Since when the portal does not know what it had accepted
    unknown_since: datetime | None = None
    searched_at: datetime | None = None  # when its documents were last looked for by number

    @property
    def has_outcome(self) -> bool:
        """Whether it is Accepted, and the outcome of each of its documents is known."""
        return self.state == "Accepted" and all(doc.status != "Submitted" for doc in self.docs)

    def proven(self, *ways):
        """What was seen in one of these ways, or in any that proves something."""
        return [one for one in self.sightings if one.via in (ways or PROOFS)]

    def unproven(self) -> set[int]:
        """Return the ids of documents of which the portal shows a possible copy that could not be proven to be ours."""
        proven = {one.document_id for one in self.proven()}
        return {one.document_id for one in self.sightings if one.via == "unproven"} - proven

    def lacks(self, seen):
        """The ids of documents that are not among what was seen."""
        return {doc.id for doc in self.docs} - {one.document_id for one in seen}


# What happens


@dataclass(frozen=True, slots=True)
class Claimed:
    """A process has taken the call up, and nobody else works on it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """There is a token, and a place in the portal's quota."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """What was in it goes with others in another call, whose `claim` it is."""

    claim: object


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a connection to the portal for it, on which no byte of it is written."""


@dataclass(frozen=True, slots=True)
class Intended:
    """The intent is on disk. `body` are the frozen bytes; `at` when the intent began, by the process's own clock."""

    body: bytes
    at: float


@dataclass(frozen=True, slots=True)
class NotReceived:
    """Certainly not received. `wait` is how long to wait before the next try, None where nobody knows.

    `held` when our own count kept it back and nothing was tried: for how long the claim is given back, zero where the
    next to have a turn may be another.
    """

    error: dict
    wait: timedelta | None = None
    held: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Received and refused as a whole; `for_all`: not because of what one of several documents holds."""

    error: dict
    errors: tuple = ()
    for_all: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Perhaps received, also when the portal says that it had the same bytes before. `shown`: (number, uuid) of a damaged answer."""

    error: dict
    shown: tuple = ()


@dataclass(frozen=True, slots=True)
class ReceiptReceived:
    """The portal's own word on each document: `accepted` {number: uuid}, `rejected` {number: errors}."""

    uid: str | None
    accepted: dict
    rejected: dict
    received_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """Documents that the portal showed for a call: proven ones, and candidates seen as "unproven".

    It does not prove that the rest is absent.
    """

    sightings: tuple


@dataclass(frozen=True, slots=True)
class Listed:
    """Everything that the portal lists was shown, asked for at `at`; or a listing at that time would prove nothing."""

    at: datetime
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody holds its lock, who may be about to put the bytes out even now; or it cannot be told."""


@dataclass(frozen=True, slots=True)
class NotListed:
    """No listing could be had. `wait` and `held` as in NotReceived."""

    error: dict
    wait: timedelta | None = None
    held: timedelta | None = None


@dataclass(frozen=True, slots=True)
class StatesReceived:
    """How the portal says that an accepted call stands: Changes; {document id: Seen} of those whose first send it was after all.

    `later`, a NotTold, when there is more to ask that could not be asked now.
    """

    changes: tuple
    duplicates: dict
    later: object = None


@dataclass(frozen=True, slots=True)
class StatesUnavailable:
    """It could not be asked; `unknown` when it does not know the call, which it may not for a while.

    `searched` when its documents were looked for by number as well, and not found.
    """

    error: dict
    wait: timedelta | None = None
    held: timedelta | None = None
    unknown: bool = False
    searched: bool = False


# What is to be done


@dataclass(frozen=True, slots=True)
class Admit:
    """Get a token and a place in the quota: Admitted, NotReceived, or Replaced."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Establish the connection on which it will be sent: Connected or NotReceived."""


@dataclass(frozen=True, slots=True)
class Intend:
    """Write that it is about to be sent, and commit it: Intended, or nothing more when the claim is lost."""


@dataclass(frozen=True, slots=True)
class Send:
    """Put the bytes out: Receipt, Refusal, Unknown or NotReceived."""

    body: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Keep:
    """Write down the uuids that were seen, whether or not the claim still holds: evidence is not fenced."""

    sightings: tuple


@dataclass(frozen=True, slots=True)
class Look:
    """Ask the portal for it: Shown as often as there is something, then Listed or NotListed."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the portal how it stands: Told or NotTold."""


@dataclass(frozen=True, slots=True)
class Find:
    """Look for the documents of a call by number, though the portal does not know the call: Told or NotTold."""

    error: dict


@dataclass(frozen=True, slots=True)
class Change:
    """What is new of one document; None leaves a member as it is."""

    id: int
    status: str
    uuid: str | None = None
    long_id: str | None = None
    validation_link: str | None = None
    errors: list | None = None
    submitted_at: datetime | None = None
    validated_at: datetime | None = None
    cancelled_at: datetime | None = None
    cancel_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Documents that go on in a call of their own; what was promised, and when it was sent, go with them.

    `possibly_received` where they are sent again because they seemed absent; `error` says why they need a person.
    """

    ids: frozenset
    state: str
    uid: str | None = None
    possibly_received: bool = False
    error: dict | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Write the next state with all that belongs to it, if the claim still holds, and give the claim back.

    Not looked at again before `delay` is over. `proof`: it is one more proof of absence. `still_sent`: it may have been
    sent as late as now, so that what was proved before is void.
    """

    state: str
    changes: tuple = ()
    delay: timedelta = NOW
    error: dict | None = None
    uid: str | None = None
    proof: bool = False
    still_sent: bool = False
    parts: tuple = ()


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give the claim back as if it had not been taken."""

    wait: timedelta = NOW

"""Types of the submission state machine: a submission as stored, events and commands."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.documents.states import SubmissionState, SubmittedStatus
from service.json_types import JsonObject
from service.portal.responses import SubmissionReceipt

NO_DELAY = timedelta(0)
#: Allowed difference between the portal's clock and the database's. A listing that looks for
#: documents starts this much earlier and ends this much later.
CLOCK_TOLERANCE = timedelta(minutes=5)
#: Values of `Sighting.via` that prove that the uuid belongs to the document: the receipt named it,
#: or the document of the portal was compared. The other values are recorded for people.
PROVING_SOURCES = {"submit", "search"}

#: An error as stored and shown: code, path, message, and members that some codes add.
Error = JsonObject


# The stored state


@dataclass(frozen=True, slots=True)
class SubmittedDocument:
    """One document of a submission. Number, type and issue time identify it at the portal."""

    id: int
    number: str
    document_type: str
    issued_at: datetime
    status: SubmittedStatus = "Submitting"
    uuid: str | None = None
    long_id: str | None = None
    validated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """A document that the portal showed under a uuid, for one document of a submission.

    `via` is submit, search, details, "damaged answer", unproven or listed. Portal: 4.2, 5.5
    """

    submitted_document_id: int
    uuid: str
    submission_uid: str | None
    via: str
    received_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission as stored, with all sightings of its documents. `now` is the database clock."""

    state: SubmissionState
    on_absence: str  # retry, or release: the caller received an error
    now: datetime
    tin: str = ""
    docs: tuple[SubmittedDocument, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    claims: int = 0  # since the last result
    reads: int = 0  # since the last change of state
    sends: int = 0
    absence_confirmations: int = 0  # since the last send
    absence_confirmed_at: datetime | None = None
    first_sent_at: datetime | None = None
    last_sent_at: datetime | None = None
    client_id: str | None = None  # of the portal, that sent it last
    request_sha256: bytes | None = None  # of the first request
    submission_uid: str | None = None
    possibly_received: bool = False  # it was sent before, and appeared absent
    refusal: Error | None = None  # a refusal after which absence alone does not decide
    unknown_since: datetime | None = None  # when the portal first did not know its submission uid
    refused_since: datetime | None = None  # when the portal first refused its latest polls
    searched_at: datetime | None = None  # the latest search for its documents by number

    @property
    def send_times(self) -> tuple[datetime, datetime]:
        """Return the times of the first and the last send. Raises ValueError if never sent."""
        if self.first_sent_at is None or self.last_sent_at is None:
            raise ValueError("The submission was never sent.")
        return self.first_sent_at, self.last_sent_at

    @property
    def has_outcome(self) -> bool:
        """Return whether the portal accepted the submission and validated all its documents."""
        return self.state == "Accepted" and all(doc.status != "Submitted" for doc in self.docs)

    def proven(self, *sources: str) -> list[Sighting]:
        """Return the sightings from some sources, by default from all that prove identity."""
        return [one for one in self.sightings if one.via in (sources or PROVING_SOURCES)]

    def unproven(self) -> set[int]:
        """Return the ids of documents that have an unproven sighting and no proven one."""
        proven = {one.submitted_document_id for one in self.proven()}
        return {
            one.submitted_document_id for one in self.sightings if one.via == "unproven"
        } - proven

    def missing_from(self, sightings: Iterable[Sighting]) -> set[int]:
        """Return the ids of documents that have no sighting among the given ones."""
        return {doc.id for doc in self.docs} - {one.submitted_document_id for one in sightings}


# Events


@dataclass(frozen=True, slots=True)
class Claimed:
    """A process has claimed the submission and holds its lock. A poll needs no lock."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request to the portal has no result. `wait` is the pause before the next try, if known.

    `held_for` is set if our own rate limiter stopped the request before it was sent: the claim is
    released for that time, and zero lets other submissions take the next slot.
    """

    error: Error
    wait: timedelta | None = None
    held_for: timedelta | None = None


class NotReceived(RequestFailed):
    """The portal did not receive the request to submit."""


@dataclass(frozen=True, slots=True)
class RequestChanged:
    """The stored documents, or the request of an earlier send, differ. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class RefusalReceived:
    """The portal refused the request as a whole.

    `for_all` means that the cause is not one of several documents.
    """

    error: Error
    errors: tuple[Error, ...] = ()
    for_all: bool = False


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The portal possibly received the request, or reported the same bytes as a duplicate.

    `shown` has (number, uuid) of each document that a damaged response names.
    """

    error: Error
    shown: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SightingsReceived:
    """The portal showed some documents, proven or unproven. The others are not proven absent."""

    sightings: tuple[Sighting, ...]


@dataclass(frozen=True, slots=True)
class ListingEnded:
    """A listing requested at `at` was read. An incomplete one does not confirm absence."""

    at: datetime
    complete: bool = True


@dataclass(frozen=True, slots=True)
class LockUnavailable:
    """Another process may hold the submission's lock, and be about to send the request."""


class ListingUnavailable(RequestFailed):
    """The listing could not be read."""


@dataclass(frozen=True, slots=True)
class StatesUnavailable(RequestFailed):
    """The states could not be read.

    `unknown`: the portal does not know the submission (yet). `searched`: a search for its documents
    by number found none either. `refused`: the portal refused the request for another reason.
    """

    unknown: bool = False
    searched: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class StatesReceived:
    """New states of the documents of an accepted submission.

    `duplicates` is {document id: sighting of the first send} of documents that the portal rejected
    as duplicates. `later` is set if some states could not be read now. `unreadable` are documents
    that may be such duplicates, whose reasons could not be read for a day.
    """

    changes: "tuple[Change, ...]"
    duplicates: dict[int, Sighting]
    later: StatesUnavailable | None = None
    unreadable: frozenset[int] = frozenset()


Event = (
    Claimed
    | NotReceived
    | RequestChanged
    | RefusalReceived
    | OutcomeUnknown
    | SubmissionReceipt
    | SightingsReceived
    | ListingEnded
    | LockUnavailable
    | ListingUnavailable
    | StatesReceived
    | StatesUnavailable
)


# Commands


@dataclass(frozen=True, slots=True)
class RecordSightings:
    """Record sightings. This needs no claim."""

    sightings: tuple[Sighting, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """New values of one document. None leaves a member unchanged."""

    id: int
    status: SubmittedStatus
    uuid: str | None = None
    long_id: str | None = None
    validation_link: str | None = None
    errors: list[Error] | None = None
    submitted_at: datetime | None = None
    validated_at: datetime | None = None
    cancelled_at: datetime | None = None
    cancel_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Documents that become a submission of their own, with the same send times and `on_absence`.

    `possibly_received` marks documents that are sent again because they appeared absent.
    """

    ids: frozenset[int]
    state: SubmissionState
    uid: str | None = None
    possibly_received: bool = False
    error: Error | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """Write the next state and release the claim, if it is still held.

    The submission is due again after `delay`. `confirms_absence` counts one more absence
    confirmation. `still_sent` means that the request may be sent until now, so that all earlier
    absence confirmations are void.
    """

    state: SubmissionState
    changes: tuple[Change, ...] = ()
    delay: timedelta = NO_DELAY
    error: Error | None = None
    uid: str | None = None
    confirms_absence: bool = False
    still_sent: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def moved_ids(self) -> set[int]:
        """Return the ids of the documents that move into parts."""
        return {submitted_document_id for part in self.parts for submitted_document_id in part.ids}


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """Release the claim and do not count it. The submission is due again after `wait`."""

    wait: timedelta = NO_DELAY


Command = RecordSightings | Write | ReleaseClaim

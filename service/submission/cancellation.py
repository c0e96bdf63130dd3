"""What a cancellation does next: `step(standing, event, times) -> (standing, command)`. No I/O and no clock.

The intent is committed before the portal is asked. Only an answer that says that the document is cancelled is trusted
as success: a repeated request may be refused because the first one was processed, so otherwise the state of the
document decides. A request without a trustworthy answer may be processed late. Until the settling time after it is
over, the portal is asked again and again, with backoff, and a document that is still Valid proves nothing.

`times` has portal_settle and portal_retry as timedeltas.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from service.documents import states

LONGEST_LOOK = timedelta(seconds=60)  # between two looks at the state
MOST_DOUBLINGS = 10


class Times(Protocol):
    """The settings that decide when the portal is asked again."""

    portal_settle: timedelta
    portal_retry: timedelta


@dataclass(frozen=True, slots=True)
class CancellationState:
    """A cancellation as it is on disk, and what is known of this process's own request.

    `now` is the database's time, read before the portal is asked. `sent_by` is the time by which the latest request was
    sent that may still be processed; None when there is none. `is_unclear`: this process has just sent another one.
    """

    now: datetime
    sent_by: datetime | None = None
    looks: int = 0
    is_unclear: bool = False

    @property
    def may_have_arrived(self) -> bool:
        """Return whether a request was sent that had no trustworthy answer, however long ago."""
        return self.is_unclear or self.sent_by is not None

    def is_settled(self, times: Times) -> bool:
        """Return whether no request can be processed any more, so that the state read now is final."""
        if self.is_unclear:
            return False
        return self.sent_by is None or self.now >= self.sent_by + times.portal_settle


# Events


@dataclass(frozen=True, slots=True)
class Begun:
    """The intent was committed by the process that is to send the request."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A look is due, or the process that was to send the request gave no result in time."""


@dataclass(frozen=True, slots=True)
class Done:
    """The portal says that it has cancelled the document."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request was not carried out: it was not sent, or it was throttled."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The portal refused the request with a code."""

    code: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The request was sent, and no answer came that can be trusted: it may be processed, now or later."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The state that the portal shows of the document, and the code of the refusal before."""

    status: str
    cancelled_at: datetime | None = None
    code: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NotShown:
    """The state could not be read. `wait` is how long the portal asked to wait."""

    wait: timedelta = timedelta(0)


Event = Begun | Resumed | Done | NotSent | Refused | Unclear | Shown | NotShown


# Commands


@dataclass(frozen=True, slots=True)
class Put:
    """Ask the portal to cancel: Done, NotSent, Refused or Unclear."""


@dataclass(frozen=True, slots=True)
class Read:
    """Ask the portal for the state of the document: Shown or NotShown."""

    code: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Write that the document is cancelled. This needs no claim: it is a fact."""

    at: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Write that the outcome is still unknown, and look again after a delay, unless the claim was lost."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class End:
    """Write that the document is not cancelled, unless the claim was lost."""

    code: str | None = None


Command = Put | Read | Note | Wait | End


def step(
    standing: CancellationState, event: Event, times: Times
) -> tuple[CancellationState, Command]:
    """Return the standing after an event, and the command that follows."""
    match event:
        case Begun():
            return standing, Put()
        case Resumed():
            return standing, Read()
        case Done():
            return standing, Note()
        case NotSent() if standing.sent_by is None:
            return standing, End()
        case NotSent():
            return standing, Read()
        case Refused(code):
            return standing, Read(code)
        case Unclear():
            return replace(standing, is_unclear=True, looks=0), Read()
        case Shown("Cancelled"):
            return standing, Note(event.cancelled_at, event.reason)
        case Shown(status) if status in states.FINAL or standing.is_settled(times):
            return standing, End(event.code)
        case Shown():
            return standing, Wait(next_look(standing, times))
        case NotShown(wait):
            return standing, Wait(max(wait, next_look(standing, times)))


def next_look(standing: CancellationState, times: Times) -> timedelta:
    """Return the delay before the next look: doubled each time, and never past the end of the settling time."""
    usual = min(LONGEST_LOOK, times.portal_retry * 2 ** min(standing.looks, MOST_DOUBLINGS))
    if standing.is_settled(times):
        return usual
    last_request = (
        standing.now if standing.is_unclear or standing.sent_by is None else standing.sent_by
    )
    return min(usual, last_request + times.portal_settle - standing.now)

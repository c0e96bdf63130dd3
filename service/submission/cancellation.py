"""The state machine of a cancellation: `step(state, event, times) -> (state, command)`.

No I/O and no clock. The intent is committed before the request is sent. Only a response that
confirms the cancellation counts as success: a repeated request may be refused because the first one
was processed, so otherwise the state of the document decides. A request without a trustworthy
response may be processed late. Until its settling time is over, the state is read repeatedly with
backoff, and a document that is still Valid proves nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from service.documents import states

LONGEST_LOOK = timedelta(seconds=60)  # between two reads of the state
MOST_DOUBLINGS = 10


class Times(Protocol):
    """The settings for the times of repeated requests."""

    @property
    def portal_settle(self) -> timedelta: ...

    @property
    def portal_retry(self) -> timedelta: ...


@dataclass(frozen=True, slots=True)
class CancellationState:
    """A cancellation as stored, with the result of this process's own request.

    `now` is the database's time, read before the request. `sent_by` is the latest time at which a
    request was sent that may still be processed, or None. `looks` counts the reads of the state.
    `is_unclear`: this process has just sent another request without a trustworthy response.
    """

    now: datetime
    sent_by: datetime | None = None
    looks: int = 0
    is_unclear: bool = False

    @property
    def may_have_arrived(self) -> bool:
        """Return whether any request was sent without a trustworthy response."""
        return self.is_unclear or self.sent_by is not None

    def is_settled(self, times: Times) -> bool:
        """Return whether no request can be processed any more: the state read now is final."""
        if self.is_unclear:
            return False
        return self.sent_by is None or self.now >= self.sent_by + times.portal_settle


# Events


@dataclass(frozen=True, slots=True)
class Begun:
    """The intent was committed, and this process sends the request."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A read of the state is due, or the sending process stored no result in time."""


@dataclass(frozen=True, slots=True)
class Done:
    """The portal confirmed the cancellation."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request was not processed: it was not sent, or it was throttled."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The portal refused the request with a code."""

    code: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The request has no trustworthy response: it may be processed now or later."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The portal's state of the document, and the code of the preceding refusal."""

    status: str
    cancelled_at: datetime | None = None
    code: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NotShown:
    """The state could not be read. `wait` is the pause that the portal requested."""

    wait: timedelta = timedelta(0)


Event = Begun | Resumed | Done | NotSent | Refused | Unclear | Shown | NotShown


# Commands


@dataclass(frozen=True, slots=True)
class Put:
    """Send the request. The event is Done, NotSent, Refused or Unclear."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the state of the document. The event is Shown or NotShown."""

    code: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Store that the document is cancelled. This is a fact and needs no claim."""

    at: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Store that the outcome is unknown and read again after a delay, if the claim still holds."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class End:
    """Store that the document is not cancelled, if the claim still holds."""

    code: str | None = None


Command = Put | Read | Note | Wait | End


def step(state: CancellationState, event: Event, times: Times) -> tuple[CancellationState, Command]:
    """Return the state after an event, and the next command."""
    match event:
        case Begun():
            return state, Put()
        case Resumed():
            return state, Read()
        case Done():
            return state, Note()
        case NotSent() if state.sent_by is None:
            return state, End()
        case NotSent():
            return state, Read()
        case Refused(code):
            return state, Read(code)
        case Unclear():
            return replace(state, is_unclear=True, looks=0), Read()
        case Shown("Cancelled"):
            return state, Note(event.cancelled_at, event.reason)
        case Shown(status) if status in states.FINAL or state.is_settled(times):
            return state, End(event.code)
        case Shown():
            return state, Wait(_next_look(state, times))
        case NotShown(wait):
            return state, Wait(max(wait, _next_look(state, times)))


def _next_look(state: CancellationState, times: Times) -> timedelta:
    """Return the delay of the next read: doubled each time, within the settling time."""
    usual = min(LONGEST_LOOK, times.portal_retry * 2 ** min(state.looks, MOST_DOUBLINGS))
    if state.is_settled(times):
        return usual
    last_request = state.now if state.is_unclear or state.sent_by is None else state.sent_by
    return min(usual, last_request + times.portal_settle - state.now)

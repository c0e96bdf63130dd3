"""The rules of a cancellation. The caller provides the requests to the portal.

The intent is committed before the request is sent. Only a response that
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


# Responses to the request


@dataclass(frozen=True, slots=True)
class Done:
    """The portal confirmed the cancellation."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request was not processed: it was not sent, or it was throttled.

    `code` is the code of the response, `wait` the time that the portal asks to wait, if known.
    """

    code: str = "portal_unavailable"
    wait: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The portal refused the request with a code."""

    code: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The request has no trustworthy response: it may be processed now or later."""


# States of the document


@dataclass(frozen=True, slots=True)
class Shown:
    """The portal's state of the document."""

    status: str
    cancelled_at: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class NotShown:
    """The state could not be read. `wait` is the pause that the portal requested."""

    wait: timedelta = timedelta(0)


class Requests(Protocol):
    """The requests to the portal about one document."""

    async def cancel(self) -> Done | NotSent | Refused | Unclear: ...

    async def read(self) -> Shown | NotShown: ...


# Results


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
    """Store that the document is not cancelled, if the claim still holds.

    `code` and `wait` are the portal's or those of NotSent.
    """

    code: str | None = None
    wait: timedelta | None = None


async def resolve(
    state: CancellationState, requests: Requests, times: Times, is_new: bool
) -> tuple[CancellationState, Note | Wait | End]:
    """Send the request of a new cancellation, and read the state of the document if necessary.

    Return the state after that, and the result to store. A cancellation that is not new is only
    read: its request may have been sent.
    """
    code = None
    if is_new:
        match await requests.cancel():
            case Done():
                return state, Note()
            case NotSent(code, wait) if state.sent_by is None:
                return state, End(code, wait)
            case NotSent(code):
                pass  # an earlier request may be processed
            case Refused(code):
                pass  # possibly because an earlier request was processed
            case Unclear():
                state = replace(state, is_unclear=True, looks=0)
    match await requests.read():
        case Shown("Cancelled", at, reason):
            return state, Note(at, reason)
        case Shown(status) if status in states.FINAL or state.is_settled(times):
            return state, End(code)
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

"""The rules of a cancellation. The caller provides the requests to the portal.

The intent is committed before the request is sent. Only a response that confirms the cancellation
counts as success: a repeated request may be refused because the first one was processed, so
otherwise the state of the document decides. A request without a trustworthy response may be
processed late. Until its settling time is over, the state is read repeatedly with backoff, and a
document that is still Valid proves nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from service.config import Config
from service.documents import states
from service.portal.documents import UNKNOWN, Document
from service.portal.errors import LoginRefused, PortalError, Refused, Throttled, Unclear
from service.submission.machine.types import NO_DELAY

LONGEST_LOOK = timedelta(seconds=60)  # between two reads of the state
MOST_DOUBLINGS = 10


@dataclass(frozen=True, slots=True)
class CancellationState:
    """A cancellation as stored, with the result of this process's own request.

    `now` is the database's time, read before the request. `sent_by` is the latest time at which a
    request was sent that may still be processed, or None. `reads` counts the reads of the state.
    `is_unclear`: this process has just sent another request without a trustworthy response.
    """

    now: datetime
    sent_by: datetime | None = None
    reads: int = 0
    is_unclear: bool = False

    @property
    def may_have_arrived(self) -> bool:
        """Return whether any request was sent without a trustworthy response."""
        return self.is_unclear or self.sent_by is not None

    def is_settled(self, times: Config) -> bool:
        """Return whether no request can be processed any more: the state read now is final."""
        if self.is_unclear:
            return False
        return self.sent_by is None or self.now >= self.sent_by + times.portal_settle


# Results


@dataclass(frozen=True, slots=True)
class Cancelled:
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

    `code` is the portal's, or of a request that was not processed; `wait` is what it asks for.
    """

    code: str | None = None
    wait: timedelta | None = None


async def resolve(
    state: CancellationState,
    cancel: Callable[[], Awaitable[None]] | None,
    read: Callable[[], Awaitable[Document]],
    times: Config,
) -> tuple[CancellationState, Cancelled | Wait | End]:
    """Send the request of a new cancellation, and read the state of the document if necessary.

    Return the state after that, and the result to store. Without `cancel`, the cancellation is not
    new and only read: its request may have been sent. Both requests raise PortalError.
    """
    code = None
    if cancel:
        try:
            await cancel()
        except PortalError as error:
            code = _name_failure(error)
            if code is None:
                state = replace(state, is_unclear=True, reads=0)
            elif not isinstance(error, Refused) and state.sent_by is None:
                return state, End(code, _asked_wait(error))
        else:
            return state, Cancelled()
    # A request may be refused because an earlier one was processed.
    try:
        shown = await read()
    except PortalError as error:
        if code is not None and not state.may_have_arrived:
            return state, End(code)
        return state, Wait(max(_asked_wait(error) or NO_DELAY, _next_look(state, times)))
    if shown.status == "Cancelled":
        return state, Cancelled(shown.cancelled_at, shown.reason)
    if shown.status in states.FINAL or (shown.status != UNKNOWN and state.is_settled(times)):
        return state, End(code)
    return state, Wait(_next_look(state, times))


def _name_failure(error: PortalError) -> str | None:
    """Return the code of a failed request, or None if the request may be processed.

    A refusal without a code may come from a gateway.
    """
    if isinstance(error, Refused | Unclear):
        return error.code if isinstance(error, Refused) else None
    is_login = isinstance(error, LoginRefused)
    return "portal_credentials_refused" if is_login else "portal_unavailable"


def _asked_wait(error: PortalError) -> timedelta | None:
    """Return the time that the portal asks to wait, if it gave one."""
    return error.retry_after if isinstance(error, Throttled) else None


def _next_look(state: CancellationState, times: Config) -> timedelta:
    """Return the delay of the next read: doubled each time, within the settling time."""
    usual = min(LONGEST_LOOK, times.portal_retry * 2 ** min(state.reads, MOST_DOUBLINGS))
    if state.is_settled(times):
        return usual
    last_request = state.now if state.is_unclear or state.sent_by is None else state.sent_by
    return min(usual, last_request + times.portal_settle - state.now)

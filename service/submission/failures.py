"""The specified errors of failed submissions and cancellations, with a code for programs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from service.documents import states
from service.errors import BadRequest, retry_after


class Failure(NamedTuple):
    """A kind of failure. `wait` has the seconds of Retry-After if waiting helps."""

    is_retryable: bool
    wait: int | None = None


#: Code of a failed submission or cancellation -> what the client can do.
FAILURES: dict[str, Failure] = {
    "check_failed": Failure(is_retryable=False),
    "document_rejected": Failure(is_retryable=False),
    "portal_unavailable": Failure(is_retryable=True, wait=30),
    "portal_credentials_refused": Failure(is_retryable=True),
    "not_received": Failure(is_retryable=True, wait=1),
    "outcome_unknown": Failure(is_retryable=True, wait=10),
    "manual_review": Failure(is_retryable=True),
    "sending_held": Failure(is_retryable=True, wait=60),
    "number_at_portal": Failure(is_retryable=True),
    "tin_not_verified": Failure(is_retryable=True),
    "cancellation_failed": Failure(is_retryable=True),
}
#: States of a submission in which a document that is not with the portal was refused by it.
REFUSED_BY_PORTAL = {"Accepted", "Finished", "Refused"}
#: Code of the first error of a submission that the portal did not receive -> code of the failure.
_NOT_RECEIVED = {"PortalCredentials": "portal_credentials_refused", "NotReceived": "not_received"}


def refuse_submission(code: str, errors: Sequence[Mapping[str, Any]]) -> BadRequest:
    """Return the specified error of a failed submission. `errors` are the reasons. Spec: Errors"""
    failure = FAILURES[code]
    return BadRequest(
        states.SUBMIT_FAILED,
        _headers(failure),
        code=code,
        retryable=failure.is_retryable,
        errors=errors,
    )


def refuse_cancellation(code: str) -> BadRequest:
    """Return the specified error of a failed cancellation. Spec: Errors

    A repetition tries again, or joins the running cancellation. The body has no `retryable`.
    """
    error = BadRequest(states.CANCEL_FAILED, _headers(FAILURES[code]), code=code)
    error.retryable = True
    return error


def name_failure(state: str, errors: Sequence[Mapping[str, Any]]) -> str:
    """Return the code of a submission that has failed, or that has no outcome yet, by its state."""
    if state in REFUSED_BY_PORTAL:
        return "document_rejected"
    if state == "NotReceived":
        first = errors[0]["code"] if errors else ""
        return _NOT_RECEIVED.get(first, "portal_unavailable")
    return "manual_review" if state == "NeedsPerson" else "outcome_unknown"


def _headers(failure: Failure) -> dict[str, str] | None:
    return retry_after(failure.wait) if failure.wait else None

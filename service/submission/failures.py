"""The specified errors of failed submissions and cancellations, with a code for programs."""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from service.documents import states
from service.errors import BadRequest, retry_after

#: Errors that a record shows of a submission of which nothing reached the portal.
MOST_ERRORS = 20
#: Seconds of Retry-After where the operator or the company has to act first.
PERSON_SECONDS = 300


class Failure(NamedTuple):
    """A kind of failure. `wait` has the usual seconds of Retry-After if waiting helps."""

    is_retryable: bool
    wait: int | None = None


#: Code of a failed submission or cancellation -> what the client can do.
FAILURES: dict[str, Failure] = {
    "check_failed": Failure(is_retryable=False),
    "document_rejected": Failure(is_retryable=False),
    "portal_unavailable": Failure(is_retryable=True, wait=30),
    "portal_credentials_refused": Failure(is_retryable=True, wait=PERSON_SECONDS),
    "not_received": Failure(is_retryable=True, wait=1),
    "outcome_unknown": Failure(is_retryable=True, wait=10),
    "manual_review": Failure(is_retryable=True, wait=PERSON_SECONDS),
    "sending_held": Failure(is_retryable=True, wait=60),
    "number_at_portal": Failure(is_retryable=True, wait=PERSON_SECONDS),
    "tin_not_verified": Failure(is_retryable=True, wait=PERSON_SECONDS),
    "cancellation_failed": Failure(is_retryable=True, wait=PERSON_SECONDS),
}
#: The portal's error for a note without a valid target. Portal: 14.7
NO_TARGET = {
    "code": "DR303",
    "path": "/targetInvoiceType",
    "message": states.NOTE_WITHOUT_VALID_INVOICE,
}
#: States of a submission in which a document that is not with the portal was refused by it.
REFUSED_BY_PORTAL = {"Accepted", "Finished", "Refused"}
#: Code of the first error of a submission that the portal did not receive -> code of the failure.
_NOT_RECEIVED = {
    "PortalCredentials": "portal_credentials_refused",
    "NotReceived": "not_received",
    "SendingHeld": "sending_held",
}
#: Codes of the first error of a queued submission that may have been received. "": no error.
_UNCLEAR = {"", "OutcomeUnknown"}


def refuse_submission(
    code: str, errors: Sequence[Mapping[str, Any]], wait: timedelta | None = None
) -> BadRequest:
    """Return the specified error of a failed submission. `errors` are the reasons. Spec: Errors

    `wait` is the time that the portal asks to wait, if it gave one.
    """
    failure = FAILURES[code]
    return BadRequest(
        states.SUBMIT_FAILED,
        _headers(failure, wait),
        code=code,
        retryable=failure.is_retryable,
        errors=errors,
    )


def refuse_cancellation(code: str, wait: timedelta | None = None) -> BadRequest:
    """Return the specified error of a failed cancellation. Spec: Errors

    A repetition tries again, or joins the running cancellation. The body has no `retryable`.
    `wait` is the time that the portal asks to wait, if it gave one.
    """
    error = BadRequest(states.CANCEL_FAILED, _headers(FAILURES[code], wait), code=code)
    error.retryable = True
    return error


def name_failure(state: str, errors: Sequence[Mapping[str, Any]]) -> str:
    """Return the code of a submission that has failed, or that has no outcome yet, by its state."""
    if state in REFUSED_BY_PORTAL:
        return "document_rejected"
    first = errors[0]["code"] if errors else ""
    if state == "NotReceived" or (state == "Queued" and first not in _UNCLEAR):
        return _NOT_RECEIVED.get(first, "portal_unavailable")
    return "manual_review" if state == "NeedsPerson" else "outcome_unknown"


def list_reasons(refusal: BadRequest) -> list[dict[str, Any]]:
    """Return the reasons of a refused submission. Its specified body may have none. Spec: Errors"""
    return refusal.more.get("errors") or [NO_TARGET]


def describe_not_sent(code: str, errors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the record and the event show of a submission that did not reach the portal.

    The patches of errors belong to preflight, which shows all errors.
    """
    failure = FAILURES.get(code)
    shown = [
        {name: member for name, member in error.items() if name != "patch"}
        for error in errors[:MOST_ERRORS]
    ]
    return {
        "code": code,
        "retryable": failure is not None and failure.is_retryable,
        "codes": list(dict.fromkeys(error["code"] for error in shown)),
        "errors": shown,
    }


def _headers(failure: Failure, wait: timedelta | None) -> dict[str, str] | None:
    if failure.wait is None:
        return None
    asked = math.ceil(wait.total_seconds()) if wait else 0
    if failure.wait == PERSON_SECONDS:  # The pause of the portal's login alone does not help.
        return retry_after(max(asked, PERSON_SECONDS))
    return retry_after(asked or failure.wait)

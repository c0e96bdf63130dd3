"""The specified errors of failed submissions and cancellations, with a code for programs."""

import math
from collections.abc import Sequence
from datetime import timedelta

from service.documents import states
from service.errors import BadRequest, make_reason, retry_after
from service.json_types import JsonObject
from service.submission.machine.types import Error

#: Errors that a record shows of a submission of which nothing reached the portal.
MOST_ERRORS = 20
#: Seconds of Retry-After where the operator or the company has to act first.
PERSON_SECONDS = 300


#: Code of a failed submission or cancellation -> the usual seconds of Retry-After. None: the same
#: request fails again.
FAILURES: dict[str, int | None] = {
    "check_failed": None,
    "document_rejected": None,
    "portal_unavailable": 30,
    "portal_credentials_refused": PERSON_SECONDS,
    "not_received": 1,
    "outcome_unknown": 10,
    "manual_review": PERSON_SECONDS,
    "sending_held": 60,
    "number_at_portal": PERSON_SECONDS,
    "tin_not_verified": PERSON_SECONDS,
    "cancellation_failed": PERSON_SECONDS,
}
#: States of a submission in which a document that is not with the portal was refused by it.
REFUSED_BY_PORTAL: set[states.SubmissionState] = {"Accepted", "Finished", "Refused"}
#: Code of the first error of a submission that the portal did not receive -> code of the failure.
_NOT_RECEIVED = {
    "PortalCredentials": "portal_credentials_refused",
    "NotReceived": "not_received",
    "SendingHeld": "sending_held",
}
#: Codes of the first error of a queued submission that may have been received. "": no error.
_UNCLEAR = {"", "OutcomeUnknown"}


def refuse_submission(
    code: str, errors: Sequence[Error], wait: timedelta | None = None
) -> BadRequest:
    """Return the specified error of a failed submission. `errors` are the reasons. Spec: Errors

    `wait` is the time that the portal asks to wait, if it gave one.
    """
    return BadRequest(
        states.SUBMIT_FAILED,
        _headers(code, wait),
        code=code,
        retryable=FAILURES[code] is not None,
        errors=errors,
    )


def refuse_note() -> BadRequest:
    """Return the specified error of a note whose invoice is not Valid. Spec: Errors

    Its reason is the portal's error for such a note. Portal: 14.7
    """
    message = states.NOTE_WITHOUT_VALID_INVOICE
    errors = [make_reason("DR303", message, "/targetInvoiceType")]
    return BadRequest(message, code="invoice_not_valid", retryable=False, errors=errors)


def refuse_cancellation(code: str, wait: timedelta | None = None) -> BadRequest:
    """Return the specified error of a failed cancellation. Spec: Errors

    A repetition tries again, or joins the running cancellation. The body has no `retryable`.
    `wait` is the time that the portal asks to wait, if it gave one.
    """
    error = BadRequest(states.CANCEL_FAILED, _headers(code, wait), code=code)
    error.retryable = True
    return error


def name_failure(state: states.SubmissionState, errors: Sequence[Error]) -> str:
    """Return the code of a submission that has failed, or that has no outcome yet, by its state."""
    if state in REFUSED_BY_PORTAL:
        return "document_rejected"
    first = errors[0]["code"] if errors else ""
    if state == "NotReceived" or (state == "Queued" and first not in _UNCLEAR):
        return _NOT_RECEIVED.get(first, "portal_unavailable")
    return "manual_review" if state == "NeedsPerson" else "outcome_unknown"


def describe_not_sent(code: str, errors: Sequence[Error]) -> JsonObject:
    """Return what the record and the event show of a submission that did not reach the portal.

    The patches of errors belong to preflight, which shows all errors.
    """
    shown = [
        {name: member for name, member in error.items() if name != "patch"}
        for error in errors[:MOST_ERRORS]
    ]
    return {
        "code": code,
        "retryable": FAILURES.get(code) is not None,
        "codes": list(dict.fromkeys(error["code"] for error in shown)),
        "errors": shown,
    }


def _headers(code: str, wait: timedelta | None) -> dict[str, str] | None:
    usual = FAILURES[code]
    if usual is None:
        return None
    asked = math.ceil(wait.total_seconds()) if wait else 0
    if usual == PERSON_SECONDS:  # The pause of the portal's login alone does not help.
        return retry_after(max(asked, PERSON_SECONDS))
    return retry_after(asked or usual)

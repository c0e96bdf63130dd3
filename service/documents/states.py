"""States and transitions of documents and submissions, and the requests that each state refuses."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal

from service import json_codec
from service.json_types import JsonObject

CANCEL_WINDOW = timedelta(hours=72)  # Spec: Limits; exactly 72 hours is still allowed
ISSUE_WINDOW = timedelta(hours=72)  # age of a document when it is sent. Portal: 7.2

#: Status of an invoice, a note or a consolidated invoice.
DocumentStatus = Literal["Draft", "Submitting", "Submitted", "Valid", "Invalid", "Cancelled"]
#: Status -> next statuses.
DOCUMENT_TRANSITIONS: dict[DocumentStatus, set[DocumentStatus]] = {
    "Draft": {"Submitting"},
    "Submitting": {"Submitted", "Draft"},
    "Submitted": {"Valid", "Invalid", "Cancelled"},
    "Valid": {"Cancelled"},
    "Invalid": {"Submitting"},
    "Cancelled": {"Submitting"},
}
#: Statuses in which is_submitted_to_portal is true and nothing can be changed.
LOCKED: set[DocumentStatus] = {"Submitting", "Submitted", "Valid"}

#: Status of a submitted document.
SubmittedStatus = Literal[
    "Submitting", "Submitted", "Valid", "Invalid", "Cancelled", "Rejected", "NotSent"
]
#: Status -> next statuses. A status without any is final.
SUBMITTED_TRANSITIONS: dict[SubmittedStatus, set[SubmittedStatus]] = {
    "Submitting": {"Submitted", "Rejected", "NotSent"},
    "Submitted": {"Valid", "Invalid", "Cancelled"},
    "Valid": {"Cancelled"},
    "Invalid": set(),
    "Cancelled": set(),
    "Rejected": set(),
    "NotSent": set(),
}
FINAL = {status for status, moves in SUBMITTED_TRANSITIONS.items() if not moves}

#: State of a submission, one request to the portal.
SubmissionState = Literal[
    "Queued",
    "Merged",
    "Sending",
    "Uncertain",
    "Accepted",
    "Finished",
    "Split",
    "Refused",
    "NotReceived",
    "NeedsPerson",
]
#: State -> next states.
SUBMISSION_TRANSITIONS: dict[SubmissionState, set[SubmissionState]] = {
    "Queued": {"Sending", "Merged", "Uncertain", "NotReceived", "NeedsPerson"},
    "Merged": set(),
    "Sending": {
        "Queued",
        "Uncertain",
        "Accepted",
        "Split",
        "Refused",
        "NotReceived",
        "NeedsPerson",
    },
    "Uncertain": {"Accepted", "Queued", "Split", "Refused", "NotReceived", "NeedsPerson"},
    "Accepted": {"Finished", "NeedsPerson"},
    "Finished": set(),
    "Split": set(),
    "Refused": set(),
    "NotReceived": set(),
    "NeedsPerson": {"Accepted", "NotReceived"},  # manual resolution
}

#: Status of the latest submitted document -> status of its document.
DOCUMENT_STATUSES: dict[SubmittedStatus, DocumentStatus] = {
    status: "Draft" if status in ("Rejected", "NotSent") else status
    for status in SUBMITTED_TRANSITIONS
}

#: Type of an invoice that waits for its other party -> (its final type, the member of that party).
PENDING_FINALIZE = {
    "PENDING_FINALIZE_INVOICE": ("INVOICE", "buyer"),
    "PENDING_FINALIZE_SELF_BILLED_INVOICE": ("SELF_BILLED_INVOICE", "supplier"),
}

SUBMIT_FAILED = "Failed to submit, please try again"
SUBMITTED = "The {noun} has been submitted to the portal."
ALREADY_SUBMITTED = "The {noun} has already been submitted to the portal."
#: The error for a cancelled document that has not changed since.
ALREADY_CANCELLED = {
    "code": "already_cancelled",
    "message": "The {noun} has been cancelled and has not changed since. To issue it once more, "
    'change it, or submit it with {{"resubmit": true}}.',
}
NOTE_WITHOUT_VALID_INVOICE = (
    "Only invoice with status Valid can have adjustment note submitted to the portal"
)
NOTE_TOO_HIGH = "The note exceeds the invoice's remaining amount of {amount}."
DEBIT_NOTE_USED = (
    "Credit or refund notes have used the amount of this debit note. Cancel them first."
)


def describe_locked(noun: str, done: str) -> str:
    """Return the message for a submitted document that cannot be "updated" or "deleted".

    Spec: Errors
    """
    return (
        f"A submitted {noun} cannot be {done}, please cancel first and try again. "
        "A submitted document can only be cancelled within 72 hours after submission"
    )


#: Refusals to cancel the latest submitted document, as (condition, code); the first
#: condition that is true applies. `doc` is its row with status and submitted_at, or None; `now` is
#: the time of the database.
CANCEL_REFUSALS: tuple[tuple[Callable[[Any, datetime], bool], str], ...] = (
    (lambda doc, now: doc is None, "not_submitted"),
    (lambda doc, now: doc["status"] in FINAL, "already_final"),
    (lambda doc, now: now - doc["submitted_at"] > CANCEL_WINDOW, "cancellation_period_over"),
)
#: Texts that the specification fixes. Spec: Errors
_MESSAGES: JsonObject = json_codec.load_data(__file__)
#: Noun -> the messages of CANCEL_REFUSALS, including "invali."; those of consolidated invoices
#: follow the same pattern.
CANCEL_MESSAGES: dict[str, dict[str, str]] = _MESSAGES["cancel_messages"]

#: Refusals to create a note for an invoice, as (condition, code); the first condition that is
#: true applies. `doc` is the row of the invoice's latest submitted document, or None. A document
#: that is being cancelled counts as not valid, so that no note is created meanwhile. Spec: Errors
NOTE_REFUSALS: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (lambda doc: doc is None, "not_submitted"),
    (lambda doc: doc["status"] != "Valid" or bool(doc["cancelling_until"]), "not_valid"),
)
#: The messages of NOTE_REFUSALS.
NOTE_MESSAGES: dict[str, str] = _MESSAGES["note_messages"]

CANCEL_FAILED = "Cancellation failed, please try again."
#: The portal's code for a refused cancellation -> message.
CANCEL_CODES: dict[str, str] = _MESSAGES["cancel_codes"]

#: The error for a TIN that was changed over the API and that the operator has not confirmed yet.
TIN_NOT_VERIFIED = {
    "code": "tin_not_verified",
    "path": "/company/tin_code",
    "message": "The TIN of the company is not verified yet; "
    "the operator of the service must confirm it.",
}


def find_refusal(table: Iterable[tuple[Callable[..., object], str]], *facts: object) -> str | None:
    """Return the text of the first row whose condition is true for the facts, or None."""
    return next((text for applies, text in table if applies(*facts)), None)

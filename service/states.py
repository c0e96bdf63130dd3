"""The states of documents and submissions, their moves, and what each state refuses. Tables, no I/O, no clock."""

from datetime import timedelta

CANCEL_WINDOW = timedelta(hours=72)  # Spec: Limits; exactly 72 hours is still allowed
ISSUE_WINDOW = timedelta(hours=72)  # age of a document when it is sent. Portal: 7.2

#: invoice or note: status -> statuses it may move to.
SUBJECT_MOVES = {
    "Draft": {"Submitting"},
    "Submitting": {"Submitted", "Draft"},
    "Submitted": {"Valid", "Invalid", "Cancelled"},
    "Valid": {"Cancelled"},
    "Invalid": {"Submitting"},
    "Cancelled": {"Submitting"},
}
#: is_submitted_to_portal is true, and nothing may be changed.
LOCKED = {"Submitting", "Submitted", "Valid"}

#: submitted document: status -> statuses it may move to. An empty set is final.
DOCUMENT_MOVES = {
    "Submitting": {"Submitted", "Rejected"},
    "Submitted": {"Valid", "Invalid", "Cancelled"},
    "Valid": {"Cancelled"},
    "Invalid": set(),
    "Cancelled": set(),
    "Rejected": set(),
}
FINAL = {status for status, moves in DOCUMENT_MOVES.items() if not moves}

#: submission, one call to the portal: state -> states it may move to.
SUBMISSION_MOVES = {
    "Queued": {"Sending", "NotReceived", "NeedsPerson"},
    "Sending": {"Queued", "Uncertain", "Accepted", "Refused", "NotReceived", "NeedsPerson"},
    "Uncertain": {"Accepted", "Queued", "NotReceived", "NeedsPerson"},
    "Accepted": {"Finished", "NeedsPerson"},
    "Finished": set(),
    "Refused": set(),
    "NotReceived": set(),
    "NeedsPerson": set(),
}

#: What an invoice becomes when its latest submitted document has become this.
SUBJECT_OF_DOCUMENT = {
    "Submitting": "Submitting",
    "Submitted": "Submitted",
    "Valid": "Valid",
    "Invalid": "Invalid",
    "Cancelled": "Cancelled",
    "Rejected": "Draft",
}

PENDING_FINALIZE = {"PENDING_FINALIZE_INVOICE", "PENDING_FINALIZE_SELF_BILLED_INVOICE"}
SELF_BILLED = {"SELF_BILLED_INVOICE", "PENDING_FINALIZE_SELF_BILLED_INVOICE"}

#: type of an invoice or note -> the portal's document type, and of its self-billed kind. Portal: 9
DOCUMENT_TYPES = {
    "INVOICE": "01",
    "CREDIT_NOTE": "02",
    "DEBIT_NOTE": "03",
    "REFUND_NOTE": "04",
    "SELF_BILLED_INVOICE": "11",
}

SUBMIT_FAILED = "Failed to submit, please try again"
SUBMITTED = "The invoice has been submitted to the portal."
ALREADY_SUBMITTED = "The invoice has already been submitted to the portal."

_CANCEL_FIRST = (
    "A submitted invoice cannot be {}, please cancel first and try again. "
    "A submitted document can only be cancelled within 72 hours after submission"
)
DELETE_REFUSED = _CANCEL_FIRST.format("deleted")
UPDATE_REFUSED = _CANCEL_FIRST.format("updated")

#: cancelling the latest submitted document of an invoice: the first row that holds refuses. Spec: Errors.
#: `doc` has status and submitted_at; now - submitted_at is by the database's clock.
CANCEL_REFUSALS = (
    (
        lambda doc, now: doc is None,
        "The invoice does not have any submitted document.",
    ),
    (
        lambda doc, now: doc["status"] in FINAL,
        "The latest submitted document of the invoice has already been cancelled/invali.",
    ),
    (
        lambda doc, now: now - doc["submitted_at"] > CANCEL_WINDOW,
        "The latest submitted document of the invoice has been submitted more than 72 hours ago. "
        "Submitted documents can only be cancelled within 72 hours.",
    ),
)

#: creating an adjustment note against an invoice: the first row that holds refuses. Spec: Errors.
#: A document whose cancellation is under way counts as no longer valid: no note comes between.
NOTE_REFUSALS = (
    (
        lambda doc: doc is None,
        "The invoice has not been submitted.",
    ),
    (
        lambda doc: doc["status"] != "Valid" or doc["cancelling_until"],
        "The invoice has been submitted but not yet being validated by the tax authority "
        "or latest submission result status is not valid.",
    ),
)

CANCEL_FAILED = "Cancellation failed, please try again."
#: the authority's code for a refused cancellation -> its message. Spec: Errors.
CANCEL_CODES = {
    "OperationPeriodOver": "Document status can't be changed after limit time exceeded",
    "IncorrectState": "Document status has already been rejected or invalid",
    "ActiveReferencingDocuments": "Document is currently being referenced by another document",
}


def refusal(table, *facts):
    """The message of the first row of a refusal table that holds for the facts, or None."""
    return next((message for holds, message in table if holds(*facts)), None)

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
    "Uncertain": {"Accepted", "Queued", "Refused", "NotReceived", "NeedsPerson"},
    "Accepted": {"Finished", "NeedsPerson"},
    "Finished": set(),
    "Split": set(),
    "Refused": set(),
    "NotReceived": set(),
    "NeedsPerson": {"Accepted", "NotReceived"},  # by a person
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

#: type of an invoice that waits for its other party -> (its type once it is final, the member that
#: the party becomes)
PENDING_FINALIZE = {
    "PENDING_FINALIZE_INVOICE": ("INVOICE", "buyer"),
    "PENDING_FINALIZE_SELF_BILLED_INVOICE": ("SELF_BILLED_INVOICE", "supplier"),
}

SUBMIT_FAILED = "Failed to submit, please try again"
SUBMITTED = "The {noun} has been submitted to the portal."
ALREADY_SUBMITTED = "The {noun} has already been submitted to the portal."
NOTE_WITHOUT_VALID_INVOICE = (
    "Only invoice with status Valid can have adjustment note submitted to the portal"
)

_CANCEL_FIRST = (
    "A submitted {noun} cannot be {done}, please cancel first and try again. "
    "A submitted document can only be cancelled within 72 hours after submission"
)


def locked_refusal(noun, done):
    """Why a submitted document of this noun cannot be `done`: updated or deleted. Spec: Errors"""
    return _CANCEL_FIRST.format(noun=noun, done=done)


#: cancelling the latest submitted document: the first row that holds refuses, with the message of
#: its name.
#: `doc` has status and submitted_at; now - submitted_at is by the database's clock.
CANCEL_REFUSALS = (
    (lambda doc, now: doc is None, "none"),
    (lambda doc, now: doc["status"] in FINAL, "closed"),
    (lambda doc, now: now - doc["submitted_at"] > CANCEL_WINDOW, "late"),
)
_LATE = (
    "The latest submitted document of the {noun} has been submitted more than 72 hours ago. "
    "Submitted documents can only be cancelled within 72 hours."
)
#: noun -> the messages of CANCEL_REFUSALS. Spec: Errors, to the letter; consolidated invoices after
#: their pattern.
CANCEL_MESSAGES = {
    "invoice": {
        "none": "The invoice does not have any submitted document.",
        "closed": "The latest submitted document of the invoice has already been cancelled/invali.",
        "late": _LATE.format(noun="invoice"),
    },
    "adjustment note": {
        "none": "The latest submitted document of the adjustment note not found.",
        "closed": "The latest submitted document of the adjustment note has already been cancelled/invalid.",
        "late": _LATE.format(noun="adjustment note"),
    },
    "consolidated invoice": {
        "none": "The consolidated invoice does not have any submitted document.",
        "closed": "The latest submitted document of the consolidated invoice has already been cancelled/invalid.",
        "late": _LATE.format(noun="consolidated invoice"),
    },
}

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

#: A TIN that was changed over the API is not used before the operator has confirmed it. `path` is
#: that of preflight.
TIN_NOT_VERIFIED = {
    "code": "tin_not_verified",
    "path": "/company/tin_code",
    "message": "The TIN of the company is not verified yet. The operator of the service has to confirm it.",
}


def refusal(table, *facts):
    """The message of the first row of a refusal table that holds for the facts, or None."""
    return next((message for holds, message in table if holds(*facts)), None)

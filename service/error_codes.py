"""The table of the codes in error bodies, with what a client can do about each."""

from typing import NamedTuple


class ErrorCode(NamedTuple):
    """A row of the table of codes: the statuses of its responses, its meaning, and the remedy."""

    status: str
    meaning: str
    remedy: str


#: Every `code` of an error body. docs/errors.md is generated from it. The codes of a cancellation
#: that the authority refuses are the authority's own.
CODES: dict[str, ErrorCode] = {
    "validation_failed": ErrorCode(
        "422, 400", "The body or the query is invalid.", "Correct what `errors` lists."
    ),
    "code_taken": ErrorCode(
        "422", "Another document of this kind has the code.", "Choose another code."
    ),
    "reference_taken": ErrorCode(
        "422",
        "Another document of the company has the `reference`.",
        "The document may have been created by an earlier request: look it up by its reference.",
    ),
    "bad_request": ErrorCode("400", "The HTTP request is malformed.", "Correct the request."),
    "invalid_json": ErrorCode("400", "The body is not valid JSON.", "Correct the body."),
    "key_in_url": ErrorCode(
        "400", "The URL contains an API key.", "Send the key in its header, and replace the key."
    ),
    "idempotency_key_invalid": ErrorCode(
        "400", "The `Idempotency-Key` is too long or not printable.", "Choose another one."
    ),
    "idempotency_key_reused": ErrorCode(
        "422", "The `Idempotency-Key` was sent with another body.", "Choose a new one."
    ),
    "idempotency_key_running": ErrorCode(
        "409", "A request with the same `Idempotency-Key` is running.", "Repeat it later."
    ),
    "forbidden": ErrorCode("403", "The request is not allowed.", "See the message."),
    "not_found": ErrorCode("404", "There is no such record.", "Check the id."),
    "endpoint_not_found": ErrorCode("404", "There is no such endpoint.", "Check the path."),
    "method_not_allowed": ErrorCode(
        "405", "The endpoint does not have the method.", "Use a method of the header `Allow`."
    ),
    "request_timeout": ErrorCode("408", "The body did not arrive in time.", "Repeat the request."),
    "conflict": ErrorCode("409", "The state forbids the operation.", "See the message."),
    "precondition_failed": ErrorCode(
        "412", "The record has changed since it was read.", "Read it again."
    ),
    "request_too_large": ErrorCode("413", "The body exceeds the limit.", "Send a smaller body."),
    "unsupported_media_type": ErrorCode(
        "415", "The content type or the encoding is not supported.", "Send JSON, not compressed."
    ),
    "expectation_failed": ErrorCode(
        "417", "The header `Expect` is not supported.", "Leave it out."
    ),
    "rate_limited": ErrorCode(
        "429", "Too many requests.", "Wait for the seconds of `Retry-After`."
    ),
    "internal_error": ErrorCode(
        "500", "An error of the service.", "Report the `X-Request-Id` to the operator."
    ),
    "unavailable": ErrorCode(
        "503",
        "PostgreSQL is unavailable. A write may have been applied.",
        "Repeat the request, with its `Idempotency-Key`.",
    ),
    "busy": ErrorCode("503", "The service has too many requests in progress.", "Repeat it later."),
    "http_version_not_supported": ErrorCode(
        "505", "The HTTP version is not supported.", "Use HTTP/1.1."
    ),
    "check_failed": ErrorCode(
        "400",
        "A check of the service found an error before sending; nothing was sent.",
        "Correct what `errors` lists, and submit again.",
    ),
    "document_rejected": ErrorCode(
        "400",
        "The portal rejected the document.",
        "Correct what `errors` lists, and submit again.",
    ),
    "portal_unavailable": ErrorCode(
        "400, 503",
        "The portal did not receive the request.",
        "Repeat it after the seconds of `Retry-After`.",
    ),
    "portal_credentials_refused": ErrorCode(
        "400, 503",
        "The portal rejects the login of the service, or does not permit it the request.",
        "Contact the operator.",
    ),
    "not_received": ErrorCode("400", "The portal never received the document.", "Submit it again."),
    "outcome_unknown": ErrorCode(
        "400",
        "The portal gave no clear response. The service finds out what happened.",
        "Repeat the request to wait for the result. Nothing is sent twice.",
    ),
    "manual_review": ErrorCode(
        "400",
        "The outcome could not be found automatically, and needs manual review.",
        "Contact the operator.",
    ),
    "sending_held": ErrorCode(
        "400",
        "Sending is held after a restore or a failover, or pauses for a minute after a standby of "
        "the database has changed; nothing was sent.",
        "Repeat the request later.",
    ),
    "number_at_portal": ErrorCode(
        "400",
        "The portal has an unknown document with this number; nothing was sent.",
        "Contact the operator.",
    ),
    "tin_not_verified": ErrorCode(
        "400", "The operator has not verified the company's TIN.", "Contact the operator."
    ),
    "invoice_not_valid": ErrorCode(
        "400", "The invoice of the note is not Valid.", "Wait until the invoice is Valid."
    ),
    "cancellation_failed": ErrorCode(
        "400", "The portal did not cancel the document.", "Repeat the request."
    ),
    "still_submitting": ErrorCode(
        "409", "The outcome of the submission is not known yet.", "Repeat the request later."
    ),
    "already_submitted": ErrorCode(
        "403", "The document is submitted, and cannot be changed.", "Cancel it first."
    ),
    "already_cancelled": ErrorCode(
        "409",
        "The document was cancelled and has not changed since.",
        'Change it, or submit it with `{"resubmit": true}`.',
    ),
    "already_final": ErrorCode(
        "403", "The latest submitted document is Cancelled or Invalid.", "Nothing to do."
    ),
    "not_submitted": ErrorCode("403", "The document was never submitted.", "Submit it first."),
    "not_valid": ErrorCode(
        "403", "The latest submitted document is not Valid.", "Wait until it is Valid."
    ),
    "cancellation_period_over": ErrorCode(
        "403", "The document was submitted more than 72 hours ago.", "Issue an adjustment note."
    ),
    "in_consolidated_invoice": ErrorCode(
        "409",
        "The invoice is part of a consolidated invoice.",
        "Delete or cancel the consolidated invoice first.",
    ),
    "ambiguous_code": ErrorCode(
        "409", "Several invoices have the code of the request.", "Update the invoice itself."
    ),
    "invoice_has_buyer": ErrorCode(
        "409",
        "The invoice already has the buyer of another request.",
        "Update the invoice itself.",
    ),
    "tin_taken": ErrorCode("409", "Another company uses the TIN.", "Contact the operator."),
    "tin_in_use": ErrorCode(
        "409", "Documents are being submitted under the present TIN.", "Repeat the request later."
    ),
    "tin_unknown": ErrorCode("404", "The portal does not know the TIN.", "Check the numbers."),
    "tin_refused": ErrorCode("400", "The portal rejects the numbers.", "Check the numbers."),
    "email_taken": ErrorCode("409", "Another user has the e-mail address.", "Use another one."),
    "too_many_links": ErrorCode(
        "409", "The document has the maximum number of links.", "Revoke one."
    ),
    "not_pending": ErrorCode(
        "409", "The invoice does not wait for its buyer.", "Use the purpose `view`."
    ),
    "too_many_webhooks": ErrorCode(
        "409", "The company has the maximum number of webhooks.", "Delete one."
    ),
    "webhook_disabled": ErrorCode("409", "The webhook is disabled.", "Enable it first."),
    "encryption_not_configured": ErrorCode(
        "409", "The service has no `SECRET_KEY` to encrypt secrets with.", "Contact the operator."
    ),
}

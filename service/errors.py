"""Every refusal the API can answer, and what the breach of a constraint means. Imports nothing of ours."""

import traceback

STILL_RUNNING = "A request with this Idempotency-Key is still running."


class ApiError(Exception):
    """A refusal. `message` is for a person; `more` holds further members of the body; `headers` go along."""

    status = 500

    def __init__(self, message, headers=None, **more):
        super().__init__(message)
        self.message = message
        self.headers = headers or {}
        self.more = more
        #: The same request may succeed later: the answer is not stored for its Idempotency-Key.
        self.retryable = bool(more.get("retryable", False))

    @property
    def body(self):
        return {"message": self.message, **self.more}


class BadRequest(ApiError):
    status = 400


class Unauthorized(ApiError):
    status = 401


class Forbidden(ApiError):
    status = 403


class NotFound(ApiError):
    status = 404


class UnknownTin(NotFound):
    """The portal's own error body, given on: `error` has type, title, status, traceId. Spec: Errors"""

    @property
    def body(self):
        return self.more


class RequestTimeout(ApiError):
    status = 408


class Conflict(ApiError):
    status = 409


class ClaimLost(Conflict):
    """The request's Idempotency-Key was taken over by a repetition. Raised in a transaction, it undoes the effect."""

    def __init__(self) -> None:
        super().__init__(STILL_RUNNING)


class PreconditionFailed(ApiError):
    status = 412


class TooLarge(ApiError):
    status = 413


class UnsupportedMediaType(ApiError):
    status = 415


class ExpectationFailed(ApiError):
    status = 417


class ValidationError(ApiError):
    """A body or a query that breaks its schema or a rule: `errors` is a list of {path, rule, message}."""

    status = 422

    def __init__(self, errors, message=None):
        super().__init__(message or _summary(errors), errors=errors)


class KeyReused(ApiError):
    """An Idempotency-Key that came before with another body: a 422 on every surface, which Invalid is not."""

    status = 422


class TooManyRequests(ApiError):
    status = 429


class Unavailable(ApiError):
    """Something we need is away for a moment; the client may repeat the request."""

    status = 503


class VersionNotSupported(ApiError):
    status = 505


def violation(path, rule, message):
    """One entry of `errors`: `path` is a JSON Pointer into the body, or a query parameter's name."""
    return {"path": path, "rule": rule, "message": message}


def describe_error(error):
    """What an error is called in a log. Messages of libraries and details of PostgreSQL quote what was sent."""
    named = (
        type(error).__name__,
        getattr(error, "sqlstate", None),
        getattr(error, "constraint_name", None),
    )
    return " ".join(name for name in named if name)


def format_traceback(error):
    """Where an error comes from, for a log: kinds and places, the first cause first."""
    told = []
    while error is not None:
        told.insert(0, "".join([*traceback.format_tb(error.__traceback__), describe_error(error)]))
        error = error.__cause__ or error.__context__
    return "\n".join(told)


def retry_after(seconds):
    """The header that says when to come back: whole seconds, at least 1."""
    return {"Retry-After": str(max(1, seconds))}


def _summary(errors):
    first = errors[0]["message"]
    return first if len(errors) == 1 else f"{first} (and {len(errors) - 1} more, see errors)"


#: constraint -> the refusal that its violation means. A test checks that each constraint, or
#: trigger of that name, exists.
CONSTRAINTS = {
    "invoices_code_once_a_year": lambda: ValidationError(
        [violation("/code", "unique", "The code has already been used this year.")]
    ),
    "consolidated_invoices_code_once_a_year": lambda: ValidationError(
        [
            violation(
                "/code",
                "unique",
                "The code has already been used by a consolidated invoice this year.",
            )
        ]
    ),
    "adjustment_notes_code_once_a_type": lambda: ValidationError(
        [
            violation(
                "/adjustmentNoteCode",
                "unique",
                "The code has already been used by a note of this type.",
            )
        ]
    ),
    "integration_users_email_once": lambda: Conflict(
        "The e-mail address is already in use.",
        errors=[violation("/email", "unique", "The e-mail address is already in use.")],
    ),
    "companies_tin_once": lambda: Conflict(
        "This TIN is already used by another company. Ask the operator of the service if both should have it.",
        code="tin_taken",
    ),
}

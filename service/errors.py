"""The errors of operators and of the API, and the mapping of database constraints to the latter.

Imports no other module of the service but json_types.
"""

import csv
import math
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from service.json_types import JsonMapping, JsonObject

#: An entry of `errors` in the body of a response: path, rule and message.
Violation = dict[str, str]


def read_rows(path: Path) -> Iterable[dict[str, str]]:
    """Return the rows of a CSV file, by the names of its columns."""
    return csv.DictReader(path.read_text("utf-8").splitlines())


#: Every `code` of an error body -> {status, meaning, remedy}, of which `status` has all statuses.
#: docs/errors.md is generated from it. The codes of a cancellation that the authority refuses are
#: the authority's own.
CODES = {row.pop("code"): row for row in read_rows(Path(__file__).with_name("error_codes.csv"))}
STILL_RUNNING = "A request with this Idempotency-Key is still running."


class OperatorError(Exception):
    """An error that the operator can correct; its text is printed."""


class ApiError(Exception):
    """Base class of error responses.

    `message` is for people and `code`, of CODES, for programs; a class has a default code.
    `more` holds further members of the body, `headers` are sent with it.
    """

    status = 500
    code = "internal_error"

    def __init__(
        self,
        message: str,
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
        **more: object,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.headers: Mapping[str, str] = headers or {}
        self.code = self.code if code is None else code
        self.more: JsonObject = more
        #: The request may succeed later: the response is not stored for its Idempotency-Key.
        self.retryable = bool(more.get("retryable", False))

    @property
    def body(self) -> JsonObject:
        """The JSON body of the response."""
        return {"message": self.message, "code": self.code, **self.more}


class BadRequest(ApiError):
    status = 400
    code = "bad_request"


class Unauthorized(ApiError):
    """A request without a valid key. Its body has only the message. Spec: Authentication"""

    status = 401

    @property
    def body(self) -> JsonObject:
        """The specified body."""
        return {"message": self.message}


class Forbidden(ApiError):
    status = 403
    code = "forbidden"


class NotFound(ApiError):
    status = 404
    code = "not_found"


class UnknownTin(NotFound):
    """Forwards the portal's error body, whose `error` has type, title, status and traceId.

    Spec: Errors
    """

    code = "tin_unknown"

    @property
    def body(self) -> JsonObject:
        """The portal's error body, and the code."""
        return {**self.more, "code": self.code}


class RequestTimeout(ApiError):
    status = 408
    code = "request_timeout"


class Conflict(ApiError):
    status = 409
    code = "conflict"


class ClaimLost(Conflict):
    """Another request with the same Idempotency-Key was faster.

    Raised inside the transaction of the effect, which is rolled back.
    """

    code = "idempotency_key_running"

    def __init__(self) -> None:
        super().__init__(STILL_RUNNING)


class PreconditionFailed(ApiError):
    status = 412
    code = "precondition_failed"


class TooLarge(ApiError):
    status = 413
    code = "request_too_large"


class UnsupportedMediaType(ApiError):
    status = 415
    code = "unsupported_media_type"


class ExpectationFailed(ApiError):
    status = 417
    code = "expectation_failed"


#: Violations of a response.
MAX_VIOLATIONS = 50


class ValidationError(ApiError):
    """A body or a query violates its schema or a rule. `errors` has the first MAX_VIOLATIONS."""

    status = 422
    code = "validation_failed"

    def __init__(
        self, errors: Sequence[Violation], message: str | None = None, code: str | None = None
    ) -> None:
        errors = errors[:MAX_VIOLATIONS]
        super().__init__(message or _summarize(errors), code=code, errors=errors)


def reject(violations: Sequence[Violation]) -> None:
    """Raise ValidationError if there are violations."""
    if violations:
        raise ValidationError(violations)


class KeyReused(ApiError):
    """An Idempotency-Key was used before with another body.

    A 422 on every surface. A ValidationError is a 400 on the integration surface.
    """

    status = 422
    code = "idempotency_key_reused"


class TooManyRequests(ApiError):
    status = 429
    code = "rate_limited"


class Unavailable(ApiError):
    """PostgreSQL, the portal or capacity is unavailable for the moment. The client may retry."""

    status = 503
    code = "unavailable"


class Busy(Unavailable):
    """The service has too many requests in progress."""

    code = "busy"


class VersionNotSupported(ApiError):
    status = 505
    code = "http_version_not_supported"


def make_reason(code: str, message: str, path: str = "") -> JsonObject:
    """Return a reason why a document was not sent or not accepted, as stored and shown.

    `path` leads to the member of the request body.
    """
    return {"code": code, "path": path, "message": message}


def violation(path: str, rule: str, message: str) -> Violation:
    """Return an entry of `errors`.

    `path` is a JSON Pointer into the body, or the name of a query parameter.
    """
    return {"path": path, "rule": rule, "message": message}


def describe_error(error: BaseException) -> str:
    """Return the class of an error, its SQLSTATE and its constraint, for a log.

    Leaves out the message: messages of libraries and details of PostgreSQL quote client data.
    """
    names = (
        type(error).__name__,
        getattr(error, "sqlstate", None),
        getattr(error, "constraint_name", None),
    )
    return " ".join(name for name in names if name)


def find_message(module: str, error: BaseException, text: str, facts: JsonMapping) -> str:
    """Return the message about an error from the CSV file next to a module, which has its name.

    A row has the class of an `error`, a `pattern` of its text and a `message`, which can contain
    facts and groups of the pattern. The first row that fits counts.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    found = (
        row["message"].format(**facts, **match.groupdict())
        for row in read_rows(Path(module).with_suffix(".csv"))
        if row["error"] in kinds and (match := re.search(row["pattern"], text))
    )
    return next(found)


def format_traceback(error: BaseException) -> str:
    """Return the tracebacks of an error and its causes for a log, the first cause first.

    Contains classes and source locations, but no messages (see describe_error).
    """
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        parts.insert(0, "".join([*traceback.format_tb(cause.__traceback__), describe_error(cause)]))
        cause = cause.__cause__ or cause.__context__
    return "\n".join(parts)


def retry_after(wait: timedelta | int) -> dict[str, str]:
    """Return the Retry-After header for a time or a number of seconds, at least 1."""
    seconds = math.ceil(wait.total_seconds()) if isinstance(wait, timedelta) else wait
    return {"Retry-After": str(max(1, seconds))}


def _summarize(errors: Sequence[Violation]) -> str:
    first = errors[0]["message"]
    return first if len(errors) == 1 else f"{first} (and {len(errors) - 1} more, see errors)"


def _taken(row: Mapping[str, str]) -> ApiError:
    """Return the error for a value that another record has."""
    path, message, code = row["path"], row["message"], row["code"]
    errors = [violation(path, "unique", message)]
    if row["status"] == "422":
        return ValidationError(errors, code=code)
    return Conflict(message, code=code, errors=errors) if path else Conflict(message, code=code)


#: Name of a constraint, or of a trigger that raises in its name -> the error that a violation
#: means. A test checks that every name exists in the schema.
CONSTRAINTS: dict[str, Callable[[], ApiError]] = {
    row["constraint"]: partial(_taken, row)
    for row in read_rows(Path(__file__).with_name("constraints.csv"))
}

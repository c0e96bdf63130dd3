"""Exceptions of portal requests: the class says whether the portal received the request."""

from collections.abc import Iterable
from datetime import timedelta
from typing import TypedDict, Unpack

from service.json_types import Json
from service.portal.error_parsing import ErrorEntry, is_not_found


class Facts(TypedDict, total=False):
    """Facts that every error may have."""

    errors: Iterable[ErrorEntry]
    correlation_id: str | None


class PortalError(Exception):
    """A portal request that did not succeed.

    `reason` is a short message of the service; `errors` are the entries of the portal's error body.
    `own_client_id` is the client id of the company, or None if the operator's client was used.
    `code` is what clients see of it.
    """

    code: str | None = None

    def __init__(
        self, reason: str, *, errors: Iterable[ErrorEntry] = (), correlation_id: str | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.errors = list(errors)
        self.correlation_id = correlation_id
        self.own_client_id: str | None = None


class NotSent(PortalError):
    """The portal has certainly not received the request."""

    code = "PortalUnreachable"


class Unclear(PortalError):
    """The request was started and has no trustworthy response: the portal may have processed it.

    `evidence` holds the (number, uuid) pairs found in a damaged response to a submission.
    """

    code = "OutcomeUnknown"

    def __init__(
        self, reason: str, *, evidence: Iterable[tuple[str, str]] = (), **more: Unpack[Facts]
    ) -> None:
        super().__init__(reason, **more)
        self.evidence = list(evidence)


class TruncatedListing(Unclear):
    """A listing that may be truncated, because it has the portal's maximum number of rows."""


class _Later(PortalError):
    """A request that may be repeated after `retry_after`.

    `operation` names the operation that has to pause for all companies, or is None if only this
    request has to wait. With a company's own client, it is the one that pauses for this client.
    """

    def __init__(
        self,
        reason: str,
        *,
        retry_after: timedelta,
        operation: str | None = None,
        **more: Unpack[Facts],
    ) -> None:
        super().__init__(reason, **more)
        self.retry_after = retry_after
        self.operation = operation


class Throttled(_Later):
    """Too many requests; this one was not processed."""

    code = "TooManyRequests"


class Held(Throttled):
    """The request was not sent: the local rate limit is exhausted or a portal pause is in force."""


class Duplicate(_Later):
    """The portal received the same bytes before. Look up the earlier result. Portal: 1.7"""

    code = "DuplicateSubmission"


class Refused(PortalError):
    """The portal rejected the request.

    `code` is the portal's error code and `body` its JSON; both are None if there is none.
    """

    def __init__(
        self,
        reason: str,
        *,
        status: int,
        code: str | None = None,
        body: Json = None,
        **more: Unpack[Facts],
    ) -> None:
        super().__init__(reason, **more)
        self.status = status
        self.code = code
        self.body = body

    @property
    def is_missing(self) -> bool:
        """Return whether this is a 404 in one of the portal's own error formats.

        A 404 in another format may come from a gateway. Portal: 8.1, 8.2, 8.3
        """
        return self.status == 404 and is_not_found(self.body)


class LoginRefused(PortalError):
    """Credentials or permission were rejected. Repeating the login can lock the account.

    `retry_after` is the time until the next permitted login of the taxpayer, or None if unknown.
    `is_client`: the client itself was refused, for whichever taxpayer it logs in. Portal: 2.2
    """

    code = "PortalCredentials"

    def __init__(
        self,
        reason: str,
        *,
        retry_after: timedelta | None = None,
        is_client: bool = False,
        **more: Unpack[Facts],
    ) -> None:
        super().__init__(reason, **more)
        self.retry_after = retry_after
        self.is_client = is_client

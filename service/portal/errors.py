"""Exceptions of portal requests: the class says whether the portal received the request."""

from dataclasses import dataclass, field
from datetime import timedelta

from service.json_types import Json
from service.portal.parsing import ErrorEntry, is_not_found


@dataclass(eq=False, repr=False, kw_only=True)
class PortalError(Exception):
    """A portal request that did not succeed.

    `reason` is a short message of the service; `errors` are the entries of the portal's error body.
    `own_client_id` is the client id of the company, or None if the operator's client was used.
    `code` is what clients see of it.
    """

    reason: str = field(kw_only=False)
    errors: list[ErrorEntry] = field(default_factory=list[ErrorEntry])
    correlation_id: str | None = None
    own_client_id: str | None = None
    code: str | None = field(default=None, init=False)


class NotSent(PortalError):
    """The portal has certainly not received the request."""

    code = "PortalUnreachable"


@dataclass(eq=False, repr=False, kw_only=True)
class Unclear(PortalError):
    """The request was started and has no trustworthy response: the portal may have processed it.

    `evidence` holds the (number, uuid) pairs found in a damaged response to a submission.
    """

    code = "OutcomeUnknown"
    evidence: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class TruncatedListing(Unclear):
    """A listing that may be truncated, because it has the portal's maximum number of rows."""


@dataclass(eq=False, repr=False, kw_only=True)
class Throttled(PortalError):
    """Too many requests; this one was not processed, and may be repeated after `retry_after`.

    `operation` names the operation that has to pause for all companies, or is None if only this
    request has to wait. With a company's own client, it is the one that pauses for this client.
    """

    code = "TooManyRequests"
    retry_after: timedelta
    operation: str | None = None


class Held(Throttled):
    """The request was not sent: the local rate limit is exhausted or a portal pause is in force."""


class Duplicate(PortalError):
    """The portal received the same bytes before. Look up the earlier result. Portal: 1.7"""

    code = "DuplicateSubmission"


@dataclass(eq=False, repr=False, kw_only=True)
class Refused(PortalError):
    """The portal rejected the request.

    `code` is the portal's error code and `body` its JSON; both are None if there is none.
    """

    status: int
    code: str | None = None
    body: Json = None

    @property
    def is_missing(self) -> bool:
        """Return whether this is a 404 in one of the portal's own error formats.

        A 404 in another format may come from a gateway. Portal: 8.1, 8.2, 8.3
        """
        return self.status == 404 and is_not_found(self.body)


@dataclass(eq=False, repr=False, kw_only=True)
class LoginRefused(PortalError):
    """Credentials or permission were rejected. Repeating the login can lock the account.

    `retry_after` is the time until the next permitted login of the taxpayer, or None if unknown.
    `is_client`: the client itself was refused, for whichever taxpayer it logs in. Portal: 2.2
    """

    code = "PortalCredentials"
    retry_after: timedelta | None = None
    is_client: bool = False

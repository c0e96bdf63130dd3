"""What a call of the portal raises: one class for each thing that may have become of the request."""

from service.portal.error_parsing import is_not_found


class PortalError(Exception):
    """No success. `reason` is a short text of ours; `errors` are the portal's: [{code, path, message}]."""

    def __init__(self, reason, *, errors=(), correlation_id=None):
        super().__init__(reason)
        self.reason = reason
        self.errors = list(errors)
        self.correlation_id = correlation_id


class NotSent(PortalError):
    """The portal has certainly not received the request."""


class Unclear(PortalError):
    """The request was begun, and no answer that can be trusted came back: it may have been carried out.

    `evidence` is what a damaged answer to a submit still shows: [(number, uuid)].
    """

    def __init__(self, reason, *, evidence=(), **more):
        super().__init__(reason, **more)
        self.evidence = list(evidence)


class Crowded(Unclear):
    """A listing that may have been cut, because it has as many rows as the portal shows."""


class _Later(PortalError):
    """`retry_after` is a timedelta from now; `operation` is what has to wait, for whichever company; None: no more than this."""

    def __init__(self, reason, *, retry_after, operation=None, **more):
        super().__init__(reason, **more)
        self.retry_after = retry_after
        self.operation = operation


class Throttled(_Later):
    """Too many calls; this one was not carried out."""


class Held(Throttled):
    """We did not call: our own count says that it would be too many, or the portal has asked us to wait."""


class Duplicate(_Later):
    """The portal received the same bytes before: what was sent then must be looked up. Portal: 1.7"""


class Refused(PortalError):
    """The portal answered definitely that it will not. `code` is its own code, or None; `body` its JSON, or None."""

    def __init__(self, reason, *, status, code=None, body=None, **more):
        super().__init__(reason, **more)
        self.status = status
        self.code = code
        self.body = body

    @property
    def is_missing(self) -> bool:
        """Return whether the portal itself says that it does not have what was asked for: a 404 in a form of its own.

        A 404 in another form may be a gateway's. Portal: 8.1, 8.2, 8.3
        """
        return self.status == 404 and is_not_found(self.body)


class LoginRefused(PortalError):
    """Credentials or permission are refused; the request was not carried out. Repeating it can lock the account.

    `retry_after` is a timedelta until the next login for the taxpayer, or None when that is not known.
    """

    def __init__(self, reason, *, retry_after=None, **more):
        super().__init__(reason, **more)
        self.retry_after = retry_after

"""Test of new portal credentials, and the errors of a login that the portal refuses."""

import asyncio
import math

from service.errors import BadRequest, TooManyRequests, Unavailable, retry_after
from service.portal.errors import LoginRefused, PortalError, Throttled
from service.portal.logins import OwnClient
from service.submission.context import SubmissionContext
from service.submission.machine.types import NO_DELAY

#: Code of the errors of a refused login.
REFUSED_CODE = "portal_credentials_refused"
REFUSED = "The portal refuses the login with these credentials: {words} Nothing was changed."
NOT_TESTED = (
    "The portal cannot be reached, so the credentials could not be tested. Nothing was changed. "
    "Please try again later."
)
CROWDED = "The portal allows no further login at the moment. Please try again later."


async def check_login(context: SubmissionContext, own: OwnClient) -> None:
    """Log in to the portal with new credentials.

    Raises BadRequest if the portal refuses them, TooManyRequests, and Unavailable if it does not
    respond in time.
    """
    portal = context.shared_portal.for_company(own)
    try:
        async with asyncio.timeout(context.config.submit_wait.total_seconds()):
            await portal.log_in(own.tin)
    except LoginRefused as error:
        message = REFUSED.format(words=describe_refusal(error))
        wait = math.ceil((error.retry_after or NO_DELAY).total_seconds())
        raise BadRequest(message, retry_after(wait), code=REFUSED_CODE) from None
    except Throttled as error:
        await context.apply_throttle(error)
        wait = retry_after(math.ceil(error.retry_after.total_seconds()))
        raise TooManyRequests(CROWDED, wait) from None
    except (PortalError, TimeoutError):
        wait = retry_after(math.ceil(context.config.portal_retry.total_seconds()))
        raise Unavailable(NOT_TESTED, wait, code="portal_unavailable") from None


def describe_refusal(error: PortalError) -> str:
    """Return the portal's own words about a refusal, or else those of the client."""
    words = " ".join(entry["message"] for entry in error.errors if entry["message"])
    text = words or error.reason
    return text if text.endswith((".", "!", "?")) else f"{text}."

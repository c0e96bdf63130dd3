"""Whether the portal knows a TIN: asked once for all who wait for it, and what it confirms is kept for a while."""

import asyncio
import logging
import math
import secrets

from aiohttp import web

from service.db.statements import sql
from service.documents import states
from service.errors import BadRequest, TooManyRequests, Unavailable, UnknownTin, retry_after
from service.http.limits import RateLimiter
from service.portal.responses import PortalError, Refused, Throttled
from service.submission.runner import retry_delay

AWAY = "The portal cannot be asked at the moment, please try again."
SLOW_DOWN = "Too many TIN checks, please slow down."
BUSY = "The portal takes no more TIN checks for a moment, please try again later."

#: What stands in place of a member that the portal's 404 does not have; the trace id is made anew.
#: Portal: 3.1
NOT_FOUND = {
    "type": "https://tools.ietf.org/html/rfc9110#section-15.5.5",
    "title": "Not Found",
    "status": 404,
}

log = logging.getLogger(__name__)


class TinChecks:
    """The checks of one process."""

    def __init__(self, context):
        self._context = context
        self._limiter = RateLimiter(context.config.tin_checks_per_minute)
        # Question -> the task that asks the portal; its result is the refusal, or None
        self._flights = {}

    async def confirm(self, company, tin, id_type, id_value, key_id):
        """Return when the TIN belongs with the identifier; for a TIN alone, with `id_value` '', when the TIN exists.

        Raises UnknownTin, BadRequest with the portal's words or while the company's own TIN is not verified,
        TooManyRequests, and Unavailable when the portal gives no answer in time: then the question stays open in the
        background. Only a question that goes to the portal counts for the key's limit: not one that the cache answers,
        nor one that is being asked. Spec: Validations
        """
        question = {"company_id": company, "tin": tin, "id_type": id_type, "id_value": id_value}
        config = self._context.config
        async with self._context.database.reading(company) as conn:
            known = await sql.tin_check_get(conn, **question, keep=config.tin_cache)
        if not known["is_verified"]:
            raise _unverified()
        if known["is_confirmed"]:
            return
        if tuple(question.values()) not in self._flights and (wait := self._limiter.take(key_id)):
            raise TooManyRequests(SLOW_DOWN, retry_after(wait))
        flight = self._flight(question, known["own_tin"])
        done, _ = await asyncio.wait({flight}, timeout=config.submit_wait.total_seconds())
        if not done:
            raise self._away()
        if refusal := flight.result():
            raise refusal

    async def close(self):
        """Lets go of the questions that nobody waits for any more."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    def _flight(self, question, taxpayer):
        """The task that asks this question: the one under way, else a new one."""
        key = tuple(question.values())
        if key not in self._flights:
            task = self._flights[key] = asyncio.create_task(self._ask(question, taxpayer))
            task.add_done_callback(lambda _: self._flights.pop(key))
        return self._flights[key]

    async def _ask(self, question, taxpayer):
        """Asks the portal on behalf of the company, and keeps a yes."""
        context, company = self._context, question["company_id"]
        try:
            await context.portal.validate_tin(
                question["tin"], question["id_type"], question["id_value"], taxpayer=taxpayer
            )
        except PortalError as why:
            await context.apply_throttle(why, "validate_tin")
            return self._refusal(why)
        async with context.database.company(company) as conn:
            await sql.tin_check_keep(conn, **question, keep=context.config.tin_cache)
        return None

    def _refusal(self, why):
        """The answer that a failure of the call means."""
        if isinstance(why, Throttled):
            return TooManyRequests(BUSY, retry_after(math.ceil(why.retry_after.total_seconds())))
        if isinstance(why, Refused) and why.status == 404:
            return UnknownTin(why.reason, error=problem(why.body, why.correlation_id))
        if isinstance(why, Refused) and why.status == 400:
            said = [entry["message"] for entry in why.errors if entry["message"]]
            return BadRequest(" ".join(said) or why.reason)
        log.warning("tin check: %s correlation_id=%s", why.reason, why.correlation_id or "-")
        return self._away(retry_delay(why))

    def _away(self, wait=None):
        """Return the 503. `wait` is a timedelta, None where it is not known."""
        wait = wait or self._context.config.portal_retry
        return Unavailable(AWAY, retry_after(math.ceil(wait.total_seconds())))


#: The checks of the application's process.
TIN_CHECKS = web.AppKey("tin_checks", TinChecks)


def _unverified() -> BadRequest:
    """Return the refusal while the company's own TIN is not verified. A repetition is judged again."""
    error = BadRequest(states.TIN_NOT_VERIFIED["message"], code=states.TIN_NOT_VERIFIED["code"])
    error.retryable = True
    return error


def problem(body, trace):
    """The four members of the portal's 404, at whichever depth they stand; what is missing or odd is made up."""
    members = body if isinstance(body, dict) else {}
    if isinstance(members.get("error"), dict):
        members = members["error"]
    made = {
        **NOT_FOUND,
        "traceId": trace or f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00",
    }
    kept = {
        name: members[name]
        for name, value in made.items()
        if type(members.get(name)) is type(value)
    }
    return {**made, **kept}

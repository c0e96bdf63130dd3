"""Validation of TINs by the portal, with a cache and one request for concurrent callers."""

import asyncio
import logging
import secrets
from dataclasses import asdict, dataclass
from datetime import timedelta

from aiohttp import web

from service.db.statements import sql
from service.documents import states
from service.documents.ubl import parties
from service.errors import (
    ApiError,
    BadRequest,
    TooManyRequests,
    Unavailable,
    UnknownTin,
    retry_after,
)
from service.http.limits import RateLimiter
from service.json_types import Json, JsonObject, Row
from service.portal.errors import LoginRefused, PortalError, Refused, Throttled
from service.submission.context import SubmissionContext
from service.submission.machine.failures import PERSON_SECONDS
from service.submission.own_clients import REFUSED_CODE, describe_refusal, sign_in

PERSON_WAIT = timedelta(seconds=PERSON_SECONDS)
AWAY = "The portal is unavailable at the moment, please try again."
OPERATOR_REFUSED = (
    "The service cannot log in to the portal. {words} Ask the operator of the service to check its "
    "portal credentials."
)
NOT_APPOINTED = (
    " Also check at the portal that the company has appointed the operator as its intermediary."
)
NOT_PERMITTED = (
    "The portal does not permit the service to validate TINs for the company. {words} If the "
    "service is the company's intermediary, the company must grant it that permission at the "
    "portal."
)
OWN_REFUSED = (
    "The company's own portal credentials do not work. {words} An owner or administrator of the "
    "company can replace or remove them on the page Settings, Portal."
)
SLOW_DOWN = "Too many TIN checks, please slow down."
BUSY = "The portal's rate limit for TIN checks is exhausted, please try again later."

#: Defaults for members that the portal's 404 does not have; the trace id is generated. Portal: 3.1
NOT_FOUND = {
    "type": "https://tools.ietf.org/html/rfc9110#section-15.5.5",
    "title": "Not Found",
    "status": 404,
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TinQuestion:
    """The question if a TIN belongs to an identifier or, with an empty `id_value`, if it exists."""

    company_id: int
    tin: str
    id_type: str
    id_value: str


def make_own_question(company_id: int, record: Row) -> TinQuestion:
    """Return the question if a company's own TIN belongs to its registration number.

    It tests the connection to the portal for the company. `record` has the company's columns.
    """
    return TinQuestion(
        company_id,
        parties.normalize_tin(record["tin_code"]),
        record["registration_type"],
        parties.normalize_identifier(record["registration_number"]),
    )


class TinChecks:
    """The TIN checks of one process."""

    def __init__(self, context: SubmissionContext) -> None:
        self._context = context
        self._limiter = RateLimiter(context.config.tin_checks_per_minute)
        #: Running requests by the values of their question. The result is an error, or None.
        self._requests: dict[TinQuestion, asyncio.Task[ApiError | None]] = {}

    async def confirm(self, question: TinQuestion, fresh: bool = False) -> None:
        """Return if the answer is yes. With `fresh`, the portal is asked again.

        Raises UnknownTin; BadRequest with the portal's message, or while the company's own TIN is
        not verified; TooManyRequests; and Unavailable if the portal does not respond in time, while
        the request continues in the background. Only questions that are sent to the portal count
        for the limit of the company, not those that the cache or a running request answers.
        Spec: Validations
        """
        config = self._context.config
        known = await self._context.database.read(
            sql.tin_check_get, **asdict(question), keep=config.tin_cache
        )
        if not known["is_verified"]:
            raise _unverified()
        if known["is_confirmed"] and not fresh:
            return
        request = self._requests.get(question)
        if request is None:
            if wait := self._limiter.take(question.company_id):
                raise TooManyRequests(SLOW_DOWN, retry_after(wait))
            request = asyncio.create_task(self._ask(question, known["own_tin"]))
            self._requests[question] = request
            request.add_done_callback(lambda _: self._requests.pop(question))
        done, _ = await asyncio.wait({request}, timeout=config.submit_wait)
        if not done:
            raise self._unavailable(AWAY, "portal_unavailable")
        if error := request.result():
            raise error

    async def close(self) -> None:
        """Cancel the requests that continue in the background."""
        requests = list(self._requests.values())
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def _ask(self, question: TinQuestion, taxpayer: str) -> ApiError | None:
        """Ask the portal on behalf of the company, and cache a confirmation."""
        context = await sign_in(self._context, question.company_id)
        try:
            await context.portal.validate_tin(
                question.tin, question.id_type, question.id_value, taxpayer=taxpayer
            )
        except PortalError as error:
            return self._translate(error)
        async with context.database.company(question.company_id) as conn:
            await sql.tin_check_keep(conn, **asdict(question), keep=context.config.tin_cache)
        return None

    def _translate(self, error: PortalError) -> ApiError:
        """Return the API error for a portal error."""
        if isinstance(error, Throttled):
            return TooManyRequests(BUSY, retry_after(error.retry_after))
        if isinstance(error, Refused) and error.status == 404:
            return UnknownTin(error.reason, error=problem(error.body, error.correlation_id))
        if isinstance(error, Refused) and error.status == 400:
            messages = [entry["message"] for entry in error.errors if entry["message"]]
            return BadRequest(" ".join(messages) or error.reason, code="tin_refused")
        log.warning("tin check: %s correlation_id=%s", error.reason, error.correlation_id or "-")
        if isinstance(error, LoginRefused):
            return self._login_refused(error)
        if isinstance(error, Refused) and error.status == 403:
            message = NOT_PERMITTED.format(words=describe_refusal(error))
            return self._unavailable(message, REFUSED_CODE, PERSON_WAIT)
        return self._unavailable(AWAY, "portal_unavailable")

    def _login_refused(self, error: LoginRefused) -> Unavailable:
        """Return a 503 that says whose credentials the portal refuses, and who can change them."""
        text = OWN_REFUSED if error.own_client_id else OPERATOR_REFUSED
        if not error.own_client_id and self._context.config.portal_intermediary:
            text += NOT_APPOINTED
        message = text.format(words=describe_refusal(error))
        return self._unavailable(message, REFUSED_CODE, PERSON_WAIT)

    def _unavailable(self, message: str, code: str, wait: timedelta | None = None) -> Unavailable:
        """Return a 503 with the time until the next attempt."""
        wait = wait or self._context.config.portal_retry
        return Unavailable(message, retry_after(wait), code=code)


#: The checks of the application's process.
TIN_CHECKS = web.AppKey("tin_checks", TinChecks)


def _unverified() -> BadRequest:
    """Return the retryable error for a company whose own TIN is not verified."""
    reason = states.TIN_NOT_VERIFIED
    error = BadRequest(reason["message"], retry_after(PERSON_SECONDS), code=reason["code"])
    error.retryable = True
    return error


def problem(body: Json, trace: str | None) -> JsonObject:
    """Return the four members of the portal's 404, at either depth, with valid defaults."""
    members = body if isinstance(body, dict) else {}
    if isinstance(inner := members.get("error"), dict):
        members = inner
    defaults: JsonObject = {
        **NOT_FOUND,
        "traceId": trace or f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00",
    }
    kept = {
        name: members[name]
        for name, value in defaults.items()
        if type(members.get(name)) is type(value)
    }
    return {**defaults, **kept}

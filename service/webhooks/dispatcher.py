"""Delivers events: creates deliveries of new events, claims those that are due, sends each, and records the outcome.

At least once: an attempt that dies with its process is made again when its lease is over. An endpoint is called by one
process at a time, with one event after another in the order of the feed; one that has failed is tried again by a
schedule and does not hold up those after it. One company, and slow endpoints as a class, get a share of the places.

The recorded error of an attempt does not tell a company anything about the network of the service: an internal address,
an unknown name and a refused connection have the same word and take a whole number of steps of time.
"""

import asyncio
import errno
import logging
import socket
import time
from dataclasses import dataclass
from datetime import timedelta

import aiohttp

from service.db.encryption import WEBHOOK_SECRET, DecryptionError
from service.db.statements import sql
from service.db.transactions import TRANSIENT_DB_ERRORS
from service.errors import describe_error, format_traceback
from service.webhooks import signature, url_policy
from service.webhooks.resolver import Resolver, company_of_attempt

AT_ONCE = 64  # endpoints that one process calls
COMPANY_SHARE = 16  # of these places; half of it for slow endpoints
SLOW_PART = 1 / 3  # of the timeout: an attempt that takes longer makes its endpoint a slow one
FAILURE_STEPS = 15  # of the timeout: a failed connection is recorded at the end of a step
# Endpoints, and events of each, that one look at the feed takes up
BEHIND_AT_ONCE, EVENTS_AT_ONCE = 50, 100
POLL_SECONDS = 0.5  # events announce themselves to nobody
MOST_BYTES = 64 * 1024  # of an answer, which is read only so that its connection can be used again
LEASE_TIMES = 2  # the timeout of one attempt: until then another process believes the claim
GONE = 410

#: attempts made so far -> the pause before the next one. After the last one the delivery has
#: failed.
SCHEDULE = (
    timedelta(0),
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt: the status of the response, or why there was none."""

    response_status: int | None = None
    error: str | None = None  # address (the URL itself), secret, connection, timeout or tls
    cause: str | None = None  # the exact cause, for the log only

    def ends(self, step, scale):
        """How the delivery then stands: next, delay, gone."""
        ok = self.response_status is not None and 200 <= self.response_status < 300
        gone = self.response_status == GONE
        if ok or gone or step >= len(SCHEDULE):
            return {"next": "Delivered" if ok else "Failed", "delay": timedelta(0), "gone": gone}
        return {"next": "Pending", "delay": SCHEDULE[step] * float(scale), "gone": False}


class AddressRefused(OSError):
    """A name has resolved to an address that must not be called."""

    def __init__(self, text):
        super().__init__(errno.EACCES, f"{text} is an internal address")


def delivery_session(config):
    """The ClientSession of deliveries: no cookies, no proxy from outside, no answer unpacked.

    Its connector sees each address after the name was looked up and calls that very address, or none.
    """
    guard = {} if config.webhook_allow_internal else {"socket_factory": _public_socket}
    timeout = config.webhook_timeout.total_seconds()
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=AT_ONCE, use_dns_cache=False, resolver=Resolver(timeout), **guard
        ),
        timeout=aiohttp.ClientTimeout(total=timeout),
        headers={"Content-Type": "application/json", "User-Agent": "einvoice-webhooks"},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


def _public_socket(found):
    family, kind, protocol, _, target = found
    if url_policy.is_internal(target[0]):
        raise AddressRefused(target[0])
    return socket.socket(family, kind, protocol)


class WebhookDispatcher:
    """Delivers until it is stopped. What it does not finish is found again in the database."""

    def __init__(self, config, database, session, vault):
        self._config = config
        self._database = database
        self._session = session
        self._vault = vault
        self._tasks = {}  # the attempts under way -> their claims
        self._wake = asyncio.Event()
        self._stopping = False

    async def run(self):
        while not self._stopping:
            self._wake.clear()
            try:
                await self._claim()
            except TRANSIENT_DB_ERRORS as fault:
                log.warning("webhooks: %s", describe_error(fault))
            await self._sleep()

    async def stop(self):
        """Claims no more, and lets the attempts under way finish."""
        self._stopping = True
        self._wake.set()
        if self._tasks:
            await asyncio.wait(
                self._tasks, timeout=self._config.webhook_timeout.total_seconds() + 1
            )

    async def _claim(self):
        async with self._database.across() as conn:
            if await sql.webhook_fan_out(conn, endpoints=BEHIND_AT_ONCE, most=EVENTS_AT_ONCE):
                self._wake.set()  # there may be more
            if len(self._tasks) < AT_ONCE:
                under_way = self._tasks.values()
                claims = await sql.webhook_delivery_claim(
                    conn,
                    lease=self._config.webhook_timeout * LEASE_TIMES,
                    companies=[claim["company_id"] for claim in under_way],
                    slow_ones=[claim["slow"] for claim in under_way],
                    places=AT_ONCE,
                    share=COMPANY_SHARE,
                )
                for claim in claims:
                    task = asyncio.create_task(self._deliver(claim))
                    self._tasks[task] = claim
                    task.add_done_callback(self._done)

    def _done(self, task):
        del self._tasks[task]
        self._wake.set()

    async def _sleep(self):
        """Until an attempt has ended, when the endpoint may have more that is due, or until it is time to look."""
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _deliver(self, claim):
        company_of_attempt.set(claim["company_id"])
        began = time.monotonic()
        try:
            outcome = await self._attempt(claim)
            if outcome.cause:
                log.info(
                    "webhooks: delivery %d of company %d: %s",
                    claim["id"],
                    claim["company_id"],
                    outcome.cause,
                )
            took = time.monotonic() - began
            if outcome.error == "connection":
                await asyncio.sleep(self._left_of_step(took))
            await self._note(claim, outcome, took)
        except Exception as error:
            log.error(
                "webhooks: delivery %d of company %d\n%s",
                claim["id"],
                claim["company_id"],
                format_traceback(error),
            )

    def _left_of_step(self, took):
        """Return the seconds until the current step of time ends.

        A company sees when an attempt has ended. Rounded up, this does not show how quickly a name was resolved.
        """
        step = self._config.webhook_timeout.total_seconds() / FAILURE_STEPS
        return step - took % step

    async def _attempt(self, claim):
        """Send one POST and return its Outcome. The rules for URLs are checked again: they may have become stricter."""
        if url_policy.url_violation(claim["url"], self._config.webhook_allow_internal):
            return Outcome(error="address")
        try:
            secrets = [*self._opened(claim), *claim["secrets"]]
        except DecryptionError as why:
            log.error(
                "webhooks: a secret of webhook %d of company %d: %s",
                claim["endpoint_id"],
                claim["company_id"],
                why,
            )
            return Outcome(error="secret")
        signed = signature.headers(claim["event_id"], int(time.time()), claim["body"], secrets)
        try:
            async with self._session.post(
                claim["url"], data=claim["body"].encode(), headers=signed, allow_redirects=False
            ) as response:
                await _pass_over(response)
                return Outcome(response_status=response.status)
        except TimeoutError:
            return Outcome(error="timeout")
        except (aiohttp.ClientError, OSError, ValueError) as fault:
            return _failure(fault)

    def _opened(self, claim):
        """The claim's sealed secrets. Raises Unopenable."""
        return [
            self._vault.open(sealed, claim["company_id"], WEBHOOK_SECRET)
            for sealed in claim["sealed_secrets"]
        ]

    async def _note(self, claim, outcome, took):
        company, ends = (
            claim["company_id"],
            outcome.ends(claim["step"], self._config.webhook_retry_scale),
        )
        async with self._database.company(company) as conn:
            await sql.webhook_delivery_end(
                conn,
                company_id=company,
                endpoint_id=claim["endpoint_id"],
                id=claim["id"],
                fence=claim["fence"],
                step=claim["step"],
                response_status=outcome.response_status,
                error=outcome.error,
                slow=took >= self._config.webhook_timeout.total_seconds() * SLOW_PART,
                **ends,
            )


async def _pass_over(response):
    """Reads an answer to its end, so that the connection can be kept, or as far as it is worth it."""
    left = MOST_BYTES
    try:
        while left > 0 and (piece := await response.content.read(left)):
            left -= len(piece)
    except (aiohttp.ClientError, OSError):
        pass  # its status has come


def _failure(fault: Exception) -> Outcome:
    """Return the Outcome of a request that failed. Only its cause tells an internal address from an unknown name."""
    if isinstance(fault, aiohttp.InvalidURL):
        return Outcome(error="address", cause="invalid URL")
    if isinstance(fault, aiohttp.ClientSSLError):
        return Outcome(error="tls", cause=describe_error(fault))
    if getattr(fault, "errno", None) == errno.EACCES:
        return Outcome(error="connection", cause="internal address")
    return Outcome(error="connection", cause=describe_error(fault))

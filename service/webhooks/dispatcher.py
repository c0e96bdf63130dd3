"""Delivery of events to webhooks: create deliveries, claim due ones, send them, record the outcome.

Delivery is at least once: if a process dies, its attempts are repeated when their leases expire. An
endpoint gets several events at a time, and an ordered one gets one after another in the order of
the feed. A failed event is retried by a schedule and does not delay the events after it. Each
company, and slow endpoints as a class, are limited to a share of the concurrent attempts.

The recorded error of an attempt reveals nothing about the network of the service: an internal
address, an unknown name and a refused connection have the same error, and their attempts take a
whole number of time steps.
"""

import asyncio
import errno
import logging
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial

import aiohttp
from asyncpg import Record

from service.config import Config
from service.db.connections import TRANSIENT_DB_ERRORS
from service.db.encryption import WEBHOOK_SECRET, DecryptionError, Vault
from service.db.retry import retry
from service.db.statements import sql
from service.db.transactions import Database
from service.errors import describe_error, format_traceback
from service.loops import Loop
from service.monitoring.metrics import DELIVERY_SECONDS
from service.webhooks import addresses, signature
from service.webhooks.addresses import Resolver, company_of_attempt

AT_ONCE = 64  # concurrent attempts of one process
ENDPOINT_AT_ONCE = 8  # concurrent attempts of all processes to one endpoint
COMPANY_SHARE = 16  # of AT_ONCE, for one company; half of it for slow endpoints
SLOW_PART = 1 / 3  # of the timeout: a longer attempt marks its endpoint as slow
FAILURE_STEPS = 15  # of the timeout: a failed connection is recorded at the end of a step
BEHIND_AT_ONCE = 50  # endpoints for which the feed is read at once
EVENTS_AT_ONCE = 100  # events that are read for each of them
POLL_SECONDS = 0.5  # new events send no notification
MOST_BYTES = 64 * 1024  # of a response, which is read only to reuse its connection
RECORD_BYTES = 256 * 1024  # of the records in a delivery; larger ones are left out
LEASE_TIMES = 2  # lease of a claim, in timeouts of one attempt
GONE = 410

#: Pauses before the next attempt, by the number of attempts made. After the last one the delivery
#: has failed.
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
    """The outcome of an attempt: the status of the response, or the error."""

    response_status: int | None = None
    error: str | None = None  # address (the URL itself), secret, connection, timeout or tls
    cause: str | None = None  # the exact cause, for the log only

    @property
    def name(self) -> str:
        """The outcome as metrics count it: delivered, gone, rejected, or the error."""
        if self.response_status is None:
            return self.error or "error"
        if self.is_delivered:
            return "delivered"
        return "gone" if self.is_gone else "rejected"

    @property
    def is_gone(self) -> bool:
        """Return whether the endpoint no longer exists."""
        return self.response_status == GONE

    @property
    def is_delivered(self) -> bool:
        """Return whether the endpoint has accepted the event."""
        return self.response_status is not None and 200 <= self.response_status < 300

    def result(self, step: int, scale: Decimal) -> tuple[str, timedelta]:
        """Return the state of the delivery after attempt `step`, and the delay of the next one."""
        if self.is_delivered or self.is_gone or step >= len(SCHEDULE):
            return "Delivered" if self.is_delivered else "Failed", timedelta(0)
        return "Pending", SCHEDULE[step] * float(scale)


def delivery_session(config: Config) -> aiohttp.ClientSession:
    """Return the ClientSession of deliveries, without cookies, proxies or decompression.

    Its connector checks each resolved address and connects to exactly that address.
    """
    timeout = config.webhook_timeout.total_seconds()
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=AT_ONCE,
            use_dns_cache=False,
            resolver=Resolver(timeout),
            socket_factory=None if config.webhook_allow_internal else _public_socket,
        ),
        timeout=aiohttp.ClientTimeout(total=timeout),
        headers={"Content-Type": "application/json", "User-Agent": "einvoice-webhooks"},
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


def _public_socket(found: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, target = found
    if addresses.is_internal(target[0]):
        raise PermissionError(errno.EACCES, f"{target[0]} is an internal address")
    return socket.socket(family, kind, protocol)


class WebhookDispatcher(Loop):
    """Delivers until it is stopped. Unfinished deliveries are claimed again from the database."""

    def __init__(
        self, config: Config, database: Database, session: aiohttp.ClientSession, vault: Vault
    ) -> None:
        super().__init__("webhooks", POLL_SECONDS, TRANSIENT_DB_ERRORS)
        self._config = config
        self._database = database
        self._session = session
        self._vault = vault
        self._tasks: dict[asyncio.Task[None], Record] = {}  # attempt -> claim

    async def stop(self) -> None:
        """Stop claiming and wait for the running attempts."""
        await super().stop()
        if self._tasks:
            await asyncio.wait(
                self._tasks, timeout=self._config.webhook_timeout.total_seconds() + 1
            )

    async def work(self) -> float | None:
        """Create and start deliveries. The end of an attempt, which may make another due, wakes it.

        Return 0 if there may be more to create.
        """
        async with self._database.across() as conn:
            more = await sql.fan_out_webhooks(conn, endpoints=BEHIND_AT_ONCE, most=EVENTS_AT_ONCE)
            if len(self._tasks) < AT_ONCE:
                under_way = self._tasks.values()
                claims = await sql.claim_webhook_deliveries(
                    conn,
                    lease=self._config.webhook_timeout * LEASE_TIMES,
                    companies=[claim["company_id"] for claim in under_way],
                    slow_ones=[claim["slow"] for claim in under_way],
                    places=AT_ONCE,
                    share=COMPANY_SHARE,
                    at_once=ENDPOINT_AT_ONCE,
                )
                for claim in claims:
                    task = asyncio.create_task(self._deliver(claim))
                    self._tasks[task] = claim
                    task.add_done_callback(self._done)
        return 0 if more else None

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        self.woken.set()

    async def _deliver(self, claim: Record) -> None:
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
            DELIVERY_SECONDS.labels(outcome.name).observe(took)
            if outcome.error == "connection":
                await asyncio.sleep(self._left_of_step(took))
            await retry(partial(self._store, claim, outcome), took)
        except Exception as error:
            log.error(
                "webhooks: delivery %d of company %d\n%s",
                claim["id"],
                claim["company_id"],
                format_traceback(error),
            )

    def _left_of_step(self, took: float) -> float:
        """Return the seconds until the current time step ends.

        A company sees when an attempt has ended. Rounded up, this does not reveal how quickly a
        name was resolved.
        """
        step = self._config.webhook_timeout.total_seconds() / FAILURE_STEPS
        return step - took % step

    async def _attempt(self, claim: Record) -> Outcome:
        """Send one POST. The rules for URLs are checked again, because they may have changed."""
        if addresses.url_violation(claim["url"], self._config.webhook_allow_internal):
            return Outcome(error="address")
        try:
            secrets = [
                self._vault.open(sealed, claim["company_id"], WEBHOOK_SECRET)
                for sealed in claim["sealed_secrets"]
            ]
        except DecryptionError as error:
            log.error(
                "webhooks: a secret of webhook %d of company %d: %s",
                claim["endpoint_id"],
                claim["company_id"],
                error,
            )
            return Outcome(error="secret")
        body = await self._read_body(claim)
        signed = signature.headers(claim["event_id"], int(time.time()), body, secrets)
        try:
            async with self._session.post(
                claim["url"], data=body.encode(), headers=signed, allow_redirects=False
            ) as response:
                await _read_to_end(response)
                return Outcome(response_status=response.status)
        except TimeoutError:
            return Outcome(error="timeout")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _classify(error)

    async def _read_body(self, claim: Record) -> str:
        """Return the body of an attempt, with the present record if the endpoint includes it."""
        if not claim["include_record"]:
            return claim["body"]
        return await self._database.read(
            sql.webhook_body,
            company_id=claim["company_id"],
            event_id=claim["event_id"],
            most=RECORD_BYTES,
        )

    async def _store(self, claim: Record, outcome: Outcome, took: float) -> None:
        """Store the outcome. A 410 disables the endpoint, unless it has another URL meanwhile."""
        company_id, endpoint_id = claim["company_id"], claim["endpoint_id"]
        state, delay = outcome.result(claim["step"], self._config.webhook_retry_scale)
        async with self._database.company(company_id) as conn:
            is_mine = await sql.webhook_delivery_end(
                conn,
                endpoint_id=endpoint_id,
                id=claim["id"],
                fence=claim["fence"],
                step=claim["step"],
                response_status=outcome.response_status,
                error=outcome.error,
                slow=took >= self._config.webhook_timeout.total_seconds() * SLOW_PART,
                next=state,
                delay=delay,
            )
            if not is_mine or not outcome.is_gone:
                return
            key = {"company_id": company_id, "id": endpoint_id}
            row = await sql.webhook_lock(conn, **key)
            if row and row["enabled"] and row["url"] == claim["url"]:
                await sql.webhook_update(conn, **key, **{**row, "enabled": False})


async def _read_to_end(response: aiohttp.ClientResponse) -> None:
    """Read at most MOST_BYTES of a response, so that its connection can be reused.

    Raises TimeoutError.
    """
    left = MOST_BYTES
    try:
        while left > 0 and (piece := await response.content.read(left)):
            left -= len(piece)
    except TimeoutError:  # also an OSError
        raise
    except (aiohttp.ClientError, OSError):
        pass  # The status has arrived already.


def _classify(error: Exception) -> Outcome:
    """Return the outcome of a failed request.

    Only its cause, which is logged, distinguishes an internal address from an unknown name.
    """
    if isinstance(error, aiohttp.InvalidURL):
        return Outcome(error="address", cause="invalid URL")
    if isinstance(error, aiohttp.ClientSSLError):
        return Outcome(error="tls", cause=describe_error(error))
    if getattr(error, "errno", None) == errno.EACCES:
        return Outcome(error="connection", cause="internal address")
    return Outcome(error="connection", cause=describe_error(error))

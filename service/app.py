"""The wiring: what an application is made of, in the order in which it opens and, backwards, closes."""

import asyncio
import contextlib
import dataclasses
import logging
import re

from aiohttp import web

from service.api import (
    adjustment_notes,
    certificates,
    companies,
    consolidated_invoices,
    docs,
    einvoice_requests,
    events,
    health,
    integrations,
    invoices,
    printing,
    submissions,
    validations,
    webhooks,
)
from service.api.exports import EXPORTS, Exports
from service.api.records import PARTS, Parts
from service.db.reencryption import seal_plaintext_secrets
from service.db.session import DedicatedSession
from service.db.statements import sql
from service.db.transactions import (
    BACKGROUND_CONNECTIONS,
    Database,
    bounds_of,
    check_tenant_isolation,
    connected_pool,
)
from service.documents import codes
from service.http import app_keys
from service.http.api_keys import INTEGRATION, KeyRing
from service.http.idempotency import UNSETTLED, handle_idempotency_key
from service.http.limits import IntegrationQuota, RateLimiter, UploadBudget
from service.http.middleware import (
    add_quota_headers,
    add_request_id,
    add_security_headers,
    authenticate,
    handle_errors,
    part,
    repeated,
)
from service.http.requests import limit_uploads
from service.http.shutdown import GracefulShutdown
from service.monitoring.watchdog import EventLoopMonitor, Watchdog
from service.portal.client import Portal, portal_session
from service.portal.logins import RefusedLogins
from service.portal.rate_limits import PortalRateLimiter
from service.submission.context import (
    SUBMISSION_CONTEXT,
    SubmissionContext,
    SubmissionWaiters,
)
from service.submission.signers import Signers
from service.submission.sweep import Sweeper, record_database_identity
from service.submission.tin_checks import TIN_CHECKS, TinChecks
from service.submission.worker import Worker
from service.webhooks.dispatcher import WebhookDispatcher, delivery_session

HANDLERS = (
    invoices,
    submissions,
    printing,
    adjustment_notes,
    consolidated_invoices,
    validations,
    companies,
    certificates,
    einvoice_requests,
    events,
    webhooks,
    integrations,
    docs,
    health,
)

log = logging.getLogger(__name__)


def create_app(config, *, background=True):
    """The application on a migrated database. Without `background` it serves requests only."""
    app = web.Application(
        middlewares=[handle_errors, authenticate, limit_uploads, handle_idempotency_key, repeated],
        client_max_size=config.max_body_bytes,
    )
    app[app_keys.CONFIG] = config
    app[app_keys.LIMITER] = RateLimiter(config.requests_per_minute)
    app[app_keys.WRONG_KEY_LIMITER] = RateLimiter(config.wrong_keys_per_minute)
    app[UNSETTLED] = {}
    app[app_keys.REQUEST_COUNTS] = {}
    app[app_keys.CLOSING] = GracefulShutdown()
    app[app_keys.WATCHDOG] = Watchdog(config)
    app[EXPORTS] = Exports()
    app[PARTS] = Parts()
    app[app_keys.UPLOAD_BUDGET] = UploadBudget(config.max_body_bytes)
    app.add_routes(_all_routes())
    app.on_response_prepare.extend([add_request_id, add_security_headers, add_quota_headers, part])
    app.cleanup_ctx.extend([_database, _watchdog, _code_lists, _session, _secrets, _portal])
    if background:
        app.cleanup_ctx.append(_background)
    return app


def _all_routes():
    """The routes of all handlers, where no {id} is a word that has a route of its own, as export-all has.

    A method that such a word does not have is a 405 then, and not a search for a record of that name.
    """
    table = [route for module in HANDLERS for route in module.routes]
    words = sorted(route.path for route in table if "{" not in route.path)
    for route in table:
        place = route.path.removesuffix("{id}")
        taken = "|".join(
            re.escape(path.removeprefix(place)) for path in words if path.startswith(place)
        )
        path = (
            f"{place}{{id:(?!(?:{taken})$)[^{{}}/]+}}"
            if taken and place != route.path
            else route.path
        )
        yield web.RouteDef(route.method, path, route.handler, route.kwargs)


async def _database(app):
    config = app[app_keys.CONFIG]
    async with connected_pool(
        config.database_url, config.pool_size, config.database_silence
    ) as pool:
        await check_tenant_isolation(pool)
        app[app_keys.DATABASE] = Database(pool, bounds_of(config))
        await record_database_identity(app[app_keys.DATABASE])
        app[app_keys.INTEGRATION_QUOTA] = IntegrationQuota(
            app[app_keys.DATABASE], config.integration_requests_per_minute
        )
        yield


async def _watchdog(app):
    """Runs in every process, also in one that does no background work."""
    guard = app[app_keys.EVENT_LOOP_MONITOR] = EventLoopMonitor(asyncio.get_running_loop())
    guard.begin()
    try:
        async with _running(app[app_keys.WATCHDOG].run()):
            yield
    finally:
        guard.end()


async def _code_lists(app):
    """Lists that an operator has loaded; a process that runs keeps those that it started with."""
    async with app[app_keys.DATABASE].across() as conn:
        rows = await sql.code_list_all(conn)
    for name in {row["code_list"] for row in rows}:
        listed = [row for row in rows if row["code_list"] == name]
        since = {row["code"]: row["valid_from"] for row in listed}
        codes.load(name, {row["code"]: row["description"] for row in listed}, since)
    yield


async def _session(app):
    """The session of this process: its locks, its ears, and the keys that it forgets when it hears of them."""
    bell, due = SubmissionWaiters(), asyncio.Event()

    def moved(name):
        bell.wake(name)
        due.set()  # when it falls due next has changed too

    def forget(key_id):
        for ring in rings:
            ring.forget(key_id)

    heard = {
        "submission_moved": moved,
        "submission_due": lambda _: due.set(),
        "api_key_changed": forget,
    }
    config = app[app_keys.CONFIG]
    session = DedicatedSession(
        config.database_url, heard, config.database_silence, bounds_of(config)
    )
    app[app_keys.KEY_RING] = KeyRing(app[app_keys.DATABASE])
    app[app_keys.INTEGRATION_KEY_RING] = KeyRing(app[app_keys.DATABASE], INTEGRATION)
    rings = (app[app_keys.KEY_RING], app[app_keys.INTEGRATION_KEY_RING])
    session.on_reconnect += [*(ring.forget_all for ring in rings), due.set]
    app[app_keys.SESSION] = session
    app[SUBMISSION_CONTEXT] = SubmissionContext(
        config,
        app[app_keys.DATABASE],
        session,
        portal=None,
        signers=Signers(config),
        waiters=bell,
        due=due,
    )
    app[app_keys.SPAWN] = app[SUBMISSION_CONTEXT].spawn
    async with (
        _running(session.run()),
        _running(rings[0].record_use_forever()),
        _running(rings[1].record_use_forever()),
    ):
        await session.connected()
        yield
        for ring in rings:
            await ring.record_use()
    await session.close()


async def _secrets(app):
    """Sealed from now on, also those that are older than the SECRET_KEY."""
    await seal_plaintext_secrets(app[app_keys.DATABASE], app[SUBMISSION_CONTEXT].signers.vault)
    yield


async def _portal(app):
    """The client, and the requests' own submissions, which a stop lets finish."""
    context = app[SUBMISSION_CONTEXT]
    # The rest is the call's
    gate = PortalRateLimiter(
        context.database, context.config, urgent=True, patience=context.config.submit_wait / 2
    )
    async with portal_session(context.config) as session:
        context.portal = Portal(
            session,
            context.config,
            rate_limiter=gate,
            refusals=RefusedLogins(context.database, context.config),
        )
        portal, watchdog = context.portal, app[app_keys.WATCHDOG]
        watchdog.add_condition("PortalUnreachable", lambda: portal.unreachable_since)
        watchdog.add_condition("ClocksApart", lambda: portal.clocks_apart_since)
        app[TIN_CHECKS] = TinChecks(context)
        yield
        await app[TIN_CHECKS].close()
        app[app_keys.CLOSING].begin()
        await context.finish(app[app_keys.CLOSING].left())


async def _background(app):
    """The work behind the requests, on connections of its own: neither side can use up those of the other."""
    config = app[app_keys.CONFIG]
    async with connected_pool(
        config.database_url, BACKGROUND_CONNECTIONS, config.database_silence
    ) as pool:
        database = Database(pool, bounds_of(config))
        async with _worker(app, database), _webhooks(app, database), _sweeper(app, database):
            yield


@contextlib.asynccontextmanager
async def _worker(app, database):
    """Its calls go after those that somebody waits for."""
    context = app[SUBMISSION_CONTEXT]
    gate, refusals = (
        PortalRateLimiter(database, context.config, urgent=False),
        RefusedLogins(database, context.config),
    )
    portal = context.portal.through(gate, refusals)
    worker = Worker(dataclasses.replace(context, database=database, portal=portal))
    app[app_keys.WATCHDOG].listen("Worker", lambda: worker.beat)
    async with _running(worker.run()), app[app_keys.CLOSING].stopping(worker.stop):
        yield


@contextlib.asynccontextmanager
async def _webhooks(app, database):
    config = app[app_keys.CONFIG]
    async with delivery_session(config) as session:
        courier = WebhookDispatcher(
            config, database, session, app[SUBMISSION_CONTEXT].signers.vault
        )
        async with _running(courier.run()), app[app_keys.CLOSING].stopping(courier.stop):
            yield


@contextlib.asynccontextmanager
async def _sweeper(app, database):
    """Compares the companies with the portal, with calls that go after those that somebody waits for."""
    context = app[SUBMISSION_CONTEXT]
    gate, refusals = (
        PortalRateLimiter(database, context.config, urgent=False),
        RefusedLogins(database, context.config),
    )
    portal = context.portal.through(gate, refusals)
    sweeper = Sweeper(dataclasses.replace(context, database=database, portal=portal))
    context.session.on_reconnect.append(sweeper.woken.set)
    async with _running(sweeper.run()):
        yield


@contextlib.asynccontextmanager
async def _running(work):
    """A task that goes on while the block runs. Cancelled until it ends: a connection that fails meanwhile can hide that."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1)

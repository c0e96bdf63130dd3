"""The wiring: the parts of an application, opened in order and closed in reverse."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

from aiohttp import web

from service.api import health
from service.api.docs import DESCRIBE
from service.api.table import describe_api, make_routes
from service.config import Config
from service.dashboard.pages import render_error
from service.dashboard.table import make_page_routes
from service.db.compatibility import check_tenant_isolation
from service.db.pool import BACKGROUND_CONNECTIONS
from service.db.session import DedicatedSession
from service.db.standby import StandbyReads
from service.db.transactions import Database, connected_database
from service.http import app_keys, limits
from service.http.access_log import ACCESS_LOG, AccessLog
from service.http.api_keys import KeyRing
from service.http.client_address import SENDERS, Senders
from service.http.code_lists import CodeLists
from service.http.middleware import add_headers, handle_request
from service.http.shutdown import GracefulShutdown
from service.monitoring import gauges
from service.monitoring.event_loop import EventLoopMonitor
from service.monitoring.watchdog import Watchdog
from service.portal.client import Portal, portal_session
from service.portal.logins import RefusedLogins
from service.portal.rate_limits import PortalRateLimiter, read_quotas
from service.portal.transport import ContactCheck
from service.submission.context import SUBMISSION_CONTEXT, SubmissionContext, SubmissionWaiters
from service.submission.database_monitor import DatabaseMonitor, record_database_identity
from service.submission.following.comparison import PRIORITIES
from service.submission.operator.tin_checks import TIN_CHECKS, TinChecks
from service.submission.signers import Signers
from service.submission.worker import Worker
from service.webhooks.dispatcher import WebhookDispatcher, delivery_session


def create_app(config: Config, *, background: bool = True, api: bool = True) -> web.Application:
    """Return the application on a migrated database, with or without background work.

    Without `api` its only routes are those of its health and metrics.
    """
    app = web.Application(middlewares=[handle_request], client_max_size=config.max_body_bytes)
    app[app_keys.CONFIG] = config
    app[ACCESS_LOG] = AccessLog(config.log_format)
    app[SENDERS] = Senders(config.trusted_proxies)
    app[app_keys.SHUTDOWN] = GracefulShutdown()
    app[app_keys.LIMITS] = limits.Limits(config)
    app[DESCRIBE] = describe_api
    app[app_keys.ERROR_PAGE] = render_error
    routes = [*make_routes(), *make_page_routes()] if api else make_routes(health.GROUP.operations)
    app.add_routes(routes)
    app.on_response_prepare.append(add_headers)
    app.cleanup_ctx.extend([_database, _reads, _watchdog, _session])
    if background:
        app.cleanup_ctx.append(_background)
    return app


async def _database(app: web.Application) -> AsyncIterator[None]:
    config = app[app_keys.CONFIG]
    async with (
        connected_database(config, config.pool_size) as database,
        connected_database(config, 1) as watched,
    ):
        app[app_keys.DATABASE] = database
        watchdog = app[app_keys.WATCHDOG] = Watchdog(config, watched)
        readers = [gauges.read_waiting, partial(read_quotas, config=config)]
        app[app_keys.GAUGES] = gauges.Gauges(watched, watchdog, readers)
        await database.call(check_tenant_isolation)
        await record_database_identity(database)
        app[app_keys.GAUGES].add(partial(gauges.read_pool, "requests", database.pool))
        app[app_keys.INTEGRATION_QUOTA] = limits.KeyQuota(
            database, config.integration_requests_per_minute
        )
        yield


async def _reads(app: web.Application) -> AsyncIterator[None]:
    config, database = app[app_keys.CONFIG], app[app_keys.DATABASE]
    if not config.database_read_url:
        app[app_keys.READS] = database
        yield
        return
    async with connected_database(config, 1) as positions:
        reads = app[app_keys.READS] = StandbyReads(config, database, positions)
        app[app_keys.WATCHDOG].add_condition("StandbyUnused", lambda: reads.unused_since)
        app[app_keys.GAUGES].add(partial(gauges.read_reads, reads))
        async with reads.running():
            yield


async def _watchdog(app: web.Application) -> AsyncIterator[None]:
    """Run the watchdog, in processes without background work too."""
    with EventLoopMonitor().running():
        async with app[app_keys.WATCHDOG].running():
            yield


async def _session(app: web.Application) -> AsyncIterator[None]:
    """Open the dedicated session, and pass its notifications to waiters, loops and key caches.

    It opens the portal client too, whose context has these waiters.
    """
    config, database = app[app_keys.CONFIG], app[app_keys.DATABASE]
    waiters, due = SubmissionWaiters(), asyncio.Event()
    lists = CodeLists(database)
    await lists.work()

    def wake(name: str) -> None:
        waiters.wake(name)
        due.set()  # The next due time has changed too.

    listeners: dict[str, Callable[[str], None]] = {
        "submission_moved": wake,
        "submission_due": lambda _: due.set(),
        "api_key_changed": lambda key_id: ring.forget(key_id),
        "code_lists_changed": lambda _: lists.woken.set(),
    }
    session = DedicatedSession(config, listeners)
    ring, monitor = KeyRing(database, session), DatabaseMonitor(database)
    session.on_reconnect += [ring.forget_all, due.set, lists.woken.set, monitor.woken.set]
    app[app_keys.KEY_RING], app[app_keys.SESSION] = ring, session
    async with AsyncExitStack() as stack:
        for loop in (lists, session, monitor, ring):
            await stack.enter_async_context(loop.running())
        await session.connected()
        async with _portal(app, waiters, due):
            yield


@asynccontextmanager
async def _portal(
    app: web.Application, waiters: SubmissionWaiters, due: asyncio.Event
) -> AsyncIterator[None]:
    """Open the portal client and the context of submissions. A shutdown lets them finish."""
    config, database = app[app_keys.CONFIG], app[app_keys.DATABASE]
    closing = app[app_keys.SHUTDOWN]
    # The other half of a caller's wait is for the request to the portal.
    rate_limiter = PortalRateLimiter(
        database, config, urgent=True, patience=timedelta(seconds=config.submit_wait / 2)
    )
    async with portal_session() as session:
        refusals = RefusedLogins(database, config)
        portal = Portal(session, config, rate_limiter=rate_limiter, refusals=refusals)
        context = app[SUBMISSION_CONTEXT] = SubmissionContext(
            config,
            database,
            app[app_keys.SESSION],
            shared_portal=portal,
            signers=Signers(config),
            waiters=waiters,
            due=due,
        )
        app[app_keys.SPAWN] = context.spawn
        watchdog = app[app_keys.WATCHDOG]
        watchdog.add_condition("PortalUnreachable", lambda: portal.unreachable_since)
        watchdog.add_condition("ClocksApart", lambda: portal.portal_clock.apart_since)
        tin_checks = app[TIN_CHECKS] = TinChecks(context)
        contact = ContactCheck(portal, config.watchdog)
        async with contact.running():
            yield
        await tin_checks.close()
        closing.begin()
        await context.finish(closing.left())


async def _background(app: web.Application) -> AsyncIterator[None]:
    """Run the background work with a pool of its own, so that requests cannot use it up."""
    config, shutdown = app[app_keys.CONFIG], app[app_keys.SHUTDOWN]
    vault = app[SUBMISSION_CONTEXT].signers.vault
    async with (
        connected_database(config, BACKGROUND_CONNECTIONS) as database,
        delivery_session(config) as session,
    ):
        worker = Worker(
            {
                reason: _background_context(app, database, priority)
                for reason, priority in PRIORITIES.items()
            }
        )
        dispatcher = WebhookDispatcher(config, database, session, vault)
        app[app_keys.GAUGES].add(partial(gauges.read_pool, "background", database.pool))
        app[app_keys.GAUGES].add(worker.read_gauges)
        app[app_keys.WATCHDOG].listen("Worker", lambda: worker.beat, config.overdue.total_seconds())
        async with (
            worker.running(),
            shutdown.stopping(worker.stop),
            dispatcher.running(),
            shutdown.stopping(dispatcher.stop),
        ):
            yield


def _background_context(
    app: web.Application, database: Database, priority: int
) -> SubmissionContext:
    """Return a context whose portal requests wait behind those of clients."""
    context = app[SUBMISSION_CONTEXT]
    rate_limiter = PortalRateLimiter(database, context.config, urgent=False, priority=priority)
    portal = context.shared_portal.through(rate_limiter, RefusedLogins(database, context.config))
    return dataclasses.replace(context, database=database, shared_portal=portal)

"""The wiring: what an application is made of, in the order in which it opens and, backwards, closes."""

import asyncio
import contextlib
import dataclasses
import logging
import re
import time

from aiohttp import web

from service import codes, wire
from service.background import Worker
from service.db import (
    BACKGROUND_CONNECTIONS,
    Database,
    bounds_of,
    connected_pool,
    refuse_without_wall,
)
from service.handlers import (
    adjustment_notes,
    companies,
    consolidated_invoices,
    description,
    einvoice_requests,
    events,
    health,
    integrations,
    invoices,
    prints,
    signing_certificates,
    submissions,
    validations,
    webhooks,
)
from service.handlers.lists import Parts
from service.handlers.streams import Exports
from service.idempotency import UNSETTLED, idempotent
from service.intake import Uploads, bounded
from service.keeper import Keeper
from service.keys import INTEGRATION, KeyRing
from service.middleware import (
    Limiter,
    answering,
    key_guard,
    name_request,
    part,
    protect_data,
    repeated,
    show_quota,
)
from service.portal.client import Portal, portal_session
from service.portal.logins import RefusedLogins
from service.portal.quota import Gate
from service.quota import Quota
from service.resealing import seal_what_is_open
from service.statements import sql
from service.submission.desk import Bell, Desk
from service.submission.signing import Signers
from service.submission.sweep import Sweeper, note_database
from service.tins import TinChecks
from service.watchdog import LoopGuard, Watchdog
from service.webhooks.delivery import Courier, delivery_session

HANDLERS = (
    invoices,
    submissions,
    prints,
    adjustment_notes,
    consolidated_invoices,
    validations,
    companies,
    signing_certificates,
    einvoice_requests,
    events,
    webhooks,
    integrations,
    description,
    health,
)

STOP_SECONDS = 23  # for what is under way when the process is told to stop; who stops it waits 30

log = logging.getLogger(__name__)


class Closing:
    """That the process has been told to stop: nothing is claimed any more, and no connection is kept for another request."""

    def __init__(self):
        self._begun = asyncio.Event()
        self._until = None  # monotonic

    def begin(self):
        if not self._begun.is_set():
            self._until = time.monotonic() + STOP_SECONDS
            self._begun.set()

    @property
    def has_begun(self):
        return self._begun.is_set()

    def left(self):
        """Seconds that what is under way may still take."""
        return max(0, self._until - time.monotonic())

    @contextlib.asynccontextmanager
    async def stopping(self, stop):
        """Calls `stop` as soon as the closing begins, at the latest when the block ends, and waits for it."""

        async def stopped():
            await self._begun.wait()
            await stop()

        task = asyncio.create_task(stopped())
        try:
            yield
        finally:
            self.begin()
            await task


def create_app(config, *, background=True):
    """The application on a migrated database. Without `background` it serves requests only."""
    app = web.Application(
        middlewares=[answering, key_guard, bounded, idempotent, repeated],
        client_max_size=config.max_body_bytes,
    )
    app[wire.CONFIG] = config
    app[wire.LIMITER] = Limiter(config.requests_per_minute)
    app[wire.WRONG_KEYS] = Limiter(config.wrong_keys_per_minute)
    app[UNSETTLED] = {}
    app[wire.COUNTS] = {}
    app[wire.CLOSING] = Closing()
    app[wire.WATCHDOG] = Watchdog(config)
    app[wire.EXPORTS] = Exports()
    app[wire.PARTS] = Parts()
    app[wire.UPLOADS] = Uploads(config.max_body_bytes)
    app.add_routes(_all_routes())
    app.on_response_prepare.extend([name_request, protect_data, show_quota, part])
    app.cleanup_ctx.extend([_database, _watchdog, _code_lists, _keeper, _secrets, _portal])
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
    config = app[wire.CONFIG]
    async with connected_pool(
        config.database_url, config.pool_size, config.database_silence
    ) as pool:
        await refuse_without_wall(pool)
        app[wire.DATABASE] = Database(pool, bounds_of(config))
        await note_database(app[wire.DATABASE])
        app[wire.QUOTA] = Quota(app[wire.DATABASE], config.integration_requests_per_minute)
        yield


async def _watchdog(app):
    """Runs in every process, also in one that does no background work."""
    guard = app[wire.LOOP_GUARD] = LoopGuard(asyncio.get_running_loop())
    guard.begin()
    try:
        async with _running(app[wire.WATCHDOG].run()):
            yield
    finally:
        guard.end()


async def _code_lists(app):
    """Lists that an operator has loaded; a process that runs keeps those that it started with."""
    async with app[wire.DATABASE].across() as conn:
        rows = await sql.code_list_all(conn)
    for name in {row["code_list"] for row in rows}:
        listed = [row for row in rows if row["code_list"] == name]
        since = {row["code"]: row["valid_from"] for row in listed}
        codes.load(name, {row["code"]: row["description"] for row in listed}, since)
    yield


async def _keeper(app):
    """The session of this process: its locks, its ears, and the keys that it forgets when it hears of them."""
    bell, due = Bell(), asyncio.Event()

    def moved(name):
        bell.ring(name)
        due.set()  # when it falls due next has changed too

    def forget(key_id):
        for ring in rings:
            ring.forget(key_id)

    heard = {
        "submission_moved": moved,
        "submission_due": lambda _: due.set(),
        "api_key_changed": forget,
    }
    config = app[wire.CONFIG]
    keeper = Keeper(config.database_url, heard, config.database_silence, bounds_of(config))
    app[wire.KEY_RING] = KeyRing(app[wire.DATABASE])
    app[wire.INTEGRATION_KEY_RING] = KeyRing(app[wire.DATABASE], INTEGRATION)
    rings = (app[wire.KEY_RING], app[wire.INTEGRATION_KEY_RING])
    keeper.on_reconnect += [*(ring.forget_all for ring in rings), due.set]
    app[wire.KEEPER] = keeper
    app[wire.DESK] = Desk(
        config, app[wire.DATABASE], keeper, portal=None, signers=Signers(config), bell=bell, due=due
    )
    async with (
        _running(keeper.run()),
        _running(rings[0].keep_noting()),
        _running(rings[1].keep_noting()),
    ):
        await keeper.connected()
        yield
        for ring in rings:
            await ring.note_use()
    await keeper.close()


async def _secrets(app):
    """Sealed from now on, also those that are older than the SECRET_KEY."""
    await seal_what_is_open(app[wire.DATABASE], app[wire.DESK].signers.vault)
    yield


async def _portal(app):
    """The client, and the requests' own submissions, which a stop lets finish."""
    desk = app[wire.DESK]
    # The rest is the call's
    gate = Gate(desk.database, desk.config, urgent=True, patience=desk.config.submit_wait / 2)
    async with portal_session(desk.config) as session:
        desk.portal = Portal(
            session, desk.config, gate=gate, refusals=RefusedLogins(desk.database, desk.config)
        )
        portal, watchdog = desk.portal, app[wire.WATCHDOG]
        watchdog.add_condition("PortalUnreachable", lambda: portal.unreachable_since)
        watchdog.add_condition("ClocksApart", lambda: portal.clocks_apart_since)
        app[wire.TINS] = TinChecks(desk)
        yield
        await app[wire.TINS].close()
        app[wire.CLOSING].begin()
        await desk.finish(app[wire.CLOSING].left())


async def _background(app):
    """The work behind the requests, on connections of its own: neither side can use up those of the other."""
    config = app[wire.CONFIG]
    async with connected_pool(
        config.database_url, BACKGROUND_CONNECTIONS, config.database_silence
    ) as pool:
        database = Database(pool, bounds_of(config))
        async with _worker(app, database), _webhooks(app, database), _sweeper(app, database):
            yield


@contextlib.asynccontextmanager
async def _worker(app, database):
    """Its calls go after those that somebody waits for."""
    desk = app[wire.DESK]
    gate, refusals = Gate(database, desk.config, urgent=False), RefusedLogins(database, desk.config)
    portal = desk.portal.through(gate, refusals)
    worker = Worker(dataclasses.replace(desk, database=database, portal=portal))
    app[wire.WATCHDOG].listen("Worker", lambda: worker.beat)
    async with _running(worker.run()), app[wire.CLOSING].stopping(worker.stop):
        yield


@contextlib.asynccontextmanager
async def _webhooks(app, database):
    config = app[wire.CONFIG]
    async with delivery_session(config) as session:
        courier = Courier(config, database, session, app[wire.DESK].signers.vault)
        async with _running(courier.run()), app[wire.CLOSING].stopping(courier.stop):
            yield


@contextlib.asynccontextmanager
async def _sweeper(app, database):
    """Compares the companies with the portal, with calls that go after those that somebody waits for."""
    desk = app[wire.DESK]
    gate, refusals = Gate(database, desk.config, urgent=False), RefusedLogins(database, desk.config)
    portal = desk.portal.through(gate, refusals)
    sweeper = Sweeper(dataclasses.replace(desk, database=database, portal=portal))
    desk.keeper.on_reconnect.append(sweeper.woken.set)
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

"""What a season plays on: PostgreSQL behind a proxy, the sandbox, two processes of the service, a naive worker."""

import asyncio
import random
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from service.commands.companies import insert_company, insert_key
from service.commands.serve import DEMO_COMPANY
from service.config import read_config
from service.db.migrations import migrate
from service.db.transactions import Database, connected_pool

from . import judge, naive, schedule
from .database import Postgres
from .portal import Administration
from .processes import Launcher, Process, free_port
from .proxy import Proxy

SERVICES = 2
NAIVE = 2
#: of the companies; the last one submits by itself what is ready
TINS = ("C20880050010", "C20880050020", "C20880050030")


class Stage:
    """All that runs; each actor has a source of chance of its own, so that what one draws moves nobody else."""

    def __init__(self, seed, mode, home, counters):
        self.mode, self.home, self.counters = mode, home, counters
        self._seed = seed
        self.over = asyncio.Event()
        self.naive, self.naive_portal = [], None

    def random(self, name):
        return random.Random(f"{self._seed} {name}")

    async def open(self, stack, naive_documents):
        """Starts everything; it is stopped when the stack ends."""
        self.postgres = Postgres(self.home)
        await self.postgres.start()
        stack.push_async_callback(self.postgres.stop)
        await migrate(self.postgres.url)
        proxy = Proxy(
            lambda: self.postgres.port, self.random("proxy"), self.counters, schedule.SILENCE
        )
        self.proxy = await stack.enter_async_context(proxy)
        self.launcher = await stack.enter_async_context(Launcher(self.home))
        self.sandbox, self.portal = await self._sandbox(
            "sandbox", {**self.mode.sandbox, "rate_scale": schedule.RATE_SCALE}
        )
        await self._open_service()
        if naive_documents:
            await self._open_naive(naive_documents)

    async def _sandbox(self, name, settings):
        """(its Process, its Administration)"""
        port = free_port()
        environment = {
            "SANDBOX_PORT": str(port),
            "SANDBOX_STATE": str(self.home / f"{name}.sqlite3"),
            "SANDBOX_PROCESSING_SECONDS": "0.1",
            "SANDBOX_RATE_SCALE": "0",
        }
        process = Process(self.launcher, name, ["sandbox"], environment, port, "/_sandbox/clock")
        await process.start()
        portal = Administration(process.base)
        await portal.settings(**settings)
        return process, portal

    async def _open_service(self):
        self.environment = {
            **schedule.TIMES,
            **self._addresses(),
            "PORTAL_SETTLE_SECONDS": self.mode.settle,
        }
        async with self._connected() as (config, database):
            self.companies = [await _company(config, database, tin) for tin in TINS]
        self.companies[-1]["automatic"] = True
        await judge.submit_automatically(self.postgres.url, self.companies[-1]["id"])
        self.services = [self._service(number) for number in range(SERVICES)]
        await asyncio.gather(*[service.start() for service in self.services])

    def _addresses(self):
        portal = self.sandbox.base
        return {
            "DATABASE_URL": self._proxied(),
            "DATABASE_OWNER_URL": "",
            "PORTAL_API_BASE": portal,
            "PORTAL_IDENTITY_BASE": portal,
            "PORTAL_WEB_BASE": portal,
            "PORTAL_CLIENT_ID": "sandbox-client",
            "PORTAL_CLIENT_SECRET": "sandbox-secret",
            "PORTAL_INTERMEDIARY": "true",
        }

    def _proxied(self):
        there = urlsplit(self.postgres.url)
        return urlunsplit(
            there._replace(netloc=f"{there.username}:{there.password}@127.0.0.1:{self.proxy.port}")
        )

    @asynccontextmanager
    async def _connected(self):
        config = read_config(self.environment)
        async with connected_pool(config.database_url, 2) as pool:
            yield config, Database(pool)

    def _service(self, number):
        port = free_port()
        environment = {**self.environment, "PORT": str(port)}
        return Process(self.launcher, f"service-{number}", ["serve"], environment, port, "/readyz")

    async def _open_naive(self, documents):
        sandbox, self.naive_portal = await self._sandbox("naive-sandbox", self.mode.sandbox)
        await naive.prepare(self.postgres.url, documents)
        environment = {
            "DATABASE_URL": self._proxied(),
            "PORTAL_API_BASE": sandbox.base,
            "NAIVE_TOKEN": await naive.token(sandbox.base),
        }
        self.naive = [
            Process(self.launcher, f"naive-{number}", ["naive"], environment)
            for number in range(NAIVE)
        ]


async def _company(config, database, tin):
    """{id, key, automatic} of a new company."""
    id = await insert_company(database, {**DEMO_COMPANY, "tin_code": tin})
    key = await insert_key(config, database, id, "chaos")
    return {"id": id, "key": key["key"], "automatic": False}

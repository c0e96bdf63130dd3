"""The processes of a run: PostgreSQL behind a proxy, sandbox, two services, naive workers."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from service.commands.serve import DEMO_COMPANY
from service.config import read_config
from service.db.migrations import migrate
from service.db.pool import connected_pool
from service.db.transactions import Database
from tests.harness.companies import AUTOMATIC, add_company, make_tin
from tests.harness.environments import make_environment
from tests.harness.failing import run_command
from tests.harness.postgres_server import PostgresServer
from tests.harness.processes import free_port
from tests.harness.sandbox import Administration, fetch_token

from . import naive, schedule
from .clients import Company
from .counters import Counters
from .processes import MARKS, Command, PlannedProcess
from .proxy import Proxy
from .receiver import LATE_SECONDS, Receiver

SERVICES = 2
NAIVE = 2
#: TINs of the companies. The last company submits automatically.
TINS = tuple(map(make_tin, (1, 2, 3)))


class Installation:
    """All processes of a run. Attributes of processes exist after `open`."""

    proxy: Proxy
    sandbox: PlannedProcess
    portal: Administration
    environment: dict[str, str]  # of the services
    companies: list[Company]
    services: list[PlannedProcess]
    receiver: Receiver
    factor = 1.0  # by which all times are multiplied

    def __init__(self, seed: int, mode: schedule.Mode, home: Path, counters: Counters) -> None:
        self.mode, self.home, self.counters = mode, home, counters
        self.marks = home / MARKS
        self._seed = seed
        self._processes: list[PlannedProcess] = []
        self.over = asyncio.Event()
        self.postgres = PostgresServer(home / "postgres")
        self.naive: list[PlannedProcess] = []
        self.naive_portal: Administration | None = None

    def random(self, name: str) -> Random:
        """Return a source of random numbers that is independent of the other names."""
        return Random(f"{self._seed} {name}")

    async def open(self, stack: AsyncExitStack, naive_documents: int) -> None:
        """Start everything. It is stopped when the stack is closed."""
        await stack.enter_async_context(self.postgres)
        await migrate(self.postgres.url)
        proxy = Proxy(self.postgres.port, self.random("proxy"), self.counters, schedule.SILENCE)
        self.proxy = await stack.enter_async_context(proxy)
        stack.push_async_callback(self._kill_processes)
        self.sandbox, self.portal = await self._start_sandbox(
            "sandbox", {**self.mode.sandbox, "rate_scale": schedule.RATE_SCALE}
        )
        self.receiver = await stack.enter_async_context(Receiver(self.random("receiver")))
        await self._prepare_services()
        if naive_documents:
            await self._prepare_naive(naive_documents)

    async def _start_sandbox(
        self, name: str, settings: dict[str, Any]
    ) -> tuple[PlannedProcess, Administration]:
        port = free_port()
        environment = {
            "SANDBOX_PORT": str(port),
            "SANDBOX_STATE": str(self.home / f"{name}.sqlite3"),
            "SANDBOX_PROCESSING_SECONDS": "0.1",
            "SANDBOX_RATE_SCALE": "0",
        }
        command = Command(name, partial(run_command, ["sandbox"]), environment)
        process = self._make_process(command, port, "/_sandbox/clock")
        await process.start()
        portal = Administration(process.base)
        await portal.settings(**settings)
        return process, portal

    async def _prepare_services(self) -> None:
        self.environment = self._make_environment()
        config = read_config(self.environment)
        async with connected_pool(config.database_url, 2) as pool:
            self.companies = [
                asdict(await add_company(config, Database(pool), tin_code=tin))
                | {"automatic": tin == TINS[-1]}
                for tin in TINS
            ]
        await self.postgres.execute(f"{AUTOMATIC} where tin_code = '{TINS[-1]}'")
        self._ports = [free_port() for _ in range(SERVICES)]
        await self._start_services()
        await self.receiver.subscribe(self.services[0].base, self.companies)

    def _make_environment(self) -> dict[str, str]:
        times = {**schedule.TIMES, "PORTAL_SETTLE_SECONDS": self.mode.settle}
        return {
            **schedule.scale(times, self.factor),
            **make_environment(self._proxy_url(), self.sandbox.base),
        }

    async def _start_services(self) -> None:
        self.services = [self._make_service(*each) for each in enumerate(self._ports)]
        await asyncio.gather(*[service.start() for service in self.services])

    @property
    def settle(self) -> float:
        """The settling time in seconds."""
        return float(self.mode.settle) * self.factor

    async def configure_portal(self) -> None:
        """Give the portal the settings of the mode."""
        await self.portal.settings(**schedule.scale(self.mode.sandbox, self.factor))

    async def slow_down(self, factor: float) -> None:
        """Multiply all times, so that a slow machine keeps their proportions."""
        self.factor = factor
        self.environment = self._make_environment()
        self.proxy.silence = schedule.SILENCE * factor
        self.receiver.late_seconds = LATE_SECONDS * factor
        await self.configure_portal()
        for service in self.services:
            await service.kill()
        await self._start_services()

    def _make_process(
        self, command: Command, port: int = 0, ready: str | None = None
    ) -> PlannedProcess:
        process = PlannedProcess(self.home, command, port, ready)
        self._processes.append(process)
        return process

    async def _kill_processes(self) -> None:
        for process in self._processes:
            await process.kill()

    def _proxy_url(self) -> str:
        """Return the address of PostgreSQL through the proxy."""
        url = urlsplit(self.postgres.url)
        netloc = f"{url.username}:{url.password}@127.0.0.1:{self.proxy.port}"
        return urlunsplit(url._replace(netloc=netloc))

    def _make_service(self, number: int, port: int) -> PlannedProcess:
        environment = {**self.environment, "PORT": str(port)}
        command = Command(f"service-{number}", partial(run_command, ["serve"]), environment)
        return self._make_process(command, port, "/readyz")

    async def _prepare_naive(self, documents: int) -> None:
        sandbox, self.naive_portal = await self._start_sandbox("naive-sandbox", self.mode.sandbox)
        await naive.prepare(self.postgres.url, documents)
        environment = {
            "DATABASE_URL": self._proxy_url(),
            "PORTAL_API_BASE": sandbox.base,
            "NAIVE_TOKEN": await fetch_token(sandbox.base, DEMO_COMPANY["tin_code"]),
        }
        commands = [Command(f"naive-{number}", naive.main, environment) for number in range(NAIVE)]
        self.naive = [self._make_process(command) for command in commands]

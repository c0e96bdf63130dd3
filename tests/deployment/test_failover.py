"""Failover: etcd, Patroni and HAProxy with the configuration of deploy/patroni/, under load."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import asyncpg
import pytest
from conftest import Sandbox, run_context
from failover_load import Load
from harness.companies import add_company
from harness.databases import administer
from harness.environments import variables
from harness.paths import ROOT
from harness.patroni import FailoverCluster, find_missing_packages
from harness.processes import ChildProcess, Service
from kit import wait_for_status

from service.config import read_config
from service.db.migrations import migrate
from service.db.transactions import Database, connected_pool, is_transient

MISSING = find_missing_packages()

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"not installed: {', '.join(MISSING)} (Debian and Ubuntu: apt install)",
    ),
]

#: Limits of the database as in production, and times of the portal that a test can wait for.
VARIABLES = {
    "DATABASE_ACQUIRE_SECONDS": "2",
    "DATABASE_ANSWER_SECONDS": "1",
    "DATABASE_FAILOVER_SECONDS": "5",
    "PORTAL_SETTLE_SECONDS": "6",
    "SWEEP_SECONDS": "4",
    "REQUESTS_PER_MINUTE": "0",
    "LOG_LEVEL": "INFO",
}
HOLDS = """
select count(*) as held,
       (select identity = database_identity() from database_identities) as is_noted
  from sending_holds
"""
FINDINGS = """
select count(*) from sweep_findings where kind in ('duplicate', 'orphan', 'missing')
"""


@pytest.fixture(scope="module")
def failover() -> Iterator[FailoverCluster]:
    """Yield a cluster that the tests share. Each repairs what it has broken."""
    with asyncio.Runner() as runner, run_context(runner.run, FailoverCluster()) as cluster:
        yield cluster


@asynccontextmanager
async def create_logins(failover: FailoverCluster) -> AsyncIterator[dict[str, str]]:
    """Create the database and its logins by roles.sql. Yield the addresses of owner and app."""
    server = failover.url(failover.superuser, "postgres")
    passwords = {f"einvoice_{login}": secrets.token_hex(16) for login in ("owner", "app")}
    await administer(server, "create database einvoice")
    script = ["psql", "-X", "-q", "-f", str(ROOT / "deploy" / "postgres" / "roles.sql")]
    files = {}
    for login, password in passwords.items():
        path = failover.home / login
        path.write_text(password)
        files[f"{login.removeprefix('einvoice_').upper()}_PASSWORD_FILE"] = str(path)
    process = await asyncio.create_subprocess_exec(
        *script, failover.url(failover.superuser, "einvoice"), env=files
    )
    assert await process.wait() == 0
    yield {
        login.removeprefix("einvoice_"): failover.url(f"{login}:{password}", "einvoice")
        for login, password in passwords.items()
    }
    await administer(server, "drop database einvoice with (force)")
    for login in passwords:
        await administer(server, f"drop role {login}")


@dataclass
class Site:
    """Two API processes and a worker on the database, and their load."""

    failover: FailoverCluster
    sandbox: Sandbox
    client: aiohttp.ClientSession
    load: Load

    async def fetch(self, query: str) -> asyncpg.Record:
        """Return the row of a query on the primary."""
        conn = await asyncpg.connect(self.failover.url(self.failover.superuser, "einvoice"))
        try:
            row = await conn.fetchrow(query)
            assert row
            return row
        finally:
            await conn.close()


@pytest.fixture
async def site(failover: FailoverCluster, sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[Site]:
    """Yield a site whose portal recognises no document that is sent twice."""
    await failover.wait_until_whole()
    await sandbox.settings(duplicate_detection=False, duplicate_window_seconds=0)
    # The portal has each document for a while before the service knows it.
    await sandbox.fault("submit", "slow", seconds=0.3, times=1_000_000)
    async with AsyncExitStack() as stack:
        urls = await stack.enter_async_context(create_logins(failover))
        await migrate(urls["owner"])
        environment = {**variables(urls["app"], sandbox.base), **VARIABLES}
        config = read_config(environment)
        async with connected_pool(config.database_url, 1) as pool:
            company = await add_company(config, Database(pool))
        arguments = ["serve", "--no-background"]
        processes = [
            Service(environment, tmp_path / f"api-{number}.log", arguments) for number in (1, 2)
        ]
        worker = ChildProcess(["worker"], environment, tmp_path / "worker.log")
        for process in (*processes, worker):
            await stack.enter_async_context(process)
        client = aiohttp.ClientSession(
            headers={"X-API-Key": company.key}, connector=aiohttp.TCPConnector(limit=0)
        )
        await stack.enter_async_context(client)
        bases = [process.base for process in processes]
        yield Site(failover, sandbox, client, Load(client, bases))


#: Disturbs a site: the name of its primary, and the time.
Disturb = Callable[[Site, str, float], Awaitable[None]]


async def check_nothing_is_lost_or_sent_twice(site: Site) -> None:
    """Check that sending was never held, and compare all answers with service and portal."""
    assert site.load.unexpected() == []
    assert tuple(await site.fetch(HOLDS)) == (0, True)
    base = site.load.bases[0]
    for invoice_id, code in site.load.created.items():
        async with site.client.get(f"{base}/api/invoices/{invoice_id}") as response:
            body = await response.json()
            assert response.status == 200 and int(body["invoice_code"]) == code, body
    async with aiohttp.ClientSession(base, headers=site.client.headers) as api:
        for invoice_id in site.load.submitted:
            await wait_for_status(api, invoice_id, "Valid")
    numbers = Counter(entry["number"] for entry in await site.sandbox.ledger())
    assert [number for number, times in numbers.items() if times > 1] == []
    assert len(numbers) >= len(site.load.submitted) > 0
    assert (await site.fetch(FINDINGS))["count"] == 0


async def fail_over(site: Site, name: str, disturb: Disturb) -> None:
    """Disturb the primary under load, print what clients have seen, and check the effects."""
    primary, began = await site.failover.primary(), 0.0

    async def disturb_and_repair() -> None:
        nonlocal began
        began = site.load.now()
        await disturb(site, primary, began)
        await site.failover.wait_until_whole()

    await site.load.run(disturb_and_repair)
    print(site.load.describe(name, began))
    assert await site.failover.primary() != primary
    await check_nothing_is_lost_or_sent_twice(site)


async def kill_and_start(site: Site, primary: str, began: float) -> None:
    """Kill the machine, and start it after another one has taken over."""
    site.failover.machines[primary].lose_power()
    await site.load.go_on(began)
    site.failover.start(primary)


async def pause_and_continue(site: Site, primary: str, began: float) -> None:
    """Pause the machine, and continue it after another one has taken over."""
    site.failover.machines[primary].lose_network()
    await site.load.go_on(began)
    site.failover.machines[primary].regain_network()


async def switch_over(site: Site, primary: str, began: float) -> None:
    """Let the synchronous standby take over."""
    assert "Successfully switched over" in await site.failover.switch_over()


async def test_primary_that_loses_its_power_loses_and_repeats_nothing(site: Site) -> None:
    await fail_over(site, "killed primary", kill_and_start)


async def test_primary_that_returns_from_a_partition_loses_and_repeats_nothing(
    site: Site,
) -> None:
    await fail_over(site, "partitioned primary", pause_and_continue)


async def test_switchover_by_hand_loses_and_repeats_nothing(site: Site) -> None:
    await fail_over(site, "switchover", switch_over)


async def test_service_connects_to_no_standby(failover: FailoverCluster) -> None:
    """HAProxy has an address for readers. A failover may lead the other one there too."""
    await failover.wait_until_whole()
    address = failover.url(failover.superuser, "postgres", port=5001)
    reader = await asyncpg.connect(address)
    assert await reader.fetchval("select pg_is_in_recovery()")
    await reader.close()
    with pytest.raises(asyncpg.InternalClientError, match="primary") as refusal:
        async with connected_pool(address, 1):
            pass
    assert is_transient(refusal.value)

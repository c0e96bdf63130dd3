"""Many unknown outcomes of one company at once: all of them are found, with few claims, and none is given to a person."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from conftest import until
from kit import created, submitted
from network import Network
from processes import Service

MANY = 200
LEASE = "1.5"  # seconds: less than the work on a backlog takes


@pytest.fixture
def make_backlog(owner, company, sandbox):
    """Make `count` submissions whose answer is lost: the portal has them, and here they are Uncertain."""

    async def make(api, count):
        await sandbox.fault("submit", "accept_then_drop", times=count)
        places = asyncio.Semaphore(20)

        async def lose():
            async with places:
                id = await created(api)
                await submitted(api, id)
                return id

        ids = await asyncio.gather(*[lose() for _ in range(count)])
        assert await owner.fetchval("select count(*) from submissions where state = 'Uncertain'") == count
        return ids

    return make


async def states(owner):
    """Return {state: how many submissions}."""
    rows = await owner.fetch("select state, count(*) as n from submissions group by state")
    return {row["state"]: row["n"] for row in rows}


async def resolved(owner, seconds=120):
    """Wait until no outcome is unknown, and return the states."""
    return await until(lambda: states(owner), lambda found: "Uncertain" not in found and "Sending" not in found, seconds)


async def test_a_backlog_is_resolved_by_two_processes_with_a_slow_database(
    start, company, environment, owner, sandbox, make_backlog, tmp_path
):
    idle = await start(company, background=False)
    await make_backlog(idle, MANY)
    network = Network(environment["DATABASE_URL"], delay=0.003)
    await network.heal()
    variables = {**environment, "DATABASE_URL": network.url, "DATABASE_OWNER_URL": environment["DATABASE_URL"]}
    async with AsyncExitStack() as stack:
        for number in range(2):
            service = Service({**variables, "PORTAL_LEASE_SECONDS": LEASE}, tmp_path / f"service-{number}.log")
            stack.push_async_callback(service.stop)
            await service.start()
        found = await resolved(owner)
    assert set(found) <= {"Accepted", "Finished"} and sum(found.values()) == MANY
    assert len(await sandbox.ledger()) == MANY

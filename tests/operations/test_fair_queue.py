"""The fair queue: turns and shares of clients, callers that give up, and work in the thread."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial

import pytest

from service import offload
from service.errors import Busy
from service.fair_queue import CLIENT, STRANGERS, FairQueue
from service.http import api_keys, app_keys
from service.offload import MOST_WAITING, run_in_thread, turn
from tests.api_requests import expect
from tests.conftest import Company, StartService, make_company
from tests.harness.visitors import Visitor, join
from tests.harness.waiting import wait_until


@contextmanager
def working_for(client: Hashable) -> Iterator[None]:
    """Set the client of the block and of the tasks that it starts."""
    token = CLIENT.set(client)
    try:
        yield
    finally:
        CLIENT.reset(token)


def begin(client: Hashable, work: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
    """Start a task that works for a client."""

    async def run() -> None:
        await work()

    with working_for(client):
        return asyncio.create_task(run())


def enter_all(queue: FairQueue, client: Hashable) -> int:
    """Take places for a client until it must wait, and return their number."""
    count = 0
    with working_for(client):
        while queue.enter_at_once():
            count += 1
    return count


async def test_clients_are_served_in_turn(turns: list[str]) -> None:
    queue = FairQueue(1, 100)
    tasks = [begin(name, lambda name=name: use(queue, name, turns)) for name in "aaaaabbc"]
    await asyncio.gather(*tasks)
    assert "".join(turns) == "aabcabaa"


async def use(queue: FairQueue, client: str, turns: list[str]) -> None:
    """Note the turn of a client. Each holds the place for one round of the event loop."""
    await queue.enter(60)
    turns.append(client)
    await asyncio.sleep(0)
    queue.leave(client)


@pytest.fixture
def turns() -> list[str]:
    return []


async def test_a_client_that_comes_back_at_once_is_behind_the_others(turns: list[str]) -> None:
    queue = FairQueue(1, 100)

    async def flood() -> None:
        for _ in range(4):
            await use(queue, "a", turns)

    tasks = [begin("a", flood), begin("a", flood), begin("b", lambda: use(queue, "b", turns))]
    await asyncio.gather(*tasks)
    assert turns.index("b") == 2


async def test_a_turn_lasts_until_the_client_has_its_places(turns: list[str]) -> None:
    queue = FairQueue(8, 100)
    assert enter_all(queue, None) == 8
    tasks = [begin(name, lambda name=name: enter(queue, name, turns)) for name in "aaabbb"]
    await asyncio.sleep(0)
    for _ in range(4):
        queue.leave(None)
    await asyncio.sleep(0)
    queue.leave("b")
    queue.leave("a")
    await asyncio.gather(*tasks)
    assert "".join(turns) == "aabbba"


async def enter(queue: FairQueue, client: str, turns: list[str]) -> None:
    """Note the turn of a client, which keeps its place."""
    await queue.enter(60)
    turns.append(client)


async def test_a_client_alone_leaves_places_for_others() -> None:
    queue = FairQueue(16, 100)
    assert [enter_all(queue, client) for client in "abc"] == [4, 4, 4]
    assert enter_all(queue, None) == 4


async def test_a_caller_that_gives_up_keeps_no_place() -> None:
    queue = FairQueue(1, 100)
    await queue.enter(60)
    cancelled = begin("a", lambda: queue.enter(60))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(TimeoutError):
        await queue.enter(0.01)
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert queue.waiting == 0
    queue.leave(None)
    assert enter_all(queue, "b") == 1


@pytest.mark.parametrize("is_served_first", [True, False])
async def test_a_caller_that_is_cancelled_when_it_is_served_passes_the_place_on(
    is_served_first: bool,
) -> None:
    queue = FairQueue(1, 100)
    await queue.enter(60)
    first, second = [begin("a", lambda: queue.enter(60)) for _ in range(2)]
    await asyncio.sleep(0)
    steps = [lambda: queue.leave(None), first.cancel]
    for step in steps if is_served_first else reversed(steps):
        step()
    await second
    assert queue.waiting == 0 and enter_all(queue, "b") == 0
    queue.leave("a")
    assert enter_all(queue, "b") == 1


async def test_waiting_callers_of_one_client_do_not_fill_the_queue() -> None:
    queue = FairQueue(1, 3)
    await queue.enter(60)
    waiting = [begin("a", lambda: queue.enter(60)) for _ in range(3)]
    await asyncio.sleep(0)
    with working_for("a"), pytest.raises(TimeoutError):
        await queue.enter(None)
    other = begin("b", lambda: queue.enter(60))
    await asyncio.sleep(0)
    assert queue.waiting == 4 and not other.done()
    for task in (*waiting, other):
        task.cancel()


async def test_work_of_another_client_runs_before_the_rest_of_a_flood(turns: list[str]) -> None:
    is_free = threading.Event()
    first = begin("a", lambda: run_in_thread(is_free.wait))
    await asyncio.sleep(0)
    flood = [begin("a", lambda: run_in_thread(turns.append, "a")) for _ in range(9)]
    await asyncio.sleep(0)
    other = begin("b", lambda: run_in_thread(turns.append, "b"))
    await asyncio.sleep(0)
    is_free.set()
    await asyncio.gather(first, other, *flood)
    assert turns.index("b") <= 1


async def test_work_that_fails_or_is_cancelled_releases_the_thread(turns: list[str]) -> None:
    is_free = threading.Event()
    cancelled = begin("a", lambda: run_in_thread(is_free.wait))
    await asyncio.sleep(0)
    cancelled.cancel()
    following = begin("a", lambda: run_in_thread(turns.append, "a"))
    await asyncio.wait({cancelled})
    assert cancelled.cancelled() and not turns  # One thread: the work still runs.
    is_free.set()
    await following
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(lambda: 1 // 0)
    await run_in_thread(turns.append, "b")
    assert turns == ["a", "b"]


async def test_a_client_with_too_much_work_is_refused_at_once(turns: list[str]) -> None:
    is_free = threading.Event()
    first = begin("a", lambda: run_in_thread(is_free.wait))
    await asyncio.sleep(0)
    flood = [begin("a", lambda: run_in_thread(turns.append, "a")) for _ in range(MOST_WAITING + 1)]
    done, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    (refused,) = done
    assert isinstance(refused.exception(), Busy)
    other = begin("b", lambda: run_in_thread(turns.append, "b"))
    is_free.set()
    await asyncio.gather(first, other, *flood, return_exceptions=True)
    assert len(turns) == MOST_WAITING + 1


async def test_turns_of_a_client_do_not_overlap_and_those_of_others_do(turns: list[str]) -> None:
    end = asyncio.Event()

    async def work(client: str) -> None:
        async with turn():
            turns.append(client)
            await end.wait()

    tasks = [begin(client, partial(work, client)) for client in "aab"]
    while len(turns) < 2:
        await asyncio.sleep(0)
    assert sorted(turns) == ["a", "b"]
    end.set()
    await asyncio.gather(*tasks)
    assert sorted(turns) == ["a", "a", "b"]


async def test_a_client_whose_turns_all_wait_is_refused_before_it_reads(turns: list[str]) -> None:
    end = asyncio.Event()

    async def work() -> None:
        async with turn():
            await end.wait()

    tasks = [begin("a", work) for _ in range(MOST_WAITING + 2)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    (refused,) = done
    assert isinstance(refused.exception(), Busy)
    end.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_pages_of_a_company_wait_for_their_turn(
    start: StartService, company: Company, environment: dict[str, str]
) -> None:
    """A page of another company, and a file that is streamed, do not wait."""
    api, other = await start(), await make_company(environment)
    config, site = api.app[app_keys.CONFIG], api.make_url("/")
    for each in (company, other):
        await join(config, site, each.id, f"{each.id}@example.com", "owner")
    async with Visitor(site) as visitor, Visitor(site) as stranger:
        await visitor.sign_in(f"{company.id}@example.com")
        await stranger.sign_in(f"{other.id}@example.com")
        with working_for(company.id):
            async with turn():
                waiting = asyncio.create_task(visitor.get("/invoices"))
                await wait_until(lambda: offload.turns.waiting)
                for client, path in ((stranger, "/invoices"), (visitor, "/invoices.csv")):
                    await client.get(path)
                    assert client.status == 200 and not waiting.done()
        assert "<h1>" in await waiting


async def test_a_company_cannot_occupy_all_connections(
    start: StartService, company: Company, environment: dict[str, str]
) -> None:
    """Requests of one company use connections; those of another, and of strangers, get one."""
    api = await start(background=False, POOL_SIZE="4", DATABASE_ACQUIRE_SECONDS="1")
    other = {"X-API-Key": (await make_company(environment)).key}
    async with AsyncExitStack() as stack:
        with working_for(company.id):
            await stack.enter_async_context(api.app[app_keys.DATABASE].across())
        await expect(api, 503, "GET", "/api/invoices")
        await expect(api, 200, "GET", "/api/invoices", headers=other)
        async with api.get("/link/unknown") as response:
            assert response.status == 404


async def test_a_known_key_does_not_wait_behind_strangers(
    start: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again after CACHE_SECONDS, for its company."""
    monkeypatch.setattr(api_keys, "CACHE_SECONDS", 0)
    api = await start(background=False, POOL_SIZE="4", DATABASE_ACQUIRE_SECONDS="1")
    await expect(api, 200, "GET", "/api/invoices")
    with working_for(STRANGERS):
        async with api.app[app_keys.DATABASE].across():
            await expect(api, 200, "GET", "/api/invoices")
            async with api.get("/link/unknown") as response:
                assert response.status == 503

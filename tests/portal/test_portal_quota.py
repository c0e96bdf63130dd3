"""Rate limits towards the portal: shared by all processes, people before background work."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from decimal import Decimal

import asyncpg
import pytest

from service.config import read_config
from service.db.pool import connected_pool
from service.db.transactions import Database
from service.http import app_keys
from service.monitoring.metrics import PORTAL_WAITS
from service.portal.errors import Held
from service.portal.rate_limits import (
    COMPARISON,
    FOLLOWS,
    HELD,
    QUOTAS,
    USUAL,
    PortalRateLimiter,
    limits,
)
from tests.api.test_validations import TIN as VALID_TIN
from tests.api_invoices import create_invoice, create_submitted_invoice
from tests.api_reads import get_invoice
from tests.api_requests import request_json, submit
from tests.conftest import Client, Company, Sandbox, StartService, some_long, until
from tests.fixtures_service import StartProcess
from tests.harness.companies import AUTOMATIC
from tests.submission.test_batches import (
    create_ready,
    is_sent_once_each,
    wait_for_statuses,
)

CLIENT = "sandbox-client"
#: Moves all tokens and waiting taxpayers into the past, as if time had passed.
LATER = """update portal_buckets
              set taken = array(select at - $1::interval
                                  from unnest(taken) with ordinality t (at, place)
                                 order by place),
                  waiting_until = array(select at - $1::interval
                                          from unnest(waiting_until) with ordinality t (at, place)
                                         order by place),
                  expected_until = array(select at - $1::interval
                                           from unnest(expected_until) with ordinality t (at, place)
                                          order by place)"""


@pytest.fixture
async def limited_api(database: str, sandbox: Sandbox, start: StartService) -> Client:
    """A service without background work that is limited to half of the portal's rates."""
    await sandbox.settings(rate_scale=0.5)
    return await start(background=False, PORTAL_RATE_SCALE="0.5")


@pytest.fixture
async def make_limiter(
    environment: dict[str, str],
) -> AsyncIterator[Callable[..., PortalRateLimiter]]:
    """Return a function that makes a rate limiter: `make_limiter(urgent)`."""
    config = read_config({**environment, "PORTAL_RATE_SCALE": "1"})
    async with connected_pool(config.database_url, 8) as pool:
        yield lambda urgent, **more: PortalRateLimiter(
            Database(pool, config), config, urgent=urgent, **more
        )


async def take(limiter: PortalRateLimiter, operation: str, times: int, tin: str = "C1") -> int:
    """Ask for that many tokens at once, and return how many were granted."""
    outcomes = await asyncio.gather(
        *[limiter(operation, tin) for _ in range(times)], return_exceptions=True
    )
    assert {type(outcome) for outcome in outcomes} <= {type(None), Held}
    return outcomes.count(None)


async def spend(owner: asyncpg.Connection, operation: str, calls: int, ago: int = 0) -> None:
    """Mark tokens as taken so many seconds ago."""
    await owner.execute(
        """insert into portal_buckets (client_id, operation, taxpayer, taken, takers)
           values ($1, $2, '',
                   array_fill(clock_timestamp() - $4::int * interval '1 second', array[$3::int]),
                   array_fill(''::text, array[$3::int]))""",
        *[CLIENT, operation, calls, ago],
    )


@pytest.mark.parametrize(
    "operation, limit", [("login", 12), ("validate_tin", 60), ("submit", 100), ("cancel", 12)]
)
async def test_concurrent_requests_are_limited_to_the_portal_quota(
    make_limiter: Callable[..., PortalRateLimiter], operation: str, limit: int
) -> None:
    taken = [await take(make_limiter(True), operation, limit + 20, f"C{n}") for n in range(4)]
    assert sum(taken) == limit


async def test_a_rate_limit_token_returns_after_a_minute(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    limiter = make_limiter(True)
    await spend(owner, "login", 12)
    await owner.execute(LATER, timedelta(seconds=60))
    assert await take(limiter, "login", 20) == 0
    with pytest.raises(Held) as held:
        await limiter("login", "C1")
    assert timedelta(0) < held.value.retry_after <= timedelta(seconds=5)
    await owner.execute(LATER, timedelta(seconds=5))
    assert await take(limiter, "login", 20) == 8


async def test_background_work_leaves_tokens_and_spreads_its_own(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    background, urgent = make_limiter(False), make_limiter(True)
    taken = []
    for _ in range(40):
        taken.append(await take(background, "submit", 10))
        await owner.execute(LATER, limits(QUOTAS["submit"][0], Decimal(1), False).pace_span)
    assert set(taken[:29]) == {3} and sum(taken[:30]) == 90
    assert await take(urgent, "submit", 20) >= 1
    assert await take(urgent, "submit", 20, "C2") >= 5


async def test_a_waiting_request_gets_a_token_before_background_work(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    await spend(owner, "cancel", 12, ago=62)
    waiting = asyncio.create_task(
        take(make_limiter(True, patience=timedelta(seconds=30)), "cancel", 8)
    )
    await until(
        lambda: owner.fetchval(
            "select max(at) > clock_timestamp() from portal_buckets, unnest(taken) at"
        )
    )
    waited = PORTAL_WAITS.labels("cancel")._value.get()
    assert await take(make_limiter(False), "cancel", 5) == 0
    assert PORTAL_WAITS.labels("cancel")._value.get() > waited + 5
    assert await waiting == 8


async def test_searches_go_to_held_companies_then_to_unknown_outcomes_then_to_comparisons(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    held, usual, comparison = [
        make_limiter(False, priority=priority) for priority in (HELD, USUAL, COMPARISON)
    ]
    assert await take(comparison, "search", 1, "C1") == 1
    assert await take(held, "search", 1, "C2") == 1
    assert await take(usual, "search", 1, "C3") == await take(comparison, "search", 1, "C4") == 0
    assert await take(held, "search", 1, "C5") == 1
    await owner.execute(LATER, FOLLOWS[HELD])
    assert await take(usual, "search", 1, "C3") == 1
    assert await take(comparison, "search", 1, "C4") == 1
    await spend(owner, "cancel", 12, ago=62)
    assert await take(usual, "cancel", 1, "C3") == 0
    await owner.execute(LATER, timedelta(seconds=4))
    assert await take(comparison, "cancel", 1, "C4") == 0
    assert await take(usual, "cancel", 1, "C3") == 1
    await owner.execute(LATER, timedelta(seconds=4))
    assert await take(comparison, "cancel", 1, "C4") == 1


# Fair shares between taxpayers

ALONE = [
    ("login", 8),
    ("validate_tin", 48),
    ("submit", 31),
    ("submission", 285),
    ("cancel", 8),
    ("details", 118),
    ("raw", 48),
]
THIRD = [
    ("login", 4),
    ("validate_tin", 20),
    ("submit", 31),  # of 34, the rest in the next third of the minute
    ("submission", 100),
    ("cancel", 4),
    ("details", 42),
    ("raw", 20),
]


async def wait_for(owner: asyncpg.Connection, *tins: str) -> None:
    """Make taxpayers wait for every bucket, for an hour."""
    await owner.execute(
        """update portal_buckets
              set waiting = $1::text[],
                  waiting_until = array_fill(
                      clock_timestamp() + interval '1 hour', array[cardinality($1::text[])])""",
        list(tins),
    )


@pytest.mark.parametrize("operation, alone", some_long(ALONE))
async def test_one_taxpayer_leaves_tokens_for_a_newcomer(
    make_limiter: Callable[..., PortalRateLimiter], operation: str, alone: int
) -> None:
    limiter = make_limiter(True)
    assert await take(limiter, operation, 320, "C1") == alone
    third = dict(THIRD)[operation]
    found = await take(limiter, operation, 320, "C2")
    assert found == min(third, QUOTAS[operation][0].calls - alone)


async def test_a_search_leaves_tokens_for_a_newcomer(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    background, taken = make_limiter(False), 0
    while await take(background, "search", 1, "C1"):
        taken += 1
        await owner.execute(LATER, timedelta(seconds=5))
        await owner.execute("delete from portal_buckets where taxpayer <> ''")
    assert taken == 11
    assert await take(make_limiter(True), "search", 1, "C2") == 1


@pytest.mark.parametrize("operation, third", some_long(THIRD))
async def test_a_taxpayer_gets_a_third_of_the_quota_under_contention(
    make_limiter: Callable[..., PortalRateLimiter],
    owner: asyncpg.Connection,
    operation: str,
    third: int,
) -> None:
    limiter = make_limiter(True)
    await spend(owner, operation, 0)
    await wait_for(owner, "C2")
    assert await take(limiter, operation, 320, "C1") == third
    assert await take(limiter, operation, 320, "C2") == third
    await owner.execute(LATER, timedelta(hours=2))
    assert await take(limiter, operation, 320, "C1") == dict(ALONE)[operation]


async def test_submits_of_a_flood_leave_two_thirds_to_others_from_the_first_minute(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    """One taxpayer asks all the time. Two others begin ten seconds after it."""
    limiter, second = make_limiter(True), timedelta(seconds=1)
    taken: Counter[str] = Counter()
    for at in range(60):
        for tin in ("flood", "b", "c") if at >= 10 else ("flood",):
            granted = await take(limiter, "submit", 10, tin)
            taken[tin] += granted if at >= 10 else 0
        await owner.execute(LATER, second)
    assert taken["flood"] <= 34
    assert min(taken["b"], taken["c"]) >= 31


async def test_a_refused_taxpayer_counts_as_waiting_until_it_can_retry(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    limiter = make_limiter(True)
    assert await take(limiter, "login", 12, "C1") == 8
    assert await take(limiter, "login", 12, "C2") == 4
    rows = await owner.fetch(
        "select unnest(waiting) as name, unnest(waiting_until) - now() as left from portal_buckets"
    )
    left = {row["name"]: row["left"] for row in rows}
    assert left.keys() == {"C1", "C2"}
    assert all(timedelta(seconds=40) < each <= timedelta(seconds=69) for each in left.values())


@pytest.mark.parametrize("count", [2, 3, 5, 12])
async def test_every_waiting_taxpayer_gets_tokens_in_each_round(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection, count: int
) -> None:
    """The order in which the taxpayers ask does not matter."""
    limiter, tins = make_limiter(True), [f"C{number}" for number in range(count)]
    await spend(owner, "login", 0)
    await wait_for(owner, *tins)
    for _ in range(3):
        taken = [await take(limiter, "login", 12, tin) for tin in tins]
        assert min(taken) >= 1 and max(taken) <= 4 and sum(taken) <= 12
        await owner.execute(LATER, timedelta(seconds=66))
        await wait_for(owner, *tins)


async def test_more_taxpayers_than_tokens_are_all_served(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    limiter, order = make_limiter(True), random.Random(7)
    served, tins = Counter(), [f"C{number}" for number in range(30)]
    for _ in range(12):
        order.shuffle(tins)
        for tin in tins:
            served[tin] += await take(limiter, "login", 2, tin)
        await owner.execute(LATER, timedelta(seconds=66))
        await wait_for(owner, *tins)
    assert len(served) == 30 and min(served.values()) >= 1


async def test_a_waiting_taxpayer_reserves_no_token(
    make_limiter: Callable[..., PortalRateLimiter], owner: asyncpg.Connection
) -> None:
    """Its next token returns soon. Until then the remaining tokens stay free for others."""
    await owner.execute(
        """insert into portal_buckets (client_id, operation, taxpayer, taken, takers)
           values ($1, 'login', '',
                   array_fill(clock_timestamp() - interval '64 seconds', array[8]),
                   array_fill('C1'::text, array[8]))""",
        CLIENT,
    )
    waiting = asyncio.create_task(
        take(make_limiter(True, patience=timedelta(seconds=10)), "login", 8, "C1")
    )
    await until(lambda: owner.fetchval("select 'C1' = any (waiting) from portal_buckets"))
    assert await owner.fetchval(
        "select max(at) < clock_timestamp() from portal_buckets, unnest(taken) at"
    )
    assert await take(make_limiter(True), "login", 4, "C2") == 4
    assert await waiting >= 4


async def test_quota_shares_apply_across_processes(
    environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    """Three taxpayers ask at the same time, each through its own pool."""
    config, taken = read_config({**environment, "PORTAL_RATE_SCALE": "1"}), {}

    async def ask(tin: str) -> None:
        async with connected_pool(config.database_url, 4) as pool:
            taken[tin] = await take(
                PortalRateLimiter(Database(pool), config, urgent=True), "submit", 100, tin
            )

    await spend(owner, "submit", 0)
    await wait_for(owner, "C1", "C2", "C3", "C4")
    await asyncio.gather(*[ask(tin) for tin in ("C1", "C2", "C3")])
    assert taken == {"C1": 25, "C2": 25, "C3": 25}
    (sizes,) = await owner.fetch(
        "select cardinality(taken) as taken, cardinality(takers) as takers from portal_buckets"
    )
    assert sizes["taken"] == sizes["takers"] == 75


async def test_searches_of_one_taxpayer_are_spaced(
    make_limiter: Callable[..., PortalRateLimiter],
) -> None:
    limiter = make_limiter(True)
    assert await take(limiter, "search", 3, "C1") == 1
    assert await take(limiter, "search", 3, "C2") == 1


def test_a_scaled_quota_is_at_least_one_request() -> None:
    for quotas in QUOTAS.values():
        for quota in quotas:
            for urgent in (True, False):
                bounds = limits(quota, Decimal("0.001"), urgent)
                assert bounds.most == bounds.pace_most == bounds.size == bounds.alone == 1
                assert bounds.span >= timedelta(seconds=quota.seconds)


async def test_two_processes_share_one_token_bucket(
    services: StartProcess, company: Company, sandbox: Sandbox
) -> None:
    await sandbox.settings(rate_scale=1)
    statuses: Counter[int] = Counter()
    for _ in range(2):
        service = await services(PORTAL_RATE_SCALE="1")
        async with service.client(company.key) as client:
            numbers = [f"{service.port}{number:07}" for number in range(45)]
            answers = [
                request_json(
                    client,
                    "POST",
                    "/api/validation/tin",
                    json={**VALID_TIN, "registration_number": each},
                )
                for each in numbers
            ]
            statuses.update(status for status, _ in await asyncio.gather(*answers))
    calls = await sandbox.calls()
    assert calls["calls"]["tin"] == 48 and "429" not in calls["answers"]["tin"]
    assert statuses[429] == 42


async def test_an_interactive_submit_may_exceed_the_background_share(
    limited_api: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    await owner.execute(AUTOMATIC)
    (waiting,) = await create_ready(limited_api, 1)
    alone = [await create_invoice(limited_api) for _ in range(6)]
    await spend(owner, "submit", 45)
    await start(PORTAL_RATE_SCALE="0.5")
    for invoice_id in alone[:5]:
        assert (await submit(limited_api, invoice_id))[0] == 200
    status, body = await submit(limited_api, alone[5])
    assert status == 400 and body["errors"][0]["code"] == "TooManyRequests"
    assert (await get_invoice(limited_api, alone[5]))["status"] == "Draft"
    assert (await get_invoice(limited_api, waiting))["status"] == "Submitting"
    assert await sandbox.count_calls("submit") == 5
    claims = await owner.fetchval("select max(claims) from submissions where state = 'Queued'")
    assert claims is not None and claims <= 1
    await owner.execute(LATER, timedelta(seconds=66))
    await start(PORTAL_RATE_SCALE="0.5")
    assert await wait_for_statuses(owner, [waiting], "Valid") == {"Valid": 1}


async def test_an_interactive_submit_waits_briefly_for_a_token(
    limited_api: Client, owner: asyncpg.Connection
) -> None:
    invoice_id = await create_invoice(limited_api)
    await spend(owner, "submit", 50, ago=64)
    assert (await submit(limited_api, invoice_id))[0] == 200


async def test_the_retry_after_of_the_portal_is_respected(
    limited_api: Client, sandbox: Sandbox
) -> None:
    await sandbox.fault("submit", "throttle", retry_after=600)
    ids = [await create_invoice(limited_api) for _ in range(3)]
    for invoice_id in ids:
        status, body = await submit(limited_api, invoice_id)
        assert status == 400 and body["errors"][0]["code"] == "TooManyRequests"
    assert await sandbox.count_calls("submit") == 1


@pytest.mark.long
async def test_a_listing_of_several_pages_stays_within_the_quota(
    limited_api: Client, owner: asyncpg.Connection, start: StartService, sandbox: Sandbox
) -> None:
    """The absence of lost documents is confirmed over two pages, with the portal's pause."""
    await owner.execute(AUTOMATIC)
    ids = await create_ready(limited_api, 130)
    await sandbox.settings(rate_scale=10)
    await start(PORTAL_RATE_SCALE="10")
    await wait_for_statuses(owner, ids, "Valid")
    await sandbox.fault("submit", "drop")
    lost = await create_ready(limited_api, 2)
    await wait_for_statuses(owner, lost, "Valid")
    assert await is_sent_once_each(sandbox, ids + lost)
    assert "429" not in str((await sandbox.calls())["answers"])


async def test_two_token_buckets_are_waited_for_together(
    environment: dict[str, str], owner: asyncpg.Connection
) -> None:
    """Requests that waited for one quota are still spaced as another quota requires."""
    await spend(owner, "search", 120, ago=64)
    config, times = read_config({**environment, "PORTAL_RATE_SCALE": "10"}), []
    async with connected_pool(config.database_url, 8) as pool:
        limiter = PortalRateLimiter(Database(pool), config, urgent=True)

        async def search() -> None:
            await limiter("search", "C1", further=True)
            times.append(asyncio.get_running_loop().time())

        await asyncio.gather(search(), search())
    assert times[1] - times[0] > 0.3  # 1.5 seconds, but shorter on a busy machine


async def test_a_rate_scale_of_zero_disables_the_quota(
    api: Client, owner: asyncpg.Connection
) -> None:
    assert api.app[app_keys.CONFIG].portal_rate_scale == 0
    await create_submitted_invoice(api)
    assert await owner.fetchval("select count(*) from portal_buckets") == 0


# Shares of cells


@pytest.mark.parametrize("cells", [2, 3, 30])
def test_shares_of_cells_do_not_exceed_the_quota(cells: int) -> None:
    share = Decimal(1) / cells
    for quotas in QUOTAS.values():
        for quota in quotas:
            if not quota.of_taxpayer:
                bounds = limits(quota, Decimal(1), urgent=True, share=share)
                rate = bounds.most / bounds.span.total_seconds()
                assert cells * rate <= quota.calls / quota.seconds
                assert bounds.size >= bounds.alone >= 1


async def test_cell_uses_its_share_of_the_operators_client_only(
    environment: dict[str, str],
) -> None:
    rates = {"PORTAL_RATE_SCALE": "1", "PORTAL_RATE_SHARE": "0.5"}
    config = read_config({**environment, **rates})
    async with connected_pool(config.database_url, 4) as pool:
        limiter = PortalRateLimiter(Database(pool, config), config, urgent=True)
        assert sum([await take(limiter, "login", 20, tin) for tin in ("C1", "C2", "C3")]) == 6
        for _ in range(8):
            await limiter("login", "C4", own_client_id="own")

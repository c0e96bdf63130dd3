"""Holds of many companies end: one comparison at a time, which waits for the portal's rate limits.

`released` below is how many holds have ended.
"""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.companies import verify_tin
from service.commands.reconcile import attention, hold_sending, reconcile
from service.config import Config, read_config
from service.db.statements import sql
from service.portal import listings
from service.submission import worker
from service.submission.machine.comparison_rules import MOST_DAYS
from tests.api_invoices import create_submitted_invoice, create_valid_invoice
from tests.api_requests import expect
from tests.conftest import Client, Company, Sandbox, StartService, make_company, until
from tests.harness.companies import make_tin
from tests.harness.waiting import patience

RELEASED = "select count(*) from sending_holds where released_at is not null"
CLAIM = (
    "select company_id from claim_comparisons('held', 1, interval '1 hour', interval '1 hour',"
    " interval '0', interval '74 hours', interval '30 days')"
)
CLAIM_OTHER = CLAIM.replace("held", "regular")
COMPARED = "insert into comparisons (company_id, compared_at, listed) values ($1, now(), $2)"
OWN_CLIENT = """insert into portal_credentials
                       (company_id, tin, client_id, fingerprint, sealed_secret)
                select id, tin, 'own', 'x', 'x' from companies where id = $1"""
NOT_SETTLED = {"PORTAL_SETTLE_SECONDS": "60"}
#: Longer than a test takes: a claim that is not released stays.
LONG_LEASE = {"PORTAL_LEASE_SECONDS": "600"}


async def hold(owner: asyncpg.Connection) -> None:
    await owner.execute("select hold_sending('A test.')")


async def wait_for_releases(owner: asyncpg.Connection, n: int) -> None:
    await until(lambda: owner.fetchval(RELEASED), lambda released: released == n)


async def test_many_holds_end_within_the_rate_limits(
    start: StartService, owner: asyncpg.Connection, sandbox: Sandbox
) -> None:
    """Two processes with the portal's rate limits, a hundred times as high."""
    for number in range(201, 251):
        await owner.execute(
            "insert into companies (name, tin_code, tin_verified_at) values ('Many', $1, now())",
            make_tin(number),
        )
    await sandbox.settings(rate_scale=100)
    await hold(owner)
    for _ in range(2):
        await start(PORTAL_RATE_SCALE="100", COMPARISON_SECONDS="1", **LONG_LEASE)
    await wait_for_releases(owner, 51)
    calls = await sandbox.calls()
    assert calls["calls"]["search"] == 51 and "429" not in calls["answers"]["search"]


async def test_refused_page_is_requested_again_and_the_pages_before_are_kept(
    start: StartService,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three pages; the portal refuses the second one twice and fails once."""
    monkeypatch.setattr(listings, "PAGE_SIZE", 1)
    api = await start(background=False)
    for code in (1, 2, 3):
        await create_submitted_invoice(api, code=code)
    before = await sandbox.count_calls("search")
    await hold(owner)
    await owner.execute("update sending_holds set since = since - interval '1 hour'")
    await sandbox.fault("search", "none")
    await sandbox.fault("search", "throttle", times=2, retry_after=1)
    await sandbox.fault("search", "error_before", status=503)
    await start(**LONG_LEASE)  # compares once
    await wait_for_releases(owner, 1)
    assert await owner.fetchval("select fence from comparisons") == 1  # one claim
    assert await sandbox.count_calls("search") - before == 3 + 2 + 1


async def test_a_process_that_ends_does_not_wait_for_a_complete_comparison(
    start: StartService,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for the portal's rate limit. Its claim is released."""
    monkeypatch.setattr(worker, "STOP_SECONDS", 600)
    await hold(owner)
    await owner.execute("update sending_holds set since = since - interval '1 hour'")
    await sandbox.fault("search", "throttle", retry_after=600)
    api = await start(**LONG_LEASE)
    await until(lambda: sandbox.count_calls("search"))
    assert await owner.fetchval("select lease_until is not null from comparisons")
    async with patience():
        await api.close()
    assert await owner.fetchval("select lease_until is null from comparisons")


async def test_a_company_that_fails_for_its_own_reason_does_not_block_others(
    start: StartService,
    environment: dict[str, str],
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
) -> None:
    """The portal lets the client act for the second company only."""
    second = await make_company(environment)
    tin = await owner.fetchval("select tin from companies where id = $1", second.id)
    await sandbox.send(
        "POST",
        "clients",
        {
            "client_id": "sandbox-client",
            "client_secret": "sandbox-secret",
            "tin": "C25845632020",
            "intermediary": True,
            "represents": [tin],
        },
    )
    await hold(owner)
    await start(COMPARISON_SECONDS="1", **LONG_LEASE)
    await wait_for_releases(owner, 1)
    row: Any = await until(
        lambda: owner.fetchrow(
            "select * from comparisons where company_id = $1 and failures > 0", company.id
        )
    )
    assert row["retry_at"] and row["lease_until"] is None


async def test_the_pause_after_failed_comparisons_doubles_up_to_a_limit(
    company: Company, owner: asyncpg.Connection
) -> None:
    await owner.execute("insert into comparisons (company_id, fence) values ($1, 1)", company.id)
    pauses = []
    for _ in range(6):
        await sql.comparison_end(
            owner,
            company_id=company.id,
            fence=1,
            rest=None,
            pause=timedelta(minutes=1),
            longest=timedelta(minutes=16),
        )
        pauses.append(await owner.fetchval("select retry_at - now() from comparisons"))
    minutes = [round(pause / timedelta(minutes=1)) for pause in pauses]
    assert minutes == [1, 2, 4, 8, 16, 16]


async def test_one_company_of_the_operators_client_is_compared_at_a_time(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> None:
    """A company with its own client has its own rate limits."""
    second, third = [await make_company(environment) for _ in range(2)]
    await owner.execute(OWN_CLIENT, third.id)
    await hold(owner)
    assert [await owner.fetchval(CLAIM) for _ in range(3)] == [third.id, company.id, None]
    await owner.execute("update comparisons set lease_until = null, compared_at = now()")
    assert [await owner.fetchval(CLAIM) for _ in range(2)] == [second.id, None]


async def test_held_companies_are_compared_before_others(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> None:
    """Those that send come first, and then those with few documents. Others do not delay them."""
    large, sending, routine = [await make_company(environment) for _ in range(3)]
    await owner.execute(COMPARED, company.id, 5)
    await owner.execute(COMPARED, large.id, 900)
    for each, ago in ((sending, 1), (routine, 20)):
        await owner.execute(
            "insert into submissions (company_id, attempt_key, tin, on_absence, state,"
            " last_sent_at) values ($1, gen_random_uuid(), 'C1', 'release', 'Finished',"
            " now() - $2 * interval '1 hour')",
            each.id,
            ago,
        )
    await hold(owner)
    await owner.execute("delete from sending_holds where company_id = $1", routine.id)
    assert await owner.fetchval(CLAIM_OTHER) == routine.id
    claimed = []
    while (found := await owner.fetchval(CLAIM)) is not None:
        claimed.append(found)
        await owner.execute(
            "update comparisons set lease_until = null, compared_at = now() where company_id = $1",
            found,
        )
    assert claimed == [sending.id, company.id, large.id]


async def test_a_hold_of_an_unverified_tin_counts_nowhere_and_ends_once_it_is_verified(
    start: StartService,
    company: Company,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    config: Config,
) -> None:
    await owner.execute("update companies set tin_verified_at = null")
    assert await run_command(config, hold_sending, "A test.") == {"held": 1}
    assert await owner.fetchval(CLAIM) is None
    api = await start(COMPARISON_SECONDS="0.2")
    shown = await run_command(config, attention)
    assert shown["holds"] == [] and shown["conditions"] == []
    await expect(api, 200, "GET", "/readyz")
    assert await sandbox.count_calls("search") == 0
    await run_command(config, verify_tin, company.id)
    await wait_for_releases(owner, 1)


async def test_a_comparison_of_another_database_than_the_noted_one_is_not_recorded(
    api: Client, owner: asyncpg.Connection, config: Config
) -> None:
    """The process that compares has not noticed a failover yet."""
    await create_valid_invoice(api)
    await owner.execute("update database_state set identity = 'another'")
    await owner.execute("delete from comparisons")
    await run_command(config, reconcile)
    assert await owner.fetchval("select count(compared_at) from comparisons") == 0


async def test_a_hold_reaches_back_to_the_latest_recorded_comparison(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> None:
    """Everything that was sent before is recorded. After a hold by hand nothing is known."""
    config = read_config({**environment, **NOT_SETTLED})
    await owner.execute(
        "insert into comparisons (company_id, compared_at)"
        " values ($1, now() - interval '70 hours')",
        company.id,
    )
    await owner.execute("update database_state set identity = 'another'")
    assert await owner.fetchval("select record_database_identity()")
    (found,) = (await run_command(config, reconcile))["companies"]
    assert found["held"] and found["days"] == 4  # a day more than 70 hours
    await run_command(config, hold_sending, "By hand.")
    (found,) = (await run_command(config, reconcile))["companies"]
    assert found["held"] and found["days"] == MOST_DAYS


async def test_a_company_without_api_keys_is_held(
    company: Company, owner: asyncpg.Connection
) -> None:
    """Its people use the dashboard only."""
    await owner.execute("delete from api_keys where company_id = $1", company.id)
    assert await owner.fetchval("select hold_sending('A test.')") == 1


async def test_a_hold_that_is_repeated_needs_another_comparison(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> None:
    config = read_config({**environment, **NOT_SETTLED})
    await owner.execute("select record_database_identity()")
    await hold(owner)
    await owner.execute("update sending_holds set since = since - interval '1 hour'")
    await owner.execute(COMPARED, company.id, 0)
    assert await run_command(config, hold_sending, "Again.") == {"held": 0}
    (found,) = (await run_command(config, reconcile))["companies"]
    assert found["held"]


async def test_a_failover_during_a_hold_by_hand_compares_no_less(
    environment: dict[str, str], company: Company, owner: asyncpg.Connection
) -> None:
    """Nothing is known after a hold by hand, also if the company was compared since."""
    config = read_config({**environment, **NOT_SETTLED})
    await run_command(config, hold_sending, "By hand.")
    await owner.execute(COMPARED, company.id, 0)
    await owner.execute("update database_state set identity = 'another'")
    assert await owner.fetchval("select record_database_identity()")
    (found,) = (await run_command(config, reconcile))["companies"]
    assert found["held"] and found["days"] == MOST_DAYS


async def test_a_hold_of_another_database_than_the_noted_one_does_not_end(
    company: Company, owner: asyncpg.Connection, config: Config
) -> None:
    """A failover returned to a moment of an earlier hold, after its comparison."""
    await hold(owner)
    await owner.execute("update sending_holds set since = since - interval '1 hour'")
    await owner.execute(COMPARED, company.id, 0)
    await owner.execute("update database_state set identity = 'another'")
    (found,) = (await run_command(config, reconcile))["companies"]
    assert found["held"]

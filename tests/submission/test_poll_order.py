"""The order of polls: outcomes before later changes, and every company in each round."""

from typing import Any

import asyncpg
import pytest

from service.commands.companies import add_company
from service.commands.serve import DEMO_COMPANY
from service.config import Config
from service.db.pool import connected_pool
from service.db.transactions import Database
from tests.api_invoices import create_valid_invoice
from tests.conftest import Client, Company, until

ADD = """
insert into submissions
       (company_id, attempt_key, tin, on_absence, fence, state, has_outcome, first_sent_at,
        last_sent_at, not_before)
select $1, gen_random_uuid(), 'C', 'retry', 1, 'Accepted', $2, now(),
       now(), now() - $3 * interval '1 second' - n * interval '1 ms'
  from generate_series(1, $4::int) n
"""
CLAIM = "select company_id, id, state from claim_submissions(interval '1 minute', $1)"


@pytest.fixture
async def companies(company: Company, owner: asyncpg.Connection, config: Config) -> list[int]:
    """Return the ids of twelve companies, in a noted database."""
    await owner.execute("select record_database_identity()")
    async with connected_pool(config.database_url, 1) as pool:
        more = [
            await add_company(
                config, Database(pool), **{**DEMO_COMPANY, "tin_code": f"C3088005{number:04}"}
            )
            for number in range(11)
        ]
    return [company.id, *(each["id"] for each in more)]


async def add_submissions(
    owner: asyncpg.Connection, company_id: int, count: int, seconds: int, has_outcome: bool = False
) -> None:
    """Add submissions of a company whose polls have been due for so many seconds."""
    await owner.execute(ADD, company_id, has_outcome, seconds, count)


async def test_each_company_is_polled_before_one_is_polled_twice(
    owner: asyncpg.Connection, companies: list[int]
) -> None:
    busy, *others = companies
    await add_submissions(owner, busy, 300, seconds=3600)
    for company_id in others[:7]:
        await add_submissions(owner, company_id, 1, seconds=1)
    first = [row["company_id"] for row in await owner.fetch(CLAIM, 8)]
    assert sorted(first) == sorted([busy, *others[:7]])
    assert [row["company_id"] for row in await owner.fetch(CLAIM, 8)] == [busy] * 8


async def test_a_new_poll_does_not_wait_for_older_backlogs(
    owner: asyncpg.Connection, companies: list[int]
) -> None:
    """More companies have a backlog than are polled in one round."""
    *busy, late = companies
    for company_id in busy:
        await add_submissions(owner, company_id, 100, seconds=3600)
    await add_submissions(owner, late, 1, seconds=1)
    for _ in range(60):
        if late in [row["company_id"] for row in await owner.fetch(CLAIM, 8)]:
            return
    raise AssertionError("the late company was not polled in 60 rounds")


async def test_polls_for_an_outcome_come_before_polls_for_later_changes(
    owner: asyncpg.Connection, companies: list[int]
) -> None:
    await add_submissions(owner, companies[0], 20, seconds=3600, has_outcome=True)
    await add_submissions(owner, companies[1], 2, seconds=1)
    assert [row["company_id"] for row in await owner.fetch(CLAIM, 2)] == [companies[1]] * 2
    assert [row["company_id"] for row in await owner.fetch(CLAIM, 50)] == [companies[0]] * 20


async def test_a_submission_has_an_outcome_once_all_its_documents_have_one(
    api: Client, owner: asyncpg.Connection
) -> None:
    await create_valid_invoice(api)
    await until(lambda: owner.fetchval("select has_outcome from submissions"))


async def test_next_due_returns_the_seconds_until_the_next_poll(
    owner: asyncpg.Connection, companies: list[int]
) -> None:

    async def next_due() -> Any:
        return await owner.fetchval("select extract(epoch from next_due())")

    assert await next_due() is None
    await add_submissions(owner, companies[0], 1, seconds=-600, has_outcome=True)
    assert 0 < await next_due() <= 600
    await add_submissions(owner, companies[1], 1, seconds=-60)
    assert 0 < await next_due() <= 60
    await owner.execute("update submissions set lease_until = now() + interval '2 minutes'")
    assert 60 < await next_due() <= 120

"""Query plans of the watchdog and of the gauges with many submissions."""

import json
import re
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from tests.conftest import Company

FEW = 1000  # rows of a small index
CONDITIONS = f"conditions({', '.join(['interval'] * 5)})"

#: 60,000 submissions of three companies: most wait for later changes of their documents, many are
#: finished, a few are in other states.
MANY = """
insert into companies (name, tin_code)
select 'C' || n, 'C2088005' || n || '0' from generate_series(201, 203) n;
insert into submissions (
    company_id, attempt_key, tin, on_absence, state, has_outcome, created_at,
    first_sent_at, last_sent_at, not_before)
select c.id, gen_random_uuid(), c.tin_code, 'retry', r.state,
       r.state = 'Accepted' and n % 1000 > 9, r.at, sent.at, sent.at, now() + interval '1 hour'
  from companies c
 cross join lateral (
         select n,
                now() - n * interval '1 second' as at,
                case when n % 1000 = 0 then 'Uncertain'
                     when n % 1000 = 1 then 'Sending'
                     when n % 100 = 2 then 'Queued'
                     when n % 10 < 3 then 'Finished'
                     else 'Accepted'
                end as state
           from generate_series(1, 20000) n) r
 cross join lateral (select case when r.state <> 'Queued' then r.at end as at) sent;
analyze submissions;
"""


@pytest.fixture
async def submissions(owner: asyncpg.Connection) -> None:
    await owner.execute(MANY)


async def plan(owner: asyncpg.Connection, function: str) -> dict[str, Any]:
    """Return the plan of the statement that a function runs, for the role that runs it."""
    text: Any = await owner.fetchval(f"select pg_get_functiondef('{function}'::regprocedure)")
    statement = re.findall(r"BEGIN ATOMIC(.*);\s*END", text, re.DOTALL)[0]
    names = re.findall(r"(\w+) interval", re.findall(r"FUNCTION [^(]+\(([^)]*)\)", text)[0])
    for name in names:
        statement = re.sub(rf"(\w+\.)?\b{name}\b", "interval '1 minute'", statement)
    async with owner.transaction():
        await owner.execute("set local role einvoice_across")
        explained: Any = await owner.fetchval(f"explain (format json) {statement}")
        return json.loads(explained)[0]["Plan"]


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


async def test_conditions_read_submissions_by_small_indexes(
    owner: asyncpg.Connection, submissions: None
) -> None:
    """They read overdue rows and the latest row of a company by large indexes."""
    found = list(nodes(await plan(owner, CONDITIONS)))
    rows = dict(
        await owner.fetch(
            "select relname, reltuples from pg_class where relname like 'submissions_%'"
        )
    )
    used = {name: rows[name] for node in found if (name := node.get("Index Name")) in rows}
    assert used.keys() >= {"submissions_repeated_claims", "submissions_kept_waiting"}
    large = {name for name, count in used.items() if count >= FEW}
    assert large == {"submissions_rechecks", "submissions_turn"}, used


@pytest.mark.parametrize("function", ["waiting_work()", CONDITIONS])
async def test_gauges_and_watchdog_read_no_submissions_that_wait_for_later_changes(
    owner: asyncpg.Connection, submissions: None, function: str
) -> None:
    """Only the overdue ones of them are read, by the index of their due times."""
    found = list(nodes(await plan(owner, function)))
    read = [node for node in found if node.get("Relation Name") == "submissions"]
    assert read and "Seq Scan" not in {node["Node Type"] for node in read}
    conditions = {node.get("Index Name"): node.get("Index Cond") for node in found}
    assert ("submissions_rechecks" in conditions) == (function == CONDITIONS)
    if function == CONDITIONS:
        assert "not_before <" in (conditions["submissions_rechecks"] or "")


async def test_claims_of_submissions_leave_the_indexes_alone(
    owner: asyncpg.Connection, company: Company
) -> None:
    """The index holds second claims without a result; a first claim is an ordinary event."""
    await owner.execute(
        "insert into submissions (company_id, attempt_key, tin, on_absence) "
        "select $1, gen_random_uuid(), 'C', 'retry' from generate_series(1, 5)",
        company.id,
    )
    claim = "update submissions set fence = fence + 1, claims = claims + 1, lease_until = now()"
    assert await hot_updates(owner, claim) == 5
    assert await owner.fetchval("select count(*) from submissions where has_repeated_claims") == 0
    assert await hot_updates(owner, claim) == 0
    assert await owner.fetchval("select count(*) from submissions where has_repeated_claims") == 5
    await owner.execute("update submissions set claims = 0")
    assert await owner.fetchval("select count(*) from submissions where has_repeated_claims") == 0


async def hot_updates(owner: asyncpg.Connection, statement: str) -> int:
    """Return the number of updates of a statement that changed no index."""
    async with owner.transaction():
        count = "select pg_stat_get_xact_tuples_hot_updated('submissions'::regclass)"
        before: Any = await owner.fetchval(count)
        await owner.execute(statement)
        after: Any = await owner.fetchval(count)
        return after - before

"""The simulated world decides about holds, claims and comparisons as the statements do."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import asyncpg
import pytest

from service.db.statements import sql
from service.submission.machine.comparison_rules import CHANGING, FURTHEST
from tests.conftest import Company
from tests.harness.world import FAILOVERS, TIMES, World, run_steps
from tests.harness.world_tables import EVERY, LEASE, Row

SETTLE = TIMES.portal_settle
#: A stored time that is so close to the clock is moved away from it: the statements run later.
CLOSE = timedelta(seconds=5)
WORLDS = range(60)


@pytest.fixture(autouse=True)
async def noted(owner: asyncpg.Connection) -> None:
    await owner.execute("select record_database_identity()")


def make_world(seed: int) -> World:
    """Return a world in the middle of a schedule with failovers."""
    rng = random.Random(seed)
    world = World(rng.choice)
    run_steps(world, rng, rng.randrange(20, 150), FAILOVERS)
    return world


@asynccontextmanager
async def stored(
    owner: asyncpg.Connection, company: Company, world: World
) -> AsyncIterator[asyncpg.Connection]:
    """Yield a transaction with the rows of a world, which is rolled back."""
    transaction = owner.transaction()
    await transaction.start()
    try:
        clock = _Clock(world.now, await read_clock(owner))
        await owner.execute(f"set local app.company_id = '{company.id}'")
        for submission_id, row in world.rows.items():
            if row.submission.state in ("Queued", "Sending", "Uncertain", "Accepted"):
                await _store_row(owner, company, clock, submission_id, row)
        await _store_hold(owner, company, clock, world)
        if world.identity != world.timeline:
            await owner.execute("update database_state set identity = 'another'")
        yield owner
    finally:
        await transaction.rollback()


async def read_clock(conn: asyncpg.Connection) -> datetime:
    now = await conn.fetchval("select clock_timestamp()")
    assert isinstance(now, datetime)
    return now


class _Clock:
    """Translates times of a world into those of the database."""

    def __init__(self, world: datetime, database: datetime) -> None:
        self._world, self._ahead = world, database - world

    def at(self, time: datetime | None, *, tie: int = -1) -> datetime | None:
        """Return a time. One that is close to the clock is moved; `tie` says whither if equal."""
        if time is None:
            return None
        if abs(time - self._world) < CLOSE:
            sign = tie if time == self._world else (1 if time > self._world else -1)
            time = self._world + sign * CLOSE
        return time + self._ahead

    def exactly(self, time: datetime | None) -> datetime | None:
        """Return a time that is compared with other stored times."""
        return time and time + self._ahead


async def _store_row(
    owner: asyncpg.Connection, company: Company, clock: _Clock, submission_id: int, row: Row
) -> None:
    submission = row.submission
    await owner.execute(
        """insert into submissions
                  (company_id, id, attempt_key, tin, state, on_absence, fence, claims,
                   not_before, lease_until, first_sent_at, last_sent_at, absence_confirmations,
                   has_outcome)
           overriding system value
           values ($1, $2, gen_random_uuid(), 'C1', $3, $4, $5, $6, $7, $8, $9, $10, $11,
                   $12)""",
        company.id,
        submission_id + 1,
        submission.state,
        submission.on_absence,
        row.fence,
        submission.claims,
        clock.at(row.not_before),
        clock.at(row.lease_until, tie=1),
        clock.exactly(submission.first_sent_at),
        clock.exactly(submission.last_sent_at),
        submission.absence_confirmations,
        submission.has_outcome,
    )


async def _store_hold(
    owner: asyncpg.Connection, company: Company, clock: _Clock, world: World
) -> None:
    if world.hold:
        await owner.execute(
            "insert into sending_holds (company_id, reason, since, known_until)"
            " values ($1, '', $2, $3)",
            company.id,
            clock.exactly(world.hold.since),
            clock.exactly(world.hold.known_until),
        )
    comparison = world.comparison
    await owner.execute(
        "insert into comparisons (company_id, fence, compared_at, lease_until, retry_at)"
        " values ($1, $2, $3, $4, $5)",
        company.id,
        comparison.fence,
        clock.exactly(comparison.compared_at),
        clock.at(comparison.lease_until, tie=1),
        clock.at(comparison.retry_at, tie=1),
    )
    for stored_finding in world.findings:
        if stored_finding.blocks:
            one = stored_finding.finding
            await owner.execute(
                "insert into findings (company_id, kind, tin, number, uuid)"
                " values ($1, $2, 'C1', $3, $4)",
                company.id,
                one.kind,
                one.number,
                one.uuid,
            )


def is_waiting(row: Row) -> bool:
    """Return whether a claim of the row depends on no other row."""
    is_head = row.submission.state == "Queued" and row.submission.on_absence == "retry"
    is_sent = row.submission.first_sent_at is not None
    return row.submission.state != "Uncertain" and (is_sent or not is_head)


async def test_the_world_claims_what_the_statement_claims(
    owner: asyncpg.Connection, company: Company
) -> None:
    claimed_in_all = 0
    for seed in WORLDS:
        world = make_world(seed)
        due = set(world.due(world.now, world.timeline))
        async with stored(owner, company, world) as conn:
            rows = await conn.fetch("select id from claim_submissions($1, 999, null, 999)", LEASE)
        claimed = {row["id"] - 1 for row in rows}
        waiting = {key for key in due if is_waiting(world.rows[key])}
        assert claimed <= due and waiting <= claimed, seed
        claimed_in_all += len(claimed)
    assert claimed_in_all


async def test_the_world_commits_intents_as_the_statement_does(
    owner: asyncpg.Connection, company: Company
) -> None:
    sent_in_all = 0
    for seed in WORLDS:
        world = make_world(seed)
        async with stored(owner, company, world) as conn:
            for key, row in world.rows.items():
                if row.submission.state != "Queued":
                    continue
                sent = await sql.submission_send(
                    conn,
                    company_id=company.id,
                    id=key + 1,
                    fence=row.fence,
                    request_sha256=b"",
                    document_hashes=[],
                    client_id="sandbox-client",
                    is_own=False,
                    lease=LEASE,
                )
                assert bool(sent) == world.can_send(key, row.fence, world.timeline), seed
                sent_in_all += bool(sent)
    assert sent_in_all


async def test_the_world_compares_when_the_statement_does(
    owner: asyncpg.Connection, company: Company
) -> None:
    await owner.execute("update companies set tin_verified_at = now()")
    results: set[bool] = set()
    for seed in WORLDS:
        world = make_world(seed)
        if world.hold and abs(world.hold.since + SETTLE - world.now) < CLOSE:
            continue
        is_due = world.is_comparison_due(world.now, SETTLE)
        async with stored(owner, company, world) as conn:
            claimed = await conn.fetchval(
                "select company_id from claim_comparisons($1, 1, $2, $3, $4, $5, $6)",
                "held" if world.hold else "regular",
                LEASE,
                EVERY,
                SETTLE,
                CHANGING,
                FURTHEST,
            )
        assert (claimed is not None) == is_due, seed
        results.add(is_due)
    assert results == {False, True}


@pytest.mark.parametrize("early", [timedelta(0), timedelta(seconds=1), SETTLE])
async def test_the_world_ends_holds_as_the_statement_does(
    owner: asyncpg.Connection, company: Company, early: timedelta
) -> None:
    """A comparison by hand can be earlier than the settling time."""
    results: set[bool] = set()
    for seed in WORLDS:
        world = make_world(seed)
        if world.hold:
            world.comparison.compared_at = world.hold.since + SETTLE - early
        async with stored(owner, company, world) as conn:
            released = await sql.hold_release(conn, company_id=company.id, settle=SETTLE)
        is_released = world.end_hold(SETTLE, world.timeline)
        assert bool(released) == is_released, seed
        results.add(is_released)
    assert results == ({False} if early else {False, True})


async def test_the_world_holds_sending_as_the_statement_does(
    owner: asyncpg.Connection, company: Company
) -> None:
    for seed in WORLDS:
        world = make_world(seed)
        async with stored(owner, company, world) as conn:
            await conn.execute("update database_state set identity = 'another'")
            await conn.execute("select record_database_identity()")
            hold = await conn.fetchrow("select * from sending_holds where released_at is null")
            rows = await conn.fetch("select * from submissions")
            now = await read_clock(conn)
        world.note_database(world.now, world.timeline + 1)
        assert hold and world.hold
        assert (hold["known_until"] is None) == (world.hold.known_until is None)
        if world.hold.known_until:
            since = hold["since"] - hold["known_until"]
            assert abs(since - (world.hold.since - world.hold.known_until)) < CLOSE, seed
        for row in rows:
            expected = world.rows[row["id"] - 1].submission
            assert row["absence_confirmations"] == expected.absence_confirmations, seed
            if expected.last_sent_at:
                ago = world.now - expected.last_sent_at
                assert abs((now - row["last_sent_at"]) - ago) < CLOSE, seed

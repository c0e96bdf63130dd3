"""A step backward of the database's clock: what was recorded before it does not stop the work."""

from datetime import timedelta
from typing import Any

import asyncpg

from service.submission import database_monitor
from tests.api_invoices import create_submitted_invoice, create_valid_invoice
from tests.api_reads import wait_until_status
from tests.api_requests import request_json
from tests.conftest import Company, StartService, until
from tests.harness.databases import open_connection

STEP = timedelta(hours=1)
#: Columns with times that are recorded ahead, as table, columns and condition.
AHEAD = (
    ("submissions", ("not_before", "lease_until"), "state in ('Queued', 'Accepted')"),
    ("submitted_documents", ("cancelling_until",), "true"),
    ("comparisons", ("lease_until", "retry_at", "compared_at"), "true"),
    ("webhook_deliveries", ("next_attempt_at", "lease_until"), "status = 'Pending'"),
    ("portal_buckets", ("paused_until",), "true"),
    ("refused_logins", ("retry_at",), "true"),
)


async def set_back(owner: asyncpg.Connection) -> None:
    """Make the rows those of a clock that was an hour ahead."""
    for table, columns, condition in AHEAD:
        changes = ", ".join(f"{column} = {column} + $1::interval" for column in columns)
        await owner.execute(f"update {table} set {changes} where {condition}", STEP)
    await owner.execute(
        "update portal_buckets"
        "   set taken = array(select at + $1::interval from unnest(taken) at order by at),"
        "       waiting_until = array(select at + $1::interval from unnest(waiting_until) at)",
        STEP,
    )
    await owner.execute("update database_state set seen_at = clock_timestamp() + $1", STEP)


async def test_polls_and_sends_go_on_after_a_step_of_the_clock(
    start: StartService, owner: asyncpg.Connection
) -> None:
    idle = await start(background=False, PORTAL_RATE_SCALE="1")
    waiting = await create_submitted_invoice(idle)
    await set_back(owner)
    api = await start(PORTAL_RATE_SCALE="1", WATCHDOG_SECONDS="0.1")
    await wait_until_status(api, waiting, "Valid")
    await create_valid_invoice(api)

    async def find_condition() -> dict[str, Any] | None:
        _, body = await request_json(api, "GET", "/readyz")
        found = [one for one in body["conditions"] if one["kind"] == "ClockStepped"]
        return found[0] if found else None

    condition: Any = await until(find_condition)
    assert 3580 <= condition["n"] <= 3600
    again: Any = await owner.fetchval("select note_clock()")
    assert again is None


async def test_times_are_moved_by_the_step_and_not_into_the_past(
    owner: asyncpg.Connection, company: Company
) -> None:
    now: Any = await owner.fetchval("select clock_timestamp()")
    ahead = {"a": 30, "b": 3630, "c": -30}
    for key, seconds in ahead.items():
        await owner.execute(
            "insert into portal_buckets (client_id, operation, taxpayer, paused_until)"
            " values ($1, 'login', '', $2)",
            *[key, now + timedelta(seconds=seconds)],
        )
    await owner.execute("update database_state set seen_at = clock_timestamp() + $1", STEP)
    step: Any = await owner.fetchval("select note_clock()")
    assert STEP - timedelta(seconds=9) < step <= STEP
    rows = await owner.fetch(
        "select client_id, paused_until as until from portal_buckets order by client_id"
    )
    moved = {row["client_id"]: (row["until"] - now).total_seconds() for row in rows}
    assert 0 <= moved["a"] < 20 and 20 < moved["b"] < 40 and moved["c"] == -30


async def test_an_open_write_transaction_is_noted_until_it_ends(
    owner: asyncpg.Connection, database: str
) -> None:
    look = "update database_state set seen_at = clock_timestamp() - interval '6 s'"
    noted = "select oldest, open_since from database_state"
    async with open_connection(database) as other:
        writing = other.transaction()
        await writing.start()
        written = await other.fetchval("select pg_current_xact_id()")

        async def note() -> tuple[Any, ...]:
            await owner.execute(look)
            await owner.execute("select note_clock()")
            return tuple(await owner.fetchrow(noted) or ())

        # Transactions in other databases of the server may be older.
        seen = await until(note, lambda found: found[0] == written)
        assert await note() == seen
        await writing.rollback()
        assert (await note())[0] != written


async def test_a_small_step_moves_nothing(owner: asyncpg.Connection) -> None:
    await owner.execute(
        "insert into portal_buckets (client_id, operation, taxpayer, paused_until)"
        " values ('a', 'login', '', clock_timestamp() + interval '1 hour')"
    )
    before = await owner.fetchval("select paused_until from portal_buckets")
    await owner.execute("update database_state set seen_at = clock_timestamp() + interval '9 s'")
    assert await owner.fetchval("select note_clock()") is None
    assert await owner.fetchval("select paused_until from portal_buckets") == before
    assert database_monitor.CHECK_SECONDS <= 5

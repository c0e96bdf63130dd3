"""The dedicated PostgreSQL session of a process: advisory locks and notifications."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from service.commands.bootstrap import run_command
from service.commands.companies import revoke_key
from service.config import Config, read_config
from service.db.session import DedicatedSession
from tests.api_invoices import create_lost_invoice
from tests.api_reads import wait_for_status
from tests.conftest import Client, Company, Sandbox, StartService, until


@asynccontextmanager
async def session(
    database: str, listeners: dict[str, Callable[[str], None]] | None = None
) -> AsyncIterator[DedicatedSession]:
    """Yield a connected dedicated session, like that of another process."""
    dedicated = DedicatedSession(read_config({"DATABASE_URL": database}), listeners or {})
    async with dedicated.running():
        await dedicated.connected()
        yield dedicated


async def test_a_submission_lock_excludes_every_other_session(database: str) -> None:
    async with session(database) as one, session(database) as other:
        async with one.lock_submissions(1, [7]) as first:
            async with (
                other.lock_submissions(1, [7]) as second,
                other.lock_submissions(2, [7]) as of_another,
            ):
                assert (first, second, of_another) == ({7}, set(), {7})
        async with other.lock_submissions(1, [7]) as free_again:
            assert free_again


async def test_a_submission_lock_excludes_other_tasks_of_its_session(database: str) -> None:
    async with (
        session(database) as dedicated,
        dedicated.lock_submissions(1, [7]),
        dedicated.lock_submissions(1, [7]) as again,
    ):
        assert not again


async def test_a_batch_of_locks_leaves_out_those_of_other_sessions(database: str) -> None:
    async with session(database) as one, session(database) as other:
        async with (
            one.lock_submissions(1, [7]),
            other.lock_submissions(1, [6, 7, 8]) as alone,
            one.lock_submissions(1, [7, 8, 9]) as of_the_rest,
        ):
            assert (alone, of_the_rest) == ({6, 8}, {9})
        async with one.lock_submissions(1, [6, 7, 8]) as free_again:
            assert free_again == {6, 7, 8}


async def test_a_session_that_ended_frees_its_submission_locks(
    database: str, owner: asyncpg.Connection
) -> None:
    async with session(database) as one, session(database) as other, one.lock_submissions(1, [7]):
        await owner.execute(
            """
            select pg_terminate_backend(pid) from pg_locks
             where locktype = 'advisory'
               and database = (select oid from pg_database where datname = current_database())
            """
        )

        async def is_free() -> bool:
            async with other.lock_submissions(1, [7]) as alone:
                return bool(alone)

        await until(is_free)


async def test_notifications_reach_the_listeners_of_a_session(
    database: str, owner: asyncpg.Connection
) -> None:
    received: list[str] = []
    async with session(database, {"submission_moved": received.append}):
        await owner.execute("select pg_notify('submission_moved', '1:7')")
        await until(lambda: asyncio.sleep(0, received))
    assert received == ["1:7"]


async def test_revoking_a_key_notifies_every_session(
    database: str, company: Company, config: Config, owner: asyncpg.Connection
) -> None:
    """Its use does not: each process would read it again."""
    received: list[str] = []
    async with session(database, {"api_key_changed": received.append}):
        await owner.execute("update api_keys set last_used_at = now()")
        await run_command(config, revoke_key, company.key_id)
        await until(lambda: asyncio.sleep(0, received))
    assert received == [company.key_id]


@pytest.mark.parametrize("state", ["Queued", "Sending", "Uncertain"])
async def test_submission_is_not_changed_while_its_lock_is_held(
    idle: Client,
    start: StartService,
    company: Company,
    database: str,
    owner: asyncpg.Connection,
    sandbox: Sandbox,
    state: str,
) -> None:
    """A paused process keeps its lock and may send when it resumes. Others may only claim."""
    invoice_id = await create_lost_invoice(idle, sandbox)
    submission_id: Any = await owner.fetchval("select id from submissions")
    async with (
        session(database) as paused,
        paused.lock_submissions(company.id, [submission_id]) as alone,
    ):
        assert alone
        await owner.execute(
            "update submissions set state = $1, lease_until = null, not_before = now()", state
        )
        claims: set[object] = set()

        async def count_claims() -> int:
            claims.add(await owner.fetchval("select fence from submissions"))
            return len(claims)

        await start()
        await until(count_claims, lambda count: count > 3)
        assert await owner.fetchval("select state from submissions") == state
        assert await sandbox.count_calls("submit") == 1
    await wait_for_status(idle, invoice_id, "Valid")
    assert len(await sandbox.ledger()) == 1

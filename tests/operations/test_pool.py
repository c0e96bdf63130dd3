"""The connection pool: order of callers, limits, dead connections, shutdown."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from service.db.connections import Connection, connect
from service.db.pool import Pool
from tests.conftest import until


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with asyncio.timeout(60):
        pool = Pool(lambda: connect(database, {}), 1)
        yield pool
        await pool.close()
        pool.terminate()


async def acquire(pool: Pool) -> Connection:
    conn, _ = await pool.acquire(30)
    return conn


async def test_a_connection_goes_to_the_caller_that_has_waited_longest(pool: Pool) -> None:
    """Each caller comes back as soon as it has returned the connection, as clients do."""
    served: list[int] = []

    async def use(number: int) -> None:
        for _ in range(20):
            conn = await acquire(pool)
            served.append(number)
            await conn.fetchval("select 1")
            pool.release(conn)

    await asyncio.gather(*[use(number) for number in range(5)])
    assert served == list(range(5)) * 20


async def test_a_caller_that_is_cancelled_when_it_is_served_passes_the_connection_on(
    pool: Pool,
) -> None:
    conn = await acquire(pool)
    first, second = asyncio.create_task(acquire(pool)), asyncio.create_task(acquire(pool))
    await asyncio.sleep(0)
    pool.release(conn)
    first.cancel()
    assert await second is conn
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_dead_connection_is_replaced(pool: Pool, owner: asyncpg.Connection) -> None:
    conn = await acquire(pool)
    pool.release(conn)
    await owner.execute("select pg_terminate_backend($1)", conn.get_server_pid())
    await until(lambda: asyncio.sleep(0, conn.is_closed()))
    other = await acquire(pool)
    assert other is not conn and await other.fetchval("select 1") == 1
    pool.release(other)


async def test_the_place_of_a_dead_connection_goes_to_the_next_caller(pool: Pool) -> None:
    conn = await acquire(pool)
    waiting = asyncio.create_task(acquire(pool))
    await asyncio.sleep(0)
    conn.terminate()
    pool.release(conn)
    other = await waiting
    assert other is not conn and not other.is_closed()


async def test_a_connection_in_a_transaction_is_not_lent_again(pool: Pool) -> None:
    conn = await acquire(pool)
    await conn.execute("begin")
    pool.release(conn)
    assert conn.is_closed() and await acquire(pool) is not conn


async def test_a_place_is_free_again_after_a_failed_connection(database: str) -> None:
    failures = iter([OSError("refused"), OSError("refused")])

    async def fail_twice() -> Connection:
        if error := next(failures, None):
            raise error
        return await connect(database, {})

    pool = Pool(fail_twice, 1)
    for _ in range(2):
        with pytest.raises(OSError, match="refused"):
            await pool.acquire(30)
    conn = await acquire(pool)
    pool.release(conn)
    await pool.close()


async def test_a_lent_connection_ends_when_it_returns_to_a_closed_pool(pool: Pool) -> None:
    conn = await acquire(pool)
    await pool.close()
    assert not conn.is_closed()
    pool.release(conn)
    assert conn.is_closed()

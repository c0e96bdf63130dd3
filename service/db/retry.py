"""Retries of work that PostgreSQL aborts, and of work that gets no locks on tables."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import asyncpg

from service.db.connections import Connection, is_aborted
from service.db.statements import sql
from service.db.transactions import COMMITTED
from service.errors import describe_error

TRIES = 3  # Attempts at work that PostgreSQL aborts.
#: How often work waits for its locks, a second each time.
LOCK_TRIES = 120

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


async def retry(work: Callable[[_Value], Awaitable[_Result]], value: _Value) -> _Result:
    """Return the result of `work(value)`, which is repeated if PostgreSQL aborts it.

    It is not repeated once one of its writing transactions was, or may have been, committed.
    """
    outer, committed = COMMITTED.get(), list[bool]()
    COMMITTED.set(committed)
    try:
        return await _repeat(
            TRIES, 0.05, partial(work, value), lambda error: not committed and is_aborted(error)
        )
    finally:
        COMMITTED.set(outer)
        if outer is not None:
            outer += committed


async def retry_locked(
    conn: Connection, migration: str, work: Callable[[], Awaitable[_Result]]
) -> _Result:
    """Run a migration in a transaction, repeat it while it gets no locks, and return its result.

    The transaction waits one second for its locks, during which later requests queue behind it.
    Then it logs that and lets them pass.
    """

    async def run() -> _Result:
        async with conn.transaction():
            await sql.migration_patience(conn)
            return await work()

    errors = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
    message = f"migration {migration} waits for locks on its tables"
    return await _repeat(LOCK_TRIES, 1, run, lambda error: isinstance(error, errors), message)


async def _repeat(
    tries: int,
    pause: float,
    work: Callable[[], Awaitable[_Result]],
    is_repeatable: Callable[[asyncpg.PostgresError], bool],
    message: str = "retry",
) -> _Result:
    """Return the result of `work`, which is repeated after repeatable errors.

    It logs them, and pauses for one to two times `pause` seconds.
    """
    for _ in range(tries - 1):
        try:
            return await work()
        except asyncpg.PostgresError as error:
            if not is_repeatable(error):
                raise
            log.warning("%s: %s", message, describe_error(error))
        await asyncio.sleep(pause * random.uniform(1, 2))
    return await work()

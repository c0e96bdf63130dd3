"""Work that needs locks on tables, in short transactions that let other queries pass."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from service.db.connections import Connection
from service.db.statements import sql

#: How often work waits for its locks, a second each time.
LOCK_TRIES = 120

_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


async def retry_locked(
    conn: Connection, message: str, work: Callable[[], Awaitable[_Result]], pause: float = 1
) -> _Result:
    """Run work in a transaction, retry it while it gets no locks, and return its result.

    The transaction waits one second for its locks, during which later requests queue behind it.
    Then it logs the message and lets them pass, for one to two times `pause` seconds.
    """
    for left in reversed(range(LOCK_TRIES)):
        try:
            async with conn.transaction():
                await sql.migration_patience(conn)
                return await work()
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            if not left:
                raise
            log.warning("%s", message)
        await asyncio.sleep(pause * random.uniform(1, 2))
    raise AssertionError

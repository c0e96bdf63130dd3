"""Batches: items of one company that arrive at the same time are written by one statement."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import asyncpg

from service.db.transactions import is_transient, noting_commit

MAX_ITEMS = 50  # of one statement

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batches(Generic[Item, Result]):
    """Collects the items of a company that arrive while its previous batch is being written.

    An item that arrives alone is written at once. `write` gets a company and its items, writes them
    in one transaction, and returns one result for each.
    """

    def __init__(self, write: Callable[[int, list[Item]], Awaitable[list[Result]]]) -> None:
        self._write = write
        #: Company -> the items that wait, as long as a batch of the company is being written.
        self._waiting: dict[int, list[tuple[Item, asyncio.Future[Result]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, company_id: int, item: Item) -> Result:
        """Write an item and return its result. Raises the error of `write`."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if company_id in self._waiting:
            self._waiting[company_id].append((item, future))
        else:
            self._waiting[company_id] = [(item, future)]
            task = asyncio.create_task(self._write_all(company_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with noting_commit():
            return await future

    async def _write_all(self, company_id: int) -> None:
        """Write batches of a company until no item waits."""
        while entries := self._waiting[company_id]:
            self._waiting[company_id] = entries[MAX_ITEMS:]
            await self._write_batch(company_id, entries[:MAX_ITEMS])
        del self._waiting[company_id]

    async def _write_batch(
        self, company_id: int, entries: list[tuple[Item, asyncio.Future[Result]]]
    ) -> None:
        """Write a batch. If PostgreSQL rejects it, write each item alone."""
        try:
            results = await self._write(company_id, [item for item, _ in entries])
        except Exception as error:
            is_rejected = isinstance(error, asyncpg.PostgresError) and not is_transient(error)
            if is_rejected and len(entries) > 1:
                for entry in entries:
                    await self._write_batch(company_id, [entry])
                return
            for _, future in entries:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(entries, results, strict=True):
                if not future.done():
                    future.set_result(result)

"""Batches: items of one company that arrive at the same time share a statement."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import asyncpg

from service.db.transactions import is_transient

MAX_ITEMS = 50  # of one statement

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


class Batches(Generic[Key, Item, Result]):
    """Collects the items of a key that arrive while its previous batch is running.

    The key names the company. An item that arrives alone runs at once. `run` gets a key and its
    items, runs one transaction for them, and returns one result for each.
    """

    def __init__(self, run: Callable[[Key, list[Item]], Awaitable[list[Result]]]) -> None:
        self._run = run
        #: Key -> the items that wait, as long as a batch of the key is running.
        self._waiting: dict[Key, list[tuple[Item, asyncio.Future[Result]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, key: Key, item: Item) -> Result:
        """Run an item in a batch and return its result. Raises the error of `run`."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if key in self._waiting:
            self._waiting[key].append((item, future))
        else:
            self._waiting[key] = [(item, future)]
            task = asyncio.create_task(self._run_all(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _run_all(self, key: Key) -> None:
        """Run batches of a key until no item waits."""
        while entries := self._waiting[key]:
            self._waiting[key] = entries[MAX_ITEMS:]
            await self._run_batch(key, entries[:MAX_ITEMS])
            # Requests that arrived together with the results first add their items to the next one.
            await asyncio.sleep(0)
        del self._waiting[key]

    async def _run_batch(
        self, key: Key, entries: list[tuple[Item, asyncio.Future[Result]]]
    ) -> None:
        """Run a batch. If PostgreSQL rejects it, run each item alone."""
        try:
            results = await self._run(key, [item for item, _ in entries])
        except Exception as error:
            is_rejected = isinstance(error, asyncpg.PostgresError) and not is_transient(error)
            if is_rejected and len(entries) > 1:
                for entry in entries:
                    await self._run_batch(key, [entry])
                return
            for _, future in entries:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(entries, results, strict=True):
                if not future.done():
                    future.set_result(result)

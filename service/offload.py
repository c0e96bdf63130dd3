"""Run CPU-heavy work on large documents in a thread, so that it does not block the event loop.

Threads share one interpreter, so there is one, which the clients of the service use in turn.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from service.errors import Busy, retry_after
from service.fair_queue import CLIENT, FairQueue

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: Characters of JSON. Smaller documents take a few milliseconds, no more than a thread costs.
LARGE = 50_000
WAIT_SECONDS = 8  # less than a transaction may be idle
MOST_WAITING = 64  # callers of one client, each with a document in memory
BUSY = "The service is busy with other work of this client, please try again."

_processor = FairQueue(1, MOST_WAITING)
turns = FairQueue(3, MOST_WAITING)  # one of each client at a time
_thread = ThreadPoolExecutor(1, "offload")


async def offload(
    size: int,
    work: Callable[Parameters, Result],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    """Return `work(*args)`, called in the thread if its input is larger than LARGE characters."""
    if size > LARGE:
        return await run_in_thread(work, *args, **kwargs)
    return work(*args, **kwargs)


async def run_in_thread(
    work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Return `work(*args)`, called in the thread. Raises Busy if the client has too much work."""
    async with _place_in(_processor):
        call = partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(_thread, call)


def turn() -> AbstractAsyncContextManager[None]:
    """Wait for the turn of the client, before it reads what it needs for heavy work.

    Else all its callers that wait have a parsed document in memory, which the garbage collector
    scans again and again. Raises Busy if the client has too much work.
    """
    return _place_in(turns)


@asynccontextmanager
async def _place_in(queue: FairQueue) -> AsyncIterator[None]:
    """Hold a place of a queue. Raises Busy if the client has too much work."""
    client = CLIENT.get()
    try:
        await queue.enter(WAIT_SECONDS)
    except TimeoutError:
        raise Busy(BUSY, retry_after(2)) from None
    try:
        yield
    finally:
        queue.leave(client)

"""Wait for conditions with a limit, instead of sleeping for a time that may be too short."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

#: The limit of waits. It is generous for busy machines; a test that passes does not wait for it.
PATIENCE_SECONDS = float(os.environ.get("TEST_PATIENCE_SECONDS", "60"))
POLL_SECONDS = 0.01

_Value = TypeVar("_Value")


@asynccontextmanager
async def patience(seconds: float = PATIENCE_SECONDS) -> AsyncIterator[None]:
    """Limit the duration of the block. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        yield


async def until(
    ask: Callable[[], Awaitable[_Value]],
    holds: Callable[[_Value], object] = bool,
    seconds: float = PATIENCE_SECONDS,
) -> _Value:
    """Return the value of `ask` as soon as `holds` accepts it. Raises TimeoutError."""
    async with patience(seconds):
        while not holds(value := await ask()):
            await asyncio.sleep(POLL_SECONDS)
        return value


async def wait_until(condition: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until `condition` returns a true value. Raises TimeoutError."""
    async with patience(seconds):
        while not condition():
            await asyncio.sleep(POLL_SECONDS)

"""Run CPU-heavy work on large documents in a thread, so that it does not block the event loop."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: Characters of JSON. Smaller documents take a few milliseconds, no more than a thread costs.
LARGE = 50_000


async def offload(
    size: int,
    work: Callable[Parameters, Result],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> Result:
    """Return `work(*args)`, called in a thread if its input is larger than LARGE characters."""
    if size > LARGE:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)

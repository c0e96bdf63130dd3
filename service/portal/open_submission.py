"""A submission that is connected first and written later."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

from service.portal.responses import SubmissionReceipt

#: Sends a submission and calls `before_bytes` when it is connected.
Submit = Callable[..., Coroutine[object, None, SubmissionReceipt]]
#: Writes the request of a connected submission, after a check, and returns the receipt.
Send = Callable[[Callable[[], None]], Awaitable[SubmissionReceipt]]


@asynccontextmanager
async def connect_submission(submit: Submit) -> AsyncIterator[Send]:
    """Start a submission, and yield `send(check)` when it is connected, including TLS.

    Raises its error before that. A request that was not sent when the block ends is abandoned and
    its connection closed.

    `check()` runs immediately before the first byte, and again before a second request that a 401
    causes, which is connected before its check too. If it raises NotSent, nothing is sent. If the
    request has failed since it was connected, by a timeout for example, `send` raises its error.
    """
    is_connected = asyncio.Event()
    go: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()

    async def hold() -> None:
        is_connected.set()
        check = await go
        check()

    async def send(check: Callable[[], None]) -> SubmissionReceipt:
        if not go.done():
            go.set_result(check)
        return await request

    request = asyncio.create_task(submit(before_bytes=hold))
    connected = asyncio.create_task(is_connected.wait())
    try:
        await asyncio.wait({request, connected}, return_when=asyncio.FIRST_COMPLETED)
        if request.done():
            request.result()
        yield send
    finally:
        connected.cancel()
        request.cancel()
        await asyncio.wait({request})
        # Mark the error as retrieved: it was raised, or the request was abandoned.
        if not request.cancelled():
            request.exception()

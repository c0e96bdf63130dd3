"""A submission that is connected first and written later."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from service.portal.responses import SubmissionReceipt

#: Sends a submission and calls `before_bytes` when it is connected.
Submit = Callable[..., Coroutine[object, None, SubmissionReceipt]]


class OpenSubmission:
    """A submission on an established connection, including TLS, with no byte written yet."""

    def __init__(self, submit: Submit) -> None:
        self.is_connected = asyncio.Event()
        self._go: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()
        self.request = asyncio.create_task(submit(before_bytes=self._before_bytes))

    async def _before_bytes(self) -> None:
        """Hold the request until `send`, then run its check."""
        self.is_connected.set()
        check = await self._go
        check()

    async def send(self, check: Callable[[], None]) -> SubmissionReceipt:
        """Write the request and return its SubmissionReceipt.

        `check()` runs immediately before the first byte, and again before a second request that a
        401 causes, which is connected before its check too. If it raises NotSent, nothing is sent.
        If the request has failed since it was connected, by a timeout for example, its error is
        raised.
        """
        if not self._go.done():
            self._go.set_result(check)
        return await self.request


@asynccontextmanager
async def connect_submission(submit: Submit) -> AsyncIterator[OpenSubmission]:
    """Start a submission and yield it when it is connected. Raises its error before that.

    A request that was not sent when the block ends is abandoned and its connection closed.
    """
    opened = OpenSubmission(submit)
    request, connected = opened.request, asyncio.create_task(opened.is_connected.wait())
    try:
        await asyncio.wait({request, connected}, return_when=asyncio.FIRST_COMPLETED)
        if request.done():
            request.result()
        yield opened
    finally:
        connected.cancel()
        request.cancel()
        await asyncio.wait({request})
        # Mark the error as retrieved: it was raised, or the request was abandoned.
        if not request.cancelled():
            request.exception()

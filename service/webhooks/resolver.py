"""Resolver for endpoints: slow name servers of one company do not delay others' deliveries.

A lookup occupies a thread until the operating system gives up, which can take longer than the
attempt that needs it. The event loop's own threads are few and serve other work too, so each lookup
has a thread of its own, and the number of lookups is limited for each company and for the process.
"""

import asyncio
import socket
import threading
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

PROCESS_LOOKUPS = 64
COMPANY_LOOKUPS = 4

Found = list[Any]  # by socket.getaddrinfo

#: The company of the current task's attempt.
company_of_attempt: ContextVar[int | None] = ContextVar("company_of_attempt", default=None)


class Resolver(AbstractResolver):
    """Resolves names with the operating system, at most COMPANY_LOOKUPS at once for each company.

    `timeout` limits the wait for one lookup, in seconds.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._running: Counter[int | None] = Counter()  # company -> threads
        self._ended = asyncio.Event()  # set when a thread has ended

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises OSError, such as TimeoutError and gaierror."""
        look = partial(
            socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        async with asyncio.timeout(self._timeout):
            found = await self._look_up(company_of_attempt.get(), look)
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for family, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Do nothing: threads that still wait for a name server do not block the exit."""

    async def _look_up(self, company: int | None, look: partial[Found]) -> Found:
        """Run a lookup in a thread, which counts until it ends, even after a timeout."""
        while self._running[company] >= COMPANY_LOOKUPS or self._running.total() >= PROCESS_LOOKUPS:
            self._ended.clear()
            await self._ended.wait()
        self._running[company] += 1
        lookup = _in_thread(look)
        lookup.add_done_callback(partial(self._end, company))
        return await asyncio.shield(lookup)

    def _end(self, company: int | None, lookup: asyncio.Future[Found]) -> None:
        lookup.exception()  # mark it as retrieved; the caller may have timed out
        self._running[company] -= 1
        if not self._running[company]:
            del self._running[company]
        self._ended.set()


def _in_thread(work: partial[Found]) -> asyncio.Future[Found]:
    """Start `work` in a daemon thread and return the future of its result."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def run() -> None:
        try:
            finish = partial(future.set_result, work())
        except Exception as error:
            finish = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish)

    threading.Thread(target=run, name="webhook-lookup", daemon=True).start()
    return future

"""A fair queue in front of what clients share: connections to PostgreSQL, and the processor.

A client is a company or an account. All requests without an account are one client together, so
that many addresses do not get many shares.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Hashable
from contextvars import ContextVar

#: The client of requests without an account.
STRANGERS = "strangers"
#: The client that the present task works for, None for the service itself.
CLIENT: ContextVar[Hashable] = ContextVar("client", default=None)

#: A client gets one of so many places. PostgreSQL and the processors serve few at a time: more of
#: them for one client only make the others slower.
SHARE = 4

Waiter = asyncio.Future[None]


class FairQueue:
    """Lends a number of places to clients in turn, and to the callers of a client in their order.

    A client gets at most one place of SHARE, and at least one; its turn lasts until it has them.
    The service itself may have all. `most_waiting` is the number of callers of one client that may
    wait.
    """

    def __init__(self, places: int, most_waiting: int) -> None:
        self._free = places
        self._most = max(1, places // SHARE)
        self._most_waiting = most_waiting
        self._held: Counter[Hashable] = Counter()
        #: The callers that wait, by client. The client that was served last is the last one.
        self._waiters: dict[Hashable, deque[Waiter]] = {}

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiters.values()))

    def enter_at_once(self) -> bool:
        """Take a place for the present client if it need not wait for it."""
        client = CLIENT.get()
        if not self._may_enter(client):
            return False
        self._take(client)
        return True

    async def enter(self, seconds: float | None) -> None:
        """Take a place for the present client.

        Raises TimeoutError if it gets none within `seconds`, or if too many of its callers wait.
        """
        if not self.enter_at_once():
            await self._wait(CLIENT.get(), seconds)

    def leave(self, client: Hashable) -> None:
        """Return a place of a client, and serve the callers that wait."""
        self._free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]
        while self._free and self._serve_next():
            pass

    def _may_enter(self, client: Hashable) -> bool:
        return self._free > 0 and (client is None or self._held[client] < self._most)

    def _take(self, client: Hashable) -> None:
        self._free -= 1
        self._held[client] += 1

    async def _wait(self, client: Hashable, seconds: float | None) -> None:
        """Wait for a place. A timer costs less than asyncio.timeout."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        waiters = self._waiters.setdefault(client, deque())
        if len(waiters) >= self._most_waiting:
            raise TimeoutError
        waiters.append(waiter)
        timer = None if seconds is None else loop.call_later(seconds, _give_up, waiter)
        try:
            await waiter
        except BaseException:
            if waiter.cancelled() or waiter.exception():
                self._remove(client, waiter)
            else:  # It was served, and cancelled at the same time.
                self.leave(client)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _serve_next(self) -> bool:
        """Serve the first client that may enter, if there is one."""
        for client in filter(self._may_enter, self._waiters):
            waiters = self._waiters[client]
            waiter = waiters.popleft()
            if not waiter.done():  # It may have given up.
                self._take(client)
                waiter.set_result(None)
            if not waiters:
                del self._waiters[client]
            elif self._held[client] >= self._most:
                self._waiters[client] = self._waiters.pop(client)  # Behind all others.
            return True
        return False

    def _remove(self, client: Hashable, waiter: Waiter) -> None:
        """Remove a caller that has given up, unless it was skipped when it was to be served."""
        waiters = self._waiters.get(client, deque())
        if waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[client]


def _give_up(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())

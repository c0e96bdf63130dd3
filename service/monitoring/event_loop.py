"""Monitor of the event loop: logs where it is blocked."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from service.monitoring.metrics import LOOP_LAG

BLOCKED_SECONDS = 2.0  # The timeout of a usual readiness probe.

log = logging.getLogger(__name__)


class EventLoopMonitor(threading.Thread):
    """Logs where the event loop is blocked, from a thread, because no task of the loop can."""

    def __init__(self, seconds: float = BLOCKED_SECONDS) -> None:
        """Prepare a monitor that reports a block of more than `seconds`."""
        super().__init__(name="event loop monitor", daemon=True)
        self._seconds = seconds
        self._beat = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.get_ident()  # The loop's thread.
        self._next: asyncio.TimerHandle | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        self._pulse()
        self.start()
        try:
            yield
        finally:
            self._ended.set()
            if self._next:
                self._next.cancel()

    def _pulse(self) -> None:
        now = time.monotonic()
        LOOP_LAG.observe(max(0.0, now - self._beat - self._seconds / 4))
        self._beat = now
        self._next = asyncio.get_running_loop().call_later(self._seconds / 4, self._pulse)

    def run(self) -> None:
        """Compare the time of the last pulse with the clock, and log each block once."""
        reported = None
        while not self._ended.wait(self._seconds / 4):
            beat = self._beat
            if time.monotonic() - beat > self._seconds and beat != reported:
                reported = beat
                stack = traceback.format_stack(sys._current_frames().get(self._thread), limit=12)
                log.warning(
                    "The event loop has been blocked for %.1f s:\n%s",
                    time.monotonic() - beat,
                    "".join(stack),
                )

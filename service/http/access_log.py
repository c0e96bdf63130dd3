"""The log line of each response, in the form of the other log lines."""

import asyncio
import logging
import sys
import time

NAME = "service.requests"

log = logging.getLogger(NAME)


class AccessLog:
    """Writes the lines of one round of the event loop together.

    The lines of a process that is killed in the middle of a round are lost.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._second = 0
        self._second_as_text = ""

    def add(self, text: str) -> None:
        """Add a line with the present time, if the log level allows it."""
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.write)
        self._lines.append(f"{self._now()} level=INFO logger={NAME} {text}\n")

    def write(self) -> None:
        """Write the lines to stderr."""
        lines, self._lines = self._lines, []
        sys.stderr.write("".join(lines))
        sys.stderr.flush()

    def _now(self) -> str:
        """Return the local time as the formatter of logging writes it."""
        second, fraction = divmod(time.time(), 1)
        if second != self._second:
            self._second = second
            self._second_as_text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._second_as_text},{int(fraction * 1000):03d}"

"""Processes that are killed, paused and started again, and end by themselves at a failpoint.

A plan is {point, times, action}: at that pass of the failpoint the process sends itself SIGKILL or
SIGSTOP. The service itself has no interface for plans.
"""

import asyncio
import importlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from service import failpoints
from tests.harness.failpoint_names import NAMES
from tests.harness.processes import ForkedProcess, read_peak

Plan = dict[str, Any]
#: Constants without a setting, scaled like the settings of the run: (module, name, value).
SCALED = (
    ("service.portal.responses", "PAUSE", timedelta(seconds=0.5)),  # after a 429 without a time
    ("service.portal.responses", "PAUSE_LEAST", timedelta(seconds=0.1)),
    # With the real value, listings take so long that no document seems absent for long enough.
    ("service.portal.rate_limits", "TAXPAYER_SLACK", 0.1),
    # With the real value, no repetition takes over the key of a process that was killed.
    ("service.http.idempotency", "LEASE", timedelta(seconds=4)),
    ("service.http.idempotency", "SETTLE_SECONDS", 3),
)
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
MARKS = "marks"


@dataclass(frozen=True, slots=True)
class Command:
    """A function that a process runs, which can be pickled, and its environment variables."""

    name: str
    run: Callable[[], None]
    environment: Mapping[str, str]


class PlannedProcess(ForkedProcess):
    """A process that may have a plan. Its name names its log in the directory `home`.

    It appends the passes of its failpoints to the file `marks` of `home`.
    """

    def __init__(
        self, home: Path, command: Command, port: int = 0, ready: str | None = None
    ) -> None:
        super().__init__(command.environment, home / f"{command.name}.log", port, ready)
        self.name = command.name
        self._run, self._marks = command.run, home / MARKS

    async def start(self, plan: Plan | None = None) -> bool:
        """Start the process and wait until it answers.

        Return False if it ended before that, by its plan or because it cannot start now.
        """
        return await self.run(partial(_run, self._run, plan, self._marks))

    async def pause(self, seconds: float) -> None:
        """Stop the process for some seconds."""
        self.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.send_signal(signal.SIGCONT)


def _run(run: Callable[[], None], plan: Plan | None, marks: Path) -> None:
    """Run a function with scaled constants and a plan."""
    for module, name, value in SCALED:
        if not hasattr(importlib.import_module(module), name):
            raise AttributeError(f"{module} has no {name} to scale")
        setattr(importlib.import_module(module), name, value)
    _install(plan, marks)
    run()


def _install(plan: Plan | None, marks: Path) -> None:
    """Record every pass of a failpoint in an append-only file, and carry out the plan."""
    file = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    left = dict.fromkeys(NAMES, 0)
    action = ""
    if plan:
        left[plan["point"]] = plan["times"]
        action = plan["action"]

    def record(name: str) -> None:
        pid = os.getpid()
        os.write(file, f"pass {name} 0 {pid}\n".encode())
        left[name] -= 1
        if left[name] == 0:
            os.write(file, f"{action} {name} {read_peak(pid)} {pid}\n".encode())
            os.kill(pid, SIGNALS[action])

    for name in NAMES:
        failpoints.actions[name] = partial(record, name)

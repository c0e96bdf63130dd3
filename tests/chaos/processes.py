"""The launcher and its processes, which are killed, paused and started again."""

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.processes import ROOT, Process

Plan = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A command of run.py with its environment; `name` names its log."""

    name: str
    argv: list[str]
    env: dict[str, str]


class Launcher:
    """The process that starts the others, which end with it. `marks` is the file of failpoints."""

    def __init__(self, home: Path) -> None:
        self.marks = home / "marks"
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> "Launcher":
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        self._process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "chaos.launcher"],
            env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        process = self._process
        assert process and process.stdin
        process.stdin.close()
        with suppress(ProcessLookupError):
            await process.wait()

    async def start(self, command: Command, plan: Plan | None = None) -> int:
        """Start a command and return its process id. Its output goes to its log."""
        order = {
            "argv": command.argv,
            "env": command.env,
            "plan": plan,
            "log": str(self._log_path(command.name)),
            "marks": str(self.marks),
        }
        process = self._process
        assert process and process.stdin and process.stdout
        async with self._lock:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            line = await process.stdout.readline()
        return int(line)

    def read_log(self, name: str) -> str:
        """Return the output of all processes of a name."""
        return self._log_path(name).read_text(errors="replace")

    def _log_path(self, name: str) -> Path:
        return self._home / f"{name}.log"


class ForkedProcess(Process):
    """A process of the launcher, which may have a plan. Its output goes to its log."""

    def __init__(
        self, launcher: Launcher, command: Command, port: int = 0, ready: str | None = None
    ) -> None:
        super().__init__(port, ready)
        self.name = command.name
        self._launcher, self._command = launcher, command

    async def start(self, plan: Plan | None = None) -> bool:
        """Start the process and wait until it answers.

        Return False if it ended before that, by its plan or because it cannot start now.
        """
        self.pid = await self._launcher.start(self._command, plan)
        return await self.wait_until_ready()

    async def pause(self, seconds: float) -> None:
        """Stop the process for some seconds."""
        self.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.send_signal(signal.SIGCONT)
